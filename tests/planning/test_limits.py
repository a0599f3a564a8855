"""How much text a model says in one go."""

import json

from xtts.planning.limits import Limits, read_limits
from xtts.planning.sizes import SIZES

GPT = SIZES["v2"].gpt


def test_the_longest_pieces_of_the_published_splitter_fit():
    """A full-size published model has room for French's 273 characters, and not for much more."""
    limits = read_limits("nowhere", GPT, is_published=True)
    assert limits.fits(tokens=200, characters=273)
    assert not limits.fits(tokens=200, characters=400)
    assert not limits.fits(tokens=GPT.max_text_tokens + 1, characters=100)


def test_a_run_says_no_more_than_it_was_trained_on(tmp_path):
    """A run's plan limits text and codes, and its pace tells how many codes a text needs."""
    plan = {"shapes": [{"text_length": 50, "mel_frames": 400}, {"text_length": 80, "mel_frames": 200}], "pace": 0.5}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    limits = read_limits(tmp_path, GPT, is_published=False)
    assert limits == Limits(80, 100, 0.5)
    assert limits.fits(tokens=45, characters=1000)
    assert not limits.fits(tokens=46, characters=1)

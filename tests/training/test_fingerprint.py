"""What a stage's weights were made from: what counts as a change, and what does not."""

from types import SimpleNamespace

from xtts.recipe.loading import parse_recipe
from xtts.training.fingerprint import diff_fingerprints, make_fingerprint

MATERIAL = SimpleNamespace(train=SimpleNamespace(corpus=SimpleNamespace(utterances=[])))
PLAN = SimpleNamespace(order=SimpleNamespace(workers=1))


def codec(train_rate, codec_rate):
    own = f"[codec]\nlearning_rate = {codec_rate}" if codec_rate else ""
    return make_fingerprint(parse_recipe(f"[train]\nlearning_rate = {train_rate}\n{own}"), "codec", MATERIAL, PLAN)


def test_a_codec_with_a_rate_of_its_own_does_not_ask_for_the_others():
    """Another learning rate for the GPT trains no codec anew, unless that is the codec's too."""
    assert diff_fingerprints(codec(1e-3, 2e-3), codec(5e-4, 2e-3)) == []
    assert diff_fingerprints(codec(1e-3, 2e-3), codec(1e-3, 1e-3)) == ["codec.learning_rate 0.002 -> 0.001"]
    assert diff_fingerprints(codec(1e-3, None), codec(5e-4, None)) == ["train.learning_rate 0.001 -> 0.0005"]


def test_what_is_written_before_is_understood():
    """A setting that has come since was at its default; one that counts no longer is no change, unlike other things."""
    now = codec(1e-3, 2e-3)
    before = {**now, "train.learning_rate": 0.1, "the recordings": "others"}
    del before["train.clip_norm"]
    assert diff_fingerprints(before, now) == ["the recordings"]
    assert diff_fingerprints({**before, "train.clip_norm": 2.0}, now) == [
        "the recordings",
        "train.clip_norm 2.0 -> 1.0",
    ]
    assert diff_fingerprints({**now, "the texts": "some"}, now) == ["the texts"]

"""Fingerprints of stages: the settings and data that weights depend on, compared with those of an earlier run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import attrs
import numpy as np
import pytest

from xtts.recipe.loading import parse_recipe
from xtts.recipe.schema import Recipe, setting_names
from xtts.recipe.settings import StageName, setting
from xtts.training.fingerprint import diff_fingerprints, make_fingerprint, weight_settings
from xtts.training.stages import STAGES

DATASET = SimpleNamespace(train=SimpleNamespace(corpus=SimpleNamespace(utterances=[])))
PLAN = SimpleNamespace(order=SimpleNamespace(workers=1))
GOLDEN = Path(__file__).parents[1] / "golden" / "run"
NO_WEIGHTS = """
run.name run.folder run.stages run.say data.pad_to_fixed_length data.service data.workers train.steps train.jit_compile
train.log_every train.validate_every train.sample_every train.save_every train.keep_checkpoints train.early_stopping
train.most_skipped codec.steps text.max_unknown
""".split()  # how a run is displayed, how long it is, and its speed; and all of [devices] and [cluster]


def codec(train_rate, codec_rate):
    own = f"[codec]\nlearning_rate = {codec_rate}" if codec_rate else ""
    recipe = parse_recipe(f"[train]\nlearning_rate = {train_rate}\n{own}")
    return make_fingerprint(recipe, STAGES["codec"], DATASET, PLAN, {})


def test_every_setting_declares_the_weights_it_affects():
    """A setting affects one stage, several or none; without a declaration it affects every stage."""
    for (section, name), field in setting_names().items():
        stages = field.metadata["shapes_weights"]
        assert set(stages) <= set(get_args(StageName)), name
        assert (not stages) == (f"{section}.{name}" in NO_WEIGHTS or section in ("devices", "cluster")), name
        assert isinstance(field.metadata["per_worker"], bool)
    assert set(STAGES) == set(get_args(StageName))

    @attrs.frozen
    class Section:
        new: int = setting(1, "nobody has thought about yet")

    (new,) = attrs.fields(Section)
    assert new.metadata["shapes_weights"] == tuple(STAGES)
    assert not new.metadata["per_worker"]


@pytest.mark.parametrize("stage", STAGES)
def test_runs_of_older_releases_stay_comparable(stage):
    """All names in the fingerprint of an older release are compared now; a setting that it lacks had its default."""
    before = json.loads((GOLDEN / stage / "inputs.json").read_text(encoding="utf-8"))
    now = weight_settings(Recipe(), STAGES[stage])
    assert {name for name in before if "." in name} <= set(now)
    assert diff_fingerprints(before, {**before, **{name: now[name] for name in set(now) - set(before)}}) == []


def test_changed_weights_of_an_earlier_stage_are_a_difference():
    """The GPT depends on the codec's weights, bit by bit."""
    stage = SimpleNamespace(name="gpt", section="train", facts=lambda dataset, plan: {"the texts": "some"})
    ones = {"a": np.ones(3)}
    one, same, other = (
        make_fingerprint(Recipe(), stage, DATASET, PLAN, {"codec": tensors})
        for tensors in (ones, {"a": np.ones(3)}, {"a": 2 * np.ones(3)})
    )
    assert one["the texts"] == "some"
    assert diff_fingerprints(one, same) == []
    assert diff_fingerprints(one, other) == ["the codec"]


def test_a_stage_with_its_own_learning_rate_ignores_the_general_one():
    """Changing the GPT's learning rate retrains the codec only if the codec uses it, too."""
    assert diff_fingerprints(codec(1e-3, 2e-3), codec(5e-4, 2e-3)) == []
    assert diff_fingerprints(codec(1e-3, 2e-3), codec(1e-3, 1e-3)) == ["codec.learning_rate 0.002 -> 0.001"]
    assert diff_fingerprints(codec(1e-3, None), codec(5e-4, None)) == ["train.learning_rate 0.001 -> 0.0005"]


def test_fingerprints_of_older_releases_are_understood():
    """A setting added since counts as its default, and one that no longer counts is ignored."""
    now = codec(1e-3, 2e-3)
    before = {**now, "train.learning_rate": 0.1, "the recordings": "others"}
    del before["train.clip_norm"]
    assert diff_fingerprints(before, now) == ["the recordings"]
    assert diff_fingerprints({**before, "train.clip_norm": 2.0}, now) == [
        "the recordings",
        "train.clip_norm 2.0 -> 1.0",
    ]
    assert diff_fingerprints({**now, "the texts": "some"}, now) == ["the texts"]

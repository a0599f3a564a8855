"""Properties of every training stage, and what adding one takes."""

import subprocess
import sys

import attrs
import numpy as np
import pytest

from xtts.planning.plan import make_plan
from xtts.planning.shapes import Shape, joint_length
from xtts.planning.sizes import SIZES
from xtts.recipe.loading import parse_recipe
from xtts.recipe.schema import Recipe
from xtts.training.fingerprint import weight_settings
from xtts.training.stages import STAGES, stages_of
from xtts.training.stages.stage import Stage
from xtts.weights.layout import PREFIXES

SHAPES = [Shape(text, mel, int(joint_length(text, mel)), 4) for text, mel in ((20, 120), (60, 400))]
EVERY = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


class NewStage(Stage):
    """A stage that is described but cannot be built: it reads [codec], and needs the weights of both others."""

    name = "decoder"
    section = "codec"
    needs = ("codec", "gpt")

    def activations(self, recipe, size, text_tokens, shape):
        return 10**12 * shape.batch_size

    def feature_bytes(self, recipe, size, shape):
        return 10**12 * shape.batch_size

    def batch_bytes(self, recipe, shape):
        return 3 * shape.mel_frames

    def build(self, context, needed):
        raise NotImplementedError


@EVERY
def test_a_stage_is_described_without_being_built(stage):
    """Its settings, shapes and memory follow from the recipe."""
    recipe = Recipe()
    assert stage.steps(recipe) == recipe.train.steps
    assert stage.learning_rate(recipe) == recipe.train.learning_rate
    shapes = stage.shapes(recipe, SHAPES)
    assert stage.traces(recipe, SHAPES) == len(shapes)
    for shape in shapes:
        larger = attrs.evolve(shape, batch_size=2 * shape.batch_size)
        for count in (
            lambda one: stage.batch_bytes(recipe, one),
            lambda one: stage.feature_bytes(recipe, SIZES["tiny"], one),
            lambda one: stage.activations(recipe, SIZES["tiny"], 100, one),
        ):
            assert count(larger) == 2 * count(shape) > 0
    assert set(stage.needs) < set(STAGES)
    assert stage.prefix == PREFIXES[stage.name]


def test_a_stage_reads_its_own_section_first():
    """What [codec] sets applies to the codec only."""
    recipe = parse_recipe("[train]\nsteps = 500\nlearning_rate = 1e-3\n[codec]\nsteps = 200\nlearning_rate = 2e-3\n")
    assert {name: (one.steps(recipe), one.learning_rate(recipe)) for name, one in STAGES.items()} == {
        "codec": (200, 2e-3),
        "gpt": (500, 1e-3),
    }


def test_relaxed_shapes_are_one_trace():
    """The GPT has dynamic lengths then; the codec's crops have one length anyway."""
    relaxed = parse_recipe('[data]\nshapes = "relaxed"\n')
    assert {name: one.traces(relaxed, SHAPES) for name, one in STAGES.items()} == {"codec": 1, "gpt": 1}
    assert [name for name, one in STAGES.items() if one.has_dynamic_shapes(relaxed)] == ["gpt"]


def test_stages_train_in_their_order():
    """Whatever their order in a recipe, a stage comes after those it needs."""
    for names in ('["codec", "gpt"]', '["gpt", "codec"]'):
        assert [one.name for one in stages_of(parse_recipe(f"[run]\nstages = {names}"))] == ["codec", "gpt"]
    assert [one.name for one in stages_of(parse_recipe('[run]\nstages = ["gpt"]'))] == ["gpt"]


def test_a_stage_passes_on_its_weights_under_published_names():
    """The weight average is used where there is one, and optimizer state is left out."""
    one, two, average = (np.full(2, value) for value in (1.0, 2.0, 3.0))
    checkpoint = {"model.a": one, "model.b": two, "average.a": average, "first.a": two}
    found = STAGES["gpt"].published_weights(checkpoint)
    assert {name: value[0] for name, value in found.items()} == {"gpt.a": 3.0, "gpt.b": 2.0}
    assert STAGES["gpt"].own_weights({**found, "dvae.c": one}).keys() == found.keys()
    assert STAGES["codec"].own_weights(None) == {}


def test_a_new_stage_is_planned_without_other_changes(monkeypatch):
    """Its memory is counted and limited, and settings depend on it only once the schema says so."""
    recipe = parse_recipe("[run]\nname = 'new'")
    lengths = np.full(40, 30), np.full(40, 200)
    without = make_plan(recipe, *lengths, 60, stages=stages_of(recipe))
    found = make_plan(recipe, *lengths, 60, stages=[*stages_of(recipe), NewStage()])
    assert (without.budgets["model"].stage, found.budgets["model"].stage) == ("gpt", "decoder")
    assert any(sentence.startswith("the model device needs") for sentence in found.advice)
    assert found.budgets["data"].weights == 4 * (found.parts["codec"].total + found.parts["gpt"].total)
    assert not weight_settings(recipe, NewStage())  # until the recipe's schema names it


def test_stages_are_described_without_tensorflow():
    """Plans, help and recipe errors need no import of TensorFlow."""
    code = "import sys; from xtts.training.stages import STAGES; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

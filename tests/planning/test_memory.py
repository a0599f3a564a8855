import re

import attrs
import numpy as np
import pytest

from xtts.planning import memory
from xtts.planning.shapes import Shape, batch_sizes, joint_length
from xtts.planning.sizes import SIZES, count_parameters
from xtts.recipe.schema import DevicesSection, Recipe, RunSection, TrainSection
from xtts.training.stages import STAGES, stages_of

TOKENS = 100  # of the tokenizer


def shapes_of(batch_size, *lengths):
    joint = np.array([joint_length(text, mel) for text, mel in lengths])
    rows = batch_sizes(joint, batch_size)
    return [Shape(text, mel, int(length), int(batch)) for (text, mel), length, batch in zip(lengths, joint, rows)]


def estimate_of(size, recipe, shapes=None, replicas=1):
    shapes = shapes or shapes_of(recipe.train.batch_size, (60, 400), (180, 860))
    return memory.MemoryEstimate(
        recipe=recipe,
        size=SIZES[size],
        text_tokens=TOKENS,
        shapes=shapes,
        stages=stages_of(recipe),
        replicas=replicas,
    )


def budget_of(size, recipe, device="model", **options):
    return estimate_of(size, recipe, **options).budgets()[device]


def recipe_of(**changes):
    """A recipe with these settings changed, whatever their section."""
    sections = {"train": TrainSection, "devices": DevicesSection, "run": RunSection}
    recipe = Recipe()
    for key, value in changes.items():
        section = next(name for name, kind in sections.items() if key in attrs.fields_dict(kind))
        recipe = attrs.evolve(recipe, **{section: attrs.evolve(getattr(recipe, section), **{key: value})})
    return recipe


def test_weights_gradients_and_optimizer_are_float32():
    """Weights and gradients take four bytes each, AdamW's moments and the weight average twelve."""
    weights = count_parameters(SIZES["small"], TOKENS)["gpt"].weights
    budget = budget_of("small", recipe_of())
    assert (budget.weights, budget.gradients, budget.optimizer) == (4 * weights, 4 * weights, 12 * weights)
    assert budget.total == 20 * weights + budget.activations + budget.buffer


def test_half_precision_halves_activations_and_keeps_master_weights():
    """In bfloat16 activations take half the bytes, and the weights exist in both types."""
    whole, half = budget_of("small", recipe_of()), budget_of("small", recipe_of(precision="bfloat16"))
    assert half.activations == pytest.approx(whole.activations / 2, abs=1)
    assert half.weights == whole.weights * 3 // 2
    assert half.optimizer == whole.optimizer


def test_gradient_accumulation_keeps_two_gradients():
    """Accumulation keeps the sum in addition to the gradients of the batch."""
    assert (
        budget_of("tiny", recipe_of(gradient_accumulation_steps=4)).gradients
        == 2 * budget_of("tiny", recipe_of()).gradients
    )


def test_activations_are_similar_for_shapes_with_equal_tokens():
    """Short shapes with more rows need about as many bytes as the longest with fewer."""
    shapes = shapes_of(16, (40, 230), (80, 450), (120, 650), (180, 860))
    for name in ("tiny", "v2"):
        needed = [STAGES["gpt"].activations(Recipe(), SIZES[name], TOKENS, shape) for shape in shapes]
        assert max(needed) < 1.25 * min(needed)


def test_the_buffer_has_the_configured_number_of_batches():
    """Its bytes grow with buffer_size; "auto" uses what memory allows, up to fifty batches."""
    one = budget_of("tiny", recipe_of(buffer_size=1)).buffer
    assert budget_of("tiny", recipe_of(buffer_size=7)).buffer == 7 * one
    assert budget_of("tiny", recipe_of(buffer_size="auto")).buffer == 50 * one
    tight = recipe_of(buffer_size="auto", model_gpu_memory_limit=2850)
    assert one < budget_of("tiny", tight).buffer < 50 * one
    assert budget_of("tiny", tight).fits


def test_the_stage_that_needs_most_is_shown():
    """A run of both stages needs what the GPT needs; one of the codec alone needs less."""
    both, codec = budget_of("tiny", recipe_of()), budget_of("tiny", recipe_of(stages=("codec",)))
    assert (both.stage, codec.stage) == ("gpt", "codec")
    assert codec.total < both.total
    assert codec.weights == 4 * count_parameters(SIZES["tiny"], TOKENS)["codec"].total


def test_a_recipe_that_fits_gets_no_advice():
    """A recipe within its memory limits gets none."""
    recipe = recipe_of()
    assert estimate_of("tiny", recipe).advice() == []


@pytest.mark.parametrize(
    ("size", "limit", "key"),
    [("tiny", 2950, "devices.buffer_size"), ("v2", 24_000, "train.batch_size"), ("v2", 9000, "model.size")],
)
def test_following_the_advice_makes_it_fit(size, limit, key):
    """The advice gives a key and a value with which the run fits: the buffer first, then the batch, then the size."""
    recipe = recipe_of(model_gpu_memory_limit=limit)
    lengths = ((60, 400), (180, 860))
    (advice,) = estimate_of(size, recipe, shapes=shapes_of(16, *lengths)).advice()
    assert f"devices.model_gpu_memory_limit gives it {limit}" in advice
    setting, value = re.search(rf"write ({key}) = \"?(\w+)\"?", advice).groups()
    assert setting == key
    if key == "model.size":
        assert budget_of(value, recipe, shapes=shapes_of(1, *lengths)).fits
        raised = int(re.search(r"model_gpu_memory_limit = (\d+)", advice).group(1))
        assert budget_of(size, recipe_of(model_gpu_memory_limit=raised), shapes=shapes_of(1, *lengths)).fits
    elif key == "train.batch_size":
        assert budget_of(size, recipe, shapes=shapes_of(int(value), *lengths)).fits
        steps = int(re.search(r"gradient_accumulation_steps = (\d+)", advice).group(1))
        assert int(value) * steps >= 16
    else:
        assert budget_of(size, recipe_of(model_gpu_memory_limit=limit, buffer_size=int(value))).fits
        assert not budget_of(size, recipe_of(model_gpu_memory_limit=limit, buffer_size=int(value) + 1)).fits


def test_the_data_device_has_its_own_limit():
    """If features do not fit on the data device, the advice names that device's key."""
    recipe = recipe_of(data_gpu_memory_limit=100)
    (advice,) = estimate_of("tiny", recipe).advice()
    assert advice.startswith("the data device")
    assert "devices.data_gpu_memory_limit gives it 100" in advice


def test_a_data_device_computes_the_rows_of_every_replica():
    """Features for two replicas take twice the memory of one's."""
    one, two = (budget_of("tiny", recipe_of(), "data", replicas=count) for count in (1, 2))
    assert two.activations == 2 * one.activations


def test_without_stages_nothing_is_counted():
    """A plan of shapes alone has no memory estimate and no advice."""
    estimate = attrs.evolve(estimate_of("v2", recipe_of(model_gpu_memory_limit=1)), stages=())
    assert (estimate.budgets(), estimate.advice()) == ({}, [])


def test_limits_apply_only_with_two_devices():
    """The dual pipeline needs both data_gpu and model_gpu."""
    assert not memory.is_dual(recipe_of())
    assert not memory.is_dual(recipe_of(model_gpu=1))
    assert memory.is_dual(recipe_of(model_gpu=1, data_gpu=0))

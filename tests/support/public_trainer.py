"""The public trainer's ten steps on a small published model, taken by this package's fine-tuning."""

from types import SimpleNamespace

import numpy as np
from published import ABOUT, golden, training_batch
from trials import ONE_CPU

from xtts.pipeline.prefetcher import StepBatches
from xtts.pipeline.references import RandomReferences, Stretch, count_masked
from xtts.planning.shapes import STOPS, Shape, joint_length
from xtts.recipe.defaults import resolve_defaults
from xtts.recipe.schema import DataSection, Recipe, TrainSection
from xtts.training.optimizer import AdamW, Schedule, decays
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import trainable_weights
from xtts.training.step import TrainingSteps
from xtts.weights import assignment

STEPS = 10
TOKENIZER = SimpleNamespace(size=6681, start=261, stop=0)
VARIANTS = {  # settings of the public trainer's runs
    "recipe": {"mask_reference_codes": "published"},
    "recipe_without_mask": {"mask_reference_codes": False},
    "decay_all": {"mask_reference_codes": "published", "weight_decay_on": "all"},
}


def set_up(weights, **train):
    """Fine-tuning of the published model, whose sizes must be those of the preset "tiny", with settings of [train]."""
    settings = {"learning_rate": 1e-4, "schedule": "constant", "warmup_steps": 0, "dropout": 0.0, "ema_decay": 0.0}
    recipe = Recipe(data=DataSection(shapes="planned"), train=TrainSection(clip_norm=0.0, **settings, **train))
    recipe = resolve_defaults(recipe, is_published=True)
    shapes = tuple(Shape(t, 4 * c, int(joint_length(t, 4 * c)), 2) for t, c in ((50, 111), (87, 208)))
    stage = TrainableGpt(recipe, TOKENIZER, shapes, use_stop_token=True, is_loaded=True)
    assignment.load_weights(stage.model, {n: one for n, one in weights.items() if n.startswith("gpt.")}, "gpt.")
    variables = {name: weight.variable for name, weight in trainable_weights(stage).items()}
    schedule = Schedule.of(recipe.train, recipe.train.learning_rate, 100)
    decayed = decays(variables, recipe.train.weight_decay_on)
    optimizer = AdamW(list(variables.values()), schedule, recipe.train, decayed)
    steps = TrainingSteps(stage, optimizer, strategy=ONE_CPU.start_strategy(), placement=ONE_CPU, recipe=recipe)
    steps.trace(lambda done, total: None)
    return recipe, stage, steps


def batch_of(recipe, number, cuts=None):
    """A batch with the mask that the recipe's settings give it, and the number of targets."""
    arrays = training_batch(golden("training"), number)
    references = RandomReferences.of(recipe)
    masked = np.zeros((2, 2), np.int32)
    if references.masks:
        for row, (start, stop) in enumerate(cuts or ABOUT["training"]["batches"][number]["cut_in_mel_frames"]):
            masked[row] = references.masked_codes(Stretch(start, stop - start), is_last=row == 1)
        arrays["masked_codes"] = masked
    codes = arrays["code_lengths"]
    totals = [arrays["text_lengths"].sum() + 2, codes.sum() + 2 * (STOPS + 1) - count_masked(masked, codes)]
    return arrays, np.array(totals, np.float32)


def ten_steps(recipe, steps):
    """The results of ten steps, over two batches in turns."""
    results = []
    for step in range(STEPS):
        arrays, totals = batch_of(recipe, step % 2)
        results.append(steps(StepBatches(step, (step % 2,), (), (arrays,), totals, 0)))
    return results

"""The settings that are tuned, and the values that are tried of each."""

from typing import Any, Callable, Dict, List, Tuple

import attrs

from xtts.pipeline.buffer import reader_count
from xtts.planning import machine
from xtts.planning.memory import LARGEST_BUFFER
from xtts.recipe.lines import Key
from xtts.recipe.schema import Recipe
from xtts.training.stages import STAGES

Changes = Dict[Key, Any]
SHAPE_KEYS: Tuple[Key, ...] = (("data", "shapes"), ("data", "shape_count"), ("data", "pad_to_fixed_length"))
UNCHANGED = "none"


@attrs.frozen
class TunedSetting:
    """Settings that are changed together, and how that changes what the model learns."""

    name: str
    keys: Tuple[Key, ...]
    options: Callable[[Recipe], List[Changes]]  # values to try instead of the recipe's
    effect: str  # on learning
    changes_speed_only: bool
    is_for_data: bool = False  # it can only help a model that waits for data


def tuned_settings(stage: str) -> List[TunedSetting]:
    """The settings tuned for a stage, in this order: those with few traces first, those that need many last."""
    batch: Key = (STAGES[stage].section, "batch_size")
    settings = [
        TunedSetting(
            "batch",
            (batch,),
            lambda recipe: _double_or_half(recipe, batch),
            "a step sees another number of utterances: check train.learning_rate and train.steps too",
            changes_speed_only=False,
        ),
        TunedSetting(
            "precision",
            (("train", "precision"),),
            _other_precisions,
            "other rounding errors: watch the loss",
            changes_speed_only=False,
        ),
        TunedSetting(
            "workers",
            (("data", "workers"),),
            _worker_counts,
            UNCHANGED,
            changes_speed_only=True,
            is_for_data=True,
        ),
        TunedSetting(
            "buffer",
            (("devices", "buffer_size"),),
            _buffer_sizes,
            UNCHANGED,
            changes_speed_only=True,
            is_for_data=True,
        ),
        TunedSetting(
            "shapes", SHAPE_KEYS, _shape_modes, "the same utterances in other batches", changes_speed_only=False
        ),
        TunedSetting(
            "xla", (("train", "jit_compile"), *SHAPE_KEYS), _xla, "none but rounding errors", changes_speed_only=True
        ),
    ]
    return [setting for setting in settings if STAGES[stage].has_planned_shapes or setting.name != "shapes"]


def _shape_change(recipe: Recipe, shapes: str, count: Any = "auto") -> Changes:
    changes: Changes = {("data", "shapes"): shapes, ("data", "shape_count"): count}
    return {**changes, ("data", "pad_to_fixed_length"): False} if recipe.data.pad_to_fixed_length else changes


def _shape_modes(recipe: Recipe) -> List[Changes]:
    relaxed = [] if recipe.train.jit_compile is True else [_shape_change(recipe, "relaxed")]
    return [*relaxed, *(_shape_change(recipe, "planned", count) for count in ("auto", 4, 8, 16))]


def _xla(recipe: Recipe) -> List[Changes]:
    if recipe.train.jit_compile is True:
        return [{("train", "jit_compile"): False}]
    compiled: Changes = {("train", "jit_compile"): True}
    return [{**_shape_change(recipe, "planned"), **compiled} if recipe.data.shapes == "relaxed" else compiled]


def _double_or_half(recipe: Recipe, key: Key) -> List[Changes]:
    rows = getattr(getattr(recipe, key[0]), key[1])
    return [{key: value} for value in (2 * rows, rows // 2) if value]


def _other_precisions(recipe: Recipe) -> List[Changes]:
    precisions = ("float32", "bfloat16", *(["float16"] if machine.has_gpu_driver() else []))
    return [{("train", "precision"): other} for other in precisions if other != recipe.train.precision]


def _worker_counts(recipe: Recipe) -> List[Changes]:
    count = reader_count(recipe.data.workers)
    return [{("data", "workers"): value} for value in (2 * count, count // 2) if value]


def _buffer_sizes(recipe: Recipe) -> List[Changes]:
    size = recipe.devices.buffer_size
    batches = LARGEST_BUFFER if isinstance(size, str) else size
    return [{("devices", "buffer_size"): value} for value in (2 * batches, "auto") if value != size]

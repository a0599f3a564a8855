"""Steps of small stages on artificial batches, on one device or several, and the weights they change.

As a program, `trials.py FOLDER codec:2 gpt:1 gpt:0`, it mirrors stages over two logical CPU devices, with the given
number of accumulated batches (0: one, with relaxed shapes), and writes the resulting weights to FOLDER. It is a
program because devices can be split only before TensorFlow starts.
"""

import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import attrs
import numpy as np
import tensorflow as tf
from small import SMALL

from xtts.pipeline.features import reference_shape
from xtts.pipeline.prefetcher import StepBatches
from xtts.planning.shapes import STOPS, Shape, joint_length
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES
from xtts.recipe.schema import AudioSection, CodecSection, DataSection, DevicesSection, Recipe, TrainSection
from xtts.text.tokenizer import CharacterTokenizer
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.placement import DEFAULT, Placement, place_devices
from xtts.training.stages.codec import TrainableCodec
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import trainable_weights
from xtts.training.step import TrainingSteps

ONE_CPU = Placement("/CPU:0", ("/CPU:0",), DEFAULT, {"/CPU:0": "the CPU"})
AUDIO = AudioSection(n_fft=256, win_length=256, n_mels=16)
SIZE = attrs.evolve(SMALL, codec=attrs.evolve(SMALL.codec, blocks=1))  # which halves the time of a trace
ROWS = 8  # of a step
SHAPES = ((6, 16), (9, 32))  # text tokens and mel frames of the GPT's batches
TOKENIZER = CharacterTokenizer(["en"], "abcdefgh")


class Trial(NamedTuple):
    """A stage and its traced steps."""

    recipe: Recipe
    stage: Any
    optimizer: AdamW
    steps: TrainingSteps

    def variables(self) -> Dict[str, np.ndarray]:
        """Every variable that training changes."""
        found = {name: weight.variable.numpy() for name, weight in self.stage.model.weights().items()}
        for slot, variables in self.optimizer.slots().items():
            found.update({f"{slot} {place}": variable.numpy() for place, variable in enumerate(variables)})
        return found


def recipe_for(dynamic_shapes: bool = False, **train: Any) -> Recipe:
    settings = {"steps": 100, "warmup_steps": 2, "learning_rate": 1e-3, "dropout": 0.0, **train}
    return Recipe(
        audio=AUDIO,
        data=DataSection(reference_seconds=0.2, shapes="relaxed" if dynamic_shapes else "planned"),
        codec=CodecSection(segment_frames=16),
        train=TrainSection(**settings),
    )


def trial(
    name: str,
    rows: int = ROWS,
    placement: Placement = ONE_CPU,
    jit: bool = False,
    validates: bool = False,
    is_traced: bool = True,
    shapes: int = 1,
    dynamic_shapes: bool = False,
    **train: Any,
) -> Trial:
    """A stage whose batches have this many rows on each replica."""
    recipe = recipe_for(dynamic_shapes, **train)
    recipe = attrs.evolve(recipe, codec=attrs.evolve(recipe.codec, batch_size=rows))
    strategy = placement.start_strategy()
    with strategy.scope():
        if name == "codec":
            stage: Any = TrainableCodec(recipe)
        else:
            own = [Shape(text, mel, int(joint_length(text, mel)), rows) for text, mel in SHAPES[:shapes]]
            stage = TrainableGpt(recipe, TOKENIZER, tuple(own))
        variables = [weight.variable for weight in trainable_weights(stage).values()]
        optimizer = AdamW(variables, Schedule.of(recipe.train, recipe.train.learning_rate, 100), recipe.train)
    held = attrs.evolve(stage.shapes[-1], batch_size=2) if validates else None
    steps = TrainingSteps(
        stage,
        optimizer,
        strategy=strategy,
        placement=placement,
        recipe=recipe,
        jit_compile=jit,
        validation_shape=held,
    )
    if name == "codec":
        first = batch("codec", ROWS, 1234)
        with strategy.scope():
            stage.model.init_codebook(tf.constant(first["mel"]), tf.constant(first["lengths"]), 0)
    if is_traced:
        steps.trace(lambda done, total: None)
    return Trial(recipe, stage, optimizer, steps)


def batch(name: str, rows: int, seed: int, shape: int = 0) -> Dict[str, np.ndarray]:
    """Rows of different lengths, the last one blank."""
    random = np.random.default_rng(seed)
    if name == "codec":
        lengths = random.integers(9, 17, rows).astype(np.int32)
        lengths[-1] = 0
        return {"mel": random.standard_normal((rows, 16, AUDIO.n_mels)).astype(np.float32), "lengths": lengths}
    text, mel = SHAPES[shape]
    frames = reference_shape(AUDIO, 0.2, mel)[1]
    text_lengths = random.integers(1, text + 1, rows).astype(np.int32)
    code_lengths = random.integers(1, mel // FRAMES_PER_CODE + 1, rows).astype(np.int32)
    text_lengths[-1] = code_lengths[-1] = 0
    return {
        "text": random.integers(0, TOKENIZER.size, (rows, text)).astype(np.int32),
        "text_lengths": text_lengths,
        "codes": random.integers(0, SMALL.codec.codes, (rows, mel // FRAMES_PER_CODE)).astype(np.int32),
        "code_lengths": code_lengths,
        "reference": random.standard_normal((rows, frames, AUDIO.n_mels)).astype(np.float32),
    }


def counts(arrays: Dict[str, np.ndarray]) -> np.ndarray:
    """The denominators of each part of the loss."""
    if "lengths" in arrays:
        lengths = arrays["lengths"]
        return np.array([lengths.sum(), (-(-lengths // FRAMES_PER_CODE)).sum()], np.float64)
    spoken = np.count_nonzero(arrays["code_lengths"])
    return np.array(
        [arrays["text_lengths"].sum() + spoken, arrays["code_lengths"].sum() + (STOPS + 1) * spoken], np.float64
    )


def work(step: int, batches: Sequence[Dict[str, Any]], shapes: Optional[Sequence[int]] = None) -> StepBatches:
    totals = np.sum([counts(one) for one in batches], axis=0).astype(np.float32)
    return StepBatches(step, tuple(shapes or [0] * len(batches)), (), tuple(batches), totals, 0)


def halves(arrays: Dict[str, np.ndarray]) -> List[Dict[str, np.ndarray]]:
    half = len(next(iter(arrays.values()))) // 2
    return [{name: array[part] for name, array in arrays.items()} for part in (slice(half), slice(half, None))]


def shortened(arrays: Dict[str, np.ndarray], keeps_blank: bool = False) -> Dict[str, np.ndarray]:
    """The GPT's batch cut to its longest row and, by default, without blank rows."""
    kept = (arrays["code_lengths"] > 0) | keeps_blank
    text, codes = (arrays[name].max() for name in ("text_lengths", "code_lengths"))
    some = {**arrays, "text": arrays["text"][:, :text], "codes": arrays["codes"][:, :codes]}
    return {name: array[kept] for name, array in some.items()}


def run(made: Trial, name: str, steps: int, first: int = 0) -> List[float]:
    """The losses of some steps, each on all of ROWS, in the stage's number of accumulated batches."""
    losses = []
    for step in range(first, first + steps):
        whole = batch(name, ROWS, step)
        whole = shortened(whole, keeps_blank=True) if made.stage.dynamic_shapes else whole
        accumulated = made.recipe.train.gradient_accumulation_steps
        losses.append(made.steps(work(step, halves(whole) if accumulated == 2 else [whole])).loss)
    return losses


def mirrored(name: str, accumulated: int, steps: int, path: str) -> None:
    """Write the variables of a stage trained on two logical CPU devices, which share the rows of a step."""
    placement = place_devices(DevicesSection(multi_gpu=True))
    pieces = max(1, accumulated)
    made = trial(
        name, ROWS // 2 // pieces, placement, dynamic_shapes=not accumulated, gradient_accumulation_steps=pieces
    )
    losses = run(made, name, steps)
    for weight in made.stage.model.weights().values():
        one, two = weight.variable.values  # of the two replicas
        assert np.array_equal(one.numpy(), two.numpy())
    np.savez(path, losses=np.array(losses), strategy=placement.strategy, **made.variables())


if __name__ == "__main__":
    SIZES["tiny"] = SIZE
    for asked in sys.argv[2:]:
        stage, _, accumulated = asked.partition(":")
        mirrored(stage, int(accumulated), 5, f"{sys.argv[1]}/{asked}.npz")

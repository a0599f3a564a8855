"""Padding strategies for LJSpeech's lengths, compared by GPT steps that are measured in turns.

All steps are measured in turns, and an epoch's time is the sum over its batches: for static shapes the time of each
shape times its batches; for dynamic lengths the time of a typical batch of each pool, scaled by the pool's work. The
zero-padding limit is an epoch in which every utterance costs only what its own length costs: the time of a token is a
linear function of the length, fitted to the measured steps.
"""

import time

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.pipeline.prefetcher import StepBatches
from xtts.planning import shapes
from xtts.planning.plan import make_plan
from xtts.planning.sizes import SIZES, step_cost
from xtts.recipe.loading import parse_recipe
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import trainable_weights
from xtts.training.step import TrainingSteps

CLOCKS = ("wall", "processor")
RECIPE = """
[data]
reference_seconds = 2.0
{data}
[train]
steps = {steps}
batch_size = 8
warmup_steps = 20
dropout = {dropout}
{train}
"""


class Letters:
    """A tokenizer with the vocabulary size of an English corpus."""

    size, start, stop = 60, 1, 0


@attrs.define(eq=False)
class Way:
    """One padding strategy, and its step times, as wall and processor time."""

    name: str
    plan: object
    stage: TrainableGpt
    steps: TrainingSteps
    works: list
    sizes: list  # shape of each work
    batches: np.ndarray  # batches of an epoch that each work represents
    start: np.ndarray  # [2] seconds, wall and processor
    seconds: list  # by round, by work, [2]

    def figures(self, text, mel, clock):
        """The figures by one of the CLOCKS."""
        own = CLOCKS.index(clock)
        medians = np.median(self.seconds, axis=0)[:, own]
        frames = float(mel[self.plan.layout.shape_of >= 0].sum())
        speed = frames / float((medians * self.batches).sum())
        return Figures(speed, speed / self._limit(medians, text, mel), float(self.start[own]))

    def _limit(self, medians, text, mel):
        """Frames a second if every utterance cost only what its own length costs."""
        joint = np.array([size.joint_length for size in self.sizes], float)
        rows = np.array([size.batch_size for size in self.sizes])
        line = np.polyfit(joint, medians / rows / joint, min(1, len(joint) - 1))
        own = shapes.joint_length(text, mel).astype(float)
        return float(mel.sum() / (np.polyval(line, own) * own).sum())


@attrs.frozen
class Figures:
    """The figures of one strategy, by one clock."""

    speed: float  # real frames a second
    share: float  # of the zero-padding limit
    start: float  # seconds

    def run(self, frames):
        """Seconds of a run of this many frames, including its start."""
        return self.start + frames / self.speed


def now():
    return np.array([time.perf_counter(), time.process_time()])


def recipe_for(data="", train="", steps=1000, dropout=0.0):
    return parse_recipe(RECIPE.format(data=data, train=train, steps=steps, dropout=dropout))


def made(name, text, mel, placement, data, jit=False, dropout=0.0, is_traced=True):
    """Make a strategy, traced unless it will run eagerly."""
    recipe = recipe_for(data, f"jit_compile = {str(jit).lower()}", dropout=dropout)
    found = make_plan(recipe, text, mel, Letters.size)
    stage = TrainableGpt(recipe, Letters(), found.layout.shapes)
    variables = [weight.variable for weight in trainable_weights(stage).values()]
    optimizer = AdamW(variables, Schedule.of(recipe.train, 1e-4, recipe.train.steps), recipe.train)
    steps = TrainingSteps(
        stage, optimizer, strategy=placement.start_strategy(), placement=placement, recipe=recipe, jit_compile=jit
    )
    began = now()
    if is_traced:
        steps.trace(lambda done, total: None)
    spent = now() - began
    if stage.dynamic_shapes:
        sizes, batches = drawn(found, text, mel)
    else:
        sizes, batches = stage.shapes, np.array(found.order.batches_per_shape, float)
    works = [work(stage, place, size) for place, size in enumerate(sizes)]
    return Way(name, found, stage, steps, works, list(sizes), batches, spent, [])


def drawn(found, text, mel):
    """For every two pools, a typical batch size of the first epoch, and their work as a number of such batches."""
    each = step_cost(SIZES["tiny"].gpt)
    pools = [[] for _ in found.layout.shapes[::2]]
    for batch in found.order.batches(0):
        members = batch.utterances
        pools[batch.shape // 2].append(shapes.max_shape(text[members], mel[members], len(members)))
    sizes, batches = [], []
    for pool in pools:
        works = [size.batch_size * each.of(size.joint_length) for size in pool]
        typical = int(np.argsort(works)[len(works) // 2])
        sizes.append(pool[typical])
        batches.append(sum(works) / works[typical])
    return sizes, np.array(batches)


def work(stage, place, size):
    """A batch of noise, every row as long as the shape."""
    random = np.random.RandomState(place)
    lengths = {"text_lengths": size.text_length, "code_lengths": size.mel_frames // 4}
    room = size.joint_length - shapes.joint_length(size.text_length, 0)  # longest text and mel may be of two rows
    lengths["code_lengths"] = min(lengths["code_lengths"], room)
    batch = {}
    for name, spec in stage.inputs(size, 1).items():
        if name in lengths:
            batch[name] = np.full(spec.shape, lengths[name], np.int32)
        elif name == "reference":
            batch[name] = random.standard_normal(tuple(spec.shape)).astype(np.float32)
        else:
            batch[name] = random.randint(2, 50, tuple(spec.shape)).astype(np.int32)
    return StepBatches(0, (place,), (size,), (batch,), np.array([1e3, 1e4], np.float32), 1)


def measure(ways, rounds):
    """Measure every step of every strategy, in turns, `rounds` times."""
    for _ in range(rounds):
        for way in ways:
            seconds = []
            for one in way.works:
                began = now()
                way.steps(one)
                seconds.append(now() - began)
            way.seconds.append(seconds)


class Naive:
    """The naive approach: tf.function without a signature, on batches of any lengths."""

    def __init__(self, relaxed):
        body = relaxed.steps.functions[0]
        self.function = compat.compiled(body.python_function, autograph=False)
        self._types = [spec.dtype for spec in body.input_signature]

    def __call__(self, work):
        values = [*work.batches[0].values(), work.totals, work.step, work.step, True]
        return self.function(*(tf.constant(value, dtype) for value, dtype in zip(values, self._types)))


def padded_share(found, text, mel):
    """The share of padding among all mel frames that an epoch computes, counted batch by batch."""
    computed = real = 0
    for batch in found.order.batches(0):
        members = batch.utterances
        size = found.layout.shapes[batch.shape]
        if found.recipe.data.shapes == "relaxed":
            size = shapes.max_shape(text[members], mel[members], len(members))
        computed, real = computed + size.batch_size * size.mel_frames, real + int(mel[members].sum())
    return 1 - real / computed

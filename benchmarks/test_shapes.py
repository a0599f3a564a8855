"""What planned shapes are worth: real mel frames a second of the GPT's steps, against one fixed 200 x 800 shape.

Lengths are LJSpeech's, the model is tiny, every shape's step is measured in turns with every other's, and an epoch's
time is the sum over its batches. The zero-padding limit is an epoch of the same steps in which every utterance costs
what its own length costs: time for a token is a straight line in the length, fitted to the shapes measured.

    pytest benchmarks/test_shapes.py -s -m long                    # 16 shapes, as graphs: about three minutes
    XTTS_BENCH_XLA=8 pytest benchmarks/test_shapes.py -s -m long   # and 8 compiled by XLA: compiling takes minutes more
"""

import os
import time

import attrs
import numpy as np
import pytest
from lengths import ljspeech_like

from xtts import shapes
from xtts.feed import Work
from xtts.optimizer import AdamW, Schedule
from xtts.placement import place
from xtts.plan import plan
from xtts.stages import GptStage, trainable
from xtts.step import Steps
from xtts.toml import loads

LIMIT_SHARE = 0.93  # of the zero-padding limit
ROUNDS = int(os.environ.get("XTTS_BENCH_ROUNDS", "5"))
XLA_SHAPES = int(os.environ.get("XTTS_BENCH_XLA", "0"))
STEPS = 1000  # of a run, for what starting costs
RECIPE = """
[data]
reference_seconds = 2.0
{shapes}
[train]
batch_size = 8
dropout = 0.0
jit_compile = {jit}
"""


class Letters:
    """As many tokens as an English corpus has."""

    size, start, stop = 60, 1, 0


@attrs.define(eq=False)
class Way:
    """One way to bring lengths to shapes, and how long its steps take."""

    name: str
    recipe: object
    plan: object
    steps: Steps
    works: list
    start_seconds: float
    seconds: list  # by shape, by round

    @property
    def medians(self):
        return np.array([np.median(one) for one in self.seconds])

    def frames_per_second(self, mel):
        epoch = float((self.medians * np.array(self.plan.order.batches_per_shape)).sum())
        return float(mel[self.plan.layout.shape_of >= 0].sum()) / epoch

    def step_seconds(self):
        batches = np.array(self.plan.order.batches_per_shape)
        return float((self.medians * batches).sum() / batches.sum())


def made(name, text, mel, placement, shapes_text, jit=False):
    recipe = loads(RECIPE.format(shapes=shapes_text, jit=str(jit).lower()))
    found = plan(recipe, text, mel, Letters.size)
    strategy = placement.start_strategy()
    stage = GptStage(recipe, Letters(), found.layout.shapes)
    variables = [weight.variable for weight in trainable(stage).values()]
    optimizer = AdamW(variables, Schedule.of(recipe.train, 1e-4, STEPS), recipe.train)
    steps = Steps(stage, optimizer, strategy, placement, recipe, jit)
    began = time.monotonic()
    steps.trace(lambda done, total: None)
    spent = time.monotonic() - began
    works = [work(stage, place) for place in range(len(stage.shapes))]
    return Way(name, recipe, found, steps, works, spent, [[] for _ in works])


def work(stage, place):
    """A batch of noise, every row as long as the shape."""
    random, shape = np.random.RandomState(place), stage.shapes[place]
    specs = stage.inputs(shape, 1)
    lengths = {"text_lengths": shape.text_length, "code_lengths": shape.mel_frames // 4 - shapes.STOPS}
    batch = {}
    for name, spec in specs.items():
        if name in lengths:
            batch[name] = np.full(spec.shape, lengths[name], np.int32)
        elif name == "reference":
            batch[name] = random.standard_normal(tuple(spec.shape)).astype(np.float32)
        else:
            batch[name] = random.randint(2, 50, tuple(spec.shape)).astype(np.int32)
    return Work(0, (place,), (batch,), np.array([1e3, 1e4], np.float32), 1)


def limit(way, text, mel):
    """Frames a second if every utterance cost what its own length costs."""
    joint = np.array([shape.joint_length for shape in way.plan.layout.shapes], float)
    rows = np.array([shape.batch_size for shape in way.plan.layout.shapes])
    line = np.polyfit(joint, way.medians / rows / joint, 1)
    own = shapes.joint_length(text, mel).astype(float)
    return float(mel.sum() / (np.polyval(line, own) * own).sum())


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_planned_shapes_outrun_one_fixed_shape():
    """Planned shapes reach 93 % of what no padding at all would reach, and lose no recording."""
    text, mel = ljspeech_like(13_100)
    placement = place(loads("[devices]\nbuffer_size = 50").devices)
    ways = [
        made("fixed 200 x 800", text, mel, placement, "pad_to_fixed_length = true"),
        made("16 planned", text, mel, placement, "shape_count = 16"),
    ]
    if XLA_SHAPES:
        ways.append(made(f"{XLA_SHAPES} planned, XLA", text, mel, placement, f"shape_count = {XLA_SHAPES}", jit=True))
    for _ in range(ROUNDS):
        for way in ways:
            for place_, one in enumerate(way.works):
                began = time.perf_counter()
                way.steps(one)
                way.seconds[place_].append(time.perf_counter() - began)
    base = ways[0].frames_per_second(mel)
    print(f"\n{'shapes':<18} {'frames/s':>9} {'ratio':>6} {'of the limit':>12} {'lost':>6} {'to start':>9}")
    shares = {}
    for way in ways:
        speed = way.frames_per_second(mel)
        share = shares[way.name] = speed / limit(way, text, mel) if way is not ways[0] else float("nan")
        lost = int((way.plan.layout.shape_of < 0).sum())
        print(f"{way.name:<18} {speed:9.0f} {speed / base:6.2f} {share:12.1%} {lost:6} {way.start_seconds:8.1f}s")
        print(
            f"{'':<18} a step {way.step_seconds():.3f} s; {STEPS} steps with their start take "
            f"{way.start_seconds + STEPS * way.step_seconds():.0f} s, for "
            f"{STEPS * way.step_seconds() * speed / 1e6:.2f} M real frames"
        )
    assert shares["16 planned"] >= LIMIT_SHARE

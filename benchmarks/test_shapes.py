"""What each way to bring lengths to shapes is worth: real mel frames a second of the GPT's steps, and whole runs.

Lengths are LJSpeech's, the model is tiny, every step is measured in turns with every other, and an epoch's time is the
sum over its batches: of a static shape those of its shape, of free lengths, pool by pool, those of a batch that was
drawn there, scaled by their work. The zero-padding limit is an epoch of the same steps in which every utterance costs
what its own length costs: time for a token is a straight line in the length, fitted to the steps measured.

    pytest benchmarks/test_shapes.py -s -m long                    # as graphs: about five minutes
    XTTS_BENCH_XLA=8 pytest benchmarks/test_shapes.py -s -m long   # and 8 compiled by XLA: compiling takes minutes more

XTTS_BENCH_ROUNDS says how often each step is measured, XTTS_BENCH_DROPOUT with how much dropout. Time by the clock and
processor time are both shown, and XTTS_BENCH_CLOCK says which is judged: "wall", or where others work "processor".
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
from xtts.plan import plan, settled
from xtts.sizes import SIZES, cost
from xtts.stages import GptStage, trainable
from xtts.step import Steps
from xtts.toml import loads

LIMIT_SHARE = 0.93  # of the zero-padding limit
XLA_RATIO = 2.0  # of the fixed shape's frames a second
NOISE = 1.05  # what a run may take longer than another, and still be as fast
ROUNDS = int(os.environ.get("XTTS_BENCH_ROUNDS", "5"))
XLA_SHAPES = int(os.environ.get("XTTS_BENCH_XLA", "0"))
DROPOUT = float(os.environ.get("XTTS_BENCH_DROPOUT", "0"))
CLOCKS = ("wall", "processor")
CLOCK = os.environ.get("XTTS_BENCH_CLOCK", "wall")
RUNS = {"dual_gpu": 100, "tiny_cpu": 3000}  # steps of the GPT in recipes that a CPU can train
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
    """As many tokens as an English corpus has."""

    size, start, stop = 60, 1, 0


@attrs.define(eq=False)
class Way:
    """One way to bring lengths to shapes, and how long its steps take, by the clock and in processor time."""

    name: str
    plan: object
    steps: Steps
    works: list
    sizes: list  # of each work
    batches: np.ndarray  # of an epoch, that each work stands for
    start: np.ndarray  # seconds, of both
    seconds: list  # by round, by work, of both

    def figures(self, text, mel, clock):
        """What is to be known of it by one of the CLOCKS."""
        own = CLOCKS.index(clock)
        medians = np.median(self.seconds, axis=0)[:, own]
        frames = float(mel[self.plan.layout.shape_of >= 0].sum())
        speed = frames / float((medians * self.batches).sum())
        return Figures(speed, speed / self._limit(medians, text, mel), float(self.start[own]))

    def _limit(self, medians, text, mel):
        """Frames a second if every utterance cost what its own length costs."""
        joint = np.array([size.joint_length for size in self.sizes], float)
        rows = np.array([size.batch_size for size in self.sizes])
        line = np.polyfit(joint, medians / rows / joint, min(1, len(joint) - 1))
        own = shapes.joint_length(text, mel).astype(float)
        return float(mel.sum() / (np.polyval(line, own) * own).sum())


@attrs.frozen
class Figures:
    """Of one way, by one clock."""

    speed: float  # real frames a second
    share: float  # of the zero-padding limit
    start: float  # seconds

    def run(self, frames):
        """Seconds of a run that learns from so many frames, with its start."""
        return self.start + frames / self.speed


def now():
    return np.array([time.perf_counter(), time.process_time()])


def recipe_for(data="", train="", steps=1000):
    return loads(RECIPE.format(data=data, train=train, steps=steps, dropout=DROPOUT))


def made(name, text, mel, placement, data, jit=False):
    recipe = recipe_for(data, f"jit_compile = {str(jit).lower()}")
    found = plan(recipe, text, mel, Letters.size)
    stage = GptStage(recipe, Letters(), found.layout.shapes)
    variables = [weight.variable for weight in trainable(stage).values()]
    optimizer = AdamW(variables, Schedule.of(recipe.train, 1e-4, recipe.train.steps), recipe.train)
    steps = Steps(stage, optimizer, placement.start_strategy(), placement, recipe, jit)
    began = now()
    steps.trace(lambda done, total: None)
    spent = now() - began
    if stage.is_free:
        sizes, batches = drawn(found, text, mel)
    else:
        sizes, batches = stage.shapes, np.array(found.order.batches_per_shape, float)
    works = [work(stage, place, size) for place, size in enumerate(sizes)]
    return Way(name, found, steps, works, list(sizes), batches, spent, [])


def drawn(found, text, mel):
    """Of every two pools the size of a batch of the first epoch, and for how many such ones their work is enough."""
    each = cost(SIZES["tiny"].gpt)
    pools = [[] for _ in found.layout.shapes[::2]]
    for batch in found.order.batches(0):
        members = batch.utterances
        pools[batch.shape // 2].append(shapes.longest(text[members], mel[members], len(members)))
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
    room = size.joint_length - shapes.joint_length(size.text_length, 0)  # a shape's longest text is of another row
    lengths["code_lengths"] = min(lengths["code_lengths"], room)
    batch = {}
    for name, spec in stage.inputs(size, 1).items():
        if name in lengths:
            batch[name] = np.full(spec.shape, lengths[name], np.int32)
        elif name == "reference":
            batch[name] = random.standard_normal(tuple(spec.shape)).astype(np.float32)
        else:
            batch[name] = random.randint(2, 50, tuple(spec.shape)).astype(np.int32)
    return Work(0, (place,), (size,), (batch,), np.array([1e3, 1e4], np.float32), 1)


def measure(ways):
    for _ in range(ROUNDS):
        for way in ways:
            seconds = []
            for one in way.works:
                began = now()
                way.steps(one)
                seconds.append(now() - began)
            way.seconds.append(seconds)


def planned_count(steps, text, mel):
    """Shapes of a run with planned ones that does not say how many."""
    return len(plan(recipe_for(steps=steps), text, mel, Letters.size).layout.shapes)


def default_of(steps, text, mel):
    """What a run on this machine takes that says nothing of shapes."""
    chosen = settled(recipe_for(steps=steps)).data.shapes
    return chosen if chosen == "relaxed" else f"{planned_count(steps, text, mel)} planned"


def table(ways, figures, frames, defaults):
    """A line a way; the way that a recipe's run takes by default has a star."""
    heads = "".join(f"{f'{name}, {steps} steps':>24}" for name, steps in RUNS.items())
    lines = [f"{'shapes':<16} {'frames/s':>9} {'ratio':>6} {'of the limit':>12} {'lost':>6} {'to start':>9}{heads}"]
    for way in ways:
        own, lost = figures[way.name], int((way.plan.layout.shape_of < 0).sum())
        runs = "".join(
            f"{own.run(frames[name]):22.0f} s"[:24] + ("*" if d == way.name else " ") for name, d in defaults.items()
        )
        ratio = own.speed / figures[ways[0].name].speed
        share = f"{own.share:12.1%}" if len(way.sizes) > 1 else f"{'':12}"
        lines.append(f"{way.name:<16} {own.speed:9.0f} {ratio:6.2f} {share} {lost:6} {own.start:8.1f}s{runs}")
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_default_outruns_every_other_way():
    """Planned shapes reach 93 % of what no padding would, or with XLA twice a fixed shape; and `auto` is the fastest.

    A run is as many steps of the default as its recipe has; other ways learn from as many frames.
    """
    text, mel = ljspeech_like(13_100)
    placement = place(loads("[devices]\nbuffer_size = 50").devices)
    defaults = {name: default_of(steps, text, mel) for name, steps in RUNS.items()}
    counts = {8, 16, *(planned_count(steps, text, mel) for steps in RUNS.values())}
    ways = [made("fixed 200 x 800", text, mel, placement, "pad_to_fixed_length = true")]
    ways += [made(f"{n} planned", text, mel, placement, f"shape_count = {n}") for n in sorted(counts)]
    ways += [made("relaxed", text, mel, placement, 'shapes = "relaxed"')]
    if XLA_SHAPES:
        ways.append(made(f"{XLA_SHAPES} planned, XLA", text, mel, placement, f"shape_count = {XLA_SHAPES}", jit=True))
    measure(ways)
    by_name = {way.name: way for way in ways}
    frames = {}
    for name, steps in RUNS.items():
        default = by_name[defaults[name]].plan
        frames[name] = steps * float(mel.sum()) / default.order.batches_per_epoch
    for clock in CLOCKS:
        figures = {way.name: way.figures(text, mel, clock) for way in ways}
        print(f"\n{clock}\n{table(ways, figures, frames, defaults)}")
    figures = {way.name: way.figures(text, mel, CLOCK) for way in ways}
    base = figures["fixed 200 x 800"].speed
    is_quick = any("XLA" in name and one.speed >= XLA_RATIO * base for name, one in figures.items())
    assert figures["16 planned"].share >= LIMIT_SHARE or is_quick
    for name, default in defaults.items():
        seconds = {other: one.run(frames[name]) for other, one in figures.items()}
        assert seconds[default] <= NOISE * min(seconds.values()), (name, seconds)

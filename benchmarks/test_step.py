"""Promise: a training step is traced once for each shape, and costs less as a graph or by XLA than in eager mode.

A small GPT takes steps in two shapes, eager, as a graph and compiled by XLA, in turns in one process; ratios of
processor time, traces, compilations and the number of operations in a step's graph are judged. The long form has four
layers, each way in a process of its own (`gpt_step.py`), and measures memory. For a comparison with coqui-tts:
`python -m benchmarks.peers`.
"""

import statistics
import sys
from pathlib import Path
from typing import Any, Dict

import attrs
import numpy as np
import pytest
import tensorflow as tf
from lengths import ljspeech_like
from promises import INSTRUCTIONS, at_most, processor_seconds
from turns import in_rounds
from ways import made

from xtts.planning.sizes import SIZES
from xtts.recipe.loading import parse_recipe
from xtts.training.placement import place_devices

SHAPES, ROUNDS = 2, 5
COST_OVER_EAGER = {"graph": at_most(0.9), "xla": at_most(0.9)}  # processor time of a step
TRACES = at_most(SHAPES)  # one for each shape, and with XLA as many compilations
OPERATIONS = at_most(6000)  # of the graph of one step
SAME_LOSS = 1e-3  # between the ways, after as many steps
LONG_ROUNDS, LONG_COST = 7, 1.1


class Eager:
    """The same steps without a graph."""

    def __init__(self, way: Any) -> None:
        self._bodies = [(one.python_function, one.input_signature) for one in way.steps.functions]

    def __call__(self, work: Any) -> float:
        body, signature = self._bodies[work.shapes[0]]
        values = [*work.batches[0].values(), work.totals, work.step, work.step, True]
        parts = body(*(tf.constant(value, spec.dtype) for value, spec in zip(values, signature)))[0]
        return float(parts.numpy() @ np.array([0.01, 1.0]))


@pytest.fixture(scope="module")
def steppers() -> Any:
    """For each way its steps and their inputs; all three start from the same weights."""
    tiny = SIZES["tiny"]
    gpt = attrs.evolve(tiny.gpt, layers=1, width=64, heads=2, conditioning_blocks=1, perceiver_layers=1)
    SIZES["tiny"] = attrs.evolve(tiny, gpt=gpt)
    text, mel = ljspeech_like(1000)
    placement = place_devices(parse_recipe("[devices]\nbuffer_size = 50").devices)
    few = f"shape_count = {SHAPES}"
    options = {"eager": {"is_traced": False}, "graph": {}, "xla": {"jit": True}}
    yield {way: made(way, text // 4, mel // 4, placement, few, **some) for way, some in options.items()}
    SIZES["tiny"] = tiny


def test_a_step_is_traced_once_a_shape_and_costs_less_than_eager(steppers: Any, promise: Any, benchmark: Any) -> None:
    """All three ways give the same losses; the compiled ones in a fraction of the time, without retraces."""
    calls = {way: one.steps for way, one in steppers.items()}
    calls["eager"] = Eager(steppers["eager"])
    losses, spent = {way: [] for way in calls}, {way: [] for way in calls}

    def round_of_all() -> None:
        for shape in range(SHAPES):
            for way, call in calls.items():
                work = steppers[way].works[shape]
                spent[way].append(processor_seconds(lambda: losses[way].append(call(work))))  # noqa: B023

    def over_eager(way: str) -> float:
        for _ in range(ROUNDS):
            round_of_all()
        return statistics.median(one / other for one, other in zip(spent[way], spent["eager"]))

    benchmark.pedantic(round_of_all, rounds=1)
    found = [losses["eager"][-1], losses["graph"][-1].loss, losses["xla"][-1].loss]
    assert max(found) - min(found) < SAME_LOSS * max(found)
    for way, bar in COST_OVER_EAGER.items():
        promise.ratio(f"step: processor time over eager, {way}", lambda name=way: over_eager(name), bar)
        functions = steppers[way].steps.functions
        count = sum(max(one.traces, one.compilations) for one in functions)
        promise.count(f"step: traces and compilations, {way}", lambda number=count: number, TRACES)
    graph = steppers["graph"].steps.functions[0].get_concrete_function().graph
    promise.count("step: operations of its graph", lambda: len(graph.get_operations()), OPERATIONS, INSTRUCTIONS)
    benchmark.extra_info["seconds by shape"] = {
        way: [statistics.median(times[shape::SHAPES]) for shape in range(SHAPES)] for way, times in spent.items()
    }


@pytest.mark.long  # XLA compiles for a minute
def test_a_large_graph_outruns_eager_mode(capsys: Any) -> None:
    """A step is traced once, as a graph or with XLA, and gives the same losses as in eager mode."""
    script = Path(__file__).parent / "gpt_step.py"
    ways: Dict[str, str] = dict.fromkeys(["eager", "graph", "xla"], sys.executable)
    steppers = in_rounds(ways, script, ["0.0", "2"], LONG_ROUNDS)
    work = {way: one.median("processor") for way, one in steppers.items()}
    with capsys.disabled():
        for way, one in steppers.items():
            clock, peak = one.median("seconds"), one.end["peak"] / 2**20
            print(f"\n{way:6} step {clock:.2f} s, processor {work[way]:.2f} s, process {peak:.0f} MB", end="")
    assert [steppers[way].end["traces"] for way in ("graph", "xla")] == [1, 1]
    losses = [one.turns[-1]["loss"] for one in steppers.values()]
    assert max(losses) - min(losses) < SAME_LOSS
    assert work["graph"] < LONG_COST * work["eager"]

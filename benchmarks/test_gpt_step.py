"""A training step of the transformer, eager, as a graph and compiled by XLA, beside that of the PyPI package coqui-tts.

Each runs in a process of its own, one step in turn, and the medians are compared. coqui-tts has needs of its own:
install it in an environment apart and name its Python in XTTS_COQUI_PYTHON. `pytest benchmarks/test_gpt_step.py` prints
times, traces, peak memory and ratios. XTTS_STEP_THREADS is how many threads each side has (2).
"""

import os
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from turns import COQUI, NO_COQUI, Program, in_turns, why_not_coqui

ROUNDS = 7
SCRIPT = Path(__file__).parent / "gpt_step.py"
THREADS = os.environ.get("XTTS_STEP_THREADS", "2")
SLOWEST_OVER_COQUI = 1.05  # a step takes at most so many times as long, on a machine that is not quite still
MOST_OVER_COQUI = 1.0  # and the process, with all that it has imported, at most so many times the memory


def measured(pythons: Dict[str, str], dropout: float) -> Dict[str, Program]:
    """Steps of each way, in turns."""
    return in_turns(pythons, SCRIPT, [str(dropout), THREADS], ROUNDS)


def shown(program: Program) -> str:
    return (
        f"{program.way:6} step {program.median('seconds'):6.2f} s, processor {program.median('processor'):6.2f} s, "
        f"first {program.first['first']:6.1f} s, process {program.end['peak'] / 2**20:5.0f} MB, "
        f"of it imports {program.end['imported'] / 2**20:4.0f} MB, traces {program.end['traces']}"
    )


def ratio(of: Program, to: Program, key: str) -> float:
    """Of the medians over rounds in which both did a step."""
    return of.median(key) / to.median(key)


def memory_ratio(of: Program, to: Program) -> float:
    """Of the whole processes at their peaks, compilation included."""
    return of.end["peak"] / to.end["peak"]


@pytest.mark.long  # XLA compiles for a minute
@pytest.mark.timeout(1200)
def test_a_graph_outruns_eager_mode(capsys: Any) -> None:
    """A step is traced once, whether as a graph or by XLA, and learns the same as in eager mode."""
    steppers = measured(dict.fromkeys(["eager", "graph", "xla"], sys.executable), dropout=0.0)
    with capsys.disabled():
        print()
        for stepper in steppers.values():
            over = ratio(stepper, steppers["eager"], "processor")
            print(f"{shown(stepper)}, {over:.2f} of eager")
    assert [steppers[way].end["traces"] for way in ("graph", "xla")] == [1, 1]
    losses = [stepper.turns[-1]["loss"] for stepper in steppers.values()]
    assert max(losses) - min(losses) < 1e-3
    assert ratio(steppers["graph"], steppers["eager"], "processor") < 1.1


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not COQUI, reason=NO_COQUI)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_beside_coqui(dropout: float, capsys: Any) -> None:
    """A step takes no longer than that of coqui-tts at equal sizes, nor more memory."""
    if why_not_coqui():
        pytest.skip(why_not_coqui())
    steppers = measured({"coqui": COQUI, "graph": sys.executable, "xla": sys.executable}, dropout)
    coqui = steppers["coqui"]
    with capsys.disabled():
        print(f"\ndropout {dropout}, {THREADS} thread(s), {coqui.first}")
        for stepper in steppers.values():
            clock, work = ratio(stepper, coqui, "seconds"), ratio(stepper, coqui, "processor")
            memory = memory_ratio(stepper, coqui)
            print(f"{shown(stepper)}; of coqui: clock {clock:.2f}, processor {work:.2f}, memory {memory:.2f}")
    assert ratio(steppers["graph"], coqui, "processor") < SLOWEST_OVER_COQUI
    assert memory_ratio(steppers["graph"], coqui) < MOST_OVER_COQUI

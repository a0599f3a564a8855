"""A training step of the transformer, eager, as a graph and compiled by XLA, beside that of the PyPI package coqui-tts.

Each runs in a process of its own, one step in turn, and the medians are compared. coqui-tts has needs of its own:
install it in an environment apart and name its Python in XTTS_COQUI_PYTHON. `pytest benchmarks/test_gpt_step.py` prints
times, traces, peak memory and ratios. XTTS_STEP_THREADS is how many threads each side has (2).
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

ROUNDS = 7
SCRIPT = Path(__file__).parent / "gpt_step.py"
COQUI = os.environ.get("XTTS_COQUI_PYTHON", "")
THREADS = os.environ.get("XTTS_STEP_THREADS", "2")
SLOWEST_OVER_COQUI = 1.05  # a step takes at most so many times as long, on a machine that is not quite still
MOST_OVER_COQUI = 1.0  # and the process, with all that it has imported, at most so many times the memory


class Stepper:
    """A process that does a step when it is asked to."""

    def __init__(self, python: str, way: str, dropout: float) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
        self._process = subprocess.Popen(
            [python, str(SCRIPT), way, str(dropout), THREADS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.way, self.first = way, self._line()
        self.steps: List[Dict[str, Any]] = []
        self.end: Dict[str, Any] = {}

    def step(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.steps.append(self._line())

    def finish(self) -> None:
        self._process.stdin.close()
        self.end = self._line()
        self._process.wait()

    def median(self, key: str) -> float:
        return statistics.median(step[key] for step in self.steps)

    def _line(self) -> Dict[str, Any]:
        line = self._process.stdout.readline()
        assert line, f"{SCRIPT.name} {getattr(self, 'way', '')} ended before its time"
        return json.loads(line)

    def __str__(self) -> str:
        return (
            f"{self.way:6} step {self.median('seconds'):6.2f} s, processor {self.median('processor'):6.2f} s, "
            f"first {self.first['first']:6.1f} s, process {self.end['peak'] / 2**20:5.0f} MB, "
            f"of it imports {self.end['imported'] / 2**20:4.0f} MB, traces {self.end['traces']}"
        )


def measured(ways: Dict[str, str], dropout: float) -> Dict[str, Stepper]:
    """Steps of each way, in turns."""
    steppers = {way: Stepper(python, way, dropout) for way, python in ways.items()}
    for _ in range(ROUNDS):
        for stepper in steppers.values():
            stepper.step()
    for stepper in steppers.values():
        stepper.finish()
    return steppers


def ratio(of: Stepper, to: Stepper, key: str) -> float:
    """Of the medians over rounds in which both did a step."""
    return of.median(key) / to.median(key)


def memory_ratio(of: Stepper, to: Stepper) -> float:
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
            print(f"{stepper}, {over:.2f} of eager")
    assert [steppers[way].end["traces"] for way in ("graph", "xla")] == [1, 1]
    losses = [stepper.steps[-1]["loss"] for stepper in steppers.values()]
    assert max(losses) - min(losses) < 1e-3
    assert ratio(steppers["graph"], steppers["eager"], "processor") < 1.1


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not COQUI, reason="XTTS_COQUI_PYTHON names no Python: install coqui-tts in one and name it")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_beside_coqui(dropout: float, capsys: Any) -> None:
    """A step takes no longer than that of coqui-tts at equal sizes, nor more memory."""
    found = subprocess.run([COQUI, "-c", "import TTS.tts.layers.xtts.gpt"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"{COQUI} cannot import coqui-tts: {found.stderr.strip().splitlines()[-1]}")
    steppers = measured({"coqui": COQUI, "graph": sys.executable, "xla": sys.executable}, dropout)
    coqui = steppers["coqui"]
    with capsys.disabled():
        print(f"\ndropout {dropout}, {THREADS} thread(s), {coqui.first}")
        for stepper in steppers.values():
            clock, work = ratio(stepper, coqui, "seconds"), ratio(stepper, coqui, "processor")
            memory = memory_ratio(stepper, coqui)
            print(f"{stepper}; of coqui: clock {clock:.2f}, processor {work:.2f}, memory {memory:.2f}")
    assert ratio(steppers["graph"], coqui, "processor") < SLOWEST_OVER_COQUI
    assert memory_ratio(steppers["graph"], coqui) < MOST_OVER_COQUI

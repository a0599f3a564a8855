"""Speaking code by code, uncached, as a graph and compiled by XLA, beside the generation of the PyPI package coqui-tts.

Each runs in a process of its own on the same weights, one sentence in turn, and the medians are compared. coqui-tts has
needs of its own: install it in an environment apart and name its Python in XTTS_COQUI_PYTHON. `pytest
benchmarks/test_speak.py` prints codes a second and ratios. XTTS_STEP_THREADS is how many threads each side has: one
unless said, for on a machine that others use too, the threads of torch wait for each other and its figures say nothing.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from turns import COQUI, ENVIRONMENT, NO_COQUI, Program, in_turns, why_not_coqui

ROUNDS = 7
SCRIPT = Path(__file__).parent / "speak.py"
THREADS = os.environ.get("XTTS_STEP_THREADS", "1")
LEAST_OVER_COQUI = 2.7  # codes a second of ours, by XLA, over those of coqui-tts
LEAST_OVER_UNCACHED = 3.0  # and with a cache over those without: more than ten on a still machine


def speed(program: Program, key: str = "seconds") -> float:
    """Codes a second, by the clock or by the processor."""
    return statistics.median(turn["codes"] / turn[key] for turn in program.turns)


def shown(program: Program) -> str:
    return (
        f"{program.way:8} {speed(program):7.1f} codes a second, {speed(program, 'processor'):7.1f} a second of "
        f"processor, first {program.first['first']:5.1f} s, traces {program.end['traces']}"
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("speak") / "gpt.safetensors"
    subprocess.run([sys.executable, str(SCRIPT), "weights", str(path)], check=True, env=ENVIRONMENT)
    return path


def measured(pythons: Dict[str, str], weights: Path, picking: str = "greedy") -> Dict[str, Program]:
    """Sentences of each way, in turns."""
    return in_turns(pythons, SCRIPT, [str(weights), THREADS, picking], ROUNDS)


@pytest.mark.timeout(1200)
def test_a_cache_pays(weights: Path, capsys: Any) -> None:
    """Every way speaks the same codes, compiled once, and with a cache much quicker than without."""
    speakers = measured(dict.fromkeys(["uncached", "graph", "xla"], sys.executable), weights)
    uncached = speakers["uncached"]
    with capsys.disabled():
        print()
        for speaker in speakers.values():
            print(f"{shown(speaker)}, {speed(speaker) / speed(uncached):.1f} of uncached")
    assert [speaker.end["traces"] for speaker in speakers.values()] == [1, 1, 1]
    assert speakers["graph"].first["codes"] == speakers["xla"].first["codes"]
    count = len(uncached.first["codes"])
    assert speakers["graph"].first["codes"][:count] == uncached.first["codes"]
    for way in ("graph", "xla"):
        assert speed(speakers[way], "processor") > LEAST_OVER_UNCACHED * speed(uncached, "processor")


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not COQUI, reason=NO_COQUI)
@pytest.mark.parametrize("picking", ["greedy", "sampled"])
def test_speaking_beside_coqui(picking: str, weights: Path, capsys: Any) -> None:
    """Codes come several times as quickly as those of coqui-tts from the same weights; the best ones are the same."""
    if why_not_coqui():
        pytest.skip(why_not_coqui())
    speakers = measured({"coqui": COQUI, "graph": sys.executable, "xla": sys.executable}, weights, picking)
    coqui, ours = speakers["coqui"], speakers["xla"]
    with capsys.disabled():
        print(f"\n{picking}, {THREADS} thread(s), torch {coqui.first['torch']}, tensorflow {ours.first['tensorflow']}")
        for speaker in speakers.values():
            clock, work = (speed(speaker, key) / speed(coqui, key) for key in ("seconds", "processor"))
            print(f"{shown(speaker)}; of coqui: clock {clock:.2f}, processor {work:.2f}")
    if picking == "greedy":
        assert ours.first["codes"] == coqui.first["codes"]
    assert speed(ours) > LEAST_OVER_COQUI * speed(coqui)
    assert ours.end["traces"] == 1

"""Speaking code by code, uncached, as a graph and compiled by XLA, beside the generation of the PyPI package coqui-tts.

Each runs in a process of its own on the same weights, one sentence in turn, and the medians are compared. coqui-tts has
needs of its own: install it in an environment apart and name its Python in XTTS_COQUI_PYTHON. `pytest
benchmarks/test_speak.py` prints codes a second and ratios. XTTS_STEP_THREADS is how many threads each side has: one
unless said, for on a machine that others use too, the threads of torch wait for each other and its figures say nothing.
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
SCRIPT = Path(__file__).parent / "speak.py"
COQUI = os.environ.get("XTTS_COQUI_PYTHON", "")
THREADS = os.environ.get("XTTS_STEP_THREADS", "1")
LEAST_OVER_COQUI = 2.7  # codes a second of ours, by XLA, over those of coqui-tts
LEAST_OVER_UNCACHED = 3.0  # and with a cache over those without: more than ten on a still machine
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}


class Speaker:
    """A process that speaks a sentence when it is asked to."""

    def __init__(self, python: str, way: str, weights: Path, picking: str) -> None:
        self._process = subprocess.Popen(
            [python, str(SCRIPT), way, str(weights), THREADS, picking],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            text=True,
        )
        self.way, self.first = way, self._line()
        self.sentences: List[Dict[str, Any]] = []
        self.traces = None

    def speak(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.sentences.append(self._line())

    def finish(self) -> None:
        self._process.stdin.close()
        self.traces = self._line()["traces"]
        self._process.wait()

    def speed(self, key: str = "seconds") -> float:
        """Codes a second, by the clock or by the processor."""
        return statistics.median(one["codes"] / one[key] for one in self.sentences)

    def _line(self) -> Dict[str, Any]:
        line = self._process.stdout.readline()
        assert line, f"{SCRIPT.name} {getattr(self, 'way', '')} ended before its time"
        return json.loads(line)

    def __str__(self) -> str:
        return (
            f"{self.way:8} {self.speed():7.1f} codes a second, {self.speed('processor'):7.1f} a second of processor, "
            f"first {self.first['first']:5.1f} s, traces {self.traces}"
        )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("speak") / "gpt.safetensors"
    subprocess.run([sys.executable, str(SCRIPT), "weights", str(path)], check=True, env=ENVIRONMENT)
    return path


def measured(ways: Dict[str, str], weights: Path, picking: str = "greedy") -> Dict[str, Speaker]:
    """Sentences of each way, in turns."""
    speakers = {way: Speaker(python, way, weights, picking) for way, python in ways.items()}
    for _ in range(ROUNDS):
        for speaker in speakers.values():
            speaker.speak()
    for speaker in speakers.values():
        speaker.finish()
    return speakers


@pytest.mark.timeout(1200)
def test_a_cache_pays(weights: Path, capsys: Any) -> None:
    """Every way speaks the same codes, compiled once, and with a cache much quicker than without."""
    speakers = measured(dict.fromkeys(["uncached", "graph", "xla"], sys.executable), weights)
    uncached = speakers["uncached"]
    with capsys.disabled():
        print()
        for speaker in speakers.values():
            print(f"{speaker}, {speaker.speed() / uncached.speed():.1f} of uncached")
    assert [speaker.traces for speaker in speakers.values()] == [1, 1, 1]
    assert speakers["graph"].first["codes"] == speakers["xla"].first["codes"]
    count = len(uncached.first["codes"])
    assert speakers["graph"].first["codes"][:count] == uncached.first["codes"]
    for way in ("graph", "xla"):
        assert speakers[way].speed("processor") > LEAST_OVER_UNCACHED * uncached.speed("processor")


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not COQUI, reason="XTTS_COQUI_PYTHON names no Python: install coqui-tts in one and name it")
@pytest.mark.parametrize("picking", ["greedy", "sampled"])
def test_speaking_beside_coqui(picking: str, weights: Path, capsys: Any) -> None:
    """Codes come several times as quickly as those of coqui-tts from the same weights; the best ones are the same."""
    found = subprocess.run([COQUI, "-c", "import TTS.tts.layers.xtts.gpt"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"{COQUI} cannot import coqui-tts: {found.stderr.strip().splitlines()[-1]}")
    speakers = measured({"coqui": COQUI, "graph": sys.executable, "xla": sys.executable}, weights, picking)
    coqui, ours = speakers["coqui"], speakers["xla"]
    with capsys.disabled():
        print(f"\n{picking}, {THREADS} thread(s), torch {coqui.first['torch']}, tensorflow {ours.first['tensorflow']}")
        for speaker in speakers.values():
            clock, work = (speaker.speed(key) / coqui.speed(key) for key in ("seconds", "processor"))
            print(f"{speaker}; of coqui: clock {clock:.2f}, processor {work:.2f}")
    if picking == "greedy":
        assert ours.first["codes"] == coqui.first["codes"]
    assert ours.speed() > LEAST_OVER_COQUI * coqui.speed()
    assert ours.traces == 1

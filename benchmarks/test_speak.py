"""Promise: generation is many times as fast with a key-value cache as without, and streaming starts early.

Generation uncached, as a graph and compiled by XLA, each in a process of its own with the same weights, a sentence at a
time in turns (`speak.py`); then the time to the first chunk of a stream over that of the whole sentence. For a
comparison with coqui-tts: `python -m benchmarks.peers`.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List

import attrs
import pytest
from promises import at_least, at_most
from speakers import make_run, reference
from turns import ENVIRONMENT, Program

from xtts.inference import synthesizer
from xtts.planning.sizes import SIZES

ROUNDS, STREAM_ROUNDS = 3, 2
SCRIPT = Path(__file__).parent / "speak.py"
OVER_UNCACHED = at_least(6.0)  # codes in the same processor time; more than thirty on an idle machine
PROGRAMS = at_most(1)  # traced or compiled
FIRST = at_most(0.5)  # the first chunk over the whole sentence, of nine seconds
LONG_FIRST = at_most(1 / 3)  # and of 28
TEXT = "the valley was quiet and the river ran on"


def speed(program: Program, key: str) -> float:
    """Codes a second, by wall or processor time, of the latest rounds."""
    return statistics.median(turn["codes"] / turn[key] for turn in program.turns[-ROUNDS:])


@pytest.fixture(scope="module")
def speakers(tmp_path_factory: Any) -> Any:
    path = tmp_path_factory.mktemp("speak") / "gpt.safetensors"
    subprocess.run([sys.executable, str(SCRIPT), "weights", str(path)], check=True, env=ENVIRONMENT)
    ways = ("uncached", "graph", "xla")
    programs = {way: Program(sys.executable, SCRIPT, way, str(path), "1", "greedy") for way in ways}
    yield programs
    for program in programs.values():
        program.finish()


def test_a_cache_pays(speakers: Any, promise: Any, benchmark: Any) -> None:
    """Every way generates the same codes, is compiled once, and is much faster with a cache than without."""
    spoken = {way: one.first["codes"] for way, one in speakers.items()}
    assert spoken["graph"] == spoken["xla"]
    assert spoken["graph"][: len(spoken["uncached"])] == spoken["uncached"]
    benchmark.pedantic(speakers["xla"].turn, rounds=3)

    def over_uncached(way: str) -> float:
        for _ in range(ROUNDS):
            speakers["uncached"].turn()
            speakers[way].turn()
        return speed(speakers[way], "processor") / speed(speakers["uncached"], "processor")

    for way in ("graph", "xla"):
        promise.ratio(f"speak: codes over those without a cache, {way}", lambda w=way: over_uncached(w), OVER_UNCACHED)
    for way, one in speakers.items():
        promise.count(f"speak: programs made, {way}", lambda made=one.turns[-1]["traces"]: made, PROGRAMS)
    benchmark.extra_info["codes a second"] = {way: speed(one, "seconds") for way, one in speakers.items()}


@pytest.mark.parametrize(
    ("parts", "positions"),
    [
        pytest.param(("gpt", "codec"), 205, id="codec"),
        pytest.param(("gpt", "codec"), 605, id="codec, 28 seconds", marks=pytest.mark.long),
        pytest.param(("gpt", "speaker", "decoder"), 605, id="decoder, 28 seconds", marks=pytest.mark.long),
    ],
)
def test_the_first_sound_comes_early(parts: Any, positions: int, tmp_path: Path, promise: Any, benchmark: Any) -> None:
    """The first chunk of a stream takes a fraction of the whole sentence, with a tiny model that never stops."""
    tiny = SIZES["tiny"]
    size = attrs.evolve(tiny, gpt=attrs.evolve(tiny.gpt, audio_positions=positions))
    speaker = synthesizer.Synthesizer.load(make_run(tmp_path / "run", parts, stop=-99.0, size=size), lambda line: None)
    voice = speaker.voice(reference(tmp_path / "voice.wav", 6.0))
    speaker.say(TEXT, voice)
    list(speaker.stream(TEXT, voice))  # everything is traced
    benchmark.pedantic(speaker.say, (TEXT, voice), rounds=1)
    firsts: List[float] = []

    def first_over_whole() -> float:
        started = time.process_time()
        speaker.say(TEXT, voice)
        whole = time.process_time() - started
        started, clock = time.process_time(), time.perf_counter()
        chunks = iter(speaker.stream(TEXT, voice))
        next(chunks)
        first = time.process_time() - started
        firsts.append(time.perf_counter() - clock)
        list(chunks)
        return first / whole

    name = f"speak: first chunk over the sentence, {positions} codes, {parts[-1]}"
    measure = lambda: statistics.median(first_over_whole() for _ in range(STREAM_ROUNDS))  # noqa: E731
    promise.ratio(name, measure, FIRST if positions < 605 else LONG_FIRST)
    benchmark.extra_info["seconds to the first chunk"] = min(firsts)

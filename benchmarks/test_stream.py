"""Promise: a stream is heard long before its sentence is finished.

The first chunk takes at most a third of the time of the whole sentence, measured in turns in one run; by the codec and
Griffin-Lim, and by a waveform decoder. `pytest benchmarks/test_stream.py -s` prints the times.
"""

import statistics
import time

import pytest
from speakers import make_run, reference

from xtts import speak
from xtts.sizes import SIZES

AT_MOST = 1 / 3
ROUNDS = 3
TEXT = "the valley was quiet and the river ran on"


@pytest.mark.parametrize("parts", [("gpt", "codec"), ("gpt", "speaker", "decoder")], ids=["codec", "decoder"])
def test_the_first_sound_comes_early(parts, tmp_path):
    """The median of the ratios, of a tiny model that speaks as long as it can: 28 seconds."""
    speaker = speak.load(make_run(tmp_path / "run", parts, stop=-99.0, size=SIZES["tiny"]), lambda line: None)
    voice = speaker.voice(reference(tmp_path / "voice.wav", 6.0))
    speaker.say(TEXT, voice)
    list(speaker.stream(TEXT, voice))  # everything is traced
    ratios = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        wave = speaker.say(TEXT, voice)
        whole = time.perf_counter() - started
        started = time.perf_counter()
        chunks = iter(speaker.stream(TEXT, voice))
        next(chunks)
        first = time.perf_counter() - started
        list(chunks)
        streamed = time.perf_counter() - started
        print(f"{wave.seconds:.1f} s of sound: {whole:.2f} s whole; first {first:.3f} s, streamed {streamed:.2f} s")
        ratios.append(first / whole)
    assert statistics.median(ratios) <= AT_MOST

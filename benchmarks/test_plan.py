"""The planner's bars: work ratios on lengths like LJSpeech's, and the time and memory of planning a large corpus.

Run with `pytest benchmarks/test_plan.py -s`, which prints what was measured beside each bar.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lengths import ljspeech_like

from xtts import shapes
from xtts.plan import plan
from xtts.sizes import SIZES, Cost, cost
from xtts.toml import loads

MARKS = 4  # [START] [STOP] [start] [stop]
OVERHEAD = int(shapes.joint_length(0, 0))  # latents, marks and stops

# Padded work over real work with four shapes and with eight.
BARS = {4: 1.19, 8: 1.10}
SECONDS, MEGABYTES = 5.0, 1000  # for a million utterances
LINEAR = 1.5  # time for each utterance of four million, over that of one million


def ratios(joint, work):
    lengths, counts = shapes.histogram(joint)
    best = shapes.boundaries(lengths, counts, work, max(BARS))
    return {number: shapes.work_ratio(lengths, counts, best[number], work) for number in BARS}


@pytest.mark.parametrize(
    "way", ["text, marks and codes in v2", "all tokens in tiny", "all tokens in v2", "tokens alone"]
)
def test_padded_work_over_real_work(way):
    """Four and eight shapes stay within the bars, however the work is counted."""
    text, mel = ljspeech_like(13_100)
    joint = shapes.joint_length(text, mel)
    counted = {
        "text, marks and codes in v2": (joint - OVERHEAD + MARKS, cost(SIZES["v2"].gpt)),
        "all tokens in tiny": (joint, cost(SIZES["tiny"].gpt)),
        "all tokens in v2": (joint, cost(SIZES["v2"].gpt)),
        "tokens alone": (joint - OVERHEAD, Cost(1, 0)),
    }
    for number, ratio in ratios(*counted[way]).items():
        print(f"\n{way}: {number} shapes {ratio:.4f}, at most {BARS[number]}", end="")
        assert ratio <= BARS[number]


@pytest.mark.parametrize("number", BARS)
def test_a_whole_plan_stays_within_the_bars_and_loses_no_clip(number):
    """The plan of a recipe, which also avoids blank rows, keeps every clip and both ratios within the bar."""
    text, mel = ljspeech_like(13_100)
    found = plan(loads(f"[data]\nshape_count = {number}"), text, mel, 60)
    print(f"\n{number} shapes: padded {found.work.ratio:.4f}, with blank rows {found.work.computed:.4f}", end="")
    assert found.utterances == 13_100
    assert found.rejected == {}
    assert found.work.ratio <= found.work.computed <= BARS[number]


PEAK = """
import sys
sys.path.insert(0, sys.argv[1])
from lengths import ljspeech_like
from peak import peak_bytes
from xtts.plan import plan
from xtts.toml import loads
found = plan(loads("[run]\\nname = 'benchmark'"), *ljspeech_like(1_000_000), 60)
found.text()
print(peak_bytes() // 10**6)
"""


def test_a_million_utterances_in_seconds():
    """A million utterances are planned, ordered and told within the bar."""
    text, mel = ljspeech_like(1_000_000)
    best = min(_seconds(text, mel) for _ in range(3))
    print(f"\n{best:.2f} s, at most {SECONDS}", end="")
    assert best <= SECONDS


def test_a_million_utterances_in_memory():
    """A process that does nothing else stays within the bar at its peak, Python and numpy included."""
    command = [sys.executable, "-c", PEAK, str(Path(__file__).parent)]
    peak = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"\n{peak} MB, at most {MEGABYTES}", end="")
    assert peak <= MEGABYTES


def test_time_grows_with_the_corpus_and_no_faster():
    """Four million utterances take about four times as long as one million, measured in turn."""
    text, mel = ljspeech_like(4_000_000)
    million = slice(0, None, 4)
    few, many = [], []
    for _ in range(3):
        few.append(_seconds(np.ascontiguousarray(text[million]), np.ascontiguousarray(mel[million])))
        many.append(_seconds(text, mel))
    ratio = min(many) / min(few) / 4
    print(f"\n{min(few):.2f} s and {min(many):.2f} s: {ratio:.2f} a clip, at most {LINEAR}", end="")
    assert ratio <= LINEAR


def _seconds(text, mel):
    start = time.perf_counter()
    plan(loads("[run]\nname = 'benchmark'"), text, mel, 60).text()
    return time.perf_counter() - start

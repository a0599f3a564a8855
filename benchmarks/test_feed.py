"""Promise: the model does not wait for data, and both devices work at once.

Features of real recordings are computed on one logical CPU device while a GPT trains on another: `dual.py`, in its own
process. Shares of one run's time are judged. The effect of the buffer size is measured with a source whose batches take
unevenly long, by sleeping; for each size the least disturbed of several rounds counts.
"""

import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest
from promises import at_least, at_most
from turns import Program

from xtts.pipeline.prefetcher import Prefetcher
from xtts.pipeline.sources import HostBatch
from xtts.planning.batch_order import BatchOrder
from xtts.planning.shapes import Shape

WAITED = at_most(0.10)  # share of the training loop; a few thousandths on an idle machine
OVERLAP = at_least(0.75)  # share of the data device's time in which the model device was busy too
TRACES = at_most(0)  # after the start
UNEVEN = at_most(0.5)  # waiting with a buffer of 8 batches over waiting with one of 1
NOT_COMPARED = 0.0  # shares near 0 are not compared with the baseline: they vary by thousandths
BUFFERS, ROUNDS = (1, 2, 4, 8, 16), 5  # batches
SIZE = Shape(text_length=1, mel_frames=4, joint_length=41, batch_size=1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: Any) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("dual")
    program = Program(sys.executable, Path(__file__).parent / "dual.py", str(folder), "planned")
    yield program
    program.finish()


def test_the_model_does_not_wait_and_both_devices_work(pair: Program, promise: Any, benchmark: Any) -> None:
    """Features are computed while the model trains, and ready when it needs them; nothing is retraced."""
    assert pair.first["mode"] == "dual"
    benchmark.pedantic(pair.turn, ("4",), rounds=1)

    def share(name: str) -> float:
        return pair.turn("4")[name]

    promise.count("feed: traces after the start", lambda: sum(turn["traces"] for turn in pair.turns), TRACES)
    promise.ratio("feed: share of time the model waits for data", lambda: share("waited"), WAITED, NOT_COMPARED)
    promise.ratio("feed: share of the data device's time that overlaps", lambda: share("overlap"), OVERLAP)
    benchmark.extra_info.update({device: pair.turns[-1][device] for device in ("data", "model")})


class Uneven:
    """A source whose every eighth batch takes as long as six steps, and the others hardly any time."""

    def __init__(self, long: float) -> None:
        self._long = long

    def read(self, batches: Any, number: int) -> HostBatch:
        return HostBatch(0, SIZE, {"number": number}, np.ones(1), 1)

    def finish(self, rows: HostBatch) -> Dict[str, Any]:
        time.sleep(self._long if rows.arrays["number"] % 8 == 7 else 0.0)
        return rows.arrays

    def name(self, position: int) -> str:
        return str(position)


def waiting(buffer_size: int, step: float = 0.01, steps: int = 64) -> float:
    """The share of the time that a model waits, if its steps take `step` seconds."""
    order = BatchOrder(np.zeros(64, np.int16), (1,), 0)
    waited, began = 0.0, time.monotonic()
    with Prefetcher(order, Uneven(6 * step), 0, steps, buffer_size=buffer_size) as feed:
        for _ in feed:
            waited += feed.waited
            time.sleep(step)
    return waited / (time.monotonic() - began)


def test_a_buffer_evens_out_what_takes_unevenly_long(promise: Any, benchmark: Any) -> None:
    """Batches that arrive in bursts cause no waiting if the buffer holds a burst."""
    benchmark.pedantic(waiting, (8,), rounds=1)
    found: Dict[int, float] = {}

    def measured() -> float:
        shares: Dict[int, List[float]] = {size: [] for size in BUFFERS}
        for turn in range(ROUNDS):  # in another order each time, so that other load favours no size
            for size in BUFFERS[turn % len(BUFFERS) :] + BUFFERS[: turn % len(BUFFERS)]:
                shares[size].append(waiting(size))
        found.update({size: min(some) for size, some in shares.items()})  # a stall only ever adds to the waiting
        return found[8] / found[1]

    promise.ratio("feed: waiting with a buffer of 8 over one of 1", measured, UNEVEN, NOT_COMPARED)
    benchmark.extra_info["waiting by buffer"] = {str(size): share for size, share in found.items()}

"""The feed: the order of batches and a cursor come in; steps' work goes out, buffered, ready before the model asks.

    readers (threads) -> producer (a thread; the data device's work) -> buffer (bounded) -> the model

Readers work ahead, and in parallel; what they read is taken in the order of the plan, so the feed's speed changes
nothing but the time it takes. One entry of the buffer is one optimizer step: as many batches as gradients are
accumulated, and for each part of the loss how many numbers it is a mean of, over all of them.
"""

import collections
import contextlib
import itertools
import os
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Deque, Generator, Iterable, Iterator, NamedTuple, Optional, Sequence, Set, Tuple

import attrs
import numpy as np

from xtts import XttsError
from xtts.batches import Arrays, Rows, Source
from xtts.order import Batch, Order
from xtts.shapes import Shape

MOST_LOST = 0.1  # share of the utterances of an epoch that may turn bad before a run stops
MOST_READERS = 8
LARGEST_BUFFER, SMALLEST_BUFFER = 50, 4  # batches, when it is chosen here
RECENT = 1000  # steps of which it is known when the data device was at work
FREE_SHARE = 0.1  # of the machine's free memory that a buffer may fill, when it is chosen here


class FeedError(XttsError):
    """Why there is no next batch."""


@attrs.frozen(eq=False)
class Work:
    """One optimizer step's work."""

    step: int
    shapes: Tuple[int, ...]  # of each batch, among the stage's
    sizes: Tuple[Shape, ...]  # what each was brought to
    batches: Tuple[Arrays, ...]
    totals: np.ndarray  # float32, by part of the loss: of all batches and replicas that were read here
    frames: int  # of sound, of all replicas


class Spell(NamedTuple):
    """When a device was at work, in seconds of time.monotonic()."""

    start: float
    stop: float


def overlap(ones: Iterable[Spell], others: Sequence[Spell]) -> Optional[float]:
    """The share of the time of `ones` in which `others` were at work too; both are in order."""
    shared = total = 0.0
    first = 0
    for one in ones:
        total += one.stop - one.start
        while first < len(others) and others[first].stop <= one.start:
            first += 1
        for other in itertools.takewhile(lambda other: other.start < one.stop, others[first:]):  # noqa: B023
            shared += min(one.stop, other.stop) - max(one.start, other.start)
    return shared / total if total else None


class Feed:
    """An iterator over the work of steps `start` to `stop`. `with` it: leaving ends every thread."""

    def __init__(
        self,
        order: Order,
        source: Source,
        start: int,
        stop: int,
        accumulated: int = 1,
        buffer_size: int = LARGEST_BUFFER,
        workers: int = 1,
        lost: Callable[[str, str], None] = lambda utterance, why: None,
    ) -> None:
        self._order, self._source, self._lost = order, source, lost
        self._start, self._stop, self._accumulated = start, stop, accumulated
        self._buffer: queue.Queue[Any] = queue.Queue(max(1, buffer_size // accumulated))
        self._ahead = max(2, 2 * workers)
        self._readers = ThreadPoolExecutor(workers, thread_name_prefix="xtts-reader")
        self._producer = threading.Thread(target=self._produce, name="xtts-producer", daemon=True)
        self._stopped = threading.Event()
        self._bad: Set[str] = set()
        self.spells: Deque[Spell] = collections.deque(maxlen=RECENT)  # of the data device
        self.waited = 0.0  # seconds, for the last work handed out

    def __enter__(self) -> "Feed":
        self._producer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._producer.join()
        self._readers.shutdown(wait=True)

    @property
    def depth(self) -> int:
        """Steps' work that is ready."""
        return self._buffer.qsize()

    @property
    def capacity(self) -> int:
        return self._buffer.maxsize

    def fill(self, seconds: float, progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Wait until the buffer is ready and at least `seconds` have passed: until it is half full, or all is in it."""
        enough = min(max(1, self.capacity // 2), self._stop - self._start)
        until = time.monotonic() + seconds
        while time.monotonic() < until or (self.depth < enough and self._producer.is_alive()):
            if progress:
                progress(min(self.depth, enough), enough)
            time.sleep(0.01)

    def __iter__(self) -> Iterator[Work]:
        for _ in range(self._start, self._stop):
            began = time.monotonic()
            work = self._buffer.get()
            self.waited = time.monotonic() - began
            if isinstance(work, BaseException):
                raise work
            yield work

    def _produce(self) -> None:
        try:
            for work in self._works():
                if not self._put(work):
                    return
        except BaseException as error:  # whatever it is, the model's thread must hear of it
            self._put(error)

    def _put(self, item: Any) -> bool:
        while not self._stopped.is_set():
            try:
                self._buffer.put(item, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    def _works(self) -> Iterator[Work]:
        with contextlib.closing(self._read_ahead()) as read:
            for step in range(self._start, self._stop):
                some = list(itertools.islice(read, self._accumulated))
                if self._stopped.is_set():
                    return
                batches = [self._finished(one) for one in some]
                totals = np.sum([one.counts for one in some], axis=0).astype(np.float32)
                shapes, frames = tuple(one.shape for one in some), sum(one.frames for one in some)
                yield Work(step, shapes, tuple(one.size for one in some), tuple(batches), totals, frames)

    def _finished(self, rows: Rows) -> Arrays:
        self._count_lost(rows)
        began = time.monotonic()
        arrays = self._source.finish(rows)
        self.spells.append(Spell(began, time.monotonic()))
        return arrays

    def _read_ahead(self) -> Generator[Rows, None, None]:
        """Rows in the order of the plan; some further ones are being read meanwhile."""
        waiting: Deque[Future[Rows]] = collections.deque()
        numbers = range(self._start * self._accumulated, self._stop * self._accumulated)
        replicas = [self._order.run(numbers.start, worker) for worker in range(self._order.workers)]
        try:
            for number, batches in zip(numbers, zip(*replicas)):
                if self._stopped.is_set():
                    return
                waiting.append(self._readers.submit(self._read, batches, number))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _read(self, batches: Sequence[Batch], number: int) -> Rows:
        try:
            return self._source.read(batches, number)
        except XttsError:
            raise
        except Exception as error:
            names = ", ".join(self._source.name(int(place)) for batch in batches for place in batch.utterances)
            raise FeedError(
                f"batch {number}, of the utterances {names}, cannot be read: {type(error).__name__}: {error}"
            ) from error

    def _count_lost(self, rows: Rows) -> None:
        for utterance, why in rows.lost:
            if utterance not in self._bad:
                self._bad.add(utterance)
                self._lost(utterance, why)
        total = sum(self._order.counts)
        if len(self._bad) > max(1, MOST_LOST * total):
            raise FeedError(
                f"{len(self._bad)} of {total} utterances can no longer be read, the last one for this: "
                f"{rows.lost[-1][1]}. Is the disk still there? Run again when it is: nothing is lost"
            )


def reader_count(asked: Any) -> int:
    """Threads that read: as many as are asked for, or one a core."""
    return int(asked) if asked != "auto" else min(MOST_READERS, os.cpu_count() or 1)


def buffer_batches(asked: Any, workers: int, batch_bytes: int) -> int:
    """Batches in the buffer: as many as are asked for, or as readers and free memory allow."""
    if asked != "auto":
        return int(asked)
    free = free_bytes()
    room = LARGEST_BUFFER if free is None else int(FREE_SHARE * free / max(1, batch_bytes))
    return max(SMALLEST_BUFFER, min(LARGEST_BUFFER, 8 * workers, room))


def free_bytes() -> Optional[int]:
    """Memory of the machine that is free; None where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None

"""The feed: the order of batches and a cursor come in; steps' work goes out, buffered, ready before the model asks.

    readers (threads) -> producers (a thread for each data device) -> buffer (bounded) -> the model

Readers work ahead, and in parallel, and so do data devices; what they make is handed out in the order of the plan, so
the feed's speed changes nothing but the time it takes. The buffer holds steps' work: as many batches as gradients are
accumulated, and for each part of the loss how many numbers it is a mean of, over all of them.
"""

import collections
import itertools
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

import attrs
import numpy as np

from xtts.errors import XttsError
from xtts.pipeline.buffer import LARGEST_BUFFER, BufferPolicy, is_memory_short
from xtts.pipeline.scheduler import Scheduler
from xtts.pipeline.sources import Arrays, BatchSource, HostBatch
from xtts.planning.batch_order import Batch, BatchOrder
from xtts.planning.shapes import Shape

MOST_LOST = 0.1  # share of the utterances of an epoch that may turn bad before a run stops
RECENT = 1000  # steps of which it is known when a device was at work
PAUSE = 0.05  # seconds after which a device without work looks again how the others are getting on


class PrefetchError(XttsError):
    """Why there is no next batch."""


@attrs.frozen(eq=False)
class StepBatches:
    """One optimizer step's work."""

    step: int
    shapes: Tuple[int, ...]  # of each batch, among the stage's
    sizes: Tuple[Shape, ...]  # what each was brought to
    batches: Tuple[Arrays, ...]
    totals: np.ndarray  # float32, by part of the loss: of all batches and replicas that were read here
    frames: int  # of sound, of all replicas


class Interval(NamedTuple):
    """When a device was at work, in seconds of time.monotonic()."""

    start: float
    stop: float


def overlap(ones: Iterable[Interval], others: Sequence[Interval]) -> Optional[float]:
    """The share of the time of `ones` in which `others` were at work too; both are in the order they began in."""
    shared = total = 0.0
    first = 0
    for one in ones:
        total += one.stop - one.start
        while first < len(others) and others[first].stop <= one.start:
            first += 1
        for other in itertools.takewhile(lambda other: other.start < one.stop, others[first:]):  # noqa: B023
            shared += min(one.stop, other.stop) - max(one.start, other.start)
    return shared / total if total else None


class FeatureDevice(NamedTuple):
    """A data device: what it does with a batch that was read, and how long that took when it was tried."""

    name: str
    finish: Callable[[HostBatch], Arrays]
    seconds: Optional[float] = None


@attrs.define(eq=False)
class _Begun:
    """A batch on its way: its number in the run, its utterances and, once a reader was given it, what was read."""

    number: int
    batches: Sequence[Batch]
    rows: "Optional[Future[HostBatch]]" = None


class Prefetcher:
    """An iterator over the work of steps `start` to `stop`. `with` it: leaving ends every thread."""

    def __init__(
        self,
        order: BatchOrder,
        source: BatchSource,
        start: int,
        stop: int,
        accumulated: int = 1,
        buffer_size: Union[int, BufferPolicy] = LARGEST_BUFFER,  # batches
        workers: int = 1,
        lost: Callable[[str, str], None] = lambda utterance, why: None,
        makers: Sequence[FeatureDevice] = (),  # the data devices; none: the source's own
        told: Callable[[str], None] = lambda text: None,  # that the buffer's size has changed, and why
        close: Callable[[], None] = lambda: None,  # lets go of whoever waits for the source to read
    ) -> None:
        self._order, self._source, self._lost, self._told, self._close = order, source, lost, told, close
        self._start, self._stop, self._accumulated = start, stop, accumulated
        self._reserve = BufferPolicy.of(buffer_size, workers, 1) if isinstance(buffer_size, int) else buffer_size
        self._ahead = max(2, 2 * workers)
        self._readers = ThreadPoolExecutor(workers, thread_name_prefix="xtts-reader")
        self._makers = list(makers) or [FeatureDevice("", source.finish)]
        self.division = Scheduler({maker.name: maker.seconds for maker in self._makers})
        self._producers = [
            threading.Thread(target=self._produce, args=(device,), name=f"xtts-producer{device or ''}", daemon=True)
            for device in range(len(self._makers))
        ]
        self._planned = self._in_order()
        self._drawing = threading.Lock()  # of what is planned
        self._changed = threading.Condition()  # of everything below
        self._open: List[_Begun] = []  # in order; no data device has begun them
        self._made: Dict[int, Any] = {}  # by number: rows and arrays, or the exception there is in their place
        self._next = start  # step to be handed out
        self._drawn = start * accumulated  # the number of the first batch that was not looked at yet
        self._end = stop * accumulated  # the number of the first batch that is not made
        self._stopped = False
        self._bad: Set[str] = set()
        self.spells: Deque[Interval] = collections.deque(maxlen=RECENT)  # of the data devices
        self.waited = 0.0  # seconds, for the last work handed out

    def __enter__(self) -> "Prefetcher":
        for producer in self._producers:
            producer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        with self._changed:
            self._stopped = True
            for begun in self._open:
                if begun.rows is not None:
                    begun.rows.cancel()
            self._changed.notify_all()
        self._close()
        for producer in self._producers:
            producer.join()
        self._readers.shutdown(wait=True)

    @property
    def depth(self) -> int:
        """Steps' work that is ready."""
        with self._changed:
            ready = (step for step in range(self._next, self._stop) if not self._is_ready(step))
            return next(ready, self._stop) - self._next

    @property
    def capacity(self) -> int:
        """Steps' work that there is room for; every data device has a batch in it."""
        return max(1, -(-len(self._makers) // self._accumulated), self._reserve.size // self._accumulated)

    def fill(self, seconds: float, progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Wait until the buffer is ready and at least `seconds` have passed: until it is half full, or all is in it."""
        enough = min(max(1, self.capacity // 2), self._stop - self._start)
        until = time.monotonic() + seconds
        while time.monotonic() < until or (self.depth < enough and any(one.is_alive() for one in self._producers)):
            if progress:
                progress(min(self.depth, enough), enough)
            time.sleep(0.01)

    def __iter__(self) -> Iterator[StepBatches]:
        for step in range(self._start, self._stop):
            began, is_full = time.monotonic(), self.depth >= self.capacity
            with self._changed:
                self._changed.wait_for(lambda: self._is_ready(step))  # noqa: B023
                numbers = range(step * self._accumulated, (step + 1) * self._accumulated)
                made = [self._made.pop(number, None) for number in numbers]
                self._next = step + 1
                self._changed.notify_all()
            self.waited = time.monotonic() - began
            yield self._work(step, made)
            resized = self._reserve.after(self.waited, is_full, is_memory_short)
            if resized:
                self._told(resized)

    def _work(self, step: int, made: Sequence[Any]) -> StepBatches:
        """What was made for a step; an exception is raised in the place of the batch that there is not."""
        for one in made:
            if isinstance(one, BaseException):
                raise one
            self._count_lost(one[0])
        rows, batches = zip(*made)
        totals = np.sum([one.counts for one in rows], axis=0).astype(np.float32)
        shapes, sizes = tuple(one.shape for one in rows), tuple(one.size for one in rows)
        return StepBatches(step, shapes, sizes, batches, totals, sum(one.frames for one in rows))

    def _is_ready(self, step: int) -> bool:
        """Whether all of a step is made, or as much as comes before a failure."""
        for number in range(step * self._accumulated, (step + 1) * self._accumulated):
            if number not in self._made:
                return False
            if isinstance(self._made[number], BaseException):
                return True
        return True

    def _produce(self, device: int) -> None:
        """One data device's thread."""
        while True:
            begun = self._take(device)
            if begun is None:
                return
            try:
                made: Any = self._finished(device, begun)
            except BaseException as error:  # whatever it is, the model's thread must hear of it
                made = error
            with self._changed:
                if isinstance(made, BaseException):
                    self._end = min(self._end, begun.number)
                self._made[begun.number] = made
                self._changed.notify_all()

    def _take(self, device: int) -> Optional[_Begun]:
        """The next batch for a device to make, when there is one and room for it; None when there are no more."""
        while True:
            self._draw()
            with self._changed:
                left = [begun for begun in self._open if begun.number < self._end]
                if self._stopped or (not left and self._drawn >= self._end):
                    return None
                chosen = self.division.choose(device, [begun for begun in left if begun.number < self._room()])
                if chosen is not None:
                    self._open.remove(chosen)
                    self._read_soon([chosen, *self._open[: self._ahead]])
                    return chosen
                self._read_soon(self._open[: self._ahead])
                self._changed.wait(PAUSE)

    def _room(self) -> int:
        """The number of the first batch that there is no room for."""
        return (self._next + self.capacity) * self._accumulated

    def _finished(self, device: int, begun: _Begun) -> Tuple[HostBatch, Arrays]:
        assert begun.rows is not None
        rows = begun.rows.result()
        with self._changed:
            self.division.begin(device)
        began = time.monotonic()
        arrays = self._makers[device].finish(rows)
        with self._changed:
            self.division.end(device)
            self.spells.append(Interval(began, time.monotonic()))
        return rows, arrays

    def _in_order(self) -> Iterator[_Begun]:
        """Every batch of the run, for each replica its own."""
        numbers = range(self._start * self._accumulated, self._stop * self._accumulated)
        replicas = [self._order.run(numbers.start, worker) for worker in range(self._order.workers)]
        for number, batches in zip(numbers, zip(*replicas)):
            yield _Begun(number, batches)

    def _draw(self) -> None:
        """Look as far ahead as there is room, and readers to read. A new epoch takes a moment, so nobody is locked."""
        with self._drawing:
            while not self._stopped and self._drawn < min(self._end, self._room() + self._ahead):
                found: Any
                try:
                    found = next(self._planned)
                except BaseException as error:  # without an order there are no batches
                    found = error
                with self._changed:
                    if isinstance(found, BaseException):
                        self._end, self._made[self._drawn] = self._drawn, found
                    else:
                        self._open.append(found)
                        self._drawn += 1
                    self._changed.notify_all()

    def _read_soon(self, some: Sequence[_Begun]) -> None:
        for begun in some:
            if begun.rows is None:
                begun.rows = self._readers.submit(self._read, begun.batches, begun.number)

    def _read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        try:
            return self._source.read(batches, number)
        except XttsError:
            raise
        except Exception as error:
            names = ", ".join(self._source.name(int(place)) for batch in batches for place in batch.utterances)
            raise PrefetchError(
                f"batch {number}, of the utterances {names}, cannot be read: {type(error).__name__}: {error}"
            ) from error

    def _count_lost(self, rows: HostBatch) -> None:
        for utterance, why in rows.lost:
            if utterance not in self._bad:
                self._bad.add(utterance)
                self._lost(utterance, why)
        total = sum(self._order.counts)
        if len(self._bad) > max(1, MOST_LOST * total):
            raise PrefetchError(
                f"{len(self._bad)} of {total} utterances can no longer be read, the last one for this: "
                f"{rows.lost[-1][1]}. Is the disk still there? Run again when it is: nothing is lost"
            )

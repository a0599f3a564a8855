"""Prefetching: the batches of each optimizer step, in the order of the plan, ready before the model asks for them.

    readers (threads) -> producers (one thread for each data device) -> buffer (bounded) -> the model

Readers and data devices work ahead and in parallel. Their batches are handed out in the order of the plan, so speed
affects only the time that a run takes. The buffer holds the batches of whole steps: as many as gradients are
accumulated over, and for each part of the loss the total that it is divided by.
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
from xtts.pipeline.buffer import BufferPolicy, is_memory_short
from xtts.pipeline.scheduler import Scheduler
from xtts.pipeline.sources import Arrays, BatchSource, HostBatch
from xtts.planning.batch_order import Batch, BatchOrder
from xtts.planning.memory import LARGEST_BUFFER
from xtts.planning.shapes import Shape

MAX_LOST_SHARE = 0.1  # of the utterances of an epoch that may become unreadable before a run stops
RECENT = 1000  # intervals that are kept, for the overlap of data and model devices
IDLE_WAIT = 0.05  # seconds after which an idle data device asks the scheduler again
FILL_WAIT = 0.01  # seconds between two checks while the buffer fills


class PrefetchError(XttsError):
    """Why there is no next batch."""


@attrs.frozen(eq=False)
class StepBatches:
    """The batches of one optimizer step."""

    step: int
    shapes: Tuple[int, ...]  # of each batch: index into the stage's shapes
    sizes: Tuple[Shape, ...]  # what each batch is padded to
    batches: Tuple[Arrays, ...]
    totals: np.ndarray  # float32 [parts of the loss]: summed over all batches and replicas read by this process
    frames: int  # mel frames without padding, of all replicas


class Interval(NamedTuple):
    """When a device was busy, in seconds of time.monotonic()."""

    start: float
    stop: float


def overlap(ones: Iterable[Interval], others: Sequence[Interval]) -> Optional[float]:
    """The share of the time of `ones` in which `others` were busy too; both are sorted by start."""
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
    """A data device: its name, the function that finishes a batch there, and the measured seconds of a batch."""

    name: str
    finish: Callable[[HostBatch], Arrays]
    seconds: Optional[float] = None


@attrs.define(eq=False)
class _PendingBatch:
    """A batch that no data device has begun: its number in the run and, once a reader has begun it, the result."""

    number: int
    batches: Sequence[Batch]  # one for each replica
    host_batch: "Optional[Future[HostBatch]]" = None


class Prefetcher:
    """An iterator over the batches of steps `start` to `stop`; as a context manager it ends its threads on exit."""

    def __init__(
        self,
        order: BatchOrder,
        source: BatchSource,
        start: int,
        stop: int,
        accumulated: int = 1,
        buffer_size: Union[int, BufferPolicy] = LARGEST_BUFFER,  # batches
        readers: int = 1,
        on_lost: Callable[[str, str], None] = lambda utterance, why: None,  # called once for each utterance
        devices: Sequence[FeatureDevice] = (),  # the data devices; none: the source's own
        on_resize: Callable[[str], None] = lambda text: None,  # called with why the buffer's size changed
        on_close: Callable[[], None] = lambda: None,  # releases threads that are blocked in the source
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._source = source
        self._clock = clock
        self._on_lost = on_lost
        self._on_resize = on_resize
        self._on_close = on_close
        self._start = start
        self._stop = stop
        self._accumulated = accumulated
        self._policy = BufferPolicy.of(buffer_size, readers, 1) if isinstance(buffer_size, int) else buffer_size
        self._ahead = max(2, 2 * readers)  # batches that are read before a device asks for them
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="xtts-reader")
        self._devices = list(devices) or [FeatureDevice("", source.finish)]
        self.scheduler = Scheduler({device.name: device.seconds for device in self._devices}, clock)
        self._producers = [
            threading.Thread(target=self._produce, args=(device,), name=f"xtts-producer{device or ''}", daemon=True)
            for device in range(len(self._devices))
        ]
        self._planned = self._plan()
        self._planning = threading.Lock()  # held while the next batches of the plan are drawn
        self._changed = threading.Condition()  # guards everything below
        self._pending: List[_PendingBatch] = []  # in order
        self._done: Dict[int, Any] = {}  # by number: (host batch, arrays), or the exception raised in its place
        self._next = start  # step to be handed out
        self._drawn = start * accumulated  # number of the next batch to be drawn from the plan
        self._end = stop * accumulated  # one past the number of the last batch
        self._stopped = False
        self._unreadable: Set[str] = set()  # ids of utterances
        self.intervals: Deque[Interval] = collections.deque(maxlen=RECENT)  # when data devices were busy
        self.waited = 0.0  # seconds that the model waited for the latest step

    def __enter__(self) -> "Prefetcher":
        for producer in self._producers:
            producer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        with self._changed:
            self._stopped = True
            for pending in self._pending:
                if pending.host_batch is not None:
                    pending.host_batch.cancel()
            self._changed.notify_all()
        self._on_close()
        for producer in self._producers:
            producer.join()
        self._readers.shutdown(wait=True)

    @property
    def depth(self) -> int:
        """Steps whose batches are ready."""
        with self._changed:
            ready = (step for step in range(self._next, self._stop) if not self._is_ready(step))
            return next(ready, self._stop) - self._next

    @property
    def capacity(self) -> int:
        """Steps that fit into the buffer, with at least one batch for every data device."""
        return max(1, -(-len(self._devices) // self._accumulated), self._policy.size // self._accumulated)

    def fill(self, seconds: float, progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Wait until the buffer is half full, or has all remaining batches, and at least `seconds` have passed."""
        enough = min(max(1, self.capacity // 2), self._stop - self._start)
        until = self._clock() + seconds
        while self._clock() < until or (self.depth < enough and any(one.is_alive() for one in self._producers)):
            if progress:
                progress(min(self.depth, enough), enough)
            time.sleep(FILL_WAIT)

    def __iter__(self) -> Iterator[StepBatches]:
        for step in range(self._start, self._stop):
            is_full, began = self.depth >= self.capacity, self._clock()
            with self._changed:
                self._changed.wait_for(lambda: self._is_ready(step))  # noqa: B023
                numbers = range(step * self._accumulated, (step + 1) * self._accumulated)
                done = [self._done.pop(number, None) for number in numbers]
                self._next = step + 1
                self._changed.notify_all()
            self.waited = self._clock() - began
            yield self._step_batches(step, done)
            resized = self._policy.after(self.waited, is_full, is_memory_short)
            if resized:
                self._on_resize(resized)

    def _step_batches(self, step: int, done: Sequence[Any]) -> StepBatches:
        """The batches of a step; raises the exception of a batch that failed."""
        for one in done:
            if isinstance(one, BaseException):
                raise one
            self._note_lost(one[0])
        host_batches, batches = zip(*done)
        totals = np.sum([one.counts for one in host_batches], axis=0).astype(np.float32)
        shapes, sizes = tuple(one.shape for one in host_batches), tuple(one.size for one in host_batches)
        return StepBatches(step, shapes, sizes, batches, totals, sum(one.frames for one in host_batches))

    def _is_ready(self, step: int) -> bool:
        """Whether all batches of a step are done, or all before one that failed."""
        for number in range(step * self._accumulated, (step + 1) * self._accumulated):
            if number not in self._done:
                return False
            if isinstance(self._done[number], BaseException):
                return True
        return True

    def _produce(self, device: int) -> None:
        """The thread of one data device."""
        while True:
            pending = self._take(device)
            if pending is None:
                return
            try:
                done: Any = self._finish(device, pending)
            except BaseException as error:  # raised again in the model's thread
                done = error
            with self._changed:
                if isinstance(done, BaseException):
                    self._end = min(self._end, pending.number)
                self._done[pending.number] = done
                self._changed.notify_all()

    def _take(self, device: int) -> Optional[_PendingBatch]:
        """Wait for the next batch that the scheduler assigns to a device and that has room; None if none are left."""
        while True:
            self._draw()
            with self._changed:
                left = [pending for pending in self._pending if pending.number < self._end]
                if self._stopped or (not left and self._drawn >= self._end):
                    return None
                chosen = self.scheduler.choose(device, [one for one in left if one.number < self._room_until()])
                if chosen is not None:
                    self._pending.remove(chosen)
                    self._start_reading([chosen, *self._pending[: self._ahead]])
                    return chosen
                self._start_reading(self._pending[: self._ahead])
                self._changed.wait(IDLE_WAIT)

    def _room_until(self) -> int:
        """The number of the first batch that does not fit into the buffer."""
        return (self._next + self.capacity) * self._accumulated

    def _finish(self, device: int, pending: _PendingBatch) -> Tuple[HostBatch, Arrays]:
        assert pending.host_batch is not None
        host_batch = pending.host_batch.result()
        with self._changed:
            self.scheduler.begin(device)
        began = self._clock()
        arrays = self._devices[device].finish(host_batch)
        with self._changed:
            self.scheduler.end(device)
            self.intervals.append(Interval(began, self._clock()))
        return host_batch, arrays

    def _plan(self) -> Iterator[_PendingBatch]:
        """Every batch of the run, one for each replica."""
        numbers = range(self._start * self._accumulated, self._stop * self._accumulated)
        replicas = [self._order.run(numbers.start, worker) for worker in range(self._order.workers)]
        for number, batches in zip(numbers, zip(*replicas)):
            yield _PendingBatch(number, batches)

    def _draw(self) -> None:
        """Draw batches from the plan: those that fit into the buffer, and those that readers may read ahead.

        The order of a new epoch takes a moment to compute, so `_changed` is not held meanwhile.
        """
        with self._planning:
            while not self._stopped and self._drawn < min(self._end, self._room_until() + self._ahead):
                found: Any
                try:
                    found = next(self._planned)
                except BaseException as error:  # raised in place of the batch that could not be drawn
                    found = error
                with self._changed:
                    if isinstance(found, BaseException):
                        self._end, self._done[self._drawn] = self._drawn, found
                    else:
                        self._pending.append(found)
                        self._drawn += 1
                    self._changed.notify_all()

    def _start_reading(self, some: Sequence[_PendingBatch]) -> None:
        for pending in some:
            if pending.host_batch is None:
                pending.host_batch = self._readers.submit(self._read, pending.batches, pending.number)

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

    def _note_lost(self, batch: HostBatch) -> None:
        for utterance, why in batch.lost:
            if utterance not in self._unreadable:
                self._unreadable.add(utterance)
                self._on_lost(utterance, why)
        total = sum(self._order.counts)
        if len(self._unreadable) > max(1, MAX_LOST_SHARE * total):
            raise PrefetchError(
                f"{len(self._unreadable)} of {total} utterances can no longer be read, the last one because of this: "
                f"{batch.lost[-1][1]}. Is the disk still mounted? Run again when it is: nothing is lost"
            )

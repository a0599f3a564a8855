"""Batches from tf.data service.

The service hands out each batch number once, to any free worker. Batches therefore arrive in any order, at most once,
and those a worker had begun when it died never arrive. This client reorders them by their numbers, and computes missing
ones on this machine, with the same graph. So a step trains on the same data whatever happens to the workers, and
however slow they are: giving up on a batch costs time, not accuracy.
"""

import contextlib
import json
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import attrs
import tensorflow as tf

from xtts import compat
from xtts.compat import service
from xtts.errors import XttsError
from xtts.pipeline.recordings import raw_copies
from xtts.pipeline.service import servers
from xtts.pipeline.service.manifest import (
    LINES_PER_FILE,
    Makes,
    ManifestWriter,
    make_features,
    manifest_line,
    service_dataset,
)
from xtts.pipeline.service.servers import GREETING, Patience, ServiceError, first_line, not_a_dispatcher, require_answer
from xtts.pipeline.sources import Arrays, HostBatch, RemoteBatchSource
from xtts.planning.batch_order import Batch, BatchOrder

WINDOW, WINDOW_PER_WORKER = 32, 8  # batches kept ahead of the next one needed: at least, and for each worker
MAX_WINDOWS = 4  # kept while the next one needed is missing: it may be queued behind those of a faster worker
OUTSTANDING = 2  # requests to each worker at a time
POLL = 0.1  # seconds between two checks whether a batch is overdue

Log = Callable[[str], None]


@attrs.frozen
class ServiceWorker:
    """A worker that has answered."""

    address: str
    tensorflow: str
    can_read: bool  # whether it sees the corpus and the run's folder

    def __str__(self) -> str:
        return self.address


@attrs.frozen(eq=False)
class Service:
    """A tf.data service whose workers have answered, and the folder of the manifests for them."""

    target: str  # grpc://host:port
    workers: Sequence[ServiceWorker]
    folder: Path
    sample_rate: int
    log: Log
    patience: Patience

    def source(self, order: BatchOrder, source: RemoteBatchSource, numbers: range, makes: Makes) -> "ServiceSource":
        """A source of the batches with these numbers, whose features are computed by the workers."""
        copies = raw_copies(source.recordings, self.sample_rate, self.folder / "waves", lambda done, total: None)
        replicas = [order.run(numbers.start, worker) for worker in range(order.workers)]
        batches = zip(*replicas)

        def describe(step_batches: Sequence[Batch], number: int) -> str:
            return manifest_line(number, source.cuts(step_batches, number), source.recordings, copies)

        folder = self.folder / f"batches-{time.time_ns():x}"
        manifest = ManifestWriter(folder, numbers, lambda number: describe(next(batches), number))
        return ServiceSource(
            source, BatchStream(self, numbers, manifest, makes), LocalFallback(self.sample_rate, makes), describe
        )


class ServiceSource:
    """A BatchSource whose features come from workers.

    Batches that do not arrive are computed locally; recordings that cannot be read there either become blank rows.
    """

    def __init__(
        self,
        source: RemoteBatchSource,
        stream: "BatchStream",
        fallback: "LocalFallback",
        describe: Callable[[Sequence[Batch], int], str],
    ) -> None:
        self._source = source
        self._stream = stream
        self._fallback = fallback
        self._describe = describe

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        features = self._stream.take(number)
        if features is None:
            features = self._fallback(self._describe(batches, number))
        if features is None:
            return self._source.read(batches, number)
        return self._source.delivered(batches, number, features)

    def finish(self, batch: HostBatch) -> Arrays:
        return self._source.finish(batch)

    def name(self, position: int) -> str:
        return self._source.name(position)

    def close(self) -> None:
        self._stream.close()
        self._fallback.close()


class LocalFallback:
    """Runs the workers' graph on this machine: manifest line to features, bit for bit the same on equal hardware."""

    def __init__(self, sample_rate: int, makes: Makes) -> None:
        self._sample_rate = sample_rate
        self._makes = makes
        self._lines: queue.Queue[str] = queue.Queue()
        self._is_open = True
        self._lock = threading.Lock()
        self._features: Any = None  # an iterator, made when the first batch is missing: usually none is

    def __call__(self, text: str) -> Optional[Arrays]:
        """The features of a line; None when a file that it names cannot be read."""
        with self._lock:
            if self._features is None:
                lines = tf.data.Dataset.from_generator(self._waiting, tf.string, [])
                self._features = iter(lines.map(lambda one: make_features(one, self._sample_rate, self._makes)))
            self._lines.put(text)
            try:
                return {name: tensor.numpy() for name, tensor in next(self._features).items()}
            except tf.errors.OpError:
                return None

    def close(self) -> None:
        self._is_open = False

    def _waiting(self) -> Iterator[bytes]:
        while self._is_open:  # with a timeout: TensorFlow requests the next line early, and must be able to end
            with contextlib.suppress(queue.Empty):
                yield os.fsencode(self._lines.get(timeout=0.1))


class BatchStream:
    """Features by batch number, as workers deliver them. Reader threads may call `take` concurrently."""

    def __init__(self, asked: Service, numbers: range, manifest: ManifestWriter, makes: Makes) -> None:
        self._service = asked
        self._numbers = numbers
        self._manifest = manifest
        self._makes = makes
        self._patience = asked.patience
        self._window = max(WINDOW, WINDOW_PER_WORKER * len(asked.workers))
        self._changed = threading.Condition()
        self._ready: Dict[int, Arrays] = {}
        self._taken: Set[int] = set()  # numbers from `_lowest` on
        self._lowest = numbers.start  # lowest number that has not been taken
        self._highest = numbers.start - 1  # highest number that has arrived
        self._overtaken: Dict[int, float] = {}  # missing number: when a later one arrived first
        self._longest_gap = 0.0  # seconds between two arrivals
        self._longest_delay = 0.0  # seconds by which an overtaken batch arrived late
        self._is_open = True
        self._is_streaming = True
        self._last = time.monotonic()
        self._is_full = False  # whether the latest batch is waiting for room
        self.missed: List[int] = []  # numbers that did not arrive in time
        threading.Thread(target=self._receive, name="xtts-service", daemon=True).start()

    def take(self, number: int) -> Optional[Arrays]:
        """The features of a batch; None when it does not arrive and has to be computed locally."""
        with self._changed:
            while number not in self._ready and not self._is_missing(number):
                self._changed.wait(POLL)
            if not self._is_open:
                raise ServiceError("the prefetcher is closed")
            found = self._ready.pop(number, None)
            self._overtaken.pop(number, None)
            self._taken.add(number)
            while self._lowest in self._taken:
                self._taken.remove(self._lowest)
                self._lowest += 1
            if found is None:
                self._miss(number)
            self._changed.notify_all()
        return found

    def close(self) -> None:
        """End the stream and release every thread that waits for a batch."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        if self.missed:
            self._service.log(
                f"data.service: {len(self.missed)} batches did not arrive in time and were computed locally"
            )
        self._manifest.close()

    def _is_missing(self, number: int) -> bool:
        if not self._is_open or not self._is_streaming:
            return True
        now = time.monotonic()
        overtaken = self._patience.at_least(self._patience.overtaken, self._longest_delay)
        if self._highest >= number + self._window and now - self._overtaken.get(number, now) > overtaken:
            return True
        silence = self._patience.at_least(self._patience.silence, self._longest_gap)
        if self._highest < self._numbers.start:
            silence = self._patience.first
        return not self._is_full and now - self._last > silence

    def _miss(self, number: int) -> None:
        if not self.missed:
            self._service.log(
                f"data.service: batch {number} did not arrive in time and is computed locally; so is any other that"
                " does not arrive"
            )
        self.missed.append(number)

    def _receive(self) -> None:
        while self._is_open and self._lowest < self._numbers.stop:
            try:
                self._is_streaming, self._last = True, time.monotonic()
                for batch in self._batches():
                    if not self._put(batch):
                        return
            except (tf.errors.OpError, XttsError) as error:
                self._service.log(
                    f"data.service: {first_line(error)}; batches are computed locally until it answers again"
                )
            with self._changed:
                self._is_streaming = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._is_open, self._patience.retry)

    def _batches(self) -> Iterator[Mapping[str, Any]]:
        """Batches from the lowest missing number to the last, then blank ones, which show when the last is lost."""
        self._describe()
        numbers = range(self._lowest, self._numbers.stop + self._window + 1)
        every = service_dataset(numbers, self._manifest.folder, self._service.sample_rate, self._makes)
        ready = service.without_errors(every).prefetch(OUTSTANDING)
        yield from service.by_any(ready, self._service.target, OUTSTANDING * len(self._service.workers))

    def _put(self, batch: Mapping[str, Any]) -> bool:
        """Keep a batch as soon as there is room; returns whether more are needed."""
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        number = int(arrays.pop("number"))
        with self._changed:
            now = time.monotonic()
            if self._highest >= self._numbers.start:
                self._longest_gap = max(self._longest_gap, now - self._last)
            self._overtaken.update(dict.fromkeys(range(self._highest + 1, number), now))
            self._longest_delay = max(self._longest_delay, now - self._overtaken.pop(number, now))
            self._highest = max(self._highest, number)
            self._changed.notify_all()
            self._is_full = True
            self._changed.wait_for(lambda: not self._is_open or self._has_room(number))
            self._is_full, self._last = False, time.monotonic()
            if self._lowest <= number < self._numbers.stop and number not in self._taken:
                self._ready[number] = arrays
                self._changed.notify_all()
            is_wanted = self._is_open and self._lowest < self._numbers.stop
        if is_wanted:
            self._describe()
        return is_wanted

    def _has_room(self, number: int) -> bool:
        windows = 1 if self._lowest in self._ready else MAX_WINDOWS
        return number <= self._lowest + windows * self._window

    def _describe(self) -> None:
        """Write the manifest further ahead than any worker can have read."""
        self._manifest.forget(self._lowest)
        self._manifest.write(max(self._highest, self._lowest) + MAX_WINDOWS * self._window + LINES_PER_FILE)


def connect_service(
    target: str,
    folder: Path,
    recording: str,
    sample_rate: int,
    log: Log,
    at_least: int = 1,
    patience: Optional[Patience] = None,
) -> Service:
    """Connect to the service at an address, after checking that its workers see the files and run this TensorFlow."""
    patience = patience or servers.PATIENCE
    require_answer(target, "data.service")
    folder.mkdir(parents=True, exist_ok=True)
    workers = _find_workers(target, folder, recording, at_least, patience)
    own_version = compat.OFFERED.version
    for worker in workers:
        if worker.tensorflow != own_version:
            raise ServiceError(
                f"data.service: the worker at {worker} has TensorFlow {worker.tensorflow}, this run {own_version}; a"
                " dataset is a graph of one release: start workers of the same"
            )
        if not worker.can_read:
            raise ServiceError(
                f"data.service: the worker at {worker} cannot read {recording} or cannot see {folder.absolute()}; the"
                " corpus and run.folder have to be on a disk that all machines have under the same path"
            )
    log(f"data.service: {len(workers)} workers of {target}: {', '.join(map(str, workers))}")
    return Service(target, workers, folder, sample_rate, log, patience)


def _find_workers(target: str, folder: Path, recording: str, at_least: int, patience: Patience) -> List[ServiceWorker]:
    """Ask a dispatcher's workers to identify themselves, until enough have answered: some may still be starting."""
    probe = folder / "seen.txt"
    probe.write_text("seen", encoding="utf-8")
    paths = [GREETING, str(probe.absolute()), str(Path(recording).absolute())]
    until, seconds = time.monotonic() + patience.answer, patience.poll
    read: Dict[bytes, Set[bytes]] = {}  # by worker: the paths that it could read
    known: Set[bytes] = set()  # workers that have tried all paths, so that the unreadable ones are known
    try:
        while len(known) < at_least and time.monotonic() < until:
            answers, is_complete = _ask_workers(target, paths, seconds)
            for worker, path in answers:
                read.setdefault(worker, set()).add(path)
            known |= {worker for worker in read if is_complete or len(read[worker]) == len(paths)}
            seconds *= 2
    finally:
        probe.unlink()
    if not read:
        raise ServiceError(
            f"data.service: no worker of {target} has answered in {patience.answer:g} s; start one with: python -m xtts"
            f" data-worker --dispatcher {target}"
        )
    facts = [(json.loads(worker), len(some) == len(paths)) for worker, some in read.items()]
    found = [ServiceWorker(about["address"], about["tensorflow"], can_read) for about, can_read in facts]
    return sorted(found, key=str)


def _ask_workers(target: str, names: Sequence[str], seconds: float) -> Tuple[List[Tuple[bytes, bytes]], bool]:
    """One round: the answers (worker, path it read) within `seconds`, and whether every worker answered completely.

    Requests are made in a thread, because one to a worker that has died never returns.
    """
    paths = tf.constant(list(names))
    answers: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            asked = tf.data.Dataset.range(len(names)).map(lambda place: _answer(paths[place]))
            for answer in service.by_each(service.without_errors(asked), target):
                answers.put(tuple(part.numpy() for part in answer))
        except tf.errors.OpError as error:
            answers.put(ServiceError(f"data.service: {not_a_dispatcher(target, error)}"))
        answers.put(None)

    threading.Thread(target=ask, name="xtts-greeting", daemon=True).start()
    found: List[Tuple[bytes, bytes]] = []
    until = time.monotonic() + seconds
    while True:
        try:
            answer = answers.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            return found, False
        if isinstance(answer, ServiceError):
            raise answer
        if answer is None:
            return found, True
        found.append(answer)


def _answer(path: Any) -> Tuple[Any, Any]:
    """A worker's identity, from a file in its own folder, and the path that it could read."""
    is_read = (
        tf.strings.length(tf.io.read_file(path)) >= 0
    )  # depends on the file, so that reading is not optimised away
    return tf.io.read_file(GREETING), tf.where(is_read, path, "")

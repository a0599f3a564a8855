"""Batches from tf.data service: a dispatcher's address and the order of batches come in; rows go out, each once.

Which worker makes which batch is the service's to say: it hands out numbers of batches to whoever is free, each once.
So every batch comes at most once, in any order, and what a worker had taken on when it died does not come at all. Here
batches are put in order by their numbers, and one that others have overtaken by far is made on this machine, by the
same graph. What a step trains on is therefore the same whatever becomes of the workers.
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
from xtts.pipeline.service.manifest import PAGE, Makes, ManifestWriter, make_features, manifest_line, service_dataset
from xtts.pipeline.service.servers import GREETING, ServiceError, first_line, not_a_dispatcher, require_answer
from xtts.pipeline.sources import Arrays, HostBatch, RemoteBatchSource
from xtts.planning.batch_order import Batch, BatchOrder

OVERTAKEN, EACH = 32, 8  # later batches that have come when one counts as lost: as many, and as many a worker
GRACE = 3.0  # seconds since the first of them has come
OUTSTANDING = 2  # requests to each worker at a time
FIRST = 60.0  # seconds that the first batch has to come
SILENCE = 10.0  # seconds without any batch, after which what is asked for is made here until one comes
AGAIN = 5.0  # seconds from a broken connection to the next
ANSWER, ROUND = 60.0, 5.0  # seconds that workers have to answer, and one round of asking them

Say = Callable[[str], None]


@attrs.frozen
class ServiceWorker:
    """Who answered."""

    address: str
    tensorflow: str
    can_read: bool  # a recording, and what batches are described in

    def __str__(self) -> str:
        return self.address


@attrs.frozen(eq=False)
class Service:
    """Workers that were asked, and where batches are described for them."""

    target: str  # grpc://host:port
    workers: Sequence[ServiceWorker]
    folder: Path
    sample_rate: int
    say: Say

    def source(self, order: BatchOrder, source: RemoteBatchSource, numbers: range, makes: Makes) -> "ServiceSource":
        """The batches of a run of steps, the sound of which workers read."""
        kept = raw_copies(source.recordings, self.sample_rate, self.folder / "waves", lambda done, total: None)
        replicas = [order.run(numbers.start, worker) for worker in range(order.workers)]
        batches = zip(*replicas)

        def describe(some: Sequence[Batch], number: int) -> str:
            return manifest_line(number, source.cuts(some, number), source.recordings, kept)

        folder = self.folder / f"batches-{time.time_ns():x}"
        pages = ManifestWriter(folder, numbers, lambda number: describe(next(batches), number))
        return ServiceSource(
            source, BatchStream(self, numbers, pages, makes), LocalFallback(self.sample_rate, makes), describe
        )


class ServiceSource:
    """A source whose sound comes from workers. What does not come is made here; what cannot be made, has rows lost."""

    def __init__(
        self,
        source: RemoteBatchSource,
        stream: "BatchStream",
        here: "LocalFallback",
        describe: Callable[[Sequence[Batch], int], str],
    ) -> None:
        self._source, self._stream, self._here, self._describe = source, stream, here, describe

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        made = self._stream.take(number)
        if made is None:
            made = self._here(self._describe(batches, number))
        if made is None:
            return self._source.read(batches, number)
        return self._source.delivered(batches, number, made)

    def finish(self, rows: HostBatch) -> Arrays:
        return self._source.finish(rows)

    def name(self, position: int) -> str:
        return self._source.name(position)

    def close(self) -> None:
        self._stream.close()
        self._here.close()


class LocalFallback:
    """What workers do, on this machine: a description comes in, features go out, to the bit those of a like machine."""

    def __init__(self, sample_rate: int, makes: Makes) -> None:
        self._sample_rate, self._makes = sample_rate, makes
        self._lines: queue.Queue[str] = queue.Queue()
        self._is_open, self._alone, self._made = True, threading.Lock(), None  # type: bool, threading.Lock, Any

    def __call__(self, text: str) -> Optional[Arrays]:
        """None when something that the line names cannot be read."""
        with self._alone:
            if self._made is None:  # most often no batch is missing
                lines = tf.data.Dataset.from_generator(self._waiting, tf.string, [])
                self._made = iter(lines.map(lambda one: make_features(one, self._sample_rate, self._makes)))
            self._lines.put(text)
            try:
                return {name: tensor.numpy() for name, tensor in next(self._made).items()}
            except tf.errors.OpError:
                return None

    def close(self) -> None:
        self._is_open = False

    def _waiting(self) -> Iterator[bytes]:
        while self._is_open:  # in pieces: TensorFlow asks ahead, and must not be kept
            with contextlib.suppress(queue.Empty):
                yield os.fsencode(self._lines.get(timeout=0.1))


class BatchStream:
    """Features by the numbers of their batches, as workers deliver them. Readers may `take` from many threads."""

    def __init__(self, asked: Service, numbers: range, pages: ManifestWriter, makes: Makes) -> None:
        self._service, self._numbers, self._pages, self._makes = asked, numbers, pages, makes
        self._room = max(OVERTAKEN, EACH * len(asked.workers))
        self._changed = threading.Condition()
        self._ready: Dict[int, Arrays] = {}
        self._taken: Set[int] = set()  # of those from `_lowest` on
        self._lowest = numbers.start  # that nobody has taken
        self._highest = numbers.start - 1  # that has come
        self._overtaken: Dict[int, float] = {}  # since when a later batch is there, of those that are not
        self._is_open, self._is_streaming, self._last = True, True, time.monotonic()
        self.missed: List[int] = []  # numbers that did not come in time
        threading.Thread(target=self._receive, name="xtts-service", daemon=True).start()

    def take(self, number: int) -> Optional[Arrays]:
        """The features of a batch; None when it does not come, and is to be made here."""
        with self._changed:
            while number not in self._ready and not self._is_missing(number):
                self._changed.wait(0.1)
            if not self._is_open:
                raise ServiceError("the feed is closed")
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
        """End the stream; whoever waits for a batch is let go."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        if self.missed:
            self._service.say(f"data.service: {len(self.missed)} batches did not come, and were made here")
        self._pages.close()

    def _is_missing(self, number: int) -> bool:
        now, is_full = time.monotonic(), self._highest >= self._lowest + self._room
        is_overtaken = self._highest >= number + self._room and now - self._overtaken.get(number, now) > GRACE
        patience = FIRST if self._highest < self._numbers.start else SILENCE
        is_silent = now - self._last > patience and not is_full
        return not self._is_open or not self._is_streaming or is_overtaken or is_silent

    def _miss(self, number: int) -> None:
        if not self.missed:
            self._service.say(f"data.service: batch {number} did not come, and is made here; so are others like it")
        self.missed.append(number)

    def _receive(self) -> None:
        while self._is_open and self._lowest < self._numbers.stop:
            try:
                self._is_streaming, self._last = True, time.monotonic()
                for batch in self._batches():
                    if not self._put(batch):
                        return
            except (tf.errors.OpError, XttsError) as error:
                self._service.say(f"data.service: {first_line(error)}; batches are made here until it answers")
            with self._changed:
                self._is_streaming = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._is_open, AGAIN)

    def _batches(self) -> Iterator[Mapping[str, Any]]:
        """From the lowest that is missing to the last, and some blank ones by which it is seen that that is lost."""
        self._describe()
        numbers = range(self._lowest, self._numbers.stop + self._room + 1)
        every = service_dataset(numbers, self._pages.folder, self._service.sample_rate, self._makes)
        ready = service.without_errors(every).prefetch(OUTSTANDING)
        yield from service.by_any(ready, self._service.target, OUTSTANDING * len(self._service.workers))

    def _put(self, batch: Mapping[str, Any]) -> bool:
        """Keep a batch when there is room; whether more are wanted."""
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        number = int(arrays.pop("number"))
        with self._changed:
            now = time.monotonic()
            self._overtaken.update(dict.fromkeys(range(self._highest + 1, number), now))
            self._overtaken.pop(number, None)
            self._highest = max(self._highest, number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_open or number <= self._lowest + self._room)
            self._last = time.monotonic()
            if self._lowest <= number < self._numbers.stop and number not in self._taken:
                self._ready[number] = arrays
                self._changed.notify_all()
            is_wanted = self._is_open and self._lowest < self._numbers.stop
        if is_wanted:
            self._describe()
        return is_wanted

    def _describe(self) -> None:
        """Describe batches further on than any worker can have come."""
        self._pages.forget(self._lowest)
        self._pages.write(max(self._highest, self._lowest) + 4 * self._room + PAGE)


def connect_service(
    target: str, folder: Path, recording: str, sample_rate: int, say: Say, at_least: int = 1
) -> Service:
    """The service at an address, when its workers answer, see what they have to, and are of this TensorFlow."""
    require_answer(target, "data.service")
    folder.mkdir(parents=True, exist_ok=True)
    workers = _greeted(target, folder, recording, at_least)
    here = compat.OFFERED.version
    for worker in workers:
        if worker.tensorflow != here:
            raise ServiceError(
                f"data.service: the worker at {worker} has TensorFlow {worker.tensorflow}, this run {here}; a dataset"
                " is a graph of one release: start workers of the same"
            )
        if not worker.can_read:
            raise ServiceError(
                f"data.service: the worker at {worker} cannot read {recording} or cannot see {folder.absolute()}; the"
                " corpus and run.folder have to be on a disk that all machines have under the same path"
            )
    say(f"data.service: {len(workers)} workers of {target}: {', '.join(map(str, workers))}")
    return Service(target, workers, folder, sample_rate, say)


def _greeted(target: str, folder: Path, recording: str, at_least: int) -> List[ServiceWorker]:
    """The workers of a dispatcher, asked again and again until so many answer: one may be starting."""
    seen = folder / "seen.txt"
    seen.write_text("seen", encoding="utf-8")
    until = time.monotonic() + ANSWER
    found: Dict[str, ServiceWorker] = {}
    try:
        while len(found) < at_least and time.monotonic() < until:
            for worker in _asked(target, seen, recording):
                found[worker.address] = worker
    finally:
        seen.unlink()
    if not found:
        raise ServiceError(
            f"data.service: no worker of {target} has answered in {ANSWER:g} s; start one with: python -m xtts"
            f" data-worker --dispatcher {target}"
        )
    return [found[address] for address in sorted(found)]


def _asked(target: str, seen: Path, recording: str) -> List[ServiceWorker]:
    """Who answers in one round. A thread asks, as a request to a worker that has died is not given up."""
    paths = tf.constant([GREETING, str(seen.absolute()), str(Path(recording).absolute())])
    answers: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            asked = tf.data.Dataset.range(len(paths)).map(lambda place: _answer(paths[place]))
            for answer in service.by_each(service.without_errors(asked), target):
                answers.put(tuple(part.numpy() for part in answer))
        except tf.errors.OpError as error:
            answers.put(ServiceError(f"data.service: {not_a_dispatcher(target, error)}"))
        answers.put(None)

    threading.Thread(target=ask, name="xtts-greeting", daemon=True).start()
    told: Dict[bytes, Set[bytes]] = {}
    for answer in _until(answers, ROUND):
        if isinstance(answer, ServiceError):
            raise answer
        told.setdefault(answer[0], set()).add(answer[1])
    facts: List[Tuple[Dict[str, str], bool]] = [
        (json.loads(who), len(read) == len(paths)) for who, read in told.items()
    ]
    return [ServiceWorker(about["address"], about["tensorflow"], can_read) for about, can_read in facts]


def _answer(path: Any) -> Tuple[Any, Any]:
    """Who a worker is, from a file in its own folder, and what it can read."""
    is_read = tf.strings.length(tf.io.read_file(path)) >= 0  # which depends on it, so that it is not left out
    return tf.io.read_file(GREETING), tf.where(is_read, path, "")


def _until(answers: "queue.Queue[Any]", seconds: float) -> Iterator[Any]:
    """What comes in so many seconds, until None does."""
    until = time.monotonic() + seconds
    while True:
        try:
            answer = answers.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            return
        if answer is None:
            return
        yield answer

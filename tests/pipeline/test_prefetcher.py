"""The prefetcher yields exactly the plan's batches in order, at any speed, and leaves no thread."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.errors import XttsError
from xtts.pipeline.buffer import BufferPolicy
from xtts.pipeline.prefetcher import FeatureDevice, Interval, Prefetcher, PrefetchError, overlap
from xtts.pipeline.sources import HostBatch
from xtts.planning.batch_order import BatchOrder
from xtts.planning.shapes import Shape

LIMIT = 600  # seconds: a guard against hanging, for the slowest machines
SIZE = Shape(text_length=1, mel_frames=4, joint_length=41, batch_size=3)


def order(utterances=23, batch_sizes=(2, 3), seed=1, workers=1):
    """A batch order with two alternating shapes."""
    return BatchOrder((np.arange(utterances) % len(batch_sizes)).astype(np.int16), batch_sizes, seed, workers)


class Clock:
    """A clock that tests advance."""

    now = 100.0

    def __call__(self):
        return self.now


class Numbers:
    """A source whose batches are their utterances' numbers, with hooks for a test."""

    def __init__(self, before_read=None, before_finish=None, lost=lambda number: ()):
        self._before_read, self._before_finish, self._lost = before_read, before_finish, lost
        self.read_numbers, self._lock = [], threading.Lock()

    def read(self, batches, number):
        with self._lock:
            self.read_numbers.append(number)
        if self._before_read:
            self._before_read(number)
        places = [int(place) for batch in batches for place in batch.utterances]
        counts = np.array([len(places), sum(places)], np.float64)
        return HostBatch(batches[0].shape, SIZE, {"places": places}, counts, len(places), tuple(self._lost(number)))

    def finish(self, rows):
        if self._before_finish:
            self._before_finish(rows)
        return rows.arrays

    def name(self, position):
        return f"utterance-{position}"


def planned(plan, start, stop, accumulated=1):
    """The expected steps: each with its shape and the utterances of its batches."""
    replicas = [plan.run(start * accumulated, worker) for worker in range(plan.workers)]
    batches = zip(*replicas)
    for step in range(start, stop):
        some = [next(batches) for _ in range(accumulated)]
        yield (
            step,
            tuple(one[0].shape for one in some),
            [[int(place) for batch in one for place in batch.utterances] for one in some],
        )


def handed_out(feed):
    return [(work.step, work.shapes, [batch["places"] for batch in work.batches]) for work in feed]


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("xtts-")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every test ends with all prefetcher threads finished."""
    yield
    assert threads() == []


# Order


@given(
    readers=st.integers(1, 5),
    buffer_size=st.integers(1, 9),
    accumulated=st.integers(1, 3),
    workers=st.integers(1, 2),
    start=st.integers(0, 30),
    steps=st.integers(0, 12),
    jitter=st.integers(0, 3),
)
def test_batches_come_in_the_plans_order(readers, buffer_size, accumulated, workers, start, steps, jitter):
    """Whatever the readers, the buffer and their speed, each step has exactly the planned batches."""
    plan = order(workers=workers)
    source = Numbers(before_read=lambda number: time.sleep(0.001 * (number * 7 % (jitter + 1))))
    with Prefetcher(plan, source, start, start + steps, accumulated, buffer_size, readers) as feed:
        found = handed_out(feed)
    assert found == list(planned(plan, start, start + steps, accumulated))
    numbers = range(start * accumulated, (start + steps) * accumulated)
    assert sorted(source.read_numbers) == list(numbers)  # and nothing more was read


def test_an_epoch_loses_and_repeats_nothing():
    """In two epochs, the first of which ends within an accumulation step, every utterance occurs twice."""
    plan = order(20)
    assert plan.batches_per_epoch == 9
    with Prefetcher(plan, Numbers(), 0, 9, accumulated=2, readers=3) as feed:
        places = [place for _, _, batches in handed_out(feed) for batch in batches for place in batch]
    assert sorted(places[:20]) == sorted(places[20:]) == list(range(20))


def test_a_resumed_prefetcher_continues_the_order():
    """A prefetcher that starts at a step yields what one from the beginning would."""
    plan = order()
    with Prefetcher(plan, Numbers(), 0, 40) as whole, Prefetcher(plan, Numbers(), 17, 40, readers=2) as rest:
        assert handed_out(whole)[17:] == handed_out(rest)


def test_totals_are_summed_over_all_batches():
    """A step's totals are sums over its batches and replicas, and at least 1, because losses are divided by them."""
    plan = order(workers=2)
    with Prefetcher(plan, Numbers(), 0, 9, accumulated=3) as feed:
        for work in feed:
            places = [place for batch in work.batches for place in batch["places"]]
            assert work.totals.dtype == np.float32
            assert work.totals.tolist() == [max(1, len(places)), max(1, sum(places))]
            assert work.frames == len(places)


# Several data devices


@given(
    devices=st.integers(2, 4),
    buffer_size=st.integers(1, 9),
    accumulated=st.integers(1, 3),
    seconds=st.lists(st.sampled_from([None, 0.0, 0.001, 0.1]), min_size=4, max_size=4),
    steps=st.integers(0, 12),
    jitter=st.integers(0, 3),
)
def test_the_order_is_independent_of_the_devices(devices, buffer_size, accumulated, seconds, steps, jitter):
    """Each step has its planned batches, whatever speeds were measured and however the devices differ from them."""
    plan, source = order(), Numbers()

    def maker(device):
        def finish(rows):
            time.sleep(0.0005 * ((device + rows.frames) % (jitter + 1)))
            return source.finish(rows)

        return FeatureDevice(f"device {device}", finish, seconds[device])

    makers = [maker(device) for device in range(devices)]
    with Prefetcher(plan, source, 5, 5 + steps, accumulated, buffer_size, 2, devices=makers) as feed:
        assert handed_out(feed) == list(planned(plan, 5, 5 + steps, accumulated))
    assert sum(one["batches"] for one in feed.scheduler.shares()) == steps * accumulated


def test_a_slow_device_gets_less_work_and_delays_none():
    """A device that is five times slower makes fewer batches, and the other continues meanwhile."""
    source, clock, steps = Numbers(), Clock(), 120
    changed, begun, done = threading.Condition(), {"slow": 0}, {"fast": 0}

    def slow(batch):
        with changed:
            begun["slow"] += 1
            until = done["fast"] + 5
            changed.notify_all()
            assert changed.wait_for(lambda: done["fast"] >= min(until, steps - begun["slow"]), LIMIT)
        return source.finish(batch)

    def fast(batch):
        with changed:
            assert changed.wait_for(lambda: begun["slow"], LIMIT)
            clock.now += 1  # one second for each batch of the fast device, however long it really takes
            done["fast"] += 1
            changed.notify_all()
        return source.finish(batch)

    devices = [FeatureDevice("slow", slow, 5.0), FeatureDevice("fast", fast, 1.0)]
    with Prefetcher(order(), source, 0, steps, buffer_size=40, readers=2, devices=devices, clock=clock) as feed:
        assert [step for step, _, _ in handed_out(feed)] == list(range(steps))
    shares = {one["device"]: one for one in feed.scheduler.shares()}
    assert 0 < shares["slow"]["batches"] < shares["fast"]["batches"]
    assert shares["slow"]["batches_per_second"] < shares["fast"]["batches_per_second"]


def test_a_devices_exception_is_raised_in_order():
    """All batches before the failed one are yielded first, and no thread keeps running."""
    source, tried = Numbers(), threading.Event()

    def succeed(rows):
        assert tried.wait(LIMIT)  # or it might make all the batches before the other has started
        return source.finish(rows)

    def fail(rows):
        tried.set()
        raise MemoryError("the second device is full")

    makers = [FeatureDevice("good", succeed), FeatureDevice("bad", fail)]
    steps = []
    with Prefetcher(order(), source, 0, 50, devices=makers) as feed, pytest.raises(MemoryError, match="second device"):
        steps.extend(work.step for work in feed)
    assert steps == list(range(len(steps)))


# Buffer


def test_an_automatic_buffer_adapts_to_the_run(monkeypatch):
    """It grows when the model waited although the buffer had been full, logs that once, and changes no batch."""
    monkeypatch.setattr("xtts.pipeline.prefetcher.is_memory_short", lambda: False)
    plan, logged, gate = order(), [], threading.Event()
    source = Numbers(before_finish=lambda batch: gate.wait(LIMIT))

    class Waiting(Clock):
        """Advances 0.02 seconds and lets the source continue when the model asks while `is_dry`."""

        is_dry = False

        def __call__(self):
            now = self.now
            if self.is_dry and threading.current_thread() is threading.main_thread():
                self.is_dry, self.now = False, now + 0.02
                gate.set()
            return now

    clock, policy = Waiting(), BufferPolicy(4, 4, 6)
    with Prefetcher(plan, source, 0, 30, buffer_size=policy, readers=2, on_resize=logged.append, clock=clock) as feed:
        gate.set()
        found = []
        for work in feed:
            found.append((work.step, work.shapes, [batch["places"] for batch in work.batches]))
            if work.step == 9:
                while feed.depth < feed.capacity:
                    time.sleep(0.001)
                gate.clear()
            elif work.step == 13:  # the buffer is empty now, and the next step must be waited for
                clock.is_dry = True
        assert feed.capacity == 6
    assert found == list(planned(plan, 0, 30))
    assert logged == ["the buffer grows from 4 to 6 batches: the model waited 0.02 s although the buffer had been full"]


def test_a_slow_consumer_does_not_grow_the_buffer():
    """No more batches are ready than the buffer holds, and at most one more is finished."""
    done = []
    source = Numbers(before_finish=done.append)
    with Prefetcher(order(), source, 0, 30, buffer_size=4, readers=2) as feed:
        assert feed.capacity == 4
        for taken, _ in enumerate(feed, 1):
            assert feed.depth <= 4
            assert len(done) <= taken + 4 + 1
            time.sleep(0.002)  # lets the source run as far ahead as it can
    assert len(done) == 30


def test_the_buffer_size_counts_batches():
    """With several batches a step it holds correspondingly fewer steps, and at least one."""
    with Prefetcher(order(), Numbers(), 0, 3, accumulated=4, buffer_size=50) as feed:
        assert feed.capacity == 12
    with Prefetcher(order(), Numbers(), 0, 3, accumulated=4, buffer_size=2) as feed:
        assert feed.capacity == 1


def test_fill_waits_until_the_buffer_is_half_full():
    """Training starts with a half-full buffer, and progress is reported for each batch."""
    seen, gate = [], threading.Semaphore(0)

    def look(done, total):
        seen.append((done, total))
        gate.release()

    with Prefetcher(order(), Numbers(before_finish=lambda rows: gate.acquire()), 0, 20, buffer_size=10) as feed:
        feed.fill(0.0, look)
        assert feed.depth >= 5
        for _ in range(20):
            gate.release()
    assert seen[0] == (0, 5)
    assert {total for _, total in seen} == {5}


@pytest.mark.parametrize("steps", [99, 2], ids=["a long run", "a run that fits in the buffer"])
def test_fill_waits_at_least_the_given_time(steps):
    """It waits even when everything is ready at once."""
    clock, looks = Clock(), []

    def look(done, total):
        looks.append(done)
        clock.now += 1

    with Prefetcher(order(), Numbers(), 0, steps, buffer_size=8, clock=clock) as feed:
        while feed.depth < min(steps, 4):
            time.sleep(0.001)
        feed.fill(3.0, look)
    assert looks == [min(steps, 4)] * 3


def test_fill_ends_when_there_is_no_more():
    """A run of fewer steps than half a buffer starts when all are ready; a failed source is not waited for."""
    with Prefetcher(order(), Numbers(), 0, 2, buffer_size=50) as feed:
        feed.fill(0.0)
        assert feed.depth == 2

    def fail(number):
        raise OSError("gone")

    with Prefetcher(order(), Numbers(before_read=fail), 0, 99) as feed:
        feed.fill(0.0)
        with pytest.raises(PrefetchError):
            next(iter(feed))


def test_the_data_device_works_while_the_model_does():
    """While the consumer works on a step another batch is finished; every batch has its interval, in order."""
    allowed = threading.Semaphore(2)  # batches, those of step 0
    source = Numbers(before_finish=lambda rows: allowed.acquire(timeout=LIMIT))
    with Prefetcher(order(), source, 0, 20, accumulated=2, buffer_size=4) as feed:
        for work in feed:
            for _ in range(2):
                allowed.release()
            until = time.monotonic() + LIMIT
            while len(feed.intervals) < min(40, 2 * (work.step + 2)):
                assert time.monotonic() < until
                time.sleep(0.001)
        intervals = list(feed.intervals)
    assert len(intervals) == 2 * 20
    times = [time for interval in intervals for time in (interval.start, interval.stop)]
    assert times == sorted(times)


INTERVALS = st.lists(
    st.integers(0, 30), unique=True
).map(  # in order, and disjoint
    lambda times: [Interval(*pair) for pair in zip(sorted(times)[::2], sorted(times)[1::2])]
)


@given(ones=INTERVALS, others=INTERVALS)
def test_overlap_is_the_share_of_time_in_which_both_work(ones, others):
    """The share is checked second by second; it is None for a device that never worked."""
    mine, theirs = ({at for one in intervals for at in range(one.start, one.stop)} for intervals in (ones, others))
    assert overlap(ones, others) == (pytest.approx(len(mine & theirs) / len(mine)) if mine else None)


def test_waiting_is_measured():
    """`waited` is the time the consumer waited for the last step."""
    asked = threading.Event()

    class Asking(Clock):
        """Lets the source continue once the model has asked."""

        def __call__(self):
            now = self.now
            if threading.current_thread() is threading.main_thread():
                asked.set()
            return now

    clock = Asking()

    def finish(batch):
        assert asked.wait(LIMIT)
        clock.now += 2

    with Prefetcher(order(), Numbers(before_finish=finish), 0, 1, clock=clock) as feed:
        assert [work.step for work in feed] == [0]
        assert feed.waited == 2


def test_readers_read_concurrently():
    """As many batches are read at once as there are readers: each waits until the others have started."""
    together = threading.Barrier(3, timeout=LIMIT)

    def meet(number):
        if number < 3:
            together.wait()

    with Prefetcher(order(), Numbers(before_read=meet), 0, 6, readers=3) as feed:
        assert len(handed_out(feed)) == 6


# Errors


def test_a_readers_exception_names_the_utterances():
    """It is raised after all good batches were yielded, and lists the ids of the utterances."""
    plan = order()

    def fail(number):
        if number == 4:
            raise ValueError("no such thing")

    with Prefetcher(plan, Numbers(before_read=fail), 0, 20, readers=3) as feed:
        steps = iter(feed)
        taken = [next(steps).step for _ in range(4)]
        with pytest.raises(PrefetchError) as caught:
            next(steps)
    assert taken == [0, 1, 2, 3]
    ((_, _, (batch,)),) = planned(plan, 4, 5)
    message = str(caught.value)
    assert message.startswith("batch 4, of the utterances ")
    assert all(f"utterance-{place}" in message for place in batch)
    assert message.endswith("cannot be read: ValueError: no such thing")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_user_error_is_not_wrapped():
    """An error that is already a message for the user is raised unchanged."""

    def fail(number):
        raise XttsError("the disk is gone; put it back")

    with Prefetcher(order(), Numbers(before_read=fail), 0, 9) as feed, pytest.raises(XttsError) as caught:
        next(iter(feed))
    assert str(caught.value) == "the disk is gone; put it back"


def test_the_data_devices_exception_reaches_the_consumer():
    """An exception in computing features is raised unchanged where the batch is requested."""

    def fail(rows):
        raise MemoryError("the data device is full")

    with pytest.raises(MemoryError, match="data device"), Prefetcher(
        order(), Numbers(before_finish=fail), 0, 9
    ) as feed:
        next(iter(feed))


def test_an_utterance_that_becomes_unreadable_is_reported_once():
    """It is reported once, however often it is drawn."""
    told = []
    source = Numbers(lost=lambda number: [("utterance-3", "it breaks off")] if number % 4 == 0 else [])
    with Prefetcher(order(), source, 0, 30, on_lost=lambda *one: told.append(one)) as feed:
        assert len(handed_out(feed)) == 30
    assert told == [("utterance-3", "it breaks off")]


def test_too_many_unreadable_utterances_stop_the_run():
    """With more than a tenth unreadable, the error gives the count, the total and the last reason."""
    told = []
    source = Numbers(lost=lambda number: [(f"utterance-{number}", f"reason {number}")])
    with Prefetcher(order(), source, 0, 30, on_lost=lambda *one: told.append(one)) as feed, pytest.raises(
        PrefetchError
    ) as caught:
        handed_out(feed)
    assert len(told) == 3  # of 23
    assert str(caught.value).startswith(
        "3 of 23 utterances can no longer be read, the last one because of this: reason 2."
    )


def test_one_unreadable_utterance_of_a_few_does_not_stop_the_run():
    """In a corpus of five a single utterance is more than a tenth, but training continues."""
    source = Numbers(lost=lambda number: [("utterance-0", "gone")])
    with Prefetcher(order(5), source, 0, 30) as feed:
        assert len(handed_out(feed)) == 30


@pytest.mark.parametrize("way", ["break", "exception", "at once", "full", "slow reader"])
def test_leaving_early_leaves_no_thread(way):
    """Whenever the consumer stops, every thread ends and no further batch is read."""
    started, released = threading.Event(), threading.Event()

    def slowly(number):
        started.set()
        assert released.wait(LIMIT)

    source = Numbers(before_read=slowly if way == "slow reader" else None)
    try:
        with Prefetcher(order(), source, 0, 10_000, buffer_size=3, readers=2, on_close=released.set) as feed:
            assert "xtts-producer" in threads()
            if way == "slow reader":
                assert started.wait(LIMIT)
            elif way == "full":
                feed.fill(0.05)
            elif way != "at once":
                for work in feed:
                    if work.step == 5:
                        if way == "exception":
                            raise ZeroDivisionError
                        break
    except ZeroDivisionError:
        assert way == "exception"
    assert threads() == []
    assert len(source.read_numbers) < 30

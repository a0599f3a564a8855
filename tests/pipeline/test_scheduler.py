"""The scheduler assigns batches by the measured speed of each device, here on a simulated clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.pipeline.scheduler import Scheduler


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def divided(*seconds):
    clock = Clock()
    return Scheduler({f"device {place}": own for place, own in enumerate(seconds)}, clock), clock


def test_a_device_takes_what_no_other_would_finish_sooner():
    """Equal devices take the next batch; one ten times slower takes one that will be ready when it is needed."""
    scheduler, _ = divided(1.0, 1.0)
    assert [scheduler.choose(device, range(50)) for device in (0, 1)] == [0, 0]
    scheduler, _ = divided(1.0, 10.0)
    assert scheduler.choose(0, range(50)) == 0
    assert scheduler.choose(1, range(50)) == 9
    scheduler, _ = divided(1.0, 1.0, 10.0)
    assert scheduler.choose(2, range(50)) == 18


def test_a_device_that_would_only_delay_the_others_gets_nothing():
    """A slow device is idle if the others would finish all pending batches sooner."""
    scheduler, _ = divided(1.0, 10.0)
    assert scheduler.choose(1, range(9)) is None
    assert scheduler.choose(1, []) is None


def test_without_measurements_every_device_takes_the_next_batch():
    """No device has a measured speed before its first batch."""
    scheduler, _ = divided(None, None)
    assert [scheduler.choose(device, range(50)) for device in (0, 1)] == [0, 0]


def test_measured_speeds_are_averaged():
    """Speeds follow the measurements, and shares give each device's batches and rate."""
    scheduler, clock = divided(1.0, None)
    for device, took in ((0, 2.0), (1, 4.0), (0, 2.0)):
        scheduler.begin(device)
        clock.now += took
        scheduler.end(device)
    first, second = scheduler.devices
    assert first.seconds == pytest.approx(1.36)
    assert second.seconds == 4.0
    assert scheduler.shares() == [
        {"device": "device 0", "share": pytest.approx(2 / 3), "batches": 2, "batches_per_second": 0.5},
        {"device": "device 1", "share": pytest.approx(1 / 3), "batches": 1, "batches_per_second": 0.25},
    ]


def test_a_stalled_device_is_not_waited_for():
    """The longer it is overdue, the slower it is assumed to be, until others take the work left to it."""
    scheduler, clock = divided(1.0, 5.0)
    scheduler.begin(0)
    assert scheduler.choose(1, range(10)) == 3  # just started: four more in the five seconds, one of them not sooner
    clock.now += 30
    assert scheduler.choose(1, range(10)) == 0


@given(
    seconds=st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    busy=st.lists(st.none() | st.floats(0, 200), min_size=5, max_size=5),
    equal=st.booleans(),
    now=st.floats(400, 1e6),
)
def test_the_fastest_device_always_takes_the_next_batch(seconds, busy, equal, now):
    """So one device always proceeds, even if the others are stalled or all are equally fast."""
    seconds = seconds[:1] * len(seconds) if equal else seconds
    scheduler, clock = divided(*seconds)
    fastest = min(range(len(seconds)), key=seconds.__getitem__)
    for place in range(len(seconds)):
        if place != fastest and busy[place] is not None:
            clock.now = 100.0 + busy[place]
            scheduler.begin(place)
    clock.now = now
    assert scheduler.choose(fastest, ["next"]) == "next"


def test_work_is_divided_by_speed():
    """In a simulation of a thousand batches the shares match the speeds, and none is later than its turn allows."""
    scheduler, clock = divided(1.0, 2.0, 8.0)
    free, left, late = {0: 0.0, 1: 0.0, 2: 0.0}, list(range(1000)), 0.0
    while left:
        device = min(free, key=free.__getitem__)
        clock.now = free[device]
        if scheduler.devices[device].began is not None:
            scheduler.end(device)
        chosen = scheduler.choose(device, left[:50])
        if chosen is None:
            free[device] = min(time for other, time in free.items() if other != device) + 1e-6
            continue
        left.remove(chosen)
        scheduler.begin(device)
        free[device] = clock.now + (1.0, 2.0, 8.0)[device]
        late = max(late, free[device] - (chosen + 1) / (1 + 1 / 2 + 1 / 8))
    shares = [one["share"] for one in scheduler.shares()]
    assert shares == pytest.approx([8 / 13, 4 / 13, 1 / 13], abs=0.01)
    assert late < 8  # seconds; a slow device's batch is started before its turn, so that it is hardly waited for

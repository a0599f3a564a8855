"""Which data device makes which batch: how long each takes for one comes in; the next batch of a device that is free
goes out.

Batches are wanted in the order of the plan, and one that is late holds up those behind it. So a device that is free
does not just take the next one, by which a slow device would hold up a fast one. It takes the first that no other
device would finish sooner: where it is ten times slower than the only other one, that is the tenth from here. All of a
plan's batches are about the same work (short shapes have more rows), so one number says how fast a device is: the
seconds of a batch, as an average that follows what is measured. Whoever makes a batch, it is the same batch.
"""

import math
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar

import attrs

Batch = TypeVar("Batch")

WEIGHT = 0.2  # of the latest batch in the average


@attrs.define(eq=False)
class DeviceLoad:
    """What is known of one data device."""

    name: str
    seconds: Optional[float] = None  # for a batch; None: nothing was measured yet
    batches: int = 0  # that it made
    busy: float = 0.0  # seconds in all
    began: Optional[float] = None  # the batch it is at work on

    def left(self, now: float) -> float:
        """Seconds until it is expected to be free. What is overdue is expected to take as long again."""
        return 0.0 if self.began is None or self.seconds is None else abs(self.began + self.seconds - now)


class Scheduler:
    """Batches for devices. Not to be used from two threads at once: the feed has a lock."""

    def __init__(self, seconds: Mapping[str, Optional[float]], clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` are those of a batch by device, as they were measured before; None where they were not."""
        self.devices = [DeviceLoad(name, own) for name, own in seconds.items()]
        self._clock = clock

    def choose(self, device: int, batches: Sequence[Batch]) -> Optional[Batch]:
        """Which of the batches that nobody has begun, in the order they are wanted, a free device makes now.

        None: the others will have finished all of these sooner.
        """
        place = self._ahead(device)
        return batches[place] if place < len(batches) else None

    def begin(self, device: int) -> None:
        self.devices[device].began = self._clock()

    def end(self, device: int) -> None:
        """The batch that was begun is made; how long it took counts from now on."""
        own = self.devices[device]
        assert own.began is not None
        took = self._clock() - own.began
        own.seconds = took if own.seconds is None else (1 - WEIGHT) * own.seconds + WEIGHT * took
        own.batches, own.busy, own.began = own.batches + 1, own.busy + took, None

    def shares(self) -> List[Dict[str, Any]]:
        """For people: what part of the work each device did, and how fast it is."""
        total = sum(one.batches for one in self.devices)
        return [
            {
                "device": one.name,
                "share": one.batches / total if total else None,
                "batches": one.batches,
                "batches_per_second": one.batches / one.busy if one.busy else None,
            }
            for one in self.devices
        ]

    def _ahead(self, device: int) -> int:
        """Batches that the others will have begun and finished before this one has finished one."""
        now, own = self._clock(), self.devices[device].seconds
        if own is None:
            return 0
        count = 0
        for place, other in enumerate(self.devices):
            if place != device and other.seconds:
                # Of two that are equally fast none is ahead: somebody must take the next batch.
                count += max(0, math.ceil((own - other.left(now)) / other.seconds) - 1)
        return count

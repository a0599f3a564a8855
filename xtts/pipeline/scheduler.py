"""Schedules batches on data devices of different speeds.

Batches are needed in the order of the plan, and a late one delays those after it. If a free device simply took the next
batch, a slow device would hold up a fast one. It takes the first batch that no other device would finish sooner: with
a device ten times as fast beside it, that is the tenth pending batch. All batches of a plan are about the same amount
of work (short shapes have more rows), so one number describes a device's speed: the seconds of a batch, as a moving
average. A batch is the same whichever device computes it.
"""

import math
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar

import attrs

Batch = TypeVar("Batch")

WEIGHT = 0.2  # of the latest batch in the moving average


@attrs.define(eq=False)
class DeviceLoad:
    """The speed and the load of one data device."""

    name: str
    seconds: Optional[float] = None  # for a batch; None: not measured yet
    batches: int = 0  # completed
    busy: float = 0.0  # seconds in total
    began: Optional[float] = None  # when it began the current batch

    def seconds_left(self, now: float) -> float:
        """Expected seconds until it is free. An overdue batch is expected to take as long again."""
        return 0.0 if self.began is None or self.seconds is None else abs(self.began + self.seconds - now)


class Scheduler:
    """Assigns batches to devices. Not thread-safe: the prefetcher calls it under its lock."""

    def __init__(self, seconds: Mapping[str, Optional[float]], clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds`: measured seconds of a batch, by device; None if not measured."""
        self.devices = [DeviceLoad(name, own) for name, own in seconds.items()]
        self._clock = clock

    def choose(self, device: int, batches: Sequence[Batch]) -> Optional[Batch]:
        """The batch that a free device takes now, of the pending ones in the order of the plan.

        None: the other devices will finish all of these sooner.
        """
        place = self._ahead(device)
        return batches[place] if place < len(batches) else None

    def begin(self, device: int) -> None:
        self.devices[device].began = self._clock()

    def end(self, device: int) -> None:
        """Complete the current batch, and add its seconds to the moving average."""
        own = self.devices[device]
        assert own.began is not None
        seconds = self._clock() - own.began
        own.seconds = seconds if own.seconds is None else (1 - WEIGHT) * own.seconds + WEIGHT * seconds
        own.batches += 1
        own.busy += seconds
        own.began = None

    def shares(self) -> List[Dict[str, Any]]:
        """For reports: each device's share of the work, and its speed."""
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
        """Batches that the other devices can begin and finish before this one has finished one."""
        now, own = self._clock(), self.devices[device].seconds
        if own is None:
            return 0
        count = 0
        for place, other in enumerate(self.devices):
            if place != device and other.seconds:
                # Equally fast devices are not ahead of each other: one of them must take the next batch.
                count += max(0, math.ceil((own - other.seconds_left(now)) / other.seconds) - 1)
        return count

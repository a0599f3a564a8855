"""How many threads read, and how many batches wait for the model: what is asked for and what the machine has come in,
numbers go out.

A buffer of "auto" follows the run. It grows when the model waited although it had been full: what came unevenly is
evened out by more of it. When the model waits and the buffer never fills, data are made too slowly, and no buffer
helps. It shrinks when the machine runs short of memory. What is trained is the same whatever it does.
"""

import os
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import attrs

MOST_READERS = 8
LARGEST_BUFFER, SMALLEST_BUFFER = 50, 4  # batches, when it is chosen here
MOST_GROWN = 200  # batches that a buffer may grow to
FREE_SHARE = 0.1  # of the machine's free memory that a buffer may fill, when it is chosen here
SHORT_SHARE = 0.05  # of the machine's memory; with less free than that, it is short
WAITED = 0.005  # seconds; whoever waits longer for a batch had to
LOOK = 16  # steps between two looks at the memory


def reader_count(asked: Any) -> int:
    """Threads that read: as many as are asked for, or one a core."""
    return int(asked) if asked != "auto" else min(MOST_READERS, os.cpu_count() or 1)


def buffer_batches(asked: Any, workers: int, batch_bytes: int) -> int:
    """Batches in the buffer: as many as are asked for, or as readers and free memory allow."""
    if asked != "auto":
        return int(asked)
    return max(SMALLEST_BUFFER, min(LARGEST_BUFFER, 8 * workers, _room(batch_bytes, LARGEST_BUFFER)))


@attrs.define
class BufferPolicy:
    """The size of a buffer, in batches, and between which it may be."""

    size: int
    least: int
    most: int
    was_full: bool = False  # since it last changed
    steps: int = 0

    @classmethod
    def of(cls, asked: Any, workers: int, batch_bytes: int) -> "BufferPolicy":
        """As many batches as are asked for, or a buffer that follows the run."""
        size = buffer_batches(asked, workers, batch_bytes)
        if asked != "auto":
            return cls(size, size, size)
        return cls(size, SMALLEST_BUFFER, max(size, _room(batch_bytes, MOST_GROWN)))

    def after(self, waited: float, is_full: bool, is_short: Callable[[], bool]) -> Optional[str]:
        """Note a step for which the model `waited` so many seconds; why the size is another now, if it is."""
        self.steps += 1
        self.was_full = self.was_full or is_full
        if self.steps % LOOK == 0 and self.size > self.least and is_short():
            return self._resized(max(self.least, self.size // 2), "the machine is short of memory")
        if waited > WAITED and self.was_full and self.size < self.most:
            why = f"the model waited {waited:.2g} s although the buffer had been full"
            return self._resized(min(self.most, max(self.size + 1, self.size * 3 // 2)), why)
        return None

    def _resized(self, size: int, why: str) -> str:
        before, self.size, self.was_full = self.size, size, False
        if size < before:
            self.most = size  # what the machine lacked once it will lack again
        return f"the buffer {'grows' if size > before else 'shrinks'} from {before} to {size} batches: {why}"


def is_memory_short() -> bool:
    """Whether little of the machine's memory is free; not where the system does not tell."""
    found = _memory()
    return bool(found) and found["MemAvailable"] < SHORT_SHARE * found["MemTotal"]


def free_bytes() -> Optional[int]:
    """Memory of the machine that is free; None where the system does not tell."""
    return _memory().get("MemAvailable")


def _room(batch_bytes: int, otherwise: int) -> int:
    """Batches that fit into a share of what is free, at most `otherwise`."""
    free = free_bytes()
    return otherwise if free is None else min(otherwise, int(FREE_SHARE * free / max(1, batch_bytes)))


def _memory() -> Dict[str, int]:
    """The machine's memory, in bytes, by Linux's names."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
        found = {line[0][:-1]: 1024 * int(line[1]) for line in lines if line[0] in ("MemAvailable:", "MemTotal:")}
    except (OSError, ValueError, IndexError):
        return {}
    return found if len(found) == 2 else {}

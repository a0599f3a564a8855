"""The buffer policy: how many threads read recordings, and how many batches are prefetched.

A buffer of "auto" adapts during the run. It grows when the model waited although the buffer had been full: data arrive
unevenly, and a larger buffer evens that out. When the model waits and the buffer never fills, data are produced too
slowly, and no buffer helps. It shrinks when the machine runs short of memory. None of this changes what is trained.
"""

import os
from typing import Any, Callable, Optional

import attrs

from xtts.planning.memory import LARGEST_BUFFER, SMALLEST_BUFFER

MAX_READERS = 8
BATCHES_PER_READER = 8
MAX_GROWN = 200  # batches that an "auto" buffer may grow to
FREE_SHARE = 0.1  # of the machine's free memory that an "auto" buffer may fill
SHORT_SHARE = 0.05  # with less than this share of its memory free, a machine is short of memory
WAITED = 0.005  # seconds; a shorter wait for a batch does not count
MEMORY_CHECK_STEPS = 16  # between two checks of the machine's memory


def reader_count(asked: Any) -> int:
    """Threads that read recordings: as many as asked for, or one for each core."""
    return int(asked) if asked != "auto" else min(MAX_READERS, os.cpu_count() or 1)


def buffer_batches(asked: Any, readers: int, batch_bytes: int) -> int:
    """The initial size of the buffer: as many batches as asked for, or as suits the readers and free memory."""
    if asked != "auto":
        return int(asked)
    fitting = _fitting_batches(batch_bytes, LARGEST_BUFFER)
    return max(SMALLEST_BUFFER, min(LARGEST_BUFFER, BATCHES_PER_READER * readers, fitting))


@attrs.define
class BufferPolicy:
    """The size of a buffer and its bounds, in batches."""

    size: int
    smallest: int
    largest: int
    was_full: bool = False  # since the last change
    steps: int = 0

    @classmethod
    def of(cls, asked: Any, readers: int, batch_bytes: int) -> "BufferPolicy":
        """A buffer of the size asked for, or for "auto" one that adapts."""
        size = buffer_batches(asked, readers, batch_bytes)
        if asked != "auto":
            return cls(size, size, size)
        return cls(size, SMALLEST_BUFFER, max(size, _fitting_batches(batch_bytes, MAX_GROWN)))

    def after(self, waited: float, is_full: bool, is_short: Callable[[], bool]) -> Optional[str]:
        """Update after a step for which the model `waited` (seconds); returns why the size changed, if it did."""
        self.steps += 1
        self.was_full = self.was_full or is_full
        if self.steps % MEMORY_CHECK_STEPS == 0 and self.size > self.smallest and is_short():
            return self._resize(max(self.smallest, self.size // 2), "the machine is short of memory")
        if waited > WAITED and self.was_full and self.size < self.largest:
            why = f"the model waited {waited:.2g} s although the buffer had been full"
            return self._resize(min(self.largest, max(self.size + 1, self.size * 3 // 2)), why)
        return None

    def _resize(self, size: int, why: str) -> str:
        before, self.size, self.was_full = self.size, size, False
        if size < before:
            self.largest = size  # with a larger one the machine would run short of memory again
        return f"the buffer {'grows' if size > before else 'shrinks'} from {before} to {size} batches: {why}"


def is_memory_short() -> bool:
    """Whether little of the machine's memory is free; False if unknown."""
    memory = _machine_memory()
    return memory is not None and bool(memory.available < SHORT_SHARE * memory.total)


def free_bytes() -> Optional[int]:
    """Free memory of the machine; None if unknown."""
    memory = _machine_memory()
    return None if memory is None else int(memory.available)


def _fitting_batches(batch_bytes: int, at_most: int) -> int:
    """Batches that fit into a share of the free memory."""
    free = free_bytes()
    return at_most if free is None else min(at_most, int(FREE_SHARE * free / max(1, batch_bytes)))


def _machine_memory() -> Any:
    """`available` and `total` bytes; None if unknown. The limits of a container are not considered."""
    import psutil

    try:
        return psutil.virtual_memory()
    except (OSError, RuntimeError):  # such as no /proc
        return None

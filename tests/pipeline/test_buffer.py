"""Readers and buffers sized for the machine, and a buffer that adapts during the run within its bounds."""

import types

import pytest

from xtts.pipeline.buffer import (
    MAX_GROWN,
    MAX_READERS,
    MEMORY_CHECK_STEPS,
    BufferPolicy,
    buffer_batches,
    free_bytes,
    is_memory_short,
    reader_count,
)
from xtts.planning.memory import LARGEST_BUFFER, SMALLEST_BUFFER


def test_readers_and_buffers_are_as_requested_or_fit_the_machine(monkeypatch):
    """Numbers are used as given; "auto" depends on cores, readers and free memory."""
    assert reader_count(3) == 3
    assert 1 <= reader_count("auto") <= MAX_READERS
    assert buffer_batches(50, 1, 10**12) == 50
    monkeypatch.setattr("xtts.pipeline.buffer.free_bytes", lambda: 10**9)
    assert buffer_batches("auto", 8, 1) == LARGEST_BUFFER
    assert buffer_batches("auto", 2, 1) == 16
    assert buffer_batches("auto", 8, 10**7) == 10
    assert buffer_batches("auto", 8, 10**9) == SMALLEST_BUFFER
    assert BufferPolicy.of("auto", 2, 10**7) == BufferPolicy(10, SMALLEST_BUFFER, 10)
    monkeypatch.setattr("xtts.pipeline.buffer.free_bytes", lambda: None)
    assert buffer_batches("auto", 8, 10**9) == LARGEST_BUFFER
    assert BufferPolicy.of("auto", 2, 10**9) == BufferPolicy(16, SMALLEST_BUFFER, MAX_GROWN)


def test_free_memory_is_reported_or_unknown(monkeypatch):
    """The value is psutil's; where it is not available, memory is not considered short."""
    free = free_bytes()
    assert free is None or 2**20 < free < 2**50
    for available, is_short in ((4, True), (6, False)):
        monkeypatch.setattr("psutil.virtual_memory", lambda: types.SimpleNamespace(available=available, total=100))  # noqa: B023
        assert (free_bytes(), is_memory_short()) == (available, is_short)

    def refuse():
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr("psutil.virtual_memory", refuse)
    assert (free_bytes(), is_memory_short()) == (None, False)


def never():
    return False


def test_a_buffer_grows_when_it_ran_empty_after_being_full():
    """It grows by half up to its bound, and each time only after it was full again."""
    policy = BufferPolicy(10, 4, 18)
    assert policy.after(1.0, False, never) is None  # it never was full: data are produced too slowly
    assert policy.after(0.0, True, never) is None  # the model did not wait
    note = policy.after(0.25, False, never)
    assert note == "the buffer grows from 10 to 15 batches: the model waited 0.25 s although the buffer had been full"
    assert policy.after(0.25, False, never) is None
    assert policy.after(0.25, True, never).startswith("the buffer grows from 15 to 18 batches")
    assert policy.after(0.25, True, never) is None
    assert policy.size == 18


def test_a_buffer_shrinks_when_memory_is_short_and_does_not_grow_back():
    """It shrinks by half down to the minimum; memory is checked every few steps."""
    policy, looked = BufferPolicy(18, 4, 200), []

    def short():
        looked.append(policy.size)
        return True

    messages = [policy.after(1.0, False, short) for _ in range(4 * MEMORY_CHECK_STEPS)]
    assert [text for text in messages if text] == [
        "the buffer shrinks from 18 to 9 batches: the machine is short of memory",
        "the buffer shrinks from 9 to 4 batches: the machine is short of memory",
    ]
    assert looked == [18, 9]
    assert policy.after(1.0, True, never) is None
    assert policy.size == 4


@pytest.mark.parametrize("size", [1, 50])
def test_a_fixed_buffer_size_is_kept(size):
    """A size given as a number never changes."""
    policy = BufferPolicy.of(size, 2, 10**6)
    for step in range(3 * MEMORY_CHECK_STEPS):
        assert policy.after(1.0, step % 2 == 0, lambda: True) is None
    assert policy.size == size

"""Stopping a process by signals: two ways, each of which restores the earlier handlers."""

import os
import signal

import pytest

from xtts.training.signals import interrupted, stop_on_signal

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers():
    """Handlers are restored after the test."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def send_and_wait(number):
    """Send a signal to this process, and wait for its effect."""
    os.kill(os.getpid(), number)
    signal.pause()


@BOTH
def test_a_signal_sets_an_event(number):
    """Training finishes its step and then stops."""
    with stop_on_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(600)


@BOTH
def test_a_signal_interrupts(number):
    """Outside of training a signal raises KeyboardInterrupt."""
    with pytest.raises(KeyboardInterrupt), interrupted():
        send_and_wait(number)


def test_an_exception_caused_by_an_interruption_is_an_interruption():
    """TensorFlow 2.4 raises SystemError when the signal comes while it creates a tensor."""

    def make_a_tensor():
        try:
            send_and_wait(signal.SIGTERM)
        except KeyboardInterrupt:
            raise SystemError("returned a result with an error set") from None

    with pytest.raises(KeyboardInterrupt), interrupted():
        make_a_tensor()


def test_an_exception_without_a_signal_is_unchanged():
    """Without a signal SystemError is raised as it is."""
    with pytest.raises(SystemError, match="of its own"), interrupted():
        raise SystemError("of its own")

"""How a process is told to stop: two ways, each with the handlers of before afterwards."""

import os
import signal

import pytest

from xtts.training.signals import interrupted, stop_on_signal

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers():
    """What was there before is there afterwards."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def be_told(number):
    """Get a signal, and wait for what it does."""
    os.kill(os.getpid(), number)
    signal.pause()


@BOTH
def test_a_signal_sets_an_event(number):
    with stop_on_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(600)


@BOTH
def test_a_signal_interrupts(number):
    with pytest.raises(KeyboardInterrupt), interrupted():
        be_told(number)


def test_what_is_raised_in_an_interruption_s_place_is_an_interruption():
    """As TensorFlow 2.4 does, when the signal comes while it makes a tensor."""

    def make_a_tensor():
        try:
            be_told(signal.SIGTERM)
        except KeyboardInterrupt:
            raise SystemError("returned a result with an error set") from None

    with pytest.raises(KeyboardInterrupt), interrupted():
        make_a_tensor()


def test_what_is_raised_without_a_signal_stays_as_it_is():
    with pytest.raises(SystemError, match="of its own"), interrupted():
        raise SystemError("of its own")

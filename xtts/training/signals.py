"""SIGINT and SIGTERM: set an event while a run can save, and interrupt it while there is nothing to save."""

import contextlib
import signal
import threading
from typing import Any, Dict, Iterator


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one has its usual effect."""
    stop = threading.Event()
    before: Dict[int, Any] = {}

    def handle(number: int, _frame: Any) -> None:
        stop.set()
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        before.update({number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)})
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Inside the block, SIGTERM raises KeyboardInterrupt as SIGINT does.

    TensorFlow may raise an error of its own instead, which is turned back into KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    was_interrupted = threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        was_interrupted.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if was_interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

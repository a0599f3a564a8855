"""How a process is told to stop: SIGINT and SIGTERM come in; an event, or an interruption, goes out."""

import contextlib
import signal
import threading
from typing import Any, Dict, Iterator


@contextlib.contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; the second one of a kind does what it always does."""
    stop = threading.Event()
    before: Dict[int, Any] = {}

    def told(number: int, _frame: Any) -> None:
        stop.set()
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        before.update({number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)})
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Inside, SIGTERM interrupts as SIGINT does: where there is nothing to save, what was begun is let go.

    TensorFlow's own code may raise something else in the interruption's place, which is an interruption all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        told.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if told.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

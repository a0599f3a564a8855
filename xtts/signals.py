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
    """Inside, SIGTERM interrupts as SIGINT does: where there is nothing to save, what was begun is let go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

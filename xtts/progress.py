"""Progress of long work: how much is done, of how much, comes in; a bar on a terminal goes out, nothing elsewhere."""

import shutil
import sys
import time
from typing import TextIO

from xtts.formatting import format_duration

WIDTH = 30  # characters of the bar
AGAIN = 0.1  # seconds between two drawings


class ProgressBar:
    """Called with (done, total); `with Bar("reading"):` wipes it when the work ends, well or not."""

    def __init__(self, label: str, stream: TextIO = sys.stderr, start: float = 0) -> None:
        """`start` was done before: what is left is estimated from the rest."""
        self.label = label
        self.stream = stream
        self.is_shown = stream.isatty()
        self._start = start
        self._started = time.monotonic()
        self._drawn = 0.0

    def __call__(self, done: float, total: float, note: str = "") -> None:
        """Draw it, with a note behind; a line longer than the terminal is cut."""
        now = time.monotonic()
        if not self.is_shown or (now - self._drawn < AGAIN and done < total):
            return
        self._drawn = now
        share = min(1.0, done / total) if total else 1.0
        filled = "#" * round(share * WIDTH)
        line = f"{self.label} [{filled:<{WIDTH}}] {share:4.0%}, {format_duration(self.left(done, total))} left{note} "
        self.stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self.stream.flush()

    def begin(self) -> None:
        """Count time from now on: what went before was not this work."""
        self._started = time.monotonic()

    def left(self, done: float, total: float) -> float:
        """Seconds until all is done, at the pace so far."""
        pace = (time.monotonic() - self._started) / (done - self._start) if done > self._start else 0.0
        return max(0.0, total - done) * pace

    def say(self, line: str) -> None:
        """Write a line that stays, above the bar."""
        self.wipe()
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def wipe(self) -> None:
        if self.is_shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_error: object) -> None:
        self.wipe()

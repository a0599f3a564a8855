"""A progress bar on a terminal, by tqdm; elsewhere nothing, to keep bars out of log files."""

import sys
import time
from typing import Any, Optional, TextIO

FORMAT = "{desc} [{bar:30}] {percentage:3.0f}%, {remaining} left{postfix}"
INTERVAL = 0.1  # seconds between two drawings


class ProgressBar:
    """Called with (done, total). `with ProgressBar("reading") as bar:` removes the bar when the work ends or fails."""

    def __init__(self, label: str, stream: Optional[TextIO] = None, start: float = 0) -> None:
        """`start` was done before: the time left is estimated from the rest. The stream is standard error."""
        self.label = label
        self.stream = sys.stderr if stream is None else stream
        self.is_shown = self.stream.isatty()
        self._start = start
        self._started = time.monotonic()
        self._due = 0.0  # when it may be drawn again
        self._bar: Any = None  # tqdm's, from the first call on

    def __call__(self, done: float, total: float, note: str = "") -> None:
        """Draw the bar, followed by a note, unless it was drawn a moment ago."""
        now = time.monotonic()
        if not self.is_shown or (now < self._due and done < total):
            return
        self._due = now + INTERVAL
        if self._bar is None:
            self._bar = self._make_bar(total)
        self._bar.total = total or 1
        self._bar.n = min(done, total) if total else 1
        self._bar.postfix = note.lstrip(", ")
        self._bar.refresh()

    def begin(self) -> None:
        """Restart the estimate of the time left: the time before this call was spent on other work."""
        self._started = time.monotonic()
        self._close()

    def left(self, done: float, total: float) -> float:
        """Seconds until all is done, at the speed so far; tqdm does not count where it draws nothing."""
        pace = (time.monotonic() - self._started) / (done - self._start) if done > self._start else 0.0
        return max(0.0, total - done) * pace

    def log(self, line: str) -> None:
        """Write a line that stays, above the bar."""
        self.wipe()
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def wipe(self) -> None:
        """Remove the bar; the next call draws it again."""
        if self._bar is not None:
            self._bar.clear()

    def _make_bar(self, total: float) -> Any:
        from tqdm import tqdm  # only where there is a terminal to draw on

        bar = tqdm(
            desc=self.label,
            total=total,
            initial=self._start,
            file=self.stream,
            leave=False,
            position=0,  # of two bars at once, the newer one is shown
            dynamic_ncols=True,
            ascii=" #",
            smoothing=0,
            bar_format=FORMAT,
        )
        bar.start_t -= time.monotonic() - self._started
        return bar

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

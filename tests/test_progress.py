"""Progress bars: a bar on a terminal, nothing elsewhere."""

import io
import re
import time

import pytest

from xtts.formatting import format_duration
from xtts.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_that_is_erased_at_the_end():
    """The bar is redrawn in place and erased when the work ends."""
    screen = Terminal()
    with ProgressBar("reading", screen) as bar:
        bar(1, 4)
        bar(4, 4)
    drawn = screen.getvalue().split("\r")
    assert any(line.startswith("reading [#######") and "]  25%, " in line and " left" in line for line in drawn)
    assert any("100%" in line for line in drawn)
    assert drawn[-2].strip() == drawn[-1] == ""


def test_a_pipe_gets_nothing():
    """Logs have no progress bars."""
    log = io.StringIO()
    with ProgressBar("reading", log) as bar:
        bar(1, 2)
    assert log.getvalue() == ""


def test_an_empty_task_is_complete():
    """A total of zero causes no division by zero."""
    screen = Terminal()
    ProgressBar("reading", screen)(0, 0)
    assert "100%" in screen.getvalue()


def test_earlier_work_is_not_counted_in_the_rate(monkeypatch):
    """In a resumed run the time left is computed from the new steps only."""
    now = [0.0]
    monkeypatch.setattr("xtts.progress.time.monotonic", lambda: now[0])
    bar = ProgressBar("gpt", io.StringIO(), start=500)
    assert bar.left(500, 1000) == 0
    now[0] = 10.0
    assert bar.left(510, 1000) == 490


def test_a_log_line_is_written_above_the_bar():
    """On a terminal the bar is erased first; a pipe gets the line alone."""
    for stream in (Terminal(), io.StringIO()):
        bar = ProgressBar("gpt", stream)
        bar(1, 2)
        bar.log("hello")
        assert stream.getvalue().split("\r")[-1] == "hello\n"


def test_the_time_left_on_a_terminal_counts_new_work_only():
    """Neither earlier work nor the time before the work started is counted."""
    screen = Terminal()
    with ProgressBar("gpt", screen, start=500) as bar:
        bar(500, 1000)
        time.sleep(2)
        bar.begin()
        time.sleep(0.2)
        bar(750, 1000, ", step 750")
    line = next(line for line in screen.getvalue().split("\r") if "step 750" in line)
    assert re.search(r"] +75%, 00:0\d left, step 750", line)


def test_the_stream_is_the_current_standard_error(monkeypatch):
    """It is not the one at the time of the import."""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with ProgressBar("reading") as bar:
        bar(1, 4)
    assert " 25%" in screen.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119, "119 s"), (150, "2 min"), (9000, "2.5 h")])
def test_durations_are_short(seconds, text):
    """A duration is formatted in seconds, minutes or hours."""
    assert format_duration(seconds) == text

"""progress: a bar on a terminal, silence elsewhere."""

import io

import pytest

from xtts.formatting import format_duration
from xtts.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_that_is_wiped_at_the_end():
    """The share done is drawn over itself, and leaves no trace when the work ends."""
    screen = Terminal()
    with ProgressBar("reading", screen) as bar:
        bar(1, 4)
        bar(4, 4)
    assert "reading [########" in screen.getvalue()
    assert " 25%" in screen.getvalue()
    assert "100%" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_a_pipe_gets_nothing():
    """Logs stay free of bars."""
    log = io.StringIO()
    with ProgressBar("reading", log) as bar:
        bar(1, 2)
    assert log.getvalue() == ""


def test_nothing_to_do_is_done():
    """A total of zero is no division by zero."""
    screen = Terminal()
    ProgressBar("reading", screen)(0, 0)
    assert "100%" in screen.getvalue()


def test_what_was_done_before_does_not_count_as_pace(monkeypatch):
    """A run that goes on from the middle has left what the new steps tell, and not what the old ones would."""
    now = [0.0]
    monkeypatch.setattr("xtts.progress.time.monotonic", lambda: now[0])
    bar = ProgressBar("gpt", io.StringIO(), start=500)
    assert bar.left(500, 1000) == 0
    now[0] = 10.0
    assert bar.left(510, 1000) == 490


def test_a_line_that_stays_is_written_above_the_bar():
    """The bar is wiped first on a terminal; a pipe gets the line alone."""
    for stream, expected in ((Terminal(), "\r\x1b[Khello\n"), (io.StringIO(), "hello\n")):
        ProgressBar("gpt", stream).say("hello")
        assert stream.getvalue() == expected


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119, "119 s"), (150, "2 min"), (9000, "2.5 h")])
def test_times_are_said_in_words(seconds, text):
    """Seconds, minutes or hours, whichever is short."""
    assert format_duration(seconds) == text

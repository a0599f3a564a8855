"""A child process ends with the process that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHILD = """
import time
from xtts.processes import end_with_parent
end_with_parent()
print("up", flush=True)
time.sleep(600)
"""
PARENT = f"""
import subprocess, sys, time
from xtts.processes import start_child
child = start_child([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")
@pytest.mark.parametrize("number", [9, 15], ids=["killed", "terminated"])
def test_a_child_ends_when_its_parent_is_gone(number):
    """It ends however the parent ended, without a signal."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    with parent:
        child = int(parent.stdout.readline())
        os.kill(child, 0)  # it is running
        parent.send_signal(number)
        parent.wait()
        until = time.monotonic() + 240
        while is_alive(child):
            assert time.monotonic() < until
            time.sleep(0.05)


def is_alive(pid):
    """Whether a process is running; an ended one may still be listed, as a zombie, until its new parent reaps it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return bool(listed.strip()) and not listed.startswith("Z")


def test_a_process_without_that_parent_ignores_its_input():
    """The standard input of an ordinary process may be closed from the beginning."""
    program = "import time; from xtts.processes import end_with_parent; end_with_parent(); time.sleep(1)"
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0

"""The lock on a run's folder: one process holds it until it ends, however it ends."""

import errno
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest

from xtts.training import run_lock
from xtts.training.run_lock import LockError, RunLock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from xtts.training.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(folder):
    """A process that has or has requested the lock, and waits for a line of input."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


def test_a_second_process_is_refused_with_the_first_ones_name(tmp_path):
    """The error names process and host; a refusal keeps that name; when the first ends, the folder is free."""
    first, word = holder(tmp_path / "run")
    assert word == "held"
    for _ in range(2):
        with pytest.raises(LockError, match=f"process {first.pid} on {socket.gethostname()} is running here"):
            RunLock(tmp_path / "run").__enter__()
    second, word = holder(tmp_path / "run")
    assert word == ""
    assert f"process {first.pid} on" in second.communicate()[1]
    first.communicate("\n")
    with RunLock(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / "run.lock").read_text()


def test_a_killed_process_frees_the_folder_at_once(tmp_path):
    """After kill -9 the next run starts without any cleanup."""
    first, _ = holder(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second, word = holder(tmp_path)
    assert word == "held"
    second.communicate("\n")
    assert second.returncode == 0


def test_folders_are_independent_and_free_after_an_error(tmp_path):
    """Two runs in two folders run side by side; a failed run releases its folder."""
    with RunLock(tmp_path / "a"), RunLock(tmp_path / "b"), pytest.raises(LockError):
        RunLock(tmp_path / "a").__enter__()
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "a"):
        raise ZeroDivisionError
    with RunLock(tmp_path / "a"):
        pass


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    """A file in place of the folder gives an error with the path and the remedy."""
    (tmp_path / "run").write_text("")
    with pytest.raises(LockError, match=r"run\.lock: .*; name a folder that can be written in run.folder"):
        RunLock(tmp_path / "run").__enter__()


def test_a_file_system_without_locks_is_noted(tmp_path, monkeypatch):
    """Some network file systems answer ENOLCK; the run continues with a note."""

    def no_locks(file):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock, "lock_file", no_locks)
    logged = []
    with RunLock(tmp_path, log=logged.append):
        assert "a second run in this folder is not refused" in logged[0]


def test_windows_locks_a_byte_past_the_text(tmp_path, monkeypatch):
    """With a stand-in for msvcrt: a refused process can read the rest of the file, and closing releases the lock."""
    held = {}

    def locking(descriptor, mode, size):
        place = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR), size)
        if held.get(place, descriptor) != descriptor and _is_open(held[place]):
            raise PermissionError(errno.EACCES, "Permission denied")
        held[place] = descriptor

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    spec = importlib.util.spec_from_file_location("windows_lock", run_lock.__file__)
    windows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(windows)
    with windows.RunLock(tmp_path):
        with pytest.raises(windows.LockError, match=f"process {os.getpid()} on "):
            windows.RunLock(tmp_path).__enter__()
        assert (tmp_path / "run.lock").stat().st_size < 1000
    assert [(place, size) for _, place, size in held] == [(windows.BYTE, 1)]
    with windows.RunLock(tmp_path):
        pass


def _is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

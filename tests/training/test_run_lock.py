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
    """A process that has the lock, or tried to, and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


def test_a_second_process_is_refused_by_name_of_the_first(tmp_path):
    """The sentence names process and host; a refusal does not wipe the name; when the first ends, all is free."""
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
    """After kill -9 the next run starts, without anything to clear away."""
    first, _ = holder(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second, word = holder(tmp_path)
    assert word == "held"
    second.communicate("\n")
    assert second.returncode == 0


def test_folders_do_not_hinder_each_other_and_one_is_free_after_an_error(tmp_path):
    """Two runs in two folders go on side by side; a run that fails lets its folder go."""
    with RunLock(tmp_path / "a"), RunLock(tmp_path / "b"), pytest.raises(LockError):
        RunLock(tmp_path / "a").__enter__()
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "a"):
        raise ZeroDivisionError
    with RunLock(tmp_path / "a"):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """A file where the folder should be: a sentence with the path and the remedy."""
    (tmp_path / "run").write_text("")
    with pytest.raises(LockError, match=r"run\.lock: .*; name a folder that can be written in run.folder"):
        RunLock(tmp_path / "run").__enter__()


def test_where_the_file_system_has_no_locks_the_run_goes_on_and_says_so(tmp_path, monkeypatch):
    """Some network file systems answer ENOLCK: no reason not to train."""

    def no_locks(file):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock, "_lock", no_locks)
    logged = []
    with RunLock(tmp_path, log=logged.append):
        assert "a second run in this folder is not refused" in logged[0]


def test_windows_locks_a_byte_past_the_text(tmp_path, monkeypatch):
    """By a stand-in for msvcrt: the byte is not among those the refused process reads, and closing frees it."""
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

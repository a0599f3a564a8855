"""The lock on a run's folder: only one process at a time trains there.

The operating system holds the lock, and the file `run.lock` only names the holder: when a process is killed, its lock
is released at once, and nothing has to be cleaned up. A child forked without exec shares the lock.

Not filelock: up to 3.16, the last release for Python 3.8, a refused process empties the lock file and with it the
holder's name, and a file system without locks (ENOLCK, ENOSYS) looks locked for ever; version 4 then falls back to a
lock file that outlives a killed process. Here a run on such a file system starts with a warning.
"""

import errno
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Callable, Optional

import attrs

from xtts.errors import XttsError

NAME = "run.lock"
HELD = {errno.EAGAIN, errno.EACCES}  # from POSIX and Windows when another process has the lock

if sys.platform == "win32":
    import msvcrt

    BYTE = 2**30  # the byte that is locked: past the text, because no other process can read a locked byte

    def lock_file(file: BinaryIO) -> None:
        file.seek(BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock_file(file: BinaryIO) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


class LockError(XttsError):
    """The folder is in use by another run, or cannot be written."""


@attrs.define(eq=False)
class RunLock:
    """`with RunLock(folder):` creates the folder if needed, and raises `LockError` when another run is using it."""

    folder: Path
    log: Callable[[str], None] = print
    _file: Optional[BinaryIO] = attrs.field(default=None, init=False)

    def __enter__(self) -> "RunLock":
        path = self.folder / NAME
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b", buffering=0)  # "a": a refused process must not erase the holder's name
        except OSError as error:
            raise LockError(f"{path}: {error.strerror}; name a folder that can be written in run.folder") from None
        try:
            lock_file(file)
        except OSError as error:
            if error.errno in HELD:
                with file:
                    raise LockError(self._in_use(file)) from None
            self.log(f"{path}: {error.strerror}, so a second run in this folder is not refused; do not start one.")
        self._file = file
        with suppress(OSError):  # a full disk: the lock works without the holder's name
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return self

    def __exit__(self, *_error: object) -> None:
        if self._file:
            with suppress(OSError):
                self._file.truncate(0)
            self._file.close()  # not removed: otherwise two runs could lock two files of the same name
            self._file = None

    def _in_use(self, file: BinaryIO) -> str:
        file.seek(0)
        holder = file.read(1000).decode("utf-8", "replace").strip() or "another process"
        return f"{self.folder}: {holder} is running here; wait until it ends, stop it, or name another run folder"

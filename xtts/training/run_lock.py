"""One run, one folder: a run's folder comes in, and is this process's own until it ends, however it ends.

The system holds the lock, not the file `run.lock`, which only names the holder: when a process is killed its lock is
free at once, and nothing is to be cleared away. A child made by fork without exec shares the lock.
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
HELD = {errno.EAGAIN, errno.EACCES}  # what POSIX and Windows answer when another process has the lock

if sys.platform == "win32":
    import msvcrt

    BYTE = 2**30  # the one that is locked: past the text, because nobody else can read a locked byte

    def _hold(file: BinaryIO) -> None:
        file.seek(BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _hold(file: BinaryIO) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


class LockError(XttsError):
    """A folder that another run has, or that cannot be written."""


@attrs.define(eq=False)
class RunLock:
    """`with RunLock(folder):` makes the folder if need be, and refuses one that another run has."""

    folder: Path
    say: Callable[[str], None] = print
    _file: Optional[BinaryIO] = attrs.field(default=None, init=False)

    def __enter__(self) -> "RunLock":
        path = self.folder / NAME
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b", buffering=0)  # "a": who is refused must not wipe the holder's name
        except OSError as error:
            raise LockError(f"{path}: {error.strerror}; name a folder that can be written in run.folder") from None
        try:
            _hold(file)
        except OSError as error:
            if error.errno in HELD:
                with file:
                    raise LockError(self._refusal(file)) from None
            self.say(f"{path}: {error.strerror}, so nothing keeps a second run out of this folder; start none there.")
        self._file = file
        with suppress(OSError):  # on a full disk it is the lock that counts
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return self

    def __exit__(self, *_error: object) -> None:
        if self._file:
            with suppress(OSError):
                self._file.truncate(0)
            self._file.close()  # the file stays: removing it would let two runs lock two files of one name
            self._file = None

    def _refusal(self, file: BinaryIO) -> str:
        file.seek(0)
        holder = file.read(1000).decode("utf-8", "replace").strip() or "another process"
        return f"{self.folder}: {holder} is running here; wait until it ends, stop it, or name another run folder"

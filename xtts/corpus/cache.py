"""What was found out once: JSON values come in, and come back as long as what they are about has not changed.

A cache file that is cut, altered or of another version is as good as none; one that cannot be written is not missed.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

VERSION = "1"  # raised when what is stored, or how it is worked out, changes
FOLDER = ".xtts-cache"
COARSEST_CLOCK = 2_000_000_000  # ns; FAT's: a file may change twice in this time and keep its size and mtime


def cache_folder(root: Union[str, Path]) -> Path:
    """Where to keep what is found out about a corpus: beside it, or with the user's caches when it is read-only."""
    if os.access(root, os.W_OK):
        return Path(root, FOLDER).absolute()
    home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return Path(home or os.path.expanduser("~/.cache"), "xtts")  # noqa: PTH111 - Path.home fails where there is none


def cache_name(kind: str, *about: object) -> str:
    """The name of a cache file: its kind, and a digest of what it is about."""
    digest = hashlib.sha256(json.dumps([str(part) for part in about]).encode()).hexdigest()
    return f"{kind}-{digest[:20]}.json"


def load_entry(folder: Path, name: str) -> Any:
    """What `store` was given, or None."""
    try:
        digest, _, content = (folder / name).read_bytes().partition(b"\n")
        return json.loads(content) if digest == _digest(content) else None
    except (OSError, ValueError):
        return None


def store_entry(folder: Path, name: str, value: Any) -> None:
    """Keep a JSON value, wholly or not at all."""
    content = json.dumps(value, separators=(",", ":")).encode()
    partial = folder / f"{name}.{os.getpid()}.{time.monotonic_ns()}"
    with suppress(OSError):  # a full or read-only disk costs time, not the run
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(_digest(content) + b"\n" + content)
        partial.replace(folder / name)
    with suppress(OSError):
        partial.unlink()


class FileFacts:
    """What is known of files, each as long as its size and mtime stay the same."""

    def __init__(self, folder: Optional[Path], name: str) -> None:
        """With no folder nothing is known, and nothing is kept."""
        self._folder = folder
        self._name = name
        self._before: Dict[str, List[Any]] = (load_entry(folder, name) if folder else None) or {}
        self._now: Dict[str, List[Any]] = {}
        self._trusted = time.time_ns() - COARSEST_CLOCK  # a file changed later may be changing still

    def recall(self, path: str, size: int, mtime: int) -> Optional[List[Any]]:
        """What was noted of the file."""
        fact = self._before.get(path)
        if fact is None or fact[0] != size or fact[1] != mtime:
            return None
        self._now[path] = fact
        return fact[2:]

    def note(self, path: str, size: int, mtime: int, fact: List[Any]) -> None:
        """Remember what was found out; `save` keeps it."""
        if mtime < self._trusted:
            self._now[path] = [size, mtime, *fact]

    def save(self) -> None:
        """Keep what was recalled and noted, and forget files that were not asked for."""
        if self._folder and self._now != self._before:
            store_entry(self._folder, self._name, self._now)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(VERSION.encode() + content).hexdigest().encode()

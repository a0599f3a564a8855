"""The cache of a corpus: JSON values that stay valid as long as the files they describe do not change.

A cache file that is truncated, altered or of another version is ignored; failing to write one is not an error.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from xtts.files import write_bytes

VERSION = "1"  # increased when what is stored, or how it is computed, changes
FOLDER = ".xtts-cache"
COARSEST_CLOCK = 2_000_000_000  # ns, FAT's: a file may change twice in this time and keep its size and mtime


def cache_folder(root: Union[str, Path]) -> Path:
    """The cache folder of a corpus: inside it, or in the user's cache folder when the corpus is read-only."""
    if os.access(root, os.W_OK):
        return Path(root, FOLDER).absolute()
    home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return Path(home or os.path.expanduser("~/.cache"), "xtts")  # noqa: PTH111 - Path.home fails where there is none


def cache_name(kind: str, *about: object) -> str:
    """The name of a cache file: its kind, and a digest of what it describes."""
    digest = hashlib.sha256(json.dumps([str(part) for part in about]).encode()).hexdigest()
    return f"{kind}-{digest[:20]}.json"


def load_entry(folder: Path, name: str) -> Any:
    """The value passed to `store_entry`, or None."""
    try:
        digest, _, content = (folder / name).read_bytes().partition(b"\n")
        return json.loads(content) if digest == _digest(content) else None
    except (OSError, ValueError):
        return None


def store_entry(folder: Path, name: str, value: Any) -> None:
    """Store a JSON value atomically."""
    content = json.dumps(value, separators=(",", ":")).encode()
    with suppress(OSError):  # a full or read-only disk costs time, not the run
        write_bytes(folder / name, _digest(content) + b"\n" + content)


class FileFacts:
    """Facts about files, each valid as long as the file keeps its size and mtime."""

    def __init__(self, folder: Optional[Path], name: str) -> None:
        """Without a folder nothing is recalled or kept."""
        self._folder = folder
        self._name = name
        self._before: Dict[str, List[Any]] = (load_entry(folder, name) if folder else None) or {}
        self._now: Dict[str, List[Any]] = {}
        self._trusted = time.time_ns() - COARSEST_CLOCK  # a file changed later may be changing still

    def recall(self, path: str, size: int, mtime: int) -> Optional[List[Any]]:
        """The fact noted about the file, or None."""
        fact = self._before.get(path)
        if fact is None or fact[0] != size or fact[1] != mtime:
            return None
        self._now[path] = fact
        return fact[2:]

    def note(self, path: str, size: int, mtime: int, fact: List[Any]) -> None:
        """Remember a fact; `save` writes it."""
        if mtime < self._trusted:
            self._now[path] = [size, mtime, *fact]

    def save(self) -> None:
        """Write the facts that were recalled or noted; all others are dropped."""
        if self._folder and self._now != self._before:
            store_entry(self._folder, self._name, self._now)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(VERSION.encode() + content).hexdigest().encode()

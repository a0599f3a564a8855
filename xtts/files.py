"""Files and folders that are written completely or not at all, and digests of JSON values.

Everything is written beside its final name and renamed at the end, so that a reader, a second process or a run that is
killed half-way never leaves half a file under the final name.
"""

import hashlib
import json
import os
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; missing parent folders are created."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; missing parent folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_file(path) as draft:
        draft.write_bytes(content)


@contextmanager
def draft_file(path: Path, sync: bool = False) -> Iterator[Path]:
    """The path of a draft, for writers that want a file name; it replaces `path` when the block succeeds.

    With `sync` the content is on disk before it gets its name: after a power cut a file that exists is complete.
    """
    draft = _draft_path(path)
    try:
        yield draft
        if sync:
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `path` when the block succeeds; `path` must be free or empty."""
    draft = _draft_path(path)
    try:
        draft.mkdir(parents=True)
        yield draft
        if path.exists():
            path.rmdir()  # Windows does not rename onto a folder, even an empty one
        draft.replace(path)
    finally:
        shutil.rmtree(str(draft), ignore_errors=True)


def json_digest(value: Any) -> str:
    """The SHA-256 of a JSON value, the same for any order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _draft_path(path: Path) -> Path:
    """In the same folder, so that renaming is one step, and of this thread alone."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")

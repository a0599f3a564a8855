"""Find the files that the metadata of a corpus names.

Each folder is listed once, so that finding a file costs one dictionary look-up and one stat. Files outside the corpus
folder are refused, whether named by `..`, by an absolute path or through a symbolic link.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

from xtts.corpus.utterances import Reason, Unusable

# Tried for a name without an extension, or with that of the file before it was converted; the first one wins.
EXTENSIONS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
Entries = Dict[str, "os.DirEntry[str]"]


class CorpusFile(NamedTuple):
    """A regular file inside the corpus folder."""

    path: str  # relative to the corpus folder, with forward slashes
    size: int  # bytes
    mtime: int  # nanoseconds


class CorpusFolder:
    """The files in a corpus folder."""

    def __init__(self, root: Union[str, Path]) -> None:
        self.root = os.path.abspath(root)  # noqa: PTH100 - resolve() would follow links
        self.real = os.path.realpath(root)
        self._folders: Dict[str, Optional[Entries]] = {}  # None: a link out of the corpus
        self._stems: Dict[str, Entries] = {}

    def find(self, name: str, folders: Sequence[str] = ("",)) -> CorpusFile:
        """The file that `name` refers to, in the first of `folders` that has it."""
        plain = "/" not in name and "\\" not in name and not name.startswith("..")
        inside = name if plain else self._inside(name)
        for folder in folders:
            path = f"{folder}/{inside}" if folder else inside
            head, _, tail = path.rpartition("/")
            entries = self._folders.get(head) or self._entries(head)
            entry = entries.get(tail) or self._by_stem(head, tail)
            if entry:
                return self._file(f"{head}/{entry.name}" if head else entry.name, entry)
        tried = " or ".join(posixpath.join(folder, inside) for folder in folders)
        raise Unusable(Reason.MISSING, f"there is no {tried}")

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        file = self.find(name)
        try:
            return Path(self.root, file.path).read_bytes()
        except OSError as error:
            raise Unusable(Reason.UNREADABLE, f"{name}: {error.strerror}") from None

    def names(self, folder: str = "") -> List[str]:
        """The sorted names in a folder; none when there is no such folder inside the corpus."""
        try:
            return sorted(self._entries(folder))
        except Unusable:
            return []

    def has_folder(self, folder: str) -> bool:
        return Path(self.root, folder).is_dir()

    def _inside(self, name: str) -> str:
        """`name` relative to the corpus folder."""
        path = name.replace("\\", "/")
        if path.startswith("/") or re.match("[A-Za-z]:/", path):
            roots = [Path(root).as_posix().rstrip("/") + "/" for root in (self.root, self.real)]
            root = next((root for root in roots if path.startswith(root)), None)
            if root is None:
                raise Unusable(Reason.OUTSIDE, f"{name} is an absolute path; write it relative to the corpus folder")
            path = path[len(root) :]
        if "./" in path or "//" in path or path.endswith(".."):
            path = posixpath.normpath(path)
            if path == ".." or path.startswith("../"):
                raise Unusable(Reason.OUTSIDE, f"{name} leaves the corpus folder; move the file into it")
        return path

    def _entries(self, folder: str) -> Entries:
        """The entries of a folder, by name."""
        if folder not in self._folders:
            self._folders[folder] = self._list(folder)
        entries = self._folders[folder]
        if entries is None:
            raise Unusable(Reason.OUTSIDE, f"{folder} is a link that leaves the corpus folder; copy the files into it")
        return entries

    def _list(self, folder: str) -> Optional[Entries]:
        path = os.path.join(self.root, folder)  # noqa: PTH118 - Path would lose a trailing dot or space
        try:
            if not self._contains(os.path.realpath(path)):
                return None
            with os.scandir(path) as found:
                return {entry.name: entry for entry in found}
        except (OSError, ValueError):  # no such folder, or an impossible name
            return {}

    def _by_stem(self, folder: str, name: str) -> Optional["os.DirEntry[str]"]:
        """The audio file that `name` refers to without an extension, or with another one."""
        stems = self._stems.get(folder)
        if stems is None:
            stems = self._stems[folder] = _stems(self._entries(folder))
        entry = stems.get(name)
        if entry is None and name.endswith(EXTENSIONS):
            entry = stems.get(name.rpartition(".")[0])
        return entry

    def _file(self, path: str, entry: "os.DirEntry[str]") -> CorpusFile:
        try:
            if entry.is_symlink():
                if not self._contains(os.path.realpath(entry.path)):
                    what = f"{path} is a link that leaves the corpus folder; copy the file into it"
                    raise Unusable(Reason.OUTSIDE, what)
                if not Path(entry.path).exists():
                    raise Unusable(Reason.MISSING, f"{path} is a link to nothing")
            if not entry.is_file():  # a folder, or a pipe, which would block when opened
                raise Unusable(Reason.UNREADABLE, f"{path} is not a file")
            status = os.stat(entry.path)  # noqa: PTH116 - entry.stat() is cached: half of an index's memory
        except OSError as error:
            raise Unusable(Reason.UNREADABLE, f"{path}: {error.strerror}") from None
        return CorpusFile(path, status.st_size, status.st_mtime_ns)

    def _contains(self, real: str) -> bool:
        return real == self.real or real.startswith(os.path.join(self.real, ""))  # noqa: PTH118 - keeps one slash


def _stems(entries: Entries) -> Entries:
    """The audio files in a folder, by their names without extension."""
    found: Dict[str, Entries] = {extension[1:]: {} for extension in EXTENSIONS}
    for name, entry in entries.items():
        stem, _, extension = name.rpartition(".")
        same = found.get(extension) or found.get(extension.lower())
        if same is not None:
            same[stem] = entry
    first: Entries = {}
    for same in reversed(list(found.values())):
        first.update(same)
    return first

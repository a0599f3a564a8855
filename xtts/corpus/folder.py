"""The files of a corpus folder: a name out of the metadata comes in, the file that is there goes out, or why none is.

Each folder is listed once, so that finding a file costs one dictionary look-up and one stat. Nothing outside the
corpus folder is ever named: not by `..`, not by an absolute path, not through a symbolic link.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

from xtts.corpus.utterances import Reason, Unusable

# What a name without an extension, or with that of the file before a conversion, may stand for; the first one wins.
EXTENSIONS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
Entries = Dict[str, "os.DirEntry[str]"]


class CorpusFile(NamedTuple):
    """A regular file inside the corpus folder."""

    path: str  # relative to the corpus folder, with forward slashes
    size: int  # bytes
    mtime: int  # nanoseconds


class CorpusFolder:
    """A corpus folder."""

    def __init__(self, root: Union[str, Path]) -> None:
        self.root = os.path.abspath(root)  # noqa: PTH100 - a corpus keeps the name it was called by
        self.real = os.path.realpath(root)
        self._folders: Dict[str, Optional[Entries]] = {}  # None: a link that leaves the corpus
        self._stems: Dict[str, Entries] = {}

    def find(self, name: str, folders: Sequence[str] = ("",)) -> CorpusFile:
        """The file that `name` means in the first of `folders` that has it."""
        plain = "/" not in name and "\\" not in name and not name.startswith("..")
        inside = name if plain else self._inside(name)
        for folder in folders:
            path = f"{folder}/{inside}" if folder else inside
            head, _, tail = path.rpartition("/")
            entries = self._folders.get(head) or self._entries(head)
            entry = entries.get(tail) or self._by_stem(head, tail)
            if entry:
                return self._file(f"{head}/{entry.name}" if head else entry.name, entry)
        looked = " or ".join(posixpath.join(folder, inside) for folder in folders)
        raise Unusable(Reason.MISSING, f"there is no {looked}")

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        file = self.find(name)
        try:
            return Path(self.root, file.path).read_bytes()
        except OSError as error:
            raise Unusable(Reason.UNREADABLE, f"{name}: {error.strerror}") from None

    def names(self, folder: str = "") -> List[str]:
        """What lies in a folder, in order; nothing when there is no such folder inside the corpus."""
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
            homes = (Path(home).as_posix().rstrip("/") + "/" for home in (self.root, self.real))
            home = next((home for home in homes if path.startswith(home)), None)
            if home is None:
                raise Unusable(Reason.OUTSIDE, f"{name} is an absolute path; write it relative to the corpus folder")
            path = path[len(home) :]
        if "./" in path or "//" in path or path.endswith(".."):
            path = posixpath.normpath(path)
            if path == ".." or path.startswith("../"):
                raise Unusable(Reason.OUTSIDE, f"{name} leaves the corpus folder; move the file into it")
        return path

    def _entries(self, folder: str) -> Entries:
        """What lies in a folder, by name."""
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
        except (OSError, ValueError):  # no such folder, or a name that no folder can have
            return {}

    def _by_stem(self, folder: str, name: str) -> Optional["os.DirEntry[str]"]:
        """The audio file that `name` stands for without its extension, or with another one."""
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
            if not entry.is_file():  # but a folder, or a pipe that would block whoever opens it
                raise Unusable(Reason.UNREADABLE, f"{path} is not a file")
            status = os.stat(entry.path)  # noqa: PTH116 - an entry would keep what it was told: half of an index's memory
        except OSError as error:
            raise Unusable(Reason.UNREADABLE, f"{path}: {error.strerror}") from None
        return CorpusFile(path, status.st_size, status.st_mtime_ns)

    def _contains(self, real: str) -> bool:
        return real == self.real or real.startswith(os.path.join(self.real, ""))  # noqa: PTH118 - keeps one slash


def _stems(entries: Entries) -> Entries:
    """The audio files among the entries of a folder, by their names without extension."""
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

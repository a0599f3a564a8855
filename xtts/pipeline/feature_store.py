"""Features kept on disk: computed once, in chunks of utterances, and read at any time.

A chunk is one file, named by a digest of everything it was computed from: the recordings (path, size, mtime), their
lengths and the settings. So it is computed again when any of these change, and shared by all runs in which they are the
same. Chunks are memory-mapped: rows are read on demand, and the system caches what is used often.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from xtts.corpus.utterances import Utterance
from xtts.errors import XttsError
from xtts.files import draft_file

CHUNK = 128  # utterances

Rows = Union[np.ndarray, str]  # [rows, ...] of an utterance, or why it has none
Compute = Callable[[List[int]], Dict[int, Rows]]  # of utterances by position
Progress = Callable[[int, int], None]


class StoreError(XttsError):
    """Features that cannot be written or read back."""


class FeatureStore:
    """One kind of feature of every utterance: `rows[i]` rows of the i-th, each of `shape`."""

    def __init__(
        self,
        folder: Path,
        utterances: Sequence[Utterance],
        rows: np.ndarray,
        shape: Sequence[int],
        dtype: Any,
        about: str,
    ) -> None:
        self._folder = folder
        self._shape = tuple(shape)
        self._dtype = np.dtype(dtype)
        self._rows = np.asarray(rows, np.int64)
        self._chunks = [range(first, min(first + CHUNK, len(rows))) for first in range(0, len(rows), CHUNK)]
        self._paths = [folder / f"{self._digest(utterances, chunk, about)}.npy" for chunk in self._chunks]
        self._maps: List[Optional[np.ndarray]] = [None] * len(self._chunks)
        counts = [self._rows[chunk.start : chunk.stop] for chunk in self._chunks]
        self._starts = [np.concatenate([[0], np.cumsum(count)]) for count in counts]
        self.unusable: Dict[int, str] = {}  # positions without features, and why

    def __getitem__(self, position: int) -> np.ndarray:
        """The rows of an utterance."""
        number, within = divmod(position, CHUNK)
        chunk = self._maps[number]
        if chunk is None:
            raise KeyError(f"chunk {number} has not been filled")
        start, stop = self._starts[number][within : within + 2]
        return chunk[start:stop]

    def fill(self, compute: Compute, progress: Progress) -> int:
        """Compute missing chunks; returns the number of their utterances. A killed run resumes at its chunk."""
        computed = 0
        for number, (chunk, path) in enumerate(zip(self._chunks, self._paths)):
            if not self._open(number):
                self._write(number, compute(list(chunk)))
                computed += len(chunk)
                if not self._open(number):
                    raise StoreError(f"{path}: what was just written cannot be read back; check the disk")
            progress(chunk.stop, len(self._rows))
        return computed

    def _open(self, number: int) -> bool:
        path, chunk = self._paths[number], self._chunks[number]
        try:
            rows = np.load(path, mmap_mode="r")
            unusable = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        except (OSError, ValueError, EOFError):  # EOFError: an empty file
            return False
        if rows.shape != (self._starts[number][-1], *self._shape) or rows.dtype != self._dtype:
            return False
        self._maps[number] = rows
        self.unusable.update((chunk.start + int(place), str(why)) for place, why in unusable.items())
        return True

    def _write(self, number: int, computed: Dict[int, Rows]) -> None:
        chunk, starts, path = self._chunks[number], self._starts[number], self._paths[number]
        rows = np.zeros((starts[-1], *self._shape), self._dtype)
        unusable = {}
        for place, position in enumerate(chunk):
            found = computed[position]
            if isinstance(found, str):
                unusable[place] = found
            else:
                rows[starts[place] : starts[place + 1]] = found
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with draft_file(path, sync=True) as draft:  # renamed last: a chunk that exists is complete
                with draft.open("wb") as file:
                    np.save(file, rows)
                path.with_suffix(".json").write_text(json.dumps(unusable), encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{self._folder}: features cannot be written there ({error.strerror or error}); free some space, name"
                ' another run.folder, or write data.features = "live"'
            ) from None

    def _digest(self, utterances: Sequence[Utterance], chunk: range, about: str) -> str:
        facts: List[Any] = [about, self._shape, str(self._dtype)]
        for position in chunk:
            path = utterances[position].path
            try:
                status = os.stat(path)  # noqa: PTH116 - called a hundred thousand times
                facts.append([path, status.st_size, status.st_mtime_ns, int(self._rows[position])])
            except OSError:
                facts.append([path, None])
        return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

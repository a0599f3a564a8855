"""Checkpoints: everything a stage needs to resume exactly, written atomically.

    <folder>/step-00001000/state.safetensors    the tensors
    <folder>/step-00001000/state.json           step, loss and counters; size and checksum of the tensors, and its own

A checkpoint is written to a hidden folder, synced to disk and then renamed, so a folder `step-…` is complete unless the
disk lost data. A damaged one is renamed to `aside-step-…`, never deleted. There is one writer at a time (see
`run_lock`); others may read while it writes. A step that is saved again gets a folder `step-00001000-2`.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import attrs
import numpy as np

from xtts import __version__
from xtts.errors import XttsError
from xtts.weights import safetensors_file

FORMAT = 1  # increased when the previous release's checkpoints can no longer be read
TENSORS, RECORD = "state.safetensors", "state.json"
STEP = re.compile(r"step-(\d{8,})(?:-(\d+))?")
ASIDE, PARTIAL, REMOVED = "aside-", ".partial-", ".removed-"  # before a checkpoint's name
CHUNK = 2**20  # bytes hashed at once
DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO}  # other read errors may be temporary


class CheckpointError(XttsError):
    """Every checkpoint is damaged, or a folder cannot be read or renamed."""


class _Damaged(Exception):
    """A damaged checkpoint; the message says what is wrong."""


@attrs.frozen(eq=False)
class TrainingState:
    """Everything a stage needs to resume exactly."""

    step: int  # optimizer steps done
    tensors: Dict[str, np.ndarray]  # weights, optimizer, EMA; when loaded, read-only views of the file
    counters: Dict[str, Any] = attrs.field(factory=dict)  # JSON, keys are text: cursor, skipped steps, patience, …


@attrs.define(eq=False)
class Checkpoints:
    """The checkpoints of one stage: the last `keep` and the one with the lowest loss."""

    folder: Path
    keep: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    log: Callable[[str], None] = print
    _is_swept: bool = attrs.field(default=False, init=False)

    def save(self, state: TrainingState, loss: Optional[float] = None) -> Optional[Path]:
        """Write a checkpoint and remove those it supersedes. If writing fails, log the error and return None."""
        partial = None
        try:
            self._sweep()
            final = self.folder / self._name(state.step)
            partial = self.folder / f"{PARTIAL}{final.name}"
            partial.mkdir(parents=True, exist_ok=True)
            _write(partial, state, loss)
            partial.rename(final)
            _sync_folder(self.folder)
        except (OSError, CheckpointError) as error:
            size = sum(tensor.nbytes for tensor in state.tensors.values())
            self.log(
                f"{self.folder}: the checkpoint of step {state.step} ({size / 1e6:,.1f} MB) could not be written: "
                f"{_reason(error)}. Older ones are untouched and training continues; free space, or make it writable."
            )
            return None
        finally:
            if partial:
                shutil.rmtree(partial, ignore_errors=True)
        with suppress(CheckpointError):  # an old checkpoint that is not removed only takes space
            self._prune(final)
        return final

    def newest(self) -> Optional[TrainingState]:
        """The newest intact checkpoint; None if none was ever saved."""
        return self._first_whole(lambda: self._folders()[::-1])

    def best(self) -> Optional[TrainingState]:
        """The intact checkpoint with the lowest loss, the newest of equals; None if none was saved with a loss."""
        return self._first_whole(lambda: _ranked(self._losses()))

    def steps(self) -> List[int]:
        """The steps that have checkpoints, in ascending order."""
        return sorted({_key(folder)[0] for folder in self._folders()})

    def _first_whole(self, candidates: Callable[[], List[Path]]) -> Optional[TrainingState]:
        tried: List[Path] = []
        while True:
            # Listed again each time, since a run may add and remove checkpoints meanwhile.
            left = [folder for folder in candidates() if folder not in tried]
            if not left:
                break
            tried.append(left[0])
            try:
                return _read(left[0])
            except (_Damaged, OSError) as error:
                if isinstance(error, OSError) and error.errno not in DAMAGE:
                    raise CheckpointError(f"{left[0]}: {_reason(error)}; make its files readable") from None
                if left[0].exists():
                    self._put_aside(left[0], _reason(error))
        if set(self._folders()) - set(tried) or not (tried or self._children(ASIDE)):
            return None
        raise CheckpointError(
            f"{self.folder}: every checkpoint is damaged; those set aside are named {ASIDE}step-…: "
            "restore a backup of one as step-…, or rename this folder to train the stage from the beginning"
        )

    def _put_aside(self, folder: Path, reason: str) -> None:
        try:
            place = f"it is kept as {_renamed(folder, ASIDE + folder.name).name}"
        except OSError as error:  # a reader may have no write permission
            place = f"it could not be renamed ({_reason(error)})"
        self.log(f"{folder}: this checkpoint cannot be used, {reason}; {place}, and an older one is tried.")

    def _prune(self, new: Path) -> None:
        """Remove the checkpoints that `new` supersedes; unreadable ones are kept."""
        losses = self._losses()
        sound = [folder for folder, loss in losses.items() if loss != -math.inf]
        last_of_step = {_key(folder)[0]: folder for folder in sound}
        ranked = [folder for folder in _ranked(losses) if folder in sound]
        kept = {new, *list(last_of_step.values())[-self.keep :], *ranked[:1]}
        for folder in sound:
            if folder not in kept:
                _remove(folder)

    def _losses(self) -> Dict[Path, Optional[float]]:
        """The loss of each checkpoint, None if it has none; minus infinity if unreadable, so that it is tried."""
        losses: Dict[Path, Optional[float]] = {}
        for folder in self._folders():
            losses[folder] = -math.inf
            with suppress(_Damaged, OSError):
                losses[folder] = _record(folder)["loss"]
        return losses

    def _folders(self) -> List[Path]:
        """The checkpoints' folders, oldest first."""
        return sorted((path for path in self._children("step-") if STEP.fullmatch(path.name)), key=_key)

    def _children(self, prefix: str) -> List[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.name.startswith(prefix)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"{self.folder}: {_reason(error)}; name a folder that can be read") from None

    def _name(self, step: int) -> str:
        again = [_key(folder)[1] for folder in self._folders() if _key(folder)[0] == step]
        return f"step-{step:08d}-{max(again) + 1}" if again else f"step-{step:08d}"

    def _sweep(self) -> None:
        """Before the first save, remove partial folders that a killed process left behind."""
        if not self._is_swept:
            self.folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(self.folder.parent)
            for path in [*self._children(PARTIAL), *self._children(REMOVED)]:
                shutil.rmtree(path, ignore_errors=True)
            self._is_swept = True


def set_aside(folder: Path) -> Path:
    """Rename a stage's folder to the first free name of `codec.1`, `codec.2`, …, and return the new path."""
    try:
        return _renamed(folder, folder.name)
    except OSError as error:
        raise CheckpointError(f"{folder}: it cannot be renamed, {_reason(error)}; rename it yourself") from None


def _write(folder: Path, state: TrainingState, loss: Optional[float]) -> None:
    path = folder / TENSORS
    with _system_errors():
        safetensors_file.write_safetensors(path, state.tensors)
    with ThreadPoolExecutor(1) as beside:  # the checksum is computed while the disk syncs
        synced = beside.submit(_sync, path)
        digest = _sha256(path)
        synced.result()
    record = {
        "format": FORMAT,
        "xtts": __version__,
        "step": int(state.step),
        "loss": float(loss) if loss is not None and math.isfinite(loss) else None,
        "counters": state.counters,
        "bytes": path.stat().st_size,
        "sha256": digest,
    }
    record["checksum"] = _checksum(record)
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _sync(folder / RECORD)
    _sync_folder(folder)


def _read(folder: Path) -> TrainingState:
    record = _record(folder)
    path = folder / TENSORS
    size = path.stat().st_size
    if size != record["bytes"]:
        raise _Damaged(f"{TENSORS} has {size:,} bytes of {record['bytes']:,}")
    if _sha256(path) != record["sha256"]:
        raise _Damaged(f"{TENSORS} does not match its checksum")
    with _system_errors():
        tensors, _ = safetensors_file.read_safetensors(path)
    return TrainingState(record["step"], tensors, record["counters"])


def _record(folder: Path) -> Dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (ValueError, RecursionError):
        raise _Damaged(f"{RECORD} is not JSON") from None
    if not isinstance(record, dict) or "format" not in record:
        raise _Damaged(f"{RECORD} does not name its format")
    if record["format"] != FORMAT:
        writer = f"format {record['format']} by xtts {record.get('xtts')}"
        raise _Damaged(f"{RECORD} was written in {writer}, and this release reads format {FORMAT}")
    if record.pop("checksum", None) != _checksum(record):
        raise _Damaged(f"{RECORD} does not match its checksum")
    return record


def _checksum(record: Dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _sha256(path: Path) -> str:
    # Most processors have instructions for SHA-256: 1.1 GB/s, compared with 0.6 to 0.8 for BLAKE2b.
    sha, chunk = hashlib.sha256(), bytearray(CHUNK)
    with path.open("rb", buffering=0) as file:
        while True:
            size = file.readinto(chunk)
            if not size:
                return sha.hexdigest()
            sha.update(memoryview(chunk)[:size])


def _ranked(losses: Dict[Path, Optional[float]]) -> List[Path]:
    """Checkpoints by ascending loss, the newest of equals first; those without a loss are left out."""
    newest_first = [(loss, folder) for folder, loss in reversed(list(losses.items())) if loss is not None]
    return [folder for _, folder in sorted(newest_first, key=lambda pair: pair[0])]


def _key(folder: Path) -> Tuple[int, int]:
    """A checkpoint's step, and its number among those of the same step."""
    step, again = STEP.fullmatch(folder.name).groups()  # type: ignore[union-attr]  # callers have matched it
    return int(step), int(again or 1)


def _renamed(folder: Path, name: str) -> Path:
    places = (folder.with_name(f"{name}.{number}") for number in count(1))
    free = next(place for place in places if not os.path.lexists(place))
    folder.rename(free)
    _sync_folder(free.parent)
    return free


def _remove(folder: Path) -> None:
    gone = folder.with_name(f"{REMOVED}{folder.name}")
    with suppress(OSError):
        folder.rename(gone)  # first, so that a partly removed checkpoint is never visible
        shutil.rmtree(gone, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:  # Windows syncs only files open for writing
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Re-raise an underlying OSError, to distinguish a full disk or a missing file from malformed tensors."""
    try:
        yield
    except safetensors_file.WeightsError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or str(error)
    return f"{Path(error.filename).name}: {reason}" if error.filename else reason

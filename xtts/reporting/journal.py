"""The journal of a run: files of JSON lines, each written at once, and read back as lists.

    metrics.jsonl      a line for each logged step: step, stage, loss, shape, step_seconds, wait_seconds, and more
    validation.jsonl   step, stage, loss, losses
    events.jsonl       time, stage, step, kind, text, seconds
    samples.jsonl      stage, step, text, wav, picture, kind
    summary.json       the figures of each stage and of the whole run

A line is one write, so a process killed at any moment leaves whole lines and at most one partial line, which is ignored
and overwritten by the next line. `resume` drops what a stage wrote after the step it resumes from, so that the files of
an interrupted run equal those of an uninterrupted one. Numbers that are not finite are null.
"""

import json
import math
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from xtts import files
from xtts.errors import XttsError

METRICS, VALIDATION, EVENTS, SAMPLES = "metrics.jsonl", "validation.jsonl", "events.jsonl", "samples.jsonl"
SUMMARY = "summary.json"
Line = Dict[str, Any]


class JournalError(XttsError):
    """A journal that cannot be written."""


class Journal:
    """The journal in a run's folder. Any process may read it; only one process writes it, from any thread."""

    def __init__(self, folder: Union[str, Path]) -> None:
        self.folder = Path(folder)
        self._checked: Set[str] = set()  # files that are known to end with a whole line
        self._lock = threading.Lock()

    def add_metrics(self, stage: str, step: int, **figures: Any) -> None:
        """Add a training step to metrics.jsonl."""
        self._append(METRICS, {"step": step, "stage": stage, **figures})

    def add_validation(self, stage: str, step: int, loss: float, losses: Optional[Mapping[str, float]] = None) -> None:
        """Add a validation after `step` steps."""
        self._append(VALIDATION, {"step": step, "stage": stage, "loss": loss, "losses": dict(losses or {})})

    def add_event(self, stage: str, step: int, kind: str, text: str, seconds: Optional[float] = None) -> None:
        """Add an event that is not a step, described by a sentence; `seconds` if it took time."""
        line = {"time": time.time(), "stage": stage, "step": step, "kind": kind, "text": text}
        self._append(EVENTS, line if seconds is None else {**line, "seconds": seconds})

    def add_sample(self, stage: str, step: int, kind: str, text: str, wav: str = "", picture: str = "") -> None:
        """Add a sample of the kind "recording", "codec" or "spoken"; paths are relative to the folder."""
        line = {"step": step, "stage": stage, "kind": kind, "text": text, "wav": wav, "picture": picture}
        self._append(SAMPLES, line)

    def metrics(self, stage: Optional[str] = None) -> List[Line]:
        """The steps of a stage, or of all stages."""
        return self._read(METRICS, stage)

    def validation(self, stage: Optional[str] = None) -> List[Line]:
        return self._read(VALIDATION, stage)

    def events(self, stage: Optional[str] = None) -> List[Line]:
        return self._read(EVENTS, stage)

    def samples(self, stage: Optional[str] = None) -> List[Line]:
        return self._read(SAMPLES, stage)

    def summary(self) -> Line:
        """The latest summary; empty where there is none."""
        try:
            found = json.loads((self.folder / SUMMARY).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace the summary atomically."""
        self._write(SUMMARY, _json(summary, indent=2) + "\n")

    def resume(self, stage: str, step: int) -> int:
        """Drop a stage's lines after `step`, and partial lines; returns how many lines of the stage were dropped."""
        dropped = 0
        with self._lock:
            for name in (METRICS, VALIDATION, EVENTS, SAMPLES):
                lines = list(self._lines(name))
                late = [line.get("stage") == stage and line.get("step", 0) > step for line, _ in lines]
                kept = "".join(f"{text}\n" for (_, text), is_late in zip(lines, late) if not is_late)
                if (self.folder / name).exists():
                    self._write(name, kept)
                dropped += sum(late)
        return dropped

    def _append(self, name: str, line: Line) -> None:
        content = (_json(line) + "\n").encode("utf-8")
        with self._lock:
            try:
                if name not in self._checked:
                    self.folder.mkdir(parents=True, exist_ok=True)
                with (self.folder / name).open("a+b", buffering=0) as file:
                    end = self._whole_end(name, file)
                    if file.write(content) != len(content):  # the disk is full
                        file.truncate(end)
                        raise OSError(28, "No space left on device")
            except OSError as error:
                raise self._failure(name, error) from None

    def _whole_end(self, name: str, file: Any) -> int:
        """The position after the last whole line; a partial line of a killed process is cut off."""
        size: int = file.seek(0, 2)
        if name in self._checked or not size:
            self._checked.add(name)
            return size
        file.seek(0)
        end: int = file.read().rfind(b"\n") + 1
        file.truncate(end)
        self._checked.add(name)
        return end

    def _read(self, name: str, stage: Optional[str]) -> List[Line]:
        return [line for line, _ in self._lines(name) if stage is None or line.get("stage") == stage]

    def _lines(self, name: str) -> Iterator[Tuple[Line, str]]:
        """Every whole line with its text; damaged lines are left out."""
        try:
            *whole, _half = (self.folder / name).read_bytes().split(b"\n")
        except OSError:
            return
        for content in whole:
            try:
                text = content.decode("utf-8")
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step", 0), int):
                yield line, text

    def _write(self, name: str, text: str) -> None:
        try:
            files.write_text(self.folder / name, text)
        except OSError as error:
            raise self._failure(name, error) from None

    def _failure(self, name: str, error: OSError) -> JournalError:
        what = f"{self.folder / name} cannot be written: {error.strerror}"
        return JournalError(
            f"{what}; free some space or make it writable, and start the run again: it resumes where it was"
        )


def as_number(value: Any) -> Optional[float]:
    """The value if it is a number; None for null and everything else."""
    return float(value) if type(value) in (int, float) else None


def _json(value: Any, indent: Optional[int] = None) -> str:
    text = json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates become JSON escapes


def _plain(value: Any) -> Any:
    """The value in JSON's types: NumPy scalars become numbers, and numbers that are not finite None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)

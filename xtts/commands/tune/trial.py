"""A trial: the recipe with some settings changed, run for a few seconds and measured.

A trial is an `xtts run` in a process of its own and in a folder that is removed afterwards. It is monitored through its
journal, and killed once enough steps are measured. A crash, for example out of memory, ends only the trial.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import attrs

from xtts.processes import start_child
from xtts.recipe.lines import Key
from xtts.reporting.journal import Journal

PROGRAM = (sys.executable, "-m", "xtts")
POLL_SECONDS = 0.1
MIN_STEPS = 6  # that are measured
MEMORY_ERRORS = ("ResourceExhausted", "OOM when", "MemoryError", "bad_alloc", "out of memory")


@attrs.frozen
class TrialResult:
    """The result of a trial. Frames are those of the recordings, without padding."""

    settings: Dict[str, Any]  # by dotted key; what differs from the recipe
    frames_per_second: Optional[float] = None
    wait: Optional[float] = None  # share of the time in which the model waited for data
    traces: int = 0  # of the run's steps, before the first one
    trace_seconds: float = 0.0
    frames_per_step: Optional[float] = None
    memory_mb: Optional[float] = None  # the process's maximum
    gpu_memory_mb: Optional[float] = None
    steps: int = 0  # that were measured
    failure: Optional[str] = None

    def run_rate(self, frames: float) -> float:
        """Frames per second over a run of `frames`, including the seconds before its first step."""
        if not self.frames_per_second:
            return 0.0
        return frames / (self.trace_seconds + frames / self.frames_per_second)


@attrs.frozen
class Trials:
    """Trials of one recipe, for one stage."""

    recipe: Path
    overrides: Tuple[str, ...] = attrs.field(kw_only=True)  # of all trials, KEY=VALUE
    runs: Path = attrs.field(kw_only=True)  # the folder of runs, where features and demo corpora are kept
    name: str = attrs.field(kw_only=True)  # of the recipe's run
    stage: str = attrs.field(kw_only=True)
    seconds: float = attrs.field(kw_only=True)  # of steps that are measured
    program: Sequence[str] = attrs.field(kw_only=True, default=PROGRAM)
    progress: Callable[[], None] = attrs.field(kw_only=True, default=lambda: None)  # called while a trial runs

    def __call__(self, changes: Mapping[Key, Any], timeout: float, codec: Optional[Path] = None) -> TrialResult:
        """Try some settings, for `timeout` seconds at most; `codec` is a run's folder whose codec is used."""
        settings = {".".join(key): value for key, value in changes.items()}
        with temporary_run_folder(self.runs, self.name) as folder:
            if codec is not None:
                _copy_codec(codec, folder)
            flags = [f"{name}={_as_text(value)}" for name, value in settings.items()]
            with self._started(folder, [f'run.stages=["{self.stage}"]', *flags]) as (process, log):
                deadline = time.monotonic() + timeout
                journal = Journal(folder)
                while process.poll() is None and time.monotonic() < deadline and not self._is_enough(journal):
                    self.progress()
                    time.sleep(POLL_SECONDS)
                status = process.poll()
                is_late = status is None and time.monotonic() >= deadline and not self._is_enough(journal)
            result = self._measure(journal, settings)
            failure = None if result.frames_per_second else "its run ended before enough steps were measured"
            if is_late:
                failure = f"not measured within {timeout:.0f} s"
            if status:
                failure = explain_failure(status, log.read_text("utf-8", "replace"))
            return attrs.evolve(result, frames_per_second=None, failure=failure) if failure else result

    def train_codec(self, folder: Path, steps: int, timeout: float) -> Optional[str]:
        """Train a codec that trials of the GPT can use; the reason if that fails."""
        with self._started(folder, [f"codec.steps={steps}", 'run.stages=["codec"]']) as (process, log):
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                return f"no codec within {timeout:.0f} s"
        return None if status == 0 else explain_failure(status, log.read_text("utf-8", "replace"))

    @contextlib.contextmanager
    def _started(self, folder: Path, settings: Sequence[str]) -> Iterator[Tuple["subprocess.Popen[bytes]", Path]]:
        """The run's process, and the file of its output; the process has ended afterwards."""
        own = [f"run.name={folder.name}", "train.log_every=1", "train.validate_every=0"]
        own += ["train.sample_every=0", f"train.save_every={10**9}", "train.early_stopping=0"]
        flags = [f"--set={setting}" for setting in (*self.overrides, *own, *settings)]
        log = folder / "trial.log"
        with log.open("wb") as file:
            process = start_child(
                [*self.program, "run", str(self.recipe), *flags], stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()  # no checkpoint is needed
            process.wait()

    def _is_enough(self, journal: Journal) -> bool:
        lines = self._steady_steps(journal)
        return len(lines) > MIN_STEPS and lines[-1]["time"] - lines[0]["time"] >= self.seconds

    def _steady_steps(self, journal: Journal) -> List[Dict[str, Any]]:
        """Steps without the first ones, which used batches that were in the buffer at the start."""
        lines = list(journal.metrics(self.stage))
        buffered = int(lines[0].get("buffer") or 0) if lines else 0
        halfway = lines[0]["time"] + self.seconds / 2 if lines else 0.0
        for place, line in enumerate(lines):
            if place > buffered or line["time"] > halfway:
                return lines[max(1, place) :]
        return lines[1:]

    def _measure(self, journal: Journal, settings: Dict[str, Any]) -> TrialResult:
        lines, steady = list(journal.metrics(self.stage)), self._steady_steps(journal)
        traces = [event for event in journal.events() if event.get("kind") == "trace"]
        result = TrialResult(
            settings,
            traces=len(traces),
            trace_seconds=sum(event.get("seconds") or 0.0 for event in traces),
            memory_mb=_maximum(lines, "memory_mb"),
            gpu_memory_mb=_maximum(lines, "gpu_memory_mb"),
            steps=max(0, len(steady) - 1),
        )
        seconds = steady[-1]["time"] - steady[0]["time"] if len(steady) > MIN_STEPS else 0.0
        if seconds <= 0:
            return result
        frames = sum(line["frames"] for line in steady[1:])  # the first line's step was before its time
        waited = sum(line["wait_seconds"] for line in steady[1:])
        per_step = frames / (len(steady) - 1)
        return attrs.evolve(result, frames_per_second=frames / seconds, wait=waited / seconds, frames_per_step=per_step)


def explain_failure(status: int, output: str) -> str:
    """Why a process failed, in a few words, by its status and what it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status < 0:
        name = signal.Signals(-status).name if -status in {int(one) for one in signal.Signals} else ""
        guess = "; out of memory?" if -status in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV) else ""
        return f"ended by signal {-status} ({name}){guess}"
    cause = "out of memory: " if any(word in output for word in MEMORY_ERRORS) else ""
    return f"status {status}: {cause}{lines[-1] if lines else 'no output'}"


def finished_codec(folder: Path) -> bool:
    """Whether a run has a codec that was trained to its end."""
    from xtts.training.checkpoint import Checkpoints

    state = Checkpoints(folder / "codec").newest() if (folder / "codec").is_dir() else None
    return state is not None and bool(state.counters["finished"])


@contextlib.contextmanager
def temporary_run_folder(runs: Path, name: str) -> Iterator[Path]:
    """A folder beside a run's, which is removed afterwards."""
    runs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.trial-", dir=str(runs)))
    try:
        yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def _copy_codec(source: Path, folder: Path) -> None:
    """Copy the codec of a run into another run's folder; files are linked where possible."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(str(source / "codec"), str(folder / "codec"), copy_function=link)
    shutil.copy2(str(source / "mel_stats.json"), str(folder / "mel_stats.json"))


def _maximum(lines: Sequence[Mapping[str, Any]], name: str) -> Optional[float]:
    return max((line[name] for line in lines if line.get(name) is not None), default=None)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

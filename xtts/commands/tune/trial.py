"""One trial of a recipe: its file and some settings come in; how fast the run goes, or why it does not, goes out.

A trial is the run itself, as `xtts run` would do it, in a process of its own and in a folder that is gone afterwards.
It is watched through its journal, and ended once enough steps have been measured. So whatever ends it, lack of memory
too, ends only the trial.
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
LOOK = 0.1  # seconds between two looks at the journal
FEWEST = 6  # steps that a figure is of
SHORT_OF_MEMORY = ("ResourceExhausted", "OOM when", "MemoryError", "bad_alloc", "out of memory")


@attrs.frozen
class TrialResult:
    """What a trial measured. Frames are those of the recordings, without padding."""

    settings: Dict[str, Any]  # by dotted key; what differs from the recipe
    frames_per_second: Optional[float] = None
    wait: Optional[float] = None  # share of the time in which the model waited for data
    traces: int = 0  # of the run's steps, before the first one
    trace_seconds: float = 0.0
    frames_per_step: Optional[float] = None
    memory_mb: Optional[float] = None  # of the process, at most
    gpu_memory_mb: Optional[float] = None
    steps: int = 0  # that were measured
    failure: Optional[str] = None

    def run_rate(self, frames: float) -> float:
        """Frames a second over a run of so many, with the seconds before its first step."""
        if not self.frames_per_second:
            return 0.0
        return frames / (self.trace_seconds + frames / self.frames_per_second)


@attrs.frozen
class Trials:
    """Trials of one recipe, for one stage."""

    recipe: Path
    settings: Tuple[str, ...]  # that all of them have, KEY=VALUE
    runs: Path  # the folder of runs, where features and demo corpora are kept
    name: str  # of the recipe's run
    stage: str
    seconds: float  # of steps that are measured
    program: Sequence[str] = PROGRAM
    progress: Callable[[], None] = lambda: None  # called while a trial goes on

    def __call__(self, changes: Mapping[Key, Any], patience: float, kept: Optional[Path] = None) -> TrialResult:
        """Try some settings. `patience` is how many seconds may pass until enough is measured; `kept` has a codec."""
        named = {".".join(key): value for key, value in changes.items()}
        with folder_for_a_while(self.runs, f"{self.name}.trial-") as folder:
            if kept is not None:
                _copy(kept, folder)
            settings = [f"{name}={_text(value)}" for name, value in named.items()]
            with self._started(folder, [f'run.stages=["{self.stage}"]', *settings]) as (process, log):
                until = time.monotonic() + patience
                journal = Journal(folder)
                while process.poll() is None and time.monotonic() < until and not self._is_enough(journal):
                    self.progress()
                    time.sleep(LOOK)
                status = process.poll()
                is_late = status is None and time.monotonic() >= until and not self._is_enough(journal)
            found = self._measured(journal, named)
            failure = None if found.frames_per_second else "its run ended before enough steps were measured"
            if is_late:
                failure = f"not measured within {patience:.0f} s"
            if status:
                failure = why(status, log.read_text("utf-8", "replace"))
            return attrs.evolve(found, frames_per_second=None, failure=failure) if failure else found

    def codec(self, folder: Path, steps: int, patience: float) -> Optional[str]:
        """Train a codec that trials of the GPT can use; why there is none, if so."""
        few = [f"codec.steps={steps}", 'run.stages=["codec"]']
        with self._started(folder, few) as (process, log):
            try:
                status = process.wait(patience)
            except subprocess.TimeoutExpired:
                return f"no codec within {patience:.0f} s"
        return None if status == 0 else why(status, log.read_text("utf-8", "replace"))

    @contextlib.contextmanager
    def _started(self, folder: Path, settings: Sequence[str]) -> Iterator[Tuple["subprocess.Popen[bytes]", Path]]:
        """The run as a process, and the file of what it says; it has ended afterwards."""
        own = [f"run.name={folder.name}", "train.log_every=1", "train.validate_every=0"]
        own += ["train.sample_every=0", f"train.save_every={10**9}", "train.early_stopping=0"]
        flags = [f"--set={setting}" for setting in (*self.settings, *own, *settings)]
        log = folder / "trial.log"
        with log.open("wb") as file:
            process = start_child(
                [*self.program, "run", str(self.recipe), *flags], stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()  # a run survives that, and this one is not wanted any more
            process.wait()

    def _is_enough(self, journal: Journal) -> bool:
        lines = self._steady(journal)
        return len(lines) > FEWEST and lines[-1]["time"] - lines[0]["time"] >= self.seconds

    def _steady(self, journal: Journal) -> List[Dict[str, Any]]:
        """Steps of the steady state: without the first ones, which lived on what the buffer held at the start."""
        lines = list(journal.metrics(self.stage))
        held = int(lines[0].get("buffer") or 0) if lines else 0
        halfway = lines[0]["time"] + self.seconds / 2 if lines else 0.0
        for place, line in enumerate(lines):
            if place > held or line["time"] > halfway:
                return lines[max(1, place) :]
        return lines[1:]

    def _measured(self, journal: Journal, settings: Dict[str, Any]) -> TrialResult:
        every, steady = list(journal.metrics(self.stage)), self._steady(journal)
        traces = [event for event in journal.events() if event.get("kind") == "trace"]
        found = TrialResult(
            settings,
            traces=len(traces),
            trace_seconds=sum(event.get("seconds") or 0.0 for event in traces),
            memory_mb=_most(every, "memory_mb"),
            gpu_memory_mb=_most(every, "gpu_memory_mb"),
            steps=max(0, len(steady) - 1),
        )
        took = steady[-1]["time"] - steady[0]["time"] if len(steady) > FEWEST else 0.0
        if took <= 0:
            return found
        frames = sum(line["frames"] for line in steady[1:])  # the first line's own step lies before it
        waited = sum(line["wait_seconds"] for line in steady[1:])
        per_step = frames / (len(steady) - 1)
        return attrs.evolve(found, frames_per_second=frames / took, wait=waited / took, frames_per_step=per_step)


def why(status: int, said: str) -> str:
    """Why a process ended as it did, in a few words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if status < 0:
        name = signal.Signals(-status).name if -status in {int(one) for one in signal.Signals} else ""
        out = "; out of memory?" if -status in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV) else ""
        return f"ended by signal {-status} ({name}){out}"
    last = lines[-1] if lines else "it said nothing"
    out = "out of memory: " if any(word in said for word in SHORT_OF_MEMORY) else ""
    return f"status {status}: {out}{last}"


def finished_codec(folder: Path) -> bool:
    """Whether a run has a codec that was trained to its end."""
    from xtts.training.checkpoint import Checkpoints

    state = Checkpoints(folder / "codec").newest() if (folder / "codec").is_dir() else None
    return state is not None and bool(state.counters["finished"])


@contextlib.contextmanager
def folder_for_a_while(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=str(parent)))
    try:
        yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def _copy(source: Path, folder: Path) -> None:
    """The codec of a run, as the beginning of another; files are linked where that can be done."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(str(source / "codec"), str(folder / "codec"), copy_function=link)
    shutil.copy2(str(source / "mel_stats.json"), str(folder / "mel_stats.json"))


def _most(lines: Sequence[Mapping[str, Any]], name: str) -> Optional[float]:
    return max((line[name] for line in lines if line.get(name) is not None), default=None)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

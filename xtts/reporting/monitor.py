"""The monitor of a stage: measures every step, and writes the journal, the progress line, warnings and the summary.

    monitor = Monitor("gpt", journal, traces=count, explain=why, live=Live("gpt", steps))
    with monitor.phase("trace", "120x480x16"):
        ...                                   # work that is not a step is timed apart; with a text it is an event too
    monitor.warm()                            # from here on a trace is a retrace
    for ...:
        monitor.step(step, {"loss": 2.5, "text": 0.5, "mel": 2.0}, "120x480x16", step_seconds, wait_seconds, ...)
    monitor.write_summary(finished=True)

A step's wall time runs from the previous step (or from `warm`) to its own call, without the phases in between. The sum
over all steps that did not trace is the steady state, over which shares and frames per second are computed.
"""

import contextlib
import math
import platform
import sys
import time
from collections import Counter, deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, TextIO, Tuple

import numpy as np

from xtts import __version__
from xtts.errors import XttsError
from xtts.formatting import format_duration
from xtts.progress import ProgressBar
from xtts.reporting.journal import Journal
from xtts.reporting.system import Gauge, LeakWatch, resident_mb
from xtts.reporting.tensorboard import TensorBoard

RECENT = 50  # steps that the progress line averages over
LAST = 10  # losses whose mean is a stage's final loss
PATIENCE = 5  # consecutive steps without a finite loss, after which a run stops
STARVED = 0.1  # share of the steady state spent waiting for data, above which there is a warning
STARVED_STEPS = 50  # before there is that warning
PLAIN_SECONDS = 15.0  # between two progress lines where there is no terminal
TOTALS = (
    "frames",
    "computed_frames",
    "skipped",
    "retraces",
    "steady",
    "steady_steps",
    "steady_frames",
    "computing",
    "waiting",
)
STARVED_ADVICE = (
    'set data.features = "cached", raise devices.buffer_size, or give features a device of their own with'
    " devices.data_gpu and devices.model_gpu"
)


class TrainingError(XttsError):
    """Training that cannot continue."""


class Live:
    """The progress of a stage: a bar on a terminal, elsewhere a plain line every `PLAIN_SECONDS`."""

    def __init__(
        self,
        stage: str,
        total_steps: int,
        start: int = 0,
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` steps were done by earlier processes."""
        self.stage = stage
        self.total_steps = total_steps
        self.bar = ProgressBar(stage, stream, start)
        self._clock = clock
        self._last_line = -math.inf

    def __call__(self, step: int, loss: float, frames_per_second: float, wait_share: float) -> None:
        figures = f"loss {loss:.4g}, {frames_per_second:,.0f} frames/s, data wait {wait_share:.1%}"
        if self.bar.is_shown:
            self.bar(step, self.total_steps, f", step {step:,}/{self.total_steps:,}, {figures}")
        elif self._clock() - self._last_line >= PLAIN_SECONDS or step >= self.total_steps:
            self._last_line = self._clock()
            left = format_duration(self.bar.left(step, self.total_steps))
            self.bar.log(f"{self.stage} step {step:,}/{self.total_steps:,}, {figures}, {left} left")

    def log(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.log(line)


class Monitor:
    """Everything that is measured of one stage."""

    def __init__(
        self,
        stage: str,
        journal: Journal,
        traces: Callable[[], int] = lambda: 0,  # of all compiled functions so far
        explain: Callable[[], str] = lambda: "",  # why the latest retrace happened
        gauges: Optional[Mapping[str, Gauge]] = None,  # as `system.gauges` returns them; None: this process's memory
        live: Optional[Live] = None,
        tensorboard: Optional[TensorBoard] = None,
        facts: Optional[Mapping[str, Any]] = None,  # for the summary: devices, tensorflow
        log_every: int = 1,  # steps
        patience: int = PATIENCE,
        log: Optional[Callable[[str], None]] = None,  # prints a line; None: above the progress bar
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage = stage
        self.journal = journal
        self.at = 0  # the latest step
        self.warnings: List[str] = []
        self.totals: Dict[str, float] = dict.fromkeys(TOTALS, 0)
        self.phases: Dict[str, float] = {}  # seconds of work that is not a step, by kind
        self._traces = traces
        self._explain = explain
        self._gauges = {"memory_mb": resident_mb} if gauges is None else gauges
        self._live = live
        self._board = tensorboard
        self._facts = dict(facts or {})
        self.measures: Dict[str, Callable[[], Any]] = {}  # further entries of the summary, by name
        self._log_every = log_every
        self._patience = patience
        self._log = log or (live.log if live else print)
        self._clock = clock
        self._started = self._mark = clock()
        self._seconds_before = 0.0  # of the stage, in earlier processes
        self._known_traces: Optional[int] = None  # None before the warm-up
        self._recent: Deque[Tuple[float, float, float]] = deque(maxlen=RECENT)  # wall, wait, frames
        self._last: Deque[float] = deque(maxlen=LAST)  # losses
        self._skipped: List[Tuple[int, Sequence[str]]] = []  # consecutive skipped steps and their utterances
        self._leak = LeakWatch()
        self._is_starved = False

    def warm(self) -> None:
        """Mark the end of the warm-up: everything is traced, the buffer is filled, the steady state begins."""
        self._known_traces = self._traces()
        self._mark = self._clock()
        if self._live:
            self._live.bar.begin()

    @contextlib.contextmanager
    def phase(self, kind: str, text: str = "") -> Iterator[None]:
        """Time work that is not a step: "trace", "buffer", "validation", "checkpoint" or "samples".

        With a text it is an event of the journal too.
        """
        start = self._clock()
        yield
        seconds = self._clock() - start
        self.phases[kind] = self.phases.get(kind, 0.0) + seconds
        self._mark += seconds
        if text:
            self.event(kind, text, seconds)

    def event(self, kind: str, text: str, seconds: Optional[float] = None) -> None:
        """Write an event of the latest step to the journal. Thread-safe."""
        self.journal.add_event(self.stage, self.at, kind, text, seconds)

    def warn(self, text: str, kind: str = "warning") -> None:
        """Print a warning, and write it to the journal and the summary."""
        self.warnings.append(text)
        self._log(text)
        self.event(kind, text)

    def step(
        self,
        step: int,
        losses: Mapping[str, float],
        shape: str,
        step_seconds: float,
        wait_seconds: float,
        frames: int,
        computed_frames: int,
        buffer: Optional[int] = None,
        learning_rate: Optional[float] = None,
        gradient_norm: Optional[float] = None,
        skipped: bool = False,
        utterances: Sequence[str] = (),
    ) -> None:
        """Record a completed step; steps count from 1, and losses["loss"] is the loss that is minimised.

        `step_seconds` is the time of the step itself, `wait_seconds` the time spent waiting for its batch; `frames`
        are mel frames without padding, `computed_frames` with padding and blank rows. A step whose loss is not finite
        counts as `skipped`; `patience` consecutive ones raise TrainingError.
        """
        self.at = step
        skipped = skipped or not math.isfinite(losses["loss"])
        self._time(step_seconds, wait_seconds, frames, computed_frames)
        if skipped:
            self._skip(losses["loss"], utterances)
        else:
            self._skipped = []
            self._last.append(float(losses["loss"]))
        if skipped or step == 1 or step % self._log_every == 0:
            figures = {
                "shape": shape,
                "step_seconds": step_seconds,
                "wait_seconds": wait_seconds,
                "learning_rate": learning_rate,
                "gradient_norm": gradient_norm,
                "frames": frames,
                "computed_frames": computed_frames,
                "buffer": buffer,
                **{name: gauge() for name, gauge in self._gauges.items()},
            }
            self._write_metrics(losses, {**figures, "skipped": skipped})
        if self._live:
            self._live(step, losses["loss"], *self._recent_speed())
        if len(self._skipped) >= self._patience:
            raise TrainingError(self._not_finite(learning_rate))

    def validated(self, losses: Mapping[str, float]) -> None:
        """Record a validation after the latest step."""
        loss, parts = _split(losses)
        self.journal.add_validation(self.stage, self.at, loss, parts)
        if self._board:
            self._board.scalars(self.at, {f"{self.stage}/validation_{name}": loss for name, loss in losses.items()})

    def summary(self, finished: bool = False) -> Dict[str, Any]:
        """The figures of the stage so far, in JSON's types."""
        totals, steady = self.totals, self.totals["steady"]
        return {
            "finished": finished,
            "steps": self.at,
            "traces": self._traces(),
            "retraces_after_warmup": int(totals["retraces"]),
            "data_wait_share": _ratio(totals["waiting"], steady),
            "busy_share": _ratio(totals["computing"], steady),
            "frames_per_second": _ratio(totals["steady_frames"], steady),
            "padding": _ratio(totals["computed_frames"], totals["frames"]),
            "seconds": self._seconds(),
            "final_loss": _ratio(sum(self._last), len(self._last)),
            "skipped": int(totals["skipped"]),
            "frames": int(totals["frames"]),
            "steady_seconds": steady,
            "seconds_by": self._seconds_by(),
            "warnings": list(self.warnings),
            **self._facts,
            **{name: measure() for name, measure in self.measures.items()},
        }

    def write_summary(self, finished: bool = False) -> None:
        """Write summary.json: the figures of this stage, those of the stages before it, and those of the whole run."""
        stages = dict(self.journal.summary().get("stages") or {})
        stages[self.stage] = self.summary(finished)
        self.journal.write_summary(whole_run(stages))

    def state(self) -> Dict[str, Any]:
        """The counters that a checkpoint stores, in JSON's types, so that a resumed stage reports all of its steps."""
        # "asides" is the name of phases on disk.
        kept = {"at": self.at, "totals": dict(self.totals), "asides": dict(self.phases)}
        return {**kept, "last": list(self._last), "seconds": self._seconds()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` of an earlier process."""
        self.at = int(state["at"])
        self.totals.update(state["totals"])
        for kind, seconds in state["asides"].items():
            self.phases[kind] = self.phases.get(kind, 0.0) + seconds
        self._last.extend(state["last"])
        self._seconds_before = float(state["seconds"])

    def _time(self, step_seconds: float, wait_seconds: float, frames: int, computed_frames: int) -> None:
        """Add a step to the totals; one that traced does not count towards the steady state."""
        wall = self._clock() - self._mark
        self._mark += wall
        totals = self.totals
        totals["frames"] += frames
        totals["computed_frames"] += computed_frames
        if self._has_retraced():
            self.phases["trace"] = self.phases.get("trace", 0.0) + wall
            return
        totals["steady"] += wall
        totals["steady_steps"] += 1
        totals["steady_frames"] += frames
        totals["computing"] += step_seconds
        totals["waiting"] += wait_seconds
        self._recent.append((wall, wait_seconds, frames))
        share = totals["waiting"] / totals["steady"] if totals["steady"] else 0.0
        if totals["steady_steps"] >= STARVED_STEPS and share > STARVED and not self._is_starved:
            self._is_starved = True
            self.warn(f"the model waits for data {share:.0%} of the time: {STARVED_ADVICE}")

    def _has_retraced(self) -> bool:
        """Whether the step traced after the warm-up; if so, warn and explain why."""
        if self._known_traces is None:  # `warm` was not called: the first step is the warm-up
            self._known_traces = self._traces()
            return True
        traces = self._traces()
        grown, self._known_traces = traces - self._known_traces, traces
        if grown <= 0:
            return False
        self.totals["retraces"] += grown
        total = int(self.totals["retraces"])
        why = self._explain()
        text = f"tf.function RETRACING detected at step {self.at} (total retraces: {total})"
        self.warn(f"{text}: {why}" if why else text, "retrace")
        return True

    def _skip(self, loss: float, utterances: Sequence[str]) -> None:
        self.totals["skipped"] += 1
        self._skipped.append((self.at, utterances))
        names = f" on {_listed(utterances)}" if utterances else ""
        self.event("skip", f"the loss was {loss:.4g}{names}: the step was skipped")

    def _not_finite(self, learning_rate: Optional[float]) -> str:
        """Why training stops, and what may help."""
        rate = "" if learning_rate is None else f" (it is {learning_rate:.2g} here)"
        most = Counter(name for _, names in self._skipped for name in names).most_common()
        often = [name for name, count in most if count == most[0][1]]
        look = f", and look at {_listed(often)}, on which it happened" if often else ""
        count, first = len(self._skipped), self._skipped[0][0]
        return (
            f"{self.stage} stage, step {self.at}: {count} steps in a row, from step {first} on, gave"
            f" a loss that is NaN or infinite. Lower train.learning_rate{rate}, set train.precision = "
            f'"float32"{look}; then start the run again: it resumes from its last checkpoint'
        )

    def _write_metrics(self, losses: Mapping[str, float], figures: Mapping[str, Any]) -> None:
        loss, parts = _split(losses)
        known = {name: value for name, value in figures.items() if value is not None}
        self.journal.add_metrics(self.stage, self.at, loss=loss, losses=parts, **known, time=time.time())
        leak = self._leak(self.at, figures.get("memory_mb"))
        if leak:
            self.warn(leak)
        if self._board:
            numbers = {name: value for name, value in {**losses, **known}.items() if not isinstance(value, (str, bool))}
            self._board.scalars(self.at, {f"{self.stage}/{name}": value for name, value in numbers.items()})

    def _recent_speed(self) -> Tuple[float, float]:
        """Frames per second and the share of time spent waiting, over the last few steps."""
        wall, wait, frames = (sum(column) for column in zip(*self._recent)) if self._recent else (0.0, 0.0, 0.0)
        return (frames / wall, wait / wall) if wall else (0.0, 0.0)

    def _seconds(self) -> float:
        return self._seconds_before + self._clock() - self._started

    def _seconds_by(self) -> Dict[str, float]:
        """Seconds by kind of work; the rest is "other"."""
        parts = {"computing": self.totals["computing"], "waiting": self.totals["waiting"], **self.phases}
        return {**parts, "other": max(0.0, self._seconds() - sum(parts.values()))}


def whole_run(stages: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """The summary of a run: the figures of each stage, and the same for all stages together."""

    def total(name: str) -> Any:
        return sum(stage.get(name) or 0 for stage in stages.values())

    def mean(name: str, weight: str) -> Optional[float]:
        return _ratio(sum((s.get(name) or 0.0) * (s.get(weight) or 0.0) for s in stages.values()), total(weight))

    last: Mapping[str, Any] = list(stages.values())[-1] if stages else {}
    return {
        **last,
        "finished": all(stage.get("finished") for stage in stages.values()),
        **{name: total(name) for name in ("steps", "traces", "retraces_after_warmup", "seconds", "skipped", "frames")},
        "steady_seconds": total("steady_seconds"),
        **{name: mean(name, "steady_seconds") for name in ("data_wait_share", "busy_share", "frames_per_second")},
        "padding": mean("padding", "frames"),
        "seconds_by": dict(sum((Counter(stage.get("seconds_by") or {}) for stage in stages.values()), Counter())),
        "warnings": [warning for stage in stages.values() for warning in stage.get("warnings") or ()],
        "versions": versions(last.get("tensorflow")),
        "stages": {name: dict(stage) for name, stage in stages.items()},
    }


def versions(tensorflow: Optional[str]) -> Dict[str, Optional[str]]:
    """The versions that a run is computed with."""
    found = {"python": platform.python_version(), "tensorflow": tensorflow, "numpy": np.__version__}
    return {**found, "xtts": __version__, "platform": platform.platform(terse=True)}


def _split(losses: Mapping[str, float]) -> Tuple[float, Dict[str, float]]:
    """The loss that is minimised, and its parts."""
    return losses["loss"], {name: loss for name, loss in losses.items() if name != "loss"}


def _ratio(part: float, whole: float) -> Optional[float]:
    return part / whole if whole else None


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest

"""The monitor of a stage: figures of each step come in; journal lines, a progress line, warnings and a summary go out.

    monitor = Monitor("gpt", journal, traces=count, explain=why, live=Live("gpt", steps))
    with monitor.aside("trace", "120x480x16"):
        ...                                   # whatever is not a step is timed apart, and with a text it is an event
    monitor.warm()                            # from here on a trace is a retrace
    for ...:
        monitor.step(step, {"loss": 2.5, "text": 0.5, "mel": 2.0}, "120x480x16", step_seconds, wait_seconds, ...)
    monitor.write_summary(finished=True)

A step's wall time runs from the step before it (or from `warm`) to its own call, less what was put aside in between;
the sum over all steps that did not trace is the steady state, which shares and frames per second are of.
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

RECENT = 50  # steps that the progress line is about
LAST = 10  # losses that a stage's final one is the mean of
PATIENCE = 5  # steps in a row without a finite loss, after which a run stops
STARVED = 0.1  # share of the steady state spent waiting for data that is worth a word
STARVED_STEPS = 50  # after which it is known
PLAIN_SECONDS = 15.0  # between two lines where there is no terminal
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
    """A training that cannot go on."""


class Live:
    """The progress line of a stage: a bar on a terminal, and elsewhere a plain line every so often."""

    def __init__(self, stage: str, total_steps: int, start: int = 0, stream: TextIO = sys.stderr) -> None:
        """`start` steps were done before."""
        self.stage = stage
        self.total_steps = total_steps
        self.bar = ProgressBar(stage, stream, start)
        self._said = -math.inf

    def __call__(self, step: int, loss: float, frames_per_second: float, wait_share: float) -> None:
        figures = f"loss {loss:.4g}, {frames_per_second:,.0f} frames/s, data wait {wait_share:.1%}"
        if self.bar.is_shown:
            self.bar(step, self.total_steps, f", step {step:,}/{self.total_steps:,}, {figures}")
        elif time.monotonic() - self._said >= PLAIN_SECONDS or step >= self.total_steps:
            self._said = time.monotonic()
            left = format_duration(self.bar.left(step, self.total_steps))
            self.bar.log(f"{self.stage} step {step:,}/{self.total_steps:,}, {figures}, {left} left")

    def say(self, line: str) -> None:
        """A line that stays."""
        self.bar.log(line)

    def close(self) -> None:
        self.bar.wipe()


class Monitor:
    """Everything measured of one stage."""

    def __init__(
        self,
        stage: str,
        journal: Journal,
        traces: Callable[[], int] = lambda: 0,  # of all compiled functions so far
        explain: Callable[[], str] = lambda: "",  # why the latest retrace happened
        gauges: Optional[Mapping[str, Gauge]] = None,  # as `gauges.gauges` gives them
        live: Optional[Live] = None,
        tensorboard: Optional[TensorBoard] = None,
        facts: Optional[Mapping[str, Any]] = None,  # for the summary: devices, tensorflow
        log_every: int = 1,  # steps
        patience: int = PATIENCE,
        say: Optional[Callable[[str], None]] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage = stage
        self.journal = journal
        self.at = 0  # the latest step
        self.warnings: List[str] = []
        self.totals: Dict[str, float] = dict.fromkeys(TOTALS, 0)
        self.asides: Dict[str, float] = {}  # seconds of what is not a step, by kind
        self._traces, self._explain = traces, explain
        self._gauges = {"memory_mb": resident_mb} if gauges is None else gauges
        self._live, self._board = live, tensorboard
        self._facts = dict(facts or {})
        self.measures: Dict[str, Callable[[], Any]] = {}  # what others measure, for the summary
        self._log_every, self._patience = log_every, patience
        self._say = say or (live.say if live else print)
        self._clock = clock
        self._started = self._mark = clock()
        self._before = 0.0  # seconds of the stage in earlier processes
        self._traced: Optional[int] = None  # traces when warm; None before
        self._recent: Deque[Tuple[float, float, float]] = deque(maxlen=RECENT)  # wall, wait, frames
        self._last: Deque[float] = deque(maxlen=LAST)  # losses
        self._bad: List[Tuple[int, Sequence[str]]] = []  # steps in a row that were skipped, and their utterances
        self._leak = LeakWatch()
        self._is_starved = False

    def warm(self) -> None:
        """Everything is traced and the buffer is full: the steady state begins."""
        self._traced = self._traces()
        self._mark = self._clock()
        if self._live:
            self._live.bar.begin()

    @contextlib.contextmanager
    def aside(self, kind: str, text: str = "") -> Iterator[None]:
        """Time what is not a step: "trace", "validation", "checkpoint", "samples". With a text it is an event too."""
        start = self._clock()
        yield
        seconds = self._clock() - start
        self.asides[kind] = self.asides.get(kind, 0.0) + seconds
        self._mark += seconds
        if text:
            self.event(kind, text, seconds)

    def event(self, kind: str, text: str, seconds: Optional[float] = None) -> None:
        """Note something in the journal, at the latest step; from any thread."""
        self.journal.add_event(self.stage, self.at, kind, text, seconds)

    def warn(self, text: str, kind: str = "warning") -> None:
        """Say something that should be looked into, and note it."""
        self.warnings.append(text)
        self._say(text)
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
        """Take note of a step that was computed; steps count from 1, and losses["loss"] is the one that is minimised.

        `step_seconds` is until the losses were there, `wait_seconds` how long the batch was waited for; `frames` are
        the recordings' own mel frames, `computed_frames` those with padding and blank rows. A step whose loss is not
        finite, or that is `skipped`, is counted; `patience` of them in a row raise TrainingError.
        """
        self.at = step
        skipped = skipped or not math.isfinite(losses["loss"])
        self._time(step_seconds, wait_seconds, frames, computed_frames)
        if skipped:
            self._skip(losses["loss"], utterances)
        else:
            self._bad = []
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
            self._log(losses, {**figures, "skipped": skipped})
        if self._live:
            self._live(step, losses["loss"], *self._pace())
        if len(self._bad) >= self._patience:
            raise TrainingError(self._despair(learning_rate))

    def validated(self, losses: Mapping[str, float]) -> None:
        """Take note of a validation after the latest step."""
        loss, parts = _split(losses)
        self.journal.add_validation(self.stage, self.at, loss, parts)
        if self._board:
            self._board.scalars(self.at, {f"{self.stage}/validation_{name}": loss for name, loss in losses.items()})

    def summary(self, finished: bool = False) -> Dict[str, Any]:
        """The figures of the stage so far."""
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
        """Put the figures of this stage beside those of the others, and those of the whole run above them."""
        stages = dict(self.journal.summary().get("stages") or {})
        stages[self.stage] = self.summary(finished)
        self.journal.write_summary(whole_run(stages))

    def state(self) -> Dict[str, Any]:
        """What a checkpoint keeps, in JSON's types, so that the figures of a resumed stage are of all of it."""
        kept = {"at": self.at, "totals": dict(self.totals), "asides": dict(self.asides)}
        return {**kept, "last": list(self._last), "seconds": self._seconds()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state that an earlier process kept."""
        self.at = int(state["at"])
        self.totals.update(state["totals"])
        for kind, seconds in state["asides"].items():
            self.asides[kind] = self.asides.get(kind, 0.0) + seconds
        self._last.extend(state["last"])
        self._before = float(state["seconds"])

    def _time(self, step_seconds: float, wait_seconds: float, frames: int, computed_frames: int) -> None:
        """Add a step to the totals; one that traced is not of the steady state."""
        wall = self._clock() - self._mark
        self._mark += wall
        totals = self.totals
        totals["frames"] += frames
        totals["computed_frames"] += computed_frames
        if self._has_retraced():
            self.asides["trace"] = self.asides.get("trace", 0.0) + wall
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
        """Whether the step traced after the warm-up; if so it is said why."""
        if self._traced is None:  # nobody called `warm`: the first step was the warm-up
            self._traced = self._traces()
            return True
        traces = self._traces()
        grown, self._traced = traces - self._traced, traces
        if grown <= 0:
            return False
        self.totals["retraces"] += grown
        total = int(self.totals["retraces"])
        why = self._explain()
        said = f"tf.function RETRACING detected at step {self.at} (total retraces: {total})"
        self.warn(f"{said}: {why}" if why else said, "retrace")
        return True

    def _skip(self, loss: float, utterances: Sequence[str]) -> None:
        self.totals["skipped"] += 1
        self._bad.append((self.at, utterances))
        names = f" on {_listed(utterances)}" if utterances else ""
        self.event("skip", f"the loss was {loss:.4g}{names}: the step was skipped")

    def _despair(self, learning_rate: Optional[float]) -> str:
        """Why there is no point in going on, and what may help."""
        rate = "" if learning_rate is None else f" (it is {learning_rate:.2g} here)"
        most = Counter(name for _, names in self._bad for name in names).most_common()
        often = [name for name, count in most if count == most[0][1]]
        look = f", and look at {_listed(often)}, on which it happened" if often else ""
        return (
            f"{self.stage} stage, step {self.at}: {len(self._bad)} steps in a row, from step {self._bad[0][0]} on, gave"
            f" a loss that is no finite number. Lower train.learning_rate{rate}, set train.precision = "
            f'"float32"{look}; the run then goes on from its last checkpoint'
        )

    def _log(self, losses: Mapping[str, float], figures: Mapping[str, Any]) -> None:
        loss, parts = _split(losses)
        known = {name: value for name, value in figures.items() if value is not None}
        self.journal.add_metrics(self.stage, self.at, loss=loss, losses=parts, **known, time=time.time())
        leak = self._leak(self.at, figures.get("memory_mb"))
        if leak:
            self.warn(leak)
        if self._board:
            numbers = {name: value for name, value in {**losses, **known}.items() if not isinstance(value, (str, bool))}
            self._board.scalars(self.at, {f"{self.stage}/{name}": value for name, value in numbers.items()})

    def _pace(self) -> Tuple[float, float]:
        """Frames per second and the share of waiting, of the last few steps."""
        wall, wait, frames = (sum(column) for column in zip(*self._recent)) if self._recent else (0.0, 0.0, 0.0)
        return (frames / wall, wait / wall) if wall else (0.0, 0.0)

    def _seconds(self) -> float:
        return self._before + self._clock() - self._started

    def _seconds_by(self) -> Dict[str, float]:
        """Where the time went; what none of it was is "other"."""
        parts = {"computing": self.totals["computing"], "waiting": self.totals["waiting"], **self.asides}
        return {**parts, "other": max(0.0, self._seconds() - sum(parts.values()))}


def whole_run(stages: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """The summary of a run: the figures of each stage, and the same of all together."""

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
    """What a run is computed by."""
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

"""Training a stage: its steps, its feed and its checkpoints come in; it goes on where it was, and weights that have
learned are on disk when it ends.

The loop knows nothing of devices, strategies or releases: those are in what it is given.
"""

import collections
import contextlib
import time
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.errors import XttsError
from xtts.model.layers import Weight
from xtts.pipeline.prefetcher import RECENT, Interval, Prefetcher, StepBatches, overlap
from xtts.planning.shapes import Shape
from xtts.progress import ProgressBar
from xtts.recipe.schema import TrainSection
from xtts.reporting.monitor import Monitor
from xtts.training.checkpoint import Checkpoints, TrainingState
from xtts.training.cluster.collectives import Collectives
from xtts.training.optimizer import AdamW
from xtts.training.signals import told_to_stop
from xtts.training.stages import Stage, trainable
from xtts.training.step import StepResult, TrainingSteps
from xtts.weights.assignment import assign_weights, published_value

MODEL, AVERAGE = "model.", "average."  # before the names of weights, and of their running average
NOT_SAVED = "which could not be saved; the same command goes on from the newest checkpoint there is"


class RunStopped(XttsError):
    """A run that was asked to stop."""

    status = 130


@attrs.define(eq=False)
class TrainingLoop:
    """One stage on its way."""

    stage: Stage
    optimizer: AdamW
    steps: TrainingSteps
    feed: Callable[[int], Prefetcher]  # from a step on
    held_out: Callable[[], Sequence[Tuple[Dict[str, Any], np.ndarray]]]  # batches and counts; may be none
    sample: Callable[[int], None]
    checkpoints: Checkpoints
    monitor: Monitor
    settings: TrainSection
    total: int  # steps
    replicas: int
    start_delay: float  # seconds
    begin: Callable[[StepBatches], None]  # before step 0
    collectives: Collectives = attrs.field(factory=Collectives)
    best: Optional[float] = None  # validation loss
    stale: int = 0  # validations since
    is_finished: bool = False
    last: Optional[TrainingState] = None  # that was saved, or could not be
    spells: Deque[Interval] = attrs.field(factory=lambda: collections.deque(maxlen=RECENT))  # of the model's devices

    def run(self, done: int) -> TrainingState:
        """From step `done` to the last, whose state comes back."""
        with self.feed(done) as feed:
            with self.monitor.phase("buffer"), ProgressBar("filling the buffer") as bar:
                feed.fill(self.start_delay, bar)
            self.monitor.measures["overlap"] = lambda: overlap(sorted(feed.intervals), list(self.spells))
            if len(feed.scheduler.devices) > 1:
                self.monitor.measures["division"] = feed.scheduler.shares
            self.monitor.warm()
            with told_to_stop() as stop, self._accounted():
                for work in feed:
                    if work.step == 0:
                        self.begin(work)
                    work, is_told = self.collectives.agreed(work, stop)
                    began = time.monotonic()
                    result = self.steps(work)
                    self.spells.append(Interval(began, time.monotonic()))
                    self._note(work, result, feed)
                    if self._look_after(work.step + 1, is_told()):
                        break
        assert self.last is not None
        return self.last

    @contextlib.contextmanager
    def _accounted(self) -> Iterator[None]:
        """Training that cannot go on leaves its figures."""
        try:
            yield
        except XttsError:
            self.monitor.write_summary()
            raise

    def _note(self, work: StepBatches, result: StepResult, feed: Prefetcher) -> None:
        start, stop = self.spells[-1]
        self.monitor.step(
            work.step + 1,
            {"loss": result.loss, **result.parts},
            "+".join(named(shape) for shape in work.sizes),
            step_seconds=stop - start,
            wait_seconds=feed.waited,
            frames=work.frames,
            computed_frames=self.replicas * sum(shape.mel_frames * shape.batch_size for shape in work.sizes),
            buffer=feed.depth,
            learning_rate=result.learning_rate,
            gradient_norm=result.gradient_norm,
            skipped=not result.is_finite,
        )

    def _look_after(self, step: int, is_told: bool) -> bool:
        """Validate, sample and save when it is time to; whether the stage is over."""
        every, is_last, loss = self.settings, step == self.total, None
        if _is_due(step, every.validate_every, is_last):
            loss = self._validate()
        is_over = is_last or bool(every.early_stopping and self.stale >= every.early_stopping)
        if is_over or _is_due(step, every.sample_every, False):
            self._sample(step)
        self.is_finished = is_over
        is_saved = False
        if is_over or _is_due(step, every.save_every, False) or is_told:
            with self.monitor.phase("checkpoint"):
                self.last = self.state(step)
                is_saved = self.checkpoints.save(self.last, loss) is not None
                self.monitor.write_summary(finished=is_over)
        if is_told:
            where = f"step {step:,} of {self.total:,} of the {self.stage.name} stage"
            what = "which is saved; the same command goes on from there"
            raise RunStopped(f"stopped after {where}, {what if is_saved else NOT_SAVED}")
        return is_over

    def _validate(self) -> Optional[float]:
        with self.monitor.phase("validation"):
            batches = self.held_out()
            if not batches:
                return None
            with self.optimizer.averaged():
                found = self.steps.validate(batches)
        self.monitor.validated(found)
        is_better = self.best is None or found["loss"] < self.best
        self.best, self.stale = (found["loss"], 0) if is_better else (self.best, self.stale + 1)
        return found["loss"]

    def _sample(self, step: int) -> None:
        with self.monitor.phase("samples"), self.optimizer.averaged():
            try:
                self.sample(step)
            except (XttsError, OSError) as error:  # a run is worth more than what can be heard of it now
                self.monitor.warn(f"no sample of step {step:,}: {error}")

    def weights(self) -> Dict[str, Weight]:
        """Everything that moves: model.NAME as published; and of what gradients move first.NAME, second., average."""
        found = {f"{MODEL}{name}": weight for name, weight in self.stage.model.weights().items()}
        for slot, variables in self.optimizer.slots().items():
            for (name, weight), variable in zip(trainable(self.stage).items(), variables):
                found[f"{slot}.{name}"] = Weight(variable, weight.axes)
        return found

    def state(self, step: int) -> TrainingState:
        counters: Dict[str, Any] = {"best": self.best, "stale": self.stale, "finished": self.is_finished}
        counters["monitor"] = self.monitor.state()
        return TrainingState(step, {name: published_value(weight) for name, weight in self.weights().items()}, counters)

    def restore(self, state: TrainingState) -> None:
        """Go on from a checkpoint; one of other sizes is refused whole. A new average starts from the weights."""
        wanted = self.weights()
        started = {AVERAGE + n[len(MODEL) :]: tensor for n, tensor in state.tensors.items() if n.startswith(MODEL)}
        tensors = {**started, **state.tensors}
        assign_weights(
            wanted, {n: t for n, t in tensors.items() if n in wanted or not n.startswith(AVERAGE)}, "the checkpoint"
        )
        self.best, self.stale = state.counters["best"], state.counters["stale"]
        self.is_finished = bool(state.counters["finished"])
        self.monitor.restore(state.counters["monitor"])


def named(shape: Shape) -> str:
    """A shape as the journal writes it: text by mel frames by rows."""
    return f"{shape.text_length}x{shape.mel_frames}x{shape.batch_size}"


def _is_due(step: int, every: int, is_last: bool) -> bool:
    return every > 0 and (is_last or step % every == 0)

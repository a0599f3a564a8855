"""The training loop of one stage: it continues from a checkpoint, steps, validates, samples and saves.

It does not depend on devices, strategies or TensorFlow releases: the setup and the compiled steps hide them.
"""

import collections
import contextlib
import time
from typing import Any, Deque, Dict, Iterator, Optional

import attrs

from xtts.errors import XttsError
from xtts.model.layers import Weight
from xtts.pipeline.prefetcher import RECENT, Interval, Prefetcher, StepBatches, overlap
from xtts.planning.shapes import Shape
from xtts.progress import ProgressBar
from xtts.reporting.monitor import Monitor
from xtts.training.checkpoint import Checkpoints, TrainingState
from xtts.training.context import StageSetup
from xtts.training.signals import stop_on_signal
from xtts.training.stages.stage import AVERAGE, MODEL, trainable_weights
from xtts.training.step import StepResult, TrainingSteps
from xtts.weights.assignment import assign_weights, published_value

NOT_SAVED = "which could not be saved; run the same command to resume from the newest checkpoint"


class RunStopped(XttsError):
    """A run that was interrupted by a signal."""

    status = 130


@attrs.define(kw_only=True, eq=False)
class TrainingLoop:
    """One stage while it trains."""

    setup: StageSetup
    steps: TrainingSteps
    checkpoints: Checkpoints
    monitor: Monitor
    best: Optional[float] = None  # validation loss
    stale: int = 0  # validations since the best
    is_finished: bool = False
    last: Optional[TrainingState] = None  # the latest state that was saved, or that could not be written
    model_intervals: Deque[Interval] = attrs.field(factory=lambda: collections.deque(maxlen=RECENT))

    def run(self, done: int) -> TrainingState:
        """Train from step `done` to the last, and return the state after it."""
        context = self.setup.context
        with self.setup.prefetcher(done, self._on_lost, self._on_resized) as prefetcher:
            with self.monitor.phase("buffer"), ProgressBar("filling the buffer") as bar:
                prefetcher.fill(context.recipe.devices.model_start_delay, bar)
            self.monitor.measures["overlap"] = lambda: overlap(sorted(prefetcher.intervals), list(self.model_intervals))
            if len(prefetcher.scheduler.devices) > 1:
                self.monitor.measures["division"] = prefetcher.scheduler.shares
            self.monitor.warm()
            with stop_on_signal() as stop, self._summary_on_error():
                for work in prefetcher:
                    if work.step == 0:
                        self.setup.begin(work)
                    work, stop_requested = context.collectives.agree_on_step(work, stop)
                    began = time.monotonic()
                    result = self.steps(work)
                    self.model_intervals.append(Interval(began, time.monotonic()))
                    self._record(work, result, prefetcher)
                    if self._after_step(work.step + 1, stop_requested()):
                        break
        assert self.last is not None
        return self.last

    @contextlib.contextmanager
    def _summary_on_error(self) -> Iterator[None]:
        """Write the summary even if the run fails."""
        try:
            yield
        except XttsError:
            self.monitor.write_summary()
            raise

    def _record(self, work: StepBatches, result: StepResult, prefetcher: Prefetcher) -> None:
        start, stop = self.model_intervals[-1]
        computed = sum(shape.mel_frames * shape.batch_size for shape in work.sizes)
        self.monitor.step(
            work.step + 1,
            {"loss": result.loss, **result.parts},
            "+".join(_shape_name(shape) for shape in work.sizes),
            step_seconds=stop - start,
            wait_seconds=prefetcher.waited,
            frames=work.frames,
            computed_frames=self.setup.context.placement.replicas * computed,
            buffer=prefetcher.depth,
            learning_rate=result.learning_rate,
            gradient_norm=result.gradient_norm,
            skipped=not result.is_finite,
        )

    def _after_step(self, step: int, stop_requested: bool) -> bool:
        """Validate, sample and save when due; returns whether the stage is over."""
        every, total = self.setup.context.recipe.train, self.setup.steps
        is_last, loss = step == total, None
        if _is_due(step, every.validate_every, is_last):
            loss = self._validate()
        is_over = is_last or bool(every.early_stopping and self.stale >= every.early_stopping)
        if is_over or _is_due(step, every.sample_every, False):
            self._sample(step)
        self.is_finished = is_over
        is_saved = False
        if is_over or _is_due(step, every.save_every, False) or stop_requested:
            with self.monitor.phase("checkpoint"):
                self.last = self.state(step)
                is_saved = self.checkpoints.save(self.last, loss) is not None
                self.monitor.write_summary(finished=is_over)
        if stop_requested:
            where = f"step {step:,} of {total:,} of the {self.setup.stage.name} stage"
            what = "which is saved; run the same command to resume"
            raise RunStopped(f"stopped after {where}, {what if is_saved else NOT_SAVED}")
        return is_over

    def _validate(self) -> Optional[float]:
        with self.monitor.phase("validation"):
            batches = self.setup.validation_batches()
            if not batches:
                return None
            with self.setup.optimizer.averaged():
                found = self.steps.validate(batches)
        self.monitor.validated(found)
        is_better = self.best is None or found["loss"] < self.best
        self.best, self.stale = (found["loss"], 0) if is_better else (self.best, self.stale + 1)
        return found["loss"]

    def _sample(self, step: int) -> None:
        with self.monitor.phase("samples"), self.setup.optimizer.averaged():
            try:
                if self.setup.samples is not None:
                    self.setup.samples(step)
            except (XttsError, OSError) as error:  # a missing sample must not fail the run
                self.monitor.warn(f"no sample of step {step:,}: {error}")

    def weights(self) -> Dict[str, Weight]:
        """All variables of a checkpoint: model.NAME; and of trainable ones first.NAME, second.NAME and average.NAME."""
        found = {f"{MODEL}{name}": weight for name, weight in self.setup.trained.model.weights().items()}
        for slot, variables in self.setup.optimizer.slots().items():
            for (name, weight), variable in zip(trainable_weights(self.setup.trained).items(), variables):
                found[f"{slot}.{name}"] = Weight(variable, weight.axes)
        return found

    def _on_lost(self, utterance: str, why: str) -> None:
        self.monitor.warn(f"{utterance} is set aside: {why}", "set aside")

    def _on_resized(self, text: str) -> None:
        self.monitor.event("buffer", text)

    def state(self, step: int) -> TrainingState:
        counters: Dict[str, Any] = {"best": self.best, "stale": self.stale, "finished": self.is_finished}
        counters["monitor"] = self.monitor.state()
        return TrainingState(step, {name: published_value(weight) for name, weight in self.weights().items()}, counters)

    def restore(self, state: TrainingState) -> None:
        """Load a checkpoint; raises if any size differs. A running average that it lacks starts from the weights."""
        wanted = self.weights()
        started = {AVERAGE + n[len(MODEL) :]: tensor for n, tensor in state.tensors.items() if n.startswith(MODEL)}
        tensors = {**started, **state.tensors}
        assign_weights(
            wanted, {n: t for n, t in tensors.items() if n in wanted or not n.startswith(AVERAGE)}, "the checkpoint"
        )
        self.best, self.stale = state.counters["best"], state.counters["stale"]
        self.is_finished = bool(state.counters["finished"])
        self.monitor.restore(state.counters["monitor"])


def _shape_name(shape: Shape) -> str:
    """The name of a shape in the journal: text x mel frames x rows."""
    return f"{shape.text_length}x{shape.mel_frames}x{shape.batch_size}"


def _is_due(step: int, every: int, is_last: bool) -> bool:
    return every > 0 and (is_last or step % every == 0)

"""The set-up of training: `TrainingContext` is shared by the stages of a run, `StageSetup` belongs to one stage.

A stage's `build` makes its setup; `prepare_stage` also does the slow part: it traces the feature functions and measures
the speed of the data devices. After that only the training steps are still to be traced.
"""

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts import compat
from xtts.model.codec import Codec
from xtts.pipeline.buffer import BufferPolicy, reader_count
from xtts.pipeline.features import Features
from xtts.pipeline.prefetcher import FeatureDevice, Prefetcher, StepBatches
from xtts.pipeline.service.client import Service
from xtts.pipeline.service.manifest import Makes
from xtts.pipeline.sources import BatchSource, RemoteBatchSource, seconds_per_batch, warm_up
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Dataset, Log, Split
from xtts.planning.plan import Plan
from xtts.planning.shapes import Shape, ShapePlan, TraceCost, plan_shapes
from xtts.planning.sizes import SIZES, step_cost
from xtts.recipe.schema import Recipe
from xtts.reporting.tensorboard import TensorBoard
from xtts.training.cluster.collectives import Collectives
from xtts.training.optimizer import AdamW, Schedule, decays
from xtts.training.placement import Placement
from xtts.training.stages.samples import Samples
from xtts.training.stages.stage import Stage, Tensors, TrainableModel, trainable_weights

MAX_HELD_OUT = 512  # utterances of a validation, at most
HELD_ROWS = 8  # rows of a validation batch, at most


@attrs.frozen(kw_only=True, eq=False)
class TrainingContext:
    """What the stages of a run share in one process."""

    recipe: Recipe
    folder: Path
    dataset: Dataset
    plan: Plan
    placement: Placement
    strategy: Any
    stats: np.ndarray  # mel norms [n_mels], which log mels are divided by
    board: TensorBoard
    log: Log
    collectives: Collectives
    published: Optional[Tensors] = None  # weights that the recipe fine-tunes
    service: Optional[Service] = None  # a tf.data service that reads recordings and computes features

    @property
    def held_out(self) -> Split:
        """The data for validation and samples; the training data if nothing was held out."""
        return self.dataset.held_out if len(self.dataset.held_out.lengths) else self.dataset.train

    @property
    def is_cached(self) -> bool:
        """Whether features are computed once and cached on disk."""
        asked = self.recipe.data.features
        return asked == "cached" or (asked == "auto" and not self.placement.is_dual and self.service is None)

    @property
    def readers(self) -> int:
        return reader_count(self.recipe.data.workers)

    def buffer_policy(self, stage: Stage) -> BufferPolicy:
        """The buffer policy for the batches of a stage."""
        shapes = stage.shapes(self.recipe, self.plan.layout.shapes)
        largest = max(stage.batch_bytes(self.recipe, shape) for shape in shapes)
        return BufferPolicy.of(self.recipe.devices.buffer_size, self.readers, largest * len(self.placement.share))

    def features(self, codecs: Sequence[Optional[Codec]]) -> List[Features]:
        """The feature functions of every data device; `codecs` has the codec of each, None if codes are not needed."""
        devices = self.placement.data_devices
        return [
            Features(
                self.recipe.audio,
                device,
                self.stats,
                codec,
                self.recipe.data.shapes == "relaxed",
                len(devices) > 1,  # scheduling measures the time of a batch, so calls must block until it is done
            )
            for device, codec in zip(devices, codecs)
        ]


@attrs.frozen(kw_only=True, eq=False)
class HeldOut:
    """The validation data: batches of one shape, the same at each validation."""

    shape: Shape
    order: BatchOrder
    source: BatchSource


def _nothing(first: StepBatches) -> None:
    """The default of `StageSetup.begin`: do nothing."""


@attrs.frozen(kw_only=True, eq=False)
class StageSetup:
    """Everything that one stage trains with."""

    context: TrainingContext
    stage: Stage
    trained: TrainableModel
    optimizer: AdamW
    order: BatchOrder
    sources: Sequence[RemoteBatchSource]  # one for each data device; a single one if features are cached
    remote_features: Makes  # the features that workers of a service compute
    held_out: HeldOut
    samples: Optional[Samples]  # None: another worker makes them
    feature_functions: Sequence[compat.Compiled]
    begin: Callable[[StepBatches], None] = _nothing  # called before step 0 with its batches
    feature_devices: Sequence[FeatureDevice] = ()  # with measured speeds; empty for a single device

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return self.stage.steps(self.context.recipe)

    @property
    def functions(self) -> List[compat.Compiled]:
        """Every compiled function except the training steps."""
        return [*self.feature_functions, *(self.samples.functions if self.samples else ())]

    def prefetcher(
        self, start: int, on_lost: Callable[[str, str], None], on_resized: Callable[[str], None]
    ) -> Prefetcher:
        """A prefetcher of the batches from step `start` to the last."""
        context = self.context
        source: BatchSource = self.sources[0]
        accumulated = context.recipe.train.gradient_accumulation_steps
        options: Dict[str, Any] = {"devices": self.feature_devices}
        if context.service is not None:
            numbers = range(start * accumulated, self.steps * accumulated)
            source = served = context.service.source(self.order, self.sources[0], numbers, self.remote_features)
            options = {"on_close": served.close}
        return Prefetcher(
            self.order,
            source,
            start,
            self.steps,
            accumulated=accumulated,
            buffer_size=context.buffer_policy(self.stage),
            readers=context.readers,
            on_lost=on_lost,
            on_resize=on_resized,
            **options,
        )

    def validation_batches(self) -> List[Tuple[Dict[str, Any], np.ndarray]]:
        """The validation batches, each with the elements that each part of the loss is a mean over, of all workers.

        The list is empty if no held-out recording can be read any more.
        """
        order, source = self.held_out.order, self.held_out.source
        batches = zip(*(order.batches(0, worker=replica) for replica in range(order.workers)))
        read = [source.read(some, number) for number, some in enumerate(batches)]
        counts = self.context.collectives.all_sum(np.array([one.counts for one in read]))
        return [(source.finish(one), count) for one, count in zip(read, counts) if count.any()]


def prepare_stage(context: TrainingContext, stage: Stage, needed: Mapping[str, Tensors]) -> StageSetup:
    """Build a stage and warm it up: trace its feature functions in every shape, and time its data devices."""
    setup = stage.build(context, needed)
    dynamic_shapes = setup.trained.dynamic_shapes
    warm_up(setup.sources[0], setup.order, dynamic_shapes)
    warm_up(setup.held_out.source, setup.held_out.order, dynamic_shapes)
    if len(setup.sources) == 1:
        return setup
    for source in setup.sources[1:]:
        warm_up(source, setup.order, dynamic_shapes)
    devices = [
        FeatureDevice(device, source.finish, seconds_per_batch(source, setup.order, dynamic_shapes))
        for device, source in zip(context.placement.data_devices, setup.sources)
    ]
    return attrs.evolve(setup, feature_devices=devices)


def make_optimizer(context: TrainingContext, stage: Stage, trained: TrainableModel, ema_decay: float) -> AdamW:
    """The optimizer of a stage; must be called in the strategy's scope."""
    train = context.recipe.train
    schedule = Schedule.of(train, stage.learning_rate(context.recipe), stage.steps(context.recipe))
    named = {name: weight.variable for name, weight in trainable_weights(trained).items()}
    decayed = decays(named, train.weight_decay_on)
    return AdamW(list(named.values()), schedule, attrs.evolve(train, ema_decay=ema_decay), decayed)


def held_out_shapes(recipe: Recipe, split: Split, replicas: int = 1) -> ShapePlan:
    """A single shape for all held-out utterances, so that validation needs one trace."""
    lengths, gpt = split.lengths, SIZES[recipe.model.size].gpt
    rows = max(1, min(HELD_ROWS, -(-len(lengths) // replicas)))
    return plan_shapes(lengths.text, lengths.frames, step_cost(gpt), rows, 1, TraceCost(0.0, 0.0))

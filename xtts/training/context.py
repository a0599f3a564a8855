"""What training runs with: `TrainingContext` is shared by the stages of a run, `StageSetup` is one stage's own.

A stage's `build` makes its setup; `prepare_stage` does that and the slow part: it traces what the data devices compute
and measures how fast they are. After that nothing is traced any more but the training steps themselves.
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
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.placement import Placement
from xtts.training.stages.samples import Samples
from xtts.training.stages.stage import Stage, Tensors, TrainableModel, trainable_weights

MOST_HELD = 512  # utterances that a validation takes at most
HELD_ROWS = 8  # in a batch of it


@attrs.frozen(kw_only=True, eq=False)
class TrainingContext:
    """One run in one process: what its stages share."""

    recipe: Recipe
    folder: Path
    dataset: Dataset
    plan: Plan
    placement: Placement
    strategy: Any
    stats: np.ndarray  # what mels are divided by, [n_mels]
    board: TensorBoard
    log: Log
    collectives: Collectives
    published: Optional[Tensors] = None  # weights that the recipe starts from
    service: Optional[Service] = None  # a tf.data service that reads and makes features

    @property
    def held_out(self) -> Split:
        """What is validated and sampled: the training data, where nothing was held out."""
        return self.dataset.held_out if len(self.dataset.held_out.lengths) else self.dataset.train

    @property
    def is_cached(self) -> bool:
        """Whether features are made once and kept on disk."""
        asked = self.recipe.data.features
        return asked == "cached" or (asked == "auto" and not self.placement.is_dual and self.service is None)

    @property
    def readers(self) -> int:
        return reader_count(self.recipe.data.workers)

    def buffer_policy(self, stage: Stage) -> BufferPolicy:
        """How many batches wait for the model."""
        shapes = stage.shapes(self.recipe, self.plan.layout.shapes)
        largest = max(stage.batch_bytes(self.recipe, shape) for shape in shapes)
        return BufferPolicy.of(self.recipe.devices.buffer_size, self.readers, largest * len(self.placement.share))

    def features(self, codecs: Sequence[Optional[Codec]]) -> List[Features]:
        """The feature functions of every data device; `codecs` has the codec of each, where codes are wanted."""
        devices = self.placement.data_devices
        return [
            Features(
                self.recipe.audio,
                device,
                self.stats,
                codec,
                self.recipe.data.shapes == "relaxed",
                len(devices) > 1,  # work is divided by time, which only a device that is waited for has
            )
            for device, codec in zip(devices, codecs)
        ]


@attrs.frozen(kw_only=True, eq=False)
class HeldOut:
    """What a validation runs on: batches of one shape, the same every time."""

    shape: Shape
    order: BatchOrder
    source: BatchSource


def _nothing(first: StepBatches) -> None:
    """What most stages do before their first step."""


@attrs.frozen(kw_only=True, eq=False)
class StageSetup:
    """What one stage trains with."""

    context: TrainingContext
    stage: Stage
    trained: TrainableModel
    optimizer: AdamW
    order: BatchOrder
    sources: Sequence[RemoteBatchSource]  # one of each data device; a single one where features are cached
    remote_features: Makes  # what the workers of a service make
    held_out: HeldOut
    samples: Optional[Samples]  # None: another worker makes them
    feature_functions: Sequence[compat.Compiled]
    begin: Callable[[StepBatches], None] = _nothing  # with the batches of step 0, before it
    feature_devices: Sequence[FeatureDevice] = ()  # where there are several: how fast each is

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return self.stage.steps(self.context.recipe)

    @property
    def functions(self) -> List[compat.Compiled]:
        """Every compiled function but the training steps."""
        return [*self.feature_functions, *(self.samples.functions if self.samples else ())]

    def prefetcher(
        self, start: int, on_lost: Callable[[str, str], None], on_resized: Callable[[str], None]
    ) -> Prefetcher:
        """The batches from step `start` to the last, made ahead of the model."""
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
        """The batches of a validation, and over how many numbers each part of the loss is a mean, of all workers.

        An empty list when nothing that was held out can be read any more.
        """
        order, source = self.held_out.order, self.held_out.source
        batches = zip(*(order.batches(0, worker=replica) for replica in range(order.workers)))
        read = [source.read(some, number) for number, some in enumerate(batches)]
        counts = self.context.collectives.all_sum(np.array([one.counts for one in read]))
        return [(source.finish(one), count) for one, count in zip(read, counts) if count.any()]


def prepare_stage(context: TrainingContext, stage: Stage, needed: Mapping[str, Tensors]) -> StageSetup:
    """Build a stage and warm it up: trace what its data devices compute in every shape, and time them."""
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
    """The optimizer of a stage; to be called in the strategy's scope."""
    train = context.recipe.train
    schedule = Schedule.of(train, stage.learning_rate(context.recipe), stage.steps(context.recipe))
    variables = [weight.variable for weight in trainable_weights(trained).values()]
    return AdamW(variables, schedule, attrs.evolve(train, ema_decay=ema_decay))


def held_out_shapes(recipe: Recipe, split: Split, replicas: int = 1) -> ShapePlan:
    """One shape for all that is held out, so that a validation is one trace."""
    lengths, gpt = split.lengths, SIZES[recipe.model.size].gpt
    rows = max(1, min(HELD_ROWS, -(-len(lengths) // replicas)))
    return plan_shapes(lengths.text, lengths.frames, step_cost(gpt), rows, 1, TraceCost(0.0, 0.0))

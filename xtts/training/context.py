"""Rigs: everything one stage trains with comes together, from the recordings to the samples people listen to.

A rig is made when a stage is about to train. It has the stage and its optimizer, inside the strategy's scope, the
functions of the data device, and sources of batches, live or from what is kept on disk.
"""

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio.mel import MelSpec
from xtts.files import json_digest
from xtts.model.codec import Codec
from xtts.model.layers import variables_to_constants
from xtts.model.mel import transform_for
from xtts.pipeline.buffer import BufferPolicy, reader_count
from xtts.pipeline.codec_source import CodecSource
from xtts.pipeline.feature_builder import FeatureBuilder
from xtts.pipeline.features import Features, feature_functions
from xtts.pipeline.gpt_source import GptSource, GptStores
from xtts.pipeline.prefetcher import FeatureDevice, Prefetcher, StepBatches
from xtts.pipeline.service.client import Service
from xtts.pipeline.service.manifest import Makes
from xtts.pipeline.sources import BatchSource, RemoteBatchSource, seconds_per_batch, warm_up
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Dataset, Split
from xtts.planning.memory import batch_bytes
from xtts.planning.plan import Plan
from xtts.planning.shapes import Shape, ShapePlan, TraceCost, plan_shapes
from xtts.planning.sizes import SIZES, step_cost
from xtts.progress import ProgressBar
from xtts.recipe.schema import Recipe
from xtts.reporting.journal import Journal
from xtts.reporting.tensorboard import TensorBoard
from xtts.training.cluster.collectives import Collectives
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.placement import Placement
from xtts.training.samples import CodecSamples, GptSamples
from xtts.training.stages import CodecStage, GptStage, Stage, trainable
from xtts.weights import assignment, model_folder
from xtts.weights.layout import PREFIXES

MOST_HELD = 512  # utterances that a validation takes at most
HELD_ROWS = 8  # in a batch of it


@attrs.frozen(eq=False)
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
    say: Callable[[str], None]
    collectives: Collectives
    service: Optional[Service] = None  # that reads and makes features, elsewhere

    @property
    def held_out(self) -> Split:
        """What is validated and sampled: what is trained on, where nothing was held out."""
        return self.dataset.held_out if len(self.dataset.held_out.lengths) else self.dataset.train

    @property
    def is_cached(self) -> bool:
        asked = self.recipe.data.features
        return asked == "cached" or (asked == "auto" and not self.placement.is_dual and self.service is None)

    @property
    def dynamic_shapes(self) -> bool:
        """Whether batches are as long as their longest member, and no function may be traced for a length."""
        return self.recipe.data.shapes == "relaxed"

    @property
    def readers(self) -> int:
        return reader_count(self.recipe.data.workers)

    def reserve(self, stage: str, shapes: Sequence[Shape]) -> BufferPolicy:
        """How many batches wait for the model."""
        rows = max(batch_bytes(self.recipe, shape, stage) for shape in shapes)  # type: ignore[arg-type]
        return BufferPolicy.of(self.recipe.devices.buffer_size, self.readers, rows * len(self.placement.share))

    def features(self, codecs: Sequence[Optional[Codec]]) -> List[Features]:
        """The functions of every data device."""
        devices, audio = self.placement.data_devices, self.recipe.audio
        waits = len(devices) > 1
        return [
            Features(audio, device, self.stats, codec, self.dynamic_shapes, waits)
            for device, codec in zip(devices, codecs)
        ]


@attrs.define(eq=False)
class StageSetup:
    """What a stage trains with."""

    context: TrainingContext
    stage: Stage
    optimizer: AdamW
    order: BatchOrder
    source: RemoteBatchSource
    makes: Makes  # what workers of a service are to make
    held_shape: Shape
    held_order: BatchOrder
    held_source: BatchSource
    sample: Any  # called with a step
    functions: List[compat.Compiled]  # other than the steps
    begin: Callable[[StepBatches], None]
    further: Sequence[BatchSource] = ()  # the same of the other data devices, where there are any
    makers: List[FeatureDevice] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        for source, order in ((self.source, self.order), (self.held_source, self.held_order)):
            warm_up(source, order, self.stage.dynamic_shapes)
        for source in self.further:
            warm_up(source, self.order, self.stage.dynamic_shapes)
        devices, sources = self.context.placement.data_devices, (self.source, *self.further)
        for device, source in zip(devices, sources if self.further else ()):
            seconds = seconds_per_batch(source, self.order, self.stage.dynamic_shapes)
            self.makers.append(FeatureDevice(device, source.finish, seconds))

    def feed(self, lost: Callable[[str, str], None], told: Callable[[str], None], start: int, stop: int) -> Prefetcher:
        context, source, makers = self.context, self.source, self.makers
        accumulated, options = context.recipe.train.gradient_accumulation_steps, {}
        if context.service is not None:
            numbers = range(start * accumulated, stop * accumulated)
            source = served = context.service.source(self.order, self.source, numbers, self.makes)
            makers, options = [], {"close": served.close}
        return Prefetcher(
            self.order,
            source,
            start,
            stop,
            accumulated=accumulated,
            buffer_size=context.reserve(self.stage.name, self.stage.shapes),
            workers=context.readers,
            lost=lost,
            makers=makers,
            told=told,
            **options,
        )

    def held_out(self) -> List[Tuple[Dict[str, Any], np.ndarray]]:
        """The batches of a validation, the same every time, and what each part of the loss is a mean of in all.

        None when nothing that was held out can be read any more: nothing has no loss.
        """
        workers = range(self.held_order.workers)
        batches = zip(*(self.held_order.batches(0, worker=worker) for worker in workers))
        rows = [self.held_source.read(some, number) for number, some in enumerate(batches)]
        counts = self.context.collectives.all_sum(np.array([one.counts for one in rows]))
        return [(self.held_source.finish(one), count) for one, count in zip(rows, counts) if count.any()]


def codec_setup(context: TrainingContext, published: Optional[Mapping[str, np.ndarray]] = None) -> StageSetup:
    """Everything the codec trains with; `published` are weights to start from, where a codec is among them."""
    recipe, replicas = context.recipe, context.placement.replicas
    prefix = PREFIXES["codec"]
    own = {name: tensor for name, tensor in (published or {}).items() if name.startswith(prefix)}
    with context.strategy.scope():
        stage = CodecStage(recipe)
        if own:
            assignment.load_weights(stage.model, own, prefix)
        # No average of weights: the codebook follows the encoder as it is.
        optimizer = _optimizer(recipe, stage, ema_decay=0.0)
    every_device = context.features([None] * len(context.placement.data_devices))
    features = every_device[0]
    shape, share, is_chief = stage.shapes[0], context.placement.share, context.collectives.is_chief
    held_shape = attrs.evolve(shape, batch_size=min(HELD_ROWS, shape.batch_size))

    def sources(part: Split, layout: ShapePlan, is_random: bool) -> List[CodecSource]:
        if context.is_cached:
            with context.collectives.chief_first(), ProgressBar("making mels") as bar:
                store = FeatureBuilder(recipe, part, layout, features).mels(json_digest(context.stats.tolist()), bar)
            return [CodecSource(recipe, part, features, store, is_random, share)]
        return [CodecSource(recipe, part, own, None, is_random, share) for own in every_device]

    def begin(work: StepBatches) -> None:
        if own:  # it has a codebook
            return
        mel, lengths = (context.collectives.all_gather(work.batches[0][name]) for name in ("mel", "lengths"))
        with context.strategy.scope():
            stage.model.begin(tf.convert_to_tensor(mel), tf.convert_to_tensor(lengths), recipe.run.seed)
        book = stage.model.codebook
        context.collectives.broadcast_variables([book.embed, book.embed_avg, book.cluster_size])

    every = np.minimum(context.plan.layout.shape_of, 0)  # one shape for all, and what was set aside stays so
    held = context.held_out
    held_every = np.zeros(min(len(held.lengths), MOST_HELD), np.int16)
    source, *further = sources(context.dataset.train, context.plan.layout, is_random=True)
    samples = CodecSamples(
        Journal(context.folder), MelSpec.of(recipe.audio), context.stats, "codec", context.placement.model_devices[0]
    )
    if is_chief:
        samples.prepare(recipe, held, features, stage.model)
    return StageSetup(
        context,
        stage,
        optimizer,
        BatchOrder(every, (shape.batch_size,), recipe.run.seed, replicas),
        source,
        {"mel": ("waves", feature_functions(recipe.audio, context.stats, None, transform_for("CPU"))["mel"])},
        held_shape,
        BatchOrder(held_every, (held_shape.batch_size,), recipe.run.seed, replicas),
        sources(held, held_out_shapes(recipe, held, replicas), is_random=False)[0],
        samples if is_chief else lambda step: None,
        [*(function for own in every_device for function in own.functions), *(samples.functions if is_chief else ())],
        begin,
        further,
    )


def gpt_setup(
    context: TrainingContext, codecs: Sequence[Codec], codec_digest: str, published: Optional[Mapping[str, np.ndarray]]
) -> StageSetup:
    """Everything the GPT trains with: a codec on each data device, and perhaps `published` weights to start from."""
    recipe, dataset, shapes = context.recipe, context.dataset, context.plan.layout.shapes
    use_stop_token = model_folder.is_published(recipe.model.weights)
    pace = context.plan.pace if published is None else None
    with context.strategy.scope():
        stage = GptStage(recipe, dataset.tokenizer, shapes, _text_rows(published), use_stop_token, pace)
        if published is not None:
            _load_gpt(stage, published, recipe.run.seed)
        optimizer = _optimizer(recipe, stage, recipe.train.ema_decay)
    every_device = context.features(codecs)
    features, share, is_chief = every_device[0], context.placement.share, context.collectives.is_chief

    def sources(part: Split, layout: ShapePlan, is_random: bool, dynamic_shapes: bool = False) -> List[GptSource]:
        stores = None
        if context.is_cached:
            filling, about = FeatureBuilder(recipe, part, layout, features), json_digest(context.stats.tolist())
            with context.collectives.chief_first(), ProgressBar("making codes") as bar:
                codes = filling.codes(f"{about} {codec_digest}", bar)
            with context.collectives.chief_first(), ProgressBar("making reference mels") as bar:
                stores = GptStores(codes, filling.references(about, bar))
        return [
            GptSource(recipe, part, dataset.tokenizer, layout.shapes, own, stores, is_random, dynamic_shapes, share)
            for own in every_device[: 1 if stores else None]
        ]

    held = context.held_out
    held_shapes = held_out_shapes(recipe, held, context.placement.replicas)
    samples = GptSamples(
        Journal(context.folder), MelSpec.of(recipe.audio), context.stats, "gpt", context.placement.model_devices[0]
    )
    if is_chief:
        samples.prepare(recipe, held, dataset.tokenizer, features, stage.model, codecs[0])
    held_shape = held_shapes.shapes[0]
    source, *further = sources(
        dataset.train, context.plan.layout, is_random=True, dynamic_shapes=context.dynamic_shapes
    )
    return StageSetup(
        context,
        stage,
        optimizer,
        context.plan.order,
        source,
        _made_of_gpt(context, codecs[0]),
        held_shape,
        BatchOrder(
            held_shapes.shape_of[:MOST_HELD], (held_shape.batch_size,), recipe.run.seed, context.placement.replicas
        ),
        sources(held, held_shapes, is_random=False)[0],
        samples if is_chief else lambda step: None,
        [*(function for own in every_device for function in own.functions), *(samples.functions if is_chief else ())],
        lambda work: None,
        further,
    )


def frozen_codecs(context: TrainingContext, tensors: Mapping[str, np.ndarray], prefix: str) -> List[Codec]:
    """A codec that does not train, on each data device; weights are as published after `prefix`."""
    recipe, codecs = context.recipe, []
    for device in context.placement.data_devices:
        with tf.device(device):
            codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, np.random.default_rng(0))
            assignment.load_weights(codec, {n: t for n, t in tensors.items() if n.startswith(prefix)}, prefix)
        codecs.append(codec)
    return codecs


def _made_of_gpt(context: TrainingContext, codec: Codec) -> Makes:
    """What the GPT's batches need of workers."""
    if context.service is None:
        return {}
    make = feature_functions(context.recipe.audio, context.stats, variables_to_constants(codec), transform_for("CPU"))
    return {"codes": ("waves", make["codes"]), "reference": ("reference_waves", make["reference_mel"])}


def _optimizer(recipe: Recipe, stage: Stage, ema_decay: float) -> AdamW:
    schedule = Schedule.of(recipe.train, recipe.learning_rate_of(stage.name), recipe.steps_of(stage.name))
    variables = [weight.variable for weight in trainable(stage).values()]
    return AdamW(variables, schedule, attrs.evolve(recipe.train, ema_decay=ema_decay))


def held_out_shapes(recipe: Recipe, part: Split, replicas: int = 1) -> ShapePlan:
    """One shape for all that is held out: a validation is one trace."""
    lengths, gpt = part.lengths, SIZES[recipe.model.size].gpt
    rows = max(1, min(HELD_ROWS, -(-len(lengths) // replicas)))
    return plan_shapes(lengths.text, lengths.frames, step_cost(gpt), rows, 1, TraceCost(0.0, 0.0))


def _text_rows(published: Optional[Mapping[str, np.ndarray]]) -> Optional[int]:
    return None if published is None else len(published[assignment.TEXT_ROWS[0]])


def _load_gpt(stage: GptStage, published: Mapping[str, np.ndarray], seed: int) -> None:
    """Published weights, with rows for tokens that only our vocabulary has."""
    prefix = PREFIXES["gpt"]
    own = {name: tensor for name, tensor in published.items() if name.startswith(prefix)}
    own = assignment.extend_vocabulary(own, stage.model.tokens.text, np.random.default_rng(seed))
    assignment.load_weights(stage.model, own, prefix)

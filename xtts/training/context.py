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
from xtts.files import digest
from xtts.model.codec import Codec
from xtts.model.layers import frozen
from xtts.model.mel import transform_for
from xtts.pipeline.buffer import Reserve, reader_count
from xtts.pipeline.features import Features, functions
from xtts.pipeline.prefetcher import Feed, Maker, Work
from xtts.pipeline.service.client import Service
from xtts.pipeline.service.manifest import Makes
from xtts.pipeline.sources import (
    CodecSource,
    Divided,
    Filling,
    GptSource,
    GptStores,
    Source,
    seconds_a_batch,
    try_shapes,
)
from xtts.planning.batch_order import Order
from xtts.planning.dataset import Material, Part
from xtts.planning.memory import batch_bytes
from xtts.planning.plan import Plan
from xtts.planning.shapes import Layout, Shape, Weighing, planned
from xtts.planning.sizes import SIZES, cost
from xtts.progress import Bar
from xtts.recipe.schema import Recipe
from xtts.reporting.journal import Journal
from xtts.reporting.tensorboard import TensorBoard
from xtts.training.cluster.collectives import Crew
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.placement import Placement
from xtts.training.samples import CodecSamples, GptSamples
from xtts.training.stages import CodecStage, GptStage, Stage, trainable
from xtts.weights import importing
from xtts.weights.layout import PREFIXES

MOST_HELD = 512  # utterances that a validation takes at most
HELD_ROWS = 8  # in a batch of it


@attrs.frozen(eq=False)
class Session:
    """One run in one process: what its stages share."""

    recipe: Recipe
    folder: Path
    material: Material
    plan: Plan
    placement: Placement
    strategy: Any
    stats: np.ndarray  # what mels are divided by, [n_mels]
    board: TensorBoard
    say: Callable[[str], None]
    crew: Crew
    service: Optional[Service] = None  # that reads and makes features, elsewhere

    @property
    def held_out(self) -> Part:
        """What is validated and sampled: what is trained on, where nothing was held out."""
        return self.material.held_out if len(self.material.held_out.lengths) else self.material.train

    @property
    def is_cached(self) -> bool:
        asked = self.recipe.data.features
        return asked == "cached" or (asked == "auto" and not self.placement.is_dual and self.service is None)

    @property
    def is_free(self) -> bool:
        """Whether batches are as long as their longest member, and no function may be traced for a length."""
        return self.recipe.data.shapes == "relaxed"

    @property
    def readers(self) -> int:
        return reader_count(self.recipe.data.workers)

    def reserve(self, stage: str, shapes: Sequence[Shape]) -> Reserve:
        """How many batches wait for the model."""
        rows = max(batch_bytes(self.recipe, shape, stage) for shape in shapes)  # type: ignore[arg-type]
        return Reserve.of(self.recipe.devices.buffer_size, self.readers, rows * len(self.placement.share))

    def features(self, codecs: Sequence[Optional[Codec]]) -> List[Features]:
        """The functions of every data device."""
        devices, audio = self.placement.data_devices, self.recipe.audio
        waits = len(devices) > 1
        return [
            Features(audio, device, self.stats, codec, self.is_free, waits) for device, codec in zip(devices, codecs)
        ]


@attrs.define(eq=False)
class Rig:
    """What a stage trains with."""

    session: Session
    stage: Stage
    optimizer: AdamW
    order: Order
    source: Divided
    makes: Makes  # what workers of a service are to make
    held_shape: Shape
    held_order: Order
    held_source: Source
    sample: Any  # called with a step
    functions: List[compat.Compiled]  # other than the steps
    begin: Callable[[Work], None]
    further: Sequence[Source] = ()  # the same of the other data devices, where there are any
    makers: List[Maker] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        for source, order in ((self.source, self.order), (self.held_source, self.held_order)):
            try_shapes(source, order, self.stage.is_free)
        for source in self.further:
            try_shapes(source, self.order, self.stage.is_free)
        devices, sources = self.session.placement.data_devices, (self.source, *self.further)
        for device, source in zip(devices, sources if self.further else ()):
            seconds = seconds_a_batch(source, self.order, self.stage.is_free)
            self.makers.append(Maker(device, source.finish, seconds))

    def feed(self, lost: Callable[[str, str], None], told: Callable[[str], None], start: int, stop: int) -> Feed:
        session, source, makers = self.session, self.source, self.makers  # type: Session, Source, List[Maker]
        accumulated, options = session.recipe.train.gradient_accumulation_steps, {}
        if session.service is not None:
            numbers = range(start * accumulated, stop * accumulated)
            source = served = session.service.source(self.order, self.source, numbers, self.makes)
            makers, options = [], {"close": served.close}
        return Feed(
            self.order,
            source,
            start,
            stop,
            accumulated=accumulated,
            buffer_size=session.reserve(self.stage.name, self.stage.shapes),
            workers=session.readers,
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
        counts = self.session.crew.sum(np.array([one.counts for one in rows]))
        return [(self.held_source.finish(one), count) for one, count in zip(rows, counts) if count.any()]


def codec_rig(session: Session, published: Optional[Mapping[str, np.ndarray]] = None) -> Rig:
    """Everything the codec trains with; `published` are weights to start from, where a codec is among them."""
    recipe, replicas = session.recipe, session.placement.replicas
    prefix = PREFIXES["codec"]
    own = {name: tensor for name, tensor in (published or {}).items() if name.startswith(prefix)}
    with session.strategy.scope():
        stage = CodecStage(recipe)
        if own:
            importing.load_into(stage.model, own, prefix)
        # No average of weights: the codebook follows the encoder as it is.
        optimizer = _optimizer(recipe, stage, ema_decay=0.0)
    every_device = session.features([None] * len(session.placement.data_devices))
    features = every_device[0]
    shape, share, is_chief = stage.shapes[0], session.placement.share, session.crew.is_chief
    held_shape = attrs.evolve(shape, batch_size=min(HELD_ROWS, shape.batch_size))

    def sources(part: Part, layout: Layout, is_random: bool) -> List[CodecSource]:
        if session.is_cached:
            with session.crew.chief_first(), Bar("making mels") as bar:
                store = Filling(recipe, part, layout, features).mels(digest(session.stats.tolist()), bar)
            return [CodecSource(recipe, part, features, store, is_random, share)]
        return [CodecSource(recipe, part, own, None, is_random, share) for own in every_device]

    def begin(work: Work) -> None:
        if own:  # it has a codebook
            return
        mel, lengths = (session.crew.gathered(work.batches[0][name]) for name in ("mel", "lengths"))
        with session.strategy.scope():
            stage.model.begin(tf.convert_to_tensor(mel), tf.convert_to_tensor(lengths), recipe.run.seed)
        book = stage.model.codebook
        session.crew.spread([book.embed, book.embed_avg, book.cluster_size])

    every = np.minimum(session.plan.layout.shape_of, 0)  # one shape for all, and what was set aside stays so
    held = session.held_out
    held_every = np.zeros(min(len(held.lengths), MOST_HELD), np.int16)
    source, *further = sources(session.material.train, session.plan.layout, is_random=True)
    samples = CodecSamples(
        Journal(session.folder), MelSpec.of(recipe.audio), session.stats, "codec", session.placement.model_devices[0]
    )
    if is_chief:
        samples.prepare(recipe, held, features, stage.model)
    return Rig(
        session,
        stage,
        optimizer,
        Order(every, (shape.batch_size,), recipe.run.seed, replicas),
        source,
        {"mel": ("waves", functions(recipe.audio, session.stats, None, transform_for("CPU"))["mel"])},
        held_shape,
        Order(held_every, (held_shape.batch_size,), recipe.run.seed, replicas),
        sources(held, held_layout(recipe, held, replicas), is_random=False)[0],
        samples if is_chief else lambda step: None,
        [*(function for own in every_device for function in own.functions), *(samples.functions if is_chief else ())],
        begin,
        further,
    )


def gpt_rig(
    session: Session, codecs: Sequence[Codec], codec_digest: str, published: Optional[Mapping[str, np.ndarray]]
) -> Rig:
    """Everything the GPT trains with: a codec on each data device, and perhaps `published` weights to start from."""
    recipe, material, shapes = session.recipe, session.material, session.plan.layout.shapes
    reads_stop = importing.is_published(recipe.model.weights)
    pace = session.plan.pace if published is None else None
    with session.strategy.scope():
        stage = GptStage(recipe, material.tokenizer, shapes, _text_rows(published), reads_stop, pace)
        if published is not None:
            _load_gpt(stage, published, recipe.run.seed)
        optimizer = _optimizer(recipe, stage, recipe.train.ema_decay)
    every_device = session.features(codecs)
    features, share, is_chief = every_device[0], session.placement.share, session.crew.is_chief

    def sources(part: Part, layout: Layout, is_random: bool, is_free: bool = False) -> List[GptSource]:
        stores = None
        if session.is_cached:
            filling, about = Filling(recipe, part, layout, features), digest(session.stats.tolist())
            with session.crew.chief_first(), Bar("making codes") as bar:
                codes = filling.codes(f"{about} {codec_digest}", bar)
            with session.crew.chief_first(), Bar("making reference mels") as bar:
                stores = GptStores(codes, filling.references(about, bar))
        return [
            GptSource(recipe, part, material.tokenizer, layout.shapes, own, stores, is_random, is_free, share)
            for own in every_device[: 1 if stores else None]
        ]

    held = session.held_out
    held_shapes = held_layout(recipe, held, session.placement.replicas)
    samples = GptSamples(
        Journal(session.folder), MelSpec.of(recipe.audio), session.stats, "gpt", session.placement.model_devices[0]
    )
    if is_chief:
        samples.prepare(recipe, held, material.tokenizer, features, stage.model, codecs[0])
    held_shape = held_shapes.shapes[0]
    source, *further = sources(material.train, session.plan.layout, is_random=True, is_free=session.is_free)
    return Rig(
        session,
        stage,
        optimizer,
        session.plan.order,
        source,
        _made_of_gpt(session, codecs[0]),
        held_shape,
        Order(held_shapes.shape_of[:MOST_HELD], (held_shape.batch_size,), recipe.run.seed, session.placement.replicas),
        sources(held, held_shapes, is_random=False)[0],
        samples if is_chief else lambda step: None,
        [*(function for own in every_device for function in own.functions), *(samples.functions if is_chief else ())],
        lambda work: None,
        further,
    )


def frozen_codecs(session: Session, tensors: Mapping[str, np.ndarray], prefix: str) -> List[Codec]:
    """A codec that does not train, on each data device; weights are as published after `prefix`."""
    recipe, codecs = session.recipe, []
    for device in session.placement.data_devices:
        with tf.device(device):
            codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, np.random.default_rng(0))
            importing.load_into(codec, {n: t for n, t in tensors.items() if n.startswith(prefix)}, prefix)
        codecs.append(codec)
    return codecs


def _made_of_gpt(session: Session, codec: Codec) -> Makes:
    """What the GPT's batches need of workers."""
    if session.service is None:
        return {}
    make = functions(session.recipe.audio, session.stats, frozen(codec), transform_for("CPU"))
    return {"codes": ("waves", make["codes"]), "reference": ("reference_waves", make["reference_mel"])}


def _optimizer(recipe: Recipe, stage: Stage, ema_decay: float) -> AdamW:
    schedule = Schedule.of(recipe.train, recipe.learning_rate_of(stage.name), recipe.steps_of(stage.name))
    variables = [weight.variable for weight in trainable(stage).values()]
    return AdamW(variables, schedule, attrs.evolve(recipe.train, ema_decay=ema_decay))


def held_layout(recipe: Recipe, part: Part, replicas: int = 1) -> Layout:
    """One shape for all that is held out: a validation is one trace."""
    lengths, gpt = part.lengths, SIZES[recipe.model.size].gpt
    rows = max(1, min(HELD_ROWS, -(-len(lengths) // replicas)))
    return planned(lengths.text, lengths.frames, cost(gpt), rows, 1, Weighing(0.0, 0.0))


def _text_rows(published: Optional[Mapping[str, np.ndarray]]) -> Optional[int]:
    return None if published is None else len(published[importing.TEXT_ROWS[0]])


def _load_gpt(stage: GptStage, published: Mapping[str, np.ndarray], seed: int) -> None:
    """Published weights, with rows for tokens that only our vocabulary has."""
    prefix = PREFIXES["gpt"]
    own = {name: tensor for name, tensor in published.items() if name.startswith(prefix)}
    own = importing.extend_text(own, stage.model.tokens.text, np.random.default_rng(seed))
    importing.load_into(stage.model, own, prefix)

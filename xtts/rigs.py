"""Rigs: everything one stage trains with comes together, from the recordings to the samples people listen to.

A rig is made when a stage is about to train. It has the stage and its optimizer, inside the strategy's scope, the
functions of the data device, and sources of batches, live or from what is kept on disk.
"""

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat, weights
from xtts.batches import CodecSource, Filling, GptSource, GptStores, Source, try_shapes
from xtts.crew import Crew
from xtts.features import Features
from xtts.feed import Feed, Work, buffer_batches, reader_count
from xtts.inputs import digest
from xtts.journal import Journal
from xtts.material import Material, Part
from xtts.mel import MelSpec
from xtts.memory import batch_bytes
from xtts.model.codec import Codec
from xtts.names import PREFIXES
from xtts.optimizer import AdamW, Schedule
from xtts.order import Order
from xtts.placement import Placement
from xtts.plan import Plan
from xtts.progress import Bar
from xtts.recipe import Recipe
from xtts.samples import CodecSamples, GptSamples
from xtts.shapes import Layout, Shape, Weighing, planned
from xtts.sizes import SIZES, cost
from xtts.stages import CodecStage, GptStage, Stage, trainable
from xtts.tensorboard import TensorBoard

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

    @property
    def held_out(self) -> Part:
        """What is validated and sampled: what is trained on, where nothing was held out."""
        return self.material.held_out if len(self.material.held_out.lengths) else self.material.train

    @property
    def is_cached(self) -> bool:
        asked = self.recipe.data.features
        return asked == "cached" or (asked == "auto" and not self.placement.is_dual)

    @property
    def is_free(self) -> bool:
        """Whether batches are as long as their longest member, and no function may be traced for a length."""
        return self.recipe.data.shapes == "relaxed"

    @property
    def readers(self) -> int:
        return reader_count(self.recipe.data.workers)

    def buffer_size(self, stage: str, shapes: Sequence[Shape]) -> int:
        """Batches that wait for the model."""
        rows = max(batch_bytes(self.recipe, shape, stage) for shape in shapes)  # type: ignore[arg-type]
        return buffer_batches(self.recipe.devices.buffer_size, self.readers, rows * len(self.placement.share))


@attrs.define(eq=False)
class Rig:
    """What a stage trains with."""

    session: Session
    stage: Stage
    optimizer: AdamW
    order: Order
    source: Source
    held_shape: Shape
    held_order: Order
    held_source: Source
    sample: Any  # called with a step
    functions: List[compat.Compiled]  # other than the steps
    begin: Callable[[Work], None]

    def __attrs_post_init__(self) -> None:
        for source, order in ((self.source, self.order), (self.held_source, self.held_order)):
            try_shapes(source, order, self.stage.is_free)

    def feed(self, lost: Callable[[str, str], None], start: int, stop: int) -> Feed:
        session = self.session
        return Feed(
            self.order,
            self.source,
            start,
            stop,
            accumulated=session.recipe.train.gradient_accumulation_steps,
            buffer_size=session.buffer_size(self.stage.name, self.stage.shapes),
            workers=session.readers,
            lost=lost,
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
            weights.load_into(stage.model, own, prefix)
        # No average of weights: the codebook follows the encoder as it is.
        optimizer = _optimizer(recipe, stage, ema_decay=0.0)
    features = Features(recipe.audio, session.placement.data_device, session.stats, is_free=session.is_free)
    shape = stage.shapes[0]
    held_shape = attrs.evolve(shape, batch_size=min(HELD_ROWS, shape.batch_size))

    def source(part: Part, layout: Layout, is_random: bool) -> CodecSource:
        store = None
        if session.is_cached:
            with session.crew.chief_first(), Bar("making mels") as bar:
                store = Filling(recipe, part, layout, features).mels(digest(session.stats.tolist()), bar)
        return CodecSource(recipe, part, features, store, is_random, session.placement.share)

    train = source(session.material.train, session.plan.layout, is_random=True)

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
    samples = CodecSamples(
        Journal(session.folder), MelSpec.of(recipe.audio), session.stats, "codec", session.placement.model_devices[0]
    )
    if session.crew.is_chief:
        samples.prepare(recipe, held, features, stage.model)
    return Rig(
        session,
        stage,
        optimizer,
        Order(every, (shape.batch_size,), recipe.run.seed, replicas),
        train,
        held_shape,
        Order(held_every, (held_shape.batch_size,), recipe.run.seed, replicas),
        source(held, held_layout(recipe, held, replicas), is_random=False),
        samples if session.crew.is_chief else lambda step: None,
        [*features.functions, *(samples.functions if session.crew.is_chief else [])],
        begin,
    )


def gpt_rig(session: Session, codec: Codec, codec_digest: str, published: Optional[Mapping[str, np.ndarray]]) -> Rig:
    """Everything the GPT trains with; `published` are weights to start from, under their published names."""
    recipe, material = session.recipe, session.material
    with session.strategy.scope():
        stage = GptStage(recipe, material.tokenizer, session.plan.layout.shapes, _text_rows(published))
        if published is not None:
            _load_gpt(stage, published, recipe.run.seed)
        optimizer = _optimizer(recipe, stage, recipe.train.ema_decay)
    features = Features(recipe.audio, session.placement.data_device, session.stats, codec, session.is_free)

    def source(part: Part, layout: Layout, is_random: bool, is_free: bool = False) -> GptSource:
        stores = None
        if session.is_cached:
            filling, about = Filling(recipe, part, layout, features), digest(session.stats.tolist())
            with session.crew.chief_first(), Bar("making codes") as bar:
                codes = filling.codes(f"{about} {codec_digest}", bar)
            with session.crew.chief_first(), Bar("making reference mels") as bar:
                stores = GptStores(codes, filling.references(about, bar))
        share = session.placement.share
        return GptSource(recipe, part, material.tokenizer, layout.shapes, features, stores, is_random, is_free, share)

    held = session.held_out
    held_shapes = held_layout(recipe, held, session.placement.replicas)
    samples = GptSamples(
        Journal(session.folder), MelSpec.of(recipe.audio), session.stats, "gpt", session.placement.model_devices[0]
    )
    if session.crew.is_chief:
        samples.prepare(recipe, held, material.tokenizer, features, stage.model, codec)
    held_shape = held_shapes.shapes[0]
    return Rig(
        session,
        stage,
        optimizer,
        session.plan.order,
        source(material.train, session.plan.layout, is_random=True, is_free=session.is_free),
        held_shape,
        Order(held_shapes.shape_of[:MOST_HELD], (held_shape.batch_size,), recipe.run.seed, session.placement.replicas),
        source(held, held_shapes, is_random=False),
        samples if session.crew.is_chief else lambda step: None,
        [*features.functions, *(samples.functions if session.crew.is_chief else [])],
        lambda work: None,
    )


def frozen_codec(session: Session, tensors: Mapping[str, np.ndarray], prefix: str) -> Codec:
    """A codec that does not train, on the data device; weights are as published after `prefix`."""
    recipe = session.recipe
    with tf.device(session.placement.data_device):
        codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, np.random.default_rng(0))
        weights.load_into(codec, {n: t for n, t in tensors.items() if n.startswith(prefix)}, prefix)
    return codec


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
    return None if published is None else len(published[weights.TEXT_ROWS[0]])


def _load_gpt(stage: GptStage, published: Mapping[str, np.ndarray], seed: int) -> None:
    """Published weights, with rows for tokens that only our vocabulary has."""
    prefix = PREFIXES["gpt"]
    own = {name: tensor for name, tensor in published.items() if name.startswith(prefix)}
    own = weights.extend_text(own, stage.model.tokens.text, np.random.default_rng(seed))
    weights.load_into(stage.model, own, prefix)

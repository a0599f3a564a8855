"""The codec stage: trains the discrete VAE, which encodes mels as codes, one for every four frames.

It trains on segments of one length, so it has one shape and one trace.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.files import json_digest
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Split
from xtts.planning.memory import COPIES, FLOAT, mel_floats
from xtts.planning.shapes import Shape, ShapePlan, codec_shape
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES, ModelSize
from xtts.progress import ProgressBar
from xtts.recipe.schema import Recipe
from xtts.training.stages.samples import MAX_SAMPLES, SampleWriter
from xtts.training.stages.stage import Batch, Stage, StageLosses, StepPiece, Tensor, Tensors
from xtts.weights import assignment

if TYPE_CHECKING:
    from xtts.compat import Compiled
    from xtts.model.codec import Codec, Pass
    from xtts.pipeline.codec_source import CodecSource
    from xtts.pipeline.features import Features
    from xtts.training.context import StageSetup, TrainingContext


class CodecStage(Stage):
    """Training of the codec."""

    name: ClassVar[str] = "codec"
    section: ClassVar[str] = "codec"
    has_planned_shapes: ClassVar[bool] = False

    def shapes(self, recipe: Recipe, planned: Sequence[Shape]) -> Sequence[Shape]:
        return (codec_shape(recipe.codec),)

    def activations(self, recipe: Recipe, size: ModelSize, text_tokens: int, shape: Shape) -> int:
        codec, codes = size.codec, shape.mel_frames // FRAMES_PER_CODE
        hidden, wide = codec.hidden, 2 * codec.hidden
        encoder = 2 * (2 * codes * hidden + codes * wide)  # each convolution's output before and after its ReLU
        blocks = 2 * codec.blocks * 6 * codes * wide  # three convolutions, two ReLUs and a sum
        lookup = COPIES * codes * codec.codes + 4 * codes * codec.code_width
        decoder = 2 * codes * 3 * wide + 4 * codes * (wide + 2 * hidden)  # upsampled, convolved, rectified
        mels = 4 * shape.mel_frames * recipe.audio.n_mels  # input, output, their difference and its gradient
        return FLOAT * shape.batch_size * (encoder + blocks + lookup + decoder + mels)

    def feature_bytes(self, recipe: Recipe, size: ModelSize, shape: Shape) -> int:
        return FLOAT * shape.batch_size * mel_floats(recipe.audio, shape.mel_frames, recipe.audio.n_fft)

    def batch_bytes(self, recipe: Recipe, shape: Shape) -> int:
        """Mels and lengths."""
        return FLOAT * shape.batch_size * (shape.mel_frames * recipe.audio.n_mels + 1)

    def build(self, context: "TrainingContext", needed: Mapping[str, Tensors]) -> "StageSetup":
        import tensorflow as tf

        from xtts.model.mel import transform_for
        from xtts.pipeline.features import feature_functions
        from xtts.training.context import HELD_ROWS, MAX_HELD_OUT, HeldOut, StageSetup, held_out_shapes, make_optimizer

        recipe, replicas, collectives = context.recipe, context.placement.replicas, context.collectives
        published = self.own_weights(context.published)
        with context.strategy.scope():
            trained = TrainableCodec(recipe, is_loaded=bool(published))
            if published:
                assignment.load_weights(trained.model, published, self.prefix)
            # No running average of the weights: the codebook follows the encoder's current weights.
            optimizer = make_optimizer(context, self, trained, ema_decay=0.0)
        features = context.features([None] * len(context.placement.data_devices))
        shape = trained.shapes[0]
        held_shape = attrs.evolve(shape, batch_size=min(HELD_ROWS, shape.batch_size))

        def begin(first: Any) -> None:
            if published:  # published weights include the codebook
                return
            mel, lengths = (collectives.all_gather(first.batches[0][name]) for name in ("mel", "lengths"))
            with context.strategy.scope():
                trained.model.init_codebook(tf.convert_to_tensor(mel), tf.convert_to_tensor(lengths), recipe.run.seed)
            book = trained.model.codebook
            collectives.broadcast_variables([book.embed, book.embed_avg, book.cluster_size])

        every = np.minimum(context.plan.layout.shape_of, 0)  # one shape for all; -1 stays for those set aside
        held, held_layout = context.held_out, held_out_shapes(recipe, context.held_out, replicas)
        held_every = np.zeros(min(len(held.lengths), MAX_HELD_OUT), np.int16)
        samples = None
        if collectives.is_chief:
            samples = CodecSamples.prepare(context, SampleWriter.of(context, self.name), features[0], trained.model)
        mel = feature_functions(recipe.audio, context.stats, None, transform_for("CPU"))["mel"]
        return StageSetup(
            context=context,
            stage=self,
            trained=trained,
            optimizer=optimizer,
            order=BatchOrder(every, (shape.batch_size,), recipe.run.seed, replicas),
            sources=self._sources(context, context.dataset.train, context.plan.layout, features, is_random=True),
            remote_features={"mel": ("waves", mel)},
            held_out=HeldOut(
                shape=held_shape,
                order=BatchOrder(held_every, (held_shape.batch_size,), recipe.run.seed, replicas),
                source=self._sources(context, held, held_layout, features, is_random=False)[0],
            ),
            samples=samples,
            feature_functions=[function for own in features for function in own.functions],
            begin=begin,
        )

    def _sources(
        self,
        context: "TrainingContext",
        split: Split,
        layout: ShapePlan,
        features: Sequence["Features"],
        is_random: bool,
    ) -> "List[CodecSource]":
        """Sources of batches: of mels cached on disk, or computed live by each data device."""
        from xtts.pipeline.codec_source import CodecSource
        from xtts.pipeline.feature_builder import FeatureBuilder

        recipe, share = context.recipe, context.placement.share
        if not context.is_cached:
            return [CodecSource(recipe, split, own, None, is_random, share) for own in features]
        with context.collectives.chief_first(), ProgressBar("making mels") as bar:
            builder = FeatureBuilder(recipe, split, layout, features[0])
            store = builder.mels(json_digest(context.stats.tolist()), bar)
        return [CodecSource(recipe, split, features[0], store, is_random, share)]


class TrainableCodec:
    """The codec with its losses."""

    name = CodecStage.name
    dynamic_shapes = False  # segments have one length, whatever the length of the recordings
    parts: Tuple[str, ...] = ("reconstruction", "commitment")

    def __init__(self, recipe: Recipe, is_loaded: bool = False) -> None:
        """`is_loaded`: the caller will load the weights, so none are drawn."""
        import tensorflow as tf

        from xtts.model.codec import Codec

        self._recipe = recipe
        self._dtype = tf.as_dtype(recipe.train.precision)
        self.weights: Tuple[float, ...] = (1.0, recipe.codec.commitment)
        self.shapes: Tuple[Shape, ...] = (codec_shape(recipe.codec),)
        size = SIZES[recipe.model.size].codec
        random = None if is_loaded else np.random.default_rng([recipe.run.seed, 0])
        self.model = Codec(size, recipe.audio.n_mels, random)

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        import tensorflow as tf

        rows = shape.batch_size * replicas
        return {
            "mel": tf.TensorSpec([rows, shape.mel_frames, self._recipe.audio.n_mels], tf.float32),
            "lengths": tf.TensorSpec([rows], tf.int32),
        }

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        import tensorflow as tf

        from xtts.model.codec import code_lengths

        lengths = batch["lengths"]
        found = self.model.train_pass(tf.cast(batch["mel"], self._dtype), lengths)
        frames, codes = tf.reduce_sum(lengths), tf.reduce_sum(code_lengths(lengths))
        return StageLosses(
            tf.stack([found.reconstruction, found.commitment]), tf.cast(tf.stack([frames, codes]), tf.float32), found
        )

    def statistics(self, extra: "Pass", seed: Tensor, piece: StepPiece) -> List[Tensor]:
        book = self.model.codebook
        counted = book.statistics(extra.encoded, extra.codes, extra.inside)
        return [*counted, *book.draw(extra.encoded, seed[0], seed[1], extra.inside, piece.number, piece.of)]

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        codes, width = self.model.codebook.embed.shape
        shape = self.shapes[0]
        drawn = min(codes, pieces * shape.batch_size * shape.mel_frames // FRAMES_PER_CODE)
        return [(codes,), (codes, width), (drawn, width), (drawn,)]

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        import tensorflow as tf

        book = self.model.codebook
        averages = (book.embed, book.embed_avg, book.cluster_size)
        before = [tf.identity(average) for average in averages]
        counts, total, vectors, real = sums
        book.update(counts, total)
        book.revive(vectors, real)
        for average, old in zip(averages, before):
            average.assign(tf.where(is_good, tf.convert_to_tensor(average), old))


@attrs.frozen(kw_only=True, eq=False)
class CodecSamples:
    """Held-out recordings, encoded and decoded."""

    writer: SampleWriter
    device: str
    texts: List[str]
    frames: List[int]  # of each recording
    mels: Tensor  # [recordings, frames, n_mels]
    functions: List["Compiled"]

    @classmethod
    def prepare(
        cls, context: "TrainingContext", writer: SampleWriter, features: "Features", codec: "Codec"
    ) -> "CodecSamples":
        """Read some recordings, padded to one length, and trace the codec's function for them."""
        from xtts import compat
        from xtts.pipeline.features import samples_for
        from xtts.pipeline.recordings import Recordings

        split = context.held_out
        recordings = Recordings(split, context.recipe.audio.sample_rate)
        positions = range(min(MAX_SAMPLES, len(split.lengths)))
        frames = [int(split.lengths.frames[position]) for position in positions]
        samples = samples_for(-(-max(frames) // FRAMES_PER_CODE) * FRAMES_PER_CODE, writer.spec)
        waves, lengths = np.zeros((len(frames), samples), np.float32), np.zeros(len(frames), np.int32)
        for position in positions:
            wave = recordings.wave(position)
            waves[position, : len(wave)], lengths[position] = wave, len(wave)

        def encode_and_decode(mels: Tensor, lengths: Tensor) -> Tensor:
            codes = codec.encode(mels, lengths)
            return codec.decode(codes, (lengths + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE)

        made = cls(
            writer=writer,
            device=context.placement.model_devices[0],
            texts=[recordings.utterances[position].text for position in positions],
            frames=frames,
            mels=features.mel(waves, lengths),
            functions=[compat.compiled(encode_and_decode, autograph=False)],
        )
        made._decoded()
        return made

    def __call__(self, step: int) -> None:
        for number, (mel, frames) in enumerate(zip(self._decoded(), self.frames)):
            recorded = self.mels[number, :frames].numpy()
            self.writer.write(step, number, "codec", self.texts[number], mel[:frames], [recorded])

    def _decoded(self) -> np.ndarray:
        import tensorflow as tf

        with tf.device(self.device):
            mels: np.ndarray = self.functions[0](self.mels, tf.constant(self.frames, tf.int32)).numpy()
        return mels

"""What is trained: a recipe's sizes and a batch come in; the losses of a stage's parts, and how many numbers each is a
mean of, go out.

A stage is a model and its losses, and nothing about devices, steps or files. A loss that is a mean over the whole of a
step, whatever number of replicas and accumulated batches it is cut in, is the sum of its pieces' means, each weighed by
its share: `means * counts / totals`.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

import numpy as np
import tensorflow as tf

from xtts.model.codec import Codec, Pass, code_lengths
from xtts.model.gpt import TEXT_LOSS_WEIGHT, Gpt, Tokens
from xtts.model.layers import Weight, shape_list
from xtts.pipeline.features import reference_shape
from xtts.planning.shapes import Shape, codec_shape, joint_length
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES
from xtts.recipe.schema import Recipe
from xtts.text.tokenizer import Tokenizer

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Batch = Dict[str, Tensor]


class StageLosses(NamedTuple):
    """What a pass over one batch found; float32."""

    means: Tensor  # [parts]
    counts: Tensor  # [parts]
    extra: Any  # what `statistics` takes; tensors


class StepPiece(NamedTuple):
    """Which piece of a step a batch is. A step is cut in as many as it has replicas and accumulated batches."""

    number: Tensor
    of: int


class Stage(Protocol):
    """A model and its losses."""

    name: str
    parts: Tuple[str, ...]  # of the loss
    weights: Tuple[float, ...]  # of each part in the whole
    shapes: Tuple[Shape, ...]  # of its batches
    dynamic_shapes: (
        bool  # shapes are but the largest that batches have: one function takes all, of whatever rows and lengths
    )
    model: Any

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        """The specs of a batch's tensors, by name."""

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        """The losses of one replica's batch; None: of free lengths. `seed`: two integers, other ones for each batch."""

    def statistics(self, extra: Any, seed: Tensor, piece: StepPiece) -> List[Tensor]:
        """What moves weights that no gradient does, float32; it adds up over a step. `seed` is the step's."""

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        """Their shapes, in a step of so many pieces."""

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        """Move these weights by a whole step's statistics, unless the step was not good."""


class CodecStage:
    """Mels to codes and back."""

    name = "codec"
    dynamic_shapes = False  # its cuts have one length, whatever the recordings have
    parts: Tuple[str, ...] = ("reconstruction", "commitment")

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._dtype = recipe, tf.as_dtype(recipe.train.precision)
        self.weights: Tuple[float, ...] = (1.0, recipe.codec.commitment)
        self.shapes: Tuple[Shape, ...] = (codec_shape(recipe.codec),)
        size = SIZES[recipe.model.size].codec
        self.model = Codec(size, recipe.audio.n_mels, np.random.default_rng([recipe.run.seed, 0]))

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        rows = shape.batch_size * replicas
        return {
            "mel": tf.TensorSpec([rows, shape.mel_frames, self._recipe.audio.n_mels], tf.float32),
            "lengths": tf.TensorSpec([rows], tf.int32),
        }

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        lengths = batch["lengths"]
        found = self.model.train_pass(tf.cast(batch["mel"], self._dtype), lengths)
        frames, codes = tf.reduce_sum(lengths), tf.reduce_sum(code_lengths(lengths))
        return StageLosses(
            tf.stack([found.reconstruction, found.commitment]), tf.cast(tf.stack([frames, codes]), tf.float32), found
        )

    def statistics(self, extra: Pass, seed: Tensor, piece: StepPiece) -> List[Tensor]:
        book = self.model.codebook
        counted = book.statistics(extra.encoded, extra.codes, extra.inside)
        return [*counted, *book.draw(extra.encoded, seed[0], seed[1], extra.inside, piece.number, piece.of)]

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        codes, width = self.model.codebook.embed.shape
        shape = self.shapes[0]
        drawn = min(codes, pieces * shape.batch_size * shape.mel_frames // FRAMES_PER_CODE)
        return [(codes,), (codes, width), (drawn, width), (drawn,)]

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        book = self.model.codebook
        averages = (book.embed, book.embed_avg, book.cluster_size)
        before = [tf.identity(average) for average in averages]
        counts, total, vectors, real = sums
        book.update(counts, total)
        book.revive(vectors, real)
        for average, old in zip(averages, before):
            average.assign(tf.where(is_good, tf.convert_to_tensor(average), old))


class GptStage:
    """Text and a voice to codes."""

    name = "gpt"
    parts: Tuple[str, ...] = ("text", "codes")
    weights: Tuple[float, ...] = (TEXT_LOSS_WEIGHT, 1.0)

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        shapes: Tuple[Shape, ...],
        text_tokens: Optional[int] = None,
        use_stop_token: bool = False,
        pace: Optional[float] = None,
    ) -> None:
        self._recipe, self._dtype, self.shapes = recipe, tf.as_dtype(recipe.train.precision), shapes
        self.dynamic_shapes = recipe.data.shapes == "relaxed"
        size = SIZES[recipe.model.size]
        self.model = Gpt(
            size.gpt,
            tokens_of(recipe, tokenizer, text_tokens, use_stop_token),
            np.random.default_rng([recipe.run.seed, 1]),
            recipe.audio.n_mels,
            pace,
        )

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        rows, frames = shape.batch_size * replicas, self._reference_frames(shape)
        codes = shape.mel_frames // FRAMES_PER_CODE
        return {
            "text": tf.TensorSpec([rows, shape.text_length], tf.int32),
            "text_lengths": tf.TensorSpec([rows], tf.int32),
            "codes": tf.TensorSpec([rows, codes], tf.int32),
            "code_lengths": tf.TensorSpec([rows], tf.int32),
            "reference": tf.TensorSpec([rows, frames, self._recipe.audio.n_mels], tf.float32),
        }

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        found, _ = self.model.losses(
            batch["text"],
            batch["text_lengths"],
            batch["codes"],
            batch["code_lengths"],
            tf.cast(batch["reference"], self._dtype),
            joint_length=shape.joint_length if shape else _longest(batch),
            dropout=self._recipe.train.dropout if training else 0.0,
            seed=seed,
        )
        return StageLosses(tf.stack([found.text, found.codes]), tf.stack([found.text_tokens, found.code_tokens]), ())

    def statistics(self, extra: Any, seed: Tensor, piece: StepPiece) -> List[Tensor]:
        return []

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        return []

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        """Gradients move all there is."""

    def _reference_frames(self, shape: Shape) -> int:
        return reference_shape(self._recipe.audio, self._recipe.data.reference_seconds, shape.mel_frames)[1]


def _longest(batch: Batch) -> Tensor:
    """The joint length of the longest row; no less than what the text takes, where all rows are blank."""
    rows = joint_length(batch["text_lengths"], FRAMES_PER_CODE * batch["code_lengths"])
    return tf.maximum(tf.reduce_max(rows), joint_length(shape_list(batch["text"])[1], 0))


def tokens_of(
    recipe: Recipe, tokenizer: Tokenizer, text_tokens: Optional[int] = None, use_stop_token: bool = False
) -> Tokens:
    """How many tokens the GPT has: the tokenizer's, or more where published weights, which read [STOP], have more."""
    codec = SIZES[recipe.model.size].codec
    return Tokens(
        text=max(text_tokens or 0, tokenizer.size),
        audio=codec.audio_tokens,
        text_start=tokenizer.start,
        text_stop=tokenizer.stop,
        audio_start=codec.codes,
        audio_stop=codec.codes + 1,
        use_stop_token=use_stop_token,
    )


def trainable(stage: Stage) -> Dict[str, Weight]:
    """The weights that gradients move, by their published names."""
    return {name: weight for name, weight in stage.model.weights().items() if weight.variable.trainable}

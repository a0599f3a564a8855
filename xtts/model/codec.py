"""The codec, a discrete VAE: mels come in, codes go out, four frames a code; and mels come back from codes.

A batch has a static shape; `lengths` [B], in mel frames, says what of it is sound. What lies behind a clip's end is not
heard: the clip's codes, losses and share in the codebook are what they would be without padding, and a blank row
(length 0) counts for nothing. Without `lengths` everything is sound.

Gradients move the encoder and the decoder; the codebook follows the encoder by running averages. So a training step is
a pass, whose losses go to the optimizer, and then the codebook's turn, in numbers that are summed over all replicas:

    found = codec.train_pass(mel, lengths)
    codec.codebook.update(*codec.codebook.statistics(found.encoded, found.codes, found.inside))
    codec.codebook.revive(*codec.codebook.draw(found.encoded, seed, step, found.inside))
"""

from typing import Any, ClassVar, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from xtts.model.convolution import Conv1d
from xtts.model.layers import Axes, Module, Random, Tensor, shape_list
from xtts.planning import sizes

# In a published file, but no part of the codec: how often each code was used, kept for a loss that XTTS does not use.
NOT_WEIGHTS = ("discrete_loss.accumulator", "discrete_loss.accumulator_filled", "discrete_loss.accumulator_index")


def code_lengths(lengths: Tensor) -> Tensor:
    """How many codes so many mel frames become: a clip's last code may stand for fewer than four."""
    return (lengths + sizes.FRAMES_PER_CODE - 1) // sizes.FRAMES_PER_CODE


class Pass(NamedTuple):
    """What a training pass found. Losses are means over what is sound, float32, and 0 where nothing is."""

    reconstruction: Tensor  # []: squared error of the mel
    commitment: Tensor  # []: squared distance of what was encoded to its code
    decoded: Tensor  # [B, T, n_mels]
    encoded: Tensor  # [B, T/4, code_width]: before it was replaced by its code
    codes: Tensor  # [B, T/4]
    inside: Tensor  # [B, T/4], bool: whether a code stands for sound


class Codec(Module):
    """Mel [B, T, n_mels] to codes [B, T/4], rounded up, and codes to mel."""

    def __init__(self, size: sizes.CodecSize, n_mels: int, random: Random) -> None:
        super().__init__()
        hidden, wide, kernel = size.hidden, 2 * size.hidden, size.kernel
        self.encoder: List[Any] = [
            [Conv1d(n_mels, hidden, kernel, random, stride=2)],
            [Conv1d(hidden, wide, kernel, random, stride=2)],
            *[Residual(wide, kernel, random) for _ in range(size.blocks)],
            Conv1d(wide, size.code_width, 1, random),
        ]
        self.decoder: List[Any] = [
            Conv1d(size.code_width, wide, 1, random),
            *[Residual(wide, kernel, random) for _ in range(size.blocks)],
            [Upsample(wide, wide, kernel, random)],
            [Upsample(wide, hidden, kernel, random)],
            Conv1d(hidden, n_mels, 1, random),
        ]
        self.codebook = Codebook(size.codes, size.code_width, random)

    def encode(self, mel: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        """Codes [B, T/4], int32, of mel [B, T, n_mels]; codes behind a clip's end mean nothing."""
        return self.codebook.nearest(self.encoded(mel, lengths))

    def decode(self, codes: Tensor, lengths: Optional[Tensor] = None, dtype: Any = tf.float32) -> Tensor:
        """Mel [B, 4 T, n_mels] of codes [B, T]; `lengths` [B] are in codes here. Computed in `dtype`."""
        return self.decoded(tf.cast(self.codebook(codes), dtype), lengths)

    def init_codebook(self, mel: Tensor, lengths: Optional[Tensor] = None, seed: int = 0) -> None:
        """Initialise a fresh codebook from a batch of data, before the first step."""
        x = self.encoded(mel, lengths)
        inside = _valid_mask(x, _optional_code_lengths(lengths))
        self.codebook.revive(*self.codebook.draw(x, seed, 0, inside, limit=x.shape[0] * x.shape[1]))

    def train_pass(self, mel: Tensor, lengths: Optional[Tensor] = None) -> Pass:
        """There and back. The gradient goes through the codes as if they were what was encoded; no weight moves."""
        x = self.encoded(mel, lengths)
        codes = self.codebook.nearest(x)
        quantised = tf.stop_gradient(self.codebook(codes))
        through = x + tf.stop_gradient(tf.cast(quantised, x.dtype) - x)
        decoded = self.decoded(through, _optional_code_lengths(lengths))[:, : mel.shape[1]]
        inside = _valid_mask(x, _optional_code_lengths(lengths))
        reconstruction = _mean_squared_error(decoded, mel, _valid_mask(mel, lengths))
        return Pass(reconstruction, _mean_squared_error(quantised, x, inside), decoded, x, codes, inside)

    def encoded(self, mel: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        """[B, T, n_mels] to [B, T/4, code_width], what codes are the nearest to."""
        x = mel
        for (half,) in self.encoder[:2]:
            x = tf.nn.relu(half(_zero_padding(x, lengths)))
            lengths = None if lengths is None else (lengths + 1) // 2
        for block in self.encoder[2:-1]:
            x = block(x, lengths)
        return self.encoder[-1](x)

    def decoded(self, quantised: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        """[B, T, code_width] to [B, 4 T, n_mels]; `lengths` are in codes."""
        x = self.decoder[0](quantised)
        for block in self.decoder[1:-3]:
            x = block(x, lengths)
        for (double,) in self.decoder[-3:-1]:
            x = tf.nn.relu(double(_zero_padding(x, lengths)))
            lengths = None if lengths is None else 2 * lengths
        return self.decoder[-1](x)


class Residual(Module):
    """[B, T, width] to the same."""

    def __init__(self, width: int, kernel: int, random: Random) -> None:
        super().__init__()
        self.net = {  # the numbers between are those of ReLUs
            "0": Conv1d(width, width, kernel, random),
            "2": Conv1d(width, width, kernel, random),
            "4": Conv1d(width, width, 1, random),
        }

    def __call__(self, x: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        y = tf.nn.relu(self.net["0"](_zero_padding(x, lengths)))
        y = tf.nn.relu(self.net["2"](_zero_padding(y, lengths)))
        return self.net["4"](y) + x


class Upsample(Module):
    """[B, T, inputs] to [B, 2 T, outputs]: each frame twice, then a convolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, random: Random) -> None:
        super().__init__()
        self.conv = Conv1d(inputs, outputs, kernel, random)

    def __call__(self, x: Tensor) -> Tensor:
        return self.conv(tf.repeat(x, 2, axis=1))


class Codebook(Module):
    """Codes and their vectors, float32 whatever the rest computes in.

    `embed` is the mean of what each code stood for, over about the last hundred batches: `embed_avg` (sums) divided by
    `cluster_size` (counts). A code whose count, smoothed, is at most `DEAD` of the average code's is dead: `revive`
    replaces it by a vector drawn from the batch and gives it `GRACE` times that count, so that it has some twenty
    steps to be the nearest to others. A fresh codebook has counted nothing and is dead altogether, so the same rule
    begins it; there a code counts as one vector in one batch does. Codes for which a batch has no vector left stay
    dead and get theirs from the next.
    """

    AXES: ClassVar[Dict[str, Axes]] = {"embed": (1, 0), "embed_avg": (1, 0)}  # published: [code_width, codes]
    DECAY = 0.99
    SMOOTHING = 1e-5
    DEAD = 0.1
    GRACE = 1.25  # 22 steps until the count has shrunk to the threshold again

    def __init__(self, codes: int, width: int, random: Random) -> None:
        super().__init__()
        self._codes = codes
        shape = (codes, width)
        first = np.zeros(shape, np.float32) if random is None else random.standard_normal(shape).astype(np.float32)
        self.embed = _average_variable(first)
        self.embed_avg = _average_variable(first)
        self.cluster_size = _average_variable(np.zeros(codes, np.float32))

    def __call__(self, codes: Tensor) -> Tensor:
        """Codes [...] to vectors [..., width]."""
        return tf.gather(self.embed, codes)

    def nearest(self, x: Tensor) -> Tensor:
        """Of vectors [..., width] the nearest codes [...], int32; of two equally near ones the first."""
        wide = tf.cast(x, tf.float32)
        # |x - e|^2 without |x|^2, which all codes share, and halved.
        lengths = tf.reduce_sum(tf.square(self.embed), 1) / 2
        return tf.argmax(tf.matmul(wide, self.embed, transpose_b=True) - lengths, -1, output_type=tf.int32)

    def statistics(self, x: Tensor, codes: Tensor, inside: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """Of x [..., width] that became codes [...]: counts [codes], sums [codes, width]. Both add up over replicas."""
        rows, inside = _rows(x, inside)
        places = tf.reshape(codes, [-1])
        counts = tf.math.unsorted_segment_sum(inside, places, self._codes)
        return counts, tf.math.unsorted_segment_sum(rows * inside[:, None], places, self._codes)

    def update(self, counts: Tensor, sums: Tensor) -> None:
        """Moves the averages by one batch."""
        size = self.cluster_size * self.DECAY + counts * (1 - self.DECAY)
        total = self.embed_avg * self.DECAY + sums * (1 - self.DECAY)
        self.cluster_size.assign(size)
        self.embed_avg.assign(total)
        self.embed.assign(total / self._smoothed(size)[:, None])

    def draw(
        self,
        x: Tensor,
        seed: Tensor,
        step: Tensor,
        inside: Optional[Tensor] = None,
        replica: Tensor = 0,
        replicas: int = 1,
        limit: Optional[int] = None,
    ) -> Tuple[Tensor, Tensor]:
        """Vectors [n, width] drawn from x [..., width], and 1 or 0, [n]: whether it is one, or was drawn from padding.

        n is as many as there are codes, or `limit`. The same for the same (seed, step), and no vector twice. Both
        results add up over replicas: places are drawn from the batch of all of them, and a replica gives what lies in
        its part, so that their number changes nothing.
        """
        rows, inside = _rows(x, inside)
        here = rows.shape[0]
        lots = tf.random.stateless_uniform(  # whole numbers, so that nothing is rounded on the way
            [here * replicas], tf.stack([tf.cast(seed, tf.int32), tf.cast(step, tf.int32)]), None, None, tf.int32
        )
        places = tf.math.top_k(lots, min(limit or self._codes, here * replicas)).indices - replica * here
        near = tf.clip_by_value(places, 0, here - 1)
        real = tf.gather(inside, near) * tf.cast(tf.equal(near, places), tf.float32)
        return tf.gather(rows, near) * real[:, None], real

    def revive(self, vectors: Tensor, real: Tensor, dead: float = DEAD) -> None:
        """Gives dead codes the drawn vectors, in order, as many as are real."""
        size = tf.convert_to_tensor(self.cluster_size)
        average = tf.reduce_mean(size)
        is_dead = self._smoothed(size) <= dead * average
        turn = tf.cumsum(tf.cast(is_dead, tf.int32)) - 1  # which of the dead a code is
        count = tf.cast(tf.reduce_sum(real), tf.int32)
        order = tf.math.top_k(real, real.shape[0]).indices  # the real ones first
        chosen = tf.gather(vectors, tf.gather(order, tf.clip_by_value(turn, 0, real.shape[0] - 1)))
        is_given = is_dead & (turn < count)
        start = tf.maximum(self.GRACE * dead * average, 1 - self.DECAY)
        self.cluster_size.assign(tf.where(is_given, start, size))
        self.embed_avg.assign(tf.where(is_given[:, None], chosen * start, self.embed_avg))
        self.embed.assign(tf.where(is_given[:, None], chosen, self.embed))

    def _smoothed(self, size: Tensor) -> Tensor:
        total = tf.reduce_sum(size)
        return (size + self.SMOOTHING) / (total + self._codes * self.SMOOTHING) * total


def _average_variable(value: np.ndarray) -> Any:
    """A variable no gradient moves. Replicas that assign have all assigned the same: the first one's is taken."""
    return tf.Variable(value, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def _optional_code_lengths(lengths: Optional[Tensor]) -> Optional[Tensor]:
    return None if lengths is None else code_lengths(lengths)


def _valid_mask(x: Tensor, lengths: Optional[Tensor]) -> Tensor:
    """Which frames of x [B, T, C] are sound, [B, T]."""
    if lengths is None:
        return tf.ones(x.shape[:2], tf.bool)
    return tf.range(shape_list(x)[1])[None] < tf.cast(lengths, tf.int32)[:, None]


def _zero_padding(x: Tensor, lengths: Optional[Tensor]) -> Tensor:
    """x [B, T, C] with zeros behind each clip's end, where a convolution would find zeros without padding."""
    return x if lengths is None else tf.where(_valid_mask(x, lengths)[:, :, None], x, tf.zeros([], x.dtype))


def _mean_squared_error(ours: Tensor, theirs: Tensor, inside: Tensor) -> Tensor:
    """The mean squared difference of [B, T, C] over what is inside, [B, T]; padding may hold anything."""
    difference = tf.cast(ours, tf.float32) - tf.cast(theirs, tf.float32)
    squares = tf.square(tf.where(inside[:, :, None], difference, 0.0))
    count = tf.reduce_sum(tf.cast(inside, tf.float32)) * ours.shape[2]
    return tf.reduce_sum(squares) / tf.maximum(count, 1.0)


def _rows(x: Tensor, inside: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """[..., width] as [N, width], float32, and what of it counts as ones and zeros, [N]."""
    rows = tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]])
    ones = tf.ones([rows.shape[0]]) if inside is None else tf.cast(tf.reshape(inside, [-1]), tf.float32)
    return rows, ones

"""The codec: a discrete VAE that encodes mels as codes, one for every four frames, and decodes codes to mels.

A batch has a static shape; `lengths` [B], in mel frames, are the lengths of the clips in it. Padding has no effect: a
clip's codes, losses and codebook statistics are what they would be without it, and a blank row (length 0) counts for
nothing. Without `lengths` there is no padding.

The optimizer trains the encoder and the decoder; the codebook follows the encoder by running averages. So a training
step is a forward pass, whose losses are minimised, and then a codebook update with statistics summed over all replicas:

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


def code_lengths(lengths: Tensor) -> Tensor:
    """The number of codes for a number of mel frames; a clip's last code may stand for fewer than four."""
    return (lengths + sizes.FRAMES_PER_CODE - 1) // sizes.FRAMES_PER_CODE


class Pass(NamedTuple):
    """The result of a forward pass. Losses are means over valid frames, float32; 0 if there are none."""

    reconstruction: Tensor  # []: mean squared error of the mel
    commitment: Tensor  # []: mean squared distance of encoder outputs to their codebook vectors
    decoded: Tensor  # [B, T, n_mels]
    encoded: Tensor  # [B, T/4, code_width]: encoder outputs before quantisation
    codes: Tensor  # [B, T/4]
    inside: Tensor  # [B, T/4], bool: False for codes of padding


class Codec(Module):
    """Encodes mel [B, T, n_mels] as codes [B, T/4], rounded up, and decodes codes to mel."""

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
        """Codes [B, T/4], int32, of mel [B, T, n_mels]; codes past a clip's end are undefined."""
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
        """Encode and decode with straight-through gradients; updates no weight."""
        x = self.encoded(mel, lengths)
        codes = self.codebook.nearest(x)
        quantised = tf.stop_gradient(self.codebook(codes))
        through = x + tf.stop_gradient(tf.cast(quantised, x.dtype) - x)
        decoded = self.decoded(through, _optional_code_lengths(lengths))[:, : mel.shape[1]]
        inside = _valid_mask(x, _optional_code_lengths(lengths))
        reconstruction = _mean_squared_error(decoded, mel, _valid_mask(mel, lengths))
        return Pass(reconstruction, _mean_squared_error(quantised, x, inside), decoded, x, codes, inside)

    def encoded(self, mel: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        """Encoder outputs [B, T/4, code_width] of [B, T, n_mels], before quantisation."""
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
    """A residual block, [B, T, width] to the same."""

    def __init__(self, width: int, kernel: int, random: Random) -> None:
        super().__init__()
        self.net = {  # published numbering: 1 and 3 are ReLUs
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
    """The vector of each code, float32 whatever the compute dtype.

    `embed` is the mean of the vectors assigned to each code, over about the last hundred batches: `embed_avg` (sums)
    divided by `cluster_size` (counts). A code whose smoothed count is at most `DEAD` times the average code's is dead:
    `revive` replaces it by a vector drawn from the batch and sets its count to `GRACE` times that threshold, so that
    it has some twenty steps to attract vectors. All codes of a new codebook are dead, so it is initialised by the same
    rule, each count as if one vector of one batch had been assigned. When a batch has too few vectors, the remaining
    codes stay dead until the next.
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
        """The codes [...], int32, nearest to vectors [..., width]; of equally near ones the first."""
        wide = tf.cast(x, tf.float32)
        # Half of |x - e|^2, without |x|^2, which is the same for all codes.
        lengths = tf.reduce_sum(tf.square(self.embed), 1) / 2
        return tf.argmax(tf.matmul(wide, self.embed, transpose_b=True) - lengths, -1, output_type=tf.int32)

    def statistics(self, x: Tensor, codes: Tensor, inside: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """Counts [codes] and sums [codes, width] of the vectors x [..., width] assigned to each of `codes` [...].

        Both are to be summed over replicas.
        """
        rows, inside = _rows(x, inside)
        places = tf.reshape(codes, [-1])
        counts = tf.math.unsorted_segment_sum(inside, places, self._codes)
        return counts, tf.math.unsorted_segment_sum(rows * inside[:, None], places, self._codes)

    def update(self, counts: Tensor, sums: Tensor) -> None:
        """Update the running averages with one batch."""
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
        """Vectors [n, width] drawn from x [..., width] without replacement, and a mask [n]: 0 for those of padding.

        n is the number of codes, or `limit`. The draw depends only on (seed, step). Both results are to be summed over
        replicas: positions are drawn from the batch of all replicas, and each replica returns zeros for positions
        outside its own part, so that the number of replicas has no effect.
        """
        rows, inside = _rows(x, inside)
        count = rows.shape[0]
        lots = tf.random.stateless_uniform(  # integers, so that the order does not depend on rounding
            [count * replicas], tf.stack([tf.cast(seed, tf.int32), tf.cast(step, tf.int32)]), None, None, tf.int32
        )
        places = tf.math.top_k(lots, min(limit or self._codes, count * replicas)).indices - replica * count
        near = tf.clip_by_value(places, 0, count - 1)
        real = tf.gather(inside, near) * tf.cast(tf.equal(near, places), tf.float32)
        return tf.gather(rows, near) * real[:, None], real

    def revive(self, vectors: Tensor, real: Tensor, dead: float = DEAD) -> None:
        """Replace dead codes, in order, by the drawn vectors, as far as there are real ones."""
        size = tf.convert_to_tensor(self.cluster_size)
        average = tf.reduce_mean(size)
        is_dead = self._smoothed(size) <= dead * average
        turn = tf.cumsum(tf.cast(is_dead, tf.int32)) - 1  # index of a code among the dead ones
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
    """A non-trainable variable. All replicas assign equal values, so the first one's is used."""
    return tf.Variable(value, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def _optional_code_lengths(lengths: Optional[Tensor]) -> Optional[Tensor]:
    return None if lengths is None else code_lengths(lengths)


def _valid_mask(x: Tensor, lengths: Optional[Tensor]) -> Tensor:
    """Which frames of x [B, T, C] are not padding, [B, T]."""
    if lengths is None:
        return tf.ones(x.shape[:2], tf.bool)
    return tf.range(shape_list(x)[1])[None] < tf.cast(lengths, tf.int32)[:, None]


def _zero_padding(x: Tensor, lengths: Optional[Tensor]) -> Tensor:
    """x [B, T, C] with zeros past each clip's end, as a convolution pads a clip that is not in a batch."""
    return x if lengths is None else tf.where(_valid_mask(x, lengths)[:, :, None], x, tf.zeros([], x.dtype))


def _mean_squared_error(output: Tensor, target: Tensor, inside: Tensor) -> Tensor:
    """The mean squared error of [B, T, C] over the frames of a mask [B, T]; padding may contain anything."""
    difference = tf.cast(output, tf.float32) - tf.cast(target, tf.float32)
    squares = tf.square(tf.where(inside[:, :, None], difference, 0.0))
    count = tf.reduce_sum(tf.cast(inside, tf.float32)) * output.shape[2]
    return tf.reduce_sum(squares) / tf.maximum(count, 1.0)


def _rows(x: Tensor, inside: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """[..., width] as [N, width], float32, and its mask as ones and zeros, [N]."""
    rows = tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]])
    ones = tf.ones([rows.shape[0]]) if inside is None else tf.cast(tf.reshape(inside, [-1]), tf.float32)
    return rows, ones

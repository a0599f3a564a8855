"""The speaker encoder: a ResNet from waves at 16 kHz to speaker embeddings of length 1.

Its weights are the published ones: in XTTS it is frozen and never trained, so batch norms always use their running
statistics. Feature maps are [B, T, mels, C], and 0 past a clip's end.
"""

from typing import Any, ClassVar, Dict, Optional

import attrs
import tensorflow as tf

from xtts.audio.mel import SPEAKER, frame_count
from xtts.model import layers
from xtts.model.convolution import Conv1d, convolve
from xtts.model.mel import mel
from xtts.planning import sizes

Tensor = Any  # tf.Tensor; TensorFlow brings no types

LOG_OFFSET = 1e-6
EPSILON = 1e-5  # of the norms, and the floor of the pooled variance
SQUEEZE_FACTOR = 8


class Conv2d(layers.Module):
    """[B, T, mels, inputs] to [B, ⌈T / stride⌉, ⌈mels / stride⌉, outputs], by default without a bias."""

    AXES: ClassVar[Dict[str, layers.Axes]] = {"weight": (3, 2, 1, 0)}  # published: [out, in, mels, time]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        random: layers.Random,
        stride: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self._stride, self._padding = stride, kernel // 2
        self.weight = layers.normal_variable(
            (kernel, kernel, inputs, outputs), (2 / (outputs * kernel**2)) ** 0.5, random
        )
        if bias:
            self.bias = layers.constant_variable((outputs,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        both = [self._padding, self._padding]
        y = convolve(tf.pad(x, [[0, 0], both, both, [0, 0]]), self.weight, self._stride)
        return tf.nn.bias_add(y, tf.cast(self.bias, x.dtype)) if hasattr(self, "bias") else y


class BatchNorm(layers.Module):
    """Normalises [..., C] by the running mean and variance of each channel, then scales and shifts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = layers.constant_variable((width,), 1.0)
        self.bias = layers.constant_variable((width,), 0.0)
        self.running_mean = layers.constant_variable((width,), 0.0, trainable=False)
        self.running_var = layers.constant_variable((width,), 1.0, trainable=False)

    def __call__(self, x: Tensor) -> Tensor:
        scale = self.weight * tf.math.rsqrt(self.running_var + EPSILON)
        return tf.cast(tf.cast(x, tf.float32) * scale + (self.bias - self.running_mean * scale), x.dtype)


class SqueezeExcite(layers.Module):
    """[B, T, mels, C] to the same: scales each channel by a gate computed from the means of all channels."""

    def __init__(self, width: int, random: layers.Random) -> None:
        super().__init__()
        squeezed = width // SQUEEZE_FACTOR
        self.fc = {
            "0": layers.Linear(width, squeezed, random, width**-0.5),
            "2": layers.Linear(squeezed, width, random, squeezed**-0.5),
        }

    def __call__(self, x: Tensor, inside: Optional[Tensor]) -> Tensor:
        means = _mean_over_time(tf.reduce_mean(tf.cast(x, tf.float32), axis=2), inside)
        share = tf.sigmoid(self.fc["2"](tf.nn.relu(self.fc["0"](means))))
        return x * tf.cast(share, x.dtype)[:, None, None]


class ResNetBlock(layers.Module):
    """[B, T, mels, inputs] to [B, ⌈T / stride⌉, ⌈mels / stride⌉, outputs], with a shortcut around two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, random: layers.Random) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, random, stride)
        self.bn1 = BatchNorm(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, random)
        self.bn2 = BatchNorm(outputs)
        self.se = SqueezeExcite(outputs, random)
        if stride != 1 or inputs != outputs:
            self.downsample = [Conv2d(inputs, outputs, 1, random, stride), BatchNorm(outputs)]

    def __call__(self, x: Tensor, inside: Optional[Tensor]) -> Tensor:
        """`inside` is the mask of the output."""
        y = _zero_padding(self.bn1(tf.nn.relu(self.conv1(x))), inside)
        y = self.se(self.bn2(self.conv2(y)), inside)
        for shorten in getattr(self, "downsample", []):
            x = shorten(x)
        return _zero_padding(tf.nn.relu(y + x), inside)


class SpeakerEncoder(layers.Module):
    """Waves [B, samples] at 16 kHz to speaker embeddings [B, width]."""

    def __init__(self, size: sizes.SpeakerSize, random: layers.Random) -> None:
        super().__init__()
        self._spec = attrs.evolve(SPEAKER, n_mels=size.mels)
        self._stages = len(size.filters)
        self.conv1 = Conv2d(1, size.filters[0], 3, random, bias=True)
        self.bn1 = BatchNorm(size.filters[0])
        inputs = size.filters[0]
        for stage, (blocks, outputs) in enumerate(zip(size.blocks, size.filters), start=1):
            strides = [1 if stage == 1 else 2] + [1] * (blocks - 1)
            widths = [inputs] + [outputs] * (blocks - 1)
            setattr(self, f"layer{stage}", [ResNetBlock(w, outputs, s, random) for w, s in zip(widths, strides)])
            inputs = outputs
        channels = inputs * size.mels // 2 ** (self._stages - 1)
        self.attention = {
            "0": Conv1d(channels, size.attention, 1, random),
            "2": BatchNorm(size.attention),
            "3": Conv1d(size.attention, channels, 1, random),
        }
        self.fc = layers.Linear(2 * channels, size.width, random, (2 * channels) ** -0.5)

    def __call__(self, waves: Tensor, lengths: Optional[Tensor] = None, dtype: Any = tf.float32) -> Tensor:
        """Embeddings, float32. With `lengths` [B], in samples, padding past a clip's end has no effect.

        The network computes in `dtype`; waves are float32, because rounding would lose quiet sounds.
        """
        count = None if lengths is None else frame_count(lengths, self._spec)
        x = tf.cast(self._features(waves, lengths), dtype)[..., None]
        inside = _valid_mask(x, count)
        x = _zero_padding(self.bn1(tf.nn.relu(self.conv1(x))), inside)
        for stage in range(1, self._stages + 1):
            if stage > 1:
                count = None if count is None else (count + 1) // 2
            for place, block in enumerate(getattr(self, f"layer{stage}")):
                inside = inside if place else _valid_mask(x, count, stride=1 if stage == 1 else 2)
                x = block(x, inside)
        x = tf.transpose(x, [0, 1, 3, 2])  # published: channels before mels
        x = tf.reshape(x, [x.shape[0], x.shape[1], x.shape[2] * x.shape[3]])
        vectors = self.fc(self._pooled(x, inside))
        return vectors / tf.maximum(tf.norm(vectors, axis=1, keepdims=True), 1e-12)

    def _features(self, waves: Tensor, lengths: Optional[Tensor]) -> Tensor:
        """Log mels [B, T, mels], normalised to mean 0 and variance 1 over the time of each clip."""
        samples = tf.fill([waves.shape[0]], waves.shape[1]) if lengths is None else lengths
        logs = tf.math.log(mel(waves, samples, self._spec) + LOG_OFFSET)
        inside = _valid_mask(logs[..., None], None if lengths is None else frame_count(lengths, self._spec))
        inside = None if inside is None else inside[..., 0]
        centred = logs - _mean_over_time(logs, inside)[:, None]
        variance = _mean_over_time(tf.square(centred), inside)[:, None]
        return _zero_padding(centred * tf.math.rsqrt(variance + EPSILON), inside)

    def _pooled(self, x: Tensor, inside: Optional[Tensor]) -> Tensor:
        """Attentive statistics pooling, [B, T, C] to [B, 2 C]: weighted mean and deviation over time; float32."""
        scores = self.attention["3"](self.attention["2"](tf.nn.relu(self.attention["0"](x))))
        scores = tf.cast(scores, tf.float32)
        if inside is not None:
            scores = tf.where(inside[..., 0] > 0, scores, scores.dtype.min)
        shares, wide = tf.nn.softmax(scores, axis=1), tf.cast(x, tf.float32)
        mean = tf.reduce_sum(shares * wide, axis=1)
        variance = tf.reduce_sum(shares * tf.square(wide - mean[:, None]), axis=1)
        return tf.concat([mean, tf.sqrt(tf.maximum(variance, EPSILON))], axis=1)


def _valid_mask(x: Tensor, count: Optional[Tensor], stride: int = 1) -> Optional[Tensor]:
    """A mask [B, T, 1, 1] for `x` after a stride: 1 for the first `count` [B] frames; None without `count`."""
    length = -(-x.shape[1] // stride)
    return None if count is None else tf.sequence_mask(count, length, tf.float32)[:, :, None, None]


def _zero_padding(x: Tensor, inside: Optional[Tensor]) -> Tensor:
    return x if inside is None else x * tf.cast(inside, x.dtype)


def _mean_over_time(x: Tensor, inside: Optional[Tensor]) -> Tensor:
    """[B, T, C] to [B, C]."""
    if inside is None:
        return tf.reduce_mean(x, axis=1)
    weight = tf.reshape(inside, [x.shape[0], x.shape[1], 1])
    return tf.reduce_sum(x * weight, axis=1) / tf.reduce_sum(weight, axis=1)

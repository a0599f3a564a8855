"""The waveform decoder: a HiFi-GAN from the transformer's latents and a speaker embedding to a wave at 24 kHz.

There is one latent for each code, 1,024 samples at 22.05 kHz. Latents are interpolated to 93.75 frames a second, and
each frame becomes 256 samples, the product of the upsampling factors.
"""

from typing import Any, ClassVar, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from xtts.model import layers
from xtts.model.convolution import Conv1d
from xtts.planning import sizes

Tensor = Any  # tf.Tensor; TensorFlow brings no types

CODE_SAMPLE_RATE = 22050  # Hz, of the waves that are encoded as codes
SAMPLE_RATE = 24000  # Hz, of the output
LEAKY_SLOPE = 0.1  # of the leaky ReLUs
LAST_LEAKY_SLOPE = 0.01  # of the one before the last convolution
INITIAL_DEVIATION = 0.01  # standard deviation of initial weights, as in HiFi-GAN


class ConvTranspose1d(layers.Module):
    """[B, T, inputs] to [B, stride T, outputs], as PyTorch's with a padding of (kernel - stride) / 2.

    Each frame times the kernel is `kernel` samples long; overlapping samples are added.
    """

    AXES: ClassVar[Dict[str, layers.Axes]] = {"weight": (0, 2, 1)}  # published: [in, out, kernel]

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, random: layers.Random) -> None:
        super().__init__()
        if kernel < stride or (kernel - stride) % 2:
            raise ValueError(
                f"a kernel of {kernel} does not fit a stride of {stride}: it must be longer by an even number"
            )
        self._stride = stride
        self.weight = layers.normal_variable((inputs, kernel, outputs), INITIAL_DEVIATION, random)
        self.bias = layers.constant_variable((outputs,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        batch, frames, _ = x.shape
        inputs, kernel, outputs = self.weight.shape
        steps = -(-kernel // self._stride)  # frames that a kernel spans
        weight = tf.pad(self.weight, [[0, 0], [0, steps * self._stride - kernel], [0, 0]])
        pieces = layers.matmul(x, tf.reshape(weight, [inputs, steps * self._stride * outputs]))
        pieces = tf.reshape(pieces, [batch, frames, steps, self._stride * outputs])
        whole = layers.ordered_sum(
            [tf.pad(pieces[:, :, s], [[0, 0], [s, steps - 1 - s], [0, 0]]) for s in range(steps)]
        )
        cut = (kernel - self._stride) // 2
        samples = tf.reshape(whole, [batch, -1, outputs])[:, cut : cut + frames * self._stride]
        return tf.nn.bias_add(samples, tf.cast(self.bias, x.dtype))


class ResBlock(layers.Module):
    """[B, T, C] to the same: three residual pairs of a dilated and a plain convolution."""

    def __init__(self, width: int, kernel: int, dilations: Tuple[int, ...], random: layers.Random) -> None:
        super().__init__()
        self.convs1 = [Conv1d(width, width, kernel, random, dilation=d, deviation=INITIAL_DEVIATION) for d in dilations]
        self.convs2 = [Conv1d(width, width, kernel, random, deviation=INITIAL_DEVIATION) for _ in dilations]

    def __call__(self, x: Tensor, inside: Optional[Tensor]) -> Tensor:
        for dilated, plain in zip(self.convs1, self.convs2):
            y = dilated(_leaky_relu(_zero_padding(x, inside)))
            x += plain(_leaky_relu(_zero_padding(y, inside)))
        return x


class WaveformDecoder(layers.Module):
    """Latents [B, T, latent_width] and speaker embeddings [B, speaker_width] to waves [B, samples(T)]."""

    def __init__(self, size: sizes.DecoderSize, latent_width: int, speaker_width: int, random: layers.Random) -> None:
        super().__init__()
        self._upsampling = size.upsampling
        self.conv_pre = Conv1d(latent_width, size.width, 7, random)
        self.cond_layer = Conv1d(speaker_width, size.width, 1, random)
        widths = [size.width // 2**stage for stage in range(len(size.upsampling) + 1)]
        self.ups = [
            ConvTranspose1d(wide, narrow, kernel, stride, random)
            for wide, narrow, kernel, stride in zip(widths, widths[1:], size.kernels, size.upsampling)
        ]
        self.conds = [Conv1d(speaker_width, width, 1, random) for width in widths[1:]]
        self.resblocks = [
            ResBlock(width, kernel, size.dilations, random) for width in widths[1:] for kernel in size.block_kernels
        ]
        self.conv_post = Conv1d(widths[-1], 1, 7, random, bias=False)

    def __call__(self, latents: Tensor, speakers: Tensor, lengths: Optional[Tensor] = None) -> Tensor:
        """Waves, float32, computed in the dtype of `latents`.

        With `lengths` [B], in latents, padding past a clip's end has no effect, and its wave, of `samples(length)`, is
        followed by silence.
        """
        count = latents.shape[1]
        frames = None
        if lengths is not None:
            frames = tf.gather([_upsampled_length(length) for length in range(count + 1)], lengths)
            latents = tf.gather(latents, tf.minimum(tf.range(count)[None], lengths[:, None] - 1), batch_dims=1)
        return self.sound(upsample_latents(latents), speakers, frames)

    def sound(self, x: Tensor, speakers: Tensor, frames: Optional[Tensor] = None) -> Tensor:
        """Waves of upsampled latents [B, F, latent_width]; `frames` [B] are their lengths without padding."""
        inside = _valid_mask(x, frames)
        voice = tf.cast(speakers, x.dtype)[:, None]  # [B, 1, speaker_width]
        x = self.conv_pre(_zero_padding(x, inside)) + self.cond_layer(voice)
        kernels = len(self.resblocks) // len(self.ups)
        for stage, (up, cond) in enumerate(zip(self.ups, self.conds)):
            x = up(_leaky_relu(_zero_padding(x, inside))) + cond(voice)
            frames = None if frames is None else frames * self._upsampling[stage]
            inside = _valid_mask(x, frames)
            blocks = self.resblocks[kernels * stage : kernels * (stage + 1)]
            x = layers.ordered_sum([block(x, inside) for block in blocks]) / kernels
        x = tf.nn.leaky_relu(tf.cast(_zero_padding(x, inside), tf.float32), LAST_LEAKY_SLOPE)  # 8 bits are audible
        return _zero_padding(tf.tanh(self.conv_post(x)), inside)[:, :, 0]

    def samples(self, latents: int) -> int:
        """The number of samples in the wave of this many latents."""
        return _upsampled_length(latents) * int(np.prod(self._upsampling))

    def normalised(self) -> List[str]:
        """The names of weights that are published with weight normalisation."""
        return [name for name in self.weights() if name.startswith(("ups.", "resblocks.")) and name.endswith(".weight")]


def upsample_latents(latents: Tensor) -> Tensor:
    """Latents [B, T, C], one for each code, to [B, F, C], 93.75 a second."""
    return interpolate(interpolate(latents, sizes.FRAMES_PER_CODE), SAMPLE_RATE / CODE_SAMPLE_RATE)


def _upsampled_length(latents: int) -> int:
    return int(int(latents * sizes.FRAMES_PER_CODE) * (SAMPLE_RATE / CODE_SAMPLE_RATE))


def interpolate(x: Tensor, ratio: float) -> Tensor:
    """Linear interpolation, [B, T, C] to [B, ⌊T ratio⌋, C], as PyTorch's: align_corners=False, float32 positions."""
    count = int(x.shape[1] * ratio)
    half = np.float32(0.5)
    places = np.maximum((np.arange(count, dtype=np.float32) + half) * np.float32(1 / ratio) - half, np.float32(0))
    before = places.astype(np.int32)
    after = np.minimum(before + 1, x.shape[1] - 1)
    share = tf.cast((places - before)[:, None], x.dtype)
    return tf.gather(x, before, axis=1) * (1 - share) + tf.gather(x, after, axis=1) * share


def _valid_mask(x: Tensor, frames: Optional[Tensor]) -> Optional[Tensor]:
    """A mask [B, T, 1] of `x` [B, T, C]: 1 for its first `frames` [B], 0 for padding; None without `frames`."""
    return None if frames is None else tf.sequence_mask(frames, x.shape[1], tf.float32)[:, :, None]


def _zero_padding(x: Tensor, inside: Optional[Tensor]) -> Tensor:
    return x if inside is None else x * tf.cast(inside, x.dtype)


def _leaky_relu(x: Tensor) -> Tensor:
    return tf.nn.leaky_relu(x, LEAKY_SLOPE)

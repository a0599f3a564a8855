"""A reference voice for the transformer: its mel [B, T, 80] comes in, 32 latents [B, 32, width] go out.

The encoder hears the reference as a whole, every frame with every other; the perceiver sums it up in as many latents
whatever its length. Neither knows the order of the frames: a voice is the same told backwards.
"""

from typing import Any, List

import tensorflow as tf

from xtts.model.attention import attend
from xtts.model.convolution import Conv1d
from xtts.model.layers import GroupNorm, Linear, Module, Random, Tensor, constant_variable, normal_variable, shape_list
from xtts.planning.sizes import LATENTS, GptSize

RESIDUAL_DEVIATION = (
    0.02  # deviation of what leads back into the residual stream, over the square root of how often that is
)


class ConditioningEncoder(Module):
    """Mel [B, T, mels] to what is heard in each frame, [B, T, width]."""

    def __init__(self, size: GptSize, random: Random, mels: int = 80) -> None:
        super().__init__()
        self.init = Conv1d(mels, size.width, 1, random)
        deviation = RESIDUAL_DEVIATION * max(1, size.conditioning_blocks) ** -0.5
        self.attn = [FrameAttention(size.width, size.heads, deviation, random) for _ in range(size.conditioning_blocks)]

    def __call__(self, mel: Tensor) -> Tensor:
        x = self.init(mel)
        for block in self.attn:
            x = block(x)
        return x


class FrameAttention(Module):
    """[B, T, width] to the same: frames attend to frames, and are added to the block's *normalised* input."""

    def __init__(self, width: int, heads: int, deviation: float, random: Random) -> None:
        super().__init__()
        self._heads = heads
        self.norm = GroupNorm(width, group_count(width))
        self.qkv = Conv1d(width, 3 * width, 1, random)
        self.proj_out = Conv1d(width, width, 1, random, deviation=deviation)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        batch, frames, width = shape_list(x)
        # The published order: heads first, and q, k, v within each.
        q, k, v = tf.unstack(tf.reshape(self.qkv(x), [batch, frames, self._heads, 3, width // self._heads]), axis=3)
        return x + self.proj_out(_multi_head_attention(q, k, v))


class PerceiverResampler(Module):
    """What is heard, [B, T, width], of whatever length, to latents [B, 32, width]."""

    def __init__(self, size: GptSize, random: Random) -> None:
        super().__init__()
        hidden = size.width * 4 * 2 // 3
        self.latents = normal_variable((LATENTS, size.width), 0.02, random)
        self.layers: List[Any] = [
            [
                LatentAttention(size.width, size.perceiver_heads, size.perceiver_head_width, random),
                {
                    "0": _uniform_linear(size.width, 2 * hidden, random),
                    "2": _uniform_linear(hidden, size.width, random),
                },
            ]
            for _ in range(size.perceiver_layers)
        ]
        self.norm = RmsNorm(size.width)

    def __call__(self, heard: Tensor) -> Tensor:
        latents = tf.tile(tf.cast(self.latents, heard.dtype)[None], [shape_list(heard)[0], 1, 1])
        for attention, feed_forward in self.layers:
            latents += attention(latents, heard)
            latents += feed_forward["2"](_geglu(feed_forward["0"](latents)))
        return self.norm(latents)


class LatentAttention(Module):
    """Latents [B, 32, width] attend to themselves and to what is heard, [B, T, width]; no biases."""

    def __init__(self, width: int, heads: int, head_width: int, random: Random) -> None:
        super().__init__()
        self._heads, self._head_width = heads, head_width
        inner = heads * head_width
        self.to_q = _uniform_linear(width, inner, random, bias=False)
        self.to_kv = _uniform_linear(width, 2 * inner, random, bias=False)
        self.to_out = _uniform_linear(inner, width, random, bias=False)

    def __call__(self, latents: Tensor, heard: Tensor) -> Tensor:
        keys = tf.concat([latents, heard], axis=1)
        # From the keys: a third use of the latents would make a gradient of three terms, summed in no fixed order.
        q = self._split(self.to_q(keys[:, : latents.shape[1]]), 1)
        k, v = tf.split(self._split(self.to_kv(keys), 2), 2, axis=2)
        return self.to_out(_multi_head_attention(q, k, v))

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return tf.reshape(x, [*shape_list(x)[:2], parts * self._heads, self._head_width])


class RmsNorm(Module):
    """Length 1 over the last axis, times the square root of the width, then a scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = constant_variable((width,), 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        wide = tf.cast(x, tf.float32)
        squared = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        return tf.cast(wide * tf.math.rsqrt(tf.maximum(squared, 1e-24)) * self.gamma, x.dtype)


def _multi_head_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries [B, Q, heads, head], keys and values [B, K, heads, head] to [B, Q, heads * head]; all see all."""
    batch, count, heads, width = shape_list(q)
    # Scaled on both sides, so that half precision does not overflow before the softmax.
    q, k, v = (tf.transpose(x * scale, [0, 2, 1, 3]) for x, scale in ((q, width**-0.25), (k, width**-0.25), (v, 1)))
    return tf.reshape(tf.transpose(attend(q, k, v), [0, 2, 1, 3]), [batch, count, heads * width])


def group_count(width: int) -> int:
    """Groups of a group norm: 32, fewer where the width is small, and always a divisor of it."""
    count = 8 if width <= 16 else 16 if width <= 64 else 32
    while width % count:
        count //= 2
    return count


def _geglu(x: Tensor) -> Tensor:
    value, gate = tf.split(x, 2, axis=-1)
    return value * tf.cast(tf.nn.gelu(tf.cast(gate, tf.float32)), x.dtype)  # older releases have erf in float32 only


def _uniform_linear(inputs: int, outputs: int, random: Random, bias: bool = True) -> Linear:
    """With the variance that the published model starts from."""
    return Linear(inputs, outputs, random, deviation=(3 * inputs) ** -0.5, bias=bias)

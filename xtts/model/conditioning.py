"""Conditioning latents: the mel of a reference recording, [B, T, 80], to 32 latents, [B, 32, width].

The encoder is self-attention over all frames; the perceiver resampler reduces any number of frames to 32 latents.
Neither has position embeddings: the order of the frames has no effect.
"""

from typing import Any, List

import tensorflow as tf

from xtts.model.attention import attend
from xtts.model.convolution import Conv1d
from xtts.model.layers import GroupNorm, Linear, Module, Random, Tensor, constant_variable, normal_variable, shape_list
from xtts.planning.sizes import LATENTS, GptSize

# Standard deviation of initial weights of the projections into the residual stream, for one block; for n blocks it is
# divided by the square root of n.
RESIDUAL_DEVIATION = 0.02


class ConditioningEncoder(Module):
    """Mel [B, T, mels] to features of each frame, [B, T, width]."""

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
    """Self-attention over frames, [B, T, width] to the same; the residual is the block's *normalised* input."""

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
    """Frame features [B, T, width], of any length, to latents [B, 32, width]."""

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

    def __call__(self, features: Tensor) -> Tensor:
        latents = tf.tile(tf.cast(self.latents, features.dtype)[None], [shape_list(features)[0], 1, 1])
        for attention, feed_forward in self.layers:
            latents += attention(latents, features)
            latents += feed_forward["2"](_geglu(feed_forward["0"](latents)))
        return self.norm(latents)


class LatentAttention(Module):
    """Latents [B, 32, width] attend to themselves and to frame features [B, T, width]; no biases."""

    def __init__(self, width: int, heads: int, head_width: int, random: Random) -> None:
        super().__init__()
        self._heads, self._head_width = heads, head_width
        inner = heads * head_width
        self.to_q = _uniform_linear(width, inner, random, bias=False)
        self.to_kv = _uniform_linear(width, 2 * inner, random, bias=False)
        self.to_out = _uniform_linear(inner, width, random, bias=False)

    def __call__(self, latents: Tensor, features: Tensor) -> Tensor:
        keys = tf.concat([latents, features], axis=1)
        # Queries from the keys: a third use of the latents would give a gradient of three terms, in no fixed order.
        q = self._split(self.to_q(keys[:, : latents.shape[1]]), 1)
        k, v = tf.split(self._split(self.to_kv(keys), 2), 2, axis=2)
        return self.to_out(_multi_head_attention(q, k, v))

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return tf.reshape(x, [*shape_list(x)[:2], parts * self._heads, self._head_width])


class RmsNorm(Module):
    """Divides by the root mean square over the last axis, then scales."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = constant_variable((width,), 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        wide = tf.cast(x, tf.float32)
        squared = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        return tf.cast(wide * tf.math.rsqrt(tf.maximum(squared, 1e-24)) * self.gamma, x.dtype)


def _multi_head_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries [B, Q, heads, head], keys and values [B, K, heads, head] to [B, Q, heads * head]; without a mask."""
    batch, count, heads, width = shape_list(q)
    # Scaled on both sides, so that half precision does not overflow before the softmax.
    q, k, v = (tf.transpose(x * scale, [0, 2, 1, 3]) for x, scale in ((q, width**-0.25), (k, width**-0.25), (v, 1)))
    return tf.reshape(tf.transpose(attend(q, k, v), [0, 2, 1, 3]), [batch, count, heads * width])


def group_count(width: int) -> int:
    """The number of groups of a group norm: 32, or fewer for a small width, and always a divisor of it."""
    count = 8 if width <= 16 else 16 if width <= 64 else 32
    while width % count:
        count //= 2
    return count


def _geglu(x: Tensor) -> Tensor:
    value, gate = tf.split(x, 2, axis=-1)
    return value * tf.cast(tf.nn.gelu(tf.cast(gate, tf.float32)), x.dtype)  # older releases have erf in float32 only


def _uniform_linear(inputs: int, outputs: int, random: Random, bias: bool = True) -> Linear:
    """A linear layer whose initial weights have the published model's variance."""
    return Linear(inputs, outputs, random, deviation=(3 * inputs) ** -0.5, bias=bias)

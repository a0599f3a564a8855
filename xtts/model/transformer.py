"""GPT-2's transformer, pre-norm and causal: [B, L, width] to [B, L, width].

Position embeddings are added by the caller. Between attentions a batch is a flat list of tokens, [B * L, width], so
that every linear layer is a single matrix product, forward and backward.
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from xtts.model.attention import attend
from xtts.model.layers import (
    Dropout,
    Gpt2Linear,
    LayerNorm,
    Module,
    Random,
    Tensor,
    recompute_barrier,
    shape_list,
    update_at,
)
from xtts.planning.sizes import GptSize as Size

GELU_SCALE, GELU_CUBIC = (2 / np.pi) ** 0.5, 0.044715  # of the tanh approximation of the GELU


class KeyValueCache(NamedTuple):
    """Keys and values of earlier tokens in a block, [B, heads, positions, head]."""

    keys: Tensor
    values: Tensor


class Transformer(Module):
    """Transformer blocks and a final layer norm."""

    def __init__(self, size: Size, random: Random) -> None:
        super().__init__()
        self.h = [TransformerBlock(size, random) for _ in range(size.layers)]
        self.ln_f = LayerNorm(size.width)

    def __call__(self, x: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        """Hidden states [B, L, width]. `mask`, [B, 1, L, L], is added to the scores; without one it is causal."""
        tokens, _ = self.prefill(x, mask, drop)
        return tf.reshape(self.ln_f(tokens), shape_list(x))

    def prefill(self, x: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tuple[Tensor, List[KeyValueCache]]:
        """The residual stream after the last block, [B * L, width], and each block's keys and values."""
        tokens, caches = tf.reshape(drop(x), [-1, x.shape[2]]), []
        batch = shape_list(x)[0]
        for block in self.h:
            tokens, cache = block(tokens, batch, mask, drop)
            caches.append(cache)
        return tokens, caches

    def step(
        self, x: Tensor, caches: List[KeyValueCache], position: Tensor, mask: Tensor
    ) -> Tuple[Tensor, List[KeyValueCache]]:
        """One more token per row, [B, width]: its hidden state, and the caches with it at `position`.

        `mask`, [B, 1, 1, positions], hides the positions that are not filled yet.
        """
        updated = []
        for block, cache in zip(self.h, caches):
            x, cache = block.step(x, cache, position, mask)
            updated.append(cache)
        return self.ln_f(x), updated


class TransformerBlock(Module):
    """Attention, then a feed-forward layer of four times the width, each with pre-norm and residual connection."""

    def __init__(self, size: Size, random: Random) -> None:
        super().__init__()
        residual = 0.02 * (2 * size.layers) ** -0.5  # as GPT-2: keeps the variance of the residual stream
        self.ln_1 = LayerNorm(size.width)
        self.attn = Attention(size.width, size.heads, residual, random)
        self.ln_2 = LayerNorm(size.width)
        self.mlp = FeedForward(size.width, residual, random)

    def __call__(
        self, tokens: Tensor, batch: Any, mask: Optional[Tensor], drop: Dropout
    ) -> Tuple[Tensor, KeyValueCache]:
        """Tokens [B * L, width] to the same, and their keys and values; `batch` is B."""
        mixed, cache = self.attn(self.ln_1(tokens), batch, mask, drop)
        tokens += drop(mixed)
        return tokens + drop(self.mlp(self.ln_2(tokens))), cache

    def step(
        self, tokens: Tensor, cache: KeyValueCache, position: Tensor, mask: Tensor
    ) -> Tuple[Tensor, KeyValueCache]:
        """The same for one token per row, [B, width]."""
        mixed, cache = self.attn.step(self.ln_1(tokens), cache, position, mask)
        tokens += mixed
        return tokens + self.mlp(self.ln_2(tokens)), cache


class Attention(Module):
    """Causal or masked self-attention, tokens [B * L, width] to the same."""

    def __init__(self, width: int, heads: int, residual: float, random: Random) -> None:
        super().__init__()
        self._heads = heads
        self.c_attn = Gpt2Linear(width, 3 * width, random)
        self.c_proj = Gpt2Linear(width, width, random, deviation=residual)

    def __call__(
        self, tokens: Tensor, batch: Any, mask: Optional[Tensor], drop: Dropout
    ) -> Tuple[Tensor, KeyValueCache]:
        q, k, v = self._split(tokens, batch)
        return self._attend(q, k, v, mask, drop), KeyValueCache(k, v)

    def step(
        self, tokens: Tensor, cache: KeyValueCache, position: Tensor, mask: Tensor
    ) -> Tuple[Tensor, KeyValueCache]:
        q, k, v = self._split(tokens, tokens.shape[0])
        cache = KeyValueCache(update_at(cache.keys, k, position), update_at(cache.values, v, position))
        return self._attend(q, cache.keys, cache.values, mask, Dropout()), cache

    def _split(self, tokens: Tensor, batch: int) -> List[Tensor]:
        """Scaled queries, keys and values, each [B, heads, L, head]."""
        count, width = shape_list(tokens)
        parts = tf.reshape(self.c_attn(tokens), [batch, count // batch, 3, self._heads, width // self._heads])
        q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        return [q * (width // self._heads) ** -0.5, k, v]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        mixed = attend(q, k, v, mask, drop, is_causal=mask is None)
        return self.c_proj(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, q.shape[1] * q.shape[3]]))


class FeedForward(Module):
    """The feed-forward layer, tokens [N, width] to the same."""

    def __init__(self, width: int, residual: float, random: Random) -> None:
        super().__init__()
        self.c_fc = Gpt2Linear(width, 4 * width, random)
        self.c_proj = Gpt2Linear(4 * width, width, random, deviation=residual)

    def __call__(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.c_proj(tf.custom_gradient(_gelu)(self.c_fc(tokens)))
        return y


def _gelu(x: Tensor) -> Any:
    """GPT-2's GELU, x * sigmoid(2 GELU_SCALE (x + GELU_CUBIC x^3)); only x is kept for the gradient."""

    def gate(x: Tensor, squared: Tensor) -> Tensor:
        return tf.sigmoid(x * (2 * GELU_SCALE + 2 * GELU_SCALE * GELU_CUBIC * squared))

    def gradient(dy: Tensor) -> Tensor:
        y = recompute_barrier(x, dy)
        squared = tf.square(y)
        share = gate(y, squared)
        return dy * (share + y * (2 * GELU_SCALE + 6 * GELU_SCALE * GELU_CUBIC * squared) * (share - tf.square(share)))

    return x * gate(x, tf.square(x)), gradient

"""GPT-2's blocks, pre-norm and causal: vectors [B, L, width] come in, states [B, L, width] go out.

No position comes in here: whoever embeds the tokens adds it. Between attentions a batch is one list of tokens,
[B * L, width], so that every product is a single matrix product, forwards and backwards.
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from xtts.model.attention import attend
from xtts.model.dropout import Dropout
from xtts.model.layers import Gpt2Linear, LayerNorm, Module, Random, Tensor, again, extents, written
from xtts.planning.sizes import GptSize as Size

ROOT, CUBIC = (2 / np.pi) ** 0.5, 0.044715  # of the gelu


class Cache(NamedTuple):
    """What a block remembers of the tokens before: keys and values, [B, heads, places, head]."""

    keys: Tensor
    values: Tensor


class Transformer(Module):
    """Blocks, and a norm at the end."""

    def __init__(self, size: Size, random: Random) -> None:
        super().__init__()
        self.h = [Block(size, random) for _ in range(size.layers)]
        self.ln_f = LayerNorm(size.width)

    def __call__(self, x: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        """Vectors [B, L, width]; `mask`, [B, 1, L, L], is added to scores; without one, tokens see all before them."""
        tokens, _ = self.read(x, mask, drop)
        return tf.reshape(self.ln_f(tokens), extents(x))

    def read(self, x: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tuple[Tensor, List[Cache]]:
        """The stream after the last block, [B * L, width], and what each block remembers of it."""
        tokens, caches = tf.reshape(drop(x), [-1, x.shape[2]]), []
        batch = extents(x)[0]
        for block in self.h:
            tokens, cache = block(tokens, batch, mask, drop)
            caches.append(cache)
        return tokens, caches

    def step(self, x: Tensor, caches: List[Cache], place: Tensor, mask: Tensor) -> Tuple[Tensor, List[Cache]]:
        """One token a row, [B, width], after those in the caches: its state, and caches that hold it at `place`.

        `mask`, [B, 1, 1, places], hides what is not remembered yet.
        """
        remembered = []
        for block, cache in zip(self.h, caches):
            x, cache = block.step(x, cache, place, mask)
            remembered.append(cache)
        return self.ln_f(x), remembered


class Block(Module):
    """Attention, then a feed-forward of four times the width, each on the norm of the stream and added to it."""

    def __init__(self, size: Size, random: Random) -> None:
        super().__init__()
        residual = 0.02 * (2 * size.layers) ** -0.5  # as GPT-2: a stream that so many add to keeps its variance
        self.ln_1 = LayerNorm(size.width)
        self.attn = Attention(size.width, size.heads, residual, random)
        self.ln_2 = LayerNorm(size.width)
        self.mlp = FeedForward(size.width, residual, random)

    def __call__(self, tokens: Tensor, batch: Any, mask: Optional[Tensor], drop: Dropout) -> Tuple[Tensor, Cache]:
        """Tokens [B * L, width] to the same, and what is to be remembered of them; `batch` is B."""
        mixed, cache = self.attn(self.ln_1(tokens), batch, mask, drop)
        tokens += drop(mixed)
        return tokens + drop(self.mlp(self.ln_2(tokens))), cache

    def step(self, tokens: Tensor, cache: Cache, place: Tensor, mask: Tensor) -> Tuple[Tensor, Cache]:
        """The same for one token a row, [B, width]."""
        mixed, cache = self.attn.step(self.ln_1(tokens), cache, place, mask)
        tokens += mixed
        return tokens + self.mlp(self.ln_2(tokens)), cache


class Attention(Module):
    """Tokens [B * L, width] to the same."""

    def __init__(self, width: int, heads: int, residual: float, random: Random) -> None:
        super().__init__()
        self._heads = heads
        self.c_attn = Gpt2Linear(width, 3 * width, random)
        self.c_proj = Gpt2Linear(width, width, random, deviation=residual)

    def __call__(self, tokens: Tensor, batch: Any, mask: Optional[Tensor], drop: Dropout) -> Tuple[Tensor, Cache]:
        q, k, v = self._split(tokens, batch)
        return self._mixed(q, k, v, mask, drop), Cache(k, v)

    def step(self, tokens: Tensor, cache: Cache, place: Tensor, mask: Tensor) -> Tuple[Tensor, Cache]:
        q, k, v = self._split(tokens, tokens.shape[0])
        cache = Cache(written(cache.keys, k, place), written(cache.values, v, place))
        return self._mixed(q, cache.keys, cache.values, mask, Dropout()), cache

    def _split(self, tokens: Tensor, batch: int) -> List[Tensor]:
        """Queries, keys and values, each [B, heads, L, head]; queries are scaled."""
        count, width = extents(tokens)
        parts = tf.reshape(self.c_attn(tokens), [batch, count // batch, 3, self._heads, width // self._heads])
        q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        return [q * (width // self._heads) ** -0.5, k, v]

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        mixed = attend(q, k, v, mask, drop, is_causal=mask is None)
        return self.c_proj(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, q.shape[1] * q.shape[3]]))


class FeedForward(Module):
    """Tokens [N, width] to the same."""

    def __init__(self, width: int, residual: float, random: Random) -> None:
        super().__init__()
        self.c_fc = Gpt2Linear(width, 4 * width, random)
        self.c_proj = Gpt2Linear(4 * width, width, random, deviation=residual)

    def __call__(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.c_proj(tf.custom_gradient(_gelu)(self.c_fc(tokens)))
        return y


def _gelu(x: Tensor) -> Any:
    """GPT-2's, whose tanh is written as a sigmoid: x * sigmoid(2 ROOT (x + CUBIC x^3)). Its gradient keeps only x."""

    def gate(x: Tensor, squared: Tensor) -> Tensor:
        return tf.sigmoid(x * (2 * ROOT + 2 * ROOT * CUBIC * squared))

    def gradient(dy: Tensor) -> Tensor:
        y = again(x, dy)
        squared = tf.square(y)
        share = gate(y, squared)
        return dy * (share + y * (2 * ROOT + 6 * ROOT * CUBIC * squared) * (share - tf.square(share)))

    return x * gate(x, tf.square(x)), gradient

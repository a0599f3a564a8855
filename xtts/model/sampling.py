"""Sampling: scores [B, tokens] and the number of a step come in, one token a row, [B], goes out.

Shares are whole numbers, and so is what is drawn: sums of them do not depend on the order of the addends, so that one
seed gives the same tokens in a graph, compiled by XLA, and on every TensorFlow. A row's draw depends on its own seed
and the step alone, not on the rows beside it.
"""

from typing import Any, NamedTuple, Sequence, Union

import tensorflow as tf

from xtts.errors import XttsError
from xtts.model.layers import Tensor

MAX_TOTAL = 2**30  # of a row's shares, which fit 32 bits
MAX_WEIGHT = 2**24  # parts of the best token's share; a float32 tells no more apart
MIX_FACTORS = 0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32  # odd, and signed, so that 64 bits hold what they make of 32


class SamplingError(XttsError):
    """A setting of sampling that has no meaning."""


class Sampling(NamedTuple):
    """How tokens are drawn. All are tensors, so that a compiled function is the same for any of their values."""

    temperature: Tensor  # float32, scores are divided by it
    top_k: Tensor  # int32, so many tokens are drawn from, the best ones; as many as there are: all
    top_p: Tensor  # float32, and of these the fewest best ones that have this share of the whole
    seeds: Tensor  # [B] int32, a row's own

    def __call__(self, scores: Tensor, step: Tensor) -> Tensor:
        """The tokens [B] int32 that are drawn at a step by scores [B, tokens]."""
        count = scores.shape[1]
        finest = min(MAX_WEIGHT, MAX_TOTAL // count)
        scores = tf.cast(scores, tf.float32) / self.temperature
        shares = tf.cast(finest * tf.exp(scores - tf.reduce_max(scores, axis=1, keepdims=True)), tf.int32)
        shares = _zero_below(shares, _threshold(shares, tf.ones_like(shares), tf.minimum(self.top_k, count), finest))
        part = self.top_p * tf.cast(tf.reduce_sum(shares, axis=1), tf.float32)
        shares = _zero_below(shares, _threshold(shares, shares, tf.cast(part, tf.int32), finest))
        total = tf.cast(tf.reduce_sum(shares, axis=1), tf.int64)
        drawn = 1 + tf.cast(_shift_right(_random_bits(self.seeds, step) * total, 32), tf.int32)
        from_last = tf.range(count - 1, -1, -1)[None]
        return count - 1 - _threshold(from_last, shares, drawn, count - 1)


def sampling(
    temperature: float = 0.75, top_k: int = 50, top_p: float = 0.85, seeds: Union[int, Sequence[int]] = 0, rows: int = 1
) -> Sampling:
    """Settings as tensors; without others, XTTS-v2's own. One seed for several rows is counted up from row to row."""
    if not temperature > 0:
        raise SamplingError(f"temperature = {temperature}: write a number above 0; for the best code always, top_k = 1")
    if not top_k >= 1:
        raise SamplingError(f"top_k = {top_k}: write how many codes to draw from, at least 1")
    if not 0 < top_p <= 1:
        raise SamplingError(f"top_p = {top_p}: write a share above 0 and up to 1")
    each = [seeds + row for row in range(rows)] if isinstance(seeds, int) else list(seeds)
    return Sampling(
        tf.constant(temperature, tf.float32),
        tf.constant(top_k, tf.int32),
        tf.constant(top_p, tf.float32),
        tf.constant([(seed + 2**31) % 2**32 - 2**31 for seed in each], tf.int32),
    )


def _threshold(keys: Tensor, shares: Tensor, wanted: Tensor, largest: int) -> Tensor:
    """The largest key [B] such that it and those above it have the shares that are wanted, [] or [B]; 0 if none has.

    Keys, from 0 to `largest`, and shares are [B, tokens]. Found bit by bit: by XLA, four times as fast as sorting.
    """
    bits = largest.bit_length()

    def halve(bit: Tensor, found: Tensor) -> Any:
        tried = found + bit
        have = tf.reduce_sum(tf.where(keys >= tried[:, None], shares, 0), axis=1)
        return bit // 2, tf.where(have >= wanted, tried, found)

    start = tf.constant(2 ** (bits - 1)), tf.zeros_like(shares[:, 0])
    _, found = tf.while_loop(lambda bit, found: bit > 0, halve, start, maximum_iterations=bits)
    return found


def _zero_below(shares: Tensor, least: Tensor) -> Tensor:
    """Shares [B, tokens], 0 where they are below the least [B]."""
    return tf.where(shares >= least[:, None], shares, 0)


def _random_bits(seeds: Tensor, step: Tensor) -> Tensor:
    """32 random bits [B], int64, of the seeds [B] at a step."""
    return _mix_bits(_mix_bits(tf.cast(seeds, tf.int64)) + tf.cast(step, tf.int64))


def _mix_bits(word: Tensor) -> Tensor:
    """32 bits of which each depends on all that came in, as in the end of MurmurHash3; int64, not negative."""
    word = _low_32_bits(word)
    for shift, factor in zip((16, 13), MIX_FACTORS):
        word = _low_32_bits(tf.bitwise.bitwise_xor(word, _shift_right(word, shift)) * factor)
    return tf.bitwise.bitwise_xor(word, _shift_right(word, 16))


def _low_32_bits(word: Tensor) -> Tensor:
    return tf.bitwise.bitwise_and(word, tf.constant(2**32 - 1, tf.int64))


def _shift_right(word: Tensor, by: int) -> Tensor:
    return tf.bitwise.right_shift(word, tf.constant(by, tf.int64))

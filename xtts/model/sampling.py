"""Top-k and top-p sampling that is reproducible: one seed gives the same tokens with and without XLA, on every release.

Probabilities are scaled to integers, whose sums do not depend on the order of summation. A row's draw depends only on
its own seed and the step, not on the other rows.
"""

from typing import Any, NamedTuple, Sequence, Union

import tensorflow as tf

from xtts.errors import XttsError
from xtts.model.layers import Tensor

MAX_TOTAL = 2**30  # of a row's integer weights, to fit 32 bits
MAX_WEIGHT = 2**24  # of the most likely token; the precision of float32
MIX_FACTORS = 0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32  # odd; signed, so that products with 32 bits fit 64


class SamplingError(XttsError):
    """A sampling setting that is out of range."""


class Sampling(NamedTuple):
    """Sampling settings as tensors, so that other values do not retrace a function."""

    temperature: Tensor  # float32; divides the scores
    top_k: Tensor  # int32; keeps the most likely tokens
    top_p: Tensor  # float32; of these keeps the fewest whose total probability is at least this
    seeds: Tensor  # [B] int32, one for each row

    def __call__(self, scores: Tensor, step: Tensor) -> Tensor:
        """Sample tokens [B], int32, from scores [B, tokens]."""
        count = scores.shape[1]
        max_weight = min(MAX_WEIGHT, MAX_TOTAL // count)
        scores = tf.cast(scores, tf.float32) / self.temperature
        weights = tf.cast(max_weight * tf.exp(scores - tf.reduce_max(scores, axis=1, keepdims=True)), tf.int32)
        weights = _zero_below(
            weights, _threshold(weights, tf.ones_like(weights), tf.minimum(self.top_k, count), max_weight)
        )
        part = self.top_p * tf.cast(tf.reduce_sum(weights, axis=1), tf.float32)
        weights = _zero_below(weights, _threshold(weights, weights, tf.cast(part, tf.int32), max_weight))
        total = tf.cast(tf.reduce_sum(weights, axis=1), tf.int64)
        drawn = 1 + tf.cast(_shift_right(_random_bits(self.seeds, step) * total, 32), tf.int32)
        from_last = tf.range(count - 1, -1, -1)[None]
        return count - 1 - _threshold(from_last, weights, drawn, count - 1)


def sampling(
    temperature: float = 0.75, top_k: int = 50, top_p: float = 0.85, seeds: Union[int, Sequence[int]] = 0, rows: int = 1
) -> Sampling:
    """Settings as tensors; the defaults are XTTS-v2's. A single seed is incremented from row to row."""
    if not temperature > 0:
        raise SamplingError(
            f"temperature = {temperature}: write a number above 0; to always take the most likely code, set top_k = 1"
        )
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


def _threshold(keys: Tensor, weights: Tensor, wanted: Tensor, largest: int) -> Tensor:
    """The largest key [B] such that tokens with this key or a larger one have the wanted total weight; otherwise 0.

    Keys, from 0 to `largest`, and weights are [B, tokens]; `wanted` is [] or [B]. Found by bisection over the bits,
    which with XLA is four times as fast as sorting.
    """
    bits = largest.bit_length()

    def halve(bit: Tensor, found: Tensor) -> Any:
        tried = found + bit
        have = tf.reduce_sum(tf.where(keys >= tried[:, None], weights, 0), axis=1)
        return bit // 2, tf.where(have >= wanted, tried, found)

    start = tf.constant(2 ** (bits - 1)), tf.zeros_like(weights[:, 0])
    _, found = tf.while_loop(lambda bit, found: bit > 0, halve, start, maximum_iterations=bits)
    return found


def _zero_below(weights: Tensor, least: Tensor) -> Tensor:
    """Weights [B, tokens], set to 0 where they are below a minimum [B]."""
    return tf.where(weights >= least[:, None], weights, 0)


def _random_bits(seeds: Tensor, step: Tensor) -> Tensor:
    """32 random bits [B], int64, from seeds [B] and the step."""
    return _mix_bits(_mix_bits(tf.cast(seeds, tf.int64)) + tf.cast(step, tf.int64))


def _mix_bits(word: Tensor) -> Tensor:
    """The 32-bit finalizer of MurmurHash3, on non-negative int64."""
    word = _low_32_bits(word)
    for shift, factor in zip((16, 13), MIX_FACTORS):
        word = _low_32_bits(tf.bitwise.bitwise_xor(word, _shift_right(word, shift)) * factor)
    return tf.bitwise.bitwise_xor(word, _shift_right(word, 16))


def _low_32_bits(word: Tensor) -> Tensor:
    return tf.bitwise.bitwise_and(word, tf.constant(2**32 - 1, tf.int64))


def _shift_right(word: Tensor, by: int) -> Tensor:
    return tf.bitwise.right_shift(word, tf.constant(by, tf.int64))

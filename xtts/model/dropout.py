"""Dropout: the seed of a step comes in, masks go out, the same in every run and on every TensorFlow way of running."""

import math
from typing import Any, List, Optional

import tensorflow as tf

from xtts.model.layers import Tensor, extents


class Dropout:
    """The masks of one step: a rate and the step's seed come in; every call draws anew, and the same in every run.

    A mask takes a byte of random bits an element, so rates are whole 256ths.
    """

    def __init__(self, rate: float = 0.0, seed: Optional[Tensor] = None) -> None:
        self._cut = round(256 * rate)
        if self._cut and seed is None:
            raise ValueError("dropout needs the seed of the step, two integers")
        self._seed, self._draws = seed, 0
        self.scale = 256 / (256 - self._cut)  # of what is kept, so that the mean stays

    def __bool__(self) -> bool:
        return self._cut > 0

    def __call__(self, x: Tensor) -> Tensor:
        """x, with a part of it zero and the rest scaled."""
        if not self:
            return x
        return tf.where(self.kept(extents(x)), x * tf.constant(self.scale, x.dtype), tf.zeros([], x.dtype))

    def kept(self, shape: List[Any]) -> Tensor:
        """A new mask, bool: True where something is kept. `shape` is as `extents` has it."""
        self._draws += 1
        count = math.prod(shape)
        seed = tf.cast(self._seed, tf.int32) + tf.constant([0, self._draws * 0x3C6EF35F % 2**31], tf.int32)
        bits = tf.random.stateless_uniform([-(-count // 4)], seed, minval=None, maxval=None, dtype=tf.int32)
        drawn = tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:count]
        return tf.reshape(drawn >= tf.constant(self._cut, tf.uint8), shape)

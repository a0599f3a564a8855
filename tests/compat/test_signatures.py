"""What changed between two calls is explained by argument."""

from collections import namedtuple

import numpy as np
import pytest
import tensorflow as tf

from xtts.compat.signatures import differences, explain, signature


def step(mel_spectrograms, text=None, training=True, **more):
    """A function to compute signatures for."""


def changes(before, now):
    return differences(signature(step, *before[0], **before[1]), signature(step, *now[0], **now[1]))


def call(*arguments, **options):
    return arguments, options


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            call(tf.zeros([8, 731, 80])),
            call(tf.zeros([8, 802, 80])),
            ["mel_spectrograms: dimension 1 was 731, now 802"],
        ),
        (
            call(tf.zeros([2, 3])),
            call(tf.zeros([4, 5])),
            ["mel_spectrograms: dimension 0 was 2, now 4", "mel_spectrograms: dimension 1 was 3, now 5"],
        ),
        (call(tf.zeros([2])), call(tf.zeros([2], tf.float64)), ["mel_spectrograms: dtype was float32, now float64"]),
        (
            call(tf.zeros([2])),
            call(tf.zeros([2, 2])),
            ["mel_spectrograms: was a float32 tensor [2], now a float32 tensor [2, 2]"],
        ),
        (call(1, training=True), call(1, training=False), ["training: Python value was True, now False"]),
        (call(1, training=True), call(1, training=1), ["training: Python value was True, now 1"]),
        (call(0.1), call(0.2), ["mel_spectrograms: Python value was 0.1, now 0.2"]),
        (call(3), call(tf.constant(3)), ["mel_spectrograms: was the Python value 3, now a int32 tensor []"]),
        (
            call({"mel": tf.zeros([2])}),
            call({"mel": tf.zeros([3])}),
            ["mel_spectrograms['mel']: dimension 0 was 2, now 3"],
        ),
        (call([1, tf.zeros([2])]), call([1, tf.zeros([3])]), ["mel_spectrograms[1]: dimension 0 was 2, now 3"]),
        (call(Pair(1, 2)), call(Pair(1, 3)), ["mel_spectrograms.right: Python value was 2, now 3"]),
        (call({"a": 1}), call({"a": 1, "b": 2}), ["mel_spectrograms['b']: was not there, now the Python value 2"]),
        (call({"a": 1, "b": 2}), call({"a": 1}), ["mel_spectrograms['b']: was the Python value 2, now not there"]),
        (call(np.zeros([2])), call(np.zeros([3])), ["mel_spectrograms: dimension 0 was 2, now 3"]),
        (call(1, speed=2), call(1, speed=3), ["more['speed']: Python value was 2, now 3"]),
        (call(tf.zeros([2])), call(tf.ones([2])), []),
    ],
)
def test_what_changed_is_named(before, now, words):
    """The argument and its dimension, dtype or Python value are named with both values; equal calls give nothing."""
    assert changes(before, now) == words


def test_a_call_is_compared_with_the_nearest_signature():
    """Of all signatures seen, the one with the fewest changes is used as the explanation."""
    seen = [signature(step, tf.zeros([8, n])) for n in (100, 200)]
    seen.append(signature(step, tf.zeros([4, 300]), training=False))
    assert explain(seen, signature(step, tf.zeros([8, 250]))) == ["mel_spectrograms: dimension 1 was 200, now 250"]
    assert explain([], seen[0]) == []

"""Convolutions over time: their definition, and gradients where TensorFlow's own kernels have none."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts.model.convolution import Conv1d, convolve_time


def defined(x, weight, dilation):
    """The definition: the sum over taps, in float64."""
    frames = x.shape[1] - dilation * (len(weight) - 1)
    taps = (x[:, place * dilation :][:, :frames] @ tap for place, tap in enumerate(weight.astype(np.float64)))
    return sum(taps)


@settings(max_examples=15)
@given(dilation=st.integers(1, 5), kernel=st.integers(1, 5), more=st.integers(1, 9), seed=st.integers(0, 99))
def test_dilated_convolutions_and_gradients_match_the_definition(dilation, kernel, more, seed):
    """Value and both gradients are correct eagerly on a CPU, for lengths that dilations divide and others."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((2, dilation * (kernel - 1) + more, 3)).astype(np.float32)
    weight = random.standard_normal((kernel, 3, 2)).astype(np.float32)
    pull = random.standard_normal((2, more, 2)).astype(np.float32)
    inputs, kernels = tf.Variable(x), tf.Variable(weight)
    with tf.GradientTape() as tape:
        y = convolve_time(inputs, kernels, dilation)
        loss = tf.reduce_sum(y * pull)
    to_inputs, to_kernels = tape.gradient(loss, [inputs, kernels])
    np.testing.assert_allclose(y, defined(x, weight, dilation), atol=1e-5)
    for place in range(kernel):
        seen = x[:, place * dilation :][:, :more]
        np.testing.assert_allclose(to_kernels[place], np.einsum("btc,btd->cd", seen, pull), atol=1e-4)
    spread = np.zeros_like(x)
    for place in range(kernel):
        spread[:, place * dilation :][:, :more] += pull @ weight[place].T
    np.testing.assert_allclose(to_inputs, spread, atol=1e-5)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kernel", [1, 3])
def test_every_float_type_is_convolved_and_differentiated(dtype, kernel):
    """Half-precision types match float32 to their precision, also on releases without kernels for them."""
    layer = Conv1d(4, 5, kernel, np.random.default_rng(0), dilation=2)
    x = np.random.default_rng(1).standard_normal((2, 9, 4)).astype(np.float32)
    with tf.GradientTape() as tape:
        y = layer(tf.cast(x, dtype))
        loss = tf.reduce_sum(tf.cast(y, tf.float32))
    assert y.dtype == dtype
    np.testing.assert_allclose(tf.cast(y, tf.float32), layer(tf.constant(x)), atol=5e-2)
    gradient = tape.gradient(loss, layer.weight)
    assert gradient.dtype == tf.float32
    np.testing.assert_allclose(gradient[kernel // 2, :, 0], x.sum(axis=(0, 1)), atol=1e-1)


@settings(max_examples=15)
@given(stride=st.integers(1, 3), kernel=st.integers(1, 4), frames=st.integers(4, 12), seed=st.integers(0, 99))
def test_a_stride_takes_every_nth_frame(stride, kernel, frames, seed):
    """A layer with a stride gives every stride-th frame of the same layer without one, for any length."""
    layer = Conv1d(3, 2, kernel, np.random.default_rng(seed), stride=stride)
    dense = Conv1d(3, 2, kernel, np.random.default_rng(seed))
    x = tf.constant(np.random.default_rng(seed + 1).standard_normal((2, frames, 3)), tf.float32)
    np.testing.assert_allclose(layer(x), dense(x)[:, ::stride], atol=1e-5)


def test_a_stride_cannot_be_combined_with_dilation():
    """No part of the model needs both, and the combination is refused."""
    with pytest.raises(ValueError, match="not both"):
        Conv1d(3, 2, 3, np.random.default_rng(0), stride=2, dilation=2)

"""Traces are counted, explained and limited, with the real TensorFlow."""

import logging
import warnings

import numpy as np
import pytest
import tensorflow as tf

from xtts import compat


def total(mel_spectrograms, training=True):
    return tf.reduce_sum(mel_spectrograms)


def test_each_trace_is_counted_and_explained():
    """There is one trace per shape, none for a shape seen before, and the changed dimension is named."""
    step = compat.compiled(total)
    for length in (731, 802, 731, 802):
        step(tf.zeros([8, length]))
    assert (step.calls, step.traces, step.shapes_met, step.compilations) == (4, 2, 2, 2)
    assert [str(retrace) for retrace in step.retraces] == ["mel_spectrograms: dimension 1 was 731, now 802"]
    assert step.retraces[0].call == 2
    assert compat.trace_count(step) == 2


def test_an_input_signature_keeps_relaxed_shapes_at_one_trace():
    """With open dimensions in the signature any length uses the one trace; distinct shapes are still counted."""
    step = compat.compiled(total, input_signature=[tf.TensorSpec([8, None], tf.float32)])
    for length in (3, 4, 5):
        assert step(tf.ones([8, length])).numpy() == 8 * length
    assert (step.traces, step.shapes_met, step.compilations) == (1, 3, 1)
    assert step.retraces == []


def test_an_xla_recompilation_without_a_trace_is_counted():
    """With open dimensions XLA compiles each shape while the trace count stays at one, which the report shows."""
    step = compat.compiled(total, input_signature=[tf.TensorSpec([8, None], tf.float32)], jit_compile=True)
    for length in (3, 4, 3, 5):
        step(tf.ones([8, length]))
    assert (step.traces, step.shapes_met, step.compilations) == (1, 3, 3)
    assert [str(retrace) for retrace in step.retraces] == [
        "XLA compiled again without a trace: mel_spectrograms: dimension 1 was 3, now 4",
        "XLA compiled again without a trace: mel_spectrograms: dimension 1 was 4, now 5",
    ]
    assert "1 trace, 3 shapes met, compiled by XLA 3 times" in step.report()


def test_reduce_retracing_traces_fewer_times_than_there_are_shapes():
    """Whatever this release calls the keyword, relaxed shapes need fewer traces than shapes."""
    step = compat.compiled(total, reduce_retracing=True)
    for length in range(1, 7):
        step(tf.ones([length]))
    assert step.traces < step.shapes_met == 6


def test_a_signature_mismatch_is_one_exception_on_every_release():
    """TensorFlow raises ValueError or TypeError with a page of text; ours is both, in one line, before the call."""
    step = compat.compiled(total, input_signature=[tf.TensorSpec([8, None], tf.float32)])
    with pytest.raises(compat.SignatureError) as caught:
        step(tf.ones([7, 3]))
    assert str(caught.value) == "total: mel_spectrograms: dimension 0 is 7, the signature says 8"
    with pytest.raises(ValueError, match="dtype is int32, the signature says float32"):
        step(tf.ones([8, 3], tf.int32))
    with pytest.raises(TypeError, match="has 1 dimensions, the signature says 2"):
        step(tf.ones([8]))


def test_a_watch_raises_when_a_function_retraces_too_often():
    """A tf.function defined elsewhere is stopped at the first trace over the limit."""
    step = compat.watch(tf.function(total), allowed=2, action="raise")
    step(tf.zeros([1]))
    step(tf.zeros([2]))
    step(tf.zeros([2]))
    with pytest.raises(compat.RetraceError) as caught:
        step(tf.zeros([3]))
    assert str(caught.value) == (
        "tf.function RETRACING detected at call 4 (total retraces: 2): "
        "total: mel_spectrograms: dimension 0 was 2, now 3"
    )


def test_a_watch_warns_at_the_callers_line():
    """The warning points at the call that caused the trace."""
    step = compat.watch(tf.function(total))
    step(tf.zeros([1]))
    with pytest.warns(compat.RetraceWarning, match="dimension 0 was 1, now 2") as caught:
        step(tf.zeros([2]))
    assert caught[0].filename == __file__
    assert len(caught) == 1


def test_a_watch_sees_the_compilations_of_a_jit_compiled_function():
    """Recompilations that show no trace count towards the limit, under whichever name this release has for XLA."""
    jitted = tf.function(total, input_signature=[tf.TensorSpec([None])], **{compat.OFFERED.jit_compile.value: True})
    step = compat.watch(jitted, action="raise")
    step(tf.zeros([1]))
    with pytest.raises(compat.RetraceError, match="XLA compiled again without a trace"):
        step(tf.zeros([2]))


def test_allowed_traces_are_silent():
    """There is no warning while the count is within the limit."""
    step = compat.compiled(total, allowed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (1, 2, 1, 2):
            step(tf.zeros([length]))


def test_a_trace_without_a_changed_argument_is_explained():
    """A function that is traced for another reason is not reported as one whose arguments changed."""
    step = compat.compiled(total)
    step(tf.zeros([1]))
    with tf.distribute.OneDeviceStrategy("/CPU:1").scope():
        step(tf.zeros([1]))
    if step.traces > 1:  # newer releases retrace for a strategy
        assert "the arguments did not change" in str(step.retraces[-1])


def test_planned_traces_are_no_retraces():
    """Eight planned shapes cause eight traces, no retraces, and no warning of TensorFlow's."""
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        for is_planned in (True, False):
            double = compat.compiled(lambda x: 2 * x)
            for length in range(1, 9):
                if is_planned:
                    double.trace(tf.ones([length]))
                double(tf.ones([length]))
            assert (double.traces, len(double.retraces), bool(logged)) == (8, 0 if is_planned else 7, not is_planned)
    finally:
        tf.get_logger().removeHandler(handler)


def test_a_method_is_counted_for_each_instance():
    """As a decorator in a class, it gives each object its own function and counts."""

    class Model(tf.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = tf.Variable(factor)

        @compat.compiled
        def scaled(self, x):
            return self.factor * x

        @compat.compiled(reduce_retracing=True)
        def doubled(self, x):
            return 2.0 * x

    one, two = Model(3.0), Model(5.0)
    one.scaled(tf.zeros([1]))
    one.scaled(tf.zeros([2]))
    assert two.scaled(tf.ones([1])).numpy().tolist() == [5.0]
    assert (one.scaled.traces, two.scaled.traces) == (2, 1)
    assert two.doubled(tf.ones([1])).numpy().tolist() == [2.0]


def test_numpy_arrays_and_nested_arguments_are_distinguished():
    """Arrays are compared by shape and dtype, dictionaries leaf by leaf."""
    step = compat.compiled(lambda batch: tf.reduce_sum(batch["mel"]))
    step({"mel": np.zeros([3], np.float32)})
    step({"mel": np.ones([3], np.float32)})
    step({"mel": np.zeros([4], np.float32)})
    assert step.shapes_met == 2
    assert str(step.retraces[0]) == "batch['mel']: dimension 0 was 3, now 4"


def test_the_functions_own_methods_are_available():
    """The methods of tf.function, such as get_concrete_function, are passed through."""
    step = compat.compiled(total)
    concrete = step.get_concrete_function(tf.TensorSpec([2, 2], tf.float32))
    assert concrete(tf.ones([2, 2])).numpy() == 4.0
    assert step.traces == 1


def test_a_watch_refuses_an_uncompiled_function():
    """A plain function cannot be watched, and the message says what to use."""
    with pytest.raises(TypeError, match="use compiled instead"):
        compat.watch(total)
    with pytest.raises(ValueError, match='"warn" or "raise"'):
        compat.watch(tf.function(total), action="shout")

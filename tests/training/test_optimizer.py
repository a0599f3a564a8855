"""AdamW and its schedules against plain NumPy, step by step, and steps that must change nothing."""

import math

import numpy as np
import pytest
import tensorflow as tf

from xtts import compat
from xtts.recipe.schema import TrainSection
from xtts.training.optimizer import BETA_1, BETA_2, EPSILON, AdamW, Schedule

STEPS = 50
SHAPES = ((4, 3), (3,), (2, 3, 4), (1,))  # those with more than one axis have weight decay
TRAIN = TrainSection(weight_decay=0.1, clip_norm=1.5, ema_decay=0.9, warmup_steps=7)
SCHEDULE = Schedule("cosine", 0.05, 7, STEPS)


def gradients(step):
    """Gradients of which some exceed the clipping norm."""
    random = np.random.default_rng(step)
    size = 0.2 if step % 3 else 2.0
    return [(size * random.standard_normal(shape)).astype(np.float32) for shape in SHAPES]


def weights():
    random = np.random.default_rng(99)
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


class Moving:
    """An optimizer over some weights, called as a compiled function or eagerly."""

    def __init__(self, train=TRAIN, schedule=SCHEDULE, **compiled):
        self.variables = [tf.Variable(value) for value in weights()]
        self.optimizer = AdamW(self.variables, schedule, train)
        self.apply = compat.compiled(self._apply, autograph=False, **compiled) if compiled else self._apply

    def _apply(self, step, loss, *gradients):
        return self.optimizer.apply(list(gradients), step, loss, lambda variable: variable)

    def step(self, number, given=None, loss=1.0):
        given = gradients(number) if given is None else given
        return self.apply(tf.constant(number), tf.constant(loss), *map(tf.constant, given))

    def state(self):
        kept = [variable for variables in self.optimizer.slots().values() for variable in variables]
        return [variable.numpy() for variable in (*self.variables, *kept)]


def reference(steps, train=TRAIN):
    """AdamW (Loshchilov and Hutter 2019) in float64: weights, first and second moments, and the average."""
    values = [value.astype(np.float64) for value in weights()]
    first, second = [0 * value for value in values], [0 * value for value in values]
    average = [value.copy() for value in values]
    norms = []
    for step in range(steps):
        given = [gradient.astype(np.float64) for gradient in gradients(step)]
        norms.append(math.sqrt(sum((gradient**2).sum() for gradient in given)))
        rate = rate_of("cosine", step, 0.05, 7, STEPS)
        for place, gradient in enumerate(given):
            gradient *= min(1.0, train.clip_norm / norms[-1])
            first[place] = BETA_1 * first[place] + (1 - BETA_1) * gradient
            second[place] = BETA_2 * second[place] + (1 - BETA_2) * gradient**2
            unbiased = first[place] / (1 - BETA_1 ** (step + 1))
            size = np.sqrt(second[place] / (1 - BETA_2 ** (step + 1)))
            decay = train.weight_decay * values[place] if values[place].ndim > 1 else 0.0
            values[place] = values[place] - rate * decay - rate * unbiased / (size + EPSILON)
            keep = min(train.ema_decay, (1 + step) / (10 + step))
            average[place] = keep * average[place] + (1 - keep) * values[place]
    return [*values, *first, *second, *average], norms


def rate_of(kind, step, peak, warmup, steps):
    """The formulas of the schedules."""
    rise = min(1.0, (step + 1) / max(1, warmup))
    if kind == "constant":
        return peak * rise
    if kind == "noam":
        return peak * min(rise, math.sqrt(max(1, warmup) / (step + 1)))
    share = min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))
    return peak * rise * (1 + math.cos(math.pi * share)) / 2


@pytest.mark.parametrize("compiled", [{}, {"jit_compile": False}, {"jit_compile": True}], ids=["eager", "graph", "xla"])
def test_fifty_steps_match_numpy(compiled):
    """Bias correction, decoupled weight decay of matrices, global norm clipping and the weight average are included."""
    moving = Moving(**compiled)
    found = [moving.step(step) for step in range(STEPS)]
    wanted, norms = reference(STEPS)
    for ours, theirs in zip(moving.state(), wanted):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose([float(one.norm) for one in found], norms, rtol=1e-5)
    assert min(norms) < TRAIN.clip_norm < max(norms)
    assert all(bool(one.is_finite) for one in found)


def test_epsilon_is_added_after_bias_correction():
    """A gradient as small as epsilon moves a weight by half the learning rate from the first step on."""
    moving = Moving(TrainSection(weight_decay=0.0, ema_decay=0.0), Schedule("constant", 0.5, 0, 9))
    before = moving.variables[1].numpy()
    moving.step(0, [np.full(shape, EPSILON, np.float32) for shape in SHAPES])
    np.testing.assert_allclose(before - moving.variables[1].numpy(), 0.25, rtol=1e-4)


@pytest.mark.parametrize("kind", ["constant", "cosine", "noam"])
@pytest.mark.parametrize("warmup", [0, 1, 100])
def test_schedules_match_their_formulas(kind, warmup):
    """They are compared at the first step, around the end of the warm-up, in the middle and at the last step."""
    schedule = Schedule(kind, 3e-4, warmup, 1000)
    for step in {0, max(0, warmup - 1), warmup, warmup + 1, 500, 999}:
        wanted = rate_of(kind, step, 3e-4, warmup, 1000)
        assert float(schedule(float(step))) == pytest.approx(wanted, rel=2e-5, abs=3e-11)
    rates = schedule(tf.range(1000, dtype=tf.float32)).numpy()
    assert rates.max() == pytest.approx(3e-4)
    assert rates.argmax() in (max(0, warmup - 1), warmup)
    assert rates[-1] < 1e-5 if kind == "cosine" else rates[-1] > 0


def test_a_warm_up_is_not_longer_than_the_run():
    """A stage with fewer steps than the warm-up still reaches its peak learning rate at the end."""
    schedule = Schedule.of(TrainSection(steps=1000, warmup_steps=100), 1e-3, 10)
    assert schedule.warmup == 10
    assert float(schedule(9.0)) == pytest.approx(1e-3)


@pytest.mark.parametrize("compiled", [{"jit_compile": False}, {"jit_compile": True}], ids=["graph", "xla"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_change_nothing(bad, compiled):
    """One such value in a gradient, or in the loss alone, leaves weights, moments and average bit-identical."""
    moving = Moving(**compiled)
    for step in range(3):
        moving.step(step)
    before = moving.state()
    spoilt = gradients(3)
    spoilt[2][0, 1, 2] = bad
    for result in (moving.step(3, spoilt), moving.step(3, loss=bad)):
        assert not result.is_finite
        for ours, theirs in zip(moving.state(), before):
            assert ours.tobytes() == theirs.tobytes()
    assert moving.step(3).is_finite
    wanted, _ = reference(4)
    for ours, theirs in zip(moving.state(), wanted):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


def test_a_norm_that_overflows_changes_nothing():
    """Gradients that are finite, but whose squares are not, are skipped as well."""
    moving = Moving()
    before = moving.state()
    assert not moving.step(0, [np.full(shape, 1e30, np.float32) for shape in SHAPES]).is_finite
    for ours, theirs in zip(moving.state(), before):
        assert ours.tobytes() == theirs.tobytes()


def test_zero_gradients_only_decay_weights():
    """A norm of 0 causes no division by zero."""
    moving = Moving(schedule=Schedule("constant", 0.1, 0, 9))
    assert moving.step(0, [np.zeros(shape, np.float32) for shape in SHAPES]).is_finite
    np.testing.assert_allclose(moving.variables[0].numpy(), weights()[0] * (1 - 0.1 * TRAIN.weight_decay), rtol=1e-6)
    np.testing.assert_array_equal(moving.variables[1].numpy(), weights()[1])


def test_averages_replace_the_weights_temporarily():
    """Inside, every weight is its average; afterwards all is bit-identical to before, even after an exception."""
    moving = Moving()
    for step in range(5):
        moving.step(step)
    before = moving.state()
    with moving.optimizer.averaged():
        for variable, average in zip(moving.variables, moving.optimizer.average):
            np.testing.assert_array_equal(variable.numpy(), average.numpy())
        assert not np.array_equal(moving.variables[0].numpy(), before[0])
    for ours, theirs in zip(moving.state(), before):
        assert ours.tobytes() == theirs.tobytes()
    with pytest.raises(KeyError), moving.optimizer.averaged():
        raise KeyError
    for ours, theirs in zip(moving.state(), before):
        assert ours.tobytes() == theirs.tobytes()


def test_without_an_average_the_weights_are_used():
    """With ema_decay = 0 no average is stored or swapped in."""
    moving = Moving(TrainSection(ema_decay=0.0))
    moving.step(0)
    before = moving.state()
    assert sorted(moving.optimizer.slots()) == ["first", "second"]
    with moving.optimizer.averaged():
        np.testing.assert_array_equal(moving.variables[0].numpy(), before[0])

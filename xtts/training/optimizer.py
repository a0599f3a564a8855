"""AdamW, learning rate schedules, gradient clipping and the running average of the weights.

Plain tf.Module code, the same on every TensorFlow release. No variable counts steps: the learning rate, the bias
corrections and everything else that depends on time are functions of the step number, so resuming needs one integer.
Every replica updates its own copies, all with the same gradients.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import attrs
import numpy as np
import tensorflow as tf

from xtts.model.layers import ordered_sum
from xtts.recipe.schema import TrainSection

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Values = Callable[[Any], Any]  # of a variable, the copy of the replica that asks

BETA_1, BETA_2, EPSILON = 0.9, 0.96, 1e-8  # AdamW's, as XTTS was trained


@attrs.frozen
class Schedule:
    """The learning rate schedule: a linear warm-up, then a schedule by `kind`."""

    kind: str  # constant, cosine or noam
    peak: float
    warmup: int  # steps
    steps: int  # in all

    @classmethod
    def of(cls, train: TrainSection, peak: float, steps: int) -> "Schedule":
        return cls(train.schedule, peak, min(train.warmup_steps, steps), steps)

    def __call__(self, step: Any) -> Any:
        """The learning rate at a step: a float, or an array or a tensor of floats."""
        rise = tf.minimum(1.0, (step + 1.0) / max(1.0, float(self.warmup)))
        if self.kind == "constant":
            return self.peak * rise
        if self.kind == "noam":
            late = tf.sqrt(max(1.0, float(self.warmup)) / tf.maximum(step + 1.0, float(max(1, self.warmup))))
            return self.peak * tf.minimum(rise, late)
        share = tf.clip_by_value((step - self.warmup) / max(1.0, float(self.steps - self.warmup)), 0.0, 1.0)
        return self.peak * rise * 0.5 * (1.0 + tf.cos(np.pi * share))


class Update(NamedTuple):
    """The result of an update."""

    norm: Tensor  # of all gradients, before clipping
    is_finite: Tensor  # bool; False: the update was skipped
    learning_rate: Tensor


class AdamW(tf.Module):
    """AdamW, with a running average of the weights (EMA) if ema_decay is set.

    `decays`: for each variable whether weight decay applies to it; None: it applies to matrices.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        schedule: Schedule,
        train: TrainSection,
        decays: Optional[Sequence[bool]] = None,
    ) -> None:
        super().__init__()
        self._schedule, self._train = schedule, train
        self.variables_ = list(variables)
        self._decays = [_is_matrix(variable) for variable in variables] if decays is None else list(decays)
        self.first = [_zeros(variable) for variable in self.variables_]
        self.second = [_zeros(variable) for variable in self.variables_]
        self.average = [_copy(variable) for variable in self.variables_] if train.ema_decay else []

    def apply(self, gradients: Sequence[Tensor], step: Tensor, loss: Tensor, values: Values) -> Update:
        """Update this replica's copies by gradients that all replicas share. `step`, int32 [], counts from 0."""
        time = tf.cast(step, tf.float32)
        # Not tf.add_n: see layers.ordered_sum.
        norm = tf.sqrt(2.0 * ordered_sum([tf.nn.l2_loss(gradient) for gradient in gradients]))
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        clipped = tf.minimum(1.0, self._train.clip_norm / tf.maximum(norm, 1e-12)) if self._train.clip_norm else 1.0
        scale = tf.where(is_finite, clipped, 0.0)
        rate = self._schedule(time)
        moving = tf.where(is_finite, rate, 0.0)
        powers = BETA_1 ** (time + 1.0), BETA_2 ** (time + 1.0)
        constants = {
            "lr": moving,
            "beta1_power": powers[0],
            "beta2_power": powers[1],
            "beta1": tf.where(is_finite, BETA_1, 1.0),  # 1: a skipped step leaves the moments unchanged
            "beta2": tf.where(is_finite, BETA_2, 1.0),
            "epsilon": EPSILON * tf.sqrt(1.0 - powers[1]),  # TensorFlow adds it before the bias is corrected
        }
        for place, (variable, gradient) in enumerate(zip(self.variables_, gradients)):
            weight, first, second = (values(one) for one in (variable, self.first[place], self.second[place]))
            gradient = tf.where(is_finite, gradient * scale, 0.0)  # a NaN times 0 is still a NaN
            if self._decays[place]:
                weight.assign_sub(moving * self._train.weight_decay * weight)
            tf.raw_ops.ResourceApplyAdam(var=weight.handle, m=first.handle, v=second.handle, grad=gradient, **constants)
            if self.average:
                self._update_average(values(self.average[place]), weight, time, is_finite)
        return Update(norm, is_finite, rate)

    def _update_average(self, average: Any, weight: Any, time: Tensor, is_finite: Tensor) -> None:
        # Recent weights count for more at first, so that the average of a short run is not dominated by its beginning.
        share = tf.where(is_finite, 1.0 - tf.minimum(self._train.ema_decay, (1.0 + time) / (10.0 + time)), 0.0)
        average.assign_add(share * (weight - average))

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block, the weights are replaced by their running average, if there is one."""
        now = [variable.numpy() for variable in self.variables_] if self.average else []
        try:
            for variable, average in zip(self.variables_, self.average):
                variable.assign(average.numpy())
            yield
        finally:
            for variable, value in zip(self.variables_, now):
                variable.assign(value)

    def slots(self) -> Dict[str, List[Any]]:
        """The optimizer's variables, in the order of the trainable ones."""
        slots = {"first": self.first, "second": self.second}
        return {**slots, "average": self.average} if self.average else slots


def decays(variables: Mapping[str, Any], on: Optional[str]) -> List[bool]:
    """Whether weight decay applies to each of the variables, given by published names; `on` is train.weight_decay_on.

    The public trainer leaves out biases, and the weights of those layers that PyTorch calls norms or embeddings. The
    perceiver's norm is a class of its own there, so its scale decays, as do the matrices that are left.
    """
    if on == "published":
        return [
            (_is_matrix(one) and "embedding." not in name) or name.endswith("norm.gamma")
            for name, one in variables.items()
        ]
    return [on == "all" or _is_matrix(one) for one in variables.values()]


def _is_matrix(variable: Any) -> bool:
    """Whether it is none of the biases, scales and shifts."""
    return len(variable.shape) > 1


def _zeros(variable: Any) -> Any:
    return tf.Variable(np.zeros(variable.shape, np.float32), trainable=False)


def _copy(variable: Any) -> Any:
    return tf.Variable(variable.numpy(), trainable=False)

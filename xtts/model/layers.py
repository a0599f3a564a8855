"""The layers of all parts of the model, channels last, and the base class of modules.

A module's attributes have the names of the published checkpoint, so that the path to a weight (`attn.0.qkv.weight`) is
its published name and no mapping is needed. Weights are laid out as TensorFlow computes with them; `AXES` of a layer
maps them to the published axes, and `Weight.load` transposes once. Weights are float32; a layer computes in the dtype
of its input, norms and softmaxes in float32.
"""

import copy
import functools
import math
from typing import Any, ClassVar, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Axes = Tuple[int, ...]
Random = Optional[np.random.Generator]  # draws initial weights; None: weights will be loaded, so none are drawn

CACHE_ALIAS_BYTES = 2048  # a row stride at which the rows of a matrix share cache lines
MAX_ALIASED_COLUMNS = 512  # of the smaller matrix; with more, aliasing costs nothing
INITIAL_DEVIATION = 0.02  # default standard deviation of random initial weights


@attrs.frozen(eq=False)
class UnloadedVariable:
    """A placeholder for a variable whose value will be loaded, so that nothing is drawn or allocated for it."""

    shape: Tuple[int, ...]
    dtype: Any = tf.float32


class Weight(NamedTuple):
    """A variable and how it is published."""

    variable: Any  # tf.Variable, or UnloadedVariable
    axes: Optional[Axes]  # the published axis of each of its axes; None: the same order
    layer: Any = None  # the layer that has it as an attribute
    attribute: str = ""

    @property
    def published_shape(self) -> Tuple[int, ...]:
        shape = tuple(self.variable.shape)
        return shape if self.axes is None else tuple(shape[axis] for axis in np.argsort(self.axes))

    def load(self, value: np.ndarray) -> None:
        """Assign a value in its published layout; an unloaded variable is created with it, in one copy."""
        value = value.astype(self.variable.dtype.as_numpy_dtype, copy=False)
        value = value if self.axes is None else np.transpose(value, self.axes)
        if isinstance(self.variable, UnloadedVariable):
            setattr(self.layer, self.attribute, tf.Variable(value))
        else:
            self.variable.assign(value)


class Module(tf.Module):
    """A part of the model. Its weights are found by walking its attributes."""

    AXES: ClassVar[Dict[str, Axes]] = {}

    def weights(self) -> Dict[str, Weight]:
        """Every variable, under its published name, in the order of the attributes."""
        return dict(_weights(self, ""))


def _weights(part: Any, path: str) -> Iterator[Tuple[str, Weight]]:
    if isinstance(part, tf.Module):
        axes = getattr(part, "AXES", {})
        for name, value in vars(part).items():
            if isinstance(value, (tf.Variable, UnloadedVariable)):
                yield path + name, Weight(value, axes.get(name), part, name)
            elif not name.startswith("_"):
                yield from _weights(value, f"{path}{name}.")
    elif isinstance(part, (list, tuple)):
        for place, item in enumerate(part):
            yield from _weights(item, f"{path}{place}.")
    elif isinstance(part, dict):
        for name, item in part.items():
            yield from _weights(item, f"{path}{name}.")


def variables_to_constants(part: Any) -> Any:
    """A copy of a module with its variables as constants; a graph traced from it can be sent to another process."""
    if isinstance(part, tf.Variable):
        with tf.device("CPU"):
            return tf.constant(part.numpy())
    if isinstance(part, tf.Module):
        made = copy.copy(part)
        for name, value in vars(part).items():
            object.__setattr__(made, name, variables_to_constants(value))  # not tracked: nothing to save or train
        return made
    if isinstance(part, (list, tuple)):
        return [variables_to_constants(item) for item in part]
    if isinstance(part, dict):
        return {name: variables_to_constants(item) for name, item in part.items()}
    return part


def normal_variable(shape: Tuple[int, ...], deviation: float, random: Random) -> Any:
    """A normally distributed variable, drawn by NumPy to be the same on every TensorFlow release."""
    if random is None:
        return UnloadedVariable(shape)
    return tf.Variable(random.standard_normal(shape).astype(np.float32) * np.float32(deviation))


def constant_variable(shape: Tuple[int, ...], value: float, trainable: bool = True) -> Any:
    return tf.Variable(np.full(shape, value, np.float32), trainable=trainable)


def shape_list(x: Tensor) -> List[Any]:
    """The shape of x: an integer for each static axis, a scalar tensor for each dynamic one."""
    static = list(x.shape)
    if None not in static:
        return static
    dynamic = tf.shape(x)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(static)]


def matmul(x: Tensor, weight: Any, bias: Optional[Any] = None) -> Tensor:
    """[..., inputs] times [inputs, outputs]: a single matrix product, forward and backward, for any number of axes.

    A batched product would compute a weight gradient for every row of the batch, and sum them.
    """
    rows = x if len(x.shape) == 2 else tf.reshape(x, [-1, x.shape[-1]])
    y = tf.custom_gradient(_matmul_with_gradient)(rows, tf.cast(weight, x.dtype))
    y = y if bias is None else tf.nn.bias_add(y, tf.cast(bias, x.dtype))
    return y if len(x.shape) == 2 else tf.reshape(y, [*shape_list(x)[:-1], y.shape[-1]])


def _matmul_with_gradient(x: Tensor, weight: Tensor) -> Any:
    """[rows, inputs] times [inputs, outputs], and its gradient."""

    def gradient(dy: Tensor) -> Any:
        return tf.matmul(dy, weight, transpose_b=True), _matmul_weight_gradient(x, dy)

    return tf.matmul(x, weight), gradient


def _matmul_weight_gradient(x: Tensor, dy: Tensor) -> Tensor:
    """x^T dy: [rows, inputs] and [rows, outputs] to [inputs, outputs].

    Rows that are a multiple of 2 KB apart, as in most models, compete for the same few lines of a CPU's cache: the
    product takes almost twice as long as one of slightly longer rows, so the wider matrix is padded.
    """
    wide = dy if x.shape[1] <= dy.shape[1] else x
    if (
        wide.shape[1] * wide.dtype.size % CACHE_ALIAS_BYTES
        or min(x.shape[1], dy.shape[1]) > MAX_ALIASED_COLUMNS
        or compat.has_gpu()
    ):
        return tf.matmul(x, dy, transpose_a=True)
    count, padded = wide.shape[1], tf.pad(wide, [[0, 0], [0, 16]])
    if wide is dy:
        return tf.matmul(x, padded, transpose_a=True)[:, :count]
    return tf.transpose(tf.matmul(dy, padded, transpose_a=True)[:, :count])


def batch_matmul(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Batched matmul; in float32 where TensorFlow has no kernel for the dtype."""
    dtype = a.dtype
    if not _has_batch_matmul(dtype):
        a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    return tf.cast(tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b), dtype)


@functools.lru_cache(maxsize=8)
def _has_batch_matmul(dtype: Any) -> bool:
    """Found by trying: older releases have no batched matmul of bfloat16 on CPUs."""
    with tf.init_scope():
        try:
            tf.matmul(tf.zeros([2, 1, 1], dtype), tf.zeros([2, 1, 1], dtype))
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return True


def recompute_barrier(x: Tensor, dy: Tensor) -> Tensor:
    """x times a 1 that depends on the gradient dy, so that a backward pass really recomputes what it derives from x.

    Otherwise TensorFlow's graph optimizer and XLA eliminate the common subexpression: they keep the forward value.
    """
    first = tf.reshape(dy, [-1])[0]
    one = tf.where(tf.math.is_nan(first), first, tf.ones([], first.dtype))
    return x * tf.cast(one, x.dtype)


def update_at(x: Tensor, values: Tensor, position: Tensor) -> Tensor:
    """x [..., positions, width] with values [..., 1, width] written at a position, a scalar.

    Graphs and XLA scatter rows in place; a tf.where would copy everything.
    """
    positions, width = x.shape[-2:]
    rows = tf.range(x.shape.num_elements() // (positions * width))[:, None] * positions + position
    updated = tf.tensor_scatter_nd_update(tf.reshape(x, [-1, width]), rows, tf.reshape(values, [-1, width]))
    return tf.reshape(updated, x.shape)


def ordered_sum(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, added in their order.

    tf.add_n does not guarantee an order. Where a graph of static shapes takes most of a device's memory by TensorFlow's
    own estimate, which assumes 256 MB for a CPU, its memory optimizer turns a sum of three or more into a variable to
    which each term is added when it is ready: a race for the last bits. Chains of + become an add_n and race too.
    """
    return parts[0] if len(parts) == 1 else tf.reduce_sum(tf.stack(parts), axis=0)


class Linear(Module):
    """A linear layer, [..., inputs] to [..., outputs]."""

    AXES: ClassVar[Dict[str, Axes]] = {"weight": (1, 0)}  # published: [out, in]

    def __init__(
        self, inputs: int, outputs: int, random: Random, deviation: float = INITIAL_DEVIATION, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = normal_variable((inputs, outputs), deviation, random)
        if bias:
            self.bias = constant_variable((outputs,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        return matmul(x, self.weight, getattr(self, "bias", None))


class Gpt2Linear(Linear):
    """A linear layer whose published weight is [in, out], as GPT-2's."""

    AXES: ClassVar[Dict[str, Axes]] = {}


class LayerNorm(Module):
    """Layer normalisation over the last axis."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self._epsilon = epsilon
        self.weight = constant_variable((width,), 1.0)
        self.bias = constant_variable((width,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        return _normalize(x, self.weight, self.bias, [-1], self._epsilon)


def _normalize(x: Tensor, weight: Tensor, bias: Tensor, axes: List[int], epsilon: float) -> Tensor:
    """Mean 0 and variance 1 over `axes`, then scale and shift scaled the last axes.

    Only the input, the mean and the deviation are kept for the gradient.
    """
    shared = list(range(len(x.shape) - len(weight.shape)))  # axes with the same scale and shift

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        wide = tf.cast(x, tf.float32)
        mean = tf.reduce_mean(wide, axes, keepdims=True)
        centred = wide - mean
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True) + epsilon)

        def gradient(dy: Tensor) -> Any:
            dy, unit = tf.cast(dy, tf.float32), (tf.cast(recompute_barrier(x, dy), tf.float32) - mean) * inverse
            scaled = dy * weight
            offset = tf.reduce_mean(scaled, axes, keepdims=True)
            offset += unit * tf.reduce_mean(scaled * unit, axes, keepdims=True)
            dx = tf.cast(inverse * (scaled - offset), x.dtype)
            return dx, tf.reduce_sum(dy * unit, shared), tf.reduce_sum(dy, shared)

        return tf.cast(centred * inverse * weight + bias, x.dtype), gradient

    return tf.custom_gradient(norm)(x, tf.convert_to_tensor(weight), tf.convert_to_tensor(bias))


class GroupNorm(Module):
    """[B, T, C]: group normalisation over time and the channels of a group, with a scale and shift per channel."""

    def __init__(self, width: int, groups: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self._groups, self._epsilon = groups, epsilon
        self.weight = constant_variable((width,), 1.0)
        self.bias = constant_variable((width,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        batch, frames, width = shape_list(x)
        grouped = tf.reshape(x, [batch, frames, self._groups, width // self._groups])
        weight, bias = (tf.reshape(part, [self._groups, -1]) for part in (self.weight, self.bias))
        return tf.reshape(_normalize(grouped, weight, bias, [1, 3], self._epsilon), [batch, frames, width])


class Embedding(Module):
    """Ids [...] to vectors [..., width]."""

    def __init__(self, count: int, width: int, random: Random, deviation: float = INITIAL_DEVIATION) -> None:
        super().__init__()
        self.weight = normal_variable((count, width), deviation, random)

    def __call__(self, ids: Tensor) -> Tensor:
        return tf.gather(self.weight, ids)


class Dropout:
    """Dropout of one step: each call draws a new mask, the same in every run with the same seed.

    A mask takes one random byte per element, so rates are rounded to 256ths.
    """

    def __init__(self, rate: float = 0.0, seed: Optional[Tensor] = None) -> None:
        self._dropped = round(256 * rate)
        if self._dropped and seed is None:
            raise ValueError("dropout needs the seed of the step: two integers")
        self._seed, self._draws = seed, 0
        self.scale = 256 / (256 - self._dropped)  # of kept elements, so that the mean stays the same

    def __bool__(self) -> bool:
        return self._dropped > 0

    def __call__(self, x: Tensor) -> Tensor:
        """x with some elements zero and the others scaled."""
        if not self:
            return x
        return tf.where(self.keep_mask(shape_list(x)), x * tf.constant(self.scale, x.dtype), tf.zeros([], x.dtype))

    def keep_mask(self, shape: List[Any]) -> Tensor:
        """A new mask, bool: True where elements are kept. `shape` is as `shape_list` returns it."""
        self._draws += 1
        count = math.prod(shape)
        seed = tf.cast(self._seed, tf.int32) + tf.constant([0, self._draws * 0x3C6EF35F % 2**31], tf.int32)
        bits = tf.random.stateless_uniform([-(-count // 4)], seed, minval=None, maxval=None, dtype=tf.int32)
        drawn = tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:count]
        return tf.reshape(drawn >= tf.constant(self._dropped, tf.uint8), shape)

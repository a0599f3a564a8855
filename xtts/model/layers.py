"""The layers all parts are made of, channels last: sizes come in, callables with weights under published names go out.

A module's attributes are called as in the published checkpoint, so that the path to a weight (`attn.0.qkv.weight`) is
its published name and nothing has to map one to the other. Weights lie as TensorFlow wants them; `AXES` of a layer
says which published axis each of ours is, and `weights.py` transposes once, at import and export. Weights are float32;
a layer computes in the type of its input, norms and softmaxes in float32.
"""

import copy
import functools
from typing import Any, ClassVar, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Axes = Tuple[int, ...]
Random = Optional[np.random.Generator]  # draws initial weights; None: they are going to be loaded, so none is drawn

ALIASED = 2048  # bytes from row to row that many rows of a matrix meet in a processor's cache at
NARROW = 512  # columns of a matrix that is multiplied as quickly however the other lies
DEVIATION = 0.02  # of weights that are drawn at random, where nothing else is said


@attrs.frozen(eq=False)
class UnloadedVariable:
    """Takes the place of a variable until its value is loaded, so that nothing is drawn or allocated for it."""

    shape: Tuple[int, ...]
    dtype: Any = tf.float32


class Weight(NamedTuple):
    """A variable and how it is published."""

    variable: Any  # tf.Variable, or UnloadedVariable
    axes: Optional[Axes]  # the published axis of each of its axes; None: the same
    layer: Any = None  # whose attribute it is
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


def frozen(part: Any) -> Any:
    """A part with constants for its variables: a graph that it is traced into can be sent to another process."""
    if isinstance(part, tf.Variable):
        with tf.device("CPU"):
            return tf.constant(part.numpy())
    if isinstance(part, tf.Module):
        made = copy.copy(part)
        for name, value in vars(part).items():
            object.__setattr__(made, name, frozen(value))  # untracked: there is nothing to save or to train
        return made
    if isinstance(part, (list, tuple)):
        return [frozen(item) for item in part]
    if isinstance(part, dict):
        return {name: frozen(item) for name, item in part.items()}
    return part


def normal(shape: Tuple[int, ...], deviation: float, random: Random) -> Any:
    """A variable of normally distributed numbers: NumPy's, so that they are the same on every TensorFlow."""
    if random is None:
        return UnloadedVariable(shape)
    return tf.Variable(random.standard_normal(shape).astype(np.float32) * np.float32(deviation))


def constant(shape: Tuple[int, ...], value: float, trainable: bool = True) -> Any:
    return tf.Variable(np.full(shape, value, np.float32), trainable=trainable)


def extents(x: Tensor) -> List[Any]:
    """How long each axis of x is: a whole number where the trace knows it, a tensor where it is free."""
    static = list(x.shape)
    if None not in static:
        return static
    free = tf.shape(x)
    return [free[axis] if size is None else size for axis, size in enumerate(static)]


def product(x: Tensor, weight: Any, bias: Optional[Any] = None) -> Tensor:
    """[..., inputs] times [inputs, outputs]: one matrix product, forwards and backwards, however many axes there are.

    A batched product would have a gradient of the weight for every row of the batch, and sum them.
    """
    rows = x if len(x.shape) == 2 else tf.reshape(x, [-1, x.shape[-1]])
    y = tf.custom_gradient(_matmul)(rows, tf.cast(weight, x.dtype))
    y = y if bias is None else tf.nn.bias_add(y, tf.cast(bias, x.dtype))
    return y if len(x.shape) == 2 else tf.reshape(y, [*extents(x)[:-1], y.shape[-1]])


def _matmul(x: Tensor, weight: Tensor) -> Any:
    """[rows, inputs] times [inputs, outputs], and its gradient."""

    def gradient(dy: Tensor) -> Any:
        return tf.matmul(dy, weight, transpose_b=True), _turned_product(x, dy)

    return tf.matmul(x, weight), gradient


def _turned_product(x: Tensor, dy: Tensor) -> Tensor:
    """x, turned, times dy: [rows, inputs] and [rows, outputs] to [inputs, outputs].

    Rows that lie a multiple of 2 KB apart, as those of most models do, fall on the same few lines of a processor's
    cache: such a product takes almost twice as long as one of rows that are a little longer.
    """
    wide = dy if x.shape[1] <= dy.shape[1] else x
    if wide.shape[1] * wide.dtype.size % ALIASED or min(x.shape[1], dy.shape[1]) > NARROW or has_gpu():
        return tf.matmul(x, dy, transpose_a=True)
    count, longer = wide.shape[1], tf.pad(wide, [[0, 0], [0, 16]])
    if wide is dy:
        return tf.matmul(x, longer, transpose_a=True)[:, :count]
    return tf.transpose(tf.matmul(dy, longer, transpose_a=True)[:, :count])


def batched(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """The products of two batches of matrices; in float32 where TensorFlow has none in their type."""
    dtype = a.dtype
    if not _has_batched(dtype):
        a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    return tf.cast(tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b), dtype)


@functools.lru_cache(maxsize=8)
def _has_batched(dtype: Any) -> bool:
    """Tried, for it depends on release and device: older ones multiply bfloat16 one matrix at a time, or on TPUs."""
    with tf.init_scope():
        try:
            tf.matmul(tf.zeros([2, 1, 1], dtype), tf.zeros([2, 1, 1], dtype))
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return True


@functools.lru_cache(maxsize=None)
def has_gpu() -> bool:
    return compat.has_gpu()


def again(x: Tensor, dy: Tensor) -> Tensor:
    """x, for what a gradient makes anew instead of keeping it: times a 1 that comes from the gradient dy.

    TensorFlow's graphs and XLA compute only once, and keep, what is computed twice from the same numbers; of these they
    cannot know that they are the same.
    """
    first = tf.reshape(dy, [-1])[0]
    one = tf.where(tf.math.is_nan(first), first, tf.ones([], first.dtype))
    return x * tf.cast(one, x.dtype)


def written(x: Tensor, values: Tensor, place: Tensor) -> Tensor:
    """[..., places, width] with values, [..., 1, width], at a place of it, a scalar.

    A scatter of rows is done in place, in a graph and by XLA; a choice between old and new would copy everything.
    """
    places, width = x.shape[-2:]
    rows = tf.range(x.shape.num_elements() // (places * width))[:, None] * places + place
    updated = tf.tensor_scatter_nd_update(tf.reshape(x, [-1, width]), rows, tf.reshape(values, [-1, width]))
    return tf.reshape(updated, x.shape)


def total(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, in their order.

    tf.add_n has none. Where a graph of static shapes takes most of a device's memory, by TensorFlow's own estimate,
    which has a CPU at 256 MB, its memory optimizer turns a sum of three or more into a variable that each is added to
    as soon as it is there: the last bits are those of a race. It does so with chains of + too, which become an add_n.
    """
    return parts[0] if len(parts) == 1 else tf.reduce_sum(tf.stack(parts), axis=0)


class Linear(Module):
    """[..., inputs] to [..., outputs]."""

    AXES: ClassVar[Dict[str, Axes]] = {"weight": (1, 0)}  # published: [out, in]

    def __init__(
        self, inputs: int, outputs: int, random: Random, deviation: float = DEVIATION, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = normal((inputs, outputs), deviation, random)
        if bias:
            self.bias = constant((outputs,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        return product(x, self.weight, getattr(self, "bias", None))


class Gpt2Linear(Linear):
    """The same, as GPT-2 publishes it: [in, out]."""

    AXES: ClassVar[Dict[str, Axes]] = {}


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then a scale and a shift."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self._epsilon = epsilon
        self.weight = constant((width,), 1.0)
        self.bias = constant((width,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        return _normalised(x, self.weight, self.bias, [-1], self._epsilon)


def _normalised(x: Tensor, weight: Tensor, bias: Tensor, axes: List[int], epsilon: float) -> Tensor:
    """Mean 0 and variance 1 over `axes`, then a scale and a shift along the last axes.

    For its gradient the input, the mean and the deviation are all that is kept.
    """
    each = list(range(len(x.shape) - len(weight.shape)))  # the axes that share a scale and a shift

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        wide = tf.cast(x, tf.float32)
        mean = tf.reduce_mean(wide, axes, keepdims=True)
        centred = wide - mean
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True) + epsilon)

        def gradient(dy: Tensor) -> Any:
            dy, unit = tf.cast(dy, tf.float32), (tf.cast(again(x, dy), tf.float32) - mean) * inverse
            along = dy * weight
            aside = tf.reduce_mean(along, axes, keepdims=True)
            aside += unit * tf.reduce_mean(along * unit, axes, keepdims=True)
            dx = tf.cast(inverse * (along - aside), x.dtype)
            return dx, tf.reduce_sum(dy * unit, each), tf.reduce_sum(dy, each)

        return tf.cast(centred * inverse * weight + bias, x.dtype), gradient

    return tf.custom_gradient(norm)(x, tf.convert_to_tensor(weight), tf.convert_to_tensor(bias))


class GroupNorm(Module):
    """[B, T, C]: mean 0 and variance 1 over time and the channels of a group, then a scale and a shift a channel."""

    def __init__(self, width: int, groups: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self._groups, self._epsilon = groups, epsilon
        self.weight = constant((width,), 1.0)
        self.bias = constant((width,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        batch, frames, width = extents(x)
        grouped = tf.reshape(x, [batch, frames, self._groups, width // self._groups])
        weight, bias = (tf.reshape(part, [self._groups, -1]) for part in (self.weight, self.bias))
        return tf.reshape(_normalised(grouped, weight, bias, [1, 3], self._epsilon), [batch, frames, width])


class Embedding(Module):
    """Ids [...] to vectors [..., width]."""

    def __init__(self, count: int, width: int, random: Random, deviation: float = DEVIATION) -> None:
        super().__init__()
        self.weight = normal((count, width), deviation, random)

    def __call__(self, ids: Tensor) -> Tensor:
        return tf.gather(self.weight, ids)

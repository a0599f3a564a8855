"""Convolutions with gradients in every float dtype, on every TensorFlow release and device.

On CPUs no release has a kernel for the gradient of a dilated convolution, and older ones have none for convolutions and
batched products of bfloat16.
"""

from typing import Any, ClassVar, Dict, Optional

import tensorflow as tf

from xtts import compat
from xtts.model.layers import (
    Axes,
    Module,
    Random,
    Tensor,
    constant_variable,
    matmul,
    normal_variable,
    shape_list,
)


class Conv1d(Module):
    """[B, T, inputs] to [B, T', outputs], with `padding` zeros at both ends; default: dilation (kernel - 1) / 2."""

    AXES: ClassVar[Dict[str, Axes]] = {"weight": (2, 1, 0)}  # published: [out, in, kernel]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        random: Random,
        stride: int = 1,
        padding: Optional[int] = None,
        dilation: int = 1,
        deviation: Optional[float] = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if stride > 1 and dilation > 1:
            raise ValueError(f"a convolution has a stride ({stride}) or a dilation ({dilation}), not both")
        self._stride, self._dilation = stride, dilation
        self._padding = dilation * (kernel - 1) // 2 if padding is None else padding
        self.weight = normal_variable((kernel, inputs, outputs), deviation or (inputs * kernel) ** -0.5, random)
        if bias:
            self.bias = constant_variable((outputs,), 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        bias = getattr(self, "bias", None)
        if self._padding:
            x = tf.pad(x, [[0, 0], [self._padding, self._padding], [0, 0]])
        if self.weight.shape[0] == 1 and self._stride == 1:
            # A convolution with a kernel of 1 is a matrix product, which is faster.
            return matmul(x, self.weight[0], bias)
        y = convolve_time(x, self.weight, self._dilation, self._stride)
        return y if bias is None else tf.nn.bias_add(y, tf.cast(bias, x.dtype))


def convolve(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """[B, H, W, inputs] with a kernel [h, w, inputs, outputs] to [B, H', W', outputs], without padding."""
    inner = x.dtype if _convolves(x.dtype) else tf.float32
    return tf.cast(tf.nn.conv2d(tf.cast(x, inner), tf.cast(weight, inner), stride, "VALID"), x.dtype)


def convolve_time(x: Tensor, weight: Tensor, dilation: int = 1, stride: int = 1) -> Tensor:
    """[B, T, inputs] with a kernel [k, inputs, outputs] to [B, ⌈(T - dilation (k - 1)) / stride⌉, outputs].

    A dilated convolution, whose stride must be 1, becomes a plain one by a reshape to [B, ⌈T / dilation⌉, dilation,
    inputs], over which a kernel one column wide is moved.
    """
    batch, frames, _ = shape_list(x)
    rest = 0 if dilation == 1 else -frames % dilation
    if rest:
        x = tf.pad(x, [[0, 0], [0, rest], [0, 0]])
    picture = tf.reshape(x, [batch, (frames + rest) // dilation, dilation, x.shape[2]])
    y = convolve(picture, weight[:, None], stride)
    y = tf.reshape(y, [batch, shape_list(y)[1] * y.shape[2], weight.shape[2]])
    return y[:, : frames - dilation * (weight.shape[0] - 1)] if rest else y


def _convolves(dtype: Any) -> bool:
    """Whether to convolve in a dtype. Not in bfloat16 on a CPU: it is no faster, and older releases fail."""
    return dtype != tf.bfloat16 or compat.has_gpu()

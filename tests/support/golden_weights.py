"""The golden models: weights that the public implementation made, and how a module gets them."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

GOLDEN = Path(__file__).parents[1] / "golden"

__all__ = ["GOLDEN", "fill", "load_file"]


def fill(module, tensors, prefix=""):
    """Give a module its golden weights, each by its published name; every weight must be there."""
    for name, weight in module.weights().items():
        value = tensors[prefix + name]
        weight.variable.assign(value if weight.axes is None else np.transpose(value, weight.axes))

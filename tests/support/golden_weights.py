"""The golden models: weights of the public implementation, and a function to load them into a module."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

GOLDEN = Path(__file__).parents[1] / "golden"

__all__ = ["GOLDEN", "fill", "load_file"]


def fill(module, tensors, prefix=""):
    """Set a module's weights to the golden ones by their published names; every weight must be there."""
    for name, weight in module.weights().items():
        value = tensors[prefix + name]
        weight.variable.assign(value if weight.axes is None else np.transpose(value, weight.axes))

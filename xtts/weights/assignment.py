"""Load published tensors into the variables of `xtts.model`, and read them back in the published layout."""

from typing import Any, Mapping

import numpy as np

from xtts.weights.layout import DIRECTION, list_mismatches
from xtts.weights.safetensors_file import Tensors, WeightsError, release_pages

TEXT_ROWS = ("gpt.text_embedding.weight", "gpt.text_head.weight", "gpt.text_head.bias")


def load_weights(module: Any, tensors: Mapping[str, np.ndarray], prefix: str = "") -> None:
    """Load the tensors whose names start with `prefix` into a module of `xtts.model`, after checking all of them.

    A module that was built without a random generator gets its variables here, each in one copy of its tensor. Weight
    normalisation is folded where the module has whole weights. What was read of a mapped file is released at once, so
    that loading takes little more memory than the variables do.
    """
    wanted = module.weights()
    own = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    folded = own
    if any(name.endswith(DIRECTION) and name[len(prefix) :] not in wanted for name in own):
        from xtts.weights.weight_norm import fold_weight_norm

        folded = fold_weight_norm(own)
    named = {name[len(prefix) :]: tensor for name, tensor in folded.items()}
    assign_weights(wanted, named, f"the weights of {type(module).__name__}", prefix)
    for tensor in own.values():
        release_pages(tensor)


def assign_weights(wanted: Mapping[str, Any], tensors: Mapping[str, np.ndarray], what: str, prefix: str = "") -> None:
    """Assign published tensors to weights of `xtts.model.layers` by name, after checking all of them."""
    wrong = []
    for name, weight in wanted.items():
        if name not in tensors:
            wrong.append(f"{prefix}{name}: missing, expected {list(weight.published_shape)}")
        elif tensors[name].shape != weight.published_shape:
            wrong.append(f"{prefix}{name}: has {list(tensors[name].shape)}, expected {list(weight.published_shape)}")
    for name, tensor in tensors.items():
        if name not in wanted and not _is_constant(name):
            wrong.append(f"{prefix}{name}: surplus, has {list(tensor.shape)}")
    if wrong:
        raise WeightsError(list_mismatches(f"{what} do not fit", wrong))
    for name, weight in wanted.items():
        weight.load(tensors[name])
        release_pages(tensors[name])


def published_value(weight: Any) -> np.ndarray:
    """A weight's value in its published layout."""
    value = np.asarray(weight.variable.numpy())
    return value if weight.axes is None else np.transpose(value, np.argsort(weight.axes))


def published_weights(module: Any, prefix: str = "") -> Tensors:
    """A module's weights by their published names, each starting with `prefix`, in their published layouts."""
    return {prefix + name: published_value(weight) for name, weight in module.weights().items()}


def extend_vocabulary(tensors: Mapping[str, np.ndarray], count: int, random: np.random.Generator) -> Tensors:
    """The tensors with rows for `count` text tokens; existing rows keep every bit.

    A new row is the mean of the existing ones plus noise of a tenth of their standard deviation, column by column, and
    a new bias is their mean: at first a new token is an average one, neither likely nor unlikely, and no two are equal.
    """
    found = dict(tensors)
    for name in TEXT_ROWS:
        rows = found.get(name)
        if rows is None:
            raise WeightsError(f"{name} is missing; only a checkpoint that has a gpt can get more text tokens")
        if count < len(rows):
            raise WeightsError(f"{name} has {len(rows):,} rows, more than {count:,}; a vocabulary can only grow")
        mean = rows.mean(axis=0, dtype=np.float64)
        deviation = rows.std(axis=0, dtype=np.float64)
        noise = random.standard_normal((count - len(rows), *rows.shape[1:])) if rows.ndim > 1 else 0.0
        new = np.broadcast_to(mean + 0.1 * deviation * noise, (count - len(rows), *rows.shape[1:]))
        found[name] = np.concatenate([rows, new.astype(rows.dtype)])
    return found


def _is_constant(name: str) -> bool:
    """Whether a published tensor is not a weight: counters and tables, which can be computed."""
    return name.endswith("num_batches_tracked") or name.startswith(("torch_spec.", "discrete_loss."))

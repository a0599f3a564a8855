"""Weight normalisation: tensors as published come in, with a scale and a direction for each weight, and weights go out.

w = g v / |v|, the norm over all but the first published axis: of a convolution that is the channel that comes out, of
a transposed one the channel that goes in. NumPy only; the caller reads and writes files. The other way, for training
and export, takes the weight as its direction, so that folding gives back every bit of it.
"""

from typing import Dict, Iterable, NamedTuple, Tuple

import numpy as np

Tensors = Dict[str, np.ndarray]


class Spelling(NamedTuple):
    """How the two halves of a weight end, where the weight itself ends in `.weight`."""

    scale: str  # g, [first axis, 1, ...]
    direction: str  # v, as the weight


SPELLINGS: Dict[str, Spelling] = {
    "weight_g": Spelling(".weight_g", ".weight_v"),
    "parametrizations": Spelling(".parametrizations.weight.original0", ".parametrizations.weight.original1"),
}
FOLDED = ".weight"


def spelled(tensors: Tensors) -> Dict[str, str]:
    """The weights that come in two halves, by the name they have when folded, and the spelling of each.

    Halves that do not fit, or beside which the weight stands too, are none: they stay what they are called, and a
    check of names finds them.
    """
    found: Dict[str, str] = {}
    for key, spelling in SPELLINGS.items():
        for name, scale in tensors.items():
            if not name.endswith(spelling.scale):
                continue
            stem = name[: -len(spelling.scale)]
            direction = tensors.get(stem + spelling.direction)
            is_whole = direction is not None and direction.ndim and scale.shape == _scale_shape(direction)
            if is_whole and stem + FOLDED not in tensors and stem + FOLDED not in found:
                found[stem + FOLDED] = key
    return found


def fold_weight_norm(tensors: Tensors) -> Tensors:
    """The tensors with each pair of halves made one weight, in the place of its direction; all others as they are."""
    scales, directions = {}, {}
    for folded, key in spelled(tensors).items():
        stem = folded[: -len(FOLDED)]
        scales[stem + SPELLINGS[key].scale] = folded
        directions[stem + SPELLINGS[key].direction] = (folded, stem + SPELLINGS[key].scale)
    result: Tensors = {}
    for name, tensor in tensors.items():
        if name in directions:
            folded, scale = directions[name]
            result[folded] = _product(tensors[scale], tensor)
        elif name not in scales:
            result[name] = tensor
    return result


def unfold_weight_norm(tensors: Tensors, names: Iterable[str], spelling: str = "parametrizations") -> Tensors:
    """The tensors with each of the named weights, in published layout, made a scale and a direction."""
    wanted = set(names)
    missing = sorted(name for name in wanted if name not in tensors or not name.endswith(FOLDED))
    if missing:
        raise KeyError(f"no weights to unfold: {', '.join(missing)}")
    result: Tensors = {}
    for name, tensor in tensors.items():
        if name not in wanted:
            result[name] = tensor
            continue
        stem, scale = name[: -len(FOLDED)], _norm(tensor)
        result[stem + SPELLINGS[spelling].scale] = scale
        # Where a weight is all 0 any direction does, except 0: whoever divides by its norm would get nothing.
        result[stem + SPELLINGS[spelling].direction] = np.where(scale == 0, np.ones((), tensor.dtype), tensor)
    return result


def _scale_shape(direction: np.ndarray) -> Tuple[int, ...]:
    return (direction.shape[0],) + (1,) * (direction.ndim - 1)


def _norm(direction: np.ndarray) -> np.ndarray:
    """In float64, then rounded: the same number wherever it is taken, so that g / |v| is 1 for what `unfold` made."""
    flat = direction.reshape(len(direction), -1).astype(np.float64)
    norm = np.sqrt(np.einsum("ij,ij->i", flat, flat)).reshape(_scale_shape(direction))
    return np.asarray(norm.astype(direction.dtype))


def _product(scale: np.ndarray, direction: np.ndarray) -> np.ndarray:
    norm = _norm(direction)
    ratio = scale / np.where(norm == 0, np.ones((), norm.dtype), norm)
    return np.asarray((direction * ratio).astype(direction.dtype))

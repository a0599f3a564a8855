"""Weight normalisation: fold published scales and directions into weights, and unfold weights for export.

w = g v / |v|, with the norm over all but the first published axis: the output channels of a convolution, the input
channels of a transposed one. Unfolding takes the weight as its direction, so that folding gives back every bit of it.
"""

from typing import Dict, Iterable, NamedTuple, Tuple

import numpy as np

Tensors = Dict[str, np.ndarray]


class Spelling(NamedTuple):
    """The suffixes of the names of scale and direction, in place of `.weight`."""

    scale: str  # g, [first axis, 1, ...]
    direction: str  # v, as the weight


SPELLINGS: Dict[str, Spelling] = {
    "weight_g": Spelling(".weight_g", ".weight_v"),
    "parametrizations": Spelling(".parametrizations.weight.original0", ".parametrizations.weight.original1"),
}
FOLDED = ".weight"


def find_pairs(tensors: Tensors) -> Dict[str, str]:
    """The folded names of weights that have a scale and a direction, and the spelling of each.

    Pairs whose shapes do not fit, or whose weight is there as well, are left out; the check of names reports them.
    """
    found: Dict[str, str] = {}
    for key, spelling in SPELLINGS.items():
        for name, scale in tensors.items():
            if not name.endswith(spelling.scale):
                continue
            stem = name[: -len(spelling.scale)]
            direction = tensors.get(stem + spelling.direction)
            is_pair = direction is not None and direction.ndim and scale.shape == _scale_shape(direction)
            if is_pair and stem + FOLDED not in tensors and stem + FOLDED not in found:
                found[stem + FOLDED] = key
    return found


def fold_weight_norm(tensors: Tensors) -> Tensors:
    """The tensors with each scale and direction folded into one weight, in the direction's place."""
    scales, directions = {}, {}
    for folded, key in find_pairs(tensors).items():
        stem = folded[: -len(FOLDED)]
        scales[stem + SPELLINGS[key].scale] = folded
        directions[stem + SPELLINGS[key].direction] = (folded, stem + SPELLINGS[key].scale)
    result: Tensors = {}
    for name, tensor in tensors.items():
        if name in directions:
            folded, scale = directions[name]
            result[folded] = _scaled(tensors[scale], tensor)
        elif name not in scales:
            result[name] = tensor
    return result


def unfold_weight_norm(tensors: Tensors, names: Iterable[str], spelling: str = "parametrizations") -> Tensors:
    """The tensors with each of the named weights, in published layout, split into a scale and a direction."""
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
        # For a weight of zeros any direction will do, except 0, whose norm cannot be divided by.
        result[stem + SPELLINGS[spelling].direction] = np.where(scale == 0, np.ones((), tensor.dtype), tensor)
    return result


def _scale_shape(direction: np.ndarray) -> Tuple[int, ...]:
    return (direction.shape[0],) + (1,) * (direction.ndim - 1)


def _norm(direction: np.ndarray) -> np.ndarray:
    """Computed in float64, then rounded: always the same number, so that g / |v| is 1 for what was unfolded here."""
    flat = direction.reshape(len(direction), -1).astype(np.float64)
    norm = np.sqrt(np.einsum("ij,ij->i", flat, flat)).reshape(_scale_shape(direction))
    return np.asarray(norm.astype(direction.dtype))


def _scaled(scale: np.ndarray, direction: np.ndarray) -> np.ndarray:
    norm = _norm(direction)
    ratio = scale / np.where(norm == 0, np.ones((), norm.dtype), norm)
    return np.asarray((direction * ratio).astype(direction.dtype))

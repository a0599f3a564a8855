"""Weight normalisation: both spellings, folded as PyTorch multiplies them and unfolded without losing a bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xtts.weights.weight_norm import SPELLINGS, find_pairs, fold_weight_norm, unfold_weight_norm

FINITE = st.floats(-1e3, 1e3, width=32)
WEIGHTS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=4, max_side=5), elements=FINITE)


def halves(spelling, shape=(3, 2, 4)):
    """A scale, a direction, and the weight they make."""
    random = np.random.default_rng(0)
    scale = random.standard_normal((shape[0], 1, 1)).astype(np.float32)
    direction = random.standard_normal(shape).astype(np.float32)
    weight = np.stack([g * v / np.sqrt((v.astype(np.float64) ** 2).sum()) for g, v in zip(scale, direction)])
    return {"ups.0" + SPELLINGS[spelling].scale: scale, "ups.0" + SPELLINGS[spelling].direction: direction}, weight


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_folding_multiplies_each_row_of_the_first_axis(spelling):
    """w = g v / |v| with the norm over all but the first axis; other tensors are the same objects as before."""
    tensors, weight = halves(spelling)
    bias = np.ones(2, np.float32)
    folded = fold_weight_norm({"ups.0.bias": bias, **tensors})
    assert list(folded) == ["ups.0.bias", "ups.0.weight"]
    assert folded["ups.0.bias"] is bias
    assert folded["ups.0.weight"].dtype == np.float32
    np.testing.assert_allclose(folded["ups.0.weight"], weight, rtol=1e-6)


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(weight=WEIGHTS)
def test_unfolding_loses_no_bit(spelling, weight):
    """What is unfolded folds back bit by bit, rows of zeros too, and no direction is 0: PyTorch divides by its norm."""
    tensors = unfold_weight_norm({"a.weight": weight, "a.bias": weight[0], "b.weight": weight}, ["a.weight"], spelling)
    assert find_pairs(tensors) == {"a.weight": spelling}
    assert tensors["b.weight"] is weight
    direction = tensors["a" + SPELLINGS[spelling].direction]
    assert (np.abs(direction).reshape(len(weight), -1).max(axis=1) > 0).all()
    np.testing.assert_array_equal(fold_weight_norm(tensors)["a.weight"], weight)


def test_both_spellings_in_one_file():
    """Each weight is folded by the spelling it came in, which is said for whoever writes it again."""
    new, _ = halves("parametrizations")
    old = {name.replace("ups.0", "ups.1"): value for name, value in halves("weight_g")[0].items()}
    assert find_pairs({**new, **old}) == {"ups.0.weight": "parametrizations", "ups.1.weight": "weight_g"}
    folded = fold_weight_norm({**new, **old})
    np.testing.assert_array_equal(folded["ups.0.weight"], folded["ups.1.weight"])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_halves_that_do_not_fit_stay_under_their_names(spelling):
    """One half alone, halves of other shapes, and halves beside their weight are left for the check of names."""
    tensors, weight = halves(spelling)
    (scale, g), (direction, v) = tensors.items()
    for odd in ({scale: g}, {direction: v}, {scale: g[:2], direction: v}, {**tensors, "ups.0.weight": weight}):
        assert fold_weight_norm(odd) == odd


def test_what_cannot_be_unfolded_is_named():
    """Asking for a weight that is not there is an error with its name, and not a file without it."""
    with pytest.raises(KeyError, match=r"ups\.9\.weight"):
        unfold_weight_norm({"ups.0.weight": np.ones((2, 2), np.float32)}, ["ups.0.weight", "ups.9.weight"])

"""Weight normalisation: both spellings, folded as PyTorch does and unfolded without losing a bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xtts.weights.weight_norm import SPELLINGS, find_pairs, fold_weight_norm, unfold_weight_norm

FINITE = st.floats(-1e3, 1e3, width=32)
WEIGHTS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=4, max_side=5), elements=FINITE)


def halves(spelling, shape=(3, 2, 4)):
    """A scale, a direction, and the weight they give."""
    random = np.random.default_rng(0)
    scale = random.standard_normal((shape[0], 1, 1)).astype(np.float32)
    direction = random.standard_normal(shape).astype(np.float32)
    weight = np.stack([g * v / np.sqrt((v.astype(np.float64) ** 2).sum()) for g, v in zip(scale, direction)])
    return {"ups.0" + SPELLINGS[spelling].scale: scale, "ups.0" + SPELLINGS[spelling].direction: direction}, weight


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_folding_scales_each_row_of_the_first_axis(spelling):
    """w = g v / |v| with the norm over all but the first axis; other tensors stay the same objects."""
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
    """Unfolded weights fold back bit by bit, including zero rows; no direction is 0, as PyTorch divides by its norm."""
    tensors = unfold_weight_norm({"a.weight": weight, "a.bias": weight[0], "b.weight": weight}, ["a.weight"], spelling)
    assert find_pairs(tensors) == {"a.weight": spelling}
    assert tensors["b.weight"] is weight
    direction = tensors["a" + SPELLINGS[spelling].direction]
    assert (np.abs(direction).reshape(len(weight), -1).max(axis=1) > 0).all()
    np.testing.assert_array_equal(fold_weight_norm(tensors)["a.weight"], weight)


def test_both_spellings_may_be_in_one_file():
    """Each weight is folded by its own spelling, which is recorded for writing it again."""
    new, _ = halves("parametrizations")
    old = {name.replace("ups.0", "ups.1"): value for name, value in halves("weight_g")[0].items()}
    assert find_pairs({**new, **old}) == {"ups.0.weight": "parametrizations", "ups.1.weight": "weight_g"}
    folded = fold_weight_norm({**new, **old})
    np.testing.assert_array_equal(folded["ups.0.weight"], folded["ups.1.weight"])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_incomplete_weight_norm_is_left_alone(spelling):
    """A scale or direction alone, with another shape, or next to its weight is left for the check of names."""
    tensors, weight = halves(spelling)
    (scale, g), (direction, v) = tensors.items()
    for odd in ({scale: g}, {direction: v}, {scale: g[:2], direction: v}, {**tensors, "ups.0.weight": weight}):
        assert fold_weight_norm(odd) == odd


def test_unfolding_a_missing_weight_is_an_error():
    """The error names the weight."""
    with pytest.raises(KeyError, match=r"ups\.9\.weight"):
        unfold_weight_norm({"ups.0.weight": np.ones((2, 2), np.float32)}, ["ups.0.weight", "ups.9.weight"])

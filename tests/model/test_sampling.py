"""Sampling: what is kept, how often each token comes, and that a seed means the same wherever it is used."""

import numpy as np
import pytest
import tensorflow as tf

from xtts import compat
from xtts.errors import XttsError
from xtts.model.sampling import Sampling, sampling

DRAWS = 4000


def chances(scores, temperature, top_k, top_p):
    """The chance of each token, by sorting, in float64: NumPy's own way, row by row."""
    found = np.zeros(scores.shape)
    for row, own in enumerate(np.asarray(scores, np.float64) / temperature):
        order = np.argsort(-own, kind="stable")[:top_k]
        parts = np.exp(own[order] - own[order[0]])
        parts /= parts.sum()
        kept = np.cumsum(parts) - parts < top_p  # a token counts while those before it have less than the share
        found[row, order[kept]] = parts[kept] / parts[kept].sum()
    return found


def draw(scores, settings, steps):
    """Tokens [steps, rows] of many steps, in one loop."""

    def all_steps(scores, settings):
        return tf.map_fn(lambda step: settings(scores, step), tf.range(steps), fn_output_signature=tf.int32)

    return compat.compiled(all_steps, jit_compile=True)(tf.constant(scores), settings).numpy()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 40, 1.0), (0.75, 50, 0.85), (2.0, 5, 1.0), (0.5, 40, 0.6), (1.0, 1, 0.3)]
)
def test_tokens_come_as_often_as_their_chances(temperature, top_k, top_p):
    """Over thousands of steps each token has its share by temperature, top-k and top-p, and no other token comes."""
    scores = np.random.default_rng(0).standard_normal([2, 40]).astype(np.float32) * 2
    drawn = draw(scores, sampling(temperature, top_k, top_p, seeds=3, rows=2), DRAWS)
    wanted = chances(scores, temperature, top_k, top_p)
    for row in range(2):
        shares = np.bincount(drawn[:, row], minlength=40) / DRAWS
        assert not shares[wanted[row] == 0].any()
        deviation = np.sqrt(wanted[row] * (1 - wanted[row]) / DRAWS)
        assert (np.abs(shares - wanted[row]) <= 5 * deviation + 1e-9).all()


def test_every_kept_token_can_be_drawn():
    """With all scores the same and no cut, all tokens come, the first and the last too; with a cut, all that tie."""
    assert set(draw(np.zeros([1, 7], np.float32), sampling(1.0, 7, 1.0), 200).ravel()) == set(range(7))
    assert set(draw(np.zeros([1, 7], np.float32), sampling(1.0, 2, 1.0), 200).ravel()) == set(range(7))
    assert set(draw(np.float32([[5, 0, 0, 9, -1]]), sampling(1.0, 1, 1.0), 50).ravel()) == {3}


def test_hopeless_scores_are_never_drawn():
    """Scores of minus infinity, and any below those of the kept ones, do no harm."""
    scores = np.float32([[-np.inf, 1, -np.inf, 1, -1e9]])
    assert set(draw(scores, sampling(1.0, 5, 1.0), 200).ravel()) == {1, 3}


def word(seed, step):
    """The 32 bits of a seed at a step, in Python's whole numbers."""

    def mixed(bits):
        bits &= 0xFFFFFFFF
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            bits = ((bits ^ bits >> shift) * factor) & 0xFFFFFFFF
        return bits ^ bits >> 16

    return mixed(mixed(seed) + step)


@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
def test_a_seed_is_the_same_everywhere(way):
    """However it is run, a seed at a step draws the token that arithmetic in NumPy says it does."""
    scores = np.random.default_rng(1).standard_normal([3, 1026]).astype(np.float32) * 3
    seeds, ends = [5, -6, 2**40 + 7], np.cumsum(chances(scores, 0.75, 50, 0.85), axis=1)
    settings = sampling(seeds=seeds)
    pick = Sampling.__call__ if way == "eager" else compat.compiled(Sampling.__call__, jit_compile=way == "xla")
    for step in (0, 1, 2, 77, 604):
        wanted = [np.searchsorted(ends[row], word(seed, step) / 2**32, "right") for row, seed in enumerate(seeds)]
        assert pick(settings, tf.constant(scores), tf.constant(step)).numpy().tolist() == wanted


def test_rows_steps_and_seeds_are_drawn_apart():
    """Neighbouring seeds and steps have nothing to do with each other."""
    drawn = draw(np.zeros([8, 2], np.float32), sampling(1.0, 2, 1.0, seeds=0, rows=8), 2000) * 2.0 - 1
    correlations = np.corrcoef(drawn.T) - np.eye(8)
    assert np.abs(correlations).max() < 0.12
    assert np.abs((drawn[1:] * drawn[:-1]).mean(axis=0)).max() < 0.12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"temperature = 0\.0: write a number above 0.*top_k = 1"),
        ({"temperature": float("nan")}, r"temperature = nan: write a number above 0"),
        ({"top_k": 0}, r"top_k = 0: write how many codes to draw from, at least 1"),
        ({"top_p": 0.0}, r"top_p = 0\.0: write a share above 0 and up to 1"),
        ({"top_p": 1.5}, r"top_p = 1\.5: write a share above 0 and up to 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    """Each is told in a sentence, with what to write instead."""
    with pytest.raises(XttsError, match=message):
        sampling(**settings)

"""Sampling: top-k, top-p, the distribution of tokens, and seeds that mean the same in every execution mode."""

import numpy as np
import pytest
import tensorflow as tf

from xtts import compat
from xtts.errors import XttsError
from xtts.model.sampling import Sampling, sampling

DRAWS = 4000


def chances(scores, temperature, top_k, top_p):
    """The probability of each token, by sorting in float64 with NumPy, row by row."""
    found = np.zeros(scores.shape)
    for row, own in enumerate(np.asarray(scores, np.float64) / temperature):
        order = np.argsort(-own, kind="stable")[:top_k]
        parts = np.exp(own[order] - own[order[0]])
        parts /= parts.sum()
        kept = np.cumsum(parts) - parts < top_p  # a token is kept while those before it have less than top_p
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
def test_tokens_follow_their_distribution(temperature, top_k, top_p):
    """Over thousands of steps each token has its probability by temperature, top-k and top-p, and no other occurs."""
    scores = np.random.default_rng(0).standard_normal([2, 40]).astype(np.float32) * 2
    drawn = draw(scores, sampling(temperature, top_k, top_p, seeds=3, rows=2), DRAWS)
    wanted = chances(scores, temperature, top_k, top_p)
    for row in range(2):
        shares = np.bincount(drawn[:, row], minlength=40) / DRAWS
        assert not shares[wanted[row] == 0].any()
        deviation = np.sqrt(wanted[row] * (1 - wanted[row]) / DRAWS)
        assert (np.abs(shares - wanted[row]) <= 5 * deviation + 1e-9).all()


def test_every_kept_token_can_be_drawn():
    """With equal scores all tokens occur, including the first, the last and all ties at the top-k cut."""
    assert set(draw(np.zeros([1, 7], np.float32), sampling(1.0, 7, 1.0), 200).ravel()) == set(range(7))
    assert set(draw(np.zeros([1, 7], np.float32), sampling(1.0, 2, 1.0), 200).ravel()) == set(range(7))
    assert set(draw(np.float32([[5, 0, 0, 9, -1]]), sampling(1.0, 1, 1.0), 50).ravel()) == {3}


def test_impossible_scores_are_never_drawn():
    """Scores of minus infinity, and scores far below the others, are never drawn and do no harm."""
    scores = np.float32([[-np.inf, 1, -np.inf, 1, -1e9]])
    assert set(draw(scores, sampling(1.0, 5, 1.0), 200).ravel()) == {1, 3}


def word(seed, step):
    """The 32 random bits of a seed at a step, in Python integers."""

    def mixed(bits):
        bits &= 0xFFFFFFFF
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            bits = ((bits ^ bits >> shift) * factor) & 0xFFFFFFFF
        return bits ^ bits >> 16

    return mixed(mixed(seed) + step)


@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
def test_a_seed_means_the_same_everywhere(way):
    """In every execution mode, a seed at a step draws the token computed with NumPy."""
    scores = np.random.default_rng(1).standard_normal([3, 1026]).astype(np.float32) * 3
    seeds, ends = [5, -6, 2**40 + 7], np.cumsum(chances(scores, 0.75, 50, 0.85), axis=1)
    settings = sampling(seeds=seeds)
    pick = Sampling.__call__ if way == "eager" else compat.compiled(Sampling.__call__, jit_compile=way == "xla")
    for step in (0, 1, 2, 77, 604):
        wanted = [np.searchsorted(ends[row], word(seed, step) / 2**32, "right") for row, seed in enumerate(seeds)]
        assert pick(settings, tf.constant(scores), tf.constant(step)).numpy().tolist() == wanted


def test_rows_steps_and_seeds_are_independent():
    """The draws of neighbouring seeds and steps are uncorrelated."""
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
def test_invalid_settings_are_refused(settings, message):
    """Each is refused with a message that says what to write instead."""
    with pytest.raises(XttsError, match=message):
        sampling(**settings)

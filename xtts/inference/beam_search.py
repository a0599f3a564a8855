"""Beam search over codes: several readings of a text at once, of which the likeliest is kept.

As the public implementation decodes with `num_beams` above 1 and without sampling: log probabilities, to which the
repetition penalty is applied, are summed; of all continuations of all beams twice as many as there are beams are looked
at, so that enough remain if many of them stop; a reading that has stopped is scored by its sum divided by its length to
the power of the length penalty, and the search ends when no running beam can be better than the worst one that is kept.
The network's steps are compiled; choosing among their scores is done on the host.
"""

from typing import Any, Callable, List, NamedTuple, Tuple

import numpy as np
import tensorflow as tf

from xtts.model.generation import GenerationState, predict
from xtts.model.gpt import Gpt
from xtts.model.layers import Tensor
from xtts.model.transformer import KeyValueCache

IMPOSSIBLE = np.float32(-1e9)  # score of what cannot be chosen
Step = Callable[[GenerationState, np.ndarray, np.ndarray], Tuple[GenerationState, np.ndarray]]


class FoundCodes(NamedTuple):
    """The likeliest codes, and whether the model stopped; if so, the stop is the last of them."""

    codes: np.ndarray  # int32
    has_stopped: bool


def branch(
    gpt: Gpt, state: GenerationState, order: Tensor, before: Tensor, repetition_penalty: Any
) -> Tuple[GenerationState, Tensor]:
    """Continue rows `order` [B] of a state by codes `before` [B]: the new state, and log probabilities [B, tokens].

    The first codes are the start of audio; `state.codes` and `state.latents` are not used.
    """
    used = tf.gather(state.used, order) | (tf.range(gpt.tokens.audio)[None] == before[:, None])
    caches = [KeyValueCache(tf.gather(cache.keys, order), tf.gather(cache.values, order)) for cache in state.caches]
    state = state._replace(used=used, caches=caches)
    states, caches = predict(gpt, state, before)
    scores = tf.nn.log_softmax(tf.cast(gpt.mel_head(states), tf.float32))
    scores = tf.where(used, scores * repetition_penalty, scores)  # they are never above 0
    return state._replace(step=state.step + 1, caches=caches), scores


def search(step: Step, state: GenerationState, start: int, stop: int, length_penalty: float) -> FoundCodes:
    """The likeliest codes. `state` has a row for each beam, all the same; `step` is a compiled `branch`."""
    beams, limit = state.codes.shape
    running, sums = [np.zeros(0, np.int32)] * beams, np.full(beams, IMPOSSIBLE)
    sums[0] = 0  # the others are copies of it
    finished = _Finished(beams)
    order, last = np.arange(beams, dtype=np.int32), np.full(beams, start, np.int32)
    for length in range(1, limit + 1):
        state, scores = step(state, order, last)
        totals = (scores + sums[:, None]).astype(np.float32)
        best = _highest(totals.ravel(), 2 * beams)
        parents, codes, found = best // scores.shape[1], best % scores.shape[1], totals.ravel()[best]
        is_over = (codes == stop) | (length == limit)
        readings = [np.append(running[parent], code).astype(np.int32) for parent, code in zip(parents, codes)]
        finished.add(readings, np.where(is_over, found, IMPOSSIBLE), length, length_penalty)
        kept = _highest(np.where(is_over, found + IMPOSSIBLE, found), beams)
        running, sums = [readings[place] for place in kept], found[kept] + np.where(is_over[kept], IMPOSSIBLE, 0)
        order, last = parents[kept].astype(np.int32), codes[kept].astype(np.int32)
        if is_over.all() or not finished.can_improve(sums[0], length, length_penalty):
            break
    codes = finished.readings[0]
    return FoundCodes(codes, bool(codes[-1] == stop))


class _Finished:
    """The best readings that have stopped, at most as many as there are beams, best first."""

    def __init__(self, beams: int) -> None:
        self.readings: List[np.ndarray] = []
        self._scores = np.zeros(0, np.float32)
        self._beams = beams

    def add(self, readings: List[np.ndarray], sums: np.ndarray, length: int, length_penalty: float) -> None:
        """Keep the best; `sums` of readings that are not over are IMPOSSIBLE. Only the first `beams` may finish."""
        over = [place for place in range(self._beams) if sums[place] > IMPOSSIBLE]
        every = [*self.readings, *(readings[place] for place in over)]
        scores = np.append(self._scores, sums[over] / np.float32(float(length) ** length_penalty)).astype(np.float32)
        kept = _highest(scores, self._beams)
        self.readings, self._scores = [every[place] for place in kept], scores[kept]

    def can_improve(self, best: float, length: int, length_penalty: float) -> bool:
        """Whether a running beam may still become better than the worst reading that is kept."""
        if len(self.readings) < self._beams:
            return True
        return bool(best / np.float32(float(length) ** length_penalty) > self._scores.min())


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, highest first."""
    return np.argsort(-scores, kind="stable")[:count]

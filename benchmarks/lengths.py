"""Random text lengths and mel frames distributed like those of LJSpeech.

Both have LJSpeech's percentiles (13,100 clips read by one voice, mel frames of hop 256 at 22.05 kHz, texts in
characters) and the same rank correlation.
"""

from typing import Tuple

import numpy as np

PERCENTILES = (0, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 100)
TEXT = (12, 24, 29, 40, 52, 69, 82, 92, 102, 112, 121, 131, 142, 151, 160, 165, 187)  # characters
MEL = (96, 143, 171, 231, 295, 390, 464, 527, 583, 640, 695, 750, 809, 838, 858, 864, 870)  # frames
CORRELATION = 0.957  # of the normal scores, from which the ranks correlate by 0.952, as in LJSpeech


def ljspeech_like(count: int, seed: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """Text lengths in characters and mel frames of `count` utterances, both int32."""
    random = np.random.RandomState(seed)  # its streams are the same in every release of numpy
    shared, own = random.standard_normal(count), random.standard_normal(count)
    return _spread(CORRELATION * shared + (1 - CORRELATION**2) ** 0.5 * own, TEXT), _spread(shared, MEL)


def _spread(values: np.ndarray, quantiles: Tuple[int, ...]) -> np.ndarray:
    """Numbers with these quantiles, ranked as `values`."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = (np.arange(len(values)) + 0.5) / len(values)
    return np.rint(np.interp(100 * ranks, PERCENTILES, quantiles)).astype(np.int32)

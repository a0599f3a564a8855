"""Objective metrics of speech: cepstra, mel-cepstral distortion, dynamic time warping and pitch.

A log mel is [frames, n_mels], the natural logarithm of energies, as `mel.log_mel` makes it.

Pitch tracking is by hand. On 24 clips of the demo corpus, 90 s, the median pitch of librosa.pyin differs from that of
`pitch_track` by 0.07 semitones in the median and 0.3 at most, and takes 12 times as long (librosa 1.0; 41 times with
0.9.2), after a first call of several seconds. librosa.yin is as fast, but does not tell voiced frames from unvoiced
ones, and its medians are up to 1.5 semitones off.
"""

from typing import Tuple

import numpy as np
import scipy.fft

DECIBELS = 10 / np.log(10)  # for each neper of energy
CEPSTRA = 24  # coefficients of the spectral envelope; finer detail is pitch and noise
MIN_PITCH, MAX_PITCH = 60.0, 400.0  # Hz, the range in which a voice's pitch is searched
VOICING_THRESHOLD = 0.5  # autocorrelation at the pitch period, as a share of that at lag 0


def cepstra(logs: np.ndarray) -> np.ndarray:
    """The mel cepstra of a log mel, [frames, CEPSTRA], in decibels; without the 0th, which is the level."""
    logs = np.asarray(logs, np.float64)
    waves = scipy.fft.dct(logs, axis=1, norm="ortho")[:, 1 : CEPSTRA + 1]
    return np.asarray(DECIBELS * waves / np.sqrt(logs.shape[1]))


def mel_cepstral_distortion(one: np.ndarray, other: np.ndarray) -> float:
    """The mel-cepstral distortion of two log mels, in decibels.

    It is the root mean square difference between the spectral envelopes of two frames, averaged over frames. Mels of
    the same length are compared frame by frame, others along the best alignment (dynamic time warping).
    """
    one, other = cepstra(one), cepstra(other)
    if len(one) == len(other):
        return float(np.sqrt(((one - other) ** 2).sum(axis=1)).mean())
    total, steps = dynamic_time_warping(_pairwise_distances(one, other))
    return total / steps


def dynamic_time_warping(costs: np.ndarray) -> Tuple[float, int]:
    """The cost of the cheapest path through `costs` [n, m], corner to corner, and the number of its cells.

    A path advances by one row, one column or both. The cells of an antidiagonal do not depend on each other, so they
    are computed together.
    """
    rows, columns = costs.shape
    # [diagonal, row]: the cost of the best path to each cell, and its length; cells outside the table cost infinity
    sums = np.full((rows + columns - 1, rows + 1), np.inf)
    cells = np.zeros(sums.shape, np.int64)
    sums[0, 1], cells[0, 1] = costs[0, 0], 1
    for diagonal in range(1, rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        previous = [(sums[diagonal - 1, row], cells[diagonal - 1, row])]  # the row before
        previous.append((sums[diagonal - 1, row + 1], cells[diagonal - 1, row + 1]))  # the column before
        if diagonal > 1:
            previous.insert(0, (sums[diagonal - 2, row], cells[diagonal - 2, row]))
        best = np.argmin([cost for cost, _ in previous], axis=0)
        sums[diagonal, row + 1] = costs[row, diagonal - row] + np.choose(best, [cost for cost, _ in previous])
        cells[diagonal, row + 1] = 1 + np.choose(best, [count for _, count in previous])
    return float(sums[-1, rows]), int(cells[-1, rows])


def pitch_track(wave: np.ndarray, sample_rate: int) -> np.ndarray:
    """The pitch in Hz of the voiced frames, 10 ms apart, [frames], by autocorrelation."""
    size, hop = int(3 * sample_rate / MIN_PITCH), sample_rate // 100
    if len(wave) < size:
        return np.zeros(0)
    starts = np.arange(0, len(wave) - size + 1, hop)
    frames = np.asarray(wave, np.float64)[starts[:, None] + np.arange(size)]
    frames = frames - frames.mean(axis=1, keepdims=True)
    spectra = np.abs(scipy.fft.rfft(frames, n=2 * size, axis=1)) ** 2
    autocorrelation = scipy.fft.irfft(spectra, axis=1)[:, :size]
    autocorrelation /= np.maximum(autocorrelation[:, :1], 1e-12)
    autocorrelation *= size / (size - np.arange(size))  # at larger lags fewer samples overlap
    low, high = int(sample_rate / MAX_PITCH), int(sample_rate / MIN_PITCH)
    span = autocorrelation[:, low : high + 1]
    # The first peak nearly as high as the highest one: multiples of the period have peaks as high.
    inner = span[:, 1:-1]
    is_peak = (inner >= span[:, :-2]) & (inner >= span[:, 2:]) & (inner > 0.9 * span.max(axis=1, keepdims=True))
    lags = low + 1 + is_peak.argmax(axis=1)
    energy = np.sqrt((frames**2).mean(axis=1))
    is_voiced = is_peak.any(axis=1) & (span.max(axis=1) > VOICING_THRESHOLD) & (energy > 0.1 * energy.max())
    return np.asarray(sample_rate / lags[is_voiced])


def _pairwise_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The Euclidean distance of every row of one to every row of the other, [n, m]."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))

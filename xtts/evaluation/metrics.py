"""How far one sound is from another: log mels and waves come in; decibels, cepstra and pitches go out.

A log mel is [frames, n_mels], the natural logarithm of energies, as `mel.log_mel` makes it.
"""

from typing import Tuple

import numpy as np
import scipy.fft

DECIBELS = 10 / np.log(10)  # in a natural logarithm of energy
CEPSTRA = 24  # that a spectrum's outline is told by; what is finer is pitch and noise
LOWEST, HIGHEST = 60.0, 400.0  # Hz, that a voice is looked for between
VOICED = 0.5  # of a frame's energy must return after a period


def cepstra(logs: np.ndarray) -> np.ndarray:
    """The outlines of spectra, [frames, CEPSTRA], in decibels: their level is left out."""
    logs = np.asarray(logs, np.float64)
    waves = scipy.fft.dct(logs, axis=1, norm="ortho")[:, 1 : CEPSTRA + 1]
    return np.asarray(DECIBELS * waves / np.sqrt(logs.shape[1]))


def mel_cepstral_distortion(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The mel-cepstral distortion of two log mels, in decibels.

    It is the root mean square by which the outlines of two frames differ, averaged over frames; with every cepstrum
    but the first, that of the spectra themselves. Frames of the same number meet where both have as many; where they
    do not, those that fit best in their order do (dynamic time warping).
    """
    one, other = cepstra(ours), cepstra(theirs)
    if len(one) == len(other):
        return float(np.sqrt(((one - other) ** 2).sum(axis=1)).mean())
    total, steps = dynamic_time_warping(_apart(one, other))
    return total / steps


def dynamic_time_warping(costs: np.ndarray) -> Tuple[float, int]:
    """The cheapest way through costs [n, m] from the first corner to the last, and how many cells it visits.

    It goes on by one in either direction, or in both. Cells of one diagonal do not depend on each other, so they are
    reached together.
    """
    rows, columns = costs.shape
    # [diagonal, row]: the cost of a way to each cell, and its cells; a cell that is not there costs too much
    sums = np.full((rows + columns - 1, rows + 1), np.inf)
    cells = np.zeros(sums.shape, np.int64)
    sums[0, 1], cells[0, 1] = costs[0, 0], 1
    for diagonal in range(1, rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        ways = [(sums[diagonal - 1, row], cells[diagonal - 1, row])]  # from the row before
        ways.append((sums[diagonal - 1, row + 1], cells[diagonal - 1, row + 1]))
        if diagonal > 1:
            ways.insert(0, (sums[diagonal - 2, row], cells[diagonal - 2, row]))
        best = np.argmin([cost for cost, _ in ways], axis=0)
        sums[diagonal, row + 1] = costs[row, diagonal - row] + np.choose(best, [cost for cost, _ in ways])
        cells[diagonal, row + 1] = 1 + np.choose(best, [count for _, count in ways])
    return float(sums[-1, rows]), int(cells[-1, rows])


def pitch_track(wave: np.ndarray, sample_rate: int) -> np.ndarray:
    """The pitch in Hz of every 10 ms in which there is one, [frames]: where a frame is most like itself, later."""
    size, hop = int(3 * sample_rate / LOWEST), sample_rate // 100
    if len(wave) < size:
        return np.zeros(0)
    starts = np.arange(0, len(wave) - size + 1, hop)
    frames = np.asarray(wave, np.float64)[starts[:, None] + np.arange(size)]
    frames = frames - frames.mean(axis=1, keepdims=True)
    spectra = np.abs(scipy.fft.rfft(frames, n=2 * size, axis=1)) ** 2
    alike = scipy.fft.irfft(spectra, axis=1)[:, :size]
    alike = alike / np.maximum(alike[:, :1], 1e-12) * (size / (size - np.arange(size)))  # less of it overlaps later on
    low, high = int(sample_rate / HIGHEST), int(sample_rate / LOWEST)
    span = alike[:, low : high + 1]
    # The first peak nearly as high as the highest: its multiples are as like, and are not the pitch.
    inner = span[:, 1:-1]
    is_peak = (inner >= span[:, :-2]) & (inner >= span[:, 2:]) & (inner > 0.9 * span.max(axis=1, keepdims=True))
    lags = low + 1 + is_peak.argmax(axis=1)
    energy = np.sqrt((frames**2).mean(axis=1))
    is_voiced = is_peak.any(axis=1) & (span.max(axis=1) > VOICED) & (energy > 0.1 * energy.max())
    return np.asarray(sample_rate / lags[is_voiced])


def _apart(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """How far every row is from every other, [n, m]."""
    squares = (ours**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)[None] - 2 * ours @ theirs.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))

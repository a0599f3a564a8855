"""Resample waves in the frequency domain.

By hand because it is as fast as soxr, needs no further package, and is twice as fast as scipy's polyphase filter, whose
error is 70 dB larger.
"""

import functools
import math
from typing import Any, NamedTuple, Tuple

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import as_strided


def resampled_length(samples: Any, from_rate: Any, to_rate: int) -> Any:
    """The number of samples after resampling, of one wave or of an array of them (int64)."""
    return -(-samples * to_rate // from_rate)


def resample(wave: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """The wave at another rate. The passband ends at 95 % of the lower Nyquist frequency, the stopband starts at 100 %.

    Overlapping blocks are transformed, their spectra shortened or extended, and transformed back.
    """
    if from_rate == to_rate:
        return wave
    source, target, gain = _blocks(from_rate, to_rate)
    count = -(-len(wave) // source.step)
    padded = np.zeros(count * source.step + 2 * source.margin, np.float32)
    padded[source.margin :][: len(wave)] = wave
    spectrum = scipy.fft.rfft(strided(padded, count, source.whole, source.step))[:, : len(gain)]
    blocks = scipy.fft.irfft(spectrum * gain, n=target.whole, overwrite_x=True)
    kept = blocks[:, target.margin :][:, : target.step].reshape(-1)
    return np.asarray(kept[: resampled_length(len(wave), from_rate, to_rate)])


def strided(wave: np.ndarray, count: int, length: int, step: int) -> np.ndarray:
    """Pieces of a wave, [count, length], one every `step` samples, without a copy."""
    return as_strided(wave, (count, length), (step * wave.itemsize, wave.itemsize), writeable=False)


class _Block(NamedTuple):
    """A block of a wave, in samples at one rate: `step` of them are kept, a margin on both sides is dropped."""

    step: int
    margin: int

    @property
    def whole(self) -> int:
        return self.step + 2 * self.margin


@functools.lru_cache(maxsize=32)
def _blocks(from_rate: int, to_rate: int) -> Tuple[_Block, _Block, np.ndarray]:
    """The block at the source and the target rate, and the gain of each bin that both have."""
    common = math.gcd(from_rate, to_rate)
    lower = min(from_rate, to_rate) // common
    steps, margins = -(-4096 // lower), -(-512 // lower)  # the filter's response decays within 512 samples
    source, target = (_Block(rate // common * steps, rate // common * margins) for rate in (from_rate, to_rate))
    limit = min(source.whole, target.whole) // 2
    fall = np.clip((1 - np.arange(limit + 1) / limit) / 0.05, 0, 1)  # from 1 to 0 over the last 5 %
    gain = fall**3 * (fall * (6 * fall - 15) + 10)  # smooth at both ends, for a short impulse response
    return source, target, (gain * (target.whole / source.whole)).astype(np.float32)

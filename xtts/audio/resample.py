"""Resample waves: in the frequency domain, or by the windowed sinc that the published model's references went through.

`resample` is by hand because it is as fast as soxr, needs no further package, and is twice as fast as scipy's polyphase
filter, whose error is 70 dB larger. `resample_sinc` is by hand because only torchaudio computes it.
"""

import functools
import math
from typing import Any, NamedTuple, Tuple

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import as_strided

SINC_ZERO_CROSSINGS = 6  # of the windowed sinc on either side, at the rate of its cutoff
SINC_ROLLOFF = 0.99  # its cutoff, as a share of the lower Nyquist frequency


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


def resample_sinc(wave: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """The wave at another rate, by interpolation with a Hann-windowed sinc: the numbers of torchaudio's `resample`."""
    if from_rate == to_rate:
        return wave
    weights, centres = _sinc_weights(from_rate, to_rate)
    taps, reach = weights.shape[1], weights.shape[1] // 2
    phases, common = len(weights), math.gcd(from_rate, to_rate)
    count = int(resampled_length(len(wave), from_rate, to_rate))
    padded = np.pad(wave.astype(np.float64), (reach, reach + from_rate // common))
    period, phase = np.divmod(np.arange(count), phases)
    first = period * (from_rate // common) + centres[phase]
    summed = np.zeros(count)
    for tap in range(taps):
        summed += padded[first + tap] * weights[phase, tap]
    return summed.astype(np.float32)


@functools.lru_cache(maxsize=8)
def _sinc_weights(from_rate: int, to_rate: int) -> Tuple[np.ndarray, np.ndarray]:
    """The weights of the samples around each phase of the output, [phases, taps], and the middle one of them [phases].

    Output sample n lies at n * from_rate / to_rate, so phases repeat once both rates have met again.
    """
    common = math.gcd(from_rate, to_rate)
    source, phases = from_rate // common, to_rate // common
    cutoff = SINC_ROLLOFF * min(source, phases)
    reach = math.ceil(SINC_ZERO_CROSSINGS * source / cutoff)
    places = np.arange(phases) * source
    centres = places // phases
    # In float32, as there: the rounding of these times is part of its numbers.
    samples = (centres[:, None] + np.arange(-reach, reach + 1)).astype(np.float32)
    time = samples / np.float32(source) - (np.arange(phases, dtype=np.float32) / np.float32(phases))[:, None]
    time = np.clip(time * np.float32(cutoff), -SINC_ZERO_CROSSINGS, SINC_ZERO_CROSSINGS)  # in zero crossings
    window = np.cos(time * np.float32(np.pi) / np.float32(SINC_ZERO_CROSSINGS) / np.float32(2)) ** 2
    angles = time * np.float32(np.pi)
    sinc = np.where(angles == 0, np.float32(1), np.sin(angles) / np.where(angles == 0, np.float32(1), angles))
    weights = sinc * (window * np.float32(cutoff / source))
    return weights.astype(np.float32), centres


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

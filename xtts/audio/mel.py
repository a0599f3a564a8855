"""Mel spectrograms of XTTS: codec, conditioning and speaker encoder each have their own.

A wave is float32, [samples]; a mel is float32, time first, [frames, n_mels].

By hand because librosa takes about twice as long for the same mel (benchmarks/test_features.py).
"""

import functools
from typing import Any, Iterator, List, Literal, NamedTuple, Optional

import attrs
import numpy as np
import scipy.fft

from xtts.audio.resample import strided
from xtts.recipe.schema import AudioSection

LOG_FLOOR = 1e-5  # floor of the energies before the logarithm
BLOCK = 96 * 1024  # samples transformed together; with their spectrum they fit in a core's cache
TINY = np.float32(1e-20)  # avoids dividing by zero in silence


@attrs.frozen
class MelSpec:
    """The settings of a mel spectrogram. The defaults are those of the codec."""

    sample_rate: int = 22050
    n_fft: int = 1024
    win_length: int = 1024
    hop_length: int = 256
    n_mels: int = 80
    fmin: float = 0.0  # Hz
    fmax: float = 8000.0  # Hz
    scale: Literal["htk", "slaney"] = "htk"
    norm: Optional[Literal["slaney"]] = "slaney"  # slaney: all filters have the same area
    window: Literal["hann", "hamming"] = "hann"
    power: float = 2.0  # 2: energy, 1: magnitude
    preemphasis: float = 0.0

    @classmethod
    def of(cls, audio: AudioSection) -> "MelSpec":
        """The codec's mel, with the settings of a recipe."""
        return cls(**attrs.asdict(audio))

    @property
    def reach(self) -> int:
        """Samples of the window before the centre of a frame."""
        return self.n_fft // 2 - (self.n_fft - self.win_length) // 2


CODEC = MelSpec()
CONDITIONING = attrs.evolve(CODEC, n_fft=2048)
SPEAKER = MelSpec(
    sample_rate=16000,
    n_fft=512,
    win_length=400,
    hop_length=160,
    n_mels=64,
    norm=None,
    window="hamming",
    preemphasis=0.97,
)


def frame_count(samples: Any, spec: MelSpec) -> Any:
    """The number of mel frames of a wave with this many samples; a number, an array or a tensor."""
    return 1 + (samples - spec.n_fft % 2) // spec.hop_length


def mel(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The mel of a wave, [frames, n_mels], without logarithm. Frames are centred; the wave is reflected at its ends."""
    if wave.ndim != 1 or not len(wave):
        raise ValueError(f"a wave is [samples], at least one; this one has the shape {wave.shape}")
    count = frame_count(len(wave), spec)
    frames = strided(_reflect(_preemphasise(wave, spec), spec), count, spec.win_length, spec.hop_length)
    window_function, bands = window(spec), _bands(spec)
    bins = audible_bins(spec)
    result = np.empty((count, spec.n_mels), np.float32)
    # The window is at the start of the n_fft samples, not in their middle; this changes phases only, not energies.
    framed = np.zeros((BLOCK // spec.n_fft, spec.n_fft), np.float32)
    energies = np.empty((len(framed), bins), np.float32)
    for block in spans(count, len(framed)):
        frame, energy = framed[: block.stop - block.start], energies[: block.stop - block.start]
        np.multiply(frames[block], window_function, out=frame[:, : spec.win_length])
        parts = scipy.fft.rfft(frame).view(np.float32)  # real, imaginary, real, ...
        np.multiply(parts, parts, out=parts)
        np.add(parts[:, 0 : 2 * bins : 2], parts[:, 1 : 2 * bins : 2], out=energy)
        if spec.power != 2:
            np.power(energy, spec.power / 2, out=energy)
        for band in bands:
            np.matmul(energy[:, band.start : band.stop], band.weights, out=result[block, band.first : band.last])
    return result


def log_mel(wave: np.ndarray, spec: MelSpec, mel_norms: Optional[np.ndarray] = None) -> np.ndarray:
    """The logarithm of the mel, for codec and conditioning, divided by the checkpoint's `mel_norms`, [n_mels]."""
    result = mel(wave, spec)
    np.log(np.maximum(result, LOG_FLOOR, out=result), out=result)
    if mel_norms is not None:
        result /= mel_norms
    return result


@functools.lru_cache(maxsize=32)
def window(spec: MelSpec) -> np.ndarray:
    """The periodic window function, [win_length]."""
    offset, amplitude = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46)}[spec.window]
    return _constant(offset - amplitude * np.cos(2 * np.pi * np.arange(spec.win_length) / spec.win_length))


@functools.lru_cache(maxsize=32)
def filterbank(spec: MelSpec) -> np.ndarray:
    """The mel filterbank, [n_fft // 2 + 1, n_mels]: triangular filters, evenly spaced on the mel scale."""
    to_mel, to_hertz = _SCALES[spec.scale]
    edges = to_hertz(np.linspace(to_mel(np.array(spec.fmin)), to_mel(np.array(spec.fmax)), spec.n_mels + 2))
    hertz = np.arange(spec.n_fft // 2 + 1)[:, None] * (spec.sample_rate / spec.n_fft)
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rise, fall))
    if spec.norm == "slaney":
        weights *= 2 / (edges[2:] - edges[:-2])
    return _constant(weights)


@functools.lru_cache(maxsize=32)
def audible_bins(spec: MelSpec) -> int:
    """The number of bins, from the lowest on, up to the last one in any filter."""
    return int(np.flatnonzero(filterbank(spec).any(axis=1))[-1]) + 1


def _htk_mel(hertz: np.ndarray) -> np.ndarray:
    return np.asarray(2595 * np.log10(1 + hertz / 700))


def _htk_hertz(mels: np.ndarray) -> np.ndarray:
    return 700 * (10 ** (mels / 2595) - 1)


def _slaney_mel(hertz: np.ndarray) -> np.ndarray:
    """Linear up to 1000 Hz, which is 15 mel; above that 27 mel for each factor of 6.4."""
    return np.where(hertz < 1000, hertz * 3 / 200, 15 + 27 * np.log(np.maximum(hertz, 1000) / 1000) / np.log(6.4))


def _slaney_hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))


_SCALES = {"htk": (_htk_mel, _htk_hertz), "slaney": (_slaney_mel, _slaney_hertz)}


class _Band(NamedTuple):
    """Neighbouring channels, and the bins in their filters."""

    first: int  # channel
    last: int
    start: int  # bin
    stop: int
    weights: np.ndarray  # [stop - start, last - first]


@functools.lru_cache(maxsize=32)
def _bands(spec: MelSpec) -> List[_Band]:
    """The filterbank in four bands, without most of its zeros."""
    weights, bands = filterbank(spec), []
    for channels in np.array_split(np.arange(spec.n_mels), min(4, spec.n_mels)):
        first, last = int(channels[0]), int(channels[-1]) + 1
        bins = np.flatnonzero(weights[:, first:last].any(axis=1))
        start, stop = (int(bins[0]), int(bins[-1]) + 1) if len(bins) else (0, 1)
        bands.append(_Band(first, last, start, stop, np.ascontiguousarray(weights[start:stop, first:last])))
    return bands


def _preemphasise(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """Pre-emphasis; before its first sample the wave is reflected."""
    if not spec.preemphasis:
        return wave
    before = np.concatenate([wave[1:2] if len(wave) > 1 else wave, wave[:-1]])
    return np.asarray(wave - np.float32(spec.preemphasis) * before)


def _reflect(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The wave, reflected at both ends as far as the windows extend beyond it."""
    before, after = spec.reach, spec.win_length - spec.reach
    if len(wave) <= max(before, after):
        return np.pad(wave.astype(np.float32), (before, after), mode="reflect")
    padded = np.empty(before + len(wave) + after, np.float32)
    padded[:before] = wave[before:0:-1]
    padded[before:-after] = wave
    padded[-after:] = wave[-2 : -2 - after : -1]
    return padded


def spans(count: int, size: int) -> Iterator[slice]:
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def _constant(values: np.ndarray) -> np.ndarray:
    values = np.ascontiguousarray(values, np.float32)
    values.flags.writeable = False
    return values

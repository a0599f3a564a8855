"""Mels: waves come in, the three mels of XTTS go out, and a log mel becomes a wave again.

A wave is float32, [samples]; a mel is float32, time first, [frames, n_mels].
"""

import functools
from typing import Any, Iterator, List, Literal, NamedTuple, Optional

import attrs
import numpy as np
import scipy.fft

from xtts.audio.resample import strided
from xtts.recipe.schema import AudioSection

LOG_FLOOR = 1e-5  # a mel's energy counts as at least this before its logarithm
BLOCK = 96 * 1024  # samples transformed at once: with their spectrum they stay in a core's cache
TINY = np.float32(1e-20)  # keeps silence from being divided by


@attrs.frozen
class MelSpec:
    """What a mel is made like. The defaults are the codec's."""

    sample_rate: int = 22050
    n_fft: int = 1024
    win_length: int = 1024
    hop_length: int = 256
    n_mels: int = 80
    fmin: float = 0.0  # Hz
    fmax: float = 8000.0  # Hz
    scale: Literal["htk", "slaney"] = "htk"
    norm: Optional[Literal["slaney"]] = "slaney"  # slaney: every filter has the same area
    window: Literal["hann", "hamming"] = "hann"
    power: float = 2.0  # 2: energy, 1: magnitude
    preemphasis: float = 0.0

    @classmethod
    def of(cls, audio: AudioSection) -> "MelSpec":
        """The codec's mel as a recipe has it."""
        return cls(**attrs.asdict(audio))

    @property
    def reach(self) -> int:
        """Samples under the window before a frame's centre."""
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
    """How many frames the mel of so many samples has; of one wave, an array or a tensor of them."""
    return 1 + (samples - spec.n_fft % 2) // spec.hop_length


def mel(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The mel of a wave, [frames, n_mels], not as a logarithm. Frames are centred; the wave is mirrored at its ends."""
    if wave.ndim != 1 or not len(wave):
        raise ValueError(f"a wave is [samples], at least one; this one has the shape {wave.shape}")
    count = frame_count(len(wave), spec)
    pieces = strided(_mirrored(_preemphasised(wave, spec), spec), count, spec.win_length, spec.hop_length)
    shape, bands = window(spec), _bands(spec)
    bins = audible_bins(spec)
    result = np.empty((count, spec.n_mels), np.float32)
    # The window stands at the start of n_fft samples, not in their middle: that turns phases, and energies have none.
    framed = np.zeros((BLOCK // spec.n_fft, spec.n_fft), np.float32)
    energies = np.empty((len(framed), bins), np.float32)
    for block in spans(count, len(framed)):
        frame, energy = framed[: block.stop - block.start], energies[: block.stop - block.start]
        np.multiply(pieces[block], shape, out=frame[:, : spec.win_length])
        parts = scipy.fft.rfft(frame).view(np.float32)  # real, imaginary, real, ...
        np.multiply(parts, parts, out=parts)
        np.add(parts[:, 0 : 2 * bins : 2], parts[:, 1 : 2 * bins : 2], out=energy)
        if spec.power != 2:
            np.power(energy, spec.power / 2, out=energy)
        for band in bands:
            np.matmul(energy[:, band.start : band.stop], band.weights, out=result[block, band.first : band.last])
    return result


def log_mel(wave: np.ndarray, spec: MelSpec, stats: Optional[np.ndarray] = None) -> np.ndarray:
    """The mel's logarithm, as codec and conditioning take it; divided by `stats`, [n_mels], of a checkpoint."""
    result = mel(wave, spec)
    np.log(np.maximum(result, LOG_FLOOR, out=result), out=result)
    if stats is not None:
        result /= stats
    return result


@functools.lru_cache(maxsize=32)
def window(spec: MelSpec) -> np.ndarray:
    """The periodic window of a frame, [win_length]."""
    level, swing = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46)}[spec.window]
    return _constant(level - swing * np.cos(2 * np.pi * np.arange(spec.win_length) / spec.win_length))


@functools.lru_cache(maxsize=32)
def filterbank(spec: MelSpec) -> np.ndarray:
    """How much each channel hears of each frequency, [n_fft // 2 + 1, n_mels]: triangles, evenly spaced in mel."""
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
    """How many frequencies, from the lowest on, some channel hears."""
    return int(np.flatnonzero(filterbank(spec).any(axis=1))[-1]) + 1


def _htk_mel(hertz: np.ndarray) -> np.ndarray:
    return np.asarray(2595 * np.log10(1 + hertz / 700))


def _htk_hertz(mels: np.ndarray) -> np.ndarray:
    return 700 * (10 ** (mels / 2595) - 1)


def _slaney_mel(hertz: np.ndarray) -> np.ndarray:
    """Even up to 1000 Hz, which is 15 mel; from there on 27 mel for each factor of 6.4."""
    return np.where(hertz < 1000, hertz * 3 / 200, 15 + 27 * np.log(np.maximum(hertz, 1000) / 1000) / np.log(6.4))


def _slaney_hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))


_SCALES = {"htk": (_htk_mel, _htk_hertz), "slaney": (_slaney_mel, _slaney_hertz)}


class _Band(NamedTuple):
    """Neighbouring channels, and the only frequencies they hear."""

    first: int  # channel
    last: int
    start: int  # frequency
    stop: int
    weights: np.ndarray  # [stop - start, last - first]


@functools.lru_cache(maxsize=32)
def _bands(spec: MelSpec) -> List[_Band]:
    """The filterbank in four pieces, without most of its zeros."""
    weights, bands = filterbank(spec), []
    for channels in np.array_split(np.arange(spec.n_mels), min(4, spec.n_mels)):
        first, last = int(channels[0]), int(channels[-1]) + 1
        bins = np.flatnonzero(weights[:, first:last].any(axis=1))
        start, stop = (int(bins[0]), int(bins[-1]) + 1) if len(bins) else (0, 1)
        bands.append(_Band(first, last, start, stop, np.ascontiguousarray(weights[start:stop, first:last])))
    return bands


def _preemphasised(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """Each sample less a share of the one before it; before the first the wave is mirrored."""
    if not spec.preemphasis:
        return wave
    before = np.concatenate([wave[1:2] if len(wave) > 1 else wave, wave[:-1]])
    return np.asarray(wave - np.float32(spec.preemphasis) * before)


def _mirrored(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The wave with as much of it mirrored at each end as windows reach over."""
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

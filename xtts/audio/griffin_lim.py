"""Waves from log mels, by the Griffin-Lim algorithm.

By hand because a wave must be continued from samples that are already out (`known`), which librosa cannot, and because
it inverts the mel by least squares, which neglects quiet channels.
"""

import functools
from typing import Optional

import numpy as np
import scipy.fft

from xtts.audio.mel import BLOCK, TINY, MelSpec, audible_bins, filterbank, spans, window
from xtts.audio.resample import strided

MOMENTUM = np.float32(0.99 / 1.99)  # of the fast Griffin-Lim algorithm


def griffin_lim(
    logs: np.ndarray,
    spec: MelSpec,
    iterations: int = 32,
    mel_norms: Optional[np.ndarray] = None,
    seed: int = 0,
    known: Optional[np.ndarray] = None,
) -> np.ndarray:
    """A wave with this log mel, [(frames - 1) * hop_length] samples, for listening during training.

    The phases are estimated by the fast Griffin-Lim algorithm (Perraudin, Balazs and Søndergaard 2013), from random
    ones drawn with `seed`. `known` are the first samples of the wave, if they are already known; the rest continues
    them without a break.
    """
    if spec.preemphasis or spec.power != 2:
        raise ValueError("only an energy mel without pre-emphasis can be turned back into a wave")
    logs = np.asarray(logs, np.float32) * (1 if mel_norms is None else np.asarray(mel_norms, np.float32))
    magnitudes = np.sqrt(_energies(np.exp(logs), spec))
    count, bins = magnitudes.shape
    phases = np.random.default_rng(seed).random((count, bins), np.float32) * np.float32(2 * np.pi)
    spectrum = np.zeros((count, spec.n_fft // 2 + 1), np.complex64)  # zero above the highest bin of the filterbank
    spectrum.real[:, :bins], spectrum.imag[:, :bins] = magnitudes * np.cos(phases), magnitudes * np.sin(phases)
    previous = np.zeros((count, bins), np.complex64)
    for _ in range(iterations):
        wave = _with_start(_istft(spectrum, spec), known, spec)
        frames = strided(wave, count, spec.win_length, spec.hop_length)
        for block in spans(count, BLOCK // spec.n_fft):
            found = scipy.fft.rfft(frames[block] * window(spec), n=spec.n_fft)[:, :bins]
            ahead = found - MOMENTUM * previous[block]
            previous[block] = found
            scale = magnitudes[block] / np.sqrt(ahead.real**2 + ahead.imag**2 + TINY)
            np.multiply(ahead.real, scale, out=spectrum.real[block, :bins])
            np.multiply(ahead.imag, scale, out=spectrum.imag[block, :bins])
    return _with_start(_istft(spectrum, spec), known, spec)[spec.reach :][: (count - 1) * spec.hop_length]


def _with_start(wave: np.ndarray, known: Optional[np.ndarray], spec: MelSpec) -> np.ndarray:
    """The wave, which starts with the first window, with its known samples written into it."""
    if known is not None:
        wave[spec.reach :][: len(known)] = known
    return wave


def _energies(mels: np.ndarray, spec: MelSpec, steps: int = 20) -> np.ndarray:
    """The energies of the audible bins, [frames, bins], that give these mels.

    By expectation-maximisation: each step multiplies by the ratio of wanted to present energy in each channel.
    Energies stay positive, and quiet channels fit as well as loud ones, which least squares would neglect.
    """
    weights = filterbank(spec)[: audible_bins(spec)]
    shares = (weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)).T
    energies = (mels / np.maximum(weights.sum(axis=0), TINY)) @ shares
    for _ in range(steps):
        energies *= (mels / (energies @ weights + TINY)) @ shares
    return np.asarray(energies)


def _istft(spectrum: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The wave whose short-time spectrum is closest to `spectrum`, from the first sample of the first window on."""
    rows = _rows(len(spectrum), spec)
    for block in spans(len(spectrum), BLOCK // spec.n_fft):
        frames = scipy.fft.irfft(spectrum[block], n=spec.n_fft)[:, : spec.win_length]
        _overlap_add(rows[block.start :], frames * window(spec))
    rows /= _overlapped_windows(len(spectrum), spec)
    return rows.reshape(-1)


@functools.lru_cache(maxsize=8)
def _overlapped_windows(count: int, spec: MelSpec) -> np.ndarray:
    """The sum of the squared windows of `count` frames, in rows, by which overlap-add is normalised."""
    rows = _rows(count, spec)
    _overlap_add(rows, np.broadcast_to(window(spec) ** 2, (count, spec.win_length)))
    return np.asarray(np.maximum(rows, np.float32(1e-3)))


def _rows(count: int, spec: MelSpec) -> np.ndarray:
    """A wave of zeros for `count` frames, in rows of hop_length samples."""
    return np.zeros((count - 1 + -(-spec.win_length // spec.hop_length), spec.hop_length), np.float32)


def _overlap_add(rows: np.ndarray, frames: np.ndarray) -> None:
    """Add overlapping frames, [count, win_length], to a wave; each starts one row after the one before."""
    hop = rows.shape[1]
    for row, start in enumerate(range(0, frames.shape[1], hop)):
        part = frames[:, start : start + hop]
        rows[row : row + len(part), : part.shape[1]] += part

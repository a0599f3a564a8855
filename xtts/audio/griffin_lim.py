"""Waves from log mels, by the Griffin-Lim algorithm."""

import functools
from typing import Optional

import numpy as np
import scipy.fft

from xtts.audio.mel import BLOCK, TINY, MelSpec, audible_bins, filterbank, spans, window
from xtts.audio.resample import strided

MOMENTUM = np.float32(0.99 / 1.99)  # share of the last spectrum by which the next one is pushed on


def griffin_lim(
    logs: np.ndarray,
    spec: MelSpec,
    iterations: int = 32,
    mel_norms: Optional[np.ndarray] = None,
    seed: int = 0,
    known: Optional[np.ndarray] = None,
) -> np.ndarray:
    """A wave with this log mel, [(frames - 1) * hop_length] samples: good to listen to while training.

    Griffin and Lim's projections with momentum (Perraudin, Balazs and Søndergaard 2013) find phases that fit the
    magnitudes; the first phases are random, by `seed`. `known` are samples that the wave begins with, when it was made
    before as far as that: the rest is found to go on from there.
    """
    if spec.preemphasis or spec.power != 2:
        raise ValueError("only an energy mel without pre-emphasis can be turned back into a wave")
    logs = np.asarray(logs, np.float32) * (1 if mel_norms is None else np.asarray(mel_norms, np.float32))
    magnitudes = np.sqrt(_energies(np.exp(logs), spec))
    count, bins = magnitudes.shape
    turns = np.random.default_rng(seed).random((count, bins), np.float32) * np.float32(2 * np.pi)
    spectrum = np.zeros((count, spec.n_fft // 2 + 1), np.complex64)  # silent above the last frequency heard
    spectrum.real[:, :bins], spectrum.imag[:, :bins] = magnitudes * np.cos(turns), magnitudes * np.sin(turns)
    last = np.zeros((count, bins), np.complex64)
    for _ in range(iterations):
        wave = _begun(_synthesised(spectrum, spec), known, spec)
        pieces = strided(wave, count, spec.win_length, spec.hop_length)
        for block in spans(count, BLOCK // spec.n_fft):
            found = scipy.fft.rfft(pieces[block] * window(spec), n=spec.n_fft)[:, :bins]
            ahead = found - MOMENTUM * last[block]
            last[block] = found
            scale = magnitudes[block] / np.sqrt(ahead.real**2 + ahead.imag**2 + TINY)
            np.multiply(ahead.real, scale, out=spectrum.real[block, :bins])
            np.multiply(ahead.imag, scale, out=spectrum.imag[block, :bins])
    return _begun(_synthesised(spectrum, spec), known, spec)[spec.reach :][: (count - 1) * spec.hop_length]


def _begun(wave: np.ndarray, known: Optional[np.ndarray], spec: MelSpec) -> np.ndarray:
    """A wave, from the first sample of the first window on, that begins with what is known of it."""
    if known is not None:
        wave[spec.reach :][: len(known)] = known
    return wave


def _energies(mels: np.ndarray, spec: MelSpec, steps: int = 20) -> np.ndarray:
    """Energies of the frequencies heard, [frames, heard], that have these mels.

    Expectation-maximisation: each step multiplies by how much too little every channel holds. Energies stay positive,
    and quiet channels fit as well as loud ones, which least squares would neglect.
    """
    weights = filterbank(spec)[: audible_bins(spec)]
    shares = (weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)).T
    energies = (mels / np.maximum(weights.sum(axis=0), TINY)) @ shares
    for _ in range(steps):
        energies *= (mels / (energies @ weights + TINY)) @ shares
    return np.asarray(energies)


def _synthesised(spectrum: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The wave whose frames come nearest to a spectrum, from the first sample of the first window on."""
    rows = _rows(len(spectrum), spec)
    for block in spans(len(spectrum), BLOCK // spec.n_fft):
        pieces = scipy.fft.irfft(spectrum[block], n=spec.n_fft)[:, : spec.win_length]
        _overlap_add(rows[block.start :], pieces * window(spec))
    rows /= _overlapped_windows(len(spectrum), spec)
    return rows.reshape(-1)


@functools.lru_cache(maxsize=8)
def _overlapped_windows(count: int, spec: MelSpec) -> np.ndarray:
    """What analysis and synthesis of so many frames multiply a wave by, in rows."""
    rows = _rows(count, spec)
    _overlap_add(rows, np.broadcast_to(window(spec) ** 2, (count, spec.win_length)))
    return np.asarray(np.maximum(rows, np.float32(1e-3)))


def _rows(count: int, spec: MelSpec) -> np.ndarray:
    """An empty wave for so many frames, in rows of hop_length samples."""
    return np.zeros((count - 1 + -(-spec.win_length // spec.hop_length), spec.hop_length), np.float32)


def _overlap_add(rows: np.ndarray, pieces: np.ndarray) -> None:
    """Add overlapping pieces, [count, win_length], to a wave; the next one starts a row further on."""
    hop = rows.shape[1]
    for row, start in enumerate(range(0, pieces.shape[1], hop)):
        part = pieces[:, start : start + hop]
        rows[row : row + len(part), : part.shape[1]] += part

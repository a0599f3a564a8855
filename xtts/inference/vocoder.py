"""Codes to sound, whole or as they are said: codes that have been said so far come in, samples that are new go out.

Sound at a place depends a little on what comes after it. So while more is to come, the end of what could be heard is
held back, and the next call goes on from there. By the waveform decoder both ways give the same wave. By Griffin-Lim
phases are found anew in each call, from where the last one ended, and what lies at the seam is faded over.
"""

from typing import Protocol

import numpy as np

from xtts.audio.griffin_lim import griffin_lim
from xtts.inference.generation import GeneratedCodes, Generator
from xtts.inference.loading import LoadedModel
from xtts.inference.voices import Voice
from xtts.model.decoder import interpolated, stretched
from xtts.planning.sizes import FRAMES_PER_CODE

REACH = 8  # codes after a place that the codec's decoder still hears there
UNSTEADY = 8  # frames at the end that are interpolated otherwise when there is more; 7 at most
AROUND = 20  # frames on both sides that the waveform decoder hears
BEFORE, AFTER = 16, 4  # mel frames that Griffin-Lim goes on from, and that it holds back
EDGE = 0.005  # seconds over which a sentence begins and ends


class Vocoder(Protocol):
    """The sound of one sentence."""

    def add(self, spoken: GeneratedCodes) -> np.ndarray:
        """The next samples, of all that was said so far."""


def make_vocoder(model: LoadedModel, synthesis: Generator, voice: Voice, speed: float) -> Vocoder:
    """How a model's codes become sound: by its waveform decoder, or by its codec and Griffin-Lim."""
    if model.decoder is not None:
        return _ByDecoder(synthesis, voice, speed)
    return _ByCodec(model, synthesis, speed)


def fade_edges(samples: np.ndarray, sample_rate: int, is_first: bool, is_last: bool) -> np.ndarray:
    """Samples that rise from silence where they are the first, and fall to it where they are the last."""
    count = min(len(samples), int(EDGE * sample_rate))
    if count and (is_first or is_last):
        samples, rise = samples.copy(), np.linspace(0, 1, count, dtype=np.float32)
        if is_first:
            samples[:count] *= rise
        if is_last:
            samples[-count:] *= rise[::-1]
    return samples


class _ByDecoder:
    def __init__(self, synthesis: Generator, voice: Voice, speed: float) -> None:
        self._synthesis, self._voice, self._speed = synthesis, voice, speed
        self._done = 0  # frames that were heard

    def add(self, spoken: GeneratedCodes) -> np.ndarray:
        latents, is_last = _paced(spoken.latents, self._speed), spoken.is_last
        frames = stretched(latents[None])[0].numpy() if len(latents) else latents
        known = len(frames) if is_last else len(frames) - UNSTEADY
        end = known if is_last else known - AROUND
        if end <= self._done:
            return np.zeros(0, np.float32)
        first = max(0, self._done - AROUND)
        wave = self._synthesis.sound(frames[first:known], self._voice)
        hop = len(wave) // (known - first)
        new = wave[hop * (self._done - first) : hop * (end - first)]
        self._done = end
        return new


class _ByCodec:
    def __init__(self, model: LoadedModel, synthesis: Generator, speed: float) -> None:
        self._synthesis, self._speed, self._spec, self._stats = synthesis, speed, model.spec, model.stats
        self._done = 0  # frames that were heard
        self._heard = np.zeros(0, np.float32)
        self._ahead = np.zeros(0, np.float32)  # how the wave went on in the last call

    def add(self, spoken: GeneratedCodes) -> np.ndarray:
        codes, is_last = spoken.codes, spoken.is_last
        mel = self._synthesis.mel(codes)
        mel = mel if is_last else mel[: FRAMES_PER_CODE * max(0, len(codes) - REACH)]
        mel = _paced(mel, self._speed)
        mel = mel if is_last or self._speed == 1 else mel[:-2]
        end = len(mel) - 1 - (0 if is_last else AFTER)
        if end <= self._done:
            return np.zeros(0, np.float32)
        hop, first = self._spec.hop_length, max(0, self._done - BEFORE)
        known = self._heard[hop * first :]
        wave = griffin_lim(mel[first:], self._spec, mel_norms=self._stats, known=known)
        new = np.array(wave[hop * (self._done - first) : hop * (end - first)])
        fade = min(len(new), len(self._ahead))
        share = np.linspace(0, 1, fade + 2, dtype=np.float32)[1:-1]
        new[:fade] = share * new[:fade] + (1 - share) * self._ahead[:fade]
        self._ahead = wave[hop * (end - first) :][:hop]
        self._heard = np.concatenate([self._heard, new])
        self._done = end
        return new


def _paced(x: np.ndarray, speed: float) -> np.ndarray:
    """Frames [T, C] for a speech that is so many times as fast: more or fewer of them, and no other pitch."""
    return x if speed == 1 or not len(x) else np.asarray(interpolated(x[None], 1 / speed)[0].numpy())

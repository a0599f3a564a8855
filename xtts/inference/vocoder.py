"""Codes to a wave, all at once or while they are generated.

A sample depends a little on what follows it. So while more codes are to come, the end of the wave is held back, and the
next call continues there. With the waveform decoder, streaming gives the same wave. Griffin-Lim estimates the phases
again in each call, continuing from the previous samples, and the seam is crossfaded.
"""

from typing import Protocol

import numpy as np

from xtts.audio.griffin_lim import griffin_lim
from xtts.inference.generation import GeneratedCodes, Generator
from xtts.inference.loading import LoadedModel
from xtts.inference.sound import SoundSettings
from xtts.inference.voices import Voice
from xtts.model.decoder import interpolate, upsample_latents
from xtts.planning.sizes import FRAMES_PER_CODE

CODEC_CONTEXT = 8  # codes of lookahead of the codec's decoder
UNSTABLE_FRAMES = 8  # last frames, whose interpolation changes when more follow; 7 at most
DECODER_CONTEXT = 20  # frames of context of the waveform decoder, on both sides
GRIFFIN_LIM_CONTEXT, GRIFFIN_LIM_DELAY = 16, 4  # mel frames that Griffin-Lim continues from, and holds back


class Vocoder(Protocol):
    """Turns the codes of one sentence into a wave."""

    def add(self, generated: GeneratedCodes) -> np.ndarray:
        """The next samples, given all codes so far."""


def make_vocoder(model: LoadedModel, generator: Generator, voice: Voice, speed: float, sound: SoundSettings) -> Vocoder:
    """The vocoder of a model: its waveform decoder, or its codec with Griffin-Lim."""
    if model.decoder is None:
        return _GriffinLimVocoder(model, generator, speed)
    if sound.overlap is None:
        return _DecoderVocoder(generator, voice, speed, sound.with_stop)
    return _CrossfadingVocoder(generator, voice, speed, sound.with_stop, sound.overlap)


def fade_edges(samples: np.ndarray, sample_rate: int, seconds: float, *, is_first: bool, is_last: bool) -> np.ndarray:
    """The samples with a fade-in if they are the first, and a fade-out if they are the last."""
    count = min(len(samples), int(seconds * sample_rate))
    if count and (is_first or is_last):
        samples = samples.copy()
        ramp = np.linspace(0, 1, count, dtype=np.float32)
        if is_first:
            samples[:count] *= ramp
        if is_last:
            samples[-count:] *= ramp[::-1]
    return samples


class _DecoderVocoder:
    """The waveform decoder, with context frames on both sides of what is new."""

    def __init__(self, generator: Generator, voice: Voice, speed: float, with_stop: bool) -> None:
        self._generator, self._voice, self._speed, self._with_stop = generator, voice, speed, with_stop
        self._done = 0  # frames returned so far

    def add(self, generated: GeneratedCodes) -> np.ndarray:
        frames, is_last = _decoder_frames(generated, self._speed, self._with_stop), generated.is_last
        known = len(frames) if is_last else len(frames) - UNSTABLE_FRAMES
        end = known if is_last else known - DECODER_CONTEXT
        if end <= self._done:
            return np.zeros(0, np.float32)
        first = max(0, self._done - DECODER_CONTEXT)
        wave = self._generator.decode_wave(frames[first:known], self._voice)
        hop = len(wave) // (known - first)
        new = wave[hop * (self._done - first) : hop * (end - first)]
        self._done = end
        return new


class _CrossfadingVocoder:
    """The waveform decoder on all latents so far, without holding frames back: as the public implementation streams.

    The end of a chunk, where the decoder has not seen what follows, is crossfaded into the next chunk's version of it.
    """

    def __init__(self, generator: Generator, voice: Voice, speed: float, with_stop: bool, overlap: int) -> None:
        self._generator, self._voice, self._speed, self._with_stop = generator, voice, speed, with_stop
        self._overlap = overlap
        self._done = 0  # samples returned so far
        self._tail = np.zeros(0, np.float32)  # how the last chunk's wave continued

    def add(self, generated: GeneratedCodes) -> np.ndarray:
        frames, is_last = _decoder_frames(generated, self._speed, self._with_stop), generated.is_last
        if not len(frames):
            return np.zeros(0, np.float32)
        wave = self._generator.decode_wave(frames, self._voice)
        end = len(wave) if is_last else len(wave) - self._overlap
        # Less than an overlap that is not the end would be said again by the next chunk, so it waits for that.
        if end <= self._done or (not is_last and len(self._tail) > end - self._done):
            return np.zeros(0, np.float32)
        new, fade = wave[self._done : end].copy(), len(self._tail)
        if 0 < fade <= len(new):  # an end that is shorter follows without a crossfade
            rise = np.linspace(0, 1, fade, dtype=np.float32)
            new[:fade] = new[:fade] * rise + self._tail * rise[::-1]
        self._tail = wave[end:]
        self._done = end
        return np.asarray(new)


class _GriffinLimVocoder:
    """The codec and Griffin-Lim, which continues from the previous samples."""

    def __init__(self, model: LoadedModel, generator: Generator, speed: float) -> None:
        self._generator = generator
        self._speed = speed
        self._spec = model.spec
        self._mel_norms = model.mel_norms
        self._done = 0  # frames returned so far
        self._wave = np.zeros(0, np.float32)
        self._held_back = np.zeros(0, np.float32)  # how the last call's wave continued

    def add(self, generated: GeneratedCodes) -> np.ndarray:
        codes, is_last = generated.codes, generated.is_last
        mel = self._generator.decode_mel(codes)
        mel = mel if is_last else mel[: FRAMES_PER_CODE * max(0, len(codes) - CODEC_CONTEXT)]
        mel = _change_speed(mel, self._speed)
        mel = mel if is_last or self._speed == 1 else mel[:-2]
        end = len(mel) - 1 - (0 if is_last else GRIFFIN_LIM_DELAY)
        if end <= self._done:
            return np.zeros(0, np.float32)
        hop, first = self._spec.hop_length, max(0, self._done - GRIFFIN_LIM_CONTEXT)
        known = self._wave[hop * first :]
        wave = griffin_lim(mel[first:], self._spec, mel_norms=self._mel_norms, known=known)
        new = np.array(wave[hop * (self._done - first) : hop * (end - first)])
        fade = min(len(new), len(self._held_back))
        share = np.linspace(0, 1, fade + 2, dtype=np.float32)[1:-1]
        new[:fade] = share * new[:fade] + (1 - share) * self._held_back[:fade]
        self._held_back = wave[hop * (end - first) :][:hop]
        self._wave = np.concatenate([self._wave, new])
        self._done = end
        return new


def _decoder_frames(generated: GeneratedCodes, speed: float, with_stop: bool) -> np.ndarray:
    """The waveform decoder's input [frames, width], at a speed."""
    latents = generated.latents
    if with_stop and generated.stop_latent is not None:
        latents = np.concatenate([latents, generated.stop_latent[None]])
    latents = _change_speed(latents, speed)
    return np.asarray(upsample_latents(latents[None])[0].numpy()) if len(latents) else latents


def _change_speed(x: np.ndarray, speed: float) -> np.ndarray:
    """Frames [T, C] resampled in time for faster or slower speech of the same pitch."""
    return x if speed == 1 or not len(x) else np.asarray(interpolate(x[None], 1 / speed)[0].numpy())

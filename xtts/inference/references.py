"""How the recordings of a voice are prepared and cut before they are encoded.

For published weights, and models fine-tuned from them, as the public implementation does it (`PublishedReferences`):

1. Channels are averaged; the recording is resampled to 22,050 Hz by torchaudio's windowed sinc, and clipped.
2. Each recording is cut to `max_ref_len` seconds, then brought to a peak of 0.75 (`sound_norm_refs`), then trimmed of
   what is more than `librosa_trim_db` below its loudest moment, at both ends.
3. The speaker embedding is the mean over recordings, each resampled to 16 kHz by the same sinc.
4. For the conditioning latents all recordings are joined, cut to `gpt_cond_len` seconds, and taken in consecutive
   chunks of `gpt_cond_chunk_len` seconds; a tail below a third of a second is left out. Latents are the mean over
   chunks. A short recording is one short chunk; it is not repeated.

For models trained from scratch (`TrainedReferences`): latents in training come from cuts of `data.reference_seconds`,
and shorter recordings are repeated. So each recording is cut into pieces of just this length, the fewest that cover all
of it, evenly spaced; latents are the mean over all pieces of all recordings. Recordings are resampled by the filter
that training uses.
"""

from pathlib import Path
from typing import Callable, List, Optional, Sequence, Union

import attrs
import numpy as np

from xtts.audio import resample, wav
from xtts.corpus.check import SILENCE
from xtts.errors import XttsError
from xtts.training.reference_voices import MAX_SECONDS
from xtts.weights.speaking_settings import SpeakingSettings

PathLike = Union[str, Path]
Note = Callable[[str], None]  # called with a remark for the user

MIN_REFERENCE_SECONDS = 0.33  # of a recording, and of a chunk
NORMALISED_PEAK = 0.75
TRIM_RANGE = (1, 200)  # dB


class VoiceError(XttsError):
    """Why a voice cannot be used, and what to do."""


@attrs.frozen
class References:
    """What is done to each recording, whatever the model. Subclasses cut and resample."""

    max_ref_len: int = int(MAX_SECONDS)  # seconds of each recording
    sound_norm_refs: bool = False  # whether it is brought to a peak of NORMALISED_PEAK
    librosa_trim_db: Optional[float] = None  # below the loudest moment, at both ends; None: not trimmed

    def load(self, path: PathLike, sample_rate: int, note: Note) -> np.ndarray:
        """A recording as mono at `sample_rate`, cut, normalised and trimmed."""
        try:
            wave, rate = wav.read_audio(path)
        except wav.AudioError as error:
            raise VoiceError(str(error).replace(", or leave the clip out", "")) from None
        self._refuse_short(path, len(wave) / rate)
        heard = wave[: self.max_ref_len * rate]
        if (float(heard.max()) - float(heard.min())) / 2 < SILENCE:
            raise VoiceError(f"{path}: the recording is silent; name one with speech in it")
        if rate < sample_rate:
            note(
                f"{path}: note: its sample rate is {rate:,} Hz, that of the model {sample_rate:,} Hz; nothing above"
                f" {rate // 2:,} Hz is part of the voice"
            )
        wave = self._resample_and_cut(wave, rate, sample_rate)
        if self.sound_norm_refs:
            wave = wave / np.abs(wave).max() * np.float32(NORMALISED_PEAK)
        if self.librosa_trim_db is not None:
            wave = _trim(wave, self.librosa_trim_db)
            self._refuse_short(path, len(wave) / sample_rate, " after it was trimmed; raise --librosa-trim-db")
        return wave

    def chunks(self, waves: Sequence[np.ndarray], sample_rate: int) -> List[np.ndarray]:
        """The pieces that are encoded one by one for the conditioning latents."""
        raise NotImplementedError

    def resample(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        """A prepared recording at the rate of the speaker encoder."""
        raise NotImplementedError

    def _resample_and_cut(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        raise NotImplementedError

    def _refuse_short(self, path: PathLike, seconds: float, why: str = "") -> None:
        if seconds < MIN_REFERENCE_SECONDS:
            raise VoiceError(
                f"{path}: {seconds:.2f} s are too short for a voice{why}; name a recording of at least "
                f"{MIN_REFERENCE_SECONDS:g} s, better 6 s or more"
            )


@attrs.frozen
class PublishedReferences(References):
    """References as the public implementation cuts them."""

    gpt_cond_len: int = 30  # seconds of all recordings together; 0 or less: all of them
    gpt_cond_chunk_len: int = 4  # seconds

    @classmethod
    def of(cls, settings: SpeakingSettings) -> "PublishedReferences":
        """The references of a model's settings."""
        return cls(
            max_ref_len=settings.max_ref_len,
            sound_norm_refs=settings.sound_norm_refs,
            gpt_cond_len=settings.gpt_cond_len,
            gpt_cond_chunk_len=settings.gpt_cond_chunk_len,
        )

    def chunks(self, waves: Sequence[np.ndarray], sample_rate: int) -> List[np.ndarray]:
        joined = np.concatenate(list(waves))
        if self.gpt_cond_len > 0:
            joined = joined[: self.gpt_cond_len * sample_rate]
        size = self.gpt_cond_chunk_len * sample_rate
        found = [joined[start : start + size] for start in range(0, len(joined), size)]
        return [chunk for chunk in found if len(chunk) >= MIN_REFERENCE_SECONDS * sample_rate]

    def resample(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        return resample.resample_sinc(wave, rate, to_rate)

    def _resample_and_cut(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        wave = np.clip(resample.resample_sinc(wave, rate, to_rate), -1, 1)
        return wave[: self.max_ref_len * to_rate]


@attrs.frozen
class TrainedReferences(References):
    """References as a model trained from scratch has met them."""

    chunk_samples: int = 0  # of a reference in training

    def chunks(self, waves: Sequence[np.ndarray], sample_rate: int) -> List[np.ndarray]:
        return [chunk for wave in waves for chunk in split_evenly(wave, self.chunk_samples)]

    def resample(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        return resample.resample(wave, rate, to_rate)

    def _resample_and_cut(self, wave: np.ndarray, rate: int, to_rate: int) -> np.ndarray:
        return resample.resample(wave[: self.max_ref_len * rate], rate, to_rate)


def split_evenly(wave: np.ndarray, samples: int) -> np.ndarray:
    """Split a wave into chunks of one length, [n, samples]: the fewest that cover all of it, evenly spaced.

    A wave shorter than a chunk is repeated, as in training.
    """
    if len(wave) <= samples:
        return np.resize(wave, (1, samples)).astype(np.float32)
    count = -(-len(wave) // samples)
    starts = np.linspace(0, len(wave) - samples, count).round().astype(int)
    return np.stack([wave[start : start + samples] for start in starts]).astype(np.float32)


def _trim(wave: np.ndarray, decibels: float) -> np.ndarray:
    """The wave without its quiet ends."""
    try:
        from librosa.effects import trim
    except ImportError as error:
        why = "is not installed" if (error.name or "").startswith("librosa") else f"cannot be imported ({error})"
        raise VoiceError(
            f"trimming references needs librosa, which {why}; install it with pip install 'xtts[references]', or leave"
            " out --librosa-trim-db"
        ) from None
    return np.asarray(trim(wave, top_db=decibels)[0])

"""Voices: load reference recordings, and write and read files of voices.

A voice file is a safetensors file with `style`, the conditioning latents [32, width]; `speaker`, the speaker embedding,
if the model has a speaker encoder; and the digest of the model in its metadata: other models cannot use the voice.
"""

from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Union

import attrs
import numpy as np

from xtts.audio import resample, wav
from xtts.corpus.check import SILENCE
from xtts.errors import XttsError
from xtts.training.reference_voices import MAX_SECONDS
from xtts.weights import safetensors_file

PathLike = Union[str, Path]
Note = Callable[[str], None]  # called with a remark for the user

MIN_REFERENCE_SECONDS = 0.33  # of a recording
KIND = "xtts voice"  # in a file's metadata
SUFFIX = ".safetensors"


class VoiceError(XttsError):
    """Why a voice cannot be used, and what to do."""


@attrs.frozen(eq=False)
class Voice:
    """A speaker's voice, as one model encodes it."""

    conditioning_latents: np.ndarray  # [32, width] float32
    speaker_embedding: Optional[np.ndarray]  # [speaker width] float32
    model: str  # digest of the model that encoded it
    name: str = ""


def load_reference(path: PathLike, sample_rate: int, note: Note) -> np.ndarray:
    """Load a reference recording as mono at `sample_rate`; only its first MAX_SECONDS are used."""
    try:
        wave, rate = wav.read_audio(path)
    except wav.AudioError as error:
        raise VoiceError(str(error).replace(", or leave the clip out", "")) from None
    seconds = len(wave) / rate
    if seconds < MIN_REFERENCE_SECONDS:
        raise VoiceError(
            f"{path}: {seconds:.2f} s are too short for a voice; name a recording of at least "
            f"{MIN_REFERENCE_SECONDS:g} s, better 6 s or more"
        )
    wave = wave[: int(MAX_SECONDS * rate)]
    if (float(wave.max()) - float(wave.min())) / 2 < SILENCE:
        raise VoiceError(f"{path}: the recording is silent; name one with speech in it")
    if rate < sample_rate:
        note(
            f"{path}: note: its sample rate is {rate:,} Hz, that of the model {sample_rate:,} Hz; nothing above"
            f" {rate // 2:,} Hz is part of the voice"
        )
    return resample.resample(wave, rate, sample_rate)


def split_reference(wave: np.ndarray, samples: int) -> np.ndarray:
    """Split a wave into chunks of one length, [n, samples]: the fewest that cover all of it, evenly spaced.

    A wave shorter than a chunk is repeated, as in training.
    """
    if len(wave) <= samples:
        return np.resize(wave, (1, samples)).astype(np.float32)
    count = -(-len(wave) // samples)
    starts = np.linspace(0, len(wave) - samples, count).round().astype(int)
    return np.stack([wave[start : start + samples] for start in starts]).astype(np.float32)


def write_voice(path: PathLike, voice: Voice) -> None:
    """Write a voice file, complete or not at all."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise VoiceError(f"{path}: voices are saved as safetensors; give the file a name that ends in {SUFFIX}")
    if not path.absolute().parent.is_dir():
        raise VoiceError(f"{path}: there is no folder {path.parent}; create it, or name another")
    tensors = {"style": voice.conditioning_latents}
    if voice.speaker_embedding is not None:
        tensors["speaker"] = voice.speaker_embedding
    safetensors_file.write_safetensors(
        path, tensors, {"kind": KIND, "model": voice.model, "name": voice.name or path.stem}
    )


def read_voice(path: PathLike) -> Voice:
    """The voice in a file."""
    tensors, metadata = safetensors_file.read_safetensors(path)
    if metadata.get("kind") != KIND or "style" not in tensors:
        raise VoiceError(f"{path}: this is not a voice file; name one that xtts say --save-voice wrote, or a recording")
    return Voice(
        np.array(tensors["style"], np.float32),
        np.array(tensors["speaker"], np.float32) if "speaker" in tensors else None,
        str(metadata.get("model", "")),
        str(metadata.get("name", "")),
    )


def kept_voices(folder: Path) -> Dict[str, Path]:
    """The voice files and recordings in a folder, by name."""
    found = sorted(path for path in folder.glob("*") if path.suffix.lower() in (SUFFIX, ".wav", ".flac"))
    return {path.stem: path for path in reversed(found)}


def list_names(names: Sequence[str], count: int = 8) -> str:
    """The first names in alphabetical order, for a message."""
    shown: List[str] = sorted(names)[:count]
    return ", ".join(shown) + (", …" if len(names) > count else "")

"""Voices: recordings of a speaker come in as files, their waves go out in cuts that a model hears; and what the model
made of them goes to a file, and comes back.

A voice's file is safetensors: `style`, the latents [32, width]; `speaker`, a vector, where the model has a speaker
encoder; and in its metadata which model made them. To any other model these numbers mean nothing.
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
Note = Callable[[str], None]  # is told a line that is no mistake, and should be known

LEAST = 0.33  # seconds; in less no voice can be heard
KIND = "xtts voice"  # in a file's metadata
SUFFIX = ".safetensors"


class VoiceError(XttsError):
    """A voice that cannot be used: which, why, and what to do about it."""


@attrs.frozen(eq=False)
class Voice:
    """What a model makes of a speaker's recordings."""

    style: np.ndarray  # [32, width] float32
    speaker: Optional[np.ndarray]  # [speaker width] float32
    model: str  # digest of the weights that made it
    name: str = ""


def load_reference(path: PathLike, sample_rate: int, note: Note) -> np.ndarray:
    """The wave of a reference, its channels mixed, at `sample_rate`; no more of it than is heard."""
    try:
        wave, rate = wav.read_audio(path)
    except wav.AudioError as error:
        raise VoiceError(str(error).replace(", or leave the clip out", "")) from None
    seconds = len(wave) / rate
    if seconds < LEAST:
        raise VoiceError(
            f"{path}: {seconds:.2f} s are too short to hear a voice in; name a recording of {LEAST:g} s at least, "
            "better of 6 s or more"
        )
    wave = wave[: int(MAX_SECONDS * rate)]
    if (float(wave.max()) - float(wave.min())) / 2 < SILENCE:
        raise VoiceError(f"{path}: the recording is silent, no voice can be heard in it; name one with speech in it")
    if rate < sample_rate:
        note(
            f"{path}: note: it has {rate:,} samples a second and the model hears {sample_rate:,}; nothing above"
            f" {rate // 2:,} Hz is in the voice"
        )
    return resample.resample(wave, rate, sample_rate)


def reference_cuts(wave: np.ndarray, samples: int) -> np.ndarray:
    """A wave in cuts of one length, [n, samples]: as many as cover it, evenly spread, so that all of it is heard.

    One that is shorter than a cut is repeated, as it is in training.
    """
    if len(wave) <= samples:
        return np.resize(wave, (1, samples)).astype(np.float32)
    count = -(-len(wave) // samples)
    starts = np.linspace(0, len(wave) - samples, count).round().astype(int)
    return np.stack([wave[start : start + samples] for start in starts]).astype(np.float32)


def write_voice(path: PathLike, voice: Voice) -> None:
    """Write a voice's file, whole or not at all."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise VoiceError(f"{path}: a voice is kept as safetensors; give it a name that ends in {SUFFIX}")
    if not path.absolute().parent.is_dir():
        raise VoiceError(f"{path}: there is no folder {path.parent}; make it, or name another")
    tensors = {"style": voice.style}
    if voice.speaker is not None:
        tensors["speaker"] = voice.speaker
    safetensors_file.write_safetensors(
        path, tensors, {"kind": KIND, "model": voice.model, "name": voice.name or path.stem}
    )


def read_voice(path: PathLike) -> Voice:
    """The voice in a file."""
    tensors, about = safetensors_file.read_safetensors(path)
    if about.get("kind") != KIND or "style" not in tensors:
        raise VoiceError(f"{path}: this is no voice; name a file that xtts say --save-voice wrote, or a recording")
    return Voice(
        np.array(tensors["style"], np.float32),
        np.array(tensors["speaker"], np.float32) if "speaker" in tensors else None,
        str(about.get("model", "")),
        str(about.get("name", "")),
    )


def kept_voices(folder: Path) -> Dict[str, Path]:
    """The voices in a folder by name: files of voices, and recordings."""
    found = sorted(path for path in folder.glob("*") if path.suffix.lower() in (SUFFIX, ".wav", ".flac"))
    return {path.stem: path for path in reversed(found)}


def known_voices(names: Sequence[str], most: int = 8) -> str:
    """Names for a sentence, not all of them where they are many."""
    shown: List[str] = sorted(names)[:most]
    return ", ".join(shown) + (", …" if len(names) > most else "")

"""Voices: as one model encodes them, in files, and in the folder of a model."""

from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

import attrs
import numpy as np

from xtts.inference.references import VoiceError
from xtts.weights import voice_files
from xtts.weights.voice_files import SUFFIX, VoiceTensors

PathLike = Union[str, Path]


@attrs.frozen(eq=False)
class Voice:
    """A speaker's voice, as one model encodes it."""

    conditioning_latents: np.ndarray  # [32, width] float32
    speaker_embedding: Optional[np.ndarray]  # [speaker width] float32
    model: str  # digest of the model that encoded it; of a studio voice: STUDIO
    name: str = ""


def write_voice(path: PathLike, voice: Voice) -> None:
    """Write a voice file, complete or not at all."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise VoiceError(f"{path}: voices are saved as safetensors; give the file a name that ends in {SUFFIX}")
    if not path.absolute().parent.is_dir():
        raise VoiceError(f"{path}: there is no folder {path.parent}; create it, or name another")
    voice_files.write_voice_file(
        path, VoiceTensors(voice.conditioning_latents, voice.speaker_embedding, voice.model, voice.name or path.stem)
    )


def read_voice(path: PathLike) -> Voice:
    """The voice in a file."""
    found = voice_files.read_voice_file(path)
    if found is None:
        raise VoiceError(f"{path}: this is not a voice file; name one that xtts say --save-voice wrote, or a recording")
    return Voice(*found)


def kept_voices(folder: Path) -> Dict[str, Path]:
    """The voice files and recordings in a folder, by name."""
    found = sorted(path for path in folder.glob("*") if path.suffix.lower() in (SUFFIX, ".wav", ".flac"))
    return {path.stem: path for path in reversed(found)}


def list_names(names: Sequence[str], count: int = 8) -> str:
    """The first names in alphabetical order, for a message."""
    shown: List[str] = sorted(names)[:count]
    return ", ".join(shown) + (", …" if len(names) > count else "")

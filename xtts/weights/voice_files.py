"""Files of voices: those that are saved here, and the named studio voices that are published with XTTS-v2.

A voice file is a safetensors file with `style`, the conditioning latents [32, width]; `speaker`, the speaker embedding,
if the model has a speaker encoder; and the digest of the model in its metadata: other models cannot use the voice.
Studio voices have no digest: they were published for the published weights, and what is trained from them.
"""

import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from xtts.planning.sizes import LATENTS
from xtts.weights import safetensors_file, torch_file
from xtts.weights.layout import ModelDescription
from xtts.weights.model_folder import PathLike
from xtts.weights.safetensors_file import WeightsError

KIND = "xtts voice"  # in a file's metadata
STUDIO = "published"  # stands for the model's digest in the file of a studio voice
SUFFIX = ".safetensors"
VOICES = "voices"  # subfolder of a run or of an import
LATENTS_KEY, SPEAKER_KEY = "gpt_cond_latent", "speaker_embedding"  # in speakers_xtts.pth


class VoiceTensors(NamedTuple):
    """A voice, as a file holds it."""

    conditioning_latents: np.ndarray  # [32, width] float32
    speaker_embedding: Optional[np.ndarray]  # [speaker width] float32
    model: str  # digest of the model that encoded it, or STUDIO
    name: str


def write_voice_file(path: PathLike, voice: VoiceTensors) -> None:
    """Write a voice file, complete or not at all."""
    tensors = {"style": voice.conditioning_latents}
    if voice.speaker_embedding is not None:
        tensors["speaker"] = voice.speaker_embedding
    safetensors_file.write_safetensors(path, tensors, {"kind": KIND, "model": voice.model, "name": voice.name})


def read_voice_file(path: PathLike) -> Optional[VoiceTensors]:
    """The voice in a file, or None if it is not a voice file."""
    tensors, metadata = safetensors_file.read_safetensors(path)
    if metadata.get("kind") != KIND or "style" not in tensors:
        return None
    return VoiceTensors(
        np.array(tensors["style"], np.float32),
        np.array(tensors["speaker"], np.float32) if "speaker" in tensors else None,
        str(metadata.get("model", "")),
        str(metadata.get("name", "")),
    )


def read_studio_voices(path: PathLike, model: ModelDescription) -> List[VoiceTensors]:
    """The named voices in a published speakers_xtts.pth, of which nothing is run; they must fit the model."""
    content = torch_file.load_torch_file(path)
    remedy = "name the speakers_xtts.pth that was published with these weights"
    if not isinstance(content, dict) or not content or not all(isinstance(one, dict) for one in content.values()):
        raise WeightsError(f"{path}: there are no named voices in it; {remedy}")
    found = []
    for name, voice in content.items():
        shapes = {LATENTS_KEY: (1, LATENTS, model.size.gpt.width), SPEAKER_KEY: (1, model.size.speaker.width, 1)}
        tensors = {key: _checked(path, str(name), key, voice.get(key), shape) for key, shape in shapes.items()}
        found.append(VoiceTensors(tensors[LATENTS_KEY][0], tensors[SPEAKER_KEY][0, :, 0], STUDIO, str(name)))
    return found


def write_studio_voices(folder: Path, found: List[VoiceTensors]) -> None:
    """Write voices into the subfolder `voices`, each to a file of its name."""
    if found:
        (folder / VOICES).mkdir(exist_ok=True)
    taken: Dict[str, str] = {}
    for voice in found:
        name = _file_name(voice.name)
        if name in taken:
            raise WeightsError(f"the voices {taken[name]!r} and {voice.name!r} would have the same file; rename one")
        taken[name] = voice.name
        write_voice_file(folder / VOICES / f"{name}{SUFFIX}", voice)


def _file_name(name: str) -> str:
    """A voice's name without characters that cannot be in the name of a file."""
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]+', "-", name).strip(". ") or "voice"


def _checked(path: PathLike, name: str, key: str, value: Any, shape: Tuple[int, ...]) -> np.ndarray:
    """A tensor of a voice, finite and of the model's shape."""
    if not isinstance(value, np.ndarray):
        raise WeightsError(f"{path}: the voice {name!r} has no tensor {key}; download the file again")
    if value.shape != shape:
        raise WeightsError(
            f"{path}: {key} of the voice {name!r} is {list(value.shape)}, but these weights need {list(shape)}; name "
            "the speakers_xtts.pth that was published with them"
        )
    tensor = np.asarray(value, np.float32)
    if not np.isfinite(tensor).all():
        raise WeightsError(f"{path}: {key} of the voice {name!r} contains NaN or infinity; download the file again")
    return tensor

"""Import a published checkpoint into a model folder.

The folder holds `model.safetensors` (every tensor bit for bit as published: names, layouts, weight normalisation),
`model.json` (the sizes, derived from the shapes), `speaking.json` (the settings of a config.json, or those of XTTS-v2)
and, where they were given, `vocab.json` and `voices/`, the named studio voices. Everything that does not fit is listed
in one error, and then nothing has been written.
"""

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import attrs
import numpy as np

from xtts.weights import model_folder, safetensors_file, speaking_settings, torch_file, voice_files
from xtts.weights.assignment import extend_vocabulary
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription, describe_tensors, list_mismatches
from xtts.weights.layout import published_name as published_name
from xtts.weights.model_folder import PathLike, _check_empty, _check_layout, _read_json, write_model_folder
from xtts.weights.safetensors_file import Tensors, WeightsError
from xtts.weights.unpickling import Placeholder

REQUIRED = ("gpt", "decoder", "speaker")  # parts of a published checkpoint; the codec has a file of its own
LICENCE = (
    "The published XTTS weights, v1 and v2, are under the Coqui Public Model License, for non-commercial use only.\n"
    "That holds for what is trained from them too; the licence of this program, Apache-2.0, does not change it."
)


@attrs.frozen
class Imported:
    """The result of an import."""

    folder: Path
    model: ModelDescription
    tensors: int
    ignored: int  # tensors that do not belong to the model
    added_rows: int  # of the text vocabulary
    speaking: speaking_settings.SpeakingSettings
    voices: int = 0  # named studio voices

    def text(self) -> str:
        gpt, parts = self.model.size.gpt, ", ".join(self.model.parts)
        lines = [
            f"{self.folder}: {self.tensors:,} tensors of {parts}",
            f"  {gpt.layers} layers, width {gpt.width}, {gpt.heads} heads; {self.model.text_tokens:,} text tokens, "
            f"{self.model.size.codec.codes:,} codes",
        ]
        if not gpt.perceiver_layers:
            lines.append(
                "  no perceiver: this is an XTTS v1, which can be exported, but not trained and not used; import a v2"
            )
        if "codec" not in self.model.parts:
            lines.append("  no codec: it can speak, but not be trained; for that, import it with --dvae dvae.pth")
        one = self.speaking
        lines.append(
            f"  speaks at temperature {one.temperature:g}, top-k {one.top_k}, top-p {one.top_p:g}, repetition penalty "
            f"{one.repetition_penalty:g}; references of {one.gpt_cond_len} s in chunks of {one.gpt_cond_chunk_len} s"
        )
        if self.voices:
            lines.append(f"  {self.voices:,} studio voices; speak in one with --voice NAME")
        if self.ignored:
            lines.append(f"  {self.ignored:,} tensors that do not belong to the model were left out")
        if self.added_rows:
            lines.append(f"  {self.added_rows:,} rows were added for new text tokens; the others are unchanged")
        return "\n".join([*lines, "", LICENCE])


def import_checkpoint(
    model: PathLike,
    out: PathLike,
    dvae: Optional[PathLike] = None,
    vocab: Optional[PathLike] = None,
    mel_norms: Optional[PathLike] = None,
    config: Optional[PathLike] = None,
    extend: bool = False,
    seed: int = 0,
    speakers: Optional[PathLike] = None,
) -> Imported:
    """Import a published or a trainer's checkpoint, .pth or .safetensors, into a folder. Nothing in it is run.

    `config` is a Coqui config.json: it states sizes that shapes do not tell, and the settings to speak with. `extend`:
    add rows for the tokens of the vocabulary that the checkpoint does not have. `speakers` holds named studio voices.
    """
    out = Path(out)
    _check_empty(out)
    content = _read(model)
    tensors, ignored = _tensors(_state(content, model), model)
    if dvae is not None:
        codec, more = _tensors(_state(_read(dvae), dvae), dvae)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIXES["codec"])}
        tensors.update((_prefixed(name, PREFIXES["codec"]), tensor) for name, tensor in codec.items())
        ignored += more
    if mel_norms is not None:
        tensors[MEL_STATS] = _only_tensor(_read(mel_norms), mel_norms)
    found = describe_tensors(tensors, _settings(content, config))
    is_own = _is_own(model)
    required = REQUIRED[:1] if is_own else REQUIRED
    found = attrs.evolve(found, parts=tuple(part for part in PREFIXES if part in found.parts or part in required))
    found = attrs.evolve(found, is_published=not is_own)
    _check_layout(found, tensors, str(model))
    before = found.text_tokens
    if vocab is not None:
        tokens = _vocabulary_size(Path(vocab))
        if tokens > before and not extend:
            raise WeightsError(
                f"{vocab}: it has {tokens:,} tokens, but the checkpoint has rows for {before:,}; name the vocabulary "
                "that the checkpoint was trained with, or add rows for the new tokens with --extend"
            )
        if tokens > before:
            tensors = extend_vocabulary(tensors, tokens, np.random.default_rng(seed))
            found = attrs.evolve(found, text_tokens=tokens)
    speaking = speaking_settings.SpeakingSettings() if config is None else speaking_settings.read_config(config)
    voices = [] if speakers is None else voice_files.read_studio_voices(speakers, found)

    def write_settings_and_voices(folder: Path) -> None:
        speaking_settings.write_speaking(folder, speaking)
        voice_files.write_studio_voices(folder, voices)

    write_model_folder(out, found, tensors, vocab, write_settings_and_voices)
    return Imported(out, found, len(tensors), ignored, found.text_tokens - before, speaking, len(voices))


def _read(path: PathLike) -> Any:
    """The content of a checkpoint file of either format."""
    return (
        safetensors_file.read_safetensors(path)[0]
        if Path(path).suffix == ".safetensors"
        else torch_file.load_torch_file(path)
    )


def _is_own(path: PathLike) -> bool:
    """Whether it was exported from a model that was trained from nothing, which does not speak as published ones do."""
    if Path(path).suffix != ".safetensors":
        return False
    return safetensors_file.read_safetensors(path)[1].get(model_folder.ORIGIN) == model_folder.OWN


def _state(content: Any, path: PathLike) -> Dict[Any, Any]:
    """The state dict: the file's `model`, or all of it."""
    state = content.get("model", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not any(isinstance(value, np.ndarray) for value in state.values()):
        raise WeightsError(f"{path}: there is no state dict in it; name a checkpoint, such as model.pth")
    return state


def _tensors(state: Dict[Any, Any], path: PathLike) -> Tuple[Tensors, int]:
    """The tensors of the model by their published names, and how many others there are."""
    found: Tensors = {}
    wrong: List[str] = []
    ignored = 0
    for key, value in state.items():
        name = published_name(key) if isinstance(key, str) else str(key)
        if name is None:
            ignored += 1
        elif not isinstance(value, np.ndarray) or not isinstance(key, str):
            wrong.append(f"{key!a}: is {_describe_type(value)}, expected a tensor under a name")
        elif name in found:
            wrong.append(f"{key}: is there twice, as {name}")
        else:
            found[name] = value
    if wrong:
        raise WeightsError(list_mismatches(f"{path}: not everything in it is a tensor", wrong))
    return found, ignored


def _describe_type(value: Any) -> str:
    return f"of type {value.name}" if isinstance(value, Placeholder) else type(value).__name__


def _prefixed(name: str, prefix: str) -> str:
    return name if name.startswith(prefix) else prefix + name


def _only_tensor(value: Any, path: PathLike) -> np.ndarray:
    """The tensor of a file that holds a single one, alone or in a dict."""
    values = list(value.values()) if isinstance(value, dict) else [value]
    if len(values) != 1 or not isinstance(values[0], np.ndarray):
        raise WeightsError(f"{path}: it does not hold exactly one tensor; name the file of mel norms, mel_norms.pth")
    return values[0]


def _settings(content: Any, config: Optional[PathLike]) -> Dict[str, Any]:
    """The `model_args` of a Coqui config: of a file, or of the config inside a checkpoint."""
    within = content.get("config") if isinstance(content, dict) and "model" in content else None
    settings = _read_json(Path(config)) if config is not None else within
    if isinstance(settings, str):  # some trainers store it as JSON text
        try:
            settings = json.loads(settings)
        except (ValueError, RecursionError):
            settings = None
    settings = _as_dict(settings)
    return _as_dict(settings.get("model_args", settings))


def _as_dict(value: Any) -> Dict[str, Any]:
    """A dict, or the state of a config object that was not created."""
    value = value.state if isinstance(value, Placeholder) else value
    return value if isinstance(value, dict) else {}


def _vocabulary_size(path: Path) -> int:
    """Rows that a vocabulary needs: one more than its highest token."""
    table = _read_json(path)
    try:
        tokens = list(table["model"]["vocab"].values())
        tokens += [token["id"] for token in table.get("added_tokens", [])]
        if not tokens or not all(type(token) is int and 0 <= token < 2**24 for token in tokens):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise WeightsError(f"{path}: there is no vocabulary in it; name a vocab.json as published with XTTS") from None
    return int(max(tokens)) + 1

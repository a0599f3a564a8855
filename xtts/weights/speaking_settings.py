"""The settings that published weights speak with: read from a Coqui config.json, and kept beside a model.

`speaking.json`, beside `model.json`, holds them under their names in the config. Sampling: temperature, length_penalty,
repetition_penalty, top_k and top_p. References, in seconds: gpt_cond_len, gpt_cond_chunk_len and max_ref_len; and
sound_norm_refs. A folder without the file speaks with the values that XTTS-v2 was published with.
"""

import json
import math
from pathlib import Path
from typing import Any, Dict, Optional

import attrs

from xtts.weights.model_folder import RUN_MODEL, SIZES, PathLike, _read_json
from xtts.weights.safetensors_file import WeightsError

SPEAKING = "speaking.json"


@attrs.frozen
class SpeakingSettings:
    """How a model speaks unless it is told otherwise; the defaults are those of XTTS-v2's config.json."""

    temperature: float = 0.75
    length_penalty: float = 1.0  # of beam search: exponent of the length by which a score is divided
    repetition_penalty: float = 5.0
    top_k: int = 50
    top_p: float = 0.85
    gpt_cond_len: int = 30  # seconds of all references together that latents are computed from; 0 or -1: all of them
    gpt_cond_chunk_len: int = 4  # seconds that are encoded at a time
    max_ref_len: int = 30  # seconds of each reference
    sound_norm_refs: bool = False  # whether references are brought to one level


# A config.json that does not state a setting leaves it at the default of the public implementation's config class.
UNSTATED = SpeakingSettings(temperature=0.85, repetition_penalty=2.0, gpt_cond_len=12, max_ref_len=10)
RANGES = {  # inclusive
    "temperature": (0.01, 10.0),
    "length_penalty": (-10.0, 10.0),
    "repetition_penalty": (1.0, 100.0),
    "top_k": (1, 1_000_000),
    "top_p": (0.001, 1.0),
    "gpt_cond_len": (-1, 600),
    "gpt_cond_chunk_len": (1, 600),
    "max_ref_len": (1, 600),
}


def read_config(path: PathLike) -> SpeakingSettings:
    """The settings in a Coqui config.json."""
    return _checked(_read_json(Path(path)), UNSTATED, path, "correct it, or import without --config")


def read_speaking(folder: PathLike) -> SpeakingSettings:
    """The settings in the folder of an import or of a run's model; without the file, those of XTTS-v2."""
    path = Path(folder)
    path = (path if (path / SIZES).exists() else path / RUN_MODEL) / SPEAKING
    if not path.exists():
        return SpeakingSettings()
    table = _read_json(path)
    unknown = sorted(set(table) - set(attrs.asdict(UNSTATED))) if isinstance(table, dict) else []
    if unknown:
        known = ", ".join(attrs.asdict(UNSTATED))
        raise WeightsError(f"{path}: there is no setting {unknown[0]}; the settings are {known}")
    return _checked(table, SpeakingSettings(), path, "correct it, or delete the file")


def write_speaking(folder: PathLike, settings: SpeakingSettings) -> None:
    """Write the settings beside a model's description."""
    path = Path(folder) / SPEAKING
    try:
        path.write_text(json.dumps(attrs.asdict(settings), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; make the folder writable") from None


def range_problem(name: str, value: Any) -> Optional[str]:
    """What is wrong with the value of a setting, or None."""
    kind = type(getattr(UNSTATED, name))
    if kind is bool:
        return None if isinstance(value, bool) else "expected true or false"
    low, high = RANGES[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (kind is int and value != int(value)) or not low <= value <= high:
        return f"expected {'a whole number' if kind is int else 'a number'} from {low:g} to {high:g}"
    return None


def _checked(table: Any, defaults: SpeakingSettings, path: PathLike, remedy: str) -> SpeakingSettings:
    """The settings in a table, each of its type and within its range."""
    if not isinstance(table, dict):
        raise WeightsError(f"{path}: this is not a table of settings; name a config.json as published with XTTS")
    found: Dict[str, Any] = {}
    for name, default in attrs.asdict(defaults).items():
        value = table.get(name, default)
        problem = range_problem(name, value)
        if problem:
            raise WeightsError(f"{path}: {name} = {json.dumps(value)[:40]}: {problem}; {remedy}")
        found[name] = type(default)(value)
    return SpeakingSettings(**found)

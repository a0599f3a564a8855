"""The settings of speaking: which there are, their ranges, and what a model starts from."""

from typing import Any, Dict, NamedTuple

import attrs

from xtts.errors import XttsError
from xtts.inference.generation import SamplingParams
from xtts.inference.loading import LoadedModel
from xtts.inference.references import TRIM_RANGE, PublishedReferences, References, VoiceError
from xtts.inference.sound import SoundSettings, choose_sound
from xtts.weights import speaking_settings

MAX_SEED = 2**31 - 1
MIN_SPEED, MAX_SPEED = 0.05, 20.0
RANGES = {
    **{name: speaking_settings.RANGES[name] for name in ("temperature", "top_k", "top_p", "repetition_penalty")},
    "length_penalty": speaking_settings.RANGES["length_penalty"],
    "num_beams": (1, 64),
    "speed": (MIN_SPEED, MAX_SPEED),
    "seed": (0, MAX_SEED),
}
SOUND_SETTINGS = ("fade", "pause", "chunk", "overlap")
REFERENCE_SETTINGS = ("gpt_cond_len", "gpt_cond_chunk_len", "max_ref_len", "sound_norm_refs", "librosa_trim_db")


class SynthesisError(XttsError):
    """Why a text cannot be spoken, and what to change."""


class SpeechSettings(NamedTuple):
    """Everything about how a text is spoken but for the voice and the language."""

    speed: float
    sampling: SamplingParams
    sound: SoundSettings


def choose_settings(model: LoadedModel, settings: Dict[str, Any]) -> SpeechSettings:
    """A model's settings with those that are given, each within its range; None leaves a setting as it is."""
    given = {name: value for name, value in settings.items() if value is not None}
    unknown = sorted(set(given) - {*RANGES, *SOUND_SETTINGS, "sound"})
    if unknown:
        raise SynthesisError(
            f"{unknown[0]}: there is no such setting; the settings are {', '.join([*RANGES, 'sound', *SOUND_SETTINGS])}"
        )
    sound = choose_sound(model.sound, given.pop("sound", None), **{n: given.pop(n, None) for n in SOUND_SETTINGS})
    for name, value in given.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            raise SynthesisError(f"{name} = {value:g} is out of range; write a number from {low:g} to {high:g}")
    speed = float(given.pop("speed", 1.0))
    start = {name: getattr(model.speaking, name) for name in RANGES if hasattr(model.speaking, name)}
    return SpeechSettings(speed, SamplingParams(**{**start, **given}), sound)


def choose_references(model: LoadedModel, settings: Dict[str, Any]) -> References:
    """How a model's references are cut, with the settings that are given; None leaves a setting as it is."""
    given = {name: value for name, value in settings.items() if value is not None}
    unknown = sorted(set(given) - set(REFERENCE_SETTINGS))
    if unknown:
        raise VoiceError(
            f"{unknown[0]}: there is no such setting of a voice; the settings are {', '.join(REFERENCE_SETTINGS)}"
        )
    for name, value in given.items():
        if name == "librosa_trim_db":
            low, high = TRIM_RANGE
            problem = None if low <= value <= high else f"expected a number from {low} to {high}"
        else:
            problem = speaking_settings.range_problem(name, value)
        if problem:
            raise VoiceError(f"{name} = {value}: {problem}")
    if not isinstance(model.references, PublishedReferences):
        for name in ("gpt_cond_len", "gpt_cond_chunk_len"):
            if name in given:
                raise VoiceError(
                    f"{name} is a setting of published weights; {model.folder} was trained from scratch, and its "
                    "references are cut as in its training (data.reference_seconds)"
                )
    return attrs.evolve(model.references, **given)

"""How codes become sound: as published, or as serves models trained here.

| sound | the end of a sentence | after a sentence | its edges |
|---|---|---|---|
| `published` | includes the state that predicted the stop | nothing | as they are |
| `published-api` | the same | 10,000 zeros, after the last one, too | as they are; files are scaled to full scale |
| `xtts` | the last code | a pause by its punctuation | faded |

`published` is what the public model's `inference` gives, `published-api` what its toolkit's `TTS.tts` and
`tts_to_file` make of it, and `xtts` is for models trained here. Each setting can be chosen by itself.

A stream's chunks make up the same wave: each continues the last one exactly. The public stream decodes each chunk
without what follows and crossfades the last 1,024 samples into the next chunk; `overlap` does the same.
"""

from typing import Any, Dict, Optional

import attrs

from xtts.errors import XttsError
from xtts.model.decoder import SAMPLE_RATE


class SoundError(XttsError):
    """A setting of the sound that cannot be used."""


@attrs.frozen
class SoundSettings:
    """Settings of the sound of sentences, of what stands between them, and of streams."""

    with_stop: bool = True  # whether the state that predicted the stop is made into sound, too
    fade: float = 0.0  # seconds, at the start and the end of a sentence
    pause: Optional[float] = 0.0  # seconds after a sentence; None: by its punctuation and the speed
    pause_at_end: bool = False  # whether it follows the last sentence, too
    by_sentence: bool = False  # whether sentences are said one by one, even where the front end would join them
    full_scale: bool = False  # whether files are scaled to full scale
    first_chunk: int = 20  # codes in the first chunk of a stream
    chunk: int = 20  # codes in the others
    overlap: Optional[int] = None  # samples that are crossfaded between chunks; None: exact continuation


SOUNDS: Dict[str, SoundSettings] = {
    "published": SoundSettings(),
    "published-api": SoundSettings(pause=10_000 / SAMPLE_RATE, pause_at_end=True, by_sentence=True, full_scale=True),
    "xtts": SoundSettings(with_stop=False, fade=0.005, pause=None, first_chunk=16, chunk=32),
}
RANGES = {"fade": (0.0, 1.0), "pause": (0.0, 60.0), "chunk": (1, 1000), "overlap": (0, 24000)}


def choose_sound(default: str, name: Optional[str] = None, **settings: Optional[float]) -> SoundSettings:
    """The sound of this name, or the default one, with single settings changed; None leaves a setting as it is."""
    name = name or default
    if name not in SOUNDS:
        raise SoundError(f"sound = {name!r}: there is no such sound; choose one of {', '.join(SOUNDS)}")
    chosen: Dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    for key, value in chosen.items():
        low, high = RANGES[key]
        if not low <= value <= high:
            raise SoundError(f"{key} = {value:g} is out of range; write a number from {low:g} to {high:g}")
    if "chunk" in chosen:
        chosen["first_chunk"] = chosen["chunk"]
    return attrs.evolve(SOUNDS[name], **chosen)

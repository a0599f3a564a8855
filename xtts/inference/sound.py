"""How codes become sound: as published, or as serves models trained here.

`published` is what the public implementation does: the wave is made of the states that predicted the codes and the
stop, sentences follow each other without a pause or a fade, and a stream crossfades each chunk into the next. `xtts`
leaves out the state of the stop, fades the edges of sentences, pauses between them as their punctuation asks for, and
continues a stream exactly. Each setting can be chosen by itself.
"""

from typing import Any, Dict, Optional

import attrs

from xtts.errors import XttsError


class SoundError(XttsError):
    """A setting of the sound that cannot be used."""


@attrs.frozen
class SoundSettings:
    """Settings of the sound of sentences, of what stands between them, and of streams."""

    with_stop: bool  # whether the state that predicted the stop is made into sound, too
    fade: float  # seconds, at the start and the end of a sentence
    pause: Optional[float]  # seconds after each sentence but the last; None: by its punctuation and the speed
    first_chunk: int  # codes in the first chunk of a stream
    chunk: int  # codes in the others
    overlap: Optional[int]  # samples that are crossfaded between chunks; None: each continues the last one exactly


SOUNDS: Dict[str, SoundSettings] = {
    "published": SoundSettings(with_stop=True, fade=0.0, pause=0.0, first_chunk=20, chunk=20, overlap=1024),
    "xtts": SoundSettings(with_stop=False, fade=0.005, pause=None, first_chunk=16, chunk=32, overlap=None),
}
RANGES = {"fade": (0.0, 1.0), "pause": (0.0, 60.0), "chunk": (1, 1000), "overlap": (0, 24000)}


def choose_sound(default: str, name: Optional[str] = None, **settings: Optional[float]) -> SoundSettings:
    """The sound of this name, or the default one, with single settings changed; None leaves a setting as it is."""
    name = name or default
    if name not in SOUNDS:
        raise SoundError(f"sound = {name!r}: there is no such sound; choose {' or '.join(SOUNDS)}")
    chosen: Dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    for key, value in chosen.items():
        low, high = RANGES[key]
        if not low <= value <= high:
            raise SoundError(f"{key} = {value:g} is out of range; write a number from {low:g} to {high:g}")
    if "chunk" in chosen:
        chosen["first_chunk"] = chosen["chunk"]
    return attrs.evolve(SOUNDS[name], **chosen)

"""Reference voices of a run: held-out recordings, copied into its folder for voice cloning."""

import contextlib
import re
from pathlib import Path
from typing import Sequence

from xtts.audio import wav
from xtts.corpus.utterances import Utterance
from xtts.weights.voice_files import VOICES as VOICES  # the subfolder of a run

MAX_SECONDS = 30.0  # of a reference recording that are encoded, as in the published model
MAX_SPEAKERS = 16  # speakers with a reference recording


def keep_voices(folder: Path, utterances: Sequence[Utterance]) -> None:
    """Copy each speaker's longest recording, if possible within MAX_SECONDS, to NAME.wav in a folder.

    An existing folder is not changed: users may have added voices of their own.
    """
    if folder.exists() or not utterances:
        return
    folder.mkdir(parents=True)
    for speaker in sorted({one.speaker for one in utterances})[:MAX_SPEAKERS]:
        own = [one for one in utterances if one.speaker == speaker]
        best = max(
            own, key=lambda one: (one.samples <= MAX_SECONDS * one.sample_rate, one.samples / max(1, one.sample_rate))
        )
        with contextlib.suppress(wav.AudioError):  # a recording that can no longer be read does not fail the run
            wave, rate = wav.read_audio(best.path)
            wav.write_wav(folder / f"{_file_name(speaker)}.wav", wave, rate)


def _file_name(speaker: str) -> str:
    """A speaker's name, without characters that are unsafe in file names."""
    return re.sub(r"[^\w+-]+", "-", speaker).strip("-") or "voice"

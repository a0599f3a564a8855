"""Reference voices of a run: recordings that were held out, copied into its folder for its model to speak like."""

import contextlib
import re
from pathlib import Path
from typing import Sequence

from xtts.audio import wav
from xtts.corpus.utterances import Utterance

VOICES = "voices"  # the folder of them, in a run's folder
MAX_SECONDS = 30.0  # of a recording, that the conditioning encoder hears; as the published model does
MAX_SPEAKERS = 16  # of whom a run keeps a recording


def keep_voices(folder: Path, utterances: Sequence[Utterance]) -> None:
    """Copy each speaker's longest recording that is heard whole into a folder, as NAME.wav; of a few speakers.

    An existing folder is left as it is: users may have put voices of their own into it.
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
    """A speaker's name, reduced to what is safe in a file name."""
    return re.sub(r"[^\w+-]+", "-", speaker).strip("-") or "voice"

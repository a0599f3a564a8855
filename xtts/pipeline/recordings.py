"""Recordings: which samples of which utterance are wanted comes in; padded waves go out, and why a row is blank.

What is wanted is said in whole numbers before anything is opened, so that others can be asked to read it.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Callable, Dict, NamedTuple, Tuple

import attrs
import numpy as np

from xtts import files
from xtts.audio import wav
from xtts.corpus.utterances import Utterance
from xtts.planning.dataset import Split

Lost = Tuple[str, str]  # the id of an utterance that cannot be read, and why
RAW = ".f32"  # ends the name of a file that holds float32 samples of one channel and nothing else


class Recordings:
    """The waves of a part of the corpus, at the recipe's rate, padded; and which of them turned bad."""

    def __init__(self, part: Split, sample_rate: int) -> None:
        self.utterances, self.lengths, self._rate = part.corpus.utterances, part.lengths, sample_rate

    def wave(self, position: int) -> np.ndarray:
        """An utterance's wave; an AudioError when it is not what it was when the run was planned."""
        utterance = self.utterances[position]
        wave = wav.load_audio(utterance.path, self._rate)
        if len(wave) != self.lengths.samples[position]:
            raise wav.AudioError(f"{utterance.path}: it has another length than when the run was planned")
        return wave


class Cut(NamedTuple):
    """What is heard of a recording; past its end it begins again."""

    position: int  # of the utterance
    start: int  # in samples
    samples: int


@attrs.frozen(eq=False)
class Cuts:
    """A batch of sound before it is read: which cut stands in which of so many rows, each of so many samples."""

    rows: int
    samples: int
    of: Dict[int, Cut]

    @property
    def lengths(self) -> np.ndarray:
        """Samples that are heard in each row, [rows], int32."""
        lengths = np.zeros(self.rows, np.int32)
        for row, cut in self.of.items():
            lengths[row] = cut.samples
        return lengths


def read_padded(recordings: Recordings, cuts: Cuts) -> Tuple[np.ndarray, np.ndarray, Dict[int, Lost]]:
    """Waves [rows, samples], their lengths [rows], and why a row is blank."""
    waves, lengths = np.zeros((cuts.rows, cuts.samples), np.float32), np.zeros(cuts.rows, np.int32)
    lost: Dict[int, Lost] = {}
    for row, (position, start, count) in cuts.of.items():
        try:
            wave = recordings.wave(position)
        except wav.AudioError as error:
            lost[row] = recordings.utterances[position].id, str(error)
            continue
        wave = wave[start : start + count] if start + count <= len(wave) else np.resize(wave, count)
        waves[row, :count], lengths[row] = wave, count
    return waves, lengths, lost


def raw_copies(
    recordings: Recordings, sample_rate: int, folder: Path, progress: Callable[[int, int], None]
) -> Dict[int, str]:
    """Files of raw samples, by position, for recordings that TensorFlow cannot read: all but wav at `sample_rate`.

    They are made once, and named by what they were made from. What cannot be read now has none.
    """
    wanted = [place for place, one in enumerate(recordings.utterances) if not _is_plain(one, sample_rate)]
    made: Dict[int, str] = {}
    for done, position in enumerate(wanted, 1):
        with contextlib.suppress(wav.AudioError, OSError):
            made[position] = str(_raw_copy(recordings, position, sample_rate, folder.absolute()))
        progress(done, len(wanted))
    return made


def _is_plain(utterance: Utterance, sample_rate: int) -> bool:
    is_wav = utterance.path.lower().endswith(".wav") and utterance.sample_rate == sample_rate
    return is_wav and not {*utterance.path} & {"\t", "\n", "\r"}


def _raw_copy(recordings: Recordings, position: int, sample_rate: int, folder: Path) -> Path:
    source = recordings.utterances[position].path
    status = os.stat(source)  # noqa: PTH116 - a path is text
    about = f"{os.path.abspath(source)} {status.st_size} {status.st_mtime_ns} {sample_rate}"  # noqa: PTH100
    path = folder / f"{hashlib.sha256(os.fsencode(about)).hexdigest()[:32]}{RAW}"
    if not path.exists():
        files.write_bytes(path, recordings.wave(position).astype("<f4").tobytes())
    return path

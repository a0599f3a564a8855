"""Reading recordings into padded waves.

`Cuts` describe in integers which samples of which utterance a batch needs, before any file is opened, so that remote
workers can read them instead.
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
RAW = ".f32"  # suffix of a file of float32 samples of one channel, without a header


class Recordings:
    """The waves of one split of a corpus, at the recipe's sample rate."""

    def __init__(self, part: Split, sample_rate: int) -> None:
        self.utterances = part.corpus.utterances
        self.lengths = part.lengths
        self._rate = sample_rate

    def wave(self, position: int) -> np.ndarray:
        """An utterance's wave, [samples] float32; raises an AudioError if it changed after the run was planned."""
        utterance = self.utterances[position]
        wave = wav.load_audio(utterance.path, self._rate)
        if len(wave) != self.lengths.samples[position]:
            raise wav.AudioError(f"{utterance.path}: its length has changed since the run was planned")
        return wave


class Cut(NamedTuple):
    """A stretch of a recording; past the recording's end it starts again from the beginning."""

    position: int  # of the utterance
    start: int  # in samples
    samples: int


@attrs.frozen(eq=False)
class Cuts:
    """The audio of a batch before it is read: which cut is in which row."""

    rows: int
    samples: int  # of a padded row
    by_row: Dict[int, Cut]

    @property
    def lengths(self) -> np.ndarray:
        """Samples of each row without padding, [rows] int32."""
        lengths = np.zeros(self.rows, np.int32)
        for row, cut in self.by_row.items():
            lengths[row] = cut.samples
        return lengths


def read_padded(recordings: Recordings, cuts: Cuts) -> Tuple[np.ndarray, np.ndarray, Dict[int, Lost]]:
    """Waves [rows, samples] float32, lengths [rows] int32 in samples, and why a row is blank."""
    waves, lengths = np.zeros((cuts.rows, cuts.samples), np.float32), np.zeros(cuts.rows, np.int32)
    lost: Dict[int, Lost] = {}
    for row, (position, start, count) in cuts.by_row.items():
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
    """Write raw copies of recordings that TensorFlow cannot read, all but wav at `sample_rate`; returns their paths.

    A copy is written once and named by a digest of its source. An unreadable recording has none.
    """
    wanted = [place for place, one in enumerate(recordings.utterances) if not _is_plain(one, sample_rate)]
    copies: Dict[int, str] = {}
    for done, position in enumerate(wanted, 1):
        with contextlib.suppress(wav.AudioError, OSError):
            copies[position] = str(_raw_copy(recordings, position, sample_rate, folder.absolute()))
        progress(done, len(wanted))
    return copies


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

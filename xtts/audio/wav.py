"""Read and write audio files.

A wave is float32, mono, [samples], full scale at 1.
"""

import contextlib
import math
import os
import struct
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Iterator, Tuple, Union

import numpy as np
import soundfile

from xtts.audio import headers
from xtts.audio.headers import TRUNCATED, DamagedAudio, Header
from xtts.audio.resample import resample
from xtts.errors import XttsError
from xtts.files import draft_file

FULL_SCALE = 32768  # of a 16-bit sample
ENDLESS = 2**32 - 1  # bytes; the length in the header of a wav that is still being written
LOWEST_RATE, HIGHEST_RATE = 1000, 768_000  # Hz; a header with a rate outside this range is damaged


class AudioError(XttsError):
    """An audio file that cannot be used: which one, why, and what to do about it."""


def read_audio(path: Union[str, Path]) -> Tuple[np.ndarray, int]:
    """The wave in a file, with channels averaged, and its sample rate."""
    with _opened(path) as file:
        header = headers.parse_header(file, os.fstat(file.fileno()).st_size)
        plain = header is not None and header.offset is not None
        if header and plain:
            samples, rate = _read_16_bit(file, header), header.sample_rate
    if not plain:
        with _decoder(path) as sound:
            samples, rate = _decode(sound, path), sound.samplerate
    if not len(samples):
        raise AudioError(f"{path}: the file holds no samples; record it again, or leave the clip out")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise AudioError(f"{path}: {rate} samples a second is no sample rate; export the file again")
    channels = samples.shape[1]
    return (samples[:, 0] if channels == 1 else samples @ np.full(channels, 1 / channels, np.float32)), rate


def load_audio(path: Union[str, Path], sample_rate: int) -> np.ndarray:
    """The wave in a file, resampled to `sample_rate`."""
    wave, rate = read_audio(path)
    return resample(wave, rate, sample_rate)


def write_wav(path: Union[str, Path], wave: np.ndarray, sample_rate: int) -> float:
    """Write a 16-bit wav atomically. A wave that exceeds full scale is scaled down; returns the gain."""
    path = Path(path)
    peak = float(np.abs(wave).max(initial=0.0))
    if not math.isfinite(peak):
        raise AudioError(f"{path}: not written, the wave contains NaN or infinity; check what made it")
    gain = 1 / max(peak, 1.0)
    samples = np.clip(np.rint(wave * (gain * FULL_SCALE)), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
    try:
        with draft_file(path) as draft:
            soundfile.write(str(draft), samples, sample_rate, format="WAV", subtype="PCM_16")
    except (OSError, soundfile.LibsndfileError) as error:
        raise AudioError(f"{path}: cannot be written ({error}); name a file in a folder you may write to") from None
    return gain


class StreamingWav:
    """A 16-bit wav that can be played while it is written; the header gives the longest possible length until `end`.

    Samples above full scale are clipped, because the peak is known only at the end.
    """

    def __init__(self, file: BinaryIO, sample_rate: int) -> None:
        self._file, self._rate, self._bytes = file, sample_rate, 0
        self._write(_wav_header(sample_rate, ENDLESS))

    def add(self, wave: np.ndarray) -> None:
        samples = np.clip(np.rint(wave * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
        self._write(samples.tobytes())
        self._bytes += samples.nbytes

    def end(self) -> None:
        """Write the final length into the header, if the file is seekable; a pipe is not."""
        if self._file.seekable():
            self._file.seek(0)
            self._write(_wav_header(self._rate, self._bytes))

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()


def _wav_header(sample_rate: int, length: int) -> bytes:
    """The header of a mono 16-bit wav with `length` bytes of samples."""
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", min(ENDLESS, 36 + length), b"WAVE")
    return riff + fmt + struct.pack("<4sI", b"data", length)


@contextlib.contextmanager
def _opened(path: Union[str, Path]) -> Iterator[FileIO]:
    """Open a file for reading; any error becomes an AudioError that names the file."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - called for every clip, and Path costs time
            yield file
    except FileNotFoundError:
        raise AudioError(f"{path}: there is no such file; correct the path, or leave the clip out") from None
    except IsADirectoryError:
        raise AudioError(f"{path}: this is a folder; name an audio file") from None
    except OSError as error:
        raise AudioError(f"{path}: {error.strerror}; make the file readable, or leave the clip out") from None
    except DamagedAudio as error:
        raise AudioError(f"{path}: {error.detail}; copy the file again, or leave the clip out") from None


def _read_16_bit(file: FileIO, header: Header) -> np.ndarray:
    """The samples, [samples, channels], of a plain 16-bit wav.

    By hand because converting to float takes libsndfile more than three times as long.
    """
    integers = np.empty((header.samples, header.channels), "<i2")
    file.seek(header.offset or 0)
    if (file.readinto(integers.data) or 0) < integers.nbytes:
        raise DamagedAudio(TRUNCATED, "it breaks off while it is read")
    samples = integers.astype(np.float32)
    samples *= np.float32(1 / FULL_SCALE)
    return samples


def _decode(sound: "soundfile.SoundFile", path: Union[str, Path]) -> np.ndarray:
    """The samples, [samples, channels], of any file that soundfile reads."""
    try:
        samples = np.asarray(sound.read(dtype="float32", always_2d=True))
    except soundfile.LibsndfileError as error:
        raise AudioError(
            f"{path}: it breaks off or is damaged ({error.error_string}); copy it again, or leave it out"
        ) from None
    if len(samples) < sound.frames:
        what = f"{len(samples)} of {sound.frames} samples are there"
        raise AudioError(f"{path}: the file breaks off, {what}; copy it again, or leave the clip out")
    if not np.isfinite(samples).all():
        raise AudioError(f"{path}: the samples contain NaN or infinity; export the file again")
    return samples


def _decoder(path: Union[str, Path]) -> "soundfile.SoundFile":
    try:
        return soundfile.SoundFile(str(path))
    except (
        soundfile.LibsndfileError,
        TypeError,
    ) as error:  # TypeError: taken for raw samples, by its name
        why = getattr(error, "error_string", error)
        reason = "the file is empty" if Path(path).stat().st_size == 0 else f"soundfile cannot read it ({why})"
        raise AudioError(f"{path}: {reason}; convert it to wav or flac, or leave the clip out") from None

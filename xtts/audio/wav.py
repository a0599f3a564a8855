"""Sound files: wave files come in, waves at any sample rate go out, and back.

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

FULL_SCALE = 32768  # of a 16-bit sample
ENDLESS = 2**32 - 1  # bytes, in the header of a wav that is still written
SLOWEST, FASTEST = 1000, 768_000  # samples a second; a header that says another rate is damaged


class AudioError(XttsError):
    """A sound file that cannot be used: which, why, and what to do about it."""


def read_audio(path: Union[str, Path]) -> Tuple[np.ndarray, int]:
    """The wave in a file and its sample rate. Channels are averaged."""
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
    if not SLOWEST <= rate <= FASTEST:
        raise AudioError(f"{path}: {rate} samples a second is no sample rate; export the file again")
    channels = samples.shape[1]
    return (samples[:, 0] if channels == 1 else samples @ np.full(channels, 1 / channels, np.float32)), rate


def load_audio(path: Union[str, Path], sample_rate: int) -> np.ndarray:
    """The wave in a file, at `sample_rate`."""
    wave, rate = read_audio(path)
    return resample(wave, rate, sample_rate)


def write_wav(path: Union[str, Path], wave: np.ndarray, sample_rate: int) -> float:
    """Write a wave as 16-bit wav, whole or not at all. A wave above full scale is turned down, by the gain returned."""
    path = Path(path)
    peak = float(np.abs(wave).max(initial=0.0))
    if not math.isfinite(peak):
        raise AudioError(f"{path}: not written, the wave has samples that are no numbers; check what made it")
    gain = 1 / max(peak, 1.0)
    samples = np.clip(np.rint(wave * (gain * FULL_SCALE)), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # in the same folder, so that replacing is one step
    try:
        soundfile.write(str(draft), samples, sample_rate, format="WAV", subtype="PCM_16")
        draft.replace(path)
    except (OSError, soundfile.LibsndfileError) as error:
        raise AudioError(f"{path}: cannot be written ({error}); name a file in a folder you may write to") from None
    finally:
        if draft.exists():
            draft.unlink()
    return gain


class StreamingWav:
    """A 16-bit wav that can be heard while it is written. Its header says that it has no end, until it has one.

    What is above full scale is cut off: the loudest sample is not known before the last.
    """

    def __init__(self, file: BinaryIO, sample_rate: int) -> None:
        self._file, self._rate, self._bytes = file, sample_rate, 0
        self._put(_wav_header(sample_rate, ENDLESS))

    def add(self, wave: np.ndarray) -> None:
        samples = np.clip(np.rint(wave * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
        self._put(samples.tobytes())
        self._bytes += samples.nbytes

    def end(self) -> None:
        """Write into the header how long it has become, where a file can be gone back in; a pipe cannot."""
        if self._file.seekable():
            self._file.seek(0)
            self._put(_wav_header(self._rate, self._bytes))

    def _put(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()


def _wav_header(sample_rate: int, length: int) -> bytes:
    """Of a mono 16-bit wav with so many bytes of samples."""
    form = struct.pack("<HHIIHH", 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    whole = min(ENDLESS, 36 + length)
    return (
        b"RIFF"
        + struct.pack("<I", whole)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + struct.pack("<4sI", b"data", length)
    )


@contextlib.contextmanager
def _opened(path: Union[str, Path]) -> Iterator[FileIO]:
    """The file, open to be read; what is wrong with it becomes an AudioError that names it."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path may be text, and this is in every clip's way
            yield file
    except FileNotFoundError:
        raise AudioError(f"{path}: there is no such file; correct the path, or leave the clip out") from None
    except IsADirectoryError:
        raise AudioError(f"{path}: this is a folder; name a sound file") from None
    except OSError as error:
        raise AudioError(f"{path}: {error.strerror}; make the file readable, or leave the clip out") from None
    except DamagedAudio as error:
        raise AudioError(f"{path}: {error.detail}; copy the file again, or leave the clip out") from None


def _read_16_bit(file: FileIO, header: Header) -> np.ndarray:
    """The samples, [samples, channels], of a plain 16-bit wav.

    libsndfile takes more than three times as long to make floats of them.
    """
    integers = np.empty((header.samples, header.channels), "<i2")
    file.seek(header.offset or 0)
    if (file.readinto(integers.data) or 0) < integers.nbytes:
        raise DamagedAudio(TRUNCATED, "it breaks off while it is read")
    samples = integers.astype(np.float32)
    samples *= np.float32(1 / FULL_SCALE)
    return samples


def _decode(sound: "soundfile.SoundFile", path: Union[str, Path]) -> np.ndarray:
    """The samples of any file soundfile reads, [samples, channels]."""
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
        raise AudioError(f"{path}: there are samples that are no numbers (NaN or infinite); export the file again")
    return samples


def _decoder(path: Union[str, Path]) -> "soundfile.SoundFile":
    try:
        return soundfile.SoundFile(str(path))
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: headerless samples, by the file's name
        why = getattr(error, "error_string", error)
        reason = "the file is empty" if Path(path).stat().st_size == 0 else f"soundfile cannot read it ({why})"
        raise AudioError(f"{path}: {reason}; convert it to wav or flac, or leave the clip out") from None

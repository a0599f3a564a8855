"""Read the headers of audio files: how many samples a file holds, and at which rate.

The headers of wav and flac are read by hand, in a fraction of the time that libsndfile takes to open a file. Other
formats, and unusual headers, are left to libsndfile.
"""

import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import soundfile

FIRST_BYTES = 4096  # one page, which holds the chunks before the samples
CHUNK = 250  # files that a thread reads in a row
SLOW_FILE = 3e-4  # seconds; a file that takes longer waits for a disk
_THREADS = 8  # mostly waiting, so there may be more than cores
THREADED_CHUNKS = 2 * _THREADS  # read in threads before the next chunk is timed
_KNOWN_BITS = {1: (8, 16, 24, 32), 3: (32, 64), 6: (8,), 7: (8,)}  # a sample: integers, floats, A-law, mu-law
_EXTENSIBLE = 0xFFFE
_STREAMED = 0x7FFF0000  # bytes; longer lengths are placeholders of programs that write to a pipe


EMPTY, TRUNCATED, UNREADABLE = "file empty", "file truncated", "file unreadable"


class DamagedAudio(Exception):
    """Why the samples of a file cannot be read: EMPTY, TRUNCATED or UNREADABLE, and the details."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail


class Header(NamedTuple):
    """The header of an audio file."""

    samples: int  # in one channel
    sample_rate: int  # Hz
    channels: int
    offset: Optional[int] = None  # byte at which plain 16-bit samples start; None: libsndfile decodes the file


def read_header(path: str, size: int) -> Header:
    """The header of a file of `size` bytes; raises `DamagedAudio`."""
    if size == 0:
        raise DamagedAudio(EMPTY, "the file has 0 bytes")
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a hundred thousand times
            header = parse_header(file, size)
    except OSError as error:
        raise DamagedAudio(UNREADABLE, error.strerror or str(error)) from None
    header = header or parse_with_libsndfile(path)
    if header.samples <= 0:
        raise DamagedAudio(EMPTY, "the file holds no samples")
    return header


def parse_header(file: FileIO, size: int) -> Optional[Header]:
    """The header of a wav or flac that is open at its start; None when libsndfile has to read it."""
    start = file.read(FIRST_BYTES)
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return _parse_wav(file, start, size)
    return _parse_flac(start) if start[:4] == b"fLaC" else None


def read_headers(files: Sequence[Tuple[str, int]]) -> Iterator[Union[Header, DamagedAudio]]:
    """The header of each file of (path, size), or the error, in order.

    On a network disk files are read in parallel. On a local one threads would only compete for the interpreter lock
    and take twice as long; so a chunk is timed, and after a slow one the next few are read in threads.
    """
    chunks = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
    with ThreadPoolExecutor(_THREADS) as pool:
        position = 0
        while position < len(chunks):
            start = time.monotonic()
            results = _read_chunk(chunks[position])
            took = time.monotonic() - start
            yield from results
            position += 1
            if took > CHUNK * SLOW_FILE:
                for results in pool.map(_read_chunk, chunks[position : position + THREADED_CHUNKS]):
                    yield from results
                position += THREADED_CHUNKS


def _read_chunk(files: Sequence[Tuple[str, int]]) -> List[Union[Header, DamagedAudio]]:
    results: List[Union[Header, DamagedAudio]] = []
    for path, size in files:
        try:
            results.append(read_header(path, size))
        except DamagedAudio as problem:
            results.append(problem)
    return results


def _parse_wav(file: FileIO, start: bytes, size: int) -> Optional[Header]:
    """The header of a wav with a known codec.

    A truncated data chunk is reported here: libsndfile would take it for a shorter recording.
    """

    def at(position: int, length: int) -> bytes:
        if position + length <= len(start):
            return start[position : position + length]
        file.seek(position)
        return file.read(length)

    position, codec, channels, block, rate, bits = 12, 0, 0, 0, 0, 0
    while True:
        chunk = at(position, 8)
        if len(chunk) < 8:
            raise DamagedAudio(TRUNCATED, "it breaks off before its samples")
        name, length = struct.unpack("<4sI", chunk)
        position += 8
        if name == b"data":
            break
        if name == b"fmt ":
            fields = at(position, min(length, 26)).ljust(26, b"\0")
            codec, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", fields)
            if codec == _EXTENSIBLE:
                (codec,) = struct.unpack_from("<H", fields, 24)
        position += length + length % 2
    is_known = bits in _KNOWN_BITS.get(codec, ()) and channels and block == channels * bits // 8
    if not is_known or not rate or not length:
        return None  # a length of 0 may never have been filled in
    present = size - position
    if length > present and length < _STREAMED:
        raise DamagedAudio(TRUNCATED, f"it breaks off: {present:,} of {length:,} bytes of samples are there")
    plain = position if codec == 1 and bits == 16 else None
    return Header(min(length, present) // block, rate, channels, plain)


def _parse_flac(start: bytes) -> Optional[Header]:
    """The header of a flac that states its length."""
    if len(start) < 26 or start[4] & 0x7F != 0:  # the first block must be STREAMINFO
        return None
    packed = int.from_bytes(start[18:26], "big")  # 20 bits rate, 3 channels, 5 depth, 36 samples
    rate, samples = packed >> 44, packed & (2**36 - 1)
    return Header(samples, rate, (packed >> 41 & 7) + 1) if rate and samples else None


def parse_with_libsndfile(path: str) -> Header:
    """The header of any file that libsndfile reads."""
    try:
        info = soundfile.info(path if os.name == "nt" else os.fsencode(path))
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        raise DamagedAudio(UNREADABLE, error_text(error)) from None
    if info.samplerate <= 0:
        raise DamagedAudio(UNREADABLE, f"a sample rate of {info.samplerate}")
    return Header(info.frames, info.samplerate, info.channels)


def error_text(error: Exception) -> str:
    """libsndfile's message without the path, which the caller names."""
    return str(getattr(error, "error_string", error)).rstrip(". ")

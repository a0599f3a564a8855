"""Headers of audio files: a file comes in, how many samples it holds at which rate goes out.

A wav's first bytes and a flac's say it all, and reading them here takes a fraction of the time of opening the file to
decode it. Everything else, and what looks odd, is libsndfile's to judge.
"""

import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import soundfile

FIRST_BYTES = 4096  # one page: the chunks that recorders write before the samples fit in it
_CHUNK = 250  # files a thread takes at once
_AT_HAND = 3e-4  # seconds for a file; what takes longer waits for a disk
_THREADS = 8  # they wait, so there may be more than cores
_ROUND = 2 * _THREADS  # chunks read in threads before the next one is timed
_KNOWN_CODECS = (1, 3, 6, 7)  # whole numbers, floats, A-law, mu-law: each sample has bytes of its own
_EXTENSIBLE = 0xFFFE
_STREAMED = 0x7FFF0000  # bytes; a length this large was written by a program that could not go back and correct it


EMPTY, TRUNCATED, UNREADABLE = "file empty", "file truncated", "file unreadable"


class DamagedAudio(Exception):
    """Why a file's samples cannot be read: one of EMPTY, TRUNCATED and UNREADABLE, and the details."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail


class Header(NamedTuple):
    """What a file says of itself."""

    samples: int  # in one channel
    sample_rate: int  # Hz
    channels: int
    offset: Optional[int] = None  # byte at which plain 16-bit samples start; None: libsndfile decodes the file


def read_header(path: str, size: int) -> Header:
    """The header of a file of `size` bytes; `DamagedAudio` says why there is none."""
    if size == 0:
        raise DamagedAudio(EMPTY, "the file has 0 bytes")
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a hundred thousand times
            header = parse_header(file, size)
    except OSError as error:
        raise DamagedAudio(UNREADABLE, error.strerror or str(error)) from None
    header = header or _any(path)
    if header.samples <= 0:
        raise DamagedAudio(EMPTY, "the file holds no samples")
    return header


def parse_header(file: FileIO, size: int) -> Optional[Header]:
    """The header of a wav or flac that stands open at its start; None where libsndfile is to judge."""
    start = file.read(FIRST_BYTES)
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return _wav(file, start, size)
    return _flac(start) if start[:4] == b"fLaC" else None


def read_headers(files: Sequence[Tuple[str, int]]) -> Iterator[Union[Header, DamagedAudio]]:
    """The header of each file of (path, size), or why there is none, in order.

    A disk over the network is asked many things at once. With files at hand threads would only fight for Python's
    lock, and take twice as long; so a chunk is timed, and after a slow one the next few are read in threads.
    """
    chunks = [files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK)]
    with ThreadPoolExecutor(_THREADS) as pool:
        position = 0
        while position < len(chunks):
            start = time.monotonic()
            answers = _read_chunk(chunks[position])
            took = time.monotonic() - start
            yield from answers
            position += 1
            if took > _CHUNK * _AT_HAND:
                for answers in pool.map(_read_chunk, chunks[position : position + _ROUND]):
                    yield from answers
                position += _ROUND


def _read_chunk(files: Sequence[Tuple[str, int]]) -> List[Union[Header, DamagedAudio]]:
    answers: List[Union[Header, DamagedAudio]] = []
    for path, size in files:
        try:
            answers.append(read_header(path, size))
        except DamagedAudio as problem:
            answers.append(problem)
    return answers


def _wav(file: FileIO, start: bytes, size: int) -> Optional[Header]:
    """The header of a wav, when it is one of the plain kinds.

    A data chunk that ends early is found here: libsndfile would take it for a shorter one.
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
    if codec not in _KNOWN_CODECS or not rate or not block or block != channels * ((bits + 7) // 8) or not length:
        return None  # a length of 0 may be one that was never filled in
    there = size - position
    if length > there and length < _STREAMED:
        raise DamagedAudio(TRUNCATED, f"it breaks off: {there:,} of {length:,} bytes of samples are there")
    plain = position if codec == 1 and bits == 16 else None
    return Header(min(length, there) // block, rate, channels, plain)


def _flac(start: bytes) -> Optional[Header]:
    """The header of a flac that says its length."""
    if len(start) < 26 or start[4] & 0x7F != 0:  # the first block is to be STREAMINFO
        return None
    packed = int.from_bytes(start[18:26], "big")  # 20 bits rate, 3 channels, 5 depth, 36 samples
    rate, samples = packed >> 44, packed & (2**36 - 1)
    return Header(samples, rate, (packed >> 41 & 7) + 1) if rate and samples else None


def _any(path: str) -> Header:
    """The header of whatever libsndfile reads."""
    try:
        info = soundfile.info(path if os.name == "nt" else os.fsencode(path))
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        raise DamagedAudio(UNREADABLE, error_text(error)) from None
    if info.samplerate <= 0:
        raise DamagedAudio(UNREADABLE, f"a sample rate of {info.samplerate}")
    return Header(info.frames, info.samplerate, info.channels)


def error_text(error: Exception) -> str:
    """libsndfile's complaint without the path, which whoever reads it knows."""
    return str(getattr(error, "error_string", error)).rstrip(". ")

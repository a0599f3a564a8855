"""Recordings for tests: real audio files in real layouts, with old timestamps so that caches trust them."""

import os
from pathlib import Path
from typing import Any, Iterable

import numpy as np
import soundfile

LONG_AGO = 1_000_000_000  # seconds: September 2001


def tone(samples: int = 4410, channels: int = 1, level: float = 0.5) -> np.ndarray:
    """A sine, [samples] or [samples, channels]."""
    wave = (level * np.sin(np.arange(samples) * 0.1)).astype(np.float32)
    return wave if channels == 1 else np.stack([wave] * channels, axis=1)


def record(path: Path, wave: Any = None, rate: int = 22050, **how: str) -> Path:
    """Write an audio file in the format given by its suffix or by `how`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(str(path), tone() if wave is None else wave, rate, **how)
    return date(path)


def date(path: Path, seconds: float = LONG_AGO) -> Path:
    os.utime(path, (seconds, seconds))
    return path


def cut(path: Path, share: float) -> Path:
    """Keep only the first `share` of a file's bytes."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return date(path)


def ljspeech(root: Path, ids: Iterable[str] = ("a", "b", "c"), more: bytes = b"") -> Path:
    """A corpus in LJSpeech's layout, with `more` lines at the end of its metadata."""
    ids = list(ids)
    for id in ids:
        record(root / "wavs" / f"{id}.wav")
    lines = "".join(f"{id}|Words, {id}.|words {id}\n" for id in ids)
    (root / "metadata.csv").write_bytes(lines.encode() + more)
    return root

"""Generated speech: the wave, and what was said in it."""

from pathlib import Path
from typing import Any, Dict, Tuple, Union

import attrs
import numpy as np

from xtts.audio import wav

FULL_SCALE = 32767  # of files that are scaled to it, as the public toolkit writes them
QUIETEST_PEAK = 0.01  # anything quieter is scaled as if it had this peak


@attrs.frozen(eq=False)
class SpokenPiece:
    """One sentence, or a piece of a long one."""

    text: str  # normalised
    codes: np.ndarray  # [codes] int32
    seconds: float  # of audio
    is_cut: bool  # at the maximum length, before the model stopped

    def as_json(self) -> Dict[str, Any]:
        return {
            "text": self.text,
            "seconds": round(self.seconds, 3),
            "codes": [int(code) for code in self.codes],
            "cut": self.is_cut,
        }


@attrs.frozen(eq=False)
class Wave:
    """Generated speech."""

    samples: np.ndarray  # float32, full scale at 1
    sample_rate: int
    language: str
    said: Tuple[SpokenPiece, ...]
    seconds_of_work: float
    full_scale: bool = False  # whether files are scaled to full scale

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    @property
    def real_time_factor(self) -> float:
        """Seconds of computation per second of audio."""
        return self.seconds_of_work / max(self.seconds, 1e-9)

    def write(self, path: Union[str, Path]) -> None:
        """Write a 16-bit wav file."""
        samples = self.samples
        if self.full_scale:
            peak = max(float(np.abs(samples).max(initial=0.0)), QUIETEST_PEAK)
            samples = (np.trunc(samples * (FULL_SCALE / peak)) / wav.FULL_SCALE).astype(np.float32)
        wav.write_wav(path, samples, self.sample_rate)

    def as_json(self) -> Dict[str, Any]:
        return {
            "language": self.language,
            "seconds": round(self.seconds, 3),
            "sample_rate": self.sample_rate,
            "real_time_factor": round(self.real_time_factor, 4),
            "sentences": [one.as_json() for one in self.said],
        }

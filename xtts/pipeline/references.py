"""References that are cut at random lengths and followed by silence, so that their shape is always the same.

XTTS-v2 was trained so: with three to six seconds of the utterance itself, padded with silence to six, and without a
loss for the codes of that stretch. Silence is part of the mel that the conditioning encoder sees: nothing masks it.
"""

from typing import Any, NamedTuple, Optional, Tuple

import attrs
import numpy as np

from xtts.audio.mel import LOG_FLOOR, MelSpec, frame_count
from xtts.planning.shapes import STOPS
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import AudioSection, Recipe


class Stretch(NamedTuple):
    """A part of a recording, in hops of the mel spectrogram."""

    start: int
    hops: int

    @property
    def codes(self) -> Tuple[int, int]:
        """The first code in it, and the first one after it."""
        return self.start // FRAMES_PER_CODE, (self.start + self.hops) // FRAMES_PER_CODE


@attrs.frozen
class RandomReferences:
    """The lengths that references are cut to, and which codes have no loss for it."""

    shortest: int  # hops
    longest: int  # hops
    masks: Any  # train.mask_reference_codes

    @classmethod
    def of(cls, recipe: Recipe) -> "Optional[RandomReferences]":
        """Those of a recipe; None where all references of a shape have one length."""
        data, audio = recipe.data, recipe.audio
        if data.reference_min_seconds is None:
            return None
        hops = [
            int(seconds * audio.sample_rate) // audio.hop_length
            for seconds in (data.reference_min_seconds, data.reference_seconds)
        ]
        return cls(max(1, hops[0]), max(1, hops[1]), recipe.train.mask_reference_codes)

    def stretch(self, samples: int, hop: int, draw: Optional[int]) -> Stretch:
        """The stretch of a recording of so many samples: a random one, or without a draw the first of middle length.

        Of a recording that is too short for its length it is half.
        """
        whole = max(1, samples // hop)
        length, rest = (self.shortest + self.longest) // 2, 0
        if draw is not None:
            rest, extra = divmod(draw, self.longest - self.shortest + 1)
            length = self.shortest + extra
        if length > whole:
            length = max(1, whole // 2)
        return Stretch(0 if draw is None else rest % (whole - length + 1), length)

    def masked_codes(self, own: Stretch, is_last: bool) -> Tuple[int, int]:
        """The first code without a loss, and the first one with a loss again; `is_last`: the batch's last row.

        "published" takes positions in the mel for positions in the codes, and leaves out all rows but the last.
        """
        if self.masks == "published":
            return (own.start, own.start + own.hops) if is_last else (0, 0)
        return own.codes if self.masks else (0, 0)


def count_masked(masked: np.ndarray, code_lengths: np.ndarray) -> int:
    """How many targets, [B, 2] of codes and their stops, have no loss."""
    ends = np.minimum(masked, np.where(code_lengths > 0, code_lengths + STOPS + 1, 0)[:, None])
    return int((ends[:, 1] - ends[:, 0]).sum())


def padded_size(audio: AudioSection, seconds: float, spec: MelSpec) -> Tuple[int, int]:
    """Samples and mel frames of a reference with its silence."""
    samples = int(seconds * audio.sample_rate)
    return samples, int(frame_count(samples, spec))


def pad_mel(mel: np.ndarray, own: Stretch, frames: int, mel_norms: np.ndarray) -> np.ndarray:
    """A stretch of a recording's mel, followed by silence: [frames, n_mels]."""
    padded = np.tile((np.log(np.float32(LOG_FLOOR)) / mel_norms).astype(np.float32), (frames, 1))
    cut = mel[own.start : own.start + own.hops + 1][:frames]  # a wave of n hops has n + 1 frames
    padded[: len(cut)] = cut
    return padded

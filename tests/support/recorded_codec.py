"""A stand-in for a model whose codec returns a recording, to test the vocoder."""

import numpy as np

from xtts.audio import wav
from xtts.audio.mel import MelSpec, log_mel
from xtts.inference.generation import GeneratedCodes
from xtts.inference.sound import SOUNDS
from xtts.inference.vocoder import make_vocoder
from xtts.planning.sizes import FRAMES_PER_CODE

SPEC = MelSpec()


class Recorded:
    """A codec that returns a recording's mel for any codes, with the rest of a model."""

    spec, mel_norms, decoder = SPEC, np.full(80, 4.0, np.float32), None

    def __init__(self, path):
        mel = log_mel(wav.load_audio(path, SPEC.sample_rate), SPEC, self.mel_norms)
        self.codes = len(mel) // FRAMES_PER_CODE
        self._mel = mel[: FRAMES_PER_CODE * self.codes]

    def decode_mel(self, codes):
        return self._mel[: FRAMES_PER_CODE * len(codes)]


def spoken(count, is_last):
    return GeneratedCodes(np.zeros(count, np.int32), np.zeros((count, 0), np.float32), is_last)


def make_wave(model, speed, *ends):
    """The wave of the codes, made in chunks up to each of `ends`, and the positions of the seams."""
    render = make_vocoder(model, model, None, speed, SOUNDS["xtts"])
    chunks = [render.add(spoken(end, is_last=False)) for end in ends] + [render.add(spoken(model.codes, is_last=True))]
    return np.concatenate(chunks), np.cumsum([len(chunk) for chunk in chunks[:-1]])

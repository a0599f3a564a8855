"""Whose voice it is: waves come in; a vector for each goes out, nearer to another of the same speaker than to others.

`Trained` is the speaker encoder of the package resemblyzer (GE2E, three LSTM layers, trained on thousands of people).
Its weights are read from the package without running anything in it, and its layers are computed here, so neither it
nor torch need be importable. `Plain` is no such thing: the mean outline of the spectrum, how far it moves, and the
pitch, each against how they differ in recordings of the corpus. It needs nothing, and it can be fooled.
"""

import importlib.util
from pathlib import Path
from typing import Dict, Optional, Protocol, Sequence

import numpy as np

from xtts.audio.mel import MelSpec, log_mel, mel
from xtts.errors import XttsError
from xtts.evaluation.metrics import cepstra, pitch_track
from xtts.weights import torch_file

RATE = 16000  # Hz, that voices are heard at
SPEC = MelSpec(sample_rate=RATE, n_fft=400, win_length=400, hop_length=160, n_mels=40, scale="slaney")
LAYERS = 3
CUT = 160  # frames that the encoder hears at a time, 1.6 s
STEP = 77  # frames from one cut to the next
COVERED = 0.75  # of the last cut must be sound
LOUDNESS = 10 ** (-30 / 20)  # root mean square that a quieter wave is raised to
PITCH_WEIGHT = 3.0  # of the pitch among the cepstra: it tells the most, and is one number of many


class VoiceEncoder(Protocol):
    """A way to hear whose voice it is."""

    name: str

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of waves at RATE, [waves, width], each of length 1."""


def make_voice_encoder(recordings: Sequence[np.ndarray], is_plain: bool = False) -> VoiceEncoder:
    """The best there is: trained where its weights are installed; `recordings` are of several speakers."""
    path = None if is_plain else weights_file()
    return ResemblyzerEncoder(path) if path is not None else CepstralEncoder(recordings)


def weights_file() -> Optional[Path]:
    """Where resemblyzer keeps its weights; None where it is not installed."""
    found = importlib.util.find_spec("resemblyzer")
    path = Path(str(found.origin)).parent / "pretrained.pt" if found and found.origin else None
    return path if path is not None and path.is_file() else None


class ResemblyzerEncoder:
    """resemblyzer's encoder."""

    name = "resemblyzer"

    def __init__(self, path: Path) -> None:
        try:
            state = torch_file.load_torch_file(path)["model_state"]
            self._weights: Dict[str, np.ndarray] = {name: np.asarray(state[name], np.float32) for name in _names()}
        except (KeyError, TypeError, ValueError):
            raise XttsError(f"{path}: these are not resemblyzer's weights; run: pip install -U resemblyzer") from None

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        cuts = [_cuts(wave) for wave in waves]
        encoded = self._encoded(np.concatenate(cuts))  # all at once: small products waste most of their time
        ends = np.cumsum([len(own) for own in cuts])
        return np.stack([_unit(own.mean(axis=0)) for own in np.split(encoded, ends[:-1])])

    def _encoded(self, x: np.ndarray) -> np.ndarray:
        """Vectors [B, 256] of cuts [B, CUT, 40]."""
        for layer in range(LAYERS):
            x = self._lstm(x, layer)
        projected = x[:, -1] @ self._weights["linear.weight"].T + self._weights["linear.bias"]
        return np.stack([_unit(row) for row in np.maximum(projected, 0)])

    def _lstm(self, x: np.ndarray, layer: int) -> np.ndarray:
        """A layer's outputs, [B, T, width]. Gates lie in torch's order: in, forget, new, out."""
        into, across, *biases = (self._weights[f"lstm.{kind}_l{layer}"] for kind in _KINDS)
        given = x @ into.T + (biases[0] + biases[1])
        width = across.shape[1]
        state, memory = np.zeros((len(x), width), np.float32), np.zeros((len(x), width), np.float32)
        outputs = np.empty((*x.shape[:2], width), np.float32)
        for step in range(x.shape[1]):
            gates = given[:, step] + state @ across.T
            enter, keep, leave = (_sigmoid(gates[:, at * width : (at + 1) * width]) for at in (0, 1, 3))
            memory = keep * memory + enter * np.tanh(gates[:, 2 * width : 3 * width])
            state = leave * np.tanh(memory)
            outputs[:, step] = state
        return outputs


class CepstralEncoder:
    """Outline, movement and pitch, against their means and spreads in `recordings`."""

    name = "plain"

    def __init__(self, recordings: Sequence[np.ndarray]) -> None:
        found = np.stack([_outline(wave) for wave in recordings])
        self._mean, self._spread = found.mean(axis=0), found.std(axis=0)

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        scale = _weights() / np.maximum(self._spread, 1e-3)
        return np.stack([_unit((_outline(wave) - self._mean) * scale) for wave in waves])


def _outline(wave: np.ndarray) -> np.ndarray:
    wave = np.asarray(wave, np.float32) if len(wave) else np.zeros(1, np.float32)
    logs = log_mel(wave * np.float32(0.1 / max(_level(wave), 1e-6)), SPEC)  # how near the floor is must not tell
    level = logs.mean(axis=1)
    shapes = cepstra(logs[level >= np.median(level)])  # of the louder half, which is speech
    found = pitch_track(wave, RATE)
    pitch = np.log2(np.median(found)) if len(found) else np.log2(150.0)
    return np.concatenate([shapes.mean(axis=0), shapes.std(axis=0), [pitch]])


def _level(wave: np.ndarray) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(np.square(wave, dtype=np.float64)))) if len(wave) else 0.0


def _cuts(wave: np.ndarray) -> np.ndarray:
    """What the encoder hears of a wave, [cuts, CUT, 40]."""
    level, starts = _level(wave), _starts(len(wave))
    padded = np.zeros(max(len(wave), (starts[-1] + CUT) * SPEC.hop_length), np.float32)
    padded[: len(wave)] = wave if not 0 < level < LOUDNESS else wave * np.float32(LOUDNESS / level)
    heard = mel(padded, SPEC)
    return np.stack([heard[start : start + CUT] for start in starts])


def _weights() -> np.ndarray:
    return np.array([*np.ones(2 * cepstra(np.zeros((1, SPEC.n_mels))).shape[1]), PITCH_WEIGHT])


def _starts(samples: int) -> Sequence[int]:
    """The first frames of the cuts that a wave is heard in."""
    count = samples // SPEC.hop_length + 1
    starts = list(range(0, max(1, count - CUT + STEP + 1), STEP))
    covered = samples / SPEC.hop_length - starts[-1]
    return starts[:-1] if len(starts) > 1 and covered < COVERED * CUT else starts


def _names() -> Sequence[str]:
    return [f"lstm.{kind}_l{layer}" for layer in range(LAYERS) for kind in _KINDS] + ["linear.weight", "linear.bias"]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9))


_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

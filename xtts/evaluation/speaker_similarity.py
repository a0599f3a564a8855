"""Speaker embeddings: vectors that are closer for two waves of one speaker than for waves of two speakers.

`ResemblyzerEncoder` is the speaker encoder of the package resemblyzer (GE2E, three LSTM layers, trained on thousands of
people). Its weights are read from the package without running anything in it, and its layers are computed here, so
neither it nor torch need be importable. `CepstralEncoder` is the fallback if that package is missing: the mean and the
spread of the spectral envelope, and the pitch, standardised over recordings of the corpus. It is easily fooled.
"""

import importlib.util
from pathlib import Path
from typing import Dict, Optional, Protocol, Sequence

import numpy as np

from xtts.audio.mel import MelSpec, log_mel, mel
from xtts.errors import XttsError
from xtts.evaluation.metrics import cepstra, pitch_track
from xtts.weights import torch_file

SAMPLE_RATE = 16000  # Hz, of the waves that are compared
SPEC = MelSpec(sample_rate=SAMPLE_RATE, n_fft=400, win_length=400, hop_length=160, n_mels=40, scale="slaney")
LAYERS = 3
WINDOW_FRAMES = 160  # frames that the encoder takes at a time, 1.6 s
HOP_FRAMES = 77  # from one window to the next
MIN_COVERAGE = 0.75  # of the last window must lie within the wave
TARGET_LEVEL = 10 ** (-30 / 20)  # RMS to which quieter waves are amplified
PITCH_WEIGHT = 3.0  # weight of the pitch among the cepstra: one of many features, and the most informative


class VoiceEncoder(Protocol):
    """Encodes waves as speaker embeddings."""

    name: str

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """The embeddings of waves at SAMPLE_RATE, [waves, width], each of length 1."""


def make_voice_encoder(recordings: Sequence[np.ndarray], is_plain: bool = False) -> VoiceEncoder:
    """The best available encoder: resemblyzer's if it is installed. `recordings` should be of several speakers."""
    path = None if is_plain else weights_file()
    return ResemblyzerEncoder(path) if path is not None else CepstralEncoder(recordings)


def weights_file() -> Optional[Path]:
    """resemblyzer's file of weights; None when it is not installed."""
    found = importlib.util.find_spec("resemblyzer")
    path = Path(str(found.origin)).parent / "pretrained.pt" if found and found.origin else None
    return path if path is not None and path.is_file() else None


class ResemblyzerEncoder:
    """The speaker encoder of resemblyzer."""

    name = "resemblyzer"

    def __init__(self, path: Path) -> None:
        try:
            state = torch_file.load_torch_file(path)["model_state"]
            self._weights: Dict[str, np.ndarray] = {
                name: np.asarray(state[name], np.float32) for name in _weight_names()
            }
        except (KeyError, TypeError, ValueError):
            raise XttsError(f"{path}: not resemblyzer's weights; run: pip install -U resemblyzer") from None

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        windows = [_windows(wave) for wave in waves]
        encoded = self.encode_windows(np.concatenate(windows))  # in one batch: small matrix products are slow
        ends = np.cumsum([len(own) for own in windows])
        return np.stack([_unit(own.mean(axis=0)) for own in np.split(encoded, ends[:-1])])

    def encode_windows(self, x: np.ndarray) -> np.ndarray:
        """Embeddings [B, 256] of windows [B, WINDOW_FRAMES, 40]."""
        for layer in range(LAYERS):
            x = self._lstm(x, layer)
        projected = x[:, -1] @ self._weights["linear.weight"].T + self._weights["linear.bias"]
        return np.stack([_unit(row) for row in np.maximum(projected, 0)])

    def _lstm(self, x: np.ndarray, layer: int) -> np.ndarray:
        """The outputs of a layer, [B, T, width]. The gates are in torch's order: input, forget, cell, output."""
        input_weights, recurrent_weights, *biases = (self._weights[f"lstm.{kind}_l{layer}"] for kind in _LSTM_WEIGHTS)
        projected = x @ input_weights.T + (biases[0] + biases[1])
        width = recurrent_weights.shape[1]
        hidden, cell = np.zeros((len(x), width), np.float32), np.zeros((len(x), width), np.float32)
        outputs = np.empty((*x.shape[:2], width), np.float32)
        for step in range(x.shape[1]):
            gates = projected[:, step] + hidden @ recurrent_weights.T
            input_gate, forget_gate, output_gate = (
                _sigmoid(gates[:, at * width : (at + 1) * width]) for at in (0, 1, 3)
            )
            cell = forget_gate * cell + input_gate * np.tanh(gates[:, 2 * width : 3 * width])
            hidden = output_gate * np.tanh(cell)
            outputs[:, step] = hidden
        return outputs


class CepstralEncoder:
    """Mean and spread of the cepstra, and pitch, standardised over `recordings`."""

    name = "plain"

    def __init__(self, recordings: Sequence[np.ndarray]) -> None:
        found = np.stack([_features(wave) for wave in recordings])
        self._mean, self._spread = found.mean(axis=0), found.std(axis=0)

    def __call__(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        scale = _feature_weights() / np.maximum(self._spread, 1e-3)
        return np.stack([_unit((_features(wave) - self._mean) * scale) for wave in waves])


def _features(wave: np.ndarray) -> np.ndarray:
    wave = np.asarray(wave, np.float32) if len(wave) else np.zeros(1, np.float32)
    level = 0.1  # RMS: all waves lie equally far above the floor of the log mel
    logs = log_mel(wave * np.float32(level / max(_rms(wave), 1e-6)), SPEC)
    loudness = logs.mean(axis=1)
    envelopes = cepstra(logs[loudness >= np.median(loudness)])  # of the louder half of the frames, which is speech
    pitches = pitch_track(wave, SAMPLE_RATE)
    pitch = np.log2(np.median(pitches)) if len(pitches) else np.log2(150.0)
    return np.concatenate([envelopes.mean(axis=0), envelopes.std(axis=0), [pitch]])


def _rms(wave: np.ndarray) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(np.square(wave, dtype=np.float64)))) if len(wave) else 0.0


def _windows(wave: np.ndarray) -> np.ndarray:
    """The windows of a wave that are encoded, [windows, WINDOW_FRAMES, 40]."""
    level, starts = _rms(wave), _window_starts(len(wave))
    padded = np.zeros(max(len(wave), (starts[-1] + WINDOW_FRAMES) * SPEC.hop_length), np.float32)
    padded[: len(wave)] = wave if not 0 < level < TARGET_LEVEL else wave * np.float32(TARGET_LEVEL / level)
    frames = mel(padded, SPEC)
    return np.stack([frames[start : start + WINDOW_FRAMES] for start in starts])


def _feature_weights() -> np.ndarray:
    return np.array([*np.ones(2 * cepstra(np.zeros((1, SPEC.n_mels))).shape[1]), PITCH_WEIGHT])


def _window_starts(samples: int) -> Sequence[int]:
    """The first frame of each window of a wave."""
    count = samples // SPEC.hop_length + 1
    starts = list(range(0, max(1, count - WINDOW_FRAMES + HOP_FRAMES + 1), HOP_FRAMES))
    covered = samples / SPEC.hop_length - starts[-1]
    return starts[:-1] if len(starts) > 1 and covered < MIN_COVERAGE * WINDOW_FRAMES else starts


def _weight_names() -> Sequence[str]:
    return [f"lstm.{kind}_l{layer}" for layer in range(LAYERS) for kind in _LSTM_WEIGHTS] + [
        "linear.weight",
        "linear.bias",
    ]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9))


_LSTM_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

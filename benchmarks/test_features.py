"""Promise: features take a fraction of the time of librosa's mels, soundfile's floats and scipy's filter.

Each pair runs in turns, in one process on one core, and the median of the ratios counts. Times are processor times, so
that other load on the machine favours neither side.
"""

import time
from typing import Any, Dict, Iterator

import librosa
import numpy as np
import pytest
import soundfile
from promises import at_least, in_turns
from threadpoolctl import threadpool_limits  # librosa brings it, with scikit-learn

from xtts.audio import resample, wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import CODEC, CONDITIONING, SPEAKER, MelSpec, filterbank, log_mel, mel

SECONDS = 6.6  # the mean of LJSpeech
ROUNDS = 21

MEL_OVER_LIBROSA = at_least(1.9)  # librosa's time over ours, even with a precomputed filterbank
READ_OVER_FLOATS = at_least(3.0)  # soundfile.read(dtype="float32") of a 16-bit wav
RESAMPLE_OVER_POLYPHASE = at_least(1.5)  # scipy.signal.resample_poly, 48 kHz to 22.05 kHz


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Linear algebra on one core: busy waiting of threads would count as processor time."""
    with threadpool_limits(1):
        yield


def speech(sample_rate: int, seconds: float = SECONDS) -> np.ndarray:
    """A gliding tone in noise; the time of features does not depend on the audio."""
    at = np.arange(int(seconds * sample_rate)) / sample_rate
    turns = np.cumsum(120 + 30 * np.sin(2 * np.pi * at)) / sample_rate
    voice = sum(np.sin(2 * np.pi * n * turns) / n for n in range(1, 30))
    noise = np.random.default_rng(0).standard_normal(len(at))
    return (0.1 * voice * np.sin(3 * at) ** 2 + 0.003 * noise).astype(np.float32)


def as_librosa(spec: MelSpec) -> Dict[str, Any]:
    return {
        "sr": spec.sample_rate,
        "n_fft": spec.n_fft,
        "win_length": spec.win_length,
        "hop_length": spec.hop_length,
        "window": spec.window,
        "pad_mode": "reflect",
        "power": spec.power,
        "n_mels": spec.n_mels,
        "fmin": spec.fmin,
        "fmax": spec.fmax,
        "htk": spec.scale == "htk",
        "norm": spec.norm,
    }


@pytest.mark.parametrize("spec", [CODEC, CONDITIONING, SPEAKER], ids=["codec", "conditioning", "speaker"])
def test_mel_outruns_librosa(spec: MelSpec, promise: Any, benchmark: Any) -> None:
    """A mel takes at most little more than half of librosa's time for the same one."""
    wave = speech(spec.sample_rate)
    # librosa's mel has no pre-emphasis, so it is applied to its input beforehand, untimed.
    emphasised = wave - spec.preemphasis * np.concatenate([wave[1:2], wave[:-1]]) if spec.preemphasis else wave

    def theirs() -> np.ndarray:
        return librosa.feature.melspectrogram(y=emphasised, **as_librosa(spec))

    def ours() -> np.ndarray:
        return mel(wave, spec)

    assert np.abs(np.log(ours() + 1e-6) - np.log(theirs().T + 1e-6)).max() < 1e-3
    benchmark.pedantic(ours, rounds=ROUNDS)

    def stft_only() -> np.ndarray:
        return _librosa_without_filterbank(emphasised, spec)

    name = f"features: librosa's time over ours, mel of n_fft {spec.n_fft}"
    promise.ratio(name, lambda: in_turns(theirs, ours, ROUNDS), MEL_OVER_LIBROSA)
    promise.ratio(f"{name}, filterbank given", lambda: in_turns(stft_only, ours, ROUNDS), MEL_OVER_LIBROSA)


def _librosa_without_filterbank(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """librosa's melspectrogram, without building the filterbank for every clip."""
    settings = {name: as_librosa(spec)[name] for name in ("n_fft", "win_length", "hop_length", "window", "pad_mode")}
    energies = np.abs(librosa.stft(wave, **settings)) ** 2
    return np.einsum("ft,fm->mt", energies, filterbank(spec), optimize=True)


def test_16_bit_outruns_floats(promise: Any, benchmark: Any, tmp_path: Any) -> None:
    """Reading a 16-bit wav as float32 takes at most a third of soundfile's time."""
    path = tmp_path / "clip.wav"
    wav.write_wav(path, speech(22050), 22050)

    def theirs() -> np.ndarray:
        return soundfile.read(str(path), dtype="float32")[0]

    def ours() -> np.ndarray:
        return wav.read_audio(path)[0]

    np.testing.assert_array_equal(ours(), theirs())
    benchmark.pedantic(ours, rounds=ROUNDS)
    name = "features: soundfile's time over ours, floats of a 16-bit wav"
    promise.ratio(name, lambda: in_turns(theirs, ours, ROUNDS), READ_OVER_FLOATS)


def test_resampling_outruns_polyphase(promise: Any, benchmark: Any) -> None:
    """Resampling takes less time than scipy's polyphase filter, whose error is larger."""
    from scipy.signal import resample_poly

    wave = speech(48000)

    def theirs() -> np.ndarray:
        return resample_poly(wave, 147, 320)

    def ours() -> np.ndarray:
        return resample.resample(wave, 48000, 22050)

    benchmark.pedantic(ours, rounds=ROUNDS)
    name = "features: scipy's polyphase filter over ours, 48000 to 22050 Hz"
    promise.ratio(name, lambda: in_turns(theirs, ours, ROUNDS), RESAMPLE_OVER_POLYPHASE)


def test_griffin_lim_is_fit_to_listen(benchmark: Any) -> None:
    """The time of Griffin-Lim for a second of audio; recorded but not judged."""
    logs = log_mel(speech(CODEC.sample_rate), CODEC)
    start = time.process_time()
    benchmark.pedantic(griffin_lim, (logs, CODEC), rounds=3)
    benchmark.extra_info.update(processor_seconds_a_second=(time.process_time() - start) / 3 / SECONDS)

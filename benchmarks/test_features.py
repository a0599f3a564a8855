"""Features against what they replace: each pair runs in turn, in one process, and the median of the ratios counts.

All of it runs on one core, and time is the processor's, not the clock's, so that other work on the machine flatters
neither side. `pytest benchmarks/test_features.py` prints the ratios; the clock's times are in the table.
"""

import statistics
import time
from typing import Any, Callable, Dict, Iterator

import librosa
import numpy as np
import pytest
import soundfile
from threadpoolctl import threadpool_limits  # librosa brings it, with scikit-learn

from xtts import audio
from xtts.mel import CODEC, CONDITIONING, SPEAKER, MelSpec, filterbank, griffin_lim, log_mel, mel

SECONDS = 6.6  # the mean of LJSpeech
ROUNDS = 41

MEL_OVER_LIBROSA = 1.9  # librosa takes at least so many times as long, even when its filterbank is given
READ_OVER_FLOATS = 3.0  # soundfile.read(dtype="float32") of a 16-bit wav
RESAMPLE_OVER_POLYPHASE = 1.5  # scipy.signal.resample_poly, 48 kHz to 22.05 kHz


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Linear algebra on one core: threads that wait for each other would count as work."""
    with threadpool_limits(1):
        yield


def speech(sample_rate: int, seconds: float = SECONDS) -> np.ndarray:
    """A gliding voice in noise: features take as long for it as for any other sound."""
    at = np.arange(int(seconds * sample_rate)) / sample_rate
    turns = np.cumsum(120 + 30 * np.sin(2 * np.pi * at)) / sample_rate
    voice = sum(np.sin(2 * np.pi * n * turns) / n for n in range(1, 30))
    noise = np.random.default_rng(0).standard_normal(len(at))
    return (0.1 * voice * np.sin(3 * at) ** 2 + 0.003 * noise).astype(np.float32)


def ratio(slow: Callable[[], Any], fast: Callable[[], Any]) -> float:
    """How many times as long `slow` takes: the median over rounds in which both run."""
    slow(), fast()

    def spent(run: Callable[[], Any]) -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    return statistics.median(spent(slow) / spent(fast) for _ in range(ROUNDS))


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
def test_mel_outruns_librosa(spec: MelSpec, benchmark: Any, capsys: Any) -> None:
    """A mel takes little more than half of what librosa takes for the same one, or less."""
    wave = speech(spec.sample_rate)
    # librosa has no pre-emphasis here, so it is given a wave that has it already, for nothing.
    heard = wave - spec.preemphasis * np.concatenate([wave[1:2], wave[:-1]]) if spec.preemphasis else wave

    def theirs() -> np.ndarray:
        return librosa.feature.melspectrogram(y=heard, **as_librosa(spec))

    def ours() -> np.ndarray:
        return mel(wave, spec)

    assert np.abs(np.log(ours() + 1e-6) - np.log(theirs().T + 1e-6)).max() < 1e-3
    found = ratio(theirs, ours)
    stft_only = ratio(lambda: _librosa_without_filterbank(heard, spec), ours)
    benchmark.extra_info.update(over_librosa=found, over_librosa_stft=stft_only)
    benchmark(ours)
    given = f"{stft_only:.2f} when its filterbank is given"
    _say(capsys, f"mel, n_fft {spec.n_fft}: librosa takes {found:.2f} times as long, {given}")
    assert min(found, stft_only) >= MEL_OVER_LIBROSA


def _librosa_without_filterbank(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    """What melspectrogram does, but for building its filterbank anew for every clip."""
    settings = {name: as_librosa(spec)[name] for name in ("n_fft", "win_length", "hop_length", "window", "pad_mode")}
    energies = np.abs(librosa.stft(wave, **settings)) ** 2
    return np.einsum("ft,fm->mt", energies, filterbank(spec), optimize=True)


def test_16_bit_outruns_floats(benchmark: Any, capsys: Any, tmp_path: Any) -> None:
    """A 16-bit wav becomes float32 in a third of the time that soundfile needs, or less."""
    path = tmp_path / "clip.wav"
    audio.write(path, speech(22050), 22050)

    def theirs() -> np.ndarray:
        return soundfile.read(str(path), dtype="float32")[0]

    def ours() -> np.ndarray:
        return audio.read(path)[0]

    np.testing.assert_array_equal(ours(), theirs())
    found = ratio(theirs, ours)
    benchmark.extra_info.update(over_floats=found)
    benchmark(ours)
    _say(capsys, f"16-bit wav: soundfile takes {found:.2f} times as long to give floats")
    assert found >= READ_OVER_FLOATS


def test_resampling_outruns_polyphase(benchmark: Any, capsys: Any) -> None:
    """Resampling takes less time than scipy's polyphase filter, whose error is larger."""
    from scipy.signal import resample_poly

    wave = speech(48000)
    found = ratio(lambda: resample_poly(wave, 147, 320), lambda: audio.resample(wave, 48000, 22050))
    benchmark.extra_info.update(over_polyphase=found)
    benchmark(audio.resample, wave, 48000, 22050)
    _say(capsys, f"48000 to 22050 Hz: scipy.signal.resample_poly takes {found:.2f} times as long")
    assert found >= RESAMPLE_OVER_POLYPHASE


def test_griffin_lim_is_fit_to_listen(benchmark: Any, capsys: Any) -> None:
    """How long a second of sound takes to come back from its mel; reported only."""
    logs = log_mel(speech(CODEC.sample_rate), CODEC)
    start = time.process_time()
    griffin_lim(logs, CODEC)
    spent = time.process_time() - start
    benchmark.extra_info.update(processor_seconds_a_second=spent / SECONDS)
    benchmark.pedantic(griffin_lim, (logs, CODEC), rounds=3)
    _say(capsys, f"Griffin-Lim, 32 iterations: {spent / SECONDS:.3f} processor seconds for a second of sound")


def _say(capsys: Any, line: str) -> None:
    with capsys.disabled():
        print("\n" + line, end="")

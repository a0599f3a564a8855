"""Mel spectrograms: golden values of the published model, agreement with librosa, frame counts, and inversion."""

from pathlib import Path

import attrs
import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import CODEC, CONDITIONING, SPEAKER, MelSpec, filterbank, frame_count, log_mel, mel, window
from xtts.recipe.schema import AudioSection

GOLDEN = load_file(str(Path(__file__).parents[1] / "golden" / "features.safetensors"))  # as PyTorch computes them
WAVE = GOLDEN["wav22k"][0]

specs = st.builds(
    lambda n_fft, window, hop, n_mels, scale, norm: MelSpec(
        n_fft=n_fft,
        win_length=max(64, int(n_fft * window)),
        hop_length=hop,
        n_mels=n_mels,
        scale=scale,
        norm=norm,
    ),
    n_fft=st.integers(64, 1500),
    window=st.floats(0.3, 1),
    hop=st.integers(16, 400),
    n_mels=st.integers(1, 100),
    scale=st.sampled_from(["htk", "slaney"]),
    norm=st.sampled_from(["slaney", None]),
)


def voice(seconds: float) -> np.ndarray:
    """A synthetic gliding voice with pauses and a little noise, at the codec's sample rate."""
    at = np.arange(int(seconds * CODEC.sample_rate)) / CODEC.sample_rate
    turns = np.cumsum(140 + 40 * np.sin(2 * np.pi * at)) / CODEC.sample_rate
    tones = sum(np.sin(2 * np.pi * n * turns + n) / n for n in range(1, 25))
    hiss = np.random.default_rng(1).standard_normal(len(at))
    return (0.2 * tones * np.sin(4 * at) ** 2 + 0.005 * hiss).astype(np.float32)


def by_librosa(wave: np.ndarray, spec: MelSpec) -> np.ndarray:
    return librosa.feature.melspectrogram(
        y=wave,
        sr=spec.sample_rate,
        n_fft=spec.n_fft,
        win_length=spec.win_length,
        hop_length=spec.hop_length,
        window=spec.window,
        pad_mode="reflect",
        power=spec.power,
        n_mels=spec.n_mels,
        fmin=spec.fmin,
        fmax=spec.fmax,
        htk=spec.scale == "htk",
        norm=spec.norm,
    ).T


@pytest.mark.parametrize(("name", "spec"), [("codec_mel", CODEC), ("conditioning_mel", CONDITIONING)])
def test_log_mels_match_the_published_model(name: str, spec: MelSpec) -> None:
    """The codec's and the conditioning log mels match PyTorch's within 1e-3."""
    np.testing.assert_allclose(log_mel(WAVE, spec), GOLDEN[name][0].T, atol=1e-3, rtol=0)


def test_speaker_mels_match_the_published_model() -> None:
    """The speaker encoder's mel, in the logarithm that the encoder takes, matches PyTorch's within 1e-3."""
    found, golden = mel(WAVE, SPEAKER), GOLDEN["speaker_mel"][0].T
    np.testing.assert_allclose(np.log(found + 1e-6), np.log(golden + 1e-6), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "spec",
    [
        attrs.evolve(CODEC, scale="slaney"),
        attrs.evolve(CODEC, norm=None, n_mels=3),
        attrs.evolve(CODEC, n_fft=1001, win_length=700, hop_length=300, window="hamming"),
        attrs.evolve(CODEC, power=1.0, fmin=300.0, fmax=11025.0),
        attrs.evolve(CODEC, n_fft=4096, win_length=4096, hop_length=1024),  # conditioning of XTTS-v1
    ],
)
def test_other_settings_match_librosa(spec: MelSpec) -> None:
    """Mel scale, filter normalisation, window, power and frequency range mean what they mean in librosa."""
    found, expected = mel(WAVE, spec), by_librosa(WAVE, spec)
    np.testing.assert_allclose(np.log(found + 1e-6), np.log(expected + 1e-6), atol=1e-3, rtol=0)


@settings(max_examples=50, deadline=None)
@given(spec=specs, samples=st.integers(1, 6000))
def test_the_number_of_frames_is_known_in_advance(spec: MelSpec, samples: int) -> None:
    """`frame_count` predicts the number of mel frames for any setting and any wave, however short."""
    found = mel(WAVE[:samples], spec)
    assert found.dtype == np.float32
    assert found.shape == (frame_count(samples, spec), spec.n_mels)
    assert (found >= 0).all()


@pytest.mark.filterwarnings("ignore:Empty filters")
@settings(max_examples=25, deadline=None)
@given(spec=specs)
def test_the_filterbank_matches_librosa(spec: MelSpec) -> None:
    """For every setting the mel filters are librosa's."""
    expected = librosa.filters.mel(
        sr=spec.sample_rate,
        n_fft=spec.n_fft,
        n_mels=spec.n_mels,
        fmin=spec.fmin,
        fmax=spec.fmax,
        htk=spec.scale == "htk",
        norm=spec.norm,
    )
    np.testing.assert_allclose(filterbank(spec), expected.T, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(spec=specs, frame=st.integers(0, 30), samples=st.integers(1, 4000))
def test_a_frame_is_the_transform_of_its_window(spec: MelSpec, frame: int, samples: int) -> None:
    """Each frame matches its definition in double precision, with the wave reflected as often as padding needs."""
    wave = WAVE[9000 : 9000 + samples]
    frame = min(frame, frame_count(samples, spec) - 1)
    left = (spec.n_fft - spec.win_length) // 2
    shape = np.zeros(spec.n_fft)
    shape[left : left + spec.win_length] = window(spec)
    padded = np.pad(wave.astype(np.float64), spec.n_fft // 2, mode="reflect")
    piece = padded[frame * spec.hop_length :][: spec.n_fft] * shape
    expected = np.abs(np.fft.rfft(piece)) ** 2 @ filterbank(spec)
    np.testing.assert_allclose(mel(wave, spec)[frame], expected, rtol=1e-3, atol=1e-6)


def test_long_waves_have_no_seams() -> None:
    """A frame far into a long wave, which is processed in blocks, matches that of its neighbourhood alone."""
    wave = voice(8)
    whole, part = mel(wave, CODEC), mel(wave[100 * 256 : 500 * 256], CODEC)
    np.testing.assert_allclose(part[4:-4], whole[104:497], rtol=1e-4, atol=1e-6)


def test_mel_norms_divide_the_log_mel() -> None:
    """A checkpoint's mel norms divide each channel of the log mel."""
    stats = np.linspace(1, 3, 80, dtype=np.float32)
    np.testing.assert_allclose(log_mel(WAVE, CODEC, stats) * stats, log_mel(WAVE, CODEC), atol=1e-5)


def test_silence_is_clamped_to_the_floor() -> None:
    """Silence gives log(1e-5), not minus infinity."""
    np.testing.assert_allclose(log_mel(np.zeros(2000, np.float32), CODEC), np.log(1e-5), rtol=1e-6)


def test_recipe_defaults_are_the_codecs_mel() -> None:
    """The audio section's defaults give the codec's mel, and its settings change it."""
    assert MelSpec.of(AudioSection()) == CODEC
    assert MelSpec.of(AudioSection(hop_length=300, n_mels=100)) == attrs.evolve(CODEC, hop_length=300, n_mels=100)


@pytest.mark.parametrize("wave", [np.zeros(0, np.float32), np.zeros((2, 100), np.float32)])
def test_an_array_that_is_not_a_wave_is_refused(wave: np.ndarray) -> None:
    """An empty array and a batch of waves are both refused."""
    with pytest.raises(ValueError, match="a wave is"):
        mel(wave, CODEC)


def test_griffin_lim_reproduces_the_mel() -> None:
    """The mel of the reconstructed wave is within 0.25 in the logarithm where it is loud, and iterations help."""
    logs = log_mel(voice(2), CODEC)

    def error(iterations: int) -> float:
        wave = griffin_lim(logs, CODEC, iterations)
        assert wave.dtype == np.float32
        assert len(wave) == (len(logs) - 1) * CODEC.hop_length
        return float(np.abs(log_mel(wave, CODEC) - logs)[logs > -6].mean())

    assert error(32) < 0.25
    assert error(32) < error(8) < error(0) / 2


@pytest.mark.parametrize(
    "spec", [CONDITIONING, attrs.evolve(CODEC, n_fft=1001, win_length=999, hop_length=250)], ids=["padded", "odd"]
)
def test_griffin_lim_supports_other_windows(spec: MelSpec) -> None:
    """Windows shorter than the transform, and hops that do not divide them, can be inverted too."""
    logs = log_mel(voice(1), spec)
    found = log_mel(griffin_lim(logs, spec), spec)[: len(logs)]
    assert np.abs(found - logs[: len(found)])[logs[: len(found)] > -6].mean() < 0.3


def test_griffin_lim_preserves_pitch_and_level() -> None:
    """A tone is reconstructed at the same pitch and level."""
    at = np.arange(22050) / 22050
    tone = 0.5 * np.sin(2 * np.pi * 440 * at).astype(np.float32)
    back = griffin_lim(log_mel(tone, CODEC), CODEC)[4000:-4000]
    spectrum = np.abs(np.fft.rfft(back * np.hanning(len(back))))
    assert spectrum.argmax() * 22050 / len(back) == pytest.approx(440, abs=25)  # a channel is 30 Hz wide there
    assert np.sqrt((back**2).mean()) == pytest.approx(0.5 / np.sqrt(2), rel=0.2)


def test_griffin_lim_is_deterministic_for_a_seed() -> None:
    """The same seed gives the same wave bit for bit, another seed a different one; mel norms are multiplied back."""
    logs = log_mel(voice(0.5), CODEC)
    first = griffin_lim(logs, CODEC, 4, seed=1)
    np.testing.assert_array_equal(first, griffin_lim(logs, CODEC, 4, seed=1))
    assert np.abs(first - griffin_lim(logs, CODEC, 4, seed=2)).max() > 0.01
    halves = np.full(80, 2, np.float32)
    np.testing.assert_array_equal(first, griffin_lim(logs / halves, CODEC, 4, mel_norms=halves, seed=1))


def test_griffin_lim_refuses_a_mel_it_cannot_invert() -> None:
    """The speaker mel, which is pre-emphasised, cannot be inverted."""
    with pytest.raises(ValueError, match="pre-emphasis"):
        griffin_lim(np.zeros((10, 64), np.float32), SPEAKER)

"""Mel-cepstral distortion, dynamic time warping and pitch, against values computed by hand."""

import itertools

import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

from xtts.evaluation.metrics import (
    CEPSTRA,
    DECIBELS,
    cepstra,
    dynamic_time_warping,
    mel_cepstral_distortion,
    pitch_track,
)

RANDOM = np.random.default_rng(4)


def spectra(frames, channels=80):
    return RANDOM.normal(size=(frames, channels)) * 2 - 5


def test_a_single_cepstral_difference_gives_its_distortion():
    """A cosine of height a over n channels, in every frame, is a / sqrt(2) nepers of energy, here in decibels."""
    n, height = 80, 0.7
    wave = height * np.cos(np.pi * 5 * (np.arange(n) + 0.5) / n)
    mel = spectra(6, n)
    assert mel_cepstral_distortion(mel, mel + wave) == pytest.approx(10 / np.log(10) * height / np.sqrt(2))


def test_level_is_ignored():
    """The same speech at another level has no distortion."""
    mel = spectra(5)
    assert mel_cepstral_distortion(mel, mel + 3.0) == pytest.approx(0.0, abs=1e-9)


def test_with_every_cepstrum_it_is_the_root_mean_square_of_the_spectra():
    """With no more channels than cepstra, nothing is smoothed."""
    ours, theirs = spectra(7, CEPSTRA + 1), spectra(7, CEPSTRA + 1)
    apart = ours - theirs
    apart -= apart.mean(axis=1, keepdims=True)
    assert mel_cepstral_distortion(ours, theirs) == pytest.approx(float((DECIBELS * apart.std(axis=1)).mean()))


def test_cepstra_are_few_and_without_the_level():
    """The shape is [frames, CEPSTRA], without the level and without finer detail."""
    n = 80
    fine = np.cos(np.pi * (CEPSTRA + 1) * (np.arange(n) + 0.5) / n)
    assert np.abs(cepstra(fine[None])).max() < 1e-9
    assert cepstra(spectra(3)).shape == (3, CEPSTRA)
    assert cepstra(np.ones((1, n))) == pytest.approx(0.0, abs=1e-9)


def test_speech_at_another_rate_is_not_distorted():
    """Repeated frames are aligned without distortion; different frames are not."""
    mel = spectra(12)
    assert mel_cepstral_distortion(np.repeat(mel, 2, axis=0), mel) == pytest.approx(0.0, abs=1e-5)
    assert mel_cepstral_distortion(spectra(24), mel) > 1.0


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_no_path_is_cheaper_than_the_one_found(rows, columns, seed):
    """Every warping path through a small matrix is tried."""
    costs = np.random.default_rng(seed).random((rows, columns))
    total, cells = dynamic_time_warping(costs)

    def ways(row, column):
        if (row, column) == (0, 0):
            return [[costs[0, 0]]]
        before = [(row - 1, column), (row, column - 1), (row - 1, column - 1)]
        return [[*way, costs[row, column]] for at in before if min(at) >= 0 for way in ways(*at)]

    found = {(round(sum(way), 9), len(way)) for way in ways(rows - 1, columns - 1)}
    assert (round(total, 9), cells) in found
    assert total == pytest.approx(min(cost for cost, _ in found))


@pytest.mark.parametrize("hertz", [75, 120, 210, 330])
def test_the_pitch_of_a_buzz_is_found(hertz):
    """The pitch of a harmonic sound is found within two per cent, at other sample rates, too."""
    for rate in (16000, 22050):
        time = np.arange(rate) / rate
        overtones = range(1, int(4000 / hertz))
        wave = sum(np.sin(2 * np.pi * hertz * n * time + n * n) / n for n in overtones)
        assert np.median(pitch_track(wave, rate)) == pytest.approx(hertz, rel=0.02)


def test_noise_and_silence_have_no_pitch():
    """Hardly any frame of noise is voiced, none of silence, and none of a wave shorter than a frame."""
    assert len(pitch_track(RANDOM.normal(size=16000), 16000)) < 5
    assert len(pitch_track(np.zeros(16000), 16000)) == 0
    assert len(pitch_track(np.ones(10), 16000)) == 0


def test_cepstra_have_the_usual_order():
    """The k-th cepstrum is that of a cosine with k half periods over all channels, as in scipy's DCT."""
    for k, n in itertools.product((1, 2, 10), (40, 80)):
        wave = np.cos(np.pi * k * (np.arange(n) + 0.5) / n)
        assert np.abs(cepstra(wave[None])[0]).argmax() == k - 1
        assert np.abs(scipy.fft.dct(wave, norm="ortho")).argmax() == k

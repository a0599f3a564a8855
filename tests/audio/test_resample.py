"""The windowed sinc that references of published weights are resampled by."""

import numpy as np
import pytest
from published import EVERY, golden

from xtts.audio.resample import resample_sinc

WAVES = golden("resample")


@pytest.mark.parametrize("rates", sorted({key.rsplit("/", 1)[0] for key in WAVES}))
def test_it_gives_the_numbers_of_torchaudio(rates):
    """Between rates with a large common divisor and without one."""
    source, target = map(int, rates.split("/"))
    found = resample_sinc(WAVES[f"{rates}/from"], source, target)
    assert found.dtype == np.float32
    assert len(found) == -(-len(WAVES[f"{rates}/from"]) * target // source)
    assert np.abs(found[::EVERY] - WAVES[f"{rates}/to_every_8th"]).max() < 1e-6


def test_the_same_rate_is_the_same_wave():
    """Nothing is filtered."""
    wave = np.arange(5, dtype=np.float32)
    assert (resample_sinc(wave, 22050, 22050) == wave).all()


@pytest.mark.parametrize("count", [1, 2, 30])
def test_very_short_waves_are_resampled(count):
    """The length is rounded up."""
    assert len(resample_sinc(np.ones(count, np.float32), 22050, 16000)) == -(-count * 16000 // 22050)

"""Codes to sound: heard in pieces it is what is heard as a whole."""

import numpy as np
import pytest
from recorded_codec import SPEC, Recorded, heard
from speakers import make_run, reference

from xtts.audio import wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import log_mel
from xtts.inference import synthesizer
from xtts.inference.generation import GeneratedCodes
from xtts.inference.vocoder import fade_edges, make_vocoder


@pytest.mark.parametrize("speed", [1.0, 0.8, 1.7])
def test_griffin_lim_goes_on_without_a_click(tmp_path, speed):
    """As long as the whole, no jump at a seam is larger than the whole has, and its mel is as near."""
    model = Recorded(reference(tmp_path / "voice.wav", 3.0))
    whole, _ = heard(model, speed)
    joined, seams = heard(model, speed, 16, 20, 45)
    assert len(joined) == len(whole)
    jumps = np.abs(np.diff(joined))
    for seam in seams:
        assert jumps[max(0, seam - 300) : seam + 300].max() <= np.abs(np.diff(whole)).max()
    target = log_mel(whole, SPEC)
    assert np.abs(log_mel(joined, SPEC) - target).mean() < 0.5


def test_griffin_lim_begins_with_what_is_known(tmp_path):
    """The known samples stay, and the rest fits them better than a wave that was found without them."""
    wave = wav.load_audio(reference(tmp_path / "voice.wav"), SPEC.sample_rate)
    mel, count = log_mel(wave, SPEC), 8192
    found = griffin_lim(mel, SPEC, known=wave[:count])
    assert (found[:count] == wave[:count]).all()
    other = griffin_lim(mel, SPEC)
    near = slice(count, count + 512)
    assert np.abs(found[near] - wave[near]).mean() < 0.5 * np.abs(other[near] - wave[near]).mean()


@pytest.fixture(scope="module")
def decoding(tmp_path_factory):
    """A speaker with a waveform decoder, and its voice."""
    root = tmp_path_factory.mktemp("decoding")
    speaker = synthesizer.Synthesizer.load(make_run(root / "run", ("gpt", "codec", "speaker", "decoder")))
    return speaker, speaker.voice(reference(root / "voice.wav"))


@pytest.mark.parametrize("speed", [1.0, 0.6])
def test_the_waveform_decoder_gives_the_same_wave_in_pieces(decoding, speed):
    """To a hundred thousandth of full scale, at any speed."""
    speaker, voice = decoding
    latents = np.random.default_rng(0).standard_normal((60, speaker.model.gpt.size.width)).astype(np.float32)
    codes = np.zeros(60, np.int32)

    def made(*ends):
        render = make_vocoder(speaker.model, speaker.synthesis, voice, speed)
        parts = [GeneratedCodes(codes[:end], latents[:end], is_last=end == 60) for end in (*ends, 60)]
        return np.concatenate([render.add(part) for part in parts])

    whole = made()
    assert np.abs(whole).max() > 0.01
    if speed == 1:
        assert len(whole) == speaker.model.decoder.samples(60)
    joined = made(3, 17, 30, 59)
    assert len(joined) == len(whole)
    assert np.abs(joined - whole).max() < 1e-5


def test_nothing_has_no_sound(decoding, tmp_path):
    """A sentence without a code is empty, by either way."""
    speaker, voice = decoding
    none = GeneratedCodes(np.zeros(0, np.int32), np.zeros((0, speaker.model.gpt.size.width), np.float32))
    assert len(make_vocoder(speaker.model, speaker.synthesis, voice, 1.0).add(none)) == 0
    model = Recorded(reference(tmp_path / "voice.wav"))
    assert len(make_vocoder(model, model, None, 1.0).add(none)) == 0


def test_a_sentence_rises_from_silence_and_falls_to_it():
    """The first and the last samples are 0, those between as they were."""
    wave = np.ones(1000, np.float32)
    found = fade_edges(wave, 22050, is_first=True, is_last=True)
    assert found[0] == found[-1] == 0
    assert (found[200:-200] == 1).all()
    assert (fade_edges(wave, 22050, is_first=False, is_last=False) == 1).all()

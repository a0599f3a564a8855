"""Vocoders: audio made in pieces equals audio made as a whole."""

import numpy as np
import pytest
from recorded_codec import SPEC, Recorded, make_wave
from speakers import make_run, reference

from xtts.audio import wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import log_mel
from xtts.inference import synthesizer
from xtts.inference.generation import GeneratedCodes
from xtts.inference.sound import SOUNDS, choose_sound
from xtts.inference.vocoder import fade_edges, make_vocoder


@pytest.mark.parametrize("speed", [1.0, 0.8, 1.7])
def test_griffin_lim_in_pieces_has_no_clicks(tmp_path, speed):
    """The joined wave has the same length, no larger jumps at its seams, and as accurate a mel."""
    model = Recorded(reference(tmp_path / "voice.wav", 3.0))
    whole, _ = make_wave(model, speed)
    joined, seams = make_wave(model, speed, 16, 20, 45)
    assert len(joined) == len(whole)
    jumps = np.abs(np.diff(joined))
    for seam in seams:
        assert jumps[max(0, seam - 300) : seam + 300].max() <= np.abs(np.diff(whole)).max()
    target = log_mel(whole, SPEC)
    assert np.abs(log_mel(joined, SPEC) - target).mean() < 0.5


def test_griffin_lim_continues_from_known_samples(tmp_path):
    """Known samples are kept, and the rest continues them better than a wave made without them."""
    wave = wav.load_audio(reference(tmp_path / "voice.wav"), SPEC.sample_rate)
    mel, count = log_mel(wave, SPEC), 8192
    found = griffin_lim(mel, SPEC, known=wave[:count])
    assert (found[:count] == wave[:count]).all()
    other = griffin_lim(mel, SPEC)
    near = slice(count, count + 512)
    assert np.abs(found[near] - wave[near]).mean() < 0.5 * np.abs(other[near] - wave[near]).mean()


@pytest.fixture(scope="module")
def decoding(tmp_path_factory):
    """A synthesizer with a waveform decoder, and its voice."""
    root = tmp_path_factory.mktemp("decoding")
    speaker = synthesizer.Synthesizer.load(make_run(root / "run", ("gpt", "codec", "speaker", "decoder")))
    return speaker, speaker.voice(reference(root / "voice.wav"))


@pytest.mark.parametrize("speed", [1.0, 0.6])
def test_the_waveform_decoder_gives_the_same_wave_in_pieces(decoding, speed):
    """The waves agree within 1e-5 of full scale at any speed."""
    speaker, voice = decoding
    latents = np.random.default_rng(0).standard_normal((60, speaker.model.gpt.size.width)).astype(np.float32)
    codes = np.zeros(60, np.int32)

    def made(*ends):
        render = make_vocoder(speaker.model, speaker.generator, voice, speed, SOUNDS["xtts"])
        parts = [GeneratedCodes(codes[:end], latents[:end], is_last=end == 60) for end in (*ends, 60)]
        return np.concatenate([render.add(part) for part in parts])

    whole = made()
    assert np.abs(whole).max() > 0.01
    if speed == 1:
        assert len(whole) == speaker.model.decoder.samples(60)
    joined = made(3, 17, 30, 59)
    assert len(joined) == len(whole)
    assert np.abs(joined - whole).max() < 1e-5


def test_no_codes_give_no_samples(decoding, tmp_path):
    """A sentence without codes is empty with either vocoder."""
    speaker, voice = decoding
    none = GeneratedCodes(np.zeros(0, np.int32), np.zeros((0, speaker.model.gpt.size.width), np.float32))
    for sound in (SOUNDS["xtts"], SOUNDS["published"], choose_sound("published", overlap=1024)):
        assert len(make_vocoder(speaker.model, speaker.generator, voice, 1.0, sound).add(none)) == 0
    model = Recorded(reference(tmp_path / "voice.wav"))
    assert len(make_vocoder(model, model, None, 1.0, SOUNDS["xtts"]).add(none)) == 0


def test_a_sentence_is_faded_in_and_out():
    """The first and last samples are 0, and those between are unchanged."""
    wave = np.ones(1000, np.float32)
    found = fade_edges(wave, 22050, 0.005, is_first=True, is_last=True)
    assert found[0] == found[-1] == 0
    assert (found[200:-200] == 1).all()
    assert (fade_edges(wave, 22050, 0.005, is_first=False, is_last=False) == 1).all()

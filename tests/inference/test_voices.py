"""Voices: recordings that can be used, those that cannot, and files of voices."""

import numpy as np
import pytest
from recordings import record
from speakers import reference

from xtts.inference import voices
from xtts.inference.voices import Voice, VoiceError
from xtts.weights import safetensors_file

RATE = 22050


def silent(_line):
    raise AssertionError(_line)


def test_channels_are_mixed(tmp_path):
    """A stereo recording is the same voice as a mono one, without a word."""
    mono = voices.load_reference(reference(tmp_path / "mono.wav"), RATE, silent)
    stereo = voices.load_reference(reference(tmp_path / "stereo.wav", channels=2), RATE, silent)
    assert np.allclose(mono, stereo, atol=1e-4)


def test_a_narrow_recording_is_resampled_and_told(tmp_path):
    """8 kHz will do, and what it lacks is said."""
    notes = []
    wave = voices.load_reference(reference(tmp_path / "phone.wav", rate=8000), RATE, notes.append)
    assert len(wave) == RATE
    assert "phone.wav: note: its sample rate is 8,000 Hz" in notes[0]
    assert "4,000 Hz" in notes[0]


def test_only_the_first_half_minute_is_heard(tmp_path):
    """As the published model hears it."""
    assert (
        len(voices.load_reference(reference(tmp_path / "long.wav", seconds=40, rate=8000), 8000, silent)) == 30 * 8000
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path, "there is no such file; correct the path"),
        (lambda path: record(path, np.zeros(RATE, np.float32)), "silent"),
        (lambda path: reference(path, seconds=0.2), "0.20 s are too short for a voice"),
        (lambda path: path.write_text("hello"), "soundfile cannot read it"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.mkdir(), "this is a folder"),
    ],
    ids=["missing", "silent", "short", "no audio", "empty", "folder"],
)
def test_a_recording_without_a_voice_is_a_sentence(tmp_path, make, words):
    """It names the file, and the clip is not to be left out: there is no other."""
    make(tmp_path / "x.wav")
    with pytest.raises(VoiceError, match=words) as error:
        voices.load_reference(tmp_path / "x.wav", RATE, silent)
    assert str(tmp_path / "x.wav") in str(error.value)
    assert "leave the clip out" not in str(error.value)


@pytest.mark.parametrize("length", [7, 10, 11, 25, 30])
def test_cuts_hear_all_of_a_wave(length):
    """Every sample is in a cut, and a short wave is repeated."""
    wave = np.arange(1, length + 1, dtype=np.float32)
    found = voices.split_reference(wave, 10)
    assert found.shape == (-(-length // 10), 10)
    assert set(found.ravel()) == set(wave)


def test_a_voice_comes_back(tmp_path):
    """Bit for bit, with its name and its model."""
    random = np.random.default_rng(0)
    voice = Voice(random.random((32, 8)).astype(np.float32), random.random(4).astype(np.float32), "abc", "Sara")
    voices.write_voice(tmp_path / "sara.safetensors", voice)
    found = voices.read_voice(tmp_path / "sara.safetensors")
    assert (found.conditioning_latents == voice.conditioning_latents).all()
    assert (found.speaker_embedding == voice.speaker_embedding).all()
    assert (found.model, found.name) == ("abc", "Sara")


def test_a_file_that_is_no_voice_is_refused(tmp_path):
    """Weights are not a voice, and a voice is not written under another ending or into nowhere."""
    safetensors_file.write_safetensors(tmp_path / "weights.safetensors", {"style": np.zeros(3, np.float32)})
    with pytest.raises(VoiceError, match="this is not a voice file"):
        voices.read_voice(tmp_path / "weights.safetensors")
    voice = Voice(np.zeros((32, 8), np.float32), None, "abc")
    with pytest.raises(VoiceError, match=r"ends in \.safetensors"):
        voices.write_voice(tmp_path / "voice.wav", voice)
    with pytest.raises(VoiceError, match="there is no folder"):
        voices.write_voice(tmp_path / "nowhere" / "voice.safetensors", voice)

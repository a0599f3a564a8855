"""Reference voices: usable and unusable recordings, and voice files."""

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
    """A stereo recording gives the same voice as a mono one, without a note."""
    mono = voices.load_reference(reference(tmp_path / "mono.wav"), RATE, silent)
    stereo = voices.load_reference(reference(tmp_path / "stereo.wav", channels=2), RATE, silent)
    assert np.allclose(mono, stereo, atol=1e-4)


def test_a_narrowband_recording_is_resampled_with_a_note(tmp_path):
    """An 8 kHz recording is accepted, with a note about the missing bandwidth."""
    notes = []
    wave = voices.load_reference(reference(tmp_path / "phone.wav", rate=8000), RATE, notes.append)
    assert len(wave) == RATE
    assert "phone.wav: note: its sample rate is 8,000 Hz" in notes[0]
    assert "4,000 Hz" in notes[0]


def test_only_the_first_30_seconds_are_used(tmp_path):
    """This is the limit of the published model."""
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
def test_a_recording_without_a_voice_is_refused(tmp_path, make, words):
    """The error names the file and does not suggest leaving the clip out, as there is no other."""
    make(tmp_path / "x.wav")
    with pytest.raises(VoiceError, match=words) as error:
        voices.load_reference(tmp_path / "x.wav", RATE, silent)
    assert str(tmp_path / "x.wav") in str(error.value)
    assert "leave the clip out" not in str(error.value)


@pytest.mark.parametrize("length", [7, 10, 11, 25, 30])
def test_crops_cover_the_whole_wave(length):
    """Every sample is in a crop, and a short wave is repeated."""
    wave = np.arange(1, length + 1, dtype=np.float32)
    found = voices.split_reference(wave, 10)
    assert found.shape == (-(-length // 10), 10)
    assert set(found.ravel()) == set(wave)


def test_a_saved_voice_is_loaded_unchanged(tmp_path):
    """The arrays are equal bit for bit, with the voice's name and model."""
    random = np.random.default_rng(0)
    voice = Voice(random.random((32, 8)).astype(np.float32), random.random(4).astype(np.float32), "abc", "Sara")
    voices.write_voice(tmp_path / "sara.safetensors", voice)
    found = voices.read_voice(tmp_path / "sara.safetensors")
    assert (found.conditioning_latents == voice.conditioning_latents).all()
    assert (found.speaker_embedding == voice.speaker_embedding).all()
    assert (found.model, found.name) == ("abc", "Sara")


def test_a_file_that_is_not_a_voice_is_refused(tmp_path):
    """Weights are refused as a voice, and so is writing under another suffix or into a missing folder."""
    safetensors_file.write_safetensors(tmp_path / "weights.safetensors", {"style": np.zeros(3, np.float32)})
    with pytest.raises(VoiceError, match="this is not a voice file"):
        voices.read_voice(tmp_path / "weights.safetensors")
    voice = Voice(np.zeros((32, 8), np.float32), None, "abc")
    with pytest.raises(VoiceError, match=r"ends in \.safetensors"):
        voices.write_voice(tmp_path / "voice.wav", voice)
    with pytest.raises(VoiceError, match="there is no folder"):
        voices.write_voice(tmp_path / "nowhere" / "voice.safetensors", voice)

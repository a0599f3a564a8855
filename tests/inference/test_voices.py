"""Voice files."""

import numpy as np
import pytest

from xtts.inference import voices
from xtts.inference.references import VoiceError
from xtts.inference.voices import Voice
from xtts.weights import safetensors_file


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

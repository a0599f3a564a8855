"""Studio voices: from a published speakers_xtts.pth into the folder of an import."""

import numpy as np
import pytest
from published import GOLDEN
from small import SMALL

from xtts.commands import main
from xtts.weights import voice_files
from xtts.weights.layout import ModelDescription
from xtts.weights.safetensors_file import WeightsError
from xtts.weights.voice_files import STUDIO, VoiceTensors

WIDTH, SPEAKER = SMALL.gpt.width, SMALL.speaker.width
MODEL = ModelDescription(SMALL, 30)


def voice(**changes):
    latents, vector = np.zeros((1, 32, WIDTH), np.float32), np.zeros((1, SPEAKER, 1), np.float32)
    return {"gpt_cond_latent": latents, "speaker_embedding": vector, **changes}


@pytest.fixture
def read(monkeypatch):
    """`read(content)` reads a file with this content."""

    def read_content(content):
        monkeypatch.setattr("xtts.weights.torch_file.load_torch_file", lambda path: content)
        return voice_files.read_studio_voices("speakers.pth", MODEL)

    return read_content


def test_an_import_brings_the_studio_voices(tmp_path, capsys):
    """Each is a voice file of its name."""
    folder, flags = tmp_path / "v2", ["--speakers", str(GOLDEN / "speakers_xtts.pth")]
    assert main.main(["import", str(GOLDEN / "model.pth"), str(folder), *flags]) == 0
    assert "2 studio voices; speak in one with --voice NAME" in capsys.readouterr().out
    paths = sorted((folder / "voices").iterdir())
    assert [path.name for path in paths] == ["Alva Thorne.safetensors", "Brint Maro.safetensors"]
    found = voice_files.read_voice_file(paths[0])
    assert (found.name, found.model) == ("Alva Thorne", STUDIO)
    assert found.conditioning_latents.shape == (32, 48)
    assert found.speaker_embedding.shape == (512,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "there are no named voices in it"),
        ([1], "there are no named voices in it"),
        ({"model": np.zeros(3)}, "there are no named voices in it"),
        ({"Ann": {}}, "the voice 'Ann' has no tensor gpt_cond_latent"),
        ({"Ann": voice(speaker_embedding="x")}, "the voice 'Ann' has no tensor speaker_embedding"),
        ({"Ann": voice(gpt_cond_latent=np.zeros((1, 32, 3)))}, r"is \[1, 32, 3\], but these weights need \[1, 32, "),
        ({"Ann": voice(speaker_embedding=np.full((1, SPEAKER, 1), np.nan))}, "contains NaN or infinity"),
    ],
)
def test_a_file_without_usable_voices_is_refused(read, content, words):
    """The error names the file, the voice and the tensor."""
    with pytest.raises(WeightsError, match=f"speakers.pth: .*{words}"):
        read(content)


def test_names_become_names_of_files(tmp_path):
    """Characters that a file's name cannot have are replaced; two voices are not written to one file."""
    latents, vector = np.zeros((32, WIDTH), np.float32), np.zeros(SPEAKER, np.float32)
    every = [VoiceTensors(latents, vector, STUDIO, name) for name in ("a/b", "..", "Zoë")]
    voice_files.write_studio_voices(tmp_path, every)
    names = sorted(path.name for path in (tmp_path / "voices").iterdir())
    assert names == ["Zoë.safetensors", "a-b.safetensors", "voice.safetensors"]
    with pytest.raises(WeightsError, match="the voices 'a/b' and 'a:b' would have the same file"):
        voice_files.write_studio_voices(tmp_path, [*every, VoiceTensors(latents, vector, STUDIO, "a:b")])

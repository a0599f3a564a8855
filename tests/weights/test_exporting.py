"""Folders for coqui-tts: every file as published, and what cannot be loaded there is refused."""

import json
import shutil

import attrs
import numpy as np
import pytest
from published import GOLDEN, import_published

from xtts import api
from xtts.commands import main
from xtts.weights import importing, model_folder, safetensors_file
from xtts.weights.exporting import export_for_coqui
from xtts.weights.safetensors_file import WeightsError
from xtts.weights.torch_file import load_torch_file

FILES = ["config.json", "dvae.pth", "mel_stats.pth", "model.pth", "vocab.json"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "model"
    import_published(folder)
    return folder


@pytest.fixture
def copied(imported, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(str(imported), str(tmp_path / "copy")) and tmp_path / "copy"


def assert_same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert found[name].tobytes() == tensor.tobytes(), name


def test_a_published_model_is_written_as_it_was_published(imported, tmp_path, capsys):
    """After import and export each tensor is in its file under its name, bit for bit, and so is the vocabulary."""
    assert main.main(["export", str(imported), "--coqui", str(tmp_path / "out")]) == 0
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == FILES
    found = load_torch_file(tmp_path / "out" / "model.pth")
    published = load_torch_file(GOLDEN / "model.pth")["model"]
    kept = {name: tensor for name, tensor in published.items() if importing.published_name(name)}
    assert_same(found["model"], kept)
    assert_same(load_torch_file(tmp_path / "out" / "dvae.pth"), load_torch_file(GOLDEN / "dvae.pth"))
    norms = load_torch_file(GOLDEN / "mel_stats.pth")
    np.testing.assert_array_equal(load_torch_file(tmp_path / "out" / "mel_stats.pth"), norms)
    assert (tmp_path / "out" / "vocab.json").read_bytes() == (GOLDEN / "vocab.json").read_bytes()


def test_the_config_states_what_the_published_one_does(imported, tmp_path):
    """Sizes, tokens, sample rates, languages and how to speak; the checkpoint holds the same config."""
    api.export(imported, tmp_path / "out", for_coqui=True)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    published = json.loads((GOLDEN / "config.json").read_text(encoding="utf-8"))
    assert {name: published["model_args"][name] for name in config["model_args"]} == config["model_args"]
    others = [name for name in config if name not in ("model_args", "run_name")]
    assert {name: config[name] for name in others} == {name: published[name] for name in others}
    assert load_torch_file(tmp_path / "out" / "model.pth")["config"] == config


def test_an_exported_folder_can_be_imported_again(imported, tmp_path):
    """The second folder equals the first."""
    export_for_coqui(imported, tmp_path / "out")
    files = {name: tmp_path / "out" / file for name, file in (("dvae", "dvae.pth"), ("vocab", "vocab.json"))}
    files.update(mel_norms=tmp_path / "out" / "mel_stats.pth", config=tmp_path / "out" / "config.json")
    importing.import_checkpoint(tmp_path / "out" / "model.pth", tmp_path / "again", **files)
    for path in imported.iterdir():
        if path.is_file():
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_settings_and_studio_voices_come_along(copied, tmp_path):
    """How the model speaks goes into config.json, and its studio voices into speakers_xtts.pth, but not a user's."""
    (copied / "speaking.json").write_text(json.dumps({"temperature": 0.6, "gpt_cond_len": 12}), encoding="utf-8")
    random = np.random.default_rng(0)
    tensors = {"style": random.standard_normal((32, 48)).astype(np.float32), "speaker": np.ones(512, np.float32)}
    for name, model in (("Alva Thorne", "published"), ("mine", "0123456789abcdef")):
        metadata = {"kind": "xtts voice", "name": name, "model": model}
        safetensors_file.write_safetensors(copied / "voices" / f"{name}.safetensors", tensors, metadata)
    files = export_for_coqui(copied, tmp_path / "out")
    assert [path.name for path in files] == [*FILES[:4], "speakers_xtts.pth", "vocab.json"]
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["temperature"], config["gpt_cond_len"], config["top_k"]) == (0.6, 12, 50)
    speakers = load_torch_file(tmp_path / "out" / "speakers_xtts.pth")
    assert list(speakers) == ["Alva Thorne"]
    np.testing.assert_array_equal(speakers["Alva Thorne"]["gpt_cond_latent"], tensors["style"][None])
    assert speakers["Alva Thorne"]["speaker_embedding"].shape == (1, 512, 1)


def test_what_coqui_tts_cannot_load_is_refused(copied, tmp_path):
    """Without a vocabulary of the model's size, or without a decoder, nothing is written."""
    vocab = (copied / "vocab.json").read_text(encoding="utf-8")
    table = json.loads(vocab)
    table["model"]["vocab"]["one more"] = 9000
    for text, problem in (
        (json.dumps(table), "9,001 tokens, but the model 6,681, .*; import the checkpoint with the vocabulary"),
        ('{"model": {"vocab": {"a": 1}}}', "no vocabulary of XTTS in it; import the checkpoint again"),
        (None, "no vocab.json, with which coqui-tts reads texts; import the checkpoint with --vocab"),
    ):
        (copied / "vocab.json").unlink()
        if text is not None:
            (copied / "vocab.json").write_text(text, encoding="utf-8")
            with pytest.raises(WeightsError, match=problem):
                export_for_coqui(copied, tmp_path / "out")
            continue
        with pytest.raises(WeightsError, match=problem):
            export_for_coqui(copied, tmp_path / "out")
    model, tensors = model_folder.read_model_folder(copied)
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("hifigan_decoder.")}
    model_folder.write_model_folder(tmp_path / "bare", attrs.evolve(model, parts=("gpt", "codec")), own)
    with pytest.raises(
        WeightsError, match=r"needs a decoder and a speaker, .*; export its weights to OUT\.safetensors"
    ):
        export_for_coqui(tmp_path / "bare", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_refused(imported, tmp_path, capsys):
    """Neither a folder with files in it nor two targets at once are accepted."""
    (tmp_path / "file").write_text("mine")
    assert main.main(["export", str(imported), "--coqui", str(tmp_path)]) != 0
    assert "name a folder that is new or empty" in capsys.readouterr().err
    with pytest.raises(WeightsError, match="this exists already; name a folder that is new or empty"):
        export_for_coqui(imported, tmp_path)
    assert (
        main.main(["export", str(imported), "--coqui", str(tmp_path / "a"), "--saved-model", str(tmp_path / "b")]) == 2
    )
    assert "name what to write only once" in capsys.readouterr().err

"""Exported SavedModels: they work without this package and give the same results as the model."""

import json
import subprocess
import sys

import attrs
import numpy as np
import pytest
import tensorflow as tf
from speakers import SIZE, make_run, reference

from xtts.audio import resample, wav
from xtts.commands import main
from xtts.inference import loading
from xtts.inference.generation import Generator
from xtts.inference.references import split_evenly
from xtts.inference.savedmodel import SavedModelError, write_savedmodel
from xtts.model.generation import generate
from xtts.model.sampling import sampling

# What a program does that has TensorFlow and the folder, but not xtts.
PROGRAM = """
import json, sys
sys.modules["xtts"] = None  # importing it would fail
import numpy as np, tensorflow as tf
folder, inputs, outputs = sys.argv[1:]
saved = tf.saved_model.load(folder)  # to be held on to: it owns the weights
call = saved.signatures
about = json.load(open(folder + "/assets.extra/xtts.json"))
given = {name: tf.constant(value) for name, value in np.load(inputs).items()}
how = dict(temperature=tf.constant(about["temperature"]), top_k=tf.constant(50), top_p=tf.constant(0.85),
           repetition_penalty=tf.constant(about["repetition_penalty"]), seed=tf.constant(3))
style = call["voice"](wave=given["wave"])["style"]
said = call["codes_%d" % about["text_sizes"][0]](
    text=given["text"], text_length=given["text_length"], style=style, **how)
speaker = call["speaker"](wave=given["wave_16k"], length=given["length_16k"])["speaker"]
np.savez(outputs, style=style, speaker=speaker, codes=said["codes"], length=said["length"],
         mel=call["mel"](codes=said["codes"], length=said["length"])["mel"],
         wave=call["waveform"](latents=said["latents"], length=said["length"], speaker=speaker)["wave"])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    size = attrs.evolve(SIZE, gpt=attrs.evolve(SIZE.gpt, text_positions=30, audio_positions=30))
    return make_run(tmp_path_factory.mktemp("saved") / "run", ("gpt", "codec", "speaker", "decoder"), 0.0, size)


@pytest.fixture(scope="module")
def saved(run):
    """The folder that `xtts export --saved-model` writes."""
    assert main.main(["export", str(run), "--saved-model", str(run.parent / "saved")]) == 0
    return run.parent / "saved"


def test_a_savedmodel_gives_the_models_results_without_xtts(run, saved, tmp_path):
    """Its conditioning, codes, mel and wave, in a process that cannot import xtts, equal those of the model."""
    model = loading.load_model(run)
    wave = wav.load_audio(reference(tmp_path / "voice.wav"), 22050)
    narrow = resample.resample(wave, 22050, 16000)
    ids = model.tokenizer.encode("good morning", "en")
    given = {
        "wave": split_evenly(wave, model.reference_samples)[:1],
        "wave_16k": np.pad(narrow, (0, 480_000 - len(narrow)))[None],
        "length_16k": np.array([len(narrow)], np.int32),
        "text": np.pad(ids, (0, 30 - len(ids)))[None].astype(np.int32),
        "text_length": np.array([len(ids)], np.int32),
    }
    np.savez(tmp_path / "inputs.npz", **given)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(saved), str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz")],
        cwd=str(tmp_path),
        check=True,
    )
    found = np.load(tmp_path / "outputs.npz")

    style = Generator(model).conditioning_latents(given["wave"])
    assert np.allclose(found["style"][0], style, atol=1e-4)
    text, length = tf.constant(given["text"]), tf.constant(given["text_length"])
    drawn, penalty = sampling(model.speaking.temperature, seeds=3), model.speaking.repetition_penalty
    codes = generate(model.gpt, text, length, tf.constant(style[None]), 27, penalty, drawn.__call__)
    assert found["codes"].tolist() == codes.codes.numpy().tolist()
    assert 0 < found["length"][0] == codes.lengths.numpy()[0]
    count = int(found["length"][0])
    speaker = model.speaker(tf.constant(narrow[None])).numpy()
    assert np.allclose(found["speaker"], speaker, atol=1e-4)
    mel = model.codec.decode(codes.codes[:, :count]).numpy() * model.mel_norms
    assert np.allclose(found["mel"][:, : 4 * count], mel, atol=1e-3)
    sound = model.decoder(codes.latents[:, :count], tf.constant(speaker)).numpy()
    assert np.allclose(found["wave"][:, : sound.shape[1]], sound, atol=1e-4)


def test_existing_files_are_not_overwritten(run, tmp_path):
    """A folder that is not empty is refused before the model is read."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SavedModelError, match="this exists already; name a folder that is new or empty"):
        write_savedmodel(run, tmp_path)


def test_an_export_has_one_target(run, tmp_path, capsys):
    """Neither or both of the two targets is a usage error."""
    for more in ([], [str(tmp_path / "x.safetensors"), "--saved-model", str(tmp_path / "y")]):
        assert main.main(["export", str(run), *more]) == 2
        assert "name what to write" in capsys.readouterr().err


def test_the_folder_documents_its_interface(saved):
    """Sizes, sample rate, languages and the tokenizer are stored next to the graph."""
    about = json.loads((saved / "assets.extra" / "xtts.json").read_text(encoding="utf-8"))
    assert about["text_sizes"] == [30]
    assert about["most_codes"] == 27
    assert about["sample_rate"] == 24000
    assert about["languages"] == ["en", "fa"]
    assert (saved / "assets.extra" / "tokenizer.json").exists()

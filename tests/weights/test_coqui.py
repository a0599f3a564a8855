"""What is exported for coqui-tts loads there, strictly, and says the same wave there as here.

These tests need an environment with coqui-tts: .peers/coqui, which `python -m benchmarks.peers` makes, or the Python
that XTTS_COQUI_PYTHON names.
"""

import json
import os
import subprocess
from pathlib import Path

import attrs
import numpy as np
import pytest
import tensorflow as tf
from published import GOLDEN, import_published
from run_processes import make_corpus

from xtts.audio.mel import MelSpec, log_mel
from xtts.inference.loading import load_model
from xtts.model.generation import generate
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES
from xtts.recipe.loading import parse_recipe
from xtts.training.run import train
from xtts.weights.exporting import export_for_coqui
from xtts.weights.model_folder import read_model_folder

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "coqui_program.py"
TEXTS = ["the valley was quiet.", "nobody had watered the tomatoes."]
PENALTY = 5.0
RECIPE = """
[run]
name = "tuned"
stages = ["gpt"]
[data]
train = "corpus"
validation_share = 0.2
reference_seconds = 0.5
[text]
tokenizer = "bpe"
vocab = "{vocab}"
[model]
weights = "model"
[train]
steps = 3
batch_size = 4
learning_rate = 1e-3
schedule = "constant"
warmup_steps = 0
validate_every = 0
sample_every = 0
[devices]
model_start_delay = 0.0
"""


@pytest.fixture(scope="module")
def coqui():
    """A function that runs the program with coqui-tts's Python."""
    python = os.environ.get("XTTS_COQUI_PYTHON", str(ROOT / ".peers" / "coqui" / "bin" / "python"))
    is_there = Path(python).exists()
    if not is_there or subprocess.run([python, "-c", "import TTS.tts.models.xtts"], capture_output=True).returncode:
        pytest.skip("coqui-tts is not installed: run python -m benchmarks.peers, or set XTTS_COQUI_PYTHON")

    def run(folder, size, voice, out):
        about = {"folder": str(folder), "size": attrs.asdict(size), "voice": str(voice), "texts": TEXTS}
        path = out.with_suffix(".json")
        path.write_text(json.dumps({**about, "out": str(out)}), encoding="utf-8")
        done = subprocess.run(
            [python, str(PROGRAM), str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        )
        assert done.returncode == 0, done.stdout
        return dict(np.load(str(out)))

    return run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with the imported model, and a run that was fine-tuned from it."""
    root = tmp_path_factory.mktemp("coqui")
    make_corpus(root / "corpus")
    import_published(root / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setitem(SIZES, "tiny", read_model_folder("model")[0].size)
        train(parse_recipe(RECIPE.format(vocab=GOLDEN / "vocab.json")), lambda line: None)
    return root


def say(model, text, latents, embedding):
    """Ids, codes with the stop, and wave of a text, from the model's parts."""
    ids = model.tokenizer.encode(text, "en")
    text, lengths = tf.constant([ids], tf.int32), tf.constant([len(ids)])
    spoken = generate(model.gpt, text, lengths, latents, repetition_penalty=PENALTY)
    count = int(spoken.lengths[0]) + 1
    codes = tf.concat([spoken.codes, [[model.gpt.tokens.audio_stop]]], axis=1)[:, :count]
    states = model.gpt.latents(text, lengths, codes, tf.constant([count]), latents)
    return ids, codes[0].numpy(), model.decoder(states, embedding)[0].numpy().reshape(-1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["model", "runs/tuned"])
def test_an_export_says_the_same_in_coqui_tts(coqui, root, tmp_path, name):
    """Its own loader takes every tensor of the base and of a fine-tuned run, and ids, codes and waves are equal."""
    files = export_for_coqui(root / name, tmp_path / "export")
    assert {"config.json", "dvae.pth", "mel_stats.pth", "model.pth", "vocab.json"} == {path.name for path in files}
    size = read_model_folder(root / name)[0].size
    random = np.random.default_rng(3)
    voice = {
        "latents": random.standard_normal((1, 32, size.gpt.width)).astype(np.float32),
        "embedding": random.standard_normal((1, size.speaker.width, 1)).astype(np.float32),
        "wave": (0.1 * random.standard_normal(30_000)).astype(np.float32),
    }
    voice["embedding"] /= np.linalg.norm(voice["embedding"])
    np.savez(str(tmp_path / "voice.npz"), **voice)
    found = coqui(tmp_path / "export", size, tmp_path / "voice.npz", tmp_path / "found.npz")
    model = load_model(root / name)
    for number, text in enumerate(TEXTS):
        ids, codes, wave = say(model, text, tf.constant(voice["latents"]), tf.constant(voice["embedding"][:, :, 0]))
        np.testing.assert_array_equal(found[f"{number}/ids"], ids)
        np.testing.assert_array_equal(found[f"{number}/codes"], codes)
        theirs = found[f"{number}/wave"]
        assert theirs.shape == wave.shape
        assert np.abs(wave - theirs).max() < 1e-4 * np.abs(theirs).max()
    mel = log_mel(voice["wave"], MelSpec.of(model.audio), model.mel_norms)[None]
    encoded = model.codec.encode(tf.constant(mel)).numpy()[0]
    count = mel.shape[1] // FRAMES_PER_CODE
    assert (encoded[:count] == found["encoded"][:count]).mean() > 0.95


@pytest.mark.long
def test_a_tuned_run_differs_from_its_base(root):
    """The run above has changed the weights of the GPT, and kept all others."""
    (_, base), (_, tuned) = (read_model_folder(root / name) for name in ("model", "runs/tuned"))
    changed = {name for name, tensor in base.items() if tensor.tobytes() != tuned[name].tobytes()}
    assert changed
    assert all(name.startswith("gpt.") for name in changed)

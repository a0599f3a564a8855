"""What the public implementation computes with small weights of the published form, and those weights, imported.

The files in `tests/golden/published` are cut down: of waves, every eighth sample.
"""

import json
from pathlib import Path

import numpy as np
import soundfile

from xtts.inference.generation import SamplingParams
from xtts.inference.vocoder import make_vocoder
from xtts.weights.importing import import_checkpoint
from xtts.weights.safetensors_file import read_safetensors

GOLDEN = Path(__file__).parents[1] / "golden" / "published"
ABOUT = json.loads((GOLDEN / "about.json").read_text(encoding="utf-8"))
REFERENCES = json.loads((GOLDEN / "references.json").read_text(encoding="utf-8"))
SPEECH = {one["name"]: one for one in ABOUT["speech"]}
EVERY = 8  # of waves, one sample in as many is kept


def golden(name):
    """The arrays of a golden file."""
    return read_safetensors(GOLDEN / f"{name}.safetensors")[0]


def reference_files(name, folder):
    """The recordings of a golden reference; those that are made of others are written into a folder."""
    about = REFERENCES[name]
    if "file" in about:
        return [GOLDEN / Path(about["file"]).with_suffix(".flac")]
    if "references" in about:
        return [path for one in about["references"] for path in reference_files(one, folder)]
    parts = about.get("concat") or [about["from"]]
    waves = [soundfile.read(str(reference_files(one, folder)[0]), dtype="int16")[0] for one in parts]
    path = folder / f"{name}.wav"
    soundfile.write(str(path), np.concatenate(waves)[: about.get("first")], about["sample_rate"])
    return [path]


def speak_ids(speaker, ids, about, sound, counts=(), **params):
    """The codes of token ids, with the stop where the model stopped, and the chunks of their sound."""
    voice = speaker.voice(about["voice"])
    vocoder = make_vocoder(speaker.model, speaker.generator, voice, about["speed"], sound)
    params = SamplingParams(
        **{"repetition_penalty": about["repetition_penalty"], "temperature": 0.75, "top_k": 1, **params}
    )
    chunks = []
    for generated in speaker.generator.generate(ids, voice, params, counts):
        chunks.append(vocoder.add(generated))
    stop = [] if generated.stop_latent is None else [speaker.model.gpt.tokens.audio_stop]
    return [*generated.codes.tolist(), *stop], chunks


def error(found, wanted):
    """The largest difference, relative to the largest value."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def import_published(folder):
    """Import the model with its codec and vocabulary; returns its description."""
    return import_checkpoint(
        GOLDEN / "model.pth",
        folder,
        dvae=GOLDEN / "dvae.pth",
        mel_norms=GOLDEN / "mel_stats.pth",
        vocab=GOLDEN / "vocab.json",
        config=GOLDEN / "config.json",
    ).model


def training_figures():
    """The tensors of the public trainer's steps, and what is said about them."""
    return golden("training"), ABOUT["training"]


def training_batch(tensors, number):
    """A batch of the public trainer, as the GPT stage takes it."""
    own = {name[len("batch0/") :]: value for name, value in tensors.items() if name.startswith(f"batch{number}/")}
    code_lengths = -(-own["wav_lengths"] // 1024)
    arrays = {
        "text": own["text_inputs"],
        "text_lengths": own["text_lengths"],
        "codes": own["audio_codes"][:, : code_lengths.max()],
        "code_lengths": code_lengths,
    }
    mels = np.ascontiguousarray(own["cond_mels"][:, 0].transpose(0, 2, 1))
    return {**{name: array.astype(np.int32) for name, array in arrays.items()}, "reference": mels}

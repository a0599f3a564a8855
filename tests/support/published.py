"""The small model that is saved as the published one is, and the public trainer's figures for it."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from xtts.weights.importing import import_checkpoint

PUBLISHED = Path(__file__).parents[1] / "golden" / "published"


def import_published(folder):
    """Import the model with its codec and vocabulary; returns its description."""
    return import_checkpoint(
        PUBLISHED / "model.pth",
        folder,
        dvae=PUBLISHED / "dvae.pth",
        mel_norms=PUBLISHED / "mel_stats.pth",
        vocab=PUBLISHED / "vocab.json",
        config=PUBLISHED / "config.json",
    ).model


def training_figures():
    """The tensors of the public trainer's steps, and what is said about them."""
    about = json.loads((PUBLISHED / "about.json").read_text(encoding="utf-8"))["training"]
    return load_file(str(PUBLISHED / "training.safetensors")), about


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

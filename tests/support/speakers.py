"""Models that generate random speech: folders as runs and imports write them, with small parts of random weights."""

import json

import attrs
import numpy as np
from recordings import record
from small import SMALL

from xtts.model.codec import Codec
from xtts.model.decoder import WaveformDecoder
from xtts.model.gpt import Gpt, Tokens
from xtts.model.speaker import SpeakerEncoder
from xtts.recipe import loading
from xtts.text.tokenizer import CharacterTokenizer
from xtts.weights import assignment, model_folder
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription

SIZE = attrs.evolve(SMALL, gpt=attrs.evolve(SMALL.gpt, text_positions=70, audio_positions=83))
LETTERS = "abcdefghijklmnopqrstuvwxyz,.!?" + "ابپتجچحخدرزسشطعفقکگلمنوهی،.؟"
PLAIN = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)  # of an added token
RECIPE = """
[data]
reference_seconds = 0.6
"""


def make_run(folder, parts=("gpt", "codec"), stop=1.0, size=SIZE, recipe=RECIPE, seed=1):
    """Make a run's folder. The higher `stop` is, the sooner the model stops."""
    folder.mkdir(parents=True)
    tokenizer = CharacterTokenizer(["en", "fa"], LETTERS)
    (folder / "recipe.toml").write_text(loading.dump_recipe(loading.parse_recipe(recipe)), encoding="utf-8")
    tokenizer.save(folder / "tokenizer.json")
    write_model(folder / "model", tokenizer, parts, stop, size, seed)
    return folder


def write_model(folder, tokenizer, parts, stop=1.0, size=SIZE, seed=1, vocab=None, is_published=True):
    """Write a model's parts under their published names."""
    random, codes = np.random.default_rng(seed), size.codec.codes
    tokens = Tokens(tokenizer.size, codes + 2, tokenizer.start, tokenizer.stop, codes, codes + 1)
    made = {
        "gpt": lambda: Gpt(size.gpt, tokens, random),
        "codec": lambda: Codec(size.codec, 80, random),
        "speaker": lambda: SpeakerEncoder(size.speaker, random),
        "decoder": lambda: WaveformDecoder(size.decoder, size.gpt.width, size.speaker.width, random),
    }
    tensors = {MEL_STATS: np.full(80, 4.0, np.float32)}
    for part in parts:
        module = made[part]()
        if part == "gpt":
            module.mel_head.bias.assign(np.eye(codes + 2, dtype=np.float32)[codes + 1] * stop)
        if part == "decoder":  # its initial weights are almost silent
            for weight in module.weights().values():
                weight.variable.assign(weight.variable * 3)
        tensors.update(assignment.published_weights(module, PREFIXES[part]))
    model_folder.write_model_folder(
        folder, ModelDescription(size, tokenizer.size, 80, tuple(parts), is_published), tensors, vocab
    )


def vocabulary(path):
    """Write a vocab.json of letters, in the layout of XTTS-v2's."""
    tokens = ["[STOP]", "[UNK]", "[SPACE]", *"abcdefghijklmnopqrstuvwxyz,.!?", "[en]", "[de]", "[START]"]
    table = {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": token, "special": True, **PLAIN}
            for number, token in enumerate(tokens)
            if len(token) > 1
        ],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "BPE",
            "unk_token": "[UNK]",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [],
        },
    }
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def reference(path, seconds=1.0, rate=22050, channels=1, level=0.5, pitch=150.0):
    """Record a synthetic buzzing voice."""
    time = np.arange(int(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * pitch * n * time * (1 + 0.05 * np.sin(9 * time))) / n for n in range(1, 12))
    wave = (level * wave / np.abs(wave).max()).astype(np.float32)
    return record(path, wave if channels == 1 else np.stack([wave] * channels, axis=1), rate)

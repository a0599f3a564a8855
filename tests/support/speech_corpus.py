"""A small corpus of tones in several voices, measured and planned, with the objects that compute its features."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from recordings import record
from small import SMALL

from xtts.audio.mel import MelSpec, log_mel
from xtts.model.codec import Codec as CodecModel
from xtts.pipeline.codec_source import CodecSource
from xtts.pipeline.feature_builder import FeatureBuilder
from xtts.pipeline.features import Features
from xtts.pipeline.gpt_source import GptSource, GptStores
from xtts.planning import dataset, plan
from xtts.planning.batch_order import BatchOrder
from xtts.recipe.schema import AudioSection, CodecSection, DataSection, Recipe, RunSection, TrainSection

AUDIO = AudioSection(sample_rate=8000, n_fft=512, win_length=512, hop_length=128, n_mels=20, fmax=4000.0)
SPEC = MelSpec.of(AUDIO)
SEED = 5
SPEAKERS = ["ann"] * 6 + ["bob"] * 5 + ["solo"] + [""] * 2
STATS = np.full(AUDIO.n_mels, 2.0, np.float32)
EDGE = SPEC.reach // SPEC.hop_length + 1  # frames whose windows extend beyond a crop's end
NEAR = 0.02  # cached mels are stored in 16 bits


class Made(NamedTuple):
    """A corpus, measured and planned, with the objects that compute its features."""

    recipe: Recipe
    dataset: dataset.Dataset
    plan: plan.Plan
    features: Features
    model: CodecModel

    @property
    def part(self):
        return self.dataset.train

    def filling(self):
        return FeatureBuilder(self.recipe, self.part, self.plan.layout, self.features)

    def codec(self, cached=False, is_random=True, recipe=None, share=None):
        store = self.filling().mels("", lambda done, total: None) if cached else None
        return CodecSource(recipe or self.recipe, self.part, self.features, store, is_random, share)

    def gpt(self, cached=False, is_random=True, recipe=None, dynamic_shapes=False, share=None):
        stores = None
        if cached:
            codes, references = (getattr(self.filling(), kind)("", lambda *_: None) for kind in ("codes", "references"))
            stores = GptStores(codes, references)
        shapes = self.plan.layout.shapes
        features = (
            Features(AUDIO, "/CPU:0", STATS, self.model, dynamic_shapes=True) if dynamic_shapes else self.features
        )
        dataset = (self.part, self.dataset.tokenizer)
        return GptSource(recipe or self.recipe, *dataset, shapes, features, stores, is_random, dynamic_shapes, share)

    def codec_order(self, workers=1):
        every = np.zeros(len(self.part.lengths), np.int16)
        return BatchOrder(every, (self.recipe.codec.batch_size,), self.recipe.run.seed, workers)

    def position(self, id):
        return [one.id for one in self.part.corpus.utterances].index(id)


def speech(number):
    """A gliding tone with noise of a quarter to 1.3 seconds, different for each recording."""
    random = np.random.default_rng(number)
    samples = 2000 + 650 * number
    glide = np.cumsum(np.linspace(0.05, 0.9, samples) * random.uniform(0.3, 1))
    return (0.3 * np.sin(glide) + 0.02 * random.standard_normal(samples)).astype(np.float32)


def make(folder):
    lines = []
    for number, speaker in enumerate(SPEAKERS):
        record(folder / "wavs" / f"u{number:02d}.wav", speech(number), AUDIO.sample_rate)
        text = "the words that are said here"[: 4 + 2 * number]
        lines.append(f"u{number:02d}|{text}|{text}|{speaker}|en\n")
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    recipe = Recipe(
        run=RunSection(folder=str(folder / "runs"), seed=SEED),
        data=DataSection(train=str(folder), validation_share=0.0, reference_seconds=0.5, shape_count=2),
        audio=AUDIO,
        codec=CodecSection(segment_frames=32, batch_size=4),
        train=TrainSection(batch_size=3),
    )
    found = dataset.load_dataset(recipe, lambda line: None)
    lengths = found.train.lengths
    planned = plan.make_plan(recipe, lengths.text, lengths.frames, found.tokenizer.size)
    codec = CodecModel(SMALL.codec, AUDIO.n_mels, np.random.default_rng(0))
    some = np.stack([log_mel(speech(number), SPEC, STATS)[:16] for number in range(8)])
    codec.init_codebook(tf.constant(some))
    return Made(recipe, found, planned, Features(AUDIO, "/CPU:0", STATS, codec), codec)

"""Measures how well a data device and a model device work in parallel, in a process of its own.

    python dual.py FOLDER planned|relaxed

The data device computes codes and reference mels of recordings that are made in FOLDER, and the model device trains on
them: two logical CPU devices, the package's own prefetcher between them, a small GPT and a small codec. It writes a
JSON line when everything is traced, and one for every line it reads, which is a buffer size; the output includes the
intervals in which each device was busy.
"""

import json
import sys
import time
import wave
from pathlib import Path

import attrs
import numpy as np
from lengths import ljspeech_like

from xtts.model.codec import Codec
from xtts.pipeline.features import Features
from xtts.pipeline.gpt_source import GptSource
from xtts.pipeline.prefetcher import Interval, Prefetcher, overlap
from xtts.pipeline.sources import warm_up
from xtts.planning.dataset import load_dataset
from xtts.planning.plan import make_plan
from xtts.planning.sizes import SIZES
from xtts.recipe.loading import parse_recipe
from xtts.training.optimizer import AdamW, Schedule
from xtts.training.placement import place_devices
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import trainable_weights
from xtts.training.step import TrainingSteps

RATE, COUNT, STEPS = 22050, 40, 16  # Hz, recordings, and steps for each line that is read
SHARE = 0.35  # lengths, relative to LJSpeech's
LETTERS = "abcdefghijklmnopqrstuvwxyz "
RECIPE = """
[run]
name = "dual"
[data]
train = {folder}
features = "live"
validation_share = 0.0
reference_seconds = 1.0
shapes = "{shapes}"
{count}
[model]
size = "tiny"
[train]
steps = 10000
batch_size = 4
warmup_steps = 10
dropout = 0.0
[devices]
data_gpu = 0
model_gpu = 1
"""


def small():
    """A GPT whose step takes several times as long as the features of its batch, as on GPUs."""
    tiny = SIZES["tiny"]
    gpt = attrs.evolve(tiny.gpt, layers=2, width=128, heads=2, conditioning_blocks=1, perceiver_layers=1)
    return attrs.evolve(tiny, gpt=gpt, codec=attrs.evolve(tiny.codec, hidden=32, code_width=32, codes=64))


def make_corpus(folder):
    """Gliding tones in LJSpeech's layout, with LJSpeech's distribution of lengths."""
    (folder / "wavs").mkdir(parents=True)
    lines = []
    for number, (characters, frames) in enumerate(zip(*ljspeech_like(COUNT))):
        at = np.arange(int(SHARE * 256 * frames))
        steps = 30 + number + at // 900  # increments of a sawtooth, in integers
        saw = (np.cumsum(steps) % 2048 - 1024) * np.minimum(at % 5000, 2500) // 200
        with wave.open(str(folder / "wavs" / f"{number:02d}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, len(saw), "NONE", "not compressed"))
            file.writeframes(saw.astype("<i2").tobytes())
        random = np.random.RandomState(number)
        text = "".join(LETTERS[place] for place in random.randint(0, 26, int(SHARE * characters)))
        lines.append(f"{number:02d}|{text}|{text}\n")
    (folder / "metadata.csv").write_text("".join(lines))
    return folder


class Pair:
    """A data device and a model device, with everything traced."""

    def __init__(self, folder, shapes):
        count = "shape_count = 2" if shapes == "planned" else ""
        recipe = parse_recipe(RECIPE.format(folder=json.dumps(str(folder)), shapes=shapes, count=count))
        self.placement = place_devices(recipe.devices)
        dataset = load_dataset(recipe, lambda line: None)
        lengths = dataset.train.lengths
        found = make_plan(recipe, lengths.text, lengths.frames, dataset.tokenizer.size)
        strategy = self.placement.start_strategy()
        with strategy.scope():
            stage = TrainableGpt(recipe, dataset.tokenizer, found.layout.shapes)
            variables = [weight.variable for weight in trainable_weights(stage).values()]
            optimizer = AdamW(variables, Schedule.of(recipe.train, 1e-4, recipe.train.steps), recipe.train)
        codec = Codec(SIZES["tiny"].codec, recipe.audio.n_mels, np.random.default_rng(0))
        stats = np.ones(recipe.audio.n_mels, np.float32)
        features = Features(recipe.audio, self.placement.data_device, stats, codec, stage.dynamic_shapes)
        self._source = GptSource(
            recipe, dataset.train, dataset.tokenizer, found.layout.shapes, features, None, True, stage.dynamic_shapes
        )
        self._order, self._features, self._at = found.order, features, 0
        self._steps = TrainingSteps(stage, optimizer, strategy=strategy, placement=self.placement, recipe=recipe)
        self._steps.trace(lambda done, total: None)
        warm_up(self._source, self._order, stage.dynamic_shapes)

    @property
    def traces(self):
        return sum(one.traces for one in (*self._steps.functions, *self._features.functions))

    def train(self, buffer_size):
        """Train STEPS more steps, as the training loop does."""
        traces, waited, intervals, frames = self.traces, 0.0, [], 0
        with Prefetcher(self._order, self._source, self._at, self._at + STEPS, 1, buffer_size, readers=1) as feed:
            feed.fill(0.0)
            began = time.monotonic()
            for work in feed:
                start = time.monotonic()
                self._steps(work)
                intervals.append(Interval(start, time.monotonic()))
                waited, frames = waited + feed.waited, frames + work.frames
            took, made = time.monotonic() - began, list(feed.intervals)
        self._at += STEPS
        late = [interval for interval in made if interval.stop > began]  # before that the model had not begun
        return {
            "seconds": took,
            "waited": waited / took,
            "overlap": overlap(late, intervals),
            "frames": frames,
            "traces": self.traces - traces,
            "data": [[one.start - began, one.stop - began] for one in made],
            "model": [[one.start - began, one.stop - began] for one in intervals],
        }


def main(folder, shapes):
    SIZES["tiny"] = small()
    pair = Pair(make_corpus(Path(folder) / "corpus"), shapes)
    print(json.dumps({"mode": pair.placement.mode, "traces": pair.traces}), flush=True)
    for line in sys.stdin:
        print(json.dumps(pair.train(int(line))), flush=True)
    print(json.dumps({"traces": pair.traces}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

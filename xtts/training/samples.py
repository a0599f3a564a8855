"""Samples to listen to while a run trains: a model as it is and held-out utterances come in; waves and pictures go out.

The codec gives a recording back; the GPT says a sentence in a voice it is shown. Both become waves by Griffin-Lim, so
that what is heard is the fault of nothing that a later stage would mend.
"""

from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio import wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import MelSpec
from xtts.inference.generation import decode_codes, max_codes
from xtts.model.codec import Codec
from xtts.model.generation import generate
from xtts.model.gpt import Gpt
from xtts.pipeline.features import Features, reference_shape, samples_for
from xtts.pipeline.recordings import Recordings
from xtts.planning.dataset import Split
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe
from xtts.reporting import mel_pictures
from xtts.reporting.journal import Journal
from xtts.text.tokenizer import Tokenizer

MOST = 2  # samples at a time

Tensor = Any  # tf.Tensor; TensorFlow brings no types


class Sentence(NamedTuple):
    """What is to be said, and whose recording it is said like."""

    text: str
    language: str
    voice: int  # position of an utterance


@attrs.define(eq=False)
class Samples:
    """Where samples go: `samples/` in a run's folder, and the journal."""

    journal: Journal
    spec: MelSpec
    stats: np.ndarray
    stage: str
    device: str
    newest: Optional[Path] = None  # the wave written last

    def write(self, step: int, number: int, kind: str, text: str, mel: np.ndarray, against: Sequence[Any] = ()) -> None:
        """A mel [frames, n_mels], as a wave and as a picture above those it should be like."""
        folder = self.journal.folder / "samples"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.stage}-{step:07d}-{number}"
        wave = griffin_lim(mel, self.spec, mel_norms=self.stats)
        wav.write_wav(folder / f"{name}.wav", wave, self.spec.sample_rate)
        shown = [one * self.stats for one in (mel, *against)]
        (folder / f"{name}.png").write_bytes(mel_pictures.mel_png(*shown))
        self.journal.add_sample(self.stage, step, kind, text, f"samples/{name}.wav", f"samples/{name}.png")
        self.newest = folder / f"{name}.wav"


class CodecSamples(Samples):
    """Recordings, through the codec and back."""

    def prepare(self, recipe: Recipe, part: Split, features: Features, codec: Codec) -> "CodecSamples":
        """Look some recordings up, and cut them to one length, which is one trace."""
        recordings = Recordings(part, recipe.audio.sample_rate)
        some = range(min(MOST, len(part.lengths)))
        self._texts = [recordings.utterances[position].text for position in some]
        frames = max(int(part.lengths.frames[position]) for position in some)
        self._frames = [int(part.lengths.frames[position]) for position in some]
        samples = samples_for(-(-frames // FRAMES_PER_CODE) * FRAMES_PER_CODE, self.spec)
        waves, lengths = np.zeros((len(some), samples), np.float32), np.zeros(len(some), np.int32)
        for position in some:
            wave = recordings.wave(position)
            waves[position, : len(wave)], lengths[position] = wave, len(wave)
        self._mels = features.mel(waves, lengths)
        self._lengths = tf.constant(self._frames, tf.int32)

        def there_and_back(mels: Tensor, lengths: Tensor) -> Tensor:
            codes = codec.encode(mels, lengths)
            return codec.decode(codes, (lengths + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE)

        self.functions = [compat.compiled(there_and_back, autograph=False)]
        self._hear()
        return self

    def __call__(self, step: int) -> None:
        for number, (mel, frames) in enumerate(zip(self._hear(), self._frames)):
            original = self._mels[number, :frames].numpy()
            self.write(step, number, "codec", self._texts[number], mel[:frames], [original])

    def _hear(self) -> np.ndarray:
        with tf.device(self.device):
            mels: np.ndarray = self.functions[0](self._mels, self._lengths).numpy()
        return mels


class GptSamples(Samples):
    """Sentences that were not trained on, in the voices of recordings that were not either."""

    def prepare(
        self, recipe: Recipe, part: Split, tokenizer: Tokenizer, features: Features, gpt: Gpt, codec: Codec
    ) -> "GptSamples":
        """Encode the sentences and their voices; saying them is one trace."""
        self._sentences = sentences(recipe, part, tokenizer)
        recordings = Recordings(part, recipe.audio.sample_rate)
        samples, _ = reference_shape(recipe.audio, recipe.data.reference_seconds, gpt.size.longest_recording)
        voices = np.stack([np.resize(recordings.wave(one.voice), samples) for one in self._sentences])
        ids = [tokenizer.encode(one.text, one.language)[: gpt.size.longest_text] for one in self._sentences]
        width = max(len(row) for row in ids)
        text = np.zeros((len(ids), width), np.int32)
        for number, row in enumerate(ids):
            text[number, : len(row)] = row
        most = max_codes(gpt, width)
        reference = features.reference_mel(voices.astype(np.float32), np.full(len(ids), samples, np.int32))
        self._arguments = (tf.constant(text), tf.constant([len(row) for row in ids], tf.int32), reference)

        def say(text: Tensor, lengths: Tensor, reference: Tensor) -> Any:
            # The best code always; with a penalty, for who has learnt little would say one code for ever.
            spoken = generate(gpt, text, lengths, gpt.style(reference), most, repetition_penalty=2.0)
            return spoken.lengths, spoken.codes

        def decode(codes: Tensor, lengths: Tensor) -> Tensor:
            return decode_codes(codec, gpt, codes, lengths)

        self.functions = [compat.compiled(one, autograph=False) for one in (say, decode)]
        self._hear()
        return self

    def __call__(self, step: int) -> None:
        for number, (sentence, mel) in enumerate(zip(self._sentences, self._hear())):
            if len(mel) > 1:
                self.write(step, number, "spoken", sentence.text, mel)

    def _hear(self) -> List[np.ndarray]:
        with tf.device(self.device):
            lengths, codes = self.functions[0](*self._arguments)
            mels = self.functions[1](codes, lengths).numpy()
        return [mel[: FRAMES_PER_CODE * int(length)] for mel, length in zip(mels, lengths.numpy())]


def sentences(recipe: Recipe, part: Split, tokenizer: Tokenizer) -> List[Sentence]:
    """The recipe's own sentences, or the first that were held out."""
    utterances = part.corpus.utterances
    if not recipe.run.say:
        return [Sentence(one.text, one.language, position) for position, one in enumerate(utterances[:MOST])]
    found = []
    for number, said in enumerate(recipe.run.say):
        languages = sorted({one.language for one in utterances}, key=lambda own: len(tokenizer.unknown(said, own)))
        spoken = [position for position, one in enumerate(utterances) if one.language == languages[0]]
        found.append(Sentence(said, languages[0], spoken[number % len(spoken)]))
    return found

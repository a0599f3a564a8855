"""The GPT stage's samples: sentences spoken in the voices of held-out recordings."""

from typing import TYPE_CHECKING, Any, List, NamedTuple, Tuple

import attrs
import numpy as np

from xtts.planning.dataset import Split
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe
from xtts.text.tokenizer import Tokenizer, encode_spoken
from xtts.training.stages.samples import MAX_SAMPLES, SampleWriter
from xtts.training.stages.stage import Tensor

if TYPE_CHECKING:
    from xtts.compat import Compiled
    from xtts.model.codec import Codec
    from xtts.model.gpt import Gpt
    from xtts.pipeline.features import Features
    from xtts.training.context import TrainingContext

SAMPLE_PENALTY = 2.0  # repetition penalty: without it a hardly trained model repeats one code for ever


class Sentence(NamedTuple):
    """A text, and the held-out utterance in whose voice it is spoken."""

    text: str
    language: str
    voice: int  # position of the utterance


@attrs.frozen(kw_only=True, eq=False)
class GptSamples:
    """Sentences that were not trained on, in the voices of held-out recordings."""

    writer: SampleWriter
    device: str
    sentences: List[Sentence]
    inputs: Tuple[Tensor, Tensor, Tensor]  # text, its lengths, and reference mels
    functions: List["Compiled"]

    @classmethod
    def prepare(
        cls, context: "TrainingContext", writer: SampleWriter, features: "Features", gpt: "Gpt", codec: "Codec"
    ) -> "GptSamples":
        """Encode the sentences, read their reference voices, and trace generation and decoding."""
        import tensorflow as tf

        from xtts import compat
        from xtts.model.generation import decode_codes, generate, max_codes
        from xtts.pipeline.features import reference_shape
        from xtts.pipeline.recordings import Recordings

        recipe, tokenizer, split = context.recipe, context.dataset.tokenizer, context.held_out
        sentences = choose_sentences(recipe, split, tokenizer)
        recordings = Recordings(split, recipe.audio.sample_rate)
        samples, _ = reference_shape(recipe.audio, recipe.data.reference_seconds, gpt.size.max_recording_frames)
        voices = np.stack([np.resize(recordings.wave(one.voice), samples) for one in sentences])
        ids = [encode_spoken(tokenizer, one.text, one.language)[: gpt.size.max_text_tokens] for one in sentences]
        text = np.zeros((len(ids), max(len(row) for row in ids)), np.int32)
        for number, row in enumerate(ids):
            text[number, : len(row)] = row
        longest = max_codes(gpt, text.shape[1])

        def generate_codes(text: Tensor, lengths: Tensor, reference: Tensor) -> Any:
            # By default greedy: always the most likely code.
            spoken = generate(
                gpt, text, lengths, gpt.conditioning_latents(reference), longest, repetition_penalty=SAMPLE_PENALTY
            )
            return spoken.lengths, spoken.codes

        def decode(codes: Tensor, lengths: Tensor) -> Tensor:
            return decode_codes(codec, gpt, codes, lengths)

        reference = features.reference_mel(voices.astype(np.float32), np.full(len(ids), samples, np.int32))
        made = cls(
            writer=writer,
            device=context.placement.model_devices[0],
            sentences=sentences,
            inputs=(tf.constant(text), tf.constant([len(row) for row in ids], tf.int32), reference),
            functions=[compat.compiled(one, autograph=False) for one in (generate_codes, decode)],
        )
        made._spoken()
        return made

    def __call__(self, step: int) -> None:
        for number, (sentence, mel) in enumerate(zip(self.sentences, self._spoken())):
            if len(mel) > 1:
                self.writer.write(step, number, "spoken", sentence.text, mel)

    def _spoken(self) -> List[np.ndarray]:
        """The mel of each sentence."""
        import tensorflow as tf

        generate_codes, decode = self.functions
        with tf.device(self.device):
            lengths, codes = generate_codes(*self.inputs)
            mels = decode(codes, lengths).numpy()
        return [mel[: FRAMES_PER_CODE * int(length)] for mel, length in zip(mels, lengths.numpy())]


def choose_sentences(recipe: Recipe, split: Split, tokenizer: Tokenizer) -> List[Sentence]:
    """The sentences in run.say, or by default the first held-out ones."""
    utterances = split.corpus.utterances
    if not recipe.run.say:
        return [Sentence(one.text, one.language, position) for position, one in enumerate(utterances[:MAX_SAMPLES])]
    found = []
    for number, said in enumerate(recipe.run.say):
        languages = sorted({one.language for one in utterances}, key=lambda own: len(tokenizer.unknown(said, own)))
        spoken = [position for position, one in enumerate(utterances) if one.language == languages[0]]
        found.append(Sentence(said, languages[0], spoken[number % len(spoken)]))
    return found

"""What a model does when it speaks, as compiled functions: waves, tokens and codes come in as arrays; latents, codes,
mels and waves go out.

Every function has static shapes: lengths are rounded up to a few sizes, and what is beyond a length is not heard. So
each is traced once a size, however many lengths there are.
"""

import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.inference.loading import LoadedModel
from xtts.inference.voices import Voice
from xtts.model.generation import Progress, begin, decode_codes, extend, max_codes
from xtts.model.mel import log_mel, transform_for
from xtts.model.sampling import Sampling, sampling
from xtts.pipeline.features import reference_spec

Tensor = Any  # tf.Tensor; TensorFlow brings no types

SMALLEST = 32  # tokens, codes or frames that a function is made for; the other sizes are each twice the last
SPEAKER_RATE = 16000  # Hz, that the speaker encoder hears


def padded_size(length: int, most: int, size: int = SMALLEST) -> int:
    """The size that a length is rounded up to, from the smallest on; `most` is the largest there is."""
    while size < length:
        size *= 2
    return min(size, most)


def padded_sizes(most: int) -> List[int]:
    """Every size that a length up to `most` may be rounded up to."""
    return sorted({padded_size(length, most) for length in range(1, most + 1)})


@attrs.frozen
class SamplingParams:
    """How codes are drawn. XTTS-v2's own numbers, but for penalty and temperature, which are the model's."""

    repetition_penalty: float
    temperature: float
    top_k: int = 50
    top_p: float = 0.85
    seed: int = 0


class GeneratedCodes(NamedTuple):
    """All that was said so far of a text, and whether that is all there is to say."""

    codes: np.ndarray  # [codes] int32
    latents: np.ndarray  # [codes, width], what the waveform decoder speaks
    is_last: bool = True
    is_cut: bool = False  # the model would have gone on


class Generator:
    """The functions of one model."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        device = "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
        spec, transform = reference_spec(model.audio), transform_for(device)
        gpt = model.gpt

        def style(waves: Tensor) -> Tensor:
            lengths = tf.fill([waves.shape[0]], waves.shape[1])
            return gpt.style(log_mel(waves, lengths, spec, model.stats, transform=transform))

        def speaker(waves: Tensor, lengths: Tensor) -> Tensor:
            return _part(model.speaker)(waves, lengths)

        def read(text: Tensor, lengths: Tensor, style: Tensor) -> Progress:
            return begin(gpt, text, lengths, style, min(max_codes(gpt, text.shape[1]), model.most_codes))

        def speak(progress: Progress, count: Tensor, penalty: Tensor, drawn: Sampling) -> Any:
            progress = extend(gpt, progress, count, penalty, drawn.__call__)
            return progress, progress.spoken(gpt.tokens.audio_stop)

        def mel(codes: Tensor, lengths: Tensor) -> Tensor:
            return decode_codes(_part(model.codec), gpt, codes, lengths)

        def sound(x: Tensor, lengths: Tensor, speaker: Tensor) -> Tensor:
            return _part(model.decoder).sound(x, speaker, lengths)

        # The loop over codes is the only one of many small steps, which XLA does several times as fast.
        self.functions: Dict[str, compat.Compiled] = {
            one.__name__: compat.compiled(one, autograph=False, jit_compile=one is speak or None)
            for one in (style, speaker, read, speak, mel, sound)
        }

    def style(self, cuts: np.ndarray) -> np.ndarray:
        """The latents [32, width] of a voice's cuts [n, samples]: the mean of each cut's."""
        each = [self._call("style", tf.constant(cut[None])).numpy()[0] for cut in cuts]
        return np.asarray(np.mean(each, axis=0), np.float32)

    def speaker(self, wave: np.ndarray) -> np.ndarray:
        """The vector of a voice, of a wave at 16 kHz."""
        size = SPEAKER_RATE * padded_size(-(-len(wave) // SPEAKER_RATE), 32, size=4)  # in seconds
        padded = np.zeros((1, size), np.float32)
        padded[0, : len(wave)] = wave
        vectors = self._call("speaker", tf.constant(padded), tf.constant([len(wave)], tf.int32))
        return np.asarray(vectors.numpy()[0])

    def speak(
        self, ids: Sequence[int], voice: Voice, manner: SamplingParams, counts: Iterable[int] = ()
    ) -> Iterator[GeneratedCodes]:
        """What a text's tokens become: after so many codes, so many more, and at the end. The cuts change no code."""
        progress = self._call("read", *self._text(ids), tf.constant(voice.style[None]))
        most = progress.codes.shape[1]
        penalty = tf.constant(manner.repetition_penalty, tf.float32)
        drawn = sampling(manner.temperature, manner.top_k, manner.top_p, manner.seed)
        for count in itertools.chain(counts, itertools.repeat(most)):
            progress, found = self._call("speak", progress, tf.constant(count), penalty, drawn)
            done, length = int(progress.step.numpy()), int(found.lengths.numpy()[0])
            is_last = length < done or done == most
            length = min(length, done)
            yield GeneratedCodes(
                found.codes.numpy()[0, :length], found.latents.numpy()[0, :length], is_last, length == most
            )
            if is_last:
                return

    def mel(self, codes: np.ndarray) -> np.ndarray:
        """The mel of codes, [4 codes, n_mels]."""
        padded, lengths = _padded(codes, padded_size(len(codes), self._model.most_codes))
        mel: np.ndarray = self._call("mel", padded, lengths).numpy()[0]
        return mel[: len(mel) // padded.shape[1] * len(codes)]

    def sound(self, x: np.ndarray, voice: Voice) -> np.ndarray:
        """The wave of latents that are stretched, [frames, width]."""
        padded, lengths = _padded(x, padded_size(len(x), 2**30))
        wave: np.ndarray = self._call("sound", padded, lengths, tf.constant(_part(voice.speaker)[None])).numpy()[0]
        return wave[: len(wave) // padded.shape[1] * len(x)]

    def _call(self, name: str, *arguments: Any) -> Any:
        function = self.functions[name]
        function.trace(*arguments)  # each size once, and that is as it should be
        return function(*arguments)

    def _text(self, ids: Sequence[int]) -> Tuple[Tensor, Tensor]:
        return _padded(np.array(ids, np.int32), padded_size(len(ids), self._model.longest_text))


def _padded(x: np.ndarray, size: int) -> Tuple[Tensor, Tensor]:
    """An array as a batch of one, of a size, and its length [1]."""
    padded = np.zeros((1, size, *x.shape[1:]), x.dtype)
    padded[0, : len(x)] = x
    return tf.constant(padded), tf.constant([len(x)], tf.int32)


def _part(part: Any) -> Any:
    if part is None:
        raise ValueError("the model lacks the part that this is done with")
    return part

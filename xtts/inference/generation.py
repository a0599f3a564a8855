"""The compiled functions of inference, from NumPy arrays to NumPy arrays.

All shapes are static: lengths are padded to a few sizes and padding is masked, so each function is traced once for each
size, however many lengths there are.
"""

import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.inference.loading import LoadedModel
from xtts.inference.voices import Voice
from xtts.model.generation import GenerationState, continue_generation, decode_codes, max_codes, start_generation
from xtts.model.mel import log_mel, transform_for
from xtts.model.sampling import Sampling, sampling
from xtts.pipeline.features import reference_spec

Tensor = Any  # tf.Tensor; TensorFlow brings no types

MIN_PADDED_SIZE = 32  # tokens, codes or frames; each further size is twice the previous one
SPEAKER_SAMPLE_RATE = 16000  # Hz, of the speaker encoder's input


def padded_size(length: int, largest: int, size: int = MIN_PADDED_SIZE) -> int:
    """The size that a length is padded to: the smallest one, `size`, doubled until it fits, at most `largest`."""
    while size < length:
        size *= 2
    return min(size, largest)


def padded_sizes(largest: int) -> List[int]:
    """All sizes that lengths up to `largest` are padded to."""
    return sorted({padded_size(length, largest) for length in range(1, largest + 1)})


@attrs.frozen
class SamplingParams:
    """Settings of sampling. The defaults are XTTS-v2's; penalty and temperature depend on the model."""

    repetition_penalty: float
    temperature: float
    top_k: int = 50
    top_p: float = 0.85
    seed: int = 0


class GeneratedCodes(NamedTuple):
    """The codes generated so far for a text, and whether they are complete."""

    codes: np.ndarray  # [codes] int32
    latents: np.ndarray  # [codes, width], the waveform decoder's input
    is_last: bool = True
    is_cut: bool = False  # at the maximum length, before the model stopped


class Generator:
    """The compiled functions of one model."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        device = "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
        spec, transform = reference_spec(model.audio), transform_for(device)
        gpt = model.gpt

        def conditioning_latents(waves: Tensor) -> Tensor:
            lengths = tf.fill([waves.shape[0]], waves.shape[1])
            return gpt.conditioning_latents(log_mel(waves, lengths, spec, model.mel_norms, transform=transform))

        def speaker_embedding(waves: Tensor, lengths: Tensor) -> Tensor:
            return _required(model.speaker)(waves, lengths)

        def start(text: Tensor, lengths: Tensor, latents: Tensor) -> GenerationState:
            return start_generation(gpt, text, lengths, latents, min(max_codes(gpt, text.shape[1]), model.max_codes))

        def generate(state: GenerationState, count: Tensor, penalty: Tensor, sampler: Sampling) -> Any:
            state = continue_generation(gpt, state, count, penalty, sampler.__call__)
            return state, state.result(gpt.tokens.audio_stop)

        def decode_mel(codes: Tensor, lengths: Tensor) -> Tensor:
            return decode_codes(_required(model.codec), gpt, codes, lengths)

        def decode_wave(x: Tensor, lengths: Tensor, speaker: Tensor) -> Tensor:
            return _required(model.decoder).sound(x, speaker, lengths)

        # XLA pays off only for the loop over codes, whose many small steps it makes several times as fast.
        self.functions: Dict[str, compat.Compiled] = {
            one.__name__: compat.compiled(one, autograph=False, jit_compile=one is generate or None)
            for one in (conditioning_latents, speaker_embedding, start, generate, decode_mel, decode_wave)
        }

    def conditioning_latents(self, chunks: np.ndarray) -> np.ndarray:
        """Conditioning latents [32, width], averaged over a voice's chunks [n, samples]."""
        each = [self._call("conditioning_latents", tf.constant(chunk[None])).numpy()[0] for chunk in chunks]
        return np.asarray(np.mean(each, axis=0), np.float32)

    def speaker_embedding(self, wave: np.ndarray) -> np.ndarray:
        """The speaker embedding of a wave at 16 kHz."""
        size = SPEAKER_SAMPLE_RATE * padded_size(-(-len(wave) // SPEAKER_SAMPLE_RATE), 32, size=4)  # in seconds
        padded = np.zeros((1, size), np.float32)
        padded[0, : len(wave)] = wave
        vectors = self._call("speaker_embedding", tf.constant(padded), tf.constant([len(wave)], tf.int32))
        return np.asarray(vectors.numpy()[0])

    def generate(
        self, ids: Sequence[int], voice: Voice, params: SamplingParams, counts: Iterable[int] = ()
    ) -> Iterator[GeneratedCodes]:
        """The codes of a text: first `counts[0]`, then `counts[1]` more, and so on; after the last, all that are left.

        The codes do not depend on `counts`.
        """
        state = self._call("start", *self._text(ids), tf.constant(voice.conditioning_latents[None]))
        limit = state.codes.shape[1]
        penalty = tf.constant(params.repetition_penalty, tf.float32)
        sampler = sampling(params.temperature, params.top_k, params.top_p, params.seed)
        for count in itertools.chain(counts, itertools.repeat(limit)):
            state, found = self._call("generate", state, tf.constant(count), penalty, sampler)
            done, length = int(state.step.numpy()), int(found.lengths.numpy()[0])
            is_last = length < done or done == limit
            length = min(length, done)
            yield GeneratedCodes(
                found.codes.numpy()[0, :length], found.latents.numpy()[0, :length], is_last, length == limit
            )
            if is_last:
                return

    def decode_mel(self, codes: np.ndarray) -> np.ndarray:
        """The mel of codes, [4 codes, n_mels]."""
        padded, lengths = _pad_batch(codes, padded_size(len(codes), self._model.max_codes))
        mel: np.ndarray = self._call("decode_mel", padded, lengths).numpy()[0]
        return mel[: len(mel) // padded.shape[1] * len(codes)]

    def decode_wave(self, x: np.ndarray, voice: Voice) -> np.ndarray:
        """The wave of upsampled latents [frames, width]."""
        padded, lengths = _pad_batch(x, padded_size(len(x), 2**30))
        wave: np.ndarray = self._call(
            "decode_wave", padded, lengths, tf.constant(_required(voice.speaker_embedding)[None])
        ).numpy()[0]
        return wave[: len(wave) // padded.shape[1] * len(x)]

    def _call(self, name: str, *arguments: Any) -> Any:
        function = self.functions[name]
        function.trace(*arguments)  # a new size is an intended trace
        return function(*arguments)

    def _text(self, ids: Sequence[int]) -> Tuple[Tensor, Tensor]:
        return _pad_batch(np.array(ids, np.int32), padded_size(len(ids), self._model.max_text_tokens))


def _pad_batch(x: np.ndarray, size: int) -> Tuple[Tensor, Tensor]:
    """An array as a batch of one, padded to a size, and its length [1]."""
    padded = np.zeros((1, size, *x.shape[1:]), x.dtype)
    padded[0, : len(x)] = x
    return tf.constant(padded), tf.constant([len(x)], tf.int32)


def _required(part: Any) -> Any:
    if part is None:
        raise ValueError("the model does not have the part that this needs")
    return part

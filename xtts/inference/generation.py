"""The compiled functions of inference, from NumPy arrays to NumPy arrays.

All shapes are static: lengths are padded to a few sizes and padding is masked, so each function is traced once for each
size, however many lengths there are.
"""

import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.inference import beam_search
from xtts.inference.loading import LoadedModel
from xtts.inference.voices import Voice
from xtts.model.generation import (
    GenerationState,
    continue_generation,
    decode_codes,
    max_codes,
    start_generation,
    with_room,
)
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
    num_beams: int = 1  # more than 1: beam search instead of sampling
    length_penalty: float = 1.0  # of beam search


class GeneratedCodes(NamedTuple):
    """The codes generated so far for a text, and whether they are complete."""

    codes: np.ndarray  # [codes] int32
    latents: np.ndarray  # [codes, width], the waveform decoder's input
    is_last: bool = True
    is_cut: bool = False  # at the maximum length, before the model stopped
    stop_latent: Optional[np.ndarray] = None  # [width], the state that predicted the stop; None before that


class Generator:
    """The compiled functions of one model."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        device = "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
        spec, transform = reference_spec(model.audio), transform_for(device)
        gpt = model.gpt

        def conditioning_latents(waves: Tensor) -> Tensor:
            lengths = tf.shape(waves)[1:]
            return gpt.conditioning_latents(log_mel(waves, lengths, spec, model.mel_norms, transform=transform))

        def speaker_embedding(waves: Tensor, lengths: Tensor) -> Tensor:
            return _required(model.speaker)(waves, lengths)

        def start(text: Tensor, lengths: Tensor, latents: Tensor) -> GenerationState:
            return start_generation(gpt, text, lengths, latents, min(max_codes(gpt, text.shape[1]), model.max_codes))

        def generate(state: GenerationState, count: Tensor, penalty: Tensor, sampler: Sampling) -> Any:
            state = continue_generation(gpt, state, count, penalty, sampler.__call__)
            return state, state.result(gpt.tokens.audio_stop)

        def start_beams(text: Tensor, lengths: Tensor, latents: Tensor) -> GenerationState:
            return start_generation(gpt, text, lengths, latents, model.max_codes)

        def branch(state: GenerationState, order: Tensor, before: Tensor, penalty: Tensor) -> Any:
            return beam_search.branch(gpt, state, order, before, penalty)

        def latents(text: Tensor, lengths: Tensor, codes: Tensor, code_lengths: Tensor, style: Tensor) -> Tensor:
            return gpt.latents(text, lengths, codes, code_lengths, style)

        def decode_mel(codes: Tensor, lengths: Tensor) -> Tensor:
            return decode_codes(_required(model.codec), gpt, codes, lengths)

        def decode_wave(x: Tensor, lengths: Tensor, speaker: Tensor) -> Tensor:
            return _required(model.decoder).sound(x, speaker, lengths)

        # XLA pays off only for the loop over codes, whose many small steps it makes several times as fast.
        self.functions: Dict[str, compat.Compiled] = {
            one.__name__: compat.compiled(one, autograph=False, jit_compile=one is generate or None)
            for one in (speaker_embedding, start, generate, start_beams, branch, latents, decode_mel, decode_wave)
        }
        any_length = [tf.TensorSpec([1, None], tf.float32, "waves")]  # references are not padded, nor cut to one length
        self.functions["conditioning_latents"] = compat.compiled(
            conditioning_latents, autograph=False, input_signature=any_length
        )

    def conditioning_latents(self, chunks: Sequence[np.ndarray]) -> np.ndarray:
        """Conditioning latents [32, width], averaged over a voice's chunks, [samples] each."""
        each = [self._call("conditioning_latents", tf.constant(chunk[None])).numpy()[0] for chunk in chunks]
        return np.asarray(np.mean(each, axis=0), np.float32)

    def speaker_embedding(self, wave: np.ndarray) -> np.ndarray:
        """The speaker embedding of a wave at 16 kHz."""
        size = SPEAKER_SAMPLE_RATE * padded_size(-(-len(wave) // SPEAKER_SAMPLE_RATE), 2**20, size=4)  # in seconds
        padded = np.zeros((1, size), np.float32)
        padded[0, : len(wave)] = wave
        vectors = self._call("speaker_embedding", tf.constant(padded), tf.constant([len(wave)], tf.int32))
        return np.asarray(vectors.numpy()[0])

    def generate(
        self, ids: Sequence[int], voice: Voice, params: SamplingParams, counts: Iterable[int] = ()
    ) -> Iterator[GeneratedCodes]:
        """The codes of a text: first `counts[0]`, then `counts[1]` more, and so on; after the last, all that are left.

        The codes do not depend on `counts`. Beam search gives all at once.
        """
        if params.num_beams > 1:
            yield self._search(ids, voice, params)
            return
        state = self._call("start", *self._text(ids), tf.constant(voice.conditioning_latents[None]))
        penalty = tf.constant(params.repetition_penalty, tf.float32)
        sampler = sampling(params.temperature, params.top_k, params.top_p, params.seed)
        for count in itertools.chain(counts, itertools.repeat(self._model.max_codes)):
            state, found = self._extend(state, count, penalty, sampler)
            done, length = int(state.step.numpy()), int(found.lengths.numpy()[0])
            has_stopped = length < done
            is_cut = not has_stopped and done == self._limit(state)
            length = min(length, done)
            latents = found.latents.numpy()[0]
            codes, stop_latent = found.codes.numpy()[0, :length], latents[length] if has_stopped else None
            yield GeneratedCodes(codes, latents[:length], has_stopped or is_cut, is_cut, stop_latent)
            if has_stopped or is_cut:
                return

    def _search(self, ids: Sequence[int], voice: Voice, params: SamplingParams) -> GeneratedCodes:
        """The codes of a text by beam search, and their latents in a second pass."""
        tokens, beams = self._model.gpt.tokens, params.num_beams
        text, lengths = self._text(ids)
        style = tf.constant(voice.conditioning_latents[None])
        rows = [tf.repeat(one, beams, axis=0) for one in (text, lengths, style)]
        penalty = tf.constant(params.repetition_penalty, tf.float32)

        def step(state: GenerationState, order: np.ndarray, before: np.ndarray) -> Tuple[GenerationState, np.ndarray]:
            state, scores = self._call("branch", state, tf.constant(order), tf.constant(before), penalty)
            return state, scores.numpy()

        found = beam_search.search(
            step, self._call("start_beams", *rows), tokens.audio_start, tokens.audio_stop, params.length_penalty
        )
        padded, count = _pad_batch(found.codes, padded_size(len(found.codes), self._model.max_codes))
        latents = self._call("latents", text, lengths, padded, count, style).numpy()[0, : len(found.codes)]
        end = len(found.codes) - found.has_stopped
        stop_latent = latents[end] if found.has_stopped else None
        return GeneratedCodes(found.codes[:end], latents[:end], True, not found.has_stopped, stop_latent)

    def _extend(self, state: GenerationState, count: int, penalty: Tensor, sampler: Sampling) -> Any:
        """`count` more codes of a state, whose room grows where the model may need more than was reserved."""
        while True:
            before = int(state.step.numpy())
            state, found = self._call("generate", state, tf.constant(count), penalty, sampler)
            done, room = int(state.step.numpy()), state.codes.shape[1]
            count -= done - before
            if not count or done < room or room == self._limit(state) or int(found.lengths.numpy()[0]) < done:
                return state, found
            state = with_room(state, self._limit(state), self._model.gpt.tokens.audio_stop)

    def _limit(self, state: GenerationState) -> int:
        """The most codes of a sentence. Published weights are not cut before their positions run out."""
        return self._model.max_codes if self._model.is_published else state.codes.shape[1]

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

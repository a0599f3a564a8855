"""Autoregressive generation of codes, with a key-value cache.

`start_generation` processes text and conditioning latents, `continue_generation` generates up to a number of codes, and
`generate` does both to the end; the codes do not depend on how they are split into calls. Shapes are static and the
loop is a tf.while_loop, so each function is traced once. No row depends on the others.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from xtts.errors import XttsError
from xtts.model.attention import MASKED
from xtts.model.codec import Codec
from xtts.model.gpt import Gpt, add_special_tokens
from xtts.model.layers import Dropout, Tensor, update_at
from xtts.model.transformer import KeyValueCache
from xtts.planning.sizes import LATENTS

PREFIX_CODE = 1  # the code that text and conditioning latents count as in the published repetition penalty
CODES_PER_TOKEN = 12  # a sentence with more codes per text token will not stop by itself

Pick = Callable[[Tensor, Tensor], Tensor]  # scores [B, audio tokens] and the step to codes [B]


class LengthError(XttsError):
    """A text or a number of codes that exceeds the model's position embeddings."""


class GenerationResult(NamedTuple):
    """Codes, and how many there are before the first stop; every code after it is a stop."""

    codes: Tensor  # [B, max_new_codes] int32
    lengths: Tensor  # [B] int32
    latents: Tensor  # [B, max_new_codes, width], for each code the hidden state that predicted it


class GenerationState(NamedTuple):
    """Everything that the next code depends on, as tensors that are passed from call to call."""

    step: Tensor  # int32, the number of codes so far
    codes: Tensor  # [B, max_new_codes] int32; stops where none is generated yet
    latents: Tensor  # [B, max_new_codes, width], as of `Gpt.latents`
    text_lengths: Tensor  # [B] int32
    used: Tensor  # [B, audio tokens] bool, codes that the repetition penalty applies to
    caches: List[KeyValueCache]  # of conditioning latents and text, with room for `max_new_codes`

    def result(self, stop: int) -> GenerationResult:
        """The codes so far."""
        is_before = tf.math.cumsum(tf.cast(self.codes == stop, tf.int32), axis=1) == 0
        return GenerationResult(self.codes, tf.reduce_sum(tf.cast(is_before, tf.int32), axis=1), self.latents)

    def is_over(self, stop: int) -> Tensor:
        """Whether every row has stopped or has max_new_codes; a bool tensor."""
        return (self.step >= self.codes.shape[1]) | tf.reduce_all(self.result(stop).lengths < self.step)


def greedy(scores: Tensor, step: Tensor) -> Tensor:
    """The codes [B] with the highest scores [B, audio tokens]."""
    return tf.argmax(scores, axis=-1, output_type=tf.int32)


def generate(
    gpt: Gpt,
    text: Tensor,
    text_lengths: Tensor,
    conditioning_latents: Tensor,
    max_new_codes: Optional[int] = None,
    repetition_penalty: Any = 1.0,  # a number or a scalar tensor
    pick: Pick = greedy,
) -> GenerationResult:
    """Codes until every row has stopped, at most `max_new_codes`; default: the limit of the published model.

    `pick`, such as a `Sampling`, chooses codes [B] from the penalised scores [B, audio tokens] and the step.
    """
    state = start_generation(gpt, text, text_lengths, conditioning_latents, max_new_codes)
    return continue_generation(gpt, state, state.codes.shape[1], repetition_penalty, pick).result(gpt.tokens.audio_stop)


def start_generation(
    gpt: Gpt, text: Tensor, text_lengths: Tensor, conditioning_latents: Tensor, max_new_codes: Optional[int] = None
) -> GenerationState:
    """Prefill the cache with conditioning latents and text; the state has room for `max_new_codes`."""
    max_new_codes = gpt.size.audio_positions - 3 if max_new_codes is None else max_new_codes
    _check_lengths(gpt, text.shape[1], max_new_codes)
    batch, tokens = text.shape[0], gpt.tokens
    inputs = add_special_tokens(text, text_lengths, tokens.text_start, tokens.text_stop).inputs
    prefix = tf.concat([conditioning_latents, tf.cast(gpt.embed_text(inputs), conditioning_latents.dtype)], axis=1)
    _, caches = gpt.gpt.prefill(prefix, None, Dropout())
    room = [[0, 0], [0, 0], [0, max_new_codes], [0, 0]]
    every_code = tf.range(tokens.audio)[None]
    return GenerationState(
        tf.constant(0),
        tf.fill([batch, max_new_codes], tokens.audio_stop),
        tf.zeros([batch, max_new_codes, conditioning_latents.shape[2]], conditioning_latents.dtype),
        tf.cast(text_lengths, tf.int32),
        tf.repeat((every_code == PREFIX_CODE) | (every_code == tokens.audio_start), batch, axis=0),
        [KeyValueCache(tf.pad(cache.keys, room), tf.pad(cache.values, room)) for cache in caches],
    )


def continue_generation(
    gpt: Gpt, state: GenerationState, count: Any, repetition_penalty: Any = 1.0, pick: Pick = greedy
) -> GenerationState:
    """Generate up to `count` more codes, a number or a scalar tensor; fewer if every row stops or there is no room."""
    stop, max_new_codes = gpt.tokens.audio_stop, state.codes.shape[1]
    every_code = tf.range(gpt.tokens.audio)[None]
    end = tf.minimum(state.step + count, max_new_codes)

    def last_code(state: GenerationState) -> Tensor:
        before = tf.gather(state.codes, tf.maximum(state.step - 1, 0), axis=1)
        return tf.where(state.step == 0, gpt.tokens.audio_start, before)

    def next_code(state: GenerationState) -> Any:
        step, before = state.step, last_code(state)
        states, caches = predict(gpt, state, before)
        scores = tf.cast(gpt.mel_head(states), tf.float32)
        penalised = tf.where(scores > 0, scores / repetition_penalty, scores * repetition_penalty)
        picked = pick(tf.where(state.used, penalised, scores), step)
        picked = tf.where(before == stop, stop, picked)
        return [
            GenerationState(
                step + 1,
                update_at(state.codes[:, :, None], picked[:, None, None], step)[:, :, 0],
                update_at(state.latents, states[:, None], step),
                state.text_lengths,
                state.used | (every_code == picked[:, None]),
                caches,
            )
        ]

    def is_unfinished(state: GenerationState) -> Tensor:
        return (state.step < end) & tf.reduce_any(last_code(state) != stop)

    (state,) = tf.while_loop(is_unfinished, next_code, [state])
    return state


def predict(gpt: Gpt, state: GenerationState, before: Tensor) -> Tuple[Tensor, List[KeyValueCache]]:
    """The hidden states [B, width] that predict the code after `before` [B], and the caches with `before` in them."""
    step, prefix = state.step, state.caches[0].keys.shape[2] - state.codes.shape[1]
    positions = tf.range(prefix + state.codes.shape[1])[None]
    is_text = positions < LATENTS + gpt.tokens.text_special_tokens + state.text_lengths[:, None]
    seen = is_text | ((positions >= prefix) & (positions <= prefix + step))
    vectors = gpt.mel_embedding(before) + tf.gather(gpt.mel_pos_embedding.emb.weight, step)
    mask = tf.where(seen, 0.0, MASKED)[:, None, None]
    vectors = tf.cast(vectors, state.latents.dtype)
    states, caches = gpt.gpt.step(vectors, state.caches, prefix + step, mask)
    return gpt.final_norm(states), caches


def with_room(state: GenerationState, max_new_codes: int, stop: int) -> GenerationState:
    """The state with room for more codes than it was started with."""
    added = max_new_codes - state.codes.shape[1]
    room = [[0, 0], [0, 0], [0, added], [0, 0]]
    return state._replace(
        codes=tf.pad(state.codes, [[0, 0], [0, added]], constant_values=stop),
        latents=tf.pad(state.latents, [[0, 0], [0, added], [0, 0]]),
        caches=[KeyValueCache(tf.pad(cache.keys, room), tf.pad(cache.values, room)) for cache in state.caches],
    )


def _check_lengths(gpt: Gpt, text: int, max_new_codes: int) -> None:
    if text > gpt.size.max_text_tokens:
        raise LengthError(
            f"a text of {text} tokens, but the model reads at most {gpt.size.max_text_tokens}: split it into sentences"
        )
    if not 1 <= max_new_codes <= gpt.size.audio_positions:
        raise LengthError(
            f"max_new_codes = {max_new_codes}: the model generates from 1 to {gpt.size.audio_positions} codes"
        )


def max_codes(gpt: Gpt, text_size: int) -> int:
    """The most codes that are generated for `text_size` text tokens."""
    return min(gpt.size.audio_positions - 3, CODES_PER_TOKEN * text_size + 8)


def decode_codes(codec: Codec, gpt: Gpt, codes: Tensor, lengths: Tensor) -> Tensor:
    """Mels [B, 4 C, n_mels] of generated codes [B, C], which may contain start and stop tokens."""
    return codec.decode(tf.where(codes < gpt.tokens.audio_start, codes, 0), lengths)

"""New codes, one after the other: a transformer, text [B, T] and a style [B, 32, width] come in, codes go out.

The text is read once; every further code attends to what the blocks remember of the tokens before it. `begin` reads,
`extend` goes on by as many codes as are asked for, and `generate` is both, to the end: however the codes are cut into
pieces, they are the same. Shapes are static and the loop is TensorFlow's, so a compiled function of either is one
trace. Every row is as it would be alone.
"""

from typing import Any, Callable, List, NamedTuple, Optional

import tensorflow as tf

from xtts.errors import XttsError
from xtts.model.attention import UNSEEN
from xtts.model.codec import Codec
from xtts.model.dropout import Dropout
from xtts.model.gpt import Gpt, marked
from xtts.model.layers import Tensor, written
from xtts.model.transformer import Cache
from xtts.planning.sizes import LATENTS

FILLER = 1  # stands for the text and the latents where the published model looks for repetitions: code 1 is one, always
CODES_PER_TOKEN = 12  # a sentence that has more is not going to stop

Pick = Callable[[Tensor, Tensor], Tensor]  # scores [B, audio tokens], the number of the step: codes [B]


class LengthError(XttsError):
    """A text, or a number of codes, that the model has no positions for."""


class Spoken(NamedTuple):
    """Codes, and how many come before the first stop; after it there are only stops."""

    codes: Tensor  # [B, most] int32
    lengths: Tensor  # [B] int32
    latents: Tensor  # [B, most, width], for each code the state that it was predicted from


class Progress(NamedTuple):
    """A sentence that is being spoken: tensors only, all that the next code depends on, carried from call to call."""

    step: Tensor  # int32, how many codes there are
    codes: Tensor  # [B, most] int32; stops, where none is yet
    latents: Tensor  # [B, most, width], as the latents of `Gpt`
    text_lengths: Tensor  # [B] int32
    used: Tensor  # [B, audio tokens] bool, codes that count as repetitions
    caches: List[Cache]  # of text and style, and with room for `most` codes

    def spoken(self, stop: int) -> Spoken:
        """What has been said so far."""
        is_before = tf.math.cumsum(tf.cast(self.codes == stop, tf.int32), axis=1) == 0
        return Spoken(self.codes, tf.reduce_sum(tf.cast(is_before, tf.int32), axis=1), self.latents)

    def is_over(self, stop: int) -> Tensor:
        """Whether nothing more is to be said: every row has stopped, or there is no more room. A bool."""
        return (self.step >= self.codes.shape[1]) | tf.reduce_all(self.spoken(stop).lengths < self.step)


def greedy(scores: Tensor, step: Tensor) -> Tensor:
    """The best code, [B], of scores [B, audio tokens]."""
    return tf.argmax(scores, axis=-1, output_type=tf.int32)


def generate(
    gpt: Gpt,
    text: Tensor,
    text_lengths: Tensor,
    style: Tensor,
    most: Optional[int] = None,
    repetition_penalty: Any = 1.0,  # a number or a scalar tensor
    pick: Pick = greedy,
) -> Spoken:
    """Codes until each row has stopped, `most` of them at most; without it, as many as the published model speaks.

    `pick`, such as a `Sampling`, chooses codes [B] from the penalised scores [B, audio tokens] and the step's number.
    """
    progress = begin(gpt, text, text_lengths, style, most)
    return extend(gpt, progress, progress.codes.shape[1], repetition_penalty, pick).spoken(gpt.tokens.audio_stop)


def begin(gpt: Gpt, text: Tensor, text_lengths: Tensor, style: Tensor, most: Optional[int] = None) -> Progress:
    """Style and text are read; there is room for `most` codes, and none is spoken yet."""
    most = gpt.size.audio_positions - 3 if most is None else most
    _check(gpt, text.shape[1], most)
    batch, tokens = text.shape[0], gpt.tokens
    inputs = marked(text, text_lengths, tokens.text_start, tokens.text_stop).inputs
    prefix = tf.concat([style, tf.cast(gpt.embedded_text(inputs), style.dtype)], axis=1)
    _, caches = gpt.gpt.read(prefix, None, Dropout())
    room = [[0, 0], [0, 0], [0, most], [0, 0]]
    every_code = tf.range(tokens.audio)[None]
    return Progress(
        tf.constant(0),
        tf.fill([batch, most], tokens.audio_stop),
        tf.zeros([batch, most, style.shape[2]], style.dtype),
        tf.cast(text_lengths, tf.int32),
        tf.repeat((every_code == FILLER) | (every_code == tokens.audio_start), batch, axis=0),
        [Cache(tf.pad(cache.keys, room), tf.pad(cache.values, room)) for cache in caches],
    )


def extend(gpt: Gpt, progress: Progress, count: Any, repetition_penalty: Any = 1.0, pick: Pick = greedy) -> Progress:
    """`count` codes more, a number or a scalar tensor; fewer where there is room for fewer or every row has stopped."""
    stop, most = gpt.tokens.audio_stop, progress.codes.shape[1]
    prefix = progress.caches[0].keys.shape[2] - most
    places = tf.range(prefix + most)[None]
    is_text = places < LATENTS + gpt.tokens.read_marks + progress.text_lengths[:, None]
    every_code = tf.range(gpt.tokens.audio)[None]
    end = tf.minimum(progress.step + count, most)

    def last(progress: Progress) -> Tensor:
        before = tf.gather(progress.codes, tf.maximum(progress.step - 1, 0), axis=1)
        return tf.where(progress.step == 0, gpt.tokens.audio_start, before)

    def say(progress: Progress) -> Any:
        step, before = progress.step, last(progress)
        seen = is_text | ((places >= prefix) & (places <= prefix + step))
        vectors = gpt.mel_embedding(before) + tf.gather(gpt.mel_pos_embedding.emb.weight, step)
        mask = tf.where(seen, 0.0, UNSEEN)[:, None, None]
        vectors = tf.cast(vectors, progress.latents.dtype)
        states, caches = gpt.gpt.step(vectors, progress.caches, prefix + step, mask)
        states = gpt.final_norm(states)
        scores = tf.cast(gpt.mel_head(states), tf.float32)
        penalised = tf.where(scores > 0, scores / repetition_penalty, scores * repetition_penalty)
        picked = pick(tf.where(progress.used, penalised, scores), step)
        picked = tf.where(before == stop, stop, picked)
        return [
            Progress(
                step + 1,
                written(progress.codes[:, :, None], picked[:, None, None], step)[:, :, 0],
                written(progress.latents, states[:, None], step),
                progress.text_lengths,
                progress.used | (every_code == picked[:, None]),
                caches,
            )
        ]

    def is_speaking(progress: Progress) -> Tensor:
        return (progress.step < end) & tf.reduce_any(last(progress) != stop)

    (progress,) = tf.while_loop(is_speaking, say, [progress])
    return progress


def _check(gpt: Gpt, text: int, most: int) -> None:
    if text > gpt.size.longest_text:
        raise LengthError(
            f"a text of {text} tokens, but the model reads at most {gpt.size.longest_text}: split it into sentences"
        )
    if not 1 <= most <= gpt.size.audio_positions:
        raise LengthError(f"most = {most} codes: the model speaks from 1 to {gpt.size.audio_positions} at a time")


def max_codes(gpt: Gpt, text_size: int) -> int:
    """The longest that the speech of `text_size` tokens may become, in codes."""
    return min(gpt.size.audio_positions - 3, CODES_PER_TOKEN * text_size + 8)


def decode_codes(codec: Codec, gpt: Gpt, codes: Tensor, lengths: Tensor) -> Tensor:
    """The mels [B, 4 C, n_mels] of generated codes [B, C], which may contain start and stop tokens."""
    return codec.decode(tf.where(codes < gpt.tokens.audio_start, codes, 0), lengths)

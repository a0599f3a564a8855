"""New codes, one after the other: a transformer, text [B, T] and a style [B, 32, width] come in, codes go out.

The text is read once; every further code attends to what the blocks remember of the tokens before it. Shapes are
static and the loop is TensorFlow's, so a compiled function of it is one trace. Every row is as it would be alone.
"""

from typing import Any, Callable, List, NamedTuple, Optional

import tensorflow as tf

from xtts.model.attention import UNSEEN
from xtts.model.dropout import Dropout
from xtts.model.gpt import Gpt, marked
from xtts.model.layers import Tensor
from xtts.model.transformer import Cache
from xtts.sizes import LATENTS

FILLER = 1  # stands for the text and the latents where the published model looks for repetitions: code 1 is one, always


class Spoken(NamedTuple):
    """Codes, and how many come before the first stop; after it there are only stops."""

    codes: Tensor  # [B, most] int32
    lengths: Tensor  # [B] int32


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
    pick: Callable[[Tensor, Tensor], Tensor] = greedy,
) -> Spoken:
    """Codes until each row has stopped, `most` of them at most; without it, as many as the published model speaks.

    `pick` chooses codes [B] from the penalised scores [B, audio tokens] and the number of the step.
    """
    most = gpt.size.audio_positions - 3 if most is None else most
    batch, stop = text.shape[0], gpt.tokens.audio_stop
    prefix = LATENTS + text.shape[1] + 2
    caches = _read(gpt, text, text_lengths, style, most)
    places = tf.range(prefix + most)[None]
    is_text = places < LATENTS + 2 + tf.cast(text_lengths, tf.int32)[:, None]
    every_code = tf.range(gpt.tokens.audio)[None]

    def say(step: Tensor, last: Tensor, used: Tensor, codes: Tensor, caches: Any) -> Any:
        seen = is_text | ((places >= prefix) & (places <= prefix + step))
        vectors = gpt.mel_embedding(last) + tf.gather(gpt.mel_pos_embedding.emb.weight, step)
        mask = tf.where(seen, 0.0, UNSEEN)[:, None, None]
        states, caches = gpt.gpt.step(tf.cast(vectors, style.dtype), caches, prefix + step, mask)
        scores = tf.cast(gpt.mel_head(gpt.final_norm(states)), tf.float32)
        penalised = tf.where(scores > 0, scores / repetition_penalty, scores * repetition_penalty)
        picked = pick(tf.where(used, penalised, scores), step)
        is_over = (step > 0) & (last == stop)
        picked = tf.where(is_over, stop, picked)
        codes = tf.where(tf.range(most)[None] == step, picked[:, None], codes)
        return step + 1, picked, used | (every_code == picked[:, None]), codes, caches

    start = tf.fill([batch], gpt.tokens.audio_start)
    used = (every_code == FILLER) | (every_code == start[:, None])
    state = (tf.constant(0), start, used, tf.fill([batch, most], stop), caches)
    _, _, _, codes, _ = tf.while_loop(
        lambda step, last, *_: (step == 0) | tf.reduce_any(last != stop), say, state, maximum_iterations=most
    )
    return Spoken(codes, tf.reduce_sum(tf.cast(tf.math.cumsum(tf.cast(codes == stop, tf.int32), 1) == 0, tf.int32), 1))


def _read(gpt: Gpt, text: Tensor, text_lengths: Tensor, style: Tensor, most: int) -> List[Cache]:
    """What the blocks remember of style and text, with room for `most` codes."""
    tokens = gpt.tokens
    inputs = marked(text, text_lengths, tokens.text_start, tokens.text_stop).inputs
    prefix = tf.concat([style, tf.cast(gpt.embedded_text(inputs), style.dtype)], axis=1)
    _, caches = gpt.gpt.read(prefix, None, Dropout())
    room = [[0, 0], [0, 0], [0, most], [0, 0]]
    return [Cache(tf.pad(cache.keys, room), tf.pad(cache.values, room)) for cache in caches]

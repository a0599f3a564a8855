"""XTTS's language model: text, codes and a reference voice come in; losses, latents and new codes go out.

One sequence an utterance: [32 latents] [START] text [STOP] [start] codes [stop]. Text and codes have embeddings and
positions of their own; the latents have no position. Two ways to lay a batch out give the same numbers:

- `losses`, for training: codes directly behind the text, padding only at the end. As no token sees what comes after
  it, padding needs no mask, and a step costs what the joint length costs.
- `published_losses`, for checking: codes behind the padded text, and a mask over the keys in between.

The published layout masks the last mark of either part, and ignores what it predicts: while the model trains, [STOP]
and [stop] are targets, never inputs. The joint sequence leaves both out. Yet the published model reads [STOP] when it
speaks. To weights that were trained here it would be a word they have never met, behind which some go on speaking, so
these speak as they were trained: `Tokens.use_stop_token` says which it is.
"""

from typing import Any, NamedTuple, Optional, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts.model.attention import UNSEEN, causal
from xtts.model.conditioning import ConditioningEncoder, PerceiverResampler
from xtts.model.dropout import Dropout
from xtts.model.layers import DEVIATION, Embedding, LayerNorm, Linear, Module, Random, Tensor, extents
from xtts.model.transformer import Transformer
from xtts.planning.shapes import STOPS
from xtts.planning.sizes import LATENTS
from xtts.planning.sizes import GptSize as Size
from xtts.weights.safetensors_file import WeightsError

TEXT_SHARE = 0.01  # of the text's loss in the whole; that of the codes counts full
IGNORED = -1  # a target that is none
SHORTEST_WAVE, LONGEST_WAVE = 6.0, 200.0  # of the sines that positions begin with, in text tokens


@attrs.frozen
class Tokens:
    """How many tokens there are, marks among them, and which the marks are."""

    text: int
    audio: int
    text_start: int = 261
    text_stop: int = 0
    audio_start: int = 1024
    audio_stop: int = 1025
    use_stop_token: bool = True  # whether [STOP] is read in speaking

    @property
    def read_marks(self) -> int:
        """The marks of the text that are read in speaking."""
        return 2 if self.use_stop_token else 1


class Losses(NamedTuple):
    """Of one batch, float32: means over the tokens that are to be predicted, and how many those are."""

    total: Tensor
    text: Tensor
    codes: Tensor
    text_tokens: Tensor
    code_tokens: Tensor


class Logits(NamedTuple):
    """What comes next, float32: after [START] and each text token, after [start], each code and the stops."""

    text: Tensor  # [B, T + 1, text tokens]
    codes: Tensor  # [B, C + 4, audio tokens]


class Marked(NamedTuple):
    """A part of the sequence, [B, T]: what goes in, and what is to come out; IGNORED past the end and in blank rows."""

    inputs: Tensor
    targets: Tensor

    def without_last(self) -> "Marked":
        return Marked(self.inputs[:, :-1], self.targets[:, :-1])


class Gpt(Module):
    """The transformer with its embeddings, heads and conditioning. It computes in the type of the reference mel.

    Text [B, T] and codes [B, C] come without marks, with their lengths [B]; a row whose lengths are 0 is blank.

    `pace`, text tokens a code, is for weights that begin from nothing: places in the text, and those in the codes where
    they are spoken at that pace, begin with the same vectors. So the first steps find where to read, which takes
    thousands when both are drawn at random. From there on they are learned like any others.
    """

    def __init__(
        self,
        size: Size,
        tokens: Tokens,
        random: Random,
        mels: int = 80,
        pace: Optional[float] = None,
    ) -> None:
        super().__init__()
        if not size.perceiver_layers:
            raise WeightsError(
                "the model has no perceiver, as XTTS v1 has none: it can be neither trained nor spoken with; name an "
                "XTTS-v2, or a size whose perceiver_layers are at least 1"
            )
        self._size, self._tokens = size, tokens
        self.conditioning_encoder = ConditioningEncoder(size, random, mels)
        self.conditioning_perceiver = PerceiverResampler(size, random)
        self.text_embedding = Embedding(tokens.text, size.width, random)
        self.mel_embedding = Embedding(tokens.audio, size.width, random)
        self.text_pos_embedding = Positions(size.text_positions + 2, size.width, random)
        self.mel_pos_embedding = Positions(size.audio_positions + 3, size.width, random)
        self.gpt = Transformer(size, random)
        self.final_norm = LayerNorm(size.width)
        self.text_head = Linear(size.width, tokens.text, random)
        self.mel_head = Linear(size.width, tokens.audio, random)
        if pace is not None:
            self.text_pos_embedding.begin(np.arange(size.text_positions + 2))
            # Behind [START], which is at place 0, and in the middle of a token.
            self.mel_pos_embedding.begin(1.5 + pace * np.arange(size.audio_positions + 3))

    @property
    def size(self) -> Size:
        return self._size

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    def style(self, reference: Tensor) -> Tensor:
        """The latents [B, 32, width] of reference mels [B, M, mels]."""
        latents: Tensor = self.conditioning_perceiver(self.conditioning_encoder(reference))
        return latents

    def losses(
        self,
        text: Tensor,
        text_lengths: Tensor,
        codes: Tensor,
        code_lengths: Tensor,
        reference: Tensor,
        joint_length: Optional[Any] = None,
        dropout: float = 0.0,
        seed: Optional[Tensor] = None,
    ) -> Tuple[Losses, Logits]:
        """Losses and logits of a batch, codes next to text.

        `joint_length` is that of the batch's shape, in which every row fits; a tensor where lengths are free; without
        it, one in which any row does.
        `seed`, two integers, is that of the step's dropout.
        """
        text_part, code_part = self._parts(text, text_lengths, codes, code_lengths)
        text_part, code_part = text_part.without_last(), code_part.without_last()
        text_places, code_places = extents(text_part.inputs)[1], extents(code_part.inputs)[1]
        length = text_places + code_places
        if joint_length is not None:
            length = joint_length - LATENTS - 2  # without the two marks at the end
        begin = text_lengths + 1
        joint = self._joint(text_part.inputs, code_part.inputs, begin, length, self.style(reference))
        states = self._states(joint, None, Dropout(dropout, seed))[:, LATENTS:]
        code_states = shifted(states, -begin, code_places)
        return self._losses(states[:, :text_places], code_states, text_part, code_part)

    def published_losses(
        self, text: Tensor, text_lengths: Tensor, codes: Tensor, code_lengths: Tensor, reference: Tensor
    ) -> Tuple[Losses, Logits]:
        """The same losses from the published layout; its logits have one place more, after the last mark."""
        text_part, code_part = self._parts(text, text_lengths, codes, code_lengths)
        style = self.style(reference)
        vectors = [style, self.embedded_text(text_part.inputs), self.embedded_codes(code_part.inputs)]
        joint = tf.concat([tf.cast(part, style.dtype) for part in vectors], axis=1)
        seen = [tf.ones(style.shape[:2], tf.bool), text_part.targets != IGNORED, code_part.targets != IGNORED]
        mask = causal(joint.shape[1]) + tf.where(tf.concat(seen, axis=1), 0.0, UNSEEN)[:, None, None]
        states = self._states(joint, mask, Dropout())[:, LATENTS:]
        width = text_part.inputs.shape[1]
        return self._losses(states[:, :width], states[:, width:], text_part, code_part)

    def latents(
        self,
        text: Tensor,
        text_lengths: Tensor,
        codes: Tensor,
        code_lengths: Tensor,
        style: Tensor,
        training: bool = False,
    ) -> Tensor:
        """What the decoder speaks: [B, C, width], for each code the state that it is predicted from.

        With `training`, [B, C + 4, width]: the states that three stops and the last one are predicted from come too.
        The text is read as in speaking. Every row is as it would be alone, whatever the others' lengths are.
        """
        text_part, code_part = self._parts(text, text_lengths, codes, code_lengths)
        codes_in = code_part.inputs[:, : codes.shape[1] + (STOPS + 1 if training else 0)]
        begin = text_lengths + self._tokens.read_marks
        joint = self._joint(text_part.inputs, codes_in, begin, text.shape[1] + 2 + codes_in.shape[1], style)
        states = self._states(joint, None, Dropout())[:, LATENTS:]
        return shifted(states, -begin, codes_in.shape[1])

    def embedded_text(self, ids: Tensor) -> Tensor:
        """[B, T] to [B, T, width], [START] at place 0; float32."""
        return self.text_embedding(ids) + self.text_pos_embedding(extents(ids)[1])

    def embedded_codes(self, ids: Tensor) -> Tensor:
        """[B, C] to [B, C, width], [start] at place 0; float32."""
        return self.mel_embedding(ids) + self.mel_pos_embedding(extents(ids)[1])

    def _parts(self, text: Tensor, text_lengths: Tensor, codes: Tensor, code_lengths: Tensor) -> Tuple[Marked, Marked]:
        """[START] text [STOP], and [start] codes, three stops, [stop]; nothing is to come of blank rows."""
        tokens, is_blank = self._tokens, (text_lengths + code_lengths == 0)[:, None]
        text_part = marked(text, text_lengths, tokens.text_start, tokens.text_stop)
        code_part = marked(codes, code_lengths, tokens.audio_start, tokens.audio_stop, STOPS)
        return (
            Marked(text_part.inputs, tf.where(is_blank, IGNORED, text_part.targets)),
            Marked(code_part.inputs, tf.where(is_blank, IGNORED, code_part.targets)),
        )

    def _joint(self, text: Tensor, codes: Tensor, begin: Tensor, length: Any, style: Tensor) -> Tensor:
        """Style and `length` places of text, up to `begin` [B], and codes from there on: [B, 32 + length, width]."""
        places = extents(text)[1]
        is_text = tf.range(places)[None] < begin[:, None]
        text_vectors = tf.where(is_text[:, :, None], self.embedded_text(text), 0.0)
        text_vectors = tf.pad(text_vectors, [[0, 0], [0, length - places], [0, 0]])
        joint = text_vectors + shifted(self.embedded_codes(codes), begin, length)
        return tf.concat([style, tf.cast(joint, style.dtype)], axis=1)

    def _states(self, joint: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        states: Tensor = self.final_norm(self.gpt(joint, mask, drop))
        return states

    def _losses(
        self, text_states: Tensor, code_states: Tensor, text_part: Marked, code_part: Marked
    ) -> Tuple[Losses, Logits]:
        logits = Logits(
            tf.cast(self.text_head(text_states), tf.float32), tf.cast(self.mel_head(code_states), tf.float32)
        )
        text, text_tokens = _mean_entropy(logits.text, text_part.targets)
        codes, code_tokens = _mean_entropy(logits.codes, code_part.targets)
        return Losses(TEXT_SHARE * text + codes, text, codes, text_tokens, code_tokens), logits


class Positions(Module):
    """The learned vectors of the first places, [length, width]."""

    def __init__(self, count: int, width: int, random: Random) -> None:
        super().__init__()
        self.emb = Embedding(count, width, random)

    def __call__(self, length: Any) -> Tensor:
        return self.emb.weight[:length]

    def begin(self, places: np.ndarray) -> None:
        """Begin with sines of places on a common scale, near ones alike, and as large as what is drawn at random."""
        waves = self.emb.weight.shape[1] // 2
        angles = 2 * np.pi * places[:, None] / np.geomspace(SHORTEST_WAVE, LONGEST_WAVE, waves)
        sines = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self.emb.weight.assign((sines * np.sqrt(2) * DEVIATION).astype(np.float32))


def shifted(x: Tensor, by: Tensor, length: Any) -> Tensor:
    """[B, T, width] to [B, length, width]: each row moved to later places, by [B], with zeros where nothing lands.

    Its gradient is a shift back: a gather where TensorFlow would scatter.
    """

    def move(x: Tensor) -> Any:
        return _moved(x, by, length), lambda dy: _moved(dy, -by, extents(x)[1])

    return tf.custom_gradient(move)(x)


def _moved(x: Tensor, by: Tensor, length: Any) -> Tensor:
    places = tf.range(length)[None] - tf.cast(by, tf.int32)[:, None]
    inside = (places >= 0) & (places < extents(x)[1])
    return tf.where(inside[:, :, None], tf.gather(x, tf.where(inside, places, 0), batch_dims=1), tf.zeros([], x.dtype))


def marked(ids: Tensor, lengths: Tensor, start: int, stop: int, stops: int = 0) -> Marked:
    """[start] ids, stops, [stop] as they go in, [B, T + stops + 2]; as they are to come out, without [start]."""
    rows, count = extents(ids)
    places = tf.range(count + stops + 2)[None]
    lengths = tf.cast(lengths, tf.int32)[:, None]
    body = tf.where(places < lengths, tf.pad(tf.cast(ids, tf.int32), [[0, 0], [0, stops + 2]]), stop)
    inputs = tf.concat([tf.fill([rows, 1], start), body[:, :-1]], axis=1)
    return Marked(inputs, tf.where(places <= lengths + stops, body, IGNORED))


def _mean_entropy(logits: Tensor, targets: Tensor) -> Tuple[Tensor, Tensor]:
    """The mean cross-entropy over targets that are not ignored, and how many they are."""
    wanted = targets != IGNORED
    entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(wanted, targets, 0), logits)
    count = tf.reduce_sum(tf.cast(wanted, tf.float32))
    return tf.reduce_sum(tf.where(wanted, entropies, 0.0)) / tf.maximum(count, 1.0), count

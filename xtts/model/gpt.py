"""XTTS's autoregressive language model: text and conditioning latents to codes.

An utterance is one sequence: [32 conditioning latents] [START] text [STOP] [start] codes [stop]. Text and codes have
their own token and position embeddings; the latents have no position. In training the codes of a row lie directly after
its text, and padding is only at the end. Attention is causal, so padding needs no mask, and a step costs what the joint
length costs. The public trainer has the codes after the padded text, and a mask over the padding in between, which
gives the same numbers.

The published layout masks the last special token of both parts and ignores its prediction: in training, [STOP] and
[stop] are targets, never inputs. The joint sequence leaves both out. The published model, however, reads [STOP] in
inference. Models trained from scratch here have never seen it as an input, and some do not stop after it, so they go
without: see `Tokens.use_stop_token`.
"""

from typing import Any, NamedTuple, Optional, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts.model.conditioning import ConditioningEncoder, PerceiverResampler
from xtts.model.layers import (
    INITIAL_DEVIATION,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Random,
    Tensor,
    shape_list,
)
from xtts.model.transformer import Transformer
from xtts.planning.shapes import STOPS
from xtts.planning.sizes import LATENTS
from xtts.planning.sizes import GptSize as Size
from xtts.weights.safetensors_file import WeightsError

TEXT_LOSS_WEIGHT = 0.01  # of the text loss; that of the codes has a weight of 1
IGNORED_TARGET = -1  # target of positions without a loss
MIN_WAVELENGTH, MAX_WAVELENGTH = 6.0, 200.0  # of sinusoidal initial positions, in text tokens


@attrs.frozen
class Tokens:
    """Vocabulary sizes, special tokens included, and the special tokens."""

    text: int
    audio: int
    text_start: int = 261
    text_stop: int = 0
    audio_start: int = 1024
    audio_stop: int = 1025
    use_stop_token: bool = True  # whether [STOP] is an input in inference

    @property
    def text_special_tokens(self) -> int:
        """How many special tokens of the text are inputs in inference."""
        return 2 if self.use_stop_token else 1


class Losses(NamedTuple):
    """Losses of a batch, float32: means over the target tokens, and the numbers of those."""

    total: Tensor
    text: Tensor
    codes: Tensor
    text_tokens: Tensor
    code_tokens: Tensor


class Logits(NamedTuple):
    """Next-token logits, float32: after [START] and each text token; after [start], each code and the stops."""

    text: Tensor  # [B, T + 1, text tokens]
    codes: Tensor  # [B, C + 4, audio tokens]


class TokenSequence(NamedTuple):
    """Inputs and targets, [B, T]; targets are IGNORED_TARGET in padding and in blank rows."""

    inputs: Tensor
    targets: Tensor

    def without_last(self) -> "TokenSequence":
        return TokenSequence(self.inputs[:, :-1], self.targets[:, :-1])

    def without_targets(self, places: Tensor) -> "TokenSequence":
        """Without the targets from places[:, 0] up to places[:, 1], [B, 2]."""
        positions = tf.range(shape_list(self.targets)[1])[None]
        is_inside = (positions >= places[:, :1]) & (positions < places[:, 1:])
        return TokenSequence(self.inputs, tf.where(is_inside, IGNORED_TARGET, self.targets))


class Gpt(Module):
    """The transformer with its embeddings, heads and conditioning encoder. Computes in the dtype of the reference mel.

    Text [B, T] and codes [B, C] are given without special tokens, with their lengths [B]; rows of length 0 are blank.

    `tokens_per_code` is for training from scratch: text positions, and the code positions at which they are spoken at
    that rate, start with the same embeddings. This makes the alignment easy to learn in the first steps, which takes
    thousands of steps when both are random. After that they are trained like all others.
    """

    def __init__(
        self,
        size: Size,
        tokens: Tokens,
        random: Random,
        n_mels: int = 80,
        tokens_per_code: Optional[float] = None,
    ) -> None:
        super().__init__()
        if not size.perceiver_layers:
            raise WeightsError(
                "the model has no perceiver, as XTTS v1 has none: it can be neither trained nor used to speak; name an "
                "XTTS-v2, or a size with at least 1 of perceiver_layers"
            )
        self._size, self._tokens = size, tokens
        self.conditioning_encoder = ConditioningEncoder(size, random, n_mels)
        self.conditioning_perceiver = PerceiverResampler(size, random)
        self.text_embedding = Embedding(tokens.text, size.width, random)
        self.mel_embedding = Embedding(tokens.audio, size.width, random)
        self.text_pos_embedding = PositionEmbedding(size.text_positions + 2, size.width, random)
        self.mel_pos_embedding = PositionEmbedding(size.audio_positions + 3, size.width, random)
        self.gpt = Transformer(size, random)
        self.final_norm = LayerNorm(size.width)
        self.text_head = Linear(size.width, tokens.text, random)
        self.mel_head = Linear(size.width, tokens.audio, random)
        if tokens_per_code is not None:
            self.text_pos_embedding.init_sinusoidal(np.arange(size.text_positions + 2))
            # After [START], which is at position 0, and in the middle of a token.
            self.mel_pos_embedding.init_sinusoidal(1.5 + tokens_per_code * np.arange(size.audio_positions + 3))

    @property
    def size(self) -> Size:
        return self._size

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    def conditioning_latents(self, reference: Tensor) -> Tensor:
        """Conditioning latents [B, 32, width] of reference mels [B, M, n_mels]."""
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
        masked_codes: Optional[Tensor] = None,
    ) -> Tuple[Losses, Logits]:
        """Losses and logits of a batch, with codes directly after the text.

        `joint_length`: of the batch's shape, no shorter than any row; a tensor if lengths are dynamic; default: one
        that fits any row. `seed`: of the step's dropout, two integers. `masked_codes`
        [B, 2]: the codes of each row that have no loss, because its reference was cut there: the first of them, and the
        first after them.
        """
        text_part, code_part = self._parts(text, text_lengths, codes, code_lengths)
        text_part, code_part = text_part.without_last(), code_part.without_last()
        conditioning_latents = self.conditioning_latents(reference)
        text_length, code_length = shape_list(text_part.inputs)[1], shape_list(code_part.inputs)[1]
        length = text_length + code_length
        if joint_length is not None:
            length = joint_length - LATENTS - 2  # without [STOP] and [stop]
        if masked_codes is not None:
            code_part = code_part.without_targets(masked_codes)
        code_starts = text_lengths + 1
        joint = self._joint(text_part.inputs, code_part.inputs, code_starts, length, conditioning_latents)
        states = self._states(joint, None, Dropout(dropout, seed))[:, LATENTS:]
        code_states = shift_rows(states, -code_starts, code_length)
        return self._losses(states[:, :text_length], code_states, text_part, code_part)

    def latents(
        self,
        text: Tensor,
        text_lengths: Tensor,
        codes: Tensor,
        code_lengths: Tensor,
        conditioning_latents: Tensor,
        training: bool = False,
    ) -> Tensor:
        """The waveform decoder's input, [B, C, width]: for each code the hidden state that predicts it.

        With `training`, [B, C + 4, width]: includes the states that predict the stops. The text has the special tokens
        of inference. No row depends on the lengths of the others.
        """
        text_part, code_part = self._parts(text, text_lengths, codes, code_lengths)
        codes_in = code_part.inputs[:, : codes.shape[1] + (STOPS + 1 if training else 0)]
        code_starts = text_lengths + self._tokens.text_special_tokens
        joint = self._joint(
            text_part.inputs, codes_in, code_starts, text.shape[1] + 2 + codes_in.shape[1], conditioning_latents
        )
        states = self._states(joint, None, Dropout())[:, LATENTS:]
        return shift_rows(states, -code_starts, codes_in.shape[1])

    def embed_text(self, ids: Tensor) -> Tensor:
        """[B, T] to [B, T, width], with [START] at position 0; float32."""
        return self.text_embedding(ids) + self.text_pos_embedding(shape_list(ids)[1])

    def embed_codes(self, ids: Tensor) -> Tensor:
        """[B, C] to [B, C, width], with [start] at position 0; float32."""
        return self.mel_embedding(ids) + self.mel_pos_embedding(shape_list(ids)[1])

    def _parts(
        self, text: Tensor, text_lengths: Tensor, codes: Tensor, code_lengths: Tensor
    ) -> Tuple[TokenSequence, TokenSequence]:
        """[START] text [STOP], and [start] codes, three stops, [stop]; blank rows have no targets."""
        tokens, is_blank = self._tokens, (text_lengths + code_lengths == 0)[:, None]
        text_part = add_special_tokens(text, text_lengths, tokens.text_start, tokens.text_stop)
        code_part = add_special_tokens(codes, code_lengths, tokens.audio_start, tokens.audio_stop, STOPS)
        return (
            TokenSequence(text_part.inputs, tf.where(is_blank, IGNORED_TARGET, text_part.targets)),
            TokenSequence(code_part.inputs, tf.where(is_blank, IGNORED_TARGET, code_part.targets)),
        )

    def _joint(
        self, text: Tensor, codes: Tensor, code_starts: Tensor, length: Any, conditioning_latents: Tensor
    ) -> Tensor:
        """Latents, then text up to `code_starts` [B] and codes from there: [B, 32 + length, width]."""
        text_length = shape_list(text)[1]
        is_text = tf.range(text_length)[None] < code_starts[:, None]
        text_vectors = tf.where(is_text[:, :, None], self.embed_text(text), 0.0)
        text_vectors = tf.pad(text_vectors, [[0, 0], [0, length - text_length], [0, 0]])
        joint = text_vectors + shift_rows(self.embed_codes(codes), code_starts, length)
        return tf.concat([conditioning_latents, tf.cast(joint, conditioning_latents.dtype)], axis=1)

    def _states(self, joint: Tensor, mask: Optional[Tensor], drop: Dropout) -> Tensor:
        states: Tensor = self.final_norm(self.gpt(joint, mask, drop))
        return states

    def _losses(
        self, text_states: Tensor, code_states: Tensor, text_part: TokenSequence, code_part: TokenSequence
    ) -> Tuple[Losses, Logits]:
        logits = Logits(
            tf.cast(self.text_head(text_states), tf.float32), tf.cast(self.mel_head(code_states), tf.float32)
        )
        text, text_tokens = _mean_cross_entropy(logits.text, text_part.targets)
        codes, code_tokens = _mean_cross_entropy(logits.codes, code_part.targets)
        return Losses(TEXT_LOSS_WEIGHT * text + codes, text, codes, text_tokens, code_tokens), logits


class PositionEmbedding(Module):
    """Learned position embeddings, [length, width]."""

    def __init__(self, count: int, width: int, random: Random) -> None:
        super().__init__()
        self.emb = Embedding(count, width, random)

    def __call__(self, length: Any) -> Tensor:
        return self.emb.weight[:length]

    def init_sinusoidal(self, positions: np.ndarray) -> None:
        """Set to sines and cosines, so that close positions are similar, with the variance of random weights."""
        wavelengths = self.emb.weight.shape[1] // 2
        angles = 2 * np.pi * positions[:, None] / np.geomspace(MIN_WAVELENGTH, MAX_WAVELENGTH, wavelengths)
        sines = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self.emb.weight.assign((sines * np.sqrt(2) * INITIAL_DEVIATION).astype(np.float32))


def shift_rows(x: Tensor, by: Tensor, length: Any) -> Tensor:
    """[B, T, width] to [B, length, width]: each row shifted right by `by` [B], and filled up with zeros.

    Its gradient shifts back with a gather, where TensorFlow's own would scatter.
    """

    def move(x: Tensor) -> Any:
        return _shift_rows(x, by, length), lambda dy: _shift_rows(dy, -by, shape_list(x)[1])

    return tf.custom_gradient(move)(x)


def _shift_rows(x: Tensor, by: Tensor, length: Any) -> Tensor:
    positions = tf.range(length)[None] - tf.cast(by, tf.int32)[:, None]
    inside = (positions >= 0) & (positions < shape_list(x)[1])
    return tf.where(
        inside[:, :, None], tf.gather(x, tf.where(inside, positions, 0), batch_dims=1), tf.zeros([], x.dtype)
    )


def add_special_tokens(ids: Tensor, lengths: Tensor, start: int, stop: int, stops: int = 0) -> TokenSequence:
    """Inputs [start] ids, stops, [stop], [B, T + stops + 2]; targets are the same without [start]."""
    rows, count = shape_list(ids)
    positions = tf.range(count + stops + 2)[None]
    lengths = tf.cast(lengths, tf.int32)[:, None]
    body = tf.where(positions < lengths, tf.pad(tf.cast(ids, tf.int32), [[0, 0], [0, stops + 2]]), stop)
    inputs = tf.concat([tf.fill([rows, 1], start), body[:, :-1]], axis=1)
    return TokenSequence(inputs, tf.where(positions <= lengths + stops, body, IGNORED_TARGET))


def _mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tuple[Tensor, Tensor]:
    """The mean cross-entropy over targets that are not ignored, and their number."""
    wanted = targets != IGNORED_TARGET
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(wanted, targets, 0), logits)
    count = tf.reduce_sum(tf.cast(wanted, tf.float32))
    return tf.reduce_sum(tf.where(wanted, losses, 0.0)) / tf.maximum(count, 1.0), count

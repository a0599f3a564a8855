"""The public trainer's layout of a batch: codes after the padded text, and a mask over the padding in between."""

import tensorflow as tf

from xtts.model.attention import MASKED, causal_mask
from xtts.model.gpt import IGNORED_TARGET, TEXT_LOSS_WEIGHT, Logits, Losses, add_special_tokens
from xtts.model.layers import Dropout
from xtts.planning.shapes import STOPS
from xtts.planning.sizes import LATENTS


def padded_losses(gpt, text, text_lengths, codes, code_lengths, reference):
    """The losses of `Gpt.losses`; the logits have one more position, after the last special token."""
    tokens, is_blank = gpt.tokens, (text_lengths + code_lengths == 0)[:, None]
    text_part = add_special_tokens(text, text_lengths, tokens.text_start, tokens.text_stop)
    code_part = add_special_tokens(codes, code_lengths, tokens.audio_start, tokens.audio_stop, STOPS)
    targets = [tf.where(is_blank, IGNORED_TARGET, part.targets) for part in (text_part, code_part)]
    latents = gpt.conditioning_latents(reference)
    vectors = [latents, gpt.embed_text(text_part.inputs), gpt.embed_codes(code_part.inputs)]
    joint = tf.concat([tf.cast(part, latents.dtype) for part in vectors], axis=1)
    seen = tf.concat([tf.ones(latents.shape[:2], tf.bool), *(part != IGNORED_TARGET for part in targets)], axis=1)
    mask = causal_mask(joint.shape[1]) + tf.where(seen, 0.0, MASKED)[:, None, None]
    states = gpt.final_norm(gpt.gpt(joint, mask, Dropout()))[:, LATENTS:]
    width = text_part.inputs.shape[1]
    heads = gpt.text_head(states[:, :width]), gpt.mel_head(states[:, width:])
    logits = Logits(*(tf.cast(head, tf.float32) for head in heads))
    (text_loss, text_count), (code_loss, code_count) = map(_mean_cross_entropy, logits, targets)
    total = TEXT_LOSS_WEIGHT * text_loss + code_loss
    return Losses(total, text_loss, code_loss, text_count, code_count), logits


def _mean_cross_entropy(logits, targets):
    is_target = targets != IGNORED_TARGET
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(is_target, targets, 0), logits)
    count = tf.reduce_sum(tf.cast(is_target, tf.float32))
    return tf.reduce_sum(tf.where(is_target, losses, 0.0)) / tf.maximum(count, 1.0), count

"""Multi-head attention that recomputes its scores in the backward pass.

The scores, [L, L] for every head, are not kept for the gradient but recomputed from queries and keys: this costs one
more matmul and saves most of the memory. Causal attention is computed in bands of queries, each with only the keys that
it may attend to, so that most masked scores are never computed.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from xtts.model.layers import Dropout, Tensor, batch_matmul, recompute_barrier, shape_list

MASKED = -1e9  # added to masked scores: the softmax makes them 0
QUERY_BANDS = 4  # of causal attention: 0.625 of the work of all scores; more bands save little more
MIN_BAND_QUERIES = 32


class Band(NamedTuple):
    """Queries from `start` to `stop`, which attend to the first `seen` keys; tensors if lengths are dynamic."""

    start: Any
    stop: Any
    seen: Any
    mask: Optional[Tensor] = None  # added to the scores, [..., queries, seen]
    keep_mask: Optional[Tensor] = None  # of dropout, bool [B, heads, queries, seen]
    scale: float = 1.0  # of the attention weights that dropout keeps


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor] = None,
    drop: Optional[Dropout] = None,
    is_causal: bool = False,
) -> Tensor:
    """Scaled queries [B, heads, Q, head], keys and values [B, heads, K, head] to [B, heads, Q, head].

    `mask`, [..., Q, K], is added to the scores; with `is_causal` there is none.
    """
    batch, heads, queries, _ = shape_list(q)
    bands = _bands(queries) if is_causal else [Band(0, queries, shape_list(k)[2], mask)]  # the last band sees all keys
    if drop:
        shapes = [[batch, heads, band.stop - band.start, band.seen] for band in bands]
        bands = [band._replace(keep_mask=drop.keep_mask(shape), scale=drop.scale) for band, shape in zip(bands, shapes)]

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        parts = [_forward(band, q, k, v) for band in bands]
        mixed = _concat_queries(parts)

        def gradient(d_mixed: Tensor) -> Any:
            found = [
                _backward(band, q, k, v, part, d_mixed[:, :, band.start : band.stop])
                for band, part in zip(bands, parts)
            ]
            d_q, d_k, d_v = zip(*found)
            return _concat_queries(d_q), _sum_key_gradients(d_k, bands), _sum_key_gradients(d_v, bands)

        return mixed, gradient

    return tf.custom_gradient(attention)(q, k, v)


def causal_mask(queries: Any, keys: Optional[Any] = None) -> Tensor:
    """[queries, keys], aligned at the end: 0 where a key is not after its query, else MASKED."""
    keys = queries if keys is None else keys
    return tf.where(tf.range(keys - queries, keys)[:, None] >= tf.range(keys)[None], 0.0, MASKED)


def _bands(length: Any) -> List[Band]:
    size = -(-length // QUERY_BANDS)
    if isinstance(length, int):
        size = max(MIN_BAND_QUERIES, size)
        stops = [min(start + size, length) for start in range(0, length, size)]
    else:  # dynamic: always QUERY_BANDS; none is empty, because the 32 latents alone are longer
        stops = [*(number * size for number in range(1, QUERY_BANDS)), length]
    return [Band(start, stop, stop, causal_mask(stop - start, stop)) for start, stop in zip([0, *stops], stops)]


def _forward(band: Band, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The attention output of the band's queries."""
    return batch_matmul(tf.cast(_apply_dropout(band, _attention_weights(band, q, k)), v.dtype), _seen(v, band))


def _backward(
    band: Band, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, d_mixed: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Gradients of the band's queries, and of the keys and values that they attend to."""
    weights = _attention_weights(band, recompute_barrier(q, d_mixed), k)
    d_v = _transposed_matmul(d_mixed, tf.cast(_apply_dropout(band, weights), v.dtype))
    d_weights = tf.cast(batch_matmul(d_mixed, _seen(v, band), transpose_b=True), tf.float32)
    mean = tf.reduce_sum(tf.cast(d_mixed * mixed, tf.float32), axis=-1, keepdims=True)
    d_scores = tf.cast(weights * (_apply_dropout(band, d_weights) - mean), q.dtype)
    d_q = batch_matmul(d_scores, _seen(k, band))
    return d_q, _transposed_matmul(q[:, :, band.start : band.stop], d_scores), d_v


def _seen(x: Tensor, band: Band) -> Tensor:
    """The keys or values that the band's queries attend to."""
    return x if isinstance(band.seen, int) and band.seen == x.shape[2] else x[:, :, : band.seen]


def _transposed_matmul(x: Tensor, scores: Tensor) -> Tensor:
    """scores^T x, computed as (x^T scores)^T, so that only the small result is transposed."""
    return tf.transpose(batch_matmul(x, scores, transpose_a=True), [0, 1, 3, 2])


def _apply_dropout(band: Band, scores: Tensor) -> Tensor:
    return scores if band.keep_mask is None else tf.where(band.keep_mask, scores * band.scale, 0.0)


def _attention_weights(band: Band, q: Tensor, k: Tensor) -> Tensor:
    """The softmax of the scores, float32 [B, heads, queries, seen]."""
    scores = batch_matmul(q[:, :, band.start : band.stop], _seen(k, band), transpose_b=True)
    scores = tf.cast(scores, tf.float32)
    return tf.nn.softmax(scores if band.mask is None else scores + band.mask)


def _concat_queries(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=2)


def _sum_key_gradients(parts: Sequence[Tensor], bands: Sequence[Band]) -> Tensor:
    """The sum of the bands' gradients of keys, each of which covers the keys up to `seen`.

    Added two at a time, with a concat in between: a chain of sums would become an add_n, which has no order; see
    layers.ordered_sum.
    """
    whole = parts[0]
    for before, part in zip(bands, parts[1:]):
        whole = tf.concat([whole + part[:, :, : before.seen], part[:, :, before.seen :]], axis=2)
    return whole

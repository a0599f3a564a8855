"""Attention: queries, keys and values come in, [B, heads, L, head]; what each query attends to goes out.

Of scores, [L, L] for every head, nothing is kept for the gradient: they are made again from queries and keys, which is
one product more and the largest part of the memory less. A causal attention goes in bands of queries, each with only
the keys that it sees, so that most of what would be masked is never computed.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from xtts.model.dropout import Dropout
from xtts.model.layers import Tensor, again, batched, extents

UNSEEN = -1e9  # added to a score that is not to count: nothing is left of it after the softmax
BANDS = 4  # of a causal attention: 0.625 of the whole; more bands save little more
SHORTEST_BAND = 32  # queries


class Band(NamedTuple):
    """Queries from `start` to `stop`, which see the keys up to `seen`; tensors where lengths are free."""

    start: Any
    stop: Any
    seen: Any
    mask: Optional[Tensor] = None  # added to the scores, [..., queries, seen]
    kept: Optional[Tensor] = None  # by dropout, bool [B, heads, queries, seen]
    scale: float = 1.0  # of what is kept


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor] = None,
    drop: Optional[Dropout] = None,
    is_causal: bool = False,
) -> Tensor:
    """[B, heads, Q, head] with keys and values [B, heads, K, head] to [B, heads, Q, head]. Queries come scaled.

    `mask`, [..., Q, K], is added to the scores; causal ones have their own.
    """
    batch, heads, queries, _ = extents(q)
    bands = _bands(queries) if is_causal else [Band(0, queries, extents(k)[2], mask)]  # the last of which see all keys
    if drop:
        shapes = [[batch, heads, band.stop - band.start, band.seen] for band in bands]
        bands = [band._replace(kept=drop.kept(shape), scale=drop.scale) for band, shape in zip(bands, shapes)]

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        parts = [_forward(band, q, k, v) for band in bands]
        mixed = _joined(parts)

        def gradient(d_mixed: Tensor) -> Any:
            found = [
                _backward(band, q, k, v, part, d_mixed[:, :, band.start : band.stop])
                for band, part in zip(bands, parts)
            ]
            d_q, d_k, d_v = zip(*found)
            return _joined(d_q), _nested(d_k, bands), _nested(d_v, bands)

        return mixed, gradient

    return tf.custom_gradient(attention)(q, k, v)


def causal(queries: Any, keys: Optional[Any] = None) -> Tensor:
    """[queries, keys], the last places of both the same: 0 where a query sees a key, up to its place; else UNSEEN."""
    keys = queries if keys is None else keys
    return tf.where(tf.range(keys - queries, keys)[:, None] >= tf.range(keys)[None], 0.0, UNSEEN)


def _bands(length: Any) -> List[Band]:
    size = -(-length // BANDS)
    if isinstance(length, int):
        size = max(SHORTEST_BAND, size)
        stops = [min(start + size, length) for start in range(0, length, size)]
    else:  # free: as many bands as there may be; none is empty, for the latents alone are longer than that
        stops = [*(number * size for number in range(1, BANDS)), length]
    return [Band(start, stop, stop, causal(stop - start, stop)) for start, stop in zip([0, *stops], stops)]


def _forward(band: Band, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the band's queries attend to."""
    return batched(tf.cast(_dropped(band, _shares(band, q, k)), v.dtype), v[:, :, : band.seen])


def _backward(
    band: Band, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, d_mixed: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Gradients of the band's queries, and of the keys and values that they see."""
    shares = _shares(band, again(q, d_mixed), k)
    d_v = _turned(d_mixed, tf.cast(_dropped(band, shares), v.dtype))
    d_shares = tf.cast(batched(d_mixed, v[:, :, : band.seen], transpose_b=True), tf.float32)
    mean = tf.reduce_sum(tf.cast(d_mixed * mixed, tf.float32), axis=-1, keepdims=True)
    d_scores = tf.cast(shares * (_dropped(band, d_shares) - mean), q.dtype)
    d_q = batched(d_scores, k[:, :, : band.seen])
    return d_q, _turned(q[:, :, band.start : band.stop], d_scores), d_v


def _turned(x: Tensor, scores: Tensor) -> Tensor:
    """Scores, turned, times x; as x, turned, times scores, of which only the small result has to be turned back."""
    return tf.transpose(batched(x, scores, transpose_a=True), [0, 1, 3, 2])


def _dropped(band: Band, scores: Tensor) -> Tensor:
    return scores if band.kept is None else tf.where(band.kept, scores * band.scale, 0.0)


def _shares(band: Band, q: Tensor, k: Tensor) -> Tensor:
    """What each key counts for each of the band's queries, float32 [B, heads, queries, seen]."""
    scores = batched(q[:, :, band.start : band.stop], k[:, :, : band.seen], transpose_b=True)
    scores = tf.cast(scores, tf.float32)
    return tf.nn.softmax(scores if band.mask is None else scores + band.mask)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=2)


def _nested(parts: Sequence[Tensor], bands: Sequence[Band]) -> Tensor:
    """The sum of the bands' gradients of keys, each of those that it sees, from the first on.

    By two, with a joint in between: a chain of sums would become an add_n, which has no order; see layers.total.
    """
    whole = parts[0]
    for before, part in zip(bands, parts[1:]):
        whole = tf.concat([whole + part[:, :, : before.seen], part[:, :, before.seen :]], axis=2)
    return whole

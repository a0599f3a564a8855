from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts.planning.batch_order import BatchOrder

GOLDEN_DIGEST = "5086f99a841357b04deaed333e427d88e86df53561e40b12f7d09490ff7bffd1"
GOLDEN_BATCH = (3, [133, 97, 121])

layouts = st.integers(1, 5).flatmap(
    lambda shapes: st.tuples(
        st.lists(st.integers(-1, shapes - 1), min_size=1, max_size=80),
        st.lists(st.integers(1, 9), min_size=shapes, max_size=shapes),
    )
)


def order_of(shape_of, batch_sizes, seed=0, workers=1):
    return BatchOrder(np.array(shape_of, np.int16), tuple(batch_sizes), seed, workers)


def corpus(count=500):
    return order_of(np.arange(count) * 7 % 4, (8, 6, 4, 3), seed=5)


def as_lists(batches):
    return [(batch.shape, batch.rows, batch.utterances.tolist()) for batch in batches]


@given(layouts, st.integers(0, 2**31 - 1), st.integers(0, 50), st.integers(1, 4))
@settings(deadline=None, max_examples=150)
def test_an_epoch_has_every_utterance_once_over_all_workers(layout, seed, epoch, workers):
    """Together the workers see each usable utterance exactly once, in its own shape, in equally many steps."""
    shape_of, batch_sizes = layout
    order = order_of(shape_of, batch_sizes, seed, workers)
    seen = []
    shares = [list(order.batches(epoch, worker=worker)) for worker in range(workers)]
    for share in shares:
        assert len(share) == order.batches_per_epoch
        for batch in share:
            assert batch.rows == batch_sizes[batch.shape]
            assert len(batch.utterances) <= batch.rows
            assert all(shape_of[utterance] == batch.shape for utterance in batch.utterances)
            seen += batch.utterances.tolist()
    assert sorted(seen) == [place for place, shape in enumerate(shape_of) if shape >= 0]
    for step in zip(*shares):
        assert len({batch.shape for batch in step}) == 1
        rows = [len(batch.utterances) for batch in step]
        assert max(rows) - min(rows) <= 1


@given(layouts, st.integers(1, 3))
@settings(deadline=None)
def test_only_the_last_batch_of_a_shape_has_blank_rows(layout, workers):
    """For each shape all steps but one are full."""
    order = order_of(*layout, workers=workers)
    for shape, rows in enumerate(order.batch_sizes):
        shares = [
            [len(batch.utterances) for batch in order.batches(3, worker=worker) if batch.shape == shape]
            for worker in range(workers)
        ]
        steps = [sum(share) for share in zip(*shares)]
        assert sum(step < rows * workers for step in steps) <= 1
        assert 0 not in steps


@given(layouts, st.integers(0, 6), st.integers(0, 40))
@settings(deadline=None)
def test_an_order_can_start_at_any_batch(layout, epoch, start):
    """Batches from n on are the epoch's batches without the first n, and a run is its epochs in sequence."""
    order = order_of(*layout)
    assert as_lists(order.batches(epoch, start)) == as_lists(order.batches(epoch))[start:]
    if order.batches_per_epoch:
        whole = as_lists(islice(order.run(), start + 10))
        assert as_lists(islice(order.run(start), 10)) == whole[start:]


def test_the_order_depends_on_seed_and_epoch_only():
    """The same seed and epoch give the same batches, and another seed or epoch gives others."""
    first = as_lists(corpus().batches(2))
    assert as_lists(corpus().batches(2)) == first
    assert as_lists(corpus().batches(3)) != first
    other = BatchOrder(corpus().shape_of, corpus().batch_sizes, seed=6)
    assert as_lists(other.batches(2)) != first


def test_batches_are_shuffled_within_and_across_shapes():
    """From one epoch to the next, few utterances share a batch again, and shapes are not grouped."""
    order = corpus(4000)
    mates = [
        {frozenset(pair) for batch in order.batches(epoch) for pair in zip(batch.utterances, batch.utterances[1:])}
        for epoch in (0, 1)
    ]
    assert len(mates[0] & mates[1]) < 0.02 * len(mates[0])
    shapes = [batch.shape for batch in order.batches(0)]
    same = np.mean(np.array(shapes[1:]) == np.array(shapes[:-1]))
    chance = np.square(np.bincount(shapes) / len(shapes)).sum()
    assert same == pytest.approx(chance, abs=0.08)


def test_the_shuffle_is_uniform():
    """Over many epochs the mean position of each utterance is the middle."""
    order = order_of([0] * 20, (1,), seed=1)
    places = np.zeros(20)
    for epoch in range(600):
        for place, batch in enumerate(order.batches(epoch)):
            places[batch.utterances[0]] += place
    spread = np.sqrt((20**2 - 1) / 12 / 600)  # of the mean of 600 uniform draws from 20 positions
    assert np.abs(places / 600 - 9.5).max() < 4.5 * spread


def test_the_order_is_the_same_on_every_machine():
    """The digest and the first batch are fixed, whatever the version of NumPy."""
    order = corpus()
    assert order.digest() == GOLDEN_DIGEST
    batch = next(order.batches(0))
    assert (batch.shape, batch.utterances.tolist()) == GOLDEN_BATCH


def test_the_digest_identifies_the_order():
    """Another seed, batch size, number of workers or corpus gives another digest."""
    order = corpus()
    others = [
        BatchOrder(order.shape_of, order.batch_sizes, 6),
        BatchOrder(order.shape_of, (8, 6, 4, 4), 5),
        BatchOrder(order.shape_of, order.batch_sizes, 5, workers=2),
        BatchOrder(order.shape_of[:-1], order.batch_sizes, 5),
    ]
    assert len({order.digest(), *(other.digest() for other in others)}) == 5

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts.planning import shapes
from xtts.planning.shapes import SET_ASIDE, ShapeError, TraceCost, joint_length
from xtts.planning.sizes import SIZES, StepCost, step_cost

TINY = step_cost(SIZES["tiny"].gpt)
FREE = TraceCost(trace_seconds=0.0, run_seconds=1.0)  # free traces
COSTS = st.sampled_from([StepCost(1, 0), StepCost(0, 1), TINY, step_cost(SIZES["v2"].gpt)])

utterances = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 300)), min_size=1, max_size=60)
few_lengths = st.dictionaries(st.integers(1, 500), st.integers(1, 40), min_size=1, max_size=9)


def arrays(pairs):
    text, mel = zip(*pairs)
    return np.array(text, np.int32), np.array(mel, np.int32)


def corpus(count, seed=0):
    random = np.random.RandomState(seed)
    mel = random.randint(100, 860, count).astype(np.int32)
    return (mel / 6 + random.randint(0, 20, count)).astype(np.int32), mel


def work_of(lengths, counts, bounds, work, rows=None):
    """The work of a choice of shapes, summed one length at a time."""
    members = dict.fromkeys(bounds, 0)
    for length, count in zip(lengths, counts):
        members[min(bound for bound in bounds if bound >= length)] += count
    total = 0
    for bound, count in members.items():
        batch = 1 if rows is None else rows[bound]
        total += -(-count // batch) * batch * work.of(bound)
    return total


@given(few_lengths, COSTS, st.booleans(), st.integers(1, 20))
@settings(deadline=None, max_examples=150)
def test_no_other_shapes_do_less_work(histogram, work, with_blank_rows, batch_size):
    """For every number of shapes the chosen ones do as little work as the best found by exhaustive search."""
    lengths = np.array(sorted(histogram), np.int64)
    counts = np.array([histogram[length] for length in sorted(histogram)], np.int64)
    rows = shapes.batch_sizes(lengths, batch_size) if with_blank_rows else None
    rows_of = None if rows is None else dict(zip(lengths.tolist(), rows.tolist()))
    chosen = shapes.boundaries(lengths, counts, work, 5, rows)
    assert list(chosen) == list(range(1, min(5, len(lengths)) + 1))
    for number, bounds in chosen.items():
        assert len(bounds) == number
        *others, longest = lengths.tolist()
        best = min(
            work_of(lengths.tolist(), counts.tolist(), [*some, longest], work.reduced(), rows_of)
            for some in combinations(others, number - 1)
        )
        found = work_of(lengths.tolist(), counts.tolist(), bounds.tolist(), work.reduced(), rows_of)
        assert found == best
        real = sum(count * work.reduced().of(length) for length, count in zip(lengths.tolist(), counts.tolist()))
        assert shapes.work_ratio(lengths, counts, bounds, work, rows) == pytest.approx(found / real)


def test_the_optimum_does_not_depend_on_the_block_size(monkeypatch):
    """A histogram wider than one block of the dynamic programme gets the same shapes as in one block."""
    text, mel = corpus(3000)
    lengths, counts = shapes.length_histogram(joint_length(text, mel))
    whole = shapes.boundaries(lengths, counts, TINY, 6)
    monkeypatch.setattr(shapes, "BLOCK", 7)
    assert len(lengths) > 7
    pieces = shapes.boundaries(lengths, counts, TINY, 6)
    assert all(np.array_equal(whole[number], pieces[number]) for number in whole)


@given(utterances, st.integers(1, 20), st.one_of(st.none(), st.integers(1, 8)), st.sampled_from(["planned", "relaxed"]))
@settings(deadline=None, max_examples=150)
def test_every_utterance_fits_in_exactly_one_shape(pairs, batch_size, count, mode):
    """No utterance is lost or duplicated, and each is within the lengths of its shape."""
    text, mel = arrays(pairs)
    if mode == "planned":
        layout = shapes.plan_shapes(text, mel, TINY, batch_size, count, FREE)
    else:
        layout = shapes.relaxed_shapes(text, mel, TINY, batch_size)
    assert layout.counts == tuple(np.bincount(layout.shape_of, minlength=len(layout.shapes)))
    assert sum(layout.counts) == len(pairs)
    joint = joint_length(text, mel)
    for length, frames, whole, place in zip(text, mel, joint, layout.shape_of):
        shape = layout.shapes[place]
        assert length <= shape.text_length
        assert frames <= shape.mel_frames
        assert whole <= shape.joint_length
        assert place == 0 or whole > layout.shapes[place - 1].joint_length


@given(utterances, st.integers(1, 60), st.integers(1, 300))
@settings(deadline=None)
def test_a_fixed_shape_rejects_what_is_longer(pairs, max_text, max_mel):
    """With one fixed shape, exactly the utterances beyond either limit are rejected."""
    text, mel = arrays(pairs)
    layout = shapes.fixed_shapes(text, mel, max_text, max_mel, 4)
    fits = [length <= max_text and frames <= max_mel for length, frames in pairs]
    assert (layout.shape_of != SET_ASIDE).tolist() == fits
    assert layout.counts == (sum(fits),)
    assert layout.shapes[0].text_length == max_text
    assert layout.shapes[0].joint_length == joint_length(max_text, max_mel)


def test_the_sequence_is_counted_token_by_token():
    """A joint sequence is 32 latents, start, text and stop, then start, the codes with three extra stops, and stop."""
    codes = 25  # of 100 mel frames
    assert joint_length(10, 100) == 32 + (1 + 10 + 1) + (1 + codes + 3 + 1)
    assert joint_length(10, 101) == joint_length(10, 104) == joint_length(10, 100) + 1


def test_batches_of_every_shape_have_about_the_same_tokens():
    """The longest shape has the configured batch size; others use its number of tokens to the last row that fits."""
    text, mel = corpus(2000)
    layout = shapes.plan_shapes(text, mel, TINY, 16, 6, FREE)
    longest = layout.shapes[-1]
    assert longest.batch_size == 16
    for shape in layout.shapes:
        assert longest.tokens - shape.joint_length < shape.tokens <= longest.tokens


def test_blank_rows_are_avoided_by_cutting_shapes_at_whole_batches():
    """On a small corpus the plan computes less than the shapes of least padding, whose last batches have blank rows."""
    text, mel = corpus(120)
    lengths, counts = shapes.length_histogram(joint_length(text, mel))
    rows = shapes.batch_sizes(lengths, 16)
    least_padding = shapes.boundaries(lengths, counts, TINY, 4)[4]
    least_work = shapes.boundaries(lengths, counts, TINY, 4, rows)[4]
    padded = shapes.work_ratio(lengths, counts, least_padding, TINY, rows)
    assert shapes.work_ratio(lengths, counts, least_work, TINY, rows) < padded - 0.05


@pytest.mark.parametrize(
    ("trace_seconds", "expected"), [(0.0, shapes.MAX_SHAPES), (1e6, 1)], ids=["free traces", "dear traces"]
)
def test_the_number_of_shapes_balances_traces_and_padding(trace_seconds, expected):
    """If traces are free all shapes are used; if they cost more than the run only one is."""
    text, mel = corpus(20_000)
    layout = shapes.plan_shapes(text, mel, TINY, 2, None, TraceCost(trace_seconds, 1000.0))
    assert len(layout.shapes) == expected


def test_longer_runs_get_more_shapes():
    """The longer the run, the more shapes are worth their traces."""
    text, mel = corpus(5000)
    chosen = [
        len(shapes.plan_shapes(text, mel, TINY, 4, None, TraceCost(5.0, seconds)).shapes) for seconds in (10, 300, 9000)
    ]
    assert chosen[0] < chosen[1] < chosen[2]


def test_there_are_no_more_shapes_than_lengths():
    """A corpus of two lengths gets two shapes, whatever the requested number."""
    layout = shapes.plan_shapes(np.array([5, 5, 9]), np.array([40, 40, 80]), TINY, 4, 12, FREE)
    assert layout.counts == (2, 1)


def test_pools_of_a_small_corpus_still_hold_several_batches():
    """Relaxed batches are drawn from pools of several batches, so that batches change from epoch to epoch."""
    text, mel = corpus(400)
    layout = shapes.relaxed_shapes(text, mel, TINY, 8)
    assert 1 < len(layout.shapes) <= sum(layout.batches) / (shapes.POOL_BATCHES - 1)


def test_no_utterances_make_no_shapes():
    """An empty corpus is refused instead of failing in NumPy."""
    empty = np.array([], np.int32)
    with pytest.raises(ShapeError, match="no utterances are left"):
        shapes.plan_shapes(empty, empty, TINY, 4, 2, FREE)

"""A batch, live or cached, is a function of (seed, number); what cannot be read is a blank row."""

from pathlib import Path

import attrs
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from recordings import cut, record, tone
from small import use_small
from speech_corpus import AUDIO, EDGE, NEAR, SEED, SPEAKERS, SPEC, STATS, make

from xtts.audio.mel import log_mel
from xtts.pipeline.feature_builder import FeatureBuilder
from xtts.pipeline.features import Features, reference_shape
from xtts.pipeline.sources import Recordings, warm_up
from xtts.planning.batch_order import CUTS, Batch, random_words
from xtts.planning.shapes import codec_shape
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.training.stages.codec import TrainableCodec
from xtts.training.stages.gpt import TrainableGpt


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        use_small(patch)
        yield make(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A corpus that a test may damage."""
    use_small(monkeypatch)
    return make(tmp_path)


def batch(*positions, shape=0, rows=4):
    return Batch(shape, np.array(positions, np.int64), rows)


def finished(source, batches, number):
    rows = source.read(batches, number)
    return rows, {name: np.asarray(array) for name, array in source.finish(rows).items()}


def draw(number, row, rows):
    """The random number that selects the reference voice of a row."""
    return int(random_words(SEED, number, CUTS, 2 * rows)[row])


def assert_near(ours, theirs):
    """Compare two crops of one mel, where padding may differ at the ends."""
    np.testing.assert_allclose(ours[EDGE:-EDGE], theirs[EDGE:-EDGE], atol=NEAR)


# Live and cached


@pytest.mark.parametrize("is_random", [True, False], ids=["training", "validation"])
def test_codec_batches_are_the_same_live_and_cached(made, is_random):
    """The crops are of the same recordings and lengths, and nearly equal; blank rows are 0 in both."""
    live, cached = made.codec(is_random=is_random), made.codec(cached=True, is_random=is_random)
    starts = set()
    for number, one in enumerate(made.codec_order().batches(0)):
        rows, arrays = finished(live, [one], number)
        kept, stored = finished(cached, [one], number)
        assert arrays["mel"].shape == stored["mel"].shape == (4, 32, AUDIO.n_mels)
        np.testing.assert_array_equal(arrays["lengths"], stored["lengths"])
        np.testing.assert_array_equal(rows.counts, kept.counts)
        assert rows.frames == kept.frames == arrays["lengths"].sum()
        for row in range(4):
            length = arrays["lengths"][row]
            assert_near(arrays["mel"][row, :length], stored["mel"][row, :length])
            assert not arrays["mel"][row, length:].any()
            assert not stored["mel"][row, length:].any()
        starts.update(rows.arrays["waves"][: len(one.utterances), 0].tolist())
    assert len(starts) == len(SPEAKERS)


@pytest.mark.parametrize("is_random", [True, False], ids=["training", "validation"])
def test_gpt_batches_are_the_same_live_and_cached(made, is_random):
    """Text, lengths and codes are equal, references nearly; every utterance occurs once."""
    live, cached = made.gpt(is_random=is_random), made.gpt(cached=True, is_random=is_random)
    seen = []
    for number, one in enumerate(made.plan.order.batches(0)):
        shape = made.plan.layout.shapes[one.shape]
        count = reference_shape(AUDIO, 0.5, shape.mel_frames)[1]
        rows, arrays = finished(live, [one], number)
        kept, stored = finished(cached, [one], number)
        assert arrays.keys() == stored.keys()
        assert rows.shape == kept.shape == one.shape
        for name in ("text", "text_lengths", "code_lengths"):
            np.testing.assert_array_equal(arrays[name], stored[name])
        assert arrays["text"].shape == (shape.batch_size, shape.text_length)
        assert arrays["reference"].shape == stored["reference"].shape == (shape.batch_size, count, AUDIO.n_mels)
        np.testing.assert_array_equal(rows.counts, kept.counts)
        assert rows.frames == kept.frames == made.part.lengths.frames[one.utterances].sum()
        for row, position in enumerate(one.utterances):
            codes = arrays["code_lengths"][row]
            assert codes == -(-made.part.lengths.frames[position] // FRAMES_PER_CODE)
            np.testing.assert_array_equal(arrays["codes"][row, :codes], stored["codes"][row, :codes])
            target = made.part.corpus.utterances[position]
            ids = made.dataset.tokenizer.encode(target.text, target.language)
            assert arrays["text"][row, : arrays["text_lengths"][row]].tolist() == ids
            voice = live._voice(int(position), draw(number, row, one.rows) if is_random else 0)
            heard = min(count, made.part.lengths.frames[voice])  # repetition after that is not aligned to whole frames
            assert_near(arrays["reference"][row, :heard], stored["reference"][row, :heard])
            seen.append(int(position))
    assert sorted(seen) == list(range(len(SPEAKERS)))


OWN = {"reference_from": "utterance", "reference_min_seconds": 0.2}  # of references of 0.5 s at most


def own_references(made, **train):
    """The recipe with references that are cut from the utterances themselves, at random lengths."""
    data, masks = attrs.evolve(made.recipe.data, **OWN), attrs.evolve(made.recipe.train, **train)
    return attrs.evolve(made.recipe, data=data, train=masks)


@pytest.mark.parametrize("is_random", [True, False], ids=["training", "validation"])
def test_references_of_random_lengths_are_stretches_of_the_utterance(made, is_random):
    """A reference is part of its utterance, and then silence; live and cached it is the same, in one shape.

    No code of that part has a loss; in validation all codes do, and the part is the first of middle length.
    """
    recipe = own_references(made)
    live, cached = (made.gpt(is_cached, is_random, recipe) for is_cached in (False, True))
    lengths, silence, seen = made.part.lengths, np.log(1e-5) / STATS, set()
    for number, one in enumerate(made.plan.order.batches(0)):
        rows, arrays = finished(live, [one], number)
        kept, stored = finished(cached, [one], number)
        masked = arrays["masked_codes"]
        assert arrays["reference"].shape == stored["reference"].shape == (one.rows, 32, AUDIO.n_mels)
        np.testing.assert_array_equal(masked, stored["masked_codes"])
        np.testing.assert_array_equal(rows.counts, kept.counts)
        targets = arrays["code_lengths"].sum() + 4 * len(one.utterances)
        assert rows.counts[1] == targets - (masked[:, 1] - masked[:, 0]).sum()
        cuts = live.cuts([one], number)["reference_waves"].by_row
        for row, position in enumerate(one.utterances):
            start, samples = cuts[row].start, cuts[row].samples
            assert cuts[row].position == position
            assert 0 <= start < start + samples <= lengths.samples[position]
            is_long = 0.2 * AUDIO.sample_rate - AUDIO.hop_length < samples <= 0.5 * AUDIO.sample_rate
            assert is_long or samples <= lengths.samples[position] / 2
            hops, code = samples // AUDIO.hop_length, FRAMES_PER_CODE * AUDIO.hop_length
            assert_near(arrays["reference"][row, :hops], stored["reference"][row, :hops])
            for found in (arrays, stored):
                after = found["reference"][row, hops + EDGE :]
                np.testing.assert_allclose(after, np.broadcast_to(silence, after.shape), atol=1e-5)
            assert masked[row].tolist() == ([start // code, (start + samples) // code] if is_random else [0, 0])
            seen.add((start, samples))
        assert not masked[len(one.utterances) :].any()
        again = made.gpt(is_random=is_random, recipe=recipe).read([one], number)
        np.testing.assert_array_equal(again.arrays["reference_waves"], rows.arrays["reference_waves"])
    assert len(seen) == len(SPEAKERS) if is_random else {start for start, _ in seen} == {0}


@pytest.mark.parametrize("masks", [False, "published"])
def test_masks_of_reference_codes_can_be_left_out_or_as_published(made, masks):
    """Without masks batches have no such array; the published ones are of the last row, at positions of the mel."""
    source = made.gpt(recipe=own_references(made, mask_reference_codes=masks))
    for number, one in enumerate(made.plan.order.batches(0)):
        rows, arrays = finished(source, [one], number)
        if not masks:
            assert "masked_codes" not in arrays
            continue
        last = len(one.utterances) - 1
        cut = source.cuts([one], number)["reference_waves"].by_row[last]
        start, stop = cut.start // AUDIO.hop_length, (cut.start + cut.samples) // AUDIO.hop_length
        assert arrays["masked_codes"][last].tolist() == [start, stop]
        assert not np.delete(arrays["masked_codes"], last, axis=0).any()
        targets = int(arrays["code_lengths"][last]) + 4
        lost = min(stop, targets) - min(start, targets)
        assert rows.counts[1] == arrays["code_lengths"].sum() + 4 * len(one.utterances) - lost


def test_a_reference_from_another_recording_masks_nothing(made):
    """A speaker's only recording is its own reference, and so its codes have no loss; others have all their losses."""
    recipe = attrs.evolve(made.recipe, data=attrs.evolve(made.recipe.data, reference_min_seconds=0.2))
    source, lone = made.gpt(recipe=recipe), {made.position(id) for id in ("u11", "u12", "u13")}
    for number, one in enumerate(made.plan.order.batches(0)):
        rows = source.read([one], number)
        for row, position in enumerate(one.utterances):
            cut = source.cuts([one], number)["reference_waves"].by_row[row]
            assert (cut.position == position) == (position in lone)
            assert rows.arrays["masked_codes"][row].any() == (position in lone)


@pytest.mark.parametrize("cached", [False, True], ids=["live", "cached"])
@pytest.mark.parametrize("workers", [1, 2])
def test_relaxed_batches_are_as_long_as_their_longest_member(made, cached, workers):
    """An epoch has every utterance once, with at most one blank row a batch to give replicas equal rows.

    The rows equal those of the same batch in its static shape, and features are traced once.
    """
    source, static = made.gpt(cached, dynamic_shapes=True), made.gpt(cached)
    order = attrs.evolve(made.plan.order, workers=workers)
    warm_up(source, order, dynamic_shapes=True)
    lengths, seen = made.part.lengths, []
    for number, batches in enumerate(zip(*(order.batches(0, worker=worker) for worker in range(workers)))):
        members = np.concatenate([one.utterances for one in batches])
        seen.extend(members.tolist())
        rows, arrays = finished(source, batches, number)
        count = -(-len(members) // workers)
        longest = int(lengths.text[members].max()), int(-(-lengths.frames[members].max() // FRAMES_PER_CODE))
        assert arrays["text"].shape == (workers * count, longest[0])
        assert arrays["codes"].shape == (workers * count, longest[1])
        assert (rows.size.text_length, rows.size.mel_frames, rows.size.batch_size) == (
            longest[0],
            4 * longest[1],
            count,
        )
        heard = reference_shape(AUDIO, 0.5, rows.size.mel_frames)[1]
        assert arrays["reference"].shape == (workers * count, heard, AUDIO.n_mels)
        padded, wanted = finished(static, batches, number)
        assert rows.frames == padded.frames == lengths.frames[members].sum()
        np.testing.assert_array_equal(rows.counts, padded.counts)
        spoken, real = arrays["code_lengths"] > 0, wanted["code_lengths"] > 0
        assert (~spoken).sum() < workers
        for name, most in (("text", longest[0]), ("text_lengths", None), ("code_lengths", None)):
            np.testing.assert_array_equal(
                arrays[name][spoken], wanted[name][real][:, :most] if most else wanted[name][real]
            )
        for row, (own, other) in enumerate(zip(arrays["codes"][spoken], wanted["codes"][real])):
            codes = arrays["code_lengths"][spoken][row]
            np.testing.assert_array_equal(own[:codes], other[:codes])
    assert sorted(seen) == list(range(len(SPEAKERS)))
    assert all(function.traces <= 1 for function in source._features.functions)


def test_features_are_stored_once(made):
    """Filling the store again computes nothing."""
    made.gpt(cached=True)
    before = [function.calls for function in made.features.functions]
    made.gpt(cached=True)
    assert [function.calls for function in made.features.functions] == before


def test_no_blank_rows_are_computed_for_a_store_with_relaxed_shapes(made, monkeypatch):
    """A blank row would cost as much as any other; the stored features equal those with static shapes."""
    free, rows = Features(AUDIO, "/CPU:0", STATS, made.model, dynamic_shapes=True), []
    whole = free.mel
    monkeypatch.setattr(free, "mel", lambda waves, lengths: rows.append(len(waves)) or whole(waves, lengths))
    stored = FeatureBuilder(made.recipe, made.part, made.plan.layout, free).mels("free", lambda done, total: None)
    static = made.filling().mels("static", lambda done, total: None)
    layout = made.plan.layout
    assert any(count % shape.batch_size for count, shape in zip(layout.counts, layout.shapes))
    assert sum(rows) == len(SPEAKERS)
    for position in range(len(SPEAKERS)):
        np.testing.assert_allclose(stored[position], static[position], atol=NEAR)


@pytest.mark.parametrize("cached", [False, True], ids=["live", "cached"])
def test_counts_match_the_denominators_of_the_losses(made, cached):
    """The host counts the same tokens and frames in a batch as the model, including blank rows."""
    gpt = TrainableGpt(made.recipe, made.dataset.tokenizer, made.plan.layout.shapes)
    one = next(iter(made.plan.order.batches(0)))
    rows, arrays = finished(made.gpt(cached), [one], 0)
    shape = made.plan.layout.shapes[one.shape]
    found = gpt.losses({name: tf.constant(array) for name, array in arrays.items()}, shape, tf.constant([0, 0]), False)
    np.testing.assert_array_equal(found.counts, rows.counts)
    rows, arrays = finished(made.codec(cached), [batch(1, 13)], 0)
    codec = TrainableCodec(made.recipe)
    batched = {name: tf.constant(array) for name, array in arrays.items()}
    found = codec.losses(batched, codec_shape(made.recipe.codec), tf.constant([0, 0]), False)
    np.testing.assert_array_equal(found.counts, rows.counts)


# A function of (seed, number)


@given(number=st.integers(0, 2**40), position=st.integers(0, len(SPEAKERS) - 1), seed=st.integers(0, 2**31 - 1))
def test_a_batch_is_a_function_of_seed_and_number(made, number, position, seed):
    """It does not depend on when or by which source it is read, and a crop is never longer than its recording."""
    recipe = attrs.evolve(made.recipe, run=attrs.evolve(made.recipe.run, seed=seed))
    for make_source in (made.codec, made.gpt):
        first, second = make_source(recipe=recipe), make_source(recipe=recipe)
        shape = int(made.plan.layout.shape_of[position]) if make_source == made.gpt else 0
        wanted = [batch(position, shape=shape)]
        one = first.read(wanted, number)
        first.read(wanted, number + 1)
        two, three = first.read(wanted, number), second.read(wanted, number)
        for name in one.arrays:
            np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
            np.testing.assert_array_equal(one.arrays[name], three.arrays[name])
        assert not one.lost


def test_other_numbers_and_seeds_give_other_crops(made):
    """Training uses a new crop of a long recording each time; validation always uses the same."""
    other = attrs.evolve(made.recipe, run=attrs.evolve(made.recipe.run, seed=6))

    def cuts(source):
        return {source.read([batch(13)], number).arrays["waves"][0].tobytes() for number in range(8)}

    assert len(cuts(made.codec())) > 4
    assert len(cuts(made.codec(is_random=False))) == 1
    assert cuts(made.codec()) != cuts(made.codec(recipe=other))


def test_rows_of_replicas_are_consecutive(made):
    """A step of two replicas has the rows of both, each with its own blank rows."""
    source = made.gpt()
    shape = int(made.plan.layout.shape_of[0])
    rows, arrays = finished(source, [batch(0, 1, shape=shape, rows=3), batch(2, shape=shape, rows=3)], 0)
    assert len(arrays["text"]) == 6
    assert (arrays["text_lengths"] > 0).tolist() == [True, True, False, True, False, False]
    assert rows.frames == made.part.lengths.frames[:3].sum()


# Voices


@pytest.fixture
def numbered(monkeypatch):
    """Recordings whose every sample is the number of their utterance, from 1."""
    monkeypatch.setattr(Recordings, "wave", lambda self, at: np.full(self.lengths.samples[at], at + 1, np.float32))


def test_a_reference_is_another_recording_of_the_speaker(made, numbered):
    """Over time all other recordings are used, never the target itself, unless it is the speaker's only one."""
    source, heard = made.gpt(), {}
    for number in range(60):
        for position in range(len(SPEAKERS)):
            shape = int(made.plan.layout.shape_of[position])
            arrays = source.read([batch(position, shape=shape)], number).arrays
            assert arrays["waves"][0, 0] == position + 1
            heard.setdefault(position, set()).add(int(arrays["reference_waves"][0, 0]) - 1)
    for position, speaker in enumerate(SPEAKERS):
        fellows = {at for at, other in enumerate(SPEAKERS) if other == speaker} - {position}
        assert heard[position] == (fellows if speaker in ("ann", "bob") else {position})


@pytest.mark.parametrize("cached", [False, True], ids=["live", "cached"])
def test_a_short_reference_is_repeated(made, cached):
    """A recording of a quarter of a second is repeated to fill half a second."""
    source = made.gpt(cached)
    number = next(number for number in range(99) if source._voice(1, draw(number, 0, 4)) == 0)
    rows, arrays = finished(source, [batch(1, shape=int(made.plan.layout.shape_of[1]))], number)
    wave = Recordings(made.part, AUDIO.sample_rate).wave(0)
    if not cached:
        heard = rows.arrays["reference_waves"][0]
        np.testing.assert_array_equal(heard, np.resize(wave, len(heard)))
    mel = log_mel(wave, attrs.evolve(SPEC, n_fft=2 * SPEC.n_fft), STATS)
    reference = arrays["reference"][0]
    assert_near(reference[: len(mel)], mel)
    assert len(mel) < len(reference)
    assert np.abs(reference).sum(axis=1).min() > 0


# Unreadable recordings


def spoil(made, id, how):
    path = Path(made.part.corpus.utterances[made.position(id)].path)
    if how == "deleted":
        path.unlink()
    elif how == "truncated":
        cut(path, 0.5)
    else:
        record(path, tone(4000), AUDIO.sample_rate)


@pytest.mark.parametrize(
    ("how", "why"), [("deleted", "no such file"), ("truncated", "u03.wav"), ("replaced", "length has changed")]
)
def test_an_utterance_that_becomes_unreadable_is_a_blank_row(own, how, why):
    """It is reported with the reason and counts for nothing; the other rows are unchanged."""
    bad = own.position("u03")
    shape = int(own.plan.layout.shape_of[bad])
    gpt, codec = own.gpt(), own.codec()
    solo, unnamed = own.position("u11"), own.position("u12")
    wanted = {"codec": (codec, [batch(solo, bad, unnamed)]), "gpt": (gpt, [batch(bad, shape=shape)])}
    before = {name: finished(source, batches, 7) for name, (source, batches) in wanted.items()}
    spoil(own, "u03", how)
    for name, (source, batches) in wanted.items():
        rows, arrays = finished(source, batches, 7)
        ((id, reason),) = rows.lost
        assert id == "u03"
        assert why in reason
        row = 1 if name == "codec" else 0
        lengths = "lengths" if name == "codec" else "code_lengths"
        assert arrays[lengths][row] == 0
        kept = [other for other in range(4) if other != row]
        for key, array in arrays.items():
            assert not array[row].any() or key == "codes"
            np.testing.assert_array_equal(array[kept], before[name][1][key][kept])
        assert (rows.counts < before[name][0].counts).all()
        assert rows.frames < before[name][0].frames
    assert (gpt.read([batch(bad, shape=shape)], 7).counts == 0).all()


def test_an_unreadable_reference_is_reported_itself(own):
    """A bad recording is one unusable utterance, however many rows use it as their reference."""
    source = own.gpt()
    spoil(own, "u06", "deleted")  # bob's
    named = set()
    for number in range(20):
        for id in ("u07", "u08", "u09", "u10"):
            position = own.position(id)
            rows = source.read([batch(position, shape=int(own.plan.layout.shape_of[position]))], number)
            named.update(lost[0] for lost in rows.lost)
            assert (rows.counts > 0).all() == (not rows.lost)
    assert named == {"u06"}


def test_an_utterance_that_cannot_be_stored_is_blank_and_reported(own):
    """An utterance that was bad when the store was filled has its reason in every batch with it."""
    spoil(own, "u11", "truncated")  # solo
    position = own.position("u11")
    codec, gpt = own.codec(cached=True), own.gpt(cached=True)
    for source, shape in ((codec, 0), (gpt, int(own.plan.layout.shape_of[position]))):
        rows, arrays = finished(source, [batch(position, shape=shape)], 0)
        ((id, why),) = rows.lost
        assert id == "u11"
        assert "u11.wav" in why
        assert not any(array.any() for array in arrays.values())
        assert (rows.counts == 0).all()
        assert rows.frames == 0


# Traces


def test_every_shape_is_traced_in_the_warm_up(made):
    """After a warm-up with each shape, an epoch of training and validation causes no trace on the data device."""
    fresh = made._replace(features=Features(AUDIO, "/CPU:0", STATS, made.model))
    sources = [(fresh.codec(), fresh.codec_order()), (fresh.gpt(), fresh.plan.order)]
    for source, order in sources:
        warm_up(source, order)
    traces = [function.traces for function in fresh.features.functions]
    assert {function.name: function.traces for function in fresh.features.functions}["codes"] == 2
    for source, order in sources:
        for number, one in enumerate(order.batches(0)):
            source.finish(source.read([one], number))
    assert [function.traces for function in fresh.features.functions] == traces


@pytest.mark.parametrize("kind", ["codec", "gpt", "free"])
def test_workers_together_read_what_one_reads_alone(made, kind):
    """With three replicas on two workers, every row is read by one of them, as by one worker for all."""

    def source(share=None):
        return made.codec(share=share) if kind == "codec" else made.gpt(dynamic_shapes=kind == "free", share=share)

    order = made.codec_order(3) if kind == "codec" else attrs.evolve(made.plan.order, workers=3)
    for number, batches in enumerate(zip(*(order.batches(0, worker=worker) for worker in range(3)))):
        whole = source().read(batches, number)
        first, second = (source(share).read(batches, number) for share in (range(0, 2), range(2, 3)))
        for name, array in whole.arrays.items():
            np.testing.assert_array_equal(np.concatenate([first.arrays[name], second.arrays[name]]), array)
        np.testing.assert_array_equal(first.counts + second.counts, whole.counts)
        assert whole.size == first.size == second.size
        assert whole.frames == first.frames == second.frames


def test_crops_do_not_depend_on_the_number_of_replicas(made):
    """One replica with the whole batch crops the same recordings at the same positions as two that share it."""
    one, two = (attrs.evolve(made.codec_order(workers), batch_sizes=(8 // workers,)) for workers in (1, 2))
    alone = made.codec().read([next(one.batches(0))], 0)
    shared = made.codec().read([next(two.batches(0, worker=worker)) for worker in (0, 1)], 0)
    in_turn = [row // 2 + 4 * (row % 2) for row in range(8)]
    np.testing.assert_array_equal(shared.arrays["waves"][in_turn], alone.arrays["waves"])

"""The codec: published values under published names, masked padding, and a codebook that stays in use."""

import functools
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts import compat
from xtts.model.codec import Codebook, Codec, code_lengths
from xtts.planning import sizes
from xtts.weights.layout import PREFIXES, ModelDescription, constants

SIZE = sizes.CodecSize(hidden=32, code_width=16, codes=96)  # as in the golden files
MELS = 80
FRAMES = 48
WAYS = {"eager": None, "graph": False, "xla": True}


@pytest.fixture(scope="module")
def published():
    return load_file(str(GOLDEN / "dvae.weights.safetensors"))


@pytest.fixture(scope="module")
def io():
    return load_file(str(GOLDEN / "dvae.io.safetensors"))


@pytest.fixture
def codec(published):
    codec = Codec(SIZE, MELS, np.random.default_rng(0))
    fill(codec, published)
    return codec


@pytest.fixture(scope="module")
def mel(io):
    """[B, T, n_mels]"""
    return np.ascontiguousarray(np.transpose(io["mel"], (0, 2, 1)))


@pytest.fixture(params=list(WAYS))
def way(request):
    """Calls a function eagerly, as a graph, and compiled by XLA."""
    jit = WAYS[request.param]
    return lambda function: function if jit is None else compat.compiled(function, jit_compile=jit)


def learn(codec, found):
    """Update the codebook after a training pass, on one device."""
    codec.codebook.update(*codec.codebook.statistics(found.encoded, found.codes, found.inside))


def error(found, expected):
    """The largest difference, relative to the largest value."""
    expected = np.asarray(expected).astype(np.float64)
    return np.abs(np.asarray(found).astype(np.float64) - expected).max() / np.abs(expected).max()


def state(codebook):
    return [part.numpy() for part in (codebook.embed, codebook.embed_avg, codebook.cluster_size)]


# Published values


def test_weights_have_the_published_names_and_shapes(codec, published):
    """Every published tensor is a weight of the same shape, except for those ignored by name."""
    ours = {name: weight.published_shape for name, weight in codec.weights().items()}
    description = ModelDescription(attrs.evolve(sizes.SIZES["v2"], codec=SIZE), 0, parts=("codec",))
    ignored = {name[len(PREFIXES["codec"]) :] for name in constants(description)}
    assert ignored <= set(published)
    assert ours == {name: value.shape for name, value in published.items() if name not in ignored}


@pytest.mark.parametrize("size", [SIZE, sizes.SIZES["tiny"].codec, sizes.SIZES["small"].codec])
def test_the_number_of_weights_matches_the_table_of_sizes(size):
    """The trainable weights and the other state are as many as was computed without building the codec."""
    codec = Codec(size, MELS, np.random.default_rng(0))
    moved = sum(int(np.prod(variable.shape)) for variable in codec.trainable_variables)
    everything = sum(int(np.prod(variable.shape)) for variable in codec.variables)
    assert (moved, everything - moved) == (size.weights(MELS), size.state())


def test_values_match_the_published_codec(codec, io, mel, way):
    """Codes, decoded mels, losses, and the codebook after a training pass are the published ones."""

    def step(mel, codes):
        found = codec.train_pass(mel)
        decoded = codec.decode(codes)
        learn(codec, found)
        return found, decoded

    np.testing.assert_array_equal(codec.encode(mel), io["codes"])
    found, decoded = way(step)(tf.constant(mel), tf.constant(io["codes"]))
    assert found.codes.dtype == tf.int32
    np.testing.assert_array_equal(found.codes, io["codes"])
    for back in (decoded, found.decoded):
        assert error(np.transpose(back, (0, 2, 1)), io["decoded"]) < 1e-4
    assert error(found.reconstruction, io["reconstruction_loss"]) < 1e-4
    assert error(found.commitment, io["commitment_loss"]) < 1e-4
    assert error(codec.codebook.embed.numpy().T, io["after_train_pass_embed"]) < 1e-5
    assert error(codec.codebook.cluster_size, io["after_train_pass_cluster_size"]) < 1e-5


# Other dtypes


HALF = pytest.mark.parametrize(
    ("dtype", "bound"), [(tf.float16, 0.005), (tf.bfloat16, 0.04)], ids=["float16", "bfloat16"]
)


def half(function, dtype, jit):
    """A function's results with a small codec and a mel in float32 and in `dtype`."""
    mel = tf.constant(made_up(4, 24, 0)[:, :, ::4])
    codec = Codec(sizes.CodecSize(hidden=8, code_width=8, codes=12, blocks=1), mel.shape[2], np.random.default_rng(0))
    codec.init_codebook(mel)
    try:
        return compat.compiled(function, jit_compile=jit)(codec, tf.cast(mel, dtype)), function(codec, mel)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as problem:
        if dtype != tf.bfloat16 or jit or "No OpKernel was registered" not in str(problem):
            raise
        return pytest.skip("this TensorFlow multiplies bfloat16 on a CPU only when XLA compiles it")


@HALF
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_half_precision_is_close_to_float32(dtype, bound, jit):
    """Losses are float32; losses and encodings are close, and nearly all codes are equal."""
    found, exact = half(lambda codec, mel: codec.train_pass(mel), dtype, jit)
    assert found.decoded.dtype == found.encoded.dtype == dtype
    assert found.reconstruction.dtype == found.commitment.dtype == tf.float32
    assert error(found.reconstruction, exact.reconstruction) < bound
    assert error(found.commitment, exact.commitment) < bound
    assert error(found.encoded, exact.encoded) < bound
    assert np.mean(found.codes.numpy() == exact.codes.numpy()) > 0.9


@HALF
def test_half_precision_gradients_and_decoding_are_close_to_float32(dtype, bound):
    """Gradients are float32, like the weights, and point in the same direction; decoded mels are close."""

    def step(codec, mel):
        with tf.GradientTape() as tape:
            found = codec.train_pass(mel)
            loss = found.reconstruction + found.commitment
        gradients = tape.gradient(loss, codec.trainable_variables)
        together = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        return together, codec.decode(tf.range(12)[None], dtype=mel.dtype)

    (found, back), (exact, exact_back) = half(step, dtype, jit=False)
    assert (found.dtype, back.dtype) == (tf.float32, dtype)
    cosine = tf.reduce_sum(found * exact) / tf.norm(found) / tf.norm(exact)
    assert float(cosine) > 1 - bound
    assert error(back, exact_back) < bound


# Gradients


def test_the_straight_through_estimator_passes_gradients_to_the_encoder(codec, mel):
    """The reconstruction and commitment losses reach the encoder; the codebook gets no gradient."""
    with tf.GradientTape(persistent=True) as tape:
        found = codec.train_pass(mel)
    bias = codec.encoder[-1].bias
    quantised = codec.codebook(found.codes)
    with tf.GradientTape() as beside:
        beside.watch(quantised)
        loss = tf.reduce_mean(tf.square(codec.decoded(quantised) - mel))
    straight = tf.reduce_sum(beside.gradient(loss, quantised), [0, 1])
    assert error(tape.gradient(found.reconstruction, bias), straight) < 1e-4
    distance = found.encoded - quantised
    pull = tf.reduce_sum(2 * distance, [0, 1]) / tf.size(distance, tf.float32)
    assert error(tape.gradient(found.commitment, bias), pull) < 1e-4
    assert tape.gradient(found.reconstruction, codec.codebook.embed) is None
    assert tape.gradient(found.commitment, codec.codebook.embed) is None
    assert tape.gradient(found.commitment, codec.decoder[0].weight) is None


# Padding


@settings(max_examples=8)
@given(st.lists(st.integers(0, FRAMES), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_padding_is_ignored(lengths, seed):
    """Each clip has the codes, mel and contribution to losses and codebook that it has alone, whatever its padding."""
    codec, mel = padded()
    noise = np.random.default_rng(seed).standard_normal(mel.shape).astype(np.float32) * 100
    noise[:, ::5] = np.nan
    behind = np.arange(FRAMES)[None, :, None] >= np.array(lengths)[:, None, None]
    found = codec.train_pass(np.where(behind, noise, mel), tf.constant(lengths))
    counts, sums = codec.codebook.statistics(found.encoded, found.codes, found.inside)

    clips = [(row, length) for row, length in enumerate(lengths) if length]
    alone = [codec.train_pass(mel[row : row + 1, :length]) for row, length in clips]
    for (row, length), clip in zip(clips, alone):
        codes = int(code_lengths(length))
        assert clip.codes.shape == (1, codes)
        np.testing.assert_array_equal(found.codes[row, :codes], clip.codes[0])
        assert error(found.decoded[row, :length], clip.decoded[0]) < 1e-5
        assert found.inside[row].numpy().sum() == codes
    for loss, weight in (("reconstruction", lambda length: length), ("commitment", code_lengths)):
        total = sum(float(getattr(clip, loss)) * weight(length) for (_, length), clip in zip(clips, alone))
        mean = total / max(sum(weight(length) for length in lengths), 1)
        assert float(getattr(found, loss)) == pytest.approx(mean, rel=1e-4)
    each = [codec.codebook.statistics(clip.encoded, clip.codes) for clip in alone]
    np.testing.assert_array_equal(counts, sum([clip[0].numpy() for clip in each], np.zeros(SIZE.codes)))
    np.testing.assert_allclose(
        sums, sum([clip[1].numpy() for clip in each], np.zeros(sums.shape)), rtol=1e-4, atol=1e-4
    )


@functools.lru_cache(maxsize=1)
def padded():
    codec = Codec(attrs.evolve(SIZE, blocks=1), MELS, np.random.default_rng(3))
    mel = made_up(3, FRAMES, 4)
    codec.init_codebook(mel)
    return codec, mel


def test_full_lengths_equal_no_lengths(codec, io, mel):
    """Without padding the masks change no bit of the result, and the codebook becomes the published one."""
    lengths = tf.fill([len(mel)], FRAMES)
    masked = codec.train_pass(mel, lengths)
    for ours, theirs in zip(masked, codec.train_pass(mel)):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(codec.encode(mel, lengths), io["codes"])
    np.testing.assert_array_equal(codec.decode(masked.codes, code_lengths(lengths)), codec.decode(masked.codes))
    learn(codec, masked)
    assert error(codec.codebook.embed.numpy().T, io["after_train_pass_embed"]) < 1e-5


def test_shapes_stay_static():
    """A padded batch is one trace whatever its lengths, and every result has a static shape."""
    codec, mel = padded()

    def step(mel, lengths):
        found = codec.train_pass(mel, lengths)
        book = codec.codebook
        results = [*found, *book.statistics(found.encoded, found.codes, found.inside)]
        results += book.draw(found.encoded, 0, lengths[0], found.inside)
        assert all(result.shape.is_fully_defined() for result in results)
        return results

    signature = [tf.TensorSpec(mel.shape), tf.TensorSpec([len(mel)], tf.int32)]
    compiled = compat.compiled(step, input_signature=signature, jit_compile=True, allowed=1, action="raise")
    for lengths in ([FRAMES] * 3, [5, 0, 31]):
        found = compiled(tf.constant(mel), tf.constant(lengths))
        for ours, theirs in zip(found, step(mel, tf.constant(lengths))):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_blank_batch_trains_nothing(codec, mel):
    """If all rows are blank, losses and gradients are zero and not NaN, and no vector can be drawn."""
    lengths = tf.zeros([len(mel)], tf.int32)
    with tf.GradientTape() as tape:
        found = codec.train_pass(mel, lengths)
        loss = found.reconstruction + found.commitment
    assert float(loss) == 0
    assert all(not np.any(gradient.numpy()) for gradient in tape.gradient(loss, codec.trainable_variables))
    assert not np.any(codec.codebook.statistics(found.encoded, found.codes, found.inside)[0])
    before = state(codec.codebook)
    codec.codebook.revive(*codec.codebook.draw(found.encoded, 0, 0, found.inside), dead=10.0)
    for old, new in zip(before, state(codec.codebook)):
        np.testing.assert_array_equal(old, new)


# Codebook updates


def test_draws_are_the_same_on_every_tensorflow(way):
    """The drawn positions depend on seed and step only, and are those of the oldest release in every execution mode."""
    codebook = Codebook(6, 1, np.random.default_rng(0))
    x = tf.range(40.0)[:, None]
    draw = way(lambda x, step: codebook.draw(x, 7, step)[0][:, 0])
    np.testing.assert_array_equal(draw(x, tf.constant(3)), [31, 1, 38, 37, 9, 18])
    assert list(draw(x, tf.constant(4)).numpy()) != [31, 1, 38, 37, 9, 18]


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**31 - 1), st.data())
@settings(max_examples=20)
def test_replicas_draw_what_one_device_would(here, codes, replicas, step, data):
    """The draws of all replicas sum to the draw from the whole batch: real vectors, no duplicates, no padding."""
    total = here * replicas
    inside = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)))
    x = np.arange(1.0, total + 1, dtype=np.float32)[:, None]
    codebook = Codebook(codes, 1, np.random.default_rng(0))
    whole, real = (part.numpy() for part in codebook.draw(x, 1, step, inside))
    parts = [
        codebook.draw(rows, 1, step, part, replica, replicas)
        for replica, (rows, part) in enumerate(zip(np.split(x, replicas), np.split(inside, replicas)))
    ]
    np.testing.assert_array_equal(sum(part[0].numpy() for part in parts), whole)
    np.testing.assert_array_equal(sum(part[1].numpy() for part in parts), real)
    drawn = whole[real == 1, 0]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(x[inside, 0])
    if codes >= total:
        assert len(drawn) == inside.sum()


def test_only_dead_codes_are_replaced(way):
    """Codes below the threshold get the drawn vectors in order, as far as they go; the others are bit-identical."""
    codebook = Codebook(6, 2, np.random.default_rng(0))
    codebook.cluster_size.assign([4.0, 0.01, 5.0, 0.0, 0.02, 3.0])
    vectors = np.array([[0, 0], [10, 11], [0, 0], [20, 21], [0, 0]], np.float32)
    embed, average, size = state(codebook)
    revive = way(lambda vectors, real: codebook.revive(vectors, real))
    revive(tf.constant(vectors), tf.constant([0.0, 1.0, 0.0, 1.0, 0.0]))
    new_embed, new_average, new_size = state(codebook)
    kept = [0, 2, 4, 5]  # 4 is dead, but there is no third vector
    for old, new in ((embed, new_embed), (average, new_average), (size, new_size)):
        np.testing.assert_array_equal(old[kept], new[kept])
    np.testing.assert_array_equal(new_embed[[1, 3]], [[10, 11], [20, 21]])
    np.testing.assert_allclose(new_size[[1, 3]], Codebook.GRACE * Codebook.DEAD * size.mean(), rtol=1e-6)
    np.testing.assert_allclose(new_average[[1, 3]], new_embed[[1, 3]] * new_size[[1, 3], None], rtol=1e-6)
    revive(tf.constant(vectors), tf.constant([0.0, 1.0, 0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(codebook.embed[4], [10, 11])


def test_an_unused_code_is_revived_periodically():
    """A revived code is kept for the promised number of steps and replaced after them."""
    codebook = Codebook(4, 1, np.random.default_rng(0))
    codebook.cluster_size.assign([8.0, 8.0, 8.0, 0.0])
    counts, sums = tf.constant([8.0, 8, 8, 0]), tf.constant([[8.0], [8], [8], [0]])

    @compat.compiled
    def turn(step):
        codebook.update(counts, sums)
        codebook.revive(tf.fill([1, 1], 100.0 + step), tf.ones([1]))

    places = []
    for step in range(60):
        turn(tf.constant(float(step)))
        places.append(round(float(codebook.embed[3, 0]), 1))
    moves = sorted(set(places))
    assert places == sorted(places)
    assert [move - moves[0] for move in moves] == pytest.approx([0, 22, 44], abs=2)


def test_a_new_codebook_is_initialised_from_data():
    """A new codebook becomes distinct encodings of a batch, by the seed; one with counts is left alone."""
    mel = made_up(8, 64, 1)
    lengths = tf.constant([64, 40, 0, 64, 64, 64, 64, 64])

    def begun(seed):
        codec = Codec(SIZE, MELS, np.random.default_rng(0))
        codec.init_codebook(mel, lengths, seed)
        return codec

    codec = begun(1)
    rows = {tuple(row) for row in tf.boolean_mask(*codec.train_pass(mel, lengths)[3:6:2]).numpy()}
    embed = {tuple(row) for row in codec.codebook.embed.numpy()}
    assert len(embed) == SIZE.codes
    assert embed <= rows
    np.testing.assert_array_equal(codec.codebook.embed, begun(1).codebook.embed)
    assert np.any(codec.codebook.embed.numpy() != begun(2).codebook.embed.numpy())
    before = state(codec.codebook)
    codec.init_codebook(mel[::-1], seed=3)
    for old, new in zip(before, state(codec.codebook)):
        np.testing.assert_array_equal(old, new)


# Training


def made_up(clips, frames, seed):
    """Artificial log mels: three wandering formants over a noise floor. [clips, frames, n_mels]"""
    random = np.random.default_rng(seed)
    at = np.arange(frames)[None, :, None, None] / frames
    speed, phase = random.uniform(1, 4, (clips, 1, 1, 3)), random.uniform(0, 7, (clips, 1, 1, 3))
    centres = np.array([12.0, 35.0, 60.0]) + 10 * np.sin(2 * np.pi * speed * at + phase)
    bumps = np.exp(-(((np.arange(MELS)[None, None, :, None] - centres) / 5) ** 2)).sum(-1)
    return (4 * bumps - 2 + 0.1 * random.standard_normal(bumps.shape)).astype(np.float32)


class Adam:
    """A minimal Adam optimizer."""

    def __init__(self, variables, rate):
        self.variables, self.rate = variables, rate
        self.moments = [[tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))] for v in variables]

    def apply(self, gradients, step):
        bias = 1 - tf.pow([0.9, 0.99], tf.cast(step, tf.float32) + 1)
        for variable, gradient, (first, second) in zip(self.variables, gradients, self.moments):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.99 * second + 0.01 * tf.square(gradient))
            variable.assign_sub(self.rate * first / bias[0] / (tf.sqrt(second / bias[1]) + 1e-8))


SMALL = sizes.CodecSize(hidden=32, code_width=16, codes=64, blocks=1)


def train(codec, steps):
    """The losses of each step, on artificial mels of which some are padded."""
    adam = Adam(codec.trainable_variables, 2e-3)

    @compat.compiled
    def step(mel, lengths, number):
        with tf.GradientTape() as tape:
            found = codec.train_pass(mel, lengths)
            loss = found.reconstruction + 0.25 * found.commitment
        adam.apply(tape.gradient(loss, codec.trainable_variables), number)
        learn(codec, found)
        codec.codebook.revive(*codec.codebook.draw(found.encoded, 0, number, found.inside))
        return found.reconstruction, found.commitment

    lengths = tf.constant([64] * 6 + [41, 0])
    losses = [step(made_up(8, 64, 100 + n), lengths, tf.constant(n)) for n in range(steps)]
    assert step.traces == 1
    return np.array(losses)


def used(codec):
    return len(np.unique(codec.encode(made_up(32, 64, 1)).numpy()))


def test_training_lowers_the_loss_and_uses_many_codes():
    """After some dozens of steps unseen clips are reconstructed better, and most of the codebook is used."""
    codec = Codec(SMALL, MELS, np.random.default_rng(0))
    unseen = made_up(8, 64, 2)
    codec.init_codebook(made_up(8, 64, 0), seed=1)
    before = codec.train_pass(unseen)
    losses = train(codec, 60)
    after = codec.train_pass(unseen)
    assert np.isfinite(losses).all()
    assert after.reconstruction < 0.5 * before.reconstruction
    assert used(codec) > 32


def test_a_collapsed_codebook_recovers():
    """When all codes but one are out of reach, training moves them to the data."""
    codec = Codec(SMALL, MELS, np.random.default_rng(0))
    far = np.full((SMALL.codes, SMALL.code_width), 1e3, np.float32)
    far[0] = 0
    codec.codebook.embed.assign(far)
    codec.codebook.cluster_size.assign([100.0] + [0.01] * (SMALL.codes - 1))
    codec.codebook.embed_avg.assign(far * codec.codebook.cluster_size.numpy()[:, None])
    assert used(codec) == 1
    losses = train(codec, 20)
    assert used(codec) > 32
    assert losses[-1, 0] < 0.8 * losses[0, 0]


# Replicas


def test_two_replicas_train_the_same_codebook_as_one_device():
    """Sums over mirrored replicas, padded differently, give one device's codebook on both, with dead codes revived."""
    program = """
        import numpy as np
        import tensorflow as tf
        from xtts import compat
        from xtts.model.codec import Codec
        from xtts.planning.sizes import CodecSize

        compat.split("CPU", 0, [None, None])
        mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        mel = np.random.default_rng(0).standard_normal((4, 32, 80)).astype(np.float32)
        lengths = np.array([32, 21, 9, 0], np.int32)

        size = CodecSize(hidden=8, code_width=4, codes=12, blocks=1)

        def begun():
            codec = Codec(size, 80, np.random.default_rng(0))
            codec.init_codebook(mel, lengths, seed=5)
            return codec

        def turn(codec, mel, lengths, step, replica, replicas, summed):
            book = codec.codebook
            found = codec.train_pass(mel, lengths)
            counts, sums = book.statistics(found.encoded, found.codes, found.inside)
            vectors, real = book.draw(found.encoded, 5, step, found.inside, replica, replicas)
            counts, sums, vectors, real = summed([counts, sums, vectors, real])
            book.update(counts, sums)
            book.revive(vectors, real, dead=0.9)

        def on_replica(mel, lengths, step):
            context = tf.distribute.get_replica_context()
            replica = context.replica_id_in_sync_group
            turn(two, mel, lengths, step, replica, 2, lambda parts: context.all_reduce("SUM", parts))

        def part(values):
            return mirrored.experimental_distribute_values_from_function(
                lambda context: tf.constant(np.split(values, 2)[context.replica_id_in_sync_group])
            )

        fresh, one = begun(), begun()
        with mirrored.scope():
            two = begun()
        run = tf.function(lambda mel, lengths, step: mirrored.run(on_replica, (mel, lengths, step)))
        for step in range(3):
            run(part(mel), part(lengths), tf.constant(step))
            turn(one, mel, lengths, step, 0, 1, lambda parts: parts)
        moved = 0
        for name in ("embed", "embed_avg", "cluster_size"):
            first, second = [copy.numpy() for copy in getattr(two.codebook, name).values]
            np.testing.assert_array_equal(first, second)
            np.testing.assert_allclose(first, getattr(one.codebook, name).numpy(), rtol=1e-5, atol=1e-6)
            moved += np.abs(first - getattr(fresh.codebook, name).numpy()).max()
        assert moved > 0.1, moved
        assert set(two.weights()) == set(fresh.weights())
        print("equal")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=str(Path(__file__).parents[2]),
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip().endswith("equal"), run.stderr[-3000:]

"""The GPT: published values, agreement of both layouts, and properties for any batch."""

import functools

import attrs
import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file
from hypothesis import given, settings
from hypothesis import strategies as st
from padded_layout import padded_losses

from xtts import compat
from xtts.errors import XttsError
from xtts.model.attention import attend, causal_mask
from xtts.model.generation import generate
from xtts.model.gpt import Gpt, Tokens, shift_rows
from xtts.model.layers import Dropout, matmul
from xtts.planning.shapes import joint_length
from xtts.planning.sizes import GptSize as Size

SIZE = Size(layers=2, width=64, heads=4, text_positions=22, audio_positions=32)
TOKENS = Tokens(text=50, audio=98, text_start=48, text_stop=0, audio_start=96, audio_stop=97)


@pytest.fixture(scope="module")
def golden():
    return load_file(str(GOLDEN / "gpt.io.safetensors"))


@pytest.fixture(scope="module")
def gpt():
    made = Gpt(SIZE, TOKENS, np.random.default_rng(0))
    fill(made, load_file(str(GOLDEN / "gpt.weights.safetensors")))
    return made


@pytest.fixture(scope="module")
def batch(golden):
    """Text, codes and references of the golden batch, without padding that no layout needs."""
    code_lengths = -(-golden["wav_lengths"] // 1024)
    arrays = golden["text"], golden["text_lengths"], golden["codes"][:, : code_lengths.max()], code_lengths
    mels = np.ascontiguousarray(golden["cond_mels"][:, 0].transpose(0, 2, 1))
    return [*(tf.constant(array.astype(np.int32)) for array in arrays), tf.constant(mels)]


def apart(found, wanted):
    """The largest difference, relative to the largest value."""
    wanted = np.asarray(wanted, np.float64)
    return np.abs(np.asarray(found, np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-12)


def run(function, way):
    return function if way == "eager" else compat.compiled(function, jit_compile=way == "xla")


def losses_and_gradients(gpt, function, batch, way="eager"):
    """Text and code loss, and the gradient of each weight under its published name and with its published axes."""
    weights = gpt.weights()

    def step(*batch):
        with tf.GradientTape() as tape:
            losses, _ = function(*batch)
        gradients = tape.gradient(losses.total, [weight.variable for weight in weights.values()])
        return losses, [tf.convert_to_tensor(gradient) for gradient in gradients]

    losses, gradients = run(step, way)(*batch)
    turned = {
        name: gradient.numpy() if weight.axes is None else gradient.numpy().transpose(np.argsort(weight.axes))
        for (name, weight), gradient in zip(weights.items(), gradients)
    }
    return losses, turned


def test_weights_have_their_published_names(gpt):
    """The names and shapes are exactly those of the published checkpoint."""
    published = load_file(str(GOLDEN / "gpt.weights.safetensors"))
    found = {name: weight.published_shape for name, weight in gpt.weights().items()}
    assert found == {name: array.shape for name, array in published.items()}


def test_a_model_without_a_perceiver_is_refused():
    """XTTS v1, which has none, is refused before anything is built."""
    with pytest.raises(XttsError, match=r"no perceiver, as XTTS v1 .* name an XTTS-v2"):
        Gpt(attrs.evolve(SIZE, perceiver_layers=0), TOKENS, np.random.default_rng(0))


def test_the_number_of_weights_matches_the_sizes(gpt):
    """The number of weights equals the one computed for a plan."""
    assert sum(int(np.prod(weight.variable.shape)) for weight in gpt.weights().values()) == SIZE.weights(50, 98, 80)


def test_the_published_layout_gives_the_published_logits(gpt, batch, golden):
    """Every logit of the codes matches, including those past the ends of short rows."""
    _, logits = padded_losses(gpt, *batch)
    assert apart(np.transpose(logits.codes, [0, 2, 1]), golden["mel_logits"]) < 1e-4


def laid_out(gpt, layout):
    """The losses of a batch in one of the layouts, as a function of the batch."""
    return gpt.losses if layout == "joint" else functools.partial(padded_losses, gpt)


@pytest.mark.parametrize(("layout", "way"), [("joint", "eager"), ("joint", "graph"), ("padded", "eager")])
def test_losses_and_gradients_match_the_published_ones(layout, way, gpt, batch, golden):
    """Both layouts give the published losses and, for every weight, the published gradient."""
    losses, gradients = losses_and_gradients(gpt, laid_out(gpt, layout), batch, way)
    assert apart(losses.text, golden["loss_text"]) < 1e-4
    assert apart(losses.codes, golden["loss_mel"]) < 1e-4
    np.testing.assert_allclose(losses.total, 0.01 * losses.text + losses.codes, rtol=1e-6)
    assert (float(losses.text_tokens), float(losses.code_tokens)) == (14 + 10 + 11 + 3, 17 + 13 + 15 + 3 * 4)
    wrong = {name: apart(found, golden["grad." + name]) for name, found in gradients.items()}
    assert {name: error for name, error in wrong.items() if not error < 1e-3} == {}


def test_xla_changes_nothing(batch):
    """Compiled by XLA, losses and gradients are the same; one block of each is enough, as all are alike."""
    made = Gpt(
        attrs.evolve(SIZE, layers=1, conditioning_blocks=1, perceiver_layers=1), TOKENS, np.random.default_rng(0)
    )
    losses, gradients = losses_and_gradients(made, made.losses, batch, "xla")
    wanted, wanted_gradients = losses_and_gradients(made, made.losses, batch, "eager")
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    largest = max(np.abs(gradient).max() for gradient in wanted_gradients.values())
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted_gradients[name], rtol=1e-3, atol=1e-6 * largest, err_msg=name)


def test_joint_logits_match_the_published_ones(gpt, batch, golden):
    """In the joint layout each row has the published logits up to its last target."""
    _, logits = gpt.losses(*batch)
    for row, length in enumerate(batch[3].numpy() + 4):
        assert apart(np.transpose(logits.codes[row, :length]), golden["mel_logits"][row, :, :length]) < 1e-4


def random_batch(random, text_lengths, code_lengths):
    text = random.integers(1, 48, [len(text_lengths), max(1, *text_lengths)])
    codes = random.integers(0, 96, [len(code_lengths), max(1, *code_lengths)])
    arrays = text, text_lengths, codes, code_lengths
    mels = random.standard_normal([len(text_lengths), 12, 80]).astype(np.float32)
    return [*(tf.constant(np.asarray(array, np.int32)) for array in arrays), tf.constant(mels)]


rows = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 25)), min_size=2, max_size=3)


@given(rows, st.integers(0, 99))
@settings(max_examples=6)
def test_layouts_agree_on_any_lengths(gpt, rows, seed):
    """Losses and gradients of both layouts are equal, with the shortest joint length that holds every row."""
    batch = random_batch(np.random.default_rng(seed), *zip(*rows))
    joint = max(int(joint_length(text, 4 * codes)) for text, codes in rows)
    losses, gradients = losses_and_gradients(gpt, lambda *batch: gpt.losses(*batch, joint_length=joint), batch)
    wanted, wanted_gradients = losses_and_gradients(gpt, laid_out(gpt, "padded"), batch)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    largest = max(np.abs(gradient).max() for gradient in wanted_gradients.values())
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted_gradients[name], rtol=1e-3, atol=1e-5 * largest, err_msg=name)


def test_padding_changes_nothing(gpt, batch):
    """A larger shape, and any values in the padding, leave losses and gradients unchanged."""
    text, text_lengths, codes, code_lengths, mels = batch
    wide = [tf.pad(text, [[0, 0], [0, 5]], constant_values=9), text_lengths]
    wide += [tf.pad(codes, [[0, 0], [0, 6]], constant_values=5), code_lengths, mels]
    losses, gradients = losses_and_gradients(gpt, lambda *batch: gpt.losses(*batch, joint_length=90), wide)
    wanted, wanted_gradients = losses_and_gradients(gpt, gpt.losses, batch)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert max(apart(gradients[name], wanted_gradients[name]) for name in gradients) < 1e-3


@pytest.mark.parametrize("layout", ["joint", "padded"])
def test_blank_rows_are_ignored(layout, gpt, batch):
    """Rows of length 0 leave losses and gradients unchanged, and a batch of only such rows has the loss 0."""
    function = laid_out(gpt, layout)
    filled = [tf.concat([part, tf.zeros_like(part[:2])], axis=0) for part in batch]
    losses, gradients = losses_and_gradients(gpt, function, filled)
    wanted, wanted_gradients = losses_and_gradients(gpt, function, batch)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert max(apart(gradients[name], wanted_gradients[name]) for name in gradients) < 1e-3
    empty, gradients = losses_and_gradients(gpt, function, [tf.zeros_like(part) for part in batch])
    assert [float(value) for value in empty] == [0] * 5
    assert all(not gradient.any() for gradient in gradients.values())


def test_masked_codes_have_no_loss(gpt, batch):
    """The loss is the mean over all other targets; without a mask, and with an empty one, it is over all."""
    masks = np.array([[2, 9], [0, 0], [5, 99], [0, 0]], np.int32)[: batch[3].shape[0]]
    losses, logits = gpt.losses(*batch, masked_codes=tf.constant(masks))
    wanted = []
    for row, length in enumerate(batch[3].numpy()):
        targets = [*batch[2].numpy()[row, :length], *[TOKENS.audio_stop] * 4]
        all_of_row = -tf.nn.log_softmax(logits.codes[row, : length + 4]).numpy()[range(length + 4), targets]
        wanted += [loss for place, loss in enumerate(all_of_row) if not masks[row, 0] <= place < masks[row, 1]]
    np.testing.assert_allclose(losses.codes, np.mean(wanted), rtol=1e-5)
    assert float(losses.code_tokens) == len(wanted)
    unmasked, _ = gpt.losses(*batch)
    np.testing.assert_array_equal(losses.text, unmasked.text)
    np.testing.assert_array_equal(gpt.losses(*batch, masked_codes=tf.zeros_like(masks))[0], unmasked)


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_latents_match_the_published_ones(way, gpt, batch, golden):
    """In evaluation mode the latents are the published ones; in training mode there are four more."""
    first = [part[:1] for part in batch[:4]]
    style = gpt.conditioning_latents(batch[4][:1])
    latents = run(gpt.latents, way)(*first, style)
    assert latents.shape == golden["latents"].shape
    assert apart(latents, golden["latents"]) < 1e-4
    longer = gpt.latents(*first, style, training=True)
    assert longer.shape == [1, 21, 64]
    np.testing.assert_allclose(longer[:, :17], latents, atol=1e-4)


def test_latents_of_a_row_are_independent(gpt, batch):
    """In a batch of different lengths every row has the latents that it has alone."""
    together = gpt.latents(*batch[:4], gpt.conditioning_latents(batch[4]))
    for row in range(3):
        text, text_length, codes, code_length, mels = (part[row : row + 1] for part in batch)
        text, codes = text[:, : int(text_length[0])], codes[:, : int(code_length[0])]
        alone = gpt.latents(text, text_length, codes, code_length, gpt.conditioning_latents(mels))
        np.testing.assert_allclose(together[row, : codes.shape[1]], alone[0], atol=1e-4)


@pytest.mark.parametrize("way", ["graph", "xla"])
def test_greedy_codes_match_the_published_ones(way, gpt, batch, golden):
    """The codes match with and without a repetition penalty, up to the stop token or the last position."""

    def speak(text, text_lengths, style, penalty):
        return generate(gpt, text, text_lengths, style, repetition_penalty=penalty)

    compiled = run(speak, way)
    for penalty, name in ((1.0, "greedy"), (5.0, "greedy_repetition_penalty_5")):
        spoken = compiled(batch[0][:1], batch[1][:1], gpt.conditioning_latents(batch[4][:1]), tf.constant(penalty))
        wanted = golden[name][0]
        codes, length = spoken.codes.numpy()[0], int(spoken.lengths[0])
        np.testing.assert_array_equal(codes[: len(wanted)], wanted)
        assert (codes[length:] == 97).all()
        assert length == len(wanted) - (wanted[-1] == 97)
    assert compiled.traces == 1


def test_code_1_is_penalised_from_the_start(gpt, batch):
    """As in the published model, the penalty looks at a sequence where 1 stands for the text tokens."""
    gpt.mel_head.bias.assign_add(30.0 * np.eye(98, dtype=np.float32)[1])
    try:
        first = batch[0][:1], batch[1][:1], gpt.conditioning_latents(batch[4][:1])
        free = generate(gpt, *first, max_new_codes=6).codes.numpy()
        penalised = generate(gpt, *first, max_new_codes=6, repetition_penalty=50.0).codes.numpy()
    finally:
        gpt.mel_head.bias.assign_add(-30.0 * np.eye(98, dtype=np.float32)[1])
    assert free.tolist() == [[1, 1, 1, 1, 1, 1]]
    assert penalised.tolist() == [[34, 7, 5, 36, 17, 85]]  # as coqui-tts 0.28 generates with the same weights


def test_generation_agrees_with_the_full_pass(gpt, batch):
    """Each code, generated with a cache and next to longer texts, is the best one by a pass over the whole sequence."""
    style = gpt.conditioning_latents(batch[4])
    spoken = generate(gpt, batch[0], batch[1], style, max_new_codes=12)
    latents = gpt.latents(*batch[:2], spoken.codes, tf.fill([3], 12), style)
    best = tf.argmax(gpt.mel_head(latents), axis=-1).numpy()
    for row, length in enumerate(spoken.lengths.numpy()):
        np.testing.assert_array_equal(spoken.codes[row, :length], best[row, :length])


def test_half_precision_is_close_to_float32(gpt, batch):
    """In bfloat16 and float16 the losses match float32's to the precision of the type, and gradients are finite."""
    wanted, _ = gpt.losses(*batch)
    for dtype, error in ((tf.bfloat16, 0.03), (tf.float16, 0.005)):
        losses, gradients = losses_and_gradients(gpt, gpt.losses, [*batch[:4], tf.cast(batch[4], dtype)])
        assert losses.total.dtype == tf.float32
        assert apart(losses.total, wanted.total) < error
        assert all(np.isfinite(gradient).all() for gradient in gradients.values())


def test_dropout_is_a_function_of_the_seed(gpt, batch):
    """Dropout changes the losses, in the same way for the same seed."""
    seeds = [None, *(tf.constant([1, step]) for step in (3, 3, 4))]
    plain, once, again, other = (
        float(gpt.losses(*batch, dropout=0.0 if seed is None else 0.2, seed=seed)[0].total) for seed in seeds
    )
    assert once == again
    assert len({plain, once, other}) == 3


@pytest.mark.parametrize("way", ["graph", "xla"])
def test_dropout_is_the_same_when_compiled(way):
    """The masks of a step do not depend on the execution mode."""

    def dropped(seed):
        drop = Dropout(0.3, seed)
        return drop(tf.ones([7, 5])), drop(tf.ones([3, 2, 3]))

    for found, wanted in zip(run(dropped, way)(tf.constant([1, 2])), dropped(tf.constant([1, 2]))):
        np.testing.assert_array_equal(found, wanted)


def test_attention_matches_its_formula():
    """Banded attention, its dropout and its gradients match softmax attention for any length."""
    random = np.random.default_rng(0)
    for length, dropout in ((5, 0.0), (130, 0.0), (130, 0.3)):
        q, k, v = (tf.constant(random.standard_normal([2, 2, length, 8]), tf.float32) for _ in range(3))
        weights = tf.constant(random.standard_normal([2, 2, length, 8]), tf.float32)
        size = max(32, -(-length // 4))

        def formula(q, k, v, length=length, dropout=dropout, size=size):
            shares = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) + causal_mask(length))
            drop = Dropout(dropout, tf.constant([1, 2]))
            if dropout:
                stops = [min(start + size, length) for start in range(0, length, size)]
                masks = [drop.keep_mask([2, 2, stop - start, stop]) for start, stop in zip([0, *stops], stops)]
                masks = [tf.pad(mask, [[0, 0], [0, 0], [0, 0], [0, length - mask.shape[3]]]) for mask in masks]
                shares = shares * tf.cast(tf.concat(masks, axis=2), tf.float32) * drop.scale
            return tf.matmul(shares, v)

        def attention(q, k, v, dropout=dropout):
            return attend(q, k, v, drop=Dropout(dropout, tf.constant([1, 2])), is_causal=True)

        results = []
        for function in (attention, formula):
            with tf.GradientTape() as tape:
                tape.watch([q, k, v])
                mixed = function(q, k, v)
                total = tf.reduce_sum(mixed * weights)
            results.append([mixed, *tape.gradient(total, [q, k, v])])
        for found, wanted in zip(*results):
            assert apart(found, wanted) < 1e-5


@pytest.mark.parametrize(("inputs", "outputs"), [(8, 512), (512, 8), (512, 512), (8, 9)])
def test_dense_layers_have_the_gradients_of_a_matrix_product(inputs, outputs):
    """This holds for any width, including those that are padded to avoid cache conflicts."""
    random = np.random.default_rng(0)
    x, weight, pull = (random.standard_normal(shape) for shape in ([2, 5, inputs], [inputs, outputs], [2, 5, outputs]))
    x, weight = tf.Variable(x, dtype=tf.float32), tf.Variable(weight, dtype=tf.float32)
    with tf.GradientTape() as tape:
        y = matmul(x, weight)
        total = tf.reduce_sum(y * pull.astype(np.float32))
    to_x, to_weight = tape.gradient(total, [x, weight])
    assert apart(y, x.numpy() @ weight.numpy()) < 1e-5
    assert apart(to_x, pull @ weight.numpy().T) < 1e-5
    assert apart(to_weight, np.einsum("bti,bto->io", x.numpy(), pull)) < 1e-5


def test_dropout_keeps_the_mean():
    """The share of dropped elements is the rate, masks are independent, and the mean is kept."""
    drop = Dropout(0.25, tf.constant([5, 6]))
    first, second = (drop(tf.ones([101, 999])).numpy() for _ in range(2))
    assert abs((first == 0).mean() - 0.25) < 0.01
    assert abs(first.mean() - 1) < 0.01
    assert abs(((first == 0) & (second == 0)).mean() - 0.0625) < 0.005
    with pytest.raises(ValueError, match="seed"):
        Dropout(0.1)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=25)
def test_shift_moves_rows_and_its_gradient_moves_them_back(by, count, length):
    """A shift moves each row by its own offset, and its gradient is the transpose."""
    x = np.random.default_rng(0).standard_normal([len(by), count, 2]).astype(np.float32)
    wanted = np.zeros([len(by), length, 2], np.float32)
    for row, places in enumerate(by):
        for place in range(count):
            if 0 <= place + places < length:
                wanted[row, place + places] = x[row, place]
    variable = tf.Variable(x)
    weights = np.random.default_rng(1).standard_normal(wanted.shape).astype(np.float32)
    with tf.GradientTape() as tape:
        found = shift_rows(variable, tf.constant(by), length)
        total = tf.reduce_sum(found * weights)
    np.testing.assert_array_equal(found, wanted)
    # <w, S x> = <S' w, x>, for the shift is linear.
    np.testing.assert_allclose(np.sum(tape.gradient(total, variable) * x), total, rtol=1e-3, atol=1e-4)


def test_weights_are_initialised_as_in_gpt2():
    """The standard deviation is 0.02, and smaller for residual projections the more layers there are."""
    made = Gpt(Size(layers=8, width=128, heads=2), Tokens(300, 98), np.random.default_rng(0)).weights()
    for name in ("text_embedding.weight", "mel_head.weight", "gpt.h.3.attn.c_attn.weight", "gpt.h.0.mlp.c_fc.weight"):
        assert abs(made[name].variable.numpy().std() - 0.02) < 0.001
    for name in ("gpt.h.0.attn.c_proj.weight", "gpt.h.7.mlp.c_proj.weight"):
        assert abs(made[name].variable.numpy().std() - 0.02 / 4) < 0.0005
    assert not made["gpt.h.0.attn.c_attn.bias"].variable.numpy().any()


def test_code_positions_are_initialised_near_their_text_positions():
    """A code's position embedding is most similar to that of the text token spoken there, with the same norm."""
    size = Size(layers=1, width=128, heads=2, text_positions=60, audio_positions=180)
    made = Gpt(size, Tokens(300, 98), np.random.default_rng(0), tokens_per_code=0.3).weights()
    text, codes = (made[f"{part}_pos_embedding.emb.weight"].variable.numpy() for part in ("text", "mel"))
    read = np.argmax(codes @ text.T, axis=1)
    places = np.minimum(1.5 + 0.3 * np.arange(183), 61)
    assert np.abs(read - places).max() <= 0.5 + 1e-9
    for weights in (text, codes):
        np.testing.assert_allclose(np.square(weights).mean(axis=1), 0.02**2, rtol=1e-5)


def test_a_step_is_traced_once(gpt, batch):
    """Other lengths in the same shape, and blank rows, cause no retrace."""
    step = compat.compiled(lambda *batch: gpt.losses(*batch, joint_length=70)[0].total, allowed=1, action="raise")
    text, text_lengths, codes, code_lengths, mels = batch
    for change in (0, 3, 5):
        step(text, text_lengths - change, codes, code_lengths - change, mels)
    step(text, 0 * text_lengths, codes, 0 * code_lengths, mels)
    assert step.traces == 1

"""Generation: chunks of any size, collected latents, sampling, other dtypes, and one trace for each."""

import attrs
import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file

from xtts import compat
from xtts.errors import XttsError
from xtts.model.generation import continue_generation, generate, start_generation
from xtts.model.gpt import Gpt, Tokens
from xtts.model.sampling import sampling
from xtts.planning.sizes import GptSize as Size

SIZE = Size(layers=2, width=64, heads=4, text_positions=22, audio_positions=32)
TOKENS = Tokens(text=50, audio=98, text_start=48, text_stop=0, audio_start=96, audio_stop=97)
MOST = 9


@pytest.fixture(scope="module")
def gpt():
    made = Gpt(SIZE, TOKENS, np.random.default_rng(0))
    fill(made, load_file(str(GOLDEN / "gpt.weights.safetensors")))
    return made


@pytest.fixture(scope="module")
def inputs(gpt):
    """Texts of three lengths, with conditioning latents for each."""
    io = load_file(str(GOLDEN / "gpt.io.safetensors"))
    style = gpt.conditioning_latents(tf.constant(np.ascontiguousarray(io["cond_mels"][:, 0].transpose(0, 2, 1))))
    return tf.constant(io["text"].astype(np.int32)), tf.constant(io["text_lengths"].astype(np.int32)), style


def generates_as_trained(gpt, inputs, reference):
    """Whether generated codes and latents match what the training pass predicts for the same codes."""
    text, lengths, style = inputs
    spoken = generate(gpt, text, lengths, style, MOST)
    np.testing.assert_allclose(
        gpt.latents(text, lengths, spoken.codes, spoken.lengths, style), spoken.latents, atol=1e-5
    )
    _, logits = gpt.losses(text, lengths, spoken.codes, tf.fill([len(lengths)], MOST), reference)
    return np.allclose(logits.codes[:, :MOST], gpt.mel_head(spoken.latents), atol=1e-4)


def test_a_model_trained_here_generates_as_it_was_trained(gpt, inputs):
    """The published model reads [STOP] in generation and not in training; a model trained here never does."""
    io = load_file(str(GOLDEN / "gpt.io.safetensors"))
    reference = tf.constant(np.ascontiguousarray(io["cond_mels"][:, 0].transpose(0, 2, 1)))
    own = Gpt(SIZE, attrs.evolve(TOKENS, use_stop_token=False), np.random.default_rng(0))
    fill(own, load_file(str(GOLDEN / "gpt.weights.safetensors")))
    assert generates_as_trained(own, inputs, reference)
    assert not generates_as_trained(gpt, inputs, reference)


@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
def test_chunks_give_the_same_codes_as_one_call(way, gpt, inputs):
    """With any number of codes per chunk, codes and latents are the same, and all chunk sizes share one trace."""

    def speak(text, lengths, style):
        return generate(gpt, text, lengths, style, MOST, 2.0)

    def start(text, lengths, style):
        return start_generation(gpt, text, lengths, style, MOST)

    def go_on(progress, count):
        return continue_generation(gpt, progress, count, 2.0)

    if way != "eager":
        speak, start, go_on = (
            compat.compiled(one, autograph=False, jit_compile=way == "xla") for one in (speak, start, go_on)
        )
    whole = speak(*inputs)
    for sizes in ([1] * MOST, [4, 4, 4], [2, 1, 40]):
        progress = start(*inputs)
        for size in sizes:
            progress = go_on(progress, tf.constant(size))
        pieces = progress.result(TOKENS.audio_stop)
        np.testing.assert_array_equal(pieces.codes, whole.codes)
        np.testing.assert_array_equal(pieces.lengths, whole.lengths)
        np.testing.assert_allclose(pieces.latents, whole.latents, atol=1e-5)
    if way != "eager":
        assert [one.compilations for one in (speak, start, go_on)] == [1, 1, 1]


def test_generation_is_over_when_every_row_has_stopped(gpt, inputs):
    """It is over when all rows have stopped or there is no room left, but not at the start or while a row continues."""
    stop = TOKENS.audio_stop
    progress = start_generation(gpt, *inputs, 3)
    over = [bool(progress.is_over(stop))]
    for _ in range(3):
        progress = continue_generation(gpt, progress, 1)
        over.append(bool(progress.is_over(stop)))
    assert over == [False, False, False, True]

    def stop_unless_first(scores, step):
        return tf.where((step < 2) & (tf.range(3) == 0), 5, stop)

    progress = continue_generation(gpt, start_generation(gpt, *inputs, MOST), 1, pick=stop_unless_first)
    assert not bool(progress.is_over(stop))
    progress = continue_generation(gpt, progress, MOST, pick=stop_unless_first)
    assert bool(progress.is_over(stop))
    assert (int(progress.step), progress.result(stop).lengths.numpy().tolist()) == (3, [2, 0, 0])


def test_latents_match_a_pass_over_the_whole_sequence(gpt, inputs):
    """The hidden states collected during generation equal those of a second pass over all codes."""
    spoken = generate(gpt, *inputs, MOST, 2.0)
    latents = gpt.latents(*inputs[:2], spoken.codes, spoken.lengths, inputs[2])
    for row, length in enumerate(spoken.lengths.numpy()):
        np.testing.assert_allclose(spoken.latents[row, :length], latents[row, :length], atol=1e-4)


@pytest.mark.parametrize("by_xla", [False, True])
def test_generation_in_half_precision(by_xla, gpt, inputs):
    """In bfloat16 the hidden states match float32's over the same codes, to the precision of the type."""
    text, lengths, style = inputs

    def speak(text, lengths, style):
        return generate(gpt, text, lengths, style, 6)

    spoken = compat.compiled(speak, autograph=False, jit_compile=by_xla)(text, lengths, tf.cast(style, tf.bfloat16))
    assert spoken.latents.dtype == tf.bfloat16
    wanted = gpt.latents(text, lengths, spoken.codes, spoken.lengths, style)
    for row, length in enumerate(spoken.lengths.numpy()):
        found = tf.cast(spoken.latents, tf.float32)[row, :length]
        assert np.abs(found - wanted[row, :length]).max() < 0.05 * np.abs(wanted[row, :length]).max()


def test_rows_are_independent(gpt, inputs):
    """In a batch, each row draws the codes that it draws alone with its own seed."""
    settings = sampling(seeds=[7, 8, 9])
    together = generate(gpt, *inputs, MOST, 2.0, settings)
    for row, length in enumerate(inputs[1].numpy()):
        text, lengths, style = (part[row : row + 1] for part in inputs)
        alone = generate(gpt, text[:, :length], lengths, style, MOST, 2.0, sampling(seeds=[7 + row]))
        np.testing.assert_array_equal(alone.codes[0], together.codes[row])


def test_other_settings_need_no_other_trace(gpt, inputs):
    """Seed, temperature, top-k, top-p and penalty are tensors, so one trace serves all of them."""

    def speak(text, lengths, style, penalty, settings):
        return generate(gpt, text, lengths, style, MOST, penalty, settings)

    compiled = compat.compiled(speak, autograph=False, allowed=1, action="raise")
    best = generate(gpt, *inputs, MOST).codes.numpy()
    first = compiled(*inputs, tf.constant(1.0), sampling(seeds=1, rows=3)).codes.numpy()
    again = compiled(*inputs, tf.constant(1.0), sampling(seeds=1, rows=3)).codes.numpy()
    other = compiled(*inputs, tf.constant(1.0), sampling(temperature=2.0, top_k=90, seeds=2, rows=3)).codes.numpy()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(compiled(*inputs, tf.constant(1.0), sampling(top_k=1, seeds=3, rows=3)).codes, best)
    assert compiled.traces == 1


def test_lengths_beyond_the_model_are_refused(gpt, inputs):
    """Too long a text and too many codes are refused before anything is computed."""
    text, lengths, style = inputs
    with pytest.raises(XttsError, match=r"a text of \d+ tokens, .* at most 22: split it"):
        start_generation(gpt, tf.tile(text, [1, 3]), lengths, style)
    for count in (0, 33):
        with pytest.raises(XttsError, match=f"max_new_codes = {count}: the model generates from 1 to 32"):
            start_generation(gpt, text, lengths, style, count)

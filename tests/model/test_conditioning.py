"""Conditioning latents: published values, and properties for any reference voice."""

import attrs
import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts import compat
from xtts.model.conditioning import ConditioningEncoder, PerceiverResampler, group_count
from xtts.planning.sizes import SIZES, GptSize

SIZE = GptSize(layers=2, width=64, heads=4, text_positions=22, audio_positions=32)


def conditioning(size=SIZE):
    random = np.random.default_rng(0)
    return ConditioningEncoder(size, random), PerceiverResampler(size, random)


@pytest.fixture(scope="module")
def golden():
    return load_file(str(GOLDEN / "gpt.io.safetensors"))


@pytest.fixture(scope="module")
def published():
    encoder, perceiver = conditioning()
    weights = load_file(str(GOLDEN / "gpt.weights.safetensors"))
    fill(encoder, weights, "conditioning_encoder.")
    fill(perceiver, weights, "conditioning_perceiver.")
    return lambda mel: perceiver(encoder(mel))


@pytest.fixture(scope="module")
def mels(golden):
    return tf.constant(np.ascontiguousarray(golden["cond_mels"][:, 0].transpose(0, 2, 1)))


def apart(found, wanted):
    """The largest difference, relative to the largest value."""
    return np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max()


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_conditioning_latents_match_the_published_ones(way, published, mels, golden):
    """A reference mel gives the published latents, both eagerly and as a graph."""
    style = published if way == "eager" else compat.compiled(published)
    assert apart(style(mels), golden["style"]) < 1e-4


def test_xla_changes_nothing(mels):
    """Compiled by XLA, a reference mel gives the same latents; one block is enough, as all are alike."""
    encoder, perceiver = conditioning(attrs.evolve(SIZE, conditioning_blocks=1, perceiver_layers=1))
    compiled = compat.compiled(lambda mel: perceiver(encoder(mel)), jit_compile=True)
    assert apart(compiled(mels), perceiver(encoder(mels)).numpy()) < 1e-4


def test_half_precision_is_close_to_float32(published, mels, golden):
    """In bfloat16 and float16 the latents match float32's to the precision of the type."""
    for dtype, error in ((tf.bfloat16, 0.1), (tf.float16, 0.01)):
        style = published(tf.cast(mels, dtype))
        assert style.dtype == dtype
        assert apart(tf.cast(style, tf.float32), golden["style"]) < error


def test_rows_are_independent(published, mels):
    """A voice's latents are the same alone and in a batch."""
    np.testing.assert_allclose(published(mels)[1:2], published(mels[1:2]), atol=1e-5)


def test_the_order_of_frames_does_not_matter(published, mels):
    """A reversed reference gives the same latents."""
    np.testing.assert_allclose(published(mels), published(mels[:, ::-1]), atol=1e-4)


def test_any_length_gives_32_latents(published):
    """Long and short references give the same number of latents."""
    for frames in (1, 7, 130):
        assert published(tf.zeros([2, frames, 80])).shape == [2, 32, 64]


@given(st.integers(1, 300).map(lambda n: 4 * n))
@settings(max_examples=50)
def test_groups_divide_the_width(width):
    """The number of normalisation groups divides the width and is at most 32."""
    assert width % group_count(width) == 0
    assert group_count(width) <= 32


@pytest.mark.parametrize("name", SIZES)
def test_every_preset_has_a_valid_number_of_heads(name):
    """Every preset's heads and groups divide its width."""
    size = SIZES[name].gpt
    assert size.width % size.heads == 0
    assert size.width % group_count(size.width) == 0

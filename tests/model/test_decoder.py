"""The waveform decoder: published values in every execution mode, for single clips and padded batches."""

import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts import compat
from xtts.model.decoder import ConvTranspose1d, WaveformDecoder, interpolate
from xtts.planning.sizes import SIZES, DecoderSize
from xtts.weights.weight_norm import find_pairs, fold_weight_norm

PREFIX = "waveform_decoder."
IO = load_file(GOLDEN / "decoder.io.safetensors")
TENSORS = load_file(GOLDEN / "decoder.weights.safetensors")
WAYS = {"eager": None, "graph": False, "xla": True}
TINY = DecoderSize(width=8, upsampling=(4, 2), kernels=(8, 4), block_kernels=(3,), dilations=(1, 3))


@pytest.fixture(scope="module")
def golden():
    decoder = WaveformDecoder(DecoderSize(width=32), 64, 512, np.random.default_rng(0))
    fill(decoder, fold_weight_norm(TENSORS), PREFIX)
    return decoder


def tiny(latent_width=5, speaker_width=3):
    """A small decoder with weights scaled up, because its initial ones give almost silence."""
    random = np.random.default_rng(0)
    decoder = WaveformDecoder(TINY, latent_width, speaker_width, random)
    for weight in decoder.weights().values():
        weight.variable.assign(random.standard_normal(weight.variable.shape).astype(np.float32) * 0.3)
    return decoder


def run(module, way, *arguments):
    return (module if WAYS[way] is None else compat.compiled(module.__call__, jit_compile=WAYS[way]))(*arguments)


def apart(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("way", WAYS)
def test_the_wave_matches_the_published_one(golden, way):
    """The wave is within 1e-4 of the loudest sample, eagerly, as a graph and compiled by XLA."""
    wave = run(golden, way, tf.constant(IO["latents"]), tf.constant(IO["speaker"])).numpy()
    assert wave.shape == (1, golden.samples(14)) == (1, 15360)
    assert apart(wave, IO["waveform"][:, 0]) < 1e-4


@pytest.mark.parametrize(("dtype", "bar"), [("float16", 1e-2), ("bfloat16", 5e-2)])
def test_half_precision_is_close_to_the_published_wave(golden, dtype, bar):
    """Computed in 16 bits, the wave is still float32 and close to the published one."""
    wave = golden(tf.cast(IO["latents"], dtype), tf.constant(IO["speaker"]))
    assert wave.dtype == tf.float32
    assert apart(wave.numpy(), IO["waveform"][:, 0]) < bar


@pytest.mark.parametrize(
    ("way", "dtype", "bar"), [("graph", "bfloat16", 1e-1), ("xla", "float16", 1e-2)], ids=["graph", "xla"]
)
def test_half_precision_can_be_compiled(way, dtype, bar):
    """Graphs and XLA also compute in 16 bits, close to the same decoder in float32."""
    decoder, random = tiny(), np.random.default_rng(2)
    latents, voices = random.standard_normal((2, 6, 5)), tf.constant(random.standard_normal((2, 3)), tf.float32)
    wave = run(decoder, way, tf.cast(latents, dtype), voices)
    assert wave.dtype == tf.float32
    assert apart(wave.numpy(), decoder(tf.cast(latents, tf.float32), voices).numpy()) < bar


def test_weights_have_the_published_names_and_shapes(golden):
    """The weights are those of the checkpoint with weight norm folded in, and the folded ones are listed."""
    published = {name[len(PREFIX) :]: value.shape for name, value in fold_weight_norm(TENSORS).items()}
    assert {name: weight.published_shape for name, weight in golden.weights().items()} == published
    assert sorted(PREFIX + name for name in golden.normalised()) == sorted(find_pairs(TENSORS))


@pytest.mark.parametrize("size", [SIZES["tiny"], SIZES["small"]], ids=["tiny", "small"])
def test_presets_have_as_many_weights_as_planned(size):
    """A preset's decoder has the number of parameters that a plan counts; weight norm's scale per row is folded in."""
    decoder = WaveformDecoder(size.decoder, size.gpt.width, size.speaker.width, np.random.default_rng(0))
    weights = decoder.weights()
    scales = sum(weights[name].published_shape[0] for name in decoder.normalised())
    total = sum(int(np.prod(weight.published_shape)) for weight in weights.values())
    assert total + scales == size.decoder.weights(size.gpt.width, size.speaker.width)


@settings(max_examples=30)
@given(stride=st.integers(1, 5), half=st.integers(0, 4), frames=st.integers(1, 6))
def test_transposed_convolutions_match_pytorch(stride, half, frames):
    """Each frame adds its kernel from its position on, `half` samples are cut at both ends, and the bias is added."""
    kernel = stride + 2 * half
    layer = ConvTranspose1d(3, 2, kernel, stride, np.random.default_rng(frames))
    layer.bias.assign([5.0, -5.0])
    x = np.random.default_rng(kernel).standard_normal((2, frames, 3)).astype(np.float32)
    whole = np.zeros((2, (frames - 1) * stride + kernel, 2))
    for place in range(frames):
        whole[:, place * stride : place * stride + kernel] += np.einsum("bi,iko->bko", x[:, place], layer.weight)
    expected = whole[:, half : half + frames * stride] + [5, -5]
    np.testing.assert_allclose(layer(tf.constant(x)), expected, atol=1e-5)


def test_a_kernel_that_does_not_fit_its_stride_is_refused():
    """A layer whose output is not stride times frames long cannot be built."""
    for kernel in (3, 7):
        with pytest.raises(ValueError, match=f"a kernel of {kernel} does not fit a stride of 4"):
            ConvTranspose1d(3, 2, kernel, 4, np.random.default_rng(0))


@settings(max_examples=30)
@given(frames=st.integers(1, 300), ratio=st.sampled_from([4.0, 24000 / 22050]))
def test_latents_are_interpolated_between_frame_centres(frames, ratio):
    """Frame n is at (n + 1/2) / ratio - 1/2 of the latents; beyond the first and last the nearest is used."""
    x = np.random.default_rng(frames).standard_normal((1, frames, 2)).astype(np.float32)
    found = interpolate(tf.constant(x), ratio).numpy()
    places = (np.arange(int(np.floor(frames * ratio))) + 0.5) / ratio - 0.5
    for channel in range(2):
        np.testing.assert_allclose(
            found[0, :, channel], np.interp(places, np.arange(frames), x[0, :, channel]), atol=3e-4
        )


@pytest.mark.parametrize("way", WAYS)
def test_padding_is_ignored(way):
    """Each clip of a padded batch has the wave it has alone, followed by silence, whatever its padding."""
    decoder, lengths = tiny(), [9, 8, 5, 1]
    random = np.random.default_rng(1)
    latents = random.standard_normal((4, 9, 5)).astype(np.float32)
    voices = random.standard_normal((4, 3)).astype(np.float32)
    padded = np.full_like(latents, np.nan)
    for row, clip, length in zip(padded, latents, lengths):
        row[:length] = clip[:length]
    waves = run(decoder, way, tf.constant(padded), tf.constant(voices), tf.constant(lengths)).numpy()
    assert waves.shape == (4, decoder.samples(9))
    for place, length in enumerate(lengths):
        alone = decoder(tf.constant(latents[place : place + 1, :length]), tf.constant(voices[place : place + 1]))
        assert alone.shape == (1, decoder.samples(length))
        np.testing.assert_allclose(waves[place, : alone.shape[1]], alone[0], atol=1e-5)
        assert not waves[place, alone.shape[1] :].any()


@pytest.mark.parametrize("latents", [1, 2, 147, 150])
def test_the_length_of_a_wave_is_known_in_advance(latents):
    """`samples` is the static length of the wave, also where 147 latents make a whole number of frames."""
    decoder = tiny()
    shapes = tf.TensorSpec([2, latents, 5]), tf.TensorSpec([2, 3])
    function = tf.function(decoder.__call__).get_concrete_function(*shapes)
    assert function.output_shapes == [2, decoder.samples(latents)]
    assert decoder.samples(latents) == 8 * int(np.floor(float(4 * latents) * (24000 / 22050)))


@pytest.mark.parametrize("way", ["eager", "xla"])
def test_every_weight_has_a_gradient(way):
    """The decoder can be trained, also on a CPU: each weight, the latents and the speaker embedding have a gradient."""
    decoder = tiny()
    variables = list(decoder.trainable_variables)
    latents, voices = tf.random.stateless_normal([2, 4, 5], [0, 1]), tf.random.stateless_normal([2, 3], [2, 3])

    def gradients(latents, voices):
        with tf.GradientTape() as tape:
            tape.watch([latents, voices])
            loss = tf.reduce_mean(tf.square(decoder(latents, voices)))
        return tape.gradient(loss, [*variables, latents, voices])

    function = gradients if WAYS[way] is None else compat.compiled(gradients, jit_compile=WAYS[way])
    for found, expected in zip(function(latents, voices), gradients(latents, voices)):
        assert np.abs(expected).max() > 0
        assert apart(found.numpy(), expected.numpy()) < 1e-3

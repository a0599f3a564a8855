"""The speaker encoder: the published embedding in every execution mode, for single clips and padded batches."""

import attrs
import numpy as np
import pytest
import tensorflow as tf
from golden_weights import GOLDEN, fill, load_file

from xtts import compat
from xtts.model.speaker import SpeakerEncoder
from xtts.planning.sizes import SIZES, SpeakerSize
from xtts.weights.layout import PREFIXES, ModelDescription, constants

PREFIX = "speaker_encoder."
SIZE = SpeakerSize((1, 2, 1, 1), (8, 8, 16, 16), 512)  # as in the golden files
IO = load_file(GOLDEN / "speaker.io.safetensors")
WAVE = IO["wav16k"][:, 0]  # [1, 24000]
TENSORS = {name[len(PREFIX) :]: value for name, value in load_file(GOLDEN / "speaker.weights.safetensors").items()}
WAYS = {"eager": None, "graph": False, "xla": True}
LENGTHS = [24_000, 23_999, 17_000, 4_321, 1_600, 161, 1]


@pytest.fixture(scope="module")
def encoder():
    module = SpeakerEncoder(SIZE, np.random.default_rng(0))
    fill(module, TENSORS)
    return module


def run(module, way, waves, lengths=None, dtype="float32"):
    def vectors(*arguments):
        return module(*arguments, dtype=tf.as_dtype(dtype))

    arguments = [tf.constant(waves)] + ([] if lengths is None else [tf.constant(lengths)])
    return (vectors if WAYS[way] is None else compat.compiled(vectors, jit_compile=WAYS[way]))(*arguments)


def apart(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("way", WAYS)
def test_the_embedding_matches_the_published_one(encoder, way):
    """It is within 1e-4 of its largest value, eagerly, as a graph and compiled by XLA."""
    assert apart(run(encoder, way, WAVE).numpy(), IO["speaker"]) < 1e-4


@pytest.mark.parametrize(("dtype", "bar"), [("float16", 5e-3), ("bfloat16", 2e-2)])
def test_half_precision_is_close_to_the_published_embedding(encoder, dtype, bar):
    """Computed in 16 bits, the embedding is still float32 and close to the published one."""
    vectors = run(encoder, "eager", WAVE, dtype=dtype)
    assert vectors.dtype == tf.float32
    assert apart(vectors.numpy(), IO["speaker"]) < bar


def test_xla_encodes_a_padded_batch_in_half_precision():
    """Compiled by XLA, in bfloat16 and with lengths, a small encoder is close to its eager float32 result."""
    module = SpeakerEncoder(SpeakerSize((1, 1), (8, 16), 16), np.random.default_rng(0))
    waves, lengths = np.stack([WAVE[0, :3000], WAVE[0, 3000:6000]]), [3000, 1234]
    found = run(module, "xla", waves, lengths, "bfloat16").numpy()
    assert apart(found, run(module, "eager", waves, lengths).numpy()) < 5e-2


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_padding_is_ignored(encoder, way):
    """Each clip of a padded batch has the embedding it has alone, whatever its padding."""
    waves = np.full((len(LENGTHS), max(LENGTHS)), np.nan, np.float32)
    for row, length in zip(waves, LENGTHS):
        row[:length] = WAVE[0, -length:]
    found = run(encoder, way, waves, LENGTHS).numpy()
    for vector, length in zip(found, LENGTHS):
        assert apart(vector, encoder(tf.constant(WAVE[:, -length:])).numpy()[0]) < 1e-4


def test_embeddings_have_length_one_and_differ(encoder):
    """Embeddings have length 1, and that of the clip differs from that of noise at the same level."""
    noise = np.random.default_rng(3).standard_normal(WAVE.shape).astype(np.float32) * WAVE.std()
    vectors = encoder(tf.constant(np.concatenate([WAVE, noise]))).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert apart(vectors[1], vectors[0]) > 1e-2


def test_weights_have_the_published_names_and_shapes(encoder):
    """Every tensor of the checkpoint is a weight or a known constant, and every weight is in the checkpoint."""
    published = {name: value.shape for name, value in TENSORS.items() if name not in published_constants()}
    assert {name: weight.published_shape for name, weight in encoder.weights().items()} == published


def published_constants():
    """The tensors of a checkpoint that are not weights, computed without it."""
    description = ModelDescription(attrs.evolve(SIZES["v2"], speaker=SIZE), 0, parts=("speaker",))
    prefix = PREFIXES["speaker"]
    return {name[len(prefix) :]: value for name, value in constants(description).items()}


def test_constants_can_be_written_again():
    """They have the published values: the public implementation requires them."""
    assert len(published_constants()) > 3
    for name, value in published_constants().items():
        assert value.shape == TENSORS[name].shape
        assert value.dtype == TENSORS[name].dtype
        if not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(value, TENSORS[name], atol=1e-5)


@pytest.mark.parametrize("size", ["tiny", "small", "v2"])
def test_presets_have_as_many_weights_as_planned(size):
    """A preset's encoder has the weights and running statistics that a plan counts, and gives an embedding."""
    speaker = SIZES[size].speaker
    module = SpeakerEncoder(speaker, np.random.default_rng(0))
    trainable = sum(int(np.prod(variable.shape)) for variable in module.trainable_variables)
    total = sum(int(np.prod(weight.published_shape)) for weight in module.weights().values())
    assert trainable == speaker.weights()
    assert total - trainable == speaker.state()
    vectors = module(tf.constant(WAVE[:, :4000])).numpy()
    assert vectors.shape == (1, speaker.width)
    assert np.isfinite(vectors).all()


def test_shapes_are_static_and_one_trace_serves_all_lengths(encoder):
    """The graph has the static shape of the embeddings; other lengths cause no other trace."""
    shapes = [tf.TensorSpec([2, 4000]), tf.TensorSpec([2], tf.int32)]
    function = compat.compiled(encoder.__call__, input_signature=shapes, allowed=1, action="raise")
    assert function.get_concrete_function().output_shapes == [2, 512]
    for lengths in ([4000, 2000], [100, 3999]):
        assert np.isfinite(function(tf.constant(WAVE[:, :8000].reshape(2, 4000)), tf.constant(lengths))).all()
    assert function.traces == 1

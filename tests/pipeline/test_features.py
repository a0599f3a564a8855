"""Features from the data device match the host's, clip by clip, whatever the padding."""

import numpy as np
import pytest
import tensorflow as tf

from xtts.audio.mel import CONDITIONING, MelSpec, frame_count, log_mel
from xtts.model.codec import Codec
from xtts.pipeline.features import Features, reference_shape, reference_spec, samples_for
from xtts.planning.sizes import CodecSize as Size
from xtts.recipe.schema import AudioSection

AUDIO = AudioSection(n_mels=24)
SPEC = MelSpec.of(AUDIO)
STATS = np.linspace(1, 3, AUDIO.n_mels).astype(np.float32)
LENGTHS = np.array([5000, 8191, 0, 2049, 700], np.int32)  # samples; the third row is blank
SAMPLES = samples_for(32, SPEC)


@pytest.fixture(scope="module")
def waves():
    """Speech-like noise, loud and quiet, with padding that must be ignored."""
    random = np.random.default_rng(0)
    waves = np.cumsum(random.standard_normal((len(LENGTHS), SAMPLES)), axis=1) * 0.01
    waves = np.clip(waves * np.array([[1.0], [0.1], [1.0], [0.5], [0.01]]), -1, 1)
    return np.where(np.arange(SAMPLES) < LENGTHS[:, None], waves, 0).astype(np.float32)


@pytest.fixture(scope="module")
def codec():
    codec = Codec(Size(hidden=8, code_width=8, codes=32, blocks=1), AUDIO.n_mels, np.random.default_rng(1))
    codec.init_codebook(tf.constant(np.random.default_rng(2).standard_normal((4, 32, AUDIO.n_mels)), tf.float32))
    return codec


@pytest.fixture(scope="module")
def features(codec):
    return Features(AUDIO, "/CPU:0", STATS, codec)


@pytest.mark.parametrize("kind", ["mel", "reference_mel"])
def test_mels_match_the_hosts(features, waves, kind):
    """Each clip's mel agrees within 1e-3 and is 0 in the padding; a blank row is 0 throughout."""
    spec = SPEC if kind == "mel" else reference_spec(AUDIO)
    found = getattr(features, kind)(waves, LENGTHS).numpy()
    assert found.shape == (len(LENGTHS), 32, AUDIO.n_mels)
    for row, length in enumerate(LENGTHS):
        wanted = log_mel(waves[row, :length], spec, STATS) if length else np.zeros((0, AUDIO.n_mels), np.float32)
        np.testing.assert_allclose(found[row, : len(wanted)], wanted, atol=1e-3)
        assert not found[row, len(wanted) :].any()


def test_codes_match_those_of_the_unpadded_mel(features, codec, waves):
    """Every clip has the codes it would have alone without padding."""
    found = features.codes(waves, LENGTHS).numpy()
    assert found.dtype == np.int32
    assert found.shape == (len(LENGTHS), 8)
    for row, length in enumerate(LENGTHS):
        if length:
            wanted = codec.encode(tf.constant(log_mel(waves[row, :length], SPEC, STATS))[None])[0].numpy()
            np.testing.assert_array_equal(found[row, : len(wanted)], wanted)


def test_there_is_one_trace_per_shape(codec, waves):
    """Other samples and lengths cause no retrace; another number of rows or samples does."""
    features = Features(AUDIO, "/CPU:0", STATS, codec)
    for given, lengths in [(waves, LENGTHS), (waves / 2, LENGTHS // 2), (waves[:3], LENGTHS[:3]), (waves, LENGTHS)]:
        features.mel(given, lengths)
        features.codes(given, lengths)
    assert {function.name: function.traces for function in features.functions} == {
        "mel": 2,
        "reference_mel": 0,
        "padded_reference_mel": 0,
        "codes": 2,
    }


def test_codes_need_a_codec(waves):
    """Features without a codec give mels, and an error if codes are requested."""
    features = Features(AUDIO, "/CPU:0", STATS)
    assert features.mel(waves, LENGTHS).shape[0] == len(LENGTHS)
    with pytest.raises(ValueError, match="codes need a codec"):
        features.codes(waves, LENGTHS)


def test_a_reference_mel_has_twice_the_fft_size():
    """With XTTS's settings the reference mel is the published conditioning mel."""
    assert reference_spec(AudioSection()) == CONDITIONING
    samples, count = reference_shape(AudioSection(), 6.0, 2000)
    assert count == frame_count(samples, CONDITIONING) == frame_count(6 * 22050, CONDITIONING)


def test_a_reference_is_no_longer_than_the_shapes_recordings():
    """A short shape, which has more rows, uses a shorter reference."""
    assert reference_shape(AudioSection(), 6.0, 200)[1] == 200


@pytest.mark.parametrize("n_fft", [1024, 1023])
def test_samples_for_frames_is_the_longest_wave(n_fft):
    """One more sample would give one more frame."""
    spec = MelSpec(n_fft=n_fft, win_length=n_fft)
    for count in (1, 2, 128):
        samples = samples_for(count, spec)
        assert frame_count(samples, spec) == count
        assert frame_count(samples + 1, spec) == count + 1

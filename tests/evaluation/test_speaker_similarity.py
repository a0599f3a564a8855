"""Speaker embeddings distinguish speakers, with resemblyzer's weights and without."""

import sys

import numpy as np
import pytest

from xtts.audio import resample
from xtts.corpus.demo import espeak, make
from xtts.errors import XttsError
from xtts.evaluation import speaker_similarity
from xtts.evaluation.speaker_similarity import (
    SAMPLE_RATE,
    CepstralEncoder,
    ResemblyzerEncoder,
    make_voice_encoder,
    weights_file,
)


@pytest.fixture(scope="module")
def speakers():
    """Waves of four voices, three sentences each."""
    pytest.importorskip("espeakng_loader")
    texts = make.demo_sentences("en", 12, seed=3)
    with espeak.Espeak() as speaker:
        spoken = [
            np.frombuffer(speaker.speak(text, "en", make.demo_voice(n % 4, 0)), np.int16)
            for n, text in enumerate(texts)
        ]
    waves = [
        resample.resample(wave.astype(np.float32) / 32768, espeak.SAMPLE_RATE, SAMPLE_RATE)[: 4 * SAMPLE_RATE]
        for wave in spoken
    ]
    return [waves[n::4] for n in range(4)]


def right(vectors):
    """How many third sentences are nearest to the first two of their own speaker."""
    known = [np.mean(own[:2], axis=0) for own in vectors]
    return sum(int(np.argmax([own[2] @ one for one in known])) == n for n, own in enumerate(vectors))


def test_the_cepstral_encoder_distinguishes_demo_voices(speakers, monkeypatch):
    """Without resemblyzer all four voices are nearest to themselves, and embeddings have length 1."""
    monkeypatch.setitem(sys.modules, "resemblyzer", None)
    found = make_voice_encoder([wave for own in speakers for wave in own[:2]])
    assert isinstance(found, CepstralEncoder)
    vectors = [found(own) for own in speakers]
    assert right(vectors) == 4
    assert np.linalg.norm(vectors[0][0]) == pytest.approx(1.0)


def test_the_cepstral_encoder_ignores_level_and_accepts_silence(speakers):
    """The same wave at half its level has the same embedding, and silence gives finite values."""
    found = CepstralEncoder([wave for own in speakers for wave in own])
    one, quieter = found([speakers[0][0], 0.5 * speakers[0][0]])
    assert one @ quieter > 0.99
    assert np.isfinite(found([np.zeros(SAMPLE_RATE, np.float32), np.zeros(10, np.float32)])).all()


def weights(random, width=256):
    """Tensors of the encoder's names and shapes, with random values."""
    found = {"linear.weight": random.normal(size=(width, width)), "linear.bias": random.normal(size=width)}
    for layer in range(3):
        inputs = speaker_similarity.SPEC.n_mels if layer == 0 else width
        found[f"lstm.weight_ih_l{layer}"] = random.normal(size=(4 * width, inputs))
        found[f"lstm.weight_hh_l{layer}"] = random.normal(size=(4 * width, width))
        found[f"lstm.bias_ih_l{layer}"] = random.normal(size=4 * width)
        found[f"lstm.bias_hh_l{layer}"] = random.normal(size=4 * width)
    return {name: (0.1 * value).astype(np.float32) for name, value in found.items()}


def test_the_resemblyzer_encoder_is_a_standard_lstm(monkeypatch):
    """TensorFlow's own operations on the same weights, gate by gate, give the same embedding."""
    import tensorflow as tf

    state = weights(np.random.default_rng(2))
    monkeypatch.setattr(speaker_similarity.torch_file, "load_torch_file", lambda path: {"model_state": state})
    encoder, x = ResemblyzerEncoder("weights.pt"), np.random.default_rng(3).random((2, 4, 40)).astype(np.float32)
    outputs = tf.unstack(tf.constant(x), axis=1)
    for layer in range(3):
        into, across, bias, more = (state[f"lstm.{kind}_l{layer}"] for kind in speaker_similarity._LSTM_WEIGHTS)
        hidden = memory = tf.zeros([2, 256])
        new = []
        for one in outputs:
            gates = tf.split(one @ into.T + bias + hidden @ across.T + more, 4, axis=1)
            memory = tf.sigmoid(gates[1]) * memory + tf.sigmoid(gates[0]) * tf.tanh(gates[2])
            hidden = tf.sigmoid(gates[3]) * tf.tanh(memory)
            new.append(hidden)
        outputs = new
    expected = tf.math.l2_normalize(tf.nn.relu(outputs[-1] @ state["linear.weight"].T + state["linear.bias"]), axis=1)
    np.testing.assert_allclose(encoder.encode_windows(x), expected.numpy(), atol=1e-5)


def test_other_weights_are_refused(monkeypatch):
    """A file with other contents is refused by name, with the remedy."""
    monkeypatch.setattr(speaker_similarity.torch_file, "load_torch_file", lambda path: {"state": {}})
    with pytest.raises(XttsError, match=r"weights\.pt: not resemblyzer's weights; run: pip install"):
        ResemblyzerEncoder("weights.pt")


@pytest.mark.skipif(weights_file() is None, reason="resemblyzer is not installed")
def test_resemblyzer_distinguishes_demo_voices(speakers):
    """Its weights are read without importing it, and all four voices are nearest to themselves."""
    found = make_voice_encoder([])
    assert found.name == "resemblyzer"
    assert right([found(own) for own in speakers]) == 4
    assert "resemblyzer" not in sys.modules

"""Mel spectrograms in TensorFlow: they match NumPy's for every clip of a padded batch, in one trace."""

import inspect
from typing import Any, List, Tuple

import attrs
import numpy as np
import pytest
import tensorflow as tf

from xtts.audio import mel as host
from xtts.audio.mel import CODEC, CONDITIONING, SPEAKER, MelSpec
from xtts.model import mel as twin

SAMPLES = 12_000
LENGTHS = [12_000, 11_999, 7_000, 1_025, 513, 300, 2, 1]  # the last ones are shorter than a window
COMPILE = next(
    name for name in ("jit_compile", "experimental_compile") if name in inspect.signature(tf.function).parameters
)
FILL = -99.0


def clips() -> List[np.ndarray]:
    """Loud and quiet clips with the dynamic range of speech: two glides over fading noise."""
    at = np.arange(SAMPLES) / 22050
    glide = 0.3 * np.sin(2 * np.pi * (200 + 400 * at) * at) + 0.01 * np.sin(2 * np.pi * (3000 - 900 * at) * at)
    hiss = np.random.default_rng(0).standard_normal(SAMPLES) * np.exp(-20 * at) * 0.1
    return [(glide + hiss).astype(np.float32)[-length:] for length in LENGTHS]


def batch() -> np.ndarray:
    """The padded clips; the padding is loud, and must be ignored."""
    waves = np.random.default_rng(1).standard_normal((len(LENGTHS), SAMPLES)).astype(np.float32)
    for row, clip in zip(waves, clips()):
        row[: len(clip)] = clip
    return waves


def compiled(function: Any, jit: bool) -> Any:
    signature = [tf.TensorSpec([len(LENGTHS), SAMPLES]), tf.TensorSpec([len(LENGTHS)], tf.int32)]
    return tf.function(function, input_signature=signature, **{COMPILE: jit})


def exact_transforms() -> List[Tuple[twin.Transform, bool]]:
    """The transforms accurate to 1e-3 on this machine's CPU, with and without XLA."""
    found = {(transform, by_xla) for by_xla in (False, True) for transform in ("matmul", chosen_for_cpu(by_xla))}
    return sorted(found)


def chosen_for_cpu(by_xla: bool) -> twin.Transform:
    return twin.transform_for("/device:CPU:0", by_xla)


@pytest.mark.parametrize(("transform", "jit"), exact_transforms())
@pytest.mark.parametrize(
    ("spec", "floor"),
    [
        (CODEC, 1e-5),
        (CONDITIONING, 1e-5),
        (SPEAKER, 1e-6),
        (attrs.evolve(CODEC, n_fft=1001, win_length=800, hop_length=300, power=1.0, fmax=11025.0), 1e-5**0.5),
    ],
    ids=["codec", "conditioning", "speaker", "odd"],
)
def test_every_clip_of_a_batch_matches_numpy(spec: MelSpec, floor: float, transform: twin.Transform, jit: bool) -> None:
    """Log mels agree within 1e-3, reflected at each clip's own end, whatever the padding, in one trace."""
    function = compiled(lambda waves, lengths: twin.mel(waves, lengths, spec, FILL, transform), jit)
    found = function(batch(), LENGTHS).numpy()
    assert found.shape == (len(LENGTHS), host.frame_count(SAMPLES, spec), spec.n_mels)
    for row, clip in zip(found, clips()):
        expected = host.mel(clip, spec)
        difference = np.log(np.maximum(row[: len(expected)], floor)) - np.log(np.maximum(expected, floor))
        assert np.abs(difference).max() < 1e-3
        np.testing.assert_array_equal(row[len(expected) :], np.float32(FILL))
    function(batch()[::-1].copy(), LENGTHS[::-1])
    assert function.experimental_get_tracing_count() == 1


def test_log_mels_match_numpy() -> None:
    """Logarithm, floor and mel norms match NumPy's with the default transform; the fill value is not divided."""
    stats = np.linspace(1, 3, CODEC.n_mels, dtype=np.float32)
    found = compiled(lambda waves, lengths: twin.log_mel(waves, lengths, CODEC, stats, FILL), False)(batch(), LENGTHS)
    for row, clip in zip(found.numpy(), clips()):
        expected = host.log_mel(clip, CODEC, stats)
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-3, rtol=0)
        np.testing.assert_array_equal(row[len(expected) :], np.float32(FILL))


def test_shapes_are_static() -> None:
    """The graph has the static shape of its mels."""
    function = compiled(lambda waves, lengths: twin.log_mel(waves, lengths, CODEC), False)
    assert function.get_concrete_function().output_shapes == [
        len(LENGTHS),
        host.frame_count(SAMPLES, CODEC),
        CODEC.n_mels,
    ]


def test_a_gpu_uses_the_fft() -> None:
    """A GPU may round matrix products, so the FFT is used; on a CPU either one that is accurate there."""
    assert twin.transform_for("/job:localhost/replica:0/task:0/device:GPU:1") == "fft"
    assert twin.transform_for("/GPU:0") == "fft"
    noise = np.random.default_rng(5).standard_normal((1, 4096)).astype(np.float32)
    found = twin.log_mel(tf.constant(noise), tf.constant([4096]), CONDITIONING, transform=twin.transform_for("CPU:0"))
    np.testing.assert_allclose(found[0], host.log_mel(noise[0], CONDITIONING), atol=1e-3)

"""Mel spectrograms of batches of padded waves, in TensorFlow.

Each clip's mel is that of `xtts.audio.mel`: padding is ignored, and a clip is reflected at its own end, not at the
batch's. Batch size and length may be static or dynamic, with one trace either way; with static shapes XLA compiles
either transform.
"""

import functools
from typing import Any, Literal, Optional

import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio.mel import LOG_FLOOR, MelSpec, audible_bins, filterbank, frame_count, window
from xtts.model.layers import shape_list

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Transform = Literal["fft", "matmul"]


def mel(
    waves: Tensor, lengths: Tensor, spec: MelSpec, fill: float = 0.0, transform: Optional[Transform] = None
) -> Tensor:
    """Mels [B, frames, n_mels] of waves [B, samples] with `lengths` [B]; frames after a clip's end are `fill`."""
    return _fill_padding(_mel(waves, lengths, spec, transform), lengths, spec, fill)


def log_mel(
    waves: Tensor,
    lengths: Tensor,
    spec: MelSpec,
    stats: Optional[np.ndarray] = None,
    fill: float = 0.0,
    transform: Optional[Transform] = None,
) -> Tensor:
    """Log mels as codec and conditioning encoder expect them, divided by `stats`, the mel norms [n_mels]."""
    logs = tf.math.log(tf.maximum(_mel(waves, lengths, spec, transform), LOG_FLOOR))
    if stats is not None:
        logs /= np.asarray(stats, np.float32)
    return _fill_padding(logs, lengths, spec, fill)


def transform_for(device: str, by_xla: bool = False) -> Transform:
    """The transform that is exact on a device, given by its name; "" is the default device.

    A GPU's FFT is exact, but its float32 matmul may be rounded to ten bits. On a CPU matmul is exact, but the FFT of
    older TensorFlow releases (XLA's was fixed later) has errors of 5e-3 in log mels and takes eight times as long as a
    matmul with the Fourier matrix. A traced function does not know the device it will run on, so callers that use
    `tf.device` pass the transform.
    """
    on_gpu = "GPU" in device.upper() if device else bool(tf.config.list_logical_devices("GPU"))
    return "fft" if on_gpu or _is_cpu_fft_exact(by_xla) else "matmul"


def _mel(waves: Tensor, lengths: Tensor, spec: MelSpec, transform: Optional[Transform]) -> Tensor:
    padded = _reflect_pad(_preemphasize(waves, lengths, spec), lengths, spec)
    pieces = tf.signal.frame(padded, spec.win_length, spec.hop_length)[:, : frame_count(shape_list(waves)[1], spec)]
    if (transform or transform_for(pieces.device)) == "fft":
        # Zero-padded to n_fft after the window instead of around it: this changes phases only, not energies.
        spectrum = tf.signal.rfft(pieces * window(spec), [spec.n_fft])[:, :, : audible_bins(spec)]
        real, imaginary = tf.math.real(spectrum), tf.math.imag(spectrum)
    else:
        real, imaginary = tf.split(tf.matmul(pieces, _fourier_matrix(spec)), 2, axis=2)
    energies = tf.square(real) + tf.square(imaginary)
    if spec.power != 2:
        energies **= spec.power / 2
    return tf.matmul(energies, filterbank(spec)[: audible_bins(spec)])


def _preemphasize(waves: Tensor, lengths: Tensor, spec: MelSpec) -> Tensor:
    if not spec.preemphasis:
        return waves
    second = tf.gather(waves, tf.minimum(1, lengths - 1)[:, None], batch_dims=1)  # of a single sample: itself
    return waves - spec.preemphasis * tf.concat([second, waves[:, :-1]], axis=1)


def _reflect_pad(waves: Tensor, lengths: Tensor, spec: MelSpec) -> Tensor:
    """Reflection padding at both ends of each clip, as far as windows reach."""
    places = tf.range(-spec.reach, shape_list(waves)[1] + spec.win_length - spec.reach)[None]
    period = tf.maximum(2 * (lengths[:, None] - 1), 1)  # windows may be longer than the clip
    phase = tf.math.floormod(places, period)
    return tf.gather(waves, tf.minimum(phase, period - phase), batch_dims=1)


def _fill_padding(mels: Tensor, lengths: Tensor, spec: MelSpec, fill: float) -> Tensor:
    inside = tf.range(shape_list(mels)[1])[None] < tf.expand_dims(frame_count(lengths, spec), 1)
    return tf.where(inside[:, :, None], mels, tf.constant(fill, mels.dtype))


@functools.lru_cache(maxsize=8)
def _fourier_matrix(spec: MelSpec) -> np.ndarray:
    """The windowed Fourier transform as a matrix, [win_length, 2 * bins]: real parts, then imaginary parts."""
    angles = 2 * np.pi / spec.n_fft * np.outer(np.arange(spec.win_length), np.arange(audible_bins(spec)))
    return np.asarray(np.concatenate([np.cos(angles), -np.sin(angles)], axis=1) * window(spec)[:, None], np.float32)


@functools.lru_cache(maxsize=2)
def _is_cpu_fft_exact(by_xla: bool) -> bool:
    noise = np.random.default_rng(0).standard_normal(2048).astype(np.float32)
    with tf.init_scope(), tf.device("CPU"):
        transform = compat.compiled(lambda x: tf.signal.rfft(x), jit_compile=True) if by_xla else tf.signal.rfft
        found = transform(noise).numpy()
    exact = np.fft.rfft(noise.astype(np.float64))
    return bool(np.abs(found - exact).max() < 1e-6 * np.abs(exact).max())  # older kernels: 8e-6; newer: 2e-7

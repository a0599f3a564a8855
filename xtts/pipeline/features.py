"""Features computed on the data device: mels, reference mels and codes of padded waves.

Each is a compiled function with one trace for each shape, or a single trace with dynamic shapes. TensorFlow's input
pipelines run on the host whatever the device scope, so these are plain functions that a producer thread calls.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio.mel import MelSpec, frame_count
from xtts.model.codec import Codec
from xtts.model.mel import Transform, log_mel, transform_for
from xtts.pipeline.references import padded_size
from xtts.recipe.schema import AudioSection, Recipe

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Function = Callable[[Tensor, Tensor], Tensor]


def reference_spec(audio: AudioSection) -> MelSpec:
    """The mel of a reference recording: the codec's, with a Fourier transform of twice the size."""
    return attrs.evolve(MelSpec.of(audio), n_fft=2 * audio.n_fft)


def samples_for(mel_frames: int, spec: MelSpec) -> int:
    """Samples of the longest wave with this many mel frames."""
    return mel_frames * spec.hop_length - 1 + spec.n_fft % 2


def reference_shape(audio: AudioSection, seconds: float, mel_frames: int) -> Tuple[int, int]:
    """Samples and mel frames of a reference cut, no longer than a shape's recordings.

    So short shapes, which have more rows, need no more memory than long ones, and the model sees references of
    different lengths.
    """
    spec = reference_spec(audio)
    count = min(int(frame_count(int(seconds * audio.sample_rate), spec)), mel_frames)
    return samples_for(count, spec), count


def reference_size(recipe: Recipe, mel_frames: int) -> Tuple[int, int]:
    """Samples and mel frames of the references of a shape; those followed by silence are of one size in all shapes."""
    seconds = recipe.data.reference_seconds
    if recipe.data.reference_min_seconds is not None:
        return padded_size(recipe.audio, seconds, reference_spec(recipe.audio))
    return reference_shape(recipe.audio, seconds, mel_frames)


def feature_functions(
    audio: AudioSection, stats: np.ndarray, codec: Optional[Codec], transform: Transform
) -> Dict[str, Function]:
    """Untraced functions of waves [B, samples] and lengths [B], by the name of the feature they compute."""
    spec, reference = MelSpec.of(audio), reference_spec(audio)

    def masked_mel(waves: Tensor, lengths: Tensor, spec: MelSpec) -> Tensor:
        mels = log_mel(waves, lengths, spec, stats, transform=transform)
        return tf.where((lengths > 0)[:, None, None], mels, 0.0)  # even no samples have one frame

    def mel(waves: Tensor, lengths: Tensor) -> Tensor:
        return masked_mel(waves, lengths, spec)

    def reference_mel(waves: Tensor, lengths: Tensor) -> Tensor:
        return masked_mel(waves, lengths, reference)

    def padded_reference_mel(waves: Tensor, lengths: Tensor) -> Tensor:
        # What follows a reference is silence, and belongs to it.
        return reference_mel(waves, tf.where(lengths > 0, tf.shape(waves)[1], 0))

    def codes(waves: Tensor, lengths: Tensor) -> Tensor:
        if codec is None:
            raise ValueError("codes need a codec, and none was given")
        return codec.encode(mel(waves, lengths), tf.where(lengths > 0, frame_count(lengths, spec), 0))

    functions = (mel, reference_mel, padded_reference_mel, codes)
    return {function.__name__: function for function in functions}


class Features:
    """Four functions of waves [B, samples] and lengths [B] int32 in samples; padding of mels is 0."""

    def __init__(
        self,
        audio: AudioSection,
        device: str,
        stats: np.ndarray,
        codec: Optional[Codec] = None,
        dynamic_shapes: bool = False,
        waits: bool = False,  # until a GPU has finished: needed where work is scheduled by measured time
    ) -> None:
        self._device = device
        self.mel_norms = stats
        self._waits = waits
        self.dynamic_shapes = dynamic_shapes
        # Any number of rows and samples: without a signature each new shape would be traced.
        signature = (
            [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)] if dynamic_shapes else None
        )
        self._functions = {
            name: compat.compiled(one, input_signature=signature, autograph=False)
            for name, one in feature_functions(audio, stats, codec, transform_for(device)).items()
        }

    def mel(self, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        """The codec's mels, [B, frames, n_mels]."""
        return self._call("mel", waves, lengths)

    def reference_mel(self, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        """The conditioning encoder's input, [B, frames, n_mels]."""
        return self._call("reference_mel", waves, lengths)

    def padded_reference_mel(self, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        """The same of references that are followed by silence up to the end of their row."""
        return self._call("padded_reference_mel", waves, lengths)

    def codes(self, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        """The codec's codes, [B, frames / 4] int32; those past a recording's end are undefined."""
        return self._call("codes", waves, lengths)

    @property
    def functions(self) -> List[compat.Compiled]:
        """The compiled functions, to count their traces."""
        return list(self._functions.values())

    def _call(self, name: str, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        function = self._functions[name]
        with tf.device(self._device):
            arguments = tf.constant(waves), tf.constant(lengths, tf.int32)
            function.trace(*arguments)  # one trace for each planned shape is expected: no warning
            found = function(*arguments)
            if self._waits:
                tf.reshape(found, [-1])[:1].numpy()  # blocks until the GPU has finished
            return found

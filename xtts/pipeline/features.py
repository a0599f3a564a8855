"""Features of recordings, made on the data device: padded waves come in; mels, reference mels and codes go out.

Each is a compiled function with one trace a shape, or one for all where lengths are free. TensorFlow's input pipelines
run on the host whatever device is named, so nothing here is one: whoever calls, a producer thread for example, has the
work done on the device.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio.mel import MelSpec, frame_count
from xtts.model.codec import Codec
from xtts.model.mel import Transform, log_mel, transform_for
from xtts.recipe.schema import AudioSection

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Function = Callable[[Tensor, Tensor], Tensor]


def reference_spec(audio: AudioSection) -> MelSpec:
    """The mel of a reference voice: the codec's, seen through twice the Fourier transform."""
    return attrs.evolve(MelSpec.of(audio), n_fft=2 * audio.n_fft)


def samples_for(mel_frames: int, spec: MelSpec) -> int:
    """The longest wave that has so many frames."""
    return mel_frames * spec.hop_length - 1 + spec.n_fft % 2


def reference_shape(audio: AudioSection, seconds: float, mel_frames: int) -> Tuple[int, int]:
    """The samples and the mel frames of a cut from a reference voice, no longer than a shape's recordings.

    So short shapes, which have more rows, need no more memory than long ones; and voices are heard at any length.
    """
    spec = reference_spec(audio)
    count = min(int(frame_count(int(seconds * audio.sample_rate), spec)), mel_frames)
    return samples_for(count, spec), count


def feature_functions(
    audio: AudioSection, stats: np.ndarray, codec: Optional[Codec], transform: Transform
) -> Dict[str, Function]:
    """Mels, reference mels and codes, as functions to be traced, of waves [B, samples] and their lengths [B]."""
    spec, reference = MelSpec.of(audio), reference_spec(audio)

    def made(waves: Tensor, lengths: Tensor, spec: MelSpec) -> Tensor:
        mels = log_mel(waves, lengths, spec, stats, transform=transform)
        return tf.where((lengths > 0)[:, None, None], mels, 0.0)  # of no samples, a mel would have one frame

    def mel(waves: Tensor, lengths: Tensor) -> Tensor:
        return made(waves, lengths, spec)

    def reference_mel(waves: Tensor, lengths: Tensor) -> Tensor:
        return made(waves, lengths, reference)

    def codes(waves: Tensor, lengths: Tensor) -> Tensor:
        if codec is None:
            raise ValueError("codes are made by a codec, and none was given")
        return codec.encode(mel(waves, lengths), tf.where(lengths > 0, frame_count(lengths, spec), 0))

    return {"mel": mel, "reference_mel": reference_mel, "codes": codes}


class Features:
    """Three functions of waves [B, samples] and their lengths [B], int32, in samples. All are 0 where nothing is."""

    def __init__(
        self,
        audio: AudioSection,
        device: str,
        stats: np.ndarray,
        codec: Optional[Codec] = None,
        dynamic_shapes: bool = False,
        waits: bool = False,  # for a GPU to be done, and not only told: whoever divides work by time must
    ) -> None:
        self._device, self._waits, self.dynamic_shapes = device, waits, dynamic_shapes
        # Rows and samples of any number: what a function without a signature would be traced anew for.
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
        """What the conditioning encoder hears, [B, frames, n_mels]."""
        return self._call("reference_mel", waves, lengths)

    def codes(self, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        """The codec's codes, [B, frames / 4], int32; those behind a recording's end mean nothing."""
        return self._call("codes", waves, lengths)

    @property
    def functions(self) -> List[compat.Compiled]:
        """For whoever counts traces."""
        return list(self._functions.values())

    def _call(self, name: str, waves: np.ndarray, lengths: np.ndarray) -> Tensor:
        function = self._functions[name]
        with tf.device(self._device):
            arguments = tf.constant(waves), tf.constant(lengths, tf.int32)
            function.trace(*arguments)  # each shape of a plan is traced once, and that is as it should be
            found = function(*arguments)
            if self._waits:
                tf.reshape(found, [-1])[:1].numpy()
            return found

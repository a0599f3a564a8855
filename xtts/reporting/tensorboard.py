"""TensorBoard's logs: figures, pictures and waves of a run come in, event files for TensorBoard go out.

Through tf.summary, which is TensorBoard's own code: from TensorFlow 2.21 on that is a package apart. Without it one
sentence is said, and nothing is written.
"""

from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Union

import numpy as np

ABSENT = (
    'TensorBoard is not installed, so it gets no logs; pip install "xtts[tensorboard]" brings it.'
    " The run's own report.html needs nothing."
)


class TensorBoard:
    """The event files in a folder. Without TensorBoard `is_on` is false, and every call does nothing."""

    def __init__(self, folder: Union[str, Path], say: Callable[[str], None] = print, is_wanted: bool = True) -> None:
        self._writer: Any = None
        if not is_wanted:
            return
        if _is_there():
            import tensorflow as tf

            self._summary: Any = tf.summary
            self._writer = tf.summary.create_file_writer(str(folder))
        else:
            say(ABSENT)

    @property
    def is_on(self) -> bool:
        return self._writer is not None

    def scalars(self, step: int, figures: Mapping[str, Optional[float]]) -> None:
        """Numbers by name; those that are None have no point."""
        if self.is_on:
            with self._writer.as_default():
                for name, value in figures.items():
                    if value is not None:
                        self._summary.scalar(name, float(value), step=step)

    def picture(self, step: int, name: str, pixels: np.ndarray) -> None:
        """A picture: [height, width, 3] uint8."""
        if self.is_on:
            with self._writer.as_default():
                self._summary.image(name, pixels[None], step=step)

    def audio(self, step: int, name: str, wave: np.ndarray, sample_rate: int) -> None:
        """A wave: float32 [samples], full scale at 1."""
        if self.is_on:
            with self._writer.as_default():
                self._summary.audio(name, np.asarray(wave, np.float32)[None, :, None], sample_rate, step=step)

    def close(self) -> None:
        """Write out what is waiting."""
        if self.is_on:
            self._writer.close()
            self._writer = None


def _is_there() -> bool:
    """Whether tf.summary works: what it raises without TensorBoard differs from release to release."""
    import tensorflow as tf

    try:
        with tf.summary.create_noop_writer().as_default():
            tf.summary.scalar("trial", 0.0, step=0)
    except Exception:
        return False
    return True

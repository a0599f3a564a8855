"""Event files for TensorBoard: scalars, images and audio of a run.

They are written by tf.summary, which is TensorBoard's own code. From TensorFlow 2.21 on TensorBoard is a package apart;
where it is missing, one line is printed and nothing is written.
"""

from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Union

import numpy as np

ABSENT = (
    'TensorBoard is not installed, and no event files are written; pip install "xtts[tensorboard]" installs it.'
    " The run's own report.html does not need it."
)


class TensorBoard:
    """Writes event files into a folder. Without TensorBoard `is_on` is False, and every method does nothing.

    `step` is the stage's step; `name` is the tag, such as "gpt/loss", under which TensorBoard shows it.
    """

    def __init__(self, folder: Union[str, Path], log: Callable[[str], None] = print, is_wanted: bool = True) -> None:
        self._writer: Any = None
        if not is_wanted:
            return
        if _is_installed():
            import tensorflow as tf

            self._summary: Any = tf.summary
            self._writer = tf.summary.create_file_writer(str(folder))
        else:
            log(ABSENT)

    @property
    def is_on(self) -> bool:
        return self._writer is not None

    def scalars(self, step: int, figures: Mapping[str, Optional[float]]) -> None:
        """Numbers by name; a None is left out."""
        if self.is_on:
            with self._writer.as_default():
                for name, value in figures.items():
                    if value is not None:
                        self._summary.scalar(name, float(value), step=step)

    def picture(self, step: int, name: str, pixels: np.ndarray) -> None:
        """An image: RGB, [height, width, 3] uint8, such as `mel_pictures.pixels` returns."""
        if self.is_on:
            with self._writer.as_default():
                self._summary.image(name, pixels[None], step=step)

    def audio(self, step: int, name: str, wave: np.ndarray, sample_rate: int) -> None:
        """A recording: one channel, [samples] float32 from -1 to 1; written as 16-bit WAV."""
        if self.is_on:
            with self._writer.as_default():
                self._summary.audio(name, np.asarray(wave, np.float32)[None, :, None], sample_rate, step=step)

    def close(self) -> None:
        """Flush and close the event file; later calls do nothing."""
        if self.is_on:
            self._writer.close()
            self._writer = None


def _is_installed() -> bool:
    """Whether tf.summary works; the error it raises without TensorBoard differs between releases."""
    import tensorflow as tf

    try:
        with tf.summary.create_noop_writer().as_default():
            tf.summary.scalar("trial", 0.0, step=0)
    except Exception:
        return False
    return True

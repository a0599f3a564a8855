"""Event files where TensorBoard is installed, one line where it is not."""

import numpy as np

from xtts.reporting.tensorboard import ABSENT, TensorBoard


def test_tensorboard_files_are_written_if_it_is_installed(tmp_path):
    """With TensorBoard the scalars, an image and audio are in its files; without it one note is printed."""
    notes = []
    board = TensorBoard(tmp_path / "board", notes.append)
    board.scalars(1, {"gpt/loss": np.float32(2.0), "gpt/absent": None})
    board.picture(1, "mel", np.zeros((4, 5, 3), np.uint8))
    board.audio(1, "speech", np.zeros(100, np.float32), 22050)
    is_on = board.is_on
    board.close()
    board.scalars(2, {"after": 1.0})
    written = b"".join(file.read_bytes() for file in (tmp_path / "board").glob("*"))
    if is_on:
        assert notes == []
        for name in (b"gpt/loss", b"mel", b"speech"):
            assert name in written
        assert b"absent" not in written
    else:
        assert notes == [ABSENT]
        assert written == b""

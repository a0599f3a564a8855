"""Samples of a stage: audio and a mel picture in the run's folder, in its journal, and in TensorBoard."""

import numpy as np
import pytest

from xtts.audio import wav
from xtts.audio.mel import MelSpec
from xtts.recipe.schema import AudioSection
from xtts.reporting.journal import Journal
from xtts.reporting.tensorboard import TensorBoard
from xtts.training.stages.samples import SampleWriter

SPEC = MelSpec.of(AudioSection())


def written(folder, board):
    """Write one sample of twenty frames with its target mel."""
    mel = np.random.default_rng(0).standard_normal((20, SPEC.n_mels)).astype(np.float32)
    writer = SampleWriter(
        stage="gpt", journal=Journal(folder), board=board, spec=SPEC, stats=np.ones(SPEC.n_mels, np.float32)
    )
    writer.write(7, 1, "spoken", "some words", mel, [mel])


def test_a_sample_is_in_the_folder_and_the_journal(tmp_path):
    """They have the files without TensorBoard, too."""
    written(tmp_path, TensorBoard(tmp_path / "board", is_wanted=False))
    (line,) = Journal(tmp_path).samples()
    assert {key: line[key] for key in ("stage", "step", "kind", "text")} == {
        "stage": "gpt",
        "step": 7,
        "kind": "spoken",
        "text": "some words",
    }
    assert (line["wav"], line["picture"]) == ("samples/gpt-0000007-1.wav", "samples/gpt-0000007-1.png")
    assert len(wav.load_audio(str(tmp_path / line["wav"]), SPEC.sample_rate)) > 0
    assert (tmp_path / line["picture"]).read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "board").exists()


def test_a_sample_is_in_tensorboard(tmp_path):
    """Audio and image have a tag each, because TensorBoard allows one plugin per tag."""
    board = TensorBoard(tmp_path / "board", lambda line: None)
    if not board.is_on:
        pytest.skip("TensorBoard is not installed")
    written(tmp_path, board)
    board.close()
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    (file,) = (tmp_path / "board").glob("*")
    events = list(loader.EventFileLoader(str(file)).Load())
    found = {value.tag: (event.step, value) for event in events for value in event.summary.value}
    assert {tag: (step, value.metadata.plugin_data.plugin_name) for tag, (step, value) in found.items()} == {
        "gpt/spoken_1": (7, "audio"),
        "gpt/spoken_1_mel": (7, "images"),
    }
    assert found["gpt/spoken_1"][1].tensor.string_val[0].startswith(b"RIFF")
    width, _, picture = found["gpt/spoken_1_mel"][1].tensor.string_val
    assert picture.startswith(b"\x89PNG")
    assert int(width) == 2 * 20

"""The feature store computes features once; missing, damaged or outdated ones are computed again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recordings import date, record, tone

from xtts.corpus.utterances import Utterance
from xtts.pipeline import feature_store as stores
from xtts.pipeline.feature_store import FeatureStore, StoreError

ROWS = [3, 1, 4, 1, 5, 9, 2]  # of each utterance
COUNT = len(ROWS)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Three utterances a chunk: two whole chunks and a third of one."""
    monkeypatch.setattr(stores, "CHUNK", 3)


@pytest.fixture
def utterances(tmp_path):
    return [
        Utterance(f"u{n}", str(record(tmp_path / "wavs" / f"u{n}.wav", tone(500 + n))), "words") for n in range(COUNT)
    ]


class Maker:
    """Computes rows from an utterance's position and records the requests."""

    def __init__(self, bad=(), stop=None, factor=1):
        self.asked, self.bad, self.stop, self.factor = [], dict(bad), stop, factor

    def __call__(self, positions):
        if self.stop in positions:
            raise KeyboardInterrupt
        self.asked += positions
        return {at: self.bad.get(at, self.rows(at)) for at in positions}

    def rows(self, at):
        return np.full((ROWS[at], 2), self.factor * (at + 1), np.float16)


def opened(folder, utterances, about="mel", rows=None, dtype=np.float16):
    return FeatureStore(folder, utterances, np.array(rows or ROWS), (2,), dtype, about)


def filled(folder, utterances, maker=None, **how):
    maker, store = maker or Maker(), opened(folder, utterances, **how)
    seen = []
    made = store.fill(maker, lambda done, total: seen.append((done, total)))
    assert made == len(maker.asked)
    assert seen == [(3, COUNT), (6, COUNT), (7, COUNT)]
    return store, maker


def test_a_store_is_filled_once_and_shared(tmp_path, utterances):
    """Every utterance has its own rows; a second store with the same contents computes nothing."""
    store, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == list(range(COUNT))
    again, second = filled(tmp_path / "mel", utterances)
    assert second.asked == []
    for one in (store, again):
        for at in range(COUNT):
            np.testing.assert_array_equal(one[at], maker.rows(at))
    assert not again.unusable


def test_a_store_must_be_filled_before_it_is_read(tmp_path, utterances):
    """Reading an unfilled chunk raises an error."""
    with pytest.raises(KeyError, match="chunk 1 has not been filled"):
        opened(tmp_path, utterances)[4]


def test_an_interrupted_fill_resumes(tmp_path, utterances):
    """Complete chunks are not computed again."""
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "mel", utterances).fill(Maker(stop=4), lambda done, total: None)
    store, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == [3, 4, 5, 6]
    np.testing.assert_array_equal(store[0], maker.rows(0))


KILLED = """
import os, signal, sys
sys.path[:0] = [{here!r}, {support!r}]
import numpy as np
from test_feature_store import Maker, opened, stores
from xtts.corpus.utterances import Utterance
stores.CHUNK = 3
class Killed(Maker):
    def __call__(self, positions):
        if 6 in positions:
            save = np.save
            def half(file, rows):
                save(file, rows[: len(rows) // 2])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            np.save = half
        return super().__call__(positions)
utterances = [Utterance(f"u{{n}}", f"{{sys.argv[1]}}/wavs/u{{n}}.wav", "words") for n in range(7)]
opened(__import__("pathlib").Path(sys.argv[1], "mel"), utterances).fill(Killed(), lambda done, total: None)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_kill_while_writing_costs_one_chunk(tmp_path, utterances):
    """A partly written chunk has no final name yet; all earlier chunks are kept."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    command = [sys.executable, "-c", KILLED.format(here=str(here), support=str(here.parent / "support")), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    store, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == [6]
    np.testing.assert_array_equal(store[5], maker.rows(5))


@pytest.mark.parametrize("damage", ["cut", "header", "emptied", "record", "no record"])
def test_a_damaged_chunk_is_computed_again(tmp_path, utterances, damage):
    """Any damage makes a chunk invalid; the others are kept."""
    filled(tmp_path / "mel", utterances)
    chunk = opened(tmp_path / "mel", utterances)._paths[1]
    content = chunk.read_bytes()
    if damage == "cut":
        chunk.write_bytes(content[:-7])
    elif damage == "header":
        chunk.write_bytes(b"\0" * 20 + content[20:])
    elif damage == "emptied":
        chunk.write_bytes(b"")
    elif damage == "record":
        chunk.with_suffix(".json").write_text("{", encoding="utf-8")
    else:
        chunk.with_suffix(".json").unlink()
    store, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == [3, 4, 5]
    np.testing.assert_array_equal(store[4], maker.rows(4))


def test_changed_inputs_use_other_files(tmp_path, utterances):
    """Another recording, mel spec, codec, length or dtype is computed again, and the old files are kept."""
    folder = tmp_path / "mel"
    filled(folder, utterances)
    _, maker = filled(folder, utterances, about="mel, another spec")
    assert maker.asked == list(range(COUNT))
    maker = Maker()
    opened(folder, utterances, rows=[3, 1, 4, 1, 5, 9, 3]).fill(
        lambda positions: {at: np.zeros((3, 2)) for at in maker(positions)}, lambda done, total: None
    )
    assert maker.asked == [6]
    date(Path(utterances[2].path), 1_000_000_001)
    _, maker = filled(folder, utterances)
    assert maker.asked == [0, 1, 2]
    record(Path(utterances[4].path), tone(100))
    _, maker = filled(folder, utterances)
    assert maker.asked == [3, 4, 5]
    date(Path(utterances[2].path))
    _, maker = filled(folder, utterances)
    assert maker.asked == []


def test_stores_of_different_dtypes_are_separate(tmp_path, utterances):
    """Stores of different types in one folder have their own files."""
    filled(tmp_path, utterances)
    store, maker = filled(tmp_path, utterances, dtype=np.int16)
    assert maker.asked == list(range(COUNT))
    assert store[0].dtype == np.int16


def test_unusable_utterances_are_remembered_with_their_reason(tmp_path, utterances):
    """Their rows are zero, they are not tried again, and the reason is available."""
    bad = {1: "it is silent", 6: "شکسته"}
    store, _ = filled(tmp_path / "mel", utterances, Maker(bad))
    again, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == []
    assert store.unusable == again.unusable == bad
    assert not again[1].any()
    np.testing.assert_array_equal(again[2], maker.rows(2))


def test_a_missing_recording_is_unusable_until_it_is_back(tmp_path, utterances):
    """A missing file has no size for its key; when it is back its chunk is computed again."""
    path = Path(utterances[0].path)
    content = path.read_bytes()
    path.unlink()
    store, _ = filled(tmp_path / "mel", utterances, Maker({0: "there is no such file"}))
    assert store.unusable == {0: "there is no such file"}
    path.write_bytes(content)
    again, maker = filled(tmp_path / "mel", utterances)
    assert maker.asked == [0, 1, 2]
    assert not again.unusable


FULL = """
import resource, sys
import numpy as np
from pathlib import Path
from xtts.pipeline.feature_store import FeatureStore, StoreError
from xtts.corpus.utterances import Utterance
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
store = FeatureStore(Path(sys.argv[1]), [Utterance("u", "u.wav", "words")], np.array([100_000]), (), np.float32, "mel")
try:
    store.fill(lambda positions: {0: np.ones(100_000)}, lambda done, total: None)
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit of a file's size")
def test_a_full_disk_is_reported(tmp_path):
    """The error names the folder and the remedy, and no partial file is left."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", FULL, str(tmp_path / "mel")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith(f"{tmp_path / 'mel'}: features cannot be written there ("), done.stderr
    assert "None" not in done.stdout
    assert 'data.features = "live"' in done.stdout
    assert list((tmp_path / "mel").iterdir()) == []


def test_a_folder_that_cannot_be_created_is_reported(tmp_path, utterances):
    """A file in place of the folder is an error that names it."""
    (tmp_path / "mel").write_text("")
    with pytest.raises(StoreError, match="features cannot be written there"):
        opened(tmp_path / "mel", utterances).fill(Maker(), lambda done, total: None)

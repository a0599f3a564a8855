"""Reference recordings that a run keeps as voices for its model: which ones, and their names."""

import wave

import pytest

from xtts.corpus.utterances import Utterance
from xtts.training.reference_voices import keep_voices

RATE = 22050


@pytest.fixture
def utterance(tmp_path):
    """Make a recording of this length: `utterance(speaker, seconds)`."""

    def make(speaker, seconds):
        path = tmp_path / f"{speaker.replace('/', '')}{seconds}.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
            file.writeframes(bytes(2 * int(seconds * RATE)))
        return Utterance(path.stem, str(path), "x", speaker, samples=int(seconds * RATE), sample_rate=RATE)

    return make


def seconds(path):
    with wave.open(str(path)) as file:
        return file.getnframes() / file.getframerate()


def test_the_longest_recording_of_each_speaker_is_kept(utterance, tmp_path):
    """The file has the speaker's name, made safe for files; recordings over the maximum length are second choice."""
    keep_voices(
        tmp_path / "voices",
        [utterance("a/b", 0.6), utterance("a/b", 0.9), utterance("", 0.7), utterance("c", 31), utterance("c", 2)],
    )
    kept = {path.name: seconds(path) for path in (tmp_path / "voices").iterdir()}
    assert kept == pytest.approx({"a-b.wav": 0.9, "voice.wav": 0.7, "c.wav": 2}, abs=1e-3)


def test_an_existing_folder_is_left_alone(utterance, tmp_path):
    """A user may have removed voices or added their own."""
    (tmp_path / "voices").mkdir()
    keep_voices(tmp_path / "voices", [utterance("a", 0.5)])
    assert list((tmp_path / "voices").iterdir()) == []


def test_a_missing_recording_costs_only_its_voice(utterance, tmp_path):
    """The other speakers' voices are kept, and the run does not fail."""
    lost = utterance("gone", 0.5)
    keep_voices(tmp_path / "voices", [lost._replace(path=str(tmp_path / "nowhere.wav")), utterance("there", 0.5)])
    assert [path.name for path in (tmp_path / "voices").iterdir()] == ["there.wav"]

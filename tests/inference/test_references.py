"""References: usable and unusable recordings, and how they are cut for published weights and for own models."""

import sys

import numpy as np
import pytest
from recordings import record
from speakers import reference

from xtts.inference.references import PublishedReferences, TrainedReferences, VoiceError, split_evenly

RATE = 22050
TRAINED = TrainedReferences(chunk_samples=10)


def silent(_line):
    raise AssertionError(_line)


def test_channels_are_mixed(tmp_path):
    """A stereo recording gives the same voice as a mono one, without a note."""
    mono = TRAINED.load(reference(tmp_path / "mono.wav"), RATE, silent)
    stereo = TRAINED.load(reference(tmp_path / "stereo.wav", channels=2), RATE, silent)
    assert np.allclose(mono, stereo, atol=1e-4)


def test_a_narrowband_recording_is_resampled_with_a_note(tmp_path):
    """An 8 kHz recording is accepted, with a note about the missing bandwidth."""
    notes = []
    wave = TRAINED.load(reference(tmp_path / "phone.wav", rate=8000), RATE, notes.append)
    assert len(wave) == RATE
    assert "phone.wav: note: its sample rate is 8,000 Hz" in notes[0]
    assert "4,000 Hz" in notes[0]


def test_only_the_first_30_seconds_are_used(tmp_path):
    """This is the limit of the published model."""
    assert len(TRAINED.load(reference(tmp_path / "long.wav", seconds=40, rate=8000), 8000, silent)) == 30 * 8000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path, "there is no such file; correct the path"),
        (lambda path: record(path, np.zeros(RATE, np.float32)), "silent"),
        (lambda path: reference(path, seconds=0.2), "0.20 s are too short for a voice"),
        (lambda path: path.write_text("hello"), "soundfile cannot read it"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.mkdir(), "this is a folder"),
    ],
    ids=["missing", "silent", "short", "no audio", "empty", "folder"],
)
def test_a_recording_without_a_voice_is_refused(tmp_path, make, words):
    """The error names the file and does not suggest leaving the clip out, as there is no other."""
    make(tmp_path / "x.wav")
    with pytest.raises(VoiceError, match=words) as error:
        TRAINED.load(tmp_path / "x.wav", RATE, silent)
    assert str(tmp_path / "x.wav") in str(error.value)
    assert "leave the clip out" not in str(error.value)


@pytest.mark.parametrize("length", [7, 10, 11, 25, 30])
def test_crops_cover_the_whole_wave(length):
    """Every sample is in a crop, and a short wave is repeated."""
    wave = np.arange(1, length + 1, dtype=np.float32)
    found = split_evenly(wave, 10)
    assert found.shape == (-(-length // 10), 10)
    assert set(found.ravel()) == set(wave)


def test_published_references_are_joined_and_cut_into_consecutive_chunks():
    """Chunks follow each other through all recordings, and a tail below a third of a second is left out."""
    waves = [np.arange(0, 250, dtype=np.float32), np.arange(250, 530, dtype=np.float32)]
    chunks = PublishedReferences(gpt_cond_len=30, gpt_cond_chunk_len=1).chunks(waves, 100)
    assert [len(chunk) for chunk in chunks] == [100] * 5
    assert np.concatenate(chunks).tolist() == list(range(500))
    assert [len(one) for one in PublishedReferences(gpt_cond_chunk_len=2).chunks(waves, 100)] == [200, 200, 130]
    cut = PublishedReferences(gpt_cond_len=3, gpt_cond_chunk_len=2)
    assert [len(one) for one in cut.chunks(waves, 100)] == [200, 100]


def test_a_short_published_reference_is_not_repeated():
    """A recording shorter than a chunk is a shorter chunk."""
    (chunk,) = PublishedReferences().chunks([np.ones(90, np.float32)], 100)
    assert len(chunk) == 90


def test_references_can_be_normalised_and_trimmed(tmp_path):
    """The peak becomes 0.75, and silence at the ends is left out; both for either kind of model."""
    tone = 0.1 * np.sin(np.arange(2 * RATE) * 0.05)
    path = record(tmp_path / "quiet.wav", np.pad(tone, RATE).astype(np.float32))
    for kind in (PublishedReferences, TrainedReferences):
        assert np.abs(kind(sound_norm_refs=True).load(path, RATE, silent)).max() == pytest.approx(0.75, abs=1e-6)
        assert len(kind(librosa_trim_db=30).load(path, RATE, silent)) == pytest.approx(2 * RATE, abs=2048)


def test_trimming_without_librosa_is_a_sentence(tmp_path, monkeypatch):
    """The error names the package and the extra that installs it."""
    monkeypatch.setitem(sys.modules, "librosa.effects", None)
    with pytest.raises(VoiceError, match=r"needs librosa, which is not installed; install it with pip install 'xtts\["):
        PublishedReferences(librosa_trim_db=30).load(reference(tmp_path / "x.wav"), RATE, silent)

import numpy as np
import pytest
from recordings import cut, date, ljspeech, record, tone

from xtts.corpus import check as soundcheck
from xtts.corpus import index
from xtts.corpus.utterances import CorpusError, Reason


def check(root, **options):
    return soundcheck.check_recordings(index.read_corpus(root), **options)


def test_good_recordings_pass(tmp_path):
    """Recordings that contain sound pass at any rate, bit depth and number of channels."""
    ljspeech(tmp_path, ["a", "b", "c", "d", "e", "f"])
    record(tmp_path / "wavs" / "a.wav", tone(900, 2), 8000, subtype="PCM_16")
    record(tmp_path / "wavs" / "b.wav", rate=48000, subtype="PCM_24")
    record(tmp_path / "wavs" / "c.wav", subtype="FLOAT")
    record(tmp_path / "wavs" / "d.wav", tone(level=0.01), subtype="PCM_U8")
    record(tmp_path / "wavs" / "e.wav", subtype="DOUBLE")
    (tmp_path / "wavs" / "f.wav").unlink()
    record(tmp_path / "wavs" / "f.flac", tone(level=0.002), subtype="PCM_16")
    found = check(tmp_path)
    assert [u.id for u in found.utterances] == ["a", "b", "c", "d", "e", "f"]
    assert not found.rejected


def one_bad(wave, at, value):
    wave = wave.copy()
    wave[at] = value
    return wave


@pytest.mark.parametrize(
    ("wave", "how", "reason"),
    [
        (one_bad(tone(), 4000, np.nan), "FLOAT", Reason.NOT_FINITE),
        (one_bad(tone(), 0, np.nan), "DOUBLE", Reason.NOT_FINITE),
        (one_bad(tone(), 9, -np.inf), "FLOAT", Reason.NOT_FINITE),
        (one_bad(tone(channels=2), (7, 1), np.nan), "FLOAT", Reason.NOT_FINITE),
        (np.zeros(4000, np.float32), "PCM_16", Reason.SILENT),
        (tone(level=0.0005), "PCM_16", Reason.SILENT),
        (tone(level=0.0005), "FLOAT", Reason.SILENT),
        (np.full(4000, 0.7, np.float32), "PCM_24", Reason.SILENT),
        (np.stack([tone(), -tone()], axis=1), "FLOAT", Reason.SILENT),
    ],
)
def test_bad_samples_are_rejected(tmp_path, wave, how, reason):
    """NaN, silence, a constant signal, and channels that cancel out are each found by decoding."""
    ljspeech(tmp_path)
    record(tmp_path / "wavs" / "b.wav", wave, subtype=how)
    found = check(tmp_path)
    assert [u.id for u in found.utterances] == ["a", "c"]
    assert [(one.line, one.id, one.file, one.reason) for one in found.rejected] == [(2, "b", "wavs/b.wav", reason)]


def test_later_blocks_are_checked_too(tmp_path, monkeypatch):
    """A recording longer than a block is checked as a whole."""
    monkeypatch.setattr(soundcheck, "BLOCK", 1000)
    ljspeech(tmp_path)
    record(tmp_path / "wavs" / "a.wav", np.concatenate([np.zeros(4000, np.float32), tone()]))
    record(tmp_path / "wavs" / "b.wav", one_bad(tone(), 4300, np.nan), subtype="FLOAT")
    assert [one.id for one in check(tmp_path).rejected] == ["b"]


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_flac_is_rejected(tmp_path, share):
    """A FLAC's header does not reveal a missing end; decoding does."""
    ljspeech(tmp_path, more=b"d|x|x\n")
    noise = np.random.RandomState(0).uniform(-0.5, 0.5, 30000)
    cut(record(tmp_path / "wavs" / "d.flac", noise), share)
    assert [(one.id, one.reason) for one in check(tmp_path).rejected] == [("d", Reason.TRUNCATED)]


def test_a_file_deleted_after_indexing_is_rejected(tmp_path):
    """A file deleted between index and check is an error of that utterance only."""
    found = index.read_corpus(ljspeech(tmp_path))
    (tmp_path / "wavs" / "b.wav").unlink()
    assert [(one.id, one.reason) for one in soundcheck.check_recordings(found).rejected] == [("b", Reason.UNREADABLE)]


def test_recordings_that_passed_are_not_decoded_again(tmp_path, monkeypatch):
    """A second check decodes only files that failed or changed."""
    ljspeech(tmp_path)
    record(tmp_path / "wavs" / "c.wav", np.zeros(4000, np.float32))
    first = check(tmp_path)
    decoded = []
    real = soundcheck.find_fault
    monkeypatch.setattr(soundcheck, "find_fault", lambda utterance: decoded.append(utterance.id) or real(utterance))
    again = check(tmp_path)
    assert decoded == ["c"]
    assert (again.utterances, again.rejected) == (first.utterances, first.rejected)
    date(record(tmp_path / "wavs" / "a.wav", np.zeros(4410, np.float32)), 2_000_000)
    assert [one.id for one in check(tmp_path, at_least=1).rejected] == ["a", "c"]


def test_an_interrupted_check_resumes(tmp_path, monkeypatch):
    """Recordings decoded before Ctrl-C are not decoded again."""
    monkeypatch.setattr(soundcheck, "PROGRESS_EVERY", 1)
    found = index.read_corpus(ljspeech(tmp_path))

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        soundcheck.check_recordings(found, progress=stop)
    reports = []
    soundcheck.check_recordings(found, progress=lambda done, total: reports.append((done, total)))
    assert reports == [(1, 1)]


def test_too_few_good_recordings_are_an_error(tmp_path):
    """Too few recordings with sound raise an error with the counts."""
    ljspeech(tmp_path)
    for name in ("a", "b"):
        record(tmp_path / "wavs" / f"{name}.wav", np.zeros(4000, np.float32))
    with pytest.raises(CorpusError, match="1 of 3 utterances can be used"):
        check(tmp_path)

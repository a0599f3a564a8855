import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import cut, date, ljspeech, record, tone

from xtts.audio import headers
from xtts.corpus import index, split
from xtts.corpus.formats import FORMATS
from xtts.corpus.utterances import CorpusError, Reason, Utterance


def reasons(found):
    return {one.id: one.reason for one in found.rejected}


def test_ljspeech_is_indexed(tmp_path):
    """Every line with a readable file becomes an utterance with its path, text, speaker, language and length."""
    ljspeech(tmp_path, more=b"d|x|y|sara|FA_ir\n")
    record(tmp_path / "wavs" / "d.flac", tone(1000, 2), 48000)
    found = index.read_corpus(tmp_path)
    assert found.layout.format == "ljspeech"
    assert not found.rejected
    assert found.utterances[0] == Utterance("a", str(tmp_path / "wavs" / "a.wav"), "words a", "", "en", 1, 4410, 22050)
    assert found.utterances[3] == Utterance(
        "d", str(tmp_path / "wavs" / "d.flac"), "y", "sara", "fa-ir", 4, 1000, 48000
    )


def test_a_csv_names_files_anywhere_in_the_corpus(tmp_path):
    """Paths are relative to the metadata file, and the given language applies where a row has none."""
    record(tmp_path / "x" / "a.wav", rate=8000)
    record(tmp_path / "y" / "a.flac")
    (tmp_path / "list.tsv").write_text("text\tpath\tlang\none\tx/a.wav\t\ntwo\ty/a\tde\n")
    found = index.read_corpus(tmp_path / "list.tsv", language="fa")
    assert [(u.id, u.language, u.sample_rate) for u in found.utterances] == [("x/a", "fa", 8000), ("y/a", "de", 22050)]


def test_common_voice_clips_may_have_been_converted(tmp_path):
    """Clips listed as MP3 are found as the WAVs they were converted to."""
    rows = "".join(f"c{i}\tclip_{i}.mp3\tSatz {i}\tde\n" for i in range(3))
    (tmp_path / "train.tsv").write_text("client_id\tpath\tsentence\tlocale\n" + rows)
    for i in range(3):
        record(tmp_path / "clips" / f"clip_{i}.wav")
    found = index.read_corpus(tmp_path)
    assert found.layout.format == "common_voice"
    assert [u.speaker for u in found.utterances] == ["c0", "c1", "c2"]


def test_vctk_is_indexed(tmp_path):
    """Recordings and texts of VCTK's folders become utterances, with the folder's name as the speaker."""
    for speaker in ("p225", "p226"):
        record(tmp_path / "wav48_silence_trimmed" / speaker / f"{speaker}_001_mic1.flac", rate=48000)
        (tmp_path / "txt" / speaker).mkdir(parents=True)
        (tmp_path / "txt" / speaker / f"{speaker}_001.txt").write_text("Please call Stella.\n")
    found = index.read_corpus(tmp_path)
    assert [(u.id, u.speaker, u.text) for u in found.utterances] == [
        ("p225_001", "p225", "Please call Stella."),
        ("p226_001", "p226", "Please call Stella."),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_unusable_lines_are_rejected_with_line_and_reason(tmp_path):
    """Each kind of problem in one corpus rejects one line, in order, and the good utterances stay."""
    root = ljspeech(tmp_path / "corpus", ["a", "b", "cut", "empty", "headonly", "noise"])
    cut(root / "wavs" / "cut.wav", 0.6)
    (root / "wavs" / "empty.wav").write_bytes(b"")
    record(root / "wavs" / "headonly.wav", np.zeros(0, np.float32))
    (root / "wavs" / "noise.wav").write_bytes(os.urandom(500))
    record(tmp_path / "secret.wav")
    (root / "wavs" / "link.wav").symlink_to(tmp_path / "secret.wav")
    more = ["gone|x|x", "a|again|again", "blank| | ", "link|x|x", "../../secret|x|x", "/etc/passwd|x|x", "one", "|x|x"]
    with (root / "metadata.csv").open("ab") as file:
        file.write("\n".join(more).encode() + b"\nlatin|caf\xe9|caf\xe9\n")
    found = index.read_corpus(root)
    assert [u.id for u in found.utterances] == ["a", "b"]
    assert [(one.line, one.id, one.reason) for one in found.rejected] == [
        (3, "cut", Reason.TRUNCATED),
        (4, "empty", Reason.EMPTY),
        (5, "headonly", Reason.EMPTY),
        (6, "noise", Reason.UNREADABLE),
        (7, "gone", Reason.MISSING),
        (8, "a", Reason.DUPLICATE),
        (9, "blank", Reason.TEXT_EMPTY),
        (10, "link", Reason.OUTSIDE),
        (11, "../../secret", Reason.OUTSIDE),
        (12, "/etc/passwd", Reason.OUTSIDE),
        (13, "one", Reason.COLUMNS),
        (14, "", Reason.MISSING),
        (15, "", Reason.NOT_UTF8),
    ]
    assert "on line 1 already" in found.rejected[5].detail


def test_too_few_usable_utterances_are_an_error_with_examples(tmp_path):
    """One usable utterance of many is an error that gives the count and an example for each reason."""
    ljspeech(tmp_path, ["a"], more=b"".join(b"gone%d|x|x\n" % i for i in range(5)))
    with pytest.raises(CorpusError) as error:
        index.read_corpus(tmp_path)
    assert "1 of 6 utterances can be used" in str(error.value)
    assert "5  file missing  line 2, gone0" in str(error.value)
    assert len(index.read_corpus(tmp_path, at_least=1).utterances) == 1


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"a|b|c", b"path,text", b"a,b", b"a\tb", b'"']))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_any_bytes_as_metadata_never_crash(tmp_path, format, lines):
    """Whatever the metadata holds, the result is a corpus or a CorpusError."""
    if not (tmp_path / "wavs").exists():
        ljspeech(tmp_path, ["a", "b"])
    (tmp_path / "metadata.csv").write_bytes(b"\n".join(lines))
    try:
        found = index.read_corpus(tmp_path, format, at_least=0)
    except CorpusError:
        return
    assert {u.id for u in found.utterances} <= {"a", "b"}


class TestCache:
    """Headers are cached, and read again when a file changes."""

    @pytest.fixture
    def opened(self, monkeypatch):
        """The names of the files whose headers are read, in order."""
        names = []
        real = headers.read_header

        def spy(path, size):
            names.append(Path(path).name)
            return real(path, size)

        monkeypatch.setattr(headers, "read_header", spy)
        return names

    def test_headers_are_read_once(self, tmp_path, opened):
        """A second index opens no file and gives the same result."""
        ljspeech(tmp_path)
        first = index.read_corpus(tmp_path)
        assert sorted(opened) == ["a.wav", "b.wav", "c.wav"]
        opened.clear()
        assert index.read_corpus(tmp_path).utterances == first.utterances
        assert opened == []

    def test_only_a_changed_file_is_read_again(self, tmp_path, opened):
        """Only the file whose size or mtime changed is opened, and its new header is used."""
        ljspeech(tmp_path)
        index.read_corpus(tmp_path)
        opened.clear()
        date(record(tmp_path / "wavs" / "b.wav", tone(4410), 44100), 2_000_000)
        found = index.read_corpus(tmp_path)
        assert opened == ["b.wav"]
        assert [u.sample_rate for u in found.utterances] == [22050, 44100, 22050]

    def test_a_changed_line_reads_no_header(self, tmp_path, opened):
        """The metadata is always read, so edits take effect at once, while headers stay cached."""
        ljspeech(tmp_path)
        index.read_corpus(tmp_path)
        opened.clear()
        (tmp_path / "metadata.csv").write_text("b|new|new text\na|x|x\n")
        assert [(u.id, u.text) for u in index.read_corpus(tmp_path).utterances] == [("b", "new text"), ("a", "x")]
        assert opened == []

    def test_a_removed_file_is_missing(self, tmp_path):
        """A file that was deleted after the cache was written is reported as missing."""
        ljspeech(tmp_path)
        index.read_corpus(tmp_path)
        (tmp_path / "wavs" / "b.wav").unlink()
        assert reasons(index.read_corpus(tmp_path)) == {"b": Reason.MISSING}

    def test_a_corrupt_cache_is_rebuilt(self, tmp_path, opened):
        """An unreadable cache is ignored and replaced."""
        ljspeech(tmp_path)
        first = index.read_corpus(tmp_path)
        (cached,) = (tmp_path / ".xtts-cache").iterdir()
        cached.write_bytes(b"garbage")
        assert index.read_corpus(tmp_path).utterances == first.utterances
        opened.clear()
        index.read_corpus(tmp_path)
        assert opened == []

    def test_the_cache_may_be_elsewhere_or_disabled(self, tmp_path):
        """A folder given by the caller is used, and None writes nothing."""
        root = ljspeech(tmp_path / "corpus")
        index.read_corpus(root, cache=None)
        assert not (root / ".xtts-cache").exists()
        index.read_corpus(root, cache=tmp_path / "elsewhere")
        assert len(list((tmp_path / "elsewhere").iterdir())) == 1
        assert not (root / ".xtts-cache").exists()


def test_progress_reaches_the_end(tmp_path):
    """The last report is the total."""
    reports = []
    index.read_corpus(ljspeech(tmp_path), progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (3, 3)


def people(sizes):
    return [Utterance(f"{name}_{i}", "", "x", name) for name, size in sizes.items() for i in range(size)]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 40), min_size=1), st.floats(0, 1), st.integers(0, 2**31)
)
def test_split_keeps_every_speaker_in_training(sizes, share, seed):
    """No utterance is lost or duplicated, order is kept, and the held-out share is as close as this allows."""
    utterances = people(sizes)
    train, held = split.split_corpus(utterances, share, seed)
    assert sorted(train + held) == sorted(utterances)
    assert train == [u for u in utterances if u in set(train)]
    assert {u.speaker for u in train} == set(sizes)
    most = len(utterances) - len(sizes)
    assert len(held) == min(max(round(share * len(utterances)), int(share > 0)), most)
    for name, size in sizes.items():
        part = sum(u.speaker == name for u in held)
        assert part >= min(int(share * size), size - 1)
    assert split.split_corpus(utterances, share, seed) == (train, held)


def test_split_draws_from_small_speakers_too():
    """Where each speaker has too few utterances for a share of its own, the share is taken over all of them."""
    _, held = split.split_corpus(people({f"s{i}": 5 for i in range(100)}), 0.02, 0)
    assert len(held) == 10
    assert len({u.speaker for u in held}) == 10


def test_split_depends_on_ids_not_on_order():
    """The same utterances in another order are split the same way, and another seed gives another split."""
    utterances = people({"a": 50, "b": 50})
    held = set(split.split_corpus(utterances, 0.2, 3)[1])
    assert set(split.split_corpus(utterances[::-1], 0.2, 3)[1]) == held
    assert set(split.split_corpus(utterances, 0.2, 4)[1]) != held


def test_split_is_the_same_everywhere():
    """The split is fixed: these ids are held out on every Python, whatever its hash seed."""
    program = (
        "from xtts.corpus.split import split_corpus; from xtts.corpus.utterances import Utterance;"
        "print(*[u.id for u in split_corpus([Utterance(f'u{i}', '', 'x', 'ab'[i % 2]) for i in range(40)], 0.1, 7)[1]])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert answers == {"u0 u5 u6 u7"}

import os
import sys

import pytest

from xtts.corpus.folder import CorpusFolder
from xtts.corpus.utterances import Reason, Unusable


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "corpus"
    (root / "wavs" / "deep").mkdir(parents=True)
    for name in ("wavs/a.wav", "wavs/b.FLAC", "wavs/c.flac", "wavs/c.wav", "wavs/deep/d.v2.wav", "e.wav", "notes.txt"):
        (root / name).write_bytes(b"1234")
    (tmp_path / "secret.wav").write_bytes(b"secret")
    return root


def reason(tree, name, folders=("wavs", "")):
    with pytest.raises(Unusable) as problem:
        tree.find(name, folders)
    return problem.value.reason


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.wav", "wavs/a.wav"),
        ("a", "wavs/a.wav"),
        ("a.mp3", "wavs/a.wav"),
        ("b", "wavs/b.FLAC"),
        ("c", "wavs/c.wav"),
        ("deep/d.v2", "wavs/deep/d.v2.wav"),
        ("deep\\d.v2.wav", "wavs/deep/d.v2.wav"),
        ("e", "e.wav"),
        ("./deep/../a.wav", "wavs/a.wav"),
    ],
)
def test_a_name_finds_its_file(root, name, path):
    """A file is found with its extension, without it, or with another format's, in the first folder that has it."""
    file = CorpusFolder(root).find(name, ("wavs", ""))
    assert (file.path, file.size) == (path, 4)
    assert file.mtime == (root / path).stat().st_mtime_ns


def test_an_absolute_path_inside_the_corpus_is_accepted(root):
    """A path that begins with the corpus folder's own is taken relative to it."""
    assert CorpusFolder(root).find(str(root / "wavs" / "a.wav")).path == "wavs/a.wav"


@pytest.mark.parametrize(
    "name", ["../secret.wav", "deep/../../../secret.wav", "..", "..\\secret.wav", "/etc/passwd", "C:\\a.wav"]
)
def test_a_path_never_leaves_the_corpus(root, name):
    """Neither ".." nor an absolute path refers to a file outside the corpus folder."""
    assert reason(CorpusFolder(root), name) is Reason.OUTSIDE


def test_a_sibling_folder_with_a_longer_name_is_outside(root):
    """A sibling folder whose name starts with the corpus folder's is outside it, by path or by symlink."""
    beside = root.parent / "corpus2"
    beside.mkdir()
    (beside / "a.wav").write_bytes(b"1")
    assert reason(CorpusFolder(root), str(beside / "a.wav")) is Reason.OUTSIDE
    if sys.platform != "win32":
        (root / "wavs" / "beside.wav").symlink_to(beside / "a.wav")
        assert reason(CorpusFolder(root), "beside") is Reason.OUTSIDE


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_symlinks_are_followed_only_inside_the_corpus(root):
    """A symlink within the corpus is its target; one that leaves it, to a file or a folder, is outside."""
    (root / "wavs" / "in.wav").symlink_to("a.wav")
    (root / "wavs" / "out.wav").symlink_to(root.parent / "secret.wav")
    (root / "wavs" / "gone.wav").symlink_to("nowhere.wav")
    (root / "away").symlink_to(root.parent)
    tree = CorpusFolder(root)
    assert tree.find("in", ("wavs",)).size == 4
    assert reason(tree, "out") is Reason.OUTSIDE
    assert reason(tree, "gone") is Reason.MISSING
    assert reason(tree, "away/secret.wav", ("",)) is Reason.OUTSIDE
    assert tree.names("away") == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_a_corpus_may_itself_be_a_symlink(root):
    """A corpus folder reached through a symlink contains its own files."""
    (root.parent / "link").symlink_to(root)
    tree = CorpusFolder(root.parent / "link")
    assert tree.find("a", ("wavs",)).path == "wavs/a.wav"
    assert tree.find(str(root / "e.wav")).path == "e.wav"


def test_what_is_not_a_file_is_never_opened(root):
    """A folder or a pipe with an audio file name is unreadable, and checking it does not block."""
    (root / "wavs" / "folder.wav").mkdir()
    assert reason(CorpusFolder(root), "folder") is Reason.UNREADABLE
    if hasattr(os, "mkfifo"):
        os.mkfifo(root / "wavs" / "pipe.wav")
        assert reason(CorpusFolder(root), "pipe") is Reason.UNREADABLE


@pytest.mark.parametrize(
    "name", ["zzz", "", ".", "no/folder/a.wav", "a\x00b", "a\x00/b", "notes", "x" * 5000, "y/" * 2000]
)
def test_a_name_without_a_file_is_missing(root, name):
    """Any name without a file is reported as missing."""
    assert reason(CorpusFolder(root), name) is Reason.MISSING


def test_read_gives_the_bytes(root):
    """A small text file is read by its name in the corpus."""
    assert CorpusFolder(root).read("notes.txt") == b"1234"

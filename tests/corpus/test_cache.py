import os
import time

import pytest

from xtts.corpus import cache
from xtts.corpus.cache import FileFacts

OLD = 10**18  # ns


def test_what_is_stored_is_loaded(tmp_path):
    """A value comes back equal, in a folder that did not exist."""
    cache.store_entry(tmp_path / "new" / "folder", "x.json", {"a": [1, "ب", "\udcff"]})
    assert cache.load_entry(tmp_path / "new" / "folder", "x.json") == {"a": [1, "ب", "\udcff"]}
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["x.json"]


def test_what_was_never_stored_is_none(tmp_path):
    """Neither a missing file nor a missing folder is an error."""
    assert cache.load_entry(tmp_path / "nowhere", "x.json") is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b.replace(b"1", b"2"), lambda b: b"", lambda b: b"\n[1]"]
)
def test_a_damaged_file_is_as_good_as_none(tmp_path, damage):
    """A file that was cut or altered, even into other valid JSON, is not believed."""
    cache.store_entry(tmp_path, "x.json", [1, 1, 1])
    path = tmp_path / "x.json"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load_entry(tmp_path, "x.json") is None


def test_another_version_is_as_good_as_none(tmp_path, monkeypatch):
    """What another version of the cache wrote is not read."""
    cache.store_entry(tmp_path, "x.json", 1)
    monkeypatch.setattr(cache, "VERSION", "next")
    assert cache.load_entry(tmp_path, "x.json") is None


def test_a_folder_that_cannot_be_made_is_not_missed(tmp_path):
    """Where nothing can be written the run goes on without a cache."""
    (tmp_path / "file").write_bytes(b"")
    cache.store_entry(tmp_path / "file" / "folder", "x.json", 1)
    assert cache.load_entry(tmp_path / "file" / "folder", "x.json") is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """A value is replaced wholly or not at all, and no partial file stays behind."""
    cache.store_entry(tmp_path, "x.json", "old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "replace", full)
    cache.store_entry(tmp_path, "x.json", "new")
    assert cache.load_entry(tmp_path, "x.json") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_facts_hold_as_long_as_size_and_mtime_do(tmp_path):
    """A fact is recalled for the same path, size and mtime, and for nothing else."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a.wav", 10, OLD, [1, 2])
    facts.save()
    again = FileFacts(tmp_path, "f.json")
    assert again.recall("a.wav", 10, OLD) == [1, 2]
    assert again.recall("a.wav", 11, OLD) is None
    assert again.recall("a.wav", 10, OLD + 1) is None
    assert again.recall("b.wav", 10, OLD) is None


def test_facts_of_a_file_just_written_are_not_kept(tmp_path):
    """A file may change again within the clock's tick, so what is newer than that is looked at again."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a.wav", 10, time.time_ns() - 10**9, [1])
    facts.save()
    assert not list(tmp_path.iterdir())


def test_facts_of_files_no_longer_asked_for_are_forgotten(tmp_path):
    """A cache does not grow with files that left the corpus."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a", 1, OLD, [])
    facts.note("b", 1, OLD, [])
    facts.save()
    again = FileFacts(tmp_path, "f.json")
    again.recall("b", 1, OLD)
    again.save()
    assert cache.load_entry(tmp_path, "f.json") == {"b": [1, OLD]}


def test_without_a_folder_nothing_is_kept():
    """No cache is a cache too."""
    facts = FileFacts(None, "f.json")
    facts.note("a", 1, OLD, [])
    facts.save()
    assert facts.recall("a", 1, OLD) is None


def test_the_folder_is_beside_the_corpus_or_the_users(tmp_path, monkeypatch):
    """A corpus that can be written to carries its cache; a read-only one has it among the user's."""
    assert cache.cache_folder(tmp_path) == tmp_path / ".xtts-cache"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache.cache_folder(tmp_path) == tmp_path / "user" / "xtts"


def test_names_differ_with_what_they_are_about():
    """Parts are kept apart: one string is not another two."""
    names = {cache.cache_name("k", *about) for about in [("a", "b"), ("ab",), ("a", "c"), ()]}
    assert len(names) == 4

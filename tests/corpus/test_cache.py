import os
import time

import pytest

from xtts.corpus import cache
from xtts.corpus.cache import FileFacts

OLD = 10**18  # ns


def test_a_stored_value_is_loaded(tmp_path):
    """A value is loaded as it was stored, from a folder that did not exist before."""
    cache.store_entry(tmp_path / "new" / "folder", "x.json", {"a": [1, "ب", "\udcff"]})
    assert cache.load_entry(tmp_path / "new" / "folder", "x.json") == {"a": [1, "ب", "\udcff"]}
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["x.json"]


def test_a_missing_entry_is_none(tmp_path):
    """Neither a missing file nor a missing folder is an error."""
    assert cache.load_entry(tmp_path / "nowhere", "x.json") is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b.replace(b"1", b"2"), lambda b: b"", lambda b: b"\n[1]"]
)
def test_a_damaged_file_is_ignored(tmp_path, damage):
    """A truncated or altered file is ignored, even if it is valid JSON."""
    cache.store_entry(tmp_path, "x.json", [1, 1, 1])
    path = tmp_path / "x.json"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load_entry(tmp_path, "x.json") is None


def test_an_entry_of_another_version_is_ignored(tmp_path, monkeypatch):
    """What another version of the cache wrote is not read."""
    cache.store_entry(tmp_path, "x.json", 1)
    monkeypatch.setattr(cache, "VERSION", "next")
    assert cache.load_entry(tmp_path, "x.json") is None


def test_a_folder_that_cannot_be_created_is_ignored(tmp_path):
    """Where nothing can be written the corpus is read without a cache."""
    (tmp_path / "file").write_bytes(b"")
    cache.store_entry(tmp_path / "file" / "folder", "x.json", 1)
    assert cache.load_entry(tmp_path / "file" / "folder", "x.json") is None


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """A value is replaced atomically, and no partial file is left."""
    cache.store_entry(tmp_path, "x.json", "old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "replace", full)
    cache.store_entry(tmp_path, "x.json", "new")
    assert cache.load_entry(tmp_path, "x.json") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_facts_are_valid_while_size_and_mtime_match(tmp_path):
    """A fact is recalled for the same path, size and mtime only."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a.wav", 10, OLD, [1, 2])
    facts.save()
    again = FileFacts(tmp_path, "f.json")
    assert again.recall("a.wav", 10, OLD) == [1, 2]
    assert again.recall("a.wav", 11, OLD) is None
    assert again.recall("a.wav", 10, OLD + 1) is None
    assert again.recall("b.wav", 10, OLD) is None


def test_facts_about_a_file_just_written_are_not_kept(tmp_path):
    """A file may change again within the resolution of its mtime, so very new files are read again."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a.wav", 10, time.time_ns() - 10**9, [1])
    facts.save()
    assert not list(tmp_path.iterdir())


def test_facts_about_files_that_left_the_corpus_are_dropped(tmp_path):
    """The cache does not grow with files no longer used."""
    facts = FileFacts(tmp_path, "f.json")
    facts.note("a", 1, OLD, [])
    facts.note("b", 1, OLD, [])
    facts.save()
    again = FileFacts(tmp_path, "f.json")
    again.recall("b", 1, OLD)
    again.save()
    assert cache.load_entry(tmp_path, "f.json") == {"b": [1, OLD]}


def test_without_a_folder_nothing_is_kept():
    """A cache without a folder stores nothing and recalls nothing."""
    facts = FileFacts(None, "f.json")
    facts.note("a", 1, OLD, [])
    facts.save()
    assert facts.recall("a", 1, OLD) is None


def test_the_folder_is_in_the_corpus_or_the_users_cache(tmp_path, monkeypatch):
    """A writable corpus contains its cache; that of a read-only one is in the user's cache folder."""
    assert cache.cache_folder(tmp_path) == tmp_path / ".xtts-cache"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache.cache_folder(tmp_path) == tmp_path / "user" / "xtts"


def test_cache_names_differ_for_different_keys():
    """Parts of a key are kept apart: ("a", "b") is not ("ab",)."""
    names = {cache.cache_name("k", *about) for about in [("a", "b"), ("ab",), ("a", "c"), ()]}
    assert len(names) == 4

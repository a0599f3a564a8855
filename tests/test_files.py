"""Files and folders are written completely or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xtts import files

ROOT = Path(__file__).parents[1]


def names(folder):
    return [path.name for path in folder.iterdir()]


def write_half(path, sync):
    with files.draft_file(path, sync=sync) as draft:
        draft.write_bytes(b"half")
        raise ZeroDivisionError


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path):
    """Text and bytes replace an older file, and missing folders are created."""
    path = tmp_path / "a" / "b.txt"
    files.write_text(path, "سلام\n")
    assert path.read_bytes() == "سلام\n".encode()
    files.write_bytes(path, b"\0\1")
    assert path.read_bytes() == b"\0\1"
    assert names(path.parent) == ["b.txt"]


@pytest.mark.parametrize("sync", [False, True])
def test_a_failed_write_leaves_the_old_file(tmp_path, sync):
    """The old file is unchanged, and the draft is removed."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        write_half(path, sync)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]
    with files.draft_file(path, sync=sync) as draft:
        draft.write_bytes(b"new")
    assert path.read_bytes() == b"new"


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    """A process killed half-way does not touch the file itself."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    script = (
        "import os, signal, sys; from pathlib import Path; from xtts import files\n"
        "with files.draft_file(Path(sys.argv[1])) as draft:\n"
        "    draft.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    import time; time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode != 0
    assert path.read_bytes() == b"old"


def test_a_folder_replaces_an_empty_one(tmp_path):
    """A folder that is not empty is refused and kept, and a failed draft is removed."""
    target = tmp_path / "model"
    target.mkdir()
    with files.draft_folder(target) as draft:
        (draft / "weights").write_text("1")
    assert names(target) == ["weights"]
    with pytest.raises(OSError, match="not empty"), files.draft_folder(target) as draft:
        (draft / "weights").write_text("2")
    assert (target / "weights").read_text() == "1"
    assert names(tmp_path) == ["model"]


def test_json_digests_ignore_the_order_of_keys():
    """Surrogates, which file names may contain, are allowed."""
    assert files.json_digest({"a": 1, "b": "\udc80"}) == files.json_digest({"b": "\udc80", "a": 1})
    assert files.json_digest({"a": 1}) != files.json_digest({"a": 2})

"""Checkpoints survive kill -9, full and read-only disks, and damaged files."""

import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from states import is_whole, state

from xtts.training import checkpoint
from xtts.training.checkpoint import CheckpointError, Checkpoints, TrainingState, set_aside

ROOT = Path(__file__).parents[2]
TENSORS, RECORD = checkpoint.TENSORS, checkpoint.RECORD


@pytest.fixture
def logged():
    return []


@pytest.fixture
def kept(tmp_path, logged):
    return Checkpoints(tmp_path / "run" / "codec", log=logged.append)


def names(kept):
    return sorted(path.name for path in kept.folder.iterdir())


def child(script, *arguments, before=()):
    """A subprocess that saves checkpoints; `before` is a command that runs it."""
    imports = "import os, shutil, signal, sys\nfrom pathlib import Path\nfrom states import is_whole, state\n"
    return subprocess.Popen(
        [
            *before,
            sys.executable,
            "-c",
            f"{imports}from xtts.training.checkpoint import Checkpoints\n{script}",
            *map(str, arguments),
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / place) for place in (".", "tests/support", "benchmarks")),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def finished(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out


# Saving and loading


def test_a_state_is_restored_bit_for_bit(kept, logged):
    """Every dtype, shape and value is kept: a scalar, an empty tensor, negative zero, NaN, a transposed matrix."""
    tensors = {
        "float": np.array([[-0.0, np.nan, np.inf], [1e-45, 0.1, 3.0]], np.float32).T,
        "step": np.array(2**40, np.int64),
        "bytes": np.arange(5, dtype=np.uint8),
        "none": np.zeros((0, 3), np.float32),
        "flag": np.array([True, False]),
    }
    counters = {"loss": 0.1 + 0.2, "best": math.inf, "cursor": 2**60, "digest": "پ", "deep": {"a": [None, True]}}
    path = kept.save(TrainingState(12, tensors, counters), loss=np.float32(0.25))
    found = kept.newest()
    assert path == kept.folder / "step-00000012"
    assert sorted(child.name for child in path.iterdir()) == [RECORD, TENSORS]
    assert (found.step, found.counters) == (12, counters)
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].shape == tensor.shape
        assert found.tensors[name].tobytes() == tensor.tobytes()
    assert not logged


def test_a_new_folder_has_no_checkpoints(kept, logged):
    """Reading from it gives nothing, without an error, and creates no folder."""
    assert (kept.newest(), kept.best(), kept.steps()) == (None, None, [])
    assert not kept.folder.exists()
    assert not logged


def test_the_tensors_are_an_ordinary_safetensors_file(kept):
    """The safetensors library reads the tensors of a checkpoint."""
    from safetensors.numpy import load_file

    found = load_file(str(kept.save(state(3)) / TENSORS))
    assert found["weights"].tobytes() == state(3).tensors["weights"].tobytes()


def test_no_tensorflow_is_imported():
    """Checkpoints and the lock work without importing TensorFlow."""
    script = (
        "import sys, xtts.training.checkpoint, xtts.training.run_lock;"
        " print([m for m in sys.modules if m.startswith('tensorflow')])"
    )
    assert finished(child(script)).strip() == "[]"


# Which checkpoints are kept


def test_the_last_few_and_the_best_are_kept(kept):
    """Of ten, the last three and the one with the lowest loss are kept."""
    for step, loss in enumerate([5, 4, 1, 2, math.nan, 3, None, 1.5, 2, 2.5], start=1):
        kept.save(state(step), loss)
        assert kept.newest().step == step
    assert kept.steps() == [3, 8, 9, 10]
    assert kept.best().step == 3
    assert names(kept) == ["step-00000003", "step-00000008", "step-00000009", "step-00000010"]


def test_one_checkpoint_can_be_kept(kept):
    """With keep = 1 and no losses only the newest is kept, and there is no best."""
    kept.keep = 1
    for step in (1, 2, 3):
        kept.save(state(step))
    assert kept.steps() == [3]
    assert kept.best() is None


def test_an_outdone_best_checkpoint_is_removed(kept):
    """Only one best is kept, the newest of equals."""
    kept.keep = 1
    for step, loss in [(1, 2.0), (2, 1.0), (3, 1.0), (4, 9.0)]:
        kept.save(state(step), loss)
    assert kept.steps() == [3, 4]


def test_a_step_saved_again_replaces_the_first(kept):
    """The later state of a step is the newest, and the earlier one is removed unless it is the best."""
    first = state(5)
    for mark in ("first", "second", "third"):
        kept.save(TrainingState(5, first.tensors, {"mark": mark}))
        assert kept.newest().counters == {"mark": mark}
        assert kept.steps() == [5]
    assert names(kept) == ["step-00000005-3"]
    kept.save(TrainingState(6, first.tensors, {"mark": "best"}), loss=1.0)
    kept.save(TrainingState(6, first.tensors, {"mark": "last"}))
    assert (kept.best().counters["mark"], kept.newest().counters["mark"]) == ("best", "last")


def test_a_checkpoint_before_the_newest_is_kept_when_written(kept):
    """A run that was set back to an earlier step keeps what it writes."""
    for step in (10, 20, 30):
        kept.save(state(step))
    path = kept.save(state(5))
    assert path.exists()
    assert kept.steps() == [5, 10, 20, 30]


def test_keep_must_be_positive(tmp_path):
    """A run that keeps no checkpoint could not be resumed."""
    with pytest.raises(ValueError, match="keep"):
        Checkpoints(tmp_path, keep=0)


# Damage


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 0x10
    path.write_bytes(bytes(content))


def reformat(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "xtts": "9.0"}))


DAMAGES = {
    "tensors cut": (lambda f: os.truncate(str(f / TENSORS), 1000), "has 1,000 bytes of"),
    "tensors grown": (lambda f: (f / TENSORS).open("ab").write(b"more"), "bytes of"),
    "tensors flipped": (lambda f: flip(f / TENSORS), f"{TENSORS} does not match its checksum"),
    "tensors missing": (lambda f: (f / TENSORS).unlink(), f"{TENSORS}: No such file"),
    "tensors empty": (lambda f: (f / TENSORS).write_bytes(b""), "has 0 bytes of"),
    "tensors a folder": (lambda f: [(f / TENSORS).unlink(), (f / TENSORS).mkdir()], TENSORS),
    "record missing": (lambda f: (f / RECORD).unlink(), f"{RECORD}: No such file"),
    "record empty": (lambda f: (f / RECORD).write_bytes(b""), f"{RECORD} is not JSON"),
    "record cut": (lambda f: os.truncate(str(f / RECORD), 50), f"{RECORD} is not JSON"),
    "record binary": (lambda f: (f / RECORD).write_bytes(b"\xff\x00"), f"{RECORD} is not JSON"),
    "record a list": (lambda f: (f / RECORD).write_text("[1]"), "does not name its format"),
    "record changed": (
        lambda f: (f / RECORD).write_text((f / RECORD).read_text().replace('"cursor": 14', '"cursor": 15')),
        f"{RECORD} does not match its checksum",
    ),
    "record of another format": (lambda f: reformat(f / RECORD), "format 2 by xtts 9.0, and this release reads"),
    "all files missing": (lambda f: [p.unlink() for p in list(f.iterdir())], f"{RECORD}: No such file"),
    "a file for a folder": (lambda f: [shutil.rmtree(str(f)), f.write_text("x")], "Not a directory"),
}


@pytest.mark.parametrize("asked", ["newest", "best"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_renamed_and_an_older_one_used(kept, logged, damage, asked):
    """Any damage is described in the message, nothing is deleted, and the run resumes from the previous one."""
    kept.save(state(1), loss=2.0)
    folder = kept.save(state(2), loss=1.0)
    spoil, sentence = DAMAGES[damage]
    spoil(folder)
    left = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None
    found = getattr(kept, asked)()
    assert found.step == 1
    assert is_whole(found)
    assert len(logged) == 1
    assert str(folder) in logged[0]
    assert sentence in logged[0]
    assert "aside-step-00000002.1" in logged[0]
    assert names(kept) == ["aside-step-00000002.1", "step-00000001"]
    assert left is None or sorted(path.name for path in (kept.folder / "aside-step-00000002.1").iterdir()) == left
    assert kept.save(state(2)).name == "step-00000002"
    assert kept.newest().step == 2
    assert len(logged) == 1


@pytest.mark.parametrize("name", [TENSORS, RECORD])
def test_every_flipped_bit_is_detected(kept, logged, name):
    """This holds for a bit anywhere in either file, in the header or the data."""
    kept.save(state(1, size=200))
    path = kept.save(state(2, size=200)) / name
    whole = path.read_bytes()
    chance = random.Random(5)
    for place in {0, len(whole) - 2, *(chance.randrange(len(whole) - 1) for _ in range(60))}:
        folder = path.parent
        bad = bytearray(whole)
        bad[place] ^= 1 << chance.randrange(8)
        if bad == whole or (name == RECORD and _same_json(bad, whole)):
            continue
        path.write_bytes(bytes(bad))
        assert is_whole(kept.newest(), size=200), place
        assert kept.steps() == [1], place
        (kept.folder / "aside-step-00000002.1").rename(folder)
    assert len(logged) > 30


def _same_json(one, other):
    """Whether the JSON is equal: a flipped bit may turn one white-space character into another."""
    try:
        return json.loads(bytes(one)) == json.loads(bytes(other))
    except ValueError:
        return False


def test_several_damaged_checkpoints_lead_to_the_oldest(kept, logged):
    """Each damaged one is reported, newest first."""
    for step in (1, 2, 3):
        kept.save(state(step))
    flip(kept.folder / "step-00000003" / TENSORS)
    (kept.folder / "step-00000002" / RECORD).unlink()
    assert kept.newest().step == 1
    assert ["step-00000003" in logged[0], "step-00000002" in logged[1]] == [True, True]


@pytest.mark.parametrize("asked", ["newest", "best"])
def test_if_all_are_damaged_the_run_stops_with_advice(kept, asked):
    """Weeks of training are never restarted silently, not even when the run is started a second time."""
    for step in (1, 2):
        kept.save(state(step), loss=1.0)
        flip(kept.folder / f"step-0000000{step}" / TENSORS)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"restore a backup .* or rename this folder"):
            getattr(kept, asked)()
    assert names(kept) == ["aside-step-00000001.1", "aside-step-00000002.1"]


def test_a_damaged_checkpoint_is_not_counted_or_removed(kept):
    """When another is saved, a broken checkpoint displaces no good one and is left for `newest` to handle."""
    kept.keep = 2
    for step in (1, 2, 3):
        kept.save(state(step))
    (kept.folder / "step-00000003" / RECORD).write_bytes(b"")
    kept.save(state(4))
    assert kept.steps() == [2, 3, 4]


def test_a_checkpoint_removed_while_being_read_is_not_damaged(kept, logged, monkeypatch):
    """The running process has removed it and written a newer one, which is read instead."""
    kept.keep = 1
    kept.save(state(1))
    reading = checkpoint._record

    def overtaken(folder):
        monkeypatch.setattr(checkpoint, "_record", reading)
        Checkpoints(kept.folder, keep=1).save(state(2))
        return reading(folder)

    monkeypatch.setattr(checkpoint, "_record", overtaken)
    assert kept.newest().step == 2
    assert not logged


def test_an_unreadable_checkpoint_is_not_renamed(kept, monkeypatch):
    """A file without read permission is not damaged: the run stops with an error, and nothing is renamed."""
    kept.save(state(1))

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(checkpoint, "_sha256", refuse)
    with pytest.raises(CheckpointError, match="Permission denied; make its files readable"):
        kept.newest()
    assert names(kept) == ["step-00000001"]


# kill -9

KEEP_SAVING = """
kept = Checkpoints(Path(sys.argv[1]), keep=2, log=lambda text: sys.exit(text))
found = kept.newest()
assert found is None or is_whole(found)
step = found.step if found else 0
while True:
    step += 1
    kept.save(state(step), loss=1 / step if step % 3 else 1 + step)
    print(step, flush=True)
"""


def test_a_run_killed_twenty_times_always_resumes(kept, logged):
    """After each kill -9 the newest checkpoint is intact and no older than the last reported one."""
    chance = random.Random(11)
    reached = 0
    for _ in range(20):
        process = child(KEEP_SAVING, kept.folder)
        first = process.stdout.readline()
        assert first, process.stderr.read()
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        reported = int((first + process.stdout.read()).split()[-1])  # communicate() skips what readline has read ahead
        process.communicate()
        assert int(first) == reached + 1
        found = kept.newest()
        assert is_whole(found)
        assert found.step in (reported, reported + 1)
        assert is_whole(kept.best())
        reached = found.step
    assert not logged


KILL_BEFORE_EACH_CALL = """
folder = Path(sys.argv[1])
before = folder.with_name("before")

def save_until(number):
    seen = []
    def watch(event, arguments):  # called before the system is
        if event.startswith(("open", "os.", "shutil.")):
            seen.append(event)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)
    kept, new = Checkpoints(folder, keep=1), state(4)
    sys.addaudithook(watch)
    kept.save(new)

for number in range(1, 200):
    if before.exists():
        shutil.rmtree(str(folder))
        shutil.copytree(str(before), str(folder))
    else:
        Checkpoints(folder).save(state(3))
        (folder / ".partial-step-00000009").mkdir()
        shutil.copytree(str(folder), str(before))
    saver = os.fork()
    if not saver:
        save_until(number)
        os._exit(0)
    _, status = os.waitpid(saver, 0)
    kept = Checkpoints(folder, keep=1)
    found = kept.newest()
    assert is_whole(found)
    kept.save(state(5))
    assert [path.name for path in folder.iterdir()] == ["step-00000005"], "left over"
    print(status, found.step)
    if not status:
        break
"""


def test_a_kill_before_any_file_operation_loses_nothing(tmp_path):
    """A save that removes an older checkpoint is killed before each of its file operations; an intact one remains."""
    lines = finished(child(KILL_BEFORE_EACH_CALL, tmp_path / "codec")).splitlines()
    statuses, steps = zip(*(map(int, line.split()) for line in lines))
    assert statuses == (signal.SIGKILL,) * (len(lines) - 1) + (0,)
    assert len(lines) > 10
    assert list(steps) == sorted(steps)
    assert set(steps) == {3, 4}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to tell which file is synced")
def test_data_is_synced_before_its_name(kept, monkeypatch):
    """In case of a power failure, files and folder are synced, then the folder is renamed, then the name is synced."""
    kept.save(state(1))
    partial, final = kept.folder / ".partial-step-00000002", kept.folder / "step-00000002"
    done = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor):
        fsync(descriptor)
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    def renamed(path, target):
        rename(path, target)
        done.append((path, target))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    kept.save(state(2))
    assert done == [partial / TENSORS, partial / RECORD, partial, (partial, final), kept.folder]


# Disks that refuse writes

FILL = """
kept = Checkpoints(Path(sys.argv[1]))
if len(sys.argv) > 2:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
paths = [kept.save(state(step)) for step in range(1, 9)]
print([path and path.name for path in paths])
"""


def test_a_file_size_limit_is_reported_and_training_continues(kept):
    """Under a file size limit (RLIMIT_FSIZE) nothing is written, and the older checkpoint is kept."""
    kept.save(state(0))
    out = finished(child(FILL, kept.folder, 100_000))
    assert out.endswith(f"{[None] * 8}\n")
    assert out.count("could not be written: File too large. Older ones are untouched and training continues") == 8
    assert names(kept) == ["step-00000000"]
    assert is_whole(kept.newest())


@pytest.fixture
def small_disk(tmp_path):
    """A command under which a folder is a disk of 1 MiB; the test is skipped where mounting is not permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=1m none {disk} && "$@"',
        "sh",
    ]
    try:
        subprocess.run([*mounted, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user may mount a disk here")
    return mounted, disk


def test_a_full_disk_is_reported_until_there_is_room(small_disk):
    """Of checkpoints of 0.4 MB on a real disk of 1 MiB two fit, and the third fails until there is room again."""
    mounted, disk = small_disk
    script = """
kept = Checkpoints(Path(sys.argv[1]) / "codec")
def step(number):
    path = kept.save(state(number))
    print(path and path.name, kept.steps(), is_whole(kept.newest()), sorted(p.name for p in kept.folder.iterdir()))
for number in (1, 2, 3, 4):
    step(number)
shutil.rmtree(str(kept.folder / "step-00000001"))
step(5)
"""
    out = finished(child(script, disk, before=mounted)).splitlines()
    first, second = "step-00000001", "step-00000002"
    assert out[:2] == [f"{first} [1] True {[first]}", f"{second} [1, 2] True {[first, second]}"]
    for refusal, report in (out[2:4], out[4:6]):
        assert "No space left on device" in refusal
        assert report == f"None [1, 2] True {[first, second]}"
    assert out[6:] == [f"step-00000005 [2, 5] True {[second, 'step-00000005']}"]


def test_a_read_only_disk_is_reported(small_disk):
    """Nothing is saved, a damaged checkpoint that cannot be renamed is reported, and the older one is read."""
    mounted, disk = small_disk
    script = """
kept = Checkpoints(Path(sys.argv[1]) / "codec")
kept.save(state(1)), kept.save(state(2))
os.truncate(str(kept.folder / "step-00000002" / "state.safetensors"), 1000)
import subprocess
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
print(kept.save(state(3)), Checkpoints(kept.folder).save(state(3)), kept.newest().step)
"""
    *sentences, out = finished(child(script, disk, before=mounted)).splitlines()
    assert out == "None None 1"
    assert ["Read-only file system" in sentence for sentence in sentences] == [True] * 3
    assert "could not be renamed" in sentences[2]


def test_a_file_in_place_of_the_folder_is_reported(tmp_path, logged):
    """Saving reports it and training continues; reading is refused."""
    (tmp_path / "codec").write_text("")
    kept = Checkpoints(tmp_path / "codec", log=logged.append)
    assert kept.save(state(1)) is None
    assert "step 1 (0.4 MB) could not be written" in logged[0]
    with pytest.raises(CheckpointError, match=r"codec: .*Not a directory; name a folder that can be read"):
        kept.newest()


def test_a_programming_error_is_not_taken_for_a_full_disk(kept):
    """A tensor of an unknown dtype or a counter that is not JSON raises an error and leaves no file."""
    with pytest.raises(checkpoint.safetensors_file.WeightsError, match="names"):
        kept.save(TrainingState(1, {"names": np.array(["a"])}))
    with pytest.raises(TypeError):
        kept.save(TrainingState(1, {}, {"loss": np.float32(1)}))
    assert names(kept) == []


def test_saving_and_reading_need_no_second_copy_of_the_tensors(tmp_path):
    """With 64 MiB of tensors, saving and reading need far less than that in addition."""
    script = """
import states, numpy as np
from peak import peak_bytes as peak
kept = Checkpoints(Path(sys.argv[1]))
kept.save(state(1))
new = states.TrainingState(2, {str(n): np.ones(2**20, np.float32) for n in range(16)})
before = peak()
kept.save(new)
found = kept.newest()
print(peak() - before)
"""
    assert int(finished(child(script, tmp_path / "codec"))) < 24e6


# Stages


def test_a_stage_is_renamed_to_the_first_free_name(tmp_path):
    """`codec` becomes codec.1, the next codec.2, and their contents are kept."""
    for number in (1, 2, 3):
        (tmp_path / "codec").mkdir()
        (tmp_path / "codec" / "metrics.jsonl").write_text(str(number))
        assert set_aside(tmp_path / "codec") == tmp_path / f"codec.{number}"
    assert [(tmp_path / f"codec.{n}" / "metrics.jsonl").read_text() for n in (1, 2, 3)] == ["1", "2", "3"]
    assert not (tmp_path / "codec").exists()


def test_a_stage_that_cannot_be_renamed_is_reported(tmp_path):
    """The error for a missing folder names it."""
    with pytest.raises(CheckpointError, match=r"gpt: it cannot be renamed, .*No such file"):
        set_aside(tmp_path / "gpt")

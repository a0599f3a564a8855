"""Interrupted runs: after any interruption a resumed run ends bit-identical to an uninterrupted one."""

import shutil
import signal

import pytest
from run_processes import beside, copy, differences, has_begun, has_stepped, is_saving, losses, summary

from xtts.training.checkpoint import Checkpoints

UNSEEN = "train.validate_every=0"  # one trace less, and the same training
CODEC = ('run.stages=["codec"]', UNSEEN)
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")


def test_a_run_killed_at_any_moment_ends_with_the_same_bits(runs):
    """It is killed while the codec accumulates gradients, between the stages, and while the GPT is being saved."""
    for moment in (has_stepped("codec", 6), has_begun("gpt"), is_saving("gpt")):
        killed = runs.start("killed", "train.save_every=1", stop_at=moment).until_stopped()
        killed.send(signal.SIGKILL).end()
    ended = runs.start("killed").end()
    assert ended.status == 0, ended.output
    assert "codec: already finished, after 20 steps" in ended.output
    assert differences(runs.folder("killed"), runs.folder("whole")) == []
    assert summary(runs.folder("killed"))["retraces_after_warmup"] == 0


def test_a_killed_run_with_relaxed_shapes_ends_with_the_same_bits(runs, relaxed):
    """The lengths of batches are a function of seed and step."""
    beside(runs, "killed-relaxed", "codec")
    saving = runs.start("killed-relaxed", *relaxed, "train.save_every=1", stop_at=has_stepped("gpt", 7))
    saving.until_stopped().send(signal.SIGKILL).end()
    ended = runs.start("killed-relaxed", *relaxed).end()
    assert ended.status == 0, ended.output
    assert "gpt: resuming after step" in ended.output
    assert "Static shapes (pad_to_fixed_length): False, relaxed: text up to 12, mel up to 68," in ended.output
    assert differences(runs.folder("killed-relaxed"), runs.folder("relaxed"), ["gpt"]) == []


@pytest.mark.long
def test_ten_kills_in_a_run(runs):
    """There are ten moments, in every phase of both stages, with live features on their own device."""
    dual = ("devices.data_gpu=0", "devices.model_gpu=1")
    assert runs.start("whole-dual", *dual).end().status == 0
    moments = [
        has_begun("codec"),
        has_stepped("codec", 1),
        is_saving("codec"),
        has_stepped("codec", 11),
        has_stepped("codec", 19),
        has_begun("gpt"),
        has_stepped("gpt", 2),
        is_saving("gpt"),
        has_stepped("gpt", 13),
        has_stepped("gpt", 20),
    ]
    for moment in moments:
        killed = runs.start("killed-dual", "train.save_every=1", *dual, stop_at=moment).until_stopped()
        killed.send(signal.SIGKILL).end()
    assert runs.start("killed-dual", *dual).end().status == 0
    assert differences(runs.folder("killed-dual"), runs.folder("whole-dual")) == []


def test_a_signal_saves_the_step_and_the_run_resumes_there(runs):
    """SIGINT and SIGTERM end it with status 130 and a message; meanwhile a second run in its folder is refused."""
    first = runs.start("told", *CODEC, stop_at=has_stepped("codec", 2)).until_stopped()
    second = runs.start("told", *CODEC).end()
    assert second.status == 1
    assert f"process {first.process.pid} on" in second.output
    stopped = first.send(signal.SIGINT, signal.SIGCONT).end()
    assert stopped.status == 130, stopped.output
    assert "of the codec stage, which is saved; run the same command to resume" in stopped.output
    (saved,) = Checkpoints(runs.folder("told") / "codec").steps()[-1:]
    assert saved == first.steps("codec")
    again = runs.start("told", *CODEC, stop_at=has_stepped("codec", saved + 1)).until_stopped()
    again = again.send(signal.SIGTERM, signal.SIGCONT).end()
    assert again.status == 130, again.output
    assert f"codec: resuming after step {saved} of 20" in again.output
    assert runs.start("told", *CODEC).end().status == 0
    assert differences(runs.folder("told"), runs.folder("whole"), ["codec"]) == []


def test_a_run_interrupted_before_its_first_step_ends_at_once(runs):
    """There is nothing to save while functions are traced."""
    early = runs.start("early", stop_at=has_begun("codec")).until_stopped()
    ended = early.send(signal.SIGTERM, signal.SIGCONT).end()
    assert ended.status == 130
    assert ended.output.endswith("xtts: interrupted\n")
    assert not Checkpoints(runs.folder("early") / "codec").steps()


def test_damaged_checkpoints_are_renamed_and_an_older_one_used(runs):
    """One with a changed byte and a truncated one are both reported, and training continues as before."""
    folder = copy(runs, "damaged")
    shutil.rmtree(str(folder / "gpt"))
    flipped, cut = (folder / "codec" / f"step-000000{step}" / "state.safetensors" for step in (20, 16))
    content = bytearray(flipped.read_bytes())
    content[-100] ^= 1
    flipped.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[:-1000])
    ended = runs.start("damaged", *CODEC).end()
    assert ended.status == 0
    assert (
        "step-00000020: this checkpoint cannot be used, state.safetensors does not match its checksum" in ended.output
    )
    assert "step-00000016: this checkpoint cannot be used, state.safetensors has" in ended.output
    assert "codec: resuming after step 12 of 20" in ended.output
    assert differences(folder, runs.folder("whole"), ["codec"]) == []


def test_a_run_continues_without_room_for_checkpoints(runs):
    """Each failed checkpoint is reported, and all steps are taken."""
    # More than a sample or the journal needs, less than a checkpoint or the report, whose failure is reported last.
    ended = runs.start("full", *CODEC, "train.save_every=10", most_bytes=40_000).end()
    assert ended.output.count("could not be written: File too large") == 2, ended.output
    assert losses(runs.folder("full"), "codec") == losses(runs.folder("whole"), "codec")
    assert not Checkpoints(runs.folder("full") / "codec").steps()

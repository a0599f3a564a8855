"""The journal survives being killed at any time, and drops lines that a resumed run repeats."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from xtts.errors import XttsError
from xtts.reporting.journal import Journal

ROOT = Path(__file__).parents[2]


def fill(journal, stage, steps, start=1):
    for step in range(start, steps + 1):
        journal.add_metrics(stage, step, loss=1 / step, shape="10x20x4")
        if step % 5 == 0:
            journal.add_validation(stage, step, 2 / step, {"mel": 1 / step})
            journal.add_sample(stage, step, "spoken", "سلام", f"samples/{stage}-{step}-0.wav")


def test_what_is_written_is_read_back(tmp_path):
    """Every kind of line is read back unchanged, by stage or all at once."""
    journal = Journal(tmp_path / "runs" / "new")
    journal.add_metrics("codec", 1, loss=0.5, losses={"mel": 0.5}, skipped=False)
    journal.add_metrics("gpt", 1, loss=3.5)
    journal.add_validation("gpt", 1, 3.25, {"text": 1.0})
    journal.add_event("gpt", 0, "trace", "10x20x4", seconds=1.5)
    journal.add_sample("gpt", 1, "spoken", "سلام دنیا", "samples/gpt-1-0.wav", "samples/gpt-1-0.png")
    read = Journal(tmp_path / "runs" / "new")
    assert read.metrics("codec") == [
        {"step": 1, "stage": "codec", "loss": 0.5, "losses": {"mel": 0.5}, "skipped": False}
    ]
    assert [line["stage"] for line in read.metrics()] == ["codec", "gpt"]
    assert read.validation("gpt") == [{"step": 1, "stage": "gpt", "loss": 3.25, "losses": {"text": 1.0}}]
    assert (read.events()[0]["kind"], read.events()[0]["seconds"]) == ("trace", 1.5)
    assert read.samples()[0]["text"] == "سلام دنیا"
    assert "سلام دنیا" in (tmp_path / "runs" / "new" / "samples.jsonl").read_text(encoding="utf-8")


def test_an_empty_folder_has_an_empty_journal(tmp_path):
    """Reading missing files gives nothing and creates none."""
    journal = Journal(tmp_path)
    assert journal.metrics() == journal.validation() == journal.events() == journal.samples() == []
    assert journal.summary() == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("-inf"), np.array(np.nan)])
def test_nan_and_infinity_are_null(tmp_path, value):
    """Strict JSON parsers can read every line."""
    journal = Journal(tmp_path)
    journal.add_metrics("gpt", 1, loss=value, losses={"mel": [value, 1.0]})
    journal.write_summary({"final_loss": value})

    def refuse(name):
        raise AssertionError(name)

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert (line["loss"], line["losses"]) == (None, {"mel": [None, 1.0]})
    assert journal.summary() == {"final_loss": None}


def test_numpy_numbers_are_written_as_json(tmp_path):
    """NumPy scalars are written as JSON numbers and booleans."""
    journal = Journal(tmp_path)
    journal.add_metrics("gpt", np.int64(3), loss=np.float32(0.5), frames=np.int32(7), skipped=np.bool_(False))
    assert journal.metrics() == [{"step": 3, "stage": "gpt", "loss": 0.5, "frames": 7, "skipped": False}]


def test_text_stays_on_its_line(tmp_path):
    """Line breaks, quotes and lone surrogates in a text do not break the line."""
    journal = Journal(tmp_path)
    texts = ['a\nb "c"', "x\u2028y", "half \ud800 letter", "\x00"]
    for text in texts:
        journal.add_event("gpt", 1, "warning", text)
    assert [line["text"] for line in journal.events()] == texts


@pytest.mark.parametrize("half", ['{"step": 3, "sta', '{"step": 3, "stage": "gpt"}', "{", "\0\0\0"])
def test_a_partial_line_is_ignored_and_replaced(tmp_path, half):
    """The partial last line of a killed process is ignored by readers and replaced by the next writer."""
    fill(Journal(tmp_path), "gpt", 2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(half)
    assert [line["step"] for line in Journal(tmp_path).metrics()] == [1, 2]
    assert (tmp_path / "metrics.jsonl").read_text().endswith(half), "reading changes nothing: another may be writing"
    Journal(tmp_path).add_metrics("gpt", 3, loss=1.0)
    assert [line["step"] for line in Journal(tmp_path).metrics()] == [1, 2, 3]
    assert half not in (tmp_path / "metrics.jsonl").read_text().splitlines()


def test_a_damaged_line_costs_that_line(tmp_path):
    """The lines around one that is not a JSON object are read."""
    fill(Journal(tmp_path), "gpt", 1)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n[1]\n{"step": "x"}\n\n{"step": 2, "stage": "gpt"}\n')
    assert [line["step"] for line in Journal(tmp_path).metrics()] == [1, 2]


def test_a_resumed_run_has_the_files_of_an_uninterrupted_one(tmp_path):
    """Lines after the step at which a stage resumes are dropped, those of other stages kept."""
    for name in ("whole", "broken"):
        fill(Journal(tmp_path / name), "codec", 12)
    fill(Journal(tmp_path / "whole"), "gpt", 30)
    fill(Journal(tmp_path / "broken"), "gpt", 23)
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 24, "st')
    journal = Journal(tmp_path / "broken")
    assert journal.resume("gpt", 10) == 13 + 2 + 2
    assert journal.metrics("gpt")[-1]["step"] == 10
    fill(journal, "gpt", 30, start=11)
    for name in ("metrics.jsonl", "validation.jsonl", "samples.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_resuming_a_new_run_does_nothing(tmp_path):
    """A folder without a journal gets none."""
    assert Journal(tmp_path).resume("gpt", 0) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_whole_lines(tmp_path):
    """After kill -9 every line but the last is complete, none is missing, and resuming works."""
    script = (
        "import sys; from xtts.reporting.journal import Journal\n"
        "journal, step = Journal(sys.argv[1]), 0\n"
        "while True:\n"
        "    step += 1; journal.add_metrics('gpt', step, text='x' * 5000)\n"
        "    if step == 50: print('go', flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert writer.stdout.readline().strip() == b"go"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    journal = Journal(tmp_path)
    steps = [line["step"] for line in journal.metrics()]
    assert len(steps) >= 50
    assert steps == list(range(1, len(steps) + 1))
    journal.resume("gpt", 40)
    assert [line["step"] for line in journal.metrics()] == list(range(1, 41))


def test_threads_do_not_interleave_their_lines(tmp_path):
    """Several threads may write events at the same time."""
    journal = Journal(tmp_path)
    threads = [
        threading.Thread(target=lambda: [journal.add_event("gpt", 1, "set aside", "x" * 999) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["text"] for line in journal.events()] == ["x" * 999] * 200


def test_a_summary_is_replaced_atomically(tmp_path):
    """The last summary is read, no temporary file is left, and a damaged one reads as empty."""
    journal = Journal(tmp_path)
    journal.write_summary({"stages": {"codec": {"steps": 1}}})
    journal.write_summary({"stages": {"gpt": {"steps": np.int64(2)}}, "devices": ("/CPU:0",)})
    assert journal.summary() == {"stages": {"gpt": {"steps": 2}}, "devices": ["/CPU:0"]}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
    (tmp_path / "summary.json").write_text('{"stages": ')
    assert journal.summary() == {}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is a device of Linux")
def test_a_full_disk_is_reported(tmp_path):
    """The error names the file, the cause and the remedy."""
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(XttsError, match=r"metrics\.jsonl cannot be written: No space left on device; free some space"):
        Journal(tmp_path).add_metrics("gpt", 1, loss=1.0)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    """A file in place of the folder is an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(XttsError, match="cannot be written"):
        Journal(tmp_path / "file" / "run").add_metrics("gpt", 1)
    with pytest.raises(XttsError, match="cannot be written"):
        Journal(tmp_path / "file" / "run").write_summary({})

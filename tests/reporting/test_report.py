"""The report is a well-formed page for every run, however it ended."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from xtts import files
from xtts.errors import XttsError
from xtts.recipe import loading
from xtts.recipe.schema import Recipe
from xtts.reporting import mel_pictures, report, run_folder
from xtts.reporting.journal import Journal
from xtts.reporting.monitor import Monitor

ROOT = Path(__file__).parents[2]
VOID = {"meta", "img"}
SHAPES = [(60, 200, 24), (120, 480, 16)]


class Page(HTMLParser):
    """A page's elements; an unmatched end tag is an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.headings, self.addresses, self.text = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def make(folder, stages=("codec", "gpt"), steps=40, finished=True, samples=True):
    """A run's folder as training leaves it: two stages by default, with `steps` of 40."""
    files.write_text(folder / "recipe.toml", loading.dump_recipe(Recipe()).replace("steps = 1000", "steps = 40"))
    plan = [{"text_length": t, "mel_frames": m, "batch_size": b, "work_ratio": 1.0625} for t, m, b in SHAPES]
    budget = {"model": {"total": 2**30, "limit": 2**31}}
    files.write_text(folder / "plan.json", json.dumps({"shapes": plan, "steps": 40, "bytes": budget}))
    journal, clock, random = Journal(folder), Clock(), np.random.RandomState(0)
    for stage in stages:
        facts = {"tensorflow": "2.9.9", "devices": {"features": "/CPU:0", "model": "/CPU:1"}}
        monitor = Monitor(stage, journal, lambda: 2, clock=clock, facts=facts, log=lambda line: None)
        journal.add_event(stage, 0, "fallback", "there is no GPU: logical CPU devices take their places")
        for shape in SHAPES:
            with monitor.phase("trace", "{}x{}x{}".format(*shape)):
                clock.now += 1.5
        monitor.warm()
        for step in range(1, steps + 1):
            text, mel, rows = SHAPES[step % 2]
            clock.now += 0.5
            losses = {"loss": 3 - step / 20, "text": 1.0, "mel": 2 - step / 20}
            frames = int(mel * rows / 1.25)
            monitor.step(step, losses, f"{text}x{mel}x{rows}", 0.48, 0.02, frames, mel * rows, buffer=50 - step % 7)
        monitor.validated({"loss": 1.5})
        if samples:
            name = f"samples/{stage}-{steps}-0"
            (folder / "samples").mkdir(exist_ok=True)
            (folder / f"{name}.png").write_bytes(mel_pictures.mel_png(random.normal(size=(50, 80))))
            (folder / f"{name}.wav").write_bytes(b"RIFF")
            journal.add_sample(stage, steps, "spoken", "سلام دنیا", f"{name}.wav", f"{name}.png")
        if finished:
            monitor.write_summary(finished=True)
    return folder


def read(folder):
    html = report.write_report(folder).read_text(encoding="utf-8")
    page = Page(html)
    assert all(address.startswith("data:") for address in page.addresses), "a page needs no network"
    assert not re.search(r"https?://|@import|url\(", html)
    return html, page


def test_a_finished_run_has_every_section(tmp_path):
    """Figures, curves, events, padding by shape, devices, samples, the recipe and versions are in one file."""
    html, page = read(make(tmp_path / "dual_gpu-1a2b"))
    assert page.headings == ["Stage codec", "Stage gpt", "Samples", "Devices", "Events", "Recipe", "Versions"]
    for title in ("Loss", "Parts of the training loss", "Step time, seconds", "Waiting for data", "Memory, MB"):
        assert html.count(f"<h4>{title}</h4>") == 2
    assert "<h4>Buffer, batches ready</h4>" in html
    assert "<h4>Padding by shape: frames computed beyond the real ones</h4>" in html
    assert 'class="mark trace"' in html
    text = " ".join(page.text)
    for words in ("Finished.", "120 × 480 × 16", "25.0 %", "6.2 %", "/CPU:1", "there is no GPU", "1,024", "2.9.9"):
        assert words in text
    assert '<p dir="auto">سلام دنیا</p>' in html
    assert "batch_size = 16" in text
    assert f">{np.__version__}</td>" in html
    assert len(html) < 400_000


def test_the_headline_is_that_of_the_summary(tmp_path):
    """Loss, speed, waiting, padding and retraces are as the monitor measured them."""
    html, _ = read(make(tmp_path))
    tiles = dict(re.findall(r'<b class="\w*">([^<]*)</b><span>([^<]*)</span>', html))
    named = {name: value for value, name in tiles.items()}
    last = [3 - step / 20 for step in range(31, 41)]
    assert float(named["loss"]) == pytest.approx(np.mean(last), abs=0.01)
    assert named["waiting for data"] == "4 %"
    assert named["padding"] == "25.0 %"
    assert named["retraces after warm-up"] == "0"
    assert named["real frames/s"] == "9,984"


def test_a_killed_run_has_a_report_of_its_steps(tmp_path):
    """Without a summary the figures are computed from the journal; a partial line does no harm."""
    make(tmp_path, finished=False, stages=("codec",), steps=17)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 18, "stage": "cod')
    _, page = read(tmp_path)
    text = " ".join(page.text)
    assert "Not finished: codec is at step 17 of 40." in text
    assert "17 of 40" in text
    assert "not begun" in text
    assert "25.0 %" in text
    assert page.headings[0] == "Stage codec"


def test_a_summary_older_than_the_metrics_is_updated(tmp_path):
    """If a run continued after its summary was written, the steps are those of its metrics."""
    make(tmp_path, stages=("codec",), steps=10)
    Journal(tmp_path).add_metrics("codec", 11, loss=9.0, step_seconds=1.0, wait_seconds=0.0)
    figures = run_folder.read_run_folder(tmp_path).figures("codec")
    assert (figures["steps"], figures["finished"]) == (11, False)
    assert figures["devices"]["model"] == "/CPU:1"


def test_a_run_that_was_only_planned_has_a_report(tmp_path):
    """The recipe is enough for a page."""
    files.write_text(tmp_path / "recipe.toml", loading.dump_recipe(Recipe()))
    _, page = read(tmp_path)
    assert "Nothing is trained yet." in page.text
    assert page.headings == ["Recipe", "Versions"]


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1, "stage": "gpt"}',
        '{"step": 1, "stage": "gpt", "loss": null, "step_seconds": null, "shape": "odd", "losses": null}',
        '{"step": 1}',
        '{"step": 1, "stage": "<b>&", "loss": 1e300, "shape": "<i>"}',
    ],
)
def test_an_incomplete_line_makes_a_page(tmp_path, line):
    """Keys that are missing or null, in any file, are left out of the page."""
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    (tmp_path / "events.jsonl").write_text('{"step": 1, "kind": "trace", "stage": "gpt"}\n{}\n')
    (tmp_path / "samples.jsonl").write_text("{}\n")
    (tmp_path / "summary.json").write_text('{"stages": {"gpt": null, "codec": {"devices": ["/CPU:0"]}}}')
    (tmp_path / "plan.json").write_text('{"shapes": [{}]')
    (tmp_path / "recipe.toml").write_text("not = [toml")
    html, _ = read(tmp_path)
    assert "<b>&<" not in html


def test_text_is_escaped(tmp_path):
    """Markup in events, warnings, samples or the recipe is shown as text; a lone surrogate is replaced."""
    evil = '</pre><script>alert("x")</script>\ud800'
    make(tmp_path, samples=False)
    journal = Journal(tmp_path)
    journal.add_event("gpt", 1, "warning", evil)
    journal.add_event("gpt", 1, "trace", evil)
    journal.add_sample("gpt", 1, "spoken", evil)
    summary = journal.summary()
    summary["stages"]["gpt"]["warnings"] = [evil]
    journal.write_summary(summary)
    html, page = read(tmp_path)
    assert "<script" not in html
    assert "Worth a look" in page.headings


def test_a_hundred_thousand_steps_are_a_small_page(tmp_path):
    """The page of a long run is not much larger than that of a short one."""
    files.write_text(tmp_path / "recipe.toml", loading.dump_recipe(Recipe()))
    line = (
        '{{"step": {}, "stage": "gpt", "loss": {}, "shape": "60x200x24", "step_seconds": 0.5, "wait_seconds": 0.01}}\n'
    )
    lines = (line.format(step, 2 + (step % 97) / 97) for step in range(1, 100_001))
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    html, page = read(tmp_path)
    assert "100,000" in " ".join(page.text)
    assert len(html) < 150_000


def test_a_folder_that_is_not_a_run_is_refused(tmp_path):
    """A missing folder, an empty one, and the folder of all runs each get a remedy."""
    with pytest.raises(XttsError, match="there is no such folder; name a run's"):
        report.write_report(tmp_path / "none")
    with pytest.raises(XttsError, match=r"there is no recipe\.toml in it; name the folder that xtts run wrote"):
        report.write_report(tmp_path)
    make(tmp_path / "runs" / "voice-1a2b", steps=1)
    with pytest.raises(XttsError, match=r"did you mean .*voice-1a2b\?"):
        report.write_report(tmp_path / "runs")


def test_a_report_is_made_without_tensorflow(tmp_path):
    """TensorFlow is not imported for it."""
    make(tmp_path, steps=2)
    script = (
        "import sys; from xtts.reporting import report; report.write_report(sys.argv[1]);"
        " assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=str(ROOT))

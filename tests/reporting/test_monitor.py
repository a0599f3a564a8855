"""The monitor measures a training stage and warns about problems."""

import fcntl
import io
import json
import math
import os
import struct
import subprocess
import sys
import termios
import types
from pathlib import Path

import numpy as np
import pytest

from xtts.errors import XttsError
from xtts.reporting import monitor as monitors
from xtts.reporting import system
from xtts.reporting.journal import Journal
from xtts.reporting.monitor import Live, Monitor, TrainingError, whole_run

ROOT = Path(__file__).parents[2]


class Clock:
    """A clock that tests advance."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Run:
    """A stage whose steps take 0.9 s of computing and 0.1 s of waiting by default."""

    def __init__(self, folder, **options):
        self.clock, self.logged, self.traces = Clock(), [], 0
        self.journal = Journal(folder)
        options = {"traces": lambda: self.traces, "log": self.logged.append, "clock": self.clock, **options}
        self.monitor = Monitor("gpt", self.journal, **options)

    def step(self, step, loss=2.0, computing=0.9, waiting=0.1, other=0.0, **more):
        self.clock.now += computing + waiting + other
        losses = {"loss": loss, "text": loss / 4, "mel": loss * 3 / 4}
        self.monitor.step(step, losses, "120x480x16", computing, waiting, frames=1000, computed_frames=1100, **more)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_step_is_a_line_of_the_journal(run):
    """The line has the documented keys, the parts of the loss, and the memory of the process."""
    run.monitor.warm()
    run.step(1, buffer=48, learning_rate=3e-4, gradient_norm=0.7)
    (line,) = run.journal.metrics("gpt")
    assert line["losses"] == {"text": 0.5, "mel": 1.5}
    assert (line["step"], line["stage"], line["loss"], line["shape"]) == (1, "gpt", 2.0, "120x480x16")
    assert (line["step_seconds"], line["wait_seconds"]) == (0.9, 0.1)
    assert (line["frames"], line["computed_frames"], line["buffer"], line["skipped"]) == (1000, 1100, 48, False)
    assert line["memory_mb"] > 10
    assert line["time"] > 1.7e9


def test_only_steps_to_be_logged_are_lines(tmp_path):
    """Which steps are logged depends on their number alone, so that resuming changes nothing; totals count all."""
    run = Run(tmp_path, log_every=10)
    run.monitor.warm()
    for step in range(1, 26):
        run.step(step)
    assert [line["step"] for line in run.journal.metrics()] == [1, 10, 20]
    assert run.monitor.summary()["frames"] == 25_000


def test_shares_are_of_the_steady_state(run):
    """Tracing, validation and saving are timed separately; shares and frames per second exclude them."""
    with run.monitor.phase("trace", "120x480x16"):
        run.clock.now += 30
    run.clock.now += 2  # the buffer fills
    run.monitor.warm()
    for step in range(1, 11):
        run.step(step, computing=0.8, waiting=0.1, other=0.1)
        if step == 5:
            with run.monitor.phase("validation"):
                run.clock.now += 20
    figures = run.monitor.summary(finished=True)
    assert figures["data_wait_share"] == pytest.approx(0.1)
    assert figures["busy_share"] == pytest.approx(0.8)
    assert figures["frames_per_second"] == pytest.approx(1000)
    assert figures["padding"] == pytest.approx(1.1)
    assert figures["seconds"] == pytest.approx(62)
    expected = {"computing": 8, "waiting": 1, "trace": 30, "validation": 20, "other": 3}
    assert figures["seconds_by"] == pytest.approx(expected)
    assert (figures["steps"], figures["skipped"], figures["finished"]) == (10, 0, True)
    (event,) = run.journal.events()
    assert (event["kind"], event["text"], event["seconds"]) == ("trace", "120x480x16", 30)


def test_the_final_loss_is_the_mean_of_the_last_ten(run):
    """The loss of a single batch is too noisy."""
    run.monitor.warm()
    for step in range(1, 31):
        run.step(step, loss=float(step))
    assert run.monitor.summary()["final_loss"] == pytest.approx(np.mean(np.arange(21, 31)))


def test_a_retrace_is_reported_with_its_reason_and_counted(tmp_path):
    """Traces in the warm-up are only counted; a later one is reported, and its time is not in the steady state."""
    run = Run(tmp_path, explain=lambda: "step: mel [16, 480, 80] became [16, 481, 80]")
    run.traces = 8
    run.monitor.warm()
    run.step(1)
    run.traces = 9
    run.step(2, computing=40.0)
    run.step(3)
    run.traces = 11
    run.step(4)
    sentence = (
        "tf.function RETRACING detected at step 2 (total retraces: 1): step: mel [16, 480, 80] became [16, 481, 80]"
    )
    assert run.logged[0] == sentence
    assert "at step 4 (total retraces: 3)" in run.logged[1]
    assert [(event["kind"], event["step"]) for event in run.journal.events()] == [("retrace", 2), ("retrace", 4)]
    figures = run.monitor.summary()
    assert (figures["traces"], figures["retraces_after_warmup"]) == (11, 3)
    assert figures["busy_share"] == pytest.approx(0.9)
    assert figures["seconds_by"]["trace"] == pytest.approx(40.1 + 1)


def test_real_retraces_are_detected(tmp_path):
    """A tf.function called with a new shape is reported through its counters."""
    import tensorflow as tf

    from xtts import compat

    square = compat.compiled(lambda x: x * x)
    run = Run(tmp_path, traces=lambda: square.traces, explain=square.report)
    square(tf.zeros([2]))
    run.monitor.warm()
    square(tf.zeros([2]))
    run.step(1)
    assert run.logged == []
    square(tf.zeros([3]))
    run.step(2)
    assert "RETRACING detected at step 2 (total retraces: 1)" in run.logged[0]
    assert "2 traces" in run.logged[0]
    assert run.monitor.summary()["retraces_after_warmup"] == 1


def test_without_a_warm_up_the_first_step_is_it(run):
    """Traces of the first step are not reported; later ones are."""
    run.traces = 1
    run.step(1, computing=30)
    run.traces = 2
    run.step(2)
    assert len(run.logged) == 1
    assert run.monitor.summary()["retraces_after_warmup"] == 1


def test_waiting_for_data_gets_advice_once(run):
    """After enough steps a waiting share above a tenth is reported with the settings to change."""
    run.monitor.warm()
    for step in range(1, 200):
        run.step(step, computing=0.75, waiting=0.25)
    (sentence,) = run.logged
    assert "waits for data 25% of the time" in sentence
    for key in ('data.features = "cached"', "devices.buffer_size", "devices.data_gpu"):
        assert key in sentence
    assert [event["kind"] for event in run.journal.events()] == ["warning"]
    assert run.monitor.summary()["warnings"] == [sentence]


def test_a_busy_model_gets_no_advice(run):
    """A waiting share of a tenth or less is not reported."""
    run.monitor.warm()
    for step in range(1, 200):
        run.step(step, computing=0.95, waiting=0.05)
    assert run.logged == []


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_repeated_nan_losses_stop_the_run(run, loss):
    """They are counted and logged; the last raises an error with the step, what to lower, and the likely utterance."""
    run.monitor.warm()
    run.step(1)
    for step in range(2, 6):
        run.step(step, loss=loss, utterances=["a", "odd one", f"only {step}"])
    with pytest.raises(TrainingError) as problem:
        run.step(6, loss=loss, utterances=["odd one", "b"], learning_rate=0.01)
    assert isinstance(problem.value, XttsError)
    sentence = str(problem.value)
    assert "gpt stage, step 6: 5 steps in a row, from step 2 on" in sentence
    for words in ("train.learning_rate (it is 0.01 here)", 'train.precision = "float32"', "look at odd one, on which"):
        assert words in sentence
    figures = run.monitor.summary()
    assert (figures["skipped"], figures["final_loss"]) == (5, 2.0)
    assert [line["loss"] for line in run.journal.metrics()] == [2.0] + [None] * 5
    assert [event["kind"] for event in run.journal.events()] == ["skip"] * 5


def test_occasional_nan_losses_are_tolerated(run):
    """Only consecutive ones stop a run; steps skipped by the loop count, too."""
    run.monitor.warm()
    for step in range(1, 40):
        run.step(step, loss=math.nan if step % 4 else 2.0)
    run.step(40, skipped=True)
    assert run.monitor.summary()["skipped"] == 31


def test_a_resumed_stage_has_the_figures_of_an_uninterrupted_one(tmp_path):
    """The state is stored as JSON; totals, times and the last losses continue."""
    whole, first = Run(tmp_path / "whole"), Run(tmp_path / "first")
    for run in (whole, first):
        run.monitor.warm()
        for step in range(1, 8):
            run.step(step, loss=float(step))
    state = json.loads(json.dumps(first.monitor.state()))
    second = Run(tmp_path / "second")
    second.monitor.restore(state)
    second.monitor.warm()
    for step in range(8, 12):
        whole.step(step, loss=float(step))
        second.step(step, loss=float(step))
    figures, expected = second.monitor.summary(), whole.monitor.summary()
    assert figures.pop("seconds_by") == pytest.approx(expected.pop("seconds_by"))
    assert figures.pop("warnings") == expected.pop("warnings") == []
    assert figures == pytest.approx(expected)


def test_the_summary_of_a_run_has_every_stage_and_the_whole(tmp_path):
    """Stages of earlier processes are kept; counts are added, shares weighted, and the loss is the last stage's."""
    for stage, steps, computing in (("codec", 10, 0.9), ("gpt", 30, 0.4)):
        clock = Clock()
        monitor = Monitor(
            stage,
            Journal(tmp_path),
            traces=lambda: 4,
            clock=clock,
            facts={"tensorflow": "2.9.9", "devices": {"model": "/CPU:1"}},
        )
        monitor.warm()
        for step in range(1, steps + 1):
            clock.now += computing + 0.1
            monitor.step(step, {"loss": computing}, "1x2x3", computing, 0.1, 100, 110 if stage == "gpt" else 200)
        monitor.write_summary(finished=True)
    summary = Journal(tmp_path).summary()
    assert list(summary["stages"]) == ["codec", "gpt"]
    keys = "steps traces retraces_after_warmup data_wait_share frames_per_second padding seconds devices tensorflow"
    for figures in (summary, *summary["stages"].values()):
        assert {*keys.split(), "final_loss"} <= set(figures)
    assert (summary["steps"], summary["traces"], summary["finished"]) == (40, 8, True)
    assert summary["data_wait_share"] == pytest.approx(4 / 25)
    assert summary["frames_per_second"] == pytest.approx(4000 / 25)
    assert summary["padding"] == pytest.approx((2000 + 3300) / 4000)
    assert summary["final_loss"] == pytest.approx(0.4)
    assert summary["versions"]["tensorflow"] == "2.9.9"
    assert summary["versions"]["numpy"] == np.__version__


def test_a_run_of_no_steps_has_a_summary(tmp_path):
    """Nothing is divided by zero."""
    Monitor("gpt", Journal(tmp_path)).write_summary()
    summary = Journal(tmp_path).summary()
    assert (summary["steps"], summary["data_wait_share"], summary["final_loss"]) == (0, None, None)
    assert whole_run({})["steps"] == 0


def test_a_memory_leak_is_a_warning_of_the_run(tmp_path):
    """The monitor reads its gauge, reports a leak, and logs it."""
    memory = iter(range(1000, 10_000, 3))
    run = Run(tmp_path, gauges={"memory_mb": lambda: float(next(memory))})
    run.monitor.warm()
    for step in range(1, 300):
        run.step(step, waiting=0.0)
    (sentence,) = run.logged
    assert "memory grows by 3.0 MB a step" in sentence
    assert [event["kind"] for event in run.journal.events()] == ["warning"]


def test_gpu_memory_is_read_from_tensorflow(tmp_path):
    """A missing GPU has no reading, and the journal no such key."""
    found = system.gauges("/GPU:0")
    assert found["gpu_memory_mb"]() is None
    run = Run(tmp_path, gauges=found)
    run.monitor.warm()
    run.step(1)
    assert "gpu_memory_mb" not in run.journal.metrics()[0]


class Terminal:
    """A pseudo-terminal of a width: a stream to write to, and what was written."""

    def __init__(self, columns):
        self._screen, other = os.openpty()
        self.stream = os.fdopen(other, "w", encoding="utf-8")
        self.resize(columns)

    def resize(self, columns):
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        print("\x04", end="", file=self.stream, flush=True)  # marks the end: a terminal's output comes in pieces
        written = b""
        while not written.endswith(b"\x04"):
            written += os.read(self._screen, 1 << 16)
        return written[:-1].decode()

    def close(self):
        self.stream.close()
        os.close(self._screen)


@pytest.fixture
def terminal():
    screen = Terminal(200)
    yield screen
    screen.close()


def test_a_terminal_gets_a_progress_bar_with_figures(tmp_path, terminal):
    """Stage, progress, time left, step, loss, speed and waiting are in one line, cut to the terminal's width."""
    run = Run(tmp_path, live=Live("gpt", 4, stream=terminal.stream), log=None)
    run.monitor.warm()
    for step in range(1, 5):
        run.step(step)
    last = terminal.read().split("\r")[-1]
    assert last.startswith("gpt [####")
    assert "100%, 00:00 left, step 4/4, loss 2, 1,000 frames/s, data wait 10.0%" in last
    run.monitor.warn("look here")
    assert "\rlook here\r\n" in terminal.read()
    terminal.resize(40)
    run.step(4)
    assert len(terminal.read().split("\r")[-1]) == 39


def test_a_log_gets_plain_lines_occasionally(tmp_path):
    """Without a terminal the first step, the last, and one every 15 seconds are printed, without control codes."""
    log, clock = io.StringIO(), Clock()
    run = Run(tmp_path, live=Live("gpt", 30, stream=log, clock=clock))
    run.monitor.warm()
    for step in range(1, 31):
        run.step(step)
    lines = log.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["gpt step 1/30", "gpt step 30/30"]
    assert "loss 2, 1,000 frames/s, data wait 10.0%, " in lines[0]
    assert lines[0].endswith("left")
    assert "\x1b" not in log.getvalue()
    clock.now += monitors.PLAIN_SECONDS - 1
    run.step(29)
    assert len(log.getvalue().splitlines()) == 2
    clock.now += 1
    run.step(29)
    assert len(log.getvalue().splitlines()) == 3


def test_validation_is_logged_at_the_latest_step(run):
    """The loss and its parts are a line of their own."""
    run.monitor.warm()
    run.step(7)
    run.monitor.validated({"loss": 3.0, "text": 1.0})
    assert run.journal.validation("gpt") == [{"step": 7, "stage": "gpt", "loss": 3.0, "losses": {"text": 1.0}}]


def test_monitoring_starts_without_tensorflow():
    """TensorFlow is imported only when it is queried."""
    script = "import sys, xtts.reporting.monitor, xtts.reporting.system; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=str(ROOT))


def test_tensorboard_gets_the_figures_of_steps_and_validations(tmp_path):
    """Numbers are written under the stage's name; texts are not."""
    told = {}
    board = types.SimpleNamespace(scalars=lambda step, figures: told.setdefault(step, {}).update(figures))
    run = Run(tmp_path, tensorboard=board)
    run.monitor.warm()
    run.step(3, learning_rate=1e-4)
    run.monitor.validated({"loss": 3.0})
    figures = told[3]
    assert (figures["gpt/loss"], figures["gpt/learning_rate"], figures["gpt/validation_loss"]) == (2.0, 1e-4, 3.0)
    assert "gpt/shape" not in figures

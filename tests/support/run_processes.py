"""Whole runs as subprocesses: settings in, exit status, output and run folder out.

`run` starts the program as a user does. `start` forks a process that has imported TensorFlow without using it, which
saves the time of the import; otherwise it is an ordinary process that can be watched, signalled and killed.
With `stop_at` a process stops itself (SIGSTOP) at a moment of its run, however slow or fast the machine is.

The corpus is generated from integers, so that it is identical everywhere: gliding voices of a second or less.
"""

import functools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np
import psutil
import small_run

from xtts.commands.main import main
from xtts.reporting.journal import Journal
from xtts.training.checkpoint import Checkpoints

SUPPORT = Path(__file__).parent
LIMIT = 1200  # seconds: a guard against hanging, for the slowest machines
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["xtts.training.run"])
RATE = 22050
WORDS = "la mi so do ra fe ti na".split()
RECIPE = """
[run]
name = "whole"
seed = 3
say = ["la mi"]
[data]
train = "corpus"
validation_share = 0.2
shape_count = 2
reference_seconds = 0.5
[codec]
batch_size = 4
segment_frames = 32
[train]
steps = 20
batch_size = 3
gradient_accumulation_steps = 2
learning_rate = 3e-3
warmup_steps = 2
dropout = 0.1
validate_every = 10
sample_every = 20
save_every = 4
log_every = 1
[devices]
model_start_delay = 0.0
"""


def make_corpus(folder, count=15):
    """Make a corpus in LJSpeech's layout, with a column for two speakers."""
    (folder / "wavs").mkdir(parents=True)
    lines = []
    for number in range(count):
        samples = RATE // 4 + (number * 2741) % (RATE // 2)
        steps = 30 + (number * 37) % 50 + np.arange(samples) // 900  # of a sawtooth, an integer each
        saw = np.cumsum(steps) % 2048 - 1024
        echo = np.cumsum(3 * steps + number) % 1024 - 512
        swell = np.minimum(np.arange(samples) % 5000, 2500)
        _write_wave(folder / "wavs" / f"{number:02d}.wav", (saw + echo) * swell // 400)
        words = " ".join(WORDS[(number * 3 + place * 5) % 8] for place in range(1 + samples // 5000))
        lines.append(f"{number:02d}|{words}|{words}|voice{number % 2}|en\n")
    (folder / "metadata.csv").write_text("".join(lines))


def _write_wave(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, len(samples), "NONE", "not compressed"))
        file.writeframes(samples.astype("<i2").tobytes())


def run_program(arguments, cwd, log):
    """The body of a process: the program as it is, with the sizes of its presets."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(cwd)
    raise SystemExit(main(arguments))


class Ended:
    """A process that has ended, with its status and output."""

    def __init__(self, status, output):
        self.status, self.output = status, output
        assert "Traceback" not in output, output
        assert "triggered tf.function retracing" not in output, output


class Process:
    """A run in progress."""

    def __init__(self, folder, process, log):
        self.folder, self.process, self._log = folder, process, log

    def until(self, is_so):
        """Wait until a condition on the run's folder holds. The process continues; it must not end before."""
        return self._wait(lambda: is_so(self.folder))

    def until_stopped(self):
        """Wait until the process has stopped itself, at the moment given to `start`."""
        return self._wait(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)

    def _wait(self, is_so):
        stop = time.monotonic() + LIMIT
        while not is_so():
            assert self.process.is_alive(), f"it ended before:\n{self.output()}"
            assert time.monotonic() < stop, self.output()
            time.sleep(0.005)
        return self

    def steps(self, stage):
        """The steps of a stage in the journal."""
        return steps_done(self.folder, stage)

    def output(self):
        return self._log.read_text(encoding="utf-8", errors="replace")

    def send(self, *signals):
        """Send signals to it."""
        for number in signals:
            os.kill(self.process.pid, number)
        return self

    def end(self):
        """Wait until it ends."""
        self.process.join(LIMIT)
        return Ended(self.process.exitcode, self.output())


class Runs:
    """Runs with one corpus in a folder `root`; they share its cached features."""

    def __init__(self, root, recipe=RECIPE):
        self.root = root
        (root / "recipe.toml").write_text(recipe)

    def run(self, name, *settings):
        """Run `xtts run`, with --set for each of `settings`, from beginning to end."""
        done = subprocess.run(
            [sys.executable, str(SUPPORT / "small_run.py"), *_arguments(name, settings)],
            cwd=str(self.root),
            env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        return Ended(done.returncode, done.stdout)

    def start(self, name, *settings, most_bytes=None, stop_at=None):
        """Start the same as a running process.

        `most_bytes`: the limit for the size of a file it writes. `stop_at`: a function of the run's folder; the process
        stops before it next opens, creates or renames a file there while that is true, and continues after a SIGCONT.
        """
        log = self.root / f"{name}-{time.monotonic_ns()}.log"
        stop = stop_at and (str(self.folder(name)), functools.partial(stop_at, self.folder(name)))
        arguments = (_arguments(name, settings), str(self.root), str(log), most_bytes, stop)
        process = FORKS.Process(target=small_run.main, args=arguments)
        process.start()
        return Process(self.folder(name), process, log)

    def folder(self, name):
        return self.root / "runs" / name


def steps_done(folder, stage):
    """The steps of a stage in the journal."""
    return max((line["step"] for line in Journal(folder).metrics(stage)), default=0)


def has_begun(stage):
    """A moment: the stage is about to be traced."""
    return functools.partial(_has_begun, stage)


def has_stepped(stage, step):
    """A moment: the step is in the journal."""
    return functools.partial(_has_stepped, stage, step)


def is_saving(stage):
    """A moment: a checkpoint is being written."""
    return functools.partial(_is_saving, stage)


def _has_begun(stage, folder):
    return (folder / stage / "inputs.json").exists()


def _has_stepped(stage, step, folder):
    return steps_done(folder, stage) >= step


def _is_saving(stage, folder):
    return any((folder / stage).glob(".partial-*"))


def _arguments(name, settings):
    return ["run", "recipe.toml", *(f"--set={setting}" for setting in (f"run.name={name}", *settings))]


def losses(folder, stage):
    """The loss of each step."""
    return [line["loss"] for line in Journal(folder).metrics(stage)]


def final(folder, stage):
    """A stage's last checkpoint, as bytes."""
    state = Checkpoints(folder / stage).newest()
    assert state.counters["finished"]
    return {name: tensor.tobytes() for name, tensor in {**state.tensors, "step": np.array(state.step)}.items()}


def differences(folder, other, stages=("codec", "gpt")):
    """Differences between the last checkpoints and losses of two runs, in words; empty if they are bit-identical."""
    found = []
    for stage in stages:
        states = [{**final(one, stage), **dict(enumerate(losses(one, stage), 1))} for one in (folder, other)]
        names = sorted({name for state in states for name in state}, key=str)
        for ours, theirs, name in ((*(state.get(name) for state in states), name) for name in names):
            if ours != theirs:
                found.append(f"{stage}: {name}" + (f": {ours} and {theirs}" if isinstance(name, int) else ""))
    return found


def summary(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def unfinished(folder, *stages, steps=1):
    """Remove the last checkpoints of stages, as if the run had been killed before it wrote them."""
    for stage in stages:
        for checkpoint in sorted((folder / stage).glob("step-*"))[-steps:]:
            shutil.rmtree(checkpoint)
    return folder


def beside(runs, name, *stages, source="whole"):
    """A new run's folder, in which some stages are finished as in another."""
    for stage in (*stages, "mel_stats.json"):
        found, made = runs.folder(source) / stage, runs.folder(name) / stage
        made.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(str(found), str(made)) if found.is_dir() else shutil.copy(str(found), str(made))
    return runs.folder(name)


def copy(runs, name, source="whole"):
    """A copy of a run's folder under another name."""
    shutil.copytree(str(runs.folder(source)), str(runs.folder(name)))
    return runs.folder(name)

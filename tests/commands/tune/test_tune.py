"""xtts tune: settings that are faster by more than the noise are chosen and explained; failed trials are contained."""

import json
import os
import signal
import sys
import time
import types
from pathlib import Path

import pytest
from run_processes import SUPPORT

from xtts.commands.tune.search import Search, TuneError, TuneUsageError
from xtts.commands.tune.settings import tuned_settings
from xtts.commands.tune.trial import TrialResult, Trials, explain_failure
from xtts.commands.tune.tune import check_out, tune, write_tuned
from xtts.progress import ProgressBar
from xtts.recipe import loading

# Like small_run.py, except that a large batch ends the process as the kernel's out-of-memory killer does.
KILLED = f"""
import os, re, signal, sys
rows = re.findall("--set=train.batch_size=([0-9]+)", " ".join(sys.argv))
if rows and int(rows[-1]) > 4:
    os.kill(os.getpid(), signal.SIGKILL)
sys.path.insert(0, {str(SUPPORT)!r})
import small_run
from xtts.commands import main as cli
small_run.SIZES["tiny"] = small_run.SMALLEST
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_trial_killed_for_memory_does_not_end_tuning(runs, tmp_path):
    """With six rows a batch the trial is killed and reported; the others are measured by real steps."""
    program = tmp_path / "program.py"
    program.write_text(KILLED, encoding="utf-8")
    recipe = Path(runs.root) / "recipe.toml"
    before, logged = sorted(path.name for path in (runs.root / "runs").iterdir()), []
    settings = [f"run.folder={runs.root / 'runs'}", f"data.train={runs.root / 'corpus'}", "train.steps=100000"]
    found = tune(
        recipe,
        settings=settings,
        minutes=60.0,
        seconds=0.3,
        only=["batch"],
        log=logged.append,
        program=[sys.executable, str(program)],
    )
    first, killed, half = found.rows[:3]
    assert killed.result.settings == {"train.batch_size": 6}
    assert killed.result.failure == "ended by signal 9 (SIGKILL); out of memory?"
    assert half.result.settings == {"train.batch_size": 1}
    for row in (first, half):
        assert row.result.failure is None
        assert row.result.frames_per_second > 0
        assert 0 <= row.result.wait <= 1
        assert row.result.traces == 3  # two shapes, and the weight update after two batches
        assert row.result.memory_mb > 100
    assert any("ended by signal 9" in line for line in logged)
    assert sorted(path.name for path in (runs.root / "runs").iterdir()) == before  # trials leave no folders
    json.dumps(found.as_json())
    write_tuned(recipe, tmp_path / "tuned.toml", found)
    assert loading.load_recipe(tmp_path / "tuned.toml").train.steps == loading.load_recipe(recipe).train.steps


@pytest.mark.parametrize("way", ["late", "interrupted"])
def test_an_aborted_trial_is_killed_and_its_folder_removed(tmp_path, way, monkeypatch):
    """This holds for a trial that exceeds its time and for Ctrl-C."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\nopen('draft', 'w').write(str(os.getpid()))\nos.rename('draft', 'pid')\n"
        "while True: time.sleep(1)\n"
    )
    program = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); exec(open('program.py').read())"]

    def interrupt():
        if way == "interrupted" and (tmp_path / "pid").exists():
            raise KeyboardInterrupt

    def clock():  # late as soon as the program runs, however long it takes to start
        return 1000.0 if way == "late" and (tmp_path / "pid").exists() else 0.0

    monkeypatch.setattr("xtts.commands.tune.trial.time", types.SimpleNamespace(monotonic=clock, sleep=time.sleep))
    trials = Trials(
        tmp_path / "x.toml",
        overrides=(),
        runs=tmp_path / "runs",
        name="x",
        stage="gpt",
        seconds=1.0,
        program=program,
        progress=interrupt,
    )
    if way == "late":
        assert trials({}, 2.0).failure == "not measured within 2 s"
    else:
        with pytest.raises(KeyboardInterrupt):
            trials({}, 60.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list((tmp_path / "runs").iterdir()) == []


# The search, on made-up figures


class Machine:
    """Trials whose figures are a function of their settings; `noise(n)` scales the n-th measurement."""

    def __init__(self, rate, noise=lambda number: 1.0, wait=0.0):
        self.rate, self.noise, self.wait, self.tried = rate, noise, wait, []

    def __call__(self, changes, patience):
        named = {".".join(key): value for key, value in changes.items()}
        self.tried.append(named)
        rate = self.rate(named)
        if isinstance(rate, str):
            return TrialResult(named, failure=rate)
        return TrialResult(named, rate * self.noise(len(self.tried)), self.wait, 1, 0.0, 1000.0, 100.0, None, 20)


def searched(tmp_path, machine, *names, minutes=10.0, text="# mine\n[train]\nbatch_size = 8  # rows\nsteps = 1000\n"):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    logged = []
    search = Search(path, [], minutes=minutes, bar=ProgressBar("tuning"), log=logged.append)
    search.measure_recipe(machine)
    for setting in tuned_settings("gpt"):
        if setting.name in names:
            search.tune(setting)
    return search, logged


def test_faster_settings_are_chosen_with_a_reason(tmp_path):
    """The batch size is doubled while that helps; the reason names failures and the effect on learning."""
    rates = {8: 100.0, 16: 130.0, 32: 150.0, 64: "ended by signal 9 (SIGKILL); out of memory?"}
    search, logged = searched(tmp_path, Machine(lambda named: rates[named.get("train.batch_size", 8)]), "batch")
    ((key, change),) = search.chosen().items()
    assert (key, change.value) == (("train", "batch_size"), 32)
    assert "train.batch_size = 8 before; 1.50 times as fast, 100 -> 150 frames/s." in change.why
    assert "train.batch_size = 64: ended by signal 9" in change.why
    assert "Effect on learning: a step sees another number of utterances" in change.why
    assert [line.split()[-1] for line in logged[2:]] == ["taken", "taken", "memory?"]


def test_noise_changes_nothing(tmp_path):
    """When all settings are equally fast and measurements vary by up to a fifth, nothing is changed."""
    drift = Machine(lambda named: 100.0, noise=lambda number: 1.2 if number % 2 else 1.0)
    search, _ = searched(tmp_path, drift, "batch", "precision")
    assert search.chosen() == {}
    rising = Machine(lambda named: 100.0, noise=lambda number: 1.0 + 0.1 * number)  # the machine speeds up
    search, _ = searched(tmp_path, rising, "batch", "precision")
    assert search.chosen() == {}


def test_the_best_is_measured_again_beside_each_candidate(tmp_path):
    """The best, a candidate, the candidate again if it looks faster, the best; a clearly slower one is not repeated."""
    machine = Machine(lambda named: 100.0 if named.get("train.batch_size", 8) == 8 else 98.0)
    searched(tmp_path, machine, "batch")
    assert machine.tried == [{}, {"train.batch_size": 16}, {}, {"train.batch_size": 4}, {}]
    machine = Machine(lambda named: 100.0 if named.get("train.batch_size", 8) != 16 else 120.0)
    searched(tmp_path, machine, "batch")
    assert machine.tried[:4] == [{}, {"train.batch_size": 16}, {"train.batch_size": 16}, {}]
    machine = Machine(lambda named: 100.0 if named.get("train.batch_size", 8) == 8 else 50.0)
    searched(tmp_path, machine, "batch")
    assert machine.tried == [{}, {"train.batch_size": 16}, {"train.batch_size": 4}]


def test_compilation_is_charged_to_the_length_of_the_run(tmp_path):
    """Frames per second are those of the whole run, including the time before its first step."""
    found = TrialResult({}, frames_per_second=200.0, trace_seconds=60.0)
    assert found.run_rate(frames=200.0 * 60) == 100.0
    assert found.run_rate(frames=200.0 * 60 * 99) == pytest.approx(198.0)


def test_readers_and_buffers_are_tried_only_if_the_model_waits(tmp_path):
    """If the model does not wait for data they are skipped, with a note."""
    machine = Machine(lambda named: 100.0)
    search, _ = searched(tmp_path, machine, "workers", "buffer")
    assert machine.tried == [{}]
    assert [note.split(":")[0] for note in search.notes] == ["workers", "buffer"]
    machine = Machine(lambda named: 100.0 + 50 * (named.get("devices.buffer_size") == "auto"), wait=0.3)
    search, _ = searched(tmp_path, machine, "buffer")
    assert search.chosen()[("devices", "buffer_size")].value == "auto"


def test_xla_is_tried_together_with_planned_shapes(tmp_path):
    """XLA does not support relaxed shapes, so both settings are tried and written together."""
    machine = Machine(lambda named: 100.0 + 50 * bool(named.get("train.jit_compile")))
    text = '[train]\nsteps = 1000\n[data]\nshapes = "relaxed"\n'
    search, _ = searched(tmp_path, machine, "xla", text=text)
    values = {".".join(key): change.value for key, change in search.chosen().items()}
    assert values == {"data.shapes": "planned", "train.jit_compile": True}


def test_running_out_of_time_is_reported(tmp_path):
    """Nothing more is tried, and a note names the unfinished setting."""
    machine = Machine(lambda named: 100.0)
    search, _ = searched(tmp_path, machine, "batch", "precision", minutes=0.0)
    assert machine.tried == [{}]
    assert "batch: not finished, the time was up" in search.notes


def test_a_recipe_that_cannot_run_cannot_be_tuned(tmp_path):
    """The error gives the reason why its own run fails."""
    with pytest.raises(TuneError, match=r"the recipe cannot be tried as it is: status 1: no such corpus"):
        searched(tmp_path, Machine(lambda named: "status 1: no such corpus"), "batch")


def test_only_the_requested_settings_are_tried(tmp_path):
    """`--only speed` leaves batch size and precision alone; unknown names are refused."""
    assert [one.name for one in tuned_settings("gpt") if one.changes_speed_only] == ["workers", "buffer", "xla"]
    (tmp_path / "x.toml").write_text("[train]\n")
    with pytest.raises(TuneError, match="--only batsh: unknown; write speed, or some of batch,"):
        tune(tmp_path / "x.toml", only=["batsh"])


def test_a_cluster_is_not_tuned(tmp_path):
    """A recipe with a cluster is refused, because its trials would wait for workers that nobody started."""
    path = tmp_path / "x.toml"
    for cluster in ('workers = ["10.0.0.1:8888", "10.0.0.2:8888"]', "slurm = true"):
        path.write_text(f"[cluster]\n{cluster}\n")
        with pytest.raises(TuneUsageError, match="a trial is one process; leave it out while tuning"):
            tune(path)


# Messages to the user


@pytest.mark.parametrize(
    ("status", "output", "words"),
    [
        (-signal.SIGKILL, "", "ended by signal 9 (SIGKILL); out of memory?"),
        (-signal.SIGTERM, "", "ended by signal 15 (SIGTERM)"),
        (1, "a\nnowhere: there is no such folder\n", "status 1: nowhere: there is no such folder"),
        (1, "ResourceExhaustedError: OOM when allocating", "status 1: out of memory: ResourceExhaustedError: OOM when"),
        (3, "", "status 3: no output"),
    ],
)
def test_the_reason_a_trial_ended_is_reported(status, output, words):
    """The reason is a signal's name or the last line of output."""
    assert explain_failure(status, output).startswith(words)


def test_existing_files_are_not_overwritten(tmp_path):
    """Neither the recipe nor an earlier result is overwritten, which is checked before any trial."""
    path = tmp_path / "mine.toml"
    path.write_text("[train]\n")
    with pytest.raises(TuneError, match="this exists already; name another file"):
        check_out(path)
    with pytest.raises(TuneError, match="there is no folder"):
        check_out(tmp_path / "none" / "x.toml")
    check_out(tmp_path / "tuned.toml")


def test_mistakes_are_refused_before_any_trial(xtts, tmp_path):
    """The command ends at once with a message and its status."""
    (tmp_path / "mine.toml").write_text("[train]\nsteps = 10\nwarmup_steps = 1\n")
    done = xtts("tune", "mine.toml", "-o", "mine.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("-o mine.toml: this exists already")
    assert xtts("tune", "mine.toml", "--minutes", "-1").returncode == 2

"""Clusters: members come from TF_CONFIG, a recipe or Slurm, and several workers train as one would."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from run_processes import SUPPORT, Runs, beside, differences, final, losses, make_corpus, summary

from xtts.recipe.schema import ClusterSection, DevicesSection, Recipe
from xtts.reporting.journal import Journal
from xtts.training.cluster import collectives, launch, membership
from xtts.training.cluster.membership import Cluster, ClusterError, resolve_cluster
from xtts.training.placement import WORKERS, place_devices

TWO = ("10.0.0.1:8888", "10.0.0.2:8888")
NEAR = 1e-4  # losses of the same batches on other replicas
CODEC = ('run.stages=["codec"]', "train.validate_every=0")
POSIX = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}


def config(jobs, kind="worker", index=0):
    """A TF_CONFIG."""
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})}


def test_a_process_without_a_cluster_trains_alone():
    """No workers, one worker, and an empty TF_CONFIG are the same."""
    assert resolve_cluster(ClusterSection(), {}) is None
    assert resolve_cluster(ClusterSection(), {"TF_CONFIG": "{}"}) is None
    assert resolve_cluster(ClusterSection(workers=("here:1",), index=0), {}) is None
    assert resolve_cluster(ClusterSection(), config({"worker": ["here:1"]})) is None


def test_tf_config_names_the_workers_and_overrides_the_recipe():
    """If it has a chief, that is worker 0."""
    found = resolve_cluster(ClusterSection(workers=("a:1", "b:2"), index=0), config({"worker": list(TWO)}, index=1))
    assert found == Cluster(TWO, 1, "TF_CONFIG")
    assert (found.is_chief, found.name(0)) == (False, "worker 0 (10.0.0.1:8888)")
    with_chief = {"chief": ["a:1"], "worker": ["b:2", "c:3"]}
    assert resolve_cluster(ClusterSection(), config(with_chief, index="1")) == Cluster(
        ("a:1", "b:2", "c:3"), 2, "TF_CONFIG"
    )
    assert resolve_cluster(ClusterSection(), config(with_chief, "chief")).is_chief


def test_a_recipe_names_the_workers_and_the_machine_finds_its_own():
    """`index` says which one this is; without it the host's name does."""
    assert resolve_cluster(ClusterSection(workers=TWO, index=1), {}) == Cluster(TWO, 1, "[cluster]")
    own = (TWO[0], f"{socket.gethostname()}:8888")
    assert resolve_cluster(ClusterSection(workers=own), {}).index == 1
    with pytest.raises(
        ClusterError, match=r"which of the 2 workers this one is cannot be derived .* --set cluster.index=0"
    ):
        resolve_cluster(ClusterSection(workers=TWO), {})


def test_slurm_starts_a_worker_per_task(monkeypatch):
    """TensorFlow's own resolver reads the variables of the job step; outside of one there is an error."""
    with pytest.raises(
        ClusterError, match=r"cluster.slurm: Slurm's variables do not name a step .* start the run with srun"
    ):
        resolve_cluster(ClusterSection(slurm=True), {})
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    addresses = ("node1:9000", "node1:9001", "node2:9000", "node2:9001")
    assert resolve_cluster(ClusterSection(slurm=True, port=9000), {}) == Cluster(addresses, 2, "Slurm")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TF_CONFIG": "{not JSON"}, r"TF_CONFIG: it is not the expected JSON; write it as \{\"cluster\""),
        ({"TF_CONFIG": "[1]"}, "TF_CONFIG: it is not the expected JSON"),
        ({"TF_CONFIG": '{"cluster": {}}'}, "TF_CONFIG: 'task' is missing"),
        (config({"worker": "a:1"}), "TF_CONFIG: addresses must be a list"),
        (config({"worker": list(TWO)}, index=2), "TF_CONFIG: there is no worker 2 among 2; count from 0"),
        (config({"worker": list(TWO)}, index="x"), "TF_CONFIG: 'x' is not a task index"),
        (config({"worker": list(TWO), "ps": ["c:3"]}), 'TF_CONFIG: "ps" tasks are not supported'),
        (config({"worker": list(TWO)}, "evaluator"), 'TF_CONFIG: "evaluator" tasks are not supported'),
        (config({"worker": ["a:1", "a:1"]}), "TF_CONFIG: a:1 is listed twice"),
        (config({"worker": ["a:1", "b"]}), 'TF_CONFIG: "b" is not an address; write host:port'),
    ],
)
def test_a_mistake_in_tf_config_is_reported(environment, message):
    """The message says what is wrong, where, and how to write it."""
    with pytest.raises(ClusterError, match=message) as refused:
        resolve_cluster(ClusterSection(), environment)
    assert refused.value.status == 2


def test_an_index_without_workers_is_refused():
    """The index suggests that a list of workers was meant."""
    with pytest.raises(ClusterError, match=r"cluster\.index = 1, but no workers are named"):
        resolve_cluster(ClusterSection(index=1), {})


def test_a_port_in_use_is_refused():
    """TensorFlow would share it, and workers would connect to the other program."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        here = Cluster((f"127.0.0.1:{other.getsockname()[1]}", TWO[1]), 0, "[cluster]")
        message = r"port \d+ cannot be opened here, .* name another port in \[cluster\]"
        with pytest.raises(ClusterError, match=message), membership.holding_port(here, seconds=0.0):
            pass
    assert not membership.is_reachable(here.addresses[0])
    with membership.holding_port(here, seconds=0.0):
        assert membership.is_reachable(here.addresses[0])


def test_a_missing_worker_is_named():
    """After the recipe's timeout the error names the worker."""
    here = Cluster(tuple(json.loads(launch.environments(2)[0]["TF_CONFIG"])["cluster"]["worker"]), 0, "TF_CONFIG")
    message = (
        r"worker 1 \(127\.0\.0\.1:\d+\) did not answer in 1 s; start it with the same recipe, check its address in"
    )
    with pytest.raises(collectives.CollectiveError, match=message):
        collectives.rendezvous(place_devices(DevicesSection(), cluster=here), 1.0, lambda line: None)


def test_a_worker_has_its_share_of_all_replicas():
    """A machine without GPUs is one replica, whatever its recipe says; the replicas of all workers are added."""
    placed = [
        place_devices(DevicesSection(multi_gpu=True), cluster=Cluster(TWO, index, "[cluster]")) for index in (0, 1)
    ]
    assert [(one.strategy, one.replicas, one.share) for one in placed] == [
        (WORKERS, 2, range(0, 1)),
        (WORKERS, 2, range(1, 2)),
    ]
    assert "in a cluster a worker without GPUs is one device: its model is not mirrored" in placed[0].reasons
    assert "this is worker 1 (10.0.0.2:8888) of 2, by [cluster]; replicas: 2" in placed[1].lines()


@POSIX
def test_a_worker_that_keeps_dying_ends_the_launch(tmp_path):
    """It is restarted up to the limit, each restart is logged, and no process is left."""
    logged = []
    die = [sys.executable, "-c", "import os, signal; print('here'); os.kill(os.getpid(), signal.SIGKILL)"]
    ended = launch.Launch(die, workers=2, folder=tmp_path, max_restarts=1, log=logged.append, is_quiet=True).run()
    assert (ended.status, max(ended.restarts)) == (1, 1)
    assert any("was killed by SIGKILL; restarting it" in line for line in logged)
    assert any("after 1 restart: the run ends here" in line for line in logged)


@POSIX
def test_a_worker_that_fails_with_an_error_ends_the_launch(tmp_path):
    """The launcher quotes its output, ends with its status, and stops the others."""
    logged = []
    program = (
        "import os, sys, time; 'index\": 1' in os.environ['TF_CONFIG'] and sys.exit('a mistake')\n"
        "while True: time.sleep(1)"
    )
    ended = launch.Launch(
        [sys.executable, "-c", program], workers=2, folder=tmp_path, max_restarts=5, log=logged.append, is_quiet=False
    ).run()
    assert ended.status == 1
    assert logged == ["worker 1 ended with status 1\n  a mistake"]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Runs with one corpus."""
    root = tmp_path_factory.mktemp("cluster")
    make_corpus(root / "corpus")
    return Runs(root)


def command(name, *settings):
    """The command that starts two workers."""
    flags = [f"--set={setting}" for setting in (f"run.name={name}", *settings)]
    return [sys.executable, str(SUPPORT / "small_run.py"), "cluster", "recipe.toml", "--workers", "2", *flags]


def together(runs, name, *settings):
    """Train with two workers to the end; gives their output."""
    done = subprocess.run(
        command(name, *settings),
        cwd=str(runs.root),
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def apart(runs, name, other, stage):
    return np.abs(np.subtract(losses(runs.folder(name), stage), losses(runs.folder(other), stage)))


@POSIX
def test_two_workers_train_as_one_with_two_replicas_does(many):
    """Batches, losses and weights are the same; only the chief writes files."""
    short = (*CODEC, "train.steps=4")
    output = together(many, "two", *short)
    assert "strategy: MultiWorkerMirroredStrategy" in output
    assert re.search(r"this is worker 0 \(127\.0\.0\.1:\d+\) of 2, by TF_CONFIG; replicas: 2", output)
    other = (many.folder("two") / "workers" / "worker-1.log").read_text(encoding="utf-8")
    assert "codec step 4/4" in other
    assert "listen to " not in other
    assert many.start("one", *short, "devices.multi_gpu=true").end().status == 0
    assert len(losses(many.folder("two"), "codec")) == 4
    assert apart(many, "two", "one", "codec").max() < NEAR
    assert summary(many.folder("two"))["frames"] == summary(many.folder("one"))["frames"]
    assert summary(many.folder("two"))["retraces_after_warmup"] == 0


@pytest.mark.long
@POSIX
def test_twenty_steps_of_two_workers_match_those_of_one(many):
    """Both stages match one worker with two replicas, and the GPT matches one replica with the whole batch."""
    together(many, "two-20")
    assert many.start("one-20", "devices.multi_gpu=true").end().status == 0
    for stage in ("codec", "gpt"):
        assert len(losses(many.folder("two-20"), stage)) == 20
        assert apart(many, "two-20", "one-20", stage).max() < NEAR
        checked = [
            [line["loss"] for line in Journal(many.folder(name)).validation(stage)] for name in ("two-20", "one-20")
        ]
        assert np.abs(np.subtract(*checked)).max() < NEAR
    fixed = (
        'run.stages=["gpt"]',
        "data.shapes=fixed",
        "data.max_text_length=12",
        "data.max_mel_frames=68",
        "train.dropout=0",
        "train.validate_every=0",
    )
    for name in ("two-fixed", "one-fixed"):
        beside(many, name, "codec", source="one-20")
    together(many, "two-fixed", *fixed)
    ended = many.start("one-fixed", *fixed, "train.batch_size=6").end()
    assert ended.status == 0, ended.output
    assert apart(many, "two-fixed", "one-fixed", "gpt").max() < NEAR


def victim(launcher, index):
    """The process of a worker that a launcher has started, or None."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher)], stdout=subprocess.PIPE, encoding="utf-8")
    for pid in map(int, listed.stdout.split()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                found = re.search(rb'"index": (\d+)', file.read())
        except OSError:
            continue
        if found and int(found.group(1)) == index:
            return pid
    return None


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_ten_kills_of_a_worker_at_random_steps_change_no_bit(many):
    """Either worker is killed at random steps; the weights equal those of two workers that ran undisturbed."""
    steps = (*CODEC, "train.steps=60", "train.save_every=2", "cluster.restarts=20")
    together(many, "unharmed", *steps)
    draw = random.Random(8)
    moments = sorted(draw.sample(range(2, 58), 10))
    log = many.root / "harmed.log"
    with log.open("wb") as file:
        launched = subprocess.Popen(
            command("harmed", *steps),
            cwd=str(many.root),
            env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])},
            stdout=file,
            stderr=file,
        )
    until = time.monotonic() + 7000
    killed = []
    try:
        while launched.poll() is None and time.monotonic() < until:
            lines = Journal(many.folder("harmed")).metrics("codec")
            if moments and lines and lines[-1]["step"] >= moments[0]:
                index = draw.randrange(2)
                pid = victim(launched.pid, index)
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    killed.append((moments.pop(0), index))
                    before = len(Journal(many.folder("harmed")).events("codec"))
                    while launched.poll() is None and time.monotonic() < until:  # until it has rejoined the others
                        if len(Journal(many.folder("harmed")).events("codec")) > before:
                            break
                        time.sleep(0.1)
            time.sleep(0.01)
    finally:
        launched.terminate()
        launched.wait()
    output = log.read_text(encoding="utf-8", errors="replace")
    assert launched.returncode == 0, output
    assert len(killed) == 10, (killed, output)
    assert output.count("was killed by SIGKILL; restarting it") == 10
    assert differences(many.folder("harmed"), many.folder("unharmed"), ["codec"]) == []
    assert final(many.folder("harmed"), "codec")


def test_contradictions_in_a_cluster_are_refused():
    """An address without a port, an index out of range and a repeated address are refused."""
    with pytest.raises(ValueError, match='"here" is not an address; write host:port'):
        Recipe(cluster=ClusterSection(workers=("here", "b:2")))
    with pytest.raises(ValueError, match="there is no worker 2 among 2; write 0 to 1"):
        Recipe(cluster=ClusterSection(workers=TWO, index=2))
    with pytest.raises(ValueError, match="is listed twice"):
        ClusterSection(workers=("a:1", "a:1"))

"""Settings and fixtures of all tests: quiet TensorFlow, no GPU, and no deadlines for hypothesis."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Training runs on one corpus; "whole" is uninterrupted."""
    from run_processes import Runs, make_corpus

    root = tmp_path_factory.mktemp("runs")
    make_corpus(root / "corpus")
    made = Runs(root)
    made.ended = made.run("whole")
    assert made.ended.status == 0, made.ended.output
    return made


@pytest.fixture(scope="session")
def relaxed(runs):
    """The settings of a run with relaxed shapes, live features and the codec of "whole"; "relaxed" is such a run."""
    from run_processes import beside

    settings = ("data.shapes=relaxed", "devices.data_gpu=0", "devices.model_gpu=1", "train.validate_every=0")
    beside(runs, "relaxed", "codec")
    ended = runs.start("relaxed", *settings).end()
    assert ended.status == 0, ended.output
    return settings


@pytest.fixture
def xtts(tmp_path):
    """Run a command in a temporary folder: `xtts("run", "x.toml")` gives the finished process."""

    def run(*arguments, cwd=tmp_path, env=None):
        return subprocess.run(
            [sys.executable, "-m", "xtts", *map(str, arguments)],
            cwd=str(cwd),
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            capture_output=True,
            text=True,
            encoding="utf-8",
        )

    return run

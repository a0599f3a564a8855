"""The gate itself: a branch that breaks a promise fails the benchmarks.

Two copies of this project are broken on purpose, by plausible edits: a function loses its signature, the prefetcher
sleeps. On each the benchmarks run as usual; the promise in question must be broken and the run must fail, while the
other promises are kept. That the tests pass without the edits is shown by the tests themselves.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import keep
import pytest
from promises import ATTEMPTS, BYTES, INSTRUCTIONS, BrokenPromise, Judge, at_least, at_most

ROOT = Path(__file__).parent.parent
COPIED = ("xtts", "benchmarks", "tests", "pyproject.toml")


class Branch(NamedTuple):
    """An edit, the test that detects it, and the expected lines of the table."""

    path: str
    before: str
    after: str
    test: str
    broken: str
    held: str


BRANCHES = {
    "a sleep in the feed": Branch(
        "xtts/pipeline/prefetcher.py",
        "        arrays = self._devices[device].finish(host_batch)\n",
        "        time.sleep(0.3)\n        arrays = self._devices[device].finish(host_batch)\n",
        "test_feed.py::test_the_model_does_not_wait_and_both_devices_work",
        "feed: share of time the model waits for data",
        "feed: traces after the start",
    ),
    "a shape left free": Branch(
        "xtts/pipeline/features.py",
        "tf.TensorSpec([None], tf.int32)] if dynamic_shapes else None",
        "tf.TensorSpec([None], tf.int32)] if False else None",
        "test_retrace.py::test_free_lengths_are_traced_once_on_both_devices",
        "retrace: traces after the start, relaxed, both devices",
        "",
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_broken_branch_fails(name: str, tmp_path: Path) -> None:
    """The run ends with a failure, and its table names the promise that was broken."""
    branch = BRANCHES[name]
    for part in COPIED:
        source = ROOT / part
        ignored = shutil.ignore_patterns("__pycache__", "golden", ".peers")
        shutil.copytree(source, tmp_path / part, ignore=ignored) if source.is_dir() else shutil.copy(source, tmp_path)
    edited = tmp_path / branch.path
    text = edited.read_text(encoding="utf-8")
    assert text.count(branch.before) == 1, f"{branch.path} is not as this test knows it"
    edited.write_text(text.replace(branch.before, branch.after), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", f"benchmarks/{branch.test}", "-p", "no:cacheprovider"],
        cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert ran.returncode == 1, ran.stdout
    lines = ran.stdout.splitlines()
    assert any(line.startswith(branch.broken) and "BROKEN" in line for line in lines), ran.stdout
    if branch.held:
        assert any(line.startswith(branch.held) and line.endswith("held") for line in lines), ran.stdout


def judge(before: float = 10.0, tensorflow: str = "2.21.0") -> Judge:
    return Judge({"tensorflow": "2.21.0", "promises": {"it": {"measured": before}}}, tensorflow)


def test_a_count_that_rises_is_broken_even_below_its_bar() -> None:
    """If the baseline is ten, ten or nine is accepted and eleven is not; bytes may grow somewhat."""
    assert judge().count("it", lambda: 10, at_most(20)) == 10
    with pytest.raises(BrokenPromise, match=r"it: 11; promised is at most 10, for it was 10"):
        judge().count("it", lambda: 11, at_most(20))
    assert judge().count("it", lambda: 11, at_most(20), BYTES) == 11
    with pytest.raises(BrokenPromise, match=r"it: 21; promised is at most 20"):
        judge(30).count("it", lambda: 21, at_most(20))


def test_instructions_are_compared_with_the_same_release_only() -> None:
    """Another TensorFlow release builds other graphs of the same step."""
    assert judge(tensorflow="2.4.4").count("it", lambda: 11, at_most(20), INSTRUCTIONS) == 11
    with pytest.raises(BrokenPromise):
        judge().count("it", lambda: 11, at_most(20), INSTRUCTIONS)


def test_a_ratio_has_some_attempts_and_a_margin() -> None:
    """Other load on the machine occasionally spoils a measurement, but not all of them."""
    figures = iter([1.0, 1.5, 8.0])
    assert judge().ratio("it", lambda: next(figures), at_least(2.0)) == 8.0
    asked = []
    with pytest.raises(BrokenPromise, match="promised is at least 5, for it was 10"):
        judge().ratio("it", lambda: asked.append(1) or 4.0, at_least(2.0))
    assert len(asked) == ATTEMPTS
    assert judge(0.001).ratio("it", lambda: 0.05, at_most(0.1), keeps=0.0) == 0.05
    one = judge()
    with pytest.raises(ZeroDivisionError):
        one.ratio("it", lambda: 1 / 0, at_least(2.0))
    assert not one.verdicts[0].is_held


def test_a_baseline_is_made_of_runs_that_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline has medians of ratios, worst counts, shortest times; a run with a broken promise is refused."""
    monkeypatch.setattr(keep, "BASELINE", tmp_path / "promises.json")
    monkeypatch.setattr(keep, "TIMES", tmp_path / "times.json")
    machine = {"cpu_model": "a processor", "cores": 2, "tensorflow": "2.21.0"}

    def run(number: int, ratio: float, count: float, seconds: float, held: bool = True) -> str:
        promises = [
            {"name": "fast", "kind": "ratio", "bar": "at least 1", "measured": ratio, "held": held},
            {"name": "traces", "kind": "count", "bar": "at most 9", "measured": count, "held": True},
        ]
        timed = [{"name": "test_it", "stats": {"min": seconds}}]
        content = {
            "promises": promises,
            "benchmarks": timed,
            "machine_info": machine,
            "datetime": "2026-11-17T21:00:00",
        }
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    assert keep.main([run(1, 2.0, 3, 0.5), run(2, 5.0, 1 / 0.3, 0.3), run(3, 3.0, 3, 0.4)]) == ""
    kept = json.loads((tmp_path / "promises.json").read_text())["promises"]
    assert {name: one["measured"] for name, one in kept.items()} == {"fast": 3.0, "traces": 1 / 0.3}
    times = json.loads((tmp_path / "times.json").read_text())
    assert times["a processor, 2 cores, TensorFlow 2.21.0"]["seconds"] == {"test_it": 0.3}
    assert keep.main([run(4, 9.0, 1, 0.1, held=False)]).endswith("a baseline is made of runs that hold their promises")
    assert json.loads((tmp_path / "promises.json").read_text())["promises"] == kept

"""Shared parts of the benchmarks: the judge of promises, the table of verdicts, and facts about the machine.

pytest-benchmark saves times and counts as JSON (`--benchmark-autosave`, `--benchmark-json=FILE`); the processor, the
TensorFlow release and every verdict are added to the same file. Times are for people: they are shown beside earlier
ones of the same processor and release, in `baselines/times.json`, and never judged.
"""

import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from machine import machine, machine_key
from promises import TIMES, Judge, read_baseline, table

JUDGE = pytest.StashKey[Judge]()
PATIENCE = 1800  # seconds
HEADS = ("promise", "bar", "before", "measured", "")


def pytest_configure(config: Any) -> None:
    config.stash[JUDGE] = Judge(read_baseline(), machine()["tensorflow"])


def pytest_collection_modifyitems(items: Any) -> None:
    """Set a long timeout, so that a busy machine does not fail a benchmark: a promise is broken by its figure alone."""
    for item in items:
        if Path(__file__).parent in Path(str(item.path)).parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture
def promise(request: Any) -> Any:
    """The judge; its figures in a test are saved with the times of that test's benchmark."""
    judge: Judge = request.config.stash[JUDGE]
    benchmark = request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    count = len(judge.verdicts)
    yield judge
    if benchmark is not None:
        benchmark.extra_info.update({one.name: one.measured for one in judge.verdicts[count:]})


def pytest_benchmark_update_machine_info(config: Any, machine_info: Dict[str, Any]) -> None:
    machine_info.update(machine())


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: Dict[str, Any]) -> None:
    output_json["promises"] = [
        {
            "name": one.name,
            "kind": one.kind,
            "bar": f"{one.bar.sense} {one.bar.value}",
            "measured": one.measured,
            "held": one.is_held,
            "attempts": one.attempts,
        }
        for one in config.stash[JUDGE].verdicts
    ]


@pytest.hookimpl(trylast=True)  # printed last, where it is read
def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    verdicts = config.stash[JUDGE].verdicts
    if not verdicts:
        return
    broken = sum(not one.is_held for one in verdicts)
    terminalreporter.section(f"{len(verdicts)} promises, {broken} broken; {machine_key(machine())}")
    for line in table([one.cells() for one in verdicts], HEADS):
        terminalreporter.write_line(line)
    _show_times(terminalreporter, config)


def _show_times(terminalreporter: Any, config: Any) -> None:
    """The shortest times beside earlier ones of the same machine; nothing on a machine that has none."""
    before = json.loads(TIMES.read_text(encoding="utf-8")).get(machine_key(machine()), {}) if TIMES.exists() else {}
    session = getattr(config, "_benchmarksession", None)
    times = {one.name: one.stats.min for one in (session.benchmarks if session else []) if one.stats.data}
    rows = [(name, f"{before['seconds'][name]:.4g} s", f"{now:.4g} s") for name, now in times.items()
            if name in before.get("seconds", {})]  # fmt: skip
    if rows:
        terminalreporter.section(f"shortest times on this machine, for people; before is of {before['date']}")
        for line in table(rows, ("benchmark", "before", "now")):
            terminalreporter.write_line(line)

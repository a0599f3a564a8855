"""Promise: help, the schema and a mistake in a recipe are answered at once.

Each is at most 6 times as long as a Python that does nothing, measured in turns in one run.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

AT_MOST = 6.0  # times `python -c pass`
ROUNDS = 21
ROOT = Path(__file__).parent.parent

COMMANDS = {
    "help": (0, ["--help"]),
    "schema": (0, ["schema"]),
    "mistake in a recipe": (2, ["run", str(ROOT / "tests" / "recipes_bad" / "everything_at_once.toml")]),
    "mistake in the syntax": (2, ["run", str(ROOT / "tests" / "recipes_bad" / "syntax.toml")]),
    "missing recipe": (2, ["run", "recipes/dual_gup.toml"]),
}


def seconds(*command):
    started = time.perf_counter()
    status = subprocess.run([sys.executable, *command], cwd=str(ROOT), capture_output=True).returncode
    return time.perf_counter() - started, status


@pytest.mark.parametrize("name", COMMANDS)
def test_answers_come_at_once(name, benchmark):
    """The median over rounds of the ratio to `python -c pass`, the two run one after the other."""
    expected, arguments = COMMANDS[name]
    ratios = []

    def turn():
        nothing, _ = seconds("-c", "pass")
        answer, status = seconds("-m", "xtts", *arguments)
        assert status == expected
        ratios.append(answer / nothing)

    benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=2)
    ratio = statistics.median(ratios[2:])
    benchmark.extra_info["times python -c pass"] = round(ratio, 2)
    print(f"\n{name}: {ratio:.2f} times python -c pass (at most {AT_MOST})")
    assert ratio <= AT_MOST

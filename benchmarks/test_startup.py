"""Promise: --help, the schema and a mistake in a recipe are shown at once, and the doctor adds little to TensorFlow.

Processor time of the command over that of a Python that does nothing, or that imports TensorFlow, measured in turns.
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from promises import at_most

OVER_NOTHING = at_most(6.0)  # times `python -c pass`
OVER_TENSORFLOW = at_most(2.5)  # times `python -c "import tensorflow"`
KEEPS = 0.3  # of a baseline: the time of an empty Python depends on how packages are installed
ROUNDS = 9
ROOT = Path(__file__).parent.parent

COMMANDS = {
    "--help": (0, ["--help"]),
    "schema": (0, ["schema"]),
    "a mistake in a recipe": (2, ["run", str(ROOT / "tests" / "recipes_bad" / "everything_at_once.toml")]),
    "a mistake in the syntax": (2, ["run", str(ROOT / "tests" / "recipes_bad" / "syntax.toml")]),
    "a missing recipe": (2, ["run", "recipes/dual_gup.toml"]),
}


def worked(*command):
    """Processor seconds of a program and its child processes, and its exit status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run([sys.executable, *command], cwd=str(ROOT), capture_output=True).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, status


def over(yardstick, arguments, expected, rounds):
    """The median over rounds of the ratio, the two run one after the other."""
    ratios = []
    for _ in range(rounds):
        nothing, _ = worked("-c", yardstick)
        answer, status = worked("-m", "xtts", *arguments)
        assert status == expected
        ratios.append(answer / nothing)
    return statistics.median(ratios)


@pytest.mark.parametrize("name", COMMANDS)
def test_answers_come_at_once(name, promise, benchmark):
    """Commands that should answer at once import no more than they need."""
    expected, arguments = COMMANDS[name]
    benchmark.pedantic(worked, ("-m", "xtts", *arguments), rounds=2, warmup_rounds=1)
    measure = lambda: over("pass", arguments, expected, ROUNDS)  # noqa: E731
    promise.ratio(f"startup: {name} over python -c pass", measure, OVER_NOTHING, KEEPS)


def test_the_doctor_adds_little_to_tensorflow(promise, benchmark):
    """Trying devices and a compiled function takes little time beside the import."""
    nothing, _ = worked("-c", "import tensorflow")
    first = [benchmark.pedantic(worked, ("-m", "xtts", "doctor"), rounds=1)]
    assert first[0][1] == 0

    def measured():
        return first.pop()[0] / nothing if first else over("import tensorflow", ["doctor"], 0, 1)

    promise.ratio("startup: doctor over importing TensorFlow", measured, OVER_TENSORFLOW)

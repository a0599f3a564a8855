"""TensorFlow's own messages are hidden while it starts, and shown when that fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = """
[run]
stages = ["codec"]
[data]
train = "corpus"
"""
CHATTER = b"E0000 failed call to cuInit\n"
# As TensorFlow does: C++ code writes to file descriptor 2 at import and when it looks for devices.
FAKE = f"""
import os
import sys
os.write(2, {CHATTER!r})
class config:
    def list_physical_devices():
        os.write(2, b"Cannot dlopen some GPU libraries\\n")
"""
START = """
import os, sys
from xtts.commands.start_tensorflow import start_tensorflow
from xtts.errors import XttsError
print("before", file=sys.stderr)
try:
    start_tensorflow(verbose="--verbose" in sys.argv)
except XttsError as error:
    sys.exit(str(error))
print("after", file=sys.stderr, flush=True)  # as from the command line, which makes it line-buffered
os.write(2, b"later\\n")
"""


@pytest.fixture
def start(tmp_path):
    """The finished process that started TensorFlow: `fake` as its module, or the installed one."""

    def run(*arguments, fake=None, **environment):
        if fake is not None:
            (tmp_path / "tensorflow.py").write_text(fake)
        inherited = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-c", START, *arguments],
            env={**inherited, "PYTHONPATH": path, "TMPDIR": str(tmp_path), **environment},
            cwd=str(tmp_path),
            capture_output=True,
            text=True,
        )

    return run


def test_what_tensorflow_prints_while_starting_is_hidden(start, tmp_path):
    """Output before and after the start is shown in order, and no temporary file is left."""
    done = start(fake=FAKE)
    assert (done.returncode, done.stderr) == (0, "before\nafter\nlater\n")
    assert not list(tmp_path.glob("xtts-*"))


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--verbose"], {}), ([], {"TF_CPP_MIN_LOG_LEVEL": "0"})], ids=["flag", "variable"]
)
def test_what_tensorflow_prints_is_shown_on_request(start, arguments, environment):
    """--verbose and TensorFlow's own environment variable show all of it in the original order."""
    done = start(*arguments, fake=FAKE, **environment)
    assert done.stderr.splitlines() == [
        "before",
        "E0000 failed call to cuInit",
        "Cannot dlopen some GPU libraries",
        "after",
        "later",
    ]


def test_a_failed_import_shows_what_tensorflow_printed(start):
    """TensorFlow's own lines come first, then our advice."""
    done = start(fake=f"import os\nos.write(2, {CHATTER!r})\nraise ImportError('libcudart is missing')")
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[:2] == ["before", "E0000 failed call to cuInit"]
    assert lines[2].startswith("TensorFlow cannot be imported (ImportError: libcudart is missing); run `xtts doctor`")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals are POSIX's")
@pytest.mark.parametrize("death", ["os.abort()", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_a_crash_shows_what_tensorflow_printed(start, tmp_path, death):
    """Hidden output is not lost, however the process ends."""
    done = start(fake=f"import os\nos.write(2, {CHATTER!r})\n{death}")
    assert done.returncode != 0
    assert "E0000 failed call to cuInit\n" in done.stderr
    assert not list(tmp_path.glob("xtts-*"))


def test_the_installed_tensorflow_starts_silently(start):
    """Nothing is printed without TF_CPP_MIN_LOG_LEVEL, on this release and machine."""
    done = start()
    assert (done.returncode, done.stderr) == (0, "before\nafter\nlater\n")


def test_the_first_line_of_a_run_is_ours(tmp_path):
    """Standard output and error begin with our message; with --verbose TensorFlow's lines come first."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    outputs = []
    for more in ([], ["--verbose"]):
        done = subprocess.run(
            [sys.executable, "-m", "xtts", "run", "recipe.toml", "--train-data", "nowhere", *more],
            cwd=str(tmp_path),
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 1
        outputs.append(done.stdout)
    assert outputs[0].startswith("nowhere: ")
    assert outputs[0].count("\n") == 1
    assert outputs[1].endswith(outputs[0])

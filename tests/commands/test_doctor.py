"""xtts doctor: trials of what works on this machine, and diagnosis of what does not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xtts.commands import doctor

ROOT = Path(__file__).parents[2]


def test_doctor_finds_this_machine_ready(xtts):
    """On a machine that can run these tests doctor runs every trial and reports it ready to train."""
    done = xtts("doctor", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert findings["ready"]
    trials = findings["tensorflow"]["trials"]
    assert trials["two logical devices"] == {"works": True, "detail": "an op placed on /CPU:1 ran there"}
    assert trials["compiled function"]["works"]
    assert trials["XLA"]["works"]
    assert trials["trace count"]["detail"].endswith("x: dimension 0 was 2, now 3")
    assert findings["tensorflow"]["logical"][:2] == ["/CPU:0", "/CPU:1"]
    assert findings["tensorflow"]["names"]["set_logical_devices"] == "tf.config.set_logical_device_configuration"
    assert findings["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_doctor_prints_a_readable_page(xtts):
    """The page names the chosen API, the trials and the verdict."""
    page = xtts("doctor").stdout
    assert "tf.config.set_logical_device_configuration" in page
    assert re.search(r"two logical devices +works", page)
    assert page.rstrip().endswith("Ready to train.")


def test_doctor_says_how_to_install_a_missing_tensorflow(tmp_path):
    """Without TensorFlow, doctor ends with status 1 and prints the installation command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = subprocess.run([str(python), "-m", "xtts", "doctor"], cwd=str(ROOT), capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "tensorflow is not installed" in done.stdout
    assert "-m pip install tensorflow" in done.stdout
    assert "attrs, cattrs, soundfile" in done.stdout


def test_a_tensorflow_that_crashes_is_reported(xtts, tmp_path):
    """A crash with an illegal instruction is reported with its cause (no AVX), without a traceback."""
    (tmp_path / "tensorflow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    done = xtts("doctor", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert done.returncode == 1
    assert "AVX" in done.stdout


@pytest.mark.parametrize(
    ("error", "declared", "requirement", "words"),
    [
        ("TypeError: Descriptors cannot be created directly.", ">=3.9.2", "protobuf>=3.9.2,<3.21", "too new"),
        ("TypeError: Descriptors cannot be created directly.", "<3.20,>=3.9.2", "protobuf<3.20,>=3.9.2", "too new"),
        (
            "ImportError: cannot import name 'runtime_version' from 'google.protobuf'",
            ">=5.28",
            "protobuf>=5.28",
            "too old",
        ),
        ("ImportError: numpy.core.umath failed to import", ">=1.23.5", "numpy>=1.23.5,<2", "too new"),
        ("TypeError: Unable to convert\n_pywrap_bfloat16.TF_bfloat16_type()", ">=1.20", "numpy>=1.20,<2", "too new"),
        ("AttributeError: module 'numpy' has no attribute 'object'.", "~=1.19.2", "numpy~=1.19.2", "too new"),
        ("cannot import name 'Self' from 'typing_extensions'", ">=3.6.6", "typing-extensions>=3.6.6,>=4.1", "too old"),
        ("cannot import name 'dtensor' from 'tensorflow.compat.v2'", "~=2.6", "keras~=2.6", "another TensorFlow"),
        ("ModuleNotFoundError: No module named 'opt_einsum'", "", "opt_einsum", "not installed"),
    ],
)
def test_a_conflicting_package_is_named(monkeypatch, error, declared, requirement, words):
    """A failed import is attributed to a package, with the version TensorFlow requires or fails to declare."""
    monkeypatch.setattr(doctor, "_declared", lambda package: declared)
    sentence, wanted = doctor.diagnose(error)
    assert wanted == requirement
    assert words in sentence


def test_doctor_checks_every_declared_dependency():
    """Every dependency in pyproject.toml is checked by doctor, too."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split("[<>=!;]", line)[0].strip() for line in project["dependencies"]} - {"tensorflow", "tomli"}
    assert required == {re.split("[<>=!]", requirement)[0] for requirement in doctor.PARTS.values()}
    assert {extra for _, extra in doctor.OPTIONAL.values()} <= set(project["optional-dependencies"])

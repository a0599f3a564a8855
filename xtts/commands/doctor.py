"""`xtts doctor`: what this machine offers, whether training could run, and what to install if not.

TensorFlow is tried in a process of its own (`xtts.compat.probe`), so that a TensorFlow that cannot be imported, or that
crashes, is a finding and does not end the command.
"""

import json
import os
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from xtts.commands.command import Command, add_json_flag, print_json

Findings = Dict[str, Any]

PARTS = {  # module: the requirement that brings it, as in pyproject.toml
    "numpy": "numpy",
    "scipy": "scipy",
    "attrs": "attrs>=22.2",
    "cattrs": "cattrs>=22.2,!=23.1.0,!=23.1.1",
    "soundfile": "soundfile",
    "jinja2": "jinja2",
    "psutil": "psutil",
    "tomlkit": "tomlkit",
    "tqdm": "tqdm",
}
OPTIONAL = {  # module: what it is for, and the extra that brings it
    "espeakng_loader": ("the demo corpus", "demo"),
    "tokenizers": ("the vocabulary of XTTS-v2", "bpe"),
    "tensorboard": ("curves in TensorBoard", "tensorboard"),
}


class Neighbour(NamedTuple):
    """A package whose installed version keeps TensorFlow from being imported."""

    package: str
    pattern: str  # a regular expression that finds it in the traceback
    requirement: str  # versions that work, in addition to what TensorFlow itself declares
    why: str


NEIGHBOURS = (
    Neighbour("protobuf", r"Descriptors cannot be created directly", "<3.21", "too new for this TensorFlow"),
    Neighbour(
        "protobuf",
        r"from 'google\.protobuf|No module named 'google\.protobuf|Gencode/Runtime",
        "",
        "too old for this TensorFlow",
    ),
    Neighbour(
        "numpy",
        r"numpy\.core\.\w+ failed to import|_ARRAY_API not found|compiled using NumPy 1|TF_bfloat16_type",
        "<2",
        "too new for this TensorFlow, which was built against numpy 1",
    ),
    Neighbour("numpy", r"module 'numpy' has no attribute", "<1.24", "too new for this TensorFlow"),
    Neighbour("typing-extensions", r"from 'typing_extensions'", ">=4.1", "too old for its neighbours"),
    Neighbour("keras", r"cannot import name 'dtensor'|site-packages/keras/", "", "made for another TensorFlow"),
)


def doctor(*, as_json: bool) -> int:
    """Examine this machine, and print what was found."""
    findings = examine()
    if as_json:
        print_json(findings)
    else:
        print(as_text(findings))
    return 0 if findings["ready"] else 1


def examine() -> Findings:
    """Look at Python, TensorFlow, devices and packages, and try what training needs."""
    import platform

    tensorflow, tensorflow_advice = _examine_tensorflow()
    parts, parts_advice = _examine_parts()
    advice = [*tensorflow_advice, *parts_advice]
    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(terse=True),
            "machine": platform.machine(),
            "executable": sys.executable,
        },
        "tensorflow": tensorflow,
        "parts": parts,
        "optional": {module: version_of(module) for module in OPTIONAL},
        "advice": advice,
        "ready": not advice,
    }


def as_text(findings: Findings) -> str:
    """The findings as a page to read."""
    python, tensorflow = findings["python"], findings["tensorflow"]
    lines = [
        _row("Python", f"{python['version']}, {python['implementation']} on {python['platform']}, {python['machine']}"),
    ]
    if tensorflow["imports"]:
        lines += _tensorflow_lines(tensorflow)
    else:
        lines += [_row("TensorFlow", f"{tensorflow['version'] or 'not installed'}: it cannot be imported")]
        lines += [_row("", tensorflow["error"])] if tensorflow["error"] else []
    lines += ["", "Parts"]
    lines += [_row(f"  {name}", version or "MISSING") for name, version in findings["parts"].items()]
    lines += ["", "Optional parts"]
    for module, version in findings["optional"].items():
        purpose, extra = OPTIONAL[module]
        lines.append(_row(f"  {module}", version or f'absent; for {purpose}: pip install "xtts[{extra}]"'))
    lines += ["", "Ready to train." if findings["ready"] else "Not ready to train:"]
    lines += [f"  - {sentence}" for sentence in findings["advice"]]
    return "\n".join(lines)


def version_of(module: str) -> Optional[str]:
    """The installed version of the package that brings a module; None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(module.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return None


def diagnose(error: str) -> Tuple[str, str]:
    """Why an import of TensorFlow failed, in a sentence, and the requirement to install."""
    for neighbour in NEIGHBOURS:
        if re.search(neighbour.pattern, error):
            installed = version_of(neighbour.package) or "(absent)"
            requirement = _requirement(neighbour)
            return f"{neighbour.package} {installed} is {neighbour.why}; it needs {requirement}", requirement
    missing = re.search(r"No module named '([\w.]+)'", error)
    if missing:
        package = missing.group(1).split(".")[0]
        return f"{package} is not installed", package
    return "TensorFlow cannot be imported; reinstalling it may help", "--force-reinstall tensorflow"


def _examine_tensorflow() -> Tuple[Findings, List[str]]:
    import signal
    import subprocess

    name, installed = _distribution()
    finding: Findings = {"distribution": name, "version": installed, "imports": False, "error": None}
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    probe = subprocess.run([sys.executable, "-m", "xtts.compat.probe"], capture_output=True, env=environment)
    error = probe.stderr.decode(errors="replace").strip()
    if probe.returncode == 0:
        finding.update(json.loads(probe.stdout.decode().splitlines()[-1]), imports=True)
        failed = [name for name, trial in finding["trials"].items() if not trial["works"] and name != "XLA"]
        return finding, [f"{name} does not work: {finding['trials'][name]['detail']}" for name in failed]
    if probe.returncode < 0:
        death = signal.Signals(-probe.returncode).name
        finding["error"] = f"the process was killed by {death}"
        reason = "this processor lacks instructions (AVX) it was built with" if death == "SIGILL" else death
        return finding, [f"TensorFlow crashes while it is imported: {reason}; install another build of it"]
    lines = error.splitlines() or ["no message"]
    finding["error"] = ([line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines)[-1]
    sentence, requirement = diagnose(error)
    return finding, [f"{sentence}: {_pip(requirement)}"]


def _examine_parts() -> Tuple[Dict[str, Optional[str]], List[str]]:
    """The version of each package that training needs, and what to do about those that cannot be imported."""
    import subprocess

    parts = {module: version_of(module) for module in PARTS}
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n  print(name, flush=True)\n  importlib.import_module(name)"
    )
    absent = [PARTS[module] for module, version in parts.items() if version is None]
    advice = [f"{_listed(absent)} absent: {_pip(*absent)}"] if absent else []
    untried = [module for module, version in parts.items() if version is not None]
    while untried:
        trial = subprocess.run([sys.executable, "-c", script, *untried], capture_output=True)
        if trial.returncode == 0:
            break
        module = trial.stdout.decode().split()[-1]
        untried = untried[untried.index(module) + 1 :]
        error = (trial.stderr.decode(errors="replace").strip() or "it crashed").splitlines()[-1]
        advice.append(f"{module} {parts[module]} cannot be imported ({error}): {_pip(PARTS[module])}")
    return parts, advice


def _listed(requirements: List[str]) -> str:
    names = [re.split("[<>=!]", requirement)[0] for requirement in requirements]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _pip(*requirements: str) -> str:
    """The command that installs these beside this Python."""
    quoted = " ".join(f'"{text}"' if re.search("[<>=!]", text) else text for text in requirements)
    return f"{sys.executable} -m pip install {quoted}"


def _distribution() -> Tuple[Optional[str], Optional[str]]:
    """The installed distribution that provides TensorFlow, and its version."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-macos", "tf-nightly"):
        if version_of(name):
            return name, version_of(name)
    return None, None


def _requirement(neighbour: Neighbour) -> str:
    """The versions that TensorFlow works with: those it declares and, where these are too lax, ours."""
    declared = _declared(neighbour.package)
    has_upper = re.search(r"(<|==|~=)", declared)
    is_enough = has_upper or not neighbour.requirement
    specifiers = [declared] if is_enough else [declared, neighbour.requirement]
    return neighbour.package + ",".join(filter(None, specifiers))


def _declared(package: str) -> str:
    """The versions of a package that the installed TensorFlow declares, such as ">=3.9.2"; may be empty."""
    from importlib import metadata

    name, _ = _distribution()
    for requirement in (metadata.requires(name) or []) if name else []:
        found = re.match(rf"{package}\b\s*\(?([^;)]*)\)?\s*(;|$)", requirement.replace("_", "-"))
        if found and "extra" not in requirement:
            return found.group(1).replace(" ", "")
    return ""


def _tensorflow_lines(tensorflow: Findings) -> List[str]:
    lines = [_row("TensorFlow", f"{tensorflow['version']}, from {tensorflow['distribution'] or 'an unnamed build'}")]
    lines += ["", "Names compat chose"]
    lines += [_row(f"  {what.replace('_', ' ')}", name or "none") for what, name in tensorflow["names"].items()]
    lines += ["", "Devices"]
    lines += [_row("  physical", ", ".join(tensorflow["physical"]))]
    lines += [_row("  logical", ", ".join(tensorflow["logical"]) + "  (as the trials set them)")]
    if not any("GPU" in device for device in tensorflow["physical"]):
        lines += [_row("", "no GPU: logical CPU devices stand in for GPUs")]
    lines += ["", "Tried here"]
    for name, trial in tensorflow["trials"].items():
        lines.append(_row(f"  {name}", f"{'works' if trial['works'] else 'FAILS'}: {trial['detail']}"))
    return lines


def _row(label: str, value: str) -> str:
    return f"{label:<23}{value}"


COMMAND = Command(
    "doctor", "Print what this machine offers, and whether training could run on it.", add_json_flag, doctor
)

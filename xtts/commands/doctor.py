"""What this machine offers: nothing comes in; Python, TensorFlow, devices, trials and advice go out.

TensorFlow is tried in a process of its own (`xtts.compat.probe`), so that one which cannot be imported, or which takes
its process down, is a finding and not the end of the examination.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from importlib import metadata
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

Findings = Dict[str, Any]

PARTS = {  # module: the requirement that brings it, as in pyproject.toml
    "numpy": "numpy",
    "scipy": "scipy",
    "attrs": "attrs>=22.2",
    "cattrs": "cattrs>=22.2,!=23.1.0,!=23.1.1",
    "soundfile": "soundfile",
    "safetensors": "safetensors",
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
    """A package that keeps TensorFlow from being imported: how that shows, and the versions that would do."""

    package: str
    shows: str  # a regular expression on the traceback
    wanted: str  # beside what TensorFlow itself declares, which may be too little
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


def examine() -> Findings:
    """Look at everything, and try what can be tried."""
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
    """The installed version of the package that brings a module; None where there is none."""
    try:
        return metadata.version(module.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return None


def diagnose(error: str) -> Tuple[str, str]:
    """What a failed import of TensorFlow comes from, in a sentence, and the command that mends it."""
    for neighbour in NEIGHBOURS:
        if re.search(neighbour.shows, error):
            installed = version_of(neighbour.package) or "(absent)"
            wanted = _wanted(neighbour)
            return f"{neighbour.package} {installed} is {neighbour.why}; {wanted} would do", wanted
    missing = re.search(r"No module named '([\w.]+)'", error)
    if missing:
        package = missing.group(1).split(".")[0]
        return f"{package} is not installed", package
    return "TensorFlow cannot be imported; reinstalling it may mend that", "--force-reinstall tensorflow"


def _examine_tensorflow() -> Tuple[Findings, List[str]]:
    name, installed = _distribution()
    finding: Findings = {"distribution": name, "version": installed, "imports": False, "error": None}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    probe = subprocess.run([sys.executable, "-m", "xtts.compat.probe"], capture_output=True, env=quiet)
    error = probe.stderr.decode(errors="replace").strip()
    if probe.returncode == 0:
        finding.update(json.loads(probe.stdout.decode().splitlines()[-1]), imports=True)
        failed = [name for name, trial in finding["trials"].items() if not trial["works"] and name != "XLA"]
        return finding, [f"{name} does not work: {finding['trials'][name]['detail']}" for name in failed]
    if probe.returncode < 0:
        death = signal.Signals(-probe.returncode).name
        finding["error"] = f"the process died of {death}"
        reason = "this processor lacks instructions (AVX) it was built with" if death == "SIGILL" else death
        return finding, [f"TensorFlow dies while it is imported: {reason}; install another build of it"]
    lines = error.splitlines() or ["no message"]
    finding["error"] = ([line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines)[-1]
    sentence, requirement = diagnose(error)
    return finding, [f"{sentence}: {_pip(requirement)}"]


def _examine_parts() -> Tuple[Dict[str, Optional[str]], List[str]]:
    """The version of each package that training needs, and what to do about those that do not import."""
    parts = {module: version_of(module) for module in PARTS}
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n  print(name, flush=True)\n  importlib.import_module(name)"
    )
    absent = [PARTS[module] for module, version in parts.items() if version is None]
    advice = [f"{_listed(absent)} absent: {_pip(*absent)}"] if absent else []
    waiting = [module for module, version in parts.items() if version is not None]
    while waiting:
        trial = subprocess.run([sys.executable, "-c", script, *waiting], capture_output=True)
        if trial.returncode == 0:
            break
        module = trial.stdout.decode().split()[-1]
        waiting = waiting[waiting.index(module) + 1 :]
        error = (trial.stderr.decode(errors="replace").strip() or "it took its process down").splitlines()[-1]
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


def _wanted(neighbour: Neighbour) -> str:
    """A requirement that TensorFlow can live with: what it declares, and what it forgot to."""
    declared = _declared(neighbour.package)
    has_upper = re.search(r"(<|==|~=)", declared)
    specifiers = [declared] if has_upper or not neighbour.wanted else [declared, neighbour.wanted]
    return neighbour.package + ",".join(filter(None, specifiers))


def _declared(package: str) -> str:
    """What the installed TensorFlow says it needs of a package, such as ">=3.9.2"; empty where it says nothing."""
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
        lines += [_row("", "no GPU: logical CPU devices will take the places of GPUs")]
    lines += ["", "Tried here"]
    for name, trial in tensorflow["trials"].items():
        lines.append(_row(f"  {name}", f"{'works' if trial['works'] else 'FAILS'}: {trial['detail']}"))
    return lines


def _row(label: str, value: str) -> str:
    return f"{label:<23}{value}"

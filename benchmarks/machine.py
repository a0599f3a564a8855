"""The machine that figures were measured on: its processor, cores and TensorFlow."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Dict, Mapping


def machine() -> Dict[str, Any]:
    """The facts about this machine that are saved with figures."""
    return {"cpu_model": _processor(), "cores": os.cpu_count(), "tensorflow": tensorflow_release()}


def machine_key(found: Mapping[str, Any]) -> str:
    """The key under which times are kept: times are comparable only for the same processor and release."""
    return f"{found['cpu_model']}, {found['cores']} cores, TensorFlow {found['tensorflow']}"


def tensorflow_release() -> str:
    """The installed release, from package metadata: importing TensorFlow would start it."""
    for package in ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or a processor without a name
        return platform.processor() or platform.machine()

"""Detects a GPU without TensorFlow.

`xtts plan` and `xtts tune` must work where TensorFlow is not installed, and be fast where it is, so they look for the
driver instead. `xtts run` does not use this module: it places its devices before it plans, so it knows what TensorFlow
can really use (a TensorFlow built for CPUs sees no GPU, whatever the machine has). With TensorFlow use
`compat.has_gpu`.
"""

import os
import shutil
from pathlib import Path


def has_gpu_driver() -> bool:
    """Whether the driver of a GPU is installed and CUDA_VISIBLE_DEVICES does not hide every GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return shutil.which("nvidia-smi") is not None or Path("/dev/kfd").exists()  # NVIDIA's driver, or AMD's

"""Two GPUs, each with a memory limit of its own: GPU numbers and limits come in, an `Isolation` goes out.

One GPU makes features, the other trains, and neither can take the memory the other was promised.
"""

import subprocess
import warnings
from typing import Any, Dict, List, NamedTuple, Optional

from xtts.compat.devices import DeviceError, before_start, logical, physical_devices
from xtts.compat.offered import OFFERED, Offered


class Isolation(NamedTuple):
    """What was done, and the names by which ops are placed now: only these two GPUs are visible, numbered anew."""

    api: str  # the name TensorFlow has it under
    data_device: str
    model_device: str
    limited: bool  # whether the limits hold; memory growth holds none

    def __str__(self) -> str:
        limits = "each with its memory limit" if self.limited else "growing as they need, without limits"
        return f"data on {self.data_device}, model on {self.model_device}, {limits} ({self.api})"


def isolate_memory(
    data_gpu: int,
    model_gpu: int,
    data_gpu_memory_limit: int = 8192,
    model_gpu_memory_limit: int = 16384,
    offered: Offered = OFFERED,
) -> Isolation:
    """Limit the memory (in MB) of a data GPU and a model GPU, and hide all the others.

    The GPUs are numbered as the machine has them. The limits are set by the stable API, or its deprecated alias where
    there is no other; a TensorFlow with neither gets memory growth, and a warning.
    """
    gpus = physical_devices("GPU", offered)
    limits = {data_gpu: data_gpu_memory_limit, model_gpu: model_gpu_memory_limit}
    _check(gpus, data_gpu, model_gpu, data_gpu_memory_limit, model_gpu_memory_limit, offered)

    with before_start("isolating the memory of two GPUs"):
        offered.set_visible([gpus[number] for number in sorted(limits)], "GPU")
        if offered.set_logical_devices and offered.logical_device:
            choice = offered.set_logical_devices
            for number, limit in sorted(limits.items()):
                choice(gpus[number], [logical(limit, offered)])
        else:
            choice = offered.set_memory_growth
            for number in sorted(limits):
                choice(gpus[number], True)
            warnings.warn(
                f"TensorFlow {offered.version} has no logical devices, so memory limits cannot be set: both GPUs now "
                "take memory as they need it. Install TensorFlow 2.4 or newer to have the limits.",
                RuntimeWarning,
                stacklevel=2,
            )
    first, second = ("/GPU:0", "/GPU:1") if data_gpu < model_gpu else ("/GPU:1", "/GPU:0")
    return Isolation(str(choice.name), first, second, choice is offered.set_logical_devices)


def card_memory() -> Dict[str, int]:
    """The memory in MB of each kind of card, by the name the driver gives it; empty where there is no driver."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    sizes: Dict[str, int] = {}
    for line in answer.stdout.decode(errors="replace").splitlines():
        name, _, size = line.rpartition(",")
        if size.strip().isdigit():
            sizes[name.strip()] = max(int(size), sizes.get(name.strip(), 0))
    return sizes


def _check(gpus: List[Any], data_gpu: int, model_gpu: int, data_limit: int, model_limit: int, offered: Offered) -> None:
    if len(gpus) < 2:
        have = "one GPU" if gpus else "no GPU"
        raise DeviceError(
            f"isolating memory needs two GPUs, and TensorFlow sees {have}: train on one device (leave out data_gpu), "
            "or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    if data_gpu == model_gpu:
        raise DeviceError(f"data_gpu and model_gpu are both GPU {data_gpu}: name two different ones")
    sizes = card_memory()
    for role, number, limit in (("data_gpu", data_gpu, data_limit), ("model_gpu", model_gpu, model_limit)):
        if not 0 <= number < len(gpus):
            raise DeviceError(f"{role} = {number}, but this machine has GPU 0 to {len(gpus) - 1}: name one of these")
        if limit < 1:
            raise DeviceError(f"{role}_memory_limit = {limit}: write the limit in MB, such as 8192")
        size = sizes.get(_card_name(gpus[number], offered) or "")
        if size and limit > size:
            raise DeviceError(f"{role}_memory_limit = {limit} MB, but GPU {number} has {size} MB: write at most {size}")


def _card_name(gpu: Any, offered: Offered) -> Optional[str]:
    if not offered.device_details:
        return None
    name: Optional[str] = offered.device_details(gpu).get("device_name")
    return name

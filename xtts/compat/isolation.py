"""Memory limits for GPUs with two roles: some compute features, others train.

Neither role can take memory that is reserved for the other.
"""

import subprocess
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from xtts.compat.devices import DeviceError, before_start, logical, physical_devices
from xtts.compat.offered import OFFERED, Offered

Gpus = Union[int, Sequence[int]]  # one, or several
Names = Union[str, Tuple[str, ...]]  # one name where one GPU was asked for, otherwise several


class Isolation(NamedTuple):
    """The result: the setting that was used, and the names of the devices, which are renumbered."""

    api: str  # the name TensorFlow has it under
    data_device: Names
    model_device: Names
    limited: bool  # whether the limits are enforced; memory growth enforces none

    @property
    def data_devices(self) -> Tuple[str, ...]:
        return (self.data_device,) if isinstance(self.data_device, str) else self.data_device

    @property
    def model_devices(self) -> Tuple[str, ...]:
        return (self.model_device,) if isinstance(self.model_device, str) else self.model_device

    def __str__(self) -> str:
        limits = "each with its memory limit" if self.limited else "growing as they need, without limits"
        data, model = ", ".join(self.data_devices), ", ".join(self.model_devices)
        return f"data on {data}, model on {model}, {limits} ({self.api})"


def isolate_memory(
    data_gpu: Gpus,
    model_gpu: Gpus,
    data_gpu_memory_limit: int = 8192,
    model_gpu_memory_limit: int = 16384,
    offered: Offered = OFFERED,
) -> Isolation:
    """Limit the memory (in MB) of one or more data GPUs and model GPUs, and hide all others.

    GPU numbers are the machine's. Limits are set by the stable API, or by its deprecated alias where there is no other;
    a TensorFlow with neither gets memory growth and a warning.
    """
    gpus = physical_devices("GPU", offered)
    roles = {"data_gpu": (_several(data_gpu), data_gpu_memory_limit)}
    roles["model_gpu"] = _several(model_gpu), model_gpu_memory_limit
    _check(gpus, roles, offered)
    limits = {number: limit for numbers, limit in roles.values() for number in numbers}

    with before_start(f"isolating the memory of {_counted(len(limits))} GPUs"):
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
                f"TensorFlow {offered.version} has no logical devices, so memory limits cannot be set: the GPUs now "
                "take memory as they need it. Install TensorFlow 2.4 or newer to have the limits.",
                RuntimeWarning,
                stacklevel=2,
            )
    names = {number: f"/GPU:{place}" for place, number in enumerate(sorted(limits))}
    data, model = (
        names[asked] if isinstance(asked, int) else tuple(names[number] for number in asked)
        for asked in (data_gpu, model_gpu)
    )
    return Isolation(str(choice.name), data, model, choice is offered.set_logical_devices)


def card_memory() -> Dict[str, int]:
    """The memory in MB of each model of card, by the driver's name for it; empty where there is no driver."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    sizes: Dict[str, int] = {}
    for line in answer.stdout.decode(errors="replace").splitlines():
        name, _, size = line.rpartition(",")
        if size.strip().isdigit():
            sizes[name.strip()] = max(int(size), sizes.get(name.strip(), 0))
    return sizes


def _check(gpus: List[Any], roles: Dict[str, Tuple[List[int], int]], offered: Offered) -> None:
    named = [number for numbers, _ in roles.values() for number in numbers]
    if len(gpus) < max(2, len(set(named))):
        raise DeviceError(
            f"isolating memory needs {_counted(max(2, len(set(named))))} GPUs, and TensorFlow sees"
            f" {_counted(len(gpus))} GPU{'s' * (len(gpus) > 1)}: train on one device (leave out data_gpu), "
            "or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    for role, (numbers, _) in roles.items():
        if not numbers:
            raise DeviceError(f"{role} names no GPU: name at least one")
    twice = [number for place, number in enumerate(named) if number in named[:place]]
    if twice and len(named) == 2:
        raise DeviceError(f"data_gpu and model_gpu are both GPU {twice[0]}: name two different ones")
    if twice:
        raise DeviceError(f"GPU {twice[0]} is named twice in data_gpu and model_gpu: name each GPU once")
    sizes = card_memory()
    each = [(role, number, limit) for role, (numbers, limit) in roles.items() for number in numbers]
    for role, number, limit in each:
        if not 0 <= number < len(gpus):
            raise DeviceError(f"{role} = {number}, but this machine has GPU 0 to {len(gpus) - 1}: name one of these")
        if limit < 1:
            raise DeviceError(f"{role}_memory_limit = {limit}: write the limit in MB, such as 8192")
        size = sizes.get(_card_name(gpus[number], offered) or "")
        if size and limit > size:
            raise DeviceError(f"{role}_memory_limit = {limit} MB, but GPU {number} has {size} MB: write at most {size}")


def _several(gpus: Gpus) -> List[int]:
    return [gpus] if isinstance(gpus, int) else list(gpus)


def _counted(count: int) -> str:
    return {0: "no", 1: "one", 2: "two"}.get(count, str(count))


def _card_name(gpu: Any, offered: Offered) -> Optional[str]:
    if not offered.device_details:
        return None
    name: Optional[str] = offered.device_details(gpu).get("device_name")
    return name

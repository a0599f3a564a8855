"""Configuring TensorFlow's devices: memory limits, logical devices, visibility, determinism.

All of it must happen before TensorFlow starts, which it does at the first tensor. A call that comes too late, or asks
for something that is not available, raises a `DeviceError`.
"""

import contextlib
import os
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

from xtts.compat.offered import OFFERED, Offered


class DeviceError(RuntimeError):
    """A device or a setting of it that is not available; the message says why and what to do."""


class TooLateError(DeviceError):
    """TensorFlow has started, and its devices can no longer be configured."""


class Memory(NamedTuple):
    """Bytes that TensorFlow has allocated on a device."""

    current: int
    peak: Optional[int]  # None: this release does not record it


def physical_devices(kind: str = "GPU", offered: Offered = OFFERED) -> List[Any]:
    """The devices of a kind that the machine has, in the machine's order."""
    return list(offered.list_physical(kind))


def has_gpu(offered: Offered = OFFERED) -> bool:
    """Whether TensorFlow sees a GPU."""
    return bool(physical_devices("GPU", offered))


def logical_devices(kind: str = "GPU", offered: Offered = OFFERED) -> List[str]:
    """The names, such as "/GPU:0", of the devices that ops can be placed on. This call starts TensorFlow."""
    return [f"/{kind}:{number}" for number in range(len(offered.list_logical(kind)))]


def split(kind: str, number: int, memory_limits: Sequence[Optional[int]], offered: Offered = OFFERED) -> List[str]:
    """Split a device into logical ones, one for each limit (in MB; None for no limit).

    `split("CPU", 0, [None, None])` gives a machine without GPUs two devices.
    """
    device = _nth(kind, number, offered)
    if kind == "CPU" and any(limit is not None for limit in memory_limits):
        raise DeviceError("memory limits are for GPUs; on a CPU write None for each")
    if not offered.set_logical_devices:
        raise DeviceError(f"TensorFlow {offered.version} has no logical devices; install 2.4 or newer")
    with before_start(f"splitting {kind} {number}"):
        offered.set_logical_devices(device, [logical(limit, offered) for limit in memory_limits])
    return [f"/{kind}:{place}" for place in range(len(memory_limits))]


def set_memory_growth(kind: str = "GPU", numbers: Optional[Sequence[int]] = None, offered: Offered = OFFERED) -> None:
    """Let devices (by default all of a kind) allocate memory as they need it, and not all of it at the start."""
    devices = physical_devices(kind, offered) if numbers is None else [_nth(kind, n, offered) for n in numbers]
    if kind == "CPU":
        raise DeviceError("memory growth is for GPUs; a CPU's memory always grows as needed")
    with before_start("setting memory growth"):
        for device in devices:
            offered.set_memory_growth(device, True)


def set_visible(kind: str, numbers: Sequence[int], offered: Offered = OFFERED) -> None:
    """Make only these devices visible. TensorFlow renumbers them in the machine's order, not in the order given."""
    devices = [_nth(kind, number, offered) for number in sorted(numbers)]
    with before_start(f"choosing visible {kind}s"):
        offered.set_visible(devices, kind)


def memory_info(device: str = "GPU:0", offered: Offered = OFFERED) -> Optional[Memory]:
    """The memory in use on a device; None if TensorFlow does not know, as on most CPUs."""
    if not offered.memory_info:
        return None
    try:
        info = offered.memory_info(device.lstrip("/"))
    except (ValueError, RuntimeError):  # "not found", or an allocator without statistics
        return None
    return Memory(info["current"], info["peak"]) if isinstance(info, dict) else Memory(info, None)


def enable_determinism(seed: int, offered: Offered = OFFERED) -> str:
    """Seed TensorFlow and make its ops deterministic; returns the name of the setting that was used."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    if offered.op_determinism:
        offered.op_determinism()
        return str(offered.op_determinism.name)
    os.environ["TF_DETERMINISTIC_OPS"] = "1"
    return "TF_DETERMINISTIC_OPS=1"


def logical(memory_limit: Optional[int], offered: Offered = OFFERED) -> Any:
    """The configuration of one logical device, with a limit in MB or without."""
    return offered.logical_device() if memory_limit is None else offered.logical_device(memory_limit=memory_limit)


@contextlib.contextmanager
def before_start(what: str) -> Iterator[None]:
    """Turn TensorFlow's RuntimeError about initialised devices into a TooLateError that says what to do."""
    try:
        yield
    except RuntimeError as error:
        raise TooLateError(
            f"{what} came too late: TensorFlow has already started. Do it before the first tensor, dataset or model "
            f"is made. (TensorFlow says: {error})"
        ) from error


def _nth(kind: str, number: int, offered: Offered) -> Any:
    devices = physical_devices(kind, offered)
    if not 0 <= number < len(devices):
        have = f"{kind} 0 to {len(devices) - 1}" if devices else f"no {kind}"
        raise DeviceError(f"there is no {kind} {number}: TensorFlow sees {have}")
    return devices[number]

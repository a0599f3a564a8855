"""Devices: kinds ("CPU", "GPU") and numbers come in; TensorFlow is configured, and device names go out.

All of it must happen before TensorFlow starts, which it does at the first tensor. What comes too late, or cannot be
had, is a `DeviceError` that says so.
"""

import contextlib
import os
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

from xtts.compat.offered import OFFERED, Offered


class DeviceError(RuntimeError):
    """A device, or a way to use it, that cannot be had; the message says why and what to do."""


class TooLateError(DeviceError):
    """TensorFlow has started, and its devices can no longer be changed."""


class Memory(NamedTuple):
    """Bytes that TensorFlow's allocator has handed out on a device."""

    current: int
    peak: Optional[int]  # older releases do not keep it


def physical_devices(kind: str = "GPU", offered: Offered = OFFERED) -> List[Any]:
    """The devices of a kind that the machine has, in the machine's order."""
    return list(offered.list_physical(kind))


def has_gpu(offered: Offered = OFFERED) -> bool:
    """Whether TensorFlow sees a GPU."""
    return bool(physical_devices("GPU", offered))


def logical_devices(kind: str = "GPU", offered: Offered = OFFERED) -> List[str]:
    """The names, such as "/GPU:0", of the devices ops can be placed on. Asking starts TensorFlow."""
    return [f"/{kind}:{number}" for number in range(len(offered.list_logical(kind)))]


def split(kind: str, number: int, memory_limits: Sequence[Optional[int]], offered: Offered = OFFERED) -> List[str]:
    """Make one device several: as many logical ones as there are limits (in MB; None for no limit).

    `split("CPU", 0, [None, None])` is how a machine without GPUs gets two devices.
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
    """Let these devices (all of the kind by default) take memory as they need it, and not all at the start."""
    devices = physical_devices(kind, offered) if numbers is None else [_nth(kind, n, offered) for n in numbers]
    if kind == "CPU":
        raise DeviceError("memory growth is for GPUs; a CPU's memory always grows as needed")
    with before_start("setting memory growth"):
        for device in devices:
            offered.set_memory_growth(device, True)


def set_visible(kind: str, numbers: Sequence[int], offered: Offered = OFFERED) -> None:
    """Let TensorFlow see only these devices. It numbers them anew, in the machine's order and not in this one."""
    devices = [_nth(kind, number, offered) for number in sorted(numbers)]
    with before_start(f"choosing visible {kind}s"):
        offered.set_visible(devices, kind)


def memory_info(device: str = "GPU:0", offered: Offered = OFFERED) -> Optional[Memory]:
    """What is in use on a device; None where TensorFlow does not know, as of most CPUs."""
    if not offered.memory_info:
        return None
    try:
        info = offered.memory_info(device.lstrip("/"))
    except (ValueError, RuntimeError):  # "not found", or an allocator without statistics
        return None
    return Memory(info["current"], info["peak"]) if isinstance(info, dict) else Memory(info, None)


def enable_determinism(seed: int, offered: Offered = OFFERED) -> str:
    """Seed TensorFlow and have its ops give the same result each time; says by which name that was had."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    if offered.op_determinism:
        offered.op_determinism()
        return str(offered.op_determinism.name)
    os.environ["TF_DETERMINISTIC_OPS"] = "1"
    return "TF_DETERMINISTIC_OPS=1"


def logical(memory_limit: Optional[int], offered: Offered = OFFERED) -> Any:
    """One logical device, with a limit in MB or without."""
    return offered.logical_device() if memory_limit is None else offered.logical_device(memory_limit=memory_limit)


@contextlib.contextmanager
def before_start(what: str) -> Iterator[None]:
    """Turn TensorFlow's RuntimeError about devices in use into a sentence that says what to do."""
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

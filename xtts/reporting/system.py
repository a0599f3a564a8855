"""Gauges of the machine's memory and GPU utilisation, and a watch for memory leaks.

A gauge returns a number, or None if it cannot be measured. GPU utilisation needs the package `pynvml`.
"""

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from xtts.planning.summary import MEGABYTE

Gauge = Callable[[], Optional[float]]

LEAK = 1.0  # MB a step; faster growth fills the memory in any long run
LEAK_STEPS = 200  # steps over which memory must have grown
LEAK_SHARE = 0.2  # of the memory at the start
MAX_READINGS = 256  # kept; beyond that every second one is dropped
CHECK_EVERY = 32  # readings: computing the slope takes a moment


def gauges(device: Optional[str] = None, gpu: Optional[int] = None) -> Dict[str, Gauge]:
    """The gauges of a run: of this process, and of the GPU named `device` by TensorFlow and numbered `gpu` by the
    machine.
    """
    found: Dict[str, Gauge] = {"memory_mb": resident_mb}
    if device and "GPU" in device.upper():
        found["gpu_memory_mb"] = lambda: allocated_mb(str(device))
    if gpu is not None and nvml() is not None:
        found["gpu_busy"] = lambda: busy_share(int(gpu))
    return found


def resident_mb() -> Optional[float]:
    """The resident memory of this process."""
    import psutil

    try:
        return float(psutil.Process().memory_info().rss) / MEGABYTE
    except (psutil.Error, OSError):
        return None


def allocated_mb(device: str) -> Optional[float]:
    """The memory that TensorFlow has allocated on a GPU."""
    from xtts import compat

    memory = compat.memory_info(device)
    return None if memory is None else memory.current / MEGABYTE


def nvml() -> Any:
    """NVIDIA's management library, initialised; None without the package or the driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the package, its library and the driver each raise their own errors
        return None
    return pynvml


def busy_share(gpu: int) -> Optional[float]:
    """The share of NVML's last sampling period in which a GPU was busy; `gpu` counts in CUDA_VISIBLE_DEVICES."""
    library = nvml()
    if library is None:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    try:
        number = int(visible[gpu]) if len(visible) > gpu and visible[gpu].isdigit() else gpu
        handle = library.nvmlDeviceGetHandleByIndex(number)
        return float(library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except Exception:  # NVMLError, for example of a GPU in MIG mode, or one that has fallen off the bus
        return None


class LeakWatch:
    """Warns once when the memory of the process grows without end."""

    def __init__(self) -> None:
        self.readings: List[Tuple[int, float]] = []  # step, MB
        self.warned = False
        self._every = 1  # readings of which one is kept
        self._count = 0

    def __call__(self, step: int, memory_mb: Optional[float]) -> Optional[str]:
        """Note the memory after a step; returns a warning the first time that it has grown too fast."""
        if memory_mb is None or self.warned:
            return None
        self._count += 1
        if self._count % self._every == 0:
            self.readings.append((step, memory_mb))
        if len(self.readings) > MAX_READINGS:
            self.readings, self._every = self.readings[::2], 2 * self._every
        if self._count % CHECK_EVERY:
            return None
        rate = self.rate()
        if rate is None:
            return None
        self.warned = True
        return (
            f"memory grows by {rate:.1f} MB a step, from {self.readings[0][1]:,.0f} to {memory_mb:,.0f} MB so far:"
            " something keeps a reference to every step. If it is not code of your own, lower devices.buffer_size, and"
            " start the run again when memory runs short: it resumes where it was"
        )

    def rate(self) -> Optional[float]:
        """MB a step, if the growth is a leak: steep, long, large, and not levelling off."""
        steps, memory = np.array(self.readings, float).reshape(-1, 2).T
        if not len(steps) or steps[-1] - steps[0] < LEAK_STEPS:
            return None
        half = len(steps) // 2
        if memory[half:].min() < memory[:half].min() * (1 + LEAK_SHARE):  # it fluctuates, or hardly grows
            return None
        rate = min(slope(steps, memory), slope(steps[half:], memory[half:]))
        return rate if rate > LEAK else None


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The median slope between all pairs of points (Theil-Sen), which a few outliers do not move."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    slopes = (y[second] - y[first])[run != 0] / run[run != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0

"""Gauges of a machine: device names come in, functions that read memory and utilisation go out, and a watch for leaks.

A gauge gives a number, or None where the machine does not tell. None of them needs a package: NVML is asked when
`pynvml` is installed.
"""

import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from xtts.planning.summary import MEGABYTE

Gauge = Callable[[], Optional[float]]

LEAK = 1.0  # MB a step; what grows faster ends every long run
LEAK_STEPS = 200  # over which it must have grown
LEAK_SHARE = 0.2  # of the memory at the start
MOST_READINGS = 256  # kept; when there are more, every second one is forgotten
LOOK = 32  # readings between two looks: the slope takes a moment


def gauges(device: Optional[str] = None, gpu: Optional[int] = None) -> Dict[str, Gauge]:
    """The gauges of a run: of the process, and of the GPU that TensorFlow calls `device` and the machine `gpu`."""
    found: Dict[str, Gauge] = {"memory_mb": resident_mb}
    if device and "GPU" in device.upper():
        found["gpu_memory_mb"] = lambda: allocated_mb(str(device))
    if gpu is not None and nvml() is not None:
        found["gpu_busy"] = lambda: busy_share(int(gpu))
    return found


def resident_mb() -> Optional[float]:
    """The memory of this process that is in RAM; where the system does not tell, the most it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
    except (OSError, AttributeError):  # not Linux
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MEGABYTE if sys.platform == "darwin" else peak / 1024


def allocated_mb(device: str) -> Optional[float]:
    """What TensorFlow has handed out on a GPU."""
    from xtts import compat

    memory = compat.memory_info(device)
    return None if memory is None else memory.current / MEGABYTE


def nvml() -> Any:
    """NVIDIA's management library, started; None without the package or the driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the package, its library and the driver each have errors of their own
        return None
    return pynvml


def busy_share(gpu: int) -> Optional[float]:
    """The share of the last moment in which a GPU computed; `gpu` as CUDA_VISIBLE_DEVICES numbers it."""
    library = nvml()
    if library is None:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    try:
        number = int(visible[gpu]) if len(visible) > gpu and visible[gpu].isdigit() else gpu
        handle = library.nvmlDeviceGetHandleByIndex(number)
        return float(library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except Exception:  # NVMLError: a GPU in MIG mode, or one that has fallen off the bus
        return None


class LeakWatch:
    """Told the memory at each step, it says once that it grows without end."""

    def __init__(self) -> None:
        self.readings: List[Tuple[int, float]] = []  # step, MB
        self.warned = False
        self._every = 1
        self._told = 0

    def __call__(self, step: int, memory_mb: Optional[float]) -> Optional[str]:
        """The warning, when there is one to give."""
        if memory_mb is None or self.warned:
            return None
        self._told += 1
        if self._told % self._every == 0:
            self.readings.append((step, memory_mb))
        if len(self.readings) > MOST_READINGS:
            self.readings, self._every = self.readings[::2], 2 * self._every
        if self._told % LOOK:
            return None
        rate = self.rate()
        if rate is None:
            return None
        self.warned = True
        return (
            f"memory grows by {rate:.1f} MB a step, from {self.readings[0][1]:,.0f} to {memory_mb:,.0f} MB so far: what"
            " is kept from each step must be let go. If it is none of your own code, lower devices.buffer_size, and"
            " start the run again when memory runs short: it goes on where it was"
        )

    def rate(self) -> Optional[float]:
        """MB a step, if the growth is a leak: steep, long, large, and not levelling off."""
        steps, memory = np.array(self.readings, float).reshape(-1, 2).T
        if not len(steps) or steps[-1] - steps[0] < LEAK_STEPS:
            return None
        half = len(steps) // 2
        if memory[half:].min() < memory[:half].min() * (1 + LEAK_SHARE):  # it comes and goes, or hardly grows
            return None
        rate = min(slope(steps, memory), slope(steps[half:], memory[half:]))
        return rate if rate > LEAK else None


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen), which no few outliers move."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    slopes = (y[second] - y[first])[run != 0] / run[run != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0

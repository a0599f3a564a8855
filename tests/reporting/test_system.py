"""Gauges of the machine, and the detection of memory leaks."""

import sys
import types

import numpy as np
import pytest

from xtts.reporting import system
from xtts.reporting.system import LeakWatch, slope


def leak_of(memory_of_step, steps):
    watch = LeakWatch()
    return [text for step in range(1, steps + 1) for text in [watch(step, memory_of_step(step))] if text]


def test_steadily_growing_memory_is_reported_once():
    """Two MB a step, with noise and a few jumps, is a leak; the warning has the rate and the remedy."""
    noise = np.random.RandomState(0).normal(0, 30, 2001)
    (sentence,) = leak_of(lambda step: 1000 + 2 * step + noise[step] + (500 if step % 90 == 0 else 0), 2000)
    assert "memory grows by 2.0 MB a step" in sentence or "memory grows by 1.9 MB a step" in sentence
    assert "devices.buffer_size" in sentence


@pytest.mark.parametrize(
    "memory_of_step",
    [
        lambda step: 1000.0,
        lambda step: 1000 + 0.5 * step,  # slow growth
        lambda step: 9000 + 1.5 * min(step, 1000),  # little of so much
        lambda step: 1000 + 5 * min(step, 150),  # caches fill up
        lambda step: 1000 + 800 * (step > 300),  # one large allocation
        lambda step: 1000 + (step % 200) * 5,  # allocated and freed
        lambda step: None,
    ],
)
def test_memory_without_a_leak_is_not_reported(memory_of_step):
    """Caches, sawtooth patterns, jumps, slow growth and missing readings give no warning."""
    assert leak_of(memory_of_step, 1200) == []


def test_a_leak_is_not_reported_after_a_few_steps():
    """Memory always grows at first."""
    assert leak_of(lambda step: 1000 + 50 * step, 190) == []


def test_process_memory_includes_new_allocations():
    """Fifty megabytes that are written to are counted."""
    before = system.resident_mb()
    held = np.ones(50 * 2**20, np.uint8)
    assert system.resident_mb() - before > 40
    assert held.all()


def test_a_gpu_is_read_through_nvml(monkeypatch):
    """NVML's percentage becomes a share, and the GPU is the one that CUDA_VISIBLE_DEVICES names."""
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=lambda number: types.SimpleNamespace(gpu=10 * number),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    found = system.gauges("/GPU:1", gpu=1)
    assert found["gpu_busy"]() == pytest.approx(0.7)
    assert system.busy_share(9) == pytest.approx(0.9)
    assert set(found) == {"memory_mb", "gpu_memory_mb", "gpu_busy"}


def test_without_nvml_or_a_gpu_there_is_one_gauge(monkeypatch):
    """Missing gauges are absent, not zero; a failing NVML is treated as missing."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert set(system.gauges("/CPU:1", gpu=0)) == {"memory_mb"}
    assert system.busy_share(0) is None

    def fail():
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(nvmlInit=fail))
    assert set(system.gauges(gpu=0)) == {"memory_mb"}


def test_the_slope_is_robust_against_outliers():
    """A fourth of wild readings does not change it; points with equal x have slope 0."""
    x = np.arange(30.0)
    y = 3 * x
    y[::4] += 1e6
    assert slope(x, y) == pytest.approx(3)
    assert slope(np.ones(5), np.arange(5.0)) == 0

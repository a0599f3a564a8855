"""Gauges of the machine, and the watch for memory leaks."""

import sys
import types

import numpy as np
import pytest

from xtts.reporting import system
from xtts.reporting.system import LeakWatch, slope


def leak_of(memory_of_step, steps):
    watch = LeakWatch()
    return [text for step in range(1, steps + 1) for text in [watch(step, memory_of_step(step))] if text]


def test_memory_that_grows_steadily_is_said_once():
    """Two MB a step, with noise and a few jumps, is a leak; the sentence has the rate and what to do."""
    noise = np.random.RandomState(0).normal(0, 30, 2001)
    (sentence,) = leak_of(lambda step: 1000 + 2 * step + noise[step] + (500 if step % 90 == 0 else 0), 2000)
    assert "memory grows by 2.0 MB a step" in sentence or "memory grows by 1.9 MB a step" in sentence
    assert "devices.buffer_size" in sentence


@pytest.mark.parametrize(
    "memory_of_step",
    [
        lambda step: 1000.0,
        lambda step: 1000 + 0.5 * step,  # slow
        lambda step: 9000 + 1.5 * min(step, 1000),  # little, of so much
        lambda step: 1000 + 5 * min(step, 150),  # caches fill, then no more
        lambda step: 1000 + 800 * (step > 300),  # one large thing
        lambda step: 1000 + (step % 200) * 5,  # comes and goes
        lambda step: None,
    ],
)
def test_memory_that_does_not_leak_is_not_mentioned(memory_of_step):
    """Caches, saw teeth, jumps, slow growth and machines that do not tell give no warning."""
    assert leak_of(memory_of_step, 1200) == []


def test_a_few_steps_are_too_few_to_tell_a_leak():
    """Everything grows at first."""
    assert leak_of(lambda step: 1000 + 50 * step, 190) == []


def test_the_memory_of_the_process_grows_with_what_it_holds():
    """Fifty megabytes that are written to are seen."""
    before = system.resident_mb()
    held = np.ones(50 * 2**20, np.uint8)
    assert system.resident_mb() - before > 40
    assert held.all()


def test_a_gpu_is_read_through_nvml_when_it_is_there(monkeypatch):
    """NVML's per cent are a share, and the GPU is the one that CUDA_VISIBLE_DEVICES names."""
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
    """What the machine does not have is absent, and not zero; an NVML that fails is as good as none."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert set(system.gauges("/CPU:1", gpu=0)) == {"memory_mb"}
    assert system.busy_share(0) is None

    def fail():
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(nvmlInit=fail))
    assert set(system.gauges(gpu=0)) == {"memory_mb"}


def test_the_slope_is_not_moved_by_a_few_outliers():
    """A third of wild readings leave it where it was; points without an extent have none."""
    x = np.arange(30.0)
    y = 3 * x
    y[::4] += 1e6
    assert slope(x, y) == pytest.approx(3)
    assert slope(np.ones(5), np.arange(5.0)) == 0

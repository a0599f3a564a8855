"""Logical devices on real CPUs, and calls that only a GPU accepts on a stand-in."""

import subprocess
import sys

import pytest
import tensorflow as tf

from xtts import compat


def test_an_op_runs_on_the_second_logical_device():
    """With two logical CPU devices the result reports that it was computed on the second."""
    assert compat.logical_devices("CPU") == ["/CPU:0", "/CPU:1"]
    with tf.device("/CPU:1"):
        result = tf.constant([1.0]) + 1.0
    assert result.device.endswith("device:CPU:1")


def test_repeating_a_split_is_accepted_and_changing_it_is_too_late():
    """Once TensorFlow has started, devices cannot be changed; the message says what to do."""
    tf.zeros([1])
    assert compat.split("CPU", 0, [None, None]) == ["/CPU:0", "/CPU:1"]
    with pytest.raises(compat.TooLateError, match="already started"):
        compat.split("CPU", 0, [None, None, None])


def test_visible_devices_can_be_chosen_before_tensorflow_starts():
    """In a fresh process the real TensorFlow accepts the choice of visible devices."""
    script = (
        "from xtts import compat\ncompat.set_visible('CPU', [0])\n"
        "print(compat.split('CPU', 0, [None] * 3), len(compat.logical_devices('CPU')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split()[-1] == "3", done.stderr


def test_limits_and_growth_are_refused_for_a_cpu():
    """TensorFlow supports neither for a CPU, so the request is refused before TensorFlow is called."""
    with pytest.raises(compat.DeviceError, match="memory limits are for GPUs"):
        compat.split("CPU", 0, [100, 100])
    with pytest.raises(compat.DeviceError, match="memory growth is for GPUs"):
        compat.set_memory_growth("CPU")


def test_a_missing_device_is_reported_with_the_devices_there_are():
    """An index out of range is refused with the range of valid ones."""
    with pytest.raises(compat.DeviceError, match="there is no CPU 4: TensorFlow sees CPU 0 to 0"):
        compat.split("CPU", 4, [None])


def test_memory_info_of_any_device_raises_no_exception():
    """A missing device has no memory statistics; a CPU has them on some machines only."""
    assert compat.memory_info("GPU:0") is None
    found = compat.memory_info("/CPU:0")
    assert found is None or 0 <= found.current <= found.peak


@pytest.mark.parametrize(
    ("answer", "memory"),
    [({"current": 3, "peak": 9}, (3, 9)), (3, (3, None))],
    ids=["get_memory_info", "get_memory_usage"],
)
def test_memory_of_a_gpu_has_one_form_on_every_release(recorder, answer, memory):
    """Older releases return a number, newer ones a dictionary; both become a Memory."""
    stand_in = recorder()
    stand_in.tf.config.experimental.get_memory_usage = lambda device: answer
    assert compat.memory_info("GPU:0", stand_in.offered) == memory


def test_a_gpu_is_split_with_limits(recorder):
    """One GPU becomes two logical GPUs with a memory limit each."""
    stand_in = recorder()
    assert compat.split("GPU", 1, [4096, 2048], stand_in.offered) == ["/GPU:0", "/GPU:1"]
    assert stand_in.calls == [("stable", "1", [("limit", 4096), ("limit", 2048)])]


def test_growth_and_visibility_are_set_on_the_named_gpus(recorder):
    """Memory growth applies to all GPUs by default; visible GPUs are passed in the machine's order."""
    stand_in = recorder(gpus=3)
    compat.set_memory_growth("GPU", offered=stand_in.offered)
    compat.set_visible("GPU", [2, 0], stand_in.offered)
    assert stand_in.calls == [
        ("growth", "0", True),
        ("growth", "1", True),
        ("growth", "2", True),
        ("visible", ["0", "2"], "GPU"),
    ]


def test_determinism_makes_two_runs_equal():
    """In fresh processes the same seed gives the same values, and the API that was used is reported."""
    script = (
        "from xtts import compat\nimport tensorflow as tf\nname = compat.enable_determinism(7)\n"
        "print(name, tf.random.normal([3]).numpy().tolist())"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].split()[0] in ("tf.config.experimental.enable_op_determinism", "TF_DETERMINISTIC_OPS=1")

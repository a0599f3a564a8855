"""Tries out what works with the installed TensorFlow, and prints the findings as one line of JSON.

It runs in a process of its own (`python -m xtts.compat.probe`), because it configures devices, and because a TensorFlow
that does not fit the machine crashes its process.
"""

import json
import sys
from typing import Any, Callable, Dict

import tensorflow as tf

from xtts import compat


def two_logical_devices() -> str:
    """Two devices out of one CPU, and an op that runs on the second."""
    _, second = compat.split("CPU", 0, [None, None])
    with tf.device(second):
        where = (tf.constant(1.0) + 1.0).device
    if not where.endswith("CPU:1"):
        raise RuntimeError(f"an op placed on {second} ran on {where}")
    return f"an op placed on {second} ran there"


def compiled_function() -> str:
    """A compiled function with an input signature."""
    double = compat.compiled(lambda x: 2.0 * x, input_signature=[tf.TensorSpec([None], tf.float32)])
    return _expect(double(tf.constant([1.0, 2.0])).numpy().tolist(), [2.0, 4.0], "2 x [1, 2]")


def xla() -> str:
    """The same through XLA."""
    double = compat.compiled(lambda x: 2.0 * x, jit_compile=True)
    return _expect(double(tf.constant([1.0, 2.0])).numpy().tolist(), [2.0, 4.0], "2 x [1, 2]")


def trace_count() -> str:
    """One trace for one shape, and for another shape a second trace that is explained."""
    total = compat.compiled(lambda x: tf.reduce_sum(x))
    for length in (2, 2, 3):
        total(tf.zeros([length]))
    _expect(total.traces, 2, "traces of two shapes")
    return _expect(str(total.retraces[0]), "x: dimension 0 was 2, now 3", "a retrace explained")


def gpus() -> str:
    """A product on every GPU."""
    for name in compat.logical_devices("GPU"):
        with tf.device(name):
            tf.matmul(tf.ones([64, 64]), tf.ones([64, 64])).numpy()
    return "a matrix product on each"


def findings() -> Dict[str, Any]:
    """All findings, including the results of the trials."""
    cards = compat.physical_devices("GPU")
    if cards:
        compat.set_memory_growth("GPU")
    trials: Dict[str, Callable[[], str]] = {
        "two logical devices": two_logical_devices,
        "compiled function": compiled_function,
        "trace count": trace_count,
        "XLA": xla,
    }
    if cards:
        trials["GPUs"] = gpus
    return {
        "version": tf.__version__,
        "names": compat.OFFERED.names(),
        "physical": [device.name.replace("physical_device:", "") for device in tf.config.list_physical_devices()],
        "trials": {name: _tried(trial) for name, trial in trials.items()},
        "logical": compat.logical_devices("CPU") + compat.logical_devices("GPU"),
    }


def _expect(found: Any, wanted: Any, what: str) -> str:
    if found != wanted:
        raise RuntimeError(f"{what} gave {found}, not {wanted}")
    return f"{what} gave {found}"


def _tried(trial: Callable[[], str]) -> Dict[str, Any]:
    try:
        return {"works": True, "detail": trial()}
    except Exception as error:  # of any kind: the failure is the finding
        return {"works": False, "detail": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    json.dump(findings(), sys.stdout)

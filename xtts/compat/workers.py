"""Workers, a process each, under one strategy: their addresses come in, TensorFlow's strategy goes out; and of an error
that ended a step, which workers it blames.

A TensorFlow that has lost a worker cannot meet again: whoever is left must start anew, as a process.
"""

import re
import sys
from typing import Any, FrozenSet, List, Optional, Sequence, Tuple

from xtts.compat.offered import OFFERED, Offered

# How releases without a coordination service of their own find out that a worker is gone, in seconds. TensorFlow looks
# every 30 s and asks three times: a worker that is killed between two sums is missed for a minute.
HEALTH = {"_check_health_interval": 2, "_check_health_timeout": 5}
PATIENCE = "_check_health_initial_timeout"  # the same, before all have met
MOST_TASKS = 4096  # of a Slurm step on one machine
_TASK = re.compile(r"/task:(\d+)")


class MeetingError(RuntimeError):
    """Workers that did not all come, or a port that cannot be had."""


def multi_worker(addresses: Sequence[str], index: int, patience: float, offered: Offered = OFFERED) -> Any:
    """The strategy of these workers, of which this process is one; it waits `patience` seconds for the others."""
    import tensorflow as tf

    _watch_closely(patience, offered)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(addresses)}), task_type="worker", task_id=index, rpc_layer="grpc"
    )
    try:
        return offered.multi_worker(cluster_resolver=resolver)
    except RuntimeError as error:  # a time-out, or that TensorFlow has started before
        raise MeetingError(str(error)) from error


def lost_tasks(error: Exception) -> Optional[FrozenSet[int]]:
    """The workers that an error blames, perhaps none by name; None: it is not about workers that cannot be reached."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    kinds = ["UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "FailedPreconditionError"]
    text = str(error)
    if type(error).__name__ not in kinds and "ollective" not in text:
        return None
    return frozenset(int(number) for number in _TASK.findall(text))


def slurm_workers(port: int, offered: Offered = OFFERED) -> Tuple[List[str], int]:
    """The addresses of a Slurm step's tasks, and which of them this one is; ValueError: there is no such step."""
    try:
        # Slurm gives each task its GPUs; a number that is enough for all keeps TensorFlow from asking nvidia-smi.
        resolver = offered.slurm(port_base=port, gpus_per_node=MOST_TASKS, gpus_per_task=1, auto_set_gpu=False)
        addresses = list(resolver.cluster_spec().as_dict()["worker"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise ValueError(str(error)) from error
    return addresses, int(resolver.task_id)


def _watch_closely(patience: float, offered: Offered) -> None:
    """Have TensorFlow look sooner, where it has these numbers under the names they have had since 2.4."""
    extended = getattr(sys.modules.get(offered.multi_worker.value.__module__), "CollectiveAllReduceExtended", None)
    for name, seconds in {**HEALTH, PATIENCE: max(1, int(patience))}.items():
        if hasattr(extended, name):
            setattr(extended, name, seconds)

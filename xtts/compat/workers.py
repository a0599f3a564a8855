"""The strategy of several worker processes, and which of them an error blames.

After losing a worker TensorFlow cannot rejoin the cluster: surviving workers have to restart as processes.
"""

import re
import sys
from typing import Any, FrozenSet, List, Optional, Sequence, Tuple

from xtts.compat.offered import OFFERED, Offered

# Health checks of releases without a coordination service, in seconds. By default they check every 30 s and try three
# times, so that a worker killed between two all-reduces goes unnoticed for a minute. A killed process refuses the
# connection at once; the timeout is for hosts that no longer answer, and must not catch a busy one.
HEALTH = {"_check_health_interval": 2, "_check_health_timeout": 30}
INITIAL_TIMEOUT = "_check_health_initial_timeout"  # before all workers have connected
MAX_TASKS = 4096  # of a Slurm step on one machine
_TASK = re.compile(r"/task:(\d+)")


class MeetingError(RuntimeError):
    """Workers that did not all connect, or a port that is taken."""


def multi_worker(addresses: Sequence[str], index: int, patience: float, offered: Offered = OFFERED) -> Any:
    """The strategy of these workers; this process is number `index`, and waits `patience` seconds for the others."""
    import tensorflow as tf

    _tighten_health_checks(patience, offered)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(addresses)}), task_type="worker", task_id=index, rpc_layer="grpc"
    )
    try:
        return offered.multi_worker(cluster_resolver=resolver)
    except RuntimeError as error:  # a time-out, or TensorFlow had started before
        raise MeetingError(str(error)) from error


def lost_tasks(error: Exception) -> Optional[FrozenSet[int]]:
    """The workers that an error names, perhaps none; None when the error is not about unreachable workers."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    kinds = ["UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "FailedPreconditionError"]
    text = str(error)
    if type(error).__name__ not in kinds and "ollective" not in text:
        return None
    return frozenset(int(number) for number in _TASK.findall(text))


def slurm_workers(port: int, offered: Offered = OFFERED) -> Tuple[List[str], int]:
    """The addresses of a Slurm step's tasks, and the index of this one; ValueError outside of a step."""
    try:
        # Slurm assigns GPUs to tasks; a number that is large enough keeps TensorFlow from asking nvidia-smi.
        resolver = offered.slurm(port_base=port, gpus_per_node=MAX_TASKS, gpus_per_task=1, auto_set_gpu=False)
        addresses = list(resolver.cluster_spec().as_dict()["worker"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise ValueError(str(error)) from error
    return addresses, int(resolver.task_id)


def _tighten_health_checks(patience: float, offered: Offered) -> None:
    """Shorten TensorFlow's health checks, where it still has these attributes of 2.4."""
    extended = getattr(sys.modules.get(offered.multi_worker.value.__module__), "CollectiveAllReduceExtended", None)
    for name, seconds in {**HEALTH, INITIAL_TIMEOUT: max(1, int(patience))}.items():
        if hasattr(extended, name):
            setattr(extended, name, seconds)

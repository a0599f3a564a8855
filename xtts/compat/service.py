"""tf.data service on every release: its two servers, and datasets that its workers produce.

A dataset is sent to the workers as a graph that runs there in C++, so it must contain neither Python functions nor
variables. Its elements arrive in any order. The names are the same since 2.4, the options are not.
"""

import inspect
from typing import Any, Dict, Optional

import tensorflow as tf

HEARTBEAT = 1000  # ms between two heartbeats of a worker; a new job waits that long for it
WORKER_TIMEOUT = 60_000  # ms without one after which a dispatcher forgets a worker; older releases never do


def dispatcher(port: int = 0, work_dir: Optional[str] = None) -> Any:
    """A running dispatcher; `.target` is its address. With `work_dir` it survives a restart on the same port."""
    service = tf.data.experimental.service
    wanted = {"port": port, "work_dir": work_dir, "fault_tolerant_mode": work_dir is not None}
    return service.DispatchServer(_made(service.DispatcherConfig, worker_timeout_ms=WORKER_TIMEOUT, **wanted))


def worker(dispatcher: str, address: str, port: int) -> Any:
    """A running worker that clients reach at `address`; `dispatcher` is host:port."""
    service = tf.data.experimental.service
    settings = {"dispatcher_address": dispatcher, "worker_address": f"{address}:{port}", "port": port}
    return service.WorkerServer(_made(service.WorkerConfig, heartbeat_interval_ms=HEARTBEAT, **settings))


def by_each(dataset: Any, target: str) -> Any:
    """Every element once from each worker of the dispatcher at `target`, a grpc:// address."""
    return dataset.apply(_distribute("OFF", "parallel_epochs", target))


def by_any(dataset: Any, target: str, outstanding: Optional[int] = None) -> Any:
    """Each element once, from any free worker; elements that a worker had begun when it died are lost."""
    return dataset.apply(_distribute("DYNAMIC", "distributed_epoch", target, outstanding))


def without_errors(dataset: Any) -> Any:
    """The dataset without the elements that raise an error."""
    if hasattr(dataset, "ignore_errors"):
        return dataset.ignore_errors()
    return dataset.apply(tf.data.experimental.ignore_errors())


def _distribute(policy: str, mode: str, target: str, outstanding: Optional[int] = None) -> Any:
    service = tf.data.experimental.service
    policies = getattr(service, "ShardingPolicy", None)
    chosen = mode if policies is None else getattr(policies, policy)
    known = inspect.signature(service.distribute).parameters
    # Compressing mels takes longer than sending them. Older releases always compress.
    options: Dict[str, Any] = {"compression": None} if "compression" in known else {}
    return service.distribute(chosen, target, max_outstanding_requests=outstanding, **options)


def _made(config: Any, **settings: Any) -> Any:
    """A configuration with those settings that the installed release knows."""
    return config(**{name: value for name, value in settings.items() if name in config._fields})

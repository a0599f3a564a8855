"""tf.data service on every release: its two servers, and datasets that are read by its workers.

A dataset goes to the workers as a graph, which TensorFlow runs there in C++: nothing in it may be Python's, nor a
variable's. Its elements come back in any order. The names are the same since 2.4, the options are not.
"""

import inspect
from typing import Any, Dict, Optional

import tensorflow as tf

HEARTBEAT = 1000  # ms from one sign of life of a worker to the next: so long a new job waits for it
FORGOTTEN = 10_000  # ms without one, after which a dispatcher that can forgets a worker; elsewhere it never does


def dispatcher(port: int = 0, work_dir: Optional[str] = None) -> Any:
    """A dispatcher, at work; `.target` is its address. With a folder it survives a restart on the same port."""
    service = tf.data.experimental.service
    wanted = {"port": port, "work_dir": work_dir, "fault_tolerant_mode": work_dir is not None}
    return service.DispatchServer(_made(service.DispatcherConfig, worker_timeout_ms=FORGOTTEN, **wanted))


def worker(dispatcher: str, address: str, port: int) -> Any:
    """A worker, at work, that clients reach at `address`; `dispatcher` is a host:port."""
    service = tf.data.experimental.service
    settings = {"dispatcher_address": dispatcher, "worker_address": f"{address}:{port}", "port": port}
    return service.WorkerServer(_made(service.WorkerConfig, heartbeat_interval_ms=HEARTBEAT, **settings))


def by_each(dataset: Any, target: str) -> Any:
    """Every element from each of the workers of the dispatcher at `target`, a grpc:// address."""
    return dataset.apply(_distribute("OFF", "parallel_epochs", target))


def by_any(dataset: Any, target: str, outstanding: Optional[int] = None) -> Any:
    """Every element from one of them, whichever is free; what a worker has taken on when it dies, from none."""
    return dataset.apply(_distribute("DYNAMIC", "distributed_epoch", target, outstanding))


def without_errors(dataset: Any) -> Any:
    """The dataset without elements that cannot be made."""
    if hasattr(dataset, "ignore_errors"):
        return dataset.ignore_errors()
    return dataset.apply(tf.data.experimental.ignore_errors())


def _distribute(policy: str, mode: str, target: str, outstanding: Optional[int] = None) -> Any:
    service = tf.data.experimental.service
    policies = getattr(service, "ShardingPolicy", None)
    chosen = mode if policies is None else getattr(policies, policy)
    known = inspect.signature(service.distribute).parameters
    # Mels are as good as noise: packing them takes longer than sending them. Older releases always pack.
    options: Dict[str, Any] = {"compression": None} if "compression" in known else {}
    return service.distribute(chosen, target, max_outstanding_requests=outstanding, **options)


def _made(config: Any, **settings: Any) -> Any:
    """A configuration, with those settings that it has."""
    return config(**{name: value for name, value in settings.items() if name in config._fields})

"""Cluster membership: the addresses of all workers, and which of them this process is.

TF_CONFIG takes precedence over the recipe's [cluster], because launchers and clouds set it. Slurm is consulted when the
recipe says so. A single worker is no cluster.
"""

import contextlib
import errno
import json
import os
import socket
import time
from typing import Any, Iterator, List, Mapping, Optional, Tuple

import attrs

from xtts import compat
from xtts.errors import UsageError
from xtts.recipe import schema
from xtts.recipe.constraints import is_address

CHIEF, WORKER = "chief", "worker"  # the jobs of TF_CONFIG that train
PORT_RELEASE = 10.0  # seconds for which a port may stay in use after its process has ended
EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:8888", "10.0.0.2:8888"]}, "task": {"type": "worker", "index": 0}}'


class ClusterError(UsageError):
    """An invalid cluster configuration."""


@attrs.frozen
class Cluster:
    """The addresses of all workers, the chief's first, and the index of this process."""

    addresses: Tuple[str, ...]
    index: int  # of this process
    origin: str  # where they are configured, for messages

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes the run's folder."""
        return self.index == 0

    @property
    def size(self) -> int:
        return len(self.addresses)

    def name(self, index: int) -> str:
        """The name of a worker in messages."""
        return f"worker {index} ({self.addresses[index]})"


def resolve_cluster(asked: schema.ClusterSection, environment: Mapping[str, str] = os.environ) -> Optional[Cluster]:
    """The cluster that this process is part of; None if it trains alone."""
    config = environment.get("TF_CONFIG", "").strip()
    if config and config != "{}":
        found = _of_config(config)
    elif asked.workers:
        found = Cluster(asked.workers, _own_index(asked), "[cluster]")
    elif asked.slurm:
        found = _of_slurm(asked.port)
    elif asked.index:
        raise ClusterError(
            f"cluster.index = {asked.index}, but no workers are named; name all in cluster.workers, or in TF_CONFIG"
        )
    else:
        return None
    return _checked(found) if found.size > 1 else None


@contextlib.contextmanager
def holding_port(cluster: Cluster, seconds: float = PORT_RELEASE) -> Iterator[None]:
    """Inside the block, this worker listens at its address, before TensorFlow does.

    A port in use is an error here; TensorFlow would share it with the other process.
    """
    port = int(cluster.addresses[cluster.index].rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT counts as free
        until = time.monotonic() + seconds
        while True:
            try:
                listener.bind(("", port))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    raise ClusterError(
                        f"{cluster.name(cluster.index)}: port {port} cannot be opened here, {error.strerror}; end the"
                        f" process that uses it, or name another port in {cluster.origin}"
                    ) from None
            time.sleep(0.2)
        listener.listen(128)
        yield


def is_reachable(address: str, seconds: float = 2.0) -> bool:
    """Whether a process listens at the address."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds):
            return True
    except OSError:
        return False


def _of_config(text: str) -> Cluster:
    try:
        config = json.loads(text)
        jobs, task = dict(config["cluster"]), dict(config["task"])
        kind, index = str(task["type"]), task["index"]
        lists: List[Any] = [jobs.get(CHIEF, []), jobs.get(WORKER, [])]
    except (ValueError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else "it is not the expected JSON"
        raise ClusterError(f"TF_CONFIG: {what}; write it as {EXAMPLE}") from None
    if "ps" in jobs or kind not in (CHIEF, WORKER):
        strange = "ps" if "ps" in jobs else kind
        raise ClusterError(f'TF_CONFIG: "{strange}" tasks are not supported; name workers, as in {EXAMPLE}')
    if not all(isinstance(some, list) for some in lists):
        raise ClusterError(f"TF_CONFIG: addresses must be a list; write it as {EXAMPLE}")
    chiefs, workers = lists
    own = chiefs if kind == CHIEF else workers
    try:
        index = int(index)  # launchers write it as text, too
    except (TypeError, ValueError):
        raise ClusterError(f"TF_CONFIG: {index!r} is not a task index; write a whole number, as in {EXAMPLE}") from None
    if not 0 <= index < len(own):
        raise ClusterError(f"TF_CONFIG: there is no {kind} {index} among {len(own)}; count from 0")
    return Cluster((*map(str, chiefs), *map(str, workers)), index + (len(chiefs) if kind == WORKER else 0), "TF_CONFIG")


def _own_index(asked: schema.ClusterSection) -> int:
    """The index in the recipe, or else that of the only worker whose host is this machine's name."""
    if asked.index is not None:
        return asked.index
    own = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    here = [index for index, address in enumerate(asked.workers) if address.rpartition(":")[0] in own]
    if len(here) != 1:
        raise ClusterError(
            f"cluster.index: which of the {len(asked.workers)} workers this one is cannot be derived from the name of"
            f' this machine, "{socket.gethostname()}"; set it on each machine, as in --set cluster.index=0'
        )
    return here[0]


def _of_slurm(port: int) -> Cluster:
    try:
        addresses, index = compat.slurm_workers(port)
    except ValueError as error:
        raise ClusterError(
            f"cluster.slurm: Slurm's variables do not name a step ({error}); start the run with srun, or name"
            " cluster.workers"
        ) from None
    return Cluster(tuple(addresses), index, "Slurm")


def _checked(found: Cluster) -> Cluster:
    for place, address in enumerate(found.addresses):
        if not is_address(address):
            raise ClusterError(f'{found.origin}: "{address}" is not an address; write host:port, as in "10.0.0.1:8888"')
        if address in found.addresses[:place]:
            raise ClusterError(f"{found.origin}: {address} is listed twice; give each worker an address of its own")
    return found

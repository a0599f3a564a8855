"""Collective operations of a run's workers: rendezvous, sums, gathers and broadcasts.

Everything goes through TensorFlow's strategy, and must be called by all workers in the same order. Without a cluster
every operation returns its input. TensorFlow cannot rejoin a cluster: when a worker is lost, the surviving processes
restart (`restart_process`), meet again and resume from the chief's last checkpoint.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Sequence, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.errors import XttsError
from xtts.pipeline.prefetcher import StepBatches
from xtts.training.checkpoint import TrainingState
from xtts.training.cluster.membership import Cluster, holding_port, is_reachable
from xtts.training.placement import Placement

Log = Callable[[str], None]  # prints a line for the user

WIDTHS = (64, 65_536)  # numbers in one sum
PIECE = 2**24  # bytes in one broadcast
REMIND, PAUSE = 10.0, 0.5  # seconds between two reminders, and between two attempts
LATE = 30.0  # seconds after the patience in which TensorFlow should time out by itself
RESTARTS = "XTTS_RESTARTS"  # in the environment: how often in a row a run has restarted without a step


class WorkerLost(XttsError):
    """A worker no longer answers; the run can resume when it is back."""

    status = 75  # "try again", to whatever started the process
    has_stepped = False  # since the rendezvous


class CollectiveError(XttsError):
    """The workers cannot train together."""


class Collectives:
    """The collective operations of all workers of a run."""

    def __init__(self, strategy: Any = None, placement: Optional[Placement] = None) -> None:
        self.strategy, self._placement = strategy, placement
        self.cluster = placement.cluster if placement else None
        self.is_chief = self.cluster is None or self.cluster.is_chief
        self.has_stepped = False
        self._sums: Dict[int, compat.Compiled] = {}  # by width

    def agree_on_step(self, work: StepBatches, stop: threading.Event) -> Tuple[StepBatches, Callable[[], bool]]:
        """A step's batches with totals of all workers, and a function that tells whether any was asked to stop."""
        if self.cluster is None:
            return work, stop.is_set
        *totals, stops = self.all_sum(np.array([*work.totals, stop.is_set()], np.float64))
        self.has_stepped = True
        return attrs.evolve(work, totals=np.array(totals, np.float32)), lambda: bool(stops)

    def all_sum(self, values: np.ndarray) -> np.ndarray:
        """The elementwise sum over all workers; float64, of any shape."""
        if self.cluster is None:
            return values
        flat = np.asarray(values, np.float64).ravel()
        width = WIDTHS[0] if flat.size <= 8 * WIDTHS[0] else WIDTHS[1]
        padded = np.pad(flat, (0, -flat.size % width)).reshape(-1, width)
        added = [self._summed(width)(tf.constant(row)).numpy() for row in padded]
        return np.concatenate(added or [flat])[: flat.size].reshape(np.shape(values))

    def all_gather(self, rows: Any) -> np.ndarray:
        """The rows of all workers, in their order."""
        own = np.asarray(rows)
        if self.cluster is None:
            return own
        every = np.zeros((self.cluster.size, *own.shape), np.float64)
        every[self.cluster.index] = own
        return self.all_sum(every).reshape(-1, *own.shape[1:]).astype(own.dtype)

    def broadcast(self, content: bytes = b"") -> bytes:
        """The chief's bytes; the argument of other workers is ignored."""
        if self.cluster is None:
            return content
        size = int(self._broadcast(np.array([len(content)], np.int64))[0])
        received = []
        for start in range(0, size, PIECE):
            piece = np.zeros(-(-min(PIECE, size - start) // 8) * 8, np.uint8)
            if self.is_chief:
                own = content[start : start + PIECE]
                piece[: len(own)] = np.frombuffer(own, np.uint8)
            received.append(self._broadcast(piece.view(np.int64)).tobytes())
        return b"".join(received)[:size]

    def broadcast_json(self, value: Any = None) -> Any:
        return json.loads(self.broadcast(json.dumps(value).encode())) if self.cluster else value

    def broadcast_state(self, state: Optional[TrainingState]) -> Optional[TrainingState]:
        """The chief's checkpoint, or None; other workers need no access to the chief's disk."""
        if self.cluster is None:
            return state
        tensors = dict(sorted(state.tensors.items())) if state else {}
        facts = {name: [tensor.dtype.str, list(tensor.shape)] for name, tensor in tensors.items()}
        about = self.broadcast_json([state.step, state.counters, facts] if state else None)
        content = self.broadcast(b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values()))
        if about is None:
            return None
        step, counters, facts = about
        found, start = {}, 0
        for name, (kind, shape) in facts.items():
            count = int(np.prod(shape, dtype=np.int64))
            tensor = np.frombuffer(content, np.dtype(kind), count, start).reshape(shape)
            found[name], start = tensor, start + tensor.nbytes
        return state or TrainingState(step, found, counters)

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every worker the chief's values."""
        if self.cluster is None:
            return
        values = [variable.numpy() for variable in variables]
        content, start = self.broadcast(b"".join(value.tobytes() for value in values)), 0
        for variable, value in zip(variables, values):
            variable.assign(np.frombuffer(content, value.dtype, value.size, start).reshape(value.shape))
            start += value.nbytes

    @contextlib.contextmanager
    def chief_first(self) -> Iterator[None]:
        """Run the block on the chief before the others, which find its files if they share a disk."""
        if not self.is_chief:
            self.broadcast()
        yield
        if self.is_chief:
            self.broadcast()

    def _summed(self, width: int) -> compat.Compiled:
        if width not in self._sums:
            assert self._placement is not None
            first = self._placement.share.start

            def on_replica(values: Any) -> Any:
                context = tf.distribute.get_replica_context()
                replica = int(tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group)))
                # One replica of each worker contributes.
                own = tf.identity(values) if replica == first else tf.zeros_like(values)
                return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

            def sum_over_workers(values: Any) -> Any:
                found = self.strategy.run(on_replica, args=(values,))
                return self.strategy.experimental_local_results(found)[0]

            signature = [tf.TensorSpec([width], tf.float64)]
            self._sums[width] = compat.compiled(sum_over_workers, input_signature=signature, autograph=False)
        return self._sums[width]

    def _broadcast(self, values: np.ndarray) -> np.ndarray:
        """The chief's values: TensorFlow initialises a new variable of all workers with the chief's."""
        with self.strategy.scope():
            variable = tf.Variable(values, trainable=False)
        return np.asarray(variable.numpy())


def rendezvous(placement: Placement, patience: float, log: Log) -> Collectives:
    """Wait for the other workers, logging who is missing, and start the strategy."""
    cluster = placement.cluster
    assert cluster is not None
    others = [cluster.name(index) for index in range(cluster.size) if index != cluster.index]
    log(f"this is {cluster.name(cluster.index)}, waiting for {', '.join(others)}")
    with holding_port(cluster):
        _wait(cluster, patience, log)
    with _deadly_signals(patience):
        try:
            return Collectives(placement.start_strategy(patience), placement)
        except compat.MeetingError as error:
            raise CollectiveError(
                f"{_missing(cluster) or 'the workers could not connect'} ({error}); {_remedy(cluster)}"
            ) from None


def _wait(cluster: Cluster, patience: float, log: Log) -> None:
    """Wait until every worker answers. TensorFlow would wait too, but some releases block all of Python meanwhile."""
    waited = 0.0
    while True:
        missing = _missing(cluster)
        if not missing:
            return
        if waited >= patience:
            raise CollectiveError(f"{missing} in {patience:,.0f} s; {_remedy(cluster)}")
        if waited and waited % REMIND == 0:
            log(f"{missing} for {waited:,.0f} s; still waiting (timeout {patience:,.0f} s)")
        time.sleep(PAUSE)
        waited += PAUSE


@contextlib.contextmanager
def watch_workers(cluster: Optional[Cluster], has_stepped: Callable[[], bool]) -> Iterator[None]:
    """Turn errors of a worker that can no longer be reached into a `WorkerLost` that names it."""
    try:
        yield
    except Exception as error:
        blamed = compat.lost_tasks(error) if cluster else None
        if cluster is None or blamed is None:
            raise
        lost = WorkerLost(f"{_named(cluster, blamed)} no longer answers")
        lost.has_stepped = has_stepped()
        raise lost from None


def restart_process(lost: WorkerLost, restarts: int, command: List[str]) -> None:
    """Replace this process by a new one with the same command; raises CollectiveError after too many restarts."""
    count = 0 if lost.has_stepped else int(os.environ.get(RESTARTS, "0")) + 1
    if count > restarts:
        raise CollectiveError(
            f"{lost}; the run was restarted {restarts} times without completing a step: look at that worker's output"
        )
    os.environ[RESTARTS] = str(count)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def _named(cluster: Cluster, blamed: Collection[int]) -> str:
    """The names of the workers that an error blames, or of those that do not answer."""
    others = [index for index in range(cluster.size) if index != cluster.index]
    found = [index for index in others if index in blamed]
    found = found or [index for index in others if not is_reachable(cluster.addresses[index])]
    return " and ".join(cluster.name(index) for index in found) or "a worker"


def _missing(cluster: Cluster) -> str:
    """The workers that do not answer, as a clause; empty if all do."""
    others = [index for index in range(cluster.size) if index != cluster.index]
    missing = [cluster.name(index) for index in others if not is_reachable(cluster.addresses[index])]
    return f"{' and '.join(missing)} did not answer" if missing else ""


def _remedy(cluster: Cluster) -> str:
    return f"start it with the same recipe, check its address in {cluster.origin} and that no firewall is between"


@contextlib.contextmanager
def _deadly_signals(patience: float) -> Iterator[None]:
    """Inside the block, SIGINT or a timeout ends the process at once.

    TensorFlow blocks Python while it connects to the workers, and there is nothing to save yet.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    signal.setitimer(signal.ITIMER_REAL, patience + LATE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)

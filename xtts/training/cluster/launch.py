"""Several workers on this machine: start them, watch over them, and return once all have ended.

The chief's output is shown; that of the others goes to `workers/` in the run's folder. A worker that is killed is
restarted, up to `max_restarts` times; one that exits with an error ends them all.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import attrs

from xtts.errors import XttsError
from xtts.formatting import count_of
from xtts.processes import start_child

LOGS = "workers"  # the folder of the workers' logs
POLL_SECONDS = 0.1
GRACE_SECONDS = 60.0  # that workers have to end after SIGTERM
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds before a restart; each is twice as long as the one before
TAIL_LINES = 15  # of a failed worker's log that are shown


class LaunchError(XttsError):
    """Why workers cannot be started."""


@attrs.define(eq=False)
class LaunchedWorker:
    """One worker process."""

    index: int
    environment: Dict[str, str]
    log: Optional[Path]  # None: its output is shown
    process: Optional["subprocess.Popen[bytes]"] = None
    restarts: int = 0
    start_at: float = 0.0  # in seconds of time.monotonic()
    is_done: bool = False

    @property
    def name(self) -> str:
        return "the chief" if self.index == 0 else f"worker {self.index}"

    def start(self, command: Sequence[str]) -> None:
        with contextlib.ExitStack() as opened:
            output: Any = None
            if self.log:
                output = opened.enter_context(self.log.open("ab"))
            self.process = start_child(
                command,
                self.environment,
                stdout=output,
                stderr=output and subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C of the terminal reaches workers once, from here
            )

    def send_signal(self, number: int) -> None:
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def log_tail(self) -> str:
        """The last lines of its log; empty if its output is shown."""
        if self.log is None:
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "".join(f"\n  {line}" for line in lines)


@attrs.frozen
class Launched:
    """The outcome of all workers."""

    status: int
    restarts: List[int]  # of each worker
    logs: List[str]


class Launch:
    """The worker processes of a run."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        workers: int,
        folder: Path,
        max_restarts: int,
        log: Callable[[str], None],
        is_quiet: bool,
    ) -> None:
        """`is_quiet`: the chief's output goes to a log too."""
        self._command = command
        self._max_restarts = max_restarts
        self._log = log
        try:
            (folder / LOGS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"{folder}: {error.strerror}; name another folder with --set run.folder=...") from None
        logs = [folder / LOGS / f"worker-{index}.log" for index in range(workers)]
        self._workers = [
            LaunchedWorker(index, environment, path if index or is_quiet else None)
            for index, (environment, path) in enumerate(zip(environments(workers), logs))
        ]
        self._interruptions = 0
        self._status: Optional[int] = None  # exit status, once it is known
        self._deadline = float("inf")  # for workers that have been told to end

    def run(self) -> Launched:
        """Start the workers and watch over them until all have ended."""
        with self._signal_handlers():
            try:
                while not all(worker.is_done for worker in self._workers):
                    for worker in self._workers:
                        self._poll(worker)
                    if time.monotonic() > self._deadline:
                        self._signal_all(signal.SIGKILL)
                    time.sleep(POLL_SECONDS)
            finally:
                self._signal_all(signal.SIGKILL)  # leave no worker running, even after an error
                for worker in self._workers:
                    if worker.process:
                        worker.process.wait()
        logs = [str(worker.log) for worker in self._workers if worker.log]
        return Launched(self._status or 0, [worker.restarts for worker in self._workers], logs)

    @property
    def _is_ending(self) -> bool:
        return self._deadline < float("inf")

    def _poll(self, worker: LaunchedWorker) -> None:
        if worker.is_done:
            return
        if worker.process is None:
            if self._is_ending:
                worker.is_done = True
            elif time.monotonic() >= worker.start_at:
                worker.start(self._command)
            return
        status = worker.process.poll()
        if status is None:
            return
        if status == 0 or self._is_ending:
            worker.is_done = True
            if worker.index == 0 and status == 0:
                self._finish(0)
        elif status > 0:
            worker.is_done = True
            self._log(f"{worker.name} ended with status {status}{worker.log_tail()}")
            self._finish(status, signal.SIGTERM)
        else:
            self._restart(worker, signal.Signals(-status).name)

    def _restart(self, worker: LaunchedWorker, signal_name: str) -> None:
        if worker.restarts >= self._max_restarts:
            worker.is_done = True
            self._log(
                f"{worker.name} was killed by {signal_name} after {count_of(worker.restarts, 'restart')}:"
                f" the run ends here{worker.log_tail()}"
            )
            self._finish(1, signal.SIGTERM)
            return
        self._log(f"{worker.name} was killed by {signal_name}; restarting it from the run's last checkpoint")
        pause = min(MAX_PAUSE, FIRST_PAUSE * 2**worker.restarts)
        worker.process = None
        worker.start_at = time.monotonic() + pause
        worker.restarts += 1
        for other in self._workers:
            if other.is_done:  # all workers are needed until the chief is done
                other.is_done = False
                other.process = None

    def _finish(self, status: int, number: Optional[int] = None) -> None:
        """Start no more workers, and end the others: by a signal now, or by SIGKILL after the grace period."""
        self._status = status if self._status is None else self._status
        self._deadline = min(self._deadline, time.monotonic() + GRACE_SECONDS)
        if number is not None:
            self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        for worker in self._workers:
            worker.send_signal(number)

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """On the first SIGINT or SIGTERM workers save a checkpoint and end; on the second they are killed."""

        def interrupt(_number: int, _frame: Any) -> None:
            self._interruptions += 1
            self._finish(130, signal.SIGTERM if self._interruptions == 1 else signal.SIGKILL)

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def environments(count: int) -> List[Dict[str, str]]:
    """The environment of each of `count` workers on loopback, with TF_CONFIG and free ports."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    configs = [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]
    return [{**os.environ, "TF_CONFIG": config} for config in configs]

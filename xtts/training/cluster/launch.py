"""Workers on this machine: a command and a number come in; so many processes train together on loopback, and when all
have ended a status goes out.

What the chief says is shown, what the others say is kept in `workers/` of the run's folder. A worker that is killed is
started again, at most so often; one that ends with a sentence of its own ends them all.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import attrs

from xtts.errors import XttsError

LOGS = "workers"  # the folder of what workers say
POLL = 0.1  # seconds
GRACE = 60.0  # seconds that workers have to end when they are told to, or when the chief is done
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a worker is started again
TAIL = 15  # lines that are shown of what a worker said that failed
DEATH_SIGNAL = 1  # prctl's name for "tell me when my parent dies"


class LaunchError(XttsError):
    """Workers that cannot be started."""


@attrs.define(eq=False)
class LaunchedWorker:
    """One of the processes."""

    index: int
    environment: Dict[str, str]
    log: Optional[Path]  # None: what it says is shown
    process: Optional["subprocess.Popen[bytes]"] = None
    restarts: int = 0
    due: float = 0.0  # when it is started next, in seconds of time.monotonic()
    is_done: bool = False

    @property
    def name(self) -> str:
        return "the chief" if self.index == 0 else f"worker {self.index}"

    def start(self, command: Sequence[str]) -> None:
        with contextlib.ExitStack() as opened:
            out: Any = None
            if self.log:
                out = opened.enter_context(self.log.open("ab"))
            self.process = subprocess.Popen(
                list(command),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out and subprocess.STDOUT,
                start_new_session=True,  # what the terminal says to all, it hears once, from here
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def tell(self, number: int) -> None:
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def tail(self) -> str:
        """The last lines it said, where they were not shown."""
        if self.log is None:
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
        return "".join(f"\n  {line}" for line in lines)


@attrs.frozen
class Launched:
    """How it ended."""

    status: int
    restarts: List[int]  # of each worker
    logs: List[str]


class Launch:
    """The processes of a run."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        folder: Path,
        restarts: int,
        say: Callable[[str], None],
        is_quiet: bool,
    ) -> None:
        self._command, self._most, self._say = command, restarts, say
        try:
            (folder / LOGS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"{folder}: {error.strerror}; name another folder with --set run.folder=...") from None
        logs = [folder / LOGS / f"worker-{index}.log" for index in range(count)]
        self._workers = [
            LaunchedWorker(index, environment, log if index or is_quiet else None)
            for index, (environment, log) in enumerate(zip(environments(count), logs))
        ]
        self._told = 0  # how often it was told to stop
        self._status: Optional[int] = None  # once it is known
        self._until = float("inf")

    def run(self) -> Launched:
        """Start them and see to them until all have ended."""
        with self._signals():
            try:
                while not all(worker.is_done for worker in self._workers):
                    for worker in self._workers:
                        self._look_after(worker)
                    if time.monotonic() > self._until:
                        self._end(signal.SIGKILL)
                    time.sleep(POLL)
            finally:
                self._end(signal.SIGKILL)  # what is left, whatever happened here
                for worker in self._workers:
                    if worker.process:
                        worker.process.wait()
        logs = [str(worker.log) for worker in self._workers if worker.log]
        return Launched(self._status or 0, [worker.restarts for worker in self._workers], logs)

    def _look_after(self, worker: LaunchedWorker) -> None:
        if worker.is_done:
            return
        if worker.process is None:
            if self._until < float("inf"):
                worker.is_done = True
            elif time.monotonic() >= worker.due:
                worker.start(self._command)
            return
        status = worker.process.poll()
        if status is None:
            return
        if status == 0 or self._until < float("inf"):
            worker.is_done = True
            if worker.index == 0 and status == 0:
                self._finish(0, signal.SIGTERM, told=False)
        elif status > 0:
            worker.is_done = True
            self._say(f"{worker.name} ended with status {status}{worker.tail()}")
            self._finish(status, signal.SIGTERM)
        else:
            self._start_again(worker, -status)

    def _start_again(self, worker: LaunchedWorker, number: int) -> None:
        how = f"{worker.name} was ended by {signal.Signals(number).name}"
        if worker.restarts >= self._most:
            worker.is_done = True
            self._say(f"{how}, as it was {worker.restarts} times before: the run ends here{worker.tail()}")
            return self._finish(1, signal.SIGTERM)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**worker.restarts)
        self._say(f"{how}; it is started again, and the run goes on from its last checkpoint")
        worker.process, worker.due = None, time.monotonic() + pause
        worker.restarts += 1
        for other in self._workers:
            if other.is_done:  # it is needed again, for the chief was not done
                other.is_done, other.process = False, None
        return None

    def _finish(self, status: int, number: int, told: bool = True) -> None:
        """From now on none is started, and those that do not end by themselves are ended."""
        self._status = status if self._status is None else self._status
        self._until = min(self._until, time.monotonic() + GRACE)
        if told:
            self._end(number)

    def _end(self, number: int) -> None:
        for worker in self._workers:
            worker.tell(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM has the workers save and end, the second ends them at once."""

        def told(_number: int, _frame: Any) -> None:
            self._told += 1
            self._finish(130, signal.SIGTERM if self._told == 1 else signal.SIGKILL)

        before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def environments(count: int) -> List[Dict[str, str]]:
    """The environment of each of so many workers on loopback, with ports that are free."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    configs = [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]
    return [{**os.environ, "TF_CONFIG": config} for config in configs]


def _die_with_parent() -> None:
    """In a child: SIGTERM when whoever started it is gone, however that happened."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)

"""Dispatchers and workers of a tf.data service, as processes that listen until they are stopped.

Workers execute whatever graph they are sent, and there is no authentication: run them on a private network only.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple

import attrs

from xtts import __version__
from xtts.errors import UsageError, XttsError
from xtts.processes import start_child

ADDRESS = r"grpc://([^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})"
GREETING = "xtts-worker.json"  # in a worker's working directory: its identity
CONNECT_TIMEOUT = 20.0  # seconds for a dispatcher to accept a connection
START_TIMEOUT = 900.0  # seconds for local workers to import TensorFlow and listen; one that fails is noticed at once
END_TIMEOUT = 30.0  # seconds for a worker to end before it is killed


SLACK = 4.0  # times the longest wait so far


class ServiceError(XttsError):
    """A service that cannot be reached, started or used."""


class AddressError(ServiceError, UsageError):
    """An address that cannot be parsed."""


@attrs.frozen
class Patience:
    """Timeouts for workers, in seconds.

    `silence` and `overtaken` are lower bounds: a service that was slower before gets `SLACK` times its longest wait, at
    most `first`, so that a busy machine is not taken for a dead one.
    """

    first: float = 300.0  # for the first batch: workers have to receive and start the graph
    silence: float = 60.0  # without any batch; after it batches are computed locally until one arrives
    overtaken: float = 10.0  # for a batch once a whole window of later ones has arrived
    retry: float = 5.0  # between a broken connection and the next attempt
    answer: float = 60.0  # for workers to answer at all
    poll: float = 5.0  # for the first round of requests; every further one is twice as long

    def at_least(self, seconds: float, longest: float) -> float:
        """`seconds`, or more if the `longest` wait so far requires it."""
        return max(seconds, min(SLACK * longest, self.first))


PATIENCE = Patience()  # the default


def host_and_port(target: str, what: str) -> Tuple[str, int]:
    """Host and port of a grpc:// address."""
    match = re.fullmatch(ADDRESS, target)
    if not match or not 0 < int(match.group(2)) < 65536:
        raise AddressError(
            f"{what}: {target!r} is not an address; write grpc://HOST:PORT, such as grpc://10.0.0.5:5000"
        )
    return match.group(1).strip("[]"), int(match.group(2))


def require_answer(target: str, what: str) -> str:
    """Raise unless something listens at the target; returns this machine's address as seen from there."""
    host, port = host_and_port(target, what)
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = error.strerror or str(error) or "no answer"
        raise ServiceError(
            f"{what}: nobody answers at {target} ({why}); start a dispatcher there with: python -m xtts"
            f" data-dispatcher --port {port}"
        ) from None


def not_a_dispatcher(target: str, error: BaseException) -> str:
    """The message for an address where something listens that does not speak this TensorFlow's protocol."""
    return (
        f"{target} answers, but not as a dispatcher of this TensorFlow ({first_line(error)}); start dispatcher, workers"
        " and run with the same release"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error, without the node and op names that TensorFlow adds."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]", "", str(error)).strip()
    return text.splitlines()[0].strip(" :") if text else type(error).__name__


def free_port(port: int) -> int:
    """A free port to listen on: the given one, or any for 0."""
    try:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("", port))
            return int(trial.getsockname()[1])
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServiceError(f"--port {port}: cannot listen on it ({why}); name another, or 0 for any") from None


def run_dispatcher(port: int, work_dir: Optional[str], as_json: bool) -> None:
    """Run a dispatcher until it gets SIGINT or SIGTERM."""
    port = free_port(port)

    from xtts.compat import service  # late: a port that is taken is reported without importing TensorFlow

    with _stop_event() as stop:
        server = service.dispatcher(port, work_dir)
        _announce("dispatcher", f"grpc://{socket.gethostname()}:{port}", as_json)
        _wait(stop)
    _exit(server)


def run_worker(dispatcher: str, port: int, host: Optional[str], as_json: bool) -> None:
    """Run a worker until it gets SIGINT or SIGTERM; `host` is the name by which others reach this machine."""
    seen_as = require_answer(dispatcher, "--dispatcher")
    port, name = free_port(port), host or (f"[{seen_as}]" if ":" in seen_as else seen_as)

    from xtts import compat
    from xtts.compat import service

    about = {"address": f"{name}:{port}", "tensorflow": compat.OFFERED.version, "xtts": __version__}
    with tempfile.TemporaryDirectory(prefix="xtts-worker-") as folder, _stop_event() as stop:
        Path(folder, GREETING).write_text(json.dumps(about), encoding="utf-8")
        before = os.getcwd()  # noqa: PTH109
        os.chdir(folder)
        try:
            try:
                server = service.worker(dispatcher[len("grpc://") :], name, port)
            except Exception as error:  # its type depends on the release
                raise ServiceError(f"--dispatcher: {not_a_dispatcher(dispatcher, error)}") from None
            _announce("worker", f"grpc://{name}:{port}", as_json)
            _wait(stop)
        finally:
            os.chdir(before)
    _exit(server)


def _exit(_server: Any) -> NoReturn:
    """End the process at once: a server that is deleted waits for its readers, sometimes for ever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _announce(what: str, address: str, as_json: bool) -> None:
    fields: Dict[str, Any] = {"kind": what, "address": address, "pid": os.getpid()}
    print(json.dumps(fields) if as_json else f"{what}: listening at {address} until interrupted", flush=True)


@contextlib.contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(stop: threading.Event) -> None:
    while not stop.wait(0.5):  # with a timeout: signals do not interrupt an endless wait on every platform
        pass


@contextlib.contextmanager
def local_service(count: int) -> Iterator[str]:
    """A dispatcher in this process and `count` worker processes, which end with it; yields the address."""
    from xtts.compat import service

    port = free_port(0)
    server, target = service.dispatcher(port), f"grpc://127.0.0.1:{port}"
    workers: List[subprocess.Popen[bytes]] = []
    try:
        workers += [_start("data-worker", "--dispatcher", target) for _ in range(count)]
        until = time.monotonic() + START_TIMEOUT
        for worker in workers:
            _wait_until_listening(worker, until)
        yield target
    finally:
        for worker in workers:
            _end(worker)
        del server


def _start(*arguments: str) -> "subprocess.Popen[bytes]":
    """Start a server process that ends with this process, however this one ends."""
    command = [sys.executable, "-m", "xtts", *arguments, "--json"]
    return start_child(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _wait_until_listening(process: "subprocess.Popen[bytes]", until: float) -> None:
    """Wait for the line in which a server announces its address."""
    assert process.stdout is not None
    while time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.2)[0]:
            if process.stdout.readline():
                return
            break
    raise ServiceError(
        "data.service: a local worker did not start; to see its error, run python -m xtts data-dispatcher, and then"
        " python -m xtts data-worker --dispatcher with the address that prints"
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

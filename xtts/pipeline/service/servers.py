"""The servers of tf.data service: addresses come in; a dispatcher or a worker that listens until it is told to stop.

Workers run what a run sends them; whoever reaches a port of theirs can send them something, and there are no passwords:
they belong into a network of one's own.
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

from xtts import __version__
from xtts.errors import UsageError, XttsError
from xtts.processes import start_child

ADDRESS = r"grpc://([^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})"
GREETING = "xtts-worker.json"  # in the folder a worker runs in: who it is, for those who ask
CONNECT = 5.0  # seconds that a dispatcher has to accept a connection
START = 180.0  # seconds that a worker has to start
END = 10.0  # and to end


class ServiceError(XttsError):
    """Why there is no service, or no part in it, and what to do."""


class AddressError(ServiceError, UsageError):
    """What was typed is no address."""


def host_and_port(target: str, what: str) -> Tuple[str, int]:
    """The two parts of a grpc:// address."""
    match = re.fullmatch(ADDRESS, target)
    if not match or not 0 < int(match.group(2)) < 65536:
        raise AddressError(f"{what}: {target!r} is no address; write grpc://HOST:PORT, such as grpc://10.0.0.5:5000")
    return match.group(1).strip("[]"), int(match.group(2))


def require_answer(target: str, what: str) -> str:
    """Raise unless somebody listens there; the address of this machine that is seen from there."""
    host, port = host_and_port(target, what)
    try:
        with socket.create_connection((host, port), CONNECT) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = error.strerror or str(error) or "no answer"
        raise ServiceError(
            f"{what}: nobody answers at {target} ({why}); start a dispatcher there with: python -m xtts"
            f" data-dispatcher --port {port}"
        ) from None


def not_a_dispatcher(target: str, error: BaseException) -> str:
    """What to say of an address where somebody listens, and TensorFlow cannot speak with it."""
    return (
        f"{target} answers, but not as a dispatcher of this TensorFlow ({first_line(error)}); start dispatcher, workers"
        " and run with the same release"
    )


def first_line(error: BaseException) -> str:
    """What an error says, without the names that TensorFlow puts around it."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]", "", str(error)).strip()
    return text.splitlines()[0].strip(" :") if text else type(error).__name__


def free_port(port: int) -> int:
    """A port to listen on: the one asked for, when it is free, or of 0 any."""
    try:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("", port))
            return int(trial.getsockname()[1])
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServiceError(f"--port {port}: cannot be listened on ({why}); name another, or 0 for any") from None


def run_dispatcher(port: int, work_dir: Optional[str], as_json: bool) -> None:
    """Be a dispatcher until told to stop."""
    port = free_port(port)

    from xtts.compat import service  # when it is known that there is something to do

    with _told() as stop:
        server = service.dispatcher(port, work_dir)
        _listening("dispatcher", f"grpc://{socket.gethostname()}:{port}", as_json)
        _wait(stop)
    _leave(server)


def run_worker(dispatcher: str, port: int, host: Optional[str], as_json: bool) -> None:
    """Be a worker until told to stop; `host`: under which name others reach this machine."""
    seen_as = require_answer(dispatcher, "--dispatcher")
    port, name = free_port(port), host or (f"[{seen_as}]" if ":" in seen_as else seen_as)

    from xtts import compat
    from xtts.compat import service

    about = {"address": f"{name}:{port}", "tensorflow": compat.OFFERED.version, "xtts": __version__}
    with tempfile.TemporaryDirectory(prefix="xtts-worker-") as folder, _told() as stop:
        Path(folder, GREETING).write_text(json.dumps(about), encoding="utf-8")
        before = os.getcwd()  # noqa: PTH109
        os.chdir(folder)
        try:
            try:
                server = service.worker(dispatcher[len("grpc://") :], name, port)
            except Exception as error:  # of many kinds, by release
                raise ServiceError(f"--dispatcher: {not_a_dispatcher(dispatcher, error)}") from None
            _listening("worker", f"grpc://{name}:{port}", as_json)
            _wait(stop)
        finally:
            os.chdir(before)
    _leave(server)


def _leave(_server: Any) -> NoReturn:
    """End the process at once. A server that is let go waits for whoever still reads from it, now and then for ever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _listening(what: str, address: str, as_json: bool) -> None:
    told: Dict[str, Any] = {"kind": what, "address": address, "pid": os.getpid()}
    print(json.dumps(told) if as_json else f"{what}: listens at {address} until it is interrupted", flush=True)


@contextlib.contextmanager
def _told() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(stop: threading.Event) -> None:
    while not stop.wait(0.5):  # in pieces: a wait without an end is not interrupted everywhere
        pass


@contextlib.contextmanager
def local_service(count: int) -> Iterator[str]:
    """A dispatcher in this process and so many workers in processes of their own; its address. They end with this."""
    from xtts.compat import service

    port = free_port(0)
    server, target = service.dispatcher(port), f"grpc://127.0.0.1:{port}"
    workers: List[subprocess.Popen[bytes]] = []
    try:
        workers += [_process("data-worker", "--dispatcher", target) for _ in range(count)]
        until = time.monotonic() + START
        for worker in workers:
            _await(worker, until)
        yield target
    finally:
        for worker in workers:
            _end(worker)
        del server


def _process(*arguments: str) -> "subprocess.Popen[bytes]":
    """A server in a process of its own, which ends when this one does, however that is."""
    command = [sys.executable, "-m", "xtts", *arguments, "--json"]
    return start_child(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _await(process: "subprocess.Popen[bytes]", until: float) -> None:
    """Wait for the line that says that a server listens."""
    assert process.stdout is not None
    while time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.2)[0]:
            if process.stdout.readline():
                return
            break
    raise ServiceError(
        "data.service: a local worker did not start; see what it says with: python -m xtts data-dispatcher, and"
        " then python -m xtts data-worker --dispatcher with the address it tells"
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

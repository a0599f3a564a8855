"""Child processes that end when their parent process ends, however that happens.

The standard input of such a child is a pipe whose other end only the parent has. When the parent is gone, even by
SIGKILL, the kernel closes the pipe, and the child sends itself SIGTERM. PR_SET_PDEATHSIG exists on Linux only, and must
be set between fork and exec, where it is not safe to run Python in a process that has TensorFlow's threads.
"""

import os
import signal
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

if TYPE_CHECKING:
    import subprocess

END_WITH_PARENT = "XTTS_END_WITH_PARENT"  # set in the environment of such a child


def start_child(
    command: Sequence[str], environment: Optional[Mapping[str, str]] = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start `command`, a program that calls `end_with_parent`. It also ends when the returned object is dropped."""
    import subprocess  # here, because every command imports this module and few start a child

    environment = {**(os.environ if environment is None else environment), END_WITH_PARENT: "1"}
    return subprocess.Popen(list(command), env=environment, stdin=subprocess.PIPE, **options)


def end_with_parent() -> None:
    """In a process started by `start_child`, send SIGTERM to itself once the parent is gone; elsewhere do nothing."""
    if END_WITH_PARENT in os.environ:
        import threading

        threading.Thread(target=_end_after_input, name="end with parent", daemon=True).start()


def _end_after_input() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock would be held while the interpreter shuts down
        pass
    os.kill(os.getpid(), signal.SIGTERM)

"""Start TensorFlow without the lines that it prints while it starts.

TF_CPP_MIN_LOG_LEVEL hides most of them, but not those that are written before logging is set up, nor the errors about a
GPU on a machine that has none. So file descriptor 2 leads to a temporary file while TensorFlow is imported and looks
for devices. What it prints later, during a run, is shown.

If the import fails, the hidden lines are shown. This is done by a shell that has the real standard error: it copies the
file there unless it gets a line that reports success, so that nothing is lost even if the import crashes.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from typing import Iterator

from xtts.errors import XttsError

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
EVERYTHING, ERRORS = "0", "2"
WATCHER = 'trap "" INT TERM HUP; read -r _ || cat "$1" >&2; rm -f "$1"'  # a line on its input reports success


def start_tensorflow(verbose: bool = False) -> None:
    """Import TensorFlow and let it look for devices, without configuring any.

    Its lines are shown with `verbose`, or where TF_CPP_MIN_LOG_LEVEL is 0.
    """
    if verbose:
        os.environ[LOG_LEVEL] = EVERYTHING  # processes that this one starts inherit it
    if sys.stderr is not None:
        sys.stderr.flush()  # before Python 3.9 it is buffered where it is no terminal, and would be hidden, too
    is_shown = os.environ.setdefault(LOG_LEVEL, ERRORS) == EVERYTHING or "tensorflow" in sys.modules
    try:
        with contextlib.nullcontext() if is_shown else hidden_stderr():
            import tensorflow as tf

            tf.config.list_physical_devices()  # loads the GPU's driver, or finds that there is none
    except Exception as error:  # packages beside TensorFlow break it in many ways
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise XttsError(
            f"TensorFlow cannot be imported ({type(error).__name__}: {first_line}); run `xtts doctor`, which names what"
            " is in the way and the command that mends it"
        ) from None


@contextlib.contextmanager
def hidden_stderr() -> Iterator[None]:
    """Hide what is written to file descriptor 2, by C++ too; show it if an exception or a crash ends the block."""
    with contextlib.ExitStack() as opened:
        try:
            handle, path = tempfile.mkstemp(prefix="xtts-stderr-")
            opened.callback(os.close, handle)
            opened.callback(_remove, path)  # if there is no watcher to do it
            shown = os.dup(2)
            opened.callback(os.close, shown)
            watcher = subprocess.Popen(["/bin/sh", "-c", WATCHER, "sh", path], stdin=subprocess.PIPE)
        except OSError:  # no /bin/sh, no room for the file, or no standard error: nothing is hidden
            yield
            return
        message = b"all is well\n"
        os.dup2(handle, 2)
        try:
            yield
        except Exception:
            message = b""
            raise
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(shown, 2)
            watcher.communicate(message)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)  # noqa: PTH107

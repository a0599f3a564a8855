"""`python -m xtts` with a preset "tiny" so small that a whole run takes seconds.

In the preset "small" the GPT is as large as the real "tiny", and the rest is as small as here.
"""

import os
import signal
import sys

import attrs
from small import SMALL

from xtts.commands import main as commands
from xtts.pipeline.service import servers
from xtts.planning.sizes import SIZES, CodecSize

SMALLEST = attrs.evolve(  # its checkpoints are small enough to be kept in the repository
    SMALL,
    gpt=attrs.evolve(SMALL.gpt, width=16, text_positions=24, audio_positions=48),
    codec=CodecSize(hidden=4, code_width=4, codes=16, blocks=1),
)
MIXED = attrs.evolve(SMALLEST, gpt=SIZES["tiny"].gpt)


def main(arguments, cwd, log, most_bytes=None, stop=None):
    """Run the program in a forked process; its output goes to the file `log`.

    `stop`: a folder, and a function that says whether to stop there (SIGSTOP).
    """
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(cwd)
    if most_bytes:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    if stop:
        _stop_at(*stop)
    _prepare()
    sys.exit(commands.main(arguments))


def _prepare():
    """Shrink the preset "tiny", and drop no worker of a data service for being slow: tests run on busy machines."""
    SIZES.update(tiny=SMALLEST, small=MIXED)
    servers.PATIENCE = servers.Patience(first=1200, silence=1200, overtaken=1200, answer=1200)


def _stop_at(folder, is_so):
    """Stop the process, once, before it opens, creates or renames a file in a folder while a condition holds."""
    is_looking = False

    def look(event, arguments):  # an audit hook, which Python calls before the system call
        nonlocal is_looking
        if is_looking or event not in ("open", "os.mkdir", "os.rename") or not isinstance(arguments[0], (str, bytes)):
            return
        if os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):  # noqa: PTH100
            is_looking = True
            if is_so():
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            is_looking = False

    sys.addaudithook(look)


if __name__ == "__main__":
    _prepare()
    sys.exit(commands.main(sys.argv[1:]))

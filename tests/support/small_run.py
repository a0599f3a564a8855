"""`python -m xtts` with a model under the name "tiny" that is so small that a whole run takes seconds.

Under the name "small" the GPT is as large as tiny is elsewhere, and the rest is that small.
"""

import os
import sys

import attrs
from small import SMALL

from xtts.commands import main as commands
from xtts.planning.sizes import SIZES, CodecSize

SMALLEST = attrs.evolve(  # a checkpoint of it is small enough to be kept among the tests
    SMALL,
    gpt=attrs.evolve(SMALL.gpt, width=16, text_positions=24, audio_positions=48),
    codec=CodecSize(hidden=4, code_width=4, codes=16, blocks=1),
)
MIXED = attrs.evolve(SMALLEST, gpt=SIZES["tiny"].gpt)


def main(arguments, cwd, log, most_bytes=None):
    """The program, in a process that was forked: what it says goes to the file `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(cwd)
    if most_bytes:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    SIZES.update(tiny=SMALLEST, small=MIXED)
    sys.exit(commands.main(arguments))


if __name__ == "__main__":
    SIZES.update(tiny=SMALLEST, small=MIXED)
    sys.exit(commands.main(sys.argv[1:]))

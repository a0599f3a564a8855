"""`xtts data-worker`: a worker of a tf.data service."""

import os
from argparse import ArgumentParser
from typing import Optional

from xtts.commands.command import Command
from xtts.commands.data_service import add_server_flags


def add_flags(parser: ArgumentParser) -> None:
    """A server's flags, --dispatcher and --host."""
    add_server_flags(parser)
    parser.add_argument("--dispatcher", metavar="ADDRESS", required=True, help="such as grpc://10.0.0.5:5000")
    parser.add_argument(
        "--host", help="name or address at which others reach this machine (the one the dispatcher sees)"
    )


def data_worker(*, dispatcher: str, port: int, host: Optional[str], as_json: bool, verbose: bool) -> int:
    """Serve until interrupted."""
    from xtts.commands.start_tensorflow import start_tensorflow
    from xtts.pipeline.service.servers import free_port, require_answer, run_worker

    require_answer(dispatcher, "--dispatcher")  # mistakes are reported before TensorFlow starts
    port = free_port(port)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # tf.data works on the CPU; the GPUs are for others
    start_tensorflow(verbose)
    run_worker(dispatcher, port, host, as_json)
    return 0


COMMAND = Command(
    "data-worker",
    "Run a worker of tf.data service, which reads recordings and makes features for runs, until interrupted.",
    add_flags,
    data_worker,
)

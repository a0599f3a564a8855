"""`xtts data-dispatcher`: the dispatcher of a tf.data service."""

import os
from argparse import ArgumentParser
from typing import Optional

from xtts.commands.command import Command
from xtts.commands.data_service import add_server_flags


def add_flags(parser: ArgumentParser) -> None:
    """A server's flags and --work-dir."""
    add_server_flags(parser)
    parser.add_argument("--work-dir", metavar="DIR", help="keep state in DIR, to go on from after a crash")


def data_dispatcher(*, port: int, work_dir: Optional[str], as_json: bool, verbose: bool) -> int:
    """Serve until interrupted."""
    from xtts.commands.start_tensorflow import start_tensorflow
    from xtts.pipeline.service.servers import free_port, run_dispatcher

    port = free_port(port)  # a port in use is reported before TensorFlow starts
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    start_tensorflow(verbose)
    run_dispatcher(port, work_dir, as_json)
    return 0


COMMAND = Command(
    "data-dispatcher",
    "Run a dispatcher of tf.data service, for recipes with data.service, until interrupted.",
    add_flags,
    data_dispatcher,
)

"""Verbs that serve features to runs, by tf.data service."""

from argparse import ArgumentParser

from xtts.commands.command import add_json_flag, add_verbose_flag


def add_server_flags(parser: ArgumentParser) -> None:
    """--port, --json and --verbose."""
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any free one (0)")
    add_json_flag(parser)
    add_verbose_flag(parser)

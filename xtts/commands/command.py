"""A subcommand: its name, its flags and its body; and what the bodies share."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple

from xtts.errors import UsageError


class Command(NamedTuple):
    """One subcommand. Its body gets what was typed as keyword arguments, named by the flags' `dest`."""

    name: str
    summary: str  # one sentence, for --help
    add_flags: Callable[[argparse.ArgumentParser], None]
    body: Callable[..., int]  # returns the exit status


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """--json, for the verbs whose result other programs may read."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="print the result as JSON")


def add_verbose_flag(parser: argparse.ArgumentParser) -> None:
    """--verbose, for the verbs that start TensorFlow."""
    parser.add_argument("--verbose", action="store_true", help="show all of TensorFlow's own log lines")


def add_run_folder(parser: argparse.ArgumentParser, or_import: bool = False) -> None:
    """RUN, the folder of a model; `or_import`: an imported one will do as well."""
    described = "folder of a run or of an imported model" if or_import else "folder of a run, such as runs/dual_gpu"
    parser.add_argument("folder", metavar="RUN", help=described)


def require_folder(folder: str, made_by: str) -> None:
    """Raise unless the folder that was typed exists."""
    if not Path(folder).is_dir():
        raise UsageError(f"{folder}: there is no such folder; name one that {made_by} has made")


def require_file(path: str) -> None:
    """Raise unless the file that was typed exists."""
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file; correct the path")


def require_free_folder(path: str) -> None:
    """Raise unless the folder that was typed is new or empty."""
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{path}: this is there already; name a folder that is new or empty")


def print_json(value: Any) -> None:
    """Print a result for another program."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_stderr(line: str) -> None:
    """Print a line that is not the result."""
    print(line, file=sys.stderr)

"""The command line: `xtts VERB ...`.

The exit status is 0 on success, 1 when it could not be done, 2 when what was typed, or the recipe, must be changed, and
130 after Ctrl-C. Each verb is a module of its own, which imports what is slow to import when it is called, so that
--help and mistakes are answered at once.
"""

import argparse
import importlib
import os
import sys
from typing import Any, Dict, Optional, Sequence, Union

from xtts import __version__
from xtts.commands.command import Command
from xtts.errors import XttsError
from xtts.processes import end_with_parent

VERBS: Dict[str, Union[str, Dict[str, str]]] = {  # the module of each verb, or of each of its subcommands
    "run": "run",
    "cluster": "cluster",
    "plan": "recipe.plan",
    "tune": "tune.command",
    "report": "report",
    "stats": "corpus.stats",
    "corpus": {"demo": "corpus.demo", "check": "corpus.check"},
    "say": "say",
    "text": "text",
    "evaluate": "evaluate",
    "import": "weights.import_checkpoint",
    "export": "weights.export",
    "migrate": "recipe.migrate",
    "data-dispatcher": "data_service.dispatcher",
    "data-worker": "data_service.worker",
    "doctor": "doctor",
    "schema": "recipe.schema",
}
GROUPS = {"corpus": "Make a demo corpus, or check one of your own."}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb. An XttsError is printed as a sentence, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Characters that a terminal lacks are escaped; and in a log file lines come as they are printed.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    end_with_parent()
    typed = sys.argv[1:] if argv is None else argv
    arguments = vars(make_parser(typed[0] if typed else None).parse_args(typed))
    command: Command = arguments.pop("command")
    try:
        status = command.body(**arguments)
        sys.stdout.flush()
        return status
    except XttsError as error:
        print(error, file=sys.stderr)
        return error.status
    except BrokenPipeError:  # whoever reads the output, `head` perhaps, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("xtts: interrupted", file=sys.stderr)
        return 130


def make_parser(verb: Optional[str] = None) -> argparse.ArgumentParser:
    """The parser of the command line: of one verb, which imports less, or of all where there is no such verb."""
    parser = argparse.ArgumentParser(
        prog="xtts",
        description="Train XTTS voice-cloning text-to-speech on any TensorFlow from 2.4 to 2.21, from one TOML recipe.",
        epilog="First steps: xtts doctor, then xtts run recipes/dual_gpu.toml",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xtts {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, module in VERBS.items() if verb not in VERBS else [(verb, VERBS[verb])]:
        if isinstance(module, str):
            _add_command(verbs, module)
        else:
            group = verbs.add_parser(name, help=GROUPS[name], description=GROUPS[name], allow_abbrev=False)
            subcommands = group.add_subparsers(metavar="SUBCOMMAND", required=True)
            for one in module.values():
                _add_command(subcommands, one)
    return parser


def _add_command(parsers: Any, module: str) -> None:
    command: Command = importlib.import_module(f"xtts.commands.{module}").COMMAND
    parser = parsers.add_parser(command.name, help=command.summary, description=command.summary, allow_abbrev=False)
    parser.set_defaults(command=command)
    command.add_flags(parser)

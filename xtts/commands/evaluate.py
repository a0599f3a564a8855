"""`xtts evaluate`: measure how well a run speaks."""

from argparse import ArgumentParser

from xtts.commands.command import (
    Command,
    add_json_flag,
    add_run_folder,
    add_verbose_flag,
    print_json,
    print_stderr,
    require_folder,
)
from xtts.errors import UsageError


def add_flags(parser: ArgumentParser) -> None:
    """RUN, --utterances and --recogniser."""
    add_run_folder(parser)
    parser.add_argument("--utterances", type=int, default=20, metavar="N", help="evaluate at most N utterances (20)")
    parser.add_argument(
        "--recogniser", default="auto", metavar="NAME", help="speech recogniser: auto, none, sphinx or whisper (auto)"
    )
    add_json_flag(parser)
    add_verbose_flag(parser)


def evaluate(*, folder: str, utterances: int, recogniser: str, as_json: bool, verbose: bool) -> int:
    """Evaluate a run and print the figures."""
    require_folder(folder, "xtts run")
    if utterances < 1:
        raise UsageError(f"--utterances {utterances}: there is nothing to evaluate; write 1 or more")

    from xtts.evaluation.recognisers import check_recognisers

    check_recognisers(recogniser)

    from xtts.commands.start_tensorflow import start_tensorflow

    start_tensorflow(verbose)

    from xtts.evaluation.evaluate import evaluate as evaluate_run

    found = evaluate_run(folder, utterances, recogniser, print_stderr)
    if as_json:
        print_json(found.as_json())
    else:
        print(found.text(), end="")
    return 0


COMMAND = Command(
    "evaluate",
    "Measure how well a run speaks: losses, distortion, word errors and speaker similarity on held-out recordings.",
    add_flags,
    evaluate,
)

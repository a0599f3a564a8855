"""`xtts run`: train a recipe."""

import sys
from argparse import ArgumentParser
from typing import TYPE_CHECKING, List, Sequence

from xtts.commands.command import Command, add_verbose_flag, print_stderr
from xtts.commands.recipe.flags import add_recipe_flags

if TYPE_CHECKING:
    from xtts.recipe.loading import Override


def add_flags(parser: ArgumentParser) -> None:
    """RECIPE, its settings and --verbose."""
    add_recipe_flags(parser)
    add_verbose_flag(parser)


def run(*, recipe: str, settings: "Sequence[Override]", verbose: bool) -> int:
    """Train a recipe and write the report."""
    from xtts.recipe.loading import load_recipe

    loaded = load_recipe(recipe, settings)  # first, so that a mistake in it is answered at once

    from xtts.commands.start_tensorflow import start_tensorflow

    start_tensorflow(verbose)

    from xtts.reporting.report import ReportError, write_report
    from xtts.training.cluster.collectives import WorkerLost, restart_process
    from xtts.training.run import newest_sample, resume_point, train

    try:
        folder = train(loaded)
    except WorkerLost as lost:
        print_stderr(f"{lost}; start it again, unless something else does; the run resumes {resume_point(loaded)}")
        restart_process(lost, loaded.cluster.restarts, [*program(), *sys.argv[1:]])
        return 1
    if folder is None:  # the chief of the cluster writes the folder
        return 0
    sample = newest_sample(folder)
    if sample:
        print(f"listen to {sample}")
    try:
        print(f"see {write_report(folder)}")
    except ReportError as error:  # training is done, and the report can be written at any time
        print_stderr(f"{error}, and then: xtts report {folder}")
    return 0


def program() -> List[str]:
    """The command that started this program, without its arguments."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return [sys.executable, *(["-m", spec.parent] if spec and spec.parent else [sys.argv[0]])]


COMMAND = Command("run", "Train a recipe: check it, read and plan its corpus, train each stage.", add_flags, run)

"""`xtts cluster`: train a recipe with several workers on this machine."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Sequence

from xtts.commands.command import Command, add_json_flag, add_verbose_flag, print_json, print_stderr
from xtts.commands.recipe.flags import add_recipe_flags
from xtts.errors import UsageError

if TYPE_CHECKING:
    from xtts.recipe.loading import Override


def add_flags(parser: ArgumentParser) -> None:
    """RECIPE, its settings and --workers."""
    add_recipe_flags(parser)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="number of workers (2)")
    add_json_flag(parser)
    add_verbose_flag(parser)


def cluster(*, recipe: str, settings: "Sequence[Override]", workers: int, as_json: bool, verbose: bool) -> int:
    """Start the workers, each an `xtts run`, and wait for them."""
    from xtts.recipe.loading import load_recipe

    loaded = load_recipe(recipe, settings)
    if workers < 2:
        raise UsageError(f"--workers {workers}: a cluster has two workers or more; `xtts run` is for one")

    from pathlib import Path

    from xtts.commands.run import program
    from xtts.training.cluster.launch import Launch

    flags = [f"--set={one.key}={one.text}" for one in settings]
    folder = Path(loaded.run.folder) / loaded.run.name
    launch = Launch(
        [*program(), "run", recipe, *flags, *(["--verbose"] if verbose else [])],
        workers=workers,
        folder=folder,
        max_restarts=loaded.cluster.restarts,
        log=print_stderr,
        is_quiet=as_json,
    )
    ended = launch.run()
    if as_json:
        print_json({"folder": str(folder), "status": ended.status, "restarts": ended.restarts, "logs": ended.logs})
    return ended.status


COMMAND = Command(
    "cluster", "Train a recipe with several workers on this machine, as several machines would.", add_flags, cluster
)

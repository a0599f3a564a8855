"""`xtts plan`: what a recipe would train on, without TensorFlow."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Sequence

from xtts.commands.command import Command, add_json_flag, print_json, print_stderr
from xtts.commands.recipe.flags import add_recipe_flags

if TYPE_CHECKING:
    from xtts.recipe.loading import Override


def add_flags(parser: ArgumentParser) -> None:
    """RECIPE, its settings and --json."""
    add_recipe_flags(parser)
    add_json_flag(parser)


def plan(*, recipe: str, settings: "Sequence[Override]", as_json: bool) -> int:
    """Print a recipe's plan."""
    from xtts.recipe.loading import load_recipe

    loaded = load_recipe(recipe, settings)

    from xtts import api

    planned = api.plan(loaded, print_stderr)
    if as_json:
        print_json(planned.as_json())
    else:
        print(planned.text(), end="")
    return 0


COMMAND = Command(
    "plan",
    "Print what a recipe would train on: shapes, padding, steps, traces and memory; TensorFlow is not needed.",
    add_flags,
    plan,
)

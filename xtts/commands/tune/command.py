"""`xtts tune`: find faster settings for a recipe."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence

from xtts.commands.command import Command, add_json_flag, print_json, print_stderr
from xtts.commands.recipe.flags import add_recipe_flags

if TYPE_CHECKING:
    from xtts.recipe.loading import Override


def add_flags(parser: ArgumentParser) -> None:
    """RECIPE, its settings, and how long to try what."""
    add_recipe_flags(parser)
    parser.add_argument("--minutes", type=_positive, default=10.0, help="time for trials, after the first one (10)")
    parser.add_argument("--seconds", type=_positive, default=8.0, help="seconds of steps measured in each trial (8)")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="some of shapes,xla,batch,precision,workers,buffer; or speed"
    )
    parser.add_argument("-o", "--out", metavar="TUNED.toml", help="recipe to write (RECIPE.tuned.toml)")
    add_json_flag(parser)


def tune(
    *,
    recipe: str,
    settings: "Sequence[Override]",
    minutes: float,
    seconds: float,
    only: str,
    out: Optional[str],
    as_json: bool,
) -> int:
    """Try settings, and write the recipe with the faster ones."""
    from xtts.recipe.loading import load_recipe

    load_recipe(recipe, settings)  # before anything is tried, so that a mistake is answered at once

    from xtts.commands.tune.tune import check_out, write_tuned
    from xtts.commands.tune.tune import tune as tune_recipe

    path = Path(recipe)
    target = Path(out) if out else path.with_name(f"{path.stem}.tuned.toml")
    check_out(target)
    log = print_stderr if as_json else print
    names = [name.strip() for name in only.split(",") if name.strip()]
    overrides = [f"{one.key}={one.text}" for one in settings]
    found = tune_recipe(path, settings=overrides, minutes=minutes, seconds=seconds, only=names, log=log)
    write_tuned(path, target, found)
    for note in found.notes:
        log(note)
    if as_json:
        print_json({**found.as_json(), "written": str(target)})
    else:
        chosen = ", ".join(f"{'.'.join(key)} = {change.value}" for key, change in found.changes.items())
        print(f"wrote {target}: the recipe with {chosen or 'nothing changed, since nothing that was tried is faster'}")
    return 0


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text} is not a number above 0")
    return number


COMMAND = Command(
    "tune",
    "Try settings in short runs, each in a process of its own, and write the recipe with the faster ones and why.",
    add_flags,
    tune,
)

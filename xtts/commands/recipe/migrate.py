"""`xtts migrate`: a recipe from the YAML configuration of MyXTTS."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Optional

from xtts.commands.command import Command


def add_flags(parser: ArgumentParser) -> None:
    """The YAML, and the recipe to write."""
    parser.add_argument("config", metavar="config.yaml", help="configuration of MyXTTS")
    parser.add_argument("-o", "--out", metavar="OUT.toml", help="recipe to write (named after the YAML file)")


def migrate(*, config: str, out: Optional[str]) -> int:
    """Write the recipe, and list the settings that have no counterpart."""
    from xtts.recipe.myxtts import write_migrated

    source = Path(config)
    target = Path(out or f"{source.stem}.toml")
    print(write_migrated(source, target).text())
    print(f"wrote {target}; look at it, and then: xtts plan {target}")
    return 0


COMMAND = Command(
    "migrate",
    "Write a recipe from the YAML configuration of the earlier MyXTTS, and list the settings without a counterpart.",
    add_flags,
    migrate,
)

"""`xtts schema`: the JSON schema of a recipe."""

import os
from argparse import ArgumentParser

from xtts.commands.command import Command

PACKAGE = __file__.rsplit(os.sep, 3)[0]  # pathlib takes longer to import than the rest


def add_flags(_parser: ArgumentParser) -> None:
    """None."""


def schema() -> int:
    """Print the schema."""
    with open(f"{PACKAGE}/recipe/schema.json", encoding="utf-8") as file:  # noqa: PTH123
        print(file.read(), end="")
    return 0


COMMAND = Command(
    "schema", "Print the JSON schema of a recipe, by which editors complete and check one.", add_flags, schema
)

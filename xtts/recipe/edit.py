"""Change settings in the text of a recipe and preserve everything else, including comments and layout.

Each changed setting gets a comment above it that says why. tomlkit is imported only when there is something to change,
because its import takes as long as `xtts --help` itself.
"""

import json
import re
import textwrap
from typing import Any, Iterable, List, Mapping, NamedTuple, cast

from xtts.recipe.lines import Key, RecipeError, parse_toml

WIDTH = 100  # characters of a line of comment


class Edit(NamedTuple):
    """The new value of a setting, and the reason for it."""

    value: Any
    why: str


def apply_edits(text: str, changes: Mapping[Key, Edit]) -> str:
    """The recipe with every (section, name) in `changes` set to its new value."""
    if not changes:
        return text
    import tomlkit

    wanted = parse_toml(text, "the recipe")
    for (section, name), edit in changes.items():
        wanted.setdefault(section, {})[name] = edit.value
    edited = text
    try:
        for key, edit in changes.items():
            edited = _apply(edited, key, edit)
        if parse_toml(edited, "the recipe") == wanted:
            return edited
    except (RecipeError, tomlkit.exceptions.TOMLKitError):
        pass
    # If tomlkit's edit is not equal to the changed recipe, the recipe is written from scratch, with the reasons on top.
    reasons = [f"{'.'.join(key)}: {edit.why}" for key, edit in changes.items()]
    return f"{_comments(reasons)}\n{tomlkit.dumps(wanted)}"


def describe_edits(key: Key, value: Any) -> str:
    """A setting as a recipe states it in one line."""
    return f"{'.'.join(key)} = {json.dumps(value)}"


def _apply(text: str, key: Key, edit: Edit) -> str:
    """The text with one setting changed, or added after the last one of its section.

    Reasons go into the white space before a setting: tomlkit itself adds comments only at the end of a section, where
    they would follow the comment of the next one.
    """
    import tomlkit

    section, name = key
    document = tomlkit.parse(text)
    if section not in document:
        document[section] = tomlkit.table()
        cast(tomlkit.items.Table, document[section]).trivia.indent = "\n" if text.strip() else ""
    table: Any = document[section]
    setting = tomlkit.item(edit.value)
    others = [one for at, one in table.value.body if at] if isinstance(table, tomlkit.items.Table) else []
    if others and name not in table and re.search(rf"^\s*\[\s*{section}\s*\]", text, re.MULTILINE):
        line = f"{_comments([edit.why])}{name} = {setting.as_string()}\n"
        others[-1].trivia.trail = (others[-1].trivia.trail or "\n") + line
        return tomlkit.dumps(document)
    table[name] = setting
    place = table if isinstance(table, tomlkit.items.InlineTable) else setting
    place.trivia.indent = _comments([edit.why], place.trivia.indent) + place.trivia.indent
    return tomlkit.dumps(document)


def _comments(reasons: Iterable[str], indent: str = "") -> str:
    lines: List[str] = [line for reason in reasons for line in textwrap.wrap(reason, WIDTH)]
    return "".join(f"{indent}# {line}\n" for line in lines)

"""A recipe's text with some settings changed: the text and the changes come in, the text goes out, otherwise as it was.

Comments, order and whatever else a person wrote stay. What a change is for stands above it as a comment.
"""

import contextlib
import json
import re
import textwrap
from typing import Any, Dict, List, Mapping, NamedTuple

from xtts.recipe.lines import Key, RecipeError, key_lines, parse_toml

WIDTH = 100  # characters of a comment's line


class Edit(NamedTuple):
    """What a setting becomes, and why."""

    value: Any
    why: str


def apply_edits(text: str, changes: Mapping[Key, Edit]) -> str:
    """The text with every (section, name) of `changes` at its new value."""
    wanted = _laid_over(parse_toml(text, "the recipe"), changes)
    made = text
    with contextlib.suppress(RecipeError):  # what came out is no TOML
        for key, change in changes.items():
            made = _with(made, key, change)
        if parse_toml(made, "the recipe") == wanted:
            return made
    import tomli_w

    # Tables within lines, or other ways of writing that are not followed: all is said anew, and still means the same.
    reasons = [line for key, change in changes.items() for line in _comment(f"{'.'.join(key)}: {change.why}")]
    return "\n".join([*reasons, "", tomli_w.dumps(wanted)])


def _with(text: str, key: Key, change: Edit) -> str:
    lines, places = text.splitlines(), key_lines(text)
    section, name = key
    setting = f"{name} = {_toml(change.value)}"
    if key in places:
        number = places[key] - 1
        found = re.match(r"^(\s*)([\w.\"' -]+?)(\s*=\s*)(\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^\s#]+)(.*)$", lines[number])
        if found:
            indent, own, equals, _, rest = found.groups()
            lines[number : number + 1] = [*_comment(change.why), f"{indent}{own}{equals}{_toml(change.value)}{rest}"]
    elif (section,) in places and re.match(rf"^\s*\[\s*{section}\s*\]", lines[places[(section,)] - 1]):
        number = places[(section,)]
        lines[number:number] = [*_comment(change.why), setting]
    else:
        lines += ["", f"[{section}]", *_comment(change.why), setting]
    return "\n".join(lines) + "\n"


def _laid_over(tables: Dict[str, Any], changes: Mapping[Key, Edit]) -> Dict[str, Any]:
    for (section, name), change in changes.items():
        tables.setdefault(section, {})[name] = change.value
    return tables


def _comment(why: str) -> List[str]:
    return [f"# {line}" for line in textwrap.wrap(why, WIDTH)]


def _toml(value: Any) -> str:
    """A number, a word or a truth, as TOML has it."""
    return json.dumps(value)


def describe_edits(key: Key, value: Any) -> str:
    """A setting as a person reads it."""
    return f"{'.'.join(key)} = {_toml(value)}"

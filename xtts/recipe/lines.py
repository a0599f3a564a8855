"""Parse TOML, report all syntax errors with their lines, and find the line of each key.

tomllib stops at the first error and keeps no line numbers. So it is run again without each broken line, to find the
next error, and on each statement by itself when line numbers are needed.
"""

import re
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from xtts.errors import UsageError

Key = Tuple[str, ...]  # ("train", "batch_size") is train.batch_size

# Tokens in which a newline does not end a statement: strings, comments, brackets.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|\n",
    re.DOTALL,
)

_REMEDIES = (  # a part of tomllib's message, and the remedy; the first that matches is shown
    ("after a key", "write key = value"),
    ("Invalid initial character for a key", "write key = value"),
    ("Invalid statement", "write key = value, or [section]"),
    ("Invalid value", 'put text in quotes, key = "text"; numbers, true and false go without'),
    ("after a statement", 'write one setting a line, and text in quotes, key = "text"'),
    ("Cannot ", "write each key and each [section] once"),
    ("Duplicate", "write each key and each [section] once"),
    ("Unescaped", r"in a Windows path write / for \, or put it in single quotes"),
    ("Unclosed array", "close the list with ]"),
    ("nclosed inline table", "close the table with }"),
    ("nterminated string", "close the quotes"),
    ("Illegal character", "close the quotes on the same line"),
    ('Expected "\'"', "close the quotes"),
    ("at the end of a table declaration", "write [section]"),
)


class RecipeProblem(NamedTuple):
    """One mistake in a recipe."""

    place: str  # file:line, or the flag that set it
    key: str
    text: str  # what is wrong; and what to write

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.text}"


class RecipeError(UsageError):
    """All mistakes in a recipe."""

    def __init__(self, problems: List[RecipeProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def parse_toml(text: str, name: str) -> Dict[str, Any]:
    """The tables in a TOML text; `name` is the file's name in error messages."""
    try:
        tables: Dict[str, Any] = tomllib.loads(text)
        return tables
    except (ValueError, RecursionError):
        raise RecipeError(list(_syntax_problems(text, name))) from None


def key_lines(text: str) -> Dict[Key, int]:
    """The line on which each key, and each table around it, is first written."""
    lines: Dict[Key, int] = {}
    table: Key = ()
    for line, statement in _statements(text):
        keys = list(_keys(tomllib.loads(statement)))
        if statement.startswith("["):
            table, keys = keys[-1], [()]
        for key in keys:
            whole = table + key
            for depth in range(1, len(whole) + 1):
                lines.setdefault(whole[:depth], line)
    return lines


def dotted_key(key: Key) -> str:
    """`key` as TOML writes it; parts that are not plain names are quoted."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else ascii(part) for part in key)


def _keys(tables: Dict[str, Any]) -> Iterator[Key]:
    for name, value in tables.items():
        yield (name,)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = value[0]
        if isinstance(value, dict):
            for key in _keys(value):
                yield (name, *key)


def _statements(text: str) -> Iterator[Tuple[int, str]]:
    """Each statement, which may span several lines, with the number of its first line."""
    line, first, start, depth = 1, 1, 0, 0
    text = text.replace("\r\n", "\n") + "\n"
    for token in _TOKEN.finditer(text):
        mark = token.group()
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
        line += mark.count("\n")
        if mark == "\n" and depth <= 0:
            statement = text[start : token.end()].strip()
            if statement and not statement.startswith("#"):
                yield first, statement
            first, start, depth = line, token.end(), 0
    if text[start:].strip():
        yield first, text[start:].strip()  # brackets that are never closed


def _syntax_problems(text: str, name: str) -> Iterator[RecipeProblem]:
    """Every line that is not TOML; each one found is blanked, and the text is parsed again."""
    lines = text.replace("\r\n", "\n").split("\n")
    last = 0
    while True:
        mistake = _mistake("\n".join(lines))
        if mistake is None or mistake[0] <= last:
            return  # no further error, or one caused by the previous one
        last, message = mistake
        yield RecipeProblem(f"{name}:{last}", "not TOML", f"{message}; {_remedy(message)}")
        if re.search("closed|terminated|nested", message):
            return  # the rest of the text is inside a string or bracket
        is_header = lines[last - 1].lstrip().startswith("[")
        lines[last - 1] = f"[__line_{last}]" if is_header else ""


def _mistake(text: str) -> Optional[Tuple[int, str]]:
    """The line of the first syntax error, and tomllib's message."""
    try:
        tomllib.loads(text)
        return None
    except tomllib.TOMLDecodeError as error:
        message, _, position = str(error).rpartition(" (at ")
        line = re.match(r"line (\d+)", position)
        return (int(line.group(1)) if line else len(text.rstrip().split("\n"))), message
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        return _unreadable_line(text), "nested too deeply" if deep else "a number with too many digits"


def _unreadable_line(text: str) -> int:
    for line, statement in _statements(text):
        try:
            tomllib.loads(statement)
        except (ValueError, RecursionError):
            return line
    return 1


def _remedy(message: str) -> str:
    return next((remedy for part, remedy in _REMEDIES if part in message), "see the shipped recipes for examples")

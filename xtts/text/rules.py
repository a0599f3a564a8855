"""Rewriting rules: regular expressions and what replaces their matches, applied in order."""

import re
from typing import Callable, Iterable, Match, Pattern, Sequence, Tuple, Union

Replacement = Union[str, Callable[[Match[str]], str]]
Rule = Tuple[Pattern[str], Replacement]

HAS_DIGIT = re.compile("[0-9]")


def rule(pattern: str, replacement: Replacement, flags: int = 0) -> Rule:
    return re.compile(pattern, flags), replacement


def rewrite(text: str, rules: Sequence[Rule]) -> str:
    """The text after each rule has replaced all of its matches."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def any_of(names: Iterable[str]) -> str:
    """A pattern that matches any of the names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))

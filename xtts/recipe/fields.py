"""What a setting may be: a value (or a flag's text) and a kind come in; what is wrong with it goes out.

A kind is a JSON schema of one setting, the same that editors read: a type (or an enum, or anyOf of these), and
minimum, exclusiveMinimum, maximum, pattern with examples, items, minItems, uniqueItems. TOML has types of its own, so
nothing is guessed: "4" is not a whole number and true is not 1; but a whole number will do for a number. Where one
thing or a list of them will do, a list stands in brackets, or on the command line has a comma.
"""

import re
from typing import Any, Dict, Iterable, List, Optional

Kind = Dict[str, Any]

_INFINITY = float("inf")
_WORDS = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text"}
_TYPES = {"boolean": (bool,), "integer": (int,), "number": (float, int), "string": (str,)}


def find_problem(value: Any, kind: Kind) -> Optional[str]:
    """What is wrong with `value`; what to write. None when it is fine."""
    lists = _list_of(kind)
    if lists and (lists is kind or isinstance(value, (list, tuple))):
        return _list_problem(value, lists)
    fitting = [option for option in _options(kind) if _is_of(value, option)]
    if not fitting:
        return _refusal(value, kind)
    if isinstance(value, str) and not value.isprintable():
        return f"{format_value(value)} holds characters that do not print; write {describe_field(kind)}"
    if not isinstance(value, (str, bool)) and not _is_within(value, kind):
        return f"{format_value(value)} is out of range; write {describe_field(kind)}"
    if "pattern" in kind and not re.search(kind["pattern"], value):
        return f"{format_value(value)} does not fit; write {describe_field(kind)}"
    return None


def parse_flag(text: str, kind: Kind) -> Any:
    """What a flag's text says to a setting of this kind; the text itself where it says nothing, to be refused."""
    lists = _list_of(kind)
    if lists and (lists is kind or "," in text or text.strip().startswith("[")):
        items = (item.strip().strip("\"'") for item in text.strip().strip("[]").split(","))
        return [parse_flag(item, lists["items"]) for item in items if item]
    types = [option.get("type") for option in _options(kind)]
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number, name in ((int, "integer"), (float, "number")):
        if name in types:
            try:
                return number(text)
            except ValueError:
                pass
    return text


def describe_field(kind: Kind) -> str:
    """The kind as a person says it."""
    if kind.get("type") == "array":
        return f"a list of {describe_field(kind['items'])}"
    said = []
    for option in _options(kind):
        if "enum" in option:
            said.append(" or ".join(map(_quoted, option["enum"])))
        elif option["type"] == "array":
            said.append("a list of them")
        elif option["type"] in ("integer", "number"):
            said.append(_WORDS[option["type"]] + _range(kind))
        else:
            said.append(_WORDS[option["type"]])
    examples = "".join(f", such as {_quoted(example)}" for example in kind.get("examples", []))
    return " or ".join(said) + examples


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A suggestion: the known name nearest to `word`; `otherwise`, or all the names, when none is near."""
    import difflib

    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else otherwise or f"known: {', '.join(known)}"


def format_value(value: Any) -> str:
    """A value as it would be written in TOML, or named where that would be long."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value if len(value) < 60 else value[:57] + "...")
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of over 40 digits"
    return str(value)


def _list_problem(value: Any, kind: Kind) -> Optional[str]:
    if not isinstance(value, (list, tuple)):
        return f"expected {describe_field(kind)}, got {format_value(value)}; write it in brackets, [...]"
    if len(value) < kind.get("minItems", 0):
        return f"the list is empty; write {describe_field(kind)}"
    for position, item in enumerate(value):
        wrong = find_problem(item, kind["items"])
        if wrong:
            return wrong
        if kind.get("uniqueItems") and item in value[:position]:
            return f"{format_value(item)} stands there twice; write it once"
    return None


def _list_of(kind: Kind) -> Optional[Kind]:
    """The kind itself where it is a list, or the one of its options that is."""
    return next((option for option in _options(kind) if option.get("type") == "array"), None)


def _options(kind: Kind) -> List[Kind]:
    options: List[Kind] = kind.get("anyOf", [kind])
    return options


def _is_of(value: Any, option: Kind) -> bool:
    if "enum" in option:
        return isinstance(value, str) and value in option["enum"]
    return type(value) in _TYPES.get(option["type"], ())


def _is_within(value: float, kind: Kind) -> bool:
    return (
        kind.get("minimum", -_INFINITY) <= value <= kind.get("maximum", _INFINITY)
        and value > kind.get("exclusiveMinimum", -_INFINITY)
        and abs(value) < 2**63  # no TOML reader must take more, and inf and nan train nothing
    )


def _range(kind: Kind) -> str:
    low = f" above {kind['exclusiveMinimum']}" if "exclusiveMinimum" in kind else ""
    low = f" from {kind['minimum']}" if "minimum" in kind else low
    if "maximum" in kind:
        return f"{low} to {kind['maximum']}"
    return low + " up" if "minimum" in kind else low


def _refusal(value: Any, kind: Kind) -> str:
    expected = f"expected {describe_field(kind)}, got {format_value(value)}"
    if isinstance(value, str):
        meant = parse_flag(value, kind)
        if not isinstance(meant, str) and not find_problem(meant, kind):
            return f"{expected}; write {meant} without the quotes".replace("True", "true").replace("False", "false")
        choices = [_quoted(choice) for option in _options(kind) for choice in option.get("enum", [])]
        if choices:
            return f"{expected}; {did_you_mean(_quoted(value), choices, f'write {describe_field(kind)}')}"
    if _options(kind)[0].get("type") == "string":
        return f"{expected}; write it in quotes"
    return f"{expected}; write {describe_field(kind)}"


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c != '"' else ascii(c)[1:-1] for c in text) + '"'

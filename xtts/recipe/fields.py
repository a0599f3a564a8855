"""Validate one setting: its value in TOML, or the text of a flag, against its JSON schema.

The schema of a field is the one that editors read: a type (or an enum, or anyOf of these), and minimum,
exclusiveMinimum, maximum, pattern with examples, items, minItems, uniqueItems. TOML is typed, so nothing is converted:
"4" is not a whole number and true is not 1, but a whole number is accepted for a number. Where one value or a list is
accepted, a list is written in brackets, or with a comma on the command line.

By hand because jsonschema's messages describe the schema and not the remedy, and it takes longer to import than a
recipe takes to check.
"""

import re
from typing import Any, Dict, Iterable, List, Optional

FieldSchema = Dict[str, Any]

_INFINITY = float("inf")
_TYPE_NAMES = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text"}
_TYPES = {"boolean": (bool,), "integer": (int,), "number": (float, int), "string": (str,)}


def find_problem(value: Any, field: FieldSchema) -> Optional[str]:
    """What is wrong with `value`, and what to write instead; None when it is valid."""
    list_field = _list_of(field)
    if list_field and (list_field is field or isinstance(value, (list, tuple))):
        return _list_problem(value, list_field)
    matching = [option for option in _options(field) if _has_type(value, option)]
    if not matching:
        return _type_problem(value, field)
    if isinstance(value, str) and not value.isprintable():
        return f"{format_value(value)} contains unprintable characters; write {describe_field(field)}"
    if not isinstance(value, (str, bool)) and not _is_within(value, field):
        return f"{format_value(value)} is out of range; write {describe_field(field)}"
    if "pattern" in field and not re.search(field["pattern"], value):
        return f"{format_value(value)} does not fit; write {describe_field(field)}"
    return None


def parse_flag(text: str, field: FieldSchema) -> Any:
    """The value of a flag's text; the text itself if it is not valid, so that `find_problem` refuses it."""
    list_field = _list_of(field)
    if list_field and (list_field is field or "," in text or text.strip().startswith("[")):
        items = (item.strip().strip("\"'") for item in text.strip().strip("[]").split(","))
        return [parse_flag(item, list_field["items"]) for item in items if item]
    types = [option.get("type") for option in _options(field)]
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number, name in ((int, "integer"), (float, "number")):
        if name in types:
            try:
                return number(text)
            except ValueError:
                pass
    return text


def describe_field(field: FieldSchema) -> str:
    """The values that a field accepts, in words."""
    if field.get("type") == "array":
        return f"a list of {describe_field(field['items'])}"
    parts = []
    for option in _options(field):
        if "enum" in option:
            parts.append(" or ".join(map(_quoted, option["enum"])))
        elif option["type"] == "array":
            parts.append("a list of them")
        elif option["type"] in ("integer", "number"):
            parts.append(_TYPE_NAMES[option["type"]] + _range(field))
        else:
            parts.append(_TYPE_NAMES[option["type"]])
    examples = "".join(f", such as {_quoted(example)}" for example in field.get("examples", []))
    return " or ".join(parts) + examples


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the known name most similar to `word`; without one, `otherwise` or all the names."""
    import difflib

    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else otherwise or f"known: {', '.join(known)}"


def format_value(value: Any) -> str:
    """A value as TOML writes it; long ones, lists and tables only by name."""
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


def _list_problem(value: Any, field: FieldSchema) -> Optional[str]:
    if not isinstance(value, (list, tuple)):
        return f"expected {describe_field(field)}, got {format_value(value)}; write it in brackets, [...]"
    if len(value) < field.get("minItems", 0):
        return f"the list is empty; write {describe_field(field)}"
    for position, item in enumerate(value):
        wrong = find_problem(item, field["items"])
        if wrong:
            return wrong
        if field.get("uniqueItems") and item in value[:position]:
            return f"{format_value(item)} is listed twice; write it once"
    return None


def _list_of(field: FieldSchema) -> Optional[FieldSchema]:
    """The field itself if it is a list, or the one of its options that is a list; None if there is none."""
    return next((option for option in _options(field) if option.get("type") == "array"), None)


def _options(field: FieldSchema) -> List[FieldSchema]:
    options: List[FieldSchema] = field.get("anyOf", [field])
    return options


def _has_type(value: Any, option: FieldSchema) -> bool:
    if "enum" in option:
        return isinstance(value, str) and value in option["enum"]
    return type(value) in _TYPES.get(option["type"], ())


def _is_within(value: float, field: FieldSchema) -> bool:
    return (
        field.get("minimum", -_INFINITY) <= value <= field.get("maximum", _INFINITY)
        and value > field.get("exclusiveMinimum", -_INFINITY)
        and abs(value) < 2**63  # TOML readers need not accept more; inf and nan are no settings
    )


def _range(field: FieldSchema) -> str:
    low = f" above {field['exclusiveMinimum']}" if "exclusiveMinimum" in field else ""
    low = f" from {field['minimum']}" if "minimum" in field else low
    if "maximum" in field:
        return f"{low} to {field['maximum']}"
    return low + " up" if "minimum" in field else low


def _type_problem(value: Any, field: FieldSchema) -> str:
    expected = f"expected {describe_field(field)}, got {format_value(value)}"
    if isinstance(value, str):
        meant = parse_flag(value, field)
        if not isinstance(meant, str) and not find_problem(meant, field):
            return f"{expected}; write {meant} without the quotes".replace("True", "true").replace("False", "false")
        choices = [_quoted(choice) for option in _options(field) for choice in option.get("enum", [])]
        if choices:
            return f"{expected}; {did_you_mean(_quoted(value), choices, f'write {describe_field(field)}')}"
    if _options(field)[0].get("type") == "string":
        return f"{expected}; write it in quotes"
    return f"{expected}; write {describe_field(field)}"


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c != '"' else ascii(c)[1:-1] for c in text) + '"'

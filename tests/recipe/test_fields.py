"""Fields of a recipe: which values are valid, and the messages for those that are not."""

import pytest

from xtts.recipe import fields

WHOLE = {"type": "integer", "minimum": 1}
EITHER = {"anyOf": [{"type": "integer"}, {"enum": ["auto"]}], "minimum": 1}
CHOICE = {"enum": ["tiny", "small"]}
GPUS = {"anyOf": [WHOLE, {"type": "array", "items": WHOLE, "minItems": 1, "uniqueItems": True}], "minimum": 1}
LIST = {"type": "array", "items": CHOICE, "minItems": 1, "uniqueItems": True}


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (0, WHOLE, "0 is out of range; write a whole number from 1 up"),
        (True, WHOLE, "got true"),
        (1.5, WHOLE, "got 1.5"),
        ("4", WHOLE, "write 4 without the quotes"),
        (10**50, WHOLE, "a number of over 40 digits is out of range"),
        (float("nan"), {"type": "number"}, "nan is out of range"),
        (float("inf"), {"type": "number"}, "inf is out of range"),
        (2, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "write a number above 0 to 1"),
        ("atuo", EITHER, 'did you mean "auto"?'),
        ("xyz", EITHER, 'write a whole number from 1 up or "auto"'),
        (0, EITHER, "0 is out of range"),
        ("tinny", CHOICE, 'did you mean "tiny"?'),
        (3, CHOICE, 'got 3; write "tiny" or "small"'),
        (3, {"type": "string"}, "write it in quotes"),
        ("a\nb", {"type": "string"}, "contains unprintable characters"),
        ("0;1", {"type": "string", "pattern": r"^\d$", "examples": ["0,1"]}, 'write text, such as "0,1"'),
        ("tiny", LIST, "write it in brackets"),
        ([], LIST, "the list is empty"),
        (["tiny", "tiny"], LIST, "is listed twice"),
        (["tiny", "smal"], LIST, 'did you mean "small"?'),
        (0, GPUS, "0 is out of range; write a whole number from 1 up or a list of them"),
        ([1, 0], GPUS, "0 is out of range; write a whole number from 1 up"),
        ([2, 2], GPUS, "2 is listed twice"),
        ([], GPUS, "the list is empty"),
        ("1,2", GPUS, "write [1, 2] without the quotes"),
        ("1,x", GPUS, "write a whole number from 1 up or a list of them"),
        ({}, WHOLE, "got a table"),
        ([1], WHOLE, "got a list"),
    ],
)
def test_an_invalid_value_is_reported_with_a_remedy(value, kind, words):
    """A value of the wrong type gets a message with a remedy after the semicolon."""
    problem = fields.find_problem(value, kind)
    assert words in problem
    assert "; " in problem


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, WHOLE),
        ("auto", EITHER),
        (7, EITHER),
        (1, {"type": "number"}),
        (["small"], LIST),
        (3, GPUS),
        ([3, 1], GPUS),
        ((3, 1), GPUS),
        (False, {"type": "boolean"}),
    ],
)
def test_a_valid_value_has_no_problem(value, kind):
    """A value of the right type is accepted; an integer is accepted as a float."""
    assert fields.find_problem(value, kind) is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("4", WHOLE, 4),
        ("4.0", {"type": "number"}, 4.0),
        ("1e-4", {"type": "number"}, 1e-4),
        ("TRUE", {"type": "boolean"}, True),
        ("auto", EITHER, "auto"),
        ("8", EITHER, 8),
        ("8", {"type": "string"}, "8"),
        ("tiny,small", LIST, ["tiny", "small"]),
        ('["tiny", "small"]', LIST, ["tiny", "small"]),
        ("four", WHOLE, "four"),
        ("3", GPUS, 3),
        ("0,1", GPUS, [0, 1]),
        ("[2]", GPUS, [2]),
    ],
)
def test_a_flags_text_is_converted_to_the_type_of_its_setting(text, kind, value):
    """ "8" becomes a number for a numeric setting and stays text for a text setting."""
    found = fields.parse_flag(text, kind)
    assert found == value
    assert type(found) is type(value)

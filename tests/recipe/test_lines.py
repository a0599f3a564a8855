"""TOML with line numbers: the line of each key, and every syntax error."""

import sys

import pytest

from xtts.recipe.lines import RecipeError, dotted_key, key_lines, parse_toml

TEXT = '''\
# a comment
top = 1

[train]   # another
steps = [
  1,  # one
  2,
]
name = """
[not.a.table]
x = 1
"""
quoted."odd key" = 'a # b'
inline = { a = 1, b = { c = 2 } }
[a.b]
c = "]"
d = 1
[[many]]
e = 1
'''


def test_every_key_has_its_line():
    """Comments, multi-line lists and strings, quoted keys and inline tables do not confuse the line numbers."""
    lines = key_lines(TEXT)
    assert lines[("top",)] == 2
    assert lines[("train",)] == 4
    assert lines[("train", "steps")] == 5
    assert lines[("train", "name")] == 9
    assert lines[("train", "quoted", "odd key")] == 13
    assert lines[("train", "inline", "b", "c")] == 14
    assert lines[("a", "b", "c")] == 16
    assert lines[("a", "b", "d")] == 17
    assert lines[("many", "e")] == 19
    assert ("not", "a", "table") not in lines


def test_windows_line_endings_do_not_change_lines():
    """A file with CRLF has its keys on the same lines."""
    assert key_lines(TEXT.replace("\n", "\r\n")) == key_lines(TEXT)


def test_every_syntax_error_is_reported_at_once():
    """One error does not hide the next, and a broken header does not affect the lines below it."""
    with pytest.raises(RecipeError) as caught:
        parse_toml('[train]\nname = hello\nsteps = 4\nx 3\n[data\ntrain = "C:\\data"\nsteps = 4\n', "r.toml")
    assert [problem.place for problem in caught.value.problems] == ["r.toml:2", "r.toml:4", "r.toml:5", "r.toml:6"]
    assert all("; " in problem.text for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\na = 2\n", 2, "once"),
        ("a = [1, 2\nb = 3\n", 2, "close the list"),
        ('a = "x\n', 1, "close the quotes"),
        ("x = 1\na = " + "9" * 5000 + "\n", 2, "too many digits"),
        ("x = 1\ny = 2\na = " + "[" * 100_000 + "\n", 3, "nested too deeply"),
    ],
    ids=["twice", "open list", "open quotes", "long number", "deep"],
)
def test_a_syntax_error_has_its_line_and_a_remedy(text, line, words):
    """Whatever the parser refuses, the message has the line and what to write."""
    if words == "too many digits" and not hasattr(sys, "get_int_max_str_digits"):
        pytest.skip("this Python reads a number of any length")
    with pytest.raises(RecipeError) as caught:
        parse_toml(text, "r.toml")
    assert caught.value.problems[0].place == f"r.toml:{line}"
    assert words in str(caught.value)


def test_a_key_that_is_not_a_plain_name_is_quoted():
    """A key with a line break is quoted, so that a message stays on one line."""
    assert dotted_key(("a", "b\nc")) == "a.'b\\nc'"

"""Numbers in words, in languages with and without "one thousand"."""

import pytest

from xtts.text import english, persian
from xtts.text.numbers import MAX_DIGITS


@pytest.mark.parametrize(
    ("digits", "in_english", "in_persian"),
    [
        ("0", "zero", "صفر"),
        ("007", "zero zero seven", "صفر صفر هفت"),
        ("21", "twenty one", "بیست و یک"),
        ("1000", "one thousand", "هزار"),
        ("1001000", "one million one thousand", "یک میلیون و هزار"),
        ("2019", "two thousand nineteen", "دو هزار و نوزده"),
        ("340", "three hundred forty", "سیصد و چهل"),
    ],
)
def test_cardinals(digits, in_english, in_persian):
    """Groups of three digits are read with their scales; after leading zeros digits are read one by one."""
    assert english.cardinal(digits) == in_english
    assert persian.cardinal(digits) == in_persian


def test_very_long_numbers_are_read_digit_by_digit():
    """There are no words for larger scales."""
    assert english.cardinal("1" * MAX_DIGITS).startswith("one hundred eleven quadrillion")
    assert english.cardinal("1" * (MAX_DIGITS + 1)) == " ".join(["one"] * (MAX_DIGITS + 1))

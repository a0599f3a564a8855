"""Numbers as words through num2words: thousands, currencies, decimals, ordinals and cardinals, in this order.

Where num2words cannot read a number, the public implementation raises. Here an ordinal is then read as a cardinal, a
decimal as two numbers with its mark between them, and a number as its digits; of Hindi there is a table of our own.
"""

import re
from typing import Any, Match

from xtts.text.published import hindi
from xtts.text.published.languages import LANGUAGES, LanguageFacts
from xtts.text.published.packages import PackageError, import_package

HAS_DIGIT = re.compile("[0-9]")
_CARDINAL = re.compile("[0-9]+")
_DECIMAL = re.compile("[0-9]+[.,][0-9]+")
_GROUPED = {  # numbers that may have separators of thousands
    ",": re.compile(r"\b\d{1,3}(?:,\d{3})*(?:\.\d+)?\b"),
    ".": re.compile(r"\b\d{1,3}(?:.\d{3})*(?:,\d+)?\b"),  # any character may stand between them
}
_CURRENCIES = {code: rf"{sign}[0-9.,]*[0-9]+|[0-9.,]*[0-9]+{sign}" for code, sign in (("GBP", "£"), ("USD", r"\$"))}
_CURRENCIES["EUR"] = "[0-9.,]*[0-9]+€|€[0-9.,]*[0-9]+"
_MONEY = {code: re.compile(pattern) for code, pattern in _CURRENCIES.items()}
_ORDINALS = {name: re.compile(f"([0-9]+)({facts.ordinal})") for name, facts in LANGUAGES.items() if facts.ordinal}
_WITHOUT_DECIMALS = ("tr",)  # their halves are read as two numbers


def read_numbers(text: str, language: str) -> str:
    """The text with its numbers in words; `language` is one with cleaners of its own, but not Chinese."""
    if HAS_DIGIT.search(text) is None:
        return text
    library = import_package("num2words", "num2words", language, "for numbers")
    return _NumberReader(library.num2words, language).read(text)


class _NumberReader:
    """The numbers of one language in words."""

    def __init__(self, num2words: Any, language: str) -> None:
        self._num2words = num2words
        self._language = language
        self._facts: LanguageFacts = LANGUAGES[language]

    def read(self, text: str) -> str:
        separator = self._facts.thousands
        text = _GROUPED[separator].sub(lambda match: match.group().replace(separator, ""), text)
        text = self._read_money(text)
        if self._language not in _WITHOUT_DECIMALS:
            text = _DECIMAL.sub(self._decimal, text)
        text = _ORDINALS[self._language].sub(self._ordinal, text)
        return _CARDINAL.sub(lambda match: self._cardinal(match.group()), text)

    def _read_money(self, text: str) -> str:
        """Amounts in words; a currency that num2words cannot read in this language ends the attempt, as published."""
        for code, pattern in _MONEY.items():
            try:
                text = pattern.sub(self._amount_in(code), text)
            except PackageError:
                raise
            except Exception:  # num2words raises many kinds: what it lacks, what is too large
                break
        return text

    def _amount_in(self, code: str) -> Any:
        def amount(match: Match[str]) -> str:
            number = float(re.sub(r"[^\d.]", "", match.group().replace(",", ".")))
            words = str(self._num2words(number, to="currency", currency=code, lang=self._language))
            return words.rpartition(self._facts.cents)[0] or words if number.is_integer() else words

        return amount

    def _decimal(self, match: Match[str]) -> str:
        written = match.group()
        try:
            return str(self._num2words(float(written.replace(",", ".")), lang=self._language))
        except Exception:
            whole, mark, fraction = re.split("([.,])", written)
        if self._language == "hi":
            return hindi.decimal(whole, fraction)
        return f"{self._cardinal(whole)}{mark}{self._cardinal(fraction)}"

    def _ordinal(self, match: Match[str]) -> str:
        try:
            return str(self._num2words(int(match.group(1)), ordinal=True, lang=self._language))
        except Exception:
            is_full_stop = match.group(2) == "." and match.end() == len(match.string.rstrip())
            return self._cardinal(match.group(1)) + ("." if is_full_stop else "")

    def _cardinal(self, digits: str) -> str:
        try:
            return str(self._num2words(int(digits), lang=self._language))
        except Exception:
            pass
        if self._language == "hi":
            return hindi.cardinal(digits)
        return " ".join(str(self._num2words(int(digit), lang=self._language)) for digit in digits)

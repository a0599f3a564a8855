"""Text normalisation: text as it is spoken, with numbers, signs and abbreviations in words.

English and Persian are verbalised and lower-cased. In other languages only Unicode is composed (NFC) and white space
collapsed. Normalising twice gives the same text as normalising once.
"""

import re
import unicodedata
from typing import Callable, NamedTuple

from xtts.text import english, persian


class LanguageRules(NamedTuple):
    """How a language's text is brought into words."""

    fold: Callable[[str], str]  # letters and signs in one spelling
    verbalise: Callable[[str], str]  # numbers, signs and abbreviations in words


LANGUAGE_RULES = {
    "en": LanguageRules(english.fold, english.verbalise),
    "fa": LanguageRules(persian.fold, persian.verbalise),
}
WITH_VOWEL_MARKS = {**LANGUAGE_RULES, "fa": LanguageRules(persian.fold_keeping_marks, persian.verbalise)}
_MAX_PASSES = 8  # a rewritten text may match further rules

_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which UTF-8 cannot encode
_STRAY_SPACE = re.compile(r" (?=[,.;:!?)،؛؟»])|(?<=[(«]) ")


def normalise(text: str, language: str, keep_vowel_marks: bool = False) -> str:
    """`text` as it is spoken in `language`, a code such as "en", "fa" or "en-gb"."""
    rules = (WITH_VOWEL_MARKS if keep_vowel_marks else LANGUAGE_RULES).get(language.lower().partition("-")[0])
    if rules is None:
        return " ".join(unicodedata.normalize("NFC", _SURROGATE.sub("", text)).split())
    for _ in range(_MAX_PASSES):
        spoken = _normalise_once(text, rules)
        if spoken == text:
            break
        text = spoken
    return text


def _normalise_once(text: str, rules: LanguageRules) -> str:
    if not text.replace(persian.ZWNJ, "").isprintable():
        text = "".join(map(_visible, text))
    if not text.isascii():
        text = rules.fold(unicodedata.normalize("NFKC", rules.fold(text)))
        text = _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text)
    text = " ".join(rules.verbalise(" ".join(text.split())).split())
    return unicodedata.normalize("NFC", _STRAY_SPACE.sub("", text))


def _visible(character: str) -> str:
    """A space for any white space, and nothing for control and format characters other than the half-space."""
    if character.isspace():
        return " "
    invisible = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co") and character != persian.ZWNJ
    return "" if invisible else character

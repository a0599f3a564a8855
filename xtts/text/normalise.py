"""Text as it is said: a text and its language come in; the words to speak, in one way of writing, go out.

English and Persian get numbers, signs and abbreviations in words, and small letters. Other languages pass through,
with Unicode composed (NFC) and white space folded. What was normalised stays as it is when normalised again.
"""

import re
import unicodedata
from types import ModuleType

from xtts.text import english, persian

SPOKEN = {"en": english, "fa": persian}  # the languages with rules of their own
_PASSES = 8  # a rule may make room for another

_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which no file can hold
_STRAY_SPACE = re.compile(r" (?=[,.;:!?)،؛؟»])|(?<=[(«]) ")


def normalise(text: str, language: str) -> str:
    """`text` as it is said in `language`, a code such as "en", "fa" or "en-gb"."""
    rules = SPOKEN.get(language.lower().partition("-")[0])
    if rules is None:
        return " ".join(unicodedata.normalize("NFC", _SURROGATE.sub("", text)).split())
    for _ in range(_PASSES):
        said = _said(text, rules)
        if said == text:
            break
        text = said
    return text


def _said(text: str, rules: ModuleType) -> str:
    if not text.replace(persian.ZWNJ, "").isprintable():
        text = "".join(map(_visible, text))
    if not text.isascii():
        text = rules.fold(unicodedata.normalize("NFKC", rules.fold(text)))
        text = _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text)
    text = " ".join(rules.say(" ".join(text.split())).split())
    return unicodedata.normalize("NFC", _STRAY_SPACE.sub("", text))


def _visible(character: str) -> str:
    """White space as a space; nothing for what has no shape, except the half-space."""
    if character.isspace():
        return " "
    invisible = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co") and character != persian.ZWNJ
    return "" if invisible else character

"""The cleaners of the published front end, in their order.

Lower case, numbers, abbreviations, signs, white space; then Chinese and Korean in Latin letters. Japanese is left to
cutlet as a whole. Straight double quotes are removed, all others stay.
"""

import re
from functools import lru_cache
from typing import Callable, Dict, List

from xtts.text.published import chinese, numbers
from xtts.text.published.languages import LANGUAGES, SIGNS, base_language
from xtts.text.published.romanisation import latin_korean, pinyin, romaji
from xtts.text.rules import Rule, rewrite, rule

_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which UTF-8 cannot encode
_TURKISH_CAPITALS = str.maketrans("İÖÜ", "iöü")
_IN_LATIN_LETTERS: Dict[str, Callable[[str], str]] = {"zh": pinyin, "ko": latin_korean}


def clean(text: str, language: str) -> str:
    """The text as the published tokenizer reads it; `language` is one of LANGUAGES, perhaps with a region."""
    language = base_language(language)
    text = _SURROGATE.sub("", text)
    if language == "ja":
        return romaji(text)
    text = text.replace('"', "")
    if language == "tr":
        text = text.translate(_TURKISH_CAPITALS)
    text = text.lower()
    text = chinese.read_numbers(text) if language == "zh" else numbers.read_numbers(text, language)
    text = rewrite(text, _abbreviations(language)).translate(_signs(language))
    text = " ".join(text.split())
    return _IN_LATIN_LETTERS[language](text) if language in _IN_LATIN_LETTERS else text


@lru_cache(maxsize=None)
def _abbreviations(language: str) -> List[Rule]:
    facts = LANGUAGES[language]
    end = r"\." if facts.has_full_stops else r"\b"
    return [rule(rf"\b{short}{end}", words, re.I) for short, words in facts.abbreviations.items()]


@lru_cache(maxsize=None)
def _signs(language: str) -> Dict[int, str]:
    return {ord(sign): f" {words} " for sign, words in zip(SIGNS, LANGUAGES[language].signs)}

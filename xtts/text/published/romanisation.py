"""Chinese, Japanese and Korean in Latin letters, in which the published weights read them."""

from functools import lru_cache
from typing import Any

from xtts.text.published.packages import import_package


def pinyin(text: str) -> str:
    """Chinese characters as pinyin with tone numbers, 5 for the neutral tone; everything else as it is."""
    library = import_package("pypinyin", "pypinyin", "zh", "for pinyin")
    syllables = library.pinyin(text, style=library.Style.TONE3, heteronym=False, neutral_tone_with_five=True)
    return "".join(readings[0] for readings in syllables)


def romaji(text: str) -> str:
    """Japanese as Hepburn romaji in lower case, foreign words in their own spelling."""
    return str(_cutlet().romaji(text)).lower()


def latin_korean(text: str) -> str:
    """Hangul by the academic rules of the Revised Romanization."""
    return str(_transliter().translit(text))


@lru_cache(maxsize=None)
def _cutlet() -> Any:
    library = import_package("cutlet", "cutlet", "ja", "for romaji")
    import_package("unidic_lite", "unidic-lite", "ja", "for its dictionary")
    return library.Cutlet()


@lru_cache(maxsize=None)
def _transliter() -> Any:
    library = import_package("hangul_romanize", "hangul-romanize", "ko", "for Latin letters")
    rules = import_package("hangul_romanize.rule", "hangul-romanize", "ko", "for Latin letters")
    return library.Transliter(rules.academic)

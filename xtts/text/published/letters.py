"""Character classes of the word rules: letters by script and case, punctuation, quotes, currencies and units.

The classes are those of spaCy's blank pipelines, whose sentences the published implementation splits at.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Iterable, Sequence, Tuple

Range = Tuple[int, int]  # code points, both included

_LATIN: Sequence[Range] = (
    *((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BF), (0x1C4, 0x24F)),
    *((0x250, 0x2AF), (0x1D00, 0x1D25), (0x1D6B, 0x1D77), (0x1D79, 0x1D9A), (0x1E00, 0x1EFF)),
    *((0x2C60, 0x2C7B), (0x2C7E, 0x2C7F), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E), (0xA790, 0xA7B9)),
    *((0xA7FA, 0xA7FA), (0xAB30, 0xAB5A), (0xAB60, 0xAB64), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
)
_OTHERS_WITH_CASE = "абвгдежзийклмнопрстуфхцчшщъыьэюяёәөүҗңһіїєґѓѕјљњќѐѝαβγδεζηθικλμνξοπρςστυφχψωάέίόώήύ"
_WITHOUT_CASE: Sequence[Range] = (
    *((0x591, 0x5F4), (0x620, 0x64A), (0x66E, 0x6D5), (0x6E5, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8BD)),
    *((0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xC00, 0xCFF), (0xD80, 0xDFF), (0x1100, 0x137F)),
    *((0x2E80, 0x2FDF), (0x2FF0, 0x30FF), (0x31C0, 0x31EF), (0x3200, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7AF)),
    *((0xF900, 0xFAFF), (0xFB1D, 0xFBB1), (0xFBD3, 0xFD3D), (0xFD50, 0xFDC7), (0xFDF0, 0xFDFB), (0xFE30, 0xFE4F)),
    *((0xFE70, 0xFEFC), (0x1EE00, 0x1EEBB), (0x1F200, 0x1F2FF), (0x20000, 0x2A6DF), (0x2A700, 0x2EBEF)),
    (0x2F800, 0x2FA1F),
)
# Emoji of Unicode 11; newer ones are no symbols to spaCy.
_EMOJI: Sequence[Range] = (
    *((0x1F000, 0x1F02B), (0x1F030, 0x1F093), (0x1F0A0, 0x1F0AE), (0x1F0B1, 0x1F0BF), (0x1F0C1, 0x1F0CF)),
    *((0x1F0D1, 0x1F0F5), (0x1F110, 0x1F16B), (0x1F170, 0x1F1AC), (0x1F1E6, 0x1F202), (0x1F210, 0x1F23B)),
    *((0x1F240, 0x1F248), (0x1F250, 0x1F251), (0x1F260, 0x1F265), (0x1F300, 0x1F3FA), (0x1F400, 0x1F6D4)),
    *((0x1F6E0, 0x1F6EC), (0x1F6F0, 0x1F6F9), (0x1F700, 0x1F773), (0x1F780, 0x1F7D8), (0x1F800, 0x1F80B)),
    *((0x1F810, 0x1F847), (0x1F850, 0x1F859), (0x1F860, 0x1F887), (0x1F890, 0x1F8AD), (0x1F900, 0x1F90B)),
    *((0x1F910, 0x1F93E), (0x1F940, 0x1F970), (0x1F973, 0x1F976), (0x1F97A, 0x1F97A), (0x1F97C, 0x1F9A2)),
    *((0x1F9B0, 0x1F9B9), (0x1F9C0, 0x1F9C2), (0x1F9D0, 0x1F9FF), (0x1FA60, 0x1FA6D)),
)
PUNCTUATION = "… …… , : ; ! ? ¿ ؟ ¡ ( ) [ ] { } < > _ # * & 。 ？ ！ ， 、 ； ： ～ · । ، ۔ ؛ ٪".split()
QUOTES = [*"' \" ” “ ` ‘ ´ ’ ‚ , „ » « 「 」 『 』 （ ） 〔 〕 【 】 《 》 ⟦ ⟧".split(), *"\u2329\u232a\u3008\u3009"]
CURRENCIES = "$ £ € ¥ ฿ US$ C$ A$ ₽ ﷼ ₴ ₠ ₡ ₢ ₣ ₤ ₥ ₦ ₧ ₨ ₩ ₪ ₫ ₭ ₮ ₯ ₰ ₱ ₲ ₳ ₵ ₶ ₷ ₸ ₹ ₺ ₻ ₼ ₾ ₿".split()
UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh mph hPa Pa "
    "mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг м/с км/ч "
    "кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ тбكم كم² كم³ م م² م³ سم سم² سم³ مم مم² مم³ كم غرام جرام جم كغ ملغ "
    "كوب اكواب"
).split()


@lru_cache(maxsize=None)
def lower_letters() -> str:
    """Lower-case letters, and those without case, for a class of a regular expression."""
    return _cased("Ll") + _OTHERS_WITH_CASE + _as_class(_WITHOUT_CASE)


@lru_cache(maxsize=None)
def upper_letters() -> str:
    """Capitals, and letters without case."""
    return _cased("Lu") + _OTHERS_WITH_CASE.replace("ς", "").upper() + _as_class(_WITHOUT_CASE)


@lru_cache(maxsize=None)
def letters() -> str:
    """All letters."""
    both = _OTHERS_WITH_CASE + _OTHERS_WITH_CASE.upper()
    return _as_class(_LATIN) + both + _as_class(_WITHOUT_CASE)


@lru_cache(maxsize=None)
def pictures() -> str:
    """Emoji and other symbols that are neither punctuation nor mathematical."""
    found = (code for code in range(0xA6, 0x10000) if unicodedata.category(chr(code)) == "So")
    return "".join(re.escape(chr(code)) for code in found) + _as_class(_EMOJI)


def _cased(category: str) -> str:
    codes = (code for first, last in _LATIN for code in range(first, last + 1))
    return "".join(chr(code) for code in codes if unicodedata.category(chr(code)) == category)


def _as_class(ranges: Iterable[Range]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)

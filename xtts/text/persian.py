"""Persian as it is said: composed text with ASCII digits comes in; one spelling, with all in words, goes out.

Vowel marks are left out, because texts write them so seldom that nothing can be learnt from them; only tanvin stays
(لطفاً), which is written as a rule and is heard. Half-spaces (ZWNJ) stand between two letters of which the first would
otherwise join the second, and nowhere else.
"""

import re
from typing import Callable, Iterable, List, Match, Pattern, Tuple, Union

LONGEST = 18  # digits read as one number; longer ones are read digit by digit
ZWNJ = "\u200c"

_SMALL = [
    *("صفر", "یک", "دو", "سه", "چهار", "پنج", "شش", "هفت", "هشت", "نه", "ده", "یازده", "دوازده"),
    *("سیزده", "چهارده", "پانزده", "شانزده", "هفده", "هجده", "نوزده"),
]
_TENS = ["", "", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود"]
_HUNDREDS = ["", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد"]
_SCALES = ["", "هزار", "میلیون", "میلیارد", "تریلیون", "کوادریلیون"]
_CURRENCIES = {"$": "دلار", "€": "یورو", "£": "پوند", "¥": "ین", "₹": "روپیه"}
_UNITS = {
    "mm": "میلی‌متر",
    "cm": "سانتی‌متر",
    "m": "متر",
    "km": "کیلومتر",
    "km/h": "کیلومتر بر ساعت",
    "g": "گرم",
    "kg": "کیلوگرم",
    "mg": "میلی‌گرم",
    "l": "لیتر",
    "ml": "میلی‌لیتر",
    "gb": "گیگابایت",
    "mb": "مگابایت",
    "kb": "کیلوبایت",
    "hz": "هرتز",
    "°c": "درجه‌ی سانتی‌گراد",
    "°f": "درجه‌ی فارنهایت",
    "°": "درجه",
    "%": "درصد",
}
_ABBREVIATIONS = {
    "ه.ش": "هجری شمسی",
    "ه.ق": "هجری قمری",
    "ق.م": "قبل از میلاد",
    "ب.ظ": "بعد از ظهر",
    "ق.ظ": "قبل از ظهر",
}
_SIGNS = {"&": "و", "+": "به‌علاوه‌ی", "=": "مساوی", "×": "ضرب در", "÷": "تقسیم بر", "%": "درصد", "@": "ات"}
_FOLD = str.maketrans(
    {
        **dict.fromkeys("يىېےۍێ", "ی"),
        **dict.fromkeys("كڪګڬ", "ک"),
        **dict.fromkeys("ەہھةۃ", "ه"),
        **dict.fromkeys("إٱ", "ا"),  # أ stays: رأی is heard otherwise than رای
        **dict.fromkeys("ۀۂ", "هٔ"),
        **dict.fromkeys("ـ\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0653\u0656\u0657\u0658\u0670", ""),  # marks
        **dict.fromkeys("¬", ZWNJ),  # written for it by old keyboards
        **dict.fromkeys("‘’‚‛′`´ʼ", "'"),
        **dict.fromkeys("„‟″", '"'),
        **{"“": "«", "”": "»", "‹": "«", "›": "»", "٪": "%", "٫": ".", "٬": ",", "٭": " ", "۔": "."},
        **dict.fromkeys("‐‑−", "-"),
        **{"‒": "–", "―": "—", "⁄": "/", "½": " نیم ", "¼": " یک چهارم ", "¾": " سه چهارم ", "﷼": " ریال "},
    }
)
_UNSPOKEN = str.maketrans(
    {**dict.fromkeys(r"[]{}<>|\^~_*#$£€¥₹/°©®•·§¶†‡" + '"', " "), "–": " - ", "—": " - ", ",": "،", ";": "؛", "?": "؟"}
)


def cardinal(digits: str) -> str:
    """What is not zero, joined by «و»; 007 and what is longer than LONGEST is read digit by digit."""
    if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
        return one_by_one(digits)
    words: List[str] = []
    number = int(digits)
    for power in range(len(_SCALES) - 1, -1, -1):
        group, number = divmod(number, 1000**power)
        if group == 1 and power == 1:
            words.append(_SCALES[1])  # a thousand is not one thousand
        elif group:
            words.append(f"{' و '.join(_below_thousand(group))} {_SCALES[power]}".strip())
    return " و ".join(words) or _SMALL[0]


def ordinal(digits: str) -> str:
    """3 is سوم, 21 is بیست و یکم, 30 is سی‌ام."""
    words = cardinal(digits)
    if words.endswith("سه"):
        return words[:-2] + "سوم"
    return words + (f"{ZWNJ}ام" if words.endswith("ی") else "م")


def one_by_one(digits: str) -> str:
    """Each digit by its name."""
    return " ".join(_SMALL[int(digit)] for digit in digits)


def fold(text: str) -> str:
    """`text` in Persian letters and signs, before Unicode's own foldings take a fraction apart."""
    return text.translate(_FOLD)


def say(text: str) -> str:
    """`text` in words, with its half-spaces in order. White space is left for the caller to fold."""
    for pattern, words in _LETTER_RULES:
        text = pattern.sub(words, text)
    if _DIGIT.search(text):
        for pattern, words in _NUMBER_RULES:
            text = pattern.sub(words, text)
    text = _SIGN.sub(lambda match: f" {_SIGNS[match.group()]} ", text)
    text = " ".join(_QUOTED.sub(r"«\1»", text).translate(_UNSPOKEN).lower().split())
    for pattern, words in _SPACE_RULES:
        text = pattern.sub(words, text)
    return text


def _below_thousand(number: int) -> List[str]:
    hundreds, rest = divmod(number, 100)
    words = [_HUNDREDS[hundreds]] if hundreds else []
    if rest >= 20:
        words.append(_TENS[rest // 10])
        rest %= 10
    return [*words, _SMALL[rest]] if rest else words


def _amount(text: str) -> str:
    """A number such as "1,500.25"; the fraction is read as a number, after the zeros it begins with."""
    whole, point, fraction = re.sub("[,،]", "", text).replace("/", ".").partition(".")
    if not point:
        return cardinal(whole)
    rest = fraction.lstrip("0")
    zeros = [_SMALL[0]] * (len(fraction) - len(rest))
    return " ".join([cardinal(whole), "ممیز", *zeros, *([cardinal(rest)] if rest else [])])


def _time(match: Match[str]) -> str:
    hour, minute, second = (int(digits or "0") for digits in match.groups())
    words = [cardinal(str(hour))]
    if minute:
        words.append(f"{cardinal(str(minute))} دقیقه")
    if second:
        words.append(f"{cardinal(str(second))} ثانیه")
    return f" {' و '.join(words)} "


def _money(match: Match[str]) -> str:
    return f" {_amount(match.group('amount'))} {_CURRENCIES[match.group('sign')]} "


def _measure(match: Match[str]) -> str:
    return f" {_amount(match.group('amount'))} {_UNITS[match.group('unit').lower()]} "


def _ordinal(match: Match[str]) -> str:
    return f" {ordinal(match.group(1))}{'ین' if match.group(2) else ''} "


def _range(match: Match[str]) -> str:
    low, high = match.groups()
    return f"{low} تا {high}" if int(low) < int(high) else f"{low} {high}"


def _any(names: Iterable[str]) -> str:
    """A pattern for any of the names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


Rule = Tuple[Pattern[str], Union[str, Callable[[Match[str]], str]]]


def _rule(pattern: str, words: Union[str, Callable[[Match[str]], str]], flags: int = 0) -> Rule:
    return re.compile(pattern, flags), words


_DIGIT = re.compile("[0-9]")
_SIGN = re.compile(f"[{''.join(_SIGNS)}]")
_QUOTED = re.compile('"([^"]*)"')
_MONEY = f"[{''.join(_CURRENCIES)}]"
_AMOUNT = r"(?P<amount>\d{1,3}(?:[,،]\d{3})+(?!\d)(?:[./]\d+)?|\d+(?:[./]\d+)?)"
_LETTER = "[\u0621-\u063a\u0641-\u064a\u0671-\u06d3]"  # of the Arabic script
_SUFFIX = "(?:ها(?:ی(?:ی|م|ت|ش|مان|تان|شان)?)?|ترین)"

_LETTER_RULES: List[Rule] = [
    _rule("ه\u0654", f"ه{ZWNJ}ی"),  # the ending of خانهٔ ما, as it is said
    _rule("ی\u0654", "ئ"),
    _rule("[\u0654\u0655]", ""),
    _rule("\u064b+ا", "ا\u064b"),  # tanvin stands after its alef
    _rule("\u064b+", "\u064b"),
    _rule(rf"(?<!{_LETTER})({_any(_ABBREVIATIONS)})\.?(?!{_LETTER})", lambda match: _ABBREVIATIONS[match.group(1)]),
]
_NUMBER_RULES: List[Rule] = [  # the more special first
    _rule(rf"(?<![\w)\]])-(?={_MONEY}?\d)", "منفی "),
    _rule(r"(?<![\d:.,])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])", _time),
    _rule(r"(?<=\d)\s?[–—]\s?(?=\d)", " تا "),
    _rule(r"(?<![\d-])(\d{1,4})-(\d{1,4})(?![\d-])", _range),
    _rule(r"(?<=\d)-(?=\d)", " "),
    _rule(rf"(?P<sign>{_MONEY})\s?{_AMOUNT}", _money),
    _rule(rf"(?<!\d){_AMOUNT}\s?(?P<sign>{_MONEY})", _money),
    _rule(rf"(?P<unit>%)\s?{_AMOUNT}", _measure),
    _rule(rf"(?<!\d){_AMOUNT}\s?(?P<unit>(?i:{_any(_UNITS)}))(?![A-Za-z/])", _measure),
    _rule(rf"(?<!\d)(\d+){ZWNJ}?ا?م(ین)?(?!{_LETTER})", _ordinal),
    _rule(r"(?<=\d)/(?=\d+/\d)|(?<=/)(\d+)/", r" \1 "),  # of a date
    _rule(rf"(?<![\d.,،]){_AMOUNT}|\d+", lambda match: f" {_amount(match.group())} "),
]
_SPACE_RULES: List[Rule] = [
    _rule(f"{ZWNJ}+", ZWNJ),
    _rule(f"{ZWNJ}? {ZWNJ}?", " "),
    _rule(rf"(?<!{_LETTER})(ن?می) (?={_LETTER}+[متدی](?!{_LETTER}))", rf"\1{ZWNJ}"),  # می روم
    _rule(rf"(?<={_LETTER}) (?={_SUFFIX}(?!{_LETTER}))", ZWNJ),  # کتاب ها
    _rule(rf"(?<=ه) (?=ی(?!{_LETTER}))", ZWNJ),  # خانه ی
    _rule(rf"(?<![بپتثجچحخسشصضطظعغفقکگلمنهیئ]){ZWNJ}|{ZWNJ}(?!{_LETTER})", ""),  # nothing to keep apart
    _rule(rf"(?<=[،؛؟])(?={_LETTER})", " "),
]

"""Persian text as it is spoken: one spelling of each letter, and numbers and signs in words.

Vowel marks are removed, because they are written so rarely that nothing can be learnt from them, unless the recipe
keeps them for a corpus that has them; tanvin always stays (لطفاً), as it is usually written. A half-space (ZWNJ) stays
only between two letters of which the first would otherwise join the second.
"""

import re
from typing import List, Match

from xtts.text.numbers import NumberWords
from xtts.text.rules import HAS_DIGIT, Rule, any_of, rewrite, rule

ZWNJ = "\u200c"

NUMBERS = NumberWords(
    small=[
        *("صفر", "یک", "دو", "سه", "چهار", "پنج", "شش", "هفت", "هشت", "نه", "ده", "یازده", "دوازده"),
        *("سیزده", "چهارده", "پانزده", "شانزده", "هفده", "هجده", "نوزده"),
    ],
    tens=["", "", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود"],
    hundreds=["", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد"],
    scales=["", "هزار", "میلیون", "میلیارد", "تریلیون", "کوادریلیون"],
    joined_by=" و ",
    one_thousand=False,
)
cardinal, digit_by_digit = NUMBERS.cardinal, NUMBERS.digit_by_digit
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
# Zabar, pish, zir, tashdid, sukun, the two rarer tanvins and the small alef.
VOWEL_MARKS = "\u064e\u064f\u0650\u0651\u0652\u064c\u064d\u0670"
_FOLDED_SIGNS = str.maketrans(
    {
        **dict.fromkeys("يىېےۍێ", "ی"),
        **dict.fromkeys("كڪګڬ", "ک"),
        **dict.fromkeys("ەہھةۃ", "ه"),
        **dict.fromkeys("إٱ", "ا"),  # أ stays: رأی is pronounced otherwise than رای
        **dict.fromkeys("ۀۂ", "هٔ"),
        **dict.fromkeys(f"ـ\u0653\u0656\u0657\u0658{VOWEL_MARKS}", ""),
        **dict.fromkeys("¬", ZWNJ),  # written for it by old keyboards
        **dict.fromkeys("‘’‚‛′`´ʼ", "'"),
        **dict.fromkeys("„‟″", '"'),
        **{"“": "«", "”": "»", "‹": "«", "›": "»", "٪": "%", "٫": ".", "٬": ",", "٭": " ", "۔": "."},
        **dict.fromkeys("‐‑−", "-"),
        **{"‒": "–", "―": "—", "⁄": "/", "½": " نیم ", "¼": " یک چهارم ", "¾": " سه چهارم ", "﷼": " ریال "},
    }
)
_FOLDED_KEEPING_MARKS = {sign: folded for sign, folded in _FOLDED_SIGNS.items() if chr(sign) not in VOWEL_MARKS}
_SILENT_SIGNS = str.maketrans(
    {**dict.fromkeys(r"[]{}<>|\^~_*#$£€¥₹/°©®•·§¶†‡" + '"', " "), "–": " - ", "—": " - ", ",": "،", ";": "؛", "?": "؟"}
)


def ordinal(digits: str) -> str:
    """3 is سوم, 21 is بیست و یکم, 30 is سی‌ام."""
    words = cardinal(digits)
    if words.endswith("سه"):
        return words[:-2] + "سوم"
    return words + (f"{ZWNJ}ام" if words.endswith("ی") else "م")


def fold(text: str) -> str:
    """Persian letters and signs in one spelling, and fractions before NFKC takes them apart."""
    return text.translate(_FOLDED_SIGNS)


def fold_keeping_marks(text: str) -> str:
    """Like `fold`, with the vowel marks."""
    return text.translate(_FOLDED_KEEPING_MARKS)


def verbalise(text: str) -> str:
    """Everything in words, with half-spaces where they belong. The caller collapses white space."""
    text = rewrite(text, _LETTER_RULES)
    if HAS_DIGIT.search(text):
        text = rewrite(text, _NUMBER_RULES)
    text = _SIGN.sub(lambda match: f" {_SIGNS[match.group()]} ", text)
    text = " ".join(_QUOTED.sub(r"«\1»", text).translate(_SILENT_SIGNS).lower().split())
    return rewrite(text, _SPACE_RULES)


def _amount(text: str) -> str:
    """A number such as "1,500.25"; the fraction is read as a number, after the zeros it begins with."""
    whole, point, fraction = re.sub("[,،]", "", text).replace("/", ".").partition(".")
    if not point:
        return cardinal(whole)
    rest = fraction.lstrip("0")
    zeros = [NUMBERS.small[0]] * (len(fraction) - len(rest))
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


_SIGN = re.compile(f"[{''.join(_SIGNS)}]")
_QUOTED = re.compile('"([^"]*)"')
_MONEY = f"[{''.join(_CURRENCIES)}]"
_AMOUNT = r"(?P<amount>\d{1,3}(?:[,،]\d{3})+(?!\d)(?:[./]\d+)?|\d+(?:[./]\d+)?)"
_LETTER = "[\u0621-\u063a\u0641-\u064a\u064c-\u0652\u0670-\u06d3]"  # of the Arabic script, and vowel marks
_JOINING = "بپتثجچحخسشصضطظعغفقکگلمنهیئ"
_NOT_AFTER_JOINING = "".join(f"(?<![{_JOINING}]{f'[{VOWEL_MARKS}]' * marks})" for marks in range(3))
_SUFFIX = "(?:ها(?:ی(?:ی|م|ت|ش|مان|تان|شان)?)?|ترین)"

_LETTER_RULES: List[Rule] = [
    rule("ه\u0654", f"ه{ZWNJ}ی"),  # the ending of خانهٔ ما, as it is said
    rule("ی\u0654", "ئ"),
    rule("[\u0654\u0655]", ""),
    rule("\u064b+ا", "ا\u064b"),  # tanvin stands after its alef
    rule("\u064b+", "\u064b"),
    rule(rf"(?<!{_LETTER})({any_of(_ABBREVIATIONS)})\.?(?!{_LETTER})", lambda match: _ABBREVIATIONS[match.group(1)]),
]
_NUMBER_RULES: List[Rule] = [  # the most specific first
    rule(rf"(?<![\w)\]])-(?={_MONEY}?\d)", "منفی "),
    rule(r"(?<![\d:.,])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])", _time),
    rule(r"(?<=\d)\s?[–—]\s?(?=\d)", " تا "),
    rule(r"(?<![\d-])(\d{1,4})-(\d{1,4})(?![\d-])", _range),
    rule(r"(?<=\d)-(?=\d)", " "),
    rule(rf"(?P<sign>{_MONEY})\s?{_AMOUNT}", _money),
    rule(rf"(?<!\d){_AMOUNT}\s?(?P<sign>{_MONEY})", _money),
    rule(rf"(?P<unit>%)\s?{_AMOUNT}", _measure),
    rule(rf"(?<!\d){_AMOUNT}\s?(?P<unit>(?i:{any_of(_UNITS)}))(?![A-Za-z/])", _measure),
    rule(rf"(?<!\d)(\d+){ZWNJ}?ا?م(ین)?(?!{_LETTER})", _ordinal),
    rule(r"(?<=\d)/(?=\d+/\d)|(?<=/)(\d+)/", r" \1 "),  # of a date
    rule(rf"(?<![\d.,،]){_AMOUNT}|\d+", lambda match: f" {_amount(match.group())} "),
]
_SPACE_RULES: List[Rule] = [
    rule(f"{ZWNJ}+", ZWNJ),
    rule(f"{ZWNJ}? {ZWNJ}?", " "),
    rule(rf"(?<!{_LETTER})(ن?می) (?={_LETTER}+[متدی](?!{_LETTER}))", rf"\1{ZWNJ}"),  # می روم
    rule(rf"(?<={_LETTER}) (?={_SUFFIX}(?!{_LETTER}))", ZWNJ),  # کتاب ها
    rule(rf"(?<=ه) (?=ی(?!{_LETTER}))", ZWNJ),  # خانه ی
    rule(rf"{_NOT_AFTER_JOINING}{ZWNJ}|{ZWNJ}(?!{_LETTER})", ""),  # between letters that do not join
    rule(rf"(?<=[،؛؟])(?={_LETTER})", " "),
]

"""English text as it is spoken: numbers, signs and abbreviations in words, all in lower case.

Digits stay text until they are words, since a number may be of any length.
"""

import re
from typing import List, Match

from xtts.text.numbers import NumberWords
from xtts.text.rules import HAS_DIGIT, Rule, any_of, rewrite, rule

_SMALL = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
NUMBERS = NumberWords(
    small=_SMALL,
    tens=["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
    hundreds=["", *(f"{name} hundred" for name in _SMALL[1:10])],
    scales=["", "thousand", "million", "billion", "trillion", "quadrillion"],
    joined_by=" ",
    one_thousand=True,
)
cardinal, digit_by_digit = NUMBERS.cardinal, NUMBERS.digit_by_digit
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_CURRENCIES = {  # one, many, one hundredth, hundredths
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
_UNITS = {  # one, many
    "mm": ("millimeter", "millimeters"),
    "cm": ("centimeter", "centimeters"),
    "m": ("meter", "meters"),
    "km": ("kilometer", "kilometers"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "mph": ("mile per hour", "miles per hour"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "kg": ("kilogram", "kilograms"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "l": ("liter", "liters"),
    "ms": ("millisecond", "milliseconds"),
    "sec": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "hz": ("hertz", "hertz"),
    "khz": ("kilohertz", "kilohertz"),
    "mhz": ("megahertz", "megahertz"),
    "ghz": ("gigahertz", "gigahertz"),
    "kb": ("kilobyte", "kilobytes"),
    "mb": ("megabyte", "megabytes"),
    "gb": ("gigabyte", "gigabytes"),
    "tb": ("terabyte", "terabytes"),
    "kw": ("kilowatt", "kilowatts"),
    "°c": ("degree celsius", "degrees celsius"),
    "°f": ("degree fahrenheit", "degrees fahrenheit"),
    "°": ("degree", "degrees"),
    "%": ("percent", "percent"),
}
# Titles are expanded with or without a full stop, abbreviations only with one; no abbreviation is also a word.
_TITLES = {"mr": "mister", "mrs": "missus", "ms": "miz", "dr": "doctor", "prof": "professor"}
_ABBREVIATIONS = {
    "jr": "junior",
    "sr": "senior",
    "gen": "general",
    "capt": "captain",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "maj": "major",
    "gov": "governor",
    "mt": "mount",
    "ave": "avenue",
    "blvd": "boulevard",
    "rd": "road",
    "dept": "department",
    "bros": "brothers",
    "corp": "corporation",
    "inc": "incorporated",
    "ltd": "limited",
    "etc": "et cetera",
    "vs": "versus",
    "approx": "approximately",
    "e.g": "for example",
    "i.e": "that is",
    "jan": "january",
    "feb": "february",
    "apr": "april",
    "aug": "august",
    "sept": "september",
    "oct": "october",
    "nov": "november",
    "dec": "december",
}
_BEFORE_A_NAME = {
    "St": "saint",
    "Ft": "fort",
    "Rev": "reverend",
    "Hon": "honorable",
    "Col": "colonel",
    "Sen": "senator",
}
_BEFORE_A_NUMBER = {"no": "number", "p": "page", "pp": "pages", "vol": "volume", "fig": "figure", "ch": "chapter"}
_FRACTIONS = {"2": ("half", "halves"), "4": ("quarter", "quarters")}  # others are ordinals
_SIGNS = {"&": "and", "@": "at", "+": "plus", "=": "equals", "×": "times", "÷": "divided by", "%": "percent"}
_FOLDED_SIGNS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´ʼ", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑−", "-"),
        **{
            "‒": "–",
            "―": "—",
            "⁄": "/",
            "\u200c": "",
            "½": " 1/2",
            "⅓": " 1/3",
            "⅔": " 2/3",
            "¼": " 1/4",
            "¾": " 3/4",
            "²": " squared",
        },
    }
)
_SILENT_SIGNS = str.maketrans({**dict.fromkeys(r"[]{}<>|\^~_*#$£€¥₹/°©®•·§¶†‡", " "), "–": " - ", "—": " - "})


def ordinal(digits: str) -> str:
    """21 is twenty first."""
    words, _, last = cardinal(digits).rpartition(" ")
    regular = (last[:-1] + "ie" if last.endswith("y") else last) + "th"
    return f"{words} {_ORDINALS.get(last, regular)}".strip()


def year(digits: str) -> str:
    """Four digits as a year: nineteen oh five, two thousand four, twenty ten."""
    century, rest = digits[:2], digits[2:]
    if int(digits) % 1000 < 10:
        return cardinal(digits)
    if rest == "00":
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} oh {cardinal(rest[1])}" if rest[0] == "0" else f"{cardinal(century)} {cardinal(rest)}"


def fold(text: str) -> str:
    """Quotes and dashes as ASCII, and fractions before NFKC takes them apart."""
    return text.translate(_FOLDED_SIGNS)


def verbalise(text: str) -> str:
    """Everything in words. The caller collapses white space."""
    text = rewrite(text, _WORD_RULES)
    if HAS_DIGIT.search(text):
        text = rewrite(text, _NUMBER_RULES)
    text = _SIGN.sub(lambda match: f" {_SIGNS[match.group()]} ", text)
    return text.translate(_SILENT_SIGNS).lower()


def _amount(text: str) -> str:
    """A number that counts something, as in "1,500.25"."""
    whole, point, fraction = text.replace(",", "").partition(".")
    if not point:
        return cardinal(whole)
    return f"{cardinal(whole) if whole else ''} point {digit_by_digit(fraction)}".strip()


def _plural(word: str) -> str:
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def _time(match: Match[str]) -> str:
    hour, minute, second, half = match.group("hour", "minute", "second", "half")
    words = [cardinal(hour.lstrip("0") or "0")]
    if minute != "00":
        words.append(f"oh {cardinal(minute[1])}" if minute[0] == "0" else cardinal(minute))
    elif not half:
        words.append("o'clock" if 1 <= int(hour) <= 12 else "hundred")
    if second:
        words.append(f"and {cardinal(second.lstrip('0') or '0')} seconds")
    if half:
        words.append(f"{half.lower()} m")
    return f" {' '.join(words)}{'.' if _ends_text(match) else ' '}"


def _money(match: Match[str]) -> str:
    sign, amount, scale = match.group("sign", "amount", "scale")
    one, many, cent, cents = _CURRENCIES[sign]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if scale or len(fraction) not in (0, 2):
        return f" {_amount(amount)} {scale or ''} {many} "
    words = f"{cardinal(whole or '0')} {one if whole == '1' else many}"
    if not fraction or fraction == "00":
        return f" {words} "
    part = f"{cardinal(fraction.lstrip('0'))} {cent if fraction == '01' else cents}"
    return f" {words} and {part} " if whole.strip("0") else f" {part} "


def _measure(match: Match[str]) -> str:
    amount, unit = match.group("amount"), match.group("unit").lower()
    return f" {_amount(amount)} {_UNITS[unit][amount != '1']} "


def _fraction(match: Match[str]) -> str:
    whole, above, below = match.groups()
    one, many = _FRACTIONS.get(below, (ordinal(below), ordinal(below) + "s"))
    words = f"{cardinal(above)} {one if above == '1' else many}"
    if below not in _FRACTIONS and not 3 <= int(below) <= 20:
        words = f"{cardinal(above)} over {cardinal(below)}"
    return f" {cardinal(whole)} and {words} " if whole else f" {words} "


def _decade(match: Match[str]) -> str:
    digits = match.group(1)
    words, _, last = (year(digits) if len(digits) == 4 else cardinal(digits)).rpartition(" ")
    return f" {words} {_plural(last)} "


def _range(match: Match[str]) -> str:
    low, high = match.groups()
    return f"{low} to {high}" if int(low) < int(high) else f"{low} {high}"


def _number(match: Match[str]) -> str:
    text = match.group()
    is_year = re.fullmatch(r"1[1-9]\d\d|20\d\d", text)
    return f" {year(text) if is_year else _amount(text)} "


def _abbreviation(match: Match[str]) -> str:
    """The words of an abbreviation; its full stop stays where it also ends the text."""
    key = match.group(1)
    words = _ABBREVIATIONS.get(key.lower()) or _TITLES.get(key.lower()) or "street"
    return words + ("." if _ends_text(match) else "")


def _initials(match: Match[str]) -> str:
    return " ".join(match.group()[::2]) + ("." if _ends_text(match) else " ")


def _ends_text(match: Match[str]) -> bool:
    return match.end() == len(match.string) and match.group().endswith(".")


_SIGN = re.compile(f"[{''.join(_SIGNS)}]")
_MONEY = f"[{''.join(_CURRENCIES)}]"
_AMOUNT = r"(?P<amount>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_SCALE = r"(?:\s?(?P<scale>thousand|million|billion|trillion)\b)?"
_LONG_UNIT = any_of(unit for unit in _UNITS if len(unit) > 1)
_SHORT_UNIT = any_of(unit for unit in _UNITS if len(unit) == 1)  # 5 m is a length, 5 M is not

_WORD_RULES: List[Rule] = [  # before lower-casing: capitals tell a saint from a street
    rule(rf"\b({any_of(_BEFORE_A_NAME)})\.?(?=\s+[A-Z])", lambda match: _BEFORE_A_NAME[match.group(1)]),
    rule(
        rf"\b({any_of(_BEFORE_A_NUMBER)})\.\s*(?=\d)",
        lambda match: _BEFORE_A_NUMBER[match.group(1).lower()] + " ",
        re.I,
    ),
    rule(rf"(?<![\w.])({any_of(_ABBREVIATIONS)}|st)\.", _abbreviation, re.I),
    rule(rf"(?<![\w.])({any_of(_TITLES)})\b(?!')\.?", _abbreviation, re.I),
    rule(r"\b(?:[a-z]\.){2,}", _initials, re.I),
]
_NUMBER_RULES: List[Rule] = [  # the most specific first
    rule(rf"(?<![\w)\]])[-−](?={_MONEY}?\.?\d)", "minus "),
    rule(
        r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
        r"(?:\s?(?P<half>[ap])[. ]?m\b\.?)?",
        _time,
        re.I,
    ),
    rule(r"(?<=\d)\s?([ap])\.?m\b(?:\.(?!\s*$))?", r" \1 m ", re.I),
    rule(r"(?<![\d-])(?:\d{3}-)?\d{3}-\d{4}(?![\d-])", lambda match: digit_by_digit(match.group().replace("-", ""))),
    rule(r"(?<=\d)\s?[–—]\s?(?=\d)", " to "),
    rule(r"(?<![\d-])(\d{1,4})-(\d{1,4})(?![\d-])", _range),
    rule(r"(?<=\d)-(?=\d)", " "),
    rule(r"(?:\b(\d{1,3})\s+)?(?<![\d./])\b(\d{1,3})/(\d{1,3})(?![\d/])", _fraction),
    rule(rf"(?P<sign>{_MONEY})\s?{_AMOUNT}{_SCALE}", _money, re.I),
    rule(rf"(?<!\d){_AMOUNT}{_SCALE}\s?(?P<sign>{_MONEY})", _money, re.I),
    rule(rf"(?<!\d){_AMOUNT}\s?(?P<unit>{_SHORT_UNIT}|(?i:{_LONG_UNIT}))(?![\w/])(?:\.(?=\s+[a-z]))?", _measure),
    rule(r"#\s?(?=\d)", " number "),
    rule(r"(?<![\d,])(\d[\d,]*)(?:st|nd|rd|th)\b", lambda match: f" {ordinal(match.group(1).replace(',', ''))} ", re.I),
    rule(r"(?:(?<!\w)')?(?<![\d.,])(\d0|\d\d\d0)s\b", _decade, re.I),
    rule(r"(?<=\d)\.(?=\d+\.\d)", " point "),  # of a version, such as 1.2.3
    rule(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\w)\.\d+", _number),
]

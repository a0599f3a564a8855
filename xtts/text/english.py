"""English as it is said: composed text with ASCII digits comes in; small letters, with all in words, go out.

A number stays text until it is in words, since it may have any number of digits.
"""

import re
from typing import Callable, Iterable, List, Match, Pattern, Tuple, Union

LONGEST = 18  # digits read as one number; longer ones are read digit by digit

_SMALL = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ["", "thousand", "million", "billion", "trillion", "quadrillion"]
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
_TITLES = {"mr": "mister", "mrs": "missus", "ms": "miz", "dr": "doctor", "prof": "professor"}  # with or without a stop
_ABBREVIATIONS = {  # with a stop; none of them is a word
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
_FOLD = str.maketrans(
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
_UNSPOKEN = str.maketrans({**dict.fromkeys(r"[]{}<>|\^~_*#$£€¥₹/°©®•·§¶†‡", " "), "–": " - ", "—": " - "})


def cardinal(digits: str) -> str:
    """0 is zero, 21 is twenty one; 007 and what is longer than LONGEST is read digit by digit."""
    if len(digits) > LONGEST or (digits.startswith("0") and len(digits) > 1):
        return one_by_one(digits)
    words: List[str] = []
    number = int(digits)
    for power in range(len(_SCALES) - 1, -1, -1):
        group, number = divmod(number, 1000**power)
        if group:
            words += [*_below_thousand(group), _SCALES[power]]
    return " ".join(filter(None, words)) or "zero"


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


def one_by_one(digits: str) -> str:
    """Each digit by its name."""
    return " ".join(_SMALL[int(digit)] for digit in digits)


def fold(text: str) -> str:
    """`text` with the quotes and dashes of ASCII, before Unicode's own foldings take a fraction apart."""
    return text.translate(_FOLD)


def say(text: str) -> str:
    """`text` in words. White space is left for the caller to fold."""
    for pattern, words in _WORD_RULES:
        text = pattern.sub(words, text)
    if _DIGIT.search(text):
        for pattern, words in _NUMBER_RULES:
            text = pattern.sub(words, text)
    text = _SIGN.sub(lambda match: f" {_SIGNS[match.group()]} ", text)
    return text.translate(_UNSPOKEN).lower()


def _below_thousand(number: int) -> List[str]:
    hundreds, rest = divmod(number, 100)
    words = [_SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        words.append(_TENS[rest // 10])
        rest %= 10
    return [*words, _SMALL[rest]] if rest else words


def _amount(text: str) -> str:
    """A number that counts something, as in "1,500.25"."""
    whole, point, fraction = text.replace(",", "").partition(".")
    if not point:
        return cardinal(whole)
    return f"{cardinal(whole) if whole else ''} point {one_by_one(fraction)}".strip()


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
    said = f"{cardinal(whole or '0')} {one if whole == '1' else many}"
    if not fraction or fraction == "00":
        return f" {said} "
    part = f"{cardinal(fraction.lstrip('0'))} {cent if fraction == '01' else cents}"
    return f" {said} and {part} " if whole.strip("0") else f" {part} "


def _measure(match: Match[str]) -> str:
    amount, unit = match.group("amount"), match.group("unit").lower()
    return f" {_amount(amount)} {_UNITS[unit][amount != '1']} "


def _fraction(match: Match[str]) -> str:
    whole, above, below = match.groups()
    one, many = _FRACTIONS.get(below, (ordinal(below), ordinal(below) + "s"))
    said = f"{cardinal(above)} {one if above == '1' else many}"
    if below not in _FRACTIONS and not 3 <= int(below) <= 20:
        said = f"{cardinal(above)} over {cardinal(below)}"
    return f" {cardinal(whole)} and {said} " if whole else f" {said} "


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
    """The words of an abbreviation, whose stop remains where it also ends the text."""
    key = match.group(1)
    words = _ABBREVIATIONS.get(key.lower()) or _TITLES.get(key.lower()) or "street"
    return words + ("." if _ends_text(match) else "")


def _initials(match: Match[str]) -> str:
    return " ".join(match.group()[::2]) + ("." if _ends_text(match) else " ")


def _ends_text(match: Match[str]) -> bool:
    return match.end() == len(match.string) and match.group().endswith(".")


def _any(names: Iterable[str]) -> str:
    """A pattern for any of the names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


Rule = Tuple[Pattern[str], Union[str, Callable[[Match[str]], str]]]


def _rule(pattern: str, words: Union[str, Callable[[Match[str]], str]], flags: int = 0) -> Rule:
    return re.compile(pattern, flags), words


_DIGIT = re.compile("[0-9]")
_SIGN = re.compile(f"[{''.join(_SIGNS)}]")
_MONEY = f"[{''.join(_CURRENCIES)}]"
_AMOUNT = r"(?P<amount>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_SCALE = r"(?:\s?(?P<scale>thousand|million|billion|trillion)\b)?"
_LONG_UNIT = _any(unit for unit in _UNITS if len(unit) > 1)
_SHORT_UNIT = _any(unit for unit in _UNITS if len(unit) == 1)  # 5 m is a length, 5 M is not

_WORD_RULES: List[Rule] = [  # before all is lower-case, for capitals tell a saint from a street
    _rule(rf"\b({_any(_BEFORE_A_NAME)})\.?(?=\s+[A-Z])", lambda match: _BEFORE_A_NAME[match.group(1)]),
    _rule(
        rf"\b({_any(_BEFORE_A_NUMBER)})\.\s*(?=\d)", lambda match: _BEFORE_A_NUMBER[match.group(1).lower()] + " ", re.I
    ),
    _rule(rf"(?<![\w.])({_any(_ABBREVIATIONS)}|st)\.", _abbreviation, re.I),
    _rule(rf"(?<![\w.])({_any(_TITLES)})\b(?!')\.?", _abbreviation, re.I),
    _rule(r"\b(?:[a-z]\.){2,}", _initials, re.I),
]
_NUMBER_RULES: List[Rule] = [  # the more special first
    _rule(rf"(?<![\w)\]])[-−](?={_MONEY}?\.?\d)", "minus "),
    _rule(
        r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
        r"(?:\s?(?P<half>[ap])[. ]?m\b\.?)?",
        _time,
        re.I,
    ),
    _rule(r"(?<=\d)\s?([ap])\.?m\b(?:\.(?!\s*$))?", r" \1 m ", re.I),
    _rule(r"(?<![\d-])(?:\d{3}-)?\d{3}-\d{4}(?![\d-])", lambda match: one_by_one(match.group().replace("-", ""))),
    _rule(r"(?<=\d)\s?[–—]\s?(?=\d)", " to "),
    _rule(r"(?<![\d-])(\d{1,4})-(\d{1,4})(?![\d-])", _range),
    _rule(r"(?<=\d)-(?=\d)", " "),
    _rule(r"(?:\b(\d{1,3})\s+)?(?<![\d./])\b(\d{1,3})/(\d{1,3})(?![\d/])", _fraction),
    _rule(rf"(?P<sign>{_MONEY})\s?{_AMOUNT}{_SCALE}", _money, re.I),
    _rule(rf"(?<!\d){_AMOUNT}{_SCALE}\s?(?P<sign>{_MONEY})", _money, re.I),
    _rule(rf"(?<!\d){_AMOUNT}\s?(?P<unit>{_SHORT_UNIT}|(?i:{_LONG_UNIT}))(?![\w/])(?:\.(?=\s+[a-z]))?", _measure),
    _rule(r"#\s?(?=\d)", " number "),
    _rule(
        r"(?<![\d,])(\d[\d,]*)(?:st|nd|rd|th)\b", lambda match: f" {ordinal(match.group(1).replace(',', ''))} ", re.I
    ),
    _rule(r"(?:(?<!\w)')?(?<![\d.,])(\d0|\d\d\d0)s\b", _decade, re.I),
    _rule(r"(?<=\d)\.(?=\d+\.\d)", " point "),  # of a version, such as 1.2.3
    _rule(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\w)\.\d+", _number),
]

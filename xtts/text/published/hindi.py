"""Hindi numbers in words, which num2words does not have. The public implementation raises at them."""

from xtts.text.numbers import MAX_DIGITS

_SMALL = (
    "शून्य एक दो तीन चार पाँच छह सात आठ नौ "
    "दस ग्यारह बारह तेरह चौदह पंद्रह सोलह सत्रह अठारह उन्नीस "
    "बीस इक्कीस बाईस तेईस चौबीस पच्चीस छब्बीस सत्ताईस अट्ठाईस उनतीस "
    "तीस इकतीस बत्तीस तैंतीस चौंतीस पैंतीस छत्तीस सैंतीस अड़तीस उनतालीस "
    "चालीस इकतालीस बयालीस तैंतालीस चवालीस पैंतालीस छियालीस सैंतालीस अड़तालीस उनचास "
    "पचास इक्यावन बावन तिरपन चौवन पचपन छप्पन सत्तावन अट्ठावन उनसठ "
    "साठ इकसठ बासठ तिरसठ चौंसठ पैंसठ छियासठ सड़सठ अड़सठ उनहत्तर "
    "सत्तर इकहत्तर बहत्तर तिहत्तर चौहत्तर पचहत्तर छिहत्तर सतहत्तर अठहत्तर उनासी "
    "अस्सी इक्यासी बयासी तिरासी चौरासी पचासी छियासी सत्तासी अट्ठासी नवासी "
    "नब्बे इक्यानवे बानवे तिरानवे चौरानवे पचानवे छियानवे सत्तानवे अट्ठानवे निन्यानवे"
).split()
_SCALES = ((10**9, "अरब"), (10**7, "करोड़"), (10**5, "लाख"), (10**3, "हज़ार"), (100, "सौ"))


def cardinal(digits: str) -> str:
    """125000 is एक लाख पच्चीस हज़ार; what is too long, or begins with a zero, is read digit by digit."""
    if len(digits) > MAX_DIGITS or (digits.startswith("0") and len(digits) > 1):
        return digit_by_digit(digits)
    return _words(int(digits))


def decimal(whole: str, fraction: str) -> str:
    """2.5 is दो दशमलव पाँच."""
    return f"{cardinal(whole)} दशमलव {digit_by_digit(fraction)}"


def digit_by_digit(digits: str) -> str:
    """Each digit by its name."""
    return " ".join(_SMALL[int(digit)] for digit in digits)


def _words(number: int) -> str:
    if number < 100:
        return _SMALL[number]
    scale, name = next(pair for pair in _SCALES if number >= pair[0])
    above, below = divmod(number, scale)
    return f"{_words(above)} {name}" + (f" {_words(below)}" if below else "")

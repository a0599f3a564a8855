"""Text normalisation: written text becomes spoken text."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xtts.text import english, persian
from xtts.text.normalise import normalise

ZWNJ = "\u200c"
MARKS = {  # what the rules of a language look for, so that random texts contain them
    "en": [
        *"0123456789.,:/-$£%&'\"()MrsDtSckgmap–—°½²#+[]İ\u0307*_ \u200c\xad",
        "St.",
        "mr.",
        "etc.",
        "no.",
        "p.m.",
        "1st",
    ],
    "fa": [
        *"0123456789۰۱۵٣٪٫٬.,:/-$%&«»\"'\u0654\u064b\u064eاآأکكبيیىهةۀمنورزد–ـ ",
        ZWNJ,
        "می ",
        " ها",
        "های",
        "ق.م",
        "kg",
    ],
}
ANY_CHARACTER = st.characters(blacklist_categories=())  # surrogates and unassigned characters, too


def texts(language):
    marks = st.sampled_from(MARKS[language])
    return st.one_of(
        st.text(ANY_CHARACTER),
        st.lists(marks, max_size=30).map("".join),
        st.lists(st.one_of(marks, ANY_CHARACTER), max_size=30).map("".join),
    )


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("0", "zero"),
        ("21", "twenty one"),
        ("110", "one hundred ten"),
        ("1,000", "one thousand"),
        ("12,345,678", "twelve million three hundred forty five thousand six hundred seventy eight"),
        ("1000000000000000", "one quadrillion"),
        ("7" + "0" * 17, "seven hundred quadrillion"),
        ("1" + "0" * 18, "one" + " zero" * 18),
        ("007", "zero zero seven"),
        (
            "the 1st, 2nd, 3rd, 12th, 20th and 101st",
            "the first, second, third, twelfth, twentieth and one hundred first",
        ),
        ("3.14", "three point one four"),
        ("-0.5 and .5", "minus zero point five and point five"),
        ("version 1.2.3", "version one point two point three"),
        ("1,234.5", "one thousand two hundred thirty four point five"),
        ("in 1998", "in nineteen ninety eight"),
        ("in 2004", "in two thousand four"),
        ("1905, 1900, 2000, 2010", "nineteen oh five, nineteen hundred, two thousand, twenty ten"),
        ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
        ("$3.50", "three dollars and fifty cents"),
        ("£1.01", "one pound and one penny"),
        ("€0.99 or 5€", "ninety nine cents or five euros"),
        ("$1", "one dollar"),
        ("$1.5 million", "one point five million dollars"),
        ("-$5", "minus five dollars"),
        ("5% or 5.5 %", "five percent or five point five percent"),
        ("at 3:30", "at three thirty"),
        ("at 9:05 a.m., at 3:00", "at nine oh five a m, at three o'clock"),
        ("3½ cups, 2/3, 5/8", "three and one half cups, two thirds, five eighths"),
        ("10-20 km, 1914–1918", "ten to twenty kilometers, nineteen fourteen to nineteen eighteen"),
        ("call 555-1234", "call five five five one two three four"),
        (
            "1 kg, 5kg, 100 km/h, −5°C",
            "one kilogram, five kilograms, one hundred kilometers per hour, minus five degrees celsius",
        ),
        ("5 ft. tall", "five feet tall"),
        ("B2B", "b two b"),
        ("٣ and ५", "three and five"),
    ],
)
def test_english_numbers_become_words(written, spoken):
    """Every way of writing a number in English is read as a person reads it."""
    assert normalise(written, "en") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Mr. Smith and Mrs Brown", "mister smith and missus brown"),
        ("Dr. Who lives on Main St. near St. Louis.", "doctor who lives on main street near saint louis."),
        ("bread, milk, etc.", "bread, milk, et cetera."),
        ("No. 5? No.", "number five? no."),
        ("the U.S.A. and AT&T", "the u s a and at and t"),
        ("He sat. Nov. 3", "he sat. november three"),
        ("“Don’t”—she said…", '"don\'t" - she said...'),
        ("a\u00a0b\t c\r\n", "a b c"),
        ("a ,b ( c )", "a,b (c)"),
        ("ﬁne\u200b \xadday", "fine day"),
        ("[SPACE] <b> {x}", "space b x"),
    ],
)
def test_english_abbreviations_and_symbols(written, spoken):
    """Abbreviations are expanded, and quotes, dashes and spaces are unified."""
    assert normalise(written, "en") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("۰", "صفر"),
        ("۲۱", "بیست و یک"),
        ("۱۰۰۰", "هزار"),
        ("۱۱۰۰", "هزار و صد"),
        ("۲۰۰۰", "دو هزار"),
        ("۱۴۰۲", "هزار و چهارصد و دو"),
        ("۱۰۰۰۰۰۰", "یک میلیون"),
        ("۱٬۲۳۴٬۵۶۷", "یک میلیون و دویست و سی و چهار هزار و پانصد و شصت و هفت"),
        ("1000000000000001", "یک کوادریلیون و یک"),
        ("1" + "0" * 18, "یک" + " صفر" * 18),
        ("۰۰۷", "صفر صفر هفت"),
        ("۳٫۱۴", "سه ممیز چهارده"),
        ("۳.۰۵", "سه ممیز صفر پنج"),
        ("۳/۵", "سه ممیز پنج"),
        ("۱۴۰۲/۵/۱۲", "هزار و چهارصد و دو پنج دوازده"),
        ("-۵", "منفی پنج"),
        ("−۵ درجه", "منفی پنج درجه"),
        ("۵-۱۰", "پنج تا ده"),
        ("۵۰٪ یا ٪۵۰ یا 50%", "پنجاه درصد یا پنجاه درصد یا پنجاه درصد"),
        ("ساعت ۳:۳۰", "ساعت سه و سی دقیقه"),
        ("۱۲:۰۰", "دوازده"),
        ("۳م ۵ام ۳۰ام ۲۱م ۴مین", f"سوم پنجم سی{ZWNJ}ام بیست و یکم چهارمین"),
        ("$۵ و ۱۰۰﷼", "پنج دلار و صد ریال"),
        ("۵kg", "پنج کیلوگرم"),
    ],
)
def test_persian_numbers_become_words(written, spoken):
    """Every way of writing a number in Persian is read with «و» between its parts."""
    assert normalise(written, "fa") == spoken


@given(st.integers(0, 10**18 - 1))
def test_all_digits_are_read_alike(number):
    """A number has the same words in Persian, Arabic-Indic and ASCII digits."""
    ascii_digits = str(number)
    spoken = normalise(ascii_digits, "fa")
    for zero in "۰٠":
        assert normalise(ascii_digits.translate({ord("0") + n: chr(ord(zero) + n) for n in range(10)}), "fa") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("كتابي", "کتابی"),
        ("مكة و على", "مکه و علی"),
        ("خانۀ ما", f"خانه{ZWNJ}ی ما"),
        ("خانهٔ ما", f"خانه{ZWNJ}ی ما"),
        ("خانه ی ما", f"خانه{ZWNJ}ی ما"),
        ("کِتابـــٌ", "کتاب"),
        ("لطفًا", "لطفاً"),
        ("مسئول مؤمن رأی آب", "مسئول مؤمن رأی آب"),
        ("ﻻ ﷲ", "لا الله"),
        ("می روم نمی خواهم", f"می{ZWNJ}روم نمی{ZWNJ}خواهم"),
        ("می ناب", "می ناب"),
        ("کتاب ها کتاب های ما", f"کتاب{ZWNJ}ها کتاب{ZWNJ}های ما"),
        ("کار ها کار\u200cها", "کارها کارها"),
        ("بزرگ ترین", f"بزرگ{ZWNJ}ترین"),
        ("لباس تر", "لباس تر"),
        (f"{ZWNJ}می{ZWNJ}{ZWNJ}روم{ZWNJ} {ZWNJ}خانه{ZWNJ}.", f"می{ZWNJ}روم خانه."),
        ('"سلام" گفت, چطوری?', "«سلام» گفت، چطوری؟"),
        ("“سلام” ؛ خوب ، بله", "«سلام»؛ خوب، بله"),
        ("سال ۵۰ ق.م.", "سال پنجاه قبل از میلاد"),
    ],
)
def test_persian_spelling_is_unified(written, spoken):
    """Letter forms, diacritics, half-spaces and punctuation are unified."""
    assert normalise(written, "fa") == spoken


@pytest.mark.parametrize("language", ["de", "ar", "zh-cn"])
def test_other_languages_pass_through(language):
    """Other languages keep letters, digits and case; Unicode is composed and white space collapsed."""
    assert normalise(" E\u0301t\u00e9  \u2028 12 [x] \ud800", language) == "\u00c9t\u00e9 12 [x]"


@pytest.mark.parametrize("language", ["en-gb", "EN", "fa-IR"])
def test_a_region_has_its_language_s_rules(language):
    """A code with a region or in capitals is treated as its language."""
    assert normalise("5", language) == normalise("5", language[:2].lower()) != "5"


@given(texts("en"))
@example("5mr.")
@example("M\xadr. 5st.")
@example("İ\u0323")
def test_english_normalisation_is_idempotent(text):
    """Normalising again changes nothing, and no digit or redundant space is left."""
    spoken = normalise(text, "en")
    assert normalise(spoken, "en") == spoken
    assert not any(character.isdecimal() for character in spoken)
    assert spoken == " ".join(spoken.split()) == unicodedata.normalize("NFC", spoken)
    spoken.encode()


@given(texts("fa"))
@example("می می روم")
@example(f"۵{ZWNJ}ها")
def test_persian_normalisation_is_idempotent(text):
    """Normalising again changes nothing, no digit is left, and half-spaces are only between letters."""
    spoken = normalise(text, "fa")
    assert normalise(spoken, "fa") == spoken
    assert not any(character.isdecimal() for character in spoken)
    assert spoken == " ".join(spoken.split())
    for before, after in zip(spoken.split(ZWNJ), spoken.split(ZWNJ)[1:]):
        assert before[-1:].isalpha()
        assert after[:1].isalpha()
    spoken.encode()


@given(st.text(ANY_CHARACTER), st.sampled_from(["de", "zh", "x"]))
def test_passing_through_is_idempotent(text, language):
    """Text in another language is unchanged when normalised again."""
    spoken = normalise(text, language)
    assert normalise(spoken, language) == spoken
    spoken.encode()


@pytest.mark.parametrize("language", ["en", "fa"])
@pytest.mark.parametrize(
    "piece", ["1", "1,", "1.", "1/", "a.", "-1", "1:", ZWNJ, " " + ZWNJ, "می ", '"', "$", " ", "mr "]
)
def test_long_texts_are_normalised_in_linear_time(piece, language):
    """No rule backtracks over a long match; a quadratic one would take minutes here."""
    spoken = normalise(piece * (50_000 // len(piece)), language)
    assert normalise(spoken, language) == spoken


def test_cardinals_are_distinct():
    """No two numbers up to ten thousand are read alike, in either language."""
    for language in (english, persian):
        assert len({language.cardinal(str(number)) for number in range(10_001)}) == 10_001

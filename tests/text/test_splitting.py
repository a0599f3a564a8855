"""Text splitting: pieces fit the model, and no word is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.text.normalise import normalise
from xtts.text.splitting import AFTER_CLAUSE, AFTER_SENTENCE, AFTER_WORD, SplittingError, split_text


def always(_text):
    return True


def texts(*arguments):
    return [piece.text for piece in split_text(*arguments)]


def test_english_is_split_at_full_stops_and_not_at_abbreviations():
    """Punctuation ends a sentence; the full stop of a title and a decimal point do not."""
    text = 'Mr. Smith paid 3.5 dollars. "Really?" she asked! Yes...'
    assert texts(text, "en", always) == [
        "mister smith paid three point five dollars.",
        normalise('"Really?"', "en"),
        "she asked!",
        normalise("Yes...", "en"),
    ]


def test_persian_is_split_at_its_own_punctuation():
    """The Persian question mark ends a sentence."""
    assert texts("سلام، حال شما چطور است؟ من خوبم. ممنون!", "fa", always) == [
        "سلام، حال شما چطور است؟",
        "من خوبم.",
        "ممنون!",
    ]


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not():
    """Wrapped lines are joined; a heading is a sentence of its own."""
    assert texts("A heading\n\nand a line\nthat goes on", "en", always) == ["a heading", "and a line that goes on"]


def test_a_long_sentence_is_split_at_commas_and_then_at_spaces():
    """There are as few pieces as fit, with shorter pauses inside the sentence than after it."""
    found = split_text("one two, three four, five six seven eight nine ten. eleven", "en", lambda text: len(text) <= 20)
    assert found == [
        ("one two, three four,", AFTER_CLAUSE),
        ("five six seven eight", AFTER_WORD),
        ("nine ten.", AFTER_SENTENCE),
        ("eleven", AFTER_SENTENCE),
    ]


def test_persian_is_split_at_its_own_commas():
    """A long Persian sentence is split at Persian commas and semicolons."""
    found = texts("این یک جمله است، و این یکی دیگر؛ و این آخری.", "fa", lambda text: len(text) <= 17)
    assert found == ["این یک جمله است،", "و این یکی دیگر؛", "و این آخری."]


def test_a_word_that_cannot_be_split_is_refused():
    """The error names the word and the remedy."""
    with pytest.raises(SplittingError, match=r"'a{37}\.\.\.' is one word of 60 characters.*write it with spaces"):
        split_text("a" * 60, "en", lambda text: len(text) <= 50)


def test_punctuation_alone_is_no_sentence():
    """Text without letters or digits gives no pieces."""
    assert texts("... !? -- \n\n «»", "en", always) == []


@given(st.text(st.sampled_from("ab ,.!?;-\n«»سلام،؛؟"), max_size=120), st.sampled_from(["en", "fa"]))
def test_splitting_keeps_all_letters_in_order(text, language):
    """The letters of all pieces are those of the normalised text, and every piece fits."""
    normalised = "\n\n".join(normalise(part, language) for part in text.split("\n\n"))
    try:
        found = split_text(text, language, lambda piece: len(piece) <= 24)
    except SplittingError:
        assert max(map(len, normalised.split())) > 24
        return
    assert all(len(piece.text) <= 24 for piece in found)
    joined = "".join(piece.text for piece in found)
    assert [letter for letter in joined if letter.isalnum()] == [
        letter for part in normalised.split("\n\n") for letter in part if letter.isalnum()
    ]

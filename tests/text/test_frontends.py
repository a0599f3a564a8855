"""Text front ends: which one reads what, and the vowel marks of Persian."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_texts import VOCAB

from xtts.recipe.schema import TextSection
from xtts.text.frontends import make_frontend
from xtts.text.normalise import normalise
from xtts.text.persian import VOWEL_MARKS
from xtts.text.tokenizer import BPETokenizer, TextError, load_tokenizer, make_tokenizer

pytest.importorskip("num2words")

MARKED = "کِتابِ خوب، مُعَلِّم و دُکّان"
PLAIN = "کتاب خوب، معلم و دکان"
PUBLISHED, OWN = make_frontend("published"), make_frontend("xtts")


def always(_text):
    return True


def test_each_front_end_reads_in_its_own_way():
    """Ours reads a year as one, and keeps quotes; the published one does neither."""
    text = 'In 1987 he said "no".'
    assert OWN.normalise(text, "en") == 'in nineteen eighty seven he said "no".'
    assert PUBLISHED.normalise(text, "en-GB") == "in one thousand, nine hundred and eighty-seven he said no."


def test_languages_that_were_not_published_have_ours():
    """Persian is read, spoken and split alike by both front ends."""
    text = "ساعت ۸:۲۰ آمد. بعد رفت."
    for function in ("normalise", "bpe_text", "spoken", "whole"):
        assert getattr(PUBLISHED, function)(text, "fa") == getattr(OWN, function)(text, "fa")
    assert PUBLISHED.split(text, "fa", always) == OWN.split(text, "fa", always)
    assert len(OWN.split(text, "fa", always)) == 2


def test_pieces_are_the_text_as_it_was_written():
    """A short text is one piece, which is cleaned when it is tokenized; speaking writes it in lower case first."""
    (piece,) = PUBLISHED.split(" Dr. Quinn came 3rd. I left.", "en", always)
    assert piece.text == "Dr. Quinn came 3rd. I left."
    assert PUBLISHED.spoken(piece.text, "en") == "dr. quinn came 3rd. i left."


def test_a_piece_that_the_model_has_no_room_for_is_split_further():
    """Limits of the language come first, then those of the model."""
    pieces = PUBLISHED.split("One two three, four five six. Seven.", "en", lambda text: len(text) <= 16)
    assert [piece.text for piece in pieces] == ["One two three,", "four five six.", "Seven."]


@pytest.mark.parametrize("name", ["published", "xtts"])
def test_vowel_marks_are_kept_where_the_recipe_asks(name):
    """By default zabar, zir, pish and tashdid are removed; kept, they are in the text, and nothing else differs."""
    assert make_frontend(name).normalise(MARKED, "fa") == PLAIN
    kept = make_frontend(name, keep_vowel_marks=True).normalise(MARKED, "fa")
    assert sorted(set(kept) & set(VOWEL_MARKS)) == sorted("\u064e\u064f\u0650\u0651")
    assert "".join(letter for letter in kept if letter not in VOWEL_MARKS) == PLAIN


@given(st.text(st.sampled_from("کتابهایمدرسآ َُِّْ\u200c ۱۲.،")))
def test_kept_marks_change_nothing_when_normalised_twice(text):
    """Normalising twice gives the same text as normalising once, with marks as without."""
    once = normalise(text, "fa", keep_vowel_marks=True)
    assert normalise(once, "fa", keep_vowel_marks=True) == once


def test_a_half_space_stays_after_a_marked_letter():
    """The mark of a joining letter does not hide that it joins."""
    assert "\u200c" in normalise("کتابِ\u200cها", "fa", keep_vowel_marks=True)
    assert "\u200c" not in normalise("دِ\u200cها", "fa", keep_vowel_marks=True)


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_vowel_marks_reach_the_vocabulary(kind):
    """Characters and learned BPE have tokens for the marks, and give the marked text back."""
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    tokenizer = make_tokenizer(TextSection(tokenizer=kind, keep_vowel_marks=True), [(MARKED, "fa")])
    assert tokenizer.unknown(MARKED, "fa") == []
    assert tokenizer.decode(tokenizer.encode(MARKED, "fa")) == normalise(MARKED, "fa", keep_vowel_marks=True)
    plain = make_tokenizer(TextSection(tokenizer=kind), [(MARKED, "fa")])
    assert tokenizer.size > plain.size


def test_the_front_end_is_not_part_of_the_vocabulary(tmp_path):
    """A saved vocabulary is read with whichever front end is asked for; the recipe says which."""
    pytest.importorskip("tokenizers")
    tokenizer = BPETokenizer.load(VOCAB, PUBLISHED)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json", PUBLISHED)
    other = load_tokenizer(tmp_path / "tokenizer.json")
    assert (
        again.encode("It is 1987.", "en") == tokenizer.encode("It is 1987.", "en") != other.encode("It is 1987.", "en")
    )
    assert again.digest() == other.digest()
    with pytest.raises(TextError, match="no language 'fa'"):
        again.encode(PLAIN, "fa")

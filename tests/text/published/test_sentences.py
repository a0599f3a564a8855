"""The published splitting: the same pieces as the public implementation, and no word lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_texts import LANGUAGES, missing_packages, of_language

from xtts.text.published.languages import LANGUAGES as FACTS
from xtts.text.published.languages import base_language
from xtts.text.published.sentences import sentences, split_text


@pytest.mark.parametrize("language", LANGUAGES)
def test_pieces_are_those_of_the_public_splitter(language):
    """Every paragraph is split where the public implementation splits it, with the same limit."""
    if language == "ja" and missing_packages("ja", "sudachipy", "sudachidict_core"):
        pytest.skip("sudachipy is not installed")
    paragraphs = of_language("splits.jsonl", language)
    assert len(paragraphs) >= 8
    for line in paragraphs:
        assert FACTS[base_language(language)].max_characters == line["limit"]
        assert split_text(line["text"], language) == line["pieces"]


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Mr. Hale left. He ran.", "en", ["Mr. Hale left.", "He ran."]),
        ('He said "Stop!" and left.', "en", ['He said "Stop!"', "and left."]),
        ("At 8a.m. we ate. 3.5 is a number", "en", ["At 8a.m. we ate.", "3.5 is a number"]),
        ("See example.com. Or not.", "en", ["See example.com.", "Or not."]),
        ("One.Two and U.S. rules", "en", ["One.", "Two and U.S. rules"]),
        ("Los EE. UU. ganan. Sí.", "es", ["Los EE. UU. ganan.", "Sí."]),
        ("水壶1.5升。好", "zh", ["水壶1.", "5升。", "好"]),
        ("It is 20 °C. Warm...  Very :) warm", "en", ["It is 20 °C.", "Warm...  Very :) warm"]),
        ("", "en", []),
    ],
)
def test_sentences_end_at_marks_that_stand_alone(text, language, expected):
    """A full stop of an abbreviation, of a number or of an address ends no sentence."""
    assert list(sentences(text, language)) == expected


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "ja"])
@given(text=st.text(st.characters(blacklist_categories=("Cs",)), max_size=400))
def test_no_character_is_lost(language, text):
    """Apart from white space the pieces are the text; none is longer than the limit and what joins two of them."""
    pieces = split_text(text, language)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= FACTS[base_language(language)].max_characters + 1 for piece in pieces)

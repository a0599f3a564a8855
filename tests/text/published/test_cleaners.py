"""The published cleaners: the same text and the same tokens as the public implementation, language by language."""

import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_texts import LANGUAGES, VOCAB, lines, missing_packages, of_language

from xtts.text.frontends import make_frontend
from xtts.text.published import cleaners, romanisation
from xtts.text.published.packages import PackageError
from xtts.text.tokenizer import BPETokenizer, encode_spoken


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("tokenizers")
    return BPETokenizer.load(VOCAB, make_frontend("published"))


@pytest.fixture(autouse=True)
def _packages(request):
    language = getattr(request.node, "callspec", None) and request.node.callspec.params.get("language")
    missing = language and missing_packages(language)
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")


@pytest.mark.parametrize("language", LANGUAGES)
def test_tokens_are_those_of_the_public_tokenizer(language, tokenizer):
    """Every sentence has the public tokenizer's text and ids, in training and in speaking."""
    sentences = of_language("tokens.jsonl", language)
    assert len(sentences) >= 25
    for line in sentences:
        assert cleaners.clean(line["text"], language) == line["cleaned"]
        assert tokenizer.encode(line["text"], language) == line["ids"]
        assert encode_spoken(tokenizer, line["text"], language) == line["spoken_ids"]


def test_turkish_capitals_differ_between_training_and_speaking(tokenizer):
    """Speaking writes İ in lower case before the cleaners see it, which gives another letter than in training."""
    differing = [line for line in lines("tokens.jsonl") if line["ids"] != line["spoken_ids"]]
    assert {line["language"] for line in differing} == {"tr"}
    assert tokenizer.encode("İki", "tr") != encode_spoken(tokenizer, "İki", "tr")


@pytest.mark.parametrize("language", ["cs", "hi"])
def test_where_the_public_tokenizer_raises_a_number_is_read(language):
    """Czech ordinals are read as cardinals and Hindi digits as words, without a digit left."""
    sentences = of_language("raises.jsonl", language)
    assert sentences
    for line in sentences:
        cleaned = cleaners.clean(line["text"], language)
        assert not any(character.isdigit() for character in cleaned)


@pytest.mark.parametrize(
    ("written", "language", "read"),
    [
        ("Skončil 3. v závodě.", "cs", "skončil tři v závodě."),
        ("Byl 3.", "cs", "byl tři."),
        ("मेरे पास 125 सेब और 2.5 किलो चीनी है।", "hi", "मेरे पास एक सौ पच्चीस सेब और दो दशमलव पाँच किलो चीनी है।"),
        ("1234567 ₹", "hi", "बारह लाख चौंतीस हज़ार पाँच सौ सड़सठ ₹"),
        ("007", "hi", "शून्य शून्य सात"),
        ("1" * 30, "es", " ".join(["uno"] * 30)),
    ],
)
def test_numbers_that_num2words_lacks(written, language, read):
    """Ordinals become cardinals, decimals two numbers, and what is too large is read digit by digit."""
    assert cleaners.clean(written, language) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2008年5月12日", "èr"),
        ("13912345678", "一三九"),
        ("010-12345678", "零一零"),
        ("1/4", "四分之一"),
        ("15%", "百分之十五"),
        ("22个", "二十二个"),
        ("200个", "两百个"),
        ("10.50", "十点五零"),
        ("B2B", "b2b"),
    ],
)
def test_chinese_numbers(written, read):
    """Each kind of number has its own reading."""
    from xtts.text.published.chinese import read_numbers

    assert read_numbers(written.lower()).startswith({"èr": "二零零八年五月十二日"}.get(read, read))


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=st.text(st.characters(blacklist_categories=()), max_size=30))
def test_any_text_can_be_cleaned(language, text):
    """No text raises, whatever is in it."""
    assert isinstance(cleaners.clean(text, language), str)


@pytest.mark.parametrize(
    ("text", "language", "package"),
    [("5", "fr", "num2words"), ("水", "zh", "pypinyin"), ("물", "ko", "hangul-romanize"), ("水", "ja", "cutlet")],
)
def test_a_missing_package_is_named(text, language, package, monkeypatch):
    """The sentence names language, package and command; other languages go on without it."""
    genuine = builtins.__import__
    module = package.replace("-", "_")
    monkeypatch.setattr(
        "importlib.import_module", lambda name: genuine(name) if not name.startswith(module) else _fail()
    )
    romanisation._cutlet.cache_clear()
    romanisation._transliter.cache_clear()
    with pytest.raises(
        PackageError, match=rf"published text front end needs the package {package} .*; run: pip install"
    ):
        cleaners.clean(text, language)
    assert cleaners.clean("Guten Tag", "de") == "guten tag"


def _fail():
    raise ImportError

"""Tokenizers: text becomes ids, and ids become the text again."""

import builtins
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.recipe.schema import TextSection
from xtts.text.normalise import normalise
from xtts.text.tokenizer import (
    REPLACEMENT,
    BPETokenizer,
    CharacterTokenizer,
    TextError,
    check_tokenizer,
    load_tokenizer,
    make_tokenizer,
)

ENGLISH = "The quick brown fox jumps over the lazy dog. Don't you think so? Yes, it's 5 to 12!"
PERSIAN = "سلام، حال شما چطور است؟ من کتاب‌های خوب را می‌خوانم."
TEXTS = [(ENGLISH, "en"), (PERSIAN, "fa")]
CHARACTERS = CharacterTokenizer.build(TEXTS)


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """A vocab.json in the layout of XTTS-v2's: [STOP] 0, [UNK] 1, [SPACE] 2, then letters and merges, [START] 261."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    tokens = ["[STOP]", "[UNK]", "[SPACE]", *sorted("abcdefghijklmnopqrstuvwxyz'!?,.-üé"), "th", "the", "ow", "ck"]
    tokens += [f"filler{number}" for number in range(259 - len(tokens))] + ["[en]", "[de]", "[START]", "[zh-cn]"]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [("t", "h"), ("th", "e"), ("o", "w"), ("c", "k")]
    bpe = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="[UNK]"))
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    bpe.add_special_tokens([AddedToken(token, normalized=False) for token in tokens if token.startswith("[")])
    path = tmp_path_factory.mktemp("vocab") / "vocab.json"
    bpe.save(str(path))
    return path


def known_text(characters):
    return st.text(st.sampled_from(sorted(characters)), max_size=40)


def test_special_tokens_come_first():
    """[STOP] is 0, [UNK] 1, [SPACE] 2, [START] 3, followed by the language tags and the characters, each sorted."""
    small = CharacterTokenizer.build([("b a", "fa"), ("c", "en")])
    assert (small.stop, small.start, small.size) == (0, 3, 9)
    assert small.encode("a b c?", "fa") == [5, 6, 2, 7, 2, 8, 1]
    assert small.encode("a", "en") == [4, 6]


@given(known_text(set(normalise(ENGLISH, "en")) | set("A1 [5%")))
def test_decoding_inverts_encoding(text):
    """Decoding gives the normalised text when every character is known."""
    wide = CharacterTokenizer.build([*TEXTS, ("abcdefghijklmnopqrstuvwxyz -", "en")])
    assert wide.unknown(text, "en") == []
    assert wide.decode(wide.encode(text, "en")) == normalise(text, "en")


@given(
    st.lists(st.tuples(st.text(min_size=1), st.sampled_from(["en", "fa", "de", "x", "es-419", "zh-CN"])), min_size=1)
)
def test_a_tokenizer_knows_the_texts_it_was_built_from(texts):
    """Each of its texts decodes to its normalised form, without unknown characters."""
    texts = [*texts, ("a", "en")]
    built = CharacterTokenizer.build(texts)
    for text, language in texts:
        assert built.unknown(text, language) == []
        assert built.decode(built.encode(text, language)) == normalise(text, language)


@given(st.text(st.characters(blacklist_categories=())), st.sampled_from(["en", "fa"]))
def test_any_text_has_ids(text, language):
    """Ids are within the vocabulary for any text, and exactly the unknown characters become [UNK]."""
    ids = CHARACTERS.encode(text, language)
    assert all(0 <= number < CHARACTERS.size for number in ids)
    assert (1 in ids) == bool(CHARACTERS.unknown(text, language))
    assert len(CHARACTERS.decode(ids)) == len(normalise(text, language))


def test_unknown_characters_are_listed():
    """Unknown characters are listed once each, in order, and decoded as a replacement character."""
    assert CHARACTERS.unknown("zebra ß 日本 ß", "en") == ["ß", "日", "本"]
    assert CHARACTERS.decode(CHARACTERS.encode("a ß", "en")) == f"a {REPLACEMENT}"


def test_start_stop_and_language_tags_are_not_decoded():
    """A sentence with the model's special tokens decodes to the sentence."""
    framed = [CHARACTERS.start, *CHARACTERS.encode("the fox", "en"), CHARACTERS.stop, CHARACTERS.stop]
    assert CHARACTERS.decode(framed) == "the fox"


def test_an_invalid_id_is_refused():
    """An id outside the vocabulary is an error."""
    for wrong in (-1, CHARACTERS.size):
        with pytest.raises(TextError, match=f"{wrong} is not a token"):
            CHARACTERS.decode([wrong])


def test_a_region_uses_its_language_s_tag():
    """An unknown language is refused with the known ones; a region falls back to its language."""
    assert CHARACTERS.encode("a", "en-GB") == CHARACTERS.encode("a", "en")
    with pytest.raises(TextError, match="no language 'de'; known: en, fa"):
        CHARACTERS.encode("a", "de")


def test_saving_and_loading(tmp_path):
    """A saved vocabulary loads as it was and does not depend on the order of the texts."""
    CHARACTERS.save(tmp_path / "a.json")
    CharacterTokenizer.build(reversed(TEXTS)).save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    loaded = load_tokenizer(tmp_path / "a.json")
    assert isinstance(loaded, CharacterTokenizer)
    assert loaded.digest() == CHARACTERS.digest() != CharacterTokenizer.build(TEXTS[:1]).digest()
    assert loaded.encode(PERSIAN, "fa") == CHARACTERS.encode(PERSIAN, "fa")


def test_the_digest_is_the_same_everywhere():
    """The digest does not depend on the hash seed or the version of Python."""
    assert CharacterTokenizer.build([("b a", "fa"), ("c", "en")]).digest().startswith("fa5f773340028e2c")


def test_a_corpus_without_characters_is_refused():
    """Texts without a single character raise an error."""
    with pytest.raises(TextError, match="check its texts"):
        CharacterTokenizer.build([(" \n", "en")])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b"{}",
        b'{"kind": "characters"}',
        b'{"kind": "characters", "languages": 3, "characters": "ab"}',
        b'{"kind": "characters", "languages": ["en"], "characters": "ba"}',
        b'{"kind": "characters", "languages": ["en"], "characters": "ab", "more": 1}',
        b'{"model": {"type": "BPE"}}',
        b'{"hello": 7}',
    ],
)
def test_a_file_that_is_not_a_vocabulary_is_refused(content, tmp_path):
    """A damaged or unrelated file is refused by name."""
    path = tmp_path / "vocab.json"
    path.write_bytes(content)
    with pytest.raises(TextError, match=r"vocab\.json .*; name"):
        load_tokenizer(path)


def test_a_missing_file_is_refused(tmp_path):
    """A missing file is refused by name, for either kind of tokenizer."""
    for read in (load_tokenizer, BPETokenizer.load, CharacterTokenizer.load):
        with pytest.raises(TextError, match=r"none\.json: No such file"):
            read(tmp_path / "none.json")


def test_bpe_encodes_as_xtts_does(vocab):
    """The ids are those that the tokenizers library gives for the tagged text with [SPACE] between words."""
    from tokenizers import Tokenizer

    bpe = BPETokenizer.load(vocab)
    library = Tokenizer.from_file(str(vocab))
    ids = bpe.encode("The quick brown fox, 5!", "en")
    assert ids == library.encode("[en]the[SPACE]quick[SPACE]brown[SPACE]fox,[SPACE]five!").ids
    assert ids[:3] == [library.token_to_id("[en]"), library.token_to_id("the"), 2]
    assert (bpe.stop, bpe.start, bpe.size, bpe.languages) == (0, 261, 263, ["de", "en", "zh-cn"])


@given(data=st.data())
def test_bpe_decoding_inverts_encoding(vocab, data):
    """Decoding gives the normalised text in lower case when every character is known, in any language."""
    bpe = BPETokenizer.load(vocab)
    text = data.draw(known_text("abcdefghijklmnopqrstuvwxyzABCÜ '!?,.-"))
    language = data.draw(st.sampled_from(["en", "de", "zh"]))
    assert bpe.unknown(text, language) == []
    assert bpe.decode([bpe.start, *bpe.encode(text, language), bpe.stop]) == normalise(text, language).lower()


@given(data=st.data())
def test_bpe_encodes_any_text(vocab, data):
    """Any text has ids, with one language tag at the front; what cannot be encoded becomes [UNK] and is listed."""
    bpe = BPETokenizer.load(vocab)
    text = data.draw(
        st.one_of(st.text(st.characters(blacklist_categories=())), st.text("[]STOPUNKen"), st.just("[STOP]"))
    )
    ids = bpe.encode(text, "de")
    special = {0, 261, *(bpe.encode("", language)[0] for language in bpe.languages)}
    assert ids[0] == bpe.encode("", "de")[0]
    assert not special.intersection(ids[1:])
    assert (1 in ids) == bool(bpe.unknown(text, "de"))


def test_bpe_refuses_a_language_without_a_tag(vocab):
    """A language without a tag is refused with the file's name and the known languages."""
    with pytest.raises(TextError, match=r"vocab\.json has no language 'fa'; known: de, en, zh-cn"):
        BPETokenizer.load(vocab).encode(PERSIAN, "fa")


def test_a_vocabulary_without_the_special_tokens_is_refused(vocab, tmp_path):
    """A vocabulary of another program, without the special tokens of XTTS, is refused."""
    other = tmp_path / "other.json"
    other.write_text(vocab.read_text(encoding="utf-8").replace("[START]", "[BEGIN]"), encoding="utf-8")
    with pytest.raises(TextError, match=r"other\.json has no token \[START\]; name the vocab\.json"):
        BPETokenizer.load(other)


def test_bpe_saves_what_it_loaded(vocab, tmp_path):
    """The saved file is the loaded one, byte for byte, and has the same digest."""
    bpe = BPETokenizer.load(vocab)
    bpe.save(tmp_path / "copy.json")
    again = load_tokenizer(tmp_path / "copy.json")
    assert isinstance(again, BPETokenizer)
    assert (tmp_path / "copy.json").read_bytes() == vocab.read_bytes()
    assert again.digest() == bpe.digest() != CHARACTERS.digest()


def test_a_missing_tokenizers_library_is_reported(vocab, monkeypatch):
    """Without the package tokenizers a BPE vocabulary is refused with the command that installs it."""
    genuine = builtins.__import__

    def missing(name, *rest):
        if name == "tokenizers":
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(TextError, match=r"pip install 'xtts\[bpe\]'"):
        BPETokenizer.load(vocab)


def test_a_missing_vocabulary_is_reported_early(vocab, tmp_path):
    """It is checked before anything is made; a character tokenizer needs no file."""
    check_tokenizer(TextSection())
    check_tokenizer(TextSection(tokenizer="bpe", vocab=str(vocab)))
    with pytest.raises(TextError, match=r"text\.vocab: .*none\.json: .*; name a vocabulary that can be read"):
        check_tokenizer(TextSection(tokenizer="bpe", vocab=str(tmp_path / "none.json")))


# Learned BPE vocabularies

SAID = [("The doctor saw the doctor.", "en"), ("The Doctor went home, at last!", "en"), (PERSIAN, "fa")]


@pytest.fixture(scope="module")
def learned():
    pytest.importorskip("tokenizers")
    return BPETokenizer.learn(SAID, 300)


def test_frequent_words_become_one_token(learned):
    """After the tag come one token per frequent word; other words are split into pieces, down to letters."""
    ids = learned.encode("The doctor saw the doctor.", "en")
    assert len(ids) == len(["[en]", "the", " ", "doctor", " ", "saw", " ", "the", " ", "doctor", "."])
    assert (ids[1], ids[3]) == (ids[7], ids[9])
    assert learned.unknown("otter, shot", "en") == []
    assert learned.decode(learned.encode("otter, shot", "en")) == "otter, shot"
    assert learned.unknown("zebra", "en") == ["b", "z"]
    assert learned.languages == ["en", "fa"]
    assert learned.decode(learned.encode(PERSIAN, "fa")) == normalise(PERSIAN, "fa")


def test_a_learned_vocabulary_is_an_ordinary_one(learned, tmp_path):
    """[STOP], [UNK] and [SPACE] have the ids of XTTS-v2, and the saved file loads like any other."""
    assert (learned.stop, learned.encode("\u4e00", "en")[1:], learned.encode("a a", "en")[2]) == (0, [1], 2)
    learned.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(again, BPETokenizer)
    assert again.digest() == learned.digest()
    assert again.encode(SAID[0][0], "en") == learned.encode(SAID[0][0], "en")


def test_the_order_of_texts_does_not_matter(learned):
    """The learned vocabulary does not depend on the order of the texts."""
    assert BPETokenizer.learn(SAID[::-1], 300).digest() == learned.digest()


def test_a_vocabulary_has_at_most_the_requested_size(learned):
    """The size is exceeded only to include every character."""
    characters = {letter for text, language in SAID for letter in normalise(text, language).lower()} - {" "}
    least = len(characters) + len(["[STOP]", "[UNK]", "[SPACE]", "[START]", "[en]", "[fa]"])
    assert BPETokenizer.learn(SAID, 16).size == least
    assert BPETokenizer.learn(SAID, least + 5).size == least + 5
    assert least < learned.size <= 300


def test_learning_from_empty_texts_is_refused():
    """Texts without characters raise an error."""
    pytest.importorskip("tokenizers")
    with pytest.raises(TextError, match="has no characters"):
        BPETokenizer.learn([(" ", "en")], 300)


# Choosing a tokenizer


def test_the_recipe_selects_the_tokenizer(vocab):
    """The text section of a recipe gives the tokenizer it names."""
    assert make_tokenizer(TextSection(), TEXTS).digest() == CHARACTERS.digest()
    assert make_tokenizer(TextSection(tokenizer="bpe", vocab=str(vocab)), TEXTS).start == 261
    assert make_tokenizer(TextSection(tokenizer="bpe"), TEXTS).languages == CHARACTERS.languages


def test_the_library_is_imported_only_for_bpe():
    """A character tokenizer needs neither tokenizers nor TensorFlow."""
    source = """
import json, sys
from xtts.text.tokenizer import CharacterTokenizer
CharacterTokenizer.build([("abc", "en")]).encode("abc", "en")
print(json.dumps([name for name in ("tokenizers", "tensorflow", "numpy") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == []

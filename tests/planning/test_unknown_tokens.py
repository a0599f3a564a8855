"""Unknown tokens in training texts are counted, reported, and refused above a share."""

import pytest
from published_texts import VOCAB
from recordings import ljspeech

from xtts.planning import dataset
from xtts.recipe.schema import DataSection, Recipe, TextSection
from xtts.text.tokenizer import TextError

pytest.importorskip("tokenizers")
pytest.importorskip("num2words")


def corpus(folder, texts):
    ljspeech(folder, [f"clip{number}" for number in range(len(texts))])
    lines = [f"clip{number}|{text}|{text}" for number, text in enumerate(texts)]
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


def load(folder, texts=None, **settings):
    source = corpus(folder, texts) if texts else str(folder)
    logged = []
    text = TextSection(tokenizer="bpe", vocab=str(VOCAB), **settings)
    dataset.load_dataset(Recipe(data=DataSection(train=source), text=text), logged.append)
    return "\n".join(logged)


PLAIN = [f"the ferry leaves the harbour before sunrise today, clip {word}" for word in "abcdefghijkl"]


def test_unknown_tokens_are_reported(tmp_path):
    """How many, in how many utterances, and which; the second time from the cache."""
    texts = [*PLAIN[:-2], "the 漢 ferry of 漢 and 字 leaves", "the 漢 ferry"]
    first = load(tmp_path / "corpus", texts)
    assert "tokens (1." in first
    assert "note: 4 of " in first
    assert "in 2 of 12 utterances are unknown to the vocabulary: 漢 字" in first
    assert load(tmp_path / "corpus") == first


def test_a_corpus_that_is_known_is_not_mentioned(tmp_path):
    """Where every token is known nothing is said."""
    assert "unknown" not in load(tmp_path / "corpus", PLAIN)


def test_too_many_unknown_tokens_are_refused(tmp_path):
    """Above text.max_unknown the corpus is refused with what to do; the share can be raised."""
    texts = [*PLAIN[:-4], *["漢字漢字漢字漢字漢字漢字 the"] * 4]
    with pytest.raises(
        TextError, match=r"unknown to the vocabulary: 字 漢; more than text\.max_unknown = 0\.05.*--extend"
    ):
        load(tmp_path / "corpus", texts)
    assert "note: 48 of" in load(tmp_path / "corpus", max_unknown=0.9)


def test_token_counts_are_not_shared_between_front_ends(tmp_path):
    """The same corpus with the other front end is measured again."""
    folder = corpus(tmp_path / "corpus", [f"in 1987 there were {number} of them" for number in range(100, 112)])
    counts = []
    for frontend in ("xtts", "published", "xtts"):
        text = TextSection(tokenizer="bpe", vocab=str(VOCAB), frontend=frontend)
        recipe = Recipe(data=DataSection(train=folder), text=text)
        counts.append(list(dataset.load_dataset(recipe, lambda line: None).train.lengths.text))
    assert counts[0] == counts[2] != counts[1]

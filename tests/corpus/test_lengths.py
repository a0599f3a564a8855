import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import ljspeech, record, tone

from xtts.audio.mel import CODEC, frame_count
from xtts.audio.resample import resampled_length
from xtts.corpus import index, lengths
from xtts.corpus.utterances import CorpusError, Reason
from xtts.recipe.schema import AudioSection


def letters(text, language):
    return [ord(letter) for letter in text]


def any_letter(text, language):
    return any(letter.isalpha() for letter in text)


def measure(found, encode=letters, known=any_letter, audio=None, **options):
    return lengths.measure_lengths(found, encode, known, audio or AudioSection(), **options)


@given(
    st.integers(1, 10**7), st.sampled_from([8000, 16000, 22050, 44100, 48000]), st.sampled_from([16000, 22050, 24000])
)
def test_resampling_rounds_up(samples, rate, target):
    """The resampled length is samples times target over rate, rounded up."""
    (length,) = resampled_length(np.array([samples]), np.array([rate]), target).tolist()
    assert (length - 1) * rate < samples * target <= length * rate


def test_lengths_are_those_of_the_model(tmp_path):
    """Tokens are the tokenizer's, samples are at the recipe's rate, and frames are one per hop plus one."""
    ljspeech(tmp_path, ["a", "b"])
    record(tmp_path / "wavs" / "a.wav", tone(44100), 44100)
    record(tmp_path / "wavs" / "b.wav", tone(8001, 2), 8000)
    found, table = measure(index.read_corpus(tmp_path))
    assert len(found.utterances) == len(table) == 2
    assert table.text.tolist() == [7, 7]
    assert table.samples.tolist() == [22050, 22053]
    assert table.frames.tolist() == [22050 // 256 + 1, 22053 // 256 + 1]
    assert {column.dtype for column in (table.text, table.samples, table.frames)} == {np.dtype(np.int32)}


def test_frames_are_those_of_a_centred_transform():
    """The count is that of an STFT centred on every hop, for lengths on both sides of a multiple."""
    for samples in (1024, 1025, 1279, 1280, 5000):
        padded = np.pad(np.zeros(samples), 512, mode="reflect")
        whole_windows = [start for start in range(0, len(padded), 256) if start + 1024 <= len(padded)]
        assert frame_count(np.array([samples]), CODEC)[0] == len(whole_windows)


def test_utterances_out_of_bounds_are_rejected(tmp_path):
    """Unknown text, long text, long audio and audio too short to pad are rejected and left out of the table."""
    ljspeech(tmp_path, ["good", "unknown", "wordy", "long", "short", "fine"])
    lines = ["good|x|ok", "unknown|x|!?", "wordy|x|" + "w" * 21, "long|x|ok", "short|x|ok", "fine|x|" + "w" * 20]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    record(tmp_path / "wavs" / "long.wav", tone(256 * 20))
    record(tmp_path / "wavs" / "fine.wav", tone(256 * 20 - 1))
    record(tmp_path / "wavs" / "short.wav", tone(512))
    found, table = measure(index.read_corpus(tmp_path), max_text_length=20, max_mel_frames=20)
    assert [u.id for u in found.utterances] == ["good", "fine"]
    assert table.text.tolist() == [2, 20]
    assert table.frames.tolist() == [18, 20]
    assert [(one.line, one.reason) for one in found.rejected] == [
        (2, Reason.TEXT_UNKNOWN),
        (3, Reason.TEXT_LONG),
        (4, Reason.AUDIO_LONG),
        (5, Reason.AUDIO_SHORT),
    ]
    assert found.rejected[1].detail == "21 tokens, over 20"
    assert found.rejected[2].detail == "21 mel frames, over 20"


def test_a_length_beyond_the_table_is_rejected_without_limits(tmp_path):
    """A recording too long for 32 bits never wraps around to a short one."""
    found = index.read_corpus(ljspeech(tmp_path))
    utterances = list(found.utterances)
    utterances[0] = utterances[0]._replace(samples=2**33)
    utterances[1] = utterances[1]._replace(samples=2**60, sample_rate=1)
    with pytest.raises(CorpusError, match="2  audio too long"):
        measure(index.Corpus(found.layout, utterances, []))
    _, table = measure(index.Corpus(found.layout, utterances, []), at_least=1)
    assert table.samples.tolist() == [4410]


def test_limits_that_leave_nothing_are_an_error(tmp_path):
    """The error names the reason and how many utterances it rejected."""
    with pytest.raises(CorpusError, match="3  text too long"):
        measure(index.read_corpus(ljspeech(tmp_path)), max_text_length=1)


def test_token_counts_are_cached_for_the_same_tokenizer_and_texts(tmp_path):
    """The tokenizer runs once; another tokenizer, text or language runs it again."""
    calls = []

    def encode(text, language):
        calls.append((text, language))
        return letters(text, language)

    root = ljspeech(tmp_path)
    _, first = measure(index.read_corpus(root), encode, tokenizer="one")
    assert len(calls) == 3
    _, again = measure(index.read_corpus(root), encode, tokenizer="one")
    assert len(calls) == 3
    assert again.text.tolist() == first.text.tolist()
    measure(index.read_corpus(root), encode, tokenizer="two")
    assert len(calls) == 6
    measure(index.read_corpus(root, language="fa"), encode, tokenizer="one")
    assert len(calls) == 9
    (root / "metadata.csv").write_text("a|x|changed\nb|x|words b\nc|x|words c\n")
    assert measure(index.read_corpus(root), encode, tokenizer="one")[1].text.tolist() == [7, 7, 7]
    assert len(calls) == 12


def test_without_a_name_for_the_tokenizer_nothing_is_cached(tmp_path):
    """Counts that cannot be told apart from another tokenizer's are not cached."""
    root = ljspeech(tmp_path)
    measure(index.read_corpus(root))
    assert measure(index.read_corpus(root), lambda text, language: [1, 2])[1].text.tolist() == [2, 2, 2]


def test_progress_reaches_the_end(tmp_path):
    """The last report is the total."""
    reports = []
    measure(index.read_corpus(ljspeech(tmp_path)), progress=lambda done, total: reports.append((done, total)))
    assert reports == [(3, 3)]

import struct
from contextlib import suppress

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import cut, record, tone

from xtts.audio import headers
from xtts.audio.headers import DamagedAudio, Header, read_header, read_headers
from xtts.corpus.utterances import Reason


def header(path):
    return read_header(str(path), path.stat().st_size)


def reason(path):
    with pytest.raises(DamagedAudio) as problem:
        header(path)
    return Reason(problem.value.fault)


def wav(path, claimed=200, before=b""):
    """A wav written by hand, whose header claims what it likes."""
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16)
    chunks = b"WAVE" + fmt + before + struct.pack("<4sI", b"data", claimed) + b"\x01\x02" * 100
    path.write_bytes(struct.pack("<4sI", b"RIFF", len(chunks)) + chunks)
    return path


@pytest.mark.parametrize(
    ("format", "subtype", "rate", "channels"),
    [
        ("WAV", "PCM_16", 8000, 1),
        ("WAV", "PCM_16", 44100, 2),
        ("WAV", "PCM_24", 48000, 1),
        ("WAV", "PCM_32", 22050, 1),
        ("WAV", "PCM_U8", 16000, 1),
        ("WAV", "FLOAT", 24000, 2),
        ("WAV", "DOUBLE", 22050, 1),
        ("WAV", "ULAW", 8000, 1),
        ("WAV", "IMA_ADPCM", 16000, 1),
        ("WAVEX", "PCM_24", 48000, 6),
        ("RF64", "PCM_16", 22050, 1),
        ("AIFF", "PCM_16", 22050, 1),
        ("FLAC", "PCM_16", 48000, 1),
        ("FLAC", "PCM_24", 44100, 2),
        ("OGG", "VORBIS", 22050, 1),
    ],
)
def test_a_header_says_what_decoding_finds(tmp_path, format, subtype, rate, channels):
    """Samples and rate read from a header are those that libsndfile decodes, for every kind of file."""
    path = record(tmp_path / "a.wav", tone(3001, channels), rate, format=format, subtype=subtype)
    decoded, decoded_rate = soundfile.read(str(path))
    assert header(path)[:3] == (len(decoded), decoded_rate, channels)
    assert decoded_rate == rate


def test_plain_wav_and_flac_are_read_without_libsndfile(tmp_path, monkeypatch):
    """The kinds that corpora are made of never cost the opening of a decoder."""
    wave, flac = record(tmp_path / "a.wav"), record(tmp_path / "a.flac")
    monkeypatch.setattr(headers, "parse_with_libsndfile", None)
    assert header(wave)[:3] == header(flac)[:3] == Header(4410, 22050, 1)[:3]


@pytest.mark.parametrize("share", [0.999, 0.5, 0.1])
def test_a_wav_with_bytes_missing_is_truncated(tmp_path, share):
    """A wav that holds fewer bytes than its header promises is truncated, by however little."""
    assert reason(cut(record(tmp_path / "a.wav"), share)) is Reason.TRUNCATED


def test_a_wav_of_no_samples_is_empty(tmp_path):
    """Neither a file of no bytes nor one of only a header is a recording."""
    assert reason(record(tmp_path / "a.wav", np.zeros(0, np.float32))) is Reason.EMPTY
    (tmp_path / "b.wav").write_bytes(b"")
    assert reason(tmp_path / "b.wav") is Reason.EMPTY


@pytest.mark.parametrize("claimed", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_wav_from_a_stream_reaches_to_its_end(tmp_path, claimed):
    """A length that a recorder could not go back to write is taken from the size of the file."""
    path = wav(tmp_path / "a.wav", claimed=claimed)
    assert header(path)[:2] == (100, 16000)
    assert soundfile.info(str(path)).frames == 100


def test_chunks_before_the_samples_are_passed_over(tmp_path):
    """Chunks of any length, odd ones padded, may stand before the samples, even a page of them."""
    assert header(wav(tmp_path / "a.wav", before=b"LIST" + struct.pack("<I", 5) + b"abcde\0")).samples == 100
    assert header(wav(tmp_path / "b.wav", before=b"bext" + struct.pack("<I", 6000) + b"x" * 6000)).samples == 100


@pytest.mark.parametrize("content", [b"not audio at all", b"RIFF", b"fLaC", b"ID3\4", b"\0" * 5000])
def test_what_is_no_audio_is_unreadable(tmp_path, content):
    """Other bytes under an audio name are unreadable."""
    (tmp_path / "a.wav").write_bytes(content)
    assert reason(tmp_path / "a.wav") is Reason.UNREADABLE


def test_a_file_that_is_gone_is_unreadable(tmp_path):
    """A file that vanished since its folder was listed is the utterance's problem, not the run's."""
    with pytest.raises(DamagedAudio, match="No such file"):
        read_header(str(tmp_path / "a.wav"), 10)


@pytest.mark.parametrize("at_hand", [1e9, -1])
def test_many_headers_keep_their_order(tmp_path, monkeypatch, at_hand):
    """One by one or in threads, the answers come in the order of the questions, bad files among them."""
    monkeypatch.setattr(headers, "SLOW_FILE", at_hand)
    monkeypatch.setattr(headers, "CHUNK", 3)
    monkeypatch.setattr(headers, "THREADED_CHUNKS", 2)
    paths = [record(tmp_path / f"{i}.wav", tone(100 + i)) for i in range(20)]
    cut(paths[7], 0.5)
    answers = list(read_headers([(str(path), path.stat().st_size) for path in paths]))
    assert [answer.samples for answer in answers if isinstance(answer, Header)] == [
        100 + i for i in range(20) if i != 7
    ]
    assert answers[7].fault == headers.TRUNCATED
    assert list(read_headers([])) == []


@given(st.binary(max_size=80), st.integers(0, 90), st.sampled_from(["wav", "flac"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_a_header_or_a_reason(tmp_path, noise, at, kind):
    """A damaged header is a number of samples or a reason, and never another error."""
    whole = record(tmp_path / f"whole.{kind}", tone(50)).read_bytes()
    path = tmp_path / f"a.{kind}"
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    with suppress(DamagedAudio):
        assert header(path).samples > 0

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
    """A WAV file written by hand, whose header may claim any length."""
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
def test_a_header_agrees_with_the_decoded_file(tmp_path, format, subtype, rate, channels):
    """The length and rate read from a header match those that libsndfile decodes, for every supported format."""
    path = record(tmp_path / "a.wav", tone(3001, channels), rate, format=format, subtype=subtype)
    decoded, decoded_rate = soundfile.read(str(path))
    assert header(path)[:3] == (len(decoded), decoded_rate, channels)
    assert decoded_rate == rate


def test_plain_wav_and_flac_are_read_without_libsndfile(tmp_path, monkeypatch):
    """The common corpus formats are parsed without opening a libsndfile decoder."""
    wave, flac = record(tmp_path / "a.wav"), record(tmp_path / "a.flac")
    monkeypatch.setattr(headers, "parse_with_libsndfile", None)
    assert header(wave)[:3] == header(flac)[:3] == Header(4410, 22050, 1)[:3]


@pytest.mark.parametrize("share", [0.999, 0.5, 0.1])
def test_a_wav_with_bytes_missing_is_truncated(tmp_path, share):
    """A WAV file with even slightly fewer bytes than its header declares is truncated."""
    assert reason(cut(record(tmp_path / "a.wav"), share)) is Reason.TRUNCATED


def test_a_wav_without_samples_is_empty(tmp_path):
    """A zero-byte file and a file of only a header are both reported as empty."""
    assert reason(record(tmp_path / "a.wav", np.zeros(0, np.float32))) is Reason.EMPTY
    (tmp_path / "b.wav").write_bytes(b"")
    assert reason(tmp_path / "b.wav") is Reason.EMPTY


@pytest.mark.parametrize("claimed", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_streamed_wav_extends_to_the_end_of_the_file(tmp_path, claimed):
    """A length that a streaming recorder left unset is computed from the size of the file."""
    path = wav(tmp_path / "a.wav", claimed=claimed)
    assert header(path)[:2] == (100, 16000)
    assert soundfile.info(str(path)).frames == 100


def test_chunks_before_the_samples_are_skipped(tmp_path):
    """Chunks of any size, including padded and very large ones, may precede the samples."""
    assert header(wav(tmp_path / "a.wav", before=b"LIST" + struct.pack("<I", 5) + b"abcde\0")).samples == 100
    assert header(wav(tmp_path / "b.wav", before=b"bext" + struct.pack("<I", 6000) + b"x" * 6000)).samples == 100


@pytest.mark.parametrize("content", [b"not audio at all", b"RIFF", b"fLaC", b"ID3\4", b"\0" * 5000])
def test_files_that_are_not_audio_are_unreadable(tmp_path, content):
    """Other content under an audio file name is reported as unreadable."""
    (tmp_path / "a.wav").write_bytes(content)
    assert reason(tmp_path / "a.wav") is Reason.UNREADABLE


def test_a_missing_file_is_unreadable(tmp_path):
    """A file deleted after its folder was listed is an error of that utterance, not of the run."""
    with pytest.raises(DamagedAudio, match="No such file"):
        read_header(str(tmp_path / "a.wav"), 10)


@pytest.mark.parametrize("at_hand", [1e9, -1])
def test_headers_read_together_keep_their_order(tmp_path, monkeypatch, at_hand):
    """Sequentially or in threads, results come in the order of the paths, with damaged files in their places."""
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
def test_any_bytes_give_a_header_or_a_reason(tmp_path, noise, at, kind):
    """A damaged header gives a number of samples or a rejection reason, never another exception."""
    whole = record(tmp_path / f"whole.{kind}", tone(50)).read_bytes()
    path = tmp_path / f"a.{kind}"
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    with suppress(DamagedAudio):
        assert header(path).samples > 0

"""Audio files: reading, errors, resampling and writing."""

import struct
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xtts.audio import resample, wav
from xtts.audio.headers import DamagedAudio, Header, read_header
from xtts.audio.wav import AudioError

RATE = 22050


def header(path: Path) -> Header:
    return read_header(str(path), path.stat().st_size)


def noise(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((samples, channels)) * 0.1).clip(-0.9, 0.9).astype(np.float32)


def wav_bytes(samples: np.ndarray, rate: int = RATE, before: bytes = b"", size: Any = None, channels: int = 1) -> bytes:
    """A 16-bit WAV as other programs write it: with chunks before the samples, or with a wrong size."""
    data = samples.astype("<i2").tobytes()
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    chunk = struct.pack("<4sI", b"data", len(data) if size is None else size) + data
    body = b"WAVE" + fmt + before + chunk
    return b"RIFF" + struct.pack("<I", len(body)) + body


def refusal(path: Path) -> str:
    """The message with which `read` refuses a file, after checking that it names the file and the remedy."""
    with pytest.raises(AudioError) as caught:
        wav.read_audio(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert ";" in message, "no remedy"
    assert "\n" not in message
    return message


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=st.lists(st.integers(-32768, 32767), min_size=1, max_size=300), channels=st.integers(1, 3))
def test_16_bit_samples_are_exact(tmp_path: Path, values: list, channels: int) -> None:
    """Each 16-bit sample is divided by 32768, and channels are averaged."""
    integers = np.array(values * channels, np.int16).reshape(-1, channels)
    path = tmp_path / "clip.wav"
    path.write_bytes(wav_bytes(integers, channels=channels))
    wave, rate = wav.read_audio(path)
    assert (wave.dtype, wave.shape, rate) == (np.float32, (len(integers),), RATE)
    np.testing.assert_allclose(wave, (integers / 32768).mean(axis=1), atol=1e-7 * (channels > 1), rtol=0)


@pytest.mark.parametrize(
    ("kind", "subtype", "error"),
    [
        ("WAV", "PCM_16", 0.0),
        ("WAVEX", "PCM_16", 0.0),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "FLOAT", 0.0),
        ("WAV", "ULAW", 1e-2),
        ("FLAC", "PCM_16", 0.0),
        ("AIFF", "PCM_16", 0.0),
        ("OGG", "VORBIS", 0.2),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_soundfile_format_is_read(tmp_path: Path, kind: str, subtype: str, error: float, channels: int) -> None:
    """Every format, mono or stereo, gives the wave that was written, at its own sample rate."""
    samples = np.rint(noise(5000, channels) * 32768) / 32768
    path = tmp_path / "clip"
    soundfile.write(str(path), samples, 44100, format=kind, subtype=subtype)
    wave, rate = wav.read_audio(str(path))
    assert rate == 44100
    assert wave.dtype == np.float32
    np.testing.assert_allclose(wave, samples.mean(axis=1), atol=error + 1e-7 * (channels > 1), rtol=0)
    found = header(path)
    assert (found.sample_rate, found.samples, found.channels) == (44100, len(wave), channels)


@pytest.mark.parametrize("size", [0, 5, 64])
def test_other_chunks_are_skipped(tmp_path: Path, size: int) -> None:
    """Chunks before the samples, of even or odd size, are not decoded as audio."""
    integers = np.arange(-500, 500, dtype=np.int16)
    path = tmp_path / "clip.wav"
    chunk = struct.pack("<4sI", b"LIST", size) + b"x" * (size + size % 2)
    path.write_bytes(wav_bytes(integers, before=chunk) + b"LIST\x02\0\0\0ab")
    np.testing.assert_array_equal(wav.read_audio(path)[0], integers.astype(np.float32) / 32768)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_streamed_wav_is_read_to_the_end_of_the_file(tmp_path: Path, size: int) -> None:
    """A WAV written to a pipe, before its length was known, is read to its end."""
    path = tmp_path / "clip.wav"
    path.write_bytes(wav_bytes(np.ones(700, np.int16), size=size))
    assert len(wav.read_audio(path)[0]) == header(path).samples == 700


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(kept=st.floats(0, 1, exclude_max=True))
def test_a_truncated_wav_is_detected(tmp_path: Path, subtype: str, kept: float) -> None:
    """A WAV truncated anywhere is refused from its header alone, so part of a clip never passes for all of it."""
    path = tmp_path / "clip.wav"
    soundfile.write(str(path), noise(400)[:, 0], RATE, format="WAV", subtype=subtype)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    refusal(path)
    with pytest.raises(DamagedAudio):
        header(path)


def test_a_truncated_wav_is_reported_with_its_bytes(tmp_path: Path) -> None:
    """The message gives the number of bytes present and the number expected."""
    path = tmp_path / "clip.wav"
    path.write_bytes(wav_bytes(np.ones(1000, np.int16))[:1044])
    assert "breaks off: 1,000 of 2,000 bytes of samples are there; copy the file again" in refusal(path)


def test_a_truncated_flac_is_detected(tmp_path: Path) -> None:
    """A truncated FLAC is refused when it is read."""
    path = tmp_path / "clip.flac"
    soundfile.write(str(path), noise(30_000)[:, 0], RATE)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "breaks off" in refusal(path)


def no_file(path: Path) -> None:
    pass


def a_folder(path: Path) -> None:
    path.mkdir()


def an_empty_file(path: Path) -> None:
    path.write_bytes(b"")


def a_text(path: Path) -> None:
    path.write_text("there was an old lady " * 50)


def no_samples(path: Path) -> None:
    path.write_bytes(wav_bytes(np.zeros(0)))


def no_rate(path: Path) -> None:
    path.write_bytes(wav_bytes(np.ones(10), rate=3))


def nan(path: Path) -> None:
    soundfile.write(str(path), np.array([0.0, np.nan, 0.1]), RATE, format="WAV", subtype="FLOAT")


def infinity(path: Path) -> None:
    soundfile.write(str(path), np.array([0.0, -np.inf, 0.1]), RATE, format="WAV", subtype="DOUBLE")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_file, "there is no such file"),
        (a_folder, "this is a folder"),
        (an_empty_file, "the file is empty"),
        (a_text, "soundfile cannot read it"),
        (no_samples, "holds no samples"),
        (no_rate, "3 samples a second is no sample rate"),
        (nan, "contain NaN or infinity"),
        (infinity, "contain NaN or infinity"),
    ],
)
def test_unusable_files_are_refused_by_name(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    """A file that cannot be used gets one message: which file, what is wrong and what to do."""
    path = tmp_path / "clip.wav"
    make(path)
    assert words in refusal(path)


def test_headerless_samples_are_refused(tmp_path: Path) -> None:
    """A .raw file, whose format soundfile cannot know, is refused like any other file that is not audio."""
    path = tmp_path / "clip.raw"
    path.write_bytes(bytes(1000))
    assert "soundfile cannot read it" in refusal(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(0, 60), byte=st.integers(0, 255), second=st.integers(0, 60), other=st.integers(0, 255))
@example(place=20, byte=6, second=20, other=6)  # A-law, of which a sample is 8 bits whatever the header says
def test_a_damaged_header_never_crashes(tmp_path: Path, place: int, byte: int, second: int, other: int) -> None:
    """Whatever a WAV's header says, the file is read or refused with an AudioError."""
    content = bytearray(wav_bytes(np.arange(100, dtype=np.int16)))
    content[place], content[second] = byte, other
    path = tmp_path / "clip.wav"
    path.write_bytes(bytes(content))
    try:
        wave, _ = wav.read_audio(path)
    except AudioError:
        return
    assert len(wave) == header(path).samples
    assert np.isfinite(wave).all()


@pytest.mark.parametrize(
    ("from_rate", "to_rate"),
    [(48000, 22050), (44100, 22050), (16000, 22050), (22050, 16000), (22050, 24000), (8000, 96000), (96000, 8000)],
)
def test_resampling_is_an_accurate_low_pass_filter(from_rate: int, to_rate: int) -> None:
    """Tones below 95 % of the lower Nyquist frequency are kept to within -95 dB; those above it fall to -95 dB."""
    limit = min(from_rate, to_rate) / 2
    at = np.arange(from_rate) / from_rate

    def resampled(hertz: float) -> np.ndarray:
        return resample.resample(np.sin(2 * np.pi * hertz * at + 0.3).astype(np.float32), from_rate, to_rate)

    then = np.arange(to_rate) / to_rate
    inner = slice(to_rate // 8, -to_rate // 8)  # a tone's abrupt start contains all frequencies
    for share in (0.01, 0.5, 0.95):
        error = resampled(share * limit) - np.sin(2 * np.pi * share * limit * then + 0.3)
        assert np.abs(error[inner]).max() < 10 ** (-95 / 20)
    for share in (1.001, 1.05, 1.7):
        if share * limit < from_rate / 2:
            assert np.abs(resampled(share * limit)[inner]).max() < 10 ** (-95 / 20)


RATES = st.sampled_from([8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 44099])


@settings(max_examples=60, deadline=None)
@given(samples=st.integers(1, 9000), from_rate=RATES, to_rate=RATES)
def test_the_resampled_length_is_known_in_advance(samples: int, from_rate: int, to_rate: int) -> None:
    """The length after resampling is what `resampled_length` predicts, and no sample strays far from the wave."""
    wave = noise(samples)[:, 0]
    result = resample.resample(wave, from_rate, to_rate)
    assert result.dtype == np.float32
    assert (
        len(result)
        == resample.resampled_length(samples, from_rate, to_rate)
        == int(np.ceil(samples * to_rate / from_rate))
    )
    assert np.abs(result).max() < 2 * np.abs(wave).max()


def test_resampling_in_blocks_leaves_no_seams() -> None:
    """Resampling a wave of many blocks gives the same samples as resampling its middle alone."""
    wave = noise(60_000)[:, 0]
    whole = resample.resample(wave, 44100, 22050)
    part = resample.resample(wave[10_000:50_000], 44100, 22050)
    np.testing.assert_allclose(part[1000:-1000], whole[6000:24_000], atol=1e-5)


def test_load_audio_resamples_to_the_requested_rate(tmp_path: Path) -> None:
    """`load_audio` gives the clip at the requested rate, unchanged where that is its own."""
    path = tmp_path / "clip.wav"
    wav.write_wav(path, noise(4410)[:, 0], 44100)
    wave, rate = wav.read_audio(path)
    np.testing.assert_array_equal(wav.load_audio(path, 44100), wave)
    np.testing.assert_array_equal(wav.load_audio(path, RATE), resample.resample(wave, rate, RATE))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=st.lists(st.integers(-32768, 32767), min_size=1, max_size=200))
def test_writing_and_reading_16_bit_samples_is_lossless(tmp_path: Path, values: list) -> None:
    """Writing a wave that was read from 16-bit samples changes none of them."""
    path = tmp_path / "clip.wav"
    wave = (np.array(values) / 32768).astype(np.float32)
    assert wav.write_wav(path, wave, 16000) == 1.0
    back, rate = wav.read_audio(path)
    np.testing.assert_array_equal(back, wave)
    assert rate == 16000
    assert soundfile.info(str(path)).subtype == "PCM_16"


def test_a_wave_above_full_scale_is_scaled_down(tmp_path: Path) -> None:
    """Above full scale the whole wave is attenuated instead of clipped, and the gain is returned."""
    path = tmp_path / "clip.wav"
    wave = 4 * np.sin(np.arange(1000) / 20).astype(np.float32)
    gain = wav.write_wav(path, wave, RATE)
    assert gain == pytest.approx(1 / np.abs(wave).max())
    np.testing.assert_allclose(wav.read_audio(path)[0], wave * gain, atol=2 / 32768)


def test_a_wave_with_nan_is_not_written(tmp_path: Path) -> None:
    """NaN is refused, and the existing file is kept."""
    path = tmp_path / "clip.wav"
    wav.write_wav(path, np.ones(3, np.float32) / 2, RATE)
    with pytest.raises(AudioError, match="NaN or infinity"):
        wav.write_wav(path, np.array([0.0, np.nan], np.float32), RATE)
    assert len(wav.read_audio(path)[0]) == 3


def test_writing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails half way, the existing file is unchanged and no temporary file is left."""
    path = tmp_path / "clip.wav"
    wav.write_wav(path, np.ones(3, np.float32) / 2, RATE)
    before = path.read_bytes()

    def half(draft: str, *_: Any, **__: Any) -> None:
        Path(draft).write_bytes(b"RIFF")
        raise OSError("No space left on device")

    monkeypatch.setattr(soundfile, "write", half)
    with pytest.raises(AudioError, match="No space left"):
        wav.write_wav(path, np.zeros(5, np.float32), RATE)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["clip.wav"]


def test_writing_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A path whose folder does not exist is refused by name."""
    with pytest.raises(AudioError, match=r"clip\.wav: cannot be written .*; name a file in a folder"):
        wav.write_wav(tmp_path / "missing" / "clip.wav", np.zeros(5, np.float32), RATE)


def test_a_streamed_wav_is_readable_while_it_grows(tmp_path):
    """While it grows its header has no length; when closed it is identical to a WAV written in one go."""
    wave = (0.4 * np.sin(np.arange(5000) * 0.1)).astype(np.float32)
    with (tmp_path / "growing.wav").open("wb") as file:
        growing = wav.StreamingWav(file, 24000)
        growing.add(wave[:2000])
        assert (tmp_path / "growing.wav").stat().st_size == 44 + 4000
        begun, rate = soundfile.read(str(tmp_path / "growing.wav"), dtype="float32")
        assert (rate, len(begun)) == (24000, 2000)
        growing.add(wave[2000:])
        growing.end()
    wav.write_wav(tmp_path / "whole.wav", wave, 24000)
    assert (tmp_path / "growing.wav").read_bytes() == (tmp_path / "whole.wav").read_bytes()


def test_a_streamed_wav_clips_samples_above_full_scale(tmp_path):
    """Samples above full scale are clipped and do not wrap around."""
    with (tmp_path / "loud.wav").open("wb") as file:
        growing = wav.StreamingWav(file, 8000)
        growing.add(np.array([2.0, -2.0, 0.5], np.float32))
        growing.end()
    assert np.allclose(wav.read_audio(tmp_path / "loud.wav")[0], [1.0, -1.0, 0.5], atol=1e-4)

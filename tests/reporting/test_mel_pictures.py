"""Mels as standard PNG files."""

import struct
import zlib

import numpy as np
import pytest

from xtts.reporting import mel_pictures
from xtts.reporting.mel_pictures import GAP, SCALE, TRANSPARENT


def decode(content):
    """A PNG's palette [256, 3] and pixels [height, width], decoded by the standard with all checksums verified."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(content):
        size, name = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + size]
        assert struct.unpack(">I", content[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + body),)
        chunks[name] = body
        at += 12 + size
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour, name) == (8, 3, b"IEND")
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(256, 3), lines[:, 1:]


def test_a_mel_has_low_frequencies_at_the_bottom():
    """A loud lowest channel is a bright bottom line, and the last frame is at the right."""
    mel = np.zeros((10, 4))
    mel[:, 0] = 1.0
    mel[9, 3] = 1.0
    palette, image = decode(mel_pictures.mel_png(mel))
    assert image.shape == (4 * SCALE, 10 * SCALE)
    brightness = palette[image].sum(axis=-1)
    assert (brightness[-SCALE:] > 600).all()
    assert (brightness[:SCALE, -SCALE:] > 600).all()
    assert (brightness[:-SCALE, :-SCALE] < 60).all()


def test_mels_are_stacked_with_a_gap_on_one_scale():
    """A quieter mel is darker than a louder one above it; the gap and the end of a shorter one are transparent."""
    loud, soft = np.full((6, 3), 10.0), np.linspace(0, 2, 12).reshape(4, 3)
    palette, image = decode(mel_pictures.mel_png(loud, soft))
    assert image.shape == (2 * 3 * SCALE + GAP, 6 * SCALE)
    assert (image[3 * SCALE : 3 * SCALE + GAP] == TRANSPARENT).all()
    assert (image[-3 * SCALE :, 4 * SCALE :] == TRANSPARENT).all()
    shown = image[-3 * SCALE :, : 4 * SCALE]
    assert palette[shown].sum(axis=-1).max() < palette[image[: 3 * SCALE]].sum(axis=-1).min()


def test_tensorflow_decodes_the_same_pixels():
    """An independent PNG decoder gives the same pixels."""
    import tensorflow as tf

    mels = [np.random.RandomState(seed).normal(size=(30 - seed, 8)) for seed in (0, 1)]
    seen = tf.io.decode_png(mel_pictures.mel_png(*mels), channels=3).numpy()
    np.testing.assert_array_equal(seen, mel_pictures.pixels(*mels))


def test_colours_grow_brighter_evenly():
    """Lightness increases along the palette, so the picture is readable in greyscale."""
    light = mel_pictures.palette() @ np.array([0.2126, 0.7152, 0.0722])
    assert mel_pictures.palette().shape == (255, 3)
    assert (np.diff(light) > -0.5).all()
    assert np.diff(light[::16]).min() > 0


@pytest.mark.parametrize(
    "mel",
    [
        np.zeros((0, 8)),
        np.full((3, 8), 2.5),
        np.full((3, 8), np.nan),
        np.array([[np.inf, -np.inf, np.nan, 1.0]]),
        np.ones((1, 8), np.float16),
    ],
)
def test_any_mel_has_a_picture(mel):
    """No frames, silence, one frame, NaN and infinity give a picture without a warning."""
    with np.errstate(all="raise"):
        _, image = decode(mel_pictures.mel_png(mel))
    assert image.shape == (mel.shape[1] * SCALE, max(1, len(mel)) * SCALE)

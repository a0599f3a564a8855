"""Pictures of mels [frames, channels] as PNG.

Time runs to the right and frequency upwards. Several mels are stacked on one colour scale: brighter means louder in all
of them. The PNG is encoded here, with zlib: no dependency of this package writes images.
"""

import struct
import zlib
from typing import Tuple

import numpy as np

SCALE = 2  # pixels for each channel and each frame
GAP = 6  # transparent pixels between two mels
SOFTEST, LOUDEST = 1.0, 99.8  # percentiles that get the darkest and the brightest colour
COLOURS = np.array(  # the magma colour map at nine even places: perceptually uniform, also in greyscale
    [
        (0x00, 0x00, 0x04),
        (0x1C, 0x10, 0x44),
        (0x4F, 0x12, 0x7B),
        (0x81, 0x25, 0x81),
        (0xB5, 0x36, 0x7A),
        (0xE5, 0x59, 0x64),
        (0xFB, 0x88, 0x61),
        (0xFE, 0xC2, 0x87),
        (0xFC, 0xFD, 0xBF),
    ],
    float,
)
TRANSPARENT = 255  # index into the palette; colours are 0 to 254


def mel_png(*mels: np.ndarray) -> bytes:
    """A PNG of the mels, the first on top."""
    return encode_png(indices(*mels))


def pixels(*mels: np.ndarray) -> np.ndarray:
    """The same picture as RGB, [height, width, 3] uint8, with black for transparent."""
    colours: np.ndarray = np.concatenate([palette(), np.zeros((1, 3), np.uint8)])
    return colours.take(indices(*mels), axis=0)


def indices(*mels: np.ndarray) -> np.ndarray:
    """The same picture as indices into the palette, [height, width] uint8."""
    shown = [np.asarray(mel, float) if len(mel) else np.full((1, np.shape(mel)[1]), np.nan) for mel in mels]
    finite = np.concatenate([mel[np.isfinite(mel)] for mel in shown])
    low, high = np.percentile(finite, [SOFTEST, LOUDEST]) if len(finite) else (0.0, 1.0)
    rows, width = [], max(len(mel) for mel in shown)
    for mel in shown:
        shades = np.nan_to_num((mel - low) / max(high - low, 1e-9), nan=0.0, posinf=1.0, neginf=0.0)
        image = np.full((mel.shape[1], width), TRANSPARENT, np.uint8)
        image[:, : len(mel)] = np.rint(
            np.clip(shades, 0, 1).T[::-1] * (TRANSPARENT - 1)
        )  # the lowest channel at the bottom
        image = image.repeat(SCALE, axis=0).repeat(SCALE, axis=1)
        rows += [image, np.full((GAP, image.shape[1]), TRANSPARENT, np.uint8)]
    return np.concatenate(rows[:-1])


def palette() -> np.ndarray:
    """The colours from soft to loud, [255, 3] uint8."""
    places, at = np.linspace(0, 1, len(COLOURS)), np.linspace(0, 1, TRANSPARENT)
    shades: np.ndarray = np.stack([np.interp(at, places, channel) for channel in COLOURS.T], axis=1)
    return np.asarray(np.rint(shades), np.uint8)


def encode_png(image: np.ndarray) -> bytes:
    """An image of palette indices, [height, width] uint8, as a PNG."""
    height, width = image.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with 0: no filter
    lines[:, 1:] = image
    chunks: Tuple[Tuple[bytes, bytes], ...] = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits a pixel, by palette
        (b"PLTE", palette().tobytes() + bytes(3)),
        (b"tRNS", b"\xff" * TRANSPARENT + b"\x00"),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )

"""A model smaller than tiny, for tests that train one: it replaces the preset "tiny"."""

from typing import Any

from xtts.planning.sizes import SIZES, CodecSize, DecoderSize, GptSize, ModelSize, SpeakerSize

SMALL = ModelSize(
    GptSize(
        layers=1,
        width=32,
        heads=2,
        conditioning_blocks=1,
        perceiver_layers=1,
        perceiver_heads=1,
        perceiver_head_width=16,
    ),
    CodecSize(hidden=8, code_width=8, codes=32),
    SpeakerSize(blocks=(1, 1, 1, 1), filters=(8, 8, 8, 8), width=16),
    DecoderSize(width=32),
)


def use_small(monkeypatch: Any) -> ModelSize:
    """Until the test ends, `model.size = "tiny"` is this size."""
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    return SMALL

"""A model that is smaller than tiny, for tests that train one: it stands in the presets under the name "tiny"."""

from typing import Any

from xtts.planning.sizes import SIZES, Codec, Decoder, Gpt, Size, Speaker

SMALL = Size(
    Gpt(
        layers=1,
        width=32,
        heads=2,
        conditioning_blocks=1,
        perceiver_layers=1,
        perceiver_heads=1,
        perceiver_head_width=16,
    ),
    Codec(hidden=8, code_width=8, codes=32),
    Speaker(blocks=(1, 1, 1, 1), filters=(8, 8, 8, 8), width=16),
    Decoder(width=32),
)


def use_small(monkeypatch: Any) -> Size:
    """Until the test ends, `model.size = "tiny"` is this size."""
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    return SMALL

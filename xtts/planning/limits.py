"""How much text a model says in one go."""

import contextlib
import json
from pathlib import Path
from typing import NamedTuple, Optional, Union

from xtts.planning.sizes import FRAMES_PER_CODE, GptSize

# A text that may need more codes than the model can generate is split. Its need is estimated from the speaking rate in
# training, with a margin for slower voices; for a published model, from a slow speaking rate.
SLOW_VOICE_MARGIN = 1.1
CODES_PER_CHARACTER = 2
MIN_CODES = 64  # of which a model is always taken to be capable


class Limits(NamedTuple):
    """The longest text and the most codes of one sentence."""

    text_tokens: int
    codes: int
    tokens_per_code: Optional[float] = None  # text tokens, of the training data; None: unknown

    def fits(self, tokens: int, characters: int) -> bool:
        """Whether a text of so many tokens and characters can be said in one go."""
        if self.tokens_per_code:
            return tokens <= min(self.text_tokens, self.codes * self.tokens_per_code / SLOW_VOICE_MARGIN)
        return tokens <= self.text_tokens and CODES_PER_CHARACTER * characters <= max(self.codes, MIN_CODES)


def read_limits(folder: Union[str, Path], gpt: GptSize, is_published: bool) -> Limits:
    """The limits of a model; of one trained from scratch those of training, because later positions are untrained."""
    limits = Limits(gpt.max_text_tokens, gpt.audio_positions - 3)
    if not is_published:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plan = json.loads((Path(folder) / "plan.json").read_text(encoding="utf-8"))
            text = max(int(shape["text_length"]) for shape in plan["shapes"])
            codes = max(int(shape["mel_frames"]) for shape in plan["shapes"]) // FRAMES_PER_CODE
            limits = Limits(min(limits.text_tokens, text), min(limits.codes, codes), plan.get("pace"))
    return limits

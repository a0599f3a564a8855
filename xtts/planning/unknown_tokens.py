"""Unknown tokens in training texts: counted, reported, and refused above a share.

A text with [UNK] in it teaches a model to skip what is written there. The public trainer leaves such utterances out;
here they stay, unless there are so many that the vocabulary, or the front end, is not that of the corpus.
"""

from collections import Counter
from typing import Callable, Sequence, Tuple

import attrs

from xtts.corpus import cache
from xtts.corpus.index import Corpus
from xtts.corpus.lengths import texts_digest
from xtts.corpus.utterances import Utterance
from xtts.text.tokenizer import TextError, Tokenizer

SHOWN = 20  # characters, the most frequent ones


@attrs.frozen
class UnknownTokens:
    """What a vocabulary does not know of the texts of a corpus."""

    tokens: int  # all tokens
    unknown: int  # of them
    utterances: int  # all utterances
    concerned: int  # of them, with unknown tokens
    characters: Tuple[str, ...]  # those without a token, the most frequent first

    @property
    def share(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / max(1, self.tokens)

    def text(self) -> str:
        """What is unknown, in a line."""
        shown = " ".join(self.characters[:SHOWN])
        more = len(self.characters) - SHOWN
        return (
            f"{self.unknown:,} of {self.tokens:,} tokens ({self.share:.2%}) in {self.concerned:,} of "
            f"{self.utterances:,} utterances are unknown to the vocabulary: {shown}"
            + (f" and {more:,} more" if more > 0 else "")
        )


def count_unknown(corpus: Corpus, utterances: Sequence[Utterance], tokenizer: Tokenizer) -> UnknownTokens:
    """Count the unknown tokens of the utterances; the counts are cached with the corpus."""
    name = corpus.cache_name("unknown", cache_key(tokenizer))
    key = texts_digest(utterances)
    kept = cache.load_entry(corpus.cache, name) if corpus.cache else None
    if isinstance(kept, dict) and kept.get("texts") == key:
        return UnknownTokens(characters=tuple(kept["characters"]), **kept["counts"])
    found = _count(utterances, tokenizer)
    if corpus.cache:
        counts = attrs.asdict(found)
        cache.store_entry(
            corpus.cache, name, {"texts": key, "characters": list(counts.pop("characters")), "counts": counts}
        )
    return found


def check_unknown(found: UnknownTokens, max_share: float, log: Callable[[str], None]) -> None:
    """Log what is unknown, or raise a TextError if it is more than the recipe allows."""
    if found.share > max_share:
        raise TextError(
            f"{found.text()}; more than text.max_unknown = {max_share:g} allows. Add tokens to the vocabulary and"
            " import the weights with it and --extend, or correct text.frontend, data.language or text.max_unknown"
        )
    if found.unknown:
        log(f"note: {found.text()}")


def cache_key(tokenizer: Tokenizer) -> str:
    """What token counts depend on: the vocabulary and the front end."""
    return f"{tokenizer.digest()}-{tokenizer.frontend.key}"


def _count(utterances: Sequence[Utterance], tokenizer: Tokenizer) -> UnknownTokens:
    tokens = unknown = concerned = 0
    characters: Counter[str] = Counter()
    for one in utterances:
        ids = tokenizer.encode(one.text, one.language)
        here = ids.count(tokenizer.unknown_id)
        tokens, unknown, concerned = tokens + len(ids), unknown + here, concerned + bool(here)
        if here:
            characters.update(tokenizer.unknown(one.text, one.language))
    ordered = sorted(characters, key=lambda character: (-characters[character], character))
    return UnknownTokens(tokens, unknown, len(utterances), concerned, tuple(ordered))

"""The length table: a corpus and a tokenizer come in, the length of each utterance in tokens, mel frames and samples
goes out, with the corpus without those that the model cannot take.
"""

import hashlib
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio import mel
from xtts.audio.resample import resampled_length
from xtts.corpus import cache
from xtts.corpus.index import AT_LEAST, Corpus, Progress
from xtts.corpus.utterances import Reason, Unusable, Utterance
from xtts.recipe.schema import AudioSection

Encode = Callable[[str, str], Sequence[int]]  # text and language to token ids
Known = Callable[[str, str], bool]  # whether a text has a character the tokenizer knows
LONGEST = 2**31 - 1  # samples that a table of 32-bit numbers can count: 27 hours
LONGEST_FILE = 2**44  # samples; times 192,000 Hz that fits in 63 bits, and nothing so long is kept
_UNKNOWN = -1  # tokens of a text without a known character


@attrs.frozen(eq=False)
class Lengths:
    """Row i is the i-th utterance of the corpus it was measured from. All are int32."""

    text: np.ndarray  # tokens
    frames: np.ndarray  # mel frames
    samples: np.ndarray  # at the recipe's rate

    def __len__(self) -> int:
        return len(self.text)


def measure_lengths(
    corpus: Corpus,
    encode: Encode,
    known: Known,
    audio: AudioSection,
    max_text_length: Optional[int] = None,
    max_mel_frames: Optional[int] = None,
    tokenizer: Optional[str] = None,
    progress: Optional[Progress] = None,
    at_least: int = AT_LEAST,
) -> Tuple[Corpus, Lengths]:
    """The lengths of the utterances within the limits, and the corpus of just these.

    `tokenizer` names what `encode` and `known` do, for example by a digest of the vocabulary: the token counts are
    cached under it, and not at all without it.
    """
    text = _token_counts(corpus, encode, known, tokenizer, progress)
    own = np.array([u.samples for u in corpus.utterances], np.int64)
    rates = np.array([u.sample_rate for u in corpus.utterances], np.int64)
    samples = resampled_length(np.minimum(own, LONGEST_FILE), rates, audio.sample_rate)
    frames = mel.frame_count(samples, mel.MelSpec.of(audio))
    unusable: Dict[int, Unusable] = {}

    def set_aside(broken: np.ndarray, reason: Reason, detail: Callable[[int], str]) -> None:
        for position in np.flatnonzero(broken).tolist():
            unusable.setdefault(position, Unusable(reason, detail(position)))

    set_aside(text <= 0, Reason.TEXT_UNKNOWN, lambda i: f"the tokenizer knows nothing of {corpus.utterances[i].text!r}")
    if max_text_length is not None:
        set_aside(text > max_text_length, Reason.TEXT_LONG, lambda i: f"{text[i]} tokens, over {max_text_length}")
    pad = audio.n_fft // 2  # samples mirrored at each end; there must be more than that to mirror
    set_aside(
        samples <= pad, Reason.AUDIO_SHORT, lambda i: f"{samples[i]} samples, not over the {pad} of half an n_fft"
    )
    if max_mel_frames is not None:
        set_aside(
            frames > max_mel_frames, Reason.AUDIO_LONG, lambda i: f"{frames[i]} mel frames, over {max_mel_frames}"
        )
    set_aside(samples > LONGEST, Reason.AUDIO_LONG, lambda i: f"{samples[i]} samples, over {LONGEST}")

    kept = np.ones(len(text), bool)
    kept[list(unusable)] = False
    table = Lengths(*(column[kept].astype(np.int32) for column in (text, frames, samples)))
    return corpus.without(unusable, at_least), table


def _token_counts(
    corpus: Corpus, encode: Encode, known: Known, tokenizer: Optional[str], progress: Optional[Progress]
) -> np.ndarray:
    """The number of tokens of each text, int64; from the cache when tokenizer, languages and texts are the same."""
    name = corpus.cache_name("tokens", tokenizer)
    key = _digest(corpus.utterances)
    if tokenizer is not None and corpus.cache:
        found = cache.load_entry(corpus.cache, name)
        if isinstance(found, dict) and found.get("texts") == key:
            return np.array(found["tokens"], np.int64)
    counts: List[int] = []
    for utterance in corpus.utterances:
        text, language = utterance.text, utterance.language
        counts.append(len(encode(text, language)) if known(text, language) else _UNKNOWN)
        if progress and (len(counts) % 1000 == 0 or len(counts) == len(corpus.utterances)):
            progress(len(counts), len(corpus.utterances))
    if tokenizer is not None and corpus.cache:
        cache.store_entry(corpus.cache, name, {"texts": key, "tokens": counts})
    return np.array(counts, np.int64)


def _digest(utterances: Sequence[Utterance]) -> str:
    """A digest of every language and text, in order."""
    digest = hashlib.sha256()
    for utterance in utterances:
        said = f"{utterance.language}\0{utterance.text}".encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(said) + said)
    return digest.hexdigest()

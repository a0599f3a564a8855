"""The lengths of utterances in tokens, mel frames and samples; those outside the limits are rejected."""

import hashlib
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio import mel
from xtts.audio.resample import resampled_length
from xtts.corpus import cache
from xtts.corpus.index import MIN_UTTERANCES, Corpus, Progress
from xtts.corpus.utterances import Reason, Unusable, Utterance
from xtts.recipe.schema import AudioSection

Encode = Callable[[str, str], Sequence[int]]  # text and language to token ids
Known = Callable[[str, str], bool]  # whether a text has a character that the tokenizer knows
MAX_SAMPLES = 2**31 - 1  # of an int32, 27 hours
MAX_FILE_SAMPLES = 2**44  # times 192,000 Hz this fits in 63 bits; longer files are rejected anyway
_UNKNOWN = -1  # token count of a text without a known character


@attrs.frozen(eq=False)
class Lengths:
    """Row i is the i-th utterance of the corpus. All are int32."""

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
    at_least: int = MIN_UTTERANCES,
) -> Tuple[Corpus, Lengths]:
    """The corpus without utterances outside the limits, and the lengths of the others.

    `tokenizer` identifies `encode` and `known`, for example by a digest of the vocabulary; token counts are cached
    under it, and not cached without it.
    """
    text = _token_counts(corpus, encode, known, tokenizer, progress)
    own = np.array([u.samples for u in corpus.utterances], np.int64)
    rates = np.array([u.sample_rate for u in corpus.utterances], np.int64)
    samples = resampled_length(np.minimum(own, MAX_FILE_SAMPLES), rates, audio.sample_rate)
    frames = mel.frame_count(samples, mel.MelSpec.of(audio))
    unusable: Dict[int, Unusable] = {}

    def reject(is_outside: np.ndarray, reason: Reason, detail: Callable[[int], str]) -> None:
        for position in np.flatnonzero(is_outside).tolist():
            unusable.setdefault(position, Unusable(reason, detail(position)))

    reject(text <= 0, Reason.TEXT_UNKNOWN, lambda i: f"no known character in {corpus.utterances[i].text!r}")
    if max_text_length is not None:
        reject(text > max_text_length, Reason.TEXT_LONG, lambda i: f"{text[i]} tokens, over {max_text_length}")
    pad = audio.n_fft // 2  # samples reflected at each end; a recording must be longer
    reject(samples <= pad, Reason.AUDIO_SHORT, lambda i: f"{samples[i]} samples, not over the {pad} of half an n_fft")
    if max_mel_frames is not None:
        reject(frames > max_mel_frames, Reason.AUDIO_LONG, lambda i: f"{frames[i]} mel frames, over {max_mel_frames}")
    reject(samples > MAX_SAMPLES, Reason.AUDIO_LONG, lambda i: f"{samples[i]} samples, over {MAX_SAMPLES}")

    kept = np.ones(len(text), bool)
    kept[list(unusable)] = False
    table = Lengths(*(column[kept].astype(np.int32) for column in (text, frames, samples)))
    return corpus.without(unusable, at_least), table


def _token_counts(
    corpus: Corpus, encode: Encode, known: Known, tokenizer: Optional[str], progress: Optional[Progress]
) -> np.ndarray:
    """The number of tokens of each text, int64; cached as long as tokenizer, languages and texts are the same."""
    name = corpus.cache_name("tokens", tokenizer)
    key = texts_digest(corpus.utterances)
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


def texts_digest(utterances: Sequence[Utterance]) -> str:
    """A digest of every language and text, in order."""
    digest = hashlib.sha256()
    for utterance in utterances:
        content = f"{utterance.language}\0{utterance.text}".encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()

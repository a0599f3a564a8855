"""A trigram language model with Witten-Bell smoothing, written as an ARPA file for pocketsphinx.

The probability of a word after two others is interpolated with that after one and with its unigram probability: the
more distinct words followed a context, the more probability is left for unseen ones (Witten and Bell 1991).

By hand because kenlm and SRILM are programs to be compiled, NLTK writes no ARPA files, and this is one page.
"""

import math
from collections import Counter
from typing import Counter as Counted
from typing import Iterable, List, Sequence, Tuple

START, END = "<s>", "</s>"
ORDER = 3  # words of the longest n-gram
NEVER = -99.0  # ARPA's logarithm of probability 0

Gram = Tuple[str, ...]


class TrigramModel:
    """Counts of the n-grams of sentences; each word of `others` that they lack is counted once, as a unigram."""

    def __init__(self, sentences: Iterable[Sequence[str]], others: Iterable[str] = ()) -> None:
        self._counts: List[Counted[Gram]] = [Counter() for _ in range(ORDER)]
        for words in sentences:
            marked = [START, *words, END]
            for length, counts in enumerate(self._counts, 1):
                counts.update(tuple(marked[at : at + length]) for at in range(len(marked) - length + 1))
        single = self._counts[0]
        single.update((word,) for word in sorted(set(others)) if (word,) not in single)
        single.setdefault((END,), 1)
        single.setdefault((START,), 1)
        self._all = sum(single.values()) - single[START,]
        self._totals: Counted[Gram] = Counter()  # how often a context is followed by a word
        self._distinct: Counted[Gram] = Counter()  # and by how many different ones
        for counts in self._counts[1:]:
            for gram, count in counts.items():
                self._totals[gram[:-1]] += count
                self._distinct[gram[:-1]] += 1

    @property
    def words(self) -> List[str]:
        return sorted(word for (word,) in self._counts[0] if word not in (START, END))

    def probability(self, gram: Gram) -> float:
        """The probability of the last word after the others."""
        if len(gram) == 1:
            return 0.0 if gram == (START,) else self._counts[0][gram] / self._all
        before = gram[:-1]
        if before not in self._totals:
            return self.probability(gram[1:])
        seen = self._counts[len(gram) - 1][gram] / self._totals[before]
        backoff = self._backoff(before)
        return (1 - backoff) * seen + backoff * self.probability(gram[1:])

    def arpa(self) -> str:
        """The model in ARPA format."""
        lines = ["\\data\\", *(f"ngram {length}={len(grams)}" for length, grams in enumerate(self._counts, 1))]
        for length, grams in enumerate(self._counts, 1):
            lines += ["", f"\\{length}-grams:"]
            for gram in sorted(grams):
                line = f"{_log10(self.probability(gram)):.5f}\t{' '.join(gram)}"
                lines.append(line if length == ORDER else f"{line}\t{_log10(self._backoff(gram)):.5f}")
        return "\n".join([*lines, "", "\\end\\", ""])

    def _backoff(self, before: Gram) -> float:
        """The probability left for words that were not seen after a context."""
        distinct = self._distinct[before]
        return distinct / (distinct + self._totals[before]) if distinct else 1.0


def _log10(probability: float) -> float:
    return math.log10(probability) if probability > 0 else NEVER

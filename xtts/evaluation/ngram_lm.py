"""What is likely to be said: sentences come in as words; an ARPA file of trigrams goes out, for a recogniser to expect.

Words are as likely as they were seen to be after the two before them, mixed with what is likely after one, and in all
(Witten and Bell 1991): the more different words followed, the more is left for others.
"""

import math
from collections import Counter
from typing import Counter as Counted
from typing import Iterable, List, Sequence, Tuple

START, END = "<s>", "</s>"
ORDER = 3  # words that are looked at together
NEVER = -99.0  # the logarithm of no chance at all

Gram = Tuple[str, ...]


class TrigramModel:
    """Sentences, counted; words that none of them has count as one that was said alone."""

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
        self._totals: Counted[Gram] = Counter()  # how often something follows
        self._kinds: Counted[Gram] = Counter()  # and how many different words
        for counts in self._counts[1:]:
            for gram, count in counts.items():
                self._totals[gram[:-1]] += count
                self._kinds[gram[:-1]] += 1

    @property
    def words(self) -> List[str]:
        return sorted(word for (word,) in self._counts[0] if word not in (START, END))

    def chance(self, gram: Gram) -> float:
        """Of the last word, after the others."""
        if len(gram) == 1:
            return 0.0 if gram == (START,) else self._counts[0][gram] / self._all
        before = gram[:-1]
        if before not in self._totals:
            return self.chance(gram[1:])
        seen = self._counts[len(gram) - 1][gram] / self._totals[before]
        rest = self._rest(before)
        return (1 - rest) * seen + rest * self.chance(gram[1:])

    def arpa(self) -> str:
        """The text of the file."""
        lines = ["\\data\\", *(f"ngram {length}={len(grams)}" for length, grams in enumerate(self._counts, 1))]
        for length, grams in enumerate(self._counts, 1):
            lines += ["", f"\\{length}-grams:"]
            for gram in sorted(grams):
                line = f"{_logarithm(self.chance(gram)):.5f}\t{' '.join(gram)}"
                lines.append(line if length == ORDER else f"{line}\t{_logarithm(self._rest(gram)):.5f}")
        return "\n".join([*lines, "", "\\end\\", ""])

    def _rest(self, before: Gram) -> float:
        """The share that is left for words that were not seen here."""
        kinds = self._kinds[before]
        return kinds / (kinds + self._totals[before]) if kinds else 1.0


def _logarithm(chance: float) -> float:
    return math.log10(chance) if chance > 0 else NEVER

"""The split of a corpus into training and held-out utterances."""

import hashlib
from typing import Dict, List, Sequence, Tuple

from xtts.corpus.utterances import Utterance


def split_corpus(
    utterances: Sequence[Utterance], share: float, seed: int = 0
) -> Tuple[List[Utterance], List[Utterance]]:
    """Utterances to train on and utterances to hold out, about `share` of them; the same on every machine.

    Every speaker gives its part, as far as whole utterances allow, and keeps at least one to train on. Which ones is
    a matter of each utterance's id and the seed, so a corpus that grows keeps most of its validation set.
    """
    by_speaker: Dict[str, List[Utterance]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.speaker, []).append(utterance)
    parts = _apportion({speaker: len(own) for speaker, own in by_speaker.items()}, share, seed)
    held = set()
    for speaker, own in by_speaker.items():
        held.update(sorted((_draw(seed, u.id), u.id) for u in own)[: parts[speaker]])
    ids = {id for _, id in held}
    return [u for u in utterances if u.id not in ids], [u for u in utterances if u.id in ids]


def _apportion(sizes: Dict[str, int], share: float, seed: int) -> Dict[str, int]:
    """How many of each speaker's utterances are held out: whole numbers nearest to `share` of each, by largest rest."""
    spare = {speaker: size - 1 for speaker, size in sizes.items()}  # one always stays
    exact = {speaker: min(share * size, spare[speaker]) for speaker, size in sizes.items()}
    parts = {speaker: int(part) for speaker, part in exact.items()}
    total = sum(sizes.values())
    wanted = min(max(round(share * total), 1 if share > 0 else 0), sum(spare.values()))
    order = sorted(sizes, key=lambda speaker: (parts[speaker] - exact[speaker], _draw(seed, speaker)))
    missing = wanted - sum(parts.values())
    while missing > 0:
        able = [speaker for speaker in order if parts[speaker] < spare[speaker]][:missing]
        for speaker in able:
            parts[speaker] += 1
        missing -= len(able)
    return parts


def _draw(seed: int, name: str) -> bytes:
    """A number by lot, as bytes: the same for the same seed and name everywhere."""
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

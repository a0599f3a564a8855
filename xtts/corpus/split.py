"""Split a corpus into training and held-out utterances."""

import hashlib
from typing import Dict, List, Sequence, Tuple

from xtts.corpus.utterances import Utterance


def split_corpus(
    utterances: Sequence[Utterance], share: float, seed: int = 0
) -> Tuple[List[Utterance], List[Utterance]]:
    """Utterances to train on, and about `share` of them to hold out; the same on every machine.

    The split is stratified by speaker, and each speaker keeps at least one utterance to train on. It depends only on
    the seed and the ids, so that a corpus that grows keeps most of its validation set.
    """
    by_speaker: Dict[str, List[Utterance]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.speaker, []).append(utterance)
    parts = _apportion({speaker: len(own) for speaker, own in by_speaker.items()}, share, seed)
    held = set()
    for speaker, own in by_speaker.items():
        held.update(sorted((_hash(seed, u.id), u.id) for u in own)[: parts[speaker]])
    ids = {id for _, id in held}
    return [u for u in utterances if u.id not in ids], [u for u in utterances if u.id in ids]


def _apportion(sizes: Dict[str, int], share: float, seed: int) -> Dict[str, int]:
    """The number of held-out utterances of each speaker: `share` of each, rounded by the largest remainder method."""
    spare = {speaker: size - 1 for speaker, size in sizes.items()}  # one always stays in training
    exact = {speaker: min(share * size, spare[speaker]) for speaker, size in sizes.items()}
    parts = {speaker: int(part) for speaker, part in exact.items()}
    total = sum(sizes.values())
    wanted = min(max(round(share * total), 1 if share > 0 else 0), sum(spare.values()))
    order = sorted(sizes, key=lambda speaker: (parts[speaker] - exact[speaker], _hash(seed, speaker)))
    missing = wanted - sum(parts.values())
    while missing > 0:
        able = [speaker for speaker in order if parts[speaker] < spare[speaker]][:missing]
        for speaker in able:
            parts[speaker] += 1
        missing -= len(able)
    return parts


def _hash(seed: int, name: str) -> bytes:
    """A pseudo-random number, as bytes, that depends only on seed and name."""
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

"""Text in pieces that a model can say: a text and its language come in, normalised sentences go out, each with a pause.

A sentence that is too long is cut at commas, and where that is not enough at spaces, into as few pieces as fit.
"""

import re
from typing import Callable, Iterator, List, NamedTuple

from xtts.errors import XttsError
from xtts.text.normalise import normalise

Fits = Callable[[str], bool]

AFTER_SENTENCE, AFTER_CLAUSE, AFTER_WORD = 0.3, 0.12, 0.04  # seconds of silence
_CLOSING = r"""["'”’»)\]]*"""
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(rf"(?<=[.!?؟…。！？]){_CLOSING}\s+|(?<=[。！？])")
_CLAUSE = re.compile(r"(?<=[,;:،؛，；：、])\s+|\s+(?=[-–—]\s)")
_SPACE = re.compile(r"\s+")


class SplittingError(XttsError):
    """A text that cannot be said, and what to write."""


class TextPiece(NamedTuple):
    """What is said in one go, as it was normalised, and the silence after it, in seconds."""

    text: str
    pause: float


def split_text(text: str, language: str, fits: Fits) -> List[TextPiece]:
    """Every sentence of a text, in order; `fits` says of a normalised text whether it can be said in one go."""
    found: List[TextPiece] = []
    for paragraph in split_paragraphs(text, language):
        for sentence in _parts(paragraph, _SENTENCE):
            found += _cut(sentence, fits)
    return [piece for piece in found if is_spoken(piece.text)]


def split_paragraphs(text: str, language: str) -> List[str]:
    """What blank lines separate, each normalised."""
    return [normalise(paragraph, language) for paragraph in _PARAGRAPH.split(text)]


def is_spoken(text: str) -> bool:
    """Whether there is a letter or a digit in it."""
    return any(character.isalnum() for character in text)


def _cut(sentence: str, fits: Fits) -> Iterator[TextPiece]:
    """A sentence as it is, or in pieces that fit."""
    if fits(sentence):
        yield TextPiece(sentence, AFTER_SENTENCE)
        return
    clauses = [
        TextPiece(part, pause)
        for clause in _packed(list(_parts(sentence, _CLAUSE)), fits)
        for part, pause in _words_of(clause, fits)
    ]
    yield from clauses[:-1]
    yield clauses[-1]._replace(pause=AFTER_SENTENCE)


def _words_of(clause: str, fits: Fits) -> Iterator[TextPiece]:
    """A clause as it is, or cut between words."""
    parts = [clause] if fits(clause) else _packed(list(_parts(clause, _SPACE)), fits)
    for number, part in enumerate(parts, 1):
        if not fits(part):
            raise SplittingError(
                f"{_shown(part)} is one word of {len(part):,} characters, and the model cannot say so long a word; "
                "write it with spaces"
            )
        yield TextPiece(part, AFTER_WORD if number < len(parts) else AFTER_CLAUSE)


def _packed(parts: List[str], fits: Fits) -> List[str]:
    """Neighbours joined as far as they fit together."""
    joined: List[str] = []
    for part in parts:
        together = f"{joined[-1]} {part}" if joined else part
        if joined and fits(together):
            joined[-1] = together
        else:
            joined.append(part)
    return joined


def _parts(text: str, between: "re.Pattern[str]") -> Iterator[str]:
    """The text cut at each match; marks that close a sentence stay with it."""
    start = 0
    for match in between.finditer(text):
        end = match.start() + len(match.group().rstrip())
        yield from _some(text[start:end])
        start = match.end()
    yield from _some(text[start:])


def _some(text: str) -> Iterator[str]:
    text = text.strip()
    if text:
        yield text


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")

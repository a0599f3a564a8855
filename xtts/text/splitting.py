"""Split text into pieces that fit the model: normalised sentences, each with the pause after it.

A sentence that is too long is split at commas and, where that is not enough, at spaces, into as few pieces as possible.
"""

import re
from typing import Callable, Iterator, List, NamedTuple

from xtts.errors import XttsError
from xtts.text.normalise import normalise

Fits = Callable[[str], bool]
Normalise = Callable[[str, str], str]  # a text and its language

AFTER_SENTENCE, AFTER_CLAUSE, AFTER_WORD = 0.3, 0.12, 0.04  # seconds of silence
_CLOSING = r"""["'”’»)\]]*"""
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(rf"(?<=[.!?؟…。！？]){_CLOSING}\s+|(?<=[。！？])")
_CLAUSE = re.compile(r"(?<=[,;:،؛，；：、])\s+|\s+(?=[-–—]\s)")
_SPACE = re.compile(r"\s+")


class SplittingError(XttsError):
    """A text that cannot be split, and what to write instead."""


class TextPiece(NamedTuple):
    """A normalised text that is generated in one go, and the silence after it, in seconds."""

    text: str
    pause: float


def split_text(text: str, language: str, fits: Fits, normalise: Normalise = normalise) -> List[TextPiece]:
    """The sentences of a text, in order; `fits` tells whether a normalised text is short enough for the model."""
    pieces: List[TextPiece] = []
    for paragraph in split_paragraphs(text, language, normalise):
        for sentence in _split_at(paragraph, _SENTENCE):
            pieces += _split_sentence(sentence, fits)
    return [piece for piece in pieces if is_spoken(piece.text)]


def split_paragraphs(text: str, language: str, normalise: Normalise = normalise) -> List[str]:
    """The paragraphs, which blank lines separate, each normalised."""
    return [normalise(paragraph, language) for paragraph in _PARAGRAPH.split(text)]


def is_spoken(text: str) -> bool:
    """Whether the text contains a letter or a digit."""
    return any(character.isalnum() for character in text)


def _split_sentence(sentence: str, fits: Fits) -> Iterator[TextPiece]:
    """The sentence, or pieces of it that fit."""
    if fits(sentence):
        yield TextPiece(sentence, AFTER_SENTENCE)
        return
    clauses = [
        TextPiece(part, pause)
        for clause in _join_fitting(list(_split_at(sentence, _CLAUSE)), fits)
        for part, pause in _split_clause(clause, fits)
    ]
    yield from clauses[:-1]
    yield clauses[-1]._replace(pause=AFTER_SENTENCE)


def _split_clause(clause: str, fits: Fits) -> Iterator[TextPiece]:
    """The clause, or pieces of it, split between words."""
    parts = [clause] if fits(clause) else _join_fitting(list(_split_at(clause, _SPACE)), fits)
    for number, part in enumerate(parts, 1):
        if not fits(part):
            raise SplittingError(
                f"{_abbreviated(part)} is one word of {len(part):,} characters, which is too long for the model; "
                "write it with spaces"
            )
        yield TextPiece(part, AFTER_WORD if number < len(parts) else AFTER_CLAUSE)


def _join_fitting(parts: List[str], fits: Fits) -> List[str]:
    """Join neighbours as long as the result fits."""
    joined: List[str] = []
    for part in parts:
        together = f"{joined[-1]} {part}" if joined else part
        if joined and fits(together):
            joined[-1] = together
        else:
            joined.append(part)
    return joined


def _split_at(text: str, between: "re.Pattern[str]") -> Iterator[str]:
    """Split the text at each match of `between`; closing quotes and brackets stay with what they close."""
    start = 0
    for match in between.finditer(text):
        end = match.start() + len(match.group().rstrip())
        yield from _stripped(text[start:end])
        start = match.end()
    yield from _stripped(text[start:])


def _stripped(text: str) -> Iterator[str]:
    text = text.strip()
    if text:
        yield text


def _abbreviated(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")

"""Text front ends: what a text becomes before it is tokenized, and in which pieces it is said.

`published` reads 17 languages exactly as the published weights were trained to read them; all other languages it leaves
to `xtts`, this project's own. Which of them a model uses is a setting of its recipe, `text.frontend`: training and
speaking must use the same.
"""

from typing import List, Protocol

from xtts.recipe.frontend import PUBLISHED, XTTS
from xtts.text import normalise as own
from xtts.text import splitting
from xtts.text.published import cleaners, sentences
from xtts.text.published.languages import LANGUAGES, base_language
from xtts.text.splitting import AFTER_SENTENCE, Fits, TextPiece


class Frontend(Protocol):
    """What happens to a text on its way to the tokenizer."""

    key: str  # front ends with the same key read every text alike

    def normalise(self, text: str, language: str) -> str:
        """The text as a tokenizer of characters reads it."""

    def bpe_text(self, text: str, language: str) -> str:
        """The text as a BPE tokenizer reads it."""

    def spoken(self, text: str, language: str) -> str:
        """What speaking hands to the tokenizer for a piece of text, where training hands over the piece itself."""

    def whole(self, text: str, language: str) -> str:
        """All that is said of a text, normalised."""

    def keeps_unknown(self, language: str) -> bool:
        """Whether characters without a token are read as [UNK] when speaking, and not left out."""

    def split(self, text: str, language: str, fits: Fits) -> List[TextPiece]:
        """The pieces that a text is said in; `fits` tells whether a piece is short enough for the model."""


class OwnFrontend:
    """The front end of this project: English and Persian in words, other languages as they are written."""

    def __init__(self, keep_vowel_marks: bool = False) -> None:
        self._keep_vowel_marks = keep_vowel_marks
        self.key = f"{XTTS}-with-vowel-marks" if keep_vowel_marks else XTTS

    def normalise(self, text: str, language: str) -> str:
        return own.normalise(text, language, self._keep_vowel_marks)

    def bpe_text(self, text: str, language: str) -> str:
        """Lower case, and no square brackets, which could spell a special token."""
        return self.normalise(text, language).lower().replace("[", "(").replace("]", ")")

    def spoken(self, text: str, language: str) -> str:
        return text

    def whole(self, text: str, language: str) -> str:
        return "\n\n".join(splitting.split_paragraphs(text, language, self.normalise))

    def keeps_unknown(self, language: str) -> bool:
        return False

    def split(self, text: str, language: str, fits: Fits) -> List[TextPiece]:
        return splitting.split_text(text, language, fits, self.normalise)


class PublishedFrontend:
    """The front end of the published XTTS-v2."""

    def __init__(self, keep_vowel_marks: bool = False) -> None:
        self._own = OwnFrontend(keep_vowel_marks)
        self.key = f"{PUBLISHED}-{self._own.key}"

    def normalise(self, text: str, language: str) -> str:
        return cleaners.clean(text, language) if is_published(language) else self._own.normalise(text, language)

    def bpe_text(self, text: str, language: str) -> str:
        return cleaners.clean(text, language) if is_published(language) else self._own.bpe_text(text, language)

    def spoken(self, text: str, language: str) -> str:
        """In lower case before any cleaner, so that a Turkish İ becomes another letter than in training."""
        return text.strip().lower() if is_published(language) else text

    def whole(self, text: str, language: str) -> str:
        if is_published(language):
            return cleaners.clean(self.spoken(text, language), language)
        return self._own.whole(text, language)

    def keeps_unknown(self, language: str) -> bool:
        return is_published(language)

    def split(self, text: str, language: str, fits: Fits) -> List[TextPiece]:
        """Pieces as long as the language's limit allows; one that the model has no room for is split further."""
        if not is_published(language):
            return self._own.split(text, language, fits)
        pieces: List[TextPiece] = []
        for piece in sentences.split_text(text, language):
            if fits(piece):
                pieces.append(TextPiece(piece, AFTER_SENTENCE))
            else:
                pieces += splitting.split_text(piece, language, fits, lambda part, _language: " ".join(part.split()))
        return pieces


def make_frontend(name: str, keep_vowel_marks: bool = False) -> Frontend:
    """The front end of that name."""
    return PublishedFrontend(keep_vowel_marks) if name == PUBLISHED else OwnFrontend(keep_vowel_marks)


def is_published(language: str) -> bool:
    """Whether the published front end has cleaners for a language."""
    return base_language(language) in LANGUAGES

"""Tokenizers of characters and of BPE: text to token ids and back.

Both have a front end that normalises the text, prepend a language tag such as `[en]` and encode a space as `[SPACE]`.
`[START]` and `[STOP]` are added by the model, which asks for their ids. `[STOP]` is 0, `[UNK]` 1 and `[SPACE]` 2, as in
XTTS-v2.
"""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Protocol, Sequence, Set, Tuple, Union

from xtts.errors import XttsError
from xtts.files import write_bytes
from xtts.recipe.frontend import XTTS
from xtts.recipe.schema import TextSection
from xtts.text.frontends import Frontend, OwnFrontend, make_frontend

STOP, UNKNOWN, SPACE, START = "[STOP]", "[UNK]", "[SPACE]", "[START]"
TOKENIZER = "tokenizer.json"  # file name in the folder of a run
DEFAULT_VOCAB_SIZE = 1024  # tokens of a learned BPE vocabulary, at most
OWN_FRONTEND = OwnFrontend()
REPLACEMENT = "\ufffd"  # [UNK], decoded
_DECODED = {UNKNOWN: REPLACEMENT, SPACE: " "}  # other special tokens are left out
_SPECIAL = re.compile(r"\[.+\]")
Texts = Iterable[Tuple[str, str]]  # text and language of each utterance


class TextError(XttsError):
    """Why a text cannot be tokenized, and what to do."""


class Tokenizer(Protocol):
    """Encodes text as ids from 0 to `size` - 1; `start` and `stop` are those that the model puts around a sentence."""

    size: int
    start: int
    stop: int
    languages: List[str]  # languages with a tag
    frontend: Frontend
    unknown_id: int

    def encode(self, text: str, language: str) -> List[int]:
        """The ids of the language tag and the normalised text, without `start` and `stop`."""

    def decode(self, ids: Iterable[int]) -> str:
        """The normalised text that was encoded, without tags, `start` and `stop`."""

    def unknown(self, text: str, language: str) -> List[str]:
        """The distinct characters of the normalised text that have no token, sorted."""

    def tokens(self, ids: Iterable[int]) -> List[str]:
        """The ids as they are written in the vocabulary."""

    def read_text(self, text: str, language: str) -> str:
        """The text that is encoded, after the front end."""

    def digest(self) -> str:
        """The SHA-256 of the vocabulary, the same on every Python."""

    def save(self, path: Union[str, Path]) -> None:
        """Write the vocabulary to a JSON file that `load_tokenizer` reads."""


def make_tokenizer(settings: TextSection, texts: Texts) -> Tokenizer:
    """The tokenizer of a recipe; one of characters, or of BPE without a file, is built from `texts`."""
    frontend = make_frontend(settings.frontend or XTTS, settings.keep_vowel_marks)
    if settings.tokenizer == "characters":
        return CharacterTokenizer.build(texts, frontend)
    if settings.vocab is None:
        return BPETokenizer.learn(texts, settings.vocab_size or DEFAULT_VOCAB_SIZE, frontend)
    return BPETokenizer.load(settings.vocab, frontend)


def check_tokenizer(settings: TextSection, language: str = "en") -> None:
    """Raise an error if the recipe's tokenizer needs a package, or a file, that is missing.

    `language`: of the corpus, for the packages that its front end needs for any text.
    """
    make_frontend(settings.frontend or XTTS).normalise("a", language)
    if settings.tokenizer == "bpe":
        _library()
        try:
            if settings.vocab is not None:
                _read(settings.vocab)
        except TextError as error:
            raise TextError(f"text.vocab: {error}") from None


def load_tokenizer(path: Union[str, Path], frontend: Frontend = OWN_FRONTEND) -> Tokenizer:
    """The tokenizer in a file that `save` wrote, of characters or of BPE."""
    kind = _parse(_read(path), path).get("kind")
    loader = CharacterTokenizer.load if kind == CharacterTokenizer.KIND else BPETokenizer.load
    return loader(path, frontend)


def encode_spoken(tokenizer: Tokenizer, text: str, language: str) -> List[int]:
    """The ids of a piece of text as speaking reads it, which may differ from what training reads."""
    return tokenizer.encode(tokenizer.frontend.spoken(text, language), language)


class CharacterTokenizer:
    """One token per character. [STOP], [UNK], [SPACE] and [START] are followed by language tags, then characters."""

    KIND = "characters"

    def __init__(self, languages: Iterable[str], characters: Iterable[str], frontend: Frontend = OWN_FRONTEND) -> None:
        self.frontend = frontend
        self.languages = sorted(set(languages))
        self.characters = "".join(sorted(set(characters) - {" "}))
        self._tokens = [STOP, UNKNOWN, SPACE, START, *map("[{}]".format, self.languages), *self.characters]
        self.size = len(self._tokens)
        self.stop, self.unknown_id, self._space, self.start = range(4)
        first = self.size - len(self.characters)
        self._ids = {" ": self._space, **{character: first + n for n, character in enumerate(self.characters)}}
        self._tags = {language: 4 + n for n, language in enumerate(self.languages)}

    @classmethod
    def build(cls, texts: Texts, frontend: Frontend = OWN_FRONTEND) -> "CharacterTokenizer":
        """A tokenizer with every language and every character in `texts`."""
        languages: Set[str] = set()
        characters: Set[str] = set()
        for text, language in texts:
            languages.add(language.lower())
            characters.update(frontend.normalise(text, language))
        if not characters - {" "}:
            raise TextError("the corpus has no characters to build a tokenizer from; check its texts")
        return cls(languages, characters, frontend)

    @classmethod
    def load(cls, path: Union[str, Path], frontend: Frontend = OWN_FRONTEND) -> "CharacterTokenizer":
        tables = _parse(_read(path), path)
        try:
            loaded = cls([str(language) for language in tables["languages"]], str(tables["characters"]), frontend)
        except (KeyError, TypeError):
            loaded = None
        if loaded is None or loaded._tables() != tables:
            raise TextError(f"{path} is not a vocabulary of characters; name a file that this program saved")
        return loaded

    def encode(self, text: str, language: str) -> List[int]:
        tag = _tag(language, self._tags)
        characters = self.read_text(text, language)
        return [tag, *(self._ids.get(character, self.unknown_id) for character in characters)]

    def decode(self, ids: Iterable[int]) -> str:
        return _decode(ids, self._tokens)

    def unknown(self, text: str, language: str) -> List[str]:
        return sorted(set(self.read_text(text, language)) - self._ids.keys())

    def read_text(self, text: str, language: str) -> str:
        return self.frontend.normalise(text, language)

    def tokens(self, ids: Iterable[int]) -> List[str]:
        return [self._tokens[number] for number in ids]

    def digest(self) -> str:
        return hashlib.sha256(self._content()).hexdigest()

    def save(self, path: Union[str, Path]) -> None:
        write_bytes(Path(path), self._content())

    def _content(self) -> bytes:
        return json.dumps(self._tables(), ensure_ascii=False, indent=1).encode() + b"\n"

    def _tables(self) -> Dict[str, Any]:
        return {"kind": self.KIND, "languages": self.languages, "characters": self.characters}


class BPETokenizer:
    """BPE with a `vocab.json` as XTTS-v2 ships it, by the package tokenizers. Text is lower-cased.

    The published vocabulary has Chinese, Japanese and Korean in Latin letters, as the published front end writes them.
    """

    def __init__(self, content: bytes, name: str, frontend: Frontend = OWN_FRONTEND) -> None:
        self.frontend = frontend
        self._content = content
        self._name = name
        self._bpe = _bpe(content, name)
        ids: Dict[str, int] = self._bpe.get_vocab()
        missing = [token for token in (STOP, UNKNOWN, SPACE, START) if token not in ids]
        if SPACE in ids and self._bpe.encode(SPACE).ids != [ids[SPACE]]:
            missing.append(SPACE)  # present, but the library would split it
        if missing:
            raise TextError(f"{name} has no token {', '.join(missing)}; name the vocab.json that comes with XTTS-v2")
        self.size = max(ids.values()) + 1
        self.start, self.stop, self.unknown_id = ids[START], ids[STOP], ids[UNKNOWN]
        self._tokens = [""] * self.size
        for token, number in ids.items():
            self._tokens[number] = token
        self._tags = {token[1:-1]: number for token, number in ids.items() if re.fullmatch(r"\[[a-z0-9-]+\]", token)}
        self.languages = sorted(self._tags)

    @classmethod
    def load(cls, path: Union[str, Path], frontend: Frontend = OWN_FRONTEND) -> "BPETokenizer":
        return cls(_read(path), str(path), frontend)

    @classmethod
    def learn(cls, texts: Texts, size: int, frontend: Frontend = OWN_FRONTEND) -> "BPETokenizer":
        """Train BPE on `texts`: at most `size` tokens, or as many as there are language tags and characters."""
        counts = Counter((language.lower(), frontend.bpe_text(text, language)) for text, language in texts)
        special = [STOP, UNKNOWN, SPACE, START, *(f"[{one}]" for one in sorted({language for language, _ in counts}))]
        library = _library()
        bpe = library.Tokenizer(library.models.BPE(unk_token=UNKNOWN))
        bpe.pre_tokenizer = library.pre_tokenizers.Whitespace()
        trainer = library.trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
        bpe.train_from_iterator((text for _, text in sorted(counts.elements())), trainer)
        model = json.loads(bpe.to_str())["model"]
        if len(model["vocab"]) == len(special):
            raise TextError("the corpus has no characters to build a tokenizer from; check its texts")
        return cls(_vocab_json(special, model["vocab"], model["merges"]), "the vocabulary of the corpus", frontend)

    def encode(self, text: str, language: str) -> List[int]:
        tag = self._tokens[_tag(language, self._tags, f" of {self._name}")]
        ids: List[int] = self._bpe.encode(tag + self.read_text(text, language).replace(" ", SPACE)).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return _decode(ids, self._tokens)

    def unknown(self, text: str, language: str) -> List[str]:
        characters = sorted(set(self.read_text(text, language)) - {" "})
        return [character for character in characters if self._bpe.token_to_id(character) is None]

    def read_text(self, text: str, language: str) -> str:
        return self.frontend.bpe_text(text, language)

    def tokens(self, ids: Iterable[int]) -> List[str]:
        return [self._tokens[number] for number in ids]

    def digest(self) -> str:
        return hashlib.sha256(self._content).hexdigest()

    def save(self, path: Union[str, Path]) -> None:
        write_bytes(Path(path), self._content)


def _tag(language: str, tags: Dict[str, int], where: str = "") -> int:
    """The id of a language tag; "en-gb" falls back to "en", and "zh" to "zh-cn"."""
    language = language.lower()
    for name in (language, language.partition("-")[0], f"{language}-cn"):
        if name in tags:
            return tags[name]
    known = ", ".join(sorted(tags))
    raise TextError(
        f"the vocabulary{where} has no language {language!r}; known: {known}. Use one that was made with it"
    )


def _decode(ids: Iterable[int], tokens: List[str]) -> str:
    pieces = []
    for number in ids:
        if not 0 <= number < len(tokens):
            raise TextError(f"{number} is not a token; the vocabulary goes from 0 to {len(tokens) - 1}")
        token = tokens[number]
        pieces.append(_DECODED.get(token, "") if _SPECIAL.fullmatch(token) else token)
    return "".join(pieces)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise TextError("BPE needs the package tokenizers; run: pip install 'xtts[bpe]'") from None
    return tokenizers


def _vocab_json(special: Sequence[str], vocab: Dict[str, int], merges: Sequence[Any]) -> bytes:
    """The content of `vocab.json`, byte by byte the same with every release of tokenizers."""
    plain = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
    table = {
        "version": "1.0",
        "added_tokens": [{"id": vocab[token], "content": token, **plain} for token in special],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "BPE",
            "unk_token": UNKNOWN,
            "vocab": dict(sorted(vocab.items(), key=lambda item: item[1])),
            "merges": pairs,
        },
    }
    return json.dumps(table, ensure_ascii=False, indent=1).encode() + b"\n"


def _bpe(content: bytes, name: str) -> Any:
    library = _library()
    try:
        return library.Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises nothing narrower
        raise TextError(f"{name} is not a BPE vocabulary ({error}); name the vocab.json of XTTS-v2") from None


def _read(path: Union[str, Path]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TextError(f"{path}: {error.strerror}; name a vocabulary that can be read") from None


def _parse(content: bytes, path: Union[str, Path]) -> Dict[str, Any]:
    try:
        tables = json.loads(content)
    except (ValueError, RecursionError):
        tables = None
    if not isinstance(tables, dict):
        raise TextError(
            f"{path} is not a vocabulary in JSON; name one that was saved with a run, or XTTS-v2's vocab.json"
        )
    return tables

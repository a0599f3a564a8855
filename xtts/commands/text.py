"""`xtts text`: what a text becomes."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from xtts.commands.command import Command
from xtts.errors import UsageError, XttsError

if TYPE_CHECKING:
    from xtts.text.tokenizer import Tokenizer

STDIN = "-"


def add_flags(parser: ArgumentParser) -> None:
    """A model or a vocabulary, a text, its language and its front end."""
    parser.add_argument("model", metavar="MODEL", help="folder of a run or of an imported model, or a vocab.json")
    parser.add_argument("text", metavar="TEXT", nargs="?", default=STDIN, help="text; -: each line of standard input")
    parser.add_argument("--language", help="language of the text, such as fr; default: the model's")
    parser.add_argument(
        "--frontend", choices=["published", "xtts"], help="text front end; default: the one the model was trained with"
    )
    parser.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help='print one JSON object per line; lines of standard input may be objects, {"language": ..., "text": ...}',
    )


def text(*, model: str, text: str, language: Optional[str], frontend: Optional[str], as_json: bool) -> int:
    """Print what each text becomes: cleaned, as tokens, as ids, and the pieces it is said in."""
    reader = _load(Path(model), frontend)
    for number, (said, own_language) in enumerate(_texts(text, as_json), 1):
        try:
            read = _read(reader, said, own_language or language or reader.language)
        except XttsError as error:
            raise type(error)(f"line {number}: {error}" if text == STDIN else str(error)) from None
        if as_json:
            print(json.dumps(read.as_json(), ensure_ascii=not _prints_unicode()))
        else:
            print(("\n" if number > 1 else "") + read.as_text())
    return 0


class _Reader(NamedTuple):
    """What reads the texts of a model."""

    tokenizer: "Tokenizer"
    language: str  # of texts that do not name one
    fits: Callable[[str, str], bool]  # whether a text in a language is short enough for the model


class _Read(NamedTuple):
    """A text, and what it becomes. `spoken_...`: what speaking reads instead, if that differs from training."""

    language: str
    text: str
    cleaned: str
    tokens: List[str]
    ids: List[int]
    unknown: List[str]  # characters without a token
    unknown_in_order: List[str]  # one for each [UNK]
    pieces: List[str]
    spoken_cleaned: str
    spoken_ids: List[int]

    def as_json(self) -> Dict[str, Any]:
        found = {
            name: getattr(self, name) for name in ("language", "text", "cleaned", "tokens", "ids", "unknown", "pieces")
        }
        if self.spoken_ids != self.ids:
            found.update(spoken_cleaned=self.spoken_cleaned, spoken_ids=self.spoken_ids)
        return found

    def as_text(self) -> str:
        marked = iter(self.unknown_in_order)
        tokens = [f"[UNK {next(marked, '?')}]" if token == "[UNK]" else token for token in self.tokens]
        lines = [
            f"{self.language}: {self.text}",
            f"  cleaned: {self.cleaned}",
            f"  tokens:  {' '.join(tokens)}",
            f"  ids:     {' '.join(map(str, self.ids))}",
        ]
        if self.unknown:
            lines.append(f"  unknown: {' '.join(self.unknown)}")
        if self.spoken_ids != self.ids:
            lines.append(f"  spoken:  {self.spoken_cleaned}")
        return "\n".join([*lines, *(f"  piece {number}: {piece}" for number, piece in enumerate(self.pieces, 1))])


def _read(reader: _Reader, text: str, language: str) -> _Read:
    tokenizer, frontend = reader.tokenizer, reader.tokenizer.frontend
    ids = tokenizer.encode(text, language)
    spoken = frontend.spoken(text, language)
    unknown = tokenizer.unknown(text, language)
    cleaned = frontend.normalise(text, language)
    pieces = frontend.split(text, language, lambda piece: reader.fits(piece, language))
    return _Read(
        language=language,
        text=text,
        cleaned=cleaned,
        tokens=tokenizer.tokens(ids),
        ids=ids,
        unknown=unknown,
        unknown_in_order=[letter for letter in tokenizer.read_text(text, language) if letter in set(unknown)],
        pieces=[piece.text for piece in pieces],
        spoken_cleaned=frontend.normalise(spoken, language),
        spoken_ids=tokenizer.encode(spoken, language),
    )


def _load(path: Path, frontend: Optional[str]) -> _Reader:
    """The tokenizer of a run, of an import or in a file, and what is said in one go."""
    from xtts.planning.limits import read_limits
    from xtts.recipe.frontend import PUBLISHED, RECIPE, XTTS, load_run_recipe
    from xtts.text import tokenizer as tokenizers
    from xtts.text.frontends import make_frontend
    from xtts.weights import model_folder

    if path.is_file():
        loaded = tokenizers.load_tokenizer(path)
        default = PUBLISHED if isinstance(loaded, tokenizers.BPETokenizer) else XTTS
        loaded = tokenizers.load_tokenizer(path, make_frontend(frontend or default))
        return _Reader(loaded, "en", lambda text, language: True)
    if path.name == model_folder.RUN_MODEL and (path.parent / RECIPE).exists():
        path = path.parent
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder or file; name a run, an imported model or a vocab.json")
    recipe = load_run_recipe(path) if (path / RECIPE).exists() else None
    vocabulary = path / (model_folder.VOCAB if recipe is None else tokenizers.TOKENIZER)
    if not vocabulary.exists():
        remedy = "import it again with --vocab vocab.json" if recipe is None else "run its recipe"
        raise UsageError(f"{path}: it has no {vocabulary.name}, which is needed to tokenize text; {remedy}")
    own = PUBLISHED if recipe is None else recipe.text.frontend or XTTS
    keeps_marks = recipe is not None and recipe.text.keep_vowel_marks
    tokenizer = tokenizers.load_tokenizer(vocabulary, make_frontend(frontend or own, keeps_marks))
    language = "en" if recipe is None else recipe.data.language
    if not model_folder.has_model(path):
        return _Reader(tokenizer, language, lambda text, language: True)
    model = model_folder.read_description(path)
    limits = read_limits(path, model.size.gpt, model.is_published and (recipe is None or bool(recipe.model.weights)))
    return _Reader(
        tokenizer, language, lambda text, language: limits.fits(len(tokenizer.encode(text, language)), len(text))
    )


def _texts(text: str, as_json: bool) -> Iterator[Tuple[str, Optional[str]]]:
    """The texts to read, each with its language if it names one."""
    if text != STDIN:
        yield text, None
        return
    stream = getattr(sys.stdin, "buffer", None)
    lines = sys.stdin if stream is None else (line.decode("utf-8", "replace") for line in stream)
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        yield _parse(line, number) if as_json and line.lstrip().startswith("{") else (line, None)


def _parse(line: str, number: int) -> Tuple[str, Optional[str]]:
    """The text and the language of a JSON object; a line that only looks like one is a text."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return line, None
    said, language = found.get("text"), found.get("language")
    if not isinstance(said, str) or not isinstance(language, (str, type(None))):
        raise UsageError(f'line {number}: an object needs a "text", and its "language" is a word; correct the line')
    return said, language


def _prints_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")


COMMAND = Command(
    "text", "Print what a text becomes: cleaned, tokens, ids, and the pieces it is said in.", add_flags, text
)

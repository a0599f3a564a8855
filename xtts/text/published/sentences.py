"""Split a text into pieces as the published implementation does.

A text below the limit of its language is one piece. A longer one is split after sentences, as many of which as fit make
up a piece; a sentence above the limit is wrapped between words.
"""

import re
import textwrap
import unicodedata
from functools import lru_cache
from typing import Any, Iterator, List

from xtts.text.published.languages import LANGUAGES, base_language
from xtts.text.published.packages import import_package
from xtts.text.published.words import Token, tokenize, with_spaces

# The full stops of all scripts, by Unicode, at which spaCy's sentencizer ends a sentence.
FULL_STOPS = frozenset(
    "!.?։؟۔܀܁܂߹।॥၊။።፧፨᙮᜵᜶᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？𐩖𐩗𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑑋𑑌𑗂𑗃𑗉𑗊𑗋𑗌𑗍𑗎𑗏𑗐𑗑"
    "𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑩂𑩃𑪛𑪜𑱁𑱂𖩮𖩯𖫵𖬷𖬸𖭄𛲟𝪈｡。"
)


def split_text(text: str, language: str) -> List[str]:
    """The pieces of a text, each at most as long as the language's limit."""
    language = base_language(language)
    limit = LANGUAGES[language].max_characters
    if len(text) < limit:
        return [text.lstrip()]
    pieces = [""]
    for sentence in sentences(text, language):
        if len(pieces[-1]) + len(sentence) <= limit:
            pieces[-1] = f"{pieces[-1]} {sentence}".lstrip()
        elif len(sentence) > limit:
            pieces += textwrap.wrap(sentence, limit, tabsize=1, break_on_hyphens=False)
        else:
            pieces.append(sentence)
    return pieces[1:] if len(pieces) > 1 and not pieces[0] else pieces


def sentences(text: str, language: str) -> Iterator[str]:
    """The sentences of a text, with the marks and closing quotes that follow their full stops."""
    first = last = 0
    ended = False  # whether a full stop has been read
    for token in _tokens(text, language):
        ends = token.text in FULL_STOPS
        if ended and not ends and not _is_punctuation(token.text):
            yield text[first:last]
            first, ended = token.start, False
        last = token.end
        ended = ended or ends
    if last:
        yield text[first:last]


def _tokens(text: str, language: str) -> List[Token]:
    if language == "zh":  # every character is a token
        return with_spaces(text, (match.span() for match in re.finditer(r"\S", text)))
    if language == "ja":
        words = _sudachi().tokenize(text)
        return with_spaces(text, [(word.begin(), word.end()) for word in words if word.surface().strip()])
    return tokenize(text, language)


@lru_cache(maxsize=None)
def _sudachi() -> Any:
    """Sudachi's tokenizer into short words."""
    needed_for = "to split a text into sentences"
    library = import_package("sudachipy", "sudachipy", "ja", needed_for)
    import_package("sudachidict_core", "sudachidict-core", "ja", needed_for)
    return library.Dictionary(dict="core").create(library.SplitMode.A)


def _is_punctuation(text: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in text)

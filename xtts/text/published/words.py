"""Words and marks of a text, as far as the splitting into sentences depends on them.

The published implementation splits where spaCy's blank pipelines do: at marks that are tokens of their own. So this
finds the tokens that those pipelines find: what is between spaces, less the marks before and after it, less
abbreviations, which keep their full stop, and then what is joined by hyphens, slashes or full stops.
"""

import re
from functools import lru_cache
from typing import Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from xtts.text.published.letters import CURRENCIES, PUNCTUATION, QUOTES, UNITS, lower_letters, pictures, upper_letters
from xtts.text.published.letters import letters as _letters

_INITIALS = [f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyzäöü"]
_EMOTICONS = (
    ":) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; :( :-( :(( "
    ":-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p :-p :O :-O :o :-o :0 :-0 "
    ":() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< "
    "._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O 0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 "
    "(^_^) (-_-) (._.) (>_<) (*_*) (¬_¬)"
).split()
_SHORT_ENGLISH = (
    "Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. Jul. Jun. "
    "Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. "
    "Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m. Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. "
    "i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s."
).split()
_SHORT_SPANISH = (
    "aprox. dna. dpto. ej. esq. pág. p.ej. Ud. Vd. Uds. Vds. vol. a.C. a.J.C. d.C. d.J.C. apdo. Av. Avda. Cía. Dr. "
    "Dra. EE.UU. Ee.Uu. etc. fig. Gob. Gral. Ing. J.C. Lic. m.n. núm. P.D. Prof. Profa. q.e.p.d. Q.E.P.D. S.A. S.L. "
    "S.R.L. s.s.s. Sr. Sra. Srta. n° °C km/h"
).split()
_SHORT_ARABIC = "ق.م .م .هـ .ت د. أ.د أ. ب. ت. ص.ب".split()
_CLIPPED = [  # words that begin with an apostrophe
    *(mark + word for mark in "'’" for word in "Cause cause Cos cos Coz coz Cuz cuz bout d em ll nuff re s S".split()),
    *("‘s", "‘S", "'", "’", "''", "’’"),
]
_HOURS = [f"{hour}{half}" for hour in range(1, 13) for half in ("a.m.", "p.m.")]
_PHRASES = {"es": ["EE. UU.", "Ee. Uu."], "ar": ["ب. م", "م. س", "م. ن"]}  # abbreviations with a space
_KEPT = {  # other languages are split by the rules of English
    "en": [*_INITIALS, *_EMOTICONS, *_CLIPPED, *_SHORT_ENGLISH, *_HOURS, "C++", "and/or", "w/o"],
    "es": [*_INITIALS, *_EMOTICONS, *_SHORT_SPANISH, *_HOURS, "C++", "12m."],
    "ar": [*_INITIALS, *_EMOTICONS, *_SHORT_ARABIC, "C++"],
    "hi": [*_INITIALS, *_EMOTICONS, "C++"],
}
_DEGREES = {f"°{scale}." for scale in "cfkCFK"}  # of which the full stop is a token

_SCHEME = r"(?:[\w+\-.]{2,}://)?"
_USER = r"(?:\S+(?::\S*)?@)?"
_NOT_LOCAL = (
    r"(?!(?:10|127)(?:\.\d{1,3}){3})(?!(?:169\.254|192\.168)(?:\.\d{1,3}){2})"
    r"(?!172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2})"
)
_ADDRESS = (
    _NOT_LOCAL + r"(?:[1-9]\d?|1\d\d|2[01]\d|22[0-3])(?:\.(?:1?\d{1,2}|2[0-4]\d|25[0-5])){2}"
    r"(?:\.(?:[1-9]\d?|1\d\d|2[0-4]\d|25[0-4]))"
)
_HOST_CHARACTER = r"A-Za-z0-9\u00a1-\uffff"
_HOST = rf"(?:(?:[{_HOST_CHARACTER}][{_HOST_CHARACTER}_-]{{0,62}})?[{_HOST_CHARACTER}]\.)+"
_REST = r"(?::\d{2,5})?(?:[/?#]\S*)?"


class Token(NamedTuple):
    """A word, a mark or white space."""

    text: str
    start: int  # of its characters in the text
    end: int


class _Rules(NamedTuple):
    """How the words of a language are found."""

    before: "re.Pattern[str]"  # a mark at the beginning
    after: "re.Pattern[str]"  # a mark at the end
    between: "re.Pattern[str]"  # what joins two words
    url: "re.Pattern[str]"  # not divided
    kept: FrozenSet[str]  # tokens, although they have marks
    phrases: Dict[Tuple[str, ...], str]  # the tokens of what is one token all the same


def tokenize(text: str, language: str) -> List[Token]:
    """The words and marks of a text; a single space after one of them is no token, other white space is."""
    rules = _rules(language if language in _KEPT else "en")
    tokens = with_spaces(text, _spans(text, rules))
    return _merge_phrases(tokens, text, rules.phrases)


def with_spaces(text: str, spans: Iterable[Tuple[int, int]]) -> List[Token]:
    """Tokens of the spans, and of the white space between them, less one space after each."""
    tokens: List[Token] = []
    for start, end in [*spans, (len(text), len(text))]:
        last = tokens[-1].end if tokens else 0
        last += bool(tokens) and text[last : last + 1] == " "
        if last < start:
            tokens.append(Token(text[last:start], last, start))
        if start < end:
            tokens.append(Token(text[start:end], start, end))
    return tokens


def _spans(text: str, rules: _Rules) -> Iterator[Tuple[int, int]]:
    for match in re.finditer(r"\S+", text):
        start = match.start()
        for part in _parts(match.group(), rules):
            yield start, start + len(part)
            start += len(part)


def _parts(chunk: str, rules: _Rules, keeps: bool = True) -> List[str]:
    """What is between two spaces, divided; `keeps`: without dividing abbreviations."""
    kept = rules.kept if keeps else frozenset()
    before: List[str] = []
    after: List[str] = []
    while chunk and chunk not in kept and not (keeps and chunk in _DEGREES):
        first = _first(rules.before.match(chunk))
        rest = chunk[len(first) :]
        if first and rest in kept:
            before.append(first)
            chunk = rest
            break
        last = _first(rules.after.search(rest))
        if last and chunk[: -len(last)] in kept:
            after.append(last)
            chunk = chunk[: -len(last)]
            break
        if not first and not last:
            break
        before += [first] if first else []
        after += [last] if last else []
        chunk = rest[: len(rest) - len(last)]
    if keeps and chunk in _DEGREES:
        middle = [chunk[0], chunk[1], chunk[2]]
    elif not chunk:
        middle = []
    elif chunk in kept or rules.url.match(chunk):
        middle = [chunk]
    else:
        middle = list(_divided(chunk, rules.between))
    return [*before, *middle, *reversed(after)]


def _divided(chunk: str, between: "re.Pattern[str]") -> Iterator[str]:
    start = 0
    for match in between.finditer(chunk):
        if match.start() == 0:
            continue
        if match.start() != start:
            yield chunk[start : match.start()]
        if match.group():
            yield match.group()
        start = match.end()
    if chunk[start:]:
        yield chunk[start:]


def _first(match: "re.Match[str] | None") -> str:
    return match.group() if match else ""


def _merge_phrases(tokens: List[Token], text: str, phrases: Dict[Tuple[str, ...], str]) -> List[Token]:
    """The tokens, with one for each abbreviation that stands there in several."""
    merged: List[Token] = []
    longest = max(map(len, phrases), default=0)
    place = 0
    while place < len(tokens):
        for count in range(min(longest, len(tokens) - place), 0, -1):
            part = tokens[place : place + count]
            whole = phrases.get(tuple(token.text for token in part))
            if whole is not None and text[part[0].start : part[-1].end] == whole:
                merged.append(Token(whole, part[0].start, part[-1].end))
                place += count
                break
        else:
            merged.append(tokens[place])
            place += 1
    return merged


@lru_cache(maxsize=None)
def _rules(language: str) -> _Rules:
    small, capital, letter, picture = lower_letters(), upper_letters(), _letters(), f"[{pictures()}]"
    quotes = "".join(QUOTES)
    marks = [re.escape(mark) for mark in PUNCTUATION]
    quote_marks = [re.escape(quote) for quote in QUOTES]
    ellipses = [r"\.\.+", "…"]
    spanish, arabic = language == "es", language == "ar"
    before = ["§", "%", "=", "—", "–", r"\+(?![0-9])", *marks, *ellipses, *quote_marks]
    before += [*map(re.escape, CURRENCIES), picture]
    dashed = quotes + "—–" if spanish else quotes
    currencies = "|".join(map(re.escape, CURRENCIES))
    units = "|".join(re.escape(unit) for unit in UNITS if not (spanish and unit == "%"))
    after = [*marks, *ellipses, *quote_marks, r"(?<=[0-9])\+", f"(?<=[0-9])(?:{currencies})", f"(?<=[0-9])(?:{units})"]
    after += [] if arabic else [picture, "—", "–", r"(?<=°[FfCcKk])\."]
    after += [] if arabic or spanish else ["'s", "'S", "’s", "’S"]
    after += [] if arabic else [rf"(?<=[0-9{small}%²\-+{_class(''.join(PUNCTUATION) + '|(?:)' + dashed)}])\."]
    after += [rf"(?<=[{capital}][{capital}])\."]
    hyphens = "-|–|—|--|---|——|~"
    calculated = r"[+*^]" if spanish else r"[+\-*^]"
    between = [
        *ellipses,
        picture,
        rf"(?<=[0-9]){calculated}(?=[0-9-])",
        rf"(?<=[{small}{_class(dashed)}])\.(?=[{capital}{_class(dashed)}])",
        rf"(?<=[{letter}]),(?=[{letter}])",
        rf"(?<=[{letter}0-9])[:<>=/](?=[{letter}])",
    ]
    if language == "en":
        between.insert(5, rf"(?<=[{letter}0-9])(?:{hyphens})(?=[{letter}])")
    elif not spanish:
        between.insert(5, rf"(?<=[{letter}])(?:{hyphens})(?=[{letter}])")
    url = rf"{_SCHEME}{_USER}(?:{_ADDRESS}|{_HOST}[{small}]{{2,63}}){_REST}$"
    rules = _Rules(
        before=re.compile("|".join(before)),
        after=re.compile("|".join(f"{mark}$" for mark in after)),
        between=re.compile("|".join(between)),
        url=re.compile(url),
        kept=frozenset(_KEPT[language]),
        phrases={},
    )
    return rules._replace(phrases=_phrases([*_KEPT[language], *_PHRASES.get(language, ())], rules))


def _phrases(kept: Sequence[str], rules: _Rules) -> Dict[Tuple[str, ...], str]:
    """The tokens that abbreviations fall into where they are part of something longer."""
    found = {}
    for whole in kept:
        tokens = tuple(part for chunk in whole.split() for part in _parts(chunk, rules, keeps=False))
        if len(tokens) > 1:
            found[tokens] = whole
    return found


def _class(characters: str) -> str:
    """Characters for a class of a regular expression."""
    return re.sub(r"([\]\[\\^-])", r"\\\1", characters)

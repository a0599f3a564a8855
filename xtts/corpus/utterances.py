"""Utterances, the reasons for which one is rejected, and how rejected ones are reported."""

import csv
import io
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Union

from xtts.errors import XttsError
from xtts.files import write_text
from xtts.formatting import printable


class Utterance(NamedTuple):
    """One recording and its text."""

    id: str
    path: str  # of the audio file
    text: str
    speaker: str = ""  # "" if the corpus names none
    language: str = "en"
    line: int = 0  # in the metadata, counted from 1; 0 in formats without lines
    samples: int = 0  # in one channel, at the file's own rate
    sample_rate: int = 0  # Hz


class Reason(Enum):
    """The reasons for which an utterance is rejected."""

    NOT_UTF8 = "not UTF-8"
    QUOTES = "quotes not closed"
    COLUMNS = "wrong number of columns"
    DUPLICATE = "duplicate id"
    TEXT_EMPTY = "text empty"
    TEXT_UNKNOWN = "text without a known character"
    TEXT_LONG = "text too long"
    OUTSIDE = "path outside the corpus"
    MISSING = "file missing"
    UNREADABLE = "file unreadable"
    EMPTY = "file empty"
    TRUNCATED = "file truncated"
    NOT_FINITE = "NaN samples"
    SILENT = "silence"
    AUDIO_SHORT = "audio too short"
    AUDIO_LONG = "audio too long"


class Rejected(NamedTuple):
    """An utterance that was rejected."""

    line: int
    id: str
    file: str  # as the metadata names it
    reason: Reason
    detail: str

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else printable(self.file)
        name = printable(self.id, 40)
        return f"{place}{', ' + name if name else ''}: {printable(self.detail, 120)}"


class Unusable(Exception):
    """Why a file or a line cannot be used; the caller, who knows the utterance, makes a `Rejected` of it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail

    def of(self, line: int, id: str, file: str) -> Rejected:
        return Rejected(line, id, file, self.reason, self.detail)


class CorpusError(XttsError):
    """Why a corpus cannot be used, and what to do."""


def count_reasons(rejected: Iterable[Rejected]) -> Dict[str, int]:
    """The number of utterances rejected for each reason, the most frequent first."""
    found = Counter(one.reason.value for one in rejected)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def rejection_table(rejected: Sequence[Rejected]) -> str:
    """A table of rejected utterances by reason, with an example of each; "" when there are none."""
    examples: Dict[str, Rejected] = {}
    for one in rejected:
        examples.setdefault(one.reason.value, one)
    rows = [(f"{count:,}", reason, str(examples[reason])) for reason, count in count_reasons(rejected).items()]
    if not rows:
        return ""
    wide = max(len(reason) for _, reason, _ in rows)
    tall = max(9, *(len(count) for count, _, _ in rows))
    lines = [f"{'set aside':>{tall}}  {'reason':<{wide}}  first"]
    return "\n".join(lines + [f"{count:>{tall}}  {reason:<{wide}}  {example}" for count, reason, example in rows])


def write_rejected(path: Union[str, Path], rejected: Iterable[Rejected]) -> None:
    """Write `rejected.csv`, one line for each rejected utterance."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["line", "id", "file", "reason", "detail"])
    for line, id, name, reason, detail in rejected:
        writer.writerow([line or "", printable(id), printable(name), reason.value, printable(detail)])
    write_text(Path(path), table.getvalue())


def require_usable(corpus: str, usable: int, rejected: Sequence[Rejected], at_least: int) -> None:
    """Raise a CorpusError if fewer than `at_least` utterances can be used."""
    if usable >= at_least:
        return
    corpus, total = printable(corpus), usable + len(rejected)
    if not total:
        raise CorpusError(f"{corpus}: it contains no utterances; name the corpus folder or its metadata file")
    lines: List[str] = [f"{corpus}: {usable} of {total:,} utterances can be used, and at least {at_least} are needed"]
    if rejected:
        lines += [rejection_table(rejected), "correct these, or name another corpus"]
    raise CorpusError("\n".join(lines))

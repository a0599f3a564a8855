"""Parse delimited text line by line; a line that cannot be parsed becomes a record with a problem.

The csv module is not used, because after one misplaced quote it takes the rest of the file for one field. Here a broken
line spoils one record.
"""

import re
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from xtts.corpus.utterances import Reason, Unusable

MAX_FIELD_LINES = 20  # that a quoted field may span
_QUOTED = re.compile(r'"([^"]*(?:""[^"]*)*)"(?!")')


class Record(NamedTuple):
    """The fields of one line, or of the few lines that a quoted field spans."""

    line: int  # the first, counted from 1
    fields: List[str]
    problem: Optional[Unusable] = None


def read_lines(content: bytes) -> List[Union[str, bytes]]:
    """The lines of a file without line ends; lines that are not UTF-8 stay bytes."""
    content = content[3:] if content.startswith(b"\xef\xbb\xbf") else content
    newline = b"\n" if b"\n" in content else b"\r"
    try:
        return [line.rstrip("\r") for line in content.decode("utf-8").split(newline.decode())]
    except UnicodeDecodeError:
        return [_decode(line.rstrip(b"\r")) for line in content.split(newline)]


def read_records(content: Sequence[Union[str, bytes]], delimiter: str, quotes: bool = True) -> Iterator[Record]:
    """The record on each line that is not blank. With `quotes`, a field may be quoted as in CSV."""
    position = 0
    while position < len(content):
        line = content[position]
        used = 1
        if isinstance(line, bytes):
            yield Record(position + 1, [], not_utf8(line))
        elif not quotes or '"' not in line:
            if line.strip():
                yield Record(position + 1, line.split(delimiter))
        else:
            record, used = _quoted_record(content, position, delimiter)
            yield record
        position += used


def split_fields(line: str, delimiter: str) -> Optional[List[str]]:
    """The fields of a line; None when a quoted field is not closed in it.

    In files with tabs or bars a field that only begins with a quote is taken as it is: few of them are quoted as CSV.
    """
    fields, start = [], 0
    while True:
        end = line.find(delimiter, start)
        end = len(line) if end < 0 else end
        field = line[start:end]
        if field.startswith('"'):
            match = _QUOTED.match(line, start)
            if match and (match.end() == len(line) or line.startswith(delimiter, match.end())):
                end, field = match.end(), match.group(1).replace('""', '"')
            elif delimiter in ",;":
                if match is None:
                    return None
                raise Unusable(Reason.QUOTES, f"there is text after the quote that closes {match.group()[:30]}")
        fields.append(field)
        if end == len(line):
            return fields
        start = end + len(delimiter)


def not_utf8(line: bytes) -> Unusable:
    """The problem of a line that is not UTF-8: which byte, and the remedy."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {line[error.start]:#04x} in column {error.start + 1}"
        return Unusable(Reason.NOT_UTF8, f"{where} is not UTF-8; save the file as UTF-8 text")
    raise AssertionError("the line is UTF-8")


def _quoted_record(content: Sequence[Union[str, bytes]], position: int, delimiter: str) -> Tuple[Record, int]:
    """The record that starts at a line with a quote in it, and the number of its lines."""
    text = ""
    for used, line in enumerate(content[position : position + MAX_FIELD_LINES], 1):
        if isinstance(line, bytes):
            break
        text = f"{text}\n{line}" if text else line
        try:
            fields = split_fields(text, delimiter)
        except Unusable as problem:
            return Record(position + 1, [], problem), 1
        if fields is not None:
            return Record(position + 1, fields), used
    return Record(position + 1, [], Unusable(Reason.QUOTES, "a quote is opened and not closed")), 1


def _decode(line: bytes) -> Union[str, bytes]:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line

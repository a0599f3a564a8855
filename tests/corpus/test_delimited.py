from hypothesis import given
from hypothesis import strategies as st

from xtts.corpus.delimited import MAX_FIELD_LINES, Record, read_lines, read_records
from xtts.corpus.utterances import Reason


def fields(content, delimiter=",", quotes=True):
    return [record.fields for record in read_records(read_lines(content), delimiter, quotes) if not record.problem]


def problems(content, delimiter=","):
    return [
        (record.line, record.problem.reason)
        for record in read_records(read_lines(content), delimiter)
        if record.problem
    ]


def test_a_bom_and_line_endings_are_removed():
    """A byte order mark, CRLF and old Mac line endings are not part of the text."""
    assert fields(b"\xef\xbb\xbfa,b\r\nc,d\r\n") == [["a", "b"], ["c", "d"]]
    assert fields(b"a,b\rc,d") == [["a", "b"], ["c", "d"]]


def test_only_line_feeds_end_lines():
    """Other characters that Unicode treats as line breaks stay in the text."""
    assert fields("a,one\u2028two\x0bthree\n".encode()) == [["a", "one\u2028two\x0bthree"]]


def test_a_line_that_is_not_utf8_spoils_one_record():
    """The line is reported with its byte and column, and the lines around it are read."""
    content = "a,سلام\nb,".encode() + b"caf\xe9\nc,d\n"
    assert fields(content) == [["a", "سلام"], ["c", "d"]]
    (bad,) = [record for record in read_records(read_lines(content), ",") if record.problem]
    assert (bad.line, bad.problem.reason) == (2, Reason.NOT_UTF8)
    assert "byte 0xe9 in column 6" in bad.problem.detail


def test_blank_lines_are_not_records():
    """Empty lines and lines of spaces are skipped but counted."""
    assert list(read_records(read_lines(b"a\n\n  \nb\n"), ",")) == [Record(1, ["a"]), Record(4, ["b"])]


def test_quoted_fields_hold_delimiters_quotes_and_lines():
    """Quoting follows CSV: fields may contain doubled quotes, delimiters and line breaks."""
    assert fields(b'a,"x, ""y""\nz",c\nd,e,f\n') == [["a", 'x, "y"\nz', "c"], ["d", "e", "f"]]
    assert [record.line for record in read_records(read_lines(b'a,"x\ny"\nd,e\n'), ",")] == [1, 3]


def test_an_unclosed_quote_spoils_one_line():
    """A quote that is never closed does not swallow the rest of the file."""
    more = b"".join(b"%d,x\n" % i for i in range(3 * MAX_FIELD_LINES))
    assert problems(b'a,"open\n' + more) == [(1, Reason.QUOTES)]
    assert len(fields(b'a,"open\n' + more)) == 3 * MAX_FIELD_LINES


def test_text_after_a_closing_quote_spoils_one_line():
    """In CSV a quoted field ends with its quote."""
    assert problems(b'a,"Hello" he said\nb,c\n') == [(1, Reason.QUOTES)]
    assert fields(b'a,"Hello" he said\nb,c\n') == [["b", "c"]]


def test_a_quote_inside_a_field_is_a_quote():
    """Only a quote at the start of a field opens a quoted field."""
    assert fields(b'a,a 5" pipe\n') == [["a", 'a 5" pipe']]


def test_tabs_and_bars_need_no_quoting():
    """In a tab-separated file a sentence may begin with a quote and not end with one."""
    assert fields(b'a\t"Hello," she said.\tb\nc\t"d\te\n', "\t") == [["a", '"Hello," she said.', "b"], ["c", '"d', "e"]]
    assert fields(b'a|"b"\n', "|", quotes=False) == [["a", '"b"']]


@given(st.lists(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r")), min_size=2)))
def test_what_csv_writes_is_read_back(rows):
    """Fields written by the csv module, all quoted, are read back unchanged."""
    written = "".join(",".join('"' + field.replace('"', '""') + '"' for field in row) + "\n" for row in rows)
    short = [row for row in rows if sum(field.count("\n") for field in row) < MAX_FIELD_LINES - 1]
    if short == rows:
        assert fields(written.encode()) == rows


@given(st.binary(), st.sampled_from(",;\t|"), st.booleans())
def test_any_bytes_are_records_or_problems(content, delimiter, quotes):
    """No input stops the reader, and line numbers increase."""
    numbers = [record.line for record in read_records(read_lines(content), delimiter, quotes)]
    assert numbers == sorted(set(numbers))

import csv

import pytest

from xtts.corpus.utterances import (
    CorpusError,
    Reason,
    Rejected,
    count_reasons,
    rejection_table,
    require_usable,
    write_rejected,
)
from xtts.formatting import printable

REJECTED = [
    Rejected(3, "a", "a.wav", Reason.MISSING, "there is no wavs/a.wav"),
    Rejected(9, "b", "b.wav", Reason.MISSING, "there is no wavs/b.wav"),
    Rejected(0, "c\x1b[31m", "c,d.wav\x00", Reason.SILENT, 'quote " and\nline'),
]


def test_counts_put_the_most_frequent_reason_first():
    """Counts are by the reason's words, the most frequent first."""
    assert list(count_reasons(reversed(REJECTED)).items()) == [("file missing", 2), ("silence", 1)]


def test_table_has_a_line_a_reason_with_its_first_example():
    """The table names each reason once, with its count and the place of the first example."""
    head, missing, silence = rejection_table(REJECTED).splitlines()
    assert "reason" in head
    assert missing.split()[0] == "2"
    assert "line 3, a: there is no wavs/a.wav" in missing
    assert "silence" in silence


def test_table_cannot_reach_the_terminal():
    """Control characters out of a corpus are escaped before a person sees them."""
    assert rejection_table(REJECTED).replace("\n", "").isprintable()
    assert "\\x1b[31m" in rejection_table(REJECTED)


def test_table_of_nothing_is_empty():
    """Where nothing was set aside, nothing is printed."""
    assert rejection_table([]) == ""


def test_rejected_csv_reads_back(tmp_path):
    """rejected.csv has one record an utterance, whatever is in its names."""
    write_rejected(tmp_path / "rejected.csv", [*REJECTED, Rejected(1, "\udcff", "x", Reason.NOT_UTF8, "")])
    with (tmp_path / "rejected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["reason"] for row in rows] == ["file missing", "file missing", "silence", "not UTF-8"]
    assert rows[0] == {
        "line": "3",
        "id": "a",
        "file": "a.wav",
        "reason": "file missing",
        "detail": "there is no wavs/a.wav",
    }
    assert rows[2]["line"] == ""
    assert rows[2]["file"] == "c,d.wav\\x00"


def test_too_little_left_is_an_error_with_the_counts():
    """The error says how many are left of how many, how many are needed, and the first of each reason."""
    with pytest.raises(CorpusError) as error:
        require_usable("corpus/metadata.csv", 1, REJECTED, at_least=2)
    assert "corpus/metadata.csv: 1 of 4 utterances can be used, and at least 2 are needed" in str(error.value)
    assert "line 3, a: there is no wavs/a.wav" in str(error.value)


def test_nothing_at_all_is_an_error_of_its_own():
    """A corpus that names no utterance says so, without an empty table."""
    with pytest.raises(CorpusError, match="it contains no utterances; name the corpus folder"):
        require_usable("x", 0, [], at_least=1)


def test_enough_is_no_error():
    """What is left is enough at exactly the number asked for."""
    require_usable("x", 2, REJECTED, at_least=2)
    require_usable("x", 0, [], at_least=0)


def test_printable_cuts_what_is_too_long():
    """A long text is cut to the length asked for, ending in dots."""
    assert printable("x" * 50, 10) == "xxxxxxx..."
    assert printable("سلام") == "سلام"

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


def test_counts_are_sorted_by_frequency():
    """Rejections are counted by reason, the most frequent first."""
    assert list(count_reasons(reversed(REJECTED)).items()) == [("file missing", 2), ("silence", 1)]


def test_table_has_a_line_per_reason_with_its_first_example():
    """The table lists each reason once, with its count and the place of the first example."""
    head, missing, silence = rejection_table(REJECTED).splitlines()
    assert "reason" in head
    assert missing.split()[0] == "2"
    assert "line 3, a: there is no wavs/a.wav" in missing
    assert "silence" in silence


def test_table_escapes_control_characters():
    """Control characters from a corpus are escaped before they reach the terminal."""
    assert rejection_table(REJECTED).replace("\n", "").isprintable()
    assert "\\x1b[31m" in rejection_table(REJECTED)


def test_table_of_nothing_is_empty():
    """Where nothing was rejected, nothing is printed."""
    assert rejection_table([]) == ""


def test_rejected_csv_reads_back(tmp_path):
    """rejected.csv has one record per rejected utterance, whatever its names contain."""
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


def test_too_few_usable_utterances_are_an_error_with_counts():
    """The error gives the usable, total and required counts, and the first example of each reason."""
    with pytest.raises(CorpusError) as error:
        require_usable("corpus/metadata.csv", 1, REJECTED, at_least=2)
    assert "corpus/metadata.csv: 1 of 4 utterances can be used, and at least 2 are needed" in str(error.value)
    assert "line 3, a: there is no wavs/a.wav" in str(error.value)


def test_an_empty_corpus_has_its_own_error():
    """A corpus without utterances is refused without an empty table."""
    with pytest.raises(CorpusError, match="it contains no utterances; name the corpus folder"):
        require_usable("x", 0, [], at_least=1)


def test_exactly_enough_utterances_are_accepted():
    """Exactly the required number of utterances is enough."""
    require_usable("x", 2, REJECTED, at_least=2)
    require_usable("x", 0, [], at_least=0)


def test_printable_truncates_long_text():
    """A long text is truncated to the given length, ending in dots."""
    assert printable("x" * 50, 10) == "xxxxxxx..."
    assert printable("سلام") == "سلام"

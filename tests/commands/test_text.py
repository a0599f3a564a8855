"""xtts text: what a text becomes, for a vocabulary, an import and a run."""

import io
import json
import subprocess
import sys

import pytest
from published_texts import VOCAB, lines
from speakers import make_run

from xtts.commands import main

pytest.importorskip("tokenizers")
pytest.importorskip("num2words")


@pytest.fixture
def text(monkeypatch, capsys):
    """`text(...)` gives status, output and errors."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            status = main.main(["text", *map(str, arguments)])
        except SystemExit as error:
            status = error.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return run


def test_a_text_is_shown_with_what_is_unknown(text):
    """Cleaned text, tokens and ids are lines of their own, and unknown characters are marked."""
    status, out, err = text(VOCAB, "Dr. Quinn met 漢.", "--language", "en")
    assert (status, err) == (0, "")
    head, cleaned, tokens, ids, unknown, piece = out.splitlines()
    assert (head, cleaned) == ("en: Dr. Quinn met 漢.", "  cleaned: doctor quinn met 漢.")
    assert tokens.endswith(" [SPACE] [UNK 漢] .")
    assert ids.startswith("  ids:     259 ")
    assert len(ids.split()) - 1 == len(tokens.replace("[UNK 漢]", "[UNK]").split()) - 1
    assert (unknown, piece) == ("  unknown: 漢", "  piece 1: Dr. Quinn met 漢.")


def test_lines_of_standard_input_become_objects(text):
    """Lines may be texts, or objects that name their own language."""
    given = [{"text": line["text"], "language": line["language"]} for line in lines("tokens.jsonl")[:26]]
    stdin = "".join(json.dumps(one) + "\n" for one in given) + "Good morning.\n"
    status, out, _ = text(VOCAB, "-", "--language", "en", "--json", stdin=stdin)
    found = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert len(found) == 27
    for one, line in zip(found[:26], lines("tokens.jsonl")):
        assert (one["cleaned"], one["ids"]) == (line["cleaned"], line["ids"])
        assert list(one) == ["language", "text", "cleaned", "tokens", "ids", "unknown", "pieces"]
        assert len(one["tokens"]) == len(one["ids"])
    assert found[-1]["pieces"] == ["Good morning."]


def test_what_speaking_reads_is_shown_where_it_differs(text):
    """Turkish capitals with dots are read otherwise when speaking."""
    (line,) = [line for line in lines("tokens.jsonl") if line["text"].startswith("Ne güzel sürpriz")]
    _, out, _ = text(VOCAB, line["text"], "--language", "tr", "--json")
    found = json.loads(out)
    assert (found["ids"], found["spoken_ids"]) == (line["ids"], line["spoken_ids"])
    assert found["spoken_cleaned"] == line["spoken_cleaned"]


def test_the_front_end_can_be_chosen(text):
    """--frontend shows what the other one makes of a text."""
    read = {}
    for frontend in ("published", "xtts"):
        _, out, _ = text(VOCAB, "1987", "--frontend", frontend, "--json")
        read[frontend] = json.loads(out)["cleaned"]
    assert read == {"published": "one thousand, nine hundred and eighty-seven", "xtts": "nineteen eighty seven"}


def test_a_run_has_its_own_tokenizer_and_limits(text, tmp_path):
    """The pieces are those that `say` would generate, with the run's front end."""
    folder = make_run(tmp_path / "run", stop=0.0)
    status, out, _ = text(folder, "It is 1987. The valley was quiet.", "--json")
    assert status == 0
    assert json.loads(out)["pieces"] == ["it is nineteen eighty seven.", "the valley was quiet."]
    assert text(folder / "model", "It is 1987. The valley was quiet.", "--json")[1] == out


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["nowhere", "x"], "", "nowhere: there is no such folder or file; name a run"),
        ([VOCAB, "x", "--language", "fa"], "", "has no language 'fa'; known: ar, cs"),
        ([VOCAB, "-", "--json"], '{"text": 5}\n', 'line 1: an object needs a "text"'),
        ([VOCAB, "-", "--language", "en"], "a\nb\n", ""),
        ([VOCAB, "-", "--json"], 'a\n{"text": "b", "language": "xx"}\n', "line 2: the vocabulary"),
    ],
)
def test_mistakes_are_sentences(text, arguments, stdin, message):
    """What cannot be read is named, with the line it is on."""
    status, _, err = text(*arguments, stdin=stdin)
    assert message in err
    assert (status == 0) == (not message)


def test_it_needs_no_tensorflow():
    """Nothing of TensorFlow is imported."""
    source = (
        "import sys; from xtts.commands import main; "
        f"main.main(['text', {str(VOCAB)!r}, 'It is 5.']); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split()[-1] == b"False"

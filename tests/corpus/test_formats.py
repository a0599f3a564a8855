import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xtts.corpus import formats
from xtts.corpus.folder import CorpusFolder
from xtts.corpus.formats import FORMATS, MetadataRow
from xtts.corpus.utterances import CorpusError, Reason


def read(root, format="auto"):
    layout = formats.find_layout(root, format)
    return layout, list(formats.read_rows(layout, CorpusFolder(layout.root)))


def write(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_ljspeech_reads_the_normalised_text(tmp_path):
    """A line without a header is id|text|normalised, and the normalised text is used."""
    write(tmp_path, "metadata.csv", 'LJ1|In 1999.|In nineteen ninety-nine.\nLJ2|"Plain|\nLJ3|Two columns\n')
    layout, rows = read(tmp_path)
    assert layout.format == "ljspeech"
    assert "metadata.csv has no header" in layout.why
    assert rows == [
        MetadataRow(1, "LJ1", "LJ1", "In nineteen ninety-nine."),
        MetadataRow(2, "LJ2", "LJ2", '"Plain'),
        MetadataRow(3, "LJ3", "LJ3", "Two columns"),
    ]


def test_ljspeech_may_name_speaker_and_language(tmp_path):
    """Two further columns are the speaker and the language of a line."""
    write(tmp_path, "metadata.csv", "a|x|y|sara|fa\nb|x|y|tom\n")
    assert read(tmp_path)[1] == [MetadataRow(1, "a", "a", "y", "sara", "fa"), MetadataRow(2, "b", "b", "y", "tom", "")]


def test_ljspeech_rejects_lines_with_other_columns(tmp_path):
    """A line of one column or of six is rejected with its line number."""
    write(tmp_path, "metadata.csv", "a\nb|x|y\nc|1|2|3|4|5\n")
    first, _, last = read(tmp_path)[1]
    assert (first.line, first.problem.reason) == (1, Reason.COLUMNS)
    assert (last.line, last.id, last.problem.reason) == (3, "c", Reason.COLUMNS)
    assert "6 columns" in last.problem.detail


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_finds_delimiter_and_columns_from_the_header(tmp_path, delimiter):
    """The delimiter is the one that splits the header into a file and a text column, in any order and case."""
    rows = [["Speaker-ID", "Sentence", "age", "File", "Locale"], ["s1", "Hello there", "30", "x/a.flac", "en_US"]]
    path = write(tmp_path, "list.csv", "\ufeff" + "".join(delimiter.join(row) + "\r\n" for row in rows))
    layout, found = read(path)
    assert layout.format == "csv"
    assert "sentence for the text" in layout.why
    assert found == [MetadataRow(2, "x/a", "x/a.flac", "Hello there", "s1", "en_US")]


@pytest.mark.parametrize(
    "header",
    [
        "path,text",
        "file,transcript",
        "audio,sentence",
        "wav,text",
        "audio_file,text",
        "id,transcription",
        '"path","text"',
    ],
)
def test_csv_knows_the_common_names(tmp_path, header):
    """The usual names of the columns are known."""
    write(tmp_path, "metadata.csv", f'{header}\na.wav,"one, two"\n')
    assert read(tmp_path)[1] == [MetadataRow(2, "a", "a.wav", "one, two")]


def test_csv_rejects_rows_of_other_lengths(tmp_path):
    """A row with more or fewer fields than the header is rejected with its line and probable id."""
    write(tmp_path, "metadata.csv", "path,text\na.wav,one, two\nb.wav\nc.wav,three\n")
    more, fewer, good = read(tmp_path)[1]
    assert (more.line, more.id, more.problem.reason) == (2, "a", Reason.COLUMNS)
    assert (fewer.line, fewer.problem.reason) == (3, Reason.COLUMNS)
    assert good == MetadataRow(4, "c", "c.wav", "three")


def test_common_voice_is_known_by_its_columns(tmp_path):
    """Common Voice's train.tsv is preferred to validated.tsv, and its sentences may begin with a quote."""
    header = "client_id\tpath\tsentence\tup_votes\tlocale\n"
    write(tmp_path, "validated.tsv", header)
    write(tmp_path, "train.tsv", header + 'abc\tcommon_voice_1.mp3\t"Ja," sagte er.\t2\tde\n')
    (tmp_path / "clips").mkdir()
    layout, rows = read(tmp_path)
    assert (layout.format, layout.metadata.name) == ("common_voice", "train.tsv")
    assert formats.audio_folders(layout)[0] == "clips"
    assert rows == [MetadataRow(2, "common_voice_1", "common_voice_1.mp3", '"Ja," sagte er.', "abc", "de")]
    assert read(tmp_path / "validated.tsv")[0].metadata.name == "validated.tsv"


def vctk(root, names):
    for name in names:
        write(root, name, "Please call Stella.\n")
    return root


def test_vctk_pairs_recordings_and_texts(tmp_path):
    """The first microphone is preferred, and trimmed recordings are preferred to raw ones."""
    vctk(
        tmp_path,
        [
            "txt/p225/p225_001.txt",
            "txt/p225/p225_002.txt",
            "txt/p226/p226_001.txt",
            "wav48/p225/p225_001.wav",
            "wav48_silence_trimmed/log.txt",
            "wav48_silence_trimmed/p225/p225_001_mic1.flac",
            "wav48_silence_trimmed/p225/p225_001_mic2.flac",
            "wav48_silence_trimmed/p225/p225_002_mic2.flac",
            "wav48_silence_trimmed/p226/p226_001.flac",
        ],
    )
    layout, rows = read(tmp_path)
    assert layout.format == "vctk"
    assert "wav48_silence_trimmed and txt; mic1" in layout.why
    assert [(row.id, row.file.split("/")[-1], row.speaker) for row in rows] == [
        ("p225_001", "p225_001_mic1.flac", "p225"),
        ("p225_002", "p225_002_mic2.flac", "p225"),
        ("p226_001", "p226_001.flac", "p226"),
    ]
    assert {row.text for row in rows} == {"Please call Stella."}


def test_vctk_rejects_unpaired_files(tmp_path):
    """A text without recording, a recording without text and a text that is not UTF-8 are rejected by name."""
    vctk(tmp_path, ["txt/p1/p1_1.txt", "wav48/p1/p1_2.wav", "wav48/p1/p1_3.wav", "wav48/p315/p315_1.wav"])
    write(tmp_path, "txt/p1/p1_3.txt", b"caf\xe9")
    rows = read(tmp_path)[1]
    assert [(row.id, row.problem.reason) for row in rows] == [
        ("p1_1", Reason.MISSING),
        ("p1_2", Reason.MISSING),
        ("p1_3", Reason.NOT_UTF8),
        ("p315_1", Reason.MISSING),
    ]
    assert rows[1].problem.detail == "there is no txt/p1/p1_2.txt"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_vctk_recordings_behind_a_symlink_are_outside(tmp_path):
    """Recordings linked from another disk are reported as outside the corpus, not missing."""
    vctk(tmp_path, ["corpus/txt/p1/p1_1.txt", "disk/p1/p1_1.wav"])
    (tmp_path / "corpus" / "wav48").symlink_to(tmp_path / "disk")
    assert [(row.id, row.problem.reason) for row in read(tmp_path / "corpus")[1]] == [("p1_1", Reason.OUTSIDE)]


def test_a_single_list_in_a_folder_is_the_metadata(tmp_path):
    """A folder with one CSV or TSV needs no format; with several the error lists them."""
    write(tmp_path, "train.csv", "path,text\na,b\n")
    assert read(tmp_path)[0].metadata.name == "train.csv"
    write(tmp_path, "val.tsv", "path\ttext\na\tb\n")
    with pytest.raises(CorpusError, match=r"it holds train\.csv, val\.tsv; name the metadata file you mean"):
        formats.find_layout(tmp_path)


def test_a_named_format_is_used(tmp_path):
    """With a named format nothing is guessed."""
    write(tmp_path, "metadata.csv", "path|text\na|b\n")
    assert read(tmp_path)[0].format == "csv"
    assert read(tmp_path, "ljspeech")[1][0] == MetadataRow(1, "path", "path", "text")


@pytest.mark.parametrize(
    ("format", "remedy"),
    [
        ("auto", "this is not a corpus of a known format; it needs metadata.csv"),
        ("ljspeech", "it needs metadata.csv"),
        ("vctk", "a folder txt"),
    ],
)
def test_an_empty_folder_is_refused_with_what_it_needs(tmp_path, format, remedy):
    """The error names the files that would make the folder a corpus."""
    with pytest.raises(CorpusError, match=remedy):
        formats.find_layout(tmp_path, format)


def test_a_missing_path_is_refused(tmp_path):
    """A wrong path is reported in one message."""
    with pytest.raises(CorpusError, match="there is no such folder or file"):
        formats.find_layout(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match="VCTK has no metadata file"):
        formats.find_layout(write(tmp_path, "metadata.csv", ""), "vctk")


def test_csv_without_a_header_is_refused_with_an_example(tmp_path):
    """A CSV whose first line is not a header is refused with an example of one."""
    write(tmp_path, "metadata.csv", "a.wav,hello\n")
    with pytest.raises(CorpusError, match="write a header such as path,text,speaker,language"):
        formats.find_layout(tmp_path, "csv")


lines = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            [b"path,text", b"path\ttext\tspeaker", b"id|text|normalised", b'a,"b', b'"', b"a|b|c", b"\xff\xfe"]
        ),
    )
)


@given(lines, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from(["auto", *FORMATS]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_rows(tmp_path, content, ends, format):
    """Whatever a metadata file holds, it gives rows, some with problems, or a CorpusError."""
    write(tmp_path, "metadata.csv", ends.join(content))
    try:
        _, rows = read(tmp_path, format)
    except CorpusError:
        return
    assert all(row.line <= max(1, sum(map(len, content)) + len(content)) for row in rows)

"""The corpus formats: LJSpeech, VCTK, Common Voice, and CSV with a header.

`find_layout` detects the format and says why; `read_rows` reads the metadata. Whether the files exist and can be
decoded is checked later.
"""

import posixpath
import re
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from xtts.corpus import delimited
from xtts.corpus.folder import EXTENSIONS, CorpusFolder
from xtts.corpus.utterances import CorpusError, Reason, Unusable

DELIMITERS = "\t|,;"
FORMATS = ("ljspeech", "vctk", "csv", "common_voice")
COLUMNS = {  # accepted names of each column, the most likely first
    "path": "path file audio wav filename file_name audio_file audio_path audio_filepath wav_path wav_filename id",
    "text": "text sentence transcript transcription normalized_text normalised_text normalized normalised",
    "speaker": "speaker speaker_id client_id speaker_name",
    "language": "language locale lang",
}
_METADATA = ("metadata.csv", "metadata.tsv", "metadata.txt")
_COMMON_VOICE = ("train.tsv", "validated.tsv")
_MICROPHONES = ("_mic1", "", "_mic2")  # VCTK has two recordings of each utterance; the better one first


class CorpusLayout(NamedTuple):
    """The format of a corpus, where its files are, and how that was detected."""

    format: str
    root: Path  # the corpus folder; no file outside it is read
    metadata: Path  # the metadata file; for VCTK the folder of the texts
    why: str


class MetadataRow(NamedTuple):
    """An utterance as the metadata describes it."""

    line: int
    id: str
    file: str
    text: str
    speaker: str = ""
    language: str = ""  # "" where the corpus names none
    problem: Optional[Unusable] = None  # why the line is not an utterance


def find_layout(path: Union[str, Path], format: str = "auto") -> CorpusLayout:
    """The layout of the corpus at `path`, a folder or a metadata file."""
    path = Path(path)
    if path.is_dir():
        return _of_folder(path, format)
    if not path.exists():
        raise CorpusError(f"{path}: there is no such folder or file; name a corpus folder or its metadata file")
    if not path.is_file():
        raise CorpusError(f"{path}: this is neither a folder nor a file; name a corpus folder or its metadata file")
    if format == "vctk":
        raise CorpusError(f"{path}: VCTK has no metadata file; name the folder that holds wav48 and txt")
    return _of_file(path, format)


def read_rows(layout: CorpusLayout, files: CorpusFolder) -> Iterator[MetadataRow]:
    """Every utterance in the metadata; a line that cannot be read is a row with a problem."""
    return _READERS[layout.format](layout, files)


def audio_folders(layout: CorpusLayout) -> Tuple[str, ...]:
    """The folders in which audio files are looked for, in this order."""
    return {
        "ljspeech": ("wavs", "wav", ""),
        "csv": ("", "wavs", "clips"),
        "common_voice": ("clips", ""),
        "vctk": ("",),
    }[layout.format]


def _of_folder(root: Path, format: str) -> CorpusLayout:
    if format in ("auto", "vctk"):
        recordings = _vctk_recordings(root)
        if recordings and (root / "txt").is_dir():
            why = f"it has {recordings} and txt; mic1 of each utterance is taken, mic2 where there is no mic1"
            return CorpusLayout("vctk", root, root / "txt", why)
        if format == "vctk":
            raise CorpusError(
                f"{root}: VCTK has a folder wav48 (or wav48_silence_trimmed) and a folder txt; name theirs"
            )

    names: Tuple[str, ...] = _COMMON_VOICE if format == "common_voice" else _METADATA
    if format == "auto" and (root / "clips").is_dir():
        names += _COMMON_VOICE
    for name in names:
        if (root / name).is_file():
            return _of_file(root / name, format)
    candidates = sorted(path.name for path in root.glob("*.[ct]sv") if path.is_file())
    if len(candidates) == 1:
        return _of_file(root / candidates[0], format)
    if candidates:
        raise CorpusError(f"{root}: it holds {', '.join(candidates)}; name the metadata file you mean")
    raise CorpusError(
        f"{root}: this is not a corpus of a known format; it needs metadata.csv (LJSpeech, or columns with a header),"
        " a .tsv and clips (Common Voice), or wav48 and txt (VCTK)"
    )


def _of_file(metadata: Path, format: str) -> CorpusLayout:
    header = _header(_content(metadata))
    root, name = metadata.parent, metadata.name
    if format == "auto":
        if header is None:
            return CorpusLayout(
                "ljspeech", root, metadata, f"{name} has no header; its lines are read as id|text|normalised"
            )
        if {"path", "sentence", "client_id"} <= set(header.names):
            return CorpusLayout("common_voice", root, metadata, f"{name} has the columns path, sentence and client_id")
    if format in ("csv", "common_voice", "auto"):
        if header is None:
            raise CorpusError(
                f"{metadata}:1: the first line names no columns for file and text; write a header such as"
                f" path,text,speaker,language, or name the layout: {', '.join(FORMATS)}"
            )
        taken = [f"{header.names[column]} for the {meaning}" for meaning, column in header.columns.items()]
        why = f"{name} has a header: {', '.join(map(str.strip, taken))}"
        return CorpusLayout("csv" if format == "auto" else format, root, metadata, why)
    return CorpusLayout(format, root, metadata, "that layout was asked for")


class _Header(NamedTuple):
    delimiter: str
    names: List[str]  # in lower case
    columns: Dict[str, int]  # meaning to column number


def _header(content: Sequence[Union[str, bytes]]) -> Optional[_Header]:
    """The header in the first line; None when it names no column for file or text."""
    first = content[0] if content else ""
    if isinstance(first, bytes):
        return None
    for delimiter in DELIMITERS:
        try:
            names = delimited.split_fields(first, delimiter) or []
        except Unusable:
            continue
        names = [re.sub(r"[\s-]+", "_", name.strip().lower()) for name in names]
        columns = {
            meaning: names.index(known)
            for meaning, all_known in COLUMNS.items()
            for known in [next((known for known in all_known.split() if known in names), None)]
            if known is not None
        }
        if "path" in columns and "text" in columns:
            return _Header(delimiter, names, columns)
    return None


def _ljspeech_rows(layout: CorpusLayout, files: CorpusFolder) -> Iterator[MetadataRow]:
    """`id|text|normalised`, and optionally speaker and language, without quoting."""
    for record in delimited.read_records(_content(layout.metadata), "|", quotes=False):
        fields = [field.strip() for field in record.fields]
        if record.problem:
            yield MetadataRow(record.line, "", "", "", problem=record.problem)
        elif not 2 <= len(fields) <= 5:
            what = f"{_columns(fields)}; id|text|normalised, optionally with speaker and language, are 3 to 5"
            yield MetadataRow(record.line, fields[0], fields[0], "", problem=Unusable(Reason.COLUMNS, what))
        else:
            id, text, normalised, speaker, language = fields + [""] * (5 - len(fields))
            yield MetadataRow(record.line, _stem(id), id, normalised or text, speaker, language)


def _csv_rows(layout: CorpusLayout, files: CorpusFolder) -> Iterator[MetadataRow]:
    content = _content(layout.metadata)
    header = _header(content)
    if header is None:
        raise CorpusError(f"{layout.metadata}:1: the header is missing; write one such as path,text,speaker,language")
    path, text, speaker, language = (header.columns.get(meaning) for meaning in COLUMNS)
    assert path is not None
    assert text is not None
    for record in delimited.read_records(content, header.delimiter):
        fields = [field.strip() for field in record.fields]
        if record.problem:
            yield MetadataRow(record.line, "", "", "", problem=record.problem)
        elif len(fields) != len(header.names):
            what = f"{_columns(fields)} under a header of {len(header.names)}"
            file = fields[path] if path < len(fields) else ""
            yield MetadataRow(record.line, _stem(file), file, "", problem=Unusable(Reason.COLUMNS, what))
        elif record.line > 1:
            yield MetadataRow(
                record.line,
                _stem(fields[path]),
                fields[path],
                fields[text],
                "" if speaker is None else fields[speaker],
                "" if language is None else fields[language],
            )


def _vctk_rows(layout: CorpusLayout, files: CorpusFolder) -> Iterator[MetadataRow]:
    """`wav48*/p225/p225_001_mic1.flac` and `txt/p225/p225_001.txt`."""
    recordings = _vctk_recordings(layout.root)
    speakers = sorted({*files.names(recordings), *files.names("txt")})
    for speaker in speakers:
        if not files.has_folder(f"{recordings}/{speaker}") and not files.has_folder(f"txt/{speaker}"):
            continue  # a log or a README beside the speakers
        audio = _choose_microphone(files.names(f"{recordings}/{speaker}"))
        texts = {_stem(name, (".txt",)) for name in files.names(f"txt/{speaker}") if name.lower().endswith(".txt")}
        for id in sorted(texts.union(audio)):
            file = f"{recordings}/{speaker}/{audio.get(id, id)}"
            try:
                if id not in audio:
                    files.find(file)  # raises the reason
                text = files.read(f"txt/{speaker}/{id}.txt")
                yield MetadataRow(0, id, file, text.decode("utf-8-sig").strip(), speaker)
            except UnicodeDecodeError:
                yield MetadataRow(0, id, file, "", speaker, problem=delimited.not_utf8(text))
            except Unusable as problem:
                yield MetadataRow(0, id, file, "", speaker, problem=problem)


_READERS: Dict[str, Callable[[CorpusLayout, CorpusFolder], Iterator[MetadataRow]]] = {
    "ljspeech": _ljspeech_rows,
    "csv": _csv_rows,
    "common_voice": _csv_rows,
    "vctk": _vctk_rows,
}


def _choose_microphone(names: Sequence[str]) -> Dict[str, str]:
    """The recording to use of each utterance of a VCTK speaker."""
    stems = {_stem(name): name for name in names if posixpath.splitext(name)[1].lower() in EXTENSIONS}
    ids = {re.sub("_mic[12]$", "", stem) for stem in stems}
    return {id: next(stems[id + mic] for mic in _MICROPHONES if id + mic in stems) for id in ids}


def _vctk_recordings(root: Path) -> str:
    """The folder of VCTK's recordings, the trimmed ones before the raw; "" when there is none."""
    found = sorted(path.name for path in root.glob("wav48*") if path.is_dir())
    return found[-1] if found else ""


def _content(metadata: Path) -> List[Union[str, bytes]]:
    try:
        return delimited.read_lines(metadata.read_bytes())
    except OSError as error:
        raise CorpusError(f"{metadata}: {error.strerror}; make it a readable file") from None


def _stem(file: str, extensions: Sequence[str] = EXTENSIONS) -> str:
    """`file` without one of these extensions."""
    stem, extension = posixpath.splitext(file)
    return stem if extension.lower() in extensions else file


def _columns(fields: Sequence[str]) -> str:
    return "1 column" if len(fields) == 1 else f"{len(fields)} columns"

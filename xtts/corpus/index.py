"""The index of a corpus: its utterances, and those that were rejected, with reasons.

`read_corpus` builds it from the metadata and the headers of the audio files: a hundred thousand lines in seconds. The
samples are checked by `check.check_recordings`, and the lengths by `lengths.measure_lengths`.
"""

import os
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

import attrs

from xtts.audio.headers import DamagedAudio, read_headers
from xtts.corpus import formats
from xtts.corpus.cache import FileFacts, cache_folder, cache_name
from xtts.corpus.folder import CorpusFile, CorpusFolder
from xtts.corpus.formats import CorpusLayout, MetadataRow
from xtts.corpus.utterances import Reason, Rejected, Unusable, Utterance, require_usable

MIN_UTTERANCES = 2  # one to train on and one to hold out
Progress = Callable[[int, int], None]  # done, total


@attrs.frozen
class Corpus:
    """The utterances of a corpus, and those that were rejected."""

    layout: CorpusLayout
    utterances: List[Utterance]
    rejected: List[Rejected]
    cache: Optional[Path] = None  # cache folder; None: nothing is cached

    def without(self, unusable: Dict[int, Unusable], at_least: int = MIN_UTTERANCES) -> "Corpus":
        """Reject utterances by their position; raises a CorpusError when fewer than `at_least` are left."""
        out = [unusable[i].of(u.line, u.id, self.name_of(u)) for i, u in enumerate(self.utterances) if i in unusable]
        kept = [u for i, u in enumerate(self.utterances) if i not in unusable] if out else self.utterances
        rejected = sorted([*self.rejected, *out], key=lambda one: (one.line, one.id))
        require_usable(str(self.layout.metadata), len(kept), rejected, at_least)
        return attrs.evolve(self, utterances=kept, rejected=rejected)

    def name_of(self, utterance: Utterance) -> str:
        """The path of an utterance's file, relative to the corpus folder."""
        return Path(os.path.relpath(utterance.path, self.layout.root)).as_posix()

    def cache_name(self, kind: str, *about: object) -> str:
        """The name of the cache file of this kind for this corpus."""
        return cache_name(kind, self.layout.metadata.resolve(), self.layout.format, *about)


def read_corpus(
    path: Union[str, Path],
    format: str = "auto",
    language: str = "en",
    cache: Union[str, Path, None] = "auto",
    progress: Optional[Progress] = None,
    at_least: int = MIN_UTTERANCES,
) -> Corpus:
    """The corpus at `path`. `language` is the language of utterances without one.

    `cache` is the cache folder: "auto" is inside the corpus, or the user's cache folder when the corpus is read-only;
    None caches nothing.
    """
    layout = formats.find_layout(path, format)
    folder = cache_folder(layout.root) if cache == "auto" else None if cache is None else Path(cache)
    corpus = Corpus(layout, [], [], folder)
    facts = FileFacts(folder, corpus.cache_name("headers"))
    files, folders = CorpusFolder(layout.root), formats.audio_folders(layout)
    lines: Dict[str, int] = {}  # line of each id
    unread: List[Tuple[int, CorpusFile]] = []  # position of the utterance, and its file, whose header is not cached
    for row in formats.read_rows(layout, files):
        try:
            _check_row(row, lines)
            file = files.find(row.file, folders)
        except Unusable as problem:
            corpus.rejected.append(problem.of(row.line, row.id, row.file))
            continue
        samples, rate = facts.recall(*file) or (0, 0)
        if not rate:
            unread.append((len(corpus.utterances), file))
        own_language = row.language.replace("_", "-").lower() if row.language else language
        path = f"{files.root}/{file.path}"
        corpus.utterances.append(Utterance(row.id, path, row.text, row.speaker, own_language, row.line, samples, rate))
    del files, lines  # of ten million files they take gigabytes, as do the headers
    unusable = _read_headers(corpus.utterances, unread, facts, progress)
    return corpus.without(unusable, at_least)


def _check_row(row: MetadataRow, lines: Dict[str, int]) -> None:
    """Raise the problem of a row, if it has one, before its file is looked for."""
    if row.problem:
        raise row.problem
    if not row.file:
        raise Unusable(Reason.MISSING, "the line names no file")
    if row.id in lines:
        where = f"on line {lines[row.id]}" if row.line else "for another recording"
        raise Unusable(Reason.DUPLICATE, f"the id is used {where} already; give each utterance its own")
    if not row.text:
        raise Unusable(Reason.TEXT_EMPTY, "there is no text")
    lines[row.id] = row.line


def _read_headers(
    utterances: List[Utterance],
    unread: Sequence[Tuple[int, CorpusFile]],
    facts: FileFacts,
    progress: Optional[Progress],
) -> Dict[int, Unusable]:
    """Fill in the lengths of utterances from the headers of their files; returns those that cannot be used."""
    unusable: Dict[int, Unusable] = {}
    known = len(utterances) - len(unread)
    try:
        headers = read_headers([(utterances[position].path, file.size) for position, file in unread])
        for done, ((position, file), header) in enumerate(zip(unread, headers), known + 1):
            if isinstance(header, DamagedAudio):
                unusable[position] = Unusable(Reason(header.fault), header.detail)
            else:
                utterances[position] = utterances[position]._replace(
                    samples=header.samples, sample_rate=header.sample_rate
                )
                facts.note(*file, [header.samples, header.sample_rate])
            if progress and done % 1000 == 0:
                progress(done, len(utterances))
    finally:
        facts.save()  # after Ctrl-C nothing is read twice
    if progress:
        progress(len(utterances), len(utterances))
    return unusable

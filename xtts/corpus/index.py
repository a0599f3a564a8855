"""A corpus: a folder of recordings or its metadata file comes in, its utterances go out, and what was set aside.

`read` makes the index, from the metadata and the headers of the files: a hundred thousand lines in seconds. Whether
the samples are sound is `soundcheck`'s to find out, and whether the lengths fit is `lengths`'.
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

AT_LEAST = 2  # utterances: one to train on and one to hold out
Progress = Callable[[int, int], None]  # how many are done, of how many


@attrs.frozen
class Corpus:
    """What there is to train on, and what was set aside."""

    layout: CorpusLayout
    utterances: List[Utterance]
    rejected: List[Rejected]
    cache: Optional[Path] = None  # folder of what is found out about it; None: nothing is kept

    def without(self, unusable: Dict[int, Unusable], at_least: int = AT_LEAST) -> "Corpus":
        """The corpus with utterances set aside by their position; a CorpusError when fewer than `at_least` are left."""
        out = [unusable[i].of(u.line, u.id, self.name_of(u)) for i, u in enumerate(self.utterances) if i in unusable]
        kept = [u for i, u in enumerate(self.utterances) if i not in unusable] if out else self.utterances
        rejected = sorted([*self.rejected, *out], key=lambda one: (one.line, one.id))
        require_usable(str(self.layout.metadata), len(kept), rejected, at_least)
        return attrs.evolve(self, utterances=kept, rejected=rejected)

    def name_of(self, utterance: Utterance) -> str:
        """The utterance's file, relative to the corpus folder."""
        return Path(os.path.relpath(utterance.path, self.layout.root)).as_posix()

    def cache_name(self, kind: str, *about: object) -> str:
        """The name of this corpus's cache file of a kind."""
        return cache_name(kind, self.layout.metadata.resolve(), self.layout.format, *about)


def read_corpus(
    path: Union[str, Path],
    format: str = "auto",
    language: str = "en",
    cache: Union[str, Path, None] = "auto",
    progress: Optional[Progress] = None,
    at_least: int = AT_LEAST,
) -> Corpus:
    """The corpus at `path`. `language` is that of utterances that name none.

    `cache` is the folder where what is found out is kept: "auto" is beside the corpus, or among the user's caches when
    that cannot be written; None keeps nothing.
    """
    layout = formats.find_layout(path, format)
    folder = cache_folder(layout.root) if cache == "auto" else None if cache is None else Path(cache)
    corpus = Corpus(layout, [], [], folder)
    facts = FileFacts(folder, corpus.cache_name("headers"))
    tree, folders = CorpusFolder(layout.root), formats.audio_folders(layout)
    lines: Dict[str, int] = {}  # where each id was met
    unread: List[Tuple[int, CorpusFile]] = []  # files whose headers are not known yet, and whose utterances they are
    for row in formats.read_rows(layout, tree):
        try:
            _refuse(row, lines)
            file = tree.find(row.file, folders)
        except Unusable as problem:
            corpus.rejected.append(problem.of(row.line, row.id, row.file))
            continue
        samples, rate = facts.recall(*file) or (0, 0)
        if not rate:
            unread.append((len(corpus.utterances), file))
        spoken = row.language.replace("_", "-").lower() if row.language else language
        path = f"{tree.root}/{file.path}"
        corpus.utterances.append(Utterance(row.id, path, row.text, row.speaker, spoken, row.line, samples, rate))
    del tree, lines  # of ten million files they are gigabytes, and the headers' facts are as many
    unusable = _read_headers(corpus.utterances, unread, facts, progress)
    return corpus.without(unusable, at_least)


def _refuse(row: MetadataRow, lines: Dict[str, int]) -> None:
    """Raise what is wrong with a row before its file is looked for."""
    if row.problem:
        raise row.problem
    if not row.file:
        raise Unusable(Reason.MISSING, "the line names no file")
    if row.id in lines:
        where = f"on line {lines[row.id]}" if row.line else "for another recording"
        raise Unusable(Reason.DUPLICATE, f"the id stands {where} already; give each utterance its own")
    if not row.text:
        raise Unusable(Reason.TEXT_EMPTY, "there is no text")
    lines[row.id] = row.line


def _read_headers(
    utterances: List[Utterance],
    unread: Sequence[Tuple[int, CorpusFile]],
    facts: FileFacts,
    progress: Optional[Progress],
) -> Dict[int, Unusable]:
    """Give utterances their lengths, from the headers of their files; what has none comes back."""
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
        facts.save()  # what was read until here need not be read again, even after Ctrl-C
    if progress:
        progress(len(utterances), len(utterances))
    return unusable

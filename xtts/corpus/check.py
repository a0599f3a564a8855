"""Check the audio of a corpus: decode every file, and reject truncated, silent and non-finite recordings.

A header says what a file should hold; this decodes all of it. Files are read in threads, since libsndfile and NumPy
release the interpreter lock, and files that passed are remembered until they change.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Optional, Tuple

import numpy as np
import soundfile

from xtts.audio.headers import error_text
from xtts.corpus.cache import FileFacts
from xtts.corpus.index import MIN_UTTERANCES, Corpus, Progress
from xtts.corpus.utterances import Reason, Unusable, Utterance

SILENCE = 1e-3  # of full scale, -60 dB; a smaller amplitude is not speech
BLOCK = 1 << 20  # samples decoded at a time, so that a wrong header costs no memory
PROGRESS_EVERY = 256  # files
_INTEGERS = {"PCM_16", "PCM_S8", "PCM_U8"}  # read as 16-bit integers, in a third of the time of floats


def check_recordings(
    corpus: Corpus, workers: Optional[int] = None, progress: Optional[Progress] = None, at_least: int = MIN_UTTERANCES
) -> Corpus:
    """The corpus without utterances that are truncated, silent, or contain NaN or infinity."""
    facts = FileFacts(corpus.cache, corpus.cache_name("sound", SILENCE))
    todo, unusable = [], {}
    for position, utterance in enumerate(corpus.utterances):
        try:
            status = os.stat(utterance.path)  # noqa: PTH116 - a hundred thousand times
        except OSError as error:
            unusable[position] = Unusable(Reason.UNREADABLE, error.strerror or str(error))
            continue
        file = (utterance.path, status.st_size, status.st_mtime_ns)
        if facts.recall(*file) is None:
            todo.append((position, file))
    try:
        with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
            for start in range(0, len(todo), PROGRESS_EVERY):
                batch = todo[start : start + PROGRESS_EVERY]
                faults = pool.map(find_fault, [corpus.utterances[position] for position, _ in batch])
                for (position, file), fault in zip(batch, faults):
                    if fault:
                        unusable[position] = fault
                    else:
                        facts.note(*file, [])
                if progress:
                    progress(start + len(batch), len(todo))
    finally:
        facts.save()  # after Ctrl-C only the last batch is checked again
    return corpus.without(unusable, at_least)


def find_fault(utterance: Utterance) -> Optional[Unusable]:
    """The problem with the samples of an utterance, or None."""
    try:
        low, high, samples = _peaks(utterance.path)
    except (RuntimeError, TypeError, ValueError, OSError, MemoryError) as error:
        return Unusable(Reason.UNREADABLE, error_text(error))
    if samples < utterance.samples:
        return Unusable(Reason.TRUNCATED, f"it breaks off: {samples:,} of {utterance.samples:,} samples were decoded")
    if not np.isfinite([low, high]).all():
        return Unusable(Reason.NOT_FINITE, "a sample is NaN or infinite")
    if (high - low) / 2 < SILENCE:
        return Unusable(Reason.SILENT, f"it swings by {(high - low) / 2:.1g} of full scale, under {SILENCE:g}")
    return None


def _peaks(path: str) -> Tuple[float, float, int]:
    """The lowest and the highest sample, at full scale 1, and the number of samples in one channel."""
    low, high, count = np.inf, -np.inf, 0
    with soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path)) as file:
        dtype, scale = ("int16", 32768.0) if file.subtype in _INTEGERS else ("float32", 1.0)
        while True:
            try:
                block = file.read(max(1, BLOCK // file.channels), dtype=dtype)
            except RuntimeError:  # a truncated or damaged frame: the rest cannot be decoded
                block = ()
            if not len(block):
                return low / scale, high / scale, count
            count += len(block)
            block = block.mean(axis=1) if block.ndim > 1 else block  # channels may cancel each other out
            low, high = np.minimum(low, block.min()), np.maximum(high, block.max())  # a NaN stays a NaN

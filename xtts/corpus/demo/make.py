"""The demo corpus: minutes, voices and languages come in; a folder of speech by espeak-ng goes out, with no download.

The folder is LJSpeech's, with two columns more: `wavs/NAME.wav` (22.05 kHz, 16 bit, mono) and `metadata.csv`, whose
lines are `id|text|normalised|speaker|language`. `demo.json` says what it was made from: asked for the same again,
`make` gives the same folder back. The same seed makes the same bytes on every Python.
"""

import glob
import heapq
import itertools
import json
import math
import random
import shutil
import time
import uuid
import wave
import zlib
from contextlib import closing
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

import numpy as np

from xtts.corpus.demo.espeak import SAMPLE_RATE, Espeak, EspeakError, EspeakVoice
from xtts.corpus.demo.grammar import GRAMMARS, Grammar
from xtts.errors import UsageError, XttsError
from xtts.text.normalise import normalise

REVISION = 3  # of what `make` writes; counts up when the same request would give other bytes
SHORTEST, LONGEST = 1.0, 9.2  # seconds of a clip; 800 mel frames are 9.28
LOUDNESS = 0.08  # root mean square of a clip, of full scale
LONGEST_TEXT = 190  # characters, as it is said; a recipe's max_text_length is 200
PEAK = 0.95  # and its highest sample at most
SILENCE = 0.05  # seconds left before and after the speech
ROOM = 32  # highest sample of the noise under it: 43 dB below LOUDNESS
SOURCES = (3, 6)  # of espeak-ng's synthesizers, those whose short sentences a recogniser understood best
Progress = Callable[[float, float], None]  # seconds of speech made, seconds asked for
_STEPS = (0.618034, 0.754878, 0.414214, 0.569840)  # their multiples, modulo 1, keep apart however many there are


class DemoError(XttsError):
    """Why there is no demo corpus, and what to do."""


class DemoUsageError(DemoError, UsageError):
    """What was asked for is no demo corpus."""


class DemoCorpus(NamedTuple):
    """What was made."""

    folder: Path
    clips: int
    seconds: float
    reused: bool  # it was there already


class Clip(NamedTuple):
    """One line of the corpus."""

    voice: EspeakVoice
    language: str
    text: str
    said: str  # the text normalised, which is what is spoken
    samples: np.ndarray  # int16 [samples]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def make_demo_corpus(
    folder: Union[str, Path],
    minutes: float,
    voices: int,
    languages: Sequence[str],
    seed: int,
    progress: Optional[Progress] = None,
    vocabulary: str = "wide",
) -> DemoCorpus:
    """The demo corpus in `folder`, made unless it is there. Every voice speaks every language, for about as long.

    It is written beside the folder and renamed at the end, so whoever is interrupted leaves nothing half made. Each
    voice says at least one sentence in each language, so many voices may take longer than `minutes`.
    """
    asked = _checked(minutes, voices, languages, seed, vocabulary)
    folder = Path(folder).resolve()
    try:
        found = _existing(folder, asked)
        if found:
            return found
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        part = folder.parent / f".{folder.name}.part-{uuid.uuid4().hex[:8]}"
        try:
            part.mkdir()
            corpus = _write(part, asked, progress)
            return _rename(part, folder, asked) or corpus._replace(folder=folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except EspeakError as error:
        raise DemoError(str(error)) from None
    except OSError as error:
        raise DemoError(f"{error.filename or folder}: {error.strerror}; name a folder that can be written") from None


def vocabulary_of(folder: Union[str, Path]) -> Optional[str]:
    """The vocabulary of a corpus that was made here; None of any other."""
    try:
        return str(json.loads((Path(folder) / "demo.json").read_bytes())["asked"]["vocabulary"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def demo_sentences(
    language: str, count: int, without: Iterable[str] = (), seed: int = 0, vocabulary: str = "wide"
) -> List[str]:
    """So many sentences as the demo corpus has them, none twice and none of `without`; not those of the same seed."""
    drawn, left_out = _sentences(GRAMMARS[vocabulary][language], language, f"more {seed}"), set(without)
    return list(itertools.islice((text for text, _ in drawn if text not in left_out), count))


def demo_voice(number: int, seed: int) -> EspeakVoice:
    """The voice of a number, low and high in turn. The first few of any seed lie far apart; more lie between them."""
    chance = random.Random(f"voices {seed}")
    pitch, reach, formants, rate = ((chance.random() + number // 2 * step) % 1 for step in _STEPS)
    high = number % 2
    rest = (140 if high else 72) * 1.65**pitch
    return EspeakVoice(
        name=f"voice{number + 1:03d}",
        pitch=round(rest),
        reach=round(rest * (0.35 + 0.1 * reach)),
        formants=round((100 if high else 95) + 5 * formants),
        source=SOURCES[(number // 2 + high) % len(SOURCES)],
        rate=round(145 + 20 * rate),
    )


def _clips(
    voices: Sequence[EspeakVoice], grammars: Mapping[str, Grammar], seed: int, seconds: float
) -> Generator[Clip, None, None]:
    """Clips, always of the voice and language that were heard least, until `seconds` are full."""
    languages = list(grammars)
    drawn = {language: _sentences(grammar, language, seed) for language, grammar in grammars.items()}
    heard = [(0.0, number) for number in range(len(voices) * len(languages))]  # seconds of each pair, a heap
    total = 0.0
    with Espeak() as espeak:
        while total < seconds or heard[0][0] == 0:
            so_far, number = heard[0]
            speaker, language = voices[number // len(languages)], languages[number % len(languages)]
            text, said = next(drawn[language])
            samples = np.frombuffer(espeak.speak(said, language, speaker), dtype=np.int16)
            clip = Clip(speaker, language, text, said, _recorded(samples, seed=zlib.crc32(said.encode())))
            if SHORTEST <= clip.seconds <= LONGEST:
                yield clip
                total += clip.seconds
                heapq.heapreplace(heard, (so_far + clip.seconds, number))


def _sentences(grammar: Grammar, language: str, seed: Union[int, str]) -> Iterator[Tuple[str, str]]:
    """Sentences, none twice, as they are written and as they are said."""
    chance = random.Random(f"sentences {seed} {language}")
    drawn: Set[str] = set()
    while True:
        text = grammar.sentence(chance)
        if text not in drawn:
            drawn.add(text)
            said = normalise(text, language)
            if len(said) <= LONGEST_TEXT:
                yield text, said


def _recorded(samples: np.ndarray, seed: int) -> np.ndarray:
    """Speech as a good microphone has it: cut to size, at one level, over the faint noise of a room.

    Without the noise there would be gaps of pure zeros, which no recording has and no recogniser expects. All sums
    are of integers, so that no version of NumPy rounds them differently.
    """
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) * 100 > np.abs(samples.astype(np.int32)).max(initial=1))
    if not len(loud):
        return samples[:0]
    speech = samples[loud[0] : loud[-1] + 1].astype(np.int64)
    level = math.sqrt(int((speech * speech).sum()) / len(speech))
    gain = min(LOUDNESS * 32768 / level, PEAK * 32768 / int(np.abs(speech).max()))
    still = np.zeros(round(SILENCE * SAMPLE_RATE))
    room = np.random.RandomState(seed).randint(-ROOM, ROOM + 1, size=len(speech) + 2 * len(still))
    return np.rint(np.concatenate([still, speech * gain, still]) + room).astype("<i2")


def _write(folder: Path, asked: Dict[str, Any], progress: Optional[Progress]) -> DemoCorpus:
    """All files of the corpus; demo.json last."""
    (folder / "wavs").mkdir()
    seconds, target = 0.0, asked["minutes"] * 60
    lines: Dict[str, str] = {}
    spoken: Dict[Tuple[str, str], int] = {}
    voices = [demo_voice(number, asked["seed"]) for number in range(asked["voices"])]
    grammars = {language: GRAMMARS[asked["vocabulary"]][language] for language in asked["languages"]}
    with closing(_clips(voices, grammars, asked["seed"], target)) as clips:
        for clip in clips:
            pair = (clip.voice.name, clip.language)
            spoken[pair] = spoken.get(pair, 0) + 1
            name = f"{clip.voice.name}-{clip.language}-{spoken[pair]:04d}"
            lines[name] = f"{name}|{clip.text}|{clip.said}|{clip.voice.name}|{clip.language}\n"
            _write_wave(folder / "wavs" / f"{name}.wav", clip.samples)
            seconds += clip.seconds
            if progress:
                progress(seconds, target)
    (folder / "metadata.csv").write_bytes("".join(lines[name] for name in sorted(lines)).encode())
    made = {"asked": asked, "clips": len(lines), "seconds": round(seconds, 3), "voices": [v._asdict() for v in voices]}
    (folder / "demo.json").write_bytes(json.dumps(made, indent=1, sort_keys=True).encode() + b"\n")
    return DemoCorpus(folder, len(lines), seconds, reused=False)


def _write_wave(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, len(samples), "NONE", "not compressed"))
        file.writeframes(samples.tobytes())


def _checked(minutes: float, voices: int, languages: Sequence[str], seed: int, vocabulary: str) -> Dict[str, Any]:
    """The request, as demo.json holds it."""
    if not 0 < minutes < math.inf:
        raise DemoUsageError(f"a demo corpus of {minutes} minutes cannot be made; ask for more than 0")
    if voices < 1:
        raise DemoUsageError(f"a demo corpus of {voices} voices cannot be made; ask for at least 1")
    known = GRAMMARS[vocabulary]
    unknown = [language for language in languages if language not in known]
    if unknown or not languages or len(set(languages)) < len(languages):
        what = (
            f"has no sentences in {unknown[0]!r} with a {vocabulary} vocabulary"
            if unknown
            else f"cannot speak {', '.join(languages) or 'no language'}"
        )
        raise DemoUsageError(f"the demo corpus {what}; name each language once, of: {', '.join(known)}")
    return {
        "minutes": float(minutes),
        "voices": int(voices),
        "languages": list(languages),
        "seed": int(seed),
        "vocabulary": vocabulary,
        "revision": REVISION,
    }


def _existing(folder: Path, asked: Dict[str, Any]) -> Optional[DemoCorpus]:
    """The corpus that is there; None when the folder is free."""
    if folder.exists() and not folder.is_dir():
        raise DemoUsageError(f"{folder} is a file; name a folder for the demo corpus")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    try:
        made = json.loads((folder / "demo.json").read_bytes())
        before, clips, seconds = dict(made["asked"]), int(made["clips"]), float(made["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DemoUsageError(f"{folder} holds files that are no demo corpus; name a new or an empty folder") from None
    if before != asked:
        changed = ", ".join(
            f"{key} = {before.get(key)}, not {asked[key]}" for key in asked if before.get(key) != asked[key]
        )
        raise DemoUsageError(f"{folder} is a demo corpus with {changed}; remove it, or name another folder")
    if not (folder / "metadata.csv").exists() or len(list((folder / "wavs").glob("*.wav"))) != clips:
        raise DemoError(
            f"{folder} is a demo corpus of {clips} clips that has lost files; remove it, and it is made again"
        )
    return DemoCorpus(folder, clips, seconds, reused=True)


def _rename(part: Path, folder: Path, asked: Dict[str, Any]) -> Optional[DemoCorpus]:
    """Put the finished corpus in its place, unless another process was first with the same one."""
    try:
        if folder.exists():
            folder.rmdir()  # it was empty
        part.rename(folder)
        return None
    except OSError:
        found = _existing(folder, asked)
        if found:
            return found
        raise


def _sweep(folder: Path) -> None:
    """Remove what runs that were killed left beside the folder, a day ago or more."""
    for part in folder.parent.glob(f".{glob.escape(folder.name)}.part-*"):
        if time.time() - part.stat().st_mtime > 86_400:
            shutil.rmtree(part, ignore_errors=True)

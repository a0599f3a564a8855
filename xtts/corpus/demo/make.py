"""Make a demo corpus with espeak-ng, without a download.

It is in LJSpeech's format with two more columns: `wavs/NAME.wav` (22.05 kHz, 16 bit, mono) and `metadata.csv` with
lines `id|text|normalised|speaker|language`. `demo.json` records the request; a folder with the same request is reused.
The same seed gives the same bytes on every Python.
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

REVISION = 3  # increased when the output for a request changes
SHORTEST, LONGEST = 1.0, 9.2  # seconds of a clip; 800 mel frames are 9.28
LOUDNESS = 0.08  # RMS of a clip, of full scale
MAX_TEXT = 190  # characters of the normalised text; a recipe's max_text_length is 200
PEAK = 0.95  # of a clip, at most
SILENCE = 0.05  # seconds before and after the speech
NOISE_PEAK = 32  # of 32,768; background noise, 43 dB below LOUDNESS
SOURCES = (3, 6)  # espeak-ng's Klatt synthesizers with the lowest word error rate in short sentences
Progress = Callable[[float, float], None]  # seconds made so far, seconds requested
_STEPS = (0.618034, 0.754878, 0.414214, 0.569840)  # any number of multiples of these are evenly spread, modulo 1


class DemoError(XttsError):
    """Why a demo corpus cannot be made, and what to do."""


class DemoUsageError(DemoError, UsageError):
    """The request is not valid."""


class DemoCorpus(NamedTuple):
    """A demo corpus in a folder."""

    folder: Path
    clips: int
    seconds: float
    reused: bool  # whether it existed already


class Clip(NamedTuple):
    """One utterance of the corpus."""

    voice: EspeakVoice
    language: str
    text: str
    normalised: str  # the text that is spoken
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
    """The demo corpus in `folder`, made unless it exists. Every voice speaks every language for about the same time.

    It is written beside the folder and renamed at the end, so that an interruption leaves no partial corpus. Each voice
    speaks at least one sentence in each language, so many voices may take longer than `minutes`.
    """
    request = _check_request(minutes, voices, languages, seed, vocabulary)
    folder = Path(folder).resolve()
    try:
        found = _existing(folder, request)
        if found:
            return found
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        part = folder.parent / f".{folder.name}.part-{uuid.uuid4().hex[:8]}"
        try:
            part.mkdir()
            corpus = _write(part, request, progress)
            return _rename(part, folder, request) or corpus._replace(folder=folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except EspeakError as error:
        raise DemoError(str(error)) from None
    except OSError as error:
        raise DemoError(f"{error.filename or folder}: {error.strerror}; name a folder that can be written") from None


def vocabulary_of(folder: Union[str, Path]) -> Optional[str]:
    """The vocabulary of a demo corpus; None for any other corpus."""
    try:
        return str(json.loads((Path(folder) / "demo.json").read_bytes())["asked"]["vocabulary"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def demo_sentences(
    language: str, count: int, without: Iterable[str] = (), seed: int = 0, vocabulary: str = "wide"
) -> List[str]:
    """`count` distinct sentences of the demo corpus's grammar, none of `without`, in their own random stream."""
    drawn, left_out = draw_sentences(GRAMMARS[vocabulary][language], language, f"more {seed}"), set(without)
    return list(itertools.islice((text for text, _ in drawn if text not in left_out), count))


def demo_voice(number: int, seed: int) -> EspeakVoice:
    """The voice with a number, alternately low and high. The first few of a seed differ most, later ones less."""
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
    """Clips until there are `seconds`, each of the voice and language with the least speech so far."""
    languages = list(grammars)
    drawn = {language: draw_sentences(grammar, language, seed) for language, grammar in grammars.items()}
    spoken = [(0.0, number) for number in range(len(voices) * len(languages))]  # a heap of seconds by voice, language
    total = 0.0
    with Espeak() as espeak:
        while total < seconds or spoken[0][0] == 0:
            so_far, number = spoken[0]
            speaker, language = voices[number // len(languages)], languages[number % len(languages)]
            text, normalised = next(drawn[language])
            samples = np.frombuffer(espeak.speak(normalised, language, speaker), dtype=np.int16)
            clip = Clip(speaker, language, text, normalised, post_process(samples, zlib.crc32(normalised.encode())))
            if SHORTEST <= clip.seconds <= LONGEST:
                yield clip
                total += clip.seconds
                heapq.heapreplace(spoken, (so_far + clip.seconds, number))


def draw_sentences(grammar: Grammar, language: str, seed: Union[int, str]) -> Iterator[Tuple[str, str]]:
    """Distinct sentences, as pairs of written and normalised text."""
    chance = random.Random(f"sentences {seed} {language}")
    drawn: Set[str] = set()
    while True:
        text = grammar.sentence(chance)
        if text not in drawn:
            drawn.add(text)
            normalised = normalise(text, language)
            if len(normalised) <= MAX_TEXT:
                yield text, normalised


def post_process(samples: np.ndarray, seed: int) -> np.ndarray:
    """Make synthesized speech resemble a good recording: trimmed, at one level, with faint background noise.

    Without the noise pauses would be digital silence, which no recording has and no recogniser expects. Trimming is by
    hand, and all sums are of integers, so that every version of every library gives the same bytes.
    """
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) * 100 > np.abs(samples.astype(np.int32)).max(initial=1))
    if not len(loud):
        return samples[:0]
    speech = samples[loud[0] : loud[-1] + 1].astype(np.int64)
    level = math.sqrt(int((speech * speech).sum()) / len(speech))
    gain = min(LOUDNESS * 32768 / level, PEAK * 32768 / int(np.abs(speech).max()))
    silence = np.zeros(round(SILENCE * SAMPLE_RATE))
    noise = np.random.RandomState(seed).randint(-NOISE_PEAK, NOISE_PEAK + 1, size=len(speech) + 2 * len(silence))
    return np.rint(np.concatenate([silence, speech * gain, silence]) + noise).astype("<i2")


def _write(folder: Path, request: Dict[str, Any], progress: Optional[Progress]) -> DemoCorpus:
    """Write all files of the corpus, demo.json last."""
    (folder / "wavs").mkdir()
    seconds, target = 0.0, request["minutes"] * 60
    lines: Dict[str, str] = {}
    spoken: Dict[Tuple[str, str], int] = {}
    voices = [demo_voice(number, request["seed"]) for number in range(request["voices"])]
    grammars = {language: GRAMMARS[request["vocabulary"]][language] for language in request["languages"]}
    with closing(_clips(voices, grammars, request["seed"], target)) as clips:
        for clip in clips:
            pair = (clip.voice.name, clip.language)
            spoken[pair] = spoken.get(pair, 0) + 1
            name = f"{clip.voice.name}-{clip.language}-{spoken[pair]:04d}"
            lines[name] = f"{name}|{clip.text}|{clip.normalised}|{clip.voice.name}|{clip.language}\n"
            _write_wave(folder / "wavs" / f"{name}.wav", clip.samples)
            seconds += clip.seconds
            if progress:
                progress(seconds, target)
    (folder / "metadata.csv").write_bytes("".join(lines[name] for name in sorted(lines)).encode())
    made = {
        "asked": request,
        "clips": len(lines),
        "seconds": round(seconds, 3),
        "voices": [v._asdict() for v in voices],
    }
    (folder / "demo.json").write_bytes(json.dumps(made, indent=1, sort_keys=True).encode() + b"\n")
    return DemoCorpus(folder, len(lines), seconds, reused=False)


def _write_wave(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, len(samples), "NONE", "not compressed"))
        file.writeframes(samples.tobytes())


def _check_request(minutes: float, voices: int, languages: Sequence[str], seed: int, vocabulary: str) -> Dict[str, Any]:
    """The request, as demo.json records it."""
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


def _existing(folder: Path, request: Dict[str, Any]) -> Optional[DemoCorpus]:
    """The corpus in the folder; None when the folder is free."""
    if folder.exists() and not folder.is_dir():
        raise DemoUsageError(f"{folder} is a file; name a folder for the demo corpus")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    try:
        made = json.loads((folder / "demo.json").read_bytes())
        before, clips, seconds = dict(made["asked"]), int(made["clips"]), float(made["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DemoUsageError(
            f"{folder} contains files that are not a demo corpus; name a new or an empty folder"
        ) from None
    if before != request:
        changed = ", ".join(
            f"{key} = {before.get(key)}, not {request[key]}" for key in request if before.get(key) != request[key]
        )
        raise DemoUsageError(f"{folder} is a demo corpus with {changed}; remove it, or name another folder")
    if not (folder / "metadata.csv").exists() or len(list((folder / "wavs").glob("*.wav"))) != clips:
        raise DemoError(
            f"{folder} is a demo corpus of {clips} clips with missing files; remove it, and it is made again"
        )
    return DemoCorpus(folder, clips, seconds, reused=True)


def _rename(part: Path, folder: Path, request: Dict[str, Any]) -> Optional[DemoCorpus]:
    """Move the finished corpus to its place, unless another process made the same one first."""
    try:
        if folder.exists():
            folder.rmdir()  # which is empty
        part.rename(folder)
        return None
    except OSError:
        found = _existing(folder, request)
        if found:
            return found
        raise


def _sweep(folder: Path) -> None:
    """Remove drafts that killed processes left beside the folder a day ago or earlier."""
    for part in folder.parent.glob(f".{glob.escape(folder.name)}.part-*"):
        if time.time() - part.stat().st_mtime > 86_400:
            shutil.rmtree(part, ignore_errors=True)

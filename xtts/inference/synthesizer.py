"""A model that speaks: a run's folder, a text and a voice come in; a wave goes out, whole or as it is made.

from xtts import speak

speaker = speak.load("runs/dual_gpu")
wave = speaker.say("The valley was quiet.", voice="reference.wav")
wave.write("out.wav")
"""

import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import attrs
import numpy as np

from xtts.audio import resample, wav
from xtts.errors import XttsError
from xtts.inference import voices
from xtts.inference.generation import SPEAKER_RATE, GeneratedCodes, Generator, SamplingParams
from xtts.inference.loading import LoadedModel, load_model
from xtts.inference.vocoder import fade_edges, make_vocoder
from xtts.inference.voices import Note, Voice, VoiceError
from xtts.text.splitting import TextPiece, is_spoken, split_paragraphs, split_text
from xtts.training.reference_voices import VOICES

PathLike = Union[str, Path]
References = Union[Voice, PathLike, Sequence[PathLike]]

# A text that may need more codes than the model has is split. How many it needs: of a run's own model its voices tell,
# of which some are slower than the mean; of a published one, slow speech does.
SLOWER = 1.1
CODES_PER_CHARACTER = 2
SLOWEST, FASTEST = 0.5, 2.0
LARGEST_SEED = 2**31 - 1
FIRST, NEXT = 16, 32  # codes after which a stream is heard first, and then again
MOST_CHUNKS = 1000  # of a sentence; no model has so many codes


class SynthesisError(XttsError):
    """What cannot be said, and what to change."""


@attrs.frozen(eq=False)
class SpokenPiece:
    """One sentence, or a piece of a long one."""

    text: str  # as it was normalised
    codes: np.ndarray  # [codes] int32
    seconds: float  # of sound
    is_cut: bool  # the model did not stop by itself

    def as_json(self) -> Dict[str, Any]:
        return {
            "text": self.text,
            "seconds": round(self.seconds, 3),
            "codes": [int(code) for code in self.codes],
            "cut": self.is_cut,
        }


@attrs.frozen(eq=False)
class Wave:
    """What was said."""

    samples: np.ndarray  # float32, full scale at 1
    sample_rate: int
    language: str
    said: Tuple[SpokenPiece, ...]
    seconds_of_work: float

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    @property
    def real_time_factor(self) -> float:
        """Seconds of work for a second of sound."""
        return self.seconds_of_work / max(self.seconds, 1e-9)

    def write(self, path: PathLike) -> None:
        """Write it as 16-bit wav."""
        wav.write_wav(path, self.samples, self.sample_rate)

    def as_json(self) -> Dict[str, Any]:
        return {
            "language": self.language,
            "seconds": round(self.seconds, 3),
            "sample_rate": self.sample_rate,
            "real_time_factor": round(self.real_time_factor, 4),
            "sentences": [one.as_json() for one in self.said],
        }


class Synthesizer:
    """A model, ready to speak. Its compiled functions are traced at the first call of a size and kept."""

    def __init__(self, model: LoadedModel, note: Optional[Note] = None) -> None:
        self.model, self.synthesis = model, Generator(model)
        self._note = note or (lambda line: print(line, file=sys.stderr))
        self._digest = ""

    @classmethod
    def load(cls, folder: PathLike, note: Optional[Note] = None) -> "Synthesizer":
        """Load the model of a run's or an import's folder. `note` is called with each remark; default: print to stderr."""
        return cls(load_model(folder), note)

    @property
    def sample_rate(self) -> int:
        return self.model.sample_rate

    @property
    def voices(self) -> Dict[str, Path]:
        """The voices that came with the model, by name."""
        return voices.kept_voices(self.model.folder / VOICES)

    def voice(self, references: Optional[References] = None) -> Voice:
        """A voice of recordings, or of a file that one was kept in, or one of `voices` by its name, or the first."""
        if isinstance(references, Voice):
            return self._own(references, references.name or "the voice")
        if references is None:
            return self._first()
        several = [references] if isinstance(references, (str, Path)) else list(references)
        paths = [self._found(one) for one in several]
        files = [path for path in paths if path.suffix == voices.SUFFIX]
        if files and len(paths) > 1:
            raise VoiceError(f"{files[0]}: a kept voice stands alone; name it, or recordings, not both")
        if files:
            return self._own(voices.read_voice(files[0]), str(files[0]))
        return self._heard(paths)

    def say(
        self, text: str, voice: Optional[References] = None, language: Optional[str] = None, **settings: Any
    ) -> Wave:
        """A text in a voice; `settings`: temperature, top_k, top_p, repetition_penalty, seed, speed."""
        return self.stream(text, voice, language, **settings).whole()

    def stream(
        self, text: str, voice: Optional[References] = None, language: Optional[str] = None, **settings: Any
    ) -> "SpeechStream":
        """The same as `say`, in chunks of float32 samples as they are made, the first before a sentence is finished."""
        return SpeechStream(self, self._utterance(text, voice, language, settings))

    def language_of(self, text: str) -> str:
        """The language of a text by its letters, of those that the model has."""
        languages = self.model.tokenizer.languages
        letters = [letter for letter in text if letter.isalpha()]
        arabic = sum("\u0600" <= letter <= "\u06ff" for letter in letters)
        wanted = ["fa", "ar", "ur"] if 2 * arabic > len(letters) else []
        for language in [*wanted, self.model.language, "en", *languages]:
            if language in languages:
                return language
        return self.model.language

    def _utterance(
        self, text: str, voice: Optional[References], language: Optional[str], settings: Dict[str, Any]
    ) -> "_Utterance":
        speed, manner = self._manner(settings)
        language = language or self.language_of(text)
        self.model.tokenizer.encode("", language)  # a language that it lacks is told before anything else
        sentences = split_text(self._known(text, language), language, lambda piece: self._fits(piece, language))
        if not sentences:
            raise SynthesisError("there is nothing to say in the text; write a sentence with letters or digits")
        return _Utterance(sentences, language, self.voice(voice), speed, manner)

    def _manner(self, settings: Dict[str, Any]) -> Tuple[float, SamplingParams]:
        """The speed, and how codes are drawn; each within its range."""
        own = ("repetition_penalty", "temperature")
        chosen: Dict[str, Any] = {"speed": 1.0, **{name: getattr(self.model, name) for name in own}}
        chosen.update((name, value) for name, value in settings.items() if value is not None)
        for name, low, high in RANGES:
            if name in chosen and not low <= chosen[name] <= high:
                raise SynthesisError(
                    f"{name} = {chosen[name]:g} is out of range; write a number from {low:g} to {high:g}"
                )
        speed = float(chosen.pop("speed"))
        return speed, SamplingParams(**chosen)

    def _known(self, text: str, language: str) -> str:
        """The text without the characters that have no token, which are told."""
        unknown = set(self.model.tokenizer.unknown(text, language))
        if not unknown:
            return text
        whole = "\n\n".join(split_paragraphs(text, language))
        left = "".join(letter for letter in whole if not {letter, letter.lower()} & unknown)
        shown = " ".join(sorted(unknown)[:20])
        if not is_spoken(left) or sum(map(str.isalnum, left)) < sum(map(str.isalnum, whole)) / 2:
            raise SynthesisError(
                f"the model has never met most of the text's characters: {shown}; write it in the letters of its "
                f"languages ({', '.join(self.model.tokenizer.languages)})"
            )
        self._note(f"note: left out, as the model has never met them: {shown}")
        return left

    def _fits(self, text: str, language: str) -> bool:
        model, tokens = self.model, len(self.model.tokenizer.encode(text, language))
        if model.pace:
            return tokens <= min(model.longest_text, model.most_codes * model.pace / SLOWER)
        return tokens <= model.longest_text and CODES_PER_CHARACTER * len(text) <= max(model.most_codes, 64)

    def _spoken(self, utterance: "_Utterance", number: int, counts: Iterable[int] = ()) -> Iterator[GeneratedCodes]:
        """The codes of a sentence while they are said; the seed of each sentence is its own."""
        ids = self.model.tokenizer.encode(utterance.pieces[number].text, utterance.language)
        manner = attrs.evolve(utterance.manner, seed=(utterance.manner.seed + 7919 * number) % (LARGEST_SEED + 1))
        return self.synthesis.speak(ids, utterance.voice, manner, counts)

    def _said(self, piece: TextPiece, spoken: GeneratedCodes, samples: int) -> SpokenPiece:
        said = SpokenPiece(piece.text, spoken.codes, samples / self.sample_rate, spoken.is_cut)
        if spoken.is_cut:
            self._note(f"note: cut after {len(spoken.codes):,} codes, the model did not stop by itself: {piece.text}")
        elif not samples:
            self._note(f"note: not said, the model stopped at once; try another --seed: {piece.text}")
        return said

    def _pause(self, utterance: "_Utterance", number: int) -> np.ndarray:
        is_last = number + 1 == len(utterance.pieces)
        seconds = 0.0 if is_last else utterance.pieces[number].pause / utterance.speed
        return np.zeros(int(seconds * self.sample_rate), np.float32)

    def _found(self, reference: PathLike) -> Path:
        """The file of a voice that may be a path or a name."""
        kept, path = self.voices, Path(reference)
        if path.exists() or str(reference) not in kept:
            looks_like_name = not path.exists() and not path.suffix and path.name == str(reference)
            if looks_like_name:
                known = f"it has {voices.known_voices(list(kept))}" if kept else "it has none"
                raise VoiceError(
                    f"{self.model.folder} has no voice {reference!r}; {known}; name a file, or one of these"
                )
            return path
        return kept[str(reference)]

    def _first(self) -> Voice:
        kept = self.voices
        if not kept:
            raise VoiceError(
                f"{self.model.folder} keeps no voice of its own; name a recording of one with --speaker, "
                "6 s of clear speech or more"
            )
        name = min(kept)
        self._note(f"note: no voice was named; this is {name}, of {voices.known_voices(list(kept))}")
        return self.voice(kept[name])

    def _own(self, voice: Voice, place: str) -> Voice:
        self._digest = self._digest or self.model.digest()
        if voice.model != self._digest:
            raise VoiceError(
                f"{place}: another model made this voice, and {self.model.folder} would hear something else in it; "
                "make it anew from recordings, with --speaker and --save-voice"
            )
        return voice

    def _heard(self, paths: List[Path]) -> Voice:
        """The mean of what is heard in all cuts of all recordings."""
        rate = self.model.audio.sample_rate
        waves = [voices.load_reference(path, rate, self._note) for path in paths]
        cuts = np.concatenate([voices.reference_cuts(wave, self.model.reference_samples) for wave in waves])
        speaker = None
        if self.model.speaker is not None:
            each = [self.synthesis.speaker(resample.resample(wave, rate, SPEAKER_RATE)) for wave in waves]
            speaker = np.asarray(np.mean(each, axis=0), np.float32)
        self._digest = self._digest or self.model.digest()
        return Voice(self.synthesis.style(cuts), speaker, self._digest, paths[0].stem)


class SpeechStream:
    """Chunks of a text's sound, to go through once; `wave` is what was said so far. Or all of it: `whole`."""

    def __init__(self, speaker: Synthesizer, utterance: "_Utterance") -> None:
        self.sample_rate = speaker.sample_rate
        self._speaker, self._utterance = speaker, utterance
        self._said: List[SpokenPiece] = []
        self._chunks: List[np.ndarray] = []
        self._seconds_of_work = 0.0

    def __iter__(self) -> Iterator[np.ndarray]:
        return self._timed(self._pieces((FIRST, *[NEXT] * MOST_CHUNKS)))

    def whole(self) -> Wave:
        """Everything, each sentence made in one go."""
        for _ in self._timed(self._pieces(())):
            pass
        return self.wave

    @property
    def wave(self) -> Wave:
        samples = np.concatenate([np.zeros(0, np.float32), *self._chunks])
        return Wave(samples, self.sample_rate, self._utterance.language, tuple(self._said), self._seconds_of_work)

    def _timed(self, chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """The chunks that are some; what whoever takes them does meanwhile is not our work."""
        while True:
            started = time.monotonic()
            chunk = next(chunks, None)
            self._seconds_of_work += time.monotonic() - started
            if chunk is None:
                return
            if len(chunk):
                self._chunks.append(chunk)
                yield chunk

    def _pieces(self, counts: Iterable[int]) -> Iterator[np.ndarray]:
        speaker, utterance = self._speaker, self._utterance
        for number, piece in enumerate(utterance.pieces):
            render, samples = make_vocoder(speaker.model, speaker.synthesis, utterance.voice, utterance.speed), 0
            for spoken in speaker._spoken(utterance, number, counts):
                sound = fade_edges(render.add(spoken), self.sample_rate, is_first=not samples, is_last=spoken.is_last)
                samples += len(sound)
                yield sound
            self._said.append(speaker._said(piece, spoken, samples))
            yield speaker._pause(utterance, number)
        if not any(one.seconds for one in self._said):
            raise SynthesisError(
                "the model said nothing, it stopped at once each time; try another --seed, or train longer"
            )


@attrs.frozen(eq=False)
class _Utterance:
    """What is to be said, and how."""

    pieces: List[TextPiece]
    language: str
    voice: Voice
    speed: float
    manner: SamplingParams


RANGES = (  # of the settings
    ("temperature", 0.01, 10.0),
    ("top_k", 1, 1_000_000),
    ("top_p", 0.001, 1.0),
    ("repetition_penalty", 1.0, 100.0),
    ("speed", SLOWEST, FASTEST),
    ("seed", 0, LARGEST_SEED),
)

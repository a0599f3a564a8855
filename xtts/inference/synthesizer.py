"""Speech synthesis: text and a voice to a wave, at once or as a stream.

from xtts.inference.synthesizer import Synthesizer

synthesizer = Synthesizer.load("runs/dual_gpu")
wave = synthesizer.say("The valley was quiet.", voice="reference.wav")
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
from xtts.inference.generation import SPEAKER_SAMPLE_RATE, GeneratedCodes, Generator, SamplingParams
from xtts.inference.loading import LoadedModel, load_model
from xtts.inference.vocoder import fade_edges, make_vocoder
from xtts.inference.voices import Note, Voice, VoiceError
from xtts.text.splitting import TextPiece, is_spoken
from xtts.text.tokenizer import encode_spoken
from xtts.training.reference_voices import VOICES
from xtts.weights.limits import Limits

PathLike = Union[str, Path]
References = Union[Voice, PathLike, Sequence[PathLike]]

MIN_SPEED, MAX_SPEED = 0.5, 2.0
MAX_SEED = 2**31 - 1
FIRST_CHUNK_CODES, CHUNK_CODES = 16, 32  # codes in the first chunk of a stream, and in all others
MAX_CHUNKS = 1000  # of a sentence; more than any model generates


class SynthesisError(XttsError):
    """Why a text cannot be spoken, and what to change."""


@attrs.frozen(eq=False)
class SpokenPiece:
    """One sentence, or a piece of a long one."""

    text: str  # normalised
    codes: np.ndarray  # [codes] int32
    seconds: float  # of audio
    is_cut: bool  # at the maximum length, before the model stopped

    def as_json(self) -> Dict[str, Any]:
        return {
            "text": self.text,
            "seconds": round(self.seconds, 3),
            "codes": [int(code) for code in self.codes],
            "cut": self.is_cut,
        }


@attrs.frozen(eq=False)
class Wave:
    """Generated speech."""

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
        """Seconds of computation per second of audio."""
        return self.seconds_of_work / max(self.seconds, 1e-9)

    def write(self, path: PathLike) -> None:
        """Write a 16-bit wav file."""
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
    """A model that is ready to speak. Its compiled functions are traced once for each size of their inputs."""

    def __init__(self, model: LoadedModel, note: Optional[Note] = None) -> None:
        self.model = model
        self.generator = Generator(model)
        self._note = note or (lambda line: print(line, file=sys.stderr))
        self._digest = ""

    @classmethod
    def load(cls, folder: PathLike, note: Optional[Note] = None) -> "Synthesizer":
        """Load the model of a run or of an import. `note` is called with remarks; default: print to stderr."""
        return cls(load_model(folder), note)

    @property
    def sample_rate(self) -> int:
        return self.model.sample_rate

    @property
    def voices(self) -> Dict[str, Path]:
        """The voices that came with the model, by name."""
        return voices.kept_voices(self.model.folder / VOICES)

    def voice(self, references: Optional[References] = None) -> Voice:
        """A voice from recordings, from a voice file, from `voices` by name, or by default the first of `voices`."""
        if isinstance(references, Voice):
            return self._check_model(references, references.name or "the voice")
        if references is None:
            return self._default_voice()
        several = [references] if isinstance(references, (str, Path)) else list(references)
        paths = [self._find_reference(one) for one in several]
        files = [path for path in paths if path.suffix == voices.SUFFIX]
        if files and len(paths) > 1:
            raise VoiceError(f"{files[0]}: name one voice file or several recordings, not both")
        if files:
            return self._check_model(voices.read_voice(files[0]), str(files[0]))
        return self._encode_voice(paths)

    def say(
        self, text: str, voice: Optional[References] = None, language: Optional[str] = None, **settings: Any
    ) -> Wave:
        """Speak a text. `settings`: temperature, top_k, top_p, repetition_penalty, seed, speed."""
        return self.stream(text, voice, language, **settings).whole()

    def stream(
        self, text: str, voice: Optional[References] = None, language: Optional[str] = None, **settings: Any
    ) -> "SpeechStream":
        """Like `say`, as an iterator over chunks of float32 samples; the first comes before a sentence is done."""
        return SpeechStream(self, self._utterance(text, voice, language, settings))

    def language_of(self, text: str) -> str:
        """Guess the language of a text from its script, among those of the model."""
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
        speed, params = self._sampling_params(settings)
        language = language or self.language_of(text)
        self.model.tokenizer.encode("", language)  # an unknown language is the first error
        frontend = self.model.tokenizer.frontend
        known = self._drop_unknown(text, language)
        sentences = frontend.split(known, language, lambda piece: self._fits(piece, language))
        sentences = [piece for piece in sentences if is_spoken(piece.text)]
        if not sentences:
            raise SynthesisError("there is nothing to speak in the text; write a sentence with letters or digits")
        return _Utterance(sentences, language, self.voice(voice), speed, params)

    def _sampling_params(self, settings: Dict[str, Any]) -> Tuple[float, SamplingParams]:
        """The speed and the sampling parameters, each within its range."""
        of_model = ("repetition_penalty", "temperature")
        chosen: Dict[str, Any] = {"speed": 1.0, **{name: getattr(self.model, name) for name in of_model}}
        chosen.update((name, value) for name, value in settings.items() if value is not None)
        for name, low, high in SETTING_RANGES:
            if name in chosen and not low <= chosen[name] <= high:
                raise SynthesisError(
                    f"{name} = {chosen[name]:g} is out of range; write a number from {low:g} to {high:g}"
                )
        speed = float(chosen.pop("speed"))
        return speed, SamplingParams(**chosen)

    def _drop_unknown(self, text: str, language: str) -> str:
        """The text without characters that have no token, where the front end does not keep them; they are reported."""
        frontend = self.model.tokenizer.frontend
        unknown = set(self.model.tokenizer.unknown(frontend.spoken(text, language), language))
        if not unknown:
            return text
        whole = frontend.whole(text, language)
        known = "".join(letter for letter in whole if not {letter, letter.lower()} & unknown)
        shown = " ".join(sorted(unknown)[:20])
        if not is_spoken(known) or sum(map(str.isalnum, known)) < sum(map(str.isalnum, whole)) / 2:
            raise SynthesisError(
                f"the model does not know most of the text's characters: {shown}; write it in the script of its "
                f"languages ({', '.join(self.model.tokenizer.languages)})"
            )
        if frontend.keeps_unknown(language):
            self._note(f"note: read as unknown, because the model does not know them: {shown}")
            return text
        self._note(f"note: left out, because the model does not know them: {shown}")
        return known

    def _fits(self, text: str, language: str) -> bool:
        limits = Limits(self.model.max_text_tokens, self.model.max_codes, self.model.tokens_per_code)
        return limits.fits(len(self.model.tokenizer.encode(text, language)), len(text))

    def _generate(self, utterance: "_Utterance", number: int, counts: Iterable[int] = ()) -> Iterator[GeneratedCodes]:
        """Generate the codes of a sentence. Each sentence has its own seed."""
        ids = encode_spoken(self.model.tokenizer, utterance.pieces[number].text, utterance.language)
        params = attrs.evolve(utterance.params, seed=(utterance.params.seed + 7919 * number) % (MAX_SEED + 1))
        return self.generator.generate(ids, utterance.voice, params, counts)

    def _report(self, piece: TextPiece, generated: GeneratedCodes, samples: int) -> SpokenPiece:
        said = SpokenPiece(piece.text, generated.codes, samples / self.sample_rate, generated.is_cut)
        if generated.is_cut:
            self._note(f"note: cut after {len(generated.codes):,} codes, because the model did not stop: {piece.text}")
        elif not samples:
            self._note(f"note: not spoken, because the model stopped at once; try another --seed: {piece.text}")
        return said

    def _pause(self, utterance: "_Utterance", number: int) -> np.ndarray:
        is_last = number + 1 == len(utterance.pieces)
        seconds = 0.0 if is_last else utterance.pieces[number].pause / utterance.speed
        return np.zeros(int(seconds * self.sample_rate), np.float32)

    def _find_reference(self, reference: PathLike) -> Path:
        """The file of a voice that is given by its path or its name."""
        kept, path = self.voices, Path(reference)
        if path.exists() or str(reference) not in kept:
            looks_like_name = not path.exists() and not path.suffix and path.name == str(reference)
            if looks_like_name:
                known = f"it has {voices.list_names(list(kept))}" if kept else "it has none"
                raise VoiceError(
                    f"{self.model.folder} has no voice {reference!r}; {known}; name a file, or one of these"
                )
            return path
        return kept[str(reference)]

    def _default_voice(self) -> Voice:
        kept = self.voices
        if not kept:
            raise VoiceError(
                f"{self.model.folder} has no voices of its own; name a recording with --speaker, "
                "6 s of clear speech or more"
            )
        name = min(kept)
        self._note(f"note: no voice was named; using {name}, of {voices.list_names(list(kept))}")
        return self.voice(kept[name])

    def _check_model(self, voice: Voice, place: str) -> Voice:
        self._digest = self._digest or self.model.digest()
        if voice.model != self._digest:
            raise VoiceError(
                f"{place}: this voice was made by another model and cannot be used with {self.model.folder}; "
                "make it again from recordings, with --speaker and --save-voice"
            )
        return voice

    def _encode_voice(self, paths: List[Path]) -> Voice:
        """Encode recordings: the mean over all chunks of all of them."""
        rate = self.model.audio.sample_rate
        waves = [voices.load_reference(path, rate, self._note) for path in paths]
        chunks = np.concatenate([voices.split_reference(wave, self.model.reference_samples) for wave in waves])
        embedding = None
        if self.model.speaker is not None:
            each = [
                self.generator.speaker_embedding(resample.resample(wave, rate, SPEAKER_SAMPLE_RATE)) for wave in waves
            ]
            embedding = np.asarray(np.mean(each, axis=0), np.float32)
        self._digest = self._digest or self.model.digest()
        return Voice(self.generator.conditioning_latents(chunks), embedding, self._digest, paths[0].stem)


class SpeechStream:
    """Chunks of a text's speech, to iterate over once; `wave` is the speech so far, `whole()` all of it."""

    def __init__(self, synthesizer: Synthesizer, utterance: "_Utterance") -> None:
        self.sample_rate = synthesizer.sample_rate
        self._synthesizer = synthesizer
        self._utterance = utterance
        self._said: List[SpokenPiece] = []
        self._chunks: List[np.ndarray] = []
        self._seconds_of_work = 0.0

    def __iter__(self) -> Iterator[np.ndarray]:
        return self._timed(self._pieces((FIRST_CHUNK_CODES, *[CHUNK_CODES] * MAX_CHUNKS)))

    def whole(self) -> Wave:
        """All of the speech, each sentence generated in one call."""
        for _ in self._timed(self._pieces(())):
            pass
        return self.wave

    @property
    def wave(self) -> Wave:
        samples = np.concatenate([np.zeros(0, np.float32), *self._chunks])
        return Wave(samples, self.sample_rate, self._utterance.language, tuple(self._said), self._seconds_of_work)

    def _timed(self, chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """The chunks that are not empty; time that the consumer takes is not counted."""
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
        synthesizer, utterance = self._synthesizer, self._utterance
        for number, piece in enumerate(utterance.pieces):
            samples, vocoder = (
                0,
                make_vocoder(synthesizer.model, synthesizer.generator, utterance.voice, utterance.speed),
            )
            for generated in synthesizer._generate(utterance, number, counts):
                sound = fade_edges(
                    vocoder.add(generated), self.sample_rate, is_first=not samples, is_last=generated.is_last
                )
                samples += len(sound)
                yield sound
            self._said.append(synthesizer._report(piece, generated, samples))
            yield synthesizer._pause(utterance, number)
        if not any(one.seconds for one in self._said):
            raise SynthesisError(
                "nothing was spoken: the model stopped at once each time; try another --seed, or train longer"
            )


@attrs.frozen(eq=False)
class _Utterance:
    """A text to speak, and how."""

    pieces: List[TextPiece]
    language: str
    voice: Voice
    speed: float
    params: SamplingParams


SETTING_RANGES = (
    ("temperature", 0.01, 10.0),
    ("top_k", 1, 1_000_000),
    ("top_p", 0.001, 1.0),
    ("repetition_penalty", 1.0, 100.0),
    ("speed", MIN_SPEED, MAX_SPEED),
    ("seed", 0, MAX_SEED),
)

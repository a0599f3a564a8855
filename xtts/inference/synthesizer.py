"""Speech synthesis: text and a voice to a wave, at once or as a stream.

from xtts.inference.synthesizer import Synthesizer

synthesizer = Synthesizer.load("runs/dual_gpu")
wave = synthesizer.say("The valley was quiet.", voice="reference.wav")
wave.write("out.wav")
"""

import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import attrs
import numpy as np

from xtts.inference import voices
from xtts.inference.generation import SPEAKER_SAMPLE_RATE, GeneratedCodes, Generator
from xtts.inference.loading import LoadedModel, load_model
from xtts.inference.references import Note, References, VoiceError
from xtts.inference.settings import MAX_SEED, SpeechSettings, SynthesisError, choose_references, choose_settings
from xtts.inference.speech import SpokenPiece, Wave
from xtts.inference.vocoder import fade_edges, make_vocoder
from xtts.inference.voices import Voice
from xtts.planning.limits import Limits
from xtts.text.splitting import TextPiece, is_spoken, split_text
from xtts.text.tokenizer import encode_spoken
from xtts.weights.voice_files import STUDIO, SUFFIX, VOICES

PathLike = Union[str, Path]
Recordings = Union[Voice, PathLike, Sequence[PathLike]]

MAX_CHUNKS = 1000  # of a sentence; more than any model generates


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

    def voice(self, references: Optional[Recordings] = None, **settings: Any) -> Voice:
        """A voice from recordings, from a voice file, from `voices` by name, or by default the first of `voices`.

        `settings`, of recordings: max_ref_len, sound_norm_refs, librosa_trim_db, and with published weights
        gpt_cond_len and gpt_cond_chunk_len.
        """
        prepare = choose_references(self.model, settings)
        if isinstance(references, Voice):
            return self._check_model(references, references.name or "the voice")
        references = self._default_voice() if references is None else references
        several = [references] if isinstance(references, (str, Path)) else list(references)
        paths = [self._find_reference(one) for one in several]
        files = [path for path in paths if path.suffix == SUFFIX]
        if files and len(paths) > 1:
            raise VoiceError(f"{files[0]}: name one voice file or several recordings, not both")
        if files:
            return self._check_model(voices.read_voice(files[0]), str(files[0]))
        return self._encode_voice(paths, prepare)

    def say(
        self, text: str, voice: Optional[Recordings] = None, language: Optional[str] = None, **settings: Any
    ) -> Wave:
        """Speak a text.

        `settings`, of sampling: temperature, top_k, top_p, repetition_penalty, seed, num_beams and length_penalty; of
        the sound: speed, sound ("published" or "xtts"), fade, pause, chunk and overlap.
        """
        return self.stream(text, voice, language, **settings).whole()

    def stream(
        self, text: str, voice: Optional[Recordings] = None, language: Optional[str] = None, **settings: Any
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
        self, text: str, voice: Optional[Recordings], language: Optional[str], settings: Dict[str, Any]
    ) -> "_Utterance":
        chosen = choose_settings(self.model, settings)
        language = language or self.language_of(text)
        self.model.tokenizer.encode("", language)  # an unknown language is the first error
        frontend = self.model.tokenizer.frontend
        known = self._drop_unknown(text, language)
        if chosen.sound.by_sentence:
            sentences = split_text(known, language, lambda piece: self._fits(piece, language), _as_written)
        else:
            sentences = frontend.split(known, language, lambda piece: self._fits(piece, language))
        sentences = [piece for piece in sentences if is_spoken(piece.text)]
        if not sentences:
            raise SynthesisError("there is nothing to speak in the text; write a sentence with letters or digits")
        return _Utterance(sentences, language, self.voice(voice), chosen)

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
        sampling = utterance.settings.sampling
        params = attrs.evolve(sampling, seed=(sampling.seed + 7919 * number) % (MAX_SEED + 1))
        return self.generator.generate(ids, utterance.voice, params, counts)

    def _report(self, piece: TextPiece, generated: GeneratedCodes, samples: int) -> SpokenPiece:
        said = SpokenPiece(piece.text, generated.codes, samples / self.sample_rate, generated.is_cut)
        if generated.is_cut:
            self._note(f"note: cut after {len(generated.codes):,} codes, because the model did not stop: {piece.text}")
        elif not samples:
            self._note(f"note: not spoken, because the model stopped at once; try another --seed: {piece.text}")
        return said

    def _pause(self, utterance: "_Utterance", number: int) -> np.ndarray:
        settings, is_last = utterance.settings, number + 1 == len(utterance.pieces)
        if is_last and not settings.sound.pause_at_end:
            return np.zeros(0, np.float32)
        by_punctuation = utterance.pieces[number].pause / settings.speed
        seconds = by_punctuation if settings.sound.pause is None else settings.sound.pause
        return np.zeros(round(seconds * self.sample_rate), np.float32)

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

    def _default_voice(self) -> Path:
        kept = self.voices
        if not kept:
            raise VoiceError(
                f"{self.model.folder} has no voices of its own; name a recording with --speaker, "
                "6 s of clear speech or more"
            )
        name = min(kept)
        self._note(f"note: no voice was named; using {name}, of {voices.list_names(list(kept))}")
        return kept[name]

    def _check_model(self, voice: Voice, place: str) -> Voice:
        if voice.model == STUDIO and self.model.is_published:
            size = self.model.gpt.size.width, self.model.speaker_width
            if (voice.conditioning_latents.shape[1], np.size(np.asarray(voice.speaker_embedding))) == size:
                return voice
        self._digest = self._digest or self.model.digest()
        if voice.model != self._digest:
            raise VoiceError(
                f"{place}: this voice was made by another model and cannot be used with {self.model.folder}; "
                "make it again from recordings, with --speaker and --save-voice"
            )
        return voice

    def _encode_voice(self, paths: List[Path], prepare: References) -> Voice:
        """Encode recordings: latents are the mean over chunks, the speaker embedding the mean over recordings."""
        rate = self.model.audio.sample_rate
        waves = [prepare.load(path, rate, self._note) for path in paths]
        chunks = prepare.chunks(waves, rate)
        embedding = None
        if self.model.speaker is not None:
            each = [
                self.generator.speaker_embedding(prepare.resample(wave, rate, SPEAKER_SAMPLE_RATE)) for wave in waves
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
        sound = self._utterance.settings.sound
        return self._timed(self._pieces((sound.first_chunk, *[sound.chunk] * MAX_CHUNKS)))

    def whole(self) -> Wave:
        """All of the speech, each sentence generated in one call."""
        for _ in self._timed(self._pieces(())):
            pass
        return self.wave

    @property
    def wave(self) -> Wave:
        samples = np.concatenate([np.zeros(0, np.float32), *self._chunks])
        language, full_scale = self._utterance.language, self._utterance.settings.sound.full_scale
        return Wave(samples, self.sample_rate, language, tuple(self._said), self._seconds_of_work, full_scale)

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
        model, generator = synthesizer.model, synthesizer.generator
        speed, _, sound = utterance.settings
        for number, piece in enumerate(utterance.pieces):
            samples, vocoder = 0, make_vocoder(model, generator, utterance.voice, speed, sound)
            for generated in synthesizer._generate(utterance, number, counts):
                wave, is_first = vocoder.add(generated), not samples
                wave = fade_edges(wave, self.sample_rate, sound.fade, is_first=is_first, is_last=generated.is_last)
                samples += len(wave)
                yield wave
            self._said.append(synthesizer._report(piece, generated, samples))
            yield synthesizer._pause(utterance, number)
        if not any(one.seconds for one in self._said):
            raise SynthesisError(
                "nothing was spoken: the model stopped at once each time; try another --seed, or train longer"
            )


def _as_written(text: str, language: str) -> str:
    """A text whose pieces the tokenizer normalises."""
    return " ".join(text.split())


@attrs.frozen(eq=False)
class _Utterance:
    """A text to speak, and how."""

    pieces: List[TextPiece]
    language: str
    voice: Voice
    settings: SpeechSettings

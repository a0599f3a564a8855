"""Score the waves of an utterance: its recording, the recording through the codec, and generated speech."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.audio import resample, wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import MelSpec, log_mel
from xtts.corpus.utterances import Utterance
from xtts.evaluation import recognisers
from xtts.evaluation.figures import RECORDING, UtteranceScores, WaveScores
from xtts.evaluation.metrics import DECIBELS, mel_cepstral_distortion
from xtts.evaluation.speaker_similarity import SAMPLE_RATE as VOICE_RATE
from xtts.evaluation.speaker_similarity import VoiceEncoder, make_voice_encoder
from xtts.inference import synthesizer
from xtts.model.codec import Codec
from xtts.planning.dataset import Dataset
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES
from xtts.recipe.schema import Recipe
from xtts.text.normalise import normalise

RECORDINGS_PER_SPEAKER = 5  # that speaker similarity is measured against
SEED = 0  # of sampling: every evaluation generates the same speech

Tensor = Any  # tf.Tensor; TensorFlow brings no types


class EvaluationItem(NamedTuple):
    """A held-out utterance, and another recording of its speaker to clone the voice from."""

    utterance: Utterance
    reference: Utterance


class Sound(NamedTuple):
    """A wave at the recipe's rate."""

    samples: np.ndarray
    is_cut: bool = False


WaveSource = Callable[[EvaluationItem], Sound]


def speak_with(speaker: synthesizer.Synthesizer, sample_rate: int) -> WaveSource:
    """A source of generated speech, resampled to the recipe's sample rate."""

    def generate(item: EvaluationItem) -> Sound:
        wave = speaker.say(item.utterance.text, item.reference.path, language=item.utterance.language, seed=SEED)
        samples = resample.resample(wave.samples, wave.sample_rate, sample_rate) if len(wave.samples) else wave.samples
        return Sound(samples, any(one.is_cut for one in wave.said))

    return generate


class CodecRoundTrip:
    """Passes recordings through the codec and Griffin-Lim, and measures the reconstruction error of their mels."""

    def __init__(self, codec: Codec, mel_norms: np.ndarray, device: str, recipe: Recipe) -> None:
        self._mel_norms, self._device, self._spec = mel_norms, device, MelSpec.of(recipe.audio)
        self._codes = SIZES[recipe.model.size].codec.codes
        self._errors: List[float] = []
        self._distortions: List[float] = []
        self._used: List[np.ndarray] = []

        def round_trip(mels: Tensor, lengths: Tensor) -> Any:
            codes = codec.encode(mels, lengths)
            return codes, codec.decode(codes, (lengths + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE)

        self._function = compat.compiled(round_trip, autograph=False)

    def __call__(self, item: EvaluationItem) -> Sound:
        wave = wav.load_audio(item.utterance.path, self._spec.sample_rate)
        mel = log_mel(wave, self._spec, self._mel_norms)
        size = 32 * FRAMES_PER_CODE
        while size < len(mel):
            size *= 2  # powers of two, for few traces
        padded = np.zeros((1, size, mel.shape[1]), np.float32)
        padded[0, : len(mel)] = mel
        with tf.device(self._device):
            codes, reconstructed = self._function(tf.constant(padded), tf.constant([len(mel)], tf.int32))
        decoded = np.asarray(reconstructed.numpy()[0, : len(mel)])
        self._used.append(codes.numpy()[0, : -(-len(mel) // FRAMES_PER_CODE)])
        self._errors.append(float(DECIBELS * np.abs((decoded - mel) * self._mel_norms).mean()))
        self._distortions.append(mel_cepstral_distortion(decoded * self._mel_norms, mel * self._mel_norms))
        return Sound(griffin_lim(decoded, self._spec, mel_norms=self._mel_norms))

    def figures(self) -> Dict[str, float]:
        """Means over all recordings so far."""
        counts = np.bincount(np.concatenate(self._used), minlength=self._codes)
        shares = counts[counts > 0] / counts.sum()
        return {
            "mel_error": float(np.mean(self._errors)),  # dB
            "distortion": float(np.mean(self._distortions)),  # dB
            "codes_used": float((counts > 0).mean()),
            "perplexity": float(np.exp(-(shares * np.log(shares)).sum())),
        }


class SpeakerScorer:
    """The similarity of waves to each speaker of a run, by speaker embeddings."""

    def __init__(self, dataset: Dataset, without: Set[str], sample_rate: int, is_plain: bool) -> None:
        self._rate = sample_rate
        some: Dict[str, List[np.ndarray]] = {}
        for one in dataset.train.corpus.utterances:
            if one.id not in without and len(some.setdefault(one.speaker, [])) < RECORDINGS_PER_SPEAKER:
                some[one.speaker].append(wav.load_audio(one.path, VOICE_RATE))
        known = {speaker: waves for speaker, waves in some.items() if waves}
        self._encode: VoiceEncoder = make_voice_encoder([wave for waves in known.values() for wave in waves], is_plain)
        means = {speaker: self._encode(waves).mean(axis=0) for speaker, waves in known.items()}
        self._speakers = {speaker: mean / max(float(np.linalg.norm(mean)), 1e-9) for speaker, mean in means.items()}
        self.name = self._encode.name

    def __call__(self, waves: Mapping[str, np.ndarray], speaker: str) -> Dict[str, Tuple[float, Optional[str]]]:
        """The similarity of each wave to `speaker`, and the most similar speaker; None if there is only one."""
        resampled = {name: resample.resample(wave, self._rate, VOICE_RATE) for name, wave in waves.items() if len(wave)}
        if not resampled or speaker not in self._speakers:
            return {}
        found = {}
        for name, vector in zip(resampled, self._encode(list(resampled.values()))):
            alike = {other: float(vector @ one) for other, one in self._speakers.items()}
            found[name] = alike[speaker], max(alike, key=lambda other: alike[other]) if len(alike) > 1 else None
        return found


@attrs.frozen(eq=False)
class Scorer:
    """Scores the waves of an utterance from all sources."""

    sources: Mapping[str, WaveSource]
    spec: MelSpec
    speech_recognisers: Sequence[recognisers.Recogniser]
    voices: SpeakerScorer

    def __call__(self, item: EvaluationItem) -> UtteranceScores:
        one = item.utterance
        wanted = recognisers.split_words(one.text) if is_english(one) and self.speech_recognisers else []
        sounds = {name: source(item) for name, source in self.sources.items()}
        recorded = log_mel(sounds[RECORDING].samples, self.spec)
        voices = self.voices({name: sound.samples for name, sound in sounds.items()}, one.speaker)
        waves = {
            name: attrs.evolve(
                self._score(name, sound, wanted, recorded),
                similarity=voices[name][0] if name in voices else None,
                nearest=voices[name][1] if name in voices else None,
            )
            for name, sound in sounds.items()
        }
        letters = sum(map(str.isalnum, normalise(one.text, one.language)))
        return UtteranceScores(
            one.id, one.text, one.language, one.speaker, item.reference.id, letters, len(wanted), waves
        )

    def _score(self, name: str, sound: Sound, wanted: Sequence[str], recorded: np.ndarray) -> WaveScores:
        wave = sound.samples
        transcripts = {}
        if wanted:
            resampled = resample.resample(wave, self.spec.sample_rate, recognisers.SAMPLE_RATE) if len(wave) else wave
            transcripts = {one.name: one.transcribe(resampled) for one in self.speech_recognisers}
        return WaveScores(
            seconds=len(wave) / self.spec.sample_rate,
            distortion=None if name == RECORDING or not len(wave) else self._distortion(wave, recorded),
            heard=transcripts,
            edits={
                name: recognisers.edit_distance(wanted, recognisers.split_words(text))
                for name, text in transcripts.items()
            },
            is_cut=sound.is_cut,
        )

    def _distortion(self, wave: np.ndarray, recorded: np.ndarray) -> float:
        """Mel-cepstral distortion against the recording, in dB.

        Griffin-Lim drops less than a frame; mels that differ by one frame are compared without time warping.
        """
        logs = log_mel(wave, self.spec)
        shorter = min(len(logs), len(recorded))
        is_in_step = max(len(logs), len(recorded)) - shorter <= 1
        return (
            mel_cepstral_distortion(logs[:shorter], recorded[:shorter])
            if is_in_step
            else mel_cepstral_distortion(logs, recorded)
        )


def is_english(one: Utterance) -> bool:
    """Whether the utterance is in the language of the recognisers."""
    return one.language.lower().partition("-")[0] == recognisers.LANGUAGE

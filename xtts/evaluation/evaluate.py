"""Evaluate a run: held-out losses, mel-cepstral distortion, word error rate and speaker similarity.

The held-out utterances are found again through the run's recipe. Each is scored three times: as it was recorded,
through the codec and Griffin-Lim, and said by the model from its text, in the voice of another recording of the same
speaker. Speech recognisers and a voice encoder score all three alike.
"""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat, files
from xtts.audio import resample, wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import MelSpec, log_mel
from xtts.corpus.demo import make
from xtts.corpus.utterances import Utterance
from xtts.errors import UsageError, XttsError
from xtts.evaluation import recognisers
from xtts.evaluation.figures import CODEC, RECORDING, SAID, Evaluation, UtteranceScores, WaveScores
from xtts.evaluation.metrics import DECIBELS, mel_cepstral_distortion
from xtts.evaluation.speaker_similarity import SAMPLE_RATE as VOICE_RATE
from xtts.evaluation.speaker_similarity import VoiceEncoder, make_voice_encoder
from xtts.inference import synthesizer
from xtts.model.codec import Codec
from xtts.pipeline.codec_source import CodecSource
from xtts.pipeline.features import Features
from xtts.pipeline.gpt_source import GptSource
from xtts.pipeline.sources import BatchSource
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Dataset, Log, Split, load_dataset
from xtts.planning.shapes import Shape
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES
from xtts.progress import ProgressBar
from xtts.recipe import loading
from xtts.recipe.schema import Recipe
from xtts.reporting import run_folder
from xtts.reporting.journal import Journal
from xtts.text.normalise import normalise
from xtts.training.checkpoint import Checkpoints
from xtts.training.context import HELD_ROWS, MOST_HELD, held_out_shapes
from xtts.training.stages.codec import TrainableCodec
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import TrainableModel
from xtts.weights import assignment, model_folder

FILE = "evaluation.json"
DEFAULT_UTTERANCES = 20  # evaluated when no number is given
MIN_REFERENCE_SECONDS = 2.0  # of a reference recording, if there is one that long
RECORDINGS_PER_SPEAKER = 5  # with which other waves are compared
EXTRA_SENTENCES = 5000  # of the demo corpus's grammar, for the language model of sphinx
SEED = 0  # of sampling: every evaluation generates the same speech

Tensor = Any  # tf.Tensor; TensorFlow brings no types
PathLike = Union[str, Path]


class EvaluateError(XttsError):
    """Why a run cannot be evaluated, and what to do."""


class TestItem(NamedTuple):
    """An utterance, and another recording of its speaker to clone the voice from."""

    utterance: Utterance
    reference: Utterance


class Sound(NamedTuple):
    """A wave at the recipe's rate."""

    samples: np.ndarray
    is_cut: bool = False


WaveSource = Callable[[TestItem], Sound]


def evaluate(
    folder: PathLike, utterances: int = DEFAULT_UTTERANCES, judge: str = "auto", log: Log = print
) -> Evaluation:
    """Evaluate a run on at most `utterances` held-out ones, and write evaluation.json into its folder.

    A run whose GPT is not trained yet is evaluated by its codec alone.
    """
    if utterances < 1:
        raise UsageError(f"--utterances {utterances}: nothing can be evaluated on that; ask for 1 or more")
    recognisers.check_recognisers(judge)
    folder = run_folder.read_run_folder(folder).folder
    recipe = loading.load_recipe(folder / "recipe.toml")
    model = _load_model(folder, recipe)
    dataset = load_dataset(recipe, log)
    part = dataset.held_out if len(dataset.held_out.lengths) else dataset.train
    read = {one.text for one in dataset.train.corpus.utterances} if part is dataset.held_out else set()
    chosen = _choose_items(part, dataset, read, utterances)
    held = [one.text for one in part.corpus.utterances if _is_english(one)]
    speech_recognisers = recognisers.recognisers(judge, lambda: _language_model_texts(dataset, held), held, log)
    voices = _SpeakerScorer(dataset, {one.utterance.id for one in chosen}, recipe.audio.sample_rate, judge == "none")
    losses, round_trip = _held_out_losses(recipe, dataset, part, model), _CodecRoundTrip(model, recipe)
    sources: Dict[str, WaveSource] = {
        RECORDING: lambda one: Sound(wav.load_audio(one.utterance.path, recipe.audio.sample_rate))
    }
    sources[CODEC] = round_trip
    if model.speaker is not None:
        sources[SAID] = _speaking(model.speaker, recipe.audio.sample_rate)
    scorer = _Scorer(sources, MelSpec.of(recipe.audio), speech_recognisers, voices)
    scores = []
    with ProgressBar("evaluating") as bar:
        for number, item in enumerate(chosen):
            scores.append(scorer(item))
            bar(number + 1, len(chosen))
    evaluation = Evaluation(
        folder=str(folder),
        steps={stage: _steps(folder, stage) for stage in losses},
        is_held_out=part is dataset.held_out,
        read_before=sum(one.utterance.text in read for one in chosen),
        losses=losses,
        codec=round_trip.figures(),
        voiceprint=voices.name,
        utterances=scores,
        unknown_words=[word for one in speech_recognisers for word in getattr(one, "unknown", ())],
    )
    try:
        files.write_text(folder / FILE, json.dumps(evaluation.as_json(), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise EvaluateError(
            f"{folder / FILE}: {error.strerror}; free some space, or make the folder writable"
        ) from None
    return evaluation


@attrs.frozen(eq=False)
class _TrainedModel:
    """The parts of the model that a run has trained so far."""

    codec: Codec
    stats: np.ndarray
    speaker: Optional[synthesizer.Synthesizer]  # once there is a GPT
    device: str


def _load_model(folder: Path, recipe: Recipe) -> _TrainedModel:
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    if (folder / model_folder.RUN_MODEL).is_dir():
        speaker = synthesizer.Synthesizer.load(folder, note=lambda line: None)  # unfinished sentences are counted here
        if speaker.model.codec is None:
            raise EvaluateError(
                f"{folder}: its model has no codec, which evaluation needs; import it again with --dvae dvae.pth"
            )
        return _TrainedModel(speaker.model.codec, speaker.model.stats, speaker, device)
    state = Checkpoints(folder / "codec", say=lambda line: None).newest() if (folder / "codec").is_dir() else None
    try:
        stats = np.array(json.loads((folder / "mel_stats.json").read_text(encoding="utf-8"))["stats"], np.float32)
    except (OSError, ValueError, KeyError):
        state = None
    if state is None:
        raise EvaluateError(f"{folder}: nothing is trained yet; run its recipe first")
    codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, np.random.default_rng(0))
    prefix = "model."
    assignment.load_weights(
        codec, {name: one for name, one in state.tensors.items() if name.startswith(prefix)}, prefix
    )
    return _TrainedModel(codec, stats, None, device)


def _steps(folder: Path, stage: str) -> int:
    """The optimizer steps of a stage so far."""
    return max((int(line["step"]) for line in Journal(folder).metrics(stage)), default=0)


def _language_model_texts(dataset: Dataset, held: Sequence[str]) -> List[str]:
    """English texts of the training set, and for a demo corpus more sentences of its grammar; no held-out text."""
    held_texts, corpus = set(held), dataset.train.corpus
    texts = [one.text for one in corpus.utterances if _is_english(one)]
    vocabulary = make.vocabulary_of(corpus.layout.root) if texts else None
    more = (
        make.demo_sentences(recognisers.LANGUAGE, EXTRA_SENTENCES, held_texts, vocabulary=vocabulary)
        if vocabulary
        else []
    )
    return [text for text in [*texts, *more] if text not in held_texts]


def _is_english(one: Utterance) -> bool:
    """Whether the utterance is in the language of the recognisers."""
    return one.language.lower().partition("-")[0] == recognisers.LANGUAGE


def _choose_items(part: Split, dataset: Dataset, read: Set[str], most: int) -> List[TestItem]:
    """At most `most` utterances, from all speakers in turn, each with another recording of its speaker.

    Texts that were `read` in training, by any voice, are left out unless a speaker has no others. The other recording
    is a held-out one if there is one, or else one that was trained on.
    """
    own: Dict[str, List[Utterance]] = {}
    for one in part.corpus.utterances:
        own.setdefault(one.speaker, []).append(one)
    own = {speaker: [one for one in some if one.text not in read] or some for speaker, some in own.items()}
    others: Dict[str, List[Utterance]] = {}
    for one in dataset.train.corpus.utterances:
        others.setdefault(one.speaker, []).append(one)
    ranked = [(rank, one) for some in own.values() for rank, one in enumerate(some)]
    found = []
    for rank, one in sorted(ranked, key=lambda pair: pair[0])[:most]:
        some = own[one.speaker]
        fellows = [*some[rank + 1 :], *some[:rank], *others.get(one.speaker, [])]
        found.append(TestItem(one, _choose_reference([other for other in fellows if other.id != one.id] or [one])))
    return found


def _choose_reference(fellows: Sequence[Utterance]) -> Utterance:
    """The first that is long enough to clone a voice from, or the longest."""
    return next((one for one in fellows if _seconds(one) >= MIN_REFERENCE_SECONDS), max(fellows, key=_seconds))


def _seconds(one: Utterance) -> float:
    return one.samples / max(1, one.sample_rate)


def _held_out_losses(
    recipe: Recipe, dataset: Dataset, part: Split, model: _TrainedModel
) -> Dict[str, Dict[str, float]]:
    """The held-out loss of each stage, computed as validation does during training."""
    features = Features(recipe.audio, model.device, model.stats, model.codec)
    codec = TrainableCodec(recipe)
    codec.model = model.codec
    shape = attrs.evolve(codec.shapes[0], batch_size=min(HELD_ROWS, codec.shapes[0].batch_size))
    every = BatchOrder(np.zeros(min(len(part.lengths), MOST_HELD), np.int16), (shape.batch_size,), recipe.run.seed)
    source = CodecSource(recipe, part, features, None, is_random=False)
    found = {codec.name: _held_out_loss(codec, shape, source, every, model.device)}
    if model.speaker is not None:
        layout = held_out_shapes(recipe, part)
        gpt = TrainableGpt(recipe, dataset.tokenizer, layout.shapes)
        gpt.model = model.speaker.model.gpt
        said = GptSource(recipe, part, dataset.tokenizer, layout.shapes, features, None, is_random=False)
        order = BatchOrder(layout.shape_of[:MOST_HELD], (layout.shapes[0].batch_size,), recipe.run.seed)
        found[gpt.name] = _held_out_loss(gpt, layout.shapes[0], said, order, model.device)
    return found


def _held_out_loss(
    stage: TrainableModel, shape: Shape, source: BatchSource, order: BatchOrder, device: str
) -> Dict[str, float]:
    """The mean loss of a stage, and its terms."""
    names = sorted(stage.inputs(shape, 1))

    def losses(*arrays: Tensor) -> Any:
        found = stage.losses(dict(zip(names, arrays)), shape, tf.zeros([2], tf.int32), training=False)
        return found.means, found.counts

    compiled = compat.compiled(losses, autograph=False)
    sums, totals = np.zeros(len(stage.parts)), np.zeros(len(stage.parts))
    batches = list(order.batches(0))
    with ProgressBar(f"{stage.name}: held-out loss") as bar:
        for number, batch in enumerate(batches):
            rows = source.read([batch], number)
            if rows.counts.any():
                arrays = source.finish(rows)
                with tf.device(device):
                    means, counts = (one.numpy() for one in compiled(*(tf.convert_to_tensor(arrays[n]) for n in names)))
                sums, totals = sums + means.astype(np.float64) * counts, totals + counts
            bar(number + 1, len(batches))
    parts = sums / np.maximum(totals, 1)
    return {"loss": float(parts @ np.array(stage.weights)), **{n: float(v) for n, v in zip(stage.parts, parts)}}


def _speaking(speaker: synthesizer.Synthesizer, sample_rate: int) -> WaveSource:
    """What the model says, resampled to the rate of the recipe."""

    def generate(item: TestItem) -> Sound:
        wave = speaker.say(item.utterance.text, item.reference.path, language=item.utterance.language, seed=SEED)
        samples = resample.resample(wave.samples, wave.sample_rate, sample_rate) if len(wave.samples) else wave.samples
        return Sound(samples, any(one.is_cut for one in wave.said))

    return generate


class _CodecRoundTrip:
    """Recordings through the codec and Griffin-Lim, and how much the codec alone changes their mels."""

    def __init__(self, model: _TrainedModel, recipe: Recipe) -> None:
        self._stats, self._device, self._spec = model.stats, model.device, MelSpec.of(recipe.audio)
        self._codes = SIZES[recipe.model.size].codec.codes
        self._errors: List[float] = []
        self._distortions: List[float] = []
        self._used: List[np.ndarray] = []
        codec = model.codec

        def round_trip(mels: Tensor, lengths: Tensor) -> Any:
            codes = codec.encode(mels, lengths)
            return codes, codec.decode(codes, (lengths + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE)

        self._function = compat.compiled(round_trip, autograph=False)

    def __call__(self, item: TestItem) -> Sound:
        wave = wav.load_audio(item.utterance.path, self._spec.sample_rate)
        mel = log_mel(wave, self._spec, self._stats)
        size = 32 * FRAMES_PER_CODE
        while size < len(mel):
            size *= 2  # powers of two, for few traces
        padded = np.zeros((1, size, mel.shape[1]), np.float32)
        padded[0, : len(mel)] = mel
        with tf.device(self._device):
            codes, back = self._function(tf.constant(padded), tf.constant([len(mel)], tf.int32))
        decoded = np.asarray(back.numpy()[0, : len(mel)])
        self._used.append(codes.numpy()[0, : -(-len(mel) // FRAMES_PER_CODE)])
        self._errors.append(float(DECIBELS * np.abs((decoded - mel) * self._stats).mean()))
        self._distortions.append(mel_cepstral_distortion(decoded * self._stats, mel * self._stats))
        return Sound(griffin_lim(decoded, self._spec, mel_norms=self._stats))

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


class _SpeakerScorer:
    """Speaker similarity of waves to the speakers of a run."""

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
        """For each wave its similarity to `speaker`, and the most similar speaker; None when there is only one."""
        heard = {name: resample.resample(wave, self._rate, VOICE_RATE) for name, wave in waves.items() if len(wave)}
        if not heard or speaker not in self._speakers:
            return {}
        found = {}
        for name, vector in zip(heard, self._encode(list(heard.values()))):
            alike = {other: float(vector @ one) for other, one in self._speakers.items()}
            found[name] = alike[speaker], max(alike, key=lambda other: alike[other]) if len(alike) > 1 else None
        return found


@attrs.frozen(eq=False)
class _Scorer:
    """Scores the waves of an utterance."""

    sources: Mapping[str, WaveSource]
    spec: MelSpec
    speech_recognisers: Sequence[recognisers.Recogniser]
    voices: _SpeakerScorer

    def __call__(self, item: TestItem) -> UtteranceScores:
        one = item.utterance
        wanted = recognisers.split_words(one.text) if _is_english(one) and self.speech_recognisers else []
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
        heard = {}
        if wanted:
            at_their_rate = (
                resample.resample(wave, self.spec.sample_rate, recognisers.SAMPLE_RATE) if len(wave) else wave
            )
            heard = {one.name: one.transcribe(at_their_rate) for one in self.speech_recognisers}
        return WaveScores(
            seconds=len(wave) / self.spec.sample_rate,
            distortion=None if name == RECORDING or not len(wave) else self._distortion(wave, recorded),
            heard=heard,
            edits={
                name: recognisers.edit_distance(wanted, recognisers.split_words(text)) for name, text in heard.items()
            },
            is_cut=sound.is_cut,
        )

    def _distortion(self, wave: np.ndarray, recorded: np.ndarray) -> float:
        """Against the recording. Griffin-Lim drops less than a frame, which must not cause time warping."""
        logs = log_mel(wave, self.spec)
        shorter = min(len(logs), len(recorded))
        is_in_step = max(len(logs), len(recorded)) - shorter <= 1
        return (
            mel_cepstral_distortion(logs[:shorter], recorded[:shorter])
            if is_in_step
            else mel_cepstral_distortion(logs, recorded)
        )

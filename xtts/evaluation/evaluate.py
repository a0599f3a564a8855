"""How well a run speaks: its folder comes in; losses, distortions, words understood and voices recognised go out.

What was held out is found again through the run's recipe. Each utterance is heard three times: as it was recorded,
through the codec and Griffin-Lim, and said by the model from its text, in the voice of another recording of the same
speaker. Recognisers and a voiceprint judge all three alike.
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
from xtts.evaluation.figures import CODEC, RECORDING, SAID, Evaluation, Heard, Judged
from xtts.evaluation.metrics import DECIBELS, mel_cepstral_distortion
from xtts.evaluation.speaker_similarity import RATE as VOICE_RATE
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
SOME = 20  # utterances that are judged unless another number is asked for
HEARD = 2.0  # seconds of a reference, where there is one as long
KNOWN = 5  # recordings of each speaker that others are compared with
MORE = 5000  # sentences of the demo corpus's grammar that a recogniser is told of
SEED = 0  # of what the model says: it says the same in every evaluation

Tensor = Any  # tf.Tensor; TensorFlow brings no types
PathLike = Union[str, Path]


class EvaluateError(XttsError):
    """A run that cannot be evaluated, and what to do."""


class Sentence(NamedTuple):
    """An utterance, and another recording of its speaker."""

    utterance: Utterance
    reference: Utterance


class Sound(NamedTuple):
    """A wave at the recipe's rate."""

    samples: np.ndarray
    is_cut: bool = False


Sayer = Callable[[Sentence], Sound]


def evaluate(folder: PathLike, utterances: int = SOME, judge: str = "auto", say: Log = print) -> Evaluation:
    """Judge `utterances` of a run's held-out ones at most, and leave what was found in its folder.

    A run that has only its codec yet is judged by that.
    """
    if utterances < 1:
        raise UsageError(f"--utterances {utterances}: nothing can be judged by that; ask for 1 or more")
    recognisers.check_recognisers(judge)
    folder = run_folder.read_run_folder(folder).folder
    recipe = loading.load_recipe(folder / "recipe.toml")
    model = _model(folder, recipe)
    dataset = load_dataset(recipe, say)
    part = dataset.held_out if len(dataset.held_out.lengths) else dataset.train
    read = {one.text for one in dataset.train.corpus.utterances} if part is dataset.held_out else set()
    chosen = _chosen(part, dataset, read, utterances)
    held = [one.text for one in part.corpus.utterances if _is_known(one)]
    listeners = recognisers.recognisers(judge, lambda: _expected(dataset, held), held, say)
    voices = _Voices(dataset, {one.utterance.id for one in chosen}, recipe.audio.sample_rate, judge == "none")
    losses, through = _losses(recipe, dataset, part, model), _Through(model, recipe)
    ways: Dict[str, Sayer] = {
        RECORDING: lambda one: Sound(wav.load_audio(one.utterance.path, recipe.audio.sample_rate))
    }
    ways[CODEC] = through
    if model.speaker is not None:
        ways[SAID] = _sayer(model.speaker, recipe.audio.sample_rate)
    judging = _Judging(ways, MelSpec.of(recipe.audio), listeners, voices)
    judged = []
    with ProgressBar("listening") as bar:
        for number, sentence in enumerate(chosen):
            judged.append(judging(sentence))
            bar(number + 1, len(chosen))
    found = Evaluation(
        folder=str(folder),
        steps={stage: _steps(folder, stage) for stage in losses},
        is_held_out=part is dataset.held_out,
        read_before=sum(one.utterance.text in read for one in chosen),
        losses=losses,
        codec=through.figures(),
        voiceprint=voices.name,
        utterances=judged,
        unknown_words=[word for one in listeners for word in getattr(one, "unknown", ())],
    )
    try:
        files.write_text(folder / FILE, json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise EvaluateError(f"{folder / FILE}: {error.strerror}; make room or rights for it") from None
    return found


@attrs.frozen(eq=False)
class _Model:
    """What a run has trained so far."""

    codec: Codec
    stats: np.ndarray
    speaker: Optional[synthesizer.Synthesizer]  # once there is a GPT
    device: str


def _model(folder: Path, recipe: Recipe) -> _Model:
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    if (folder / model_folder.RUN_MODEL).is_dir():
        speaker = synthesizer.load_synthesizer(folder, note=lambda line: None)  # what is cut is counted here
        if speaker.model.codec is None:
            raise EvaluateError(
                f"{folder}: its model has no codec to be judged by; import it again with --dvae dvae.pth"
            )
        return _Model(speaker.model.codec, speaker.model.stats, speaker, device)
    state = Checkpoints(folder / "codec", say=lambda line: None).newest() if (folder / "codec").is_dir() else None
    try:
        stats = np.array(json.loads((folder / "mel_stats.json").read_text(encoding="utf-8"))["stats"], np.float32)
    except (OSError, ValueError, KeyError):
        state = None
    if state is None:
        raise EvaluateError(f"{folder}: nothing is trained yet that could be judged; run its recipe first")
    codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, np.random.default_rng(0))
    prefix = "model."
    assignment.load_weights(
        codec, {name: one for name, one in state.tensors.items() if name.startswith(prefix)}, prefix
    )
    return _Model(codec, stats, None, device)


def _steps(folder: Path, stage: str) -> int:
    """How many steps a stage has taken."""
    return max((int(line["step"]) for line in Journal(folder).metrics(stage)), default=0)


def _expected(dataset: Dataset, held: Sequence[str]) -> List[str]:
    """What a recogniser may expect: English texts that were trained on; of a demo corpus, more that it could say."""
    judged, corpus = set(held), dataset.train.corpus
    texts = [one.text for one in corpus.utterances if _is_known(one)]
    vocabulary = make.vocabulary_of(corpus.layout.root) if texts else None
    more = make.demo_sentences(recognisers.LANGUAGE, MORE, judged, vocabulary=vocabulary) if vocabulary else []
    return [text for text in [*texts, *more] if text not in judged]


def _is_known(one: Utterance) -> bool:
    """Whether recognisers know the language."""
    return one.language.lower().partition("-")[0] == recognisers.LANGUAGE


def _chosen(part: Split, dataset: Dataset, read: Set[str], most: int) -> List[Sentence]:
    """The first utterances of every speaker in turn, each with another of its speaker: held out, or else trained on.

    Of texts that were `read` in training, by any voice, there is none, unless a speaker has no others.
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
        found.append(Sentence(one, _reference([other for other in fellows if other.id != one.id] or [one])))
    return found


def _reference(fellows: Sequence[Utterance]) -> Utterance:
    """The first that is long enough to hear a voice in, or the longest."""
    return next((one for one in fellows if _seconds(one) >= HEARD), max(fellows, key=_seconds))


def _seconds(one: Utterance) -> float:
    return one.samples / max(1, one.sample_rate)


def _losses(recipe: Recipe, dataset: Dataset, part: Split, model: _Model) -> Dict[str, Dict[str, float]]:
    """The loss of each stage on what was held out, as the run's own validation measures it."""
    features = Features(recipe.audio, model.device, model.stats, model.codec)
    codec = TrainableCodec(recipe)
    codec.model = model.codec
    shape = attrs.evolve(codec.shapes[0], batch_size=min(HELD_ROWS, codec.shapes[0].batch_size))
    every = BatchOrder(np.zeros(min(len(part.lengths), MOST_HELD), np.int16), (shape.batch_size,), recipe.run.seed)
    source = CodecSource(recipe, part, features, None, is_random=False)
    found = {codec.name: _loss(codec, shape, source, every, model.device)}
    if model.speaker is not None:
        layout = held_out_shapes(recipe, part)
        gpt = TrainableGpt(recipe, dataset.tokenizer, layout.shapes)
        gpt.model = model.speaker.model.gpt
        said = GptSource(recipe, part, dataset.tokenizer, layout.shapes, features, None, is_random=False)
        order = BatchOrder(layout.shape_of[:MOST_HELD], (layout.shapes[0].batch_size,), recipe.run.seed)
        found[gpt.name] = _loss(gpt, layout.shapes[0], said, order, model.device)
    return found


def _loss(stage: TrainableModel, shape: Shape, source: BatchSource, order: BatchOrder, device: str) -> Dict[str, float]:
    """The mean of a stage's loss and of its parts."""
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


def _sayer(speaker: synthesizer.Synthesizer, sample_rate: int) -> Sayer:
    """A model that says sentences, at the recipe's rate."""

    def said(sentence: Sentence) -> Sound:
        wave = speaker.say(
            sentence.utterance.text, sentence.reference.path, language=sentence.utterance.language, seed=SEED
        )
        samples = resample.resample(wave.samples, wave.sample_rate, sample_rate) if len(wave.samples) else wave.samples
        return Sound(samples, any(one.is_cut for one in wave.said))

    return said


class _Through:
    """Recordings through the codec and Griffin-Lim; and how far their mels were moved by the codec alone."""

    def __init__(self, model: _Model, recipe: Recipe) -> None:
        self._stats, self._device, self._spec = model.stats, model.device, MelSpec.of(recipe.audio)
        self._codes = SIZES[recipe.model.size].codec.codes
        self._errors: List[float] = []
        self._distortions: List[float] = []
        self._used: List[np.ndarray] = []
        codec = model.codec

        def there_and_back(mels: Tensor, lengths: Tensor) -> Any:
            codes = codec.encode(mels, lengths)
            return codes, codec.decode(codes, (lengths + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE)

        self._function = compat.compiled(there_and_back, autograph=False)

    def __call__(self, sentence: Sentence) -> Sound:
        wave = wav.load_audio(sentence.utterance.path, self._spec.sample_rate)
        mel = log_mel(wave, self._spec, self._stats)
        size = 32 * FRAMES_PER_CODE
        while size < len(mel):
            size *= 2  # a trace for each, and there are few
        padded = np.zeros((1, size, mel.shape[1]), np.float32)
        padded[0, : len(mel)] = mel
        with tf.device(self._device):
            codes, back = self._function(tf.constant(padded), tf.constant([len(mel)], tf.int32))
        again = np.asarray(back.numpy()[0, : len(mel)])
        self._used.append(codes.numpy()[0, : -(-len(mel) // FRAMES_PER_CODE)])
        self._errors.append(float(DECIBELS * np.abs((again - mel) * self._stats).mean()))
        self._distortions.append(mel_cepstral_distortion(again * self._stats, mel * self._stats))
        return Sound(griffin_lim(again, self._spec, stats=self._stats))

    def figures(self) -> Dict[str, float]:
        """Means over all that went through."""
        counts = np.bincount(np.concatenate(self._used), minlength=self._codes)
        shares = counts[counts > 0] / counts.sum()
        return {
            "mel_error": float(np.mean(self._errors)),  # dB
            "distortion": float(np.mean(self._distortions)),  # dB
            "codes_used": float((counts > 0).mean()),
            "perplexity": float(np.exp(-(shares * np.log(shares)).sum())),
        }


class _Voices:
    """Whose voice a wave is most like, of the speakers that a run has."""

    def __init__(self, dataset: Dataset, without: Any, sample_rate: int, is_plain: bool) -> None:
        self._rate = sample_rate
        some: Dict[str, List[np.ndarray]] = {}
        for one in dataset.train.corpus.utterances:
            if one.id not in without and len(some.setdefault(one.speaker, [])) < KNOWN:
                some[one.speaker].append(wav.load_audio(one.path, VOICE_RATE))
        known = {speaker: waves for speaker, waves in some.items() if waves}
        self._print: VoiceEncoder = make_voice_encoder([wave for waves in known.values() for wave in waves], is_plain)
        means = {speaker: self._print(waves).mean(axis=0) for speaker, waves in known.items()}
        self._speakers = {speaker: mean / max(float(np.linalg.norm(mean)), 1e-9) for speaker, mean in means.items()}
        self.name = self._print.name

    def __call__(self, waves: Mapping[str, np.ndarray], speaker: str) -> Dict[str, Tuple[float, Optional[str]]]:
        """How like a speaker each wave is, and whom it is most like; nobody where there are no others."""
        heard = {name: resample.resample(wave, self._rate, VOICE_RATE) for name, wave in waves.items() if len(wave)}
        if not heard or speaker not in self._speakers:
            return {}
        found = {}
        for name, vector in zip(heard, self._print(list(heard.values()))):
            alike = {other: float(vector @ one) for other, one in self._speakers.items()}
            found[name] = alike[speaker], max(alike, key=lambda other: alike[other]) if len(alike) > 1 else None
        return found


@attrs.frozen(eq=False)
class _Judging:
    """All that is asked of a sentence."""

    ways: Mapping[str, Sayer]
    spec: MelSpec
    listeners: Sequence[recognisers.Recogniser]
    voices: _Voices

    def __call__(self, sentence: Sentence) -> Judged:
        one = sentence.utterance
        wanted = recognisers.split_words(one.text) if _is_known(one) and self.listeners else []
        sounds = {name: way(sentence) for name, way in self.ways.items()}
        recorded = log_mel(sounds[RECORDING].samples, self.spec)
        voices = self.voices({name: sound.samples for name, sound in sounds.items()}, one.speaker)
        waves = {
            name: attrs.evolve(
                self._heard(name, sound, wanted, recorded),
                similarity=voices[name][0] if name in voices else None,
                nearest=voices[name][1] if name in voices else None,
            )
            for name, sound in sounds.items()
        }
        letters = sum(map(str.isalnum, normalise(one.text, one.language)))
        return Judged(one.id, one.text, one.language, one.speaker, sentence.reference.id, letters, len(wanted), waves)

    def _heard(self, name: str, sound: Sound, wanted: Sequence[str], recorded: np.ndarray) -> Heard:
        wave = sound.samples
        heard = {}
        if wanted:
            at_their_rate = resample.resample(wave, self.spec.sample_rate, recognisers.RATE) if len(wave) else wave
            heard = {listener.name: listener.hear(at_their_rate) for listener in self.listeners}
        return Heard(
            seconds=len(wave) / self.spec.sample_rate,
            distortion=None if name == RECORDING or not len(wave) else self._distortion(wave, recorded),
            heard=heard,
            edits={
                judge: recognisers.edit_distance(wanted, recognisers.split_words(text)) for judge, text in heard.items()
            },
            is_cut=sound.is_cut,
        )

    def _distortion(self, wave: np.ndarray, recorded: np.ndarray) -> float:
        """From the recording. A wave of Griffin-Lim's is shorter by less than a frame, and is no less in step."""
        logs = log_mel(wave, self.spec)
        shorter = min(len(logs), len(recorded))
        is_in_step = max(len(logs), len(recorded)) - shorter <= 1
        return (
            mel_cepstral_distortion(logs[:shorter], recorded[:shorter])
            if is_in_step
            else mel_cepstral_distortion(logs, recorded)
        )

"""Evaluate a run: held-out losses, mel-cepstral distortion, word error rate and speaker similarity.

The held-out utterances are those of the split that the run's recipe defines. Each is scored three times: the recording,
the recording through the codec and Griffin-Lim, and the text as spoken by the model, in a voice cloned from another
recording of the same speaker. The same recognisers and voice encoder score all three.
"""

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Union

import attrs
import numpy as np
import tensorflow as tf

from xtts import compat, files
from xtts.audio import wav
from xtts.audio.mel import MelSpec
from xtts.corpus.demo import make
from xtts.corpus.utterances import Utterance
from xtts.errors import UsageError, XttsError
from xtts.evaluation import recognisers
from xtts.evaluation.figures import CODEC, RECORDING, SAID, Evaluation
from xtts.evaluation.scoring import (
    CodecRoundTrip,
    EvaluationItem,
    Scorer,
    Sound,
    SpeakerScorer,
    WaveSource,
    is_english,
    speak_with,
)
from xtts.inference import synthesizer
from xtts.model.codec import Codec
from xtts.pipeline.codec_source import CodecSource
from xtts.pipeline.features import Features
from xtts.pipeline.gpt_source import GptSource
from xtts.pipeline.sources import BatchSource
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Dataset, Log, Split, load_dataset
from xtts.planning.shapes import Shape
from xtts.planning.sizes import SIZES
from xtts.progress import ProgressBar
from xtts.recipe.frontend import load_run_recipe
from xtts.recipe.schema import Recipe
from xtts.reporting import run_folder
from xtts.reporting.journal import Journal
from xtts.training.checkpoint import Checkpoints
from xtts.training.context import HELD_ROWS, MAX_HELD_OUT, held_out_shapes
from xtts.training.stages.codec import TrainableCodec
from xtts.training.stages.gpt import TrainableGpt
from xtts.training.stages.stage import TrainableModel
from xtts.weights import assignment, model_folder

FILE = "evaluation.json"
DEFAULT_UTTERANCES = 20  # evaluated when no number is given
MIN_REFERENCE_SECONDS = 2.0  # of a reference recording, if there is one that long
EXTRA_SENTENCES = 5000  # of the demo corpus's grammar, for the language model of sphinx

Tensor = Any  # tf.Tensor; TensorFlow brings no types
PathLike = Union[str, Path]


class EvaluateError(XttsError):
    """Why a run cannot be evaluated, and what to do."""


def evaluate(
    folder: PathLike, utterances: int = DEFAULT_UTTERANCES, recogniser: str = "auto", log: Log = print
) -> Evaluation:
    """Evaluate a run on at most `utterances` held-out utterances, and write evaluation.json into its folder.

    If the GPT of a run is not trained yet, only the codec is evaluated.
    """
    if utterances < 1:
        raise UsageError(f"--utterances {utterances}: nothing can be evaluated on that; ask for 1 or more")
    recognisers.check_recognisers(recogniser)
    folder = run_folder.read_run_folder(folder).folder
    recipe = load_run_recipe(folder)
    model = _load_model(folder, recipe)
    dataset = load_dataset(recipe, log)
    part = dataset.held_out if len(dataset.held_out.lengths) else dataset.train
    read = {one.text for one in dataset.train.corpus.utterances} if part is dataset.held_out else set()
    items = _choose_items(part, dataset, read, utterances)
    held_texts = [one.text for one in part.corpus.utterances if is_english(one)]
    speech_recognisers = recognisers.recognisers(
        recogniser, lambda: _language_model_texts(dataset, held_texts), held_texts, log
    )
    voices = SpeakerScorer(dataset, {one.utterance.id for one in items}, recipe.audio.sample_rate, recogniser == "none")
    losses = _held_out_losses(recipe, dataset, part, model)
    round_trip = CodecRoundTrip(model.codec, model.stats, model.device, recipe)
    sources: Dict[str, WaveSource] = {
        RECORDING: lambda item: Sound(wav.load_audio(item.utterance.path, recipe.audio.sample_rate)),
        CODEC: round_trip,
    }
    if model.speaker is not None:
        sources[SAID] = speak_with(model.speaker, recipe.audio.sample_rate)
    scorer = Scorer(sources, MelSpec.of(recipe.audio), speech_recognisers, voices)
    scores = []
    with ProgressBar("evaluating") as bar:
        for number, item in enumerate(items):
            scores.append(scorer(item))
            bar(number + 1, len(items))
    evaluation = Evaluation(
        folder=str(folder),
        steps={stage: _steps(folder, stage) for stage in losses},
        is_held_out=part is dataset.held_out,
        read_before=sum(one.utterance.text in read for one in items),
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
    speaker: Optional[synthesizer.Synthesizer]  # None until the GPT is trained
    device: str


def _load_model(folder: Path, recipe: Recipe) -> _TrainedModel:
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    if (folder / model_folder.RUN_MODEL).is_dir():
        speaker = synthesizer.Synthesizer.load(folder, note=lambda line: None)  # cut sentences are in the figures
        if speaker.model.codec is None:
            raise EvaluateError(
                f"{folder}: its model has no codec, which evaluation needs; import it again with --dvae dvae.pth"
            )
        return _TrainedModel(speaker.model.codec, speaker.model.mel_norms, speaker, device)
    state = Checkpoints(folder / "codec", log=lambda line: None).newest() if (folder / "codec").is_dir() else None
    try:
        stats = np.array(json.loads((folder / "mel_stats.json").read_text(encoding="utf-8"))["stats"], np.float32)
    except (OSError, ValueError, KeyError):
        state = None
    if state is None:
        raise EvaluateError(f"{folder}: nothing is trained yet; run its recipe first")
    codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, None)
    assignment.load_weights(codec, state.tensors, "model.")
    return _TrainedModel(codec, stats, None, device)


def _steps(folder: Path, stage: str) -> int:
    """The optimizer steps of a stage so far."""
    return max((int(line["step"]) for line in Journal(folder).metrics(stage)), default=0)


def _language_model_texts(dataset: Dataset, held_texts: Sequence[str]) -> List[str]:
    """English training texts, and for a demo corpus more sentences of its grammar; without held-out texts."""
    without, corpus = set(held_texts), dataset.train.corpus
    texts = [one.text for one in corpus.utterances if is_english(one)]
    vocabulary = make.vocabulary_of(corpus.layout.root) if texts else None
    more = (
        make.demo_sentences(recognisers.LANGUAGE, EXTRA_SENTENCES, without, vocabulary=vocabulary) if vocabulary else []
    )
    return [text for text in [*texts, *more] if text not in without]


def _choose_items(part: Split, dataset: Dataset, read: Set[str], most: int) -> List[EvaluationItem]:
    """At most `most` utterances, from all speakers in turn, each with another recording of its speaker.

    Texts that were trained on (`read`), in any voice, are left out unless a speaker has no others. The other recording
    is a held-out one if possible, or else one that was trained on.
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
        candidates = [*some[rank + 1 :], *some[:rank], *others.get(one.speaker, [])]
        found.append(
            EvaluationItem(one, _choose_reference([other for other in candidates if other.id != one.id] or [one]))
        )
    return found


def _choose_reference(candidates: Sequence[Utterance]) -> Utterance:
    """The first recording that is long enough to clone a voice from, or the longest."""
    return next((one for one in candidates if _seconds(one) >= MIN_REFERENCE_SECONDS), max(candidates, key=_seconds))


def _seconds(one: Utterance) -> float:
    return one.samples / max(1, one.sample_rate)


def _held_out_losses(
    recipe: Recipe, dataset: Dataset, part: Split, model: _TrainedModel
) -> Dict[str, Dict[str, float]]:
    """The held-out loss of each stage, computed as validation does during training."""
    features = Features(recipe.audio, model.device, model.stats, model.codec)
    codec = TrainableCodec(recipe, is_loaded=True)
    codec.model = model.codec
    shape = attrs.evolve(codec.shapes[0], batch_size=min(HELD_ROWS, codec.shapes[0].batch_size))
    every = BatchOrder(np.zeros(min(len(part.lengths), MAX_HELD_OUT), np.int16), (shape.batch_size,), recipe.run.seed)
    source = CodecSource(recipe, part, features, None, is_random=False)
    found = {codec.name: _held_out_loss(codec, shape, source, every, model.device)}
    if model.speaker is not None:
        layout = held_out_shapes(recipe, part)
        gpt = TrainableGpt(recipe, dataset.tokenizer, layout.shapes, is_loaded=True)
        gpt.model = model.speaker.model.gpt
        said = GptSource(recipe, part, dataset.tokenizer, layout.shapes, features, None, is_random=False)
        order = BatchOrder(layout.shape_of[:MAX_HELD_OUT], (layout.shapes[0].batch_size,), recipe.run.seed)
        found[gpt.name] = _held_out_loss(gpt, layout.shapes[0], said, order, model.device)
    return found


def _held_out_loss(
    stage: TrainableModel, shape: Shape, source: BatchSource, order: BatchOrder, device: str
) -> Dict[str, float]:
    """The mean held-out loss of a stage, and its parts."""
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

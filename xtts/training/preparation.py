"""Prepare a run: read, plan and record what its stages share, before the first stage is built."""

import contextlib
import json
from pathlib import Path
from typing import Optional

import attrs
import numpy as np

from xtts import files
from xtts.audio import wav
from xtts.audio.mel import MelSpec, log_mel
from xtts.corpus.utterances import write_rejected
from xtts.errors import XttsError
from xtts.files import json_digest
from xtts.pipeline.recordings import Recordings
from xtts.planning.dataset import Dataset, Log, Split, load_dataset, plan_dataset
from xtts.planning.plan import Plan, resolve_shapes
from xtts.planning.sizes import SIZES
from xtts.recipe import loading
from xtts.recipe.defaults import resolve_defaults
from xtts.recipe.frontend import resolve_frontend
from xtts.recipe.schema import Recipe
from xtts.reporting.tensorboard import TensorBoard
from xtts.text.tokenizer import TOKENIZER
from xtts.training.cluster.collectives import Collectives
from xtts.training.context import TrainingContext
from xtts.training.fingerprint import check_agreement
from xtts.training.placement import Placement
from xtts.training.stages import stages_of
from xtts.weights import model_folder
from xtts.weights.layout import MEL_STATS
from xtts.weights.safetensors_file import Tensors

STATS_RECORDINGS = 200  # recordings that mel norms are computed from


class RunError(XttsError):
    """Why a run cannot start, and what to change."""


def prepare_run(recipe: Recipe, placement: Placement, collectives: Collectives, log: Log) -> TrainingContext:
    """Load the dataset and plan the run on the placed devices; workers of a cluster check that they agree."""
    folder = Path(recipe.run.folder) / recipe.run.name
    published = _read_published(recipe)
    shapes = frontend = None
    if collectives.is_chief:
        frontend = resolve_frontend(recipe).text.frontend
        shapes = resolve_shapes(recipe, _shapes_begun_with(folder), placement.has_gpu).data.shapes
    recipe = attrs.evolve(recipe, data=attrs.evolve(recipe.data, shapes=collectives.broadcast_json(shapes)))
    recipe = attrs.evolve(recipe, text=attrs.evolve(recipe.text, frontend=collectives.broadcast_json(frontend)))
    recipe = resolve_defaults(recipe, model_folder.is_published(recipe.model.weights))
    with collectives.chief_first():
        dataset = load_dataset(recipe, log)
    plan = plan_dataset(recipe, dataset, stages_of(recipe), placement.replicas)
    check_agreement(collectives, recipe, dataset, plan)
    measured = None
    if collectives.is_chief:
        measured = [float(value) for value in _mel_stats(folder, recipe, dataset.train, published)]
        _record(folder, recipe, dataset, plan)
    return TrainingContext(
        recipe=recipe,
        folder=folder,
        dataset=dataset,
        plan=plan,
        placement=placement,
        strategy=collectives.strategy or placement.start_strategy(),
        stats=np.array(collectives.broadcast_json(measured), np.float32),
        board=TensorBoard(folder / "tensorboard", log, is_wanted=collectives.is_chief),
        log=log,
        collectives=collectives,
        published=published,
    )


def _shapes_begun_with(folder: Path) -> Optional[str]:
    """The data.shapes that a run in this folder was started with, perhaps on another machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["mode"])
    return None


def _record(folder: Path, recipe: Recipe, dataset: Dataset, plan: Plan) -> None:
    """Write the recipe, the plan, the rejected utterances and the tokenizer into the run's folder."""
    try:
        files.write_text(folder / "recipe.toml", loading.dump_recipe(recipe))
        files.write_text(folder / "plan.json", json.dumps(plan.as_json(), indent=2, ensure_ascii=False) + "\n")
        write_rejected(folder / "rejected.csv", dataset.rejected)
        dataset.tokenizer.save(folder / TOKENIZER)
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}; name another folder with --set run.folder=...") from None


def _mel_stats(folder: Path, recipe: Recipe, split: Split, published: Optional[Tensors]) -> np.ndarray:
    """The mel norms [n_mels]: the published ones, or the root mean square of each channel over some recordings."""
    if published is not None:
        return np.asarray(published[MEL_STATS], np.float32)
    path = folder / "mel_stats.json"
    spec, recordings = MelSpec.of(recipe.audio), Recordings(split, recipe.audio.sample_rate)
    about = json_digest(recipe.as_tables()["audio"])  # not the corpus: a codec keeps the norms it was trained with
    with contextlib.suppress(OSError, ValueError, KeyError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["about"] == about:
            return np.array(found["stats"], np.float32)
    squares, count = np.zeros(spec.n_mels), 0
    for position in range(min(STATS_RECORDINGS, len(split.lengths))):
        with contextlib.suppress(wav.AudioError):
            mel = log_mel(recordings.wave(position), spec).astype(np.float64)
            squares += np.square(mel).sum(axis=0)
            count += len(mel)
    stats = np.sqrt(squares / max(1, count)).astype(np.float32)
    files.write_text(path, json.dumps({"about": about, "stats": [float(value) for value in stats]}) + "\n")
    return stats


def _read_published(recipe: Recipe) -> Optional[Tensors]:
    """The published weights that a recipe starts from."""
    if recipe.model.weights is None:
        return None
    model, tensors = model_folder.read_model_folder(recipe.model.weights)
    size = SIZES[recipe.model.size]
    if (model.size.gpt, model.size.codec) != (size.gpt, size.codec) or model.n_mels != recipe.audio.n_mels:
        raise RunError(
            f"model.weights: {recipe.model.weights} holds {model.size.gpt.layers} layers of {model.size.gpt.width},"
            f' which is not model.size = "{recipe.model.size}"; write the size it was published with, such as "v2"'
        )
    for needed in {name for stage in stages_of(recipe) for name in stage.needs}:
        if needed not in model.parts and needed not in recipe.run.stages:
            raise RunError(f"model.weights: {recipe.model.weights} has no {needed}; import it with --dvae dvae.pth")
    return tensors

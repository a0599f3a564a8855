"""The public functions plan, train, evaluate and export, each of which combines several packages."""

from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Union

if TYPE_CHECKING:
    from xtts.evaluation.figures import Evaluation
    from xtts.planning.plan import Plan
    from xtts.recipe.schema import Recipe

PathLike = Union[str, Path]


def plan(recipe: "Union[Recipe, PathLike]", log: Callable[[str], None] = print) -> "Plan":
    """Read a recipe's corpus and plan its run: shapes, batches, steps, traces and memory. TensorFlow is not needed.

    `recipe` is a recipe, or the path of one. `Plan.text()` is a page to read, `Plan.as_json()` the same as data.
    """
    from xtts.planning.dataset import load_dataset, plan_dataset
    from xtts.planning.plan import resolve_shapes
    from xtts.recipe.defaults import resolve_defaults
    from xtts.training.stages import stages_of
    from xtts.weights import model_folder

    resolved = resolve_shapes(_loaded(recipe))
    resolved = resolve_defaults(resolved, model_folder.is_published(resolved.model.weights))
    return plan_dataset(resolved, load_dataset(resolved, log), stages_of(resolved))


def train(recipe: "Union[Recipe, PathLike]", log: Callable[[str], None] = print) -> Path:
    """Train every stage of a recipe that is not finished, and return the run's folder.

    `recipe` is a recipe, or the path of one. An interrupted run resumes from its last checkpoint.
    """
    from xtts.training.run import train as train_run

    loaded = _loaded(recipe)
    train_run(loaded, log)
    return Path(loaded.run.folder) / loaded.run.name


def evaluate(
    folder: PathLike, utterances: int = 20, recogniser: str = "auto", log: Callable[[str], None] = print
) -> "Evaluation":
    """Evaluate a run on `utterances` held-out recordings at most, and write evaluation.json into its folder.

    `recogniser` is the speech recogniser: "auto" (all that are installed), "none", "sphinx" or "whisper".
    """
    from xtts.evaluation.evaluate import evaluate as evaluate_run

    return evaluate_run(folder, utterances, recogniser, log)


def export(folder: PathLike, out: PathLike, for_coqui: bool = False) -> List[Path]:
    """Write the model of a run, or of an import, for other programs, and return the files that were written.

    An `out` that ends in .safetensors gets the weights, under the names that the public implementation loads; the codec
    goes to a second file beside it. Any other `out` is a folder, and gets a SavedModel, which runs without xtts; with
    `for_coqui` it gets the files that coqui-tts loads instead.
    """
    out = Path(out)
    if for_coqui:
        from xtts.weights.exporting import export_for_coqui

        return export_for_coqui(folder, out)
    if out.suffix == ".safetensors":
        from xtts.weights.exporting import export_checkpoint

        return export_checkpoint(folder, out)
    from xtts.inference.savedmodel import write_savedmodel

    return [write_savedmodel(folder, out)]


def _loaded(recipe: "Union[Recipe, PathLike]") -> "Recipe":
    if isinstance(recipe, (str, Path)):
        from xtts.recipe.loading import load_recipe

        return load_recipe(recipe)
    return recipe

"""Which text front end a run uses. It is decided once, when the run begins, and stands in its recipe from then on.

A run that resumes keeps its own. Weights go on with the front end they were trained with: those of an import with the
published one, those of another run with that run's.
"""

from pathlib import Path
from typing import Literal, Optional, Union

import attrs

from xtts.errors import XttsError
from xtts.recipe.loading import load_recipe
from xtts.recipe.schema import Recipe

Name = Literal["published", "xtts"]
PUBLISHED: Name = "published"
XTTS: Name = "xtts"
RECIPE = "recipe.toml"  # in the folder of a run


def resolve_frontend(recipe: Recipe) -> Recipe:
    """The recipe with its front end stated."""
    if recipe.text.frontend is not None:
        return recipe
    before = _begun(recipe)
    if before is not None and before.model.weights == recipe.model.weights:
        frontend = before.text.frontend
    else:
        frontend = XTTS if recipe.model.weights is None else _frontend_of(Path(recipe.model.weights))
    return attrs.evolve(recipe, text=attrs.evolve(recipe.text, frontend=frontend))


def load_run_recipe(folder: Union[str, Path]) -> Recipe:
    """The recipe in a run's folder; runs that do not state their front end are older than the published one."""
    recipe = load_recipe(Path(folder) / RECIPE)
    if recipe.text.frontend is None:
        recipe = attrs.evolve(recipe, text=attrs.evolve(recipe.text, frontend=XTTS))
    return recipe


def _begun(recipe: Recipe) -> Optional[Recipe]:
    """The recipe of the run that this one would resume."""
    folder = Path(recipe.run.folder) / recipe.run.name
    try:
        return load_run_recipe(folder) if (folder / RECIPE).is_file() else None
    except XttsError:  # a newer release may have settings that this one does not know
        return None


def _frontend_of(weights: Path) -> Name:
    """The front end that weights were trained with."""
    for folder in (weights, weights.parent):
        if (folder / RECIPE).is_file():
            return load_run_recipe(folder).text.frontend or XTTS
    return PUBLISHED

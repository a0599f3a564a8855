"""Which text front end a run uses."""

import attrs
import pytest

from xtts.recipe.frontend import load_run_recipe, resolve_frontend
from xtts.recipe.loading import dump_recipe
from xtts.recipe.schema import ModelSection, Recipe, RunSection, TextSection


def run_folder(path, recipe):
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(dump_recipe(recipe), encoding="utf-8")
    return path


def resolved(recipe):
    return resolve_frontend(recipe).text.frontend


def test_the_default_follows_the_weights(tmp_path):
    """From scratch ours; from an import the published one; from a run the one it was trained with."""
    assert resolved(Recipe()) == "xtts"
    (tmp_path / "import").mkdir()
    assert resolved(Recipe(model=ModelSection(weights=str(tmp_path / "import")))) == "published"
    for name in ("published", "xtts"):
        run = run_folder(tmp_path / name, Recipe(text=TextSection(frontend=name)))
        for weights in (run, run / "model"):
            assert resolved(Recipe(model=ModelSection(weights=str(weights)))) == name


@pytest.mark.parametrize("name", ["published", "xtts"])
def test_what_the_recipe_says_is_done(name, tmp_path):
    """A stated front end is not changed, with weights or without."""
    for weights in (None, str(tmp_path)):
        recipe = Recipe(text=TextSection(frontend=name), model=ModelSection(weights=weights))
        assert resolve_frontend(recipe) == recipe


def test_a_run_resumes_with_the_front_end_it_began_with(tmp_path):
    """Its folder remembers; a run of a release before the setting was trained with ours."""
    recipe = Recipe(run=RunSection(folder=str(tmp_path), name="old"), model=ModelSection(weights=str(tmp_path)))
    assert resolved(recipe) == "published"
    folder = run_folder(tmp_path / "old", recipe)
    assert load_run_recipe(folder).text.frontend == "xtts"
    assert resolved(recipe) == "xtts"
    assert resolved(attrs.evolve(recipe, model=ModelSection(weights=str(tmp_path / "other")))) == "published"

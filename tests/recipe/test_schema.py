"""Sections of a recipe, which validate themselves, and the JSON schema generated from them."""

import json
from pathlib import Path

import attrs
import jsonschema
import pytest

from xtts.recipe import fields, loading, schema
from xtts.recipe.schema import DataSection, DevicesSection, Recipe, TrainSection

ROOT = Path(__file__).parents[2]


def test_the_schema_file_is_current():
    """`python -m xtts.recipe.schema` regenerates schema.json."""
    assert json.loads(json.dumps(schema.schema())) == loading.json_schema()


def test_every_shipped_recipe_fits_the_schema():
    """The schema is valid for editors and accepts all shipped recipes."""
    jsonschema.Draft7Validator.check_schema(loading.json_schema())
    for path in (ROOT / "recipes").glob("*.toml"):
        tables = loading.load_recipe(path).as_tables()
        jsonschema.validate(tables, loading.json_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_each_shipped_recipe_refers_to_the_schema_in_its_first_line(path):
    """An editor finds the schema through the first line of the recipe."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("#:schema ")
    assert (path.parent / first.split()[1]).resolve() == (ROOT / "xtts" / "recipe" / "schema.json").resolve()


def test_every_field_has_help_and_a_schema():
    """Every setting has a help text and can be described in JSON schema."""
    for field in schema.setting_names().values():
        assert len(field.metadata["help"]) > 10
        assert schema.field_schema(field)


def test_a_section_refuses_a_value_out_of_range():
    """A section built in Python is validated like one from a file."""
    with pytest.raises(ValueError, match="steps: 0 is out of range"):
        TrainSection(steps=0)


def test_a_recipe_refuses_a_contradiction():
    """Sections that are valid on their own are checked together."""
    with pytest.raises(ValueError, match=r"devices\.data_gpu: data_gpu and model_gpu are both GPU 0"):
        Recipe(devices=DevicesSection(data_gpu=0, model_gpu=0))


def test_pad_to_fixed_length_means_one_fixed_shape():
    """The old name selects fixed shapes; together with other shapes it is a contradiction."""
    assert DataSection(pad_to_fixed_length=True).shapes == "fixed"
    assert DataSection().shapes == "auto"
    with pytest.raises(ValueError, match=r"data\.shapes"):
        Recipe(data=DataSection(pad_to_fixed_length=True, shapes="planned"))


def test_a_recipe_is_immutable():
    """A validated recipe cannot be changed."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Recipe().train.steps = 3


def test_familiar_settings_have_their_familiar_defaults():
    """Names and defaults match those that users already train with."""
    data, devices = Recipe().data, Recipe().devices
    assert (data.pad_to_fixed_length, data.max_text_length, data.max_mel_frames) == (False, 200, 800)
    assert (devices.buffer_size, devices.model_start_delay, devices.multi_gpu) == (50, 2.0, False)
    assert (devices.data_gpu_memory_limit, devices.model_gpu_memory_limit) == (8192, 16384)
    assert Recipe().audio.n_mels == 80
    assert Recipe().train.gradient_accumulation_steps == 1


def test_the_values_of_a_file_are_validated_once(monkeypatch):
    """Values validated with their line are not checked again; a recipe changed in Python is."""
    seen, find_problem = [], fields.find_problem
    monkeypatch.setattr(fields, "find_problem", lambda value, kind: (seen.append(value), find_problem(value, kind))[1])
    recipe = loading.parse_recipe("[train]\nsteps = 12345\n")
    assert seen == [12345]
    with pytest.raises(ValueError, match="steps"):
        attrs.evolve(recipe.train, steps=0)

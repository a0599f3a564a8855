"""recipe: sections that check themselves, and the schema made from them."""

import json
from pathlib import Path

import attrs
import jsonschema
import pytest

from xtts.recipe import fields, loading, schema
from xtts.recipe.schema import DataSection, DevicesSection, Recipe, TrainSection

ROOT = Path(__file__).parents[2]


def test_the_schema_file_is_what_the_classes_say():
    """schema.json is current; `python -m xtts.recipe.schema` writes it anew."""
    assert json.loads(json.dumps(schema.schema())) == loading.json_schema()


def test_the_schema_is_a_sound_schema_that_every_shipped_recipe_fits():
    """Editors can use the schema, and it accepts what we ship."""
    jsonschema.Draft7Validator.check_schema(loading.json_schema())
    for path in (ROOT / "recipes").glob("*.toml"):
        tables = loading.load_recipe(path).as_tables()
        jsonschema.validate(tables, loading.json_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_each_shipped_recipe_names_the_schema_in_its_first_line(path):
    """An editor finds the schema by the first line, and the file is where that line says."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("#:schema ")
    assert (path.parent / first.split()[1]).resolve() == (ROOT / "xtts" / "recipe" / "schema.json").resolve()


def test_every_field_has_help_and_a_kind():
    """No field is without a line of help, and none repeats another's name in its section."""
    for field in schema.setting_names().values():
        assert len(field.metadata["help"]) > 10
        assert schema.field_schema(field)


def test_a_section_refuses_a_value_out_of_range():
    """What is built in Python is checked like what is read from a file."""
    with pytest.raises(ValueError, match="steps: 0 is out of range"):
        TrainSection(steps=0)


def test_a_recipe_refuses_a_contradiction():
    """Sections that are fine apart are checked together."""
    with pytest.raises(ValueError, match=r"devices\.data_gpu: data_gpu and model_gpu are both GPU 0"):
        Recipe(devices=DevicesSection(data_gpu=0, model_gpu=0))


def test_pad_to_fixed_length_means_one_fixed_shape():
    """The old name asks for the fixed way unless another is named, and then the two contradict."""
    assert DataSection(pad_to_fixed_length=True).shapes == "fixed"
    assert DataSection().shapes == "auto"
    with pytest.raises(ValueError, match=r"data\.shapes"):
        Recipe(data=DataSection(pad_to_fixed_length=True, shapes="planned"))


def test_a_recipe_cannot_be_changed_after_it_was_made():
    """What was checked stays what it was."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Recipe().train.steps = 3


def test_the_names_people_know_have_the_defaults_they_know():
    """These names and values come from those who already train with them."""
    data, devices = Recipe().data, Recipe().devices
    assert (data.pad_to_fixed_length, data.max_text_length, data.max_mel_frames) == (False, 200, 800)
    assert (devices.buffer_size, devices.model_start_delay, devices.multi_gpu) == (50, 2.0, False)
    assert (devices.data_gpu_memory_limit, devices.model_gpu_memory_limit) == (8192, 16384)
    assert Recipe().audio.n_mels == 80
    assert Recipe().train.gradient_accumulation_steps == 1


def test_the_values_of_a_file_are_validated_once(monkeypatch):
    """What was found sound with its line is not looked at again; a recipe that is changed in Python still is."""
    seen, find_problem = [], fields.find_problem
    monkeypatch.setattr(fields, "find_problem", lambda value, kind: (seen.append(value), find_problem(value, kind))[1])
    recipe = loading.parse_recipe("[train]\nsteps = 12345\n")
    assert seen == [12345]
    with pytest.raises(ValueError, match="steps"):
        attrs.evolve(recipe.train, steps=0)

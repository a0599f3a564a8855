"""Loading recipes: from files and flags to recipes and back, with every mistake reported at once."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xtts.recipe import loading
from xtts.recipe.constraints import find_contradictions
from xtts.recipe.loading import Override, RecipeError
from xtts.recipe.schema import Recipe

ROOT = Path(__file__).parents[2]
BAD = sorted((ROOT / "tests" / "recipes_bad").glob("*.toml"))


def problems(text, settings=(), name="r.toml"):
    with pytest.raises(RecipeError) as caught:
        loading.parse_recipe(text, settings, name)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_each_mistake_gets_its_message(path):
    """A file with one mistake gives exactly the messages it lists."""
    expected = re.findall(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(RecipeError) as caught:
        loading.load_recipe(path)
    assert str(caught.value).splitlines() == [f"{path}:{line}" for line in expected]


def test_a_missing_file_suggests_a_similar_name(tmp_path):
    """A misspelled path is answered with the name of a similar file."""
    (tmp_path / "dual_gpu.toml").write_text("[train]")
    with pytest.raises(RecipeError, match=r"dual_gup\.toml:1: recipe: there is no such file; did you mean .*dual_gpu"):
        loading.load_recipe(tmp_path / "dual_gup.toml")


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "the file is empty"),
        (b"# only a comment\n", 1, "the file is empty"),
        (b"[train]\nsteps = 3\n[run]\nname = '\xff'\n", 4, "byte 0xff is not UTF-8"),
        (b"x" * 2_000_000, 1, "too large"),
    ],
    ids=["empty", "comment", "not UTF-8", "large"],
)
def test_a_file_that_is_not_a_recipe_is_refused(tmp_path, content, line, words):
    """Empty files, other encodings and huge files each have their own message."""
    path = tmp_path / "r.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as caught:
        loading.load_recipe(path)
    assert str(caught.value).startswith(f"{path}:{line}: recipe: ")
    assert words in str(caught.value)


def test_a_folder_is_not_a_recipe(tmp_path):
    """A folder is refused with its own message."""
    with pytest.raises(RecipeError, match="this is a folder; name the recipe's file"):
        loading.load_recipe(tmp_path)


def test_a_byte_order_mark_is_accepted(tmp_path):
    """Editors on Windows write one at the start of a file."""
    path = tmp_path / "r.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nsteps = 300\r\n")
    assert loading.load_recipe(path).train.steps == 300


def test_a_run_is_named_after_its_file():
    """The default name is the stem of the file, without characters that a folder cannot have."""
    assert loading.parse_recipe("[train]", name="recipes/dual_gpu.toml").run.name == "dual_gpu"
    assert loading.parse_recipe("[train]", name="صدای من.toml").run.name == "صدای من"
    assert loading.parse_recipe("[train]", name="a/?*.toml").run.name == "run"
    assert loading.parse_recipe("[run]\nname = 'mine'", name="other.toml").run.name == "mine"


def test_settings_override_the_file_and_the_last_one_wins():
    """A setting on the command line is converted to the type of its field."""
    recipe = loading.parse_recipe(
        "[train]\nsteps = 300\n[devices]\ndata_gpu = 0\nmodel_gpu = 1",
        [
            Override("--set train.steps=400", "train.steps", "400"),
            Override("--set train.steps=500", "train.steps", "500"),
            Override("--data-gpu none", "devices.data_gpu", "none"),
            Override("--set devices.buffer_size=auto", "devices.buffer_size", "auto"),
            Override("--set run.stages=gpt", "run.stages", "gpt"),
            Override("--set data.train=4", "data.train", "4"),
        ],
    )
    assert recipe.train.steps == 500
    assert recipe.devices.data_gpu is None
    several = loading.parse_recipe(
        "[devices]\nmodel_gpu = [2, 3]", [Override("--data-gpu 0,1", "devices.data_gpu", "0,1")]
    )
    assert (several.devices.data_gpus, several.devices.model_gpus) == ((0, 1), (2, 3))
    assert loading.parse_recipe(loading.dump_recipe(several)) == several
    assert recipe.devices.buffer_size == "auto"
    assert recipe.run.stages == ("gpt",)
    assert recipe.data.train == "4"


def test_a_wrong_setting_is_reported_by_its_flag():
    """The place of the mistake is the flag, and mistakes in the file are reported, too."""
    assert problems("[model]\nsize = 3\n", [Override("--batch-size x", "train.batch_size", "x")]) == [
        '--batch-size x: train.batch_size: expected a whole number from 1 up, got "x"; write a whole number from 1 up',
        'r.toml:2: model.size: expected "tiny" or "small" or "normal" or "big" or "v2", got 3;'
        ' write "tiny" or "small" or "normal" or "big" or "v2"',
    ]
    assert problems("[train]", [Override("--set batch_size=1", "batch_size", "1")]) == [
        "--set batch_size=1: batch_size: unknown key; did you mean train.batch_size?"
    ]


def test_a_wrong_value_is_reported_once():
    """An invalid value is not checked for contradictions with others."""
    assert len(problems("[devices]\ndata_gpu = 1\nmodel_gpu = -1\nvisible_gpus = '0'\n")) == 2


def values(kind):
    """Values of a type, as described by a JSON schema."""
    if "anyOf" in kind:
        limits = {key: value for key, value in kind.items() if key != "anyOf"}
        return st.one_of([values({**option, **limits}) for option in kind["anyOf"]])
    if "enum" in kind:
        return st.sampled_from(kind["enum"])
    if kind["type"] == "array":
        return st.lists(values(kind["items"]), min_size=kind.get("minItems", 0), max_size=5, unique=True)
    if kind["type"] == "boolean":
        return st.booleans()
    if kind["type"] == "integer":
        return st.integers(kind.get("minimum", -(2**62)), kind.get("maximum", 2**62))
    if kind["type"] == "number":
        low = kind.get("minimum", kind.get("exclusiveMinimum", -1e9))
        return st.floats(low, kind.get("maximum", 1e9), exclude_min="exclusiveMinimum" in kind, allow_nan=False)
    if "pattern" in kind:
        return st.from_regex(kind["pattern"], fullmatch=True).filter(str.isprintable)
    return st.text().filter(str.isprintable)


@st.composite
def recipes(draw):
    """Any recipe whose settings do not contradict each other."""
    tables = {}
    for section, schema in loading.json_schema()["properties"].items():
        chosen = {name: values(kind) for name, kind in schema["properties"].items()}
        tables[section] = draw(st.fixed_dictionaries({}, optional=chosen))
    defaults = Recipe().as_tables()
    merged = {name: {**defaults[name], **tables[name]} for name in defaults}
    if "shapes" not in tables["data"]:
        merged["data"].pop("shapes")
    wrong = {keys for contradiction in find_contradictions(merged) for keys in contradiction.keys}
    for section, name in wrong:  # resolve a contradiction by leaving its settings out
        tables[section].pop(name, None)
    merged = {name: {**defaults[name], **tables[name]} for name in defaults}
    if "shapes" not in tables["data"]:
        merged["data"].pop("shapes")
    assume(not find_contradictions(merged))
    import tomlkit

    return loading.parse_recipe(tomlkit.dumps(tables) or "[run]", name="drawn.toml")


@settings(max_examples=100)
@given(recipes())
def test_a_dumped_recipe_loads_as_it_was(recipe):
    """The recipe written to a run's folder equals the original, to the last digit."""
    again = loading.parse_recipe(loading.dump_recipe(recipe))
    assert again == recipe


@settings(max_examples=30)
@given(recipes(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(recipe, shuffler):
    """Two files with the same settings in another order are the same recipe."""
    import tomlkit

    tables = recipe.as_tables()
    shuffled = {}
    for section in shuffler.sample(list(tables), len(tables)):
        shuffled[section] = {
            key: tables[section][key] for key in shuffler.sample(list(tables[section]), len(tables[section]))
        }
    assert loading.parse_recipe(tomlkit.dumps(shuffled)) == recipe


def mistakes(text):
    try:
        loading.parse_recipe(text, name="m.toml")
        return []
    except RecipeError as error:
        return error.problems


def test_ten_thousand_mutated_recipes_never_crash(tmp_path):
    """Any change to a recipe's text gives a recipe, or problems that each have a line number."""
    chance = random.Random(20)
    recipes = [loading.dump_recipe(Recipe()), (ROOT / "recipes" / "dual_gpu.toml").read_text(encoding="utf-8")]
    pieces = """[ ] = " ' \"\"\" # . , { } - 1e999 nan true [[ ]] \\ 1979-05-27 0x [train] é steps""".split()
    pieces += ["\n", "\r", "\0", "\u200c", "  ", "7" * 5000, "[" * 5000]
    accepted = refused = 0
    for _ in range(10_000):
        text = chance.choice(recipes)
        for _ in range(chance.randint(1, 4)):
            at, length = chance.randrange(len(text)), chance.choice([0, 1, 1, 5, 40])
            text = text[:at] + chance.choice([*pieces, text[at : at + length] * 2]) + text[at + length :]
        found = mistakes(text)
        accepted += not found
        refused += bool(found)
        for problem in found:
            assert re.match(r"m\.toml:[1-9]\d*: [^\n]+: [^\n]+; [^\n]+$", str(problem)), repr(str(problem))
            assert int(problem.place.split(":")[1]) <= len(text.splitlines()) + 1
    assert accepted > 100
    assert refused > 5000

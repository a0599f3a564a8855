"""toml: files and flags to recipes and back, and every mistake at once."""

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
    """A file that shows one mistake is answered with the lines it expects, all of them and no other."""
    expected = re.findall(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(RecipeError) as caught:
        loading.load_recipe(path)
    assert str(caught.value).splitlines() == [f"{path}:{line}" for line in expected]


def test_a_missing_file_suggests_the_nearest(tmp_path):
    """A typing error in the path is answered with the file that was meant."""
    (tmp_path / "dual_gpu.toml").write_text("[train]")
    with pytest.raises(RecipeError, match=r"dual_gup\.toml:1: recipe: there is no such file; did you mean .*dual_gpu"):
        loading.load_recipe(tmp_path / "dual_gup.toml")


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "says nothing"),
        (b"# only a comment\n", 1, "says nothing"),
        (b"[train]\nsteps = 3\n[run]\nname = '\xff'\n", 4, "byte 0xff is not UTF-8"),
        (b"x" * 2_000_000, 1, "too large"),
    ],
    ids=["empty", "comment", "not UTF-8", "large"],
)
def test_a_file_that_holds_no_recipe_gets_a_sentence(tmp_path, content, line, words):
    """Empty files, other encodings and huge files are told apart."""
    path = tmp_path / "r.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as caught:
        loading.load_recipe(path)
    assert str(caught.value).startswith(f"{path}:{line}: recipe: ")
    assert words in str(caught.value)


def test_a_folder_is_not_a_recipe(tmp_path):
    """Naming the folder is a mistake of its own."""
    with pytest.raises(RecipeError, match="this is a folder; name the recipe's file"):
        loading.load_recipe(tmp_path)


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    """Editors on Windows put one at the start of a file."""
    path = tmp_path / "r.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nsteps = 300\r\n")
    assert loading.load_recipe(path).train.steps == 300


def test_a_run_is_named_after_its_file():
    """The stem of the file, as far as it can name a folder; unless the recipe says otherwise."""
    assert loading.parse_recipe("[train]", name="recipes/dual_gpu.toml").run.name == "dual_gpu"
    assert loading.parse_recipe("[train]", name="صدای من.toml").run.name == "صدای من"
    assert loading.parse_recipe("[train]", name="a/?*.toml").run.name == "run"
    assert loading.parse_recipe("[run]\nname = 'mine'", name="other.toml").run.name == "mine"


def test_settings_override_the_file_and_the_last_one_wins():
    """A flag changes one run, typed by the field it sets."""
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


def test_a_wrong_setting_is_reported_by_its_flag_with_the_files_mistakes():
    """The place of a mistake is the flag that made it; mistakes in the file are still said."""
    assert problems("[model]\nsize = 3\n", [Override("--batch-size x", "train.batch_size", "x")]) == [
        '--batch-size x: train.batch_size: expected a whole number from 1 up, got "x"; write a whole number from 1 up',
        'r.toml:2: model.size: expected "tiny" or "small" or "normal" or "big" or "v2", got 3;'
        ' write "tiny" or "small" or "normal" or "big" or "v2"',
    ]
    assert problems("[train]", [Override("--set batch_size=1", "batch_size", "1")]) == [
        "--set batch_size=1: batch_size: unknown key; did you mean train.batch_size?"
    ]


def test_a_wrong_value_is_no_contradiction_as_well():
    """What is said of a wrong value is said once: it takes no part in contradictions."""
    assert len(problems("[devices]\ndata_gpu = 1\nmodel_gpu = -1\nvisible_gpus = '0'\n")) == 2


def values(kind):
    """Values of a kind, as a JSON schema states it."""
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
    for section, name in wrong:  # a contradiction is mended by leaving its settings out
        tables[section].pop(name, None)
    merged = {name: {**defaults[name], **tables[name]} for name in defaults}
    if "shapes" not in tables["data"]:
        merged["data"].pop("shapes")
    assume(not find_contradictions(merged))
    import tomlkit

    return loading.parse_recipe(tomlkit.dumps(tables) or "[run]", name="drawn.toml")


@settings(max_examples=100)
@given(recipes())
def test_a_resolved_recipe_reads_back_equal(recipe):
    """What is written beside a run says the same, to the last digit, when it is read."""
    again = loading.parse_recipe(loading.dump_recipe(recipe))
    assert again == recipe
    assert loading.recipe_digest(again) == loading.recipe_digest(recipe)


@settings(max_examples=30)
@given(recipes(), st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order_of_keys(recipe, shuffler):
    """Two files that say the same in another order are one recipe."""
    import tomlkit

    tables = recipe.as_tables()
    shuffled = {}
    for section in shuffler.sample(list(tables), len(tables)):
        shuffled[section] = {
            key: tables[section][key] for key in shuffler.sample(list(tables[section]), len(tables[section]))
        }
    assert loading.recipe_digest(loading.parse_recipe(tomlkit.dumps(shuffled))) == loading.recipe_digest(recipe)


def test_the_hash_is_the_same_on_every_python():
    """A recipe's name for caches and folders is the same wherever it is computed; it changes when a default does."""
    assert loading.recipe_digest(loading.load_recipe(ROOT / "recipes" / "dual_gpu.toml")) == DUAL_GPU_DIGEST


DUAL_GPU_DIGEST = "83d8055c67856e61e39038551be8c04dbf8ae72d3b6929d85a2079d71697b37a"


def mistakes(text):
    try:
        loading.parse_recipe(text, name="m.toml")
        return []
    except RecipeError as error:
        return error.problems


def test_ten_thousand_mutated_recipes_never_crash(tmp_path):
    """Whatever is done to a recipe's text, the answer is a recipe or problems that each name a line."""
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

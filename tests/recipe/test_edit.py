"""amend: a recipe's text with some settings changed is otherwise as a person wrote it."""

from xtts.recipe import loading
from xtts.recipe.edit import Edit, apply_edits

TEXT = """#:schema ../xtts/recipe/schema.json
# My voice.

[train]
steps = 100                     # some 100,000 for a voice of your own
batch_size = 8   # rows
precision = "float32"

[devices]  # two of them
data_gpu = 0
model_gpu = 1
"""


def test_what_is_changed_is_changed_and_the_rest_stays():
    """A value in its line, with its comment; the reason above it; settings that were not there in their section."""
    made = apply_edits(
        TEXT,
        {
            ("train", "batch_size"): Edit(16, "tuned: 8 before; 1.31 times as fast."),
            ("train", "precision"): Edit("bfloat16", "half the bytes"),
            ("devices", "buffer_size"): Edit("auto", "it waited"),
            ("train", "jit_compile"): Edit(True, "XLA"),
            ("data", "workers"): Edit(4, "more"),
        },
    )
    assert (
        made
        == TEXT.replace("batch_size = 8   # rows", "# tuned: 8 before; 1.31 times as fast.\nbatch_size = 16   # rows")
        .replace('precision = "float32"', '# half the bytes\nprecision = "bfloat16"')
        .replace("[devices]  # two of them\n", '[devices]  # two of them\n# it waited\nbuffer_size = "auto"\n')
        .replace("[train]\n", "[train]\n# XLA\njit_compile = true\n")
        + "\n[data]\n# more\nworkers = 4\n"
    )
    recipe = loading.parse_recipe(made)
    assert (recipe.train.batch_size, recipe.train.steps, recipe.devices.buffer_size) == (16, 100, "auto")


def test_nothing_changed_is_the_same_text():
    """Letter by letter."""
    assert apply_edits(TEXT, {}) == TEXT


def test_a_long_reason_has_several_lines():
    """Each of them a comment."""
    made = apply_edits(TEXT, {("train", "batch_size"): Edit(16, "because " * 40)})
    assert loading.parse_recipe(made).train.batch_size == 16
    assert sum(line.startswith("# because") for line in made.splitlines()) > 2


def test_other_ways_of_writing_mean_the_same_afterwards():
    """Dotted keys are followed; tables within a line are written anew, with the reasons on top."""
    dotted = apply_edits("train.batch_size = 8 # x\ntrain.steps = 900\n", {("train", "batch_size"): Edit(16, "why")})
    assert dotted == "# why\ntrain.batch_size = 16 # x\ntrain.steps = 900\n"
    inline = apply_edits("train = { batch_size = 8, steps = 900 }\n", {("train", "batch_size"): Edit(16, "why")})
    assert inline.startswith("# train.batch_size: why\n")
    recipe = loading.parse_recipe(inline)
    assert (recipe.train.batch_size, recipe.train.steps) == (16, 900)

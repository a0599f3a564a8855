"""Edited recipes: settings change, while the user's comments, order and layout are kept."""

import pytest

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


def test_changed_settings_change_and_the_rest_stays():
    """A value changes in its line, below its reason; new settings are last in their section, new sections last."""
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
        .replace("\n\n[devices]", "\n# XLA\njit_compile = true\n\n[devices]")
        + '# it waited\nbuffer_size = "auto"\n\n[data]\n# more\nworkers = 4\n'
    )
    recipe = loading.parse_recipe(made)
    assert (recipe.train.batch_size, recipe.train.steps, recipe.devices.buffer_size) == (16, 100, "auto")


def test_no_edits_give_the_same_text():
    """The text is identical."""
    assert apply_edits(TEXT, {}) == TEXT


def test_a_long_reason_is_wrapped():
    """Each line of it is a comment."""
    made = apply_edits(TEXT, {("train", "batch_size"): Edit(16, "because " * 40)})
    assert loading.parse_recipe(made).train.batch_size == 16
    assert sum(line.startswith("# because") for line in made.splitlines()) > 2


def test_the_comment_of_the_next_section_stays_with_it():
    """A new setting is inserted after the last one of its section, not after the comments that follow."""
    made = apply_edits("[train]\nsteps = 4\n\n# mine\n[data]\n", {("train", "batch_size"): Edit(16, "why")})
    assert made == "[train]\nsteps = 4\n# why\nbatch_size = 16\n\n# mine\n[data]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.batch_size = 8 # x\ntrain.steps = 900\n", "# why\ntrain.batch_size = 16 # x\ntrain.steps = 900\n"),
        ("train.steps = 900\n", "train.steps = 900\n# why\ntrain.batch_size = 16\n"),
        ("train = { batch_size = 8, steps = 900 }\n", "# why\ntrain = { batch_size = 16, steps = 900 }\n"),
        ("[train]\n  batch_size = 8\n", "[train]\n  # why\n  batch_size = 16\n"),
        ("[train]\nsteps = 900", "[train]\nsteps = 900\n# why\nbatch_size = 16\n"),
        ("", "[train]\n# why\nbatch_size = 16\n"),
    ],
)
def test_other_layouts_are_kept(text, expected):
    """Dotted keys, inline tables, indented settings, a missing final newline and an empty recipe are supported."""
    assert apply_edits(text, {("train", "batch_size"): Edit(16, "why")}) == expected

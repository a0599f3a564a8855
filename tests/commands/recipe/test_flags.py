"""The flags of a recipe are shorter spellings of --set."""

import pytest

from xtts.commands import main
from xtts.commands.recipe import flags
from xtts.recipe import loading


def settings(*typed):
    """What `xtts run` would override."""
    return main.make_parser("run").parse_args(["run", "r.toml", *typed]).settings


def test_every_flag_sets_the_setting_it_is_short_for():
    """Each name people know is a field of the recipe, and its flag is a shorter --set."""
    known = {
        f"{section}.{name}"
        for section, values in loading.json_schema()["properties"].items()
        for name in values["properties"]
    }
    assert set(flags.RECIPE_FLAGS.values()) <= known
    found = settings(
        *(word for flag in flags.RECIPE_FLAGS for word in ([flag] if flag in flags.SWITCHES else [flag, "7"]))
    )
    assert [one.key for one in found] == list(flags.RECIPE_FLAGS.values())
    assert {one.text for one in found if one.flag in flags.SWITCHES} == {"true"}


def test_settings_keep_the_order_in_which_they_were_typed():
    """--set and its shorter spellings are one list, of which the last one of a key wins."""
    found = settings("--batch-size", "2", "--set", "train.batch_size = 3", "--batch-size", "4")
    assert [(one.key, one.text) for one in found] == [("train.batch_size", text) for text in "234"]
    assert settings() == []


def test_a_setting_without_a_value_is_a_mistake(capsys):
    """argparse's status 2, and how to write it."""
    with pytest.raises(SystemExit) as ended:
        settings("--set", "train.steps")
    assert ended.value.code == 2
    assert "write --set key=value, as in --set train.steps=100" in capsys.readouterr().err

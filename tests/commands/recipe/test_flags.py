"""Flags for recipe settings are shorthands for --set."""

import pytest

from xtts.commands import main
from xtts.commands.recipe import flags
from xtts.recipe import loading


def settings(*typed):
    """The settings that `xtts run` would override."""
    return main.make_parser("run").parse_args(["run", "r.toml", *typed]).settings


def test_every_flag_sets_its_setting():
    """Each familiar name is a field of the recipe, and its flag is a shorthand for --set."""
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


def test_settings_keep_the_order_on_the_command_line():
    """--set and its shorthands form one list, in which the last value of a key wins."""
    found = settings("--batch-size", "2", "--set", "train.batch_size = 3", "--batch-size", "4")
    assert [(one.key, one.text) for one in found] == [("train.batch_size", text) for text in "234"]
    assert settings() == []


def test_a_setting_without_a_value_is_a_usage_error(capsys):
    """The command ends with argparse's status 2 and shows how to write a setting."""
    with pytest.raises(SystemExit) as ended:
        settings("--set", "train.steps")
    assert ended.value.code == 2
    assert "write --set key=value, as in --set train.steps=100" in capsys.readouterr().err

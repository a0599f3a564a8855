"""RECIPE, --set and the shorter spellings of --set."""

import argparse
from typing import Any, Optional

RECIPE_FLAGS = {  # shorter spellings of --set, under the names people already use
    "--train-data": "data.train",
    "--val-data": "data.val",
    "--enable-static-shapes": "data.pad_to_fixed_length",
    "--pad-to-fixed-length": "data.pad_to_fixed_length",
    "--max-text-length": "data.max_text_length",
    "--max-mel-frames": "data.max_mel_frames",
    "--model-size": "model.size",
    "--batch-size": "train.batch_size",
    "--data-gpu": "devices.data_gpu",
    "--model-gpu": "devices.model_gpu",
    "--visible-gpus": "devices.visible_gpus",
    "--multi-gpu": "devices.multi_gpu",
    "--buffer-size": "devices.buffer_size",
    "--model-start-delay": "devices.model_start_delay",
}
SWITCHES = {"--enable-static-shapes", "--pad-to-fixed-length", "--multi-gpu"}  # these take no value and set true


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    """A recipe, and `settings`: what overrides it, in the order in which it was typed."""
    parser.set_defaults(settings=[])
    parser.add_argument("recipe", metavar="RECIPE", help="TOML file, such as recipes/dual_gpu.toml")
    parser.add_argument(
        "--set", action=_Override, dest="settings", metavar="KEY=VALUE", help="change one setting: train.steps=100"
    )
    for flag, key in RECIPE_FLAGS.items():
        nargs = 0 if flag in SWITCHES else None
        value = "true" if flag in SWITCHES else "VALUE"
        described = f"short for --set {key}={value}"
        parser.add_argument(flag, action=_Override, dest="settings", nargs=nargs, metavar="VALUE", help=described)


class _Override(argparse.Action):
    """Collects --set and its shorter spellings; the last one of a key wins."""

    def __call__(self, parser: Any, arguments: Any, value: Any, option: Optional[str] = None) -> None:
        from xtts.recipe.loading import Override

        flag = str(option)
        if flag == "--set":
            key, equals, text = value.partition("=")
            if not equals:
                parser.error(f"--set {value}: there is no = in it; write --set key=value, as in --set train.steps=100")
            override = Override(f"--set {value}", key.strip(), text.strip())
        elif flag in SWITCHES:
            override = Override(flag, RECIPE_FLAGS[flag], "true")
        else:
            override = Override(f"{flag} {value}", RECIPE_FLAGS[flag], value)
        arguments.settings = [*arguments.settings, override]

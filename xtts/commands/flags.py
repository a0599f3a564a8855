"""What may be typed behind each verb: a parser comes in, the same with its flags goes out."""

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
SWITCHES = {"--enable-static-shapes", "--pad-to-fixed-length", "--multi-gpu"}  # true by being there


class Set(argparse.Action):
    """Collects --set and its shorter spellings, in the order they were typed: the last one wins."""

    def __call__(self, parser: Any, arguments: Any, value: Any, option: Optional[str] = None) -> None:
        flag = str(option)
        if flag == "--set":
            key, equals, text = value.partition("=")
            if not equals:
                parser.error(f"--set {value}: there is no = in it; write --set key=value, as in --set train.steps=100")
            arguments.settings.append((f"--set {value}", key.strip(), text.strip()))
        elif flag in SWITCHES:
            arguments.settings.append((flag, RECIPE_FLAGS[flag], "true"))
        else:
            arguments.settings.append((f"{flag} {value}", RECIPE_FLAGS[flag], value))


def add(verbs: Any, verb: Any, kind: str = "verb") -> argparse.ArgumentParser:
    help = verb.__doc__.rstrip(".")
    parser: argparse.ArgumentParser = verbs.add_parser(
        verb.__name__.rstrip("_").replace("_", "-"),
        help=help[0].lower() + help[1:],
        description=verb.__doc__,
        allow_abbrev=False,
    )
    parser.set_defaults(**{kind: verb})
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it for machines")


def add_tune(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--minutes", type=_positive, default=10.0, help="how long is tried, after the first trial (10)")
    parser.add_argument("--seconds", type=_positive, default=8.0, help="how long the steps of a trial are measured (8)")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="some of shapes,xla,batch,precision,workers,buffer; or speed"
    )
    parser.add_argument("-o", "--out", metavar="TUNED.toml", help="the recipe to write; unset: RECIPE.tuned.toml")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def add_server(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0: any that is free (0)")
    parser.add_argument("--tied", action="store_true", help="end when standard input ends")
    add_json(parser)
    return parser


def add_corpus(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("folder", metavar="FOLDER", help="a corpus folder, or its metadata file")
    parser.add_argument("--format", default="auto", choices=["auto", "ljspeech", "vctk", "csv", "common_voice"])
    parser.add_argument("--language", default="en", help="of a corpus that does not name one")
    return parser


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder to make")
    parser.add_argument("--minutes", type=float, default=10.0, help="how much is spoken (10)")
    parser.add_argument("--voices", type=int, default=8, help="by how many (8)")
    parser.add_argument("--language", default="en,fa", help="in which languages (en,fa)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other voices and sentences")
    parser.add_argument("--vocabulary", default="wide", choices=["wide", "small"], help="small: some 170 English words")


def add_say(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("folder", metavar="RUN", help="a run's folder, or one that import made")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what to say; - reads it from standard input")
    parser.add_argument(
        "-o", "--out", metavar="OUT.wav", help="the file to write; with --lines, a folder; -: standard output"
    )
    parser.add_argument("--lines", metavar="FILE", help="say a file of lines instead, a wave a line")
    parser.add_argument("--speaker", metavar="REF.wav", action="append", help="a recording of the voice; or several")
    parser.add_argument("--voice", metavar="NAME", help="a voice that the run keeps, or a file of --save-voice")
    parser.add_argument("--save-voice", metavar="FILE", help="keep the voice, as .safetensors")
    parser.add_argument("--language", metavar="CODE", help="of the text, such as fa; unset: by its letters")
    parser.add_argument("--seed", type=int, help="another seed, another reading (0)")
    parser.add_argument(
        "--temperature",
        type=float,
        help="lower is steadier, higher livelier; 0.75 for published weights, 0.4 for a run's own",
    )
    parser.add_argument("--top-k", type=int, help="codes that are drawn from (50)")
    parser.add_argument("--top-p", type=float, help="share of what is likely that is drawn from (0.85)")
    parser.add_argument("--repetition-penalty", type=float, help="10 for published weights, 1 for a run's own")
    parser.add_argument("--speed", type=float, help="1.5 is half as fast again, at the same pitch (1)")
    parser.add_argument("--stream", action="store_true", help="write sound as it is made")
    return parser


def add_evaluate(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("folder", metavar="RUN", help="a run's folder, such as runs/dual_gpu")
    parser.add_argument("--utterances", type=int, default=20, metavar="N", help="how many are judged at most (20)")
    parser.add_argument(
        "--judge", default="auto", metavar="NAME", help="who listens for words: auto, none, sphinx or whisper (auto)"
    )
    return parser


def add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="model.pth", help="the checkpoint, .pth or .safetensors")
    parser.add_argument("out", metavar="OUT", help="the folder to make")
    parser.add_argument("--dvae", metavar="dvae.pth", help="the codec, which is published as a file of its own")
    parser.add_argument("--vocab", metavar="vocab.json", help="the vocabulary it was trained with, or a longer one")
    parser.add_argument("--mel-norms", metavar="mel_norms.pth", help="what mels are divided by")
    parser.add_argument("--config", metavar="config.json", help="Coqui's, where the shapes do not say everything")
    parser.add_argument("--extend", action="store_true", help="add rows for tokens that only the vocabulary has")


def add_recipe_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.set_defaults(settings=[])
    parser.add_argument("recipe", metavar="RECIPE", help="a TOML file, such as recipes/dual_gpu.toml")
    parser.add_argument("--set", action=Set, metavar="KEY=VALUE", help="change one setting, as in train.steps=100")
    for flag, key in RECIPE_FLAGS.items():
        nargs = 0 if flag in SWITCHES else None
        value = "true" if flag in SWITCHES else "VALUE"
        parser.add_argument(flag, action=Set, nargs=nargs, metavar="VALUE", help=f"short for --set {key}={value}")
    return parser

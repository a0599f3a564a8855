"""The verbs: what was typed comes in, an exit status goes out.

0: done. 1: it could not be done. 2: what was typed, or the recipe, must be changed. Each verb imports what it needs
when it is called, so that help and mistakes are answered at once.
"""

import argparse
import os
import sys
from typing import Any, List, Optional, Sequence

from xtts import Mistake, XttsError, __version__

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


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb; what a user can mend is said in a sentence, not in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that lacks a letter still gets the rest; and in a file lines come as they were said.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's own chatter, not its errors
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.verb(arguments)
        sys.stdout.flush()
        return status
    except XttsError as error:
        print(error, file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("xtts: interrupted", file=sys.stderr)
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Check a recipe, read and plan what it trains on, and train it."""
    recipe = _recipe(arguments)  # before anything heavy is imported: a mistake is answered at once
    _need_tensorflow()

    from xtts import crew, report, runs

    try:
        folder = runs.run(recipe)
    except crew.WorkerLost as lost:
        _aside(f"{lost}; start it again, if nothing else does: the run goes on {runs.goes_on(recipe)}")
        crew.begin_again(lost, recipe.cluster.restarts, [*_program(), *sys.argv[1:]])
        return 1
    if folder is None:  # the chief has it
        return 0
    spoken = runs.last_wave(folder)
    if spoken:
        print(f"{spoken} is how it sounds")
    try:
        print(f"{report.write(folder)} shows the run")
    except report.ReportError as error:  # all else is done, and a report can be had at any time
        _aside(f"{error}, and then: xtts report {folder}")
    return 0


def cluster(arguments: argparse.Namespace) -> int:
    """Train a recipe with several workers on this machine, on loopback, as several machines would."""
    recipe = _recipe(arguments)
    _need_tensorflow()
    if arguments.workers < 2:
        raise Mistake(f"--workers {arguments.workers}: a cluster has two workers or more; `xtts run` is for one")

    from pathlib import Path

    from xtts.launch import Launch

    settings = [f"--set={key}={value}" for _, key, value in arguments.settings]
    command = [*_program(), "run", arguments.recipe, *settings]
    folder = Path(recipe.run.folder) / recipe.run.name
    launch = Launch(command, arguments.workers, folder, recipe.cluster.restarts, _aside, arguments.json)
    ended = launch.run()
    if arguments.json:
        found = {"folder": str(folder), "status": ended.status, "restarts": ended.restarts, "logs": ended.logs}
        print(json_text(found), end="")
    return ended.status


def report(arguments: argparse.Namespace) -> int:
    """Write a run's report.html: curves, pictures and sounds of a run that has ended, failed or still goes on."""
    from xtts.report import write

    print(write(arguments.folder))
    return 0


def plan(arguments: argparse.Namespace) -> int:
    """Say what a recipe would train on: shapes, padding, steps, traces and bytes, without TensorFlow."""
    recipe = _recipe(arguments)

    from xtts import plan as plans
    from xtts.material import gather

    recipe = plans.settled(recipe)
    material = gather(recipe, _aside)
    made = plans.plan(recipe, *_planned_from(material))
    print(json_text(made.as_json()) if arguments.json else made.text(), end="")
    return 0


def tune(arguments: argparse.Namespace) -> int:
    """Try settings in short runs, each a process of its own, and write the recipe with what was faster and why."""
    _recipe(arguments)  # before anything is tried: a mistake is answered at once

    from pathlib import Path

    from xtts import tune as tuning

    path = Path(arguments.recipe)
    out = Path(arguments.out) if arguments.out else path.with_name(f"{path.stem}.tuned.toml")
    tuning.check_out(path, out)
    settings = [f"{key}={value}" for _, key, value in arguments.settings]
    only = [name.strip() for name in arguments.only.split(",") if name.strip()]
    say = _aside if arguments.json else print
    found = tuning.tune(path, settings, arguments.minutes, arguments.seconds, only, say)
    tuning.write(path, out, found)
    for note in found.notes:
        say(note)
    if arguments.json:
        print(json_text({**found.as_json(), "written": str(out)}), end="")
    else:
        chosen = ", ".join(f"{'.'.join(key)} = {change.value}" for key, change in found.changes.items())
        print(f"{out} is the recipe with {chosen or 'nothing changed: nothing that was tried is faster'}")
    return 0


def stats(arguments: argparse.Namespace) -> int:
    """Say how a corpus is made: minutes, speakers, languages, lengths, and what fixed padding would waste."""
    from xtts import stats as figures
    from xtts.lengths import measure
    from xtts.material import sounded
    from xtts.normalise import normalise
    from xtts.recipe import Audio

    corpus = sounded(arguments.folder, arguments.format, arguments.language, _aside, at_least=1)
    corpus, lengths = measure(
        corpus,
        lambda text, language: [0, *map(ord, normalise(text, language))],  # a tag and characters, as in a run
        lambda text, language: any(letter.isalnum() for letter in normalise(text, language)),
        Audio(),
        at_least=1,
    )
    found = figures.statistics(corpus, lengths)
    print(json_text(found.as_json()) if arguments.json else found.as_text(sys.stdout.encoding or "ascii"))
    return 0


def corpus(arguments: argparse.Namespace) -> int:
    """Make a demo corpus, or check one of your own."""
    status: int = arguments.deed(arguments)
    return status


def demo(arguments: argparse.Namespace) -> int:
    """Speak a corpus with espeak-ng: LJSpeech's layout, many voices, no download."""
    from xtts import demo as speech
    from xtts.progress import Bar

    languages = [language.strip() for language in arguments.language.split(",")]
    with Bar("speaking") as bar:
        made = speech.make(
            arguments.folder, arguments.minutes, arguments.voices, languages, arguments.seed, bar, arguments.vocabulary
        )
    was = "was there already" if made.reused else "made"
    print(f"{made.folder}: {made.clips:,} clips, {made.seconds / 60:.1f} minutes, {was}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Read every recording of a corpus, and say which cannot be used and why."""
    from xtts.material import sounded
    from xtts.utterances import table, write_rejected

    found = sounded(arguments.folder, arguments.format, arguments.language, print, at_least=0)
    print(f"{len(found.utterances):,} utterances can be used, {len(found.rejected):,} cannot")
    print(table(found.rejected), end="\n" if found.rejected else "")
    if arguments.rejected:
        try:
            write_rejected(arguments.rejected, found.rejected)
        except OSError as error:
            raise XttsError(f"{arguments.rejected}: {error.strerror}; name a file that can be written") from None
    return 0 if found.utterances else 1


def say(arguments: argparse.Namespace) -> int:
    """Say a text in the voice of a recording, with the model of a run or of an import."""
    _need_tensorflow()

    from xtts.say import say as speak

    return speak(arguments)


def evaluate(arguments: argparse.Namespace) -> int:
    """Judge how a run speaks: losses, distortion, words understood and voices, on what was held out."""
    _need_tensorflow()

    from xtts.evaluate import evaluate as judged

    found = judged(arguments.folder, arguments.utterances, arguments.judge, _aside)
    print(json_text(found.as_json()) if arguments.json else found.text(), end="")
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Take over a published XTTS checkpoint, without running anything that is in it."""
    from xtts.weights import import_checkpoint

    imported = import_checkpoint(
        arguments.model,
        arguments.out,
        dvae=arguments.dvae,
        vocab=arguments.vocab,
        mel_norms=arguments.mel_norms,
        config=arguments.config,
        extend=arguments.extend,
    )
    print(imported.text())
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write a model for others: weights under the names that the public implementation loads, or a SavedModel."""
    if (arguments.out is None) == (arguments.saved_model is None):
        raise Mistake("name what to write: OUT.safetensors for weights, or --saved-model DIR, one of them")
    if arguments.saved_model:
        _need_tensorflow()

        from xtts.savedmodel import write

        print(write(arguments.folder, arguments.saved_model))
        return 0
    from xtts import weights

    for path in weights.export(arguments.folder, arguments.out):
        print(path)
    return 0


def data_dispatcher(arguments: argparse.Namespace) -> int:
    """Be a dispatcher of tf.data service, for data.service of recipes, until interrupted."""
    from xtts.servers import dispatch

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    dispatch(arguments.port, arguments.work_dir, arguments.json, arguments.tied)
    return 0


def data_worker(arguments: argparse.Namespace) -> int:
    """Be a worker of tf.data service: read recordings and make features for runs, until interrupted."""
    from xtts.servers import work

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # tf.data works on the host, and GPUs are for others
    work(arguments.dispatcher, arguments.port, arguments.host, arguments.json, arguments.tied)
    return 0


def schema(_arguments: argparse.Namespace) -> int:
    """Print the JSON schema of a recipe, for editors to complete and check it by."""
    path = os.path.join(os.path.dirname(__file__), "recipe.schema.json")  # noqa: PTH118, PTH120 - pathlib takes longer
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        print(file.read(), end="")
    return 0


def migrate(arguments: argparse.Namespace) -> int:
    """Write a recipe from the YAML configuration of the earlier MyXTTS, and say what found no place in it."""
    from pathlib import Path

    from xtts.migrate import write

    config = Path(arguments.config)
    out = Path(arguments.out or f"{config.stem}.toml")
    print(write(config, out).text())
    print(f"{out}; look at it, and then: xtts plan {out}")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Say what this machine offers, and whether training could run."""
    from xtts.doctor import as_text, examine

    findings = examine()
    print(json_text(findings) if arguments.json else as_text(findings))
    return 0 if findings["ready"] else 1


def _need_tensorflow() -> None:
    """A sentence where TensorFlow cannot be imported: what its neighbours do to it has many names."""
    try:
        import tensorflow  # noqa: F401
    except Exception as error:
        said = next(iter(str(error).strip().splitlines()), "")
        raise XttsError(
            f"TensorFlow cannot be imported ({type(error).__name__}: {said}); run `xtts doctor`, which names what is in"
            " the way and the command that mends it"
        ) from None


def json_text(value: Any) -> str:
    """A value for machines to read."""
    import json

    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _program() -> List[str]:
    """How this program was started, without its arguments."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return [sys.executable, *(["-m", spec.parent] if spec and spec.parent else [sys.argv[0]])]


def _recipe(arguments: argparse.Namespace) -> Any:
    """The recipe that was named, with the flags laid over it."""
    from xtts import toml

    return toml.load(arguments.recipe, [toml.Setting(*setting) for setting in arguments.settings])


def _planned_from(material: Any) -> Any:
    """What `plan` takes of a material."""
    from xtts.utterances import counts

    lengths = material.train.lengths
    return lengths.text, lengths.frames, material.tokenizer.size, counts(material.rejected)


def _aside(line: str) -> None:
    """A line that is not the answer."""
    print(line, file=sys.stderr)


class _Set(argparse.Action):
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="xtts",
        description="Train XTTS voice-cloning text-to-speech on any TensorFlow from 2.4 to 2.21, from one TOML recipe.",
        epilog="First steps: xtts doctor, then xtts run recipes/dual_gpu.toml",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xtts {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_recipe_flags(_add(verbs, run))
    starting = _add_recipe_flags(_add(verbs, cluster))
    starting.add_argument("--workers", type=int, default=2, metavar="N", help="how many there are (2)")
    _add_json(starting)
    _add_json(_add_recipe_flags(_add(verbs, plan)))
    _add_json(_add_tune(_add_recipe_flags(_add(verbs, tune))))
    _add(verbs, report).add_argument("folder", metavar="RUN", help="a run's folder, such as runs/dual_gpu")
    _add_json(_add_corpus(_add(verbs, stats)))
    deeds = _add(verbs, corpus).add_subparsers(metavar="DEED", required=True)
    _add_demo(_add(deeds, demo, "deed"))
    _add_corpus(_add(deeds, check, "deed")).add_argument(
        "--rejected", metavar="FILE", help="write a CSV of the unusable"
    )
    _add_json(_add_say(_add(verbs, say)))
    _add_json(_add_evaluate(_add(verbs, evaluate)))
    _add_import(_add(verbs, import_))
    exporting = _add(verbs, export)
    exporting.add_argument("folder", metavar="RUN", help="a run's folder, or one that import made")
    exporting.add_argument("out", metavar="OUT.safetensors", nargs="?", help="the file to write")
    exporting.add_argument("--saved-model", metavar="DIR", help="write a SavedModel instead, which runs without xtts")
    migrating = _add(verbs, migrate)
    migrating.add_argument("config", metavar="config.yaml", help="the configuration of MyXTTS")
    migrating.add_argument("-o", "--out", metavar="OUT.toml", help="the recipe to write; unset: called as the YAML is")
    dispatching = _add_server(_add(verbs, data_dispatcher))
    dispatching.add_argument("--work-dir", metavar="DIR", help="keep state there, to be started again after a crash")
    working = _add_server(_add(verbs, data_worker))
    working.add_argument("--dispatcher", metavar="ADDRESS", required=True, help="such as grpc://10.0.0.5:5000")
    working.add_argument("--host", help="name or address that others reach this machine by; unset: as seen there")
    _add_json(_add(verbs, doctor))
    _add(verbs, schema)
    return parser


def _add(verbs: Any, verb: Any, kind: str = "verb") -> argparse.ArgumentParser:
    help = verb.__doc__.rstrip(".")
    parser: argparse.ArgumentParser = verbs.add_parser(
        verb.__name__.rstrip("_").replace("_", "-"),
        help=help[0].lower() + help[1:],
        description=verb.__doc__,
        allow_abbrev=False,
    )
    parser.set_defaults(**{kind: verb})
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it for machines")


def _add_tune(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
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


def _add_server(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0: any that is free (0)")
    parser.add_argument("--tied", action="store_true", help="end when standard input ends")
    _add_json(parser)
    return parser


def _add_corpus(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("folder", metavar="FOLDER", help="a corpus folder, or its metadata file")
    parser.add_argument("--format", default="auto", choices=["auto", "ljspeech", "vctk", "csv", "common_voice"])
    parser.add_argument("--language", default="en", help="of a corpus that does not name one")
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder to make")
    parser.add_argument("--minutes", type=float, default=10.0, help="how much is spoken (10)")
    parser.add_argument("--voices", type=int, default=8, help="by how many (8)")
    parser.add_argument("--language", default="en,fa", help="in which languages (en,fa)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other voices and sentences")
    parser.add_argument("--vocabulary", default="wide", choices=["wide", "small"], help="small: some 170 English words")


def _add_say(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
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


def _add_evaluate(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("folder", metavar="RUN", help="a run's folder, such as runs/dual_gpu")
    parser.add_argument("--utterances", type=int, default=20, metavar="N", help="how many are judged at most (20)")
    parser.add_argument(
        "--judge", default="auto", metavar="NAME", help="who listens for words: auto, none, sphinx or whisper (auto)"
    )
    return parser


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="model.pth", help="the checkpoint, .pth or .safetensors")
    parser.add_argument("out", metavar="OUT", help="the folder to make")
    parser.add_argument("--dvae", metavar="dvae.pth", help="the codec, which is published as a file of its own")
    parser.add_argument("--vocab", metavar="vocab.json", help="the vocabulary it was trained with, or a longer one")
    parser.add_argument("--mel-norms", metavar="mel_norms.pth", help="what mels are divided by")
    parser.add_argument("--config", metavar="config.json", help="Coqui's, where the shapes do not say everything")
    parser.add_argument("--extend", action="store_true", help="add rows for tokens that only the vocabulary has")


def _add_recipe_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.set_defaults(settings=[])
    parser.add_argument("recipe", metavar="RECIPE", help="a TOML file, such as recipes/dual_gpu.toml")
    parser.add_argument("--set", action=_Set, metavar="KEY=VALUE", help="change one setting, as in train.steps=100")
    for flag, key in RECIPE_FLAGS.items():
        nargs = 0 if flag in SWITCHES else None
        value = "true" if flag in SWITCHES else "VALUE"
        parser.add_argument(flag, action=_Set, nargs=nargs, metavar="VALUE", help=f"short for --set {key}={value}")
    return parser

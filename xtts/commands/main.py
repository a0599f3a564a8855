"""The verbs: what was typed comes in, an exit status goes out.

0: done. 1: it could not be done. 2: what was typed, or the recipe, must be changed. Each verb imports what it needs
when it is called, so that help and mistakes are answered at once.
"""

import argparse
import os
import sys
from typing import Any, List, Optional, Sequence

from xtts import __version__
from xtts.commands.flags import (
    add,
    add_corpus,
    add_demo,
    add_evaluate,
    add_import,
    add_json,
    add_recipe_flags,
    add_say,
    add_server,
    add_tune,
)
from xtts.errors import UsageError, XttsError


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

    from xtts.reporting import report
    from xtts.training import run as runs
    from xtts.training.cluster import collectives

    try:
        folder = runs.train(recipe)
    except collectives.WorkerLost as lost:
        _aside(f"{lost}; start it again, if nothing else does: the run goes on {runs.resume_point(recipe)}")
        collectives.restart_process(lost, recipe.cluster.restarts, [*_program(), *sys.argv[1:]])
        return 1
    if folder is None:  # the chief has it
        return 0
    spoken = runs.newest_sample(folder)
    if spoken:
        print(f"{spoken} is how it sounds")
    try:
        print(f"{report.write_report(folder)} shows the run")
    except report.ReportError as error:  # all else is done, and a report can be had at any time
        _aside(f"{error}, and then: xtts report {folder}")
    return 0


def cluster(arguments: argparse.Namespace) -> int:
    """Train a recipe with several workers on this machine, on loopback, as several machines would."""
    recipe = _recipe(arguments)
    _need_tensorflow()
    if arguments.workers < 2:
        raise UsageError(f"--workers {arguments.workers}: a cluster has two workers or more; `xtts run` is for one")

    from pathlib import Path

    from xtts.training.cluster.launch import Launch

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
    from xtts.reporting.report import write_report

    print(write_report(arguments.folder))
    return 0


def plan(arguments: argparse.Namespace) -> int:
    """Say what a recipe would train on: shapes, padding, steps, traces and bytes, without TensorFlow."""
    recipe = _recipe(arguments)

    from xtts.planning import plan as plans
    from xtts.planning.dataset import load_dataset, plan_dataset
    from xtts.training.stages import stages_of

    recipe = plans.resolve_shapes(recipe)
    made = plan_dataset(recipe, load_dataset(recipe, _aside), stages_of(recipe))
    print(json_text(made.as_json()) if arguments.json else made.text(), end="")
    return 0


def tune(arguments: argparse.Namespace) -> int:
    """Try settings in short runs, each a process of its own, and write the recipe with what was faster and why."""
    _recipe(arguments)  # before anything is tried: a mistake is answered at once

    from pathlib import Path

    from xtts.commands.tune import tune as tuning

    path = Path(arguments.recipe)
    out = Path(arguments.out) if arguments.out else path.with_name(f"{path.stem}.tuned.toml")
    tuning.check_out(path, out)
    settings = [f"{key}={value}" for _, key, value in arguments.settings]
    only = [name.strip() for name in arguments.only.split(",") if name.strip()]
    say = _aside if arguments.json else print
    found = tuning.tune(path, settings, arguments.minutes, arguments.seconds, only, say)
    tuning.write_tuned(path, out, found)
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
    from xtts.corpus import stats as figures
    from xtts.corpus.lengths import measure_lengths
    from xtts.planning.dataset import load_checked_corpus
    from xtts.recipe.schema import AudioSection
    from xtts.text.normalise import normalise

    corpus = load_checked_corpus(arguments.folder, arguments.format, arguments.language, _aside, at_least=1)
    corpus, lengths = measure_lengths(
        corpus,
        lambda text, language: [0, *map(ord, normalise(text, language))],  # a tag and characters, as in a run
        lambda text, language: any(letter.isalnum() for letter in normalise(text, language)),
        AudioSection(),
        at_least=1,
    )
    found = figures.corpus_statistics(corpus, lengths)
    print(json_text(found.as_json()) if arguments.json else found.as_text(sys.stdout.encoding or "ascii"))
    return 0


def corpus(arguments: argparse.Namespace) -> int:
    """Make a demo corpus, or check one of your own."""
    status: int = arguments.deed(arguments)
    return status


def demo(arguments: argparse.Namespace) -> int:
    """Speak a corpus with espeak-ng: LJSpeech's layout, many voices, no download."""
    from xtts.corpus.demo import make as speech
    from xtts.progress import ProgressBar

    languages = [language.strip() for language in arguments.language.split(",")]
    with ProgressBar("speaking") as bar:
        made = speech.make_demo_corpus(
            arguments.folder, arguments.minutes, arguments.voices, languages, arguments.seed, bar, arguments.vocabulary
        )
    was = "was there already" if made.reused else "made"
    print(f"{made.folder}: {made.clips:,} clips, {made.seconds / 60:.1f} minutes, {was}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Read every recording of a corpus, and say which cannot be used and why."""
    from xtts.corpus.utterances import rejection_table, write_rejected
    from xtts.planning.dataset import load_checked_corpus

    found = load_checked_corpus(arguments.folder, arguments.format, arguments.language, print, at_least=0)
    print(f"{len(found.utterances):,} utterances can be used, {len(found.rejected):,} cannot")
    print(rejection_table(found.rejected), end="\n" if found.rejected else "")
    if arguments.rejected:
        try:
            write_rejected(arguments.rejected, found.rejected)
        except OSError as error:
            raise XttsError(f"{arguments.rejected}: {error.strerror}; name a file that can be written") from None
    return 0 if found.utterances else 1


def say(arguments: argparse.Namespace) -> int:
    """Say a text in the voice of a recording, with the model of a run or of an import."""
    _need_tensorflow()

    from xtts.commands.say import say as speak

    return speak(arguments)


def evaluate(arguments: argparse.Namespace) -> int:
    """Judge how a run speaks: losses, distortion, words understood and voices, on what was held out."""
    _need_tensorflow()

    from xtts.evaluation.evaluate import evaluate as judged

    found = judged(arguments.folder, arguments.utterances, arguments.judge, _aside)
    print(json_text(found.as_json()) if arguments.json else found.text(), end="")
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Take over a published XTTS checkpoint, without running anything that is in it."""
    from xtts.weights.importing import import_checkpoint

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
        raise UsageError("name what to write: OUT.safetensors for weights, or --saved-model DIR, one of them")
    if arguments.saved_model:
        _need_tensorflow()

        from xtts.inference.savedmodel import write_savedmodel

        print(write_savedmodel(arguments.folder, arguments.saved_model))
        return 0
    from xtts.weights import exporting as exporting_

    for path in exporting_.export_checkpoint(arguments.folder, arguments.out):
        print(path)
    return 0


def data_dispatcher(arguments: argparse.Namespace) -> int:
    """Be a dispatcher of tf.data service, for data.service of recipes, until interrupted."""
    from xtts.pipeline.service.servers import run_dispatcher

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    run_dispatcher(arguments.port, arguments.work_dir, arguments.json, arguments.tied)
    return 0


def data_worker(arguments: argparse.Namespace) -> int:
    """Be a worker of tf.data service: read recordings and make features for runs, until interrupted."""
    from xtts.pipeline.service.servers import run_worker

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # tf.data works on the host, and GPUs are for others
    run_worker(arguments.dispatcher, arguments.port, arguments.host, arguments.json, arguments.tied)
    return 0


def schema(_arguments: argparse.Namespace) -> int:
    """Print the JSON schema of a recipe, for editors to complete and check it by."""
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "recipe", "schema.json")  # noqa: PTH118, PTH120 - pathlib takes longer
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        print(file.read(), end="")
    return 0


def migrate(arguments: argparse.Namespace) -> int:
    """Write a recipe from the YAML configuration of the earlier MyXTTS, and say what found no place in it."""
    from pathlib import Path

    from xtts.recipe.myxtts import write_migrated

    config = Path(arguments.config)
    out = Path(arguments.out or f"{config.stem}.toml")
    print(write_migrated(config, out).text())
    print(f"{out}; look at it, and then: xtts plan {out}")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Say what this machine offers, and whether training could run."""
    from xtts.commands.doctor import as_text, examine

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
    from xtts.recipe import loading

    return loading.load_recipe(arguments.recipe, [loading.Override(*setting) for setting in arguments.settings])


def _aside(line: str) -> None:
    """A line that is not the answer."""
    print(line, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="xtts",
        description="Train XTTS voice-cloning text-to-speech on any TensorFlow from 2.4 to 2.21, from one TOML recipe.",
        epilog="First steps: xtts doctor, then xtts run recipes/dual_gpu.toml",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xtts {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add_recipe_flags(add(verbs, run))
    starting = add_recipe_flags(add(verbs, cluster))
    starting.add_argument("--workers", type=int, default=2, metavar="N", help="how many there are (2)")
    add_json(starting)
    add_json(add_recipe_flags(add(verbs, plan)))
    add_json(add_tune(add_recipe_flags(add(verbs, tune))))
    add(verbs, report).add_argument("folder", metavar="RUN", help="a run's folder, such as runs/dual_gpu")
    add_json(add_corpus(add(verbs, stats)))
    deeds = add(verbs, corpus).add_subparsers(metavar="DEED", required=True)
    add_demo(add(deeds, demo, "deed"))
    add_corpus(add(deeds, check, "deed")).add_argument("--rejected", metavar="FILE", help="write a CSV of the unusable")
    add_json(add_say(add(verbs, say)))
    add_json(add_evaluate(add(verbs, evaluate)))
    add_import(add(verbs, import_))
    exporting = add(verbs, export)
    exporting.add_argument("folder", metavar="RUN", help="a run's folder, or one that import made")
    exporting.add_argument("out", metavar="OUT.safetensors", nargs="?", help="the file to write")
    exporting.add_argument("--saved-model", metavar="DIR", help="write a SavedModel instead, which runs without xtts")
    migrating = add(verbs, migrate)
    migrating.add_argument("config", metavar="config.yaml", help="the configuration of MyXTTS")
    migrating.add_argument("-o", "--out", metavar="OUT.toml", help="the recipe to write; unset: called as the YAML is")
    dispatching = add_server(add(verbs, data_dispatcher))
    dispatching.add_argument("--work-dir", metavar="DIR", help="keep state there, to be started again after a crash")
    working = add_server(add(verbs, data_worker))
    working.add_argument("--dispatcher", metavar="ADDRESS", required=True, help="such as grpc://10.0.0.5:5000")
    working.add_argument("--host", help="name or address that others reach this machine by; unset: as seen there")
    add_json(add(verbs, doctor))
    add(verbs, schema)
    return parser

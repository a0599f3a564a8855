"""The command line as a user types it."""

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xtts.commands import main
from xtts.recipe import loading

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "dual_gpu.toml"
SMALL_DEMO = ["--set", "demo.minutes=0.3", "--set", "demo.voices=2"]


def test_plan_prints_json_or_a_page_without_starting_tensorflow(xtts, tmp_path):
    """The JSON has the documented keys and the hash of the batch order; without --json a page is printed."""
    planned = json.loads(xtts("plan", RECIPE, "--json", *SMALL_DEMO).stdout)
    keys = "utterances rejected shapes work_ratio traces steps_per_epoch parameters bytes order_hash"
    assert set(keys.split()) <= set(planned)
    assert planned["utterances"] > 2
    assert planned["traces"] == len(planned["shapes"])
    page = xtts("plan", RECIPE, *SMALL_DEMO).stdout
    assert f"batch order {planned['order_hash']}" in page
    fixed = json.loads(xtts("plan", RECIPE, "--json", "--enable-static-shapes", *SMALL_DEMO).stdout)
    assert [(shape["text_length"], shape["mel_frames"]) for shape in fixed["shapes"]] == [(200, 800)]


def test_a_demo_corpus_is_made_described_and_checked(xtts, tmp_path):
    """`corpus demo` makes one, `corpus stats` describes it in text and JSON, `corpus check` accepts it."""
    made = xtts("corpus", "demo", "demo", "--minutes", "0.3", "--voices", "2", "--language", "en,fa")
    assert made.returncode == 0, made.stderr
    figures = json.loads(xtts("stats", "demo", "--json").stdout)
    assert set(figures["languages"]) == {"en", "fa"}
    assert len(figures["speakers"]) == 2
    assert figures["minutes"] == pytest.approx(0.3, rel=0.5)
    assert "padded to 200 tokens and 800 frames" in xtts("stats", "demo").stdout
    checked = xtts("corpus", "check", "demo", "--rejected", "rejected.csv")
    assert f"{figures['utterances']} utterances can be used, 0 cannot" in checked.stdout
    assert (tmp_path / "rejected.csv").read_text(encoding="utf-8").startswith("line,id,file,reason,detail")


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (2, ["stats", "nowhere"]),
        (2, ["corpus", "check", "nowhere"]),
        (1, ["corpus", "check", "."]),
        (2, ["corpus", "demo", "out", "--language", "xx"]),
        (2, ["corpus", "demo", "out", "--minutes", "-1"]),
        (2, ["corpus", "demo", "out", "--minutes", "some"]),
        (2, ["corpus", "demo", "."]),
        (2, ["corpus", "demo", "taken"]),
        (1, ["plan", str(RECIPE), "--train-data", "nowhere"]),
        (1, ["plan", str(RECIPE), "--enable-static-shapes", "--max-mel-frames", "99999"]),
        (2, ["export", "."]),
        (2, ["export", "nowhere", "out.safetensors"]),
        (2, ["export", ".", "out.bin"]),
        (2, ["export", ".", "--saved-model", "."]),
        (2, ["export", ".", "out.safetensors", "--saved-model", "out"]),
        (2, ["evaluate", "nowhere"]),
        (2, ["evaluate", ".", "--utterances", "0"]),
        (2, ["evaluate", ".", "--recogniser", "nobody"]),
        (2, ["report", "nowhere"]),
        (2, ["report", "."]),
        (2, ["import", "nowhere.pth", "out"]),
        (2, ["import", "taken", "."]),
        (2, ["migrate", "nowhere.yaml"]),
        (2, ["migrate", "taken"]),
        (2, ["cluster", str(RECIPE), "--workers", "1"]),
        (2, ["data-worker", "--dispatcher", "nowhere"]),
        (2, ["tune", str(RECIPE), "--only", "nothing"]),
        (2, ["tune", str(RECIPE), "--minutes", "0"]),
        (2, ["tune", str(RECIPE), "--out", "taken"]),
    ],
)
def test_a_user_error_is_one_message(capsys, monkeypatch, tmp_path, status, arguments):
    """The status is 1, or 2 for a usage error, with a message and no traceback."""
    (tmp_path / "taken").write_text("[1, 2")
    monkeypatch.chdir(tmp_path)
    try:
        found = main.main(arguments)
    except SystemExit as error:  # from argparse
        found = error.code
    assert found == status
    assert capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def commands(parser):
    """Every command of the command line, with its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                command = one.get_default("command")
                yield from [(command, one)] if command else commands(one)


@pytest.mark.parametrize(("command", "parser"), commands(main.make_parser()), ids=lambda one: getattr(one, "name", ""))
def test_a_commands_flags_are_its_keyword_arguments(command, parser):
    """The flags of a command are the keyword-only arguments of its function, each annotated with a type."""
    given = {action.dest for action in parser._actions if not isinstance(action, argparse._HelpAction)}
    parameters = inspect.signature(command.body).parameters.values()
    assert {one.name for one in parameters} == given
    assert all(one.kind is one.KEYWORD_ONLY and one.annotation is not one.empty for one in parameters)


def test_a_command_has_the_same_flags_when_parsed_alone():
    """The parser for a single command, which imports less, equals that of all commands."""
    for verb, module in main.VERBS.items():
        for one in [[]] if isinstance(module, str) else [[subcommand] for subcommand in module]:
            pages = []
            for parser in (main.make_parser(), main.make_parser(verb)):
                for name in [verb, *one]:
                    parser = parser._subparsers._group_actions[0].choices[name]
                pages.append(parser.format_help())
            assert pages[0] == pages[1]


def test_a_bad_recipe_is_reported_without_a_traceback(xtts, tmp_path):
    """The status is 2, each mistake is one line on standard error, and nothing is written."""
    (tmp_path / "bad.toml").write_text("[train]\nstepz = 1\nbatch_size = 0\n")
    done = xtts("run", "bad.toml", "--set", "model.size=huge")
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("--set model.size=huge: model.size: ")
    assert lines[1].startswith("bad.toml:2: train.stepz: ")
    assert lines[2].startswith("bad.toml:3: train.batch_size: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments", [("run", "none.toml"), ("run", "."), ("run",), ("rnu",), (), ("run", "x", "--set", "a")]
)
def test_usage_errors_exit_with_status_2(xtts, arguments):
    """Missing files or folders, unknown commands and flags without a value are reported without a traceback."""
    done = xtts(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_reported(xtts, tmp_path):
    """When a run's folder cannot be created, the message names it and the setting to change."""
    (tmp_path / "taken").write_text("a file")
    done = xtts("run", RECIPE, "--set", "run.folder=taken")
    assert done.returncode == 1
    assert "taken" in done.stderr
    assert "run.folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_schema_prints_json(xtts):
    """`xtts schema` prints the JSON schema of recipes."""
    assert json.loads(xtts("schema").stdout) == loading.json_schema()


def test_a_closed_pipe_is_not_an_error():
    """`xtts schema | head -1` ends without an error message."""
    command = f'"{sys.executable}" -m xtts schema | head -1'
    done = subprocess.run(command, shell=True, cwd=str(ROOT), capture_output=True, text=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["schema"],
        ["run", str(ROOT / "tests/recipes_bad/syntax.toml")],
        ["run", str(ROOT / "tests/recipes_bad/unknown_key.toml")],
    ],
)
def test_help_and_mistakes_import_nothing_heavy(arguments):
    """Help, schema and recipe errors are printed without importing TensorFlow, numpy, librosa, attrs or cattrs."""
    script = (
        "import sys\nfrom xtts.commands.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print('HEAVY', sorted({'tensorflow', 'numpy', 'librosa', 'soundfile', 'attr', 'cattrs'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=str(ROOT), capture_output=True, text=True, env={**os.environ}
    )
    assert done.stdout.rstrip().endswith("HEAVY []"), done.stdout[-300:] + done.stderr


def test_a_plan_is_made_without_tensorflow(tmp_path):
    """Everything up to the plan works where TensorFlow is not installed."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('TensorFlow was asked for')")
    done = subprocess.run(
        [sys.executable, "-m", "xtts", "plan", str(RECIPE), *SMALL_DEMO],
        cwd=str(tmp_path),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["run", str(RECIPE)], ["say", "runs", "a", "-o", "x.wav"], ["evaluate", "runs"]])
def test_a_tensorflow_that_fails_to_import_is_reported_in_one_line(xtts, tmp_path, arguments):
    """Whatever its import raises, one line gives the error and refers to `xtts doctor`."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "tensorflow.py").write_text("raise TypeError('Descriptors cannot be created directly.\\nIf this ...')")
    done = xtts(*arguments, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert (
        "TensorFlow cannot be imported (TypeError: Descriptors cannot be created directly.); run `xtts doctor`"
        in done.stderr
    )


def test_the_version_is_the_packages(xtts):
    """--version prints the version of the package."""
    from xtts import __version__

    assert xtts("--version").stdout.strip() == f"xtts {__version__}"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)

"""cli: the verbs as a user types them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xtts.commands import flags, main
from xtts.recipe import loading

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "dual_gpu.toml"


SMALL_DEMO = ["--set", "demo.minutes=0.3", "--set", "demo.voices=2"]


def test_plan_says_everything_before_tensorflow_starts(xtts, tmp_path):
    """The keys that tools read are there, the order has a hash, and people get a page."""
    planned = json.loads(xtts("plan", RECIPE, "--json", *SMALL_DEMO).stdout)
    keys = "utterances rejected shapes work_ratio traces steps_per_epoch parameters bytes order_hash"
    assert set(keys.split()) <= set(planned)
    assert planned["utterances"] > 2
    assert planned["traces"] == len(planned["shapes"])
    page = xtts("plan", RECIPE, *SMALL_DEMO).stdout
    assert f"batch order {planned['order_hash']}" in page
    fixed = json.loads(xtts("plan", RECIPE, "--json", "--enable-static-shapes", *SMALL_DEMO).stdout)
    assert [(shape["text_length"], shape["mel_frames"]) for shape in fixed["shapes"]] == [(200, 800)]


def test_a_demo_corpus_is_made_counted_and_checked(xtts, tmp_path):
    """corpus demo speaks one, stats counts it for people and machines, corpus check finds nothing wrong with it."""
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
        (1, ["stats", "nowhere"]),
        (1, ["corpus", "check", "."]),
        (2, ["corpus", "demo", "out", "--language", "xx"]),
        (2, ["corpus", "demo", "out", "--minutes", "-1"]),
        (1, ["plan", str(RECIPE), "--train-data", "nowhere"]),
        (1, ["plan", str(RECIPE), "--enable-static-shapes", "--max-mel-frames", "99999"]),
        (2, ["export", "nowhere"]),
        (2, ["data-worker", "--dispatcher", "nowhere"]),
        (2, ["tune", str(RECIPE), "--only", "nothing"]),
    ],
)
def test_what_cannot_be_done_is_a_sentence(xtts, status, arguments):
    """Exit status 1, or 2 where what was typed must be changed; a sentence, no traceback."""
    done = xtts(*arguments)
    assert done.returncode == status
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_every_flag_sets_the_setting_it_is_short_for():
    """Each name people know is a field of the recipe, and its flag is a shorter --set."""
    known = {
        f"{section}.{name}"
        for section, values in loading.json_schema()["properties"].items()
        for name in values["properties"]
    }
    assert set(flags.RECIPE_FLAGS.values()) <= known
    typed = [word for flag in flags.RECIPE_FLAGS for word in ([flag] if flag in flags.SWITCHES else [flag, "7"])]
    arguments = main._parser().parse_args(["run", "r.toml", *typed])
    assert [key for _, key, _ in arguments.settings] == list(flags.RECIPE_FLAGS.values())
    assert {text for flag, _, text in arguments.settings if flag in flags.SWITCHES} == {"true"}


def test_a_bad_recipe_is_answered_without_a_traceback(xtts, tmp_path):
    """Exit status 2, a line a mistake on standard error, nothing written."""
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
def test_what_cannot_be_meant_exits_with_2_and_a_sentence(xtts, arguments):
    """Missing files, folders, unknown verbs and flags without a value are told, never thrown."""
    done = xtts(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_a_sentence(xtts, tmp_path):
    """A run whose folder cannot be made says which and what to change."""
    (tmp_path / "taken").write_text("a file")
    done = xtts("run", RECIPE, "--set", "run.folder=taken")
    assert done.returncode == 1
    assert "taken" in done.stderr
    assert "run.folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_schema_prints_json(xtts):
    """What schema prints is the schema."""
    assert json.loads(xtts("schema").stdout) == loading.json_schema()


def test_a_reader_that_has_seen_enough_is_no_error():
    """`xtts schema | head -1` ends quietly."""
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
    """Help, schema and recipe mistakes are answered without TensorFlow, numpy, librosa, attrs or cattrs."""
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
    """Everything up to the plan works where TensorFlow is not even installed."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('TensorFlow was asked for')")
    done = subprocess.run(
        [sys.executable, "-m", "xtts", "plan", str(RECIPE), *SMALL_DEMO],
        cwd=str(tmp_path),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["run", str(RECIPE)], ["say", "runs/x", "a"], ["evaluate", "runs/x"]])
def test_a_tensorflow_that_cannot_be_imported_is_a_sentence(xtts, tmp_path, arguments):
    """Whatever its import raises, the answer is one line that leads to the doctor."""
    (tmp_path / "tensorflow.py").write_text("raise TypeError('Descriptors cannot be created directly.\\nIf this ...')")
    done = xtts(*arguments, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert (
        "TensorFlow cannot be imported (TypeError: Descriptors cannot be created directly.); run `xtts doctor`"
        in done.stderr
    )


def test_the_version_is_the_packages(xtts):
    """--version says what pip would."""
    from xtts import __version__

    assert xtts("--version").stdout.strip() == f"xtts {__version__}"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)

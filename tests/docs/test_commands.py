"""docs: every command on a page is run as written, or marked with the reason why not, and writes the files it promises.

The commands of all pages run in one folder, in the order in which a reader would type them, because some need the files
that others write. `docs_python` is the `python` that they call; it describes how it shortens them. Commands are the
same for every TensorFlow, so the cells of the matrix skip these tests, and the environment `py` runs them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import soundfile
from commands import BLOCK, RUN_BY_CI, TYPED, blocks, statements, typed, verb

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = """
    recipes corpus_and_plan text training speaking decoding cluster data_service tuning evaluating published_weights
    compat troubleshooting
""".split()  # the cluster page trains the run that is evaluated
HOW_TO = "shapes small_gpu two_gpus retracing finetune language resume migrate gpu_utilisation".split()
PAGES = [
    ROOT / "README.md",
    DOCS / "tutorial.md",
    *(DOCS / "howto" / f"{name}.md" for name in HOW_TO),
    *(DOCS / f"{name}.md" for name in GUIDE),
    ROOT / "CONTRIBUTING.md",
]
TWINS_OR_MADE = {DOCS / "fa", DOCS / "reference"}  # pages with the commands of another page, or generated from the code
ALL_PAGES = sorted(page for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] if not TWINS_OR_MADE & set(page.parents))
FILE = re.compile(r"runs/[\w<>./-]+|[\w<>./-]+\.(?:wav|html|toml|jsonl?|csv|safetensors)")
NOT_WRITTEN = {  # files that pages mention and none of their commands writes, with the reason
    "wavs/id.wav": "id stands for the name of a recording",
    "0001.wav": "of `say --lines FILE`, which tests/commands/test_say.py runs",
    "0002.wav": "of `say --lines FILE`, which tests/commands/test_say.py runs",
    "my.tuned.toml": "of `tune`, which tests/commands/tune runs for less long",
    "runs/dual_gpu/evaluation.json": "of `evaluate`, which the pages run on other runs",
}
PROGRAM = "#!python\n"  # marks Python code, which is not passed to a shell
in_a_cell = pytest.mark.skipif("XTTS_CELL" in os.environ, reason="one environment runs the commands")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A folder like a checkout, with small versions of the files that pages say to download, and a reference voice."""
    pytest.importorskip("tokenizers")
    from docs_python import publish

    folder = tmp_path_factory.mktemp("docs")
    (folder / "recipes").symlink_to(ROOT / "recipes", target_is_directory=True)
    publish(folder)
    hum = 0.3 * np.sin(2 * np.pi * 150 * np.arange(3 * 22050) / 22050)
    soundfile.write(folder / "reference.wav", hum, 22050)
    return folder


def run(statement, scene):
    """Run a statement in the folder; gives its exit status and output."""
    from docs_python import call, execute

    arguments, log = verb(statement), scene / "log"
    if arguments is not None:
        return call(arguments, scene, log), log.read_text(encoding="utf-8")
    if statement.startswith(PROGRAM):
        return execute(statement[len(PROGRAM) :], scene, log), log.read_text(encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    command = ["bash", "-euo", "pipefail", "-c", statement]
    done = subprocess.run(command, cwd=str(scene), env=environment, capture_output=True, text=True, encoding="utf-8")
    return done.returncode, done.stdout + done.stderr


def to_run(block):
    """The statements of a block that are executed."""
    if block.mark == "run":  # CI runs all of it; here only the last part, which other pages need
        return [block.code.split("&&")[-1].strip().replace(".venv/bin/", "")]
    if not block.is_run:
        return []
    return [PROGRAM + block.code] if block.kind == "python" else statements(block.code)


def named_files(page):
    """The files that a page mentions in inline code or in a listing of a run's folder."""
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    yield from filter(FILE.fullmatch, re.findall("`([^`\\s]+)`", prose))
    for block in blocks(page):
        folder, *lines = block.code.splitlines()
        if block.kind == "" and FILE.fullmatch(folder):
            for line in lines:
                yield from (folder + name for name in line.split("  ")[1].split(", "))


def is_written(name, paths):
    """Whether a path ends in the given name, where `<name>` and NAME match one part of any path."""
    pattern = re.sub(r"<\w+>|\b[A-Z]{2,}\b", "*", name)
    return any(path.match(pattern) for path in paths)


def paths_in(folder):
    """All files and folders in a folder."""
    found = (Path(above, name) for above, folders, files in os.walk(folder) for name in [*folders, *files])
    return [PurePosixPath(path.relative_to(folder).as_posix()) for path in found]


@in_a_cell
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_succeed(page, scene):
    """Each statement of each block has exit status 0."""
    for block in blocks(page):
        for statement in to_run(block):
            status, output = run(statement, scene)
            assert status == 0, f"{statement}\n{output[-3000:]}"


@in_a_cell
@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_mentions_were_written(page, scene):
    """Each file exists after the commands of all pages, or is in the project or in NOT_WRITTEN."""
    paths = paths_in(scene)
    if not is_written("runs/tiny_cpu/evaluation.json", paths):
        pytest.skip("the commands of the pages were not all run")
    missing = [name for name in named_files(page) if name not in NOT_WRITTEN and not is_written(name, paths)]
    assert not [name for name in missing if not (ROOT / name).exists()]


def test_a_file_declared_as_not_written_is_mentioned_by_a_page():
    """NOT_WRITTEN has no outdated entries."""
    assert set(NOT_WRITTEN) <= {name for page in ALL_PAGES for name in named_files(page)}


def test_a_wrong_path_in_a_page_is_detected(tmp_path):
    """`runs/<name>-<hash>` is reported where runs are written to `runs/<name>`."""
    (tmp_path / "runs" / "my_voice" / "gpt" / "step-1").mkdir(parents=True)
    (tmp_path / "runs" / "my_voice" / "recipe.toml").touch()
    page = tmp_path / "page.md"
    listing = "```\nruns/my_voice/\n  gpt/, a.csv  what they are\n```\n"
    page.write_text("`runs/<name>/recipe.toml` `runs/<name>-<hash>/recipe.toml`\n" + listing)
    missing = [name for name in named_files(page) if not is_written(name, paths_in(tmp_path))]
    assert missing == ["runs/<name>-<hash>/recipe.toml", "runs/my_voice/a.csv"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_is_not_run_has_a_reason(page):
    """A mark before a block is one of CI's, or "not run" with a reason."""
    for block in blocks(page):
        assert block.mark is None or block.mark in RUN_BY_CI or block.mark.startswith("not run: "), block.mark


def test_every_page_with_commands_is_run():
    """Every page with commands is listed in PAGES."""
    assert {page for page in ALL_PAGES if any(block.kind in TYPED for block in blocks(page))} == set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_persian_page_has_the_same_commands(page):
    """If a page has a Persian translation, its commands are the same, in the same order."""
    persian = DOCS / "fa" / (page.relative_to(DOCS) if DOCS in page.parents else page.name)
    if not persian.exists():
        pytest.skip("not written yet")
    assert typed(persian) == typed(page)

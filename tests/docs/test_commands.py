"""docs: every command of every page is run as it stands there, or is marked why not.

The pages are gone through as a reader would, in one folder: what one makes another uses. `docs_python` is the `python`
that they call, and says what is shorter than written. Since a command is the same on every TensorFlow, the cells of the
matrix leave this to the environment that has no TensorFlow of its own in its name.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from commands import RUN_BY_CI, TYPED, blocks, statements, typed, verb

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = """
    recipes corpus_and_plan training speaking decoding cluster data_service tuning evaluating published_weights compat
    troubleshooting
""".split()  # the cluster trains what is evaluated
HOW_TO = "shapes small_gpu two_gpus retracing finetune language resume migrate gpu_utilisation".split()
PAGES = [
    ROOT / "README.md",
    DOCS / "tutorial.md",
    *(DOCS / "howto" / f"{name}.md" for name in HOW_TO),
    *(DOCS / f"{name}.md" for name in GUIDE),
    ROOT / "CONTRIBUTING.md",
]
TWINS_OR_MADE = {DOCS / "fa", DOCS / "reference"}  # what has the commands of another page, or is made from the code
PROGRAM = "#!python\n"  # before what is not for a shell
in_a_cell = pytest.mark.skipif("XTTS_CELL" in os.environ, reason="one environment runs the commands")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A folder as a checkout is, with the files that pages say to download, in small, and a voice to speak like."""
    pytest.importorskip("tokenizers")
    from docs_python import publish

    folder = tmp_path_factory.mktemp("docs")
    (folder / "recipes").symlink_to(ROOT / "recipes", target_is_directory=True)
    publish(folder)
    hum = 0.3 * np.sin(2 * np.pi * 150 * np.arange(3 * 22050) / 22050)
    soundfile.write(folder / "reference.wav", hum, 22050)
    return folder


def run(statement, scene):
    """Do what a statement says, in the scene; its status, and what it said."""
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
    """The statements of a block that are tried."""
    if block.mark == "run":  # CI runs it whole; the last part is run here too, since other pages go on from it
        return [block.code.split("&&")[-1].strip().replace(".venv/bin/", "")]
    if not block.is_run:
        return []
    return [PROGRAM + block.code] if block.kind == "python" else statements(block.code)


@in_a_cell
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_end_well(page, scene):
    """Each statement of each block has exit status 0."""
    for block in blocks(page):
        for statement in to_run(block):
            status, said = run(statement, scene)
            assert status == 0, f"{statement}\n{said[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_not_run_says_why(page):
    """A mark before a block is one of CI's, or "not run" with a reason."""
    for block in blocks(page):
        assert block.mark is None or block.mark in RUN_BY_CI or block.mark.startswith("not run: "), block.mark


def test_every_page_is_tried():
    """A new page with something to type is put among those whose commands are run; signatures are no commands."""
    pages = {page for page in [*ROOT.glob("*.md"), *DOCS.glob("**/*.md")] if not TWINS_OR_MADE & set(page.parents)}
    assert {page for page in pages if any(block.kind in TYPED for block in blocks(page))} == set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_persian_page_has_the_same_commands(page):
    """Where a page is there in Persian, it asks for the same to be typed, in the same order."""
    persian = DOCS / "fa" / (page.relative_to(DOCS) if DOCS in page.parents else page.name)
    if not persian.exists():
        pytest.skip("not written yet")
    assert typed(persian) == typed(page)

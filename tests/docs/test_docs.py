"""docs: generated pages are current, what pages say about TensorFlow is true, and files, names and links exist."""

import importlib
import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PROJECT_FILE = re.compile(r"(?:xtts|docs|tests|benchmarks|recipes|constraints)/[\w<>*./-]*|[\w<>*./-]+\.py")
DOTTED_NAME = re.compile(r"(?<![\w./-])(?:xtts|compat)(?:\.[A-Za-z_]\w*)+")
SEARCHED = [
    "mixed precision",
    "gradient accumulation",
    "prefetch",
    "checkpoint",
    "out of memory",
    "OOM",
    "fine-tune",
    "early stopping",
    "learning rate schedule",
    "overfitting",
    "vocoder",
    "speaker similarity",
    "word error rate",
    "streaming",
]
OF_MYXTTS = {"train_main.py", "inference_main.py"}


def page_id(page):
    return page.relative_to(ROOT).as_posix()


def inline_code(page):
    """The inline code of a page."""
    return re.findall("`([^`\n]+)`", page.read_text(encoding="utf-8").replace("```", ""))


def project_files(page):
    """The files of the project that a page mentions; `<name>` matches any name."""
    for word in {word for code in inline_code(page) for word in code.split()} - OF_MYXTTS:
        if PROJECT_FILE.fullmatch(word):
            yield re.sub(r"<\w+>", "*", word)


def resolve(name):
    """The module, or the attribute of a module, with a dotted name."""
    module, *attributes = name.split(".")
    found = importlib.import_module({"compat": "xtts.compat"}.get(module, module))
    for attribute in attributes:
        try:
            found = getattr(found, attribute)
        except AttributeError:
            found = importlib.import_module(f"{found.__name__}.{attribute}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_file_of_the_project_that_a_page_mentions_exists(page):
    """A path in inline code is that of a file or folder, relative to the project or to `xtts/`."""
    assert not [name for name in project_files(page) if not [*ROOT.glob(name), *ROOT.glob(f"xtts/{name}")]]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_name_of_the_package_that_a_page_mentions_exists(page):
    """`xtts.a.b` is a module or an attribute of one; so is `compat.a`."""
    for code in inline_code(page):
        for name in DOTTED_NAME.findall(code):
            resolve(name)


REFERENCE = runpy.run_path(str(DOCS / "reference.py"))
MATRIX = runpy.run_path(str(DOCS / "matrix.py"))
FOUND = json.loads((DOCS / "reference" / "matrix.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("words", SEARCHED)
def test_the_usual_search_terms_are_found(words):
    """At least one page that is not generated contains each common term, regardless of case and line breaks."""
    pages = (page for page in PAGES if not {DOCS / "fa", DOCS / "reference"} & set(page.parents))
    assert any(words.lower() in " ".join(page.read_text(encoding="utf-8").lower().split()) for page in pages)


def test_a_change_touches_three_files_at_most():
    """Each row of "Where to change what" lists one to three files; another test checks that they exist."""
    section = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where to change what")[1].split("\n## ")[0]
    )
    rows = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| a") or line.startswith("| the")]
    assert len(rows) >= 12
    for row in rows:
        assert 1 <= len({code for code in re.findall("`([^`]+)`", row) if code.endswith(".py")}) <= 3, row


@pytest.mark.parametrize("name", REFERENCE["PAGES"])
def test_the_reference_is_current(name):
    """Each generated page is what `python docs/reference.py` writes."""
    assert (DOCS / name).read_text(encoding="utf-8") == REFERENCE["PAGES"][name]()


def test_the_table_of_releases_matches_this_tensorflow():
    """The APIs that the docs list for this TensorFlow are those that compat chooses."""
    from xtts import compat

    release = MATRIX["minor"](compat.OFFERED.version)
    if release not in FOUND:
        pytest.skip(f"TensorFlow {release} is not in the matrix")
    assert FOUND[release]["names"] == compat.OFFERED.names()


def test_the_tables_of_releases_match_the_matrix():
    """README and reference agree with reference/matrix.json, which has every cell of tox."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert MATRIX["readme"](readme, FOUND) == readme
    assert MATRIX["page"](FOUND) == (DOCS / "reference" / "tensorflow.md").read_text(encoding="utf-8")
    cells = re.search(r"matrix = (.*)", (ROOT / "tox.ini").read_text(encoding="utf-8")).group(1).split(", ")
    assert {f"py{row['python']}-tf{release}" for release, row in FOUND.items()} == set(cells)
    assert all(all(row["works"].values()) for row in FOUND.values())


def test_the_tables_and_pictures_of_scaling_are_current():
    """docs/scaling.md and its pictures are what `python docs/scaling.py` writes."""
    made = runpy.run_path(str(ROOT / "docs" / "scaling.py"))
    assert (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8") == made["page"]()
    for name, drawn in made["pictures"]().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawn


def test_the_tables_of_how_near_are_those_that_were_measured():
    """docs/how_near.md is what `python docs/how_near.py` writes."""
    made, current = runpy.run_path(str(DOCS / "how_near.py")), (DOCS / "how_near.md").read_text(encoding="utf-8")
    assert current.count("| ") > 100
    assert made["page"](current, json.loads((DOCS / "how_near.json").read_text(encoding="utf-8"))) == current


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda path: path.stem)
def test_every_link_to_the_project_leads_to_a_file(page):
    """A relative link leads to an existing file; the build of the site also checks anchors."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_ci_runs_the_commands_of_the_readme():
    """.ci/run finds both commands by their marks in the README, so the two cannot diverge."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "for name in run test" in script
    for name in ("run", "test"):
        found = subprocess.run(
            ["sed", "-n", f"/<!-- {name} -->/,/^```$/p", "README.md"], cwd=str(ROOT), capture_output=True, text=True
        ).stdout
        assert ".venv/bin/" in found


def test_the_readme_has_the_table_of_peers():
    """The table is between the marks that `python -m benchmarks.peers --readme` replaces, with its date and machine."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- peers -->") : text.index("<!-- /peers -->")]
    assert {"coqui-tts", "librosa"} <= {word for line in table.splitlines() for word in line.split()}
    assert re.search(r"\d{4}-\d\d-\d\d, .+, \d+ cores, .+TensorFlow [\d.]+\.\n", table)

"""docs: what is generated is current, what is said of TensorFlow is so, and what is linked is there."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = runpy.run_path(str(DOCS / "reference.py"))
MATRIX = runpy.run_path(str(DOCS / "matrix.py"))
FOUND = json.loads((DOCS / "reference" / "matrix.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", REFERENCE["PAGES"])
def test_the_reference_is_current(name):
    """Each page is what `python docs/reference.py` writes."""
    assert (DOCS / name).read_text(encoding="utf-8") == REFERENCE["PAGES"][name]()


def test_the_table_of_releases_is_true_here():
    """What the docs say that compat chose on this TensorFlow is what it chose."""
    from xtts import compat

    release = MATRIX["minor"](compat.OFFERED.version)
    if release not in FOUND:
        pytest.skip(f"TensorFlow {release} is not in the matrix")
    assert FOUND[release]["names"] == compat.OFFERED.names()


def test_the_tables_of_releases_are_those_of_the_matrix():
    """README and reference say what reference/matrix.json does, of every cell that tox has."""
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


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda path: path.stem)
def test_every_link_inside_leads_somewhere(page):
    """A link to a file of the project is a file of the project; the site's build looks at the parts of pages."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_ci_runs_the_commands_of_the_readme():
    """.ci/run finds both commands by their marks, so that it cannot drift from the README."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "for name in run test" in script
    for name in ("run", "test"):
        found = subprocess.run(
            ["sed", "-n", f"/<!-- {name} -->/,/^```$/p", "README.md"], cwd=str(ROOT), capture_output=True, text=True
        ).stdout
        assert ".venv/bin/" in found


def test_the_readme_has_the_table_of_peers():
    """Between the marks that `python -m benchmarks.peers --readme` knows, with the day and the machine it is of."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- peers -->") : text.index("<!-- /peers -->")]
    assert {"coqui-tts", "librosa"} <= {word for line in table.splitlines() for word in line.split()}
    assert re.search(r"\d{4}-\d\d-\d\d, .+, \d+ cores, .+TensorFlow [\d.]+\.\n", table)

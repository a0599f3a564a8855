"""docs: what is generated is current, and what is linked is there."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_table_of_settings_is_current():
    """docs/settings.md is what `python docs/reference.py` writes."""
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(ROOT / "docs" / "reference.py"))["settings"]()


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda path: path.name)
def test_every_link_inside_leads_somewhere(page):
    """A link to a file of the project is a file of the project."""
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

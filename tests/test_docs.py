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


def test_the_tables_and_pictures_of_scaling_are_current():
    """docs/scaling.md and its pictures are what `python docs/scaling.py` writes."""
    made = runpy.run_path(str(ROOT / "docs" / "scaling.py"))
    assert (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8") == made["page"]()
    for name, drawn in made["pictures"]().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawn


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

"""Generate the table of TensorFlow releases from the environments of the matrix.

    tox -m matrix
    python docs/matrix.py .tox/py*-tf*/bin/python

Runs `python -m xtts.compat.probe` with each interpreter, to see what `xtts.compat` finds in its TensorFlow. Findings
go to reference/matrix.json, and from there into the README and reference/tensorflow.md; other releases stay as they
were. In every cell of the matrix a test compares its own findings with that file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
FOUND = DOCS / "reference" / "matrix.json"
PAGE = DOCS / "reference" / "tensorflow.md"
README = DOCS.parent / "README.md"
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
COLUMNS = {  # of the README, with their headings
    "jit_compile": "XLA keyword",
    "reduce_retracing": "relaxed shapes",
    "memory_info": "memory",
    "op_determinism": "determinism",
}
WITHOUT = {"op_determinism": "`TF_DETERMINISTIC_OPS`"}  # what compat uses where there is no such name


def minor(version):
    """ "2.4" of "2.4.4"."""
    return ".".join(version.split(".")[:2])


def asked(python):
    """The row of the table for one interpreter's TensorFlow."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(DOCS.parent),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    said = subprocess.run([python, "-m", "xtts.compat.probe"], env=environment, stdout=subprocess.PIPE, check=True)
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], stdout=subprocess.PIPE
    )
    findings = json.loads(said.stdout.decode().splitlines()[-1])
    works = {name: trial["works"] for name, trial in findings["trials"].items()}
    return {
        "tensorflow": findings["version"],
        "python": version.stdout.decode().strip(),
        "names": findings["names"],
        "works": works,
    }


def collect(pythons):
    """Every release by its number, the oldest first, updated from these interpreters."""
    rows = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    for python in pythons:
        row = asked(python)
        rows[minor(row["tensorflow"])] = row
    return {
        release: rows[release] for release in sorted(rows, key=lambda name: [int(part) for part in name.split(".")])
    }


def short(name, row):
    """A name as shown in the README: its last part, or the keyword."""
    found = row["names"][name]
    if found is None:
        return WITHOUT.get(name, "none")
    return f"`{found.split('(')[-1].split('=')[0].split('.')[-1]}`"


def table(rows):
    """The README's table; identical releases share a line."""
    lines = [f"| TensorFlow | Python | {' | '.join(COLUMNS.values())} |", "|---|---|" + "---|" * len(COLUMNS)]
    groups = []
    for release, row in rows.items():
        cells = [row["python"], *(short(name, row) for name in COLUMNS)]
        if groups and groups[-1][1] == cells:
            groups[-1][0].append(release)
        else:
            groups.append(([release], cells))
    return "\n".join([*lines, *(f"| {', '.join(releases)} | {' | '.join(cells)} |" for releases, cells in groups)])


def page(rows):
    """reference/tensorflow.md: every name that compat chose, by release."""
    lines = [
        "# TensorFlow releases",
        "",
        "What `xtts.compat` found in each release when the matrix ran, and what `xtts doctor` tried there. Made by"
        " `python docs/matrix.py`; in each cell of the matrix a test compares it with that cell's own TensorFlow.",
    ]
    for capability in next(iter(rows.values()))["names"]:
        lines += ["", f"## {capability.replace('_', ' ')}", "", "| TensorFlow | name |", "|---|---|"]
        spans = []
        for release, row in rows.items():
            found = row["names"][capability]
            if spans and spans[-1][1] == found:
                spans[-1][0].append(release)
            else:
                spans.append(([release], found))
        lines += [f"| {', '.join(releases)} | {f'`{name}`' if name else 'none'} |" for releases, name in spans]
    lines += ["", "## Tried", "", "| TensorFlow | Python | works |", "|---|---|---|"]
    for row in rows.values():
        works = ", ".join(name for name, is_so in row["works"].items() if is_so)
        lines.append(f"| {row['tensorflow']} | {row['python']} | {works} |")
    return "\n".join(lines) + "\n"


def readme(text, rows):
    """The README with the table between its marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def main(pythons):
    rows = collect(pythons)
    FOUND.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

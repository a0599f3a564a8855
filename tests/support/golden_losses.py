"""Regenerate the golden files of a whole run, which must hold on every TensorFlow: use the newest and the oldest.

python tests/support/golden_losses.py losses        tests/golden/losses.json: the loss of every step, by stage
python tests/support/golden_losses.py checkpoints   tests/golden/run: the checkpoints of the run
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from run_processes import Runs, losses, make_corpus

GOLDEN = Path(__file__).parents[1] / "golden"
KEPT, LAST = 12, 20  # steps whose checkpoints are kept: half-way, and the codec's last


def _made(root):
    make_corpus(root / "corpus")
    runs = Runs(root)
    assert runs.run("whole", "train.keep_checkpoints=10").status == 0
    return runs.folder("whole")


def _write_losses(folder):
    found = {stage: losses(folder, stage) for stage in ("codec", "gpt")}
    (GOLDEN / "losses.json").write_text(json.dumps(found, indent=1) + "\n")


def _write_checkpoints(folder):
    shutil.rmtree(GOLDEN / "run", ignore_errors=True)
    for stage, step in (("codec", KEPT), ("codec", LAST), ("gpt", KEPT)):
        kept = Path(stage, f"step-{step:08d}")
        shutil.copytree(folder / kept, GOLDEN / "run" / kept)
        shutil.copy(folder / stage / "inputs.json", GOLDEN / "run" / stage)
    shutil.copy(folder / "mel_stats.json", GOLDEN / "run")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        {"losses": _write_losses, "checkpoints": _write_checkpoints}[sys.argv[1]](_made(Path(root)))

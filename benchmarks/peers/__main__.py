"""`python -m benchmarks.peers`: compare this package with coqui-tts and librosa in one run.

    python -m benchmarks.peers --readme --json FILE

coqui-tts and librosa are installed on demand, each in an environment of its own in --folder. Everything runs on one
thread, in processes that take turns, and processor times are compared, so that other load on the machine has little
effect. --readme puts the table into README.md, between its marks.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

from ..machine import machine
from .environments import PACKAGES, PeerError, python_of

THREADS = "1"
os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], THREADS))

from ..turns import ENVIRONMENT, ProgramError, in_rounds  # noqa: E402 - its programs inherit the threads

FOLDER = Path(__file__).parent.parent
README = FOLDER.parent / "README.md"
START, END = "<!-- peers -->", "<!-- /peers -->"


class Line(NamedTuple):
    """A row of the table: one task, in processor seconds of a peer and of this package."""

    what: str
    peer: str
    theirs: float
    ours: float
    unit: str
    note: str = ""
    amount: float = 0.0  # units produced in these seconds, to show a rate; 0: the seconds are shown

    @property
    def times(self) -> float:
        return self.theirs / self.ours

    def shown(self, seconds: float) -> str:
        value = self.amount / seconds if self.amount else seconds
        return f"{value:,.0f} {self.unit}" if value >= 100 else f"{value:.3g} {self.unit}"


def steps(folder: Path, rounds: int) -> List[Line]:
    """A training step: forward, backward and AdamW, at equal sizes on equal batches."""
    pythons = {"coqui": python_of("coqui", folder), "graph": sys.executable}
    found = in_rounds(pythons, FOLDER / "gpt_step.py", ["0.0", THREADS], rounds)
    theirs, ours = (found[way].median("processor") for way in pythons)
    peak = {way: one.end["peak"] / 1e9 for way, one in found.items()}
    note = f"processes of {peak['coqui']:.2g} and {peak['graph']:.2g} GB"
    return [Line("training step of the GPT, 4 layers of 256, 8 rows", _release("coqui"), theirs, ours, "s", note)]


def sentences(folder: Path, rounds: int) -> List[Line]:
    """Autoregressive generation from the same weights."""
    pythons = {"coqui": python_of("coqui", folder), "xla": sys.executable}
    lines = []
    with tempfile.TemporaryDirectory() as made:
        weights = str(Path(made) / "gpt.safetensors")
        script = FOLDER / "speak.py"
        subprocess.run([sys.executable, str(script), "weights", weights], check=True, env=ENVIRONMENT)
        for picking in ("greedy", "sampled"):
            found = in_rounds(pythons, script, [weights, THREADS, picking], rounds)
            count = found["xla"].turns[0]["codes"]
            theirs, ours = (one.median("processor") * count / one.turns[0]["codes"] for one in found.values())
            same = found["xla"].first["codes"] == found["coqui"].first["codes"]
            note = "the same codes" if same else ""
            lines.append(
                Line(f"generation, {picking}", _release("coqui"), theirs, ours, "codes a second", note, float(count))
            )
    return lines


def mels(folder: Path, rounds: int) -> List[Line]:
    """The mel of 6.6 seconds of audio."""
    pythons = {"coqui": python_of("coqui", folder), "librosa": python_of("librosa", folder), "xtts": sys.executable}
    found = in_rounds(pythons, FOLDER / "peers" / "mel.py", [], rounds)
    means = [one.first["mean"] for one in found.values()]
    assert max(means) - min(means) < 1e-2, f"these are not the same mels: {means}"
    work = {way: 1000 * one.median("processor") for way, one in found.items()}
    return [
        Line("mel of 6.6 s of sound", _release(peer), work[peer], work["xtts"], "ms", "the same mel")
        for peer in ("coqui", "librosa")
    ]


def paddings(folder: Path, rounds: int) -> List[Line]:
    """An epoch on LJSpeech's lengths, with all utterances padded to one shape as in MyXTTS, and without."""
    ways = dict.fromkeys(("fixed", "planned", "relaxed"), sys.executable)
    found = in_rounds(ways, FOLDER / "padding.py", [], rounds)
    each = {way: one.median("processor") / one.first["frames"] for way, one in found.items()}
    lost = found["fixed"].first["lost"]
    names = {"planned": "8 planned shapes", "relaxed": "one relaxed function"}
    what, peer = "real mel frames trained on, tiny model, {}", "one fixed shape of 200 x 800"
    note = f"the fixed shape loses {lost:,} of 13,100 clips"
    return [
        Line(what.format(names[way]), peer, each["fixed"], each[way], "frames a second", note, 1.0) for way in names
    ]


def _release(peer: str) -> str:
    return {"coqui": "coqui-tts", "librosa": "librosa"}[peer] + " " + PACKAGES[peer][0][-1].split("==")[1]


MEASURED: Dict[str, Callable[[Path, int], List[Line]]] = {
    "step": steps,
    "generation": sentences,
    "mel": mels,
    "padding": paddings,
}


def markdown(lines: List[Line], about: Dict[str, Any]) -> str:
    """The table, with the date and the machine."""
    rows = ["| what | beside | theirs | this package | times as fast | |", "|---|---|---|---|---|---|"]
    rows += [
        f"| {one.what} | {one.peer} | {one.shown(one.theirs)} | {one.shown(one.ours)} | {one.times:.2f} | {one.note} |"
        for one in lines
    ]
    where = f"{about['cpu_model']}, {about['cores']} cores, one thread used, TensorFlow {about['tensorflow']}"
    rows += ["", f"Processor time, in turns in one run; {about['date']}, {where}."]
    return "\n".join(rows)


def put_into(readme: Path, table: str) -> None:
    """Replace the text between the marks."""
    text = readme.read_text(encoding="utf-8")
    if START not in text or END not in text:
        raise PeerError(f"{readme} has no {START} and {END} to put the table between: write them where it belongs")
    head, rest = text.split(START, 1)
    readme.write_text(f"{head}{START}\n{table}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(".peers"), help="of the environments (.peers)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program (5)")
    parser.add_argument("--only", choices=MEASURED, action="append", help="measure this alone; may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    asked = parser.parse_args()
    about = {"date": datetime.date.today().isoformat(), **machine()}
    try:
        lines: List[Line] = []
        for name in asked.only or MEASURED:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            lines += MEASURED[name](asked.folder.resolve(), asked.rounds)
            if asked.json:  # after each task, so that an interrupted run keeps its results
                figures = [{**one._asdict(), "times": one.times} for one in lines]
                asked.json.write_text(json.dumps({**about, "lines": figures}, indent=1) + "\n", encoding="utf-8")
        table = markdown(lines, about)
        print(table)
        if asked.readme:
            put_into(README, table)
    except (PeerError, ProgramError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

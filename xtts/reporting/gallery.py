"""The gallery of a report: the samples of a run, as audio players and pictures.

Each text gets a card with the newest sample of every kind, and a few from earlier steps, so that progress is audible.
Files are embedded in the page until it would become too large; the rest are links into the run's folder.
"""

import base64
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from xtts.reporting.templates import render_part

MAX_BYTES = 8_000_000  # of embedded files; base64 adds a third
MAX_TEXTS = 8  # the newest
SHOWN_SAMPLES = {"recording": 1, "codec": 2, "spoken": 3}  # of one kind and text
KINDS = {"recording": "recorded", "codec": "through the codec", "spoken": "spoken"}
TYPES = {".wav": "audio/wav", ".png": "image/png"}
Sample = Mapping[str, Any]  # a line of samples.jsonl


def gallery(samples: Sequence[Sample], folder: Path) -> str:
    """The cards of a run's samples, which are given in chronological order; empty if there are none."""
    chosen = choose(samples)
    shown = {id(sample) for takes in chosen.values() for sample in takes}
    embedded = _embedded([sample for sample in samples if id(sample) in shown], folder)
    cards = [
        {"text": text, "takes": [_take(sample, folder, embedded) for sample in takes]} for text, takes in chosen.items()
    ]
    return render_part("gallery", cards=cards)


def choose(samples: Sequence[Sample]) -> Dict[str, List[Sample]]:
    """The samples to show, by text: the newest of each kind, and for kinds made by the model some of earlier steps."""
    texts: Dict[str, Dict[str, List[Sample]]] = {}
    for sample in samples:
        text, kind = str(sample.get("text") or ""), str(sample.get("kind") or "spoken")
        kinds = texts.pop(text, {})  # moves it to the end: the newest texts are shown
        kinds.setdefault(kind, []).append(sample)
        texts[text] = kinds
    chosen: Dict[str, List[Sample]] = {}
    for text in list(texts)[-MAX_TEXTS:]:
        takes = {kind: evenly_spaced(made, SHOWN_SAMPLES.get(kind, 1)) for kind, made in texts[text].items()}
        chosen[text] = [take for kind in sorted(takes, key=_order) for take in takes[kind]]
    return chosen


def evenly_spaced(samples: Sequence[Sample], count: int) -> List[Sample]:
    """`count` samples, evenly spaced from the first to the last; for a single one the last."""
    if count == 1:
        return list(samples[-1:])
    last = len(samples) - 1
    return [samples[place] for place in sorted({round(last * part / (count - 1)) for part in range(count)})]


def _order(kind: str) -> Tuple[int, str]:
    return (list(KINDS).index(kind) if kind in KINDS else len(KINDS), kind)


def _embedded(samples: Sequence[Sample], folder: Path) -> Set[Path]:
    """The files to embed: the newest ones, as many as fit."""
    left, chosen = MAX_BYTES, set()
    for sample in reversed(samples):
        for name in ("picture", "wav"):
            file = _file(sample.get(name), folder)
            size = file.stat().st_size if file else 0
            if file and file not in chosen and size <= left:
                left -= size
                chosen.add(file)
    return chosen


def _take(sample: Sample, folder: Path, embedded: Set[Path]) -> Dict[str, Any]:
    kind = str(sample.get("kind") or "spoken")
    step = "" if kind == "recording" else f", step {sample.get('step') or 0:,}"
    files = []
    for name in ("picture", "wav"):
        file = _file(sample.get(name), folder)
        if file:
            source = _data(file) if file in embedded else file.relative_to(folder.resolve()).as_posix()
            files.append({"kind": name, "source": source, "missing": ""})
        elif sample.get(name):
            files.append({"kind": name, "source": "", "missing": str(sample[name])})
    return {"title": f"{KINDS.get(kind, kind)}{step}", "files": files}


def _file(name: Any, folder: Path) -> Optional[Path]:
    """The file of a sample: inside the run's folder, and of a known type; None for anything else."""
    if not isinstance(name, str) or not name:
        return None
    try:
        for place in (folder / name, folder / "samples" / name):
            file = place.resolve()
            if file.suffix in TYPES and folder.resolve() in file.parents and file.is_file():
                return file
    except (OSError, ValueError):  # an invalid file name
        pass
    return None


def _data(file: Path) -> str:
    return f"data:{TYPES[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"

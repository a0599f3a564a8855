"""The samples of a run, to hear and see: lines of samples.jsonl come in, HTML with players and pictures goes out.

Each text gets a card: the newest sample of every kind, and a few from earlier steps, so that one hears it learn. Files
are put into the page until it would grow too large; the rest are links into the run's folder.
"""

import base64
from html import escape
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

MOST_BYTES = 8_000_000  # of files in a page; base64 makes a third more of them
MOST_TEXTS = 8  # the newest
THROUGH_TIME = {"recording": 1, "codec": 2, "spoken": 3}  # samples of one kind and text
KINDS = {"recording": "recorded", "codec": "through the codec", "spoken": "spoken"}
TYPES = {".wav": "audio/wav", ".png": "image/png"}
Sample = Mapping[str, Any]

STYLE = """
.sample+.sample{margin-top:1rem}
.sample>p{margin:0 0 .8rem;font-size:1.02rem;line-height:1.6}
.takes{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr))}
.take h5{margin:0 0 .3rem;font-size:.82rem;font-weight:500;color:var(--soft)}
.take img{display:block;width:100%;height:7rem;border-radius:6px;margin-bottom:.35rem}
.take audio{display:block;width:100%;height:2.2rem}
"""


def gallery(samples: Sequence[Sample], folder: Path) -> str:
    """The cards of a run's samples, which come in the order they were made; empty where there are none."""
    chosen = choose(samples)
    shown = {id(sample) for takes in chosen.values() for sample in takes}
    embedded = _embedded([sample for sample in samples if id(sample) in shown], folder)
    cards = []
    for text, takes in chosen.items():
        takes_html = f'<div class="takes">{"".join(_take(sample, folder, embedded) for sample in takes)}</div>'
        cards.append(f'<article class="sample card"><p dir="auto">{escape(text) or "&nbsp;"}</p>{takes_html}</article>')
    return "".join(cards)


def choose(samples: Sequence[Sample]) -> Dict[str, List[Sample]]:
    """The samples to show, by text: of each kind the newest, and for what is learnt some through time."""
    texts: Dict[str, Dict[str, List[Sample]]] = {}
    for sample in samples:
        text, kind = str(sample.get("text") or ""), str(sample.get("kind") or "spoken")
        kinds = texts.pop(text, {})  # to the end: the newest texts are shown
        kinds.setdefault(kind, []).append(sample)
        texts[text] = kinds
    chosen: Dict[str, List[Sample]] = {}
    for text in list(texts)[-MOST_TEXTS:]:
        takes = {kind: through_time(made, THROUGH_TIME.get(kind, 1)) for kind, made in texts[text].items()}
        chosen[text] = [take for kind in sorted(takes, key=_order) for take in takes[kind]]
    return chosen


def through_time(samples: Sequence[Sample], most: int) -> List[Sample]:
    """The last sample, and before it as many as are wanted, evenly from the first on."""
    if most == 1:
        return list(samples[-1:])
    last = len(samples) - 1
    return [samples[place] for place in sorted({round(last * part / (most - 1)) for part in range(most)})]


def _order(kind: str) -> Tuple[int, str]:
    return (list(KINDS).index(kind) if kind in KINDS else len(KINDS), kind)


def _embedded(samples: Sequence[Sample], folder: Path) -> Set[Path]:
    """The files that fit into the page, the newest first."""
    left, chosen = MOST_BYTES, set()
    for sample in reversed(samples):
        for name in ("picture", "wav"):
            file = _file(sample.get(name), folder)
            size = file.stat().st_size if file else 0
            if file and file not in chosen and size <= left:
                left -= size
                chosen.add(file)
    return chosen


def _take(sample: Sample, folder: Path, embedded: Set[Path]) -> str:
    kind = str(sample.get("kind") or "spoken")
    step = "" if kind == "recording" else f", step {sample.get('step') or 0:,}"
    title = f"{KINDS.get(kind, kind)}{step}"
    parts = [f"<h5>{escape(title)}</h5>"]
    for name, tag in (
        ("picture", '<img alt="mel, {}" src="{}">'),
        ("wav", '<audio controls title="{}" src="{}"></audio>'),
    ):
        file = _file(sample.get(name), folder)
        if file:
            source = _data(file) if file in embedded else file.relative_to(folder.resolve()).as_posix()
            parts.append(tag.format(escape(title), escape(source)))
        elif sample.get(name):
            parts.append(f'<p class="note">{escape(str(sample[name]))} is no longer there.</p>')
    return f'<div class="take">{"".join(parts)}</div>'


def _file(name: Any, folder: Path) -> Any:
    """The file of a sample: one of the run's folder, of a known type, or None."""
    if not isinstance(name, str) or not name:
        return None
    try:
        for place in (folder / name, folder / "samples" / name):
            file = place.resolve()
            if file.suffix in TYPES and folder.resolve() in file.parents and file.is_file():
                return file
    except (OSError, ValueError):  # no name that a file can have
        pass
    return None


def _data(file: Path) -> str:
    return f"data:{TYPES[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"

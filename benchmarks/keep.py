"""Update the baselines: read JSON files of pytest-benchmark, and write `baselines/`.

    python benchmarks/keep.py RUN.json...

Of several runs it keeps the median of each ratio, the worst of each count, and the shortest of each time, for the
machine that it was measured on. Runs with a broken promise are refused.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List

from machine import machine_key
from promises import BASELINE, RATIO, TIMES


def promises(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """A figure for each promise that any of the runs measured."""
    figures: Dict[str, List[Dict[str, Any]]] = {}
    for run in runs:
        for one in run["promises"]:
            figures.setdefault(one["name"], []).append(one)
    kept = {}
    for name, some in sorted(figures.items()):
        measured = [one["measured"] for one in some]
        worst = min if some[0]["bar"].startswith("at least") else max
        # Counts are not rounded: rounded down, the same count would break the promise.
        figure = float(f"{statistics.median(measured):.4g}") if some[0]["kind"] == RATIO else worst(measured)
        kept[name] = {"kind": some[0]["kind"], "measured": figure}
    last = runs[-1]
    return {"tensorflow": last["machine_info"]["tensorflow"], "date": last["datetime"][:10], "promises": kept}


def times(runs: List[Dict[str, Any]], before: Dict[str, Any]) -> Dict[str, Any]:
    """The shortest times of each machine; those of machines that are not among the runs are kept."""
    fresh: Dict[str, Dict[str, Any]] = {}
    for run in runs:
        kept = fresh.setdefault(machine_key(run["machine_info"]), {"date": run["datetime"][:10], "seconds": {}})
        for one in run["benchmarks"]:
            shortest = min(one["stats"]["min"], kept["seconds"].get(one["name"], float("inf")))
            kept["seconds"][one["name"]] = float(f"{shortest:.4g}")
    return {**before, **fresh}


def main(paths: List[str]) -> str:
    runs = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    for path, run in zip(paths, runs):
        broken = [one["name"] for one in run["promises"] if not one["held"]]
        if broken:
            return f"{path}: {broken[0]} is broken there; a baseline is made of runs that hold their promises"
    before = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}
    for path, content in ((BASELINE, promises(runs)), (TIMES, times(runs, before))):
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return ""


if __name__ == "__main__":
    sys.exit((main(sys.argv[1:]) or 0) if len(sys.argv) > 1 else __doc__)

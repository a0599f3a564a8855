"""Draws the pictures of docs/benchmarks.md as SVG files in docs/pictures/, from the JSON of benchmark runs.

    pytest benchmarks --benchmark-json=RUN.json && python benchmarks/pictures.py RUN.json

Charts are those of the report, with its light colours inlined, because an embedded picture does not inherit styles.
"""

import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from xtts.reporting import charts
from xtts.reporting.charts import ChartBar, Series

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
LIGHT = {**dict(pair.split(":") for pair in charts.LIGHT.split(";")), "--ink": "#1d2328", "--soft": "#4d5761",
         "--line": "#dde2e6"}  # fmt: skip
MARGIN, HEAD = 12, 46  # around a chart, and for its title
SHOWN = 1.2  # seconds of the two devices' activity


def picture(title: str, below: str, chart: str) -> str:
    """A chart's <svg>, with a title and a line under it, as a file of its own."""
    found = re.search(r'<svg viewBox="0 0 (\S+) (\S+)"[^>]*>(.*)</svg>', chart, re.DOTALL)
    assert found, "the chart has no <svg>"
    wide, high = float(found[1]) + 2 * MARGIN, float(found[2]) + HEAD + 2 * MARGIN
    style = re.sub(r"var\((--\w+)\)", lambda name: LIGHT[name[1]], charts.STYLE)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{1.5 * wide:g}" role="img">'
        f"<title>{escape(title)}</title><style>{style}text{{font-family:system-ui,sans-serif}}</style>"
        f'<rect width="{wide:g}" height="{high:g}" fill="#fff"/><g class="chart">'
        f'<text x="{MARGIN}" y="{MARGIN + 12}" style="font-size:14px;font-weight:600;fill:{LIGHT["--ink"]}">'
        f'{escape(title)}</text><text x="{MARGIN}" y="{MARGIN + 29}">{escape(below)}</text>'
        f'<g transform="translate({MARGIN} {MARGIN + HEAD})">{found[3]}</g></g></svg>\n'
    )


def percent(share: float) -> str:
    return f"{share:g} %"


def padding(promises: Mapping[str, float]) -> str:
    """Padded work over real work, by number of shapes."""
    name = re.compile(r"plan: computed work over real work, (\d+) shape")
    matches = {key: name.match(key) for key in promises}
    points = sorted((int(found[1]), 100 * (promises[key] - 1)) for key, found in matches.items() if found)
    chart = charts.line_chart(
        "padding", [Series("padding", points)], x_name="shapes", show=lambda share: f"{share:g} %"
    )
    return picture("Padding against shapes", "Work beyond what the lengths of LJSpeech need, in percent of that", chart)


def ways(run: Mapping[str, Any]) -> Dict[str, Dict[str, float]]:
    """The figures of each padding strategy."""
    found: Dict[str, Dict[str, float]] = {}
    for one in run["benchmarks"]:
        found.update(one["extra_info"].get("ways", {}))
    return found


LABELS = {"naive": "no signature", "fixed": "one fixed shape", "relaxed": "one relaxed", "planned": "4 planned"}


def retracing(found: Mapping[str, Mapping[str, float]]) -> str:
    bars = [ChartBar(LABELS[way], found[way]["frames a second"]) for way in LABELS]
    below = "Real mel frames a second of processor time, small model; planned shapes: four"
    return picture("What retracing costs", below, charts.bar_chart("retracing", bars))


def trace_seconds(found: Mapping[str, Mapping[str, float]]) -> str:
    bars = [ChartBar(f"{LABELS[way]}, {found[way]['traces']:g}", found[way]["trace seconds"]) for way in LABELS]
    below = "Way and its number of traces; no signature: of four batches, and it goes on like that"
    return picture("Processor seconds spent tracing", below, charts.bar_chart("traces", bars))


def two_devices(info: Mapping[str, Any]) -> str:
    """The intervals in which each of the two devices was busy."""
    left, wide, row = 60, charts.WIDTH - 74, 34
    start = info["model"][2][0]
    body: List[str] = []
    for place, (device, label) in enumerate({"data": "features", "model": "model"}.items()):
        top = place * row
        body.append(f'<text x="{left - 8}" y="{top + 18}" text-anchor="end">{label}</text>')
        for began, ended in _within(info[device], start):
            x, width = left + wide * began / SHOWN, wide * (ended - began) / SHOWN
            size = f'x="{x:.1f}" y="{top + 4}" width="{max(0.5, width - 1):.1f}" height="{row - 12}"'
            body.append(f'<rect class="fill s{place}" {size} rx="2"/>')
    for tenth in range(0, int(10 * SHOWN) + 1, 2):
        at = left + wide * tenth / (10 * SHOWN)
        body.append(f'<text x="{at:.1f}" y="{2 * row + 16}" text-anchor="middle">{tenth / 10:g} s</text>')
    chart = f'<svg viewBox="0 0 {charts.WIDTH} {2 * row + 22}">{"".join(body)}</svg>'
    share = info["feed: share of the data device's time that overlaps"]
    below = f"Two logical CPU devices; the model's is at work in {share:.0%} of the time of the other"
    return picture("Two devices at work at once", below, chart)


def _within(intervals: Sequence[Sequence[float]], start: float) -> List[Sequence[float]]:
    moved = [(max(0.0, began - start), min(SHOWN, ended - start)) for began, ended in intervals]
    return [interval for interval in moved if interval[1] > interval[0]]


def buffers(shares: Mapping[str, float]) -> str:
    points = sorted((int(size), 100 * share) for size, share in shares.items())
    chart = charts.line_chart(
        "waiting", [Series("waiting", points)], x_name="batches", show=lambda share: f"{share:g} %"
    )
    below = "Share of the time the model waits; every eighth batch takes as long as six steps"
    return picture("What a buffer is worth", below, chart)


def main(paths: Sequence[str]) -> None:
    runs = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    run = {part: [one for some in runs for one in some[part]] for part in ("benchmarks", "promises")}
    info = {one["name"]: one["extra_info"] for one in run["benchmarks"]}  # of the last run that has it
    promises = {one["name"]: one["measured"] for one in run["promises"]}
    found = ways(run)
    made = {
        "padding": padding(promises),
        "retracing": retracing(found),
        "traces": trace_seconds(found),
        "two_devices": two_devices(info["test_the_model_does_not_wait_and_both_devices_work"]),
        "buffers": buffers(info["test_a_buffer_evens_out_what_takes_unevenly_long"]["waiting by buffer"]),
    }
    PICTURES.mkdir(exist_ok=True)
    for name, svg in made.items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])

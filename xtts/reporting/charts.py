"""Line and bar charts as HTML figures with plain SVG, styled by `STYLE`.

This module computes coordinates; parts.html.j2 draws them. To keep charts small, points are grouped into buckets: a
line shows the mean of each bucket, a pale band its range. Colours are CSS classes, so that a page follows its reader's
light or dark scheme; values under the pointer are in a <title>.
"""

import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from xtts.reporting.templates import render_part

WIDTH, HEIGHT = 480, 220  # in SVG units; a chart is scaled to the page
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 28  # around the plot
BUCKETS = 120  # points of a line
COLUMNS = 60  # areas with a tooltip
FEW = 30  # up to this many points are also drawn as dots
FAR = 4.0  # times the 95th percentile; points beyond are cut off, with a note
ROW, LABEL = 24, 116  # of a bar chart: height of a bar, width of its label
SERIES_COLOURS = 7
Shown = Callable[[float], str]

STYLE = """
.chart{margin:0;min-width:0}
.chart figcaption{display:flex;flex-wrap:wrap;gap:.1rem .9rem;align-items:baseline;margin:0 0 .35rem}
.chart h4{margin:0;font-size:.95rem;font-weight:600;flex:1 0 auto}
.key{font-size:.8rem;color:var(--soft);white-space:nowrap}
.key b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
.key i{display:inline-block;width:.75em;height:.75em;border-radius:3px;margin-right:.35em;vertical-align:-.05em}
.chart svg{display:block;width:100%;height:auto;overflow:visible}
.chart text{font-size:11.5px;fill:var(--soft);font-variant-numeric:tabular-nums}
@media(max-width:40rem){.chart text{font-size:15px}}
.chart .note{margin:.2rem 0 0;font-size:.8rem;color:var(--soft)}
.keys{display:flex;flex-wrap:wrap;gap:.25rem 1.2rem;margin:.6rem 0 0}
.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.band{opacity:.16}
.mark{stroke-width:1.25;stroke-dasharray:3 3;fill:none}
.hit{fill:transparent}.hit:hover{fill:var(--ink);fill-opacity:.07}
""" + "".join(
    f".line.s{n}{{stroke:var(--s{n})}}.fill.s{n}{{fill:var(--s{n})}}i.s{n}{{background:var(--s{n})}}"
    for n in range(SERIES_COLOURS)
) + "".join(
    f".mark.{kind}{{stroke:var({colour})}}.tip.{kind}{{fill:var({colour})}}i.{kind}{{background:var({colour})}}"
    for kind, colour in {"trace": "--s4", "resume": "--s2", "retrace": "--bad", "skip": "--bad"}.items()
)  # fmt: skip
LIGHT = "--s0:#2a78d6;--s1:#d95926;--s2:#138a5f;--s3:#b07800;--s4:#7a5bd0;--s5:#c2497f;--s6:#8a949d;--bad:#c62f2f"
DARK = "--s0:#4f96ea;--s1:#ee7b4c;--s2:#2fb784;--s3:#d9a127;--s4:#a48ff0;--s5:#e57aa9;--s6:#7d8790;--bad:#ff7066"


class Series(NamedTuple):
    """A line: points (x, y) with ascending x. Values that are not finite are left out."""

    name: str
    points: Sequence[Tuple[float, Optional[float]]]


class Mark(NamedTuple):
    """An event at x: "trace", "resume", "retrace" or "skip"."""

    x: float
    kind: str
    text: str


class ChartBar(NamedTuple):
    """One bar, and its tooltip."""

    label: str
    value: float
    text: str = ""


class _Scale(NamedTuple):
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def format_short(value: float) -> str:
    """A number as text with few digits."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


def percent(share: float) -> str:
    """A share as text, as a percentage."""
    return f"{100 * share:.1f}".replace(".0", "") + " %"


def line_chart(
    title: str,
    series: Sequence[Series],
    marks: Sequence[Mark] = (),
    show: Shown = format_short,
    x_name: str = "step",
    at_least: float = 0.0,  # the y axis reaches up to this
) -> str:
    """Lines over a common x axis."""
    arrays = {line.name: _finite(line.points) for line in series}
    drawn = {name: points for name, points in arrays.items() if len(points)}
    if not drawn:
        return render_part("empty_chart", title=title)
    every = np.concatenate(list(drawn.values()))
    x, y, is_cut = _scales(every, [mark.x for mark in marks], at_least)
    colours = {line.name: f"s{place % SERIES_COLOURS}" for place, line in enumerate(series)}
    keys = [_key(colours[name], name, show(float(points[-1, 1]))) for name, points in drawn.items()]
    keys += [_key(kind, kind) for kind in dict.fromkeys(mark.kind for mark in marks)]
    note = ""
    if is_cut:
        far_x, far_y = every[int(np.argmax(every[:, 1]))]
        note = f"Highest: {show(float(far_y))}, at {x_name} {far_x:,.0f}, beyond the edge."
    return render_part(
        "line_chart",
        title=title,
        keys=keys,
        view={
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": HEIGHT - BOTTOM,
        },
        axes={
            "name": x_name,
            "rows": [(f"{y(value):.1f}", show(value)) for value in ticks(y.low, y.high)],
            "columns": [(f"{x(at):.1f}", format_short(at)) for at in ticks(x.low, x.high) if float(at).is_integer()],
        },
        lines=[_line(points, x, y, colours[name]) for name, points in drawn.items()],
        hits=_tooltips(drawn, x, show, x_name),
        marks=_marks(marks, x),
        note=note,
    )


def bar_chart(title: str, bars: Sequence[ChartBar], show: Shown = format_short) -> str:
    """Horizontal bars, one below the other, with values at their ends."""
    if not bars:
        return render_part("empty_chart", title=title)
    largest = max(bar.value for bar in bars) or 1.0
    scale = _Scale(0.0, largest, LABEL, WIDTH - 62)
    drawn = []
    for bar in bars:
        end = scale(max(0.0, bar.value))
        text = bar.text or f"{bar.label}: {show(bar.value)}"
        place = {"width": f"{end - LABEL:.1f}", "end": f"{end + 6:.1f}"}
        drawn.append({"text": text, "label": bar.label, "value": show(bar.value), **place})
    view = {"width": WIDTH, "height": ROW * len(bars) + 4, "left": LABEL, "row": ROW}
    return render_part("bar_chart", title=title, view=view, bars=drawn)


def share_chart(title: str, parts: Mapping[str, float], show: Shown = format_short) -> str:
    """A single stacked bar."""
    whole = sum(parts.values())
    if whole <= 0:
        return render_part("empty_chart", title=title)
    shares, keys, at = [], [], 0.0
    for place, (name, value) in enumerate(parts.items()):
        colour, width = f"s{place % SERIES_COLOURS}", WIDTH * value / whole
        text = f"{show(value)}, {percent(value / whole)}"
        shares.append(
            {"colour": colour, "x": f"{at:.1f}", "width": f"{max(0.0, width - 1.5):.1f}", "text": f"{name}: {text}"}
        )
        keys.append(_key(colour, name, text))
        at += width
    return render_part("share_chart", title=title, view={"width": WIDTH, "height": 12}, shares=shares, keys=keys)


def ticks(low: float, high: float, about: int = 5) -> List[float]:
    """`about` round numbers from `low` to `high`, at intervals of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    apart = min((power * factor for factor in (1, 2, 5, 10)), key=lambda size: abs(size - rough))
    first, last = math.ceil(low / apart - 1e-9), math.floor(high / apart + 1e-9)
    return [round(place * apart, 12) for place in range(first, last + 1)]


def thinned(points: np.ndarray, buckets: int = BUCKETS) -> np.ndarray:
    """Points [n, 2] grouped along x into at most `buckets`: [buckets, 4] with mean x, mean y, minimum y, maximum y."""
    x, y = points.T
    if len(points) <= buckets:
        return np.stack([x, y, y, y], axis=1)
    place = np.minimum((x - x[0]) * buckets / (x[-1] - x[0] or 1.0), buckets - 1).astype(int)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    counts = np.diff(np.append(starts, len(points)))
    means = [np.add.reduceat(values, starts) / counts for values in (x, y)]
    return np.stack([*means, np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)], axis=1)


def _finite(points: Sequence[Tuple[float, Optional[float]]]) -> np.ndarray:
    found = np.array([(x, y) for x, y in points if y is not None], float).reshape(-1, 2)
    kept: np.ndarray = found[np.isfinite(found).all(axis=1)]
    return kept


def _scales(points: np.ndarray, marks: Sequence[float], at_least: float) -> Tuple[_Scale, _Scale, bool]:
    """The scales of both axes, and whether points lie beyond the top of y."""
    xs = [float(points[:, 0].min()), float(points[:, 0].max()), *marks]
    left, right = min(xs), max(xs)
    low, high = float(points[:, 1].min()), float(points[:, 1].max())
    usual = float(np.percentile(points[:, 1], 95))
    cut = high > FAR * usual > 0
    high = max(FAR * usual if cut else high, at_least)
    low = min(low, 0.0) if low < 0.6 * high else low
    high = high if high > low else low + (abs(low) or 1.0)
    apart = ticks(low, high)
    step = apart[1] - apart[0] if len(apart) > 1 else high - low
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    x = _Scale(left, right if right > left else left + 1.0, LEFT, WIDTH - RIGHT)
    return x, _Scale(low, high, HEIGHT - BOTTOM, TOP), cut


def _line(points: np.ndarray, x: _Scale, y: _Scale, colour: str) -> Dict[str, Any]:
    thin = thinned(points)

    def path(column: int, order: int = 1) -> str:
        clipped = np.clip(thin[:, column], y.low, y.high)
        return " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in list(zip(thin[:, 0], clipped))[::order])

    has_band = bool((thin[:, 3] > thin[:, 2]).any())
    return {
        "colour": colour,
        "band": f"{path(3)} {path(2, -1)}" if has_band else "",
        "points": path(1),
        "dots": [point.split(",") for point in path(1).split()] if len(thin) <= FEW else [],
    }


def _marks(marks: Sequence[Mark], x: _Scale) -> List[Dict[str, str]]:
    """A dashed line with a tooltip for each group of marks of one kind that are close together."""
    groups: List[List[Mark]] = []
    for mark in sorted(marks, key=lambda mark: (mark.kind, mark.x)):
        if groups and groups[-1][0].kind == mark.kind and x(mark.x) - x(groups[-1][0].x) < 3:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    drawn = []
    for group in groups:
        at = x(group[0].x)
        texts = [mark.text for mark in group[:8]] + ([f"and {len(group) - 8} more"] if len(group) > 8 else [])
        drawn.append({"kind": group[0].kind, "x": f"{at:.1f}", "tip": f"{at - 5:.1f}", "text": "\n".join(texts)})
    return drawn


def _tooltips(drawn: Mapping[str, np.ndarray], x: _Scale, show: Shown, x_name: str) -> List[Dict[str, str]]:
    """Invisible columns whose titles are the values under the pointer."""
    wide, step = (x.high - x.low) / COLUMNS, (x.end - x.start) / COLUMNS
    places = {name: np.clip((points[:, 0] - x.low) // wide, 0, COLUMNS - 1) for name, points in drawn.items()}
    hits = []
    for column in range(COLUMNS):
        texts, first, last = [], math.inf, -math.inf
        for name, points in drawn.items():
            within = points[places[name] == column]
            if len(within):
                first, last = min(first, within[0, 0]), max(last, within[-1, 0])
                low, high = show(float(within[:, 1].min())), show(float(within[:, 1].max()))
                span = f" ({low} to {high})" if low != high else ""
                texts.append(f"{name} {show(float(within[:, 1].mean()))}{span}")
        if texts:
            steps = f"{x_name} {first:,.0f}" + (f" to {last:,.0f}" if last > first else "")
            left, text = f"{x(x.low + column * wide):.1f}", "\n".join([steps, *texts])
            hits.append({"x": left, "width": f"{step:.1f}", "text": text})
    return hits


def _key(colour: str, name: str, value: str = "") -> Dict[str, str]:
    return {"colour": colour, "name": name, "value": value}

"""Charts: series of points, or bars, come in; HTML figures with plain SVG in them go out, to be styled by `STYLE`.

However many points come in, a chart stays small: points are gathered into buckets, of which the mean is a line and the
span a pale band around it. Colours are classes, so that one page is light or dark as its reader has it; what lies
under the pointer is said by a <title>.
"""

import math
from html import escape
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

WIDTH, HEIGHT = 480, 220  # of a chart's own units; it is scaled to the page
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 28  # around the plot
BUCKETS = 120  # points of a line
COLUMNS = 60  # places under the pointer that have something to say
FEW = 30  # points that are drawn as dots too
FAR = 4.0  # times the 95th percentile: what lies beyond is cut off, and said
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
    """A line: points (x, y) with x rising. What is not a finite number is a gap nobody sees."""

    name: str
    points: Sequence[Tuple[float, Optional[float]]]


class Mark(NamedTuple):
    """Something that happened at x: "trace", "resume", "retrace" or "skip"."""

    x: float
    kind: str
    text: str


class ChartBar(NamedTuple):
    """One bar, and what is said of it under the pointer."""

    label: str
    value: float
    text: str = ""


class _Scale(NamedTuple):
    """Where a value lies on the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def number(value: float) -> str:
    """A number as short as it can be read."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


def percent(share: float) -> str:
    """A share of the whole."""
    return f"{100 * share:.1f}".replace(".0", "") + " %"


def line_chart(
    title: str,
    series: Sequence[Series],
    marks: Sequence[Mark] = (),
    show: Shown = number,
    x_name: str = "step",
    at_least: float = 0.0,  # the axis reaches this far up
) -> str:
    """Lines over a common x."""
    arrays = {line.name: _finite(line.points) for line in series}
    drawn = {name: points for name, points in arrays.items() if len(points)}
    if not drawn:
        return _figure(title, "", '<p class="note">Nothing to draw yet.</p>')
    every = np.concatenate(list(drawn.values()))
    x, y, cut = _scales(every, [mark.x for mark in marks], at_least)
    body = [_axes(x, y, show, x_name)]
    colours = {line.name: place % SERIES_COLOURS for place, line in enumerate(series)}
    for name, points in drawn.items():
        body.append(_line(points, x, y, colours[name]))
    body.append(_hits(drawn, x, show, x_name))
    body.append(_marks(marks, x))
    keys = [_key(f"s{colours[name]}", name, show(float(points[-1, 1]))) for name, points in drawn.items()]
    keys += [_key(kind, kind) for kind in dict.fromkeys(mark.kind for mark in marks)]
    note = ""
    if cut:
        far_x, far_y = every[int(np.argmax(every[:, 1]))]
        note = f'<p class="note">Highest: {show(float(far_y))}, at {x_name} {far_x:,.0f}, beyond the edge.</p>'
    return _figure(title, "".join(keys), _svg(title, HEIGHT, body) + note)


def bar_chart(title: str, bars: Sequence[ChartBar], show: Shown = number) -> str:
    """Bars that lie, one below the other, with their values at their ends."""
    if not bars:
        return _figure(title, "", '<p class="note">Nothing to draw yet.</p>')
    longest = max(bar.value for bar in bars) or 1.0
    scale = _Scale(0.0, longest, LABEL, WIDTH - 62)
    body = [f'<line class="grid" x1="{LABEL}" x2="{LABEL}" y1="0" y2="{ROW * len(bars)}"/>']
    for place, bar in enumerate(bars):
        top, end = place * ROW, scale(max(0.0, bar.value))
        body.append(
            f"<g><title>{escape(bar.text or f'{bar.label}: {show(bar.value)}')}</title>"
            f'<text x="{LABEL - 8}" y="{top + 16}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect class="fill s0" x="{LABEL}" y="{top + 5}" width="{end - LABEL:.1f}" height="{ROW - 10}" rx="2"/>'
            f'<text x="{end + 6:.1f}" y="{top + 16}">{escape(show(bar.value))}</text>'
            f'<rect class="hit" y="{top}" width="{WIDTH}" height="{ROW}"/></g>'
        )
    return _figure(title, "", _svg(title, ROW * len(bars) + 4, body))


def share_chart(title: str, parts: Mapping[str, float], show: Shown = number) -> str:
    """One bar made of its parts."""
    whole = sum(parts.values())
    if whole <= 0:
        return _figure(title, "", '<p class="note">Nothing to draw yet.</p>')
    body, keys, at, tall = [], [], 0.0, 12
    for place, (name, value) in enumerate(parts.items()):
        colour, wide = f"s{place % SERIES_COLOURS}", WIDTH * value / whole
        text = f"{show(value)}, {percent(value / whole)}"
        body.append(
            f'<rect class="fill {colour}" x="{at:.1f}" y="0" width="{max(0.0, wide - 1.5):.1f}" height="{tall}" rx="2">'
            f"<title>{escape(name)}: {escape(text)}</title></rect>"
        )
        keys.append(_key(colour, name, text))
        at += wide
    return _figure(title, "", _svg(title, tall, body) + f'<p class="keys">{" ".join(keys)}</p>')


def ticks(low: float, high: float, about: int = 5) -> List[float]:
    """Round numbers from `low` to `high`: about so many, 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    apart = min((power * factor for factor in (1, 2, 5, 10)), key=lambda size: abs(size - rough))
    first, last = math.ceil(low / apart - 1e-9), math.floor(high / apart + 1e-9)
    return [round(place * apart, 12) for place in range(first, last + 1)]


def thinned(points: np.ndarray, buckets: int = BUCKETS) -> np.ndarray:
    """Points [n, 2] gathered along x into at most so many: [buckets, 4], of x, the mean, the lowest, the highest."""
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
    """The scales of both axes, and whether the upper one leaves some points out."""
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


def _axes(x: _Scale, y: _Scale, show: Shown, x_name: str) -> str:
    parts = []
    for value in ticks(y.low, y.high):
        at = f"{y(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{at}" dy=".33em" text-anchor="end">{escape(show(value))}</text>')
    for value in filter(float.is_integer, ticks(x.low, x.high)):
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - 9}" text-anchor="middle">{number(value)}</text>')
    parts.append(f'<text x="{LEFT - 14}" y="{HEIGHT - 9}" text-anchor="end">{escape(x_name)}</text>')
    return "".join(parts)


def _line(points: np.ndarray, x: _Scale, y: _Scale, colour: int) -> str:
    thin = thinned(points)

    def path(column: int, order: int = 1) -> str:
        clipped = np.clip(thin[:, column], y.low, y.high)
        return " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in list(zip(thin[:, 0], clipped))[::order])

    parts = []
    if (thin[:, 3] > thin[:, 2]).any():
        parts.append(f'<polygon class="band fill s{colour}" points="{path(3)} {path(2, -1)}"/>')
    parts.append(f'<polyline class="line s{colour}" points="{path(1)}"/>')
    if len(thin) <= FEW:
        dots = (place.split(",") for place in path(1).split())
        parts += [f'<circle class="fill s{colour}" cx="{cx}" cy="{cy}" r="2.6"/>' for cx, cy in dots]
    return "".join(parts)


def _marks(marks: Sequence[Mark], x: _Scale) -> str:
    """A dashed line for each place where something happened, and a tip to point at."""
    places: List[List[Mark]] = []
    for mark in sorted(marks, key=lambda mark: (mark.kind, mark.x)):
        if places and places[-1][0].kind == mark.kind and x(mark.x) - x(places[-1][0].x) < 3:
            places[-1].append(mark)
        else:
            places.append([mark])
    parts = []
    for here in places:
        at, kind = x(here[0].x), escape(here[0].kind)
        texts = [mark.text for mark in here[:8]] + ([f"and {len(here) - 8} more"] if len(here) > 8 else [])
        parts.append(
            f'<g><title>{escape(chr(10).join(texts))}</title><path class="mark {kind}" d="M{at:.1f} {TOP}'
            f'V{HEIGHT - BOTTOM}"/><path class="tip {kind}" d="M{at - 5:.1f} {TOP - 9}h10l-5 9z"/></g>'
        )
    return "".join(parts)


def _hits(drawn: Mapping[str, np.ndarray], x: _Scale, show: Shown, x_name: str) -> str:
    """Columns that are not seen, and say what lies under the pointer."""
    wide, step = (x.high - x.low) / COLUMNS, (x.end - x.start) / COLUMNS
    places = {name: np.clip((points[:, 0] - x.low) // wide, 0, COLUMNS - 1) for name, points in drawn.items()}
    parts = []
    for column in range(COLUMNS):
        said, first, last = [], math.inf, -math.inf
        for name, points in drawn.items():
            here = points[places[name] == column]
            if len(here):
                first, last = min(first, here[0, 0]), max(last, here[-1, 0])
                low, high = show(float(here[:, 1].min())), show(float(here[:, 1].max()))
                said.append(f"{name} {show(float(here[:, 1].mean()))}" + (f" ({low} to {high})" if low != high else ""))
        if said:
            steps = f"{x_name} {first:,.0f}" + (f" to {last:,.0f}" if last > first else "")
            parts.append(
                f'<rect class="hit" x="{x(x.low + column * wide):.1f}" y="{TOP}" width="{step:.1f}" '
                f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(chr(10).join([steps, *said]))}</title></rect>'
            )
    return "".join(parts)


def _key(colour: str, name: str, value: str = "") -> str:
    shown = f" <b>{escape(value)}</b>" if value else ""
    return f'<span class="key"><i class="{escape(colour)}"></i>{escape(name)}{shown}</span>'


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(body)}</svg>'


def _figure(title: str, keys: str, body: str) -> str:
    return f'<figure class="chart"><figcaption><h4>{escape(title)}</h4>{keys}</figcaption>{body}</figure>'

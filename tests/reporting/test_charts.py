"""Charts are well-formed SVG that shows what the numbers say, however many there are."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.reporting import charts
from xtts.reporting.charts import ChartBar, Mark, Series, bar_chart, line_chart, share_chart, thinned, ticks


def parse(figure):
    """The figure as a tree; what is not well-formed is an error."""
    return ElementTree.fromstring(figure)


def lines(figure):
    """The points of each line, as drawn."""
    found = [line.get("points") for line in parse(figure).iter("polyline")]
    return [[tuple(map(float, point.split(","))) for point in points.split()] for points in found]


def titles(figure):
    return [title.text for title in parse(figure).iter("title")]


def test_a_line_goes_where_its_points_go():
    """x runs to the right and y upwards, from edge to edge, and the axes name round numbers."""
    figure = line_chart("Loss", [Series("training", [(0, 0.0), (50, 5.0), (100, 10.0)])])
    (points,) = lines(figure)
    left, bottom = charts.LEFT, charts.HEIGHT - charts.BOTTOM
    assert points[0] == (left, bottom)
    assert points[2] == (charts.WIDTH - charts.RIGHT, charts.TOP)
    assert points[1] == ((points[0][0] + points[2][0]) / 2, (points[0][1] + points[2][1]) / 2)
    texts = [text.text for text in parse(figure).iter("text")]
    assert {"0", "2", "10", "20", "100", "step"} <= set(texts)
    assert "<h4>Loss</h4>" in figure


def test_series_have_colours_names_and_latest_values():
    """The legend names every series that has points, each by a colour of its own."""
    series = [Series("training", [(1, 3.0), (2, 2.5)]), Series("none", []), Series("validation", [(2, 2.75)])]
    figure = line_chart("Loss", series)
    keys = ["".join(key.itertext()) for key in parse(figure).iter("span")]
    assert keys == ["training 2.5", "validation 2.75"]
    assert [line.get("class") for line in parse(figure).iter("polyline")] == ["line s0", "line s2"]


def test_many_points_make_a_small_chart_that_hides_no_peak():
    """A hundred thousand steps are a few kilobytes; the mean is the line, and a single high step is in the band."""
    y = np.sin(np.arange(100_000) / 5000) + 2
    y[70_000] = 6.5
    figure = line_chart("Loss", [Series("training", list(enumerate(y)))])
    assert len(figure) < 20_000
    (points,) = lines(figure)
    assert len(points) == charts.BUCKETS
    band = parse(figure).find(".//polygon").get("points").split()
    assert min(float(point.split(",")[1]) for point in band) < min(y for _, y in points) - 50
    assert any("to 6.5" in title for title in titles(figure))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(1, 50))
def test_thinning_keeps_the_mean_and_the_extremes(values, buckets):
    """However points are gathered, the lowest and the highest stay, x rises, and every mean is between its extremes."""
    points = np.stack([np.arange(len(values)) * 3.0 + 7, values], axis=1)
    thin = thinned(points, buckets)
    assert len(thin) <= max(buckets, 1) or len(values) <= buckets
    assert (thin[:, 2].min(), thin[:, 3].max()) == (min(values), max(values))
    assert (np.diff(thin[:, 0]) > 0).all()
    assert (thin[:, 1] >= thin[:, 2] - 1e-6).all()
    assert (thin[:, 1] <= thin[:, 3] + 1e-6).all()


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_round_few_and_inside(low, size):
    """Between three and twelve numbers, evenly apart by 1, 2 or 5 times a power of ten, none beyond the ends."""
    high = low + size
    if high - low < abs(low) * 1e-9 or high == low:
        return
    found = ticks(low, high)
    assert 3 <= len(found) <= 12
    apart = found[1] - found[0]
    assert round(apart / 10 ** math.floor(math.log10(apart) + 1e-9), 3) in (1, 2, 5, 10) or size < abs(low) * 1e-6
    assert found[0] >= low - apart * 1e-3
    assert found[-1] <= high + apart * 1e-3


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, None)],
        [(1, math.nan), (2, math.inf)],
        [(5, 1.0)],
        [(5, 0.0)],
        [(1, 3.0), (2, 3.0)],
        [(1, -3.0), (2, -5.0)],
        [(1, 1e-9), (2, 1e12)],
        [(1, math.nan), (2, 2.0), (3, None), (4, 4.0)],
    ],
)
def test_any_points_make_a_chart(points):
    """None, one, equal, negative, far apart or not finite: the chart is well-formed and has no number that is none."""
    figure = line_chart("Loss", [Series("training", points)])
    parse(figure)
    assert "nan" not in figure
    assert "inf" not in figure


def test_a_far_point_is_cut_off_and_said():
    """One slow step does not flatten the others; its height and place are told below."""
    points = [(step, 0.5) for step in range(1, 100)] + [(100, 60.0)]
    figure = line_chart("Step time", [Series("step", points)])
    assert "Highest: 60, at step 100, beyond the edge." in figure
    (drawn,) = lines(figure)
    assert drawn[0][1] < charts.HEIGHT - charts.BOTTOM - 20
    assert min(y for _, y in drawn) >= charts.TOP


def test_marks_are_gathered_where_they_coincide():
    """Eight traces before the first step are one mark that tells of all; a retrace later has its own, and a key."""
    marks = [Mark(0, "trace", f"traced shape {n}") for n in range(8)] + [Mark(60, "retrace", "mel changed")]
    figure = line_chart("Step time", [Series("step", [(1, 1.0), (100, 1.0)])], marks)
    paths = [path.get("class") for path in parse(figure).iter("path") if path.get("class").startswith("mark")]
    assert sorted(paths) == ["mark retrace", "mark trace"]
    assert "traced shape 0\ntraced shape 1" in "\n".join(titles(figure))
    assert "mel changed" in titles(figure)
    assert re.findall(r"</i>(trace|retrace)<", figure) == ["trace", "retrace"]


def test_what_is_under_the_pointer_is_said():
    """Steps, the mean and the span of each series are in a title."""
    figure = line_chart("Loss", [Series("training", [(step, float(step)) for step in range(1, 602)])])
    assert "step 1 to 10\ntraining 5.5 (1 to 10)" in titles(figure)


def test_text_cannot_break_the_page():
    """Names with markup in them are text."""
    evil = "<script>&\"'"
    for figure in (
        line_chart(evil, [Series(evil, [(1, 1.0)])], [Mark(1, "trace", evil)]),
        bar_chart(evil, [ChartBar(evil, 1.0, evil)]),
        share_chart(evil, {evil: 1.0}),
    ):
        parse(figure)
        assert "<script>" not in figure


def test_bars_are_as_long_as_their_values():
    """Twice the value is twice the bar, nothing is none, and values are written at the ends."""
    figure = bar_chart("Padding", [ChartBar("a", 0.2, "two"), ChartBar("b", 0.1), ChartBar("c", 0.0)], charts.percent)
    bars = [float(bar.get("width")) for bar in parse(figure).iter("rect") if "fill" in bar.get("class")]
    assert bars[0] == pytest.approx(2 * bars[1], abs=0.2)
    assert bars[2] == 0
    assert titles(figure) == ["two", "b: 10 %", "c: 0 %"]
    assert "Nothing to draw" in bar_chart("Padding", [])


def test_shares_fill_the_whole():
    """The parts of a bar add up to its width and are named with their share."""
    figure = share_chart("Time", {"computing": 90.0, "waiting": 10.0})
    widths = [float(part.get("width")) for part in parse(figure).iter("rect")]
    assert sum(widths) == pytest.approx(charts.WIDTH, abs=4)
    assert widths[0] / widths[1] == pytest.approx(9, rel=0.1)
    assert "90, 90 %" in figure
    assert "Nothing to draw" in share_chart("Time", {"computing": 0.0})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3, "3"),
        (2.3456, "2.35"),
        (0.00031, "3.1e-4"),
        (0.0003, "3e-4"),
        (15903.2, "15,903"),
        (2.5e6, "2.5 M"),
    ],
)
def test_numbers_are_short(value, text):
    """Three figures are enough to read."""
    assert charts.format_short(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.0042, "0.4 %"), (0.1, "10 %"), (0.149, "14.9 %"), (1, "100 %")]
)
def test_shares_are_per_cent(share, text):
    """One decimal, where it is not nought."""
    assert charts.percent(share) == text


def test_every_colour_has_a_light_and_a_dark_form():
    """What the style uses is defined for both."""
    used = set(re.findall(r"var\((--(?:s\d|bad))\)", charts.STYLE))
    for colours in (charts.LIGHT, charts.DARK):
        assert used == set(re.findall(r"(--\w+):#[0-9a-f]{6}", colours))

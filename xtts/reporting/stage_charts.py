"""The charts of one stage of a run."""

from collections import Counter
from typing import Any, List, Mapping, Optional, Sequence

import attrs

from xtts.formatting import count_of, format_duration
from xtts.formatting import format_excess as over
from xtts.reporting import charts
from xtts.reporting.charts import ChartBar, Mark, Series
from xtts.reporting.journal import Line, as_number
from xtts.reporting.run_folder import RunFolder, of_stage, total
from xtts.reporting.templates import format_cell

MARKED = ("trace", "resume", "retrace", "skip")  # events that are marked in the chart of step times
MAX_SHAPES = 24  # most frequent shapes in the table
OPTIONAL_CHARTS = (  # title, key by series name, format; drawn if the journal has such figures
    ("Buffer, batches ready", {"buffer": "buffer"}, charts.format_short),
    ("Memory, MB", {"process": "memory_mb", "GPU": "gpu_memory_mb"}, charts.format_short),
    ("GPU busy", {"GPU": "gpu_busy"}, charts.percent),
    ("Gradient norm", {"before clipping": "gradient_norm"}, charts.format_short),
    ("Learning rate", {"learning rate": "learning_rate"}, charts.format_short),
)


@attrs.frozen
class ShapeTable:
    """The shapes that a stage trained on, and the cost of padding in each."""

    chart: str  # HTML
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    omitted: str  # a sentence with the number of shapes left out; empty if there are none


@attrs.frozen
class StageCharts:
    """The charts and the table of one stage in the report."""

    stage: str
    charts: Sequence[str]  # HTML
    seconds: str  # HTML: time by kind of work
    shapes: Optional[ShapeTable]


def stage_charts(run: RunFolder, stage: str, figures: Mapping[str, Any]) -> StageCharts:
    """The charts of a stage, from the journal and the stage's `figures`."""
    lines = of_stage(run.metrics, stage)
    drawn = [_loss(lines, of_stage(run.validation, stage)), *_parts(lines), _times(lines, of_stage(run.events, stage))]
    drawn.append(charts.line_chart("Waiting for data", [_waiting(lines)], show=charts.percent, at_least=0.05))
    for title, names, show in OPTIONAL_CHARTS:
        series = [_series(label, lines, key) for label, key in names.items()]
        if any(line.points for line in series):
            drawn.append(charts.line_chart(title, [line for line in series if line.points], show=show))
    seconds = {name: value for name, value in (figures.get("seconds_by") or {}).items() if as_number(value)}
    where = charts.share_chart("Where the time went", seconds, format_duration)
    return StageCharts(stage, drawn, where, _shapes(lines, run.plan.get("shapes") or []))


def _loss(lines: Sequence[Line], validation: Sequence[Line]) -> str:
    return charts.line_chart("Loss", [_series("training", lines, "loss"), _series("validation", validation, "loss")])


def _parts(lines: Sequence[Line]) -> List[str]:
    """A chart of the parts of the loss, if there are several."""
    parts = [{"step": line["step"], **line["losses"]} for line in lines if line.get("losses")]
    names = [name for name in dict.fromkeys(name for line in parts for name in line) if name != "step"]
    series = [_series(name, parts, name) for name in names]
    return [charts.line_chart("Parts of the training loss", series)] if len(names) > 1 else []


def _times(lines: Sequence[Line], events: Sequence[Line]) -> str:
    """The time of each step, with marks for traces, resumed runs and skipped steps."""
    marks = []
    for event in events:
        if event.get("kind") in MARKED:
            seconds = f", {event['seconds']:.1f} s" if as_number(event.get("seconds")) else ""
            text = f"step {event.get('step', 0):,}: {event['kind']} {event.get('text', '')}{seconds}"
            marks.append(Mark(event.get("step", 0), event["kind"], text))
    return charts.line_chart("Step time, seconds", [_series("a step", lines, "step_seconds")], marks)


def _waiting(lines: Sequence[Line]) -> Series:
    """The share of each step's wall time that was spent waiting for data."""
    points = []
    for line in lines:
        wait = as_number(line.get("wait_seconds")) or 0.0
        wall = wait + (as_number(line.get("step_seconds")) or 0.0)
        if wall:
            points.append((line["step"], wait / wall))
    return Series("share of time", points)


def _shapes(lines: Sequence[Line], planned: Sequence[Mapping[str, Any]]) -> Optional[ShapeTable]:
    """The padding and blank rows computed in each shape, relative to the frames of its recordings."""
    plans = {f"{p.get('text_length')}x{p.get('mel_frames')}x{p.get('batch_size')}": p for p in planned}
    counts = Counter(str(line["shape"]) for line in lines if line.get("shape"))
    bars, rows = [], []
    for shape in sorted(dict(counts.most_common(MAX_SHAPES)), key=_sizes):
        own = [line for line in lines if line.get("shape") == shape]
        frames, computed, seconds = (total(own, key) for key in ("frames", "computed_frames", "step_seconds"))
        label, plan = shape.replace("x", " × "), plans.get(shape, {})
        if frames:
            bars.append(ChartBar(label, computed / frames - 1, f"{label}: {count_of(len(own), 'step')}"))
        rows.append(
            [
                label,
                f"{len(own):,}",
                format_cell(computed / frames if frames else None, over),
                format_cell(plan.get("work_ratio"), over),
                f"{seconds / len(own):.3g} s",
                format_cell(frames / seconds if seconds else None, charts.format_short),
            ]
        )
    if not rows:
        return None
    names = ["tokens × frames × rows", "steps", "padding", "planned", "a step", "frames/s"]
    rest = len(counts) - len(rows)
    chart = charts.bar_chart("Padding by shape: frames computed beyond the real ones", bars, charts.percent)
    return ShapeTable(chart, names, rows, f"and {count_of(rest, 'shape')} more" if rest > 0 else "")


def _series(name: str, lines: Sequence[Line], key: str) -> Series:
    return Series(name, [(line["step"], line[key]) for line in lines if as_number(line.get(key)) is not None])


def _sizes(shape: str) -> List[int]:
    return [int(part) if part.isdigit() else 0 for part in shape.split("x")]

"""The charts of a stage: a run and the name of one of its stages come in, a section of HTML goes out."""

from collections import Counter
from typing import Any, List, Mapping, Sequence

from xtts.formatting import count_of, format_duration
from xtts.formatting import format_excess as over
from xtts.reporting import charts
from xtts.reporting.charts import ChartBar, Mark, Series
from xtts.reporting.journal import Line, number
from xtts.reporting.run_folder import RunFolder, of_stage, total
from xtts.reporting.tables import format_cell, html_table

MARKED = ("trace", "resume", "retrace", "skip")  # events that are marked
MOST_SHAPES = 24  # drawn; the most frequent
OTHERS = (  # title, what is drawn under which name, how it is shown; drawn where there are such figures
    ("Buffer, batches ready", {"buffer": "buffer"}, charts.number),
    ("Memory, MB", {"process": "memory_mb", "GPU": "gpu_memory_mb"}, charts.number),
    ("GPU busy", {"GPU": "gpu_busy"}, charts.percent),
    ("Gradient norm", {"before clipping": "gradient_norm"}, charts.number),
    ("Learning rate", {"learning rate": "learning_rate"}, charts.number),
)


def stage_charts(run: RunFolder, stage: str, figures: Mapping[str, Any]) -> str:
    """Everything that is drawn of a stage."""
    lines = of_stage(run.metrics, stage)
    drawn = [_loss(lines, of_stage(run.validation, stage)), *_parts(lines), _times(lines, of_stage(run.events, stage))]
    drawn.append(charts.line_chart("Waiting for data", [_waiting(lines)], show=charts.percent, at_least=0.05))
    for title, names, show in OTHERS:
        series = [_series(label, lines, key) for label, key in names.items()]
        if any(line.points for line in series):
            drawn.append(charts.line_chart(title, [line for line in series if line.points], show=show))
    cards = "".join(f'<div class="card">{chart}</div>' for chart in drawn)
    seconds = {name: value for name, value in (figures.get("seconds_by") or {}).items() if number(value)}
    where = charts.share_chart("Where the time went", seconds, format_duration)
    shapes = _shapes(lines, run.plan.get("shapes") or [])
    return f'<div class="stack"><div class="charts">{cards}</div><div class="card">{where}</div>{shapes}</div>'


def _loss(lines: Sequence[Line], validation: Sequence[Line]) -> str:
    return charts.line_chart("Loss", [_series("training", lines, "loss"), _series("validation", validation, "loss")])


def _parts(lines: Sequence[Line]) -> List[str]:
    """A chart of what the loss is made of, where that is more than one thing."""
    parts = [{"step": line["step"], **line["losses"]} for line in lines if line.get("losses")]
    names = [name for name in dict.fromkeys(name for line in parts for name in line) if name != "step"]
    series = [_series(name, parts, name) for name in names]
    return [charts.line_chart("Parts of the training loss", series)] if len(names) > 1 else []


def _times(lines: Sequence[Line], events: Sequence[Line]) -> str:
    """The time of each step, with what else took time or went wrong."""
    marks = []
    for event in events:
        if event.get("kind") in MARKED:
            took = f", {event['seconds']:.1f} s" if number(event.get("seconds")) else ""
            text = f"step {event.get('step', 0):,}: {event['kind']} {event.get('text', '')}{took}"
            marks.append(Mark(event.get("step", 0), event["kind"], text))
    return charts.line_chart("Step time, seconds", [_series("a step", lines, "step_seconds")], marks)


def _waiting(lines: Sequence[Line]) -> Series:
    """The share of each step's time that was waiting."""
    points = []
    for line in lines:
        wait = number(line.get("wait_seconds")) or 0.0
        wall = wait + (number(line.get("step_seconds")) or 0.0)
        if wall:
            points.append((line["step"], wait / wall))
    return Series("share of time", points)


def _shapes(lines: Sequence[Line], planned: Sequence[Mapping[str, Any]]) -> str:
    """What each shape computed, over and above what its recordings need."""
    plans = {f"{p.get('text_length')}x{p.get('mel_frames')}x{p.get('batch_size')}": p for p in planned}
    counts = Counter(str(line["shape"]) for line in lines if line.get("shape"))
    bars, rows = [], []
    for shape in sorted(dict(counts.most_common(MOST_SHAPES)), key=_sizes):
        here = [line for line in lines if line.get("shape") == shape]
        frames, computed, seconds = (total(here, key) for key in ("frames", "computed_frames", "step_seconds"))
        label, plan = shape.replace("x", " × "), plans.get(shape, {})
        if frames:
            bars.append(ChartBar(label, computed / frames - 1, f"{label}: {count_of(len(here), 'step')}"))
        rows.append(
            [
                label,
                f"{len(here):,}",
                format_cell(computed / frames if frames else None, over),
                format_cell(plan.get("work_ratio"), over),
                f"{seconds / len(here):.3g} s",
                format_cell(frames / seconds if seconds else None, charts.number),
            ]
        )
    if not rows:
        return ""
    names = ["tokens × frames × rows", "steps", "padding", "planned", "a step", "frames/s"]
    rest = len(counts) - len(rows)
    note = f'<p class="note">and {count_of(rest, "shape")} more</p>' if rest > 0 else ""
    chart = charts.bar_chart("Padding by shape: frames computed beyond the real ones", bars, charts.percent)
    return (
        f'<div class="charts"><div class="card">{chart}</div>'
        f'<div class="card wide">{html_table(names, rows, words=(0,))}{note}</div></div>'
    )


def _series(name: str, lines: Sequence[Line], key: str) -> Series:
    return Series(name, [(line["step"], line[key]) for line in lines if number(line.get(key)) is not None])


def _sizes(shape: str) -> List[int]:
    return [int(part) if part.isdigit() else 0 for part in shape.split("x")]

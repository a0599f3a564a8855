"""The report of a run: report.html in its folder, a single file that needs only a browser and no network.

This module and its neighbours collect the contents; report.html.j2 is the page.
"""

import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

from xtts import __version__, files
from xtts.errors import XttsError
from xtts.formatting import count_of, format_duration
from xtts.formatting import format_excess as over
from xtts.planning.summary import MEGABYTE
from xtts.reporting import charts, gallery, run_folder
from xtts.reporting.journal import as_number
from xtts.reporting.monitor import STARVED
from xtts.reporting.run_folder import RunFolder, of_stage
from xtts.reporting.stage_charts import stage_charts
from xtts.reporting.templates import format_cell, render_page

FILE = "report.html"
MAX_EVENTS = 300  # newest events in the table
STAGE_COLUMNS = (
    "stage",
    "",
    "steps",
    "loss",
    "frames/s",
    "data wait",
    "padding",
    "traces",
    "retraces",
    "skipped",
    "time",
)
FEW_EVENTS = 12  # a table of up to this many events is shown without a click
Cell = Union[str, Tuple[str, str]]  # a text, or a text and its CSS class


class ReportError(XttsError):
    """Why a report cannot be written."""


def write_report(folder: Union[str, Path]) -> Path:
    """Write the report of a run; returns its path."""
    path = Path(folder) / FILE
    html = render_report(folder).encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be encoded
    try:
        files.write_text(path, html)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; free some space or make it writable") from None
    return path


def render_report(folder: Union[str, Path]) -> str:
    """The report of a run, as HTML."""
    run = run_folder.read_run_folder(folder)
    figures = {stage: run.figures(stage) for stage in run.stages}
    texts = (str(text) for of in figures.values() for text in of.get("warnings") or ())
    known_versions = run.summary.get("versions") or {}
    return render_page(
        "report.html.j2",
        name=run.folder.resolve().name,
        chart_colours={"light": charts.LIGHT, "dark": charts.DARK},
        chart_style=charts.STYLE,
        status=_status(run, figures),
        tiles=_tiles(figures),
        stage_names=STAGE_COLUMNS,
        stage_rows=[_stage_row(run, stage, of) for stage, of in figures.items()],
        warnings=list(dict.fromkeys(texts)),
        stages=[stage_charts(run, stage, of) for stage, of in figures.items() if of_stage(run.metrics, stage)],
        gallery=gallery.gallery(run.samples, run.folder),
        devices=_devices(run),
        events=_events(run),
        recipe=run.recipe,
        versions=[(str(name), str(value)) for name, value in known_versions.items() if value],
        own_version=__version__,
        python=platform.python_version(),
    )


def _status(run: RunFolder, stages: Mapping[str, Mapping[str, Any]]) -> str:
    """The progress of the run, and the time of its latest line."""
    when = (
        f" Last line written on {time.strftime('%d %B %Y, %H:%M', time.gmtime(run.written))} UTC."
        if run.written
        else ""
    )
    if stages and all(figures.get("finished") for figures in stages.values()):
        return f"Finished.{when}"
    under_way = [stage for stage, figures in stages.items() if figures.get("steps") and not figures.get("finished")]
    if under_way:
        of = f" of {run.steps:,}" if run.steps else ""
        return f"Not finished: {under_way[-1]} is at step {stages[under_way[-1]]['steps']:,}{of}.{when}"
    return f"Not finished.{when}" if run.written else "Nothing is trained yet."


def _tiles(stages: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, str]]:
    """The most important figures of the latest stage; empty before the first step."""
    begun = [figures for figures in stages.values() if figures.get("steps")]
    if not begun:
        return []
    last, wait = begun[-1], as_number(begun[-1].get("data_wait_share"))
    retraces = sum(as_number(figures.get("retraces_after_warmup")) or 0 for figures in begun)
    seconds = sum(as_number(figures.get("seconds")) or 0.0 for figures in begun)
    tiles = [
        ("loss", format_cell(last.get("final_loss"), charts.format_short), ""),
        ("real frames/s", format_cell(last.get("frames_per_second"), charts.format_short), ""),
        ("waiting for data", format_cell(wait, charts.percent), "bad" if wait and wait > STARVED else ""),
        ("padding", format_cell(last.get("padding"), over), ""),
        ("retraces after warm-up", f"{retraces:,.0f}", "bad" if retraces else "good"),
        ("in all", format_duration(seconds), ""),
    ]
    return [{"name": name, "text": text, "tone": tone} for name, text, tone in tiles]


def _stage_row(run: RunFolder, stage: str, figures: Mapping[str, Any]) -> List[Cell]:
    steps = figures.get("steps") or 0
    under_way = "under way" if steps else "not begun"
    return [
        stage,
        ("finished", "good") if figures.get("finished") else (under_way, ""),
        f"{steps:,}" + (f" of {run.steps:,}" if run.steps and steps < run.steps else ""),
        format_cell(figures.get("final_loss"), charts.format_short),
        format_cell(figures.get("frames_per_second"), charts.format_short),
        format_cell(figures.get("data_wait_share"), charts.percent),
        format_cell(figures.get("padding"), over),
        format_cell(figures.get("traces"), charts.format_short),
        format_cell(figures.get("retraces_after_warmup"), charts.format_short),
        format_cell(figures.get("skipped"), charts.format_short),
        format_cell(figures.get("seconds"), format_duration),
    ]


def _devices(run: RunFolder) -> Dict[str, Any]:
    """The role and planned memory of each device, and why devices were replaced; empty if unknown."""
    stages = {stage: figures or {} for stage, figures in (run.summary.get("stages") or {}).items()}
    roles: List[List[str]] = []
    for stage, figures in stages.items():
        devices = figures.get("devices") or {}
        for role, what in (devices if isinstance(devices, dict) else {"": devices}).items():
            roles.append([stage, str(role), ", ".join(map(str, what)) if isinstance(what, list) else str(what)])
    shares = [
        [
            stage,
            str(one.get("device")),
            format_cell(one.get("share"), "{:.0%}".format),
            format_cell(one.get("batches_per_second"), "{:,.1f}".format),
        ]
        for stage, figures in stages.items()
        for one in figures.get("division") or ()
    ]
    budgets = [
        [str(device), *(f"{(as_number(budget.get(kind)) or 0) / MEGABYTE:,.0f}" for kind in ("total", "limit"))]
        for device, budget in (run.plan.get("bytes") or {}).items()
    ]
    tables: List[Tuple[Sequence[str], List[List[str]], Sequence[int], int]] = [
        (["stage", "role", "device"], roles, [0, 1, 2], 2),
        (["stage", "data device", "share of batches", "batches a second"], shares, [0, 1], -1),
        (["memory", "planned, MB", "limit, MB"], budgets, [0], -1),
    ]
    found = [
        {"names": names, "rows": rows, "text_columns": text_columns, "long": long}
        for names, rows, text_columns, long in tables
        if rows
    ]
    fallbacks = list(dict.fromkeys(str(event.get("text")) for event in run.events if event.get("kind") == "fallback"))
    return {"tables": found, "fallbacks": fallbacks} if found or fallbacks else {}


def _events(run: RunFolder) -> Dict[str, Any]:
    """The newest events, and the number of each kind; empty if there are none."""
    if not run.events:
        return {}
    rows: List[List[Cell]] = [
        [
            format_cell(event.get("time"), lambda at: time.strftime("%d %b %H:%M:%S", time.gmtime(at))),
            str(event.get("stage", "")),
            f"{event.get('step', 0):,}",
            (str(event.get("kind")), "bad" if event.get("kind") in ("retrace", "warning", "skip") else ""),
            str(event.get("text", "")),
            format_cell(event.get("seconds"), lambda seconds: f"{seconds:,.1f}"),
        ]
        for event in run.events[-MAX_EVENTS:]
    ]
    kinds = Counter(str(event.get("kind")) for event in run.events).most_common()
    earlier = len(run.events) - len(rows)
    return {
        "names": ["time, UTC", "stage", "step", "kind", "what", "seconds"],
        "rows": rows,
        "is_open": len(rows) <= FEW_EVENTS,
        "summary": ", ".join(f"{count:,} {kind}" for kind, count in kinds),
        "omitted": f"and {count_of(earlier, 'earlier event')}" if earlier else "",
    }

"""The report of a run: a run's folder comes in; report.html goes out, one file that needs no network and no program."""

import platform
import time
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any, List, Mapping, Union

from xtts import __version__, files
from xtts.errors import XttsError
from xtts.formatting import count_of, format_duration
from xtts.formatting import format_excess as over
from xtts.planning.summary import MEGABYTE
from xtts.reporting import charts, gallery, run_folder, tables
from xtts.reporting.journal import number
from xtts.reporting.monitor import STARVED
from xtts.reporting.run_folder import RunFolder, of_stage
from xtts.reporting.stage_charts import stage_charts
from xtts.reporting.tables import format_cell, html_table

FILE = "report.html"
MOST_EVENTS = 300  # listed; the newest
FEW_EVENTS = 12  # are shown without being asked for
COLOURS = (
    f":root{{color-scheme:light dark;--page:#f7f7f4;--card:#fff;--ink:#1d2329;--soft:#66707a;--line:#e6e6e1;"
    f"--good:#138a5f;{charts.LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{:root{{--page:#14171a;--card:#1c2024;--ink:#e8eaec;--soft:#98a2ab;"
    f"--line:#2c3238;--good:#2fb784;{charts.DARK}}}}}"
)
STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:68rem;margin:0 auto;padding:2rem 1.1rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.6rem 0 .9rem}
header p,.note{color:var(--soft);margin:.3rem 0 0}
.note{font-size:.85rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1rem 1.1rem;min-width:0}
.tiles{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(9.6rem,1fr));margin:1.4rem 0 1rem}
.tile{padding:.8rem 1rem}
.tile b{display:block;font-size:1.45rem;line-height:1.3;font-weight:600;white-space:nowrap}
.tile span{color:var(--soft);font-size:.8rem}
.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr))}
summary{cursor:pointer;color:var(--soft)}details[open] summary{margin-bottom:.7rem}
pre{margin:0;overflow-x:auto;font:.82rem/1.55 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
ul{margin:0;padding-left:1.1rem}li+li{margin-top:.4rem}
.stack>*+*{margin-top:1rem}
"""


class ReportError(XttsError):
    """A report that cannot be written."""


def write_report(folder: Union[str, Path]) -> Path:
    """Make the report of a run, and say where it is."""
    path = Path(folder) / FILE
    html = render_report(folder).encode("utf-8", "replace").decode("utf-8")  # half a letter cannot be written
    try:
        files.write_text(path, html)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; make room or rights for it") from None
    return path


def render_report(folder: Union[str, Path]) -> str:
    """The report of a run, as HTML."""
    run = run_folder.read_run_folder(folder)
    stages = {stage: run.figures(stage) for stage in run.stages}
    name = escape(run.folder.resolve().name)
    sections = [
        f"<header><h1>{name}</h1><p>{escape(_status(run, stages))}</p></header>",
        _headline(run, stages),
        _section("Worth a look", _warnings(stages)),
        *(
            _section(f"Stage {stage}", stage_charts(run, stage, figures))
            for stage, figures in stages.items()
            if of_stage(run.metrics, stage)
        ),
        _section("Samples", gallery.gallery(run.samples, run.folder)),
        _section("Devices", _devices(run)),
        _section("Events", _events(run)),
        _section("Recipe", _recipe(run)),
        _section("Versions", _versions(run)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{name}</title><style>{COLOURS}{STYLE}{tables.STYLE}{charts.STYLE}{gallery.STYLE}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


def _status(run: RunFolder, stages: Mapping[str, Mapping[str, Any]]) -> str:
    """How far the run is, and when that was."""
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


def _headline(run: RunFolder, stages: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures that one looks for first: of the latest stage; below them those of each stage."""
    begun = [figures for figures in stages.values() if figures.get("steps")]
    if not begun:
        return ""
    last, wait = begun[-1], number(begun[-1].get("data_wait_share"))
    retraces = sum(number(figures.get("retraces_after_warmup")) or 0 for figures in begun)
    tiles = [
        ("loss", format_cell(last.get("final_loss"), charts.number), ""),
        ("real frames/s", format_cell(last.get("frames_per_second"), charts.number), ""),
        ("waiting for data", format_cell(wait, charts.percent), "bad" if wait and wait > STARVED else ""),
        ("padding", format_cell(last.get("padding"), over), ""),
        ("retraces after warm-up", f"{retraces:,.0f}", "bad" if retraces else "good"),
        ("in all", format_duration(sum(number(figures.get("seconds")) or 0.0 for figures in begun)), ""),
    ]
    row = "".join(
        f'<div class="tile card"><b class="{tone}">{escape(text)}</b><span>{name}</span></div>'
        for name, text, tone in tiles
    )
    names = ["stage", "", "steps", "loss", "frames/s", "data wait", "padding", "traces", "retraces", "skipped", "time"]
    rows = [_stage_row(run, stage, figures) for stage, figures in stages.items()]
    return f'<div class="tiles">{row}</div><div class="card wide">{html_table(names, rows, words=(0, 1))}</div>'


def _stage_row(run: RunFolder, stage: str, figures: Mapping[str, Any]) -> List[tables.Cell]:
    steps = figures.get("steps") or 0
    under_way = "under way" if steps else "not begun"
    return [
        stage,
        ("finished", "good") if figures.get("finished") else (under_way, ""),
        f"{steps:,}" + (f" of {run.steps:,}" if run.steps and steps < run.steps else ""),
        format_cell(figures.get("final_loss"), charts.number),
        format_cell(figures.get("frames_per_second"), charts.number),
        format_cell(figures.get("data_wait_share"), charts.percent),
        format_cell(figures.get("padding"), over),
        format_cell(figures.get("traces"), charts.number),
        format_cell(figures.get("retraces_after_warmup"), charts.number),
        format_cell(figures.get("skipped"), charts.number),
        format_cell(figures.get("seconds"), format_duration),
    ]


def _warnings(stages: Mapping[str, Mapping[str, Any]]) -> str:
    texts = dict.fromkeys(str(text) for figures in stages.values() for text in figures.get("warnings") or ())
    listed = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="card"><ul>{listed}</ul></div>' if listed else ""


def _devices(run: RunFolder) -> str:
    """Which device does what, why, and the bytes that were planned for it."""
    rows: List[List[tables.Cell]] = []
    for stage, figures in (run.summary.get("stages") or {}).items():
        devices = (figures or {}).get("devices") or {}
        roles = devices if isinstance(devices, dict) else {"": devices}
        for role, what in roles.items():
            rows.append([stage, str(role), ", ".join(map(str, what)) if isinstance(what, list) else str(what)])
    parts = [html_table(["stage", "role", "device"], rows, words=(0, 1, 2), long=2)] if rows else []
    divided: List[List[tables.Cell]] = [
        [
            stage,
            str(one.get("device")),
            tables.format_cell(one.get("share"), "{:.0%}".format),
            tables.format_cell(one.get("batches_per_second"), "{:,.1f}".format),
        ]
        for stage, figures in (run.summary.get("stages") or {}).items()
        for one in (figures or {}).get("division") or ()
    ]
    if divided:
        parts.append(
            html_table(["stage", "data device", "share of batches", "batches a second"], divided, words=(0, 1))
        )
    budgets: List[List[tables.Cell]] = [
        [str(device), *(f"{(number(budget.get(kind)) or 0) / MEGABYTE:,.0f}" for kind in ("total", "limit"))]
        for device, budget in (run.plan.get("bytes") or {}).items()
    ]
    if budgets:
        parts.append(html_table(["memory", "planned, MB", "limit, MB"], budgets, words=(0,)))
    fallbacks = dict.fromkeys(str(event.get("text")) for event in run.events if event.get("kind") == "fallback")
    if fallbacks:
        parts.append(f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in fallbacks)}</ul>")
    return f'<div class="card wide stack">{"".join(parts)}</div>' if parts else ""


def _events(run: RunFolder) -> str:
    if not run.events:
        return ""
    rows: List[List[tables.Cell]] = [
        [
            format_cell(event.get("time"), lambda at: time.strftime("%d %b %H:%M:%S", time.gmtime(at))),
            str(event.get("stage", "")),
            f"{event.get('step', 0):,}",
            (str(event.get("kind")), "bad" if event.get("kind") in ("retrace", "warning", "skip") else ""),
            str(event.get("text", "")),
            format_cell(event.get("seconds"), lambda seconds: f"{seconds:,.1f}"),
        ]
        for event in run.events[-MOST_EVENTS:]
    ]
    kinds = Counter(str(event.get("kind")) for event in run.events).most_common()
    earlier = len(run.events) - len(rows)
    note = f'<p class="note">and {count_of(earlier, "earlier event")}</p>' if earlier else ""
    names = ["time, UTC", "stage", "step", "kind", "what", "seconds"]
    summary = escape(", ".join(f"{count:,} {kind}" for kind, count in kinds))
    return (
        f'<details class="card wide"{" open" if len(rows) <= FEW_EVENTS else ""}><summary>{summary}</summary>'
        f"{html_table(names, rows, words=(0, 1, 3, 4), long=4)}{note}</details>"
    )


def _recipe(run: RunFolder) -> str:
    text = f'<pre dir="ltr">{escape(run.recipe)}</pre>'
    return f'<details class="card"><summary>recipe.toml, resolved</summary>{text}</details>' if run.recipe else ""


def _versions(run: RunFolder) -> str:
    """What the run was computed by, as far as it is known, and what the report was written by."""
    known = run.summary.get("versions") or {}
    rows = [[str(name), str(value)] for name, value in known.items() if value]
    written = f'<p class="note">Report written by xtts {__version__} on Python {platform.python_version()}.</p>'
    return f'<div class="card wide">{html_table(["", ""], rows, words=(0, 1), long=1) if rows else ""}{written}</div>'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""

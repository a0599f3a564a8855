"""Reads a run's folder: recipe, plan, journal and the figures of each stage.

Missing or damaged files count as empty, so that a run that has just begun, or was killed, can be reported too.
"""

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import attrs

from xtts.errors import UsageError, XttsError
from xtts.recipe import lines as syntax
from xtts.reporting.journal import Journal, Line, as_number
from xtts.reporting.monitor import LAST


class RunFolderError(UsageError):
    """A folder that is not the folder of a run."""


@attrs.frozen
class RunFolder:
    """The contents of a run's folder."""

    folder: Path
    recipe: str  # the text of recipe.toml
    settings: Mapping[str, Any]  # its tables
    plan: Mapping[str, Any]
    metrics: Sequence[Line]
    validation: Sequence[Line]
    events: Sequence[Line]
    samples: Sequence[Line]
    summary: Mapping[str, Any]

    @property
    def stages(self) -> List[str]:
        """The recipe's stages, and any other stage in the journal."""
        named = [*self.settings.get("run", {}).get("stages", []), *self.summary.get("stages", {})]
        return list(dict.fromkeys([*named, *(str(line.get("stage")) for line in self.metrics)]))

    @property
    def steps(self) -> Optional[int]:
        """The number of steps of each stage."""
        found = self.settings.get("train", {}).get("steps", self.plan.get("steps"))
        return found if isinstance(found, int) else None

    @property
    def written(self) -> Optional[float]:
        """The time of the latest line, in seconds since 1970."""
        return max((as_number(line.get("time")) or 0.0 for line in [*self.metrics, *self.events]), default=0.0) or None

    def figures(self, stage: str) -> Dict[str, Any]:
        """The figures of a stage: its summary, or figures computed from its metrics if those are newer."""
        summary = dict(self.summary.get("stages", {}).get(stage) or {})
        lines = of_stage(self.metrics, stage)
        if not lines or (summary.get("steps") or 0) >= lines[-1]["step"]:
            return summary
        retraces = sum(event.get("kind") == "retrace" for event in of_stage(self.events, stage))
        return {**summary, **_measured(lines), "retraces_after_warmup": retraces, "finished": False}


def read_run_folder(folder: Union[str, Path]) -> RunFolder:
    """Read the run in a folder; raises a RunFolderError if it is not the folder of a run."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: there is no such folder; name a run's, such as runs/dual_gpu")
    journal = Journal(folder)
    recipe, metrics, events = _text(folder / "recipe.toml"), journal.metrics(), journal.events()
    if not recipe and not metrics and not events:
        inside = sorted(path.parent for path in folder.glob("*/recipe.toml"))
        hint = f"did you mean {inside[-1]}?" if inside else "name the folder that xtts run wrote"
        raise RunFolderError(f"{folder}: this is not a run's folder, there is no recipe.toml in it; {hint}")
    try:
        settings = syntax.parse_toml(recipe, "recipe.toml")
    except XttsError:
        settings = {}
    plan = _json(folder / "plan.json")
    summary = journal.summary()
    return RunFolder(folder, recipe, settings, plan, metrics, journal.validation(), events, journal.samples(), summary)


def of_stage(lines: Sequence[Line], stage: str) -> List[Line]:
    return [line for line in lines if line.get("stage") == stage]


def total(lines: Sequence[Line], key: str) -> float:
    """The sum over the lines that have the key."""
    return sum(as_number(line.get(key)) or 0.0 for line in lines)


def _measured(lines: Sequence[Line]) -> Dict[str, Any]:
    """Figures of a stage, computed from its metrics."""
    wait, wall = total(lines, "wait_seconds"), total(lines, "wait_seconds") + total(lines, "step_seconds")
    frames, computed = total(lines, "frames"), total(lines, "computed_frames")
    losses = [line["loss"] for line in lines if as_number(line.get("loss")) is not None][-LAST:]
    times = [line["time"] for line in lines if as_number(line.get("time"))]
    return {
        "steps": lines[-1]["step"],
        "data_wait_share": wait / wall if wall else None,
        "frames_per_second": frames / wall if wall else None,
        "padding": computed / frames if frames else None,
        "final_loss": sum(losses) / len(losses) if losses else None,
        "skipped": sum(bool(line.get("skipped")) for line in lines),
        "seconds": max(times) - min(times) if times else None,
        "seconds_by": {"computing": wall - wait, "waiting": wait},
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_text(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

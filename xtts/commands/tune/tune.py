"""Tune a recipe: try settings in short runs, and write the recipe with the faster ones."""

import contextlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import attrs

from xtts import files
from xtts.commands.tune.search import FIRST_TIMEOUT, Search, TuneError, TuneRow, TuneUsageError
from xtts.commands.tune.settings import TunedSetting, tuned_settings
from xtts.commands.tune.trial import PROGRAM, Trials, finished_codec, temporary_run_folder
from xtts.progress import ProgressBar
from xtts.recipe import loading
from xtts.recipe.edit import Edit, apply_edits
from xtts.recipe.lines import Key
from xtts.recipe.schema import Recipe
from xtts.training.signals import interrupted
from xtts.training.stages import STAGES, stages_of

CODEC_STEPS = 5  # of a codec that is trained only for trials of the GPT
SPEED = "speed"  # in --only: the settings that change nothing but speed


@attrs.frozen
class Tuning:
    """All trials, and the chosen settings."""

    rows: Tuple[TuneRow, ...]
    changes: Dict[Key, Edit]
    notes: Tuple[str, ...]

    def as_json(self) -> Dict[str, Any]:
        return {
            "chosen": {".".join(key): change.value for key, change in self.changes.items()},
            "why": {".".join(key): change.why for key, change in self.changes.items()},
            "trials": [
                {**attrs.asdict(row.result), "knob": row.setting, "ratio": row.ratio, "verdict": row.verdict}
                for row in self.rows
            ],
            "notes": list(self.notes),
        }


def tune(
    path: Path,
    *,
    settings: Sequence[str] = (),
    minutes: float = 10.0,
    seconds: float = 8.0,
    only: Sequence[str] = (),
    log: Callable[[str], None] = print,
    program: Sequence[str] = PROGRAM,
) -> Tuning:
    """Try settings for `minutes` after the first trial; `seconds` of each trial are measured.

    `settings`, as KEY=VALUE, apply to all trials; `only` names what is tried.
    """
    overrides = [loading.Override(f"--set {one}", *one.split("=", 1)) for one in settings]
    recipe = loading.load_recipe(path, overrides)
    if len(recipe.cluster.workers) > 1 or recipe.cluster.slurm:
        raise TuneUsageError(
            f"{path}: [cluster] names several workers, and a trial is one process; leave it out while tuning"
        )
    stage = stages_of(recipe)[-1].name
    chosen = _select(tuned_settings(stage), only)
    with ProgressBar("tuning") as bar, interrupted():
        search = Search(path, overrides, minutes=minutes, bar=bar, log=log)
        trials = Trials(
            path,
            overrides=tuple(settings),
            runs=Path(recipe.run.folder),
            name=recipe.run.name,
            stage=stage,
            seconds=seconds,
            program=program,
            progress=search.draw_progress,
        )
        with _codec_folder(trials, recipe, log) as codec:
            search.measure_recipe(lambda changes, timeout: trials(changes, timeout, codec))
            for setting in chosen:
                search.tune(setting)
    return Tuning(tuple(search.rows), search.chosen(), tuple(search.notes))


def write_tuned(path: Path, out: Path, tuning: Tuning) -> None:
    """Write the recipe's text with the chosen settings, and why, to a new file."""
    edited = apply_edits(path.read_text(encoding="utf-8-sig"), tuning.changes)
    loading.parse_recipe(edited, name=str(out))  # raises if it is not a valid recipe
    files.write_text(out, edited)


def check_out(out: Path) -> None:
    """Raise unless `out` can be written as a new file, before minutes are spent."""
    if out.exists():
        raise TuneUsageError(f"-o {out}: this exists already; name another file, or remove it")
    if not out.parent.is_dir():
        raise TuneUsageError(f"-o {out}: there is no folder {out.parent}; make it, or name another file")


@contextlib.contextmanager
def _codec_folder(trials: Trials, recipe: Recipe, log: Callable[[str], None]) -> Iterator[Optional[Path]]:
    """A folder with a codec, if trials need one: the run's own if it is finished, or one of a few steps."""
    own = Path(recipe.run.folder) / recipe.run.name
    needed = STAGES[trials.stage].needs
    if not needed or (recipe.model.weights is not None and not set(needed) & set(recipe.run.stages)):
        yield None
    elif finished_codec(own):
        yield own
    else:
        with temporary_run_folder(trials.runs, trials.name) as folder:
            log(f"training a codec of {CODEC_STEPS} steps, for trials of the GPT")
            failure = trials.train_codec(folder, CODEC_STEPS, FIRST_TIMEOUT)
            if failure:
                raise TuneError(f"the recipe cannot be tried as it is: {failure}")
            yield folder


def _select(settings: List[TunedSetting], only: Sequence[str]) -> List[TunedSetting]:
    names = {setting.name for setting in settings}
    for name in only:
        if name != SPEED and name not in names:
            raise TuneUsageError(f"--only {name}: unknown; write {SPEED}, or some of {', '.join(sorted(names))}")
    return [
        setting
        for setting in settings
        if not only or setting.name in only or (SPEED in only and setting.changes_speed_only)
    ]

"""Tuning: a recipe comes in; settings are tried one after another, each against the best so far; the recipe with what
was faster, and why, goes out.

Trials are measured in turns: the best, the candidate, the candidate once more if it looks faster, the best again. It is
taken when both of its trials are faster than both of the best's, so that what else the machine does decides nothing.
How fast is the frames of sound a second over the whole run that the recipe asks for: what is traced or compiled before
its first step counts.
"""

import contextlib
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import attrs

from xtts import files
from xtts.commands.tune.trial import PROGRAM, TrialResult, Trials, finished_codec, folder_for_a_while
from xtts.errors import UsageError, XttsError
from xtts.pipeline.buffer import reader_count
from xtts.planning import plan as plans
from xtts.planning.memory import LARGEST_BUFFER
from xtts.progress import ProgressBar
from xtts.recipe import loading
from xtts.recipe.edit import Edit, apply_edits, describe_edits
from xtts.recipe.lines import Key, RecipeError
from xtts.recipe.schema import Recipe
from xtts.training.signals import interrupted

MARGIN = 0.03  # by which a candidate must be faster, whatever the noise
FAR_SLOWER = 0.9  # of the best; nobody need measure that again
WAITS = 0.02  # share of the time; a model that waits less has nothing to gain from readers and buffers
CODEC_STEPS = 5  # of a codec that is made only to be tried with
FIRST_PATIENCE = 3600.0  # seconds for the first trial, which may have to make a corpus and features
WIDTH = 59  # of what was tried, in a table
SLOWEST_TRIAL = 60.0  # seconds that every trial has at least

Changes = Dict[Key, Any]
SPEED = "speed"


class TuneError(XttsError):
    """A recipe that cannot be tuned."""


class TuneUsageError(TuneError, UsageError):
    """What was typed is nothing to try."""


@attrs.frozen
class TunedSetting:
    """Settings that are tried together, and what they do to the weights that come out."""

    name: str
    keys: Tuple[Key, ...]
    options: Callable[[Recipe], List[Changes]]  # beside what the recipe has
    learns: str  # what of it is learned otherwise
    changes_speed_only: bool
    is_for_data: bool = False  # it can only help a model that waits


def tuned_settings(stage: str) -> List[TunedSetting]:
    """What is tried, in this order: what is traced quickly first, and what needs many traces last."""
    batch: Key = ("train", "batch_size") if stage == "gpt" else ("codec", "batch_size")
    other = "a step learns from other utterances: look at train.learning_rate and train.steps too"
    found = [
        TunedSetting("batch", (batch,), lambda recipe: _doubled(recipe, batch), other, False),
        TunedSetting(
            "precision", (("train", "precision"),), _precision, "numbers are rounded otherwise: watch the loss", False
        ),
        TunedSetting("workers", (("data", "workers"),), _workers, "the same", True, True),
        TunedSetting("buffer", (("devices", "buffer_size"),), _buffer, "the same", True, True),
        TunedSetting("shapes", _SHAPES, _shapes, "the same utterances, in other batches", False),
        TunedSetting("xla", (("train", "jit_compile"), *_SHAPES), _xla, "the same, but for rounding", True),
    ]
    return [knob for knob in found if stage == "gpt" or knob.name != "shapes"]  # the codec has one


@attrs.frozen
class TuneRow:
    """One line of the table: what was tried, what was measured, what became of it."""

    knob: str
    found: TrialResult
    ratio: Optional[float]  # to the best so far
    verdict: str

    def text(self) -> str:
        found = self.found
        what = ", ".join(f"{name.split('.')[1]} {value}" for name, value in found.settings.items()) or "the recipe"
        if found.failure:
            return f"{what:<{WIDTH}} {found.failure}"
        memory = found.gpu_memory_mb or found.memory_mb or 0.0
        ratio = f"{self.ratio:.2f}" if self.ratio else ""
        figures = f"{found.frames_per_second or 0:>9,.0f} {ratio:>6} {found.wait or 0:>6.1%} {found.traces:>6}"
        return f"{what:<{WIDTH}} {figures} {found.trace_seconds:>7.1f} {memory:>8,.0f}  {self.verdict}"


HEAD = f"{'tried':<{WIDTH}} {'frames/s':>9} {'ratio':>6} {'wait':>6} {'traces':>6} {'trace s':>7} {'MB':>8}"


@attrs.frozen
class Tuning:
    """What came out."""

    rows: Tuple[TuneRow, ...]
    changes: Dict[Key, Edit]
    notes: Tuple[str, ...]

    def as_json(self) -> Dict[str, Any]:
        return {
            "chosen": {".".join(key): change.value for key, change in self.changes.items()},
            "why": {".".join(key): change.why for key, change in self.changes.items()},
            "trials": [
                {**attrs.asdict(row.found), "knob": row.knob, "ratio": row.ratio, "verdict": row.verdict}
                for row in self.rows
            ],
            "notes": list(self.notes),
        }


def tune(
    path: Path,
    settings: Sequence[str] = (),  # KEY=VALUE, for all trials
    minutes: float = 10.0,
    seconds: float = 8.0,  # of steps in each trial
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
    program: Sequence[str] = PROGRAM,
) -> Tuning:
    """Try settings for so many minutes, after the first trial."""
    flags = [loading.Override(f"--set {one}", *one.split("=", 1)) for one in settings]
    recipe = loading.load_recipe(path, flags)
    if len(recipe.cluster.workers) > 1 or recipe.cluster.slurm:
        raise TuneUsageError(
            f"{path}: [cluster] names several workers, and a trial is one process; leave it out while tuning"
        )
    stage = "gpt" if "gpt" in recipe.run.stages else "codec"
    chosen = _only(tuned_settings(stage), only)
    with ProgressBar("tuning") as bar, interrupted():
        search = _Search(path, flags, minutes, bar, say)
        trials = Trials(
            path, tuple(settings), Path(recipe.run.folder), recipe.run.name, stage, seconds, program, search.draw
        )
        with _codec(trials, recipe, say) as kept:
            search.begin(lambda changes, patience: trials(changes, patience, kept))
            for knob in chosen:
                search.turn(knob)
    return Tuning(tuple(search.rows), search.chosen(), tuple(search.notes))


def write_tuned(path: Path, out: Path, tuning: Tuning) -> None:
    """The recipe's text with what was chosen, and why, as a new file."""
    text = path.read_text(encoding="utf-8-sig")
    made = apply_edits(text, tuning.changes)
    loading.parse_recipe(made, name=str(out))  # it is a recipe
    files.write_text(out, made)


def check_out(path: Path, out: Path) -> None:
    """That the file to be written is a new one, before minutes are spent."""
    if out.exists():
        raise TuneError(f"{out} is there already, and is not written over; name another file with -o, or remove it")
    if not out.parent.is_dir():
        raise TuneError(f"{out}: there is no folder {out.parent}; make it, or name another file with -o")


class _Search:
    """The best so far, and what was tried."""

    def __init__(
        self,
        path: Path,
        flags: Sequence[loading.Override],
        minutes: float,
        bar: ProgressBar,
        say: Callable[[str], None],
    ) -> None:
        self._path, self._flags, self._budget, self._bar, self._say = path, list(flags), 60 * minutes, bar, say
        self.rows: List[TuneRow] = []
        self.notes: List[str] = []
        self._best: Changes = {}
        self._gains: List[Tuple[TunedSetting, Changes, float, TrialResult, TrialResult]] = []
        self._tried: List[Recipe] = [self._recipe({})]
        self._began: Optional[float] = None

    def begin(self, trial: Callable[[Changes, float], TrialResult]) -> None:
        """Measure the recipe as it is."""
        self._trial = trial
        self._say(HEAD)
        self._measured = trial({}, FIRST_PATIENCE)
        if self._measured.failure:
            raise TuneError(f"the recipe cannot be tried as it is: {self._measured.failure}")
        self._began = time.monotonic()
        self._add(TuneRow("", self._measured, None, ""))
        self._frames = self._recipe({}).train.steps * (self._measured.frames_per_step or 0.0)

    def draw(self) -> None:
        if self._began is not None:
            self._bar(min(self._spent(), self._budget), self._budget, f", {len(self.rows)} trials")

    def turn(self, knob: TunedSetting) -> None:
        """Try a knob's options until none of them helps."""
        if knob.is_for_data and (self._measured.wait or 0.0) < WAITS:
            waits = f"the model waits {self._measured.wait or 0.0:.1%} of the time"
            self.notes.append(f"{knob.name}: not tried, {waits}: there is nothing to gain")
            return
        while True:
            changes = next(self._candidates(knob), None)
            if changes is None:
                return
            if self._spent() >= self._budget:
                self.notes.append(f"{knob.name}: not tried to its end, the time was up")
                return
            self._judge(knob, changes)

    def chosen(self) -> Dict[Key, Edit]:
        """What differs from the recipe in the end, each setting with its reason."""
        before, after = self._recipe({}).as_tables(), self._recipe(self._best).as_tables()
        found: Dict[Key, Edit] = {}
        for key in self._best:
            old, new = (tables[key[0]].get(key[1]) for tables in (before, after))
            if old != new:
                found[key] = Edit(new, self._why(key, old))
        return found

    def _why(self, key: Key, old: Any) -> str:
        gains = [gain for gain in self._gains if key in gain[0].keys and key in gain[1]]
        knob, _, _, first, _ = gains[0]
        last = gains[-1][4]
        ratio = 1.0
        for gain in gains:
            ratio *= gain[2]
        said = f"tuned: {describe_edits(key, old)} before; {ratio:.2f} times as fast,"
        said += f" {first.frames_per_second or 0:,.0f} -> {last.frames_per_second or 0:,.0f} frames/s."
        failed = [row for row in self.rows if row.knob == knob.name and row.found.failure]
        for row in failed:
            values = ", ".join(f"{name} = {value}" for name, value in row.found.settings.items())
            said += f" {values}: {row.found.failure}."
        return f"{said} What is learned: {knob.learns}."

    def _candidates(self, knob: TunedSetting) -> Iterator[Changes]:
        for option in knob.options(self._recipe(self._best)):
            changes = {**self._best, **option}
            with contextlib.suppress(RecipeError):  # what cannot stand together is no candidate
                if self._recipe(changes) not in self._tried:
                    yield changes

    def _judge(self, knob: TunedSetting, changes: Changes) -> None:
        self._tried.append(self._recipe(changes))
        patience = max(SLOWEST_TRIAL, self._budget - self._spent())
        before, found = self._measured, self._trial(changes, patience)
        if found.failure:
            self._add(TuneRow(knob.name, found, None, "failed"))
            return
        was, rates = before.run_rate(self._frames), [found.run_rate(self._frames)]
        if rates[0] < FAR_SLOWER * was:
            self._add(TuneRow(knob.name, found, rates[0] / was, "slower"))
            return
        if rates[0] > (1 + MARGIN) * was:
            rates.append(self._trial(changes, patience).run_rate(self._frames))
        again = self._trial(self._best, patience)
        beaten = [was, again.run_rate(self._frames) or was]
        ratio = sum(rates) / len(rates) / (sum(beaten) / 2)
        is_better = len(rates) == 2 and min(rates) > (1 + MARGIN) * max(beaten)
        self._add(TuneRow(knob.name, found, ratio, "taken" if is_better else "not faster beyond doubt"))
        if is_better:
            self._gains.append((knob, changes, ratio, before, found))
            self._best, self._measured = changes, found
        elif not again.failure:
            self._measured = again

    def _recipe(self, changes: Mapping[Key, Any]) -> Recipe:
        own = [loading.Override("tune", ".".join(key), str(value)) for key, value in changes.items()]
        return plans.resolve_shapes(loading.load_recipe(self._path, [*self._flags, *own]))

    def _spent(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _add(self, row: TuneRow) -> None:
        self.rows.append(row)
        self._bar.wipe()
        self._say(row.text())


@contextlib.contextmanager
def _codec(trials: Trials, recipe: Recipe, say: Callable[[str], None]) -> Iterator[Optional[Path]]:
    """A folder with a codec, where the GPT's trials need one: the run's own when it is finished, or a makeshift."""
    own = Path(recipe.run.folder) / recipe.run.name
    if trials.stage != "gpt" or (recipe.model.weights is not None and "codec" not in recipe.run.stages):
        yield None
    elif finished_codec(own):
        yield own
    else:
        with folder_for_a_while(trials.runs, f"{trials.name}.trial-") as folder:
            say(f"a codec of {CODEC_STEPS} steps is made, for the GPT to be tried with")
            failure = trials.codec(folder, CODEC_STEPS, FIRST_PATIENCE)
            if failure:
                raise TuneError(f"the recipe cannot be tried as it is: {failure}")
            yield folder


def _only(all_knobs: List[TunedSetting], only: Sequence[str]) -> List[TunedSetting]:
    names = {knob.name for knob in all_knobs}
    for name in only:
        if name != SPEED and name not in names:
            raise TuneUsageError(
                f"--only {name}: there is no such thing to try; write {SPEED}, or some of {', '.join(sorted(names))}"
            )
    return [knob for knob in all_knobs if not only or knob.name in only or (SPEED in only and knob.changes_speed_only)]


_SHAPES: Tuple[Key, ...] = (("data", "shapes"), ("data", "shape_count"), ("data", "pad_to_fixed_length"))


def _shaped(recipe: Recipe, shapes: str, count: Any = "auto") -> Changes:
    changes: Changes = {("data", "shapes"): shapes, ("data", "shape_count"): count}
    return {**changes, ("data", "pad_to_fixed_length"): False} if recipe.data.pad_to_fixed_length else changes


def _shapes(recipe: Recipe) -> List[Changes]:
    free = [] if recipe.train.jit_compile is True else [_shaped(recipe, "relaxed")]
    return [*free, *(_shaped(recipe, "planned", count) for count in ("auto", 4, 8, 16))]


def _xla(recipe: Recipe) -> List[Changes]:
    if recipe.train.jit_compile is True:
        return [{("train", "jit_compile"): False}]
    compiled: Changes = {("train", "jit_compile"): True}
    return [{**_shaped(recipe, "planned"), **compiled} if recipe.data.shapes == "relaxed" else compiled]


def _doubled(recipe: Recipe, key: Key) -> List[Changes]:
    rows = getattr(getattr(recipe, key[0]), key[1])
    return [{key: value} for value in (2 * rows, rows // 2) if value]


def _precision(recipe: Recipe) -> List[Changes]:
    others = ("float32", "bfloat16", *(["float16"] if plans.has_gpu() else []))
    return [{("train", "precision"): other} for other in others if other != recipe.train.precision]


def _workers(recipe: Recipe) -> List[Changes]:
    count = reader_count(recipe.data.workers)
    return [{("data", "workers"): value} for value in (2 * count, count // 2) if value]


def _buffer(recipe: Recipe) -> List[Changes]:
    size = recipe.devices.buffer_size
    batches = LARGEST_BUFFER if isinstance(size, str) else size
    return [{("devices", "buffer_size"): value} for value in (2 * batches, "auto") if value != size]

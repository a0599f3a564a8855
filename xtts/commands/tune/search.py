"""The search for faster settings: each candidate is measured in turns with the best so far.

The best, the candidate, the candidate once more if it looks faster, the best again: a candidate is taken if both of its
trials are faster than both of the best's, so that other load on the machine does not decide. The speed is that of the
whole run that the recipe asks for, in frames of recordings per second, including the time for tracing and compiling
before the first step.
"""

import contextlib
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import attrs

from xtts.commands.tune.settings import Changes, TunedSetting
from xtts.commands.tune.trial import TrialResult
from xtts.errors import UsageError, XttsError
from xtts.planning import plan as plans
from xtts.progress import ProgressBar
from xtts.recipe import loading
from xtts.recipe.edit import Edit, describe_edits
from xtts.recipe.lines import Key, RecipeError
from xtts.recipe.schema import Recipe

MARGIN = 0.03  # by which a candidate must be faster
FAR_SLOWER = 0.9  # of the best's speed; a candidate below that is not measured again
MIN_WAIT = 0.02  # share of the time; a model that waits less gains nothing from more readers or a larger buffer
FIRST_TIMEOUT = 3600.0  # seconds for the first trial, which may have to make a corpus and features
MIN_TIMEOUT = 60.0  # seconds that every trial has at least
WIDTH = 59  # of the table's first column
HEAD = f"{'tried':<{WIDTH}} {'frames/s':>9} {'ratio':>6} {'wait':>6} {'traces':>6} {'trace s':>7} {'MB':>8}"


class TuneError(XttsError):
    """A recipe that cannot be tuned."""


class TuneUsageError(TuneError, UsageError):
    """A mistake in what was typed."""


@attrs.frozen
class TuneRow:
    """One row of the table: the setting tried, the measurement, and the verdict."""

    setting: str  # the name of the tuned setting; empty for the recipe as it is
    result: TrialResult
    ratio: Optional[float]  # to the best so far
    verdict: str

    def text(self) -> str:
        result = self.result
        tried = ", ".join(f"{name.split('.')[1]} {value}" for name, value in result.settings.items()) or "the recipe"
        if result.failure:
            return f"{tried:<{WIDTH}} {result.failure}"
        memory = result.gpu_memory_mb or result.memory_mb or 0.0
        ratio = f"{self.ratio:.2f}" if self.ratio else ""
        figures = f"{result.frames_per_second or 0:>9,.0f} {ratio:>6} {result.wait or 0:>6.1%} {result.traces:>6}"
        return f"{tried:<{WIDTH}} {figures} {result.trace_seconds:>7.1f} {memory:>8,.0f}  {self.verdict}"


@attrs.frozen
class Gain:
    """A candidate that was taken."""

    setting: TunedSetting
    changes: Changes
    ratio: float
    before: TrialResult
    after: TrialResult


class Search:
    """The best settings so far, and all trials."""

    def __init__(
        self,
        path: Path,
        overrides: Sequence[loading.Override],
        *,
        minutes: float,
        bar: ProgressBar,
        log: Callable[[str], None],
    ) -> None:
        self.rows: List[TuneRow] = []
        self.notes: List[str] = []
        self._path = path
        self._overrides = list(overrides)
        self._budget = 60 * minutes
        self._bar = bar
        self._log = log
        self._best: Changes = {}
        self._gains: List[Gain] = []
        self._tried: List[Recipe] = [self._recipe({})]
        self._began: Optional[float] = None

    def measure_recipe(self, trial: Callable[[Changes, float], TrialResult]) -> None:
        """Measure the recipe as it is. `trial` is called with changes and a time limit, now and for each candidate."""
        self._trial = trial
        self._log(HEAD)
        self._measured = trial({}, FIRST_TIMEOUT)
        if self._measured.failure:
            raise TuneError(f"the recipe cannot be tried as it is: {self._measured.failure}")
        self._began = time.monotonic()
        self._add(TuneRow("", self._measured, None, ""))
        self._frames = self._recipe({}).train.steps * (self._measured.frames_per_step or 0.0)  # of the whole run

    def draw_progress(self) -> None:
        if self._began is not None:
            self._bar(min(self._spent(), self._budget), self._budget, f", {len(self.rows)} trials")

    def tune(self, setting: TunedSetting) -> None:
        """Try the values of a setting until none of them helps."""
        if setting.is_for_data and (self._measured.wait or 0.0) < MIN_WAIT:
            waits = f"the model waits for data {self._measured.wait or 0.0:.1%} of the time"
            self.notes.append(f"{setting.name}: not tried, since {waits}")
            return
        while True:
            changes = next(self._candidates(setting), None)
            if changes is None:
                return
            if self._spent() >= self._budget:
                self.notes.append(f"{setting.name}: not finished, the time was up")
                return
            self._compare(setting, changes)

    def chosen(self) -> Dict[Key, Edit]:
        """The settings that differ from the recipe's in the end, each with its reason."""
        before, after = self._recipe({}).as_tables(), self._recipe(self._best).as_tables()
        edits: Dict[Key, Edit] = {}
        for key in self._best:
            old, new = (tables[key[0]].get(key[1]) for tables in (before, after))
            if old != new:
                edits[key] = Edit(new, self._reason(key, old))
        return edits

    def _reason(self, key: Key, old: Any) -> str:
        gains = [gain for gain in self._gains if key in gain.setting.keys and key in gain.changes]
        setting, first, last = gains[0].setting, gains[0].before, gains[-1].after
        ratio = 1.0
        for gain in gains:
            ratio *= gain.ratio
        reason = f"tuned: {describe_edits(key, old)} before; {ratio:.2f} times as fast,"
        reason += f" {first.frames_per_second or 0:,.0f} -> {last.frames_per_second or 0:,.0f} frames/s."
        for row in self.rows:
            if row.setting == setting.name and row.result.failure:
                values = ", ".join(f"{name} = {value}" for name, value in row.result.settings.items())
                reason += f" {values}: {row.result.failure}."
        return f"{reason} Effect on learning: {setting.effect}."

    def _candidates(self, setting: TunedSetting) -> Iterator[Changes]:
        for option in setting.options(self._recipe(self._best)):
            changes = {**self._best, **option}
            with contextlib.suppress(RecipeError):  # settings that contradict each other are no candidate
                if self._recipe(changes) not in self._tried:
                    yield changes

    def _compare(self, setting: TunedSetting, changes: Changes) -> None:
        """Measure a candidate and the best, and take the faster one."""
        self._tried.append(self._recipe(changes))
        timeout = max(MIN_TIMEOUT, self._budget - self._spent())
        before, result = self._measured, self._trial(changes, timeout)
        if result.failure:
            self._add(TuneRow(setting.name, result, None, "failed"))
            return
        best_rate, rates = before.run_rate(self._frames), [result.run_rate(self._frames)]
        if rates[0] < FAR_SLOWER * best_rate:
            self._add(TuneRow(setting.name, result, rates[0] / best_rate, "slower"))
            return
        if rates[0] > (1 + MARGIN) * best_rate:
            rates.append(self._trial(changes, timeout).run_rate(self._frames))
        again = self._trial(self._best, timeout)
        best_rates = [best_rate, again.run_rate(self._frames) or best_rate]
        ratio = sum(rates) / len(rates) / (sum(best_rates) / 2)
        is_faster = len(rates) == 2 and min(rates) > (1 + MARGIN) * max(best_rates)
        self._add(TuneRow(setting.name, result, ratio, "taken" if is_faster else "not clearly faster"))
        if is_faster:
            self._gains.append(Gain(setting, changes, ratio, before, result))
            self._best, self._measured = changes, result
        elif not again.failure:
            self._measured = again

    def _recipe(self, changes: Mapping[Key, Any]) -> Recipe:
        own = [loading.Override("tune", ".".join(key), str(value)) for key, value in changes.items()]
        return plans.resolve_shapes(loading.load_recipe(self._path, [*self._overrides, *own]))

    def _spent(self) -> float:
        """Seconds since the first trial."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _add(self, row: TuneRow) -> None:
        self.rows.append(row)
        self._bar.wipe()
        self._log(row.text())

"""Promises: named measurements that must meet a bar, and a table of all verdicts.

Verdicts do not depend on the load of the machine. A count (traces, padded frames, bytes, instructions) is deterministic
and measured once. A ratio compares two things measured in turns in one run: other load can still make it worse, but
hardly better, so it has ATTEMPTS before it counts as broken. Both are compared with the bar in the test, and with the
baseline in `baselines/promises.json`.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import attrs

ATTEMPTS = 3
KEEPS = 0.5  # default share of a baseline's ratio that must be kept
BYTES_KEEP = 0.6  # the same for memory: releases of Python and numpy differ
COUNTS_KEEP = 1 - 1e-9  # the same for counts: all but rounding errors
BASELINE = Path(__file__).parent / "baselines" / "promises.json"
TIMES = Path(__file__).parent / "baselines" / "times.json"  # by machine
AT_LEAST, AT_MOST = "at least", "at most"
RATIO, COUNT, BYTES, INSTRUCTIONS = "ratio", "count", "bytes", "instructions"


class BrokenPromise(AssertionError):
    """A broken promise: its name, its bar and the measured figure."""


@attrs.frozen
class Bar:
    """A bound on a figure."""

    sense: str  # AT_LEAST or AT_MOST
    value: float

    def is_held(self, figure: float) -> bool:
        return figure >= self.value if self.sense == AT_LEAST else figure <= self.value

    def better(self, one: float, other: float) -> float:
        return max(one, other) if self.sense == AT_LEAST else min(one, other)

    def loosened(self, baseline: float, keeps: float) -> "Bar":
        """The bar derived from a baseline, of which the share `keeps` must be kept."""
        return Bar(self.sense, baseline * keeps if self.sense == AT_LEAST else baseline / keeps)


@attrs.frozen
class Verdict:
    """A row of the table."""

    name: str
    kind: str
    bar: Bar
    measured: Optional[float]  # None: measuring failed
    before: Optional[float]  # the baseline, if there is a comparable one
    is_held: bool
    attempts: int

    def cells(self) -> Tuple[str, ...]:
        again = f" ({self.attempts} attempts)" if self.attempts > 1 else ""
        said = "held" if self.is_held else "BROKEN"
        return (
            self.name,
            f"{self.bar.sense} {shown(self.bar.value)}",
            shown(self.before),
            shown(self.measured),
            said + again,
        )


def shown(value: Optional[float]) -> str:
    """A figure as text."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


class Judge:
    """Compares figures with their bars and baselines, and keeps every verdict."""

    def __init__(self, baseline: Dict[str, Any], tensorflow: str) -> None:
        self._baseline, self._tensorflow = baseline, tensorflow
        self.verdicts: List[Verdict] = []

    def ratio(self, name: str, measure: Callable[[], float], bar: Bar, keeps: float = KEEPS) -> float:
        """Judge a ratio of two things that `measure` runs in turns; the best of the attempts counts.

        `keeps`: the share of a baseline that must be kept; 0: the baseline is ignored.
        """
        return self._judged(name, RATIO, measure, bar, keeps, ATTEMPTS)

    def count(self, name: str, measure: Callable[[], float], bar: Bar, kind: str = COUNT) -> float:
        """Judge a deterministic figure, which must not get worse; only BYTES may grow somewhat.

        INSTRUCTIONS are those of TensorFlow's graphs, and compared only with the same release.
        """
        return self._judged(name, kind, measure, bar, BYTES_KEEP if kind == BYTES else COUNTS_KEEP, 1)

    def _judged(
        self, name: str, kind: str, measure: Callable[[], float], bar: Bar, keeps: float, attempts: int
    ) -> float:
        assert name not in [one.name for one in self.verdicts], f"two promises are called {name!r}"
        before = self._before(name, kind)
        bars = [bar] if before is None or not keeps else [bar, bar.loosened(before, keeps)]
        best: Optional[float] = None
        for attempt in range(1, attempts + 1):
            try:
                found = float(measure())
            except BaseException:
                self.verdicts.append(Verdict(name, kind, bar, best, before, False, attempt))
                raise
            best = found if best is None else bar.better(best, found)
            if all(one.is_held(best) for one in bars):
                break
        assert best is not None
        broken = [one for one in bars if not one.is_held(best)]
        self.verdicts.append(Verdict(name, kind, bar, best, before, not broken, attempt))
        if broken:
            compared = "" if broken[0] is bar else f", for it was {shown(before)}"
            raise BrokenPromise(
                f"{name}: {shown(best)}; promised is {bars[-1].sense} {shown(broken[0].value)}{compared}"
            )
        return best

    def _before(self, name: str, kind: str) -> Optional[float]:
        entry = self._baseline.get("promises", {}).get(name)
        if entry is None or (kind == INSTRUCTIONS and self._baseline["tensorflow"] != self._tensorflow):
            return None
        return float(entry["measured"])


def at_least(value: float) -> Bar:
    return Bar(AT_LEAST, value)


def at_most(value: float) -> Bar:
    return Bar(AT_MOST, value)


def read_baseline(path: Path = BASELINE) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> List[str]:
    """The lines of a table, with each column as wide as its longest cell."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = [heads, ["-" * width for width in widths], *rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def processor_seconds(run: Callable[[], Any]) -> float:
    """The processor time of this process; unlike wall time it excludes waiting for other processes."""
    start = time.process_time()
    run()
    return time.process_time() - start


def in_turns(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> float:
    """The processor time of `one` over that of `other`: the median of rounds in which both run."""
    one(), other()
    return statistics.median(processor_seconds(one) / processor_seconds(other) for _ in range(rounds))

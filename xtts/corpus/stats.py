"""Statistics of a corpus, as JSON and as text with histograms."""

import math
from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import attrs
import numpy as np

from xtts.corpus.index import Corpus
from xtts.corpus.lengths import Lengths
from xtts.corpus.utterances import count_reasons, rejection_table
from xtts.formatting import count_of, printable

FIXED = (200, 800)  # tokens and mel frames of the fixed shape
MAX_BARS = 16
BAR_WIDTH = 40  # characters of the longest bar
MAX_NAMES = 10  # speakers or languages listed in the text; the JSON has all
_PERCENTILES = (50, 90, 95, 99)
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class Spread(NamedTuple):
    """The distribution of a length over the utterances."""

    min: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class FixedPadding(NamedTuple):
    """The cost of padding all utterances to one shape."""

    text_length: int  # tokens
    mel_frames: int
    lost: int  # utterances that are too long for it
    lost_share: float
    text_padding: float  # share of padding among the tokens of the others
    mel_padding: float  # and among their mel frames


class Bars(NamedTuple):
    """A histogram: bar i counts the lengths from edges[i] up to, not including, edges[i + 1]."""

    edges: List[int]
    counts: List[int]


@attrs.frozen
class CorpusStats:
    """The statistics of a corpus."""

    corpus: str
    format: str
    why: str
    utterances: int
    minutes: float
    speakers: Dict[str, float]  # minutes of each, in descending order
    languages: Dict[str, float]
    sample_rates: Dict[int, int]  # utterances at each rate of the files
    seconds: Spread
    text: Spread  # tokens
    mel: Spread  # frames
    text_bars: Bars
    mel_bars: Bars
    fixed_padding: FixedPadding
    rejected: Dict[str, int]  # by reason
    rejected_table: str

    def as_json(self) -> Dict[str, Any]:
        """The statistics in types of JSON."""
        out = {field.name: getattr(self, field.name) for field in attrs.fields(CorpusStats)}
        del out["rejected_table"]
        out["sample_rates"] = {str(rate): count for rate, count in self.sample_rates.items()}
        return {name: value._asdict() if hasattr(value, "_asdict") else value for name, value in out.items()}

    def as_text(self, encoding: str = "utf-8") -> str:
        """The statistics as text, in characters that `encoding` supports."""
        blocks = _can_draw(encoding)
        sections = [
            f"{self.corpus}\n{self.format}: {self.why}",
            _summary(self),
            _spreads([("seconds", self.seconds), ("text tokens", self.text), ("mel frames", self.mel)]),
            _padding(self.fixed_padding, self.utterances),
            f"text tokens\n{draw_histogram(self.text_bars, blocks)}",
            f"mel frames\n{draw_histogram(self.mel_bars, blocks)}",
            _minutes("speaker", self.speakers) if len(self.speakers) > 1 else "",
            _minutes("language", self.languages) if len(self.languages) > 1 else "",
            self.rejected_table,
        ]
        text = "\n\n".join(section for section in sections if section)
        return text.encode(encoding, "backslashreplace").decode(encoding)


def corpus_statistics(corpus: Corpus, lengths: Lengths, fixed: Tuple[int, int] = FIXED) -> CorpusStats:
    """The statistics of a corpus and its lengths, which should have been measured without limits."""
    seconds = np.array([u.samples / u.sample_rate for u in corpus.utterances])
    return CorpusStats(
        corpus=str(corpus.layout.metadata),
        format=corpus.layout.format,
        why=corpus.layout.why,
        utterances=len(corpus.utterances),
        minutes=float(seconds.sum()) / 60,
        speakers=_minutes_of((u.speaker for u in corpus.utterances), seconds),
        languages=_minutes_of((u.language for u in corpus.utterances), seconds),
        sample_rates=dict(Counter(u.sample_rate for u in corpus.utterances).most_common()),
        seconds=distribution(seconds),
        text=distribution(lengths.text),
        mel=distribution(lengths.frames),
        text_bars=bin_counts(lengths.text),
        mel_bars=bin_counts(lengths.frames),
        fixed_padding=fixed_padding(lengths, *fixed),
        rejected=count_reasons(corpus.rejected),
        rejected_table=rejection_table(corpus.rejected),
    )


def distribution(values: np.ndarray) -> Spread:
    """The distribution of some values; zeros when there are none."""
    if not len(values):
        return Spread(*[0.0] * 7)
    p50, p90, p95, p99 = (float(percentile) for percentile in np.percentile(values, _PERCENTILES))
    return Spread(float(values.min()), float(values.mean()), p50, p90, p95, p99, float(values.max()))


def fixed_padding(lengths: Lengths, text_length: int, mel_frames: int) -> FixedPadding:
    """The padding if every utterance is padded to one shape, and how many are too long for it."""
    fits = (lengths.text <= text_length) & (lengths.frames <= mel_frames)
    kept, lost = int(fits.sum()), int((~fits).sum())

    def padded(values: np.ndarray, to: int) -> float:
        return 1 - float(values[fits].sum(dtype=np.int64)) / (kept * to) if kept else 0.0

    lost_share = lost / len(lengths) if len(lengths) else 0.0
    return FixedPadding(
        text_length, mel_frames, lost, lost_share, padded(lengths.text, text_length), padded(lengths.frames, mel_frames)
    )


def bin_counts(values: np.ndarray) -> Bars:
    """A histogram of at most MAX_BARS bars, whose width is 1, 2 or 5 times a power of ten."""
    if not len(values):
        return Bars([0, 1], [0])
    low, high = int(values.min()), int(values.max())
    width = next(
        width
        for power in range(12)
        for width in (10**power, 2 * 10**power, 5 * 10**power)
        if high // width - low // width < MAX_BARS
    )
    first = low // width
    bins = np.bincount(np.asarray(values, np.int64) // width - first)
    return Bars([(first + i) * width for i in range(len(bins) + 1)], [int(count) for count in bins])


def draw_histogram(bars: Bars, blocks: bool = True) -> str:
    """A histogram as lines of text, in block characters or in ASCII."""
    ends = [str(edge - 1) for edge in bars.edges[1:]]
    wide = len(ends[-1])
    most = max(max(bars.counts), 1)
    lines = []
    for start, end, count in zip(bars.edges, ends, bars.counts):
        label = f"{start:>{wide}} {'–' if blocks else '-'} {end:>{wide}}"
        lines.append(f"  {label}  {_bar(count / most, blocks)} {count:,}")
    return "\n".join(lines)


def _bar(share: float, blocks: bool) -> str:
    """A bar of `share` of the longest; one of a count above zero is never empty."""
    if not blocks:
        return "#" * math.ceil(share * BAR_WIDTH)
    eighths = math.ceil(share * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _can_draw(encoding: str) -> bool:
    try:
        f"{_EIGHTHS}–×".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _minutes_of(names: Iterable[str], seconds: np.ndarray) -> Dict[str, float]:
    """The minutes of each name, in descending order."""
    totals: Dict[str, float] = {}
    for name, length in zip(names, seconds.tolist()):
        totals[name] = totals.get(name, 0.0) + length / 60
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def _summary(stats: CorpusStats) -> str:
    rates = ", ".join(
        f"{rate:,} Hz" if len(stats.sample_rates) == 1 else f"{rate:,} Hz ({count:,})"
        for rate, count in stats.sample_rates.items()
    )
    parts = [
        count_of(stats.utterances, "utterance"),
        f"{stats.minutes:,.1f} minutes",
        count_of(len(stats.speakers), "speaker"),
        count_of(len(stats.languages), "language") + f" ({_named(stats.languages)})",
        rates,
    ]
    rejected = sum(stats.rejected.values())
    return ", ".join(parts) + (f"; {rejected:,} set aside" if rejected else "")


def _spreads(rows: Sequence[Tuple[str, Spread]]) -> str:
    heads = ["min", "mean", *(f"{percentile} %" for percentile in _PERCENTILES), "max"]
    lines = [" " * 12 + "".join(f"{head:>9}" for head in heads)]
    for name, values in rows:
        digits = 1 if name == "seconds" else 0
        lines.append(f"{name:<12}" + "".join(f"{value:>9,.{digits}f}" for value in values))
    return "\n".join(lines)


def _padding(fixed: FixedPadding, utterances: int) -> str:
    return (
        f"padded to {fixed.text_length} tokens and {fixed.mel_frames} frames: {fixed.mel_padding:.1%} of the frames and"
        f" {fixed.text_padding:.1%} of the tokens would be padding,"
        f"\nand {fixed.lost:,} of {utterances:,} utterances ({fixed.lost_share:.1%}) would not fit"
    )


def _minutes(what: str, minutes: Dict[str, float]) -> str:
    shown = list(minutes.items())[:MAX_NAMES]
    names = [printable(name, 30) or "unnamed" for name, _ in shown]
    wide = max(len(what), *map(len, names))
    lines = [f"{what:<{wide}}    minutes"] + [f"{name:<{wide}} {m:>10,.1f}" for name, (_, m) in zip(names, shown)]
    rest = len(minutes) - len(shown)
    return "\n".join(lines + ([f"and {rest:,} more"] if rest else []))


def _named(minutes: Dict[str, float]) -> str:
    names = [printable(name, 20) for name in list(minutes)[:MAX_NAMES]]
    return ", ".join(names) + (", ..." if len(minutes) > MAX_NAMES else "")

"""Numbers, counts and durations in words."""

from typing import Any, Mapping


def format_reasons(reasons: Mapping[str, int]) -> str:
    """Reasons and their counts in one line, the most frequent first."""
    return "; ".join(f"{count:,} {reason}" for reason, count in _by_count(reasons))


def count_of(count: int, noun: str) -> str:
    """`count` of them, in words."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_excess(ratio: float) -> str:
    """What a ratio has over 1."""
    return f"{100 * (ratio - 1):.1f} %"


def _by_count(reasons: Mapping[str, int]) -> Any:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def format_duration(seconds: float) -> str:
    """A time in words: seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def printable(text: str, longest: int = 1000) -> str:
    """`text` on one line, safe for any terminal: what does not print is escaped, what is too long is cut."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)

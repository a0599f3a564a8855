"""Format counts, shares, durations and untrusted text for messages."""

from typing import List, Mapping, Tuple


def format_reasons(reasons: Mapping[str, int]) -> str:
    """Reasons and their counts on one line, the most frequent first."""
    return "; ".join(f"{count:,} {reason}" for reason, count in by_count(reasons))


def count_of(count: int, noun: str) -> str:
    """`count` and its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_excess(ratio: float) -> str:
    """The excess of a ratio over 1, as a percentage."""
    return f"{100 * (ratio - 1):.1f} %"


def by_count(reasons: Mapping[str, int]) -> List[Tuple[str, int]]:
    """Reasons and their counts, the most frequent first, then by name."""
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def printable(text: str, max_length: int = 1000) -> str:
    """`text` on one line, safe for any terminal: unprintable characters are escaped, long text is cut."""
    if len(text) > max_length:
        text = text[: max_length - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)

"""Tables in HTML: names and rows of text come in, markup goes out; everything is escaped here."""

from html import escape
from typing import Any, Callable, Sequence, Tuple, Union

from xtts.reporting.journal import number

Cell = Union[str, Tuple[str, str]]  # a text, or a text and its class

STYLE = """
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--soft);text-align:left;white-space:nowrap}
th,td{padding:.34rem .9rem .34rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th:last-child,td:last-child{padding-right:0}
tr:last-child td{border-bottom:0}
td{white-space:nowrap}td.long{min-width:12rem;white-space:normal;overflow-wrap:anywhere}
td.n,th.n{text-align:right}
.bad{color:var(--bad)}.good{color:var(--good)}
"""


def html_table(names: Sequence[str], rows: Sequence[Sequence[Cell]], words: Sequence[int], long: int = -1) -> str:
    """A table; columns other than `words` are numbers, and the one called `long` may be broken into lines."""

    def line(tag: str, cells: Sequence[Cell]) -> str:
        parts = []
        for place, cell in enumerate(cells):
            text, tone = cell if isinstance(cell, tuple) else (cell, "")
            kind = "long" if place == long else "" if place in words else "n"
            parts.append(f'<{tag} class="{kind} {tone}" dir="auto">{escape(text)}</{tag}>')
        return f"<tr>{''.join(parts)}</tr>"

    head = f"<thead>{line('th', names)}</thead>" if any(names) else ""
    return f"<table>{head}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


def format_cell(value: Any, show: Callable[[float], str]) -> str:
    """A number as it is shown, and a dash for what is not one."""
    return "–" if number(value) is None else show(value)

"""The Jinja2 templates of the report, and how its numbers are formatted. All text is escaped."""

import functools
from pathlib import Path
from typing import Any, Callable

from xtts.reporting.journal import as_number


def render_page(template: str, **values: Any) -> str:
    """A template as HTML."""
    return str(_environment().get_template(template).render(**values))


def render_part(macro: str, **values: Any) -> str:
    """One macro of parts.html.j2 as HTML."""
    return str(getattr(_environment().get_template("parts.html.j2").module, macro)(**values))


def format_cell(value: Any, show: Callable[[float], str]) -> str:
    """A number as `show` formats it; a dash for anything else."""
    return "–" if as_number(value) is None else show(value)


@functools.lru_cache(maxsize=None)
def _environment() -> Any:
    import jinja2  # late: commands that write no report start without it

    folder = Path(__file__).parent
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(folder)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

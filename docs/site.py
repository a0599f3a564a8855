"""MkDocs hooks that add pages from outside docs/ and set up the Persian part of the site.

README, CONTRIBUTING and CHANGELOG are at the top of the project, where people look for them; these hooks turn them into
pages. Pages in fa/ are shown in Persian and right to left, in their own section of the navigation; links to pages that
are not translated lead to the English ones.
"""

import copy
import os.path
import re
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).resolve().parent
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PERSIAN = "fa/"
LINK = re.compile(r"(\]\()([^)#\s]+)")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config):
    """Add the Persian pages to the navigation."""
    config.nav = [*config.nav, *_persian_nav(config.nav)]
    return config


def on_files(files, config):
    """Add the pages from the top of the project."""
    for source, page in TOP.items():
        text = (DOCS.parent / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, DOCS.parent, DOCS)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Redirect links that leave docs/ to the added pages."""
    if page.file.src_uri in TOP.values():
        return markdown
    here = (DOCS / page.file.src_uri).parent
    return _moved(markdown, here, here)


def on_page_context(context, page, config, nav):
    """Show Persian pages in Persian, right to left."""
    if page.file.src_uri.startswith(PERSIAN):
        config = copy.copy(config)
        config.data = {**config.data, "theme": _persian(config.theme)}
        context["config"] = config
    return context


def _persian(theme):
    theme = copy.copy(theme)
    theme.__dict__ = {name: dict(value) if isinstance(value, dict) else value for name, value in vars(theme).items()}
    theme["language"], theme["direction"] = "fa", "rtl"
    return theme


def _pages(nav):
    for entry in nav:
        for target in entry.values():
            yield from _pages(target) if isinstance(target, list) else [target]


def _persian_nav(nav):
    """Persian pages in the order of the English ones, under their own titles."""
    written = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "fa").rglob("*.md"))
    order = [f"{PERSIAN}{page}" for page in _pages(nav)]
    pages = sorted(written, key=lambda page: order.index(page) if page in order else len(order))
    return [{"فارسی": [{_title(page): page} for page in pages]}]


def _title(page):
    found = TITLE.search((DOCS / page).read_text(encoding="utf-8"))
    return found.group(1) if found else page


def _moved(text, before, after):
    """Rewrite the links of a text that is moved from the folder `before` to the folder `after`."""

    def link(found):
        target = (before / found.group(2)).resolve()
        if re.match(r"\w+:", found.group(2)) or not target.exists():
            return found.group()  # an external link, or a mistake that MkDocs reports
        if target.parent == DOCS.parent and target.name in TOP:
            target = DOCS / TOP[target.name]
        return found.group(1) + _relative(target, after)

    return LINK.sub(link, text)


def _relative(target, folder):
    return Path(os.path.relpath(target, folder)).as_posix()

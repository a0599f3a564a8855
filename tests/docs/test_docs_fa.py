"""docs/fa: a page in Persian says what its English twin says, with the same commands, and reads from right to left."""

import re
from pathlib import Path

import pytest
from commands import BLOCK, blocks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PERSIAN = DOCS / "fa"
GLOSSARY = PERSIAN / "glossary.md"  # the one page that has no twin
PAGES = sorted(PERSIAN.rglob("*.md"))
TWINS = [page for page in PAGES if page != GLOSSARY]
WALL = re.compile(r'^<div dir="rtl" markdown="1">$|^</div>$', re.MULTILINE)
LETTER = "[\u0620-\u064a\u066e-\u06d3]"  # of Arabic script; digits have no direction of their own


def english(page):
    """The page that a Persian one is the translation of."""
    return ROOT / "README.md" if page == PERSIAN / "index.md" else DOCS / page.relative_to(PERSIAN)


def in_persian(page):
    """The Persian page of an English one where there is one, otherwise the page itself."""
    return next((twin for twin in TWINS if english(twin) == page), page)


def prose(page):
    """A page without its code blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def links(page):
    """The files of the project that a page links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", prose(page))
    return {(page.parent / target).resolve() for target in targets}


def between(page, mark):
    """What stands between two marks of a page, such as `<!-- matrix -->` and `<!-- /matrix -->`."""
    return page.read_text(encoding="utf-8").split(f"<!-- {mark} -->\n")[1].split(f"<!-- /{mark} -->")[0]


def inline(page):
    """The inline code of a page: settings, flags, files."""
    return {" ".join(code.split()) for code in re.findall("`([^`]+)`", prose(page))}


def name(page):
    return str(page.relative_to(PERSIAN))


def test_the_readme_the_tutorial_the_how_tos_and_several_machines_are_there_in_persian():
    """None of these English pages is without its Persian twin, and no Persian page without an English one."""
    expected = {ROOT / "README.md", DOCS / "tutorial.md", DOCS / "cluster.md", *(DOCS / "howto").glob("*.md")}
    assert {english(page) for page in TWINS} == expected


@pytest.mark.parametrize("page", TWINS, ids=name)
def test_code_blocks_are_those_of_the_english_page(page):
    """Commands, output and the marks that say what is run are the same, in the same order, byte for byte."""
    assert blocks(page) == blocks(english(page))


@pytest.mark.parametrize("page", TWINS, ids=name)
def test_names_in_the_text_are_those_of_the_english_page(page):
    """A setting or flag that the English page speaks of, in a sentence or a table, is not forgotten here."""
    assert inline(english(page)) <= inline(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file(page):
    """A link to a file of the project is a file of the project."""
    assert not [str(target) for target in links(page) if not target.exists()]


@pytest.mark.parametrize("page", TWINS, ids=name)
def test_links_are_those_of_the_english_page(page):
    """What the English page links to is linked here as well, in Persian where that is written."""
    assert {in_persian(target) for target in links(english(page))} - {page} <= links(page)


def test_the_table_of_releases_is_that_of_the_readme():
    """The rows that docs/matrix.py made are the same; only the heads of the columns are translated."""
    here, there = (between(page, "matrix").splitlines() for page in (PERSIAN / "index.md", ROOT / "README.md"))
    assert here[1:] == there[1:]


def test_the_measured_figures_are_those_of_the_readme():
    """Words are translated; numbers are the same, in the same order and in Latin digits."""
    here, there = (between(page, "peers") for page in (PERSIAN / "index.md", ROOT / "README.md"))
    number = re.compile(r"\d(?:[\d.,]*\d)?", re.ASCII)
    assert number.findall(here) == number.findall(there)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_prose_runs_from_right_to_left_and_code_does_not(page):
    """A code block stands between the right-to-left parts of a page, and nothing else does."""
    parts = WALL.split(page.read_text(encoding="utf-8"))
    assert not [part for part in parts[1::2] if "```" in part]
    assert not [part for part in parts[::2] if BLOCK.sub("", part).strip()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_paragraph_begins_with_a_persian_letter(page):
    """Where pages are shown a paragraph is often given the direction of its first letter, Latin ones the wrong one."""
    for paragraph in re.split(r"\n\n|\n(?=- |\d\. )", WALL.sub("", prose(page))):
        if paragraph.strip() and not paragraph.lstrip().startswith(("|", "<!--", "![")):
            first = re.findall(f"[A-Za-z]|{LETTER}", paragraph)[0]
            assert not first.isascii(), paragraph


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_signs_at_the_ends_of_inline_code_stay_at_their_ends(page):
    """The dashes of a flag would move to its other side in a Persian line: `&lrm;` keeps them."""
    for before, code, after in re.findall("(&lrm;)?`([^`]+)`(&lrm;)?", prose(page)):
        if code.isascii():
            assert code[0].isalpha() or before, code
            assert code[-1].isalnum() or after, code


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_letters_are_persian(page):
    """Arabic kaf, yeh and digits look alike and are found by no search."""
    assert not re.findall("[كيى٠-٩]", re.sub("`[^`]+`", "", prose(page)))

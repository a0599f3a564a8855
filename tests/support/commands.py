"""The code blocks of a documentation page: what a reader types, and why some of it is not run."""

import re
import shlex
from typing import List, NamedTuple, Optional

BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = ("sh", "python")  # the kinds of block that a reader types
RUN_BY_CI = ("run", "test")  # the marks by which .ci/run finds the README's two commands


class Block(NamedTuple):
    """A code block: its language, its text, and the HTML comment on the line before it."""

    kind: str
    code: str
    mark: Optional[str]

    @property
    def is_run(self) -> bool:
        """Whether it is a command or program without a mark that says why it is not run."""
        return self.kind in TYPED and self.mark is None


def blocks(page) -> List[Block]:
    """Every code block of a Markdown file, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(found["kind"], found["code"], found["mark"]) for found in BLOCK.finditer(text)]


def statements(code) -> List[str]:
    """The statements of a shell block: one per line, with the lines of a here document (<<'END')."""
    statement = re.compile(r"^[^\n]*<<'END'\n.*?^END$|^[^\n]*\S[^\n]*$", re.DOTALL | re.MULTILINE)
    return statement.findall(code)


def verb(statement) -> Optional[List[str]]:
    """The arguments of `python -m xtts`; None for other statements, and for those that need a shell."""
    words = shlex.split(statement) if not re.search(r"<<| [<>|] ", statement) else []
    return words[3:] if words[:3] == ["python", "-m", "xtts"] else None


def typed(page) -> List[str]:
    """Every shell statement of a page, without the contents of here documents."""
    return [line.split("\n")[0] for block in blocks(page) if block.kind == "sh" for line in statements(block.code)]

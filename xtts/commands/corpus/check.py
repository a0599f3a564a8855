"""`xtts corpus check`: which recordings of a corpus can be used."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Optional

from xtts.commands.command import Command
from xtts.errors import UsageError, XttsError


def add_corpus_flags(parser: ArgumentParser) -> None:
    """FOLDER, and how to read it."""
    parser.add_argument("folder", metavar="FOLDER", help="corpus folder, or its metadata file")
    parser.add_argument(
        "--format",
        default="auto",
        choices=["auto", "ljspeech", "vctk", "csv", "common_voice"],
        help="layout of the corpus (auto)",
    )
    parser.add_argument("--language", default="en", help="language, where the corpus does not state one (en)")


def add_flags(parser: ArgumentParser) -> None:
    """A corpus, and where to write what cannot be used."""
    add_corpus_flags(parser)
    parser.add_argument("--rejected", metavar="FILE", help="write the unusable recordings to a CSV file")


def require_corpus(folder: str) -> None:
    """Raise unless what was typed exists."""
    if not Path(folder).exists():
        raise UsageError(f"{folder}: there is no such folder; name a corpus folder or its metadata file")


def check(*, folder: str, format: str, language: str, rejected: Optional[str]) -> int:
    """Decode every recording of a corpus, and print which cannot be used and why."""
    require_corpus(folder)

    from xtts.corpus.utterances import rejection_table, write_rejected
    from xtts.planning.dataset import load_checked_corpus

    found = load_checked_corpus(folder, format, language, print, at_least=0)
    print(f"{len(found.utterances):,} utterances can be used, {len(found.rejected):,} cannot")
    print(rejection_table(found.rejected), end="\n" if found.rejected else "")
    if rejected is not None:
        try:
            write_rejected(rejected, found.rejected)
        except OSError as error:
            raise XttsError(f"--rejected {rejected}: {error.strerror}; name a file that can be written") from None
    return 0 if found.utterances else 1


COMMAND = Command(
    "check", "Decode every recording of a corpus, and print which cannot be used and why.", add_flags, check
)

"""`xtts stats`: what is in a corpus."""

import sys
from argparse import ArgumentParser

from xtts.commands.command import Command, add_json_flag, print_json, print_stderr
from xtts.commands.corpus.check import add_corpus_flags, require_corpus


def add_flags(parser: ArgumentParser) -> None:
    """A corpus and --json."""
    add_corpus_flags(parser)
    add_json_flag(parser)


def stats(*, folder: str, format: str, language: str, as_json: bool) -> int:
    """Print the statistics of a corpus."""
    require_corpus(folder)

    from xtts.corpus.lengths import measure_lengths
    from xtts.corpus.stats import corpus_statistics
    from xtts.planning.dataset import load_checked_corpus
    from xtts.recipe.schema import AudioSection
    from xtts.text.normalise import normalise

    corpus = load_checked_corpus(folder, format, language, print_stderr, at_least=1)
    corpus, lengths = measure_lengths(
        corpus,
        lambda text, language: [0, *map(ord, normalise(text, language))],  # a language tag and characters, as in a run
        lambda text, language: any(letter.isalnum() for letter in normalise(text, language)),
        AudioSection(),
        at_least=1,
    )
    found = corpus_statistics(corpus, lengths)
    if as_json:
        print_json(found.as_json())
    else:
        print(found.as_text(sys.stdout.encoding or "ascii"))
    return 0


COMMAND = Command(
    "stats",
    "Print what is in a corpus: minutes, speakers, languages, lengths, and how much a fixed shape would be padding.",
    add_flags,
    stats,
)

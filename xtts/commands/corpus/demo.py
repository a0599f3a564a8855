"""`xtts corpus demo`: make a demo corpus."""

from argparse import ArgumentParser

from xtts.commands.command import Command


def add_flags(parser: ArgumentParser) -> None:
    """OUT, and how much of what is spoken."""
    parser.add_argument("folder", metavar="OUT", help="folder to make")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of speech (10)")
    parser.add_argument("--voices", type=int, default=8, help="number of voices (8)")
    parser.add_argument("--language", default="en,fa", help="languages, separated by commas (en,fa)")
    parser.add_argument("--seed", type=int, default=0, help="seed of voices and sentences (0)")
    parser.add_argument(
        "--vocabulary", default="wide", choices=["wide", "small"], help="small: about 170 English words"
    )


def demo(*, folder: str, minutes: float, voices: int, language: str, seed: int, vocabulary: str) -> int:
    """Make the corpus, unless it is there already."""
    from xtts.corpus.demo.make import make_demo_corpus
    from xtts.progress import ProgressBar

    languages = [name.strip() for name in language.split(",")]
    with ProgressBar("speaking") as bar:
        made = make_demo_corpus(folder, minutes, voices, languages, seed, bar, vocabulary)
    how = "it existed already" if made.reused else "newly made"
    print(f"{made.folder}: {made.clips:,} clips, {made.seconds / 60:.1f} minutes, {how}")
    return 0


COMMAND = Command(
    "demo",
    "Make a demo corpus with espeak-ng, in the layout of LJSpeech: many voices, and no download.",
    add_flags,
    demo,
)

"""What a run is made from: a recipe comes in; its corpus, checked, its tokenizer and its length tables go out.

A recipe that names no corpus gets the demo corpus, made once and kept beside the runs.
"""

from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import attrs

from xtts.corpus import check, lengths, split
from xtts.corpus import index as corpora
from xtts.corpus.demo import make
from xtts.corpus.index import Corpus
from xtts.corpus.lengths import Lengths
from xtts.corpus.utterances import Rejected, count_reasons
from xtts.planning.memory import PlannedStage
from xtts.planning.plan import Plan, length_limits, make_plan
from xtts.progress import ProgressBar
from xtts.recipe.schema import Recipe
from xtts.text import tokenizer as text
from xtts.text.normalise import normalise

Log = Callable[[str], None]  # a line for the user


class Split(NamedTuple):
    """Utterances and their lengths, row by row."""

    corpus: Corpus
    lengths: Lengths


@attrs.frozen
class Dataset:
    """Everything that is read before a run is planned."""

    train: Split
    held_out: Split  # for validation; may be empty
    tokenizer: text.Tokenizer
    rejected: List[Rejected]  # of both, each once


def load_dataset(recipe: Recipe, say: Log) -> Dataset:
    """Read, check and measure what a recipe trains on; `say` is told what was found."""
    most = length_limits(recipe)  # first of all: a limit the model cannot have is said before anything is read,
    text.check_tokenizer(recipe.text)  # and a package that is missing before a corpus is made
    source = recipe.data.train or _demo_corpus(recipe, say)
    whole = load_checked_corpus(source, recipe.data.format, recipe.data.language, say)
    if recipe.data.val is not None:
        train, held_out = (
            whole,
            load_checked_corpus(recipe.data.val, recipe.data.format, recipe.data.language, say, at_least=1),
        )
    else:
        kept, held = split.split_corpus(whole.utterances, recipe.data.validation_share, recipe.run.seed)
        train = attrs.evolve(whole, utterances=kept)
        held_out = attrs.evolve(whole, utterances=held, rejected=[])
    spoken = [*train.utterances, *held_out.utterances]
    tokenizer = text.make_tokenizer(recipe.text, [(one.text, one.language) for one in spoken])
    train_part = _measured(train, tokenizer, recipe, most, at_least=1)
    held_part = _measured(held_out, tokenizer, recipe, most, at_least=0)
    return Dataset(train_part, held_part, tokenizer, [*train_part.corpus.rejected, *held_part.corpus.rejected])


def plan_dataset(
    recipe: Recipe, dataset: Dataset, stages: Sequence[PlannedStage], replicas: Optional[int] = None
) -> Plan:
    """The plan of a recipe for the dataset that was loaded for it."""
    return make_plan(
        recipe,
        dataset.train.lengths.text,
        dataset.train.lengths.frames,
        dataset.tokenizer.size,
        stages=stages,
        rejected=count_reasons(dataset.rejected),
        replicas=replicas,
    )


def load_checked_corpus(path: str, format: str, language: str, say: Log, at_least: int = corpora.AT_LEAST) -> Corpus:
    """The corpus at `path`, with every recording decoded once."""
    with ProgressBar("reading headers") as bar:
        found = corpora.read_corpus(path, format, language, progress=bar, at_least=at_least)
    say(f"{found.layout.metadata}: {found.layout.format} ({found.layout.why})")
    with ProgressBar("checking recordings") as bar:
        return check.check_recordings(found, progress=bar, at_least=at_least)


def _measured(corpus: Corpus, tokenizer: text.Tokenizer, recipe: Recipe, most: Tuple[int, int], at_least: int) -> Split:
    def speakable(said: str, language: str) -> bool:
        unknown = set(tokenizer.unknown(said, language))
        return any(letter.isalnum() and letter not in unknown for letter in normalise(said, language).lower())

    with ProgressBar("counting tokens") as bar:
        return Split(
            *lengths.measure_lengths(
                corpus,
                tokenizer.encode,
                speakable,
                recipe.audio,
                max_text_length=most[0],
                max_mel_frames=most[1],
                tokenizer=tokenizer.digest(),
                progress=bar,
                at_least=at_least,
            )
        )


def _demo_corpus(recipe: Recipe, say: Log) -> str:
    """The folder of the demo corpus this recipe asks for."""
    asked = recipe.demo
    small = "" if asked.vocabulary == "wide" else f"-{asked.vocabulary}"
    name = f"demo-{'-'.join(asked.languages)}{small}-{asked.voices}-voices-{asked.minutes:g}-minutes"
    say("no corpus is named in data.train: a demo corpus is spoken by espeak-ng")
    with ProgressBar("speaking the demo corpus") as bar:
        made = make.make_demo_corpus(
            Path(recipe.run.folder) / f"{name}-seed-{recipe.run.seed}",
            asked.minutes,
            asked.voices,
            asked.languages,
            recipe.run.seed,
            bar,
            asked.vocabulary,
        )
    return str(made.folder)

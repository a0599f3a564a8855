"""The dataset of a run: the checked corpus, its validation split, the tokenizer and the lengths of all utterances.

A recipe that names no corpus gets a demo corpus, made once and kept beside the runs.
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
from xtts.planning.unknown_tokens import cache_key, check_unknown, count_unknown
from xtts.progress import ProgressBar
from xtts.recipe.frontend import resolve_frontend
from xtts.recipe.schema import Recipe
from xtts.text import tokenizer as text

Log = Callable[[str], None]  # prints a line for the user


class Split(NamedTuple):
    """Utterances, and a table with the lengths of each."""

    corpus: Corpus
    lengths: Lengths


@attrs.frozen
class Dataset:
    """The dataset that a run trains on."""

    train: Split
    held_out: Split  # for validation; may be empty
    tokenizer: text.Tokenizer
    rejected: List[Rejected]  # of both splits, each once


def load_dataset(recipe: Recipe, log: Log) -> Dataset:
    """Read, check and measure the dataset of a recipe, and log what was found."""
    limits = length_limits(recipe)  # first, so that a limit beyond the model's fails before anything is read,
    recipe = resolve_frontend(recipe)
    text.check_tokenizer(recipe.text, recipe.data.language)  # and a missing package before a demo corpus is made
    source = recipe.data.train or _demo_corpus(recipe, log)
    whole = load_checked_corpus(source, recipe.data.format, recipe.data.language, log)
    if recipe.data.val is not None:
        train, held_out = (
            whole,
            load_checked_corpus(recipe.data.val, recipe.data.format, recipe.data.language, log, at_least=1),
        )
    else:
        kept, held = split.split_corpus(whole.utterances, recipe.data.validation_share, recipe.run.seed)
        train = attrs.evolve(whole, utterances=kept)
        held_out = attrs.evolve(whole, utterances=held, rejected=[])
    spoken = [*train.utterances, *held_out.utterances]
    tokenizer = text.make_tokenizer(recipe.text, [(one.text, one.language) for one in spoken])
    if recipe.text.vocab is not None:  # one that was made from these texts knows all of them
        check_unknown(count_unknown(whole, spoken, tokenizer), recipe.text.max_unknown, log)
    train_part = _measured(train, tokenizer, recipe, limits, at_least=1)
    held_part = _measured(held_out, tokenizer, recipe, limits, at_least=0)
    return Dataset(train_part, held_part, tokenizer, [*train_part.corpus.rejected, *held_part.corpus.rejected])


def plan_dataset(
    recipe: Recipe, dataset: Dataset, stages: Sequence[PlannedStage], replicas: Optional[int] = None
) -> Plan:
    """The plan of a recipe for its loaded dataset."""
    return make_plan(
        recipe,
        dataset.train.lengths.text,
        dataset.train.lengths.frames,
        dataset.tokenizer.size,
        stages=stages,
        rejected=count_reasons(dataset.rejected),
        replicas=replicas,
    )


def load_checked_corpus(
    path: str, format: str, language: str, log: Log, at_least: int = corpora.MIN_UTTERANCES
) -> Corpus:
    """The corpus at `path`, after decoding every recording once to check it."""
    with ProgressBar("reading headers") as bar:
        found = corpora.read_corpus(path, format, language, progress=bar, at_least=at_least)
    log(f"{found.layout.metadata}: {found.layout.format} ({found.layout.why})")
    with ProgressBar("checking recordings") as bar:
        return check.check_recordings(found, progress=bar, at_least=at_least)


def _measured(
    corpus: Corpus, tokenizer: text.Tokenizer, recipe: Recipe, limits: Tuple[int, int], at_least: int
) -> Split:
    def speakable(said: str, language: str) -> bool:
        unknown = set(tokenizer.unknown(said, language))
        letters = tokenizer.frontend.normalise(said, language).lower()
        return any(letter.isalnum() and letter not in unknown for letter in letters)

    with ProgressBar("counting tokens") as bar:
        return Split(
            *lengths.measure_lengths(
                corpus,
                tokenizer.encode,
                speakable,
                recipe.audio,
                max_text_length=limits[0],
                max_mel_frames=limits[1],
                tokenizer=cache_key(tokenizer),
                progress=bar,
                at_least=at_least,
            )
        )


def _demo_corpus(recipe: Recipe, log: Log) -> str:
    """The folder of the demo corpus that the recipe describes."""
    asked = recipe.demo
    small = "" if asked.vocabulary == "wide" else f"-{asked.vocabulary}"
    name = f"demo-{'-'.join(asked.languages)}{small}-{asked.voices}-voices-{asked.minutes:g}-minutes"
    log("data.train names no corpus: espeak-ng speaks a demo corpus")
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

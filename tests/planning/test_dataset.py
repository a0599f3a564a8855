"""From a recipe to a checked corpus, a tokenizer and length tables, with real files."""

import pytest
from recordings import ljspeech, record, tone

from xtts.corpus.utterances import CorpusError, Reason
from xtts.planning import dataset
from xtts.recipe.schema import DataSection, DemoSection, ModelSection, Recipe, RunSection


def corpus(folder, count=12):
    ljspeech(folder, [f"clip{number}" for number in range(count)])
    return str(folder)


def gathered(recipe):
    logged = []
    return dataset.load_dataset(recipe, logged.append), logged


def test_a_corpus_is_read_split_and_measured(tmp_path):
    """Every usable utterance is either in training or held out, with a row of lengths."""
    found, logged = gathered(Recipe(data=DataSection(train=corpus(tmp_path), validation_share=0.25)))
    train, held_out = found.train.corpus.utterances, found.held_out.corpus.utterances
    assert (len(train), len(held_out)) == (9, 3)
    assert not {one.id for one in train} & {one.id for one in held_out}
    assert len(found.train.lengths) == 9
    assert found.train.lengths.text[0] == len(found.tokenizer.encode(train[0].text, train[0].language))
    assert "ljspeech" in logged[0]


def test_a_validation_corpus_is_used_as_it_is(tmp_path):
    """With data.val nothing is held out of data.train."""
    train, val = corpus(tmp_path / "train"), corpus(tmp_path / "val", 3)
    found, _ = gathered(Recipe(data=DataSection(train=train, val=val)))
    assert len(found.train.corpus.utterances) == 12
    assert len(found.held_out.corpus.utterances) == 3


def test_unusable_utterances_are_rejected_with_their_reason(tmp_path):
    """Silence is found by decoding, a text without known letters by the tokenizer, and each is listed once."""
    folder = corpus(tmp_path)
    record(tmp_path / "wavs" / "clip3.wav", 0 * tone(22050))
    lines = (tmp_path / "metadata.csv").read_text(encoding="utf-8").splitlines()
    lines[5] = "clip5|!?|!?"
    (tmp_path / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    found, _ = gathered(Recipe(data=DataSection(train=folder)))
    assert sorted((one.id, one.reason) for one in found.rejected) == [
        ("clip3", Reason.SILENT),
        ("clip5", Reason.TEXT_UNKNOWN),
    ]


def test_only_a_fixed_shape_has_the_recipes_limits(tmp_path):
    """Planned shapes keep recordings longer than max_mel_frames; a fixed shape rejects them."""
    folder = corpus(tmp_path)
    record(tmp_path / "wavs" / "clip0.wav", tone(256 * 900))
    planned, _ = gathered(Recipe(data=DataSection(train=folder, validation_share=0.0)))
    fixed, _ = gathered(Recipe(data=DataSection(train=folder, validation_share=0.0, pad_to_fixed_length=True)))
    assert len(planned.train.lengths) == 12
    assert [(one.id, one.reason) for one in fixed.rejected] == [("clip0", Reason.AUDIO_LONG)]


def test_a_recipe_without_a_corpus_uses_the_demo_corpus(tmp_path):
    """The demo corpus is made beside the runs, in the recipe's languages, and reused the next time."""
    recipe = Recipe(
        run=RunSection(folder=str(tmp_path)), demo=DemoSection(minutes=0.3, voices=2), model=ModelSection(size="tiny")
    )
    found, logged = gathered(recipe)
    spoken = [*found.train.corpus.utterances, *found.held_out.corpus.utterances]
    assert {one.language for one in spoken} == {"en", "fa"}
    assert len({one.speaker for one in spoken}) == 2
    assert found.rejected == []
    assert "demo corpus" in logged[0]
    again, _ = gathered(recipe)
    assert again.train.corpus.utterances == found.train.corpus.utterances


def test_an_unusable_corpus_is_an_error_with_reasons(tmp_path):
    """A corpus with no usable utterance is refused with the reasons."""
    folder = corpus(tmp_path, 3)
    for clip in (tmp_path / "wavs").iterdir():
        clip.write_bytes(b"")
    with pytest.raises(CorpusError, match="file empty"):
        gathered(Recipe(data=DataSection(train=folder)))

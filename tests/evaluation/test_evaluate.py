"""Evaluating a small run, from the command line and from Python."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from run_processes import copy
from small_run import SMALLEST

from xtts.errors import UsageError
from xtts.evaluation import recognisers as recognition
from xtts.evaluation.evaluate import FILE, EvaluateError, evaluate
from xtts.evaluation.figures import CODEC, RECORDING, SAID
from xtts.planning import dataset as material_module
from xtts.planning.sizes import SIZES
from xtts.reporting.journal import Journal
from xtts.reporting.run_folder import RunFolderError

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def page(runs):
    """The output of `xtts evaluate` for the uninterrupted run."""
    done = subprocess.run(
        [
            sys.executable,
            str(SUPPORT / "small_run.py"),
            "evaluate",
            "runs/whole",
            "--utterances=2",
            "--recogniser=none",
        ],
        cwd=str(runs.root),
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def small(monkeypatch, runs):
    """The preset and working folder of the run, in this process."""
    monkeypatch.setitem(SIZES, "tiny", SMALLEST)
    monkeypatch.chdir(runs.root)


def test_evaluate_prints_a_page_and_writes_a_file(runs, page):
    """The page has three columns; evaluation.json has the same figures and those of each utterance."""
    assert "recordings through the codec said by the model" in " ".join(page.split())
    found = json.loads((runs.folder("whole") / FILE).read_text(encoding="utf-8"))
    assert list(found["figures"]) == [RECORDING, CODEC, SAID]
    assert len(found["utterances"]) == 2
    assert {one["speaker"] for one in found["utterances"]} == {"voice0", "voice1"}
    assert all(one["reference"] != one["id"] for one in found["utterances"])
    assert found["figures"][CODEC]["distortion"] > 0
    assert 0 < found["codec"]["codes_used"] <= 1
    assert 1 <= found["codec"]["perplexity"] <= SMALLEST.codec.codes


def test_held_out_losses_match_those_of_the_run(runs, page):
    """The losses equal those of the run's last validation: same batches, same weights.

    The run reads cached mels of whole recordings; here mels are computed from crops, and differ at their ends.
    """
    found = json.loads((runs.folder("whole") / FILE).read_text(encoding="utf-8"))["losses"]
    for stage, tolerance in (("codec", 1e-2), ("gpt", 1e-4)):
        last = Journal(runs.folder("whole")).validation(stage)[-1]
        assert found[stage]["loss"] == pytest.approx(last["loss"], rel=tolerance)
    for part, value in last["losses"].items():
        assert found["gpt"][part] == pytest.approx(value, rel=1e-4)


class Parrot:
    """A recogniser that always returns the same words."""

    name = "parrot"
    unknown = ("fe",)

    def transcribe(self, wave):
        assert wave.ndim == 1
        return "La, mi!"


def test_recognisers_transcribe_every_wave(runs, small, monkeypatch):
    """Word errors are counted for all three waves, and evaluated texts are not in the language model."""
    asked = {}

    def recognisers(choice, texts, others, say):
        asked.update(choice=choice, texts=texts(), others=others)
        return [Parrot()]

    monkeypatch.setattr(recognition, "recognisers", recognisers)
    found = evaluate(runs.folder("whole"), 1, "auto", lambda line: None)
    (one,) = found.utterances
    wrong = recognition.edit_distance(one.text.split(), ["la", "mi"])
    assert {name: wave.edits for name, wave in one.waves.items()} == {name: {"parrot": wrong} for name in one.waves}
    assert found.figures()[SAID].error_rates == {"parrot": pytest.approx(wrong / len(one.text.split()))}
    assert not set(asked["texts"]) & set(asked["others"])
    assert one.text in asked["others"]


def test_texts_that_were_trained_on_are_not_evaluated(runs, small, monkeypatch):
    """Texts that also occur in training are left out, unless a speaker has no others."""

    def scored(reads):
        """An evaluation in which some held-out texts, and no others, also occur in training."""

        def gathered(recipe, say):
            dataset = material_module.load_dataset(recipe, say)
            held = [one._replace(text=texts.get(one.id, one.text)) for one in dataset.held_out.corpus.utterances]
            read = [one.text for one in held if reads(one)]
            trained = dataset.train.corpus.utterances
            assert len(read) < len(trained)
            trained = [one._replace(text=text) for one, text in zip(trained, [*read, *["fe"] * len(trained)])]
            return attrs.evolve(dataset, held_out=_with(dataset.held_out, held), train=_with(dataset.train, trained))

        monkeypatch.setattr("xtts.evaluation.evaluate.load_dataset", gathered)
        return evaluate(runs.folder("whole"), 100, "none", lambda line: None)

    texts = {"02": "la do ti"}  # otherwise the text occurs twice in the corpus
    every = scored(lambda one: False)
    assert [one.id for one in every.utterances] == ["02", "11", "10"]
    assert every.read_before == 0
    fewer = scored(lambda one: one.id == "02")
    assert [one.id for one in fewer.utterances] == ["10", "11"]
    assert fewer.read_before == 0
    known = scored(lambda one: one.id != "02")
    assert [one.id for one in known.utterances] == ["02", "11"]
    assert known.read_before == 1
    assert "held out, 1 of them with a text that was trained on" in known.text()


def _with(part, utterances):
    return part._replace(corpus=attrs.evolve(part.corpus, utterances=utterances))


def test_a_run_with_only_a_codec_is_evaluated(runs, small):
    """There are two columns, one loss, and no synthesized speech."""
    folder = copy(runs, "only-codec")
    for name in ("model", "gpt"):
        shutil.rmtree(folder / name)
    found = evaluate(folder, 2, "none", lambda line: None)
    assert list(found.losses) == ["codec"]
    assert list(found.figures()) == [RECORDING, CODEC]


def test_an_impossible_evaluation_is_refused(runs, small, tmp_path, monkeypatch):
    """A missing or untrained run, zero utterances, and an unknown or missing recogniser are refused."""
    with pytest.raises(RunFolderError, match="there is no such folder"):
        evaluate(tmp_path / "nowhere")
    folder = runs.folder("begun")
    folder.mkdir()
    shutil.copy(str(runs.folder("whole") / "recipe.toml"), str(folder))
    with pytest.raises(EvaluateError, match="begun: nothing is trained yet"):
        evaluate(folder, recogniser="none")
    with pytest.raises(UsageError, match=r"--utterances 0: .* ask for 1 or more"):
        evaluate(folder, 0)
    with pytest.raises(recognition.RecogniserError, match="--recogniser nobody: there is no such recogniser"):
        evaluate(folder, recogniser="nobody")
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(recognition.RecogniserError, match=r"pip install 'xtts\[sphinx\]'"):
        evaluate(folder, recogniser="sphinx")

"""Whole runs as subprocesses: files, restarts, devices and error messages."""

import json
import shutil
import signal

import numpy as np
import pytest
from golden_losses import GOLDEN, KEPT
from run_processes import copy, differences, final, has_begun, losses, make_corpus, summary, unfinished

from xtts.audio import wav
from xtts.planning.plan import resolve_shapes
from xtts.recipe import loading
from xtts.recipe.defaults import resolve_defaults
from xtts.reporting.journal import Journal
from xtts.weights.layout import MEL_STATS
from xtts.weights.model_folder import SIZES, read_model_folder
from xtts.weights.speaking_settings import SPEAKING, SpeakingSettings, read_speaking, write_speaking

CODEC = 'run.stages=["codec"]'
UNSEEN = "train.validate_every=0"  # one trace less, and the same training
ROUNDING = 1e-3  # of losses, in which sums over replicas have changed a code or two
FIGURES = "steps traces retraces_after_warmup data_wait_share frames_per_second padding seconds devices tensorflow"


def test_a_run_learns_and_writes_its_records(runs):
    """Losses fall, every planned shape occurs, nothing is retraced, and each file has its contents."""
    folder, settings = runs.folder("whole"), resolve_shapes(loading.load_recipe(str(runs.root / "recipe.toml")))
    settings = resolve_defaults(settings, is_published=False)
    recipe = loading.load_recipe(str(folder / "recipe.toml"))
    assert (recipe.train, recipe.data, recipe.codec) == (settings.train, settings.data, settings.codec)
    for stage in ("codec", "gpt"):
        lines = Journal(folder).metrics(stage)
        assert [line["step"] for line in lines] == list(range(1, 21))
        assert set("step stage loss shape step_seconds wait_seconds".split()) <= set(lines[0])
        assert sum(losses(folder, stage)[-4:]) < 0.95 * sum(losses(folder, stage)[:4])
        assert [line["step"] for line in Journal(folder).validation(stage)] == [10, 20]
    planned = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["shapes"]
    visited = {shape for line in Journal(folder).metrics("gpt") for shape in line["shape"].split("+")}
    assert visited == {f"{one['text_length']}x{one['mel_frames']}x{one['batch_size']}" for one in planned}
    found = summary(folder)
    for figures in (found, *found["stages"].values()):
        assert set(FIGURES.split()) | {"final_loss"} <= set(figures)
        assert figures["retraces_after_warmup"] == 0
    assert list(found["stages"]) == ["codec", "gpt"]
    assert (found["steps"], found["finished"], found["skipped"]) == (40, True, 0)


def test_a_run_has_samples_and_published_weights(runs):
    """Each sample is a wave and a picture; `model` holds the weights under their published names."""
    folder = runs.folder("whole")
    samples = Journal(folder).samples()
    assert {(line["stage"], line["step"]) for line in samples} == {("codec", 20), ("gpt", 20)}
    for line in samples:
        assert len(wav.load_audio(str(folder / line["wav"]), 22050)) > 0
        assert (folder / line["picture"]).read_bytes().startswith(b"\x89PNG")
    description, tensors = read_model_folder(folder / "model")
    assert description.parts == ("gpt", "codec")
    assert (tensors[MEL_STATS] > 0).all()


def test_relaxed_shapes_train_in_one_trace(runs, relaxed):
    """Batches are as long as their longest row, every epoch has every frame of the corpus, and nothing is retraced."""
    folder = runs.folder("relaxed")
    lines, found = Journal(folder).metrics("gpt"), summary(folder)["stages"]["gpt"]
    assert found["retraces_after_warmup"] == 0
    traced = [line["text"] for line in Journal(folder).events() if line["kind"] == "trace"]
    assert traced == ["gpt_add_free", "gpt_apply_sums"]
    assert json.loads((folder / "plan.json").read_text(encoding="utf-8"))["traces"] == 1
    assert len({size for line in lines for size in line["shape"].split("+")}) > 4
    assert {first["frames"] + second["frames"] for first, second in zip(lines[::2], lines[1::2])} == {540}
    assert sum(losses(folder, "gpt")[-4:]) < 0.95 * sum(losses(folder, "gpt")[:4])


def from_golden(runs, name, without):
    """A run's folder trained by TensorFlow 2.4, without some of its parts."""
    folder = runs.folder(name)
    shutil.copytree(str(GOLDEN / "run"), str(folder))
    shutil.rmtree(folder / without)
    return folder


def test_losses_are_the_same_on_every_tensorflow(runs):
    """Step by step, losses match those of another release.

    The GPT uses the golden codec, because a rounding error decides between two codes equally near a vector.
    """
    expected = json.loads((GOLDEN / "losses.json").read_text())
    assert losses(runs.folder("whole"), "codec") == pytest.approx(expected["codec"], rel=1e-3)
    folder = from_golden(runs, "given", without="gpt")
    ended = runs.start("given").end()
    assert ended.status == 0, ended.output
    assert "codec: already finished, after 20 steps" in ended.output
    assert losses(folder, "gpt") == pytest.approx(expected["gpt"], rel=1e-3)


@pytest.mark.parametrize(("stage", "without"), [("codec", "codec/step-00000020"), ("gpt", "codec/step-00000012")])
def test_a_checkpoint_of_the_oldest_tensorflow_can_be_resumed(runs, stage, without):
    """A run that TensorFlow 2.4 trained half-way ends with the same losses."""
    folder = from_golden(runs, f"oldest-{stage}", without)
    ended = runs.start(f"oldest-{stage}", *([CODEC] if stage == "codec" else [])).end()
    assert ended.status == 0, ended.output
    assert f"{stage}: resuming after step {KEPT} of 20" in ended.output
    expected = json.loads((GOLDEN / "losses.json").read_text())[stage]
    assert losses(folder, stage) == pytest.approx(expected[KEPT:], rel=1e-3)


def test_a_finished_stage_continues_with_more_steps(runs):
    """Only the added steps are taken."""
    folder = copy(runs, "more")
    ended = runs.start("more", CODEC, UNSEEN, "train.steps=22").end()
    assert ended.status == 0, ended.output
    assert "codec: resuming after step 20 of 22" in ended.output
    assert losses(folder, "codec")[:20] == losses(runs.folder("whole"), "codec")
    assert len(losses(folder, "codec")) == 22


def test_a_finished_run_is_not_repeated(runs):
    """The second start says so, and changes neither journal nor checkpoints."""
    folder = copy(runs, "again")
    ended = runs.start("again").end()
    assert ended.status == 0, ended.output
    for stage in ("codec", "gpt"):
        assert f"{stage}: already finished, after 20 steps; skipped" in ended.output
    assert differences(folder, runs.folder("whole")) == []
    assert read_model_folder(folder / "model")[0].parts == ("gpt", "codec")


def test_a_finished_stage_with_changed_settings_is_retrained(runs):
    """The earlier result is kept beside it."""
    folder = copy(runs, "anew")
    ended = runs.start("anew", CODEC, UNSEEN, "codec.steps=2", "codec.commitment=0.5").end()
    assert ended.status == 0, ended.output
    assert (
        "codec: training again from step 0 because its settings or data changed: codec.commitment 0.25 -> 0.5"
        in ended.output
    )
    assert final(folder, "codec.1") == final(runs.folder("whole"), "codec")
    assert len(losses(folder, "codec")) == 2


def test_an_unfinished_stage_with_changed_settings_continues_with_a_note(runs):
    """Training continues from its checkpoint, and the weight average may be switched on or off."""
    folder = unfinished(copy(runs, "other"), "gpt")
    ended = runs.start("other", UNSEEN, "train.ema_decay=0", "train.dropout=0").end()
    assert ended.status == 0, ended.output
    changed = "train.dropout 0.1 -> 0.0, train.ema_decay 0.999 -> 0.0"
    assert f"gpt: resuming with changed settings or data: {changed}" in ended.output
    assert losses(folder, "gpt")[:16] == losses(runs.folder("whole"), "gpt")[:16]
    assert len(losses(folder, "gpt")) == 20


@pytest.mark.parametrize("stages", [["gpt"], pytest.param(["codec", "gpt"], marks=pytest.mark.long)], ids="+".join)
def test_a_run_starts_from_the_weights_in_a_recipe(runs, stages):
    """Each stage starts with another run's weights: on the same first batch its loss is lower.

    A model fine-tuned from a run is not a published one, and keeps the settings of a run.
    """
    name = f"tuned-{len(stages)}"
    named = (f"run.stages={json.dumps(stages)}", "model.weights=runs/whole/model", "train.steps=2")
    ended = runs.start(name, UNSEEN, *named).end()
    assert ended.status == 0, ended.output
    for stage in stages:
        assert losses(runs.folder(name), stage)[0] < 0.95 * losses(runs.folder("whole"), stage)[0]
    assert not read_model_folder(runs.folder(name))[0].is_published
    assert not (runs.folder(name) / "model" / SPEAKING).exists()


def test_a_run_keeps_the_settings_of_the_published_weights_it_starts_from(runs):
    """Its own folder has them, so it speaks alike once the import is gone."""
    import_folder = runs.folder("whole").parents[1] / "published"
    shutil.copytree(str(runs.folder("whole") / "model"), str(import_folder))
    description = json.loads((import_folder / SIZES).read_text(encoding="utf-8"))
    (import_folder / SIZES).write_text(json.dumps({**description, "is_published": True}), encoding="utf-8")
    write_speaking(import_folder, SpeakingSettings(temperature=0.6, gpt_cond_len=12))
    named = ('run.stages=["gpt"]', f"model.weights={import_folder}", "train.steps=2")
    ended = runs.start("inherits", UNSEEN, *named).end()
    assert ended.status == 0, ended.output
    shutil.rmtree(str(import_folder))
    assert read_speaking(runs.folder("inherits")) == SpeakingSettings(temperature=0.6, gpt_cond_len=12)


@pytest.mark.parametrize("shapes", ["planned", "relaxed"])
def test_published_weights_are_tuned_as_published(runs, shapes):
    """References are stretches of the utterances, of random lengths, and the run's folder remembers all of it.

    A run that is resumed is bit-identical to one that was not interrupted, and no step is traced twice.
    """
    weights = runs.root / f"published-{shapes}"
    shutil.copytree(str(runs.folder("whole") / "model"), str(weights))
    about = json.loads((weights / "model.json").read_text(encoding="utf-8"))
    (weights / "model.json").write_text(json.dumps({**about, "is_published": True}), encoding="utf-8")
    settings = (f"model.weights={weights}", 'run.stages=["gpt"]', f"data.shapes={shapes}", "train.steps=8", UNSEEN)
    ended = runs.start(f"published-{shapes}", *settings).end()
    assert ended.status == 0, ended.output
    folder = runs.folder(f"published-{shapes}")
    recipe = loading.load_recipe(folder / "recipe.toml")
    assert (recipe.data.reference_from, recipe.data.reference_min_seconds) == ("utterance", 0.25)
    assert recipe.train.weight_decay_on == "published"
    assert summary(folder)["retraces_after_warmup"] == 0
    assert read_model_folder(folder)[0].is_published
    resumed = unfinished(copy(runs, f"resumed-{shapes}", folder.name), "gpt")
    ended = runs.start(resumed.name, *settings).end()
    assert ended.status == 0, ended.output
    assert "gpt: resuming after step 4 of 8" in ended.output
    assert differences(resumed, folder, ["gpt"]) == []


@pytest.mark.parametrize("stages", [["codec"], pytest.param(["codec", "gpt"], marks=pytest.mark.long)], ids="+".join)
def test_mirrored_devices_have_the_losses_of_one(runs, stages):
    """Two replicas of one row each train as one device of two rows does, because rows are dealt in turn.

    With more rows per replica the same utterances are in other rows, and each row draws its own crop.
    """
    fewer = ("data.shape_count=1", "train.gradient_accumulation_steps=1", "train.dropout=0", "train.steps=10", UNSEEN)
    names = {"single": 2, "mirrored": 1}  # rows per device
    for name, rows in names.items():
        own = (f"codec.batch_size={rows}", f"train.batch_size={rows}", f"devices.multi_gpu={str(rows == 1).lower()}")
        ended = runs.start(f"{name}-{len(stages)}", f"run.stages={json.dumps(stages)}", *own, *fewer).end()
        assert ended.status == 0, ended.output
        assert ("strategy: MirroredStrategy" in ended.output) == (rows == 1)
    for stage in stages:
        one, two = (losses(runs.folder(f"{name}-{len(stages)}"), stage) for name in names)
        assert two == pytest.approx(one, rel=ROUNDING)
        assert len(two) == 10


def test_one_device_computes_features_while_another_trains(runs):
    """In a dual pipeline on logical CPU devices live features are traced in every shape beforehand."""
    ended = runs.start("dual", "devices.data_gpu=1", "devices.model_gpu=0", "devices.buffer_size=2").end()
    assert ended.status == 0, ended.output
    assert "mode: dual, strategy: OneDeviceStrategy\nfeatures: /CPU:1 (in place of GPU 1)" in ended.output
    for stage in ("codec", "gpt"):
        assert losses(runs.folder("dual"), stage) == pytest.approx(losses(runs.folder("whole"), stage), rel=0.2)
    assert summary(runs.folder("dual"))["retraces_after_warmup"] == 0


def test_several_devices_compute_features_for_a_mirrored_model(runs):
    """With two data devices and two model devices on logical CPUs, losses do not depend on who makes a batch.

    They may differ in the last bit: in rare cases two replicas that compute at the same time round differently.
    """
    settings = ("data.shape_count=1", "train.gradient_accumulation_steps=1", "train.steps=8", UNSEEN, CODEC)
    for name, data in (("four", "0,1"), ("three", "0")):
        ended = runs.start(name, f"devices.data_gpu={data}", "devices.model_gpu=2,3", *settings).end()
        assert ended.status == 0, ended.output
        assert "mode: dual, strategy: MirroredStrategy\nfeatures: /CPU:0 (in place of GPU 0)" in ended.output
    four, three = (losses(runs.folder(name), "codec") for name in ("four", "three"))
    assert four == pytest.approx(three, rel=ROUNDING)
    assert len(four) == 8
    figures = summary(runs.folder("four"))
    assert figures["retraces_after_warmup"] == 0
    assert [one["device"] for one in figures["division"]] == ["/CPU:0", "/CPU:1"]
    assert sum(one["batches"] for one in figures["division"]) == 8
    page = (runs.folder("four") / "report.html").read_text(encoding="utf-8")
    assert "share of batches" in page


@pytest.fixture
def disappearing(runs):
    """Start a run with live features, and delete recordings once it is running: `disappearing("name", paths)`."""

    def run(name, pattern):
        make_corpus(runs.root / name)
        settings = (f"data.train={name}", "data.val=corpus", "data.features=live", "train.steps=30")
        run = runs.start(name, CODEC, *settings, stop_at=has_begun("codec")).until_stopped()
        for path in (runs.root / name / "wavs").glob(pattern):
            path.unlink()
        return run.send(signal.SIGCONT).end()

    return run


def test_a_recording_that_disappears_is_skipped(runs, disappearing):
    """The run reports it and ends as planned."""
    ended = disappearing("one-less", "07.wav")
    assert ended.status == 0, ended.output
    assert ended.output.count("07 is set aside: ") == 1
    figures = summary(runs.folder("one-less"))
    assert [warning[:15] for warning in figures["warnings"]] == ["07 is set aside"]
    assert figures["steps"] == 30


def test_a_run_without_recordings_left_ends(disappearing):
    """It ends with an error, because there is nothing to train on."""
    ended = disappearing("nothing-left", "*.wav")
    assert ended.status == 1
    assert "utterances can no longer be read" in ended.output.splitlines()[-1]


def test_nan_losses_end_a_run_with_advice(runs):
    """Steps with NaN or infinity are skipped and counted; after several in a row the run ends with advice."""
    wild = ("train.precision=float16", "codec.learning_rate=1", "train.schedule=constant", "train.warmup_steps=0")
    ended = runs.start("wild", CODEC, UNSEEN, *wild, "train.most_skipped=3", "train.steps=200").end()
    assert ended.status == 1, ended.output
    assert "3 steps in a row" in ended.output.splitlines()[-1]
    assert "Lower train.learning_rate" in ended.output.splitlines()[-1]
    assert summary(runs.folder("wild"))["skipped"] >= 3
    assert [line["skipped"] for line in Journal(runs.folder("wild")).metrics()][-3:] == [True] * 3


def test_a_run_keeps_voices_and_synthesizes_speech(runs, xtts, tmp_path):
    """Held-out recordings are kept under their speakers' names, and the first of them is the default voice."""
    folder = runs.folder("whole")
    kept = sorted(path.name for path in (folder / "voices").iterdir())
    assert kept
    assert set(kept) <= {"voice0.wav", "voice1.wav"}
    lively = ("--temperature", "10", "--top-p", "1", "--repetition-penalty", "1", "--seed", "1")
    done = xtts("say", folder, "la mi", "-o", "x.wav", "--json", *lively)
    assert done.returncode == 0, done.stderr
    assert f"note: no voice was named; using {kept[0][:-4]}, of " in done.stderr
    assert json.loads(done.stdout)["sentences"][0]["text"] == "la mi"
    assert (tmp_path / "x.wav").exists()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.shapes=relaxed", "train.jit_compile=true"], "XLA compiles again for every length"),
        (['run.stages=["gpt"]'], "the gpt stage needs a codec"),
        (["run.folder=recipe.toml"], "recipe.toml/refused/run.lock: Not a directory; name a folder"),
        (["model.weights=nowhere"], "nowhere: there is no such folder"),
        (["model.weights=runs/whole/model", "model.size=small"], "holds 1 layers of 16, which is not"),
        (["train.learning_rate=1e30"], "train.learning_rate"),
    ],
)
def test_a_run_that_cannot_train_is_refused(runs, settings, sentence):
    """The status is 1 or 2, with the cause and the remedy, and no traceback."""
    ended = runs.start("refused", *settings).end()
    assert ended.status in (1, 2)
    assert sentence in ended.output


def test_running_out_of_memory_is_reported_with_advice():
    """Whether TensorFlow or NumPy fails to allocate, the message says what to lower."""
    import tensorflow as tf

    from xtts.training.run import RunError, enough_memory

    recipe = loading.parse_recipe("[train]\nbatch_size = 16\n")
    for greedy in (lambda: tf.zeros([2**45]), lambda: np.zeros([2**45])):
        message = r"train\.batch_size = 8, where it was 16, .*accumulation_steps = 2 "
        with pytest.raises(RunError, match=message), enough_memory(recipe):
            greedy()

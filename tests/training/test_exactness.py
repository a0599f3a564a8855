"""Exactness: the same recipe gives the same weights, bit for bit, whatever its shapes and devices.

The tests use logical CPU devices, which compute the same bits. TensorFlow's memory optimizer turns sums of three or
more terms into races in a graph that takes most of a device's memory. So the GPT of these runs is as large as the
smallest preset's, its batches are large enough for that, and the graphs of steps are checked for such sums, too.
"""

import collections
import hashlib
import signal
from pathlib import Path

import pytest
import trials
from run_processes import FORKS, RECIPE, Process, Runs, beside, make_corpus, run_program, steps_done
from small import SMALL
from step_graphs import check_three_mirrored_devices, long_sums, optimised_nodes

from xtts.planning.sizes import SIZES
from xtts.reporting.journal import Journal

ROOT = Path(__file__).parents[2]
LONG = (40, 200)  # text tokens and mel frames of a batch that uses all bands of the attention
SHAPES = {"planned": ("data.shape_count=1",), "fixed": ("data.max_text_length=12", "data.max_mel_frames=72")}
DEVICES = {"one": (), "two": ("devices.data_gpu=0", "devices.model_gpu=1")}
GPT = (
    "model.size=small",
    "data.validation_share=0.0",
    "train.steps=6",
    "train.batch_size=24",
    "train.gradient_accumulation_steps=1",
    "train.save_every=100",
    "train.sample_every=0",
    "train.validate_every=0",
)
SHORTENED = (
    "codec.steps=30",
    "train.steps=24",
    "train.warmup_steps=2",
    "demo.minutes=4",
    "train.save_every=4",
    "train.validate_every=8",
    "train.sample_every=0",
    "train.log_every=1",
)
KILLS = (("codec", 9), ("gpt", 3), ("gpt", 10), ("gpt", 19))  # stages, and the steps after which


def digest(folder):
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def figures(folder):
    """The loss of each of the GPT's steps, and the norm of its gradients."""
    return [(line["loss"], line["gradient_norm"]) for line in Journal(folder).metrics("gpt")]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """Runs whose codec is trained already, so that only the GPT is left."""
    root = tmp_path_factory.mktemp("exact")
    make_corpus(root / "corpus", count=24)
    made = Runs(root, RECIPE)
    ended = made.start("whole", *GPT, 'run.stages=["codec"]', "codec.steps=2").end()
    assert ended.status == 0, ended.output
    return made


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("shapes", ["planned", "fixed", "relaxed"])
def test_two_runs_give_the_same_bits(spoken, shapes, devices):
    """Losses, gradient norms and final weights of two runs are bit-identical."""
    folders = []
    for name in ("first", "second"):
        folders.append(beside(spoken, f"{name}-{shapes}-{devices}", "codec"))
        settings = (f"data.shapes={shapes}", *SHAPES.get(shapes, ()), *DEVICES[devices])
        ended = spoken.start(folders[-1].name, *GPT, "codec.steps=2", *settings).end()
        assert ended.status == 0, ended.output
        assert f"pad_to_fixed_length): {shapes != 'relaxed'}, {shapes}: " in ended.output
    first, second = map(figures, folders)
    assert len(first) == 6
    assert first == second
    assert len({digest(folder) for folder in folders}) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("codec", {}, marks=pytest.mark.long),
        ("codec", {"gradient_accumulation_steps": 2}),
        ("gpt", {}),
        ("gpt", {"dynamic_shapes": True}),
        ("gpt", {"gradient_accumulation_steps": 2, "ema_decay": 0.9}),
    ],
)
def test_no_sum_in_a_step_is_nondeterministic(monkeypatch, name, options):
    """No sum has more than two terms, for which alone the order does not matter."""
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setattr(trials, "SHAPES", (LONG,))
    nodes = optimised_nodes(name, **options)
    found = collections.Counter(node.op for node in nodes)
    assert found["ResourceApplyAdam"] > 20
    assert not long_sums(nodes)
    assert not found["TemporaryVariable"]


@pytest.mark.long
def test_three_mirrored_devices_are_summed_in_order(tmp_path):
    """Sums over three replicas do not depend on which is ready first."""
    log = tmp_path / "said"
    process = FORKS.Process(target=check_three_mirrored_devices, args=(str(log),))
    process.start()
    process.join(120)
    assert process.exitcode == 0, log.read_text()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_recipe_of_two_gpus_gives_the_same_bits_each_time_and_after_four_kills(tmp_path):
    """Five uninterrupted runs and one that is killed four times end with identical weights."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((ROOT / "recipes" / "dual_gpu.toml").read_text(encoding="utf-8"), encoding="utf-8")

    def start(name):
        log = tmp_path / f"{name}.log"
        settings = [f"--set={setting}" for setting in (f"run.name={name}", *SHORTENED)]
        process = FORKS.Process(target=run_program, args=(["run", "recipe.toml", *settings], str(tmp_path), str(log)))
        process.start()
        return Process(tmp_path / "runs" / name, process, log)

    for number in range(5):
        ended = start(f"whole-{number}").end()
        assert ended.status == 0, ended.output
    for stage, step in KILLS:
        start("killed").until(lambda folder: steps_done(folder, stage) >= step).send(signal.SIGKILL).end()  # noqa: B023
    ended = start("killed").end()
    assert ended.status == 0, ended.output
    digests = {name: digest(tmp_path / "runs" / name) for name in ("killed", *(f"whole-{n}" for n in range(5)))}
    assert len(set(digests.values())) == 1, digests

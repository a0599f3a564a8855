"""Training steps: one trace per shape, results independent of splitting, compiling and mirroring, and NaN skipped."""

import os
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
import trials
from small import SMALL

from xtts.planning.sizes import SIZES

STEPS = 5
SUPPORT = Path(__file__).parents[1] / "support"
WAYS = pytest.mark.parametrize("way", ["plain", "added"])
MIRRORED = ("codec:2", "gpt:1", "gpt:0")  # stages, and their numbers of accumulated batches
STAGES = pytest.mark.parametrize("name", ["codec", "gpt"])


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", trials.SIZE)
        yield


class Tried:
    """A stage's variables when built, after the warm-up, and after some steps."""

    def __init__(self, name, *arguments, **options):
        self.trial = trials.trial(name, *arguments, is_traced=False, **options)
        self.made = self.trial.variables()
        self.seconds = self.trial.steps.trace(lambda done, total: None)
        self.tried = self.trial.variables()
        self.losses = trials.run(self.trial, name, STEPS)
        self.moved = self.trial.variables()


@pytest.fixture(scope="module")
def plain(small):
    return {name: Tried(name) for name in ("codec", "gpt")}


@pytest.fixture(scope="module")
def added(small):
    """Stages whose steps are two batches of half the rows; the GPT has two shapes, and is validated."""
    half = trials.ROWS // 2
    return {
        "codec": Tried("codec", half, gradient_accumulation_steps=2),
        "gpt": Tried("gpt", half, shapes=2, validates=True, gradient_accumulation_steps=2),
    }


@pytest.fixture(scope="module")
def mirrored(small, tmp_path_factory):
    """The results of both stages on two logical CPU devices, the codec with two accumulated batches on each.

    The third is the GPT with relaxed shapes.
    """
    folder = tmp_path_factory.mktemp("mirrored")
    command = [sys.executable, str(SUPPORT / "trials.py"), str(folder), *MIRRORED]
    paths = os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1])])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: dict(np.load(folder / f"{name}.npz")) for name in MIRRORED}


@pytest.fixture(scope="module")
def free(small):
    """The GPT with relaxed shapes, on batches of the first shape."""
    return Tried("gpt", shapes=2, dynamic_shapes=True)


def assert_same(found, wanted, near=None):
    """Compare two states, bit by bit or approximately."""
    assert found.keys() == wanted.keys()
    for name in wanted:
        if near is None:
            assert found[name].tobytes() == wanted[name].tobytes(), name
        else:
            np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=near, err_msg=name)


def spoilt(arrays):
    """The batch with one value replaced by NaN."""
    name = "mel" if "mel" in arrays else "reference"
    bad = arrays[name].copy()
    bad[0, 0, 0] = np.nan
    return {**arrays, name: bad}


@STAGES
@WAYS
def test_the_warm_up_changes_no_bit(plain, added, name, way):
    """Before step 0 every function is run on zeros; weights, moments, averages and codebook stay as they were built."""
    one = {"plain": plain, "added": added}[way][name]
    assert_same(one.tried, one.made)


@STAGES
def test_steps_change_the_weights(plain, name):
    """Every trainable weight has changed, and so has its average."""
    one = plain[name]
    still = {key for key in one.made if np.array_equal(one.made[key], one.moved[key])}
    assert not still & set(one.trial.stage.model.weights())
    assert not {key for key in still if key.startswith("average")}


@STAGES
def test_a_result_describes_the_step(plain, name):
    """The loss is the weighted sum of its named parts; gradient norm and learning rate are included."""
    steps, stage = plain[name].trial.steps, plain[name].trial.stage
    result = steps(trials.work(0, [trials.batch(name, trials.ROWS, 0)]))
    assert result.loss == pytest.approx(sum(w * part for w, part in zip(stage.weights, result.parts.values())))
    assert list(result.parts) == list(stage.parts)
    assert result.is_finite
    assert result.gradient_norm > 0
    assert result.learning_rate == pytest.approx(1e-3 / 2)  # the first of two warm-up steps


@STAGES
@WAYS
def test_a_batch_with_nan_changes_nothing(plain, added, name, way):
    """Everything is bit-identical, including the codebook, even if a good batch precedes the bad one in its step."""
    trial = {"plain": plain, "added": added}[way][name].trial
    whole = trials.batch(name, trials.ROWS, 9)
    batches = [spoilt(whole)] if way == "plain" else [trials.halves(whole)[0], spoilt(trials.halves(whole)[1])]
    before = trial.variables()
    result = trial.steps(trials.work(9, batches))
    assert not result.is_finite
    assert_same(trial.variables(), before)
    again = [whole] if way == "plain" else trials.halves(whole)
    assert trial.steps(trials.work(9, again)).is_finite
    assert np.isfinite(np.concatenate([value.ravel() for value in trial.variables().values()])).all()


@STAGES
def test_accumulated_batches_equal_one_large_batch(plain, added, name):
    """Losses and variables match those of the same rows in one batch, and the codebook is updated once per step."""
    np.testing.assert_allclose(added[name].losses, plain[name].losses, rtol=1e-5)
    assert_same(added[name].moved, plain[name].moved, near=1e-5)


@pytest.mark.parametrize("name", MIRRORED)
def test_mirrored_steps_match_those_of_one_device(plain, mirrored, name):
    """Two devices that share the rows have the losses and weights of one with all rows, and equal copies."""
    found = mirrored[name]
    assert found.pop("strategy") == "MirroredStrategy"
    alone = plain[name.partition(":")[0]]
    np.testing.assert_allclose(found.pop("losses"), alone.losses, rtol=1e-5)
    assert_same(found, alone.moved, near=1e-5)


def test_relaxed_shapes_give_the_losses_of_a_static_shape(plain, free):
    """For the same rows without padding, losses, weights and moments are those of padded ones."""
    np.testing.assert_allclose(free.losses, plain["gpt"].losses, rtol=1e-5)
    assert_same(free.moved, plain["gpt"].moved, near=1e-5)
    assert_same(free.tried, free.made)


def test_relaxed_shapes_are_one_trace(small):
    """Any number of rows and any lengths use one function, with the losses that they have with padding."""
    trial = trials.trial("gpt", shapes=2, dynamic_shapes=True, learning_rate=1e-30)  # so that no weight changes
    (function,) = trial.steps.functions
    for seed, rows in enumerate([8, 3, 5, 2, 7]):
        padded = trials.batch("gpt", rows, seed, shape=seed % 2)
        short = trials.shortened(padded)
        assert short["codes"].shape != padded["codes"].shape
        alone, blank = (trial.steps(trials.work(seed, [one], [seed % 2])).loss for one in (short, padded))
        assert alone == pytest.approx(blank, rel=1e-5)
    assert (function.name, function.traces) == ("gpt_move_free", 1)


def test_there_is_one_trace_per_shape(added):
    """Steps of both shapes in any order, accumulation and validation are each traced once, before step 0."""
    trial = added["gpt"].trial
    assert [function.traces for function in trial.steps.functions] == [1, 1, 1, 1]
    rows = trials.ROWS // 2
    for step, shapes in enumerate([(0, 0), (0, 1), (1, 1), (1, 0)]):
        batches = [trials.batch("gpt", rows, seed, shape) for seed, shape in enumerate(shapes)]
        assert trial.steps(trials.work(step, batches, shapes)).is_finite
        held = trials.batch("gpt", 2, step, 1)
        trial.steps.validate([(held, trials.counts(held))])
    assert [function.traces for function in trial.steps.functions] == [1, 1, 1, 1]
    assert len({function.name for function in trial.steps.functions}) == 4


def test_tracing_is_timed_by_function(plain):
    """Every function has its seconds, under a name with the stage and the shape."""
    (name,) = plain["codec"].seconds
    assert name == "codec_move_0x16x8"
    assert plain["codec"].seconds[name] > 0


def test_validation_is_a_mean_over_all_held_out_utterances(added):
    """Parts are weighted by their denominators, so that blank rows do not count, and nothing changes."""
    trial = added["gpt"].trial
    batches = [trials.batch("gpt", 2, seed, 1) for seed in range(3)]
    blank = {name: np.zeros_like(array) for name, array in batches[0].items()}
    before = trial.variables()
    alone = [trial.steps.validate([(one, trials.counts(one))]) for one in batches]
    found = trial.steps.validate([(one, trials.counts(one)) for one in (*batches, blank)])
    assert_same(trial.variables(), before)
    for place, part in enumerate(trial.stage.parts):
        counts = [trials.counts(one)[place] for one in batches]
        assert found[part] == pytest.approx(np.average([one[part] for one in alone], weights=counts), rel=1e-5)
    assert found["loss"] == pytest.approx(
        sum(w * found[part] for w, part in zip(trial.stage.weights, trial.stage.parts))
    )


def test_xla_gives_the_same_losses(monkeypatch):
    """The codec's whole step, including its codebook update, is compiled by XLA; without residual blocks, for speed."""
    monkeypatch.setitem(SIZES, "tiny", attrs.evolve(SMALL, codec=attrs.evolve(SMALL.codec, blocks=0)))
    plain, compiled = (trials.trial("codec", jit=jit, ema_decay=0.0) for jit in (False, True))
    assert all(function.by_xla for function in compiled.steps.functions)
    wanted = trials.run(plain, "codec", STEPS)
    np.testing.assert_allclose(trials.run(compiled, "codec", STEPS), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "precision", "bound"), [("gpt", "bfloat16", 2e-3), ("codec", "bfloat16", 2e-3), ("codec", "float16", 1e-3)]
)
def test_half_precision_is_close_to_float32(plain, name, precision, bound):
    """Losses in 16 bits are close to those in 32; the weights stay float32."""
    trial = trials.trial(name, precision=precision)
    np.testing.assert_allclose(trials.run(trial, name, STEPS), plain[name].losses, rtol=bound)
    assert {value.dtype for value in trial.variables().values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("dynamic_shapes", [False, True], ids=["static", "free"])
def test_dropout_is_a_function_of_the_step(small, dynamic_shapes):
    """The same step drops the same activations, another step others."""
    trial = trials.trial(
        "gpt", dynamic_shapes=dynamic_shapes, dropout=0.5, learning_rate=1e-30
    )  # so that no weight changes
    arrays = trials.batch("gpt", trials.ROWS, 0)
    losses = [trial.steps(trials.work(step, [arrays])).loss for step in (3, 4, 3)]
    assert losses[0] == losses[2]
    assert losses[0] != losses[1]

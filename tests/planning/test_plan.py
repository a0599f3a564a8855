import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts.planning import plan as plans
from xtts.planning.plan import CURVE, MachineSpeed, PlanError, make_plan
from xtts.recipe.loading import parse_recipe
from xtts.training.stages import stages_of

GOLDEN_JOINT = [146, 206, 247, 299, 340, 404]
GOLDEN_HASH = "9fd3f10e1f30d9c9687df4acd35a77588296fa69bfa4189bcc90e299fda4d193"
KEYS = ["utterances", "rejected", "shapes", "work_ratio", "traces", "steps_per_epoch"]
KEYS += ["parameters", "bytes", "order_hash", "curve", "epochs", "advice"]


def corpus(count=600, seed=0):
    random = np.random.RandomState(seed)
    mel = random.randint(100, 860, count)
    return mel // 6 + random.randint(0, 20, count), mel


def planned(text, count=600, **more):
    recipe = parse_recipe("[run]\nname = 'test'\n" + text)
    return make_plan(recipe, *corpus(count), text_tokens=60, stages=stages_of(recipe), **more)


@pytest.mark.parametrize("mode", ["planned", "fixed", "relaxed"])
def test_a_plan_is_json_with_every_key(mode):
    """Each way to shape a corpus gives a plan that JSON can hold, and its numbers add up."""
    found = planned(f"[data]\nshapes = '{mode}'")
    told = json.loads(json.dumps(found.as_json()))
    assert all(key in told for key in KEYS)
    assert told["utterances"] == sum(shape["utterances"] for shape in told["shapes"])
    assert told["utterances"] + sum(told["rejected"].values()) == 600
    assert told["batches_per_epoch"] == sum(shape["batches"] for shape in told["shapes"])
    assert told["parameters"] == sum(told["parts"].values())
    assert told["work_ratio"] >= 1
    usable = found.layout.shape_of >= 0
    text, mel = (lengths[usable] for lengths in corpus(600))
    assert told["pace"] == pytest.approx(text.sum() / (mel.sum() / 4))
    for budget in told["bytes"].values():
        parts = ("weights", "gradients", "optimizer", "activations", "buffer")
        assert budget["total"] == sum(budget[part] for part in parts)


def test_ratios_are_those_of_the_batches_themselves():
    """Work over real work is what adding up every row of every batch gives, blank ones for the computed ratio."""
    found = planned("[data]\nshape_count = 5", count=300)
    text, mel = corpus(300)
    width = 256

    def work(length):
        return 6 * width * length + length**2

    real = padded = computed = 0
    for batch in found.order.batches(0):
        shape = found.layout.shapes[batch.shape]
        real += sum(work(39 + int(text[i]) + -(-int(mel[i]) // 4)) for i in batch.utterances)
        padded += len(batch.utterances) * work(shape.joint_length)
        computed += batch.rows * work(shape.joint_length)
    assert found.work.ratio == pytest.approx(padded / real)
    assert found.work.computed == pytest.approx(computed / real)
    assert found.curve[5] == pytest.approx(computed / real)


def test_relaxed_batches_are_as_long_as_their_longest_member():
    """With free lengths padding is what the batches of an epoch need, less than with as many shapes, in one trace."""
    found = planned("[data]\nshapes = 'relaxed'", count=3000)
    text, mel = corpus(3000)
    joint = 39 + text + -(-mel // 4)
    work = joint * (6 * 256 + joint)
    padded = sum(len(batch.utterances) * work[batch.utterances].max() for batch in found.order.batches(0))
    assert found.work.ratio == pytest.approx(padded / work.sum())
    assert found.traces == 1
    assert found.work.ratio < planned("[data]\nshape_count = 16", count=3000).work.ratio


def test_relaxed_workers_have_as_many_rows_each():
    """A step is as long as its longest member on any worker, and blank rows are only those that make workers equal."""
    found = planned("[data]\nshapes = 'relaxed'", replicas=3)
    text, mel = corpus()
    joint = 39 + text + -(-mel // 4)
    work = joint * (6 * 256 + joint)
    padded = rows = 0
    for batches in zip(*(found.order.batches(0, worker=worker) for worker in range(3))):
        members = np.concatenate([batch.utterances for batch in batches])
        own = 3 * max(len(batch.utterances) for batch in batches)
        padded, rows = padded + own * work[members].max(), rows + own
    assert found.work.ratio == pytest.approx(padded / work.sum())
    assert sum(shape["blank_rows"] for shape in found.as_json()["shapes"]) == rows - 600 > 0


def test_a_fixed_shape_loses_what_planned_shapes_keep():
    """Under pad_to_fixed_length the clips beyond the limits are counted by reason; planned shapes take them all."""
    fixed = planned("[data]\npad_to_fixed_length = true\nmax_text_length = 120\nmax_mel_frames = 700")
    text, mel = corpus()
    long_text = int((text > 120).sum())
    assert fixed.rejected == {
        "text too long (over 120 tokens)": long_text,
        "audio too long (over 700 mel frames)": int(((mel > 700) & (text <= 120)).sum()),
    }
    assert (fixed.layout.shape_of >= 0).tolist() == ((text <= 120) & (mel <= 700)).tolist()
    assert fixed.traces == 1
    free = planned("[data]\nmax_text_length = 120\nmax_mel_frames = 700")
    assert free.rejected == {}
    assert free.utterances == 600
    assert free.work.ratio < fixed.work.ratio


def test_what_was_set_aside_before_is_counted_with_the_rest():
    """Reasons from the corpus and reasons of the plan stand in one table, most frequent first."""
    text, mel = corpus(50)
    text[0], mel[1] = 403, 5000
    found = make_plan(parse_recipe("[run]\nname = 'test'"), text, mel, 60, rejected={"silence": 7, "no such file": 1})
    assert found.utterances == 48
    assert sorted(found.rejected.values()) == [1, 1, 1, 7]
    assert found.layout.shape_of[:2].tolist() == [-1, -1]
    lines = found.text().splitlines()
    assert lines[lines.index("10 utterances set aside") + 1].split() == ["7", "silence"]


@given(st.lists(st.tuples(st.integers(1, 450), st.integers(1, 2600)), min_size=1, max_size=40), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_every_usable_utterance_is_trained_on_once_an_epoch(pairs, batch_size):
    """Whatever the lengths, an epoch holds exactly the utterances that were not set aside."""
    text, mel = (np.array(column) for column in zip(*pairs))
    recipe = parse_recipe(f"[train]\nbatch_size = {batch_size}\n[data]\nshape_count = 3")
    usable = np.flatnonzero((text <= 402) & (mel <= 2412)).tolist()
    if not usable:
        with pytest.raises(PlanError, match="can be trained on"):
            make_plan(recipe, text, mel, 60)
        return
    found = make_plan(recipe, text, mel, 60)
    assert sorted(i for batch in found.order.batches(0) for i in batch.utterances) == usable
    assert found.utterances == len(usable) == len(pairs) - sum(found.rejected.values())


@pytest.mark.parametrize(
    ("text", "on_gpu", "on_cpu"),
    [
        ("[data]", "planned", "relaxed"),
        ("[data]\nshape_count = 4", "planned", "planned"),
        ("[train]\njit_compile = true", "planned", "planned"),
        ("[devices]\nmodel_gpu = 0", "planned", "planned"),
        ("[devices]\nmulti_gpu = true", "planned", "planned"),
        ("[data]\npad_to_fixed_length = true", "fixed", "fixed"),
        ('[data]\nshapes = "relaxed"', "relaxed", "relaxed"),
    ],
)
def test_shapes_that_nobody_named_are_the_fastest_of_the_machine(text, on_gpu, on_cpu, monkeypatch):
    """Free lengths without a GPU, unless XLA or a number of shapes is asked for; and always as a run was begun."""
    for is_there, expected in ((True, on_gpu), (False, on_cpu)):
        monkeypatch.setattr(plans.machine, "has_gpu_driver", lambda is_there=is_there: is_there)
        assert plans.resolve_shapes(parse_recipe(text)).data.shapes == expected
        monkeypatch.setattr(plans.machine, "has_gpu_driver", lambda is_there=is_there: not is_there)
        assert plans.resolve_shapes(parse_recipe(text), has_gpu=is_there).data.shapes == expected  # as devices lie
    assert plans.resolve_shapes(parse_recipe("[data]"), begun="planned").data.shapes == "planned"


def test_steps_are_batches_over_accumulation():
    """With gradients added up over three batches an epoch has a third of the steps, a run three times the epochs."""
    one, three = planned(""), planned("[train]\ngradient_accumulation_steps = 3\n[data]\nshape_count = 16")
    assert one.steps_per_epoch == one.order.batches_per_epoch
    assert three.steps_per_epoch == -(-three.order.batches_per_epoch // 3)
    assert three.epochs == pytest.approx(3000 / three.order.batches_per_epoch)


def test_workers_share_the_epoch():
    """Two mirrored GPUs take half the steps, and the plan counts one worker for each GPU that is visible."""
    one = planned("", count=4000)
    two = planned("[devices]\nmulti_gpu = true\nvisible_gpus = '0,1'", count=4000)
    assert two.order.workers == 2
    assert two.order.batches_per_epoch == pytest.approx(one.order.batches_per_epoch / 2, rel=0.1)
    assert "on each of 2 workers" in two.text()


def test_a_faster_machine_gets_fewer_shapes():
    """Traces cost the same on a machine that steps a thousand times faster, so fewer are worth it."""
    slow, fast = planned("", count=5000), planned("", count=5000, speed=MachineSpeed(work_per_second=30e12))
    assert len(fast.layout.shapes) < len(slow.layout.shapes)


def test_blank_rows_of_too_many_shapes_are_told():
    """Asking for sixteen shapes of a hundred clips is answered with the number that computes least."""
    found = planned("[data]\nshape_count = 16", count=100)
    (advice,) = [sentence for sentence in found.advice if "shape_count" in sentence]
    number = int(advice.rpartition("= ")[2])
    better = planned(f"[data]\nshape_count = {number}", count=100)
    assert better.work.computed < found.work.computed
    assert not better.advice


def test_the_page_says_what_the_json_says():
    """The page a person reads has the plan's numbers, a line for each shape and a bar for each number of shapes."""
    found = planned("[data]\nshape_count = 4\n[model]\nsize = 'v2'")
    told, page = found.as_json(), found.text()
    assert "600 utterances" in page
    assert f"padding {100 * (told['work_ratio'] - 1):.1f} %" in page
    assert "4 shapes, 4 traces" in page
    assert told["order_hash"] in page
    assert "advice: the model device needs" in page
    lines = page.splitlines()
    for shape in told["shapes"]:
        wanted = [str(shape[key]) for key in ("text_length", "mel_frames", "joint_length", "batch_size")]
        assert any(line.split()[:4] == wanted for line in lines)
    start = lines.index("padding and blank rows with as many planned shapes") + 1
    bars = lines[start : start + len(CURVE)]
    assert [int(bar.split()[0]) for bar in bars] == list(CURVE)
    hashes = [bar.count("#") for bar in bars]
    assert hashes[0] == 40
    assert hashes[0] > hashes[1] > hashes[3]
    assert [bar for bar in bars if "this plan" in bar] == [bars[CURVE.index(4)]]
    assert all(len(line) <= 120 or line.startswith(("advice", "600 utterances")) for line in lines)


def test_limits_beyond_the_models_positions_are_refused():
    """A fixed shape longer than the model has positions is a sentence with the key and the most it can be."""
    with pytest.raises(PlanError, match=r"data.max_text_length = 500.*write at most 402"):
        planned("[data]\nshapes = 'fixed'\nmax_text_length = 500")
    with pytest.raises(PlanError, match=r"data.max_mel_frames = 2413.*write at most 2412"):
        planned("[data]\nshapes = 'fixed'\nmax_mel_frames = 2413")


def test_a_corpus_of_nothing_is_a_sentence():
    """With no usable utterance the reasons are told, and what to do."""
    recipe = parse_recipe("[run]\nname = 'test'")
    with pytest.raises(PlanError, match=r"none of 3 utterances can be trained on \(3 silence\)"):
        make_plan(recipe, [], [], 60, rejected={"silence": 3})
    with pytest.raises(PlanError, match="the corpus has no utterances"):
        make_plan(recipe, [], [], 60)


def test_the_same_corpus_has_the_same_plan_everywhere():
    """Shapes and order hash are those first computed, whatever the release of Python and numpy."""
    random = np.random.RandomState(3)  # whose streams do not change
    mel = random.randint(100, 860, 1000)
    found = make_plan(parse_recipe("[data]\nshape_count = 6\n[run]\nseed = 11"), mel // 6 + 7, mel, 60)
    assert [shape.joint_length for shape in found.layout.shapes] == GOLDEN_JOINT
    assert found.as_json()["order_hash"] == GOLDEN_HASH


def test_planning_does_not_load_tensorflow():
    """A plan is made before TensorFlow starts, and where it is missing; stages are described without it too."""
    code = "import sys; import xtts.planning.plan; import xtts.training.stages; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Device placement: every rule on stand-in GPUs, and real strategies on logical CPU devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorder import Recorder

from xtts.planning.plan import resolve_shapes
from xtts.recipe.schema import DevicesSection, Recipe
from xtts.training.placement import DEFAULT, MIRRORED, ONE, PlacementError, place_devices

DUAL = {"data_gpu": 0, "model_gpu": 1}


@pytest.fixture(autouse=True)
def no_driver(monkeypatch, tmp_path):
    """No nvidia-smi unless a test installs one."""
    monkeypatch.setenv("PATH", str(tmp_path))


def placed(gpus, started=False, logical_cpus=1, **devices):
    """The placement on a machine with this many GPUs, and the calls made to TensorFlow."""
    stand_in = Recorder(gpus=gpus, started=started, logical_cpus=logical_cpus)
    return place_devices(DevicesSection(**devices), stand_in.offered), stand_in.calls


# Training on one or several GPUs


@pytest.mark.parametrize(
    ("gpus", "devices", "strategy", "trains", "roles"),
    [
        (1, {}, ONE, ("/GPU:0",), {"/GPU:0": "GPU 0"}),
        (2, {}, ONE, ("/GPU:0",), {"/GPU:0": "GPU 0", "/GPU:1": "GPU 1"}),
        (4, {"visible_gpus": "3,2"}, ONE, ("/GPU:0",), {"/GPU:0": "GPU 2", "/GPU:1": "GPU 3"}),
        (4, {"visible_gpus": "1,3", "model_gpu": 3}, ONE, ("/GPU:1",), {"/GPU:0": "GPU 1", "/GPU:1": "GPU 3"}),
        (2, {"multi_gpu": True}, MIRRORED, ("/GPU:0", "/GPU:1"), {"/GPU:0": "GPU 0", "/GPU:1": "GPU 1"}),
        (
            4,
            {"multi_gpu": True, "visible_gpus": "3,1"},
            MIRRORED,
            ("/GPU:0", "/GPU:1"),
            {"/GPU:0": "GPU 1", "/GPU:1": "GPU 3"},
        ),
    ],
    ids=["one", "two", "visible", "model_gpu", "mirrored", "mirrored visible"],
)
def test_without_two_roles_features_are_computed_on_the_model_device(gpus, devices, strategy, trains, roles):
    """The strategy follows from the number of GPUs; names are TensorFlow's, which renumbers visible GPUs."""
    placement, calls = placed(gpus, **devices)
    assert (placement.strategy, placement.model_devices, placement.roles) == (strategy, trains, roles)
    assert placement.data_device in trains
    assert (placement.mode, placement.is_dual, placement.replicas) == ("single", False, len(trains))
    assert placement.reasons == ()
    numbers = [role[-1] for role in roles.values()]
    assert calls == [("visible", numbers, "GPU"), *(("growth", number, True) for number in numbers)]


def test_a_gpu_named_twice_counts_once():
    """TensorFlow sees it once, so it has one name."""
    placement, calls = placed(4, visible_gpus="2,2,1")
    assert placement.roles == {"/GPU:0": "GPU 1", "/GPU:1": "GPU 2"}
    assert calls[0] == ("visible", ["1", "2"], "GPU")


def test_one_visible_gpu_cannot_be_mirrored():
    """multi_gpu with a single GPU uses one device, with a note."""
    placement, _ = placed(2, multi_gpu=True, visible_gpus="1")
    assert (placement.strategy, placement.model_devices) == (ONE, ("/GPU:0",))
    assert placement.reasons == ("multi_gpu = true, but GPU 1 is the only one: the model is not mirrored",)


def test_a_data_gpu_alone_makes_no_dual_pipeline():
    """Half of a dual set-up runs on the named GPU, with a note on what is missing."""
    placement, _ = placed(2, data_gpu=1)
    assert (placement.data_device, placement.model_devices) == ("/GPU:1", ("/GPU:1",))
    assert placement.reasons == ("data_gpu alone makes no dual pipeline: name model_gpu too",)


def test_a_data_gpu_beside_mirrored_gpus_is_ignored_with_a_note():
    """Mirrored GPUs compute their features themselves."""
    placement, _ = placed(2, data_gpu=1, multi_gpu=True)
    assert placement.strategy == MIRRORED
    assert "data_gpu alone" in placement.reasons[0]


@pytest.mark.parametrize("visible", ["2", "0,7"])
def test_a_missing_visible_gpu_is_an_error(visible):
    """The message has the key, the GPU, and those of the machine."""
    with pytest.raises(PlacementError, match=rf"devices.visible_gpus: there is no GPU {visible[-1]}.*GPU 0 to 1"):
        placed(2, visible_gpus=visible)


# Two roles


@pytest.mark.parametrize(
    ("gpus", "data_gpu", "model_gpu", "data_device", "model_device"),
    [(2, 0, 1, "/GPU:0", "/GPU:1"), (2, 1, 0, "/GPU:1", "/GPU:0"), (4, 3, 1, "/GPU:1", "/GPU:0")],
    ids=["data first", "model first", "of four"],
)
def test_two_roles_have_a_gpu_each(gpus, data_gpu, model_gpu, data_device, model_device):
    """Roles are kept in both orders, each GPU has its own limit, and all others are hidden."""
    placement, calls = placed(
        gpus, data_gpu=data_gpu, model_gpu=model_gpu, data_gpu_memory_limit=100, model_gpu_memory_limit=200
    )
    assert (placement.data_device, placement.model_devices) == (data_device, (model_device,))
    assert placement.roles == {data_device: f"GPU {data_gpu}", model_device: f"GPU {model_gpu}"}
    assert (placement.mode, placement.strategy, placement.replicas) == ("dual", ONE, 1)
    assert placement.reasons == ()
    assert calls[0] == ("visible", [str(number) for number in sorted((data_gpu, model_gpu))], "GPU")
    limits = {call[1]: call[2] for call in calls[1:]}
    assert limits == {str(data_gpu): [("limit", 100)], str(model_gpu): [("limit", 200)]}


def test_each_role_can_have_several_gpus():
    """Data GPUs serve a mirrored model; names are in the order of the recipe, and each role has its limit."""
    limits = {"data_gpu_memory_limit": 100, "model_gpu_memory_limit": 200}
    placement, calls = placed(6, data_gpu=(5, 0), model_gpu=(3, 2), **limits)
    assert placement.data_devices == ("/GPU:3", "/GPU:0")
    assert placement.model_devices == ("/GPU:2", "/GPU:1")
    assert (placement.mode, placement.strategy, placement.replicas) == ("dual", MIRRORED, 2)
    assert placement.lines()[1] == "features: /GPU:3 (GPU 5), /GPU:0 (GPU 0)"
    assert calls[0] == ("visible", ["0", "2", "3", "5"], "GPU")
    assert {call[1]: call[2][0][1] for call in calls[1:]} == {"0": 100, "2": 200, "3": 200, "5": 100}


def test_several_model_gpus_are_mirrored_without_a_data_gpu():
    """They compute their features themselves."""
    placement, _ = placed(4, model_gpu=(1, 3))
    assert (placement.strategy, placement.model_devices) == (MIRRORED, ("/GPU:1", "/GPU:3"))
    assert (placement.mode, placement.data_devices, placement.reasons) == ("single", ("/GPU:1",), ())


def test_with_missing_gpus_only_those_of_the_model_are_used():
    """The notes give the wanted and available numbers, and the missing GPU."""
    placement, _ = placed(3, data_gpu=(0, 1), model_gpu=(2, 3))
    assert (placement.mode, placement.strategy, placement.model_devices) == ("single", ONE, ("/GPU:2",))
    cannot, without = placement.reasons
    assert "isolating memory needs 4 GPUs, and TensorFlow sees 3 GPUs" in cannot
    assert without == "there is no GPU 3: the others train without it"


def test_without_a_gpu_logical_devices_replace_several_per_role():
    """Four replace four GPUs; a mirrored model alone has two."""
    placement, calls = placed(0, data_gpu=(0, 1), model_gpu=(2, 3))
    assert placement.data_devices == ("/CPU:0", "/CPU:1")
    assert placement.model_devices == ("/CPU:2", "/CPU:3")
    assert (placement.mode, placement.strategy) == ("dual", MIRRORED)
    assert calls == [("stable", "0", [("limit", None)] * 4)]
    placement, _ = placed(0, model_gpu=(4, 6))
    assert (placement.mode, placement.strategy, placement.replicas) == ("single", MIRRORED, 2)


def test_limits_that_cannot_be_set_are_reported():
    """A TensorFlow without logical devices still uses two GPUs; their memory grows, with a note."""
    with pytest.warns(RuntimeWarning, match="no logical devices"):
        placement = place_devices(DevicesSection(**DUAL), Recorder(stable=False, alias=False).offered)
    assert placement.is_dual
    assert placement.reasons == ("memory limits cannot be set here: both GPUs allocate memory as they need it",)


def test_one_gpu_can_have_both_roles():
    """A dual set-up on one GPU falls back to it, with a note."""
    placement, calls = placed(1, **DUAL)
    assert (placement.mode, placement.strategy, placement.model_devices) == ("single", ONE, ("/GPU:0",))
    cannot, instead = placement.reasons
    assert cannot.startswith("the dual pipeline is not available: isolating memory needs two GPUs")
    assert instead == "there is no GPU 1: GPU 0 trains in its place"
    assert calls == [("visible", ["0"], "GPU"), ("growth", "0", True)]


def test_limits_that_are_too_large_fall_back_to_the_model_gpu(tmp_path):
    """The model's GPU has both roles then, and the note gives the largest possible limit."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Test Card, 12288'\necho 'Test Card, 12288'\n")
    program.chmod(0o755)
    placement, calls = placed(4, data_gpu=3, model_gpu=2)
    assert (placement.mode, placement.model_devices) == ("single", ("/GPU:2",))
    assert placement.roles["/GPU:2"] == "GPU 2"
    (reason,) = placement.reasons
    assert "model_gpu_memory_limit = 16384 MB, but GPU 2 has 12288 MB: write at most 12288" in reason
    assert not any(call[0] == "stable" for call in calls)


def test_placement_after_tensorflow_has_started_is_reported():
    """GPUs can no longer be hidden, so all keep the machine's numbers, whatever visible_gpus says."""
    placement, calls = placed(4, started=True, data_gpu=1, model_gpu=3, visible_gpus="1,3")
    assert (placement.mode, placement.model_devices) == ("single", ("/GPU:3",))
    assert placement.roles["/GPU:3"] == "GPU 3"
    assert len(placement.reasons) == 2
    assert all("already started" in reason for reason in placement.reasons)
    assert calls == []


# No GPU


def test_without_a_gpu_the_cpu_trains():
    """The default strategy is used, with a note."""
    placement, calls = placed(0)
    assert (placement.strategy, placement.data_device, placement.model_devices) == (DEFAULT, "/CPU:0", ("/CPU:0",))
    assert placement.reasons == ("TensorFlow sees no GPU: training on the CPU",)
    assert calls == []


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_shapes_are_chosen_for_the_devices_that_train(gpus):
    """They are static on a GPU and relaxed without one; the placement decides, not the drivers."""
    placement, _ = placed(gpus)
    shapes = resolve_shapes(Recipe(), has_gpu=placement.has_gpu).data.shapes
    assert shapes == ("planned" if gpus else "relaxed")


@pytest.mark.parametrize(("data_gpu", "model_gpu"), [(0, 1), (1, 0), (5, 2)])
def test_without_a_gpu_logical_devices_have_the_two_roles(data_gpu, model_gpu):
    """They are in the order of the GPUs they replace."""
    placement, calls = placed(0, data_gpu=data_gpu, model_gpu=model_gpu)
    first = int(data_gpu > model_gpu)
    assert (placement.data_device, placement.model_devices) == (f"/CPU:{first}", (f"/CPU:{1 - first}",))
    assert placement.roles[placement.data_device] == f"in place of GPU {data_gpu}"
    assert (placement.mode, placement.strategy) == ("dual", ONE)
    assert placement.reasons == ("TensorFlow sees no GPU: 2 logical CPU devices stand in for GPUs",)
    assert calls == [("stable", "0", [("limit", None)] * 2)]


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("0,1,2", 3), ("4,2,4", 2)])
def test_without_a_gpu_a_model_is_mirrored_over_logical_devices(visible, count):
    """There are as many as GPUs are named, each once, or two."""
    placement, _ = placed(0, multi_gpu=True, visible_gpus=visible)
    assert (placement.strategy, placement.replicas) == (MIRRORED, count)
    assert placement.model_devices == tuple(f"/CPU:{place}" for place in range(count))
    if visible == "4,2,4":
        assert list(placement.roles.values()) == ["in place of GPU 2", "in place of GPU 4"]


def test_without_a_gpu_a_single_name_is_not_mirrored():
    """multi_gpu over one GPU uses one CPU, with a note."""
    placement, _ = placed(0, multi_gpu=True, visible_gpus="3")
    assert placement.strategy == DEFAULT
    assert placement.reasons[1] == "multi_gpu = true, but GPU 3 is the only one: the model is not mirrored"


def test_a_cpu_that_is_already_split_is_used():
    """Splitting is too late, but an earlier split is used as it is."""
    placement, _ = placed(0, started=True, logical_cpus=2, **DUAL)
    assert placement.mode == "dual"
    assert len(placement.reasons) == 1


@pytest.mark.parametrize("devices", [DUAL, {"multi_gpu": True}], ids=["dual", "mirrored"])
def test_a_cpu_that_cannot_be_split_has_every_role(devices):
    """The last fallback is one device, with both notes."""
    placement, _ = placed(0, started=True, **devices)
    assert (placement.mode, placement.strategy, placement.replicas) == ("single", DEFAULT, 1)
    assert "cannot be split into 2 devices, one does everything" in placement.reasons[1]
    assert "already started" in placement.reasons[1]


def test_the_placement_is_printed_with_its_reasons():
    """There is a line each for the strategy, features and model, and one for every note."""
    placement, _ = placed(0, data_gpu=1, model_gpu=0)
    assert placement.lines() == [
        "mode: dual, strategy: OneDeviceStrategy",
        "features: /CPU:1 (in place of GPU 1)",
        "model: /CPU:0 (in place of GPU 0)",
        "note: TensorFlow sees no GPU: 2 logical CPU devices stand in for GPUs",
    ]


# With the real TensorFlow

REAL = """
import tensorflow as tf
from xtts.training.placement import place_devices as place
from xtts.recipe.schema import DevicesSection as Devices

dual = place(Devices(data_gpu=1, model_gpu=0))
strategy = dual.start_strategy()
with strategy.scope():
    print(type(strategy).__name__, tf.Variable(1.0).device[-5:])
with tf.device(dual.data_device):
    print(tf.zeros([1]).device[-5:])
mirrored = place(Devices(multi_gpu=True))
strategy = mirrored.start_strategy()
with strategy.scope():
    variable = tf.Variable(1.0)
print(type(strategy).__name__, *(own.device[-5:] for own in variable.values))
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", variable + 1.0))
print(*(float(own) for own in strategy.experimental_local_results(total)))
print(type(place(Devices()).start_strategy()).__name__, len(tf.config.list_logical_devices("CPU")))
"""


def test_strategies_start_and_variables_are_on_their_devices():
    """In a fresh process the real TensorFlow splits the CPU, and variables are on the devices of the placement."""
    environment = {**os.environ, "PATH": os.defpath, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", REAL], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "OneDeviceStrategy CPU:0",
        "CPU:1",
        "MirroredStrategy CPU:0 CPU:1",
        "4.0 4.0",
        "_DefaultDistributionStrategy 2",
    ], done.stderr

"""Memory limits for two GPUs, on each historical form of tf.config."""

import warnings

import pytest

from xtts import compat


@pytest.fixture(autouse=True)
def no_driver(monkeypatch, tmp_path):
    """No nvidia-smi unless a test brings one."""
    monkeypatch.setenv("PATH", str(tmp_path))


def cards(tmp_path, megabytes):
    """An nvidia-smi that knows cards of this size."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 'Test Card, {megabytes}'\necho 'Test Card, {megabytes}'\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("stable", "alias", "called", "api"),
    [
        (True, True, "stable", "tf.config.set_logical_device_configuration"),
        (False, True, "alias", "tf.config.experimental.set_virtual_device_configuration"),
    ],
)
def test_limits_are_set_by_the_best_name_there_is(recorder, stable, alias, called, api):
    """The stable API first, the deprecated alias where there is no other, each GPU with its own limit, no warning."""
    stand_in = recorder(stable, alias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        isolation = compat.isolate_memory(0, 1, 8192, 16384, offered=stand_in.offered)
    assert stand_in.calls == [
        ("visible", ["0", "1"], "GPU"),
        (called, "0", [("limit", 8192)]),
        (called, "1", [("limit", 16384)]),
    ]
    assert isolation == (api, "/GPU:0", "/GPU:1", True)
    assert api in str(isolation)


def test_without_either_memory_grows_and_one_warning_says_so(recorder):
    """The last resort is memory growth, with one clear warning."""
    stand_in = recorder(stable=False, alias=False)
    with pytest.warns(RuntimeWarning, match="no logical devices") as caught:
        isolation = compat.isolate_memory(0, 1, offered=stand_in.offered)
    assert len(caught) == 1
    assert stand_in.calls == [("visible", ["0", "1"], "GPU"), ("growth", "0", True), ("growth", "1", True)]
    assert isolation == ("tf.config.experimental.set_memory_growth", "/GPU:0", "/GPU:1", False)


def test_roles_stay_right_when_the_data_gpu_comes_after_the_model_gpu(recorder):
    """TensorFlow numbers visible GPUs in the machine's order: the data device is then the second."""
    stand_in = recorder(gpus=4)
    isolation = compat.isolate_memory(3, 1, 1000, 2000, offered=stand_in.offered)
    assert stand_in.calls[0] == ("visible", ["1", "3"], "GPU")
    assert ("stable", "3", [("limit", 1000)]) in stand_in.calls
    assert ("stable", "1", [("limit", 2000)]) in stand_in.calls
    assert (isolation.data_device, isolation.model_device) == ("/GPU:1", "/GPU:0")


def test_several_gpus_of_a_role_have_its_limit_each(recorder):
    """Lists of GPUs give names in their order; a single GPU gives a single name."""
    stand_in = recorder(gpus=4)
    isolation = compat.isolate_memory([3, 0], 1, 1000, 2000, offered=stand_in.offered)
    assert stand_in.calls[0] == ("visible", ["0", "1", "3"], "GPU")
    assert [call[1:] for call in stand_in.calls[1:]] == [
        ("0", [("limit", 1000)]),
        ("1", [("limit", 2000)]),
        ("3", [("limit", 1000)]),
    ]
    assert (isolation.data_device, isolation.model_device) == (("/GPU:2", "/GPU:0"), "/GPU:1")
    assert (isolation.data_devices, isolation.model_devices) == (("/GPU:2", "/GPU:0"), ("/GPU:1",))
    assert str(isolation).startswith("data on /GPU:2, /GPU:0, model on /GPU:1, each with its memory limit")


@pytest.mark.parametrize(
    ("gpus", "arguments", "words"),
    [
        (0, (0, 1), "TensorFlow sees no GPU"),
        (1, (0, 1), "TensorFlow sees one GPU"),
        (2, (1, 1), "both GPU 1: name two different ones"),
        (3, ([0, 1], [2, 3]), "needs 4 GPUs, and TensorFlow sees 3 GPUs"),
        (4, ([0, 1], [1, 2]), "GPU 1 is named twice in data_gpu and model_gpu: name each GPU once"),
        (4, ([], [1, 2]), "data_gpu names no GPU"),
        (2, (0, 2), "model_gpu = 2, but this machine has GPU 0 to 1"),
        (2, (-1, 1), "data_gpu = -1, but this machine has GPU 0 to 1"),
        (2, (0, 1, 0, 100), "data_gpu_memory_limit = 0: write the limit in MB"),
        (2, (0, 1, 8192, 16384), "model_gpu_memory_limit = 16384 MB, but GPU 1 has 12288 MB: write at most 12288"),
    ],
)
def test_what_cannot_be_had_gets_its_own_sentence(recorder, tmp_path, gpus, arguments, words):
    """Each reason is told apart, and nothing has been configured by then."""
    cards(tmp_path, 12288)
    stand_in = recorder(gpus=gpus)
    with pytest.raises(compat.DeviceError) as caught:
        compat.isolate_memory(*arguments, offered=stand_in.offered)
    assert words in str(caught.value)
    assert stand_in.calls == []


@pytest.mark.parametrize(("stable", "alias"), [(True, True), (False, True), (False, False)])
def test_too_late_says_so(recorder, stable, alias):
    """After TensorFlow has started, every form of the call says what to do."""
    stand_in = recorder(stable, alias, started=True)
    with pytest.raises(compat.TooLateError, match="already started"):
        compat.isolate_memory(0, 1, offered=stand_in.offered)


def test_a_driver_that_does_not_answer_is_no_obstacle(recorder, tmp_path):
    """Without nvidia-smi, or with one that fails, the limit is taken as given."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    assert compat.isolate_memory(0, 1, 10**6, 10**6, offered=recorder().offered).limited


def test_this_machine_is_asked_for_real():
    """On a machine without two GPUs the real TensorFlow is the one that says so."""
    if len(compat.physical_devices("GPU")) >= 2:
        pytest.skip("this machine has two GPUs")
    with pytest.raises(compat.DeviceError, match="needs two GPUs"):
        compat.isolate_memory(0, 1)

"""Memory limits for two GPUs, on each historical form of tf.config."""

import warnings

import pytest

from xtts import compat


@pytest.fixture(autouse=True)
def no_driver(monkeypatch, tmp_path):
    """No nvidia-smi unless a test installs one."""
    monkeypatch.setenv("PATH", str(tmp_path))


def cards(tmp_path, megabytes):
    """Install an nvidia-smi that reports GPUs of these sizes."""
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
def test_limits_are_set_by_the_best_available_api(recorder, stable, alias, called, api):
    """The stable API is used first, otherwise the deprecated alias; each GPU has its own limit, without a warning."""
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


def test_without_either_api_memory_growth_is_used_with_a_warning(recorder):
    """The last resort is memory growth, with one warning."""
    stand_in = recorder(stable=False, alias=False)
    with pytest.warns(RuntimeWarning, match="no logical devices") as caught:
        isolation = compat.isolate_memory(0, 1, offered=stand_in.offered)
    assert len(caught) == 1
    assert stand_in.calls == [("visible", ["0", "1"], "GPU"), ("growth", "0", True), ("growth", "1", True)]
    assert isolation == ("tf.config.experimental.set_memory_growth", "/GPU:0", "/GPU:1", False)


def test_roles_are_kept_when_the_data_gpu_comes_after_the_model_gpu(recorder):
    """TensorFlow numbers visible GPUs in the machine's order, so the data device is then the second."""
    stand_in = recorder(gpus=4)
    isolation = compat.isolate_memory(3, 1, 1000, 2000, offered=stand_in.offered)
    assert stand_in.calls[0] == ("visible", ["1", "3"], "GPU")
    assert ("stable", "3", [("limit", 1000)]) in stand_in.calls
    assert ("stable", "1", [("limit", 2000)]) in stand_in.calls
    assert (isolation.data_device, isolation.model_device) == ("/GPU:1", "/GPU:0")


def test_each_gpu_of_a_role_has_the_roles_limit(recorder):
    """Lists of GPUs give device names in their order; a single GPU gives a single name."""
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
def test_impossible_requests_are_refused_with_their_reason(recorder, tmp_path, gpus, arguments, words):
    """Each reason has its own message, and nothing has been configured by then."""
    cards(tmp_path, 12288)
    stand_in = recorder(gpus=gpus)
    with pytest.raises(compat.DeviceError) as caught:
        compat.isolate_memory(*arguments, offered=stand_in.offered)
    assert words in str(caught.value)
    assert stand_in.calls == []


@pytest.mark.parametrize(("stable", "alias"), [(True, True), (False, True), (False, False)])
def test_isolation_after_tensorflow_has_started_is_refused(recorder, stable, alias):
    """Every form of the call says what to do."""
    stand_in = recorder(stable, alias, started=True)
    with pytest.raises(compat.TooLateError, match="already started"):
        compat.isolate_memory(0, 1, offered=stand_in.offered)


def test_a_failing_driver_query_is_ignored(recorder, tmp_path):
    """Without nvidia-smi, or with one that fails, the limit is used as given."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    assert compat.isolate_memory(0, 1, 10**6, 10**6, offered=recorder().offered).limited


def test_this_machine_is_checked_for_real():
    """On a machine without two GPUs the real TensorFlow's device list leads to the refusal."""
    if len(compat.physical_devices("GPU")) >= 2:
        pytest.skip("this machine has two GPUs")
    with pytest.raises(compat.DeviceError, match="needs two GPUs"):
        compat.isolate_memory(0, 1)

"""Torch files are written without PyTorch, as PyTorch's own are read."""

import pickletools
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xtts.weights.safetensors_file import WeightsError
from xtts.weights.torch_file import load_torch_file
from xtts.weights.torch_writer import write_torch_file

DTYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"])
TENSORS = DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4)))
PLAIN = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=9)
VALUES = st.recursive(
    PLAIN | TENSORS, lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=5), more, max_size=3)
)


def assert_equal(found, wanted):
    if isinstance(wanted, np.ndarray):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key, value in wanted.items():
            assert_equal(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            assert_equal(one, other)
    else:
        assert type(found) is type(wanted)
        assert found == wanted


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
@settings(max_examples=60)
def test_any_value_is_read_as_it_was_written(tmp_path_factory, value):
    """Tensors of every type and shape, numbers, text, lists and dicts."""
    path = tmp_path_factory.mktemp("torch") / "value.pth"
    write_torch_file(path, value)
    assert_equal(load_torch_file(path), value)


def test_the_program_names_only_tensors_and_their_storages(tmp_path):
    """PyTorch reads it with weights_only; it has the strides of C order, whatever the array's are."""
    path = tmp_path / "model.pth"
    write_torch_file(path, {"a": np.arange(6, dtype=np.float32).reshape(3, 2).T, "b": [1, None]})
    np.testing.assert_array_equal(load_torch_file(path)["a"], [[0, 2, 4], [1, 3, 5]])
    with zipfile.ZipFile(str(path)) as file:
        assert file.namelist() == [f"archive/{name}" for name in ("data.pkl", "byteorder", "data/0", "version")]
        program = file.read("archive/data.pkl")
    found = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(program)]
    names = {argument for name, argument in found if name == "GLOBAL"}
    assert names == {"torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"}
    assert found[0] == ("PROTO", 2)


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    """Types that PyTorch lacks, and folders that cannot be written, are named; no file is left."""
    with pytest.raises(WeightsError, match="complex64, which torch files do not support"):
        write_torch_file(tmp_path / "x.pth", {"a": np.zeros(2, np.complex64)})
    with pytest.raises(TypeError, match="no set here"):
        write_torch_file(tmp_path / "x.pth", {"a": {1}})
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="name a file that can be written"):
        write_torch_file(tmp_path / "file" / "x.pth", {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

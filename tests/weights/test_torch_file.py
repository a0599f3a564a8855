"""PyTorch files are read without executing anything in them."""

import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_files import archive, modules, pickled, save, stream

from xtts.weights import torch_file
from xtts.weights.safetensors_file import WeightsError
from xtts.weights.unpickling import Placeholder, Refused, Resolver, unpickle

GOLDEN = Path(__file__).parents[1] / "golden"
REAL = [GOLDEN / "real_torch.pth", GOLDEN / "legacy_torch.pth"]  # by torch.save of PyTorch 2.13, in both formats
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"


@pytest.mark.parametrize("path", REAL, ids=["zip", "stream"])
def test_a_file_of_pytorch_is_read_as_it_was_saved(path):
    """Every kind of tensor is restored: slices, transposes, half precision, scalars, parameters."""
    tables = torch_file.load_torch_file(path)
    model, base = tables["model"], np.arange(12, dtype=np.float32) / 8
    square = base.reshape(3, 4)
    expected = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.array([-1, 1], np.float32),
        "parameter": square,
        "transposed": square.T,
        "slice": base[5:9],
        "half": base.astype(np.float16),
        "bfloat16": square.T,
        "double": base.astype(np.float64),
        "scalar": np.array(3, np.int64),
        "bool": np.array([True, False, True]),
        "uint16": np.array([1, 65535], np.uint16),
        "int8": np.array([-1, 1], np.int8),
        "empty": np.zeros((0, 3), np.float32),
        "repeated": np.ones((2, 5), np.float32),
    }
    assert list(model) == list(expected)
    for name, array in expected.items():
        assert model[name].dtype == array.dtype, name
        np.testing.assert_array_equal(model[name], array, err_msg=name)
    assert tables["step"] == 7
    assert tables["size"] == (2, 3)
    np.testing.assert_array_equal(tables["optimizer"]["state"][1]["exp_avg"].shape, (2,))


@pytest.mark.parametrize("path", REAL, ids=["zip", "stream"])
def test_a_trainers_objects_are_placeholders(path):
    """The config that Coqui pickles with its weights is not instantiated, but its values can be read."""
    config = torch_file.load_torch_file(path)["config"]
    assert isinstance(config, Placeholder)
    assert str(config.name) == "TTS.tts.configs.xtts_config.XttsConfig"
    assert config.state["model_args"].state == {"gpt_n_heads": 4}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "stream"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_supported_pickle_protocol_is_read(tmp_path, legacy, protocol):
    """torch.save may use any protocol from 2 on."""
    value = {
        "model": OrderedDict(a=np.arange(6, dtype=np.float32).reshape(2, 3)),
        "texts": ["é", b"\x00", {1, 2}, -1.5],
    }
    tables = torch_file.load_torch_file(save(value, tmp_path / "a.pth", legacy, protocol=protocol))
    np.testing.assert_array_equal(tables["model"]["a"], value["model"]["a"])
    assert tables["texts"][0] == "é"
    assert tables["texts"][3] == -1.5


def test_arrays_are_views_of_the_file(tmp_path):
    """Loading copies no data, and the arrays are read-only."""
    array = torch_file.load_torch_file(save({"a": np.ones((100, 100), np.float32)}, tmp_path / "a.pth"))["a"]
    assert array.base is not None
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 2


def test_big_endian_files_are_read(tmp_path):
    """A file states the byte order of its data."""
    with modules() as made:
        program, _ = pickled({"a": np.arange(4, dtype=np.float32)}, made)
    path = archive(tmp_path / "a.pth", program, {"0": np.arange(4, dtype=">f4")}, order=b"big")
    np.testing.assert_array_equal(torch_file.load_torch_file(path)["a"], np.arange(4, dtype=np.float32))


# Malicious files. Each would create a marker file when PyTorch's or Python's unpickler loads it.


class Call:
    """An object pickled as a function call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def payloads(marker):
    code = f"open({str(marker)!r}, 'w').close()"
    text = b"X" + struct.pack("<I", len(code)) + code.encode()
    made = b"\x80\x04cbuiltins\ntuple\n(cbuiltins\nmap\ncbuiltins\neval\n]" + text + b"a\x86\x81"  # map calls it
    return {
        "system": pickle.dumps(Call(os.system, f'{sys.executable} -c "{code}"'), 2),
        "eval": pickle.dumps(Call(eval, code), 2),
        "exec in protocol 0": pickle.dumps(Call(exec, code), 0),
        "exec in protocol 4": pickle.dumps(Call(exec, code), 4),
        "popen": pickle.dumps(Call(subprocess.Popen, [sys.executable, "-c", code]), 2),
        "in a state dict": pickle.dumps({"model": OrderedDict(a=1, b=Call(eval, code))}, 2),
        "as an argument": pickle.dumps(Call(OrderedDict, Call(eval, f"[({code}, 1)]")), 2),
        "as a key": pickle.dumps({Call(eval, code): 1}, 2),
        "inst": b"(" + text + b"ibuiltins\neval\n.",
        "obj": b"(cbuiltins\neval\n" + text + b"o.",
        "newobj": made + b"t\x81.",
        "newobj with keywords": made + b"t}\x92.",
        "stack global": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93" + text + b"\x85R.",
        "dotted": b"\x80\x04\x8c\x08builtins\x8c\x0deval.__call__\x93" + text + b"\x85R.",
        "build": b"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00acbuiltins\neval\n" + text + b"\x85Rdb.",
        "before the end": b"cbuiltins\neval\n" + text + b"\x85R0N.",
    }


NAMES = list(payloads(Path("marker")))


@pytest.mark.parametrize("name", NAMES)
def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path, name):
    """A pickle that creates a file when Python unpickles it creates none here, in any opcodes and format."""
    marker = tmp_path / "marker"
    program = payloads(marker)[name]
    value = pickle.loads(program)
    if isinstance(value, subprocess.Popen):
        value.wait()
    assert marker.exists(), "the payload is harmless, so it shows nothing"
    marker.unlink()
    raw = tmp_path / "raw.pth"
    raw.write_bytes(program)
    for path in (archive(tmp_path / "a.pth", program), stream(tmp_path / "b.pth", program), raw):
        with pytest.raises(WeightsError) as refusal:
            torch_file.load_torch_file(path)
        assert str(path) in str(refusal.value)
        assert "Nothing of it was run" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert not marker.exists()


@pytest.mark.parametrize("place", range(5))
def test_every_pickle_of_the_stream_format_is_guarded(tmp_path, place):
    """The magic number, protocol, header, value and list of storages are pickles, and any may be malicious."""
    marker = tmp_path / "marker"
    pieces = [
        pickle.dumps(part, 2) for part in (torch_file.MAGIC, torch_file.PROTOCOL, {"little_endian": True}, {}, [])
    ]
    pieces[place] = payloads(marker)["eval"]
    path = tmp_path / "a.pth"
    path.write_bytes(b"".join(pieces))
    with pytest.raises(WeightsError):
        torch_file.load_torch_file(path)
    assert not marker.exists()


def test_the_error_names_what_the_file_would_call(tmp_path):
    """The user learns why the file is not read."""
    path = archive(tmp_path / "a.pth", pickle.dumps(Call(os.system, "true"), 2))
    with pytest.raises(WeightsError, match=rf"a\.pth: it names {os.name}\.system, which no file of weights needs"):
        torch_file.load_torch_file(path)


@pytest.mark.parametrize(
    "name",
    """os.system posix.system builtins.eval builtins.getattr builtins.__import__ __builtin__.eval subprocess.Popen
    torch.hub.load torch.load torch.storage._load_from_bytes torch.utils.cpp_extension.load types.FunctionType
    types.CodeType functools.partial operator.attrgetter numpy.load numpy.core.multiarray.fromfile pathlib._eval
    argparse.FileType TTS.api.load TTS._Evil torch.nn.Module.__call__ webbrowser.open pickle.loads""".split(),
)
def test_a_forbidden_name_refuses_the_file(tmp_path, name):
    """Only containers, tensors, dtypes and classes of trainers may be named, not functions of the same packages."""
    module, _, last = name.rpartition(".")
    for program in (
        f"c{module}\n{last}\n.".encode(),
        b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, last)) + b"\x93.",
    ):
        with pytest.raises(WeightsError, match="it names"):
            torch_file.load_torch_file(archive(tmp_path / "a.pth", program))


def test_no_class_is_imported(tmp_path):
    """A package with a trainer's name on the path is not imported, though the file names a class in it."""
    (tmp_path / "TTS").mkdir()
    (tmp_path / "TTS" / "__init__.py").write_text("open('marker', 'w').close()\n")
    value = b"cTTS.configs\nXttsConfig\n)\x81}X\x01\x00\x00\x00aK\x01sb."
    archive(tmp_path / "a.pth", value)
    code = "import sys; from xtts.weights.torch_file import load_torch_file as load; "
    code += "print(load('a.pth').state, 'TTS' in sys.modules)"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["{'a':", "1}", "False"], ran.stderr
    assert not (tmp_path / "marker").exists()


# Files with false sizes and offsets.


def tensor(arguments):
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + arguments + b"tR."


def integer(number):
    piece = number.to_bytes(16, "little", signed=True)
    return b"\x8a\x10" + piece


def view(offset, shape, strides):
    """A pickle of one tensor with this view of a storage of four elements."""
    sizes = [b"(" + b"".join(map(integer, numbers)) + b"t" for numbers in (shape, strides)]
    return tensor(integer(offset) + sizes[0] + sizes[1] + b"\x89}")


def test_a_view_within_its_storage_is_read(tmp_path):
    """Offsets, strides and axes of length one mean what they mean in PyTorch."""
    path = archive(tmp_path / "a.pth", view(1, [2, 1, 1], [2, 2**40, 0]), {"0": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(torch_file.load_torch_file(path), np.array([[[1]], [[3]]], np.float32))


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, [5], [1]),
        (1, [4], [1]),
        (4, [1], [1]),
        (0, [2, 3], [2, 1]),
        (0, [2], [4]),
        (0, [2], [2**40]),
        (-1, [1], [1]),
        (3, [4], [-1]),
        (0, [-1], [1]),
        (2**62, [1], [1]),
        (0, [2**62], [2**62]),
        (0, [2**40], [0]),
        (0, [2**20, 2**20], [0, 0]),
        (0, [1], [1, 1]),
        (0, [1] * 40, [1] * 40),
        (0, [0, 2**62], [1, 1]),
    ],
)
def test_a_tensor_cannot_reach_outside_its_storage(tmp_path, offset, shape, strides):
    """Offsets before or after the storage, or larger than memory, are refused."""
    path = archive(tmp_path / "a.pth", view(offset, shape, strides), {"0": np.arange(4, dtype=np.float32)})
    with pytest.raises(WeightsError, match="tensor"):
        torch_file.load_torch_file(path)


@pytest.mark.parametrize("numbers", [b"", b"\x00" * 15, b"\x00" * 17, None])
def test_a_storage_has_the_declared_number_of_bytes(tmp_path, numbers):
    """A storage that is too small, too large or missing is a damaged file."""
    path = archive(tmp_path / "a.pth", view(0, [1], [1]), {} if numbers is None else {"0": numbers})
    with pytest.raises(WeightsError, match=r"storage|missing"):
        torch_file.load_torch_file(path)


def test_altered_data_is_detected(tmp_path):
    """A single flipped bit of a weight is found by the checksums of the zip."""
    path = save({"a": np.full(1000, 7, np.float32)}, tmp_path / "a.pth")
    content = bytearray(path.read_bytes())
    content[content.find(np.full(10, 7, np.float32).tobytes()) + 6] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(WeightsError, match="data/0 is not what was saved"):
        torch_file.load_torch_file(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    """Entries that are compressed, or that share their bytes, are refused before any is read."""
    bomb = archive(
        tmp_path / "a.pth",
        b"N.",
        {str(key): np.zeros(10**6, np.float32) for key in range(5)},
        b"little",
        zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(WeightsError, match="compressed"):
        torch_file.load_torch_file(bomb)
    shared = archive(tmp_path / "b.pth", b"N.", {str(key): np.zeros(1000, np.float32) for key in range(9)})
    content = shared.read_bytes()
    start = content.find(b"PK\x01\x02")
    first = content.find(b"archive/data/0") - 30
    directory, at = bytearray(content[start:]), 0
    while directory[at : at + 4] == b"PK\x01\x02":
        name, extra, comment = struct.unpack("<HHH", directory[at + 28 : at + 34])
        if b"/data/" in directory[at + 46 : at + 46 + name]:
            directory[at + 42 : at + 46] = struct.pack("<I", first)
        at += 46 + name + extra + comment
    kept = content[: content.find(b"PK\x03\x04", first + 4)]  # all nine point to the one entry that is left
    end = directory.rfind(b"PK\x05\x06")
    directory[end + 16 : end + 20] = struct.pack("<I", len(kept))
    shared.write_bytes(kept + bytes(directory))
    with pytest.raises(WeightsError, match="overlap"):
        torch_file.load_torch_file(shared)


@pytest.mark.parametrize(
    "program",
    {
        "tuples whose hash takes years": b"K\x01" + b"2\x86" * 200 + b"0}" + b"K\x01" + b"2\x86" * 200 + b"K\x01s.",
        "numbers that collide": b"}" + b"\x8a\x08" + (2**61 - 1).to_bytes(8, "little") + b"K\x01s.",
        "a text of 2**63 bytes": b"\x8d" + b"\xff" * 7 + b"\x7fabc",
        "a list within lists, two million deep": b"]" * 2_000_001 + b"a" * 2_000_000 + b".",
        "a number of 4 GB": b"\x8b\xff\xff\xff\x7f",
        "an endless name": b"c" + b"a" * 100_000,
        "recalling nothing": b"j\xff\xff\xff\xff.",
        "an extension": b"\x82\x01.",
        "only marks": b"(" * 1_000_000 + b".",
        "no end": b"N" * 10_000,
    }.items(),
    ids=lambda item: item[0],
)
def test_absurd_pickles_are_refused_quickly(tmp_path, program):
    """Programs made to hang a reader or to fill its memory are refused."""
    with pytest.raises(WeightsError):
        torch_file.load_torch_file(archive(tmp_path / "a.pth", program[1]))


def test_deeply_nested_values_do_not_overflow_the_stack(tmp_path):
    """A value nested a hundred thousand deep is read and freed without recursion."""
    deep = torch_file.load_torch_file(archive(tmp_path / "a.pth", b"]" * 100_001 + b"a" * 100_000 + b"."))
    assert len(deep) == 1
    chain = b"c__main__\nA\nq\x000N" + b"\x85q\x010h\x00h\x01\x81" * 100_000 + b"."
    deep = torch_file.load_torch_file(archive(tmp_path / "c.pth", chain))
    assert isinstance(deep, Placeholder)
    del deep


# Damaged files.


def outcome(path, content):
    """ "read" or "refused"; any other exception fails the test."""
    path.write_bytes(content)
    try:
        torch_file.load_torch_file(path)
    except WeightsError as refusal:
        return "refused" if str(path) in str(refusal) else "refused, but who?"
    return "read"


@pytest.mark.parametrize("source", REAL, ids=["zip", "stream"])
def test_a_truncated_file_is_refused(tmp_path, source):
    """Truncation at any length is detected."""
    content = source.read_bytes()
    last = len(content) - (0 if source.name.startswith("legacy") else 22 - 1)  # the end record of a zip may be longer
    for length in [*range(0, last, 29), last - 1]:
        assert outcome(tmp_path / "a.pth", content[:length]) == "refused", length


@pytest.mark.parametrize("source", REAL, ids=["zip", "stream"])
def test_altered_bytes_raise_no_other_exception(tmp_path, source):
    """Whatever a byte is changed to, the file is read or refused."""
    content = source.read_bytes()
    random = np.random.default_rng(4)
    for _ in range(500):
        altered = bytearray(content)
        for place in random.integers(0, len(content), random.integers(1, 4)):
            altered[place] = random.integers(0, 256)
        outcome(tmp_path / "a.pth", bytes(altered))


class Everything(Resolver):
    """Permits what torch.save does not write, so that a program reaches the opcodes after it."""

    def find_class(self, name):
        return name

    def persistent_load(self, identity):
        return Placeholder(("reference", "x"), identity)


OPCODES = (
    b"\x80\x95(012N\x88\x89JKMG\x8aX\x8c\x8dTUBC\x8e\x96]})\x8flt\x91\x85\x86\x87ae\x90sudqr\x94hjc\x93R\x81\x92iobQ."
)


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from([bytes([code]) for code in OPCODES]), st.binary(max_size=4))).map(b"".join))
def test_any_program_ends_in_a_value_or_a_refusal(program):
    """No sequence of opcodes makes the interpreter fail or call anything."""
    content = np.frombuffer(program + b".", np.uint8)
    for resolver in (Everything(), Resolver()):
        with suppress(Refused):
            unpickle(content, 0, resolver)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=50)
@given(VALUES, st.integers(3, 5))
def test_plain_values_are_what_python_would_read(value, protocol):
    """If a pickle is only data, the result equals Python's."""
    program = pickle.dumps(value, protocol)
    found, end = unpickle(np.frombuffer(program, np.uint8), 0, Resolver())
    assert found == pickle.loads(program)
    assert end == len(program)


def test_a_file_that_is_not_pytorchs_is_refused(tmp_path):
    """A folder, a missing or empty file, another zip and a text are each refused with the path."""
    text = tmp_path / "text.pth"
    text.write_text("hello, hello")
    empty = tmp_path / "empty.pth"
    empty.write_bytes(b"")
    other = tmp_path / "other.pth"
    with zipfile.ZipFile(str(other), "w") as file:
        file.writestr("a/readme.txt", "hello")
    for path, words in [
        (tmp_path, "folder"),
        (tmp_path / "none.pth", "No such file"),
        (empty, "empty"),
        (other, "no data.pkl"),
        (text, "no file of torch.save"),
    ]:
        with pytest.raises(WeightsError, match=words) as refusal:
            torch_file.load_torch_file(path)
        assert str(path) in str(refusal.value)

"""PyTorch's files without PyTorch: a .pth comes in, its tables of NumPy arrays go out; nothing in it is executed.

Both of torch.save's formats are read: the zip of PyTorch 1.6 and later, and the stream before it. Their pickles are
interpreted by `inert.py`, and here is all that a name in them may mean: a table, a tensor, its storage, a number type.
Classes of the trainers that people save with their weights become placeholders. Any other name refuses the file.
Arrays are read-only views of the mapped file; bfloat16 becomes the same numbers in float32.
"""

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, Dict, NamedTuple, NoReturn, Optional, Set, Tuple, Union

import numpy as np

from xtts.weights.safetensors_file import DAMAGED, WeightsError, mapped, widened
from xtts.weights.unpickling import Inert, Meaning, Name, Refused, interpret

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the stream format
PROTOCOL = 1001  # and the second
MOST_AXES = 16
LARGEST_AXIS = 2**48
REPEATED = 2**20  # numbers; as many may a tensor have that repeats its storage's (stride 0)

STORAGES = {  # NumPy's kind of each storage's numbers
    "torch.DoubleStorage": "f8",
    "torch.FloatStorage": "f4",
    "torch.HalfStorage": "f2",
    "torch.BFloat16Storage": "bf16",
    "torch.LongStorage": "i8",
    "torch.IntStorage": "i4",
    "torch.ShortStorage": "i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "b1",
    "torch.ComplexFloatStorage": "c8",
    "torch.ComplexDoubleStorage": "c16",
    "torch.storage.UntypedStorage": "u1",
    "torch.storage._UntypedStorage": "u1",
}
UNTYPED = {"torch.uint16": "u2", "torch.uint32": "u4", "torch.uint64": "u8"}  # types that have no storage of their own
TABLES = {"collections.OrderedDict", "collections.defaultdict"}
TENSORS = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
}
PARAMETERS = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
SUBCLASS = "torch._tensor._rebuild_from_type_v2"
NUMBER_TYPES = {
    f"torch.{name}"
    for name in (
        *("float64", "float32", "float16", "bfloat16", "double", "float", "half", "complex64", "complex128", "bool"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "long", "int", "short"),
        *("float8_e4m3fn", "float8_e5m2"),
    )
}
# What else stands in trainers' files. It is kept as a placeholder, so it does no harm; but a file that names what is
# neither this nor a class of these packages was made to do something, and is not read at all.
PLACEHOLDERS = {
    "torch.Size",
    "torch.device",
    "argparse.Namespace",
    "types.SimpleNamespace",
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "datetime.timezone",
    "_codecs.encode",
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "numpy.dtype",
    "numpy.ndarray",
} | {
    f"{module}.{name}"
    for module in ("numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("scalar", "_reconstruct")
}
PLACEHOLDERS |= {
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in (
        *("set", "frozenset", "list", "tuple", "dict", "str", "bytes", "bytearray"),
        *("int", "float", "bool", "complex", "slice", "range", "object"),
    )
}
CLASSES_OF = {"TTS", "trainer", "coqpit", "torch", "omegaconf", "pathlib", "collections", "__main__"}


class Storage(NamedTuple):
    """Numbers in a row, [count]; None until the stream format has come to them."""

    numbers: Optional[np.ndarray]
    order: str  # of the bytes: < or >


def load_torch_file(path: Union[str, Path]) -> Any:
    """What torch.save was given, with arrays for its tensors; a `WeightsError` for whatever is not just that."""
    path = Path(path)
    content = mapped(path)
    try:
        if content[:4].tobytes() == b"PK\x03\x04":
            return _from_zip(content)
        return _from_stream(content)
    except Refused as reason:
        raise WeightsError(f"{path}: {reason}. Nothing of it was run or loaded; {DAMAGED}") from None


class _Meaning(Meaning):
    """What the names of a torch.save mean. `storage` is asked for the numbers behind each reference."""

    def name(self, name: Name) -> Any:
        full = str(name)
        known = full in STORAGES or full in TABLES or full in TENSORS or full in PARAMETERS or full in NUMBER_TYPES
        if known or full == SUBCLASS or full in PLACEHOLDERS or _is_class_of_a_trainer(name):
            return name
        raise Refused(
            f"it names {ascii(full)[1:-1]}, which no file of weights needs: whoever unpickles it may run a program"
        )

    def call(self, name: Name, arguments: Any) -> Any:
        full = str(name)
        if full in TABLES and (not arguments or full.endswith("defaultdict")):
            return {}
        if full == SUBCLASS and len(arguments) == 4 and isinstance(arguments[0], Name):
            name, arguments = arguments[0], arguments[2]  # a function, a class, its arguments, a state
            full = str(name)
        if full in PARAMETERS:
            return arguments[0] if isinstance(arguments, tuple) and arguments else _misuse(full)
        if full in TENSORS:
            return self.tensor(name, arguments)
        if full == "torch.Size":
            return arguments[0] if len(arguments) == 1 and isinstance(arguments[0], tuple) else _misuse(full)
        return Inert(name, arguments)

    def tensor(self, name: Name, arguments: Any) -> Any:
        if not isinstance(arguments, tuple) or len(arguments) < 4 or not isinstance(arguments[0], Storage):
            _misuse(str(name))
        storage, offset, shape, strides = arguments[:4]
        numbers = storage.numbers
        if numbers is None:
            return None
        if name.name.endswith("v3"):
            kind = UNTYPED.get(str(arguments[6])) if len(arguments) > 6 else None
            if kind is None or numbers.dtype != np.uint8:
                return Inert(name, arguments)  # of float8 and its like; said where such a tensor is wanted
            numbers = numbers[: len(numbers) // int(kind[1]) * int(kind[1])].view(storage.order + kind)
        return _view(numbers, offset, shape, strides)

    def reference(self, identity: Any) -> Storage:
        ends = type(identity) is tuple and len(identity) in (5, 6) and identity[0] == "storage"
        if not ends or not all(isinstance(part, str) for part in identity[2:4]) or not _is_size(identity[4]):
            raise Refused("it refers to numbers in a way that torch.save does not")
        if len(identity) == 6 and identity[5] is not None:
            raise Refused("it is of a PyTorch before 1.0, with views of storages; save it anew with a later one")
        kind = STORAGES.get(str(identity[1])) if isinstance(identity[1], Name) else None
        if kind is None:
            raise Refused("it refers to numbers of a kind that this release does not read")
        return self.storage(identity[2], kind, identity[4])

    def storage(self, key: str, kind: str, count: int) -> Storage:
        raise NotImplementedError


class _Zip(_Meaning):
    """Storages are entries of the zip. Each is checked once, however many tensors are views of it."""

    def __init__(self, content: np.ndarray, entries: Dict[str, zipfile.ZipInfo], order: str) -> None:
        self.content = content
        self.entries = entries
        self.order = order
        self.known: Dict[str, Tuple[str, int, Storage]] = {}

    def storage(self, key: str, kind: str, count: int) -> Storage:
        if key not in self.known:
            info = self.entries.get(f"data/{key}")
            if info is None:
                raise Refused(f"its numbers data/{ascii(key)[1:-1]} are missing")
            numbers = _numbers(_entry(self.content, info), kind, count, self.order)
            self.known[key] = (kind, count, Storage(numbers, self.order))
        known_kind, known_count, storage = self.known[key]
        if (known_kind, known_count) != (kind, count):
            raise Refused("it gives the same numbers two types")
        return storage


class _Stream(_Meaning):
    """Storages follow the pickle: on a first reading they are only noted, on a second they are there."""

    def __init__(self) -> None:
        self.wanted: Dict[str, Tuple[str, int]] = {}
        self.found: Dict[str, Storage] = {}

    def storage(self, key: str, kind: str, count: int) -> Storage:
        if self.wanted.setdefault(key, (kind, count)) != (kind, count):
            raise Refused("it gives the same numbers two types")
        return self.found.get(key, Storage(None, "<"))


def _from_zip(content: np.ndarray) -> Any:
    entries = _entries(content)
    if "data.pkl" not in entries:
        raise Refused("it is a zip, but not one of torch.save: there is no data.pkl in it")
    order = "<"
    if "byteorder" in entries:
        order = {b"little": "<", b"big": ">"}.get(_entry(content, entries["byteorder"]).tobytes(), "")
    if not order:
        raise Refused("its byte order is neither little nor big")
    return interpret(_entry(content, entries["data.pkl"]), 0, _Zip(content, entries, order))[0]


def _from_stream(content: np.ndarray) -> Any:
    nothing = Meaning()
    at, header = 0, []
    for expected in ("number", "protocol", "table"):
        try:
            value, at = interpret(content, at, nothing)
        except Refused:
            raise Refused(f"it is no file of torch.save, or cut off in its {expected}") from None
        header.append(value)
        if header[0] != MAGIC or header[1:2] not in ([], [PROTOCOL]):
            raise Refused("it is no file of torch.save")
    order = ">" if isinstance(header[2], dict) and header[2].get("little_endian") is False else "<"
    meaning = _Stream()
    _, after = interpret(content, at, meaning)
    keys, after = interpret(content, after, nothing)
    if not isinstance(keys, list) or len(keys) != len(meaning.wanted):
        raise Refused("its list of storages is not that of its tensors")
    for key in keys:
        if not isinstance(key, str) or key not in meaning.wanted or key in meaning.found:
            raise Refused("its list of storages is not that of its tensors")
        after = _follow(content, after, key, meaning, order)
    return interpret(content, at, meaning)[0]


def _follow(content: np.ndarray, at: int, key: str, meaning: _Stream, order: str) -> int:
    """Find the storage at byte `at`; where the next one begins."""
    kind, wanted = meaning.wanted[key]
    if at + 8 > len(content):
        raise Refused("it is cut off before its numbers end")
    (count,) = struct.unpack(order + "q", content[at : at + 8].tobytes())
    end = at + 8 + wanted * _width(kind)
    if count != wanted or end > len(content):
        raise Refused("it is cut off, or its storages are not as large as it says")
    meaning.found[key] = Storage(_numbers(content[at + 8 : end], kind, wanted, order), order)
    return end


def _entries(content: np.ndarray) -> Dict[str, zipfile.ZipInfo]:
    """The entries of a torch.save, by their names within its one folder."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_Bytes(content))) as archive:
            infos = archive.infolist()
    except Exception as error:  # of a damaged directory zipfile raises a dozen kinds
        raise Refused(f"its directory is cut off or damaged ({error or type(error).__name__})") from None
    # Stored entries that do not overlap are no larger together than the file: what unpacks to more is a bomb.
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        raise Refused("its entries are compressed or encrypted, which torch.save never does")
    if sum(info.file_size for info in infos) > len(content):
        raise Refused("its entries overlap")
    entries: Dict[str, zipfile.ZipInfo] = {}
    folders: Set[str] = set()
    for info in infos:
        folder, _, name = info.filename.partition("/")
        folders.add(folder)
        if name in entries:
            raise Refused(f"its entry {ascii(name)[1:-1]} is there twice")
        entries[name] = info
    if len(folders) > 1:
        raise Refused("it is a zip, but not one of torch.save: that has one folder")
    return entries


def _entry(content: np.ndarray, info: zipfile.ZipInfo) -> np.ndarray:
    """The bytes of an entry, checked against its sum."""
    start = info.header_offset
    local = content[start : start + 30].tobytes() if start >= 0 else b""
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise Refused("its directory points to where no entry is")
    start += 30 + sum(struct.unpack("<HH", local[26:30]))
    if info.compress_size != info.file_size or start + info.file_size > len(content):
        raise Refused(f"its entry {ascii(info.filename)[1:-1]} is cut off")
    piece: np.ndarray = content[start : start + info.file_size]
    if zlib.crc32(piece.data) != info.CRC:
        raise Refused(f"its entry {ascii(info.filename)[1:-1]} is not what was saved: the checksum differs")
    return piece


class _Bytes(io.RawIOBase):
    """The mapped file, for zipfile to find its directory in."""

    def __init__(self, content: np.ndarray) -> None:
        self.content = content
        self.at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: len(self.content)}[whence]
        if place < 0:
            raise ValueError("a place before the start")
        self.at = place
        return place

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        piece = self.content[self.at : self.at + len(buffer)]
        buffer[: len(piece)] = piece.data
        self.at += len(piece)
        return len(piece)


def _numbers(piece: np.ndarray, kind: str, count: int, order: str) -> np.ndarray:
    """Bytes as numbers of a kind."""
    if len(piece) != count * _width(kind):
        raise Refused(f"a storage of {count} numbers has {len(piece)} bytes, not {count * _width(kind)}")
    if kind == "b1":
        return np.asarray(piece != 0)  # whatever the byte, a truth
    if kind == "bf16":
        return widened(piece.view(order + "u2"))
    numbers: np.ndarray = piece.view(order + kind)
    return numbers if order == "<" else numbers.astype("<" + kind)


def _width(kind: str) -> int:
    return 2 if kind == "bf16" else int(kind[1:])  # bytes of a number


def _view(numbers: np.ndarray, offset: Any, shape: Any, strides: Any) -> np.ndarray:
    """The tensor that lies so in a storage; it must lie in it."""
    sizes = (offset, *shape, *strides) if isinstance(shape, tuple) and isinstance(strides, tuple) else ()
    if not sizes or len(shape) != len(strides) or len(shape) > MOST_AXES or not all(map(_is_size, sizes)):
        raise Refused("it has a tensor without a sound shape")
    if not all(shape):
        return np.zeros(shape, numbers.dtype)
    count, last = 1, offset
    for size, stride in zip(shape, strides):
        count *= size
        last += (size - 1) * stride
    if last >= len(numbers):
        raise Refused(f"it has a tensor {list(shape)} that reaches past its {len(numbers)} numbers")
    if count > max(len(numbers), REPEATED):
        raise Refused(f"it has a tensor {list(shape)} that repeats the same {len(numbers)} numbers")
    width = numbers.dtype.itemsize
    steps = tuple(stride * width if size > 1 else width for size, stride in zip(shape, strides))
    tensor: np.ndarray = np.ndarray(shape, numbers.dtype, numbers, offset * width, steps)
    return tensor


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST_AXIS


def _is_class_of_a_trainer(name: Name) -> bool:
    parts = name.name.split(".")
    package = name.module.split(".")[0]
    return package in CLASSES_OF and all(part.isidentifier() for part in parts) and parts[-1][0].isupper()


def _misuse(full: str) -> NoReturn:
    raise Refused(f"it calls {full} as torch.save does not")

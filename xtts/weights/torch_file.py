"""PyTorch's `.pth` files, read into NumPy arrays without PyTorch and without running anything in them.

Both formats of torch.save are read: the zip of PyTorch 1.6 and later, and the older stream. Their pickles go through
`unpickling`; the names that they may contain are listed here: dicts, tensors, storages, data types. Classes that
trainers save with their weights become placeholders. Any other name refuses the file. Arrays are read-only views of
the mapped file; bfloat16 is widened to float32, which changes no number.
"""

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, Dict, NamedTuple, NoReturn, Optional, Set, Tuple, Union

import numpy as np

from xtts.weights.safetensors_file import DAMAGED, WeightsError, map_file, widen_bfloat16
from xtts.weights.unpickling import GlobalName, Placeholder, Refused, Resolver, unpickle

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the stream format
PROTOCOL = 1001  # and the second
MAX_AXES = 16
MAX_AXIS = 2**48
MAX_EXPANDED = 2**20  # elements of a tensor that repeats those of its storage (stride 0)

STORAGES = {  # the NumPy type of each storage
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
UNTYPED = {
    "torch.uint16": "u2",
    "torch.uint32": "u4",
    "torch.uint64": "u8",
}  # types without a storage class of their own
DICTS = {"collections.OrderedDict", "collections.defaultdict"}
TENSORS = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
}
PARAMETERS = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
SUBCLASS = "torch._tensor._rebuild_from_type_v2"
DTYPES = {
    f"torch.{name}"
    for name in (
        *("float64", "float32", "float16", "bfloat16", "double", "float", "half", "complex64", "complex128", "bool"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "long", "int", "short"),
        *("float8_e4m3fn", "float8_e5m2"),
    )
}
# Other names in trainers' files. They become placeholders, which are harmless; a file that names anything but these and
# classes of the packages in CLASSES_OF was made to do something, and is not read at all.
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
    """A flat array [count]; None on the first pass over the stream format, which has not reached it yet."""

    numbers: Optional[np.ndarray]
    byte_order: str  # < or >


def load_torch_file(path: Union[str, Path]) -> Any:
    """The object passed to torch.save, with arrays for its tensors; raises a `WeightsError` for any other file."""
    path = Path(path)
    content = map_file(path)
    try:
        if content[:4].tobytes() == b"PK\x03\x04":
            return _from_zip(content)
        return _from_stream(content)
    except Refused as reason:
        raise WeightsError(f"{path}: {reason}. Nothing of it was run or loaded; {DAMAGED}") from None


class _TorchResolver(Resolver):
    """Resolves the names in a file of torch.save. Subclasses find the storages."""

    def find_class(self, name: GlobalName) -> Any:
        full = str(name)
        known = full in STORAGES or full in DICTS or full in TENSORS or full in PARAMETERS or full in DTYPES
        if known or full == SUBCLASS or full in PLACEHOLDERS or _is_trainer_class(name):
            return name
        raise Refused(
            f"it names {ascii(full)[1:-1]}, which no file of weights needs: whoever unpickles it may run a program"
        )

    def reduce(self, name: GlobalName, arguments: Any) -> Any:
        full = str(name)
        if full in DICTS and (not arguments or full.endswith("defaultdict")):
            return {}
        if full == SUBCLASS and len(arguments) == 4 and isinstance(arguments[0], GlobalName):
            name, arguments = arguments[0], arguments[2]  # function, class, arguments, state
            full = str(name)
        if full in PARAMETERS:
            return arguments[0] if isinstance(arguments, tuple) and arguments else _misuse(full)
        if full in TENSORS:
            return self.tensor(name, arguments)
        if full == "torch.Size":
            return arguments[0] if len(arguments) == 1 and isinstance(arguments[0], tuple) else _misuse(full)
        return Placeholder(name, arguments)

    def tensor(self, name: GlobalName, arguments: Any) -> Any:
        if not isinstance(arguments, tuple) or len(arguments) < 4 or not isinstance(arguments[0], Storage):
            _misuse(str(name))
        storage, offset, shape, strides = arguments[:4]
        numbers = storage.numbers
        if numbers is None:
            return None
        if name.name.endswith("v3"):
            kind = UNTYPED.get(str(arguments[6])) if len(arguments) > 6 else None
            if kind is None or numbers.dtype != np.uint8:
                return Placeholder(name, arguments)  # float8 and the like: an error only where the tensor is needed
            numbers = numbers[: len(numbers) // int(kind[1]) * int(kind[1])].view(storage.byte_order + kind)
        return _view(numbers, offset, shape, strides)

    def persistent_load(self, identity: Any) -> Storage:
        is_storage = type(identity) is tuple and len(identity) in (5, 6) and identity[0] == "storage"
        if not is_storage or not all(isinstance(part, str) for part in identity[2:4]) or not _is_size(identity[4]):
            raise Refused("it refers to a storage as torch.save does not")
        if len(identity) == 6 and identity[5] is not None:
            raise Refused(
                "it was saved by a PyTorch before 1.0, with views of storages; save it again with a later one"
            )
        kind = STORAGES.get(str(identity[1])) if isinstance(identity[1], GlobalName) else None
        if kind is None:
            raise Refused("it has a storage of a type that this release does not read")
        return self.storage(identity[2], kind, identity[4])

    def storage(self, key: str, kind: str, count: int) -> Storage:
        raise NotImplementedError


class _ZipResolver(_TorchResolver):
    """Storages are entries of the zip. The checksum of each is verified once, however many tensors view it."""

    def __init__(self, content: np.ndarray, entries: Dict[str, zipfile.ZipInfo], byte_order: str) -> None:
        self.content = content
        self.entries = entries
        self.byte_order = byte_order
        self.known: Dict[str, Tuple[str, int, Storage]] = {}

    def storage(self, key: str, kind: str, count: int) -> Storage:
        if key not in self.known:
            info = self.entries.get(f"data/{key}")
            if info is None:
                raise Refused(f"its storage data/{ascii(key)[1:-1]} is missing")
            numbers = _numbers(_entry(self.content, info), kind, count, self.byte_order)
            self.known[key] = (kind, count, Storage(numbers, self.byte_order))
        known_kind, known_count, storage = self.known[key]
        if (known_kind, known_count) != (kind, count):
            raise Refused("it gives one storage two types")
        return storage


class _StreamResolver(_TorchResolver):
    """Storages follow the pickle: the first pass only lists them, the second finds them."""

    def __init__(self) -> None:
        self.wanted: Dict[str, Tuple[str, int]] = {}
        self.found: Dict[str, Storage] = {}

    def storage(self, key: str, kind: str, count: int) -> Storage:
        if self.wanted.setdefault(key, (kind, count)) != (kind, count):
            raise Refused("it gives one storage two types")
        return self.found.get(key, Storage(None, "<"))


def _from_zip(content: np.ndarray) -> Any:
    entries = _entries(content)
    if "data.pkl" not in entries:
        raise Refused("it is a zip, but not one of torch.save: there is no data.pkl in it")
    byte_order = "<"
    if "byteorder" in entries:
        byte_order = {b"little": "<", b"big": ">"}.get(_entry(content, entries["byteorder"]).tobytes(), "")
    if not byte_order:
        raise Refused("its byte order is neither little nor big")
    return unpickle(_entry(content, entries["data.pkl"]), 0, _ZipResolver(content, entries, byte_order))[0]


def _from_stream(content: np.ndarray) -> Any:
    nothing = Resolver()
    at, header = 0, []
    for expected in ("number", "protocol", "table"):
        try:
            value, at = unpickle(content, at, nothing)
        except Refused:
            raise Refused(f"it is no file of torch.save, or cut off in its {expected}") from None
        header.append(value)
        if header[0] != MAGIC or header[1:2] not in ([], [PROTOCOL]):
            raise Refused("it is no file of torch.save")
    byte_order = ">" if isinstance(header[2], dict) and header[2].get("little_endian") is False else "<"
    resolver = _StreamResolver()
    _, after = unpickle(content, at, resolver)
    keys, after = unpickle(content, after, nothing)
    if not isinstance(keys, list) or len(keys) != len(resolver.wanted):
        raise Refused("its list of storages does not match its tensors")
    for key in keys:
        if not isinstance(key, str) or key not in resolver.wanted or key in resolver.found:
            raise Refused("its list of storages does not match its tensors")
        after = _find_storage(content, after, key, resolver, byte_order)
    return unpickle(content, at, resolver)[0]


def _find_storage(content: np.ndarray, at: int, key: str, resolver: _StreamResolver, byte_order: str) -> int:
    """Find the storage at byte `at`; returns where the next one starts."""
    kind, wanted = resolver.wanted[key]
    if at + 8 > len(content):
        raise Refused("it is cut off within its storages")
    (count,) = struct.unpack(byte_order + "q", content[at : at + 8].tobytes())
    end = at + 8 + wanted * _width(kind)
    if count != wanted or end > len(content):
        raise Refused("it is cut off, or its storages do not have the sizes it states")
    resolver.found[key] = Storage(_numbers(content[at + 8 : end], kind, wanted, byte_order), byte_order)
    return end


def _entries(content: np.ndarray) -> Dict[str, zipfile.ZipInfo]:
    """The zip's entries, by their names within its only folder."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_Bytes(content))) as archive:
            infos = archive.infolist()
    except Exception as error:  # zipfile raises a dozen kinds for a damaged directory
        raise Refused(f"its directory is cut off or damaged ({error or type(error).__name__})") from None
    # Stored entries that do not overlap add up to no more than the file: anything else is a zip bomb.
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
        raise Refused("it is a zip, but not one of torch.save, which has one folder in it")
    return entries


def _entry(content: np.ndarray, info: zipfile.ZipInfo) -> np.ndarray:
    """The bytes of an entry, whose checksum is verified."""
    start = info.header_offset
    local = content[start : start + 30].tobytes() if start >= 0 else b""
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise Refused("its directory points to a place without an entry")
    start += 30 + sum(struct.unpack("<HH", local[26:30]))
    if info.compress_size != info.file_size or start + info.file_size > len(content):
        raise Refused(f"its entry {ascii(info.filename)[1:-1]} is cut off")
    piece: np.ndarray = content[start : start + info.file_size]
    if zlib.crc32(piece.data) != info.CRC:
        raise Refused(f"its entry {ascii(info.filename)[1:-1]} is not what was saved: the checksum differs")
    return piece


class _Bytes(io.RawIOBase):
    """The mapped file as a stream, in which zipfile finds the directory."""

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
            raise ValueError("a position before the start")
        self.at = place
        return place

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        piece = self.content[self.at : self.at + len(buffer)]
        buffer[: len(piece)] = piece.data
        self.at += len(piece)
        return len(piece)


def _numbers(piece: np.ndarray, kind: str, count: int, byte_order: str) -> np.ndarray:
    """Bytes as an array of a type."""
    if len(piece) != count * _width(kind):
        raise Refused(f"a storage of {count} elements has {len(piece)} bytes, not {count * _width(kind)}")
    if kind == "b1":
        return np.asarray(piece != 0)  # any other byte is true
    if kind == "bf16":
        return widen_bfloat16(piece.view(byte_order + "u2"))
    numbers: np.ndarray = piece.view(byte_order + kind)
    return numbers if byte_order == "<" else numbers.astype("<" + kind)


def _width(kind: str) -> int:
    return 2 if kind == "bf16" else int(kind[1:])  # bytes of an element


def _view(numbers: np.ndarray, offset: Any, shape: Any, strides: Any) -> np.ndarray:
    """A strided view of a storage; it must not reach outside of it."""
    sizes = (offset, *shape, *strides) if isinstance(shape, tuple) and isinstance(strides, tuple) else ()
    if not sizes or len(shape) != len(strides) or len(shape) > MAX_AXES or not all(map(_is_size, sizes)):
        raise Refused("it has a tensor with an invalid shape or strides")
    if not all(shape):
        return np.zeros(shape, numbers.dtype)
    count, last = 1, offset
    for size, stride in zip(shape, strides):
        count *= size
        last += (size - 1) * stride
    if last >= len(numbers):
        raise Refused(f"it has a tensor {list(shape)} that reaches past the {len(numbers)} elements of its storage")
    if count > max(len(numbers), MAX_EXPANDED):
        raise Refused(f"it has a tensor {list(shape)} that repeats the {len(numbers)} elements of its storage")
    width = numbers.dtype.itemsize
    steps = tuple(stride * width if size > 1 else width for size, stride in zip(shape, strides))
    tensor: np.ndarray = np.ndarray(shape, numbers.dtype, numbers, offset * width, steps)
    return tensor


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_AXIS


def _is_trainer_class(name: GlobalName) -> bool:
    parts = name.name.split(".")
    package = name.module.split(".")[0]
    return package in CLASSES_OF and all(part.isidentifier() for part in parts) and parts[-1][0].isupper()


def _misuse(full: str) -> NoReturn:
    raise Refused(f"it calls {full} as torch.save does not")

"""Write values as `torch.save` does, without PyTorch.

The file is a zip with a pickle, of which each tensor refers to an entry with its bytes. The pickle is written opcode by
opcode, in protocol 2: Python's own pickler looks every name up in its module, and PyTorch's are not here.
"""

import struct
import zipfile
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Union

import numpy as np

from xtts.files import draft_file
from xtts.weights.safetensors_file import WeightsError, release_pages

STORAGES = {"f8": "Double", "f4": "Float", "f2": "Half", "i8": "Long", "i4": "Int", "i2": "Short", "i1": "Char"}
STORAGES.update(u1="Byte", b1="Bool")
CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}
REBUILD, ORDERED_DICT = b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n)R"
MARK, TUPLE, REDUCE, PERSISTENT = b"(", b"t", b"R", b"Q"
CHUNK = 64 * 2**20  # bytes written at a time


def write_torch_file(path: Union[str, Path], value: Any) -> None:
    """Write tensors (NumPy arrays), text, numbers, and dicts and lists of these; complete or not at all."""
    path = Path(path)
    tensors: List[np.ndarray] = []
    program = b"\x80\x02" + b"".join(_opcodes(value, tensors)) + b"."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_file(path) as draft, zipfile.ZipFile(str(draft), "w", zipfile.ZIP_STORED) as file:
            file.writestr("archive/data.pkl", program)
            file.writestr("archive/byteorder", b"little")
            for number, tensor in enumerate(tensors):
                with file.open(f"archive/data/{number}", "w", force_zip64=tensor.nbytes > 2**31) as entry:
                    for piece in _pieces(tensor):
                        entry.write(piece)
                release_pages(tensor)
            file.writestr("archive/version", b"3\n")
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be written") from None


def _opcodes(value: Any, tensors: List[np.ndarray]) -> Iterator[bytes]:
    """The program that makes a value; its tensors are added to the list, each under its index."""
    if isinstance(value, np.ndarray):
        yield from _tensor(value, str(len(tensors)))
        tensors.append(value)
    elif value is None or isinstance(value, bool):
        yield CONSTANTS[value]
    elif isinstance(value, int):
        yield _integer(value)
    elif isinstance(value, float):
        yield b"G" + struct.pack(">d", value)
    elif isinstance(value, str):
        yield _text(value)
    elif isinstance(value, dict):
        yield b"}" + MARK
        for key, item in value.items():
            yield _text(key)
            yield from _opcodes(item, tensors)
        yield b"u"
    elif isinstance(value, (list, tuple)):
        yield b"]" + MARK
        for item in value:
            yield from _opcodes(item, tensors)
        yield b"e"
    else:
        raise TypeError(f"torch files have no {type(value).__name__} here")


def _tensor(tensor: np.ndarray, key: str) -> Iterator[bytes]:
    """_rebuild_tensor_v2(storage, offset 0, shape, strides, requires no gradient, no hooks)."""
    kind = STORAGES.get(tensor.dtype.str[1:])
    if kind is None:
        raise WeightsError(f"a tensor is {tensor.dtype}, which torch files do not support")
    strides = [int(np.prod(tensor.shape[axis + 1 :])) for axis in range(tensor.ndim)]
    storage = [_text("storage"), f"ctorch\n{kind}Storage\n".encode(), _text(key), _text("cpu"), _integer(tensor.size)]
    yield REBUILD + MARK
    yield _tuple(storage) + PERSISTENT
    yield _integer(0)
    yield _tuple(map(_integer, tensor.shape)) + _tuple(map(_integer, strides))
    yield CONSTANTS[False] + ORDERED_DICT + TUPLE + REDUCE


def _integer(number: int) -> bytes:
    content = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return struct.pack("<BB", 0x8A, len(content)) + content


def _tuple(items: Iterable[bytes]) -> bytes:
    return MARK + b"".join(items) + TUPLE


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(content)) + content


def _pieces(tensor: np.ndarray) -> Iterator[bytes]:
    """The bytes of a tensor, little-endian and in C order."""
    flat = np.ascontiguousarray(tensor).astype(tensor.dtype.newbyteorder("<"), copy=False).reshape(-1)
    step = max(1, CHUNK // tensor.itemsize)
    for first in range(0, len(flat), step):
        yield flat[first : first + step].tobytes()

"""Read and write safetensors files, bit for bit.

Reading maps the file and returns read-only views of it; writing goes tensor by tensor, and the file appears complete or
not at all. The library `safetensors` is not used: it keeps all that it has read of a file mapped until the file is
closed (2.0 GB more resident memory for XTTS-v2; 0.1 GB here, where pages are released), its NumPy interface has no
bfloat16, which is widened to float32 here, and it does not write atomically. Tests compare the two.
"""

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from xtts.errors import XttsError
from xtts.files import draft_file

Tensors = Dict[str, np.ndarray]

MAX_HEADER_BYTES = 100_000_000  # the limit of the format
DTYPES = {  # the name in the format: the NumPy type
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}
DAMAGED = "download the file again"


class WeightsError(XttsError):
    """Weights that cannot be read, do not fit the model, or cannot be written."""


def map_file(path: Path) -> Any:
    """A file as a read-only array, uint8 [size], of which pages are read when they are used."""
    try:
        if path.is_dir():
            raise WeightsError(f"{path}: this is a folder; name the file in it")
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise WeightsError(f"{path}: the file is empty; {DAMAGED}")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or error
        raise WeightsError(f"{path}: {reason}; name a file that can be read") from None


def release_pages(tensor: np.ndarray) -> None:
    """Let the kernel take back the memory that a mapped tensor was read into; when used again it is read again.

    Pages of a mapped file count as the process's memory until the kernel reclaims them. Does nothing to other arrays,
    and on operating systems without madvise.
    """
    owner: Any = tensor
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = tensor.__array_interface__["data"][0] - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    owner.madvise(mmap.MADV_DONTNEED, first, min(start + tensor.nbytes, len(owner)) - first)


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16, given as uint16, in float32, of which it is the upper half: no number changes."""
    wide: np.ndarray = bits.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def read_safetensors(path: Union[str, Path]) -> Tuple[Tensors, Dict[str, str]]:
    """The tensors of a file, and its metadata."""
    path = Path(path)
    content = map_file(path)
    try:
        if len(content) < 8:
            raise ValueError("it ends within its first eight bytes")
        (length,) = struct.unpack("<Q", content[:8].tobytes())
        if length > min(MAX_HEADER_BYTES, len(content) - 8):
            raise ValueError("its header is longer than the file")
        table = json.loads(content[8 : 8 + length].tobytes().decode("utf-8"))
        if not isinstance(table, dict):
            raise ValueError("its header is not a JSON object")
        metadata = table.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not a JSON object")
        return _tensors(table, content[8 + length :]), metadata
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
        raise WeightsError(f"{path}: this is not a valid safetensors file, {error}; {DAMAGED}") from None


def write_safetensors(
    path: Union[str, Path], tensors: Mapping[str, np.ndarray], metadata: Optional[Dict[str, str]] = None
) -> None:
    """Write a file, complete or not at all, and create its folder."""
    path = Path(path)
    dtypes = {name: np.dtype(tensor.dtype).newbyteorder("<").str for name, tensor in tensors.items()}
    unsupported = sorted(name for name, dtype in dtypes.items() if dtype not in DTYPE_NAMES)
    if unsupported:
        raise WeightsError(
            f"{path}: {unsupported[0]} is {tensors[unsupported[0]].dtype}, which the format does not support"
        )
    # Widest types first, so that every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_file(path) as draft, draft.open("wb") as file:
            file.write(_header(names, tensors, dtypes, metadata))
            for name in names:
                file.write(np.ascontiguousarray(tensors[name]).astype(dtypes[name], copy=False).data)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be written") from None


def _header(
    names: Iterable[str], tensors: Mapping[str, np.ndarray], dtypes: Dict[str, str], metadata: Optional[Dict[str, str]]
) -> bytes:
    table: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        table[name] = {
            "dtype": DTYPE_NAMES[dtypes[name]],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _tensors(table: Dict[str, Any], data: np.ndarray) -> Tensors:
    """The tensor of each entry; entries must be consistent with the bytes of the file."""
    tensors: Tensors = {}
    spans: List[Tuple[int, int]] = []
    for name, entry in table.items():
        try:
            dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"{name!r} lacks its type, shape or offsets") from None
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(f"{name!r} is of type {dtype!r}, which this release does not read")
        if not all(type(number) is int and 0 <= number < 2**48 for number in (*shape, start, end)):
            raise ValueError(f"{name!r} has an invalid shape or offsets")
        count = 1
        for size in shape:
            count *= size
        if end > len(data) or end - start != count * np.dtype(DTYPES[dtype]).itemsize:
            raise ValueError(f"{name!r} {list(shape)} does not fit its {end - start} bytes, or they lie past the end")
        tensor = data[start:end].view(DTYPES[dtype]).reshape(shape)
        tensors[name] = widen_bfloat16(tensor) if dtype == "BF16" else tensor
        spans.append((start, end))
    reached = 0
    for start, end in sorted(spans):
        if start != reached:
            raise ValueError("its tensors overlap, or leave a gap")
        reached = end
    if reached != len(data):
        raise ValueError(f"its tensors take up {reached} of {len(data)} bytes")
    return tensors

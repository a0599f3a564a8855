"""Safetensors files: tensors by name come in and a file goes out, whole or not at all; and back, bit for bit.

Reading maps the file and gives read-only views of it, writing goes tensor by tensor: a file larger than memory is no
trouble. bfloat16, for which NumPy has no type, is read as the same numbers in float32.
"""

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from xtts.errors import XttsError

Tensors = Dict[str, np.ndarray]

LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
KINDS = {  # the format's name, and NumPy's
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
NAMES = {kind: name for name, kind in KINDS.items() if name != "BF16"}
DAMAGED = "get the file anew from its publisher"


class WeightsError(XttsError):
    """Weights that cannot be read, do not fit, or cannot be written."""


def mapped(path: Path) -> Any:
    """A file's bytes, uint8 [size], read only when they are looked at."""
    try:
        if path.is_dir():
            raise WeightsError(f"{path}: this is a folder; name the file in it")
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise WeightsError(f"{path}: the file is empty; {DAMAGED}")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte in it
        reason = getattr(error, "strerror", None) or error
        raise WeightsError(f"{path}: {reason}; name a file that can be read") from None


def release_pages(tensor: np.ndarray) -> None:
    """Let the kernel take back the memory that a mapped tensor was read into; when used again it is read again.

    Pages of a mapped file count as the process's memory as long as nobody else needs them. Does nothing to other
    arrays, and where the operating system has no way to say it.
    """
    owner: Any = tensor
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = tensor.__array_interface__["data"][0] - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    owner.madvise(mmap.MADV_DONTNEED, first, min(start + tensor.nbytes, len(owner)) - first)


def widened(halves: np.ndarray) -> np.ndarray:
    """bfloat16, given as uint16, in float32: the upper half of it, so no number changes."""
    wide: np.ndarray = halves.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def read_safetensors(path: Union[str, Path]) -> Tuple[Tensors, Dict[str, str]]:
    """The tensors of a file, and what its metadata says."""
    path = Path(path)
    content = mapped(path)
    try:
        if len(content) < 8:
            raise ValueError("it ends within its first eight bytes")
        (length,) = struct.unpack("<Q", content[:8].tobytes())
        if length > min(LARGEST_HEADER, len(content) - 8):
            raise ValueError("its table of tensors is longer than the file")
        table = json.loads(content[8 : 8 + length].tobytes().decode("utf-8"))
        if not isinstance(table, dict):
            raise ValueError("its table of tensors is no table")
        metadata = table.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is no table")
        return _tensors(table, content[8 + length :]), metadata
    except (ValueError, RecursionError) as error:  # of JSON and UTF-8 too
        raise WeightsError(f"{path}: this is no sound safetensors file, {error}; {DAMAGED}") from None


def write_safetensors(
    path: Union[str, Path], tensors: Mapping[str, np.ndarray], metadata: Optional[Dict[str, str]] = None
) -> None:
    """Write a file, whole or not at all, with the folders it stands in."""
    path = Path(path)
    kinds = {name: np.dtype(tensor.dtype).newbyteorder("<").str for name, tensor in tensors.items()}
    strange = sorted(name for name, kind in kinds.items() if kind not in NAMES)
    if strange:
        raise WeightsError(f"{path}: {strange[0]} is {tensors[strange[0]].dtype}, which the format has no name for")
    # Wide numbers first, so that each tensor stands where its numbers are aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(_header(names, tensors, kinds, metadata))
                for name in names:
                    file.write(np.ascontiguousarray(tensors[name]).astype(kinds[name], copy=False).data)
            draft.replace(path)
        finally:
            if draft.exists():
                draft.unlink()
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be written") from None


def _header(
    names: Iterable[str], tensors: Mapping[str, np.ndarray], kinds: Dict[str, str], metadata: Optional[Dict[str, str]]
) -> bytes:
    table: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        table[name] = {"dtype": NAMES[kinds[name]], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _tensors(table: Dict[str, Any], numbers: np.ndarray) -> Tensors:
    """Each entry's tensor; what an entry says must be what the bytes can be."""
    tensors: Tensors = {}
    spans: List[Tuple[int, int]] = []
    for name, entry in table.items():
        try:
            kind, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"{name!r} lacks its type, shape or place") from None
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"{name!r} has numbers of the kind {kind!r}, which this release does not read")
        if not all(type(number) is int and 0 <= number < 2**48 for number in (*shape, start, end)):
            raise ValueError(f"{name!r} has a shape or a place that is none")
        count = 1
        for size in shape:
            count *= size
        if end > len(numbers) or end - start != count * np.dtype(KINDS[kind]).itemsize:
            raise ValueError(f"{name!r} {list(shape)} does not fit its {end - start} bytes, or they lie past the end")
        tensor = numbers[start:end].view(KINDS[kind]).reshape(shape)
        tensors[name] = widened(tensor) if kind == "BF16" else tensor
        spans.append((start, end))
    reached = 0
    for start, end in sorted(spans):
        if start != reached:
            raise ValueError("its tensors overlap, or leave a gap")
        reached = end
    if reached != len(numbers):
        raise ValueError(f"its tensors fill {reached} bytes of {len(numbers)}")
    return tensors

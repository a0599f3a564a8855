"""Writes NumPy arrays in both formats of torch.save, without PyTorch."""

import io
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from contextlib import contextmanager

import numpy as np

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
STORAGES = {
    "f8": "Double",
    "f4": "Float",
    "f2": "Half",
    "i8": "Long",
    "i4": "Int",
    "i1": "Char",
    "u1": "Byte",
    "b1": "Bool",
}


class _Storage:
    def __init__(self, kind, key, array):
        self.identity = ("storage", kind, key, "cpu", array.size)
        self.array = array


@contextmanager
def modules(classes=()):
    """Temporary modules in which pickle can find names; `classes` are dotted names."""
    names = [f"torch.{kind}Storage" for kind in STORAGES.values()] + ["torch._utils._rebuild_tensor_v2", *classes]
    before, made = dict(sys.modules), {}
    for name in names:
        path, _, last = name.rpartition(".")
        for depth in range(1, path.count(".") + 2):
            folder = ".".join(path.split(".")[:depth])
            sys.modules[folder] = made.setdefault(folder, types.ModuleType(folder))
        thing = type(last, (), {"__module__": path, "__qualname__": last})
        setattr(made[path], last, thing)
        made[name] = thing
    try:
        yield made
    finally:
        for name in made:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def pickled(value, made, protocol=2, legacy=False):
    """The pickle of a value, and the arrays that its tensors refer to, by key."""
    storages = OrderedDict()

    class Pickler(pickle.Pickler):
        def reducer_override(self, thing):
            if isinstance(thing, np.ndarray):
                kind = made[f"torch.{STORAGES[thing.dtype.str[1:]]}Storage"]
                storage = _Storage(kind, str(len(storages)), thing)
                storages[storage.identity[2]] = thing
                strides = tuple(int(np.prod(thing.shape[axis + 1 :])) for axis in range(thing.ndim))
                arguments = (storage, 0, thing.shape, strides, False, OrderedDict())
                return made["torch._utils._rebuild_tensor_v2"], arguments
            return NotImplemented

        def persistent_id(self, thing):
            if isinstance(thing, _Storage):
                return (*thing.identity, None) if legacy else thing.identity
            return None

    buffer = io.BytesIO()
    Pickler(buffer, protocol).dump(value)
    return buffer.getvalue(), storages


def save(value, path, legacy=False, classes=(), protocol=2):
    """Write a file as torch.save does."""
    with modules(classes) as made:
        program, storages = pickled(value, made, protocol, legacy)
    return (stream if legacy else archive)(path, program, storages)


def archive(path, program, storages=(), order=b"little", compression=zipfile.ZIP_STORED):
    """Write the zip that holds a pickle and its storages."""
    with zipfile.ZipFile(str(path), "w", compression) as file:
        file.writestr("archive/data.pkl", program)
        file.writestr("archive/byteorder", order)
        for key, array in dict(storages).items():
            file.writestr(f"archive/data/{key}", array if isinstance(array, bytes) else array.tobytes())
        file.writestr("archive/version", b"3\n")
    return path


def stream(path, program, storages=()):
    """Write the format before the zip: the pickles, then the tensor data."""
    storages = dict(storages)
    system = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    pieces = [pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, system)]
    pieces += [program, pickle.dumps(list(storages), 2)]
    for array in storages.values():
        pieces += [struct.pack("<q", array.size), array.tobytes()]
    path.write_bytes(b"".join(pieces))
    return path

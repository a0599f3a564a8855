"""Unpickling without running anything: the opcodes of a pickle are interpreted here, and nothing it names is imported.

A pickle is a program that may call anything. A `Resolver` returns a value for each name, call and reference to a
storage; by default names are refused and calls become placeholders.

Why not `pickle.Unpickler` with a restricted `find_class`: it bounds neither memory nor time. Its memo is an array: an
index of 2**27 in a pickle of 7 bytes takes 2 GB and one of 2**32 sixty-four (Python 3.8 to 3.13), and it hashes every
key of a dict: nested tuples that share their items cost 2**depth, so that a pickle of a few hundred bytes never ends.
Only the first could be found by looking at the opcodes beforehand. PyTorch's `weights_only` has an interpreter of its
own as well. Here each opcode costs no more than the bytes that it takes.
"""

import struct
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

MAX_BYTES = 16_000_000  # of one pickle; that of XTTS-v2 with its optimizer has a million
MAX_OPCODES = 2_000_000
MAX_NAME_BYTES = 500  # of a module, or of a name in it


class Refused(Exception):
    """The reason why a file is not read."""


class GlobalName(NamedTuple):
    """A module and a name in it; neither is looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Placeholder:
    """An object that was not created: its class or function, the arguments and the state it would have had."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: GlobalName, arguments: Any) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None

    def __repr__(self) -> str:
        return f"<{self.name}, not created>"


class Resolver:
    """Resolves names, calls and persistent references. By default names are refused, and so all calls."""

    def find_class(self, name: GlobalName) -> Any:
        raise Refused(f"it names {name}")

    def reduce(self, name: GlobalName, arguments: Any) -> Any:
        return Placeholder(name, arguments)

    def persistent_load(self, identity: Any) -> Any:
        raise Refused("it refers to something outside of the pickle")


def unpickle(content: np.ndarray, start: int, resolver: Resolver) -> Tuple[Any, int]:
    """The value of the pickle that starts at byte `start` of `content`, uint8 [bytes], and the byte it ends before."""
    machine = _Unpickler(content[start : start + MAX_BYTES].tobytes(), resolver)
    value = machine.run()
    return value, start + machine.position


class _Unpickler:
    """The pickle machine: a stack, the stacks below its marks, a memo, and the position in the pickle."""

    def __init__(self, code: bytes, resolver: Resolver) -> None:
        self.code = code
        self.resolver = resolver
        self.position = 0
        self.stack: List[Any] = []
        self.marked_stacks: List[List[Any]] = []
        self.memo: Dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            opcode = self.read(1)
            if opcode == b".":
                if self.marked_stacks or len(self.stack) != 1:
                    raise Refused("it ends with values left over")
                return self.stack[0]
            step = _OPCODES.get(opcode)
            if step is None:
                raise Refused(f"it has the opcode {opcode!r}, which no file of weights needs")
            step(self)
        raise Refused(f"it has over {MAX_OPCODES:,} opcodes, which no file of weights needs")

    def read(self, size: int) -> bytes:
        piece = self.code[self.position : self.position + size]
        if len(piece) != size:
            raise Refused("it is cut off" if len(self.code) < MAX_BYTES else f"it is longer than {MAX_BYTES:,} bytes")
        self.position += size
        return piece

    def read_number(self, form: str) -> Any:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def read_line(self) -> str:
        end = self.code.find(b"\n", self.position, self.position + MAX_NAME_BYTES)
        if end < 0:
            raise Refused("it has an unterminated name")
        text = _text(self.read(end - self.position))
        self.position += 1
        return text

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise Refused("it pops from an empty stack")
        return self.stack.pop()

    def pop_to_mark(self) -> List[Any]:
        if not self.marked_stacks:
            raise Refused("it pops to a mark that it never set")
        items, self.stack = self.stack, self.marked_stacks.pop()
        return items

    def top(self) -> Any:
        if not self.stack:
            raise Refused("it reads the top of an empty stack")
        return self.stack[-1]

    # Opcodes that take more than a line

    def protocol(self) -> None:
        if self.read_number("<B") > 5:
            raise Refused("it uses an unknown pickle protocol")

    def frame(self) -> None:
        self.read(8)  # its length, for readers of streams

    def mark(self) -> None:
        self.marked_stacks.append(self.stack)
        self.stack = []

    def pop_or_pop_mark(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_to_mark()

    def pop_mark(self) -> None:
        self.pop_to_mark()

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise Refused("it reads a memo entry that it never wrote")
        self.push(self.memo[index])

    def tuple_of(self, count: int) -> None:
        items = tuple(reversed([self.pop() for _ in range(count)]))
        self.push(items)

    def extend(self, items: List[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Placeholder):  # a placeholder is not filled
            raise Refused("it appends to something that is not a list")

    def set_items(self, items: List[Any]) -> None:
        target = self.top()
        if len(items) % 2:
            raise Refused("it has a key without a value")
        if isinstance(target, dict):
            for key, value in zip(items[::2], items[1::2]):
                target[_key(key)] = value
        elif not isinstance(target, Placeholder):
            raise Refused("it sets items of something that is not a dict")

    def dict_(self) -> None:
        items = self.pop_to_mark()
        self.push({})
        self.set_items(items)

    def push_global(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str) and len(module) + len(name) <= 2 * MAX_NAME_BYTES):
            raise Refused("it has an invalid module or class name")
        self.push(self.resolver.find_class(GlobalName(module, name)))

    def global_(self) -> None:
        module = self.read_line()
        self.push_global(module, self.read_line())

    def stack_global(self) -> None:
        name = self.pop()
        self.push_global(self.pop(), name)

    def call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, GlobalName) or not isinstance(arguments, tuple):
            raise Refused("it calls something that is not a named function, or without a tuple of arguments")
        self.push(self.resolver.reduce(function, arguments))

    def reduce(self) -> None:
        arguments = self.pop()
        self.call(self.pop(), arguments)

    def new_with_keywords(self) -> None:
        keywords, arguments = self.pop(), self.pop()
        self.call(self.pop(), (arguments, keywords))

    def instance(self) -> None:
        self.global_()
        function = self.pop()
        self.call(function, tuple(self.pop_to_mark()))

    def object_(self) -> None:
        items = self.pop_to_mark()
        if not items:
            raise Refused("it creates an object without a class")
        self.call(items[0], tuple(items[1:]))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if isinstance(target, Placeholder):
            target.state = state
        elif not isinstance(
            target, dict
        ):  # attributes of an OrderedDict, such as a state dict's _metadata, are dropped
            raise Refused("it sets the state of something that has none")


def _text(piece: bytes) -> str:
    try:
        return piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Refused("it has a string that is not UTF-8") from None


def _key(key: Any) -> Any:
    """A key that is cheap to hash: nested tuples could take years, and huge integers collide."""
    parts = key if type(key) is tuple and len(key) <= 8 else (key,)
    for part in parts:
        simple = isinstance(part, (str, bytes, bool, GlobalName)) or part is None
        if not simple and not (type(part) is int and abs(part) < 2**60):
            raise Refused("it has a dict with a key that no file of weights needs")
    return key


Opcode = Callable[[_Unpickler], None]


def _push_new(make: Callable[[], Any]) -> Opcode:
    return lambda machine: machine.push(make())


def _push_number(form: str) -> Opcode:
    return lambda machine: machine.push(machine.read_number(form))


def _push_bytes(size: str, convert: Callable[[bytes], Any] = bytes) -> Opcode:
    return lambda machine: machine.push(convert(machine.read(machine.read_number(size))))


def _integer(piece: bytes) -> int:
    return int.from_bytes(piece, "little", signed=True)


_OPCODES: Dict[bytes, Opcode] = {
    b"\x80": _Unpickler.protocol,
    b"\x95": _Unpickler.frame,
    b"(": _Unpickler.mark,
    b"0": _Unpickler.pop_or_pop_mark,
    b"1": _Unpickler.pop_mark,
    b"2": lambda machine: machine.push(machine.top()),
    # constants
    b"N": _push_new(lambda: None),
    b"\x88": _push_new(lambda: True),
    b"\x89": _push_new(lambda: False),
    b"J": _push_number("<i"),
    b"K": _push_number("<B"),
    b"M": _push_number("<H"),
    b"G": _push_number(">d"),
    b"\x8a": _push_bytes("<B", _integer),
    b"X": _push_bytes("<I", _text),
    b"\x8c": _push_bytes("<B", _text),
    b"\x8d": _push_bytes("<Q", _text),
    b"T": _push_bytes("<I"),
    b"U": _push_bytes("<B"),
    b"B": _push_bytes("<I"),
    b"C": _push_bytes("<B"),
    b"\x8e": _push_bytes("<Q"),
    b"\x96": _push_bytes("<Q"),
    # containers; a set becomes a list, so that nothing is hashed
    b"]": _push_new(list),
    b"}": _push_new(dict),
    b")": _push_new(tuple),
    b"\x8f": _push_new(list),
    b"l": lambda machine: machine.push(machine.pop_to_mark()),
    b"t": lambda machine: machine.push(tuple(machine.pop_to_mark())),
    b"\x91": lambda machine: machine.push(tuple(machine.pop_to_mark())),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"a": lambda machine: machine.extend([machine.pop()]),
    b"e": lambda machine: machine.extend(machine.pop_to_mark()),
    b"\x90": lambda machine: machine.extend(machine.pop_to_mark()),
    b"s": lambda machine: machine.set_items([machine.pop(), machine.pop()][::-1]),
    b"u": lambda machine: machine.set_items(machine.pop_to_mark()),
    b"d": _Unpickler.dict_,
    # the memo
    b"q": lambda machine: machine.put(machine.read_number("<B")),
    b"r": lambda machine: machine.put(machine.read_number("<I")),
    b"\x94": lambda machine: machine.put(len(machine.memo)),
    b"h": lambda machine: machine.get(machine.read_number("<B")),
    b"j": lambda machine: machine.get(machine.read_number("<I")),
    # names and calls
    b"c": _Unpickler.global_,
    b"\x93": _Unpickler.stack_global,
    b"R": _Unpickler.reduce,
    b"\x81": _Unpickler.reduce,
    b"\x92": _Unpickler.new_with_keywords,
    b"i": _Unpickler.instance,
    b"o": _Unpickler.object_,
    b"b": _Unpickler.build,
    b"Q": lambda machine: machine.push(machine.resolver.persistent_load(machine.pop())),
}

"""Pickles read without being run: a pickle's bytes come in, plain values and inert placeholders go out.

A pickle is a program that may call anything. Here its opcodes are interpreted by hand and nothing it names is ever
imported, looked up or called: its owner (`pickles.py`) says what a name stands for. Every opcode's work is bounded by
the bytes it takes from the program, so that a hostile one cannot hang or fill the memory either.
"""

import struct
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

LONGEST = 16_000_000  # bytes of one pickle; that of XTTS-v2 with its optimizer is one of a million
MOST_OPCODES = 2_000_000
LONGEST_NAME = 500  # bytes, of a module or of what is in it


class Refused(Exception):
    """Why a pickle is not read."""


class Name(NamedTuple):
    """What a program calls by module and name. Only a name: nothing stands behind it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Inert:
    """What the program would have made by a call, which was not made: with what, and the state it would be given."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: Name, arguments: Any) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None

    def __repr__(self) -> str:
        return f"<{self.name}, not made>"


class Meaning:
    """What names, calls and references mean. By default a name is refused, so that nothing can be called either."""

    def name(self, name: Name) -> Any:
        raise Refused(f"it names {name}")

    def call(self, name: Name, arguments: Any) -> Any:
        return Inert(name, arguments)

    def reference(self, identity: Any) -> Any:
        raise Refused("it refers to what is outside of it")


def interpret(content: np.ndarray, start: int, meaning: Meaning) -> Tuple[Any, int]:
    """The value of the pickle that begins at byte `start` of `content` [bytes], and where it ends."""
    program = _Program(content[start : start + LONGEST].tobytes(), meaning)
    value = program.run()
    return value, start + program.at


class _Program:
    """A stack, the stacks below its marks, a memo, and where in the bytes it is."""

    def __init__(self, code: bytes, meaning: Meaning) -> None:
        self.code = code
        self.meaning = meaning
        self.at = 0
        self.stack: List[Any] = []
        self.below: List[List[Any]] = []
        self.memo: Dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MOST_OPCODES):
            opcode = self.take(1)
            if opcode == b".":
                if self.below or len(self.stack) != 1:
                    raise Refused("it ends with values left over")
                return self.stack[0]
            step = _STEPS.get(opcode)
            if step is None:
                raise Refused(f"it has the opcode {opcode!r}, which no file of weights needs")
            step(self)
        raise Refused(f"it has over {MOST_OPCODES:,} opcodes, which no file of weights needs")

    def take(self, size: int) -> bytes:
        piece = self.code[self.at : self.at + size]
        if len(piece) != size:
            raise Refused("it is cut off" if len(self.code) < LONGEST else f"it is longer than {LONGEST:,} bytes")
        self.at += size
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.code.find(b"\n", self.at, self.at + LONGEST_NAME)
        if end < 0:
            raise Refused("it has a name without an end")
        text = _text(self.take(end - self.at))
        self.at += 1
        return text

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise Refused("it takes a value that is not there")
        return self.stack.pop()

    def popped_to_mark(self) -> List[Any]:
        if not self.below:
            raise Refused("it goes back to a mark that is not there")
        items, self.stack = self.stack, self.below.pop()
        return items

    def top(self) -> Any:
        if not self.stack:
            raise Refused("it looks at a value that is not there")
        return self.stack[-1]

    # What the opcodes do that are more than a line

    def protocol(self) -> None:
        if self.number("<B") > 5:
            raise Refused("it is of a protocol that Python does not have")

    def frame(self) -> None:
        self.take(8)  # how far it goes, for readers of streams

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def drop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.popped_to_mark()

    def drop_to_mark(self) -> None:
        self.popped_to_mark()

    def put(self, place: int) -> None:
        self.memo[place] = self.top()

    def get(self, place: int) -> None:
        if place not in self.memo:
            raise Refused("it recalls a value that it never kept")
        self.push(self.memo[place])

    def tuple_of(self, count: int) -> None:
        items = tuple(reversed([self.pop() for _ in range(count)]))
        self.push(items)

    def extend(self, items: List[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Inert):  # what would have been filled does not exist
            raise Refused("it appends to what is no list")

    def set_items(self, items: List[Any]) -> None:
        target = self.top()
        if len(items) % 2:
            raise Refused("it has a key without a value")
        if isinstance(target, dict):
            for key, value in zip(items[::2], items[1::2]):
                target[_key(key)] = value
        elif not isinstance(target, Inert):
            raise Refused("it sets items of what is no table")

    def table(self) -> None:
        items = self.popped_to_mark()
        self.push({})
        self.set_items(items)

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str) and len(module) + len(name) <= 2 * LONGEST_NAME):
            raise Refused("it has a name that is none")
        self.push(self.meaning.name(Name(module, name)))

    def global_(self) -> None:
        module = self.line()
        self.name(module, self.line())

    def stack_global(self) -> None:
        name = self.pop()
        self.name(self.pop(), name)

    def call(self, what: Any, arguments: Any) -> None:
        if not isinstance(what, Name) or not isinstance(arguments, tuple):
            raise Refused("it calls what is no name, or with what are no arguments")
        self.push(self.meaning.call(what, arguments))

    def reduce(self) -> None:
        arguments = self.pop()
        self.call(self.pop(), arguments)

    def new_with_keywords(self) -> None:
        keywords, arguments = self.pop(), self.pop()
        self.call(self.pop(), (arguments, keywords))

    def instance(self) -> None:
        self.global_()
        what = self.pop()
        self.call(what, tuple(self.popped_to_mark()))

    def object_(self) -> None:
        items = self.popped_to_mark()
        if not items:
            raise Refused("it makes an instance of nothing")
        self.call(items[0], tuple(items[1:]))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if isinstance(target, Inert):
            target.state = state
        elif not isinstance(
            target, dict
        ):  # an OrderedDict's attributes, such as a state dict's _metadata, do not count
            raise Refused("it gives a state to what has none")


def _text(piece: bytes) -> str:
    try:
        return piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Refused("it has a text that is not UTF-8") from None


def _key(key: Any) -> Any:
    """A key whose hash costs nothing: nested tuples can be made to cost years, and huge numbers to collide."""
    parts = key if type(key) is tuple and len(key) <= 8 else (key,)
    for part in parts:
        simple = isinstance(part, (str, bytes, bool, Name)) or part is None
        if not simple and not (type(part) is int and abs(part) < 2**60):
            raise Refused("it has a table with a key that no file of weights needs")
    return key


Step = Callable[[_Program], None]


def _constant(make: Callable[[], Any]) -> Step:
    return lambda program: program.push(make())


def _number(form: str) -> Step:
    return lambda program: program.push(program.number(form))


def _bytes(size: str, convert: Callable[[bytes], Any] = bytes) -> Step:
    return lambda program: program.push(convert(program.take(program.number(size))))


def _integer(piece: bytes) -> int:
    return int.from_bytes(piece, "little", signed=True)


_STEPS: Dict[bytes, Step] = {
    b"\x80": _Program.protocol,
    b"\x95": _Program.frame,
    b"(": _Program.mark,
    b"0": _Program.drop,
    b"1": _Program.drop_to_mark,
    b"2": lambda program: program.push(program.top()),
    # constants
    b"N": _constant(lambda: None),
    b"\x88": _constant(lambda: True),
    b"\x89": _constant(lambda: False),
    b"J": _number("<i"),
    b"K": _number("<B"),
    b"M": _number("<H"),
    b"G": _number(">d"),
    b"\x8a": _bytes("<B", _integer),
    b"X": _bytes("<I", _text),
    b"\x8c": _bytes("<B", _text),
    b"\x8d": _bytes("<Q", _text),
    b"T": _bytes("<I"),
    b"U": _bytes("<B"),
    b"B": _bytes("<I"),
    b"C": _bytes("<B"),
    b"\x8e": _bytes("<Q"),
    b"\x96": _bytes("<Q"),
    # containers; a set is a list, for its items need no hash
    b"]": _constant(list),
    b"}": _constant(dict),
    b")": _constant(tuple),
    b"\x8f": _constant(list),
    b"l": lambda program: program.push(program.popped_to_mark()),
    b"t": lambda program: program.push(tuple(program.popped_to_mark())),
    b"\x91": lambda program: program.push(tuple(program.popped_to_mark())),
    b"\x85": lambda program: program.tuple_of(1),
    b"\x86": lambda program: program.tuple_of(2),
    b"\x87": lambda program: program.tuple_of(3),
    b"a": lambda program: program.extend([program.pop()]),
    b"e": lambda program: program.extend(program.popped_to_mark()),
    b"\x90": lambda program: program.extend(program.popped_to_mark()),
    b"s": lambda program: program.set_items([program.pop(), program.pop()][::-1]),
    b"u": lambda program: program.set_items(program.popped_to_mark()),
    b"d": _Program.table,
    # the memo
    b"q": lambda program: program.put(program.number("<B")),
    b"r": lambda program: program.put(program.number("<I")),
    b"\x94": lambda program: program.put(len(program.memo)),
    b"h": lambda program: program.get(program.number("<B")),
    b"j": lambda program: program.get(program.number("<I")),
    # names, and what would be calls
    b"c": _Program.global_,
    b"\x93": _Program.stack_global,
    b"R": _Program.reduce,
    b"\x81": _Program.reduce,
    b"\x92": _Program.new_with_keywords,
    b"i": _Program.instance,
    b"o": _Program.object_,
    b"b": _Program.build,
    b"Q": lambda program: program.push(program.meaning.reference(program.pop())),
}

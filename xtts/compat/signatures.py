"""Signatures of function calls, and what changed between two of them, in words.

A signature holds what makes tf.function retrace: the dtype and shape of each tensor, the value of everything else.
"""

import inspect
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple


class Tensor(NamedTuple):
    """The part of a tensor, NumPy array or TensorSpec that tf.function traces for."""

    dtype: str
    shape: Optional[Tuple[Optional[int], ...]]  # None: the rank is open

    def __str__(self) -> str:
        return f"a {self.dtype} tensor {list(self.shape) if self.shape is not None else 'of open rank'}"


class Python(NamedTuple):
    """A Python value, which becomes a constant of the graph: another value is another graph."""

    value: Any  # itself where it can be hashed and compared, otherwise its type and identity
    type: type  # True == 1, but they make two graphs

    def __str__(self) -> str:
        return f"the Python value {self.value!r}"


Signature = Dict[str, Any]  # the path of each leaf, such as "batch['mel']", to a Tensor or a Python


def signature(function: Callable[..., Any], *arguments: Any, **options: Any) -> Signature:
    """The signature of a call, by argument."""
    try:
        bound = inspect.signature(function).bind(*arguments, **options)
        bound.apply_defaults()
        named: Iterable[Tuple[str, Any]] = bound.arguments.items()
    except (TypeError, ValueError):  # a call that will fail anyway, or a callable whose signature is unknown
        named = [*((f"argument {n}", value) for n, value in enumerate(arguments)), *options.items()]
    return {path: leaf for name, value in named for path, leaf in _leaves(name, value)}


def explain(seen: Sequence[Signature], now: Signature) -> List[str]:
    """What changed from the most similar signature seen before, one phrase for each argument.

    >>> explain([{"mel": Tensor("float32", (8, 731))}], {"mel": Tensor("float32", (8, 802))})
    ['mel: dimension 1 was 731, now 802']
    """
    if not seen:
        return []
    return min((differences(before, now) for before in reversed(seen)), key=len)


def differences(before: Signature, now: Signature) -> List[str]:
    """What changed from one signature to another."""
    changes = []
    for path in [*before, *(path for path in now if path not in before)]:
        old, new = before.get(path), now.get(path)
        if old == new:
            continue
        if old is None:
            changes.append(f"{path}: was not there, now {new}")
        elif new is None:
            changes.append(f"{path}: was {old}, now not there")
        else:
            changes.extend(f"{path}: {change}" for change in _leaf_changes(old, new))
    return changes


def mismatches(specs: Sequence[Any], now: Signature) -> List[str]:
    """Where the tensors of a call do not fit an input signature."""
    wanted = [leaf for spec in specs for _, leaf in _leaves("", spec)]
    problems: List[str] = []
    for (path, leaf), spec in zip(now.items(), wanted):  # arguments past the input signature have defaults
        if isinstance(leaf, Tensor) and isinstance(spec, Tensor):
            problems.extend(f"{path}: {problem}" for problem in _misfit(leaf, spec))
    return problems


def _leaves(path: str, value: Any) -> Iterator[Tuple[str, Any]]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _leaves(f"{path}[{key!r}]", value[key])
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for field in value._fields:
            yield from _leaves(f"{path}.{field}", getattr(value, field))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _leaves(f"{path}[{place}]", item)
    else:
        yield path, describe(value)


def describe(value: Any) -> Any:
    """A Tensor or a Python, for an argument or a leaf of a nested one."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = value.shape
        rank = len(shape) if isinstance(shape, tuple) else shape.rank
        return Tensor(
            getattr(value.dtype, "name", str(value.dtype)),
            None if rank is None else tuple(None if size is None else int(size) for size in shape),
        )
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return Python(value, type(value))
    return Python(f"{type(value).__name__} at {id(value):#x}", type(value))


def _leaf_changes(old: Any, new: Any) -> Iterator[str]:
    if not (isinstance(old, Tensor) and isinstance(new, Tensor)):
        if isinstance(old, Python) and isinstance(new, Python):
            yield f"Python value was {old.value!r}, now {new.value!r}"
        else:
            yield f"was {old}, now {new}"
        return
    if old.dtype != new.dtype:
        yield f"dtype was {old.dtype}, now {new.dtype}"
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        if old.shape != new.shape:
            yield f"was {old}, now {new}"
        return
    for place, (before, now) in enumerate(zip(old.shape, new.shape)):
        if before != now:
            yield f"dimension {place} was {before}, now {now}"


def _misfit(leaf: Tensor, spec: Tensor) -> Iterator[str]:
    if leaf.dtype != spec.dtype:
        yield f"dtype is {leaf.dtype}, the signature says {spec.dtype}"
    if spec.shape is None or leaf.shape is None:
        return
    if len(leaf.shape) != len(spec.shape):
        yield f"has {len(leaf.shape)} dimensions, the signature says {len(spec.shape)}"
        return
    for place, (is_, wanted) in enumerate(zip(leaf.shape, spec.shape)):
        if wanted is not None and is_ is not None and is_ != wanted:
            yield f"dimension {place} is {is_}, the signature says {wanted}"

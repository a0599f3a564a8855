"""tf.function with counted and explained traces.

tf.function retraces for a new signature. A function compiled by XLA also recompiles for each new shape, without a trace
that TensorFlow's own counters would show. Both are counted here, and explained.
"""

import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from xtts.compat.offered import OFFERED
from xtts.compat.signatures import Signature, describe, explain, mismatches, signature


class RetraceError(RuntimeError):
    """A function was traced or compiled more often than allowed."""


class RetraceWarning(UserWarning):
    """A function was traced or compiled more often than allowed."""


class SignatureError(TypeError, ValueError):
    """Arguments that do not fit an input signature. TensorFlow has raised ValueError and TypeError, so it is both."""


class Retrace(NamedTuple):
    """One trace, or one compilation by XLA, after the first."""

    call: int  # the call that caused it, from 1
    by_xla: bool  # compiled again for a new shape, without a trace
    changes: List[str]  # what changed against the nearest call before; empty when no argument did

    def __str__(self) -> str:
        why = ", ".join(self.changes) or "the arguments did not change: a device scope, a strategy or a variable did"
        return f"XLA compiled again without a trace: {why}" if self.by_xla else why


class Compiled:
    """A tf.function that counts its traces and the signatures it was called with. It is called like the function."""

    def __init__(self, function: Any, allowed: Optional[int] = None, action: str = "warn") -> None:
        if action not in ("warn", "raise"):
            raise ValueError(f'action is "warn" or "raise", not {action!r}')
        self.function = function
        self.python_function: Callable[..., Any] = function.python_function
        self.name: str = getattr(self.python_function, "__name__", "function")
        self.allowed = allowed
        self.action = action
        self.by_xla = bool(getattr(function, "_jit_compile", None) or getattr(function, "_experimental_compile", None))
        self.calls = 0
        self.retraces: List[Retrace] = []
        self.signatures: List[Signature] = []  # every distinct one so far, in order
        self._keys: Dict[Any, None] = {}
        self._lock = threading.Lock()
        self._bound: Any = weakref.WeakKeyDictionary()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        key = _key(arguments, options)
        is_new = key not in self._keys
        met = signature(self.python_function, *arguments, **options) if is_new else {}
        if is_new:
            self._refuse_misfit(met)
        before = self.traces
        result = self.function(*arguments, **options)
        if is_new or self.traces != before:
            with self._lock:
                self._record(key, met, before)
        return result

    def trace(self, *arguments: Any, **options: Any) -> None:
        """Trace for these arguments if they are new, without TensorFlow's warning about retracing."""
        if _key(arguments, options) not in self._keys:
            self.function.get_concrete_function(*arguments, **options)

    def __get__(self, instance: Any, owner: Any = None) -> "Compiled":
        """As a method: each instance has its own function and counts."""
        if instance is None:
            return self
        if instance not in self._bound:
            self._bound[instance] = Compiled(self.function.__get__(instance, owner), self.allowed, self.action)
        bound: Compiled = self._bound[instance]
        return bound

    def __getattr__(self, name: str) -> Any:
        if name == "function":  # not set yet, while copying or unpickling
            raise AttributeError(name)
        return getattr(self.function, name)

    @property
    def traces(self) -> int:
        """The number of times that the Python function was traced into a graph."""
        return trace_count(self.function)

    @property
    def shapes_met(self) -> int:
        """The number of distinct signatures that the function was called with."""
        return len(self.signatures)

    @property
    def compilations(self) -> int:
        """The number of compilations: with XLA one for each new shape, otherwise one for each trace."""
        return max(self.traces, self.shapes_met) if self.by_xla else self.traces

    def report(self) -> str:
        """The counts and the reason of the latest retrace, in one line."""
        counts = [_times(self.calls, "call"), _times(self.traces, "trace"), f"{_times(self.shapes_met, 'shape')} met"]
        if self.by_xla:
            counts.append(f"compiled by XLA {_times(self.compilations, 'time')}")
        last = f"; last: {self.retraces[-1]}" if self.retraces else ""
        return f"{self.name}: {', '.join(counts)}{last}"

    def _refuse_misfit(self, met: Signature) -> None:
        specs = getattr(self.function, "input_signature", None)
        problems = mismatches(specs, met) if specs is not None else []
        if problems:
            raise SignatureError(f"{self.name}: {'; '.join(problems)}")

    def _record(self, key: Any, met: Signature, traces_before: int) -> None:
        traced = self.traces > traces_before
        recompiled = self.by_xla and not traced and key not in self._keys
        is_first = not self.signatures
        changes = explain(self.signatures, met) if key not in self._keys else []
        if key not in self._keys:
            self._keys[key] = None
            self.signatures.append(met)
        if is_first or not (traced or recompiled):
            return
        self.retraces.append(Retrace(self.calls, recompiled, changes))
        if self.allowed is not None and self.compilations > self.allowed:
            message = (
                f"tf.function RETRACING detected at call {self.calls} (total retraces: {len(self.retraces)}): "
                f"{self.name}: {self.retraces[-1]}"
            )
            if self.action == "raise":
                raise RetraceError(message)
            warnings.warn(message, RetraceWarning, stacklevel=3)


def compiled(
    function: Optional[Callable[..., Any]] = None,
    *,
    input_signature: Optional[Sequence[Any]] = None,
    jit_compile: Optional[bool] = None,
    reduce_retracing: bool = False,
    autograph: bool = True,
    allowed: Optional[int] = None,
    action: str = "warn",
) -> Any:
    """tf.function with the same arguments on every release, counted; `allowed` limits its traces. Also a decorator.

    `jit_compile` and `reduce_retracing` are passed under the names that the installed TensorFlow knows. Code without
    Python `if` or `while` on tensors traces faster with `autograph=False`.
    """
    if function is None:
        return lambda function: compiled(
            function,
            input_signature=input_signature,
            jit_compile=jit_compile,
            reduce_retracing=reduce_retracing,
            autograph=autograph,
            allowed=allowed,
            action=action,
        )
    options: Dict[str, Any] = {"autograph": autograph}
    if input_signature is not None:
        options["input_signature"] = input_signature
    if jit_compile is not None:
        options[OFFERED.jit_compile.value] = jit_compile
    if reduce_retracing:
        options[OFFERED.reduce_retracing.value] = True
    return Compiled(tf.function(function, **options), allowed, action)


def watch(function: Any, allowed: int = 1, action: str = "warn") -> Compiled:
    """Count an existing tf.function, and warn or raise when it is traced more often than `allowed`."""
    if isinstance(function, Compiled):
        function = function.function
    if not hasattr(function, "python_function"):
        raise TypeError(f"watch takes what tf.function returns, not {type(function).__name__}; use compiled instead")
    return Compiled(function, allowed, action)


def trace_count(function: Any) -> int:
    """The number of traces of a tf.function or a `Compiled`."""
    function = function.function if isinstance(function, Compiled) else function
    count: int = getattr(function, OFFERED.trace_count.value)()
    return count


def _key(arguments: Any, options: Any) -> Any:
    """A hashable key of a signature, without argument names; fast, because it is computed at every call."""
    return tuple(map(describe, tf.nest.flatten((arguments, options)))), len(arguments), tuple(sorted(options))


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

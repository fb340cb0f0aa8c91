"""What a function of NumPy arrays does, in the vocabulary that engines share.

The function is called with `RecordedArray` in place of arrays. NumPy hands its functions and
operators over to these (NEP 13 and NEP 18), and so do the functions of `scipy.special`. Each
computes what NumPy computes, and adds an operation to the program. What hands the numbers out
(`float(x)`, `np.asarray(x)`) is an opaque operation, since nobody sees what becomes of them.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adjudge.engine import numpy_functions
from adjudge.engine.numpy_functions import (
    COMPOSED,
    FOLDS,
    FORMULAS,
    MOVING,
    SCIPY,
    SHAPED,
    UFUNCS,
    WRITING,
    Recorded,
    accumulated,
    leaves_of,
    mapped,
    outer,
    recorded_in,
    values_of,
)
from adjudge.engine.program import Array, HostArray, Program, ProgramBuilder, Readable
from adjudge.engine.trace import INPUT, UNKNOWN, Ref, place_of
from adjudge.errors import Catching, NotSupportedError

REMEDY = "write it with functions of NumPy on its arguments, or leave out reference="
HERE = frozenset({__file__, numpy_functions.__file__})
NUMPY = str(Path(np.__file__).parent)

METHODS = frozenset(
    {"reshape", "ravel", "transpose", "swapaxes", "squeeze", "repeat", "diagonal", "take", "sum"}
    | {"prod", "max", "min", "any", "all", "mean", "var", "std", "cumsum", "cumprod", "dot"}
    | {"clip", "trace", "conj", "conjugate", "copy", "argmax", "argmin", "round"}
)
"""The methods of arrays that are functions of NumPy."""


class Recording:
    """Writes the program of a function of NumPy arrays."""

    def __init__(self, x: Sequence[HostArray], arrays: Readable) -> None:
        """The arrays `x` are the inputs."""
        self.builder = ProgramBuilder(arrays, x)
        self.inputs = [RecordedArray(self, one, Ref(INPUT, k)) for k, one in enumerate(x)]
        self.lost: list[Ref] = []
        """What was handed out as numbers."""
        self.lost_at = UNKNOWN
        """Where the first of it was handed out."""

    @property
    def about(self) -> dict[str, Any]:
        """The line of the user that runs."""

        def frames() -> Iterator[tuple[str, int]]:
            frame = sys._getframe(2)
            while frame is not None:
                if frame.f_code.co_filename not in HERE:
                    yield frame.f_code.co_filename, frame.f_lineno
                frame = frame.f_back  # type: ignore[assignment]

        return {"place": place_of(frames(), NUMPY)}

    def emit(self, name: str, operands: Sequence[Any], results: Any, **params: Any) -> Any:
        """Adds an operation, and returns recorded arrays for its results."""
        booleans = name in ("where", "any", "all") or name.startswith("logical")
        given = []
        for one in operands:
            if isinstance(one, RecordedArray):
                known = one.operand
                if one.dtype.kind == "b" and not booleans and isinstance(known, Ref):
                    known = self.builder.rely(known)
                given.append(known)
            else:
                given.append(np.asarray(one))
        found = self.builder.emit(name, given, results, **self.about, **params)
        return self.results(results, found)

    def results(self, values: Any, found: Any) -> Any:
        """Returns recorded arrays of these values, for what stands for them in the program."""
        if not isinstance(values, list | tuple):
            return RecordedArray(self, np.asarray(values), found)
        return tuple([
            RecordedArray(self, np.asarray(value), one)
            for value, one in zip(values, found, strict=True)
        ])  # fmt: skip

    def opaque(self, name: str, given: Any, values: Any, why: str) -> Any:
        """Adds a step without a translation."""
        operands = [one.operand for one in recorded_in(given)]
        several = isinstance(values, list | tuple)
        results = [np.asarray(one) for one in (values if several else [values])]
        found = self.builder.opaque(operands, results, **self.about, step=name, why=why)
        made = self.results(results, found)
        return made if several else made[0]

    def moved(
        self, run: Callable[..., Any], values: Any, args: Any, kwargs: Any, fill: float = 0.0
    ) -> Any:
        """Adds a function that only moves entries, and fills in a number; `values` are its
        results.
        """
        arrays, count = list[Any](), 1

        def numbered(one: Any) -> Any:
            nonlocal count
            if not isinstance(one, RecordedArray | np.ndarray) or (
                isinstance(one, np.ndarray) and one.dtype.kind in "iub"
            ):
                return one
            arrays.append(one)
            count += one.size
            return np.arange(count - one.size, count).reshape(one.shape)

        chosen = run(*mapped(args, numbered), **mapped(kwargs, numbered))
        several = isinstance(values, list | tuple)
        made = [
            self.emit("take", arrays, value, indices=np.asarray(which) - 1, fill=fill)
            for value, which in zip(
                values if several else [values], chosen if several else [chosen], strict=True
            )
        ]
        return type(values)(made) if several else made[0]

    def finished(self, outputs: Sequence[Any]) -> Program:
        """Returns the program."""
        found = [one.operand if isinstance(one, RecordedArray) else one for one in outputs]
        if self.lost:
            values = [one.values if isinstance(one, RecordedArray) else one for one in outputs]
            why = "the function computes with numbers of an array (float, numpy.asarray)"
            found = self.builder.opaque(
                [*found, *self.lost], values, self.lost_at, "numbers of an array", why
            )
        return self.builder.finished(found)


class RecordedArray(Recorded, NDArrayOperatorsMixin):
    """An array of NumPy that says what is done with it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recording: Recording, values: HostArray, operand: Any) -> None:
        """`operand` stands for the `values` in the program."""
        self.recording, self._values, self._operand = recording, values, operand
        self._viewed: tuple[RecordedArray, Any] | None = None
        """The array of which this one is a view, and its place there."""
        self._written = self._seen = 0
        """How often this array was written into, and the one that it is a view of, when it was read
        from there."""

    @property
    def values(self) -> HostArray:  # type: ignore[override]
        """The numbers."""
        self._refresh()
        return self._values

    @property
    def operand(self) -> Any:
        """What stands for the values in the program."""
        self._refresh()
        return self._operand

    def _refresh(self) -> None:
        """Reads a view again, where the array was written into of which it is one."""
        if self._viewed is not None:
            whole, place = self._viewed
            whole._refresh()
            if whole._written != self._seen:
                self._seen = whole._written
                again = whole[place]
                self._values, self._operand = again.values, again.operand
                self._written += 1

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))  # noqa: N815 its name in NumPy

    @property
    def real(self) -> Any:
        """The real part."""
        return self.recording.emit("real", [self], self.values.real)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return self.recording.emit("imag", [self], self.values.imag)

    def __getattr__(self, name: str) -> Any:
        """Returns the function of NumPy of the name of a method."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in METHODS:
            raise NotSupportedError(f"recording what {name!r} of an array does", REMEDY)
        return _Method(self, getattr(np, name))

    def astype(self, dtype: Any, **_: Any) -> Any:
        """Returns the array in another dtype: rounding is the identity, integers are truncated."""
        values = self.values.astype(dtype)
        kinds = self.dtype.kind + values.dtype.kind
        if kinds in ("ff", "cc"):
            return self.recording.emit("astype", [self], values)
        if kinds == "fc":
            return self.recording.emit("complex", [self, 0.0], values)
        return self.recording.opaque("astype", self, values, f"from {self.dtype} to {values.dtype}")

    def flatten(self) -> Any:
        """Returns the array in one dimension."""
        return np.ravel(self)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        chosen = self._plain(key)
        found = self.recording.moved(lambda x: x[chosen], self.values[chosen], (self,), {})
        if isinstance(self.values[chosen], np.ndarray) and _is_basic(chosen):
            found._viewed, found._seen = (self, chosen), self._written
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes entries: from here on the array is another value of the program."""
        chosen = self._plain(key)
        values, before = self.values.copy(), self.recording.results(self.values, self.operand)
        given = _whole(value, self.dtype)
        values[chosen] = values_of(given)

        def written(x: Any, given: Any) -> Any:
            x[chosen] = given
            return x

        self._become(self.recording.moved(written, values, (before, given), {}))

    def _become(self, after: RecordedArray) -> None:
        """Takes other values, and writes them into what this array is a view of."""
        self._values, self._operand = after.values.astype(self.dtype), after.operand
        self._written += 1
        if self._viewed is not None:
            whole, place = self._viewed
            whole[place] = RecordedArray(self.recording, self._values, self._operand)
            self._seen = whole._written

    def _plain(self, key: Any) -> Any:
        """Returns an index whose recorded integers and booleans are relied on."""

        def plain(one: Any) -> Any:
            if not isinstance(one, RecordedArray):
                return one
            return self.recording.builder.rely(one.operand)

        return tuple(map(plain, key)) if isinstance(key, tuple) else plain(key)

    # ---------------------------------------------------------------- what hands numbers out

    def __array__(self, dtype: Any = None, copy: Any = None) -> HostArray:
        self._lose()
        return np.array(self.values, dtype)

    def __bool__(self) -> bool:
        if self.dtype.kind in "biu" and isinstance(self.operand, Ref):
            return bool(self.recording.builder.rely(self.operand))
        self._lose()
        return bool(self.values)

    def __float__(self) -> float:
        self._lose()
        return float(self.values)

    def __int__(self) -> int:
        self._lose()
        return int(self.values)

    def __index__(self) -> int:
        return int(self.recording.builder.rely(self.operand))

    def item(self, *args: Any) -> Any:
        """Returns a number."""
        self._lose()
        return self.values.item(*args)

    def tolist(self) -> Any:
        """Returns the numbers."""
        self._lose()
        return self.values.tolist()

    def _lose(self) -> None:
        if isinstance(self.operand, Ref):
            if not self.recording.lost:
                self.recording.lost_at = self.recording.about["place"]
            self.recording.lost.append(self.operand)

    # ---------------------------------------------------------------- what NumPy asks

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **kwargs: Any) -> Any:
        """Runs a ufunc, and records it."""
        if method == "at":
            return self._at(ufunc, *given)
        if method == "reduce" and ufunc.__name__ in FOLDS:
            kwargs = {"axis": 0} | {k: v for k, v in kwargs.items() if v is not None}
            return getattr(np, FOLDS[ufunc.__name__])(*given, **kwargs)
        out = kwargs.pop("out", None)
        name = ufunc.__name__
        composed: Any = NotImplemented
        if method in ("accumulate", "outer"):
            composed = _tried(
                accumulated if method == "accumulate" else outer, ufunc, *given, **kwargs
            )
        elif method == "__call__" and name in COMPOSED:
            composed = _tried(COMPOSED[name], *given, **kwargs)
        if composed is not NotImplemented:
            return composed if isinstance(composed, tuple) else self._into(out, composed)
        values = _run(getattr(ufunc, method), given, kwargs)
        known = UFUNCS.get(name)
        if method == "__call__" and known is not None and not kwargs:
            integers = np.result_type(*map(values_of, given)).kind in "iu"
            if not (known.startswith("logical") and integers):
                return self._into(out, self.recording.emit(known, given, values))
        if method != "__call__" or isinstance(values, tuple):
            out = None
        words = f"numpy.{name}"
        found = self.recording.opaque(words, (given, kwargs), values, "it has no translation")
        return self._into(out, found)

    @staticmethod
    def _at(ufunc: Any, target: Any, chosen: Any, value: Any = None) -> None:
        """Writes what `ufunc.at` does into a recorded array."""
        if not isinstance(target, RecordedArray):
            raise NotSupportedError("recording a ufunc that writes into another array", REMEDY)
        places = np.arange(target.size).reshape(target.shape)[target._plain(chosen)]
        others = () if value is None else (value,)
        if np.unique(places).size == places.size:
            target[chosen] = ufunc(target[chosen], *others)
        elif ufunc in (np.add, np.subtract):
            whole = np.broadcast_to(value, places.shape)
            values = np.zeros(target.shape)
            np.add.at(values.reshape(-1), places, values_of(whole))
            total = target.recording.emit(
                "segment_sum", [whole], values, segments=places, shape=target.shape
            )
            target[...] = ufunc(target, total)
        else:
            raise NotSupportedError(f"recording {ufunc.__name__}.at of repeated indices", REMEDY)

    @staticmethod
    def _into(out: Any, found: Any) -> Any:
        """Returns the result of a ufunc, which may have been written into an array."""
        if out is None:
            return found
        (target,) = out
        if not isinstance(target, RecordedArray) or target.shape != found.shape:
            raise NotSupportedError("recording a ufunc that writes into another array", REMEDY)
        target._become(found)
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs a function of NumPy, and records it."""
        name, recording = function.__name__, self.recording
        if function.__module__.startswith("numpy"):
            if name in SHAPED:
                return function(*mapped(args, values_of), **mapped(kwargs, values_of))
            if name in FORMULAS:
                found = _tried(FORMULAS[name], *args, **kwargs)
                if found is not NotImplemented:
                    return found
            if name in WRITING:
                return self._write(function, *args, **kwargs)
        values = _run(function, args, kwargs)
        if name in MOVING:
            return recording.moved(function, values, args, kwargs)
        return recording.opaque(f"numpy.{name}", (args, kwargs), values, "it has no translation")

    @staticmethod
    def _write(function: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        """Calls a function that writes into its first argument."""
        place = WRITING[function.__name__]
        if not isinstance(target, RecordedArray) or len(args) <= place:
            raise NotSupportedError("recording a function that writes into another array", REMEDY)
        data = _whole(args[place], target.dtype)
        args = tuple([data if k == place else target._plain(one) for k, one in enumerate(args)])
        before = RecordedArray(target.recording, target.values, target.operand)
        values = target.values.copy()
        function(values, *mapped(args, values_of), **kwargs)

        def written(x: Any, *args: Any, **kwargs: Any) -> Any:
            function(x, *args, **kwargs)
            return x

        target._become(target.recording.moved(written, values, (before, *args), kwargs))

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        """Sorts the entries in place."""
        self[...] = np.sort(self, axis=axis)

    def fill(self, value: Any) -> None:
        """Writes a number into all entries."""
        self[...] = value

    def argsort(self, axis: Any = -1, kind: Any = None) -> Any:
        """Returns the order of the entries, which the replay has to find again."""
        return np.argsort(self, axis=axis)


def _tried(formula: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a formula gives, or `NotImplemented` where it does not take these arguments."""
    try:
        inspect.signature(formula).bind(*args, **kwargs)
    except TypeError:
        return NotImplemented
    return formula(*args, **kwargs)


def _run(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns what a function gives for the numbers of its arguments.

    Raises `NotSupportedError` where it writes into one of them. What it writes would not be in the
    program, and a right derivative would be said to be wrong.
    """
    plain = mapped((tuple(args), kwargs), values_of)
    given = mapped(plain, lambda one: one.copy() if isinstance(one, np.ndarray) else one)
    values = function(*given[0], **given[1])
    pairs = [
        np.array_equal(one, two, equal_nan=one.dtype.kind in "fc")
        for one, two in zip(leaves_of(plain), leaves_of(given), strict=True)
        if isinstance(one, np.ndarray) and one.dtype.kind in "biufc"
    ]
    if not all(pairs):
        name = getattr(function, "__name__", "a function")
        raise NotSupportedError(f"recording {name}, which writes into its arguments", REMEDY)
    return values


def _is_basic(key: Any) -> bool:
    """Returns whether an index makes a view."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(one is None or one is ... or isinstance(one, int | slice) for one in parts)


class _Method:
    def __init__(self, array: RecordedArray, function: Callable[..., Any]) -> None:
        self.array, self.function = array, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function in (np.reshape, np.transpose) and len(args) > 1:
            args = (args,)
        return self.function(self.array, *args, **kwargs)


def recorded(
    call: Callable[[Callable[..., Any]], Sequence[Array]],
    function: Callable[..., Any],
    x: Sequence[HostArray],
    arrays: Readable,
    *,
    again: bool = True,
) -> Program:
    """Returns what a function of NumPy arrays does at x.

    A function that fills an array of its own (`out = np.zeros(3)`, `np.array([a, b])`) is called
    once more with such arrays recorded, too.

    Args:
        call: Calls what it is given with the arrays `x` themselves in their places, and returns
            the outputs.
        function: The function.
        x: The inputs.
        arrays: What reads arrays.
        again: Whether the function may be called once more so. Compiled code that asks NumPy for a
            new array and takes it for one, as `numpy.random` does, ends the process then.

    Raises `NotSupportedError` where the function does something else with arrays that are recorded,
    or where it does not see them.
    """
    program, lost = None, True
    with Catching(NotSupportedError) as caught:
        program, lost = _recorded(call, function, x, arrays, made=False)
    if lost and again:
        with Catching(NotSupportedError) as refused:
            other, lost = _recorded(call, function, x, arrays, made=True)
        if refused.error is None and (not lost or program is None):
            return other
    if program is None:
        assert caught.error is not None
        raise caught.error
    return program


def _recorded(
    call: Callable[[Callable[..., Any]], Sequence[Array]],
    function: Callable[..., Any],
    x: Sequence[HostArray],
    arrays: Readable,
    *,
    made: bool,
) -> tuple[Program, bool]:
    """Returns the program, and whether numbers were handed out. With `made` the arrays that the
    function makes are recorded as well.
    """
    recording, seen = Recording(x, arrays), set[int]()
    by_array = {id(one): k for k, one in enumerate(x)}
    returned: dict[int, tuple[Any, RecordedArray]] = {}

    def replaced(one: Any) -> Any:
        k = by_array.get(id(one))
        if k is None:
            return one
        seen.add(k)
        return recording.inputs[k]

    def plain(one: Any) -> Any:
        if not isinstance(one, RecordedArray):
            return one
        values = one.values.copy()
        returned[id(values)] = values, one
        return values

    def watched(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            others = stack.enter_context(_creating(recording)) if made else {}
            run = next((other for one, other in others.items() if one is function), function)
            result = run(*mapped(args, replaced), **mapped(kwargs, replaced))
        return mapped(result, plain)

    with Catching(NotSupportedError) as caught:
        outputs = call(watched)
    if isinstance(caught.error, NotSupportedError):
        raise caught.error
    usual = call(function)
    if caught.error is not None or len(seen) < len(x) or not _alike(outputs, usual, arrays):
        why = "" if caught.error is None else f": {caught.error}"
        raise NotSupportedError(
            f"recording a function that does something else with arrays of another class{why}",
            REMEDY,
        ) from caught.error
    found = recording.finished([returned.get(id(one), (None, one))[1] for one in outputs])
    return found, bool(recording.lost)


PACKAGES = ("numpy", "scipy", "adjudge")
"""The packages whose own arrays stay as they are."""

CREATORS = (
    *("zeros", "ones", "empty", "full", "eye", "identity", "arange", "linspace", "array"),
    *("asarray", "asanyarray", "ascontiguousarray", "zeros_like", "ones_like", "empty_like"),
    "full_like",
)
"""The functions of NumPy that make arrays."""

_CREATION = threading.RLock()


@contextmanager
def _creating(recording: Recording) -> Iterator[Mapping[Any, Callable[..., Any]]]:
    """Functions of NumPy that make arrays give recorded ones, and those of SciPy that NumPy does
    not hand over take them, in this thread. NumPy and SciPy themselves get arrays as ever, since
    their compiled code takes no others. What is not written into a recorded array is a constant.

    Yields what stands for the functions of SciPy.
    """
    thread = threading.get_ident()

    def creator(name: str, make: Any) -> Callable[..., Any]:
        def create(*args: Any, **kwargs: Any) -> Any:
            asked_by = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            if threading.get_ident() != thread or asked_by in PACKAGES:
                return make(*args, **kwargs)
            if recorded_in((args, kwargs)):
                together = len(args) == 1 and name in ("array", "asarray", "asanyarray")
                return _put_together(*args, **kwargs) if together else make(*args, **kwargs)
            values = make(*args, **kwargs)
            return RecordedArray(recording, values, values) if values.dtype.kind in "fc" else values

        return create

    def with_formula(usual: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found: Any = NotImplemented
            if threading.get_ident() == thread and recorded_in((args, kwargs)):
                found = _tried(formula, *args, **kwargs)
            return usual(*args, **kwargs) if found is NotImplemented else found

        return call

    with _CREATION:
        usual: dict[tuple[Any, str], Any] = {(np, name): getattr(np, name) for name in CREATORS}
        others = {key: creator(key[1], make) for key, make in usual.items()}
        for package, formulas in SCIPY.items():
            module = sys.modules.get(package)
            for name, formula in formulas.items() if module else ():
                usual[module, name] = getattr(module, name)
                others[module, name] = with_formula(usual[module, name], formula)
        try:
            for (where, name), other in others.items():
                setattr(where, name, other)
            yield {usual[key]: others[key] for key in others if key[0] is not np}
        finally:
            for (where, name), one in usual.items():
                setattr(where, name, one)


def _whole(data: Any, dtype: Any) -> Any:
    """Returns numbers that are written into an array as one array."""
    return _put_together(data) if recorded_in(data) else np.asarray(data, dtype)


def _put_together(parts: Any, dtype: Any = None) -> Any:
    """Returns nested lists of numbers and recorded arrays as one array."""
    whole: Any = parts if isinstance(parts, Recorded) else np.stack([
        _put_together(one) if isinstance(one, list | tuple | Recorded) else np.float64(one)
        for one in parts
    ])  # fmt: skip
    return np.copy(whole) if dtype is None else whole.astype(dtype)


def _alike(one: Sequence[Any], two: Sequence[Any], arrays: Readable) -> bool:
    """Returns whether these outputs are equal to rounding: `mean` may be summed up otherwise."""
    for a, b in zip(one, two, strict=True):
        part = math.sqrt(arrays.eps(b))
        if not np.allclose(a, b, part, part * np.max(np.abs(b), initial=0.0), equal_nan=True):
            return False
    return True

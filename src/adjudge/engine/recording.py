"""What a function of NumPy arrays does, in the vocabulary that engines share.

The function is called with `RecordedArray` in place of arrays. NumPy hands its functions and
operators over to these (NEP 13 and NEP 18), and so do the functions of `scipy.special`. Each
computes what NumPy computes, and adds an operation to the program. What hands the numbers out
(`float(x)`, `np.asarray(x)`) is an opaque operation, since nobody sees what becomes of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adjudge.engine.program import Array, HostArray, Program, ProgramBuilder, Readable
from adjudge.engine.trace import INPUT, UNKNOWN, Ref, place_of
from adjudge.errors import Catching, NotSupportedError

REMEDY = "write it with functions of NumPy on its arguments, or leave out reference="
HERE = __file__
NUMPY = str(Path(np.__file__).parent)

UFUNCS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("add", "subtract", "multiply", "divide", "negative", "reciprocal", "square", "sqrt"),
            *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "logaddexp", "sin", "cos"),
            *("tan", "sinh", "cosh", "tanh", "hypot", "sign", "copysign", "maximum", "minimum"),
            *("floor", "ceil", "trunc", "remainder", "fmod", "cbrt", "matmul", "equal", "less"),
            *("not_equal", "less_equal", "greater", "greater_equal", "isfinite", "isnan"),
            *("logical_and", "logical_or", "logical_xor", "logical_not", "expit", "xlogy"),
            *("xlog1py", "erf", "erfc", "erfcx", "erfinv", "ndtr", "log_ndtr", "ndtri", "gammaln"),
            *("gammainc", "gammaincc", "betainc", "i0", "i1", "i0e", "i1e", "j0", "j1", "y0"),
            *("y1", "k0", "k1", "k0e", "k1e"),
        )
    },
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "power": "pow",
    "float_power": "pow",
    "absolute": "abs",
    "fabs": "abs",
    "rint": "round",
    "psi": "digamma",
    "conjugate": "conj",
    "fmax": "maximum",
    "fmin": "minimum",
    "positive": "astype",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}
"""The operations of the vocabulary by the names of the ufuncs of NumPy and SciPy."""

MOVING = frozenset(
    {"reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims"}
    | {"concatenate", "stack", "vstack", "hstack", "dstack", "column_stack", "broadcast_to"}
    | {"tile", "repeat", "roll", "flip", "fliplr", "flipud", "rot90", "diagonal", "take", "split"}
    | {"take_along_axis", "array_split", "hsplit", "vsplit", "atleast_1d", "atleast_2d", "triu"}
    | {"tril", "diag", "diagflat", "matrix_transpose", "copy", "permute_dims", "concat"}
)
"""The functions that only move, choose and repeat entries, and add zeros: they are run on the
numbers of the entries."""

REDUCED = {
    **{name: name for name in ("sum", "prod", "max", "min", "any", "all")},
    "amax": "max",
    "amin": "min",
}

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
                if frame.f_code.co_filename != HERE:
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
        operands = [one.operand for one in _recorded_in(given)]
        several = isinstance(values, list | tuple)
        results = [np.asarray(one) for one in (values if several else [values])]
        found = self.builder.opaque(operands, results, **self.about, step=name, why=why)
        made = self.results(results, found)
        return made if several else made[0]

    def moved(self, run: Callable[..., Any], values: Any, args: Any, kwargs: Any) -> Any:
        """Adds a function that only moves entries; `values` are its results."""
        operands = _recorded_in((args, kwargs))
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

        chosen = run(*_mapped(args, numbered), **_mapped(kwargs, numbered))
        several = isinstance(values, list | tuple)
        made = [
            self.emit("take", arrays, value, indices=np.asarray(which) - 1, fill=0.0)
            for value, which in zip(
                values if several else [values], chosen if several else [chosen], strict=True
            )
        ]
        assert operands  # else NumPy would not ask
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


class RecordedArray(NDArrayOperatorsMixin):
    """An array of NumPy that says what is done with it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recording: Recording, values: HostArray, operand: Any) -> None:
        """`operand` stands for the `values` in the program."""
        self.recording, self.values, self.operand = recording, values, operand

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
        return self.recording.moved(lambda x: x[chosen], self.values[chosen], (self,), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes entries: from here on the array is another value of the program."""
        chosen = self._plain(key)
        values, before = self.values.copy(), self.recording.results(self.values, self.operand)
        values[chosen] = value.values if isinstance(value, RecordedArray) else value

        def written(x: Any, given: Any) -> Any:
            x[chosen] = given
            return x

        given = value if isinstance(value, RecordedArray) else np.asarray(value, self.dtype)
        after = self.recording.moved(written, values, (before, given), {})
        self.values, self.operand = after.values, after.operand

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
        if method == "reduce" and ufunc.__name__ in _FOLDS:
            kwargs = {"axis": 0} | {k: v for k, v in kwargs.items() if v is not None}
            return getattr(np, _FOLDS[ufunc.__name__])(*given, **kwargs)
        out = kwargs.pop("out", None)
        values = getattr(ufunc, method)(*map(_values, given), **_mapped(kwargs, _values))
        name = UFUNCS.get(ufunc.__name__)
        if method == "__call__" and name is not None and not kwargs:
            integers = np.result_type(*map(_values, given)).kind in "iu"
            known = name if not (name.startswith("logical") and integers) else None
            if known is not None:
                return self._into(out, self.recording.emit(known, given, values))
        if ufunc.__name__ == "divmod" or method != "__call__" or isinstance(values, tuple):
            out = None
        words = f"numpy.{ufunc.__name__}"
        found = self.recording.opaque(words, (given, kwargs), values, "it has no translation")
        return self._into(out, found)

    @staticmethod
    def _into(out: Any, found: RecordedArray) -> Any:
        """Returns the result of a ufunc, which may have been written into a recorded array."""
        if out is None:
            return found
        (target,) = out
        if not isinstance(target, RecordedArray) or target.shape != found.shape:
            raise NotSupportedError("recording a ufunc that writes into another array", REMEDY)
        target.values, target.operand = found.values.astype(target.dtype), found.operand
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs a function of NumPy, and records it."""
        name, recording = function.__name__, self.recording
        if name in FORMULAS and function.__module__.startswith("numpy"):
            found = FORMULAS[name](*args, **kwargs)
            if found is not NotImplemented:
                return found
        values = function(*_mapped(args, _values), **_mapped(kwargs, _values))
        if name in MOVING:
            return recording.moved(function, values, args, kwargs)
        return recording.opaque(f"numpy.{name}", (args, kwargs), values, "it has no translation")


class _Method:
    def __init__(self, array: RecordedArray, function: Callable[..., Any]) -> None:
        self.array, self.function = array, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function in (np.reshape, np.transpose) and len(args) > 1:
            args = (args,)
        return self.function(self.array, *args, **kwargs)


def _values(one: Any) -> Any:
    return one.values if isinstance(one, RecordedArray) else one


def _mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Returns arguments with every leaf changed."""
    if isinstance(tree, dict):
        return {key: _mapped(one, change) for key, one in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[_mapped(one, change) for one in tree])
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(one, change) for one in tree])
    return change(tree)


def _recorded_in(tree: Any) -> list[RecordedArray]:
    found: list[RecordedArray] = []
    _mapped(tree, lambda one: found.append(one) if isinstance(one, RecordedArray) else None)
    return found


# ---------------------------------------------------------------- functions


_FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_FOLDS |= {"logical_and": "all", "logical_or": "any"}


def _reduced(name: str) -> Callable[..., Any]:
    def formula(x: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
        values = getattr(np, name)(x.values, axis=axis, keepdims=keepdims)
        axes = (axis,) if isinstance(axis, int | np.integer) else axis
        return x.recording.emit(name, [x], values, axis=axes, keepdims=bool(keepdims))

    return formula


def _cumulative(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def formula(x: Any, axis: Any = None) -> Any:
        x, axis = (np.ravel(x), 0) if axis is None else (x, int(axis))
        return x.recording.emit(name, [x], function(x.values, axis), axis=axis)

    return formula


def _extreme_index(name: str) -> Callable[..., Any]:
    def formula(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        if axis is None:
            x, axis = np.ravel(x), 0
        values = getattr(np, name)(x.values, axis=axis, keepdims=keepdims)
        return x.recording.emit(name, [x], values, axis=int(axis), keepdims=keepdims)

    return formula


def _sort(x: Any, axis: Any = -1) -> Any:
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis % x.ndim)
    order = np.argsort(x.values, axis=axis, kind="stable")
    values = np.take_along_axis(x.values, order, axis)
    return x.recording.emit("sort", [x], values, axis=axis, indices=order)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        return NotImplemented
    first = next(_ for _ in _recorded_in((condition, branches)))
    values = np.where(_values(condition), *map(_values, branches))
    return first.recording.emit("where", [condition, *branches], values)


def _mean(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / (x.size / max(1, total.size))


def _variance(x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    off = x - _mean(x, axis, keepdims=True)
    square = off.real**2 + off.imag**2 if x.dtype.kind == "c" else off * off
    total = np.sum(square, axis=axis, keepdims=keepdims)
    return total / (x.size / max(1, total.size) - ddof)


def _clip(x: Any, a_min: Any = None, a_max: Any = None) -> Any:
    x = x if a_min is None else np.maximum(x, a_min)
    return x if a_max is None else np.minimum(x, a_max)


def _dot(a: Any, b: Any) -> Any:
    return (
        a * b
        if np.ndim(_values(a)) == 0 or np.ndim(_values(b)) == 0
        else (np.matmul(a, b) if np.ndim(_values(b)) < 3 else NotImplemented)
    )


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    one, two = np.ndim(_values(a)), np.ndim(_values(b))
    if isinstance(axes, int | np.integer):
        first, second = list(range(one - axes, one)), list(range(axes))
    else:
        first, second = ([ax] if isinstance(ax, int) else list(ax) for ax in axes)
    first, second = [k % one for k in first], [k % two for k in second]
    left = [k for k in range(one) if k not in first]
    right = [k for k in range(two) if k not in second]
    shape = [np.shape(_values(a))[k] for k in left] + [np.shape(_values(b))[k] for k in right]
    count = math.prod(np.shape(_values(a))[k] for k in first)
    a = np.reshape(np.transpose(a, left + first), (-1, count))
    b = np.reshape(np.transpose(b, second + right), (count, -1))
    return np.reshape(np.matmul(a, b), shape)


def _einsum(subscripts: Any, *operands: Any, **options: Any) -> Any:
    if not isinstance(subscripts, str) or "." in subscripts:
        return NotImplemented
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    letters = sorted(set("".join(terms)))
    if any(len(set(term)) < len(term) for term in terms):
        return NotImplemented
    if not arrow:
        output = "".join(one for one in letters if inputs.count(one) == 1)
    order = [*output, *(one for one in letters if one not in output)]
    product: Any = 1.0
    for term, operand in zip(terms, operands, strict=True):
        turned = np.transpose(operand, [term.index(one) for one in order if one in term])
        shape = iter(np.shape(_values(turned)))
        product = product * np.reshape(turned, [next(shape) if o in term else 1 for o in order])
    return np.sum(product, axis=tuple(range(len(output), len(order))))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2, "fro") or (axis is None and x.ndim == 2 and ord == 2):
        return NotImplemented
    square = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
    return np.sqrt(np.sum(square, axis=axis, keepdims=keepdims))


def _solve(a: Any, b: Any) -> Any:
    vector = np.ndim(_values(b)) == 1
    recording = _recorded_in((a, b))[0].recording
    b = np.reshape(b, (-1, 1)) if vector else b
    found = recording.emit("solve", [a, b], np.linalg.solve(_values(a), _values(b)))
    return np.reshape(found, -1) if vector else found


def _of_matrix(name: str) -> Callable[..., Any]:
    def formula(a: Any) -> Any:
        values = getattr(np.linalg, name)(a.values)
        results = list(values) if isinstance(values, tuple) else values
        if name == "cholesky":  # NumPy reads one triangle
            lower = np.tril(a)
            a = lower + np.conj(np.swapaxes(np.tril(a, -1), -1, -2))
        if name == "eigh":
            lower = np.tril(a, -1)
            diagonal = np.eye(a.shape[-1]) * a
            a = lower + np.conj(np.swapaxes(lower, -1, -2)) + diagonal
        found = a.recording.emit(name, [a], results)
        return type(values)(*found) if hasattr(values, "_fields") else found

    return formula


def _fft(inverse: bool) -> Callable[..., Any]:
    def formula(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        if n not in (None, x.shape[axis]) or norm not in (None, "backward"):
            return NotImplemented
        axis = axis % x.ndim
        values = (np.fft.ifft if inverse else np.fft.fft)(x.values, axis=axis)
        count = x.shape[axis]
        scaled = values * count if inverse else values
        found = x.recording.emit("fft", [x], scaled, axis=axis, inverse=inverse)
        return found / count if inverse else found

    return formula


def _filled(name: str) -> Callable[..., Any]:
    def formula(x: Any, *args: Any, **options: Any) -> Any:
        if _recorded_in(args):
            return NotImplemented
        values = getattr(np, name)(x.values, *args, **options)
        return x.recording.results(values, values)  # a constant, into which may be written

    return formula


FORMULAS: Mapping[str, Callable[..., Any]] = {
    **{theirs: _reduced(name) for theirs, name in REDUCED.items()},
    "cumsum": _cumulative("cumulative_sum", np.cumsum),
    "cumprod": _cumulative("cumulative_prod", np.cumprod),
    "argmax": _extreme_index("argmax"),
    "argmin": _extreme_index("argmin"),
    "sort": _sort,
    "where": _where,
    "mean": _mean,
    "var": _variance,
    "std": lambda x, *args, **kwargs: np.sqrt(_variance(x, *args, **kwargs)),
    "clip": _clip,
    "dot": _dot,
    "inner": lambda a, b: NotImplemented if _values(a).ndim > 1 else np.sum(a * b),
    "vdot": lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    "outer": lambda a, b: np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1)),
    "tensordot": _tensordot,
    "einsum": _einsum,
    "trace": lambda x: np.sum(np.diagonal(x), axis=-1),
    "diff": lambda x, n=1, axis=-1: (
        np.moveaxis(np.moveaxis(x, axis, 0)[1:] - np.moveaxis(x, axis, 0)[:-1], 0, axis)
        if n == 1
        else NotImplemented
    ),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "round": lambda x, decimals=0: np.rint(x) if decimals == 0 else NotImplemented,
    "ptp": lambda x, axis=None: np.max(x, axis=axis) - np.min(x, axis=axis),
    **{name: _filled(name) for name in ("zeros_like", "ones_like", "full_like")},
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
    "result_type": lambda *given: np.result_type(*map(_values, given)),
    "norm": _norm,
    "solve": _solve,
    **{name: _of_matrix(name) for name in ("inv", "det", "slogdet", "cholesky", "eigh")},
    "eigvalsh": lambda a: np.linalg.eigh(a)[0],
    "fft": _fft(False),
    "ifft": _fft(True),
}
"""The functions of NumPy that are operations of the vocabulary, or several. One answers
`NotImplemented` for arguments that it does not take; the call is opaque then."""


def recorded(
    call: Callable[[Callable[..., Any]], Sequence[Array]],
    function: Callable[..., Any],
    x: Sequence[HostArray],
    arrays: Readable,
) -> Program:
    """Returns what a function of NumPy arrays does at x.

    Args:
        call: Calls what it is given with the arrays `x` themselves in their places, and returns
            the outputs.
        function: The function.
        x: The inputs.
        arrays: What reads arrays.

    Raises `NotSupportedError` where the function does something else with arrays that are recorded,
    or where it does not see them.
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
        return _mapped(function(*_mapped(args, replaced), **_mapped(kwargs, replaced)), plain)

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
    return recording.finished([returned.get(id(one), (None, one))[1] for one in outputs])


def _alike(one: Sequence[Any], two: Sequence[Any], arrays: Readable) -> bool:
    """Returns whether these outputs are equal to rounding: `mean` may be summed up otherwise."""
    for a, b in zip(one, two, strict=True):
        part = math.sqrt(arrays.eps(b))
        if not np.allclose(a, b, part, part * np.max(np.abs(b), initial=0.0), equal_nan=True):
            return False
    return True

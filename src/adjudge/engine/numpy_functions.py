"""What functions of NumPy and `scipy.special` mean, in the vocabulary that engines share.

Each formula is called with arrays that record what is done with them, and does by operations of the
vocabulary what the function does. It answers `NotImplemented` for arguments that it does not take.
That a formula is right is asked in every run: its values are compared with those of the function.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjudge.engine.program import HostArray


class Recorded:
    """An array that records what is done with it."""

    recording: Any
    values: HostArray
    operand: Any
    """What stands for the values in the program."""


def values_of(one: Any) -> Any:
    """Returns the numbers of a recorded array, and anything else as it is."""
    return one.values if isinstance(one, Recorded) else one


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Returns arguments with every leaf changed."""
    if isinstance(tree, dict):
        return {key: mapped(one, change) for key, one in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[mapped(one, change) for one in tree])
    if isinstance(tree, list | tuple):
        return type(tree)([mapped(one, change) for one in tree])
    return change(tree)


def leaves_of(tree: Any) -> list[Any]:
    """Returns the leaves of arguments."""
    found: list[Any] = []
    mapped(tree, found.append)
    return found


def recorded_in(tree: Any) -> list[Any]:
    """Returns the recorded arrays among arguments."""
    return [one for one in leaves_of(tree) if isinstance(one, Recorded)]


def _shape(one: Any) -> tuple[int, ...]:
    return np.shape(values_of(one))


def _as_array(one: Any) -> Any:
    """Returns an array to index: a recorded one as it is."""
    return one if isinstance(one, Recorded) else np.asarray(one)


# ---------------------------------------------------------------- ufuncs


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


def _gammaln(x: Any) -> Any:
    values = np.vectorize(math.lgamma, otypes=[float])(values_of(x))
    return x.recording.emit("gammaln", [x], values) if isinstance(x, Recorded) else values


def _xlogy(x: Any, y: Any) -> Any:
    first = recorded_in((x, y))[0]
    one, two = np.broadcast_arrays(values_of(x), values_of(y))
    values = np.where(one == 0, 0.0, one * np.log(np.where(one == 0, 1.0, two)))
    return first.recording.emit("xlogy", [x, y], values)


def _gamma(x: Any) -> Any:
    values = values_of(x)
    odd = (values < 0) & (np.floor(values) % 2 != 0)
    return np.where(odd, -1.0, 1.0) * np.exp(_gammaln(x))


def _betaln(a: Any, b: Any) -> Any:
    return _gammaln(a) + _gammaln(b) - _gammaln(a + b)


def _exprel(x: Any) -> Any:
    return NotImplemented if np.any(x.values == 0) else np.expm1(x) / x


def _box_cox(logarithm: Callable[[Any], Any]) -> Callable[..., Any]:
    def formula(x: Any, power: Any) -> Any:
        if not np.all(values_of(power)):
            return NotImplemented
        return np.expm1(power * logarithm(x)) / power

    return formula


def _of_order(names: Sequence[str]) -> Callable[..., Any]:
    """Returns the formula of a Bessel function, which is known for the first orders."""

    def formula(order: Any, x: Any) -> Any:
        if isinstance(order, Recorded) or np.ndim(order) or order not in range(len(names)):
            return NotImplemented
        return getattr(sys.modules["scipy.special"], names[int(order)])(x)

    return formula


def _gammainc(name: str, a: Any, x: Any) -> Any:
    return getattr(sys.modules["scipy.special"], name)(a, x)


def _floor_divide(x: Any, y: Any) -> Any:
    return np.floor(x / y)


COMPOSED: Mapping[str, Callable[..., Any]] = {
    "logaddexp2": lambda x, y: np.log2(np.exp2(x) + np.exp2(y)),
    **dict.fromkeys(("deg2rad", "radians"), lambda x: x * (math.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), lambda x: x * (180 / math.pi)),
    "heaviside": lambda x, at_zero: np.where(
        np.greater(x, 0), 1.0, np.where(np.equal(x, 0), at_zero, 0.0)
    ),
    "floor_divide": _floor_divide,
    "ldexp": lambda x, power: NotImplemented if recorded_in(power) else x * 2.0**power,
    "isinf": lambda x: (
        NotImplemented if np.isnan(x.values).any() else np.logical_not(np.isfinite(x))
    ),
    "divmod": lambda x, y: (_floor_divide(x, y), np.remainder(x, y)),
    "modf": lambda x: (x - np.trunc(x), np.trunc(x)),
    "gamma": _gamma,
    "loggamma": lambda x: (
        NotImplemented if x.dtype.kind == "c" or np.any(x.values <= 0) else _gammaln(x)
    ),
    "betaln": _betaln,
    "beta": lambda a, b: np.exp(_betaln(a, b)),
    "binom": lambda n, k: np.exp(_gammaln(n + 1) - _gammaln(k + 1) - _gammaln(n - k + 1)),
    "logit": lambda x: np.log(x) - np.log1p(-x),
    "log_expit": lambda x: -np.logaddexp(0.0, -x),
    "entr": lambda x: -_xlogy(x, x),
    "rel_entr": lambda x, y: _xlogy(x, x / y),
    "kl_div": lambda x, y: _xlogy(x, x / y) - x + y,
    "exprel": _exprel,
    "huber": lambda delta, r: np.where(
        np.less_equal(np.abs(r), delta), r * r / 2, delta * (np.abs(r) - delta / 2)
    ),
    "pseudo_huber": lambda delta, r: delta * delta * (np.sqrt(1 + (r / delta) ** 2) - 1),
    "boxcox": _box_cox(np.log),
    "boxcox1p": _box_cox(np.log1p),
    "inv_boxcox": lambda y, power: (
        np.exp(np.log1p(power * y) / power) if np.all(values_of(power)) else NotImplemented
    ),
    "cosm1": lambda x: -2 * np.sin(x / 2) ** 2,
    "powm1": lambda x, y: np.expm1(y * np.log(x)),
    "chdtr": lambda v, x: _gammainc("gammainc", v / 2, x / 2),
    "chdtrc": lambda v, x: _gammainc("gammaincc", v / 2, x / 2),
    "gdtr": lambda a, b, x: _gammainc("gammainc", b, a * x),
    "jv": _of_order(("j0", "j1")),
    "yv": _of_order(("y0", "y1")),
    "iv": _of_order(("i0", "i1")),
    "ive": _of_order(("i0e", "i1e")),
    "kv": _of_order(("k0", "k1")),
    "kve": _of_order(("k0e", "k1e")),
}
"""The ufuncs that are made of several operations."""

FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
FOLDS |= {"logical_and": "all", "logical_or": "any"}

CUMULATIVE = {
    "add": "cumulative_sum",
    "multiply": "cumulative_prod",
    "maximum": "cumulative_max",
    "minimum": "cumulative_min",
    "logaddexp": "cumulative_logsumexp",
}


def accumulated(ufunc: Any, x: Any, axis: int = 0) -> Any:
    """Returns what `ufunc.accumulate` does."""
    name = CUMULATIVE.get(ufunc.__name__)
    if name is None:
        return NotImplemented
    return x.recording.emit(name, [x], ufunc.accumulate(x.values, axis), axis=axis % x.ndim)


def outer(ufunc: Any, a: Any, b: Any) -> Any:
    """Returns what `ufunc.outer` does."""
    return ufunc(np.reshape(a, _shape(a) + (1,) * len(_shape(b))), b)


# ---------------------------------------------------------------- functions that move entries


MOVING = frozenset(
    {"reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims"}
    | {"broadcast_to", "broadcast_arrays", "tile", "repeat", "roll", "flip", "fliplr", "flipud"}
    | {"rot90", "diagonal", "take", "split", "take_along_axis", "array_split", "hsplit", "vsplit"}
    | {"dsplit", "unstack", "atleast_1d", "atleast_2d", "atleast_3d", "triu", "tril", "diag"}
    | {"diagflat", "matrix_transpose", "copy", "permute_dims", "meshgrid", "delete", "extract"}
    | {"compress", "resize", "fftshift", "ifftshift"}
)
"""The functions that only move, choose and repeat entries, and add zeros: they are run on the
numbers of the entries."""

JOINING = frozenset(
    {"concatenate", "concat", "stack", "vstack", "hstack", "dstack", "column_stack", "block"}
)
"""Those of these that join arrays, also such of integers, and numbers."""

WRITING = {
    "put": 1,
    "place": 1,
    "putmask": 1,
    "copyto": 0,
    "fill_diagonal": 0,
    "put_along_axis": 1,
}
"""Those of these that write into their first argument: which one of the others they write."""

SHAPED = frozenset(
    {"shape", "ndim", "size", "triu_indices_from", "tril_indices_from", "diag_indices_from"}
    | {"iscomplexobj", "isrealobj", "result_type", "common_type"}
)
"""The functions of which shapes and dtypes alone decide."""

REDUCED = {
    **{name: name for name in ("sum", "prod", "max", "min", "any", "all")},
    "amax": "max",
    "amin": "min",
}


def _joined(name: str) -> Callable[..., Any]:
    def formula(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        first = recorded_in(arrays)[0]
        function = getattr(np, name)
        if isinstance(arrays, Recorded):
            arrays = list(arrays)  # type: ignore[call-overload]
        kind = np.result_type(*[np.asarray(values_of(one)) for one in leaves_of(arrays)])
        if kind.kind not in "fc":
            return NotImplemented
        arrays = mapped(arrays, lambda one: _as_array(one) if _is_inexact(one) else _wide(one))
        values = function(mapped(arrays, values_of), *args, **kwargs)
        return first.recording.moved(function, values, (arrays, *args), kwargs)

    return formula


def _is_inexact(one: Any) -> bool:
    return np.asarray(values_of(one)).dtype.kind in "fc"


def _wide(one: Any) -> Any:
    """Returns integers and booleans as numbers that can stand beside others."""
    return one.astype(float) if isinstance(one, Recorded) else np.asarray(one, float)  # type: ignore[attr-defined]


def _append(x: Any, given: Any, axis: Any = None) -> Any:
    if axis is None:
        x, given, axis = np.ravel(_as_array(x)), np.ravel(_as_array(given)), 0
    return np.concatenate([x, given], axis=axis)


def _insert(x: Any, where: Any, given: Any, axis: Any = None) -> Any:
    first = recorded_in((x, given))[0]
    args = (_as_array(x), where, _as_array(given) if _is_inexact(given) else _wide(given), axis)
    if recorded_in(where):
        return NotImplemented
    return first.recording.moved(np.insert, np.insert(*map(values_of, args)), args, {})


def _pad(x: Any, width: Any, mode: Any = "constant", **options: Any) -> Any:
    fill = options.get("constant_values", 0)
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap") or np.ndim(fill):
        return NotImplemented
    values = np.pad(x.values, width, mode, **options)
    options.pop("constant_values", None)
    return x.recording.moved(np.pad, values, (x, width, mode), options, fill=float(fill))


# ---------------------------------------------------------------- reductions and orders


def _reduced(name: str) -> Callable[..., Any]:
    def formula(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = False) -> Any:
        values = getattr(np, name)(x.values, axis=axis, keepdims=keepdims)
        axes = (axis,) if isinstance(axis, int | np.integer) else axis
        return x.recording.emit(name, [x], values, axis=axes, keepdims=bool(keepdims))

    return formula


def _cumulative(ufunc: Any) -> Callable[..., Any]:
    def formula(x: Any, axis: Any = None) -> Any:
        return accumulated(ufunc, np.ravel(x), 0) if axis is None else accumulated(ufunc, x, axis)

    return formula


def _without_nans(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a formula for the function beside it that passes over NaN, where there is none."""

    def formula(x: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if np.isnan(x.values).any() else function(x, *args, **kwargs)

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


def _holds(condition: Any) -> None:
    """Says that the replay has to find the same of a condition."""
    condition.recording.builder.rely(condition.operand)


def _argsort(x: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis % x.ndim)
    order = np.argsort(x.values, axis=axis, kind="stable")
    ascending: Any = np.moveaxis(np.take_along_axis(x, order, axis), axis, 0)
    if np.any(ascending.values[1:] == ascending.values[:-1]):
        return NotImplemented  # a tie
    if len(order):
        _holds(np.less(ascending[:-1], ascending[1:]))
    return order


def _quantile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if recorded_in(q) or (axis is not None and not isinstance(axis, int | np.integer)):
        return NotImplemented
    count, rank = (x.size if axis is None else x.shape[axis]), x.ndim
    ascending = np.moveaxis(np.sort(x, axis=axis), 0 if axis is None else axis, 0)

    def at(one: float) -> Any:
        place = one * (count - 1)
        low = min(math.floor(place), count - 1)
        high, part = min(low + 1, count - 1), place - low
        return ascending[low] + part * (ascending[high] - ascending[low])

    found = at(float(q)) if np.ndim(q) == 0 else np.stack([at(float(one)) for one in q])
    if not keepdims:
        return found
    ahead = np.ndim(q)
    kept = (
        [1] * rank
        if axis is None
        else [1 if k == axis % rank else n for k, n in enumerate(x.shape)]
    )
    return np.reshape(found, [*_shape(found)[:ahead], *kept])


def _percentile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantile(x, np.true_divide(q, 100), axis, keepdims=keepdims)


def _median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantile(x, 0.5, axis, keepdims=keepdims)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        return NotImplemented
    first = recorded_in((condition, branches))[0]
    values = np.where(values_of(condition), *map(values_of, branches))
    return first.recording.emit("where", [condition, *branches], values)


def _select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    found = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        found = np.where(condition, choice, found)
    return found


def _searchsorted(a: Any, v: Any, side: Any = "left") -> Any:
    """Returns the places of numbers among ascending ones, which the replay has to find again."""
    places = np.searchsorted(values_of(a), values_of(v), side=side)
    bins, count = _as_array(a), len(values_of(a))
    lower, upper = (np.less, np.less_equal) if side == "left" else (np.less_equal, np.less)
    for beside, compare, back in ((places > 0, lower, 1), (places < count, upper, 0)):
        if np.any(beside):
            there, here = bins[places[beside] - back], _as_array(v)[beside]
            _holds(compare(there, here) if compare is lower else compare(here, there))
    return places


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    if np.any(np.diff(values_of(bins)) < 0):
        return NotImplemented
    return _searchsorted(bins, x, "left" if right else "right")


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if recorded_in(x) or weights is None:
        return NotImplemented
    values = np.bincount(x, weights.values, minlength)
    return weights.recording.emit(
        "segment_sum", [weights], values, segments=np.asarray(x), shape=values.shape
    )


def _nonzero(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a formula for what counts booleans, which the replay has to find again."""

    def formula(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.dtype.kind != "b":
            return NotImplemented
        _holds(x)
        return function(x.values, *args, **kwargs)

    return formula


# ---------------------------------------------------------------- statistics and sums


def _mean(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / (x.size / max(1, total.size))


def _average(x: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return np.mean(x, axis=axis)
    if _shape(weights) != _shape(x):
        if not isinstance(axis, int | np.integer) or len(_shape(weights)) != 1:
            return NotImplemented
        weights = np.reshape(
            weights, [-1 if k == axis % len(_shape(x)) else 1 for k in range(len(_shape(x)))]
        )
        weights = np.broadcast_to(weights, _shape(x))
    return np.sum(x * weights, axis=axis) / np.sum(weights, axis=axis)


def _variance(x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    off = x - _mean(x, axis, keepdims=True)
    square = off.real**2 + off.imag**2 if x.dtype.kind == "c" else off * off
    total = np.sum(square, axis=axis, keepdims=keepdims)
    return total / (x.size / max(1, total.size) - ddof)


def _cov(m: Any, *, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    if m.dtype.kind == "c":
        return NotImplemented
    x = np.reshape(m, (1, -1)) if m.ndim == 1 else (m if rowvar else np.transpose(m))
    off = x - np.mean(x, axis=1, keepdims=True)
    less = (0 if bias else 1) if ddof is None else ddof
    found = np.matmul(off, np.transpose(off)) / (x.shape[1] - less)
    return found[0, 0] if found.shape == (1, 1) else found


def _corrcoef(x: Any, *, rowvar: bool = True) -> Any:
    if x.ndim == 1:
        return NotImplemented
    covariance = _cov(x, rowvar=rowvar)
    if covariance is NotImplemented:
        return covariance
    deviation = np.sqrt(np.diagonal(covariance))
    return covariance / deviation[:, None] / deviation


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(_as_array(y), axis, -1)
    if x is None:
        width = dx
    elif len(_shape(x)) == 1:
        width = np.diff(x)
    else:
        width = np.moveaxis(np.diff(x, axis=axis), axis, -1)
    return np.sum(width * (y[..., 1:] + y[..., :-1]) / 2.0, axis=-1)


def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes = range(f.ndim) if axis is None else ((axis,) if isinstance(axis, int) else axis)
    steps = spacing * len(axes) if len(spacing) == 1 else (spacing or (1.0,) * len(axes))
    if edge_order != 1 or any(np.ndim(values_of(step)) for step in steps):
        return NotImplemented
    found = []
    for along, step in zip(axes, steps, strict=True):
        y = np.moveaxis(f, along, 0)
        inside = (y[2:] - y[:-2]) / (2 * step)
        whole = [(y[1:2] - y[:1]) / step, inside, (y[-1:] - y[-2:-1]) / step]
        found.append(np.moveaxis(np.concatenate(whole), 0, along))
    return found[0] if len(found) == 1 else tuple(found)


def _diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in range(n):
        y = np.moveaxis(x, axis, 0)
        x = np.moveaxis(y[1:] - y[:-1], 0, axis)
    return x


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _interp(x: Any, xp: Any, fp: Any) -> Any:
    """A sum of ramps between the nodes."""
    if np.any(np.diff(values_of(xp)) <= 0) or np.iscomplexobj(values_of(fp)):
        return NotImplemented
    xp, fp = _as_array(xp), _as_array(fp)
    width = xp[1:] - xp[:-1]
    ramps = np.minimum(np.maximum(_as_array(x)[..., None] - xp[:-1], 0.0), width)
    return fp[0] + np.sum((fp[1:] - fp[:-1]) / width * ramps, axis=-1)


def _polyval(p: Any, x: Any) -> Any:
    found: Any = 0.0
    for coefficient in _as_array(p):
        found = found * x + coefficient
    return found


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    count = x.shape[0] if N is None else N
    powers = [np.ones(x.shape)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return np.stack(powers[:count] if increasing else powers[:count][::-1], axis=-1)


def _correlated(a: Any, v: Any, mode: str) -> Any:
    """Returns `sum_j a[k + j] v[j]` for the k of that mode; the longer one comes first."""
    size, window = _shape(a)[0], _shape(v)[0]
    if mode == "full":
        first, count = 1 - window, size + window - 1
    elif mode == "same":
        first, count = -(window // 2), size
    else:
        first, count = 0, size - window + 1
    spots = first + np.arange(count)[:, None] + np.arange(window)
    padded = np.concatenate([_as_array(a), np.zeros(1)])
    rows = padded[np.where((spots >= 0) & (spots < size), spots, size)]
    return np.matmul(rows, v)


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = (np.atleast_1d(_as_array(one)) for one in (a, v))
    if len(v) > len(a):
        a, v = v, a
    if mode == "same":  # NumPy's middle is that of the whole convolution
        whole = _convolve(a, v)
        first = (_shape(whole)[0] - len(a)) // 2
        return whole[first : first + len(a)]
    return _correlated(a, v[::-1], mode)


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    if len(v) > len(a) or mode == "same":
        return NotImplemented
    return _correlated(_as_array(a), np.conj(_as_array(v)), mode)


def _kron(a: Any, b: Any) -> Any:
    one, two = _shape(a), _shape(b)
    rank = max(len(one), len(two))
    one, two = (1,) * (rank - len(one)) + one, (1,) * (rank - len(two)) + two
    spread = np.reshape(a, [n for size in one for n in (size, 1)])
    product = spread * np.reshape(b, [n for size in two for n in (1, size)])
    return np.reshape(product, [m * n for m, n in zip(one, two, strict=True)])


def _cross(a: Any, b: Any) -> Any:
    if _shape(a)[-1] != 3 or _shape(b)[-1] != 3:
        return NotImplemented
    a, b = _as_array(a), _as_array(b)
    after, before = [1, 2, 0], [2, 0, 1]
    return a[..., after] * b[..., before] - a[..., before] * b[..., after]


def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True) -> Any:
    parts = np.arange(num) / max(num - 1 if endpoint else num, 1)
    rank = max(len(_shape(start)), len(_shape(stop)))
    return start + np.reshape(parts, [-1] + [1] * rank) * (stop - start)


def _along_axis(function: Callable[..., Any], axis: int, x: Any, *args: Any, **kwargs: Any) -> Any:
    turned = np.moveaxis(x, axis, -1)
    ahead = turned.shape[:-1]
    found = [function(turned[k], *args, **kwargs) for k in np.ndindex(ahead)]
    rank = len(_shape(found[0])) if found else 0
    whole = np.reshape(np.stack(found), [*ahead, *_shape(found[0])])
    return np.moveaxis(
        whole, range(len(ahead), len(ahead) + rank), range(axis % x.ndim, axis % x.ndim + rank)
    )


# ---------------------------------------------------------------- products


def _dot(a: Any, b: Any) -> Any:
    if len(_shape(a)) == 0 or len(_shape(b)) == 0:
        return a * b
    return np.matmul(a, b) if len(_shape(b)) < 3 else NotImplemented


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    one, two = len(_shape(a)), len(_shape(b))
    if isinstance(axes, int | np.integer):
        first, second = list(range(one - axes, one)), list(range(axes))
    else:
        first, second = ([ax] if isinstance(ax, int) else list(ax) for ax in axes)
    first, second = [k % one for k in first], [k % two for k in second]
    left = [k for k in range(one) if k not in first]
    right = [k for k in range(two) if k not in second]
    shape = [_shape(a)[k] for k in left] + [_shape(b)[k] for k in right]
    count = math.prod(_shape(a)[k] for k in first)
    a = np.reshape(np.transpose(a, left + first), (-1, count))
    b = np.reshape(np.transpose(b, second + right), (count, -1))
    return np.reshape(np.matmul(a, b), shape)


def _einsum(subscripts: Any, *operands: Any, **options: Any) -> Any:
    if not isinstance(subscripts, str) or "." in subscripts:
        return NotImplemented
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    letters = sorted(set("".join(terms)))
    if not arrow:
        output = "".join(one for one in letters if inputs.count(one) == 1)
    order = [*output, *(one for one in letters if one not in output)]
    product: Any = 1.0
    for given, whole in zip(terms, operands, strict=True):
        term, operand = given, whole
        for letter in {one for one in term if term.count(one) > 1}:
            while term.count(letter) > 1:  # a diagonal
                i = term.index(letter)
                j = term.index(letter, i + 1)
                operand = np.diagonal(operand, 0, i, j)
                term = term[:i] + term[i + 1 : j] + term[j + 1 :] + letter
        turned = np.transpose(operand, [term.index(one) for one in order if one in term])
        shape = iter(_shape(turned))
        product = product * np.reshape(turned, [next(shape) if o in term else 1 for o in order])
    return np.sum(product, axis=tuple(range(len(output), len(order))))


def _matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        return _matrix_power(np.linalg.inv(a), -n)
    found = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for _ in range(n):
        found = np.matmul(found, a)
    return found


def _multi_dot(arrays: Any) -> Any:
    found = arrays[0]
    for one in arrays[1:]:
        found = np.matmul(found, one)
    return found


# ---------------------------------------------------------------- linear algebra


def _transposed(a: Any) -> Any:
    """The conjugate transpose."""
    return np.conj(np.swapaxes(a, -1, -2))


def _moduli(x: Any) -> Any:
    return np.sqrt(x.real**2 + x.imag**2) if x.dtype.kind == "c" else np.abs(x)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    both = x.ndim == 2 if axis is None else isinstance(axis, tuple | list) and len(axis) == 2
    if ord is None or (ord == "fro" and both) or (ord == 2 and not both):
        square = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
        where = tuple(axis) if isinstance(axis, list) else axis
        return np.sqrt(np.sum(square, axis=where, keepdims=keepdims))
    if both:
        if axis is not None or keepdims:
            return NotImplemented
        if ord in (1, -1, np.inf, -np.inf):
            sums = np.sum(_moduli(x), axis=0 if abs(ord) == 1 else 1)
            return np.max(sums) if ord > 0 else np.min(sums)
        if ord in ("nuc", 2, -2):
            values = np.linalg.svd(x, compute_uv=False)
            return np.sum(values) if ord == "nuc" else values[0 if ord == 2 else -1]
        return NotImplemented
    if axis is None and x.ndim != 1:
        return NotImplemented
    if ord in (np.inf, -np.inf):
        largest = np.max if ord > 0 else np.min
        return largest(_moduli(x), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(_moduli(x), axis=axis, keepdims=keepdims)
    if isinstance(ord, int | float) and ord not in (0, 1):
        return np.sum(_moduli(x) ** ord, axis=axis, keepdims=keepdims) ** (1 / ord)
    return NotImplemented


def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    if axis is None and not keepdims:
        return _norm(np.ravel(x), ord)
    return _norm(x, ord, axis, keepdims) if isinstance(axis, int) else NotImplemented


def _matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return NotImplemented if x.ndim != 2 or keepdims else _norm(x, ord)


def _solve(a: Any, b: Any) -> Any:
    vector = len(_shape(b)) == 1
    recording = recorded_in((a, b))[0].recording
    b = np.reshape(b, (-1, 1)) if vector else b
    found = recording.emit("solve", [a, b], np.linalg.solve(values_of(a), values_of(b)))
    return np.reshape(found, -1) if vector else found


def _of_matrix(name: str) -> Callable[..., Any]:
    def formula(a: Any) -> Any:
        values = getattr(np.linalg, name)(a.values)
        results = list(values) if isinstance(values, tuple) else values
        if name == "cholesky":  # NumPy reads one triangle
            lower = np.tril(a)
            a = lower + _transposed(np.tril(a, -1))
        if name == "eigh":
            lower = np.tril(a, -1)
            diagonal = np.eye(a.shape[-1]) * a
            a = lower + _transposed(lower) + diagonal
        found = a.recording.emit(name, [a], results)
        return type(values)(*found) if hasattr(values, "_fields") else found

    return formula


def _eig(a: Any) -> Any:
    values = np.linalg.eig(a.values)
    found = a.recording.emit("eig", [a], [one.astype(complex) for one in values])
    if values.eigenvalues.dtype.kind != "c":
        found = [one.real for one in found]
    return type(values)(*found)


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if compute_uv and full_matrices and a.shape[-1] != a.shape[-2]:
        return NotImplemented
    values = np.linalg.svd(a.values, full_matrices=False)
    found = type(values)(*a.recording.emit("svd", [a], list(values)))
    return found if compute_uv else found.S


def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "r") or a.shape[-1] > a.shape[-2]:
        return NotImplemented
    values = np.linalg.qr(a.values)
    found = type(values)(*a.recording.emit("qr", [a], list(values)))
    return found if mode == "reduced" else found.R


def _has_full_rank(a: Any) -> bool:
    return bool(np.all(np.linalg.matrix_rank(values_of(a)) == min(_shape(a)[-2:])))


def _pinv(a: Any) -> Any:
    """The formula of a matrix of full rank."""
    if not _has_full_rank(a):
        return NotImplemented
    turned = _transposed(a)
    if a.shape[-2] >= a.shape[-1]:
        return np.linalg.solve(np.matmul(turned, a), turned)
    return _transposed(np.linalg.solve(np.matmul(a, turned), a))


def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """The normal equations, which are exact in balls."""
    if rcond is not None or _shape(a)[0] < _shape(a)[1] or not _has_full_rank(a):
        return NotImplemented
    turned = _transposed(_as_array(a))
    x = np.linalg.solve(np.matmul(turned, a), np.matmul(turned, b))
    off = _as_array(b) - np.matmul(a, x)
    squares = np.sum(_moduli(np.reshape(off, (len(off), -1))) ** 2, axis=0)
    rows, columns = _shape(a)
    singular = np.linalg.svd(a, compute_uv=False)
    return x, squares if rows > columns else np.zeros(0), columns, singular


# ---------------------------------------------------------------- transforms


def _fft_along(x: Any, n: Any, axis: int, norm: Any, inverse: bool) -> Any:
    axis = axis % x.ndim
    count = x.shape[axis] if n is None else n
    if count > x.shape[axis]:
        width = [(0, count - x.shape[axis] if k == axis else 0) for k in range(x.ndim)]
        x = np.pad(x, width)
    elif count < x.shape[axis]:
        x = np.moveaxis(np.moveaxis(x, axis, 0)[:count], 0, axis)
    values = (
        np.fft.ifft(x.values, axis=axis) * count if inverse else np.fft.fft(x.values, axis=axis)
    )
    found = x.recording.emit("fft", [x], values, axis=axis, inverse=inverse)
    if norm == "ortho":
        return found / math.sqrt(count)
    divided = (norm in (None, "backward")) == inverse
    return found / count if divided else found


def _fft(inverse: bool) -> Callable[..., Any]:
    def formula(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return _fft_along(a, n, axis, norm, inverse)

    return formula


def _fftn(inverse: bool, last: Any = None) -> Callable[..., Any]:
    def formula(a: Any, s: Any = None, axes: Any = last, norm: Any = None) -> Any:
        if s is not None:
            return NotImplemented
        for axis in range(a.ndim) if axes is None else axes:
            a = _fft_along(a, None, axis, norm, inverse)
        return a

    return formula


def _rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    whole = np.moveaxis(_fft_along(a, n, axis, norm, inverse=False), axis, 0)
    return np.moveaxis(whole[: whole.shape[0] // 2 + 1], 0, axis)


def _irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    half = np.moveaxis(_as_array(a), axis, 0)
    count = 2 * (half.shape[0] - 1) if n is None else n
    if count // 2 + 1 != half.shape[0]:
        return NotImplemented
    ends = [half[:1].real + 0j, half[1:]]
    if count % 2 == 0:
        ends = [half[:1].real + 0j, half[1:-1], half[-1:].real + 0j]
    inner = half[1 : (count + 1) // 2]
    whole = np.concatenate([*ends, np.conj(inner[::-1])])
    return np.moveaxis(_fft_along(whole, None, 0, norm, inverse=True).real, 0, axis)


def _filled(name: str) -> Callable[..., Any]:
    def formula(x: Any, *args: Any, **options: Any) -> Any:
        if recorded_in(args):
            return NotImplemented
        values = getattr(np, name)(x.values, *args, **options)
        return x.recording.results(values, values)  # a constant, into which may be written

    return formula


def _elementwise(name: str) -> Callable[..., Any]:
    return lambda x: x.recording.emit(name, [x], getattr(np, name)(x.values))


FORMULAS: Mapping[str, Callable[..., Any]] = {
    **{theirs: _reduced(name) for theirs, name in REDUCED.items()},
    **{name: _joined(name) for name in JOINING},
    "append": _append,
    "insert": _insert,
    "pad": _pad,
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "nancumsum": _without_nans(np.cumsum),
    "nancumprod": _without_nans(np.cumprod),
    **{
        f"nan{name}": _without_nans(getattr(np, name))
        for name in ("sum", "prod", "max", "min", "mean", "var", "std", "median", "quantile")
    },
    "nanpercentile": _without_nans(np.percentile),
    "nan_to_num": lambda x: x if np.isfinite(x.values).all() else NotImplemented,
    "argmax": _extreme_index("argmax"),
    "argmin": _extreme_index("argmin"),
    "sort": _sort,
    "argsort": _argsort,
    "median": _median,
    "quantile": _quantile,
    "percentile": _percentile,
    "where": _where,
    "select": _select,
    "searchsorted": _searchsorted,
    "digitize": _digitize,
    "bincount": _bincount,
    **{
        name: _nonzero(getattr(np, name))
        for name in ("nonzero", "flatnonzero", "argwhere", "count_nonzero")
    },
    "mean": _mean,
    "average": _average,
    "var": _variance,
    "std": lambda x, axis=None, *, ddof=0, keepdims=False: np.sqrt(
        _variance(x, axis, ddof=ddof, keepdims=keepdims)
    ),
    "cov": _cov,
    "corrcoef": _corrcoef,
    "trapezoid": _trapezoid,
    "gradient": _gradient,
    "diff": _diff,
    "ediff1d": lambda x: _diff(np.ravel(x)),
    "clip": _clip,
    "interp": _interp,
    "polyval": _polyval,
    "vander": _vander,
    "convolve": _convolve,
    "correlate": _correlate,
    "linspace": _linspace,
    "apply_along_axis": _along_axis,
    "dot": _dot,
    "inner": lambda a, b: NotImplemented if len(_shape(a)) > 1 else np.sum(a * b),
    "vdot": lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    "outer": lambda a, b: np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1)),
    "kron": _kron,
    "cross": _cross,
    "tensordot": _tensordot,
    "einsum": _einsum,
    "multi_dot": _multi_dot,
    "matrix_power": _matrix_power,
    "trace": lambda x, offset=0: (
        np.sum(np.diagonal(x, offset), axis=-1) if x.ndim == 2 else NotImplemented
    ),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "angle": lambda z: np.arctan2(z.imag, z.real),
    "sinc": _elementwise("sinc"),
    "i0": _elementwise("i0"),
    "round": lambda x, decimals=0: np.rint(x) if decimals == 0 else NotImplemented,
    "fix": np.trunc,
    "ptp": lambda x, axis=None: np.max(x, axis=axis) - np.min(x, axis=axis),
    **{name: _filled(name) for name in ("zeros_like", "ones_like", "full_like", "empty_like")},
    "norm": _norm,
    "vector_norm": _vector_norm,
    "matrix_norm": _matrix_norm,
    "solve": _solve,
    **{name: _of_matrix(name) for name in ("inv", "det", "slogdet", "cholesky", "eigh")},
    "eigvalsh": lambda a: np.linalg.eigh(a)[0],
    "eig": _eig,
    "eigvals": lambda a: np.linalg.eig(a)[0],
    "svd": _svd,
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "qr": _qr,
    "pinv": _pinv,
    "lstsq": _lstsq,
    "fft": _fft(False),
    "ifft": _fft(True),
    "fft2": _fftn(False, (-2, -1)),
    "ifft2": _fftn(True, (-2, -1)),
    "fftn": _fftn(False),
    "ifftn": _fftn(True),
    "rfft": _rfft,
    "irfft": _irfft,
}
"""The functions of NumPy that are operations of the vocabulary, or several."""


# ---------------------------------------------------------------- SciPy


def _shifted(x: Any, axis: Any) -> tuple[Any, Any]:
    """Returns x less its largest numbers, as constants, and these."""
    largest = np.max(x.values, axis=axis, keepdims=True)
    return x - largest, largest


def _logsumexp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    less, largest = _shifted(a, axis)
    if not np.isfinite(largest).all():
        return NotImplemented
    total = np.log(np.sum(np.exp(less), axis=axis, keepdims=True)) + largest
    return total if keepdims else np.squeeze(total, axis=axis)


def _softmax(x: Any, axis: Any = None) -> Any:
    powers = np.exp(_shifted(x, axis)[0])
    return powers / np.sum(powers, axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: Any = None) -> Any:
    return x - _logsumexp(x, axis, keepdims=True)


def _polygamma(n: Any, x: Any) -> Any:
    if isinstance(n, Recorded) or np.ndim(n) or not isinstance(x, Recorded):
        return NotImplemented
    values = sys.modules["scipy.special"].polygamma(n, x.values)
    return x.recording.emit("polygamma", [float(n), x], values)


def _expm(a: Any) -> Any:
    return a.recording.emit("matrix_exp", [a], sys.modules["scipy.linalg"].expm(a.values))


def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    if trans not in (0, 1, "N", "T"):
        return NotImplemented
    a, b = _as_array(a), _as_array(b)
    if trans in (1, "T"):
        a, lower = np.swapaxes(a, -1, -2), not lower
    whole = np.reshape(b, (-1, 1)) if b.ndim == 1 else b
    half = np.tril(values_of(a)) if lower else np.triu(values_of(a))
    if unit_diagonal:
        half = half - np.diag(np.diag(half)) + np.eye(len(half))
    found = recorded_in((a, b))[0].recording.emit(
        "solve_triangular",
        [a, whole],
        np.linalg.solve(half, values_of(whole)),
        lower=bool(lower),
        unit_diagonal=bool(unit_diagonal),
    )
    return np.reshape(found, -1) if b.ndim == 1 else found


def _cholesky(a: Any, lower: bool = False) -> Any:
    if lower:
        return np.linalg.cholesky(a)
    return _transposed(np.linalg.cholesky(_transposed(a)))  # the upper triangle is read


def _cho_factor(a: Any, lower: bool = False) -> Any:
    return _cholesky(a, lower), lower


def _cho_solve(factor: Any, b: Any) -> Any:
    c, lower = factor
    if values_of(c).dtype.kind == "c":
        return NotImplemented
    half = _solve_triangular(c, b, 0 if lower else 1, lower)
    return _solve_triangular(c, half, 1 if lower else 0, lower)


SCIPY: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "scipy.special": {
        "logsumexp": _logsumexp,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "polygamma": _polygamma,
    },
    "scipy.linalg": {
        "expm": _expm,
        "solve_triangular": _solve_triangular,
        "cholesky": _cholesky,
        "cho_factor": _cho_factor,
        "cho_solve": _cho_solve,
        "solve": lambda a, b: np.linalg.solve(a, b),
        "inv": lambda a: np.linalg.inv(a),
        "det": lambda a: np.linalg.det(a),
        "pinv": lambda a: np.linalg.pinv(a),
        "norm": lambda a, ord=None, axis=None: np.linalg.norm(a, ord, axis),
        "eigvalsh": lambda a: np.linalg.eigvalsh(a),
        "eigh": lambda a: tuple(np.linalg.eigh(a)),
        "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    },
}
"""The functions of SciPy that NumPy does not hand over, by module."""

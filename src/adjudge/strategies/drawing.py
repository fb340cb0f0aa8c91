"""This module draws host arrays with Hypothesis, in a domain, at special points, and so that they
are easy to shrink.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adjudge.check import PATTERNS, Given
from adjudge.engine import HostArray
from adjudge.errors import InputError
from adjudge.problem import ABOVE_ZERO, DOMAINS, INTERVALS, Domain, contains, read_domain

Strategy: TypeAlias = st.SearchStrategy[Any]

APART = "away from ties"
WORDS = (*DOMAINS, APART)
MODEST, WIDE = 10.0, 1000.0
"""Most numbers are drawn up to the first size, some up to the second; special points go farther.
The values are ours."""
GAP = 0.25
"""The least distance between two numbers that are away from ties. The value is ours."""
NAMES = (
    *("float64", "float32", "float16", "complex128", "complex64", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
DENSE = 128
"""The largest number of entries that are all drawn separately. A test case of Hypothesis holds only
so much, so larger arrays repeat a number at most places. The value is ours."""


def drawn_array(
    draw: st.DrawFn, shape: tuple[int, ...], name: str, domain: Domain, *, special: bool
) -> HostArray:
    """Returns an array of that shape and dtype in the domain, which may be a special point.

    Raises `InputError` where no such array is in the domain, or for an unknown dtype.
    """
    dtype = dtype_named(name)
    if dtype.kind == "b":
        return np.asarray(draw(hnp.arrays(dtype, shape)))
    _require(domain, shape, dtype)
    pattern = None
    if special and draw(st.booleans()):
        pattern = draw(st.sampled_from(list(PATTERNS)))
    plain = _plain(draw, shape, dtype, domain, special=special)
    if pattern is not None:
        found = _at_pattern(pattern, plain, domain)
        plain = plain if found is None else found
    if callable(domain):
        hypothesis.assume(belongs(plain, domain))
    return plain


def _at_pattern(pattern: str, plain: HostArray, domain: Domain) -> HostArray | None:
    """Returns the special point of that kind that is made from `plain`, or `None` where there is
    none in the domain.
    """
    if not plain.size or plain.dtype.kind in "iu":
        return None
    info = _info(plain.dtype)
    given, ends = require_domain(domain), None
    # The ends are rounded into the interval, since an end that the dtype does not hold is no point.
    if isinstance(given, tuple):
        near = _interval(domain, plain.dtype)
        low, high = (n if math.isfinite(e) else e for n, e in zip(near, given, strict=True))
        ends = (ABOVE_ZERO if given[0] == ABOVE_ZERO else low), high
    at = Given(_wide(plain), float(info.smallest_normal), float(info.max), ends)
    with np.errstate(all="ignore"):
        values = PATTERNS[pattern](at)
        special = None if values is None else np.asarray(values).astype(plain.dtype)
    return special if special is not None and belongs(special, domain) else None


def dtype_named(name: str) -> Any:
    """Returns the dtype of this name. Raises `InputError` for a name that is not supported, or
    where `ml_dtypes` is needed and not installed.
    """
    if name == "bfloat16":
        try:
            ml_dtypes = importlib.import_module("ml_dtypes")
        except ModuleNotFoundError as error:
            raise InputError(
                "dtype 'bfloat16' is one of ml_dtypes, which is not installed",
                "install it: pip install ml_dtypes",
            ) from error
        return np.dtype(ml_dtypes.bfloat16)
    if name not in NAMES:
        raise InputError(f"dtype={name!r}", f"give one of {', '.join(NAMES)}, bfloat16")
    return np.dtype(name)


def belongs(values: HostArray, domain: Domain) -> bool:
    """Says whether all of `values` are finite and lie in `domain`, as far as their dtype can
    tell.
    """
    wide = _wide(values)
    if not np.all(np.isfinite(wide)):
        return False
    if domain == APART:
        return bool(np.all(np.diff(np.sort(wide.reshape(-1))) >= GAP))
    eps = float(getattr(_info(values.dtype), "eps", 2.0**-52))
    with np.errstate(all="ignore"):
        return contains(require_domain(domain), wide, eps)


def _wide(values: HostArray) -> HostArray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _info(dtype: np.dtype[Any]) -> Any:
    """Returns the limits of a floating, complex or integer dtype."""
    if dtype.kind in "iu":
        return np.iinfo(dtype)
    return (
        importlib.import_module("ml_dtypes").finfo(dtype) if dtype.kind == "V" else np.finfo(dtype)
    )


# ---------------------------------------------------------------- domains


def _require(domain: Domain, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises `InputError` where no array of that shape and dtype is in the domain."""
    axes = {"simplex": 1, "sphere": 1, "sorted": 1, "orthogonal": 2}
    square = domain in ("symmetric", "positive definite")
    if isinstance(domain, str) and len(shape) < (2 if square else axes.get(domain, 0)):
        raise InputError(f"domain={domain!r} with the shape {shape}", "give it more axes")
    if square and shape[-1] != shape[-2]:
        raise InputError(f"domain={domain!r} with the shape {shape}", 'give (..., "n", "n")')
    ordered = isinstance(domain, tuple) or domain in (*INTERVALS, "simplex", "sorted", APART)
    if dtype.kind == "c" and ordered:
        raise InputError(f"domain={domain!r} with dtype {dtype}", "that orders real numbers")
    curved = isinstance(domain, str) and domain not in (*INTERVALS, "sorted")
    if dtype.kind in "iu" and curved:
        raise InputError(f"domain={domain!r} with dtype {dtype}", "give a floating dtype")


def _interval(domain: Domain, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Returns the least and the largest number of `dtype` in the domain, or of all its numbers
    where the domain is no interval. Raises `InputError` where the interval holds none.
    """
    info = _info(dtype)
    ends = require_domain(domain)
    low, high = ends if isinstance(ends, tuple) else (-np.inf, np.inf)
    if domain == "positive":
        low = 1.0 if dtype.kind in "iu" else float(info.smallest_normal)
    low, high = max(low, float(info.min)), min(high, float(info.max))
    if dtype.kind in "iu":
        least, most = float(np.ceil(low)), float(np.floor(high))
    else:
        least, most = _inward(low, high, dtype), -_inward(-high, -low, dtype)
    if least > most:
        raise InputError(f"domain={domain!r} holds no number of dtype {dtype}", "widen it")
    return least, most


def _inward(low: float, high: float, dtype: np.dtype[Any]) -> float:
    """Returns the least number of `dtype` that is not below `low`."""
    with np.errstate(over="ignore"):
        near = np.asarray(low).astype(dtype)
    if float(near) < low:
        near = np.nextafter(near, np.asarray(np.inf).astype(dtype))
    return float(near)


def _numbers(low: float, high: float, small: float) -> Strategy:
    """Returns a strategy for numbers from `low` to `high`: small whole ones first, then eighths,
    then any.

    Numbers below `small` are left to special points, since a power of them may underflow to zero
    and then says nothing. The rule is ours.
    """
    # An interval that reaches far below `small` without holding zero starts at `small` instead.
    if 0 < low < small**2 < small < high:
        low = small
    flushed = low <= 0 <= high

    def flush(x: float) -> float:
        return 0.0 if flushed and abs(x) < small else x

    found: list[Strategy] = []
    for limit, parts in ((MODEST, 1), (MODEST, 8), (MODEST, 0), (WIDE, 0)):
        a, b = max(low, -limit), min(high, limit)
        if not parts and a <= b:
            found.append(st.floats(a, b).map(flush))
        elif parts and math.ceil(a * parts) <= math.floor(b * parts):
            whole = st.integers(math.ceil(a * parts), math.floor(b * parts))
            found.append(whole.map(parts.__rtruediv__))
    return st.one_of(found) if found else st.floats(low, high)


def _plain(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    domain: Domain,
    *,
    special: bool,
) -> HostArray:
    """Returns an array in the domain to which no pattern was applied. Raises `InputError` where
    the dtype cannot hold one.
    """
    if 0 in shape:
        return np.zeros(shape, dtype)
    kind = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    low, high = (-WIDE, WIDE) if dtype.kind == "c" else _interval(domain, dtype)
    small = float(getattr(_info(dtype), "smallest_normal", 0.0)) ** 0.25
    numbers, few = _numbers(low, high, small), _numbers(-4.0, 4.0, small)
    if dtype.kind in "iu":
        least, most = (int(end) for end in _interval(domain, dtype))
        near = max(least, -10), min(most, 10)
        few = st.integers(*near) if near[0] <= near[1] else st.integers(least, most)
        numbers, kind = few | st.integers(least, most), dtype
    if domain == APART:
        return _separate(draw, shape, dtype)
    if domain == "simplex":
        numbers = st.integers(0 if special else 1, 16).map(float)
    elif domain in ("sphere", "orthogonal", "positive definite"):
        numbers = few
    if kind.kind == "c":
        numbers = st.builds(complex, numbers, numbers)
    fill = st.nothing() if math.prod(shape) <= DENSE else numbers
    base = np.asarray(draw(hnp.arrays(kind, shape, elements=numbers, fill=fill)))
    if domain == "positive definite":
        return _positive_definite(base, draw(st.integers(0, 6)), dtype)
    if domain == "sorted":
        base = np.sort(base, axis=-1)
        base = base[..., ::-1] if draw(st.booleans()) else base
    made = _MADE.get(domain) if isinstance(domain, str) else None
    return np.ascontiguousarray(base if made is None else made(base)).reshape(shape).astype(dtype)


def _simplex(base: HostArray) -> HostArray:
    base = np.where(np.any(base != 0, axis=-1, keepdims=True), base, 1.0)
    return np.asarray(base / np.sum(base, axis=-1, keepdims=True))


def _sphere(base: HostArray) -> HostArray:
    largest = np.max(np.abs(base), axis=-1, keepdims=True)
    first = np.arange(base.shape[-1]) == 0
    base = np.where(largest > 0, base / np.where(largest > 0, largest, 1.0), first)
    return np.asarray(base / np.sqrt(np.sum(np.abs(base) ** 2, axis=-1, keepdims=True)))


def _orthogonal(base: HostArray) -> HostArray:
    if base.shape[-2] < base.shape[-1]:
        return np.swapaxes(_orthogonal(np.swapaxes(base, -1, -2)), -1, -2)
    q, r = np.linalg.qr(base)
    ends = np.diagonal(r, axis1=-2, axis2=-1)
    signs = np.where(ends == 0, 1, ends / np.where(ends == 0, 1, np.abs(ends)))
    return np.asarray(q * signs[..., None, :])


def _symmetric(base: HostArray) -> HostArray:
    """Returns the matrix of the lower half and its mirror image, which are equal to the last
    bit.
    """
    below = np.tril(base, -1)
    return below + np.conj(np.swapaxes(below, -1, -2)) + np.real(base) * np.eye(base.shape[-1])


def _positive_definite(base: HostArray, halvings: int, dtype: np.dtype[Any]) -> HostArray:
    """Returns `B B* + 2^-halvings I`. Where the dtype cannot hold that as a positive definite
    matrix, returns `B B* + I` or else the identity.
    """
    one = np.eye(base.shape[-1])
    gram = _symmetric(base @ np.conj(np.swapaxes(base, -1, -2)))
    for tried in (gram + 2.0**-halvings * one, gram + one):
        found = np.asarray(tried).astype(dtype)
        if belongs(found, "positive definite"):
            return found
    return np.broadcast_to(one, base.shape).astype(dtype)


_MADE: dict[str, Callable[[HostArray], HostArray]] = {
    "simplex": _simplex,
    "sphere": _sphere,
    "orthogonal": _orthogonal,
    "symmetric": _symmetric,
}


def _separate(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """Returns numbers about zero that lie at least `GAP` apart, in some order. Raises `InputError`
    where the dtype cannot tell that many numbers apart.
    """
    count = math.prod(shape)
    gaps = np.ones(count)
    order = np.arange(count)
    if count <= DENSE:
        gaps += draw(hnp.arrays(np.int64, count, elements=st.integers(0, 15)))
        order = np.asarray(draw(st.permutations(range(count))), int)
    else:
        order = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).permutation(count)
    for tried in (gaps, np.ones(count)):
        steps = np.cumsum(tried)
        centred = (steps - steps[count // 2]) * GAP
        found: HostArray = centred[order].reshape(shape).astype(dtype)
        if belongs(found, APART):
            return found
    raise InputError(
        f"domain={APART!r} with the shape {shape}: dtype {dtype} cannot tell that many numbers "
        "apart",
        "give a smaller shape or a wider dtype",
    )


def require_domain(domain: Domain) -> Domain:
    """Returns the domain as `contains` takes it. Raises `InputError` for one without meaning."""
    return read_domain(domain, names=WORDS)

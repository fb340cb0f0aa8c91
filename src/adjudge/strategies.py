"""Inputs for Hypothesis, which searches them for a point where a derivative is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adjudge.backend import AutodiffBackend, HostArray
from adjudge.bounds import Bounds
from adjudge.charts import SETS, OffTheSetError
from adjudge.check import examine
from adjudge.domains import INTERVALS, Member, contains
from adjudge.errors import InputError
from adjudge.findings import Verdict
from adjudge.placing import placed_tree
from adjudge.points import silence
from adjudge.registry import backend_named
from adjudge.report import GradcheckError, Report
from adjudge.reproduce import reproduction
from adjudge.special import PATTERNS, Given

Strategy: TypeAlias = st.SearchStrategy[Any]
Shape: TypeAlias = Sequence[int | str] | Strategy
"""Sizes of axes, or names of sizes to be drawn: `(3, "n", "n")`; or a strategy of tuples."""
DType: TypeAlias = str | Strategy
Domain: TypeAlias = str | tuple[float, float] | Member | None

APART = "away from ties"
WORDS = tuple(dict.fromkeys((*INTERVALS, *SETS, APART)))
MODEST, WIDE = 10.0, 1000.0
"""Most numbers are drawn up to the first, some up to the second; special points go farther."""
DENSE = 128
"""Larger arrays repeat a number at most places: a test case holds only so much."""
PARTS = 2**10
ATTEMPTS = 3


@dataclass(frozen=True)
class Spec:
    """One input: see `arrays`. Sizes of the same name are the same in all inputs drawn together."""

    shape: Shape
    dtype: DType = "float64"
    domain: Domain = None
    special: bool = True


def arrays(
    shape: Shape,
    dtype: DType = "float64",
    domain: Domain = None,
    special: bool = True,
    *,
    sizes: Strategy | None = None,
) -> Strategy:
    """NumPy arrays of finite numbers in a domain, which shrink to few, small and round numbers.

    Args:
        shape: A tuple of sizes and of names of sizes, `("n", "n")`, or a strategy of tuples.
        dtype: The name of a floating, complex or integer dtype, or a strategy of names;
            `"bfloat16"` where `ml_dtypes` is installed.
        domain: `None` (everywhere), `"positive"`, `"nonnegative"`, `"unit"`, a pair
            `(low, high)`; `"symmetric"`, `"positive definite"`, `"orthogonal"` (the last two axes),
            `"simplex"`, `"sphere"`, `"sorted"` (the last axis); `"away from ties"` (entries a
            quarter apart at least); or a function from a NumPy array to whether it belongs.
        special: Half of the arrays are points that random ones miss, of the kinds of
            `special_points`: zeros, ties, integers, the ends of the domain and of the dtype.
        sizes: Of named axes; from 1 to 4 unless given.

    Raises:
        InputError: A domain without meaning, or one that arrays of this shape or dtype cannot have.
    """
    _require_domain(domain)
    return _drawn(Spec(shape, dtype, domain, special), sizes)


def inputs(*specs: Any, sizes: Strategy | None = None) -> Strategy:
    """Tuples of arguments: each a `Spec`, a strategy, a dict, tuple or list of such, or a constant.

    Sizes of axes that have the same name are the same. With special points, inputs that are alike
    are sometimes equal.
    """
    for spec in _specs(specs):
        _require_domain(spec.domain)
    return _drawn(specs, sizes)


def _specs(tree: Any) -> list[Spec]:
    if isinstance(tree, Spec):
        return [tree]
    if isinstance(tree, dict | tuple | list):
        nodes = tree.values() if isinstance(tree, dict) else tree
        return [spec for node in nodes for spec in _specs(node)]
    return []


@st.composite
def _drawn(draw: st.DrawFn, tree: Any, sizes: Strategy | None) -> Any:
    specs = _specs(tree)
    named = [one for spec in specs if isinstance(spec.shape, Sequence) for one in spec.shape]
    chosen = {
        name: draw(st.integers(1, 4) if sizes is None else sizes)
        for name in dict.fromkeys(name for name in named if isinstance(name, str))
    }
    equal = len(specs) > 1 and all(spec.special for spec in specs)
    equal = equal and draw(st.integers(0, 7)) == 7
    before: dict[Any, HostArray] = {}

    def drawn(node: Any) -> Any:
        if isinstance(node, Spec):
            array = _array(draw, node, chosen)
            key = array.shape, array.dtype, str(node.domain)
            return before.setdefault(key, array).copy() if equal else array
        if isinstance(node, st.SearchStrategy):
            return draw(node)
        if isinstance(node, dict):
            return {key: drawn(child) for key, child in node.items()}
        if isinstance(node, tuple | list):
            return type(node)([drawn(child) for child in node])
        return node

    return drawn(tree)


# ---------------------------------------------------------------- one array


def _array(draw: st.DrawFn, spec: Spec, sizes: Mapping[str, int]) -> HostArray:
    given = spec.shape
    if isinstance(given, Sequence):
        shape = tuple(sizes[one] if isinstance(one, str) else one for one in given)
    else:
        shape = tuple(draw(given))
    name = spec.dtype if isinstance(spec.dtype, str) else draw(spec.dtype)
    dtype = dtype_named(name)
    if dtype.kind == "b":
        return np.asarray(draw(hnp.arrays(dtype, shape)))
    info = _limits(dtype)
    _require_shape(spec.domain, shape, dtype)
    pattern = draw(st.sampled_from([None, *PATTERNS])) if _halves(draw, spec.special) else None
    low, high = _interval(spec.domain, dtype, info)
    plain = _in_domain(draw, spec.domain, shape, dtype, low, high).astype(dtype)
    if pattern is not None and plain.size and dtype.kind not in "iu":
        wide = plain.astype(np.complex128 if dtype.kind == "c" else np.float64)
        at = Given(wide, info[0], info[1], (low, high) if dtype.kind != "c" else None)
        with np.errstate(all="ignore"):
            values = PATTERNS[pattern](at)
            found = None if values is None else np.asarray(values).astype(dtype)
        if found is not None and belongs(found, spec.domain):
            return found
    if callable(spec.domain):
        hypothesis.assume(belongs(plain, spec.domain))
    return plain


def _halves(draw: st.DrawFn, special: bool) -> bool:
    return special and draw(st.booleans())


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of this name. Raises `InputError` for one that no array here has."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError as error:
            raise InputError("dtype 'bfloat16' is one of ml_dtypes, which is not installed",
                             "pip install ml_dtypes") from error
        return np.dtype(ml_dtypes.bfloat16)
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biufc" or dtype.itemsize > 16 or dtype.name == "longdouble":
        raise InputError(f"dtype {name!r}", "give a name such as 'float64', 'complex64', 'int32'")
    return dtype


def belongs(values: HostArray, domain: Domain) -> bool:
    """Whether all of `values` are finite and lie in `domain`, as far as their dtype can tell."""
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    if not np.all(np.isfinite(wide)):
        return False
    if domain == APART:
        return _apart(wide)
    if isinstance(domain, str) and domain in INTERVALS:
        return contains(INTERVALS[domain], wide)
    if isinstance(domain, str):
        try:
            SETS[domain](wide, float(_info(values.dtype).eps))
        except OffTheSetError:
            return False
        return True
    return contains(domain, wide)


def _apart(wide: HostArray) -> bool:
    flat = wide.reshape(-1)
    gaps = np.abs(flat[:, None] - flat[None, :]) + np.eye(flat.size)
    return bool(np.all(gaps >= 0.25))


# ---------------------------------------------------------------- domains


def _in_domain(
    draw: st.DrawFn, domain: Domain, shape: tuple[int, ...], dtype: np.dtype[Any],
    low: float, high: float,
) -> HostArray:
    """An array in the domain, before it is rounded to its dtype."""
    def entries(elements: Strategy, shape: tuple[int, ...] = shape) -> HostArray:
        kind = np.complex128 if dtype.kind == "c" else np.float64
        if dtype.kind == "c":
            elements = st.builds(complex, elements, elements)
        fill = st.nothing() if np.prod(shape) <= DENSE else elements
        return np.asarray(draw(hnp.arrays(kind, shape, elements=elements, fill=fill)))

    if not np.prod(shape):
        return np.zeros(shape)
    if dtype.kind in "iu":
        return np.asarray(draw(hnp.arrays(dtype, shape, elements=_integers(low, high))))
    small = st.integers(-4, 4).map(float) | st.floats(-4, 4)
    if domain == "simplex":
        return _simplex(entries(st.integers(0, 16).map(float)))
    if domain == "sphere":
        return _sphere(entries(small))
    if domain == "orthogonal":
        return _orthogonal(entries(small))
    if domain == "symmetric":
        return _symmetric(entries(_numbers(low, high)))
    if domain == "positive definite":
        return _positive_definite(entries(small), draw(st.integers(0, 6)), dtype)
    if domain == "sorted":
        ordered = np.sort(entries(_numbers(low, high)), axis=-1)
        return ordered[..., ::-1] if draw(st.booleans()) else ordered
    if domain == APART:
        return _separate(draw, shape)
    return entries(_numbers(low, high))

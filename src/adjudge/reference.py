"""References: what gives a derivative in place of differences of f, where f cannot show it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from adjudge.errors import InputError
from adjudge.estimate import Direction, Estimate, Link, Mpmath, NumpyDifferences, Reference
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector


def mpmath(g: Callable[..., Any], digits: int = 50) -> Reference:
    """The function itself in mpmath: derivatives to full double precision, in any tail.

    Args:
        g: Has the signature of f. Floating arrays arrive as NumPy object arrays of `mpf` (`mpc`
            where they are complex), those of shape `()` as the number itself; arrays of integers
            as NumPy arrays. Returns the structure of f's result, of such arrays or numbers.
            `np.vectorize(mpmath.exp, otypes=[object])` makes a function of arrays of one of
            numbers.
        digits: Decimal digits to compute with. More are taken, up to 600, where they do not show
            the derivative.
    """
    _callable(g, "mpmath")
    number: Any = digits
    if not isinstance(number, int | np.integer) or number < 20:
        raise InputError(f"digits={digits!r}", "give an integer of at least 20")
    try:
        importlib.import_module("mpmath")
    except ImportError as error:
        raise InputError(
            "adjudge.reference.mpmath needs mpmath, which is not installed",
            "pip install 'adjudge[reference]'",
        ) from error
    return Mpmath(g, int(digits))


def twin(
    g: Callable[..., Any], dtype: Literal["longdouble", "float64"] = "longdouble"
) -> Reference:
    """The function itself in NumPy, in another form or with more digits: differences of that.

    Args:
        g: Has the signature of f. Floating arrays arrive as NumPy arrays of `dtype` (of
            `clongdouble` or `complex128` where they are complex), arrays of integers as they are.
            Returns the structure of f's result, of such arrays.
        dtype: `"longdouble"` has 64 bits on x86, 113 on some machines, and elsewhere the 53 of
            float64. `"float64"` serves functions of narrower dtypes.
    """
    _callable(g, "twin")
    if dtype not in ("longdouble", "float64"):
        raise InputError(f"dtype={dtype!r}", 'give "longdouble" or "float64"')
    return NumpyDifferences(g, dtype)


def derivative(
    *, jvp: Callable[..., Any] | None = None, vjp: Callable[..., Any] | None = None
) -> Reference:
    """An analytic derivative, on NumPy arrays of float64 (complex128).

    Args:
        jvp: Called as `jvp(*inputs, *tangents, **kwargs)`: one tangent per positional input, of
            its structure, `None` at leaves that are not checked. Returns the tangent of f's
            result, in its structure.
        vjp: Called as `vjp(*inputs, w, **kwargs)`: the cotangent `w` has the structure of f's
            result. Returns the gradient, or a tuple of one per positional input. It is called once
            for every output coordinate, so a jvp is cheaper where there are many.
    """
    if (jvp is None) == (vjp is None):
        raise InputError(
            "adjudge.reference.derivative takes one of jvp= and vjp=", "give one of them"
        )
    _callable(jvp or vjp, "derivative")
    return Analytic(jvp, vjp)


@dataclass(frozen=True)
class Analytic(Reference):
    """A derivative that the caller wrote down."""

    jvp: Callable[..., Any] | None
    vjp: Callable[..., Any] | None

    @property
    def name(self) -> str:
        """What it is."""
        return "analytic derivative"

    def values(self, link: Link, x: Vector) -> Vector | None:
        return None

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        with np.errstate(all="ignore"):
            if self.jvp is not None:
                value = link.push(self.jvp, x, v.vector)
                size = np.abs(value)
            else:
                assert self.vjp is not None  # the constructor saw to it
                moves = v.vector != 0
                terms = link.rows(self.vjp, x)[:, moves] * v.vector[moves]
                value, size = terms.sum(axis=1), np.abs(terms).sum(axis=1)
            error = 8 * 2.0**-52 * size
        return Estimate(value, error, value != 0, Method(Scheme.REFERENCE, reference=self.name))


def _callable(g: object, constructor: str) -> None:
    if not callable(g):
        raise InputError(
            f"adjudge.reference.{constructor} was given a {type(g).__name__}, not a function",
            "pass a function with the signature of f",
        )


def require_reference(given: object) -> None:
    """Raises `InputError` for what no constructor of this module made."""
    if given is None or isinstance(given, Reference):
        return
    kind = "a bare function" if callable(given) else f"a {type(given).__name__}"
    raise InputError(
        f"reference= is {kind}, which does not say what numbers it takes",
        "wrap it: adjudge.reference.mpmath(g), adjudge.reference.twin(g) with NumPy's longdouble, "
        "or adjudge.reference.derivative(jvp=...) for a derivative",
    )

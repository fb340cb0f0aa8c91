"""References: other sources of the derivative of f, for where differences of f cannot show it.

At 20, say, `1 - erfc(x)` is rounded to 1, and all differences of it are zero. A reference gives the
derivative instead: by mpmath, by NumPy with more digits, or by a formula.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from adjudge.constants import ANALYTIC_UNITS
from adjudge.errors import InputError, described, did_you_mean
from adjudge.estimate import Direction, Estimate, Link, Mpmath, NumpyDifferences, Reference
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector


def mpmath(g: Callable[..., Any], digits: int = 50) -> Reference:
    """Returns a reference by the function itself in mpmath: it has the derivatives to full double
    precision, also where f is rounded to a constant.

    Args:
        g: A function with the signature of f. Floating arrays arrive as NumPy object arrays of
            `mpf` (of `mpc` where they are complex), those of shape `()` as the number itself;
            arrays of integers arrive as NumPy arrays. It returns the structure of f's result, made
            of such arrays or numbers. `np.vectorize(mpmath.exp, otypes=[object])` makes a function
            of arrays of one of numbers.
        digits: The decimal digits to compute with, at least 20. More are taken, up to 600, where
            they do not show the derivative.

    Raises:
        InputError: `g` cannot be called, `digits` is no integer of at least 20, or mpmath is not
            installed.
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
    """Returns a reference by differences of the same function in NumPy, written in another form or
    computed with more digits.

    Args:
        g: A function with the signature of f. Floating arrays arrive as NumPy arrays of `dtype` (of
            `clongdouble` or `complex128` where they are complex), arrays of integers as they are.
            It returns the structure of f's result, made of such arrays.
        dtype: The precision of the arrays. `"longdouble"` has 64 significant bits on x86, 113 on
            some machines, and elsewhere the 53 of float64. `"float64"` is enough where f itself is
            in a narrower dtype.

    Raises:
        InputError: `g` cannot be called, or `dtype` is another one.
    """
    _callable(g, "twin")
    if dtype not in ("longdouble", "float64"):
        raise InputError(f"dtype={dtype!r}", 'give "longdouble" or "float64"')
    return NumpyDifferences(g, dtype)


def derivative(
    *, jvp: Callable[..., Any] | None = None, vjp: Callable[..., Any] | None = None
) -> Reference:
    """Returns a reference by an analytic derivative, given as its jvp or as its vjp.

    Its arrays are NumPy arrays of float64, or of complex128 where they are complex.

    Args:
        jvp: It is called as `jvp(*inputs, *tangents, **kwargs)`, with one tangent per positional
            input, of its structure, `None` at leaves that are not checked. It returns the tangent
            of f's result, in its structure.
        vjp: It is called as `vjp(*inputs, w, **kwargs)`, with a cotangent `w` of the structure of
            f's result. It returns the gradient, or a tuple with one per positional input. There is
            one call for every output coordinate, so a jvp is cheaper where there are many.

    Raises:
        InputError: Neither or both are given, or what is given cannot be called.
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
        """The name that reports use."""
        return "analytic derivative"

    def values(self, link: Link, x: Vector) -> Vector | None:
        return None

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        if self.jvp is not None:
            value = link.push(self.jvp, x, v.vector)
            size = np.abs(value)
        else:
            assert self.vjp is not None  # the constructor saw to it
            moves = v.vector != 0
            terms = link.rows(self.vjp, x)[:, moves] * v.vector[moves]
            value, size = terms.sum(axis=1), np.abs(terms).sum(axis=1)
        error = ANALYTIC_UNITS * 2.0**-52 * size
        return Estimate(value, error, value != 0, Method(Scheme.REFERENCE, reference=self.name))


def _callable(g: object, constructor: str) -> None:
    if not callable(g):
        raise InputError(
            f"adjudge.reference.{constructor} was given a {type(g).__name__}, not a function",
            "pass a function with the signature of f",
        )


def require_reference(given: object) -> None:
    """Raises `InputError` where `given` is neither `None` nor what a function of this module
    made.
    """
    if given is None or isinstance(given, Reference):
        return
    kind = "a bare function" if callable(given) else described(given)
    if isinstance(given, str):
        raise InputError(
            f"reference={given!r} is no name of a reference",
            did_you_mean(given, ("exact",), after=" ") + '"exact" replays f itself',
        )
    raise InputError(
        f"reference= is {kind}, which does not say what numbers it takes",
        "wrap it: adjudge.reference.mpmath(g), adjudge.reference.twin(g) with NumPy's longdouble, "
        'or adjudge.reference.derivative(jvp=...) for a derivative; "exact" replays f itself',
    )

"""What a reference is: a source of derivatives that does without f, on vectors of coordinates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from adjudge.differences import Estimate, Vector
from adjudge.errors import InputError, NotSupportedError

Numbers = Any
"""A vector of real coordinates in the numbers of a reference: mpf objects, longdouble, float64."""


class Link(Protocol):
    """The reference's function on vectors of coordinates of X and Y, at one problem."""

    def call(self, g: Callable[..., Any], x: Numbers, kind: Kind) -> Numbers:
        """Coordinates of `g` at the point `x`."""

    def push(self, jvp: Callable[..., Any], x: Vector, v: Vector) -> Vector:
        """`J v` by an analytic jvp."""

    def rows(self, vjp: Callable[..., Any], x: Vector) -> Vector:
        """The Jacobian by an analytic vjp."""


class Kind(Protocol):
    """Between real coordinates and the arrays that a reference computes with."""

    def array(self, coordinates: Numbers, shape: tuple[int, ...], *, complex_: bool) -> Any:
        """What `g` gets for these coordinates."""

    def coordinates(self, result: Any, shape: tuple[int, ...], name: str, *, complex_: bool) -> Any:
        """Real coordinates of what `g` returned."""

    def exactly(self, x: Vector) -> Numbers:
        """Float64 numbers in those of the reference."""


@dataclass(frozen=True)
class Direction:
    """Along what to differentiate: a step `t` moves x by `t * length * vector`."""

    vector: Vector
    length: float
    ahead: float
    """The longest step along it within the bounds."""
    behind: float
    """The same, back along it."""


class Reference(ABC):
    """What gives the derivative of f in place of differences of f: see `adjudge.reference`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call it in a report."""

    @abstractmethod
    def values(self, link: Link, x: Vector) -> Vector | None:
        """f(x) by the reference, rounded to float64; `None` where it has derivatives only."""

    @abstractmethod
    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        """`J v` and how far off it may be."""

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        """The derivative of `(x, t) -> J(x) t` along `v`, then that of f. `NotSupportedError`
        where there is none.
        """
        raise NotSupportedError(*_first_order(self))

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        """The derivative of `(x, w) -> J*(x) w` along `v`, then that of f; as above."""
        raise NotSupportedError(*_first_order(self))

    @property
    def second_order(self) -> bool:
        """Whether there are second derivatives."""
        return False


def _first_order(reference: Reference) -> tuple[str, str]:
    return (
        f"the reference ({reference.name}) gives first derivatives only",
        "give adjudge.reference.mpmath(g), or check the second order without reference=",
    )


def fitting(array: Any, shape: tuple[int, ...], name: str) -> Any:
    """The entries of what a reference returned for an output of that shape."""
    if array.shape != shape and not (array.size == 1 and shape == ()):
        raise InputError(
            f"the reference has shape {array.shape} in {name}, the function {shape}",
            "return the structure and the shapes of the function",
        )
    return array.reshape(-1)

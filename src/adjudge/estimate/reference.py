"""This module defines references: sources of derivatives that do without f, on vectors of
coordinates.

A reference is what the caller gives in place of differences (`adjudge.reference`). It sees real
coordinates alone; the classes in here call the caller's functions with the arguments that f has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from adjudge.constants import LONGEST_STEP
from adjudge.engine import expand
from adjudge.errors import InputError, NotSupportedError, Source, running
from adjudge.estimate.stencils import (
    Estimate,
    Sample,
    combined,
    fewest_samples,
    ladder,
    ladder_steps,
)
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector, relative_step
from adjudge.problem import Leaf, Space, UserCalls, flatten

Numbers = Any
"""A vector of real coordinates in the numbers of a reference: mpf objects, longdouble, or
float64."""


class Link(Protocol):
    """The functions of a reference on vectors of coordinates of X and Y, at one problem."""

    def call(self, g: Callable[..., Any], x: Numbers, system: NumberSystem) -> Numbers:
        """Returns the coordinates of `g` at the point `x`."""

    def push(self, jvp: Callable[..., Any], x: Vector, v: Vector) -> Vector:
        """Returns `J v` by an analytic jvp."""

    def rows(self, vjp: Callable[..., Any], x: Vector) -> Vector:
        """Returns the Jacobian by an analytic vjp."""


class NumberSystem(Protocol):
    """Converts between real coordinates and the arrays that a reference computes with."""

    def array(self, coordinates: Numbers, shape: tuple[int, ...], *, complex_: bool) -> Any:
        """Returns the array that `g` gets for these coordinates."""

    def coordinates(self, result: Any, shape: tuple[int, ...], name: str, *, complex_: bool) -> Any:
        """Returns the real coordinates of what `g` returned."""

    def exactly(self, x: Vector) -> Numbers:
        """Float64 numbers in those of the reference, without any rounding."""


@dataclass(frozen=True)
class Direction:
    """The direction along which to differentiate: a step `t` moves x by `t * length * vector`."""

    vector: Vector
    length: float
    ahead: float
    """The longest step along it within the bounds."""
    behind: float
    """The longest step back along it within the bounds."""


class Reference(ABC):
    """Gives the derivative of f in place of differences of f; see `adjudge.reference`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The words for it in a report."""

    @abstractmethod
    def values(self, link: Link, x: Vector) -> Vector | None:
        """f(x) by the reference, rounded to float64; `None` where it has derivatives only."""

    @abstractmethod
    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        """Returns `J v`, and how far off it may be."""

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        """Returns the derivative of `(x, t) -> J(x) t` along `v`, followed by that of f. Raises
        `NotSupportedError` where there is none.
        """
        raise NotSupportedError(*_first_order_only(self))

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        """Returns the derivative of `(x, w) -> J*(x) w` along `v`, followed by that of f. Raises
        `NotSupportedError` where there is none.
        """
        raise NotSupportedError(*_first_order_only(self))

    @property
    def second_order(self) -> bool:
        """Says whether there are second derivatives."""
        return False


def _first_order_only(reference: Reference) -> tuple[str, str]:
    """Returns the words of the error that says so."""
    return (
        f"the reference ({reference.name}) gives first derivatives only",
        "give adjudge.reference.mpmath(g), or check the second order without reference=",
    )


def flat_entries(array: Any, shape: tuple[int, ...], name: str) -> Any:
    """Returns the entries of what a reference returned for an output of that shape."""
    if array.shape != shape and not (array.size == 1 and shape == ()):
        raise InputError(
            f"the reference has shape {array.shape} in {name}, the function {shape}",
            "return the structure and the shapes of the function",
        )
    return array.reshape(-1)


MOST_ENTRIES = 2**24
"""The largest Jacobian that is made row by row from an analytic vjp and held; 128 MiB in
float64."""


@dataclass(frozen=True)
class HostNumbers:
    """NumPy arrays of one real dtype, and of the complex one that belongs to it."""

    dtype: str

    def array(self, coordinates: Numbers, shape: tuple[int, ...], *, complex_: bool) -> Any:
        array = np.array(coordinates, dtype=self.dtype)
        return (array.view(self._complex) if complex_ else array).reshape(shape)

    def coordinates(self, result: Any, shape: tuple[int, ...], name: str, *, complex_: bool) -> Any:
        array = np.asarray(result)
        narrow = array.dtype.kind not in "iub" and (
            array.dtype.kind not in "fc" or np.finfo(array.dtype).eps > np.finfo(self.dtype).eps
        )
        if narrow:
            raise InputError(
                f"the reference has {array.dtype} in {name}, not {self.dtype}",
                f"compute in {self.dtype} throughout: constants in float64 arrays narrow nothing, "
                "astype and float() do",
            )
        flat = flat_entries(array, shape, name)
        if complex_:
            return flat.astype(self._complex).view(self.dtype)
        return flat.real.astype(self.dtype)

    def exactly(self, x: Vector) -> Numbers:
        return x.astype(self.dtype)

    @property
    def _complex(self) -> Any:
        return np.result_type(self.dtype, np.complex64)


@dataclass(frozen=True)
class Referenced:
    """A reference for the derivative of a problem: of f, or of its vjp or jvp."""

    reference: Reference
    calls: UserCalls
    X: Space
    """The space of f's inputs, as are all the vectors that the reference itself sees."""
    modes_taken: str = ""
    attached: tuple[slice, ...] = ()
    """The coordinates of the outputs that have a cotangent, for a vjp."""

    def over(self, letter: str, attached: Sequence[slice] = ()) -> Referenced:
        """Returns the reference for the vjp or the jvp of the problem. Raises
        `NotSupportedError`.
        """
        if self.modes_taken or not self.reference.second_order:
            raise NotSupportedError(
                f"the reference ({self.reference.name}) has no derivative of order "
                f"{len(self.modes_taken) + 2}",
                "give adjudge.reference.mpmath(g) for the second order, and no reference= beyond",
            )
        return replace(self, modes_taken=letter, attached=tuple(attached))

    def along(self, Y: Space, origin: Vector, v: Direction) -> Estimate:
        """Returns the derivative of all outputs `Y` of the problem, at `origin` along `v`."""
        n = self.X.size
        x, rest = origin[:n], origin[n:]
        if not self.modes_taken:
            return self.reference.along(self._at(Y), x, v)
        if self.modes_taken == "F":
            outputs = Space(Y.leaves[len(Y.leaves) // 2 :])
            return self.reference.tangent_along(self._at(outputs), x, rest, v)
        outputs = Space(Y.leaves[len(self.X.leaves) :])
        in_all = self._in_all_outputs(outputs.size)
        whole = replace(v, vector=np.concatenate([v.vector[:n], in_all(v.vector[n:])]))
        return self.reference.gradient_along(self._at(outputs), x, in_all(rest), whole)

    def values(self, Y: Space, origin: Vector) -> Vector | None:
        """Returns the outputs `Y` of f itself by the reference; `None` where it has derivatives
        only.
        """
        return self.reference.values(self._at(Y), origin[: self.X.size])

    def _in_all_outputs(self, size: int) -> Callable[[Vector], Vector]:
        """Makes cotangents of all outputs from those of the attached ones."""
        places = [np.arange(part.start, part.stop) for part in self.attached]

        def in_all(given: Vector) -> Vector:
            w = np.zeros(size)
            w[np.concatenate(places)] = given
            return w

        return in_all

    def _at(self, Y: Space) -> Linked:
        return Linked(self.calls, self.X, Y)


@dataclass(frozen=True)
class Linked:
    """Calls the functions of a reference with the arguments of f."""

    calls: UserCalls
    X: Space
    Y: Space

    def call(self, g: Callable[..., Any], x: Numbers, system: NumberSystem) -> Numbers:
        args, kwargs = self._arguments(x, system)
        result = self._noted(lambda: g(*args, **kwargs))
        parts = [
            system.coordinates(leaf, own.host_shape, own.name, complex_=own.complex)
            for leaf, own in zip(self._leaves(result), self.Y.leaves, strict=True)
        ]
        return np.concatenate(parts)

    def push(self, jvp: Callable[..., Any], x: Vector, v: Vector) -> Vector:
        args, kwargs = self._arguments(x, DOUBLE)
        tangents = self.calls.gradient_tree(tuple(self._checked(v, DOUBLE)))
        self._positional()
        found = self._noted(lambda: jvp(*args, *tangents, **kwargs))
        leaves = self.calls.cotangent_leaves(found)
        return np.concatenate([
            _host(leaf, own) for leaf, own in zip(leaves, self.Y.leaves, strict=True)
        ])  # fmt: skip

    def rows(self, vjp: Callable[..., Any], x: Vector) -> Vector:
        if self.X.size * self.Y.size > MOST_ENTRIES:
            raise InputError(
                f"a Jacobian of {self.Y.size} x {self.X.size} entries is too large to be made by "
                "the reference's vjp",
                "give adjudge.reference.derivative(jvp=...)",
            )
        self._positional()
        table = np.empty((self.Y.size, self.X.size))
        for k in range(self.Y.size):
            unit = np.zeros(self.Y.size)
            unit[k] = 1.0
            cotangents = tuple(
                leaf.host(unit[part])
                for leaf, part in zip(self.Y.leaves, self.Y.slices, strict=True)
            )
            args, kwargs = self._arguments(x, DOUBLE)
            w = self.calls.cotangent(cotangents)
            found = self.calls.gradients(self._noted(lambda: vjp(*args, w, **kwargs)))  # noqa: B023
            table[k] = np.concatenate([
                _host(leaf, own) for leaf, own in zip(found, self.X.leaves, strict=True)
            ])  # fmt: skip
        return table

    def _arguments(
        self, x: Numbers, system: NumberSystem
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of f, with the checked ones at `x`, in the numbers of the
        reference.
        """
        arguments = self.calls.arguments
        leaves = [self._other(leaf, system) for leaf in arguments.tree.leaves]
        for k, array in zip(arguments.checked, self._checked(x, system), strict=True):
            leaves[k] = array
        return arguments.assemble(leaves)

    def _checked(self, x: Numbers, system: NumberSystem) -> list[Any]:
        """Returns the arrays of the checked inputs at `x`."""
        return [
            system.array(x[part], leaf.host_shape, complex_=leaf.complex)
            for leaf, part in zip(self.X.leaves, self.X.slices, strict=True)
        ]

    def _other(self, leaf: Any, system: NumberSystem) -> Any:
        """Returns an argument that is not checked, in the numbers of the reference where it is
        floating.
        """
        backend = self.calls.arguments.backend
        if backend.owns(leaf):
            floating = backend.arrays.is_differentiable(leaf)
            complex_ = floating and backend.arrays.is_complex(leaf)
            host = backend.arrays.to_host(leaf)
        elif isinstance(leaf, np.ndarray):
            floating, complex_ = leaf.dtype.kind in "fc", leaf.dtype.system == "c"
            host = leaf.copy()
        else:
            return leaf
        if not floating:
            return host
        wide = np.ascontiguousarray(host, np.complex128 if complex_ else np.float64)
        numbers = wide.reshape(-1).view(np.float64)
        return system.array(system.exactly(numbers), wide.shape, complex_=complex_)

    def _leaves(self, result: Any) -> list[Any]:
        """Returns the leaves of a result that belong to the differentiable outputs."""
        expected, chosen = self.calls.result, self.calls.differentiable
        # f was evaluated at x before.
        assert expected is not None
        if len(expected.leaves) == 1 and chosen:
            return [result[0] if isinstance(result, tuple) and len(result) == 1 else result]
        given = flatten(result, "out", expand).leaves
        if len(given) == len(expected.leaves):
            return [given[k] for k in chosen]
        if len(given) == len(chosen):
            return list(given)
        raise InputError(
            f"the reference returned {len(given)} outputs, the function {len(expected.leaves)}",
            "return the structure of the function",
        )

    def _positional(self) -> None:
        """Raises `InputError` where an input is a keyword argument: an analytic reference has no
        place for its tangent.
        """
        arguments = self.calls.arguments
        named = [name for name in arguments.names if name.startswith("kwargs")]
        if named:
            raise InputError(
                f"an analytic reference has no derivative by keyword arguments ({named[0]})",
                "pass it by position, or name what to check: wrt=",
            )

    @staticmethod
    def _noted(call: Callable[[], Any]) -> Any:
        """Makes a call, and notes on an exception that it was raised in the reference and
        not in f.
        """
        with running(Source.REFERENCE, "adjudge: raised in the reference, not in the function"):
            return call()


def _host(array: Any, leaf: Leaf) -> Vector:
    if array is None:
        return np.zeros(leaf.size)
    host = np.asarray(array)
    if host.shape != leaf.host_shape:
        raise InputError(
            f"the reference's derivative has shape {host.shape} in {leaf.name}, which has "
            f"{leaf.host_shape}",
            "return the structure and the shapes that the function has",
        )
    return leaf.vector(host)


DOUBLE = HostNumbers("float64")


def bind(reference: Reference, calls: UserCalls, X: Space) -> Referenced:
    """Returns the reference of f, whose arguments `calls` knows."""
    for leaf in X.leaves:
        if leaf.info.shape != leaf.host_shape:
            raise NotSupportedError(
                f"{leaf.name} is stored sparsely, which a reference cannot take",
                "check the function of the dense array, or of the stored values",
            )
    return Referenced(reference, calls, X)


@dataclass(frozen=True)
class NumpyDifferences(Reference):
    """Takes differences of `g` in NumPy."""

    g: Callable[..., Any]
    dtype: str

    @property
    def name(self) -> str:
        """`twin in longdouble, 64 bits`."""
        return f"twin in {self.dtype}, {np.finfo(self.dtype).nmant + 1} bits"

    def values(self, link: Link, x: Vector) -> Vector | None:
        return np.asarray(self._at(link, x.astype(self.dtype)), np.float64)

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        eps = float(np.finfo(self.dtype).eps)
        point, move = x.astype(self.dtype), v.vector.astype(self.dtype)
        here = self._at(link, point)
        first = relative_step(eps)
        steps = [h * v.length for h in ladder_steps(first, first, eps, far=True)]
        found: list[Estimate] = []
        for factor in (1.0, 1.4):
            for sides in ((v.ahead, v.behind), (v.ahead, None), (None, v.behind)):
                taken = self._samples(link, point, move, here, [factor * h for h in steps], sides)
                if len(taken) >= fewest_samples(one_sided=None in sides):
                    found.append(ladder(taken, eps, here))
                    break
        if len(found) < 2:
            raise InputError(
                "the twin is not finite, or the bounds leave no room, on either side of x",
                "move x into the domain of the function, or give another reference",
            )
        both = combined(found[0], found[1])
        value = np.asarray(both.value, np.float64)
        far = self._samples(link, point, move, here, [LONGEST_STEP * v.length], (v.ahead, v.behind))
        stays = [(s.plus == here) & (s.minus == here) for s in far]
        unread = ~both.moved & np.all(stays, axis=0)
        error = np.asarray(both.error, np.float64) + 2.0**-52 * np.abs(value)
        slopes = both.slopes and (both.slopes[0].astype(float), both.slopes[1].astype(float))
        method = Method(Scheme.REFERENCE_DIFFERENCES, reference=self.name)
        return Estimate(value, error, ~unread, method, slopes)

    def _samples(
        self,
        link: Link,
        x: Numbers,
        move: Numbers,
        here: Numbers,
        steps: Sequence[float],
        sides: tuple[float | None, float | None],
    ) -> list[Sample]:
        """Returns the samples at the steps that lie within the bounds and at which g is finite
        wherever it is at x.
        """
        samples = []
        for h in steps:
            if any(room is not None and h > room for room in sides):
                continue
            values = [
                here if room is None else self._at(link, x + sign * h * move)
                for sign, room in zip((1, -1), sides, strict=True)
            ]
            if all(np.all(np.isfinite(value) | ~np.isfinite(here)) for value in values):
                one_sided = None in sides
                if one_sided and sides[0] is None:
                    samples.append(Sample(-h, values[1], here, one_sided=True))
                else:
                    samples.append(Sample(h, values[0], values[1], one_sided=one_sided))
        return samples

    def _at(self, link: Link, x: Numbers) -> Numbers:
        with np.errstate(all="ignore"):
            return link.call(self.g, x, HostNumbers(self.dtype))

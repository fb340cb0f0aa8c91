"""This module defines references: sources of derivatives that do without f, on vectors of
coordinates.

A reference is what the caller gives in place of differences (`adjudge.reference`). It sees real
coordinates alone; the classes in here call the caller's functions with the arguments that f has.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import LONGEST_STEP, MOST_DIGITS, PROGRAM_DISTANCE
from adjudge.engine import HostArray, Operation, Program, unseen
from adjudge.errors import InputError, NotSupportedError, Source, attempt, running
from adjudge.estimate.kinks import half_gaps
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
from adjudge.problem import Leaf, Problem, Space, UserCalls, flatten

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

    def program(self, x: Vector) -> Program:
        """Returns what f itself does at x in the vocabulary that engines share. Raises
        `NotSupportedError` where the engine does not tell.
        """

    def unseen(self, x: Vector) -> Operation | str | None:
        """Returns what in the program of f at x takes numbers for constants that depend on x; see
        `adjudge.engine.unseen`.
        """

    def inputs(self, vector: Vector) -> list[HostArray]:
        """Returns the arrays that have these coordinates of X."""


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

    def value_slack(self, link: Link, x: Vector, eps: float) -> Vector | float:
        """How far f(x) may be from these values by what f itself rounds, to numbers with the
        spacing `eps` at 1; 0 where that is not known.
        """
        return 0.0

    @abstractmethod
    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        """Returns `J v`, and how far off it may be."""

    def require(self, link: Link, x: Vector) -> None:  # noqa: B027 most need nothing
        """Raises `NotSupportedError` where there is no derivative at x."""

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        """Returns the derivative of `(x, t) -> J(x) t` along `v`, followed by that of f, where
        there are second derivatives.
        """
        raise NotImplementedError

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        """Returns the derivative of `(x, w) -> J*(x) w` along `v`, followed by that of f, where
        there are second derivatives.
        """
        raise NotImplementedError

    @property
    def second_order(self) -> bool:
        """Says whether there are second derivatives."""
        return False


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
    primal: Problem
    """The problem of f itself."""
    X: Space
    """The space of f's inputs, as are all the vectors that the reference itself sees."""
    modes_taken: str = ""
    attached: tuple[slice, ...] = ()
    """The coordinates of the outputs that have a cotangent, for a vjp."""

    def require(self, origin: Vector) -> None:
        """Raises `NotSupportedError` where the reference has no derivative at `origin`."""
        self.reference.require(self.link(self.primal.X), origin[: self.X.size])

    def along(self, Y: Space, origin: Vector, v: Direction) -> Estimate:
        """Returns the derivative of all outputs `Y` of the problem, at `origin` along `v`."""
        n = self.X.size
        x, rest = origin[:n], origin[n:]
        if not self.modes_taken:
            return self.reference.along(self.link(Y), x, v)
        if self.modes_taken == "F":
            outputs = Space(Y.leaves[len(Y.leaves) // 2 :])
            return self.reference.tangent_along(self.link(outputs), x, rest, v)
        outputs = Space(Y.leaves[len(self.X.leaves) :])
        in_all = self._in_all_outputs(outputs.size)
        whole = replace(v, vector=np.concatenate([v.vector[:n], in_all(v.vector[n:])]))
        return self.reference.gradient_along(self.link(outputs), x, in_all(rest), whole)

    def values(self, Y: Space, origin: Vector) -> Vector | None:
        """Returns the outputs `Y` of f itself by the reference; `None` where it has derivatives
        only.
        """
        return self.reference.values(self.link(Y), origin[: self.X.size])

    def value_slack(self, Y: Space, origin: Vector, eps: float) -> Vector | float:
        """Returns by how much f may differ from these values by its own rounding, if known."""
        return self.reference.value_slack(self.link(Y), origin[: self.X.size], eps)

    def _in_all_outputs(self, size: int) -> Callable[[Vector], Vector]:
        """Makes cotangents of all outputs from those of the attached ones."""
        places = [np.arange(part.start, part.stop) for part in self.attached]

        def in_all(given: Vector) -> Vector:
            w = np.zeros(size)
            w[np.concatenate(places)] = given
            return w

        return in_all

    def link(self, Y: Space) -> Linked:
        """Returns what the reference calls the function with outputs `Y` by."""
        return Linked(self.primal, self.X, Y)


def point_beside(problem: Problem, x: Vector) -> Vector:
    """Returns a point close to x at which all its coordinates are other ones, as far as they may
    be, and a program most likely takes the same branches.
    """
    lengths = np.where(x != 0, np.abs(x), problem.length_scales)
    return problem.clipped(x + PROGRAM_DISTANCE * np.where(np.isfinite(x), lengths, 0.0))


@dataclass(frozen=True)
class Linked:
    """Calls the functions of a reference with the arguments of f."""

    primal: Problem
    X: Space
    Y: Space

    @property
    def calls(self) -> UserCalls:
        """The calls of the user's function."""
        assert self.primal.calls is not None  # a function that the core wraps has no reference
        return self.primal.calls

    def program(self, x: Vector) -> Program:
        return self.primal.program(x)

    def unseen(self, x: Vector) -> Operation | str | None:
        problem = self.primal
        if problem.backend.usually_compiled:
            return None  # what is traced can hand out no numbers
        point, here = point_beside(problem, x), problem.program(x)
        beside = attempt(partial(problem.program_of_run, point), NotSupportedError)
        found = None if beside is None else unseen(here, beside)
        # What varies from run to run is told by itself.
        varies = found is not None and unseen(here, problem.program_of_run(x)) is not None
        return None if varies else found

    def inputs(self, vector: Vector) -> list[HostArray]:
        return [
            leaf.host(vector[part]) for leaf, part in zip(self.X.leaves, self.X.slices, strict=True)
        ]

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
        _require_value(found, "jvp")
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
            given = self._noted(lambda: vjp(*args, w, **kwargs))  # noqa: B023
            _require_value(given, "vjp")
            found = self.calls.gradients(given)
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
            floating, complex_ = leaf.dtype.kind in "fc", leaf.dtype.kind == "c"
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
        given = flatten(result, "out").leaves
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


def _require_value(found: Any, name: str) -> None:
    """Raises `InputError` where a derivative of the reference returned nothing at all. Without this
    it stood for zeros, and a right rule failed.
    """
    if found is None:
        raise InputError(
            f"the {name}= of the reference returned None",
            "return its value: is a `return` missing?",
        )


def _host(array: Any, leaf: Leaf) -> Vector:
    if array is None:
        return np.zeros(leaf.size)
    host = np.asarray(array)
    if np.iscomplexobj(host) and not leaf.complex:
        raise InputError(
            f"the reference's derivative is {host.dtype} in {leaf.name}, which is real",
            "return real numbers: the real part, where the imaginary part is rounding",
        )
    if host.shape != leaf.host_shape:
        raise InputError(
            f"the reference's derivative has shape {host.shape} in {leaf.name}, which has "
            f"{leaf.host_shape}",
            f"return an array of the shape of {leaf.name}",
        )
    return leaf.vector(host)


DOUBLE = HostNumbers("float64")


def bind(reference: Reference, problem: Problem) -> Referenced:
    """Returns the reference for the derivative of a problem.

    Raises `NotSupportedError` where the reference has no derivative of that order, and for inputs
    that it cannot take.
    """
    taken, leaves = problem.modes_taken, problem.X.leaves
    if len(taken) > 1 or (taken and not reference.second_order):
        raise NotSupportedError(
            f"the reference ({reference.name}) has no derivative of order {len(taken) + 1}",
            "give adjudge.reference.mpmath(g) for the second order, and no reference= beyond",
        )
    X = Space(leaves[: problem.primal_inputs]) if taken else problem.X
    for leaf in X.leaves:
        if leaf.info.shape != leaf.host_shape:
            raise NotSupportedError(
                f"{leaf.name} is stored sparsely, which a reference cannot take",
                "check the function of the dense array, or of the stored values",
            )
    return Referenced(reference, problem.primal or problem, X, taken, problem.attached)


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
        half_gap = None if both.half_gap is None else both.half_gap.astype(float)
        method = Method(Scheme.REFERENCE_DIFFERENCES, reference=self.name)
        return Estimate(value, error, ~unread, method, half_gap)

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
        return link.call(self.g, x, HostNumbers(self.dtype))


def _name(digits: int) -> str:
    """Returns what a reference with so many digits calls itself."""
    return f"mpmath, {digits} digits"


@dataclass(frozen=True)
class Mpmath(Reference):
    """Takes differences of `g` in multiple precision."""

    g: Callable[..., Any]
    digits: int

    @property
    def name(self) -> str:
        """`mpmath, 50 digits`."""
        return _name(self.digits)

    @property
    def second_order(self) -> bool:
        """There are second derivatives, since differences of differences are as exact."""
        return True

    def values(self, link: Link, x: Vector) -> Vector | None:
        with _mp().workdps(self.digits):
            return _floats(link.call(self.g, _exactly(x), MpNumbers()))

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        at = self._at(link)

        def estimate(digits: int, move: Numbers) -> Estimate:
            point, h = _exactly(x), _power(digits, 3)
            here, found = at(point), None

            def central(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
                plus, minus = at(point + h * move), at(point - h * move)
                return (plus - minus) / (2 * h), ((plus + minus) / 2 - here) / h

            if 2 * float(h) * v.length <= min(v.ahead, v.behind):
                found = _from_two_steps(central, move, h, here, digits)
            if found is None or _not_finite(found, here):
                found = self._one_sided(at, point, here, digits, v, found)
            return found

        found = self._refined(estimate, v)
        if not np.any(found.moved):
            self._require_motion(at, x, v)
        return found

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        at, n = self._at(link), x.size

        def estimate(digits: int, move: Numbers) -> Estimate:
            point, tangent = _exactly(x), _exactly(t)

            def both(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
                a, b = move[:n], move[n:]
                first = _central_difference(at, point, a, h * h)
                second = _second_difference(at, point, tangent, a, h)
                second = second + _central_difference(at, point, b, h * h)
                return np.concatenate([second, first]), 0 * h * np.concatenate([first, first])

            here = np.concatenate([at(point)] * 2)
            return _from_two_steps(both, move, _power(digits, 4), here, digits, 2)

        return self._refined(estimate, v)

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        at, n = self._at(link), x.size

        def estimate(digits: int, move: Numbers) -> Estimate:
            point, weights = _exactly(x), _exactly(w)
            length = np.where(point == 0, _mp().mpf(1), abs(point))

            def second(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
                a, b = move[:n], move[n:]
                parts = []
                for k in range(n):
                    unit = _exactly(np.zeros(n))
                    unit[k] = length[k]
                    term = 0 * h
                    if np.any(a != 0):
                        term = weights @ _second_difference(at, point, unit, a, h)
                    if np.any(b != 0):
                        term += b @ _central_difference(at, point, unit, h * h)
                    parts.append(term / length[k])
                both = np.concatenate(
                    [object_array(parts), _central_difference(at, point, a, h * h)]
                )
                return both, 0 * both

            here = at(point)
            here = np.concatenate([np.full(n, np.sum(abs(weights * here))) / length, here])
            return _from_two_steps(second, move, _power(digits, 4), here, digits, 2)

        return self._refined(estimate, v)

    def _refined(self, estimate: Callable[[int, Numbers], Estimate], v: Direction) -> Estimate:
        """Returns the estimate along `v` by more and more digits, until these show nothing new."""
        found: list[Estimate] = []
        most = max(self.digits, MOST_DIGITS)
        for digits in sorted({self.digits, min(3 * self.digits, most), most}):
            with _mp().workdps(digits):
                found.append(estimate(digits, _exactly(v.vector) * _mp().mpf(v.length)))
            if _resolved(found[-1]):
                break
        return _per_unit(_limit(found), v)

    def _at(self, link: Link) -> Callable[[Numbers], Numbers]:
        """Returns `g` as a function of coordinates."""
        return lambda point: link.call(self.g, point, MpNumbers())

    def _one_sided(
        self,
        at: Callable[[Numbers], Numbers],
        point: Numbers,
        here: Numbers,
        digits: int,
        v: Direction,
        best: Estimate | None,
    ) -> Estimate:
        """Returns the estimate to the side on which g is defined, or on which the bounds leave
        room.
        """
        h, move = _power(digits, 2), _exactly(v.vector) * _mp().mpf(v.length)

        def to_one_side(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
            slope = (at(point + h * move) - here) / h
            return slope, 0 * slope

        found = best
        for sign, room in ((1, v.ahead), (-1, v.behind)):
            if 2 * float(h) * v.length > room:
                continue
            side = _from_two_steps(to_one_side, sign * move, h, here, digits)
            value = sign * side.value
            found = Estimate(value, side.error, side.moved, side.method)
            if not _not_finite(found, here):
                return found
        if found is None:
            raise InputError(
                "the bounds leave the reference no room to either side of x",
                "widen bounds= by a rounding error, or give an analytic derivative",
            )
        return found

    def _require_motion(self, at: Callable[[Numbers], Numbers], x: Vector, v: Direction) -> None:
        """Raises `InputError` where g stands still over short steps only, since it computes in
        fewer digits inside: its derivative would be zero at any x.

        Where g is constant, its values differ by rounding in the last of `digits` digits, so only
        a motion within the first half of them counts.
        """
        step = v.length * 2.0**-20
        if step > min(v.ahead, v.behind):
            return
        with _mp().workdps(self.digits):
            point, move = _exactly(x), _exactly(v.vector)
            short = _power(self.digits, 2)
            here, close = at(point), at(point + short * v.length * move)
            far = at(point + _mp().mpf(step) * move)
            moved = np.any(abs(far - here) > short * abs(here))
        if moved and np.all(close == here):
            raise InputError(
                "the reference moves over long steps and not over short ones: it rounds to less "
                f"than {self.digits} digits inside",
                "let it compute with mpmath's functions alone, without float() and NumPy floats",
            )


class MpNumbers:
    """Object arrays of mpf and mpc numbers."""

    def array(self, coordinates: Numbers, shape: tuple[int, ...], *, complex_: bool) -> Any:
        if complex_:
            mpc = _mp().mpc
            pairs = zip(coordinates[0::2], coordinates[1::2], strict=True)
            coordinates = object_array([mpc(re, im) for re, im in pairs])
        return coordinates.reshape(shape) if shape else coordinates[0]

    def coordinates(self, result: Any, shape: tuple[int, ...], name: str, *, complex_: bool) -> Any:
        mp = _mp()
        # The result is an array, or a matrix of mpmath.
        if hasattr(result, "tolist"):
            result = result.tolist()
        array = np.array(result, dtype=object)
        flat = flat_entries(array, shape, name)
        parts = []
        for entry in flat:
            if not isinstance(entry, mp.mpf | mp.mpc | int):
                raise InputError(
                    f"the reference has {type(entry).__name__} in {name}, not numbers of mpmath",
                    "compute with mpmath's functions; np.vectorize(mpmath.exp, otypes=[object]) "
                    "takes arrays",
                )
            number = mp.mpmathify(entry)
            if complex_:
                parts += [number.real, number.imag]
            # Off its domain a function of mpmath has complex values.
            else:
                parts.append(number.real if number.imag == 0 else mp.nan)
        return object_array(parts)

    def exactly(self, x: Vector) -> Numbers:
        return _exactly(x)


def _mp() -> Any:
    return importlib.import_module("mpmath")


def object_array(entries: Sequence[Any]) -> NDArray[Any]:
    """Returns the entries as an array, whatever NumPy would make of them."""
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array


def _exactly(vector: Vector) -> Numbers:
    return object_array([_mp().mpf(float(entry)) for entry in vector])


def _floats(numbers: Numbers) -> Vector:
    return np.array([float(entry) for entry in numbers])


def _power(digits: int, root: int) -> Any:
    """Returns a power of two near `10^(-digits / root)`."""
    return _mp().mpf(2) ** -round(digits * 3.3219 / root)


def _central_difference(
    at: Callable[[Numbers], Numbers], x: Numbers, a: Numbers, h: Any
) -> Numbers:
    """Returns the central difference of `at` along `a`."""
    plus, minus = at(x + h * a), at(x - h * a)
    return (plus - minus) / (2 * h)


def _second_difference(
    at: Callable[[Numbers], Numbers], x: Numbers, a: Numbers, b: Numbers, h: Any
) -> Numbers:
    """Returns `D^2 g(a, b)`, from four corners."""
    a, b = h * a, h * b
    return (at(x + a + b) - at(x + a - b) - at(x - a + b) + at(x - a - b)) / (4 * h * h)


def _from_two_steps(
    quotient: Callable[[Any, Numbers], tuple[Numbers, Numbers]],
    move: Numbers,
    h: Any,
    here: Numbers,
    digits: int,
    order: int = 1,
) -> Estimate:
    """Returns the estimate from a quotient at two steps: its value at the shorter one, and as its
    error bar what the longer one changes, and rounding.
    """
    mp = _mp()
    value, even = quotient(h, move)
    longer, more_even = quotient(2 * h, move)
    rounding = abs(here) * mp.mpf(10) ** (-digits) / h**order
    change = abs(value - longer)
    still = np.array([bool(d == 0 and c == 0) for d, c in zip(value, change, strict=True)])
    error = np.where(still, 0 * rounding, 4 * change + 8 * rounding)
    bends = np.array([_floats(more_even), _floats(even)])
    half_gap = half_gaps(bends, (2.0, 1.0), _floats(rounding))
    found, bar = _floats(value), _floats(error)
    bar = np.where(np.isnan(found), np.nan, bar + 2.0**-52 * np.abs(found))
    moved = ~still
    method = Method(Scheme.REFERENCE, reference=_name(digits))
    return Estimate(found, bar, moved, method, half_gap)


def _per_unit(estimate: Estimate, v: Direction) -> Estimate:
    """Returns the estimate along `v.vector`, from what was taken along `v.length * v.vector`."""
    half_gap = estimate.half_gap
    return replace(
        estimate,
        value=estimate.value / v.length,
        error=estimate.error / v.length,
        half_gap=None if half_gap is None else half_gap / v.length,
    )


def _limit(found: Sequence[Estimate]) -> Estimate:
    """Returns the last of several estimates with more and more digits, or zero where they tend to
    zero.
    """
    first, last = found[0], found[-1]
    before = np.abs(first.value) + first.error
    zero = (np.abs(last.value) <= last.error) & (last.error <= 2.0**-64 * before)
    value, error = np.where(zero, 0.0, last.value), np.where(zero, 0.0, last.error)
    return replace(last, value=value, error=error, moved=last.moved & ~zero)


def _not_finite(estimate: Estimate, here: Numbers) -> bool:
    """Returns whether a derivative is not finite where the function is."""
    return bool(np.any(~np.isfinite(estimate.value) & np.isfinite(_floats(here))))


def _resolved(estimate: Estimate) -> bool:
    """Returns whether more digits would show nothing new."""
    sharp = estimate.error <= 2.0**-50 * np.abs(estimate.value)
    return bool(np.all((sharp & estimate.moved) | ~np.isfinite(estimate.value)))

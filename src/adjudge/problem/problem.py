"""The function `f` at the point `x`: flattened, named, counted, and never touching x itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Arrays, AutodiffBackend, ByHand, FlatByHand, FlatFunction, HandBackend
from adjudge.errors import Source, running
from adjudge.floats import COARSE_EPS, QUANTILE_ENTRIES, Vector, scale
from adjudge.problem.arguments import Arguments
from adjudge.problem.calls import Counts, Move, Purpose, UserCalls
from adjudge.problem.constraints import (
    ChartedByHand,
    Charts,
    Directions,
    at_start,
    read_directions,
    within,
)
from adjudge.problem.domain import Bounds, read_bounds
from adjudge.problem.space import Space


class BlockSums(Protocol):
    """What the coordinates of a problem stand for that are blocks of entries."""

    undetectable: dict[int, NDArray[np.bool_]]
    """By input, the entries whose terms were too small to show."""

    def terms(self, j: int, t: Vector, rows: int) -> Vector:
        """What each entry of input `j` adds to the comparison along `t`, by row."""

    doubted: dict[int, NDArray[np.bool_]]
    """By input, the outputs whose tangents two evaluations have not settled."""
    uncompared: bool
    """Whether there are such ones that do not show in their sums either."""

    def images(self, j: int, t: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """What each entry of the outputs adds to its sum along `t`, which moves input `j`; and
        which sum that is.
        """


class BoundReference(Protocol):
    """The user's reference for the derivative of f, bound to f's arguments and spaces.

    A problem carries it for those who estimate derivatives; only compositions ask it for more.
    """

    @property
    def reference(self) -> Any:
        """The reference as the user gave it."""

    def over(self, letter: str, attached: Sequence[slice] = ()) -> BoundReference:
        """The reference for the vjp (`R`) or the jvp (`F`). Raises `NotSupportedError`."""

    def along(self, Y: Space, origin: Vector, v: Any) -> Any:
        """The estimate of the derivative of all outputs `Y` at `origin` along the direction `v`."""

    def values(self, Y: Space, origin: Vector) -> Vector | None:
        """The outputs of f by the reference; `None` where it has derivatives only."""


BindReference: TypeAlias = Callable[[UserCalls, Space], BoundReference]
"""Binds a reference to the arguments of f and to the space of its checked inputs."""


@dataclass(frozen=True)
class Problem:
    """`f: X -> Y` at `x`.

    `function` is what the engine differentiates; `evaluate` gives the same outputs for
    differences, followed by `extra` further ones that are only observed (for a second-order
    problem: the value of the original function, so that its first derivative is checked by the
    same evaluations).
    """

    backend: AutodiffBackend
    function: FlatFunction
    evaluate: FlatFunction
    x: Arrays
    X: Space
    origin: Vector
    counts: Counts
    modes_taken: str = ""
    """The derivatives already taken, outermost first: "" for f itself, "R" for its vjp."""
    output_names: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Accessor paths of what `evaluate` returns; known after the first evaluation."""
    mutated: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Unchecked arrays that the function wrote into; known after the first evaluation."""
    differentiated: int | None = None
    """How many outputs `function` has, where `evaluate` gives more."""
    primal_inputs: int = 0
    """How many leaves of X are those of the original function, where there are more."""

    cotangent: Vector | None = None
    """The cotangent of a vjp as a vector over all outputs of f, which is zero where they are
    detached."""
    bounds: tuple[Vector, Vector] | None = None
    """The lowest and the highest point of X, between which every evaluation stays."""
    in_double: Callable[[], Problem] | None = None
    """Makes the same problem in double precision, where x has a leaf of less."""
    constraints: tuple[str, ...] = ()
    """Which inputs are checked along which set: x is their coordinates."""
    reference: BoundReference | None = None
    """What gives the derivative in place of differences."""
    block_sums: BlockSums | None = None
    """Of a large problem that is seen through sums of blocks: its entries."""

    def longest_step(self, v: Vector, *, both: bool = True) -> float:
        """The longest step along `v`, and back along it where `both`, within the bounds."""
        if self.bounds is None:
            return np.inf
        low, high = self.bounds
        moves = v != 0
        with np.errstate(all="ignore"):
            ahead = np.where(v > 0, high - self.origin, self.origin - low)[moves]
            behind = np.where(v > 0, self.origin - low, high - self.origin)[moves]
            steps = (np.minimum(ahead, behind) if both else ahead) / np.abs(v[moves])
        return float(np.min(steps, initial=np.inf))

    def inward(self, v: Vector) -> Vector:
        """`v` with signs that point away from the nearer bound."""
        if self.bounds is None:
            return v
        low, high = self.bounds
        with np.errstate(all="ignore"):
            nearer = high - self.origin < self.origin - low
        bounded = np.isfinite(low) | np.isfinite(high)
        return np.where(bounded, np.where(nearer, -np.abs(v), np.abs(v)), v)

    def clipped(self, point: Vector) -> Vector:
        """`point`, or the nearest one within the bounds: rounding may leave them."""
        return point if self.bounds is None else np.asarray(np.clip(point, *self.bounds))

    @cached_property
    def length_scales(self) -> Vector:
        """The scale of every coordinate of x."""
        with np.errstate(all="ignore"):
            scales = [scale(self.origin[part]) for part in self.X.slices]
        return np.concatenate([*scales, np.zeros(0)])

    @cached_property
    def finite(self) -> bool:
        """Whether every entry of x is finite."""
        return bool(np.all(np.isfinite(self.origin)))

    def outputs_of(self, count: int) -> int:
        """Of `count` outputs of `evaluate`, how many are differentiated."""
        return count if self.differentiated is None else self.differentiated

    def point(self, vector: Vector | None = None) -> Arrays:
        """Fresh arrays at `vector`, by default at `x`."""
        x = self.X.arrays(self.backend, self.origin if vector is None else vector, self.x)
        self.counts.keep(x, 8 * self.X.size)
        return x


def first_order(
    function: Callable[..., Any],
    arguments: Arguments,
    *,
    bounds: Bounds = None,
    directions: Directions = None,
    reference: BindReference | None = None,
    counts: Counts | None = None,
) -> Problem:
    """The problem of `function` at its arguments. What it costs is added to `counts`.

    Raises `InputError` for bounds and sets that do not fit the arguments.
    """
    if isinstance(function, ByHand):
        hand = HandBackend(arguments.backend, function)
        arguments = replace(arguments, backend=hand)
    user = _UserFunction(function, counts or Counts(), bounds, directions)
    problem = user.at(arguments, reference)
    if reference is not None or all(leaf.double for leaf in problem.X.leaves):
        return problem
    given = [leaf.eps for leaf in problem.X.leaves]
    return replace(problem, in_double=lambda: user.at(arguments.in_double(), given=given))


@dataclass(frozen=True)
class _UserFunction:
    """The user's function, and where it may be evaluated."""

    function: Callable[..., Any]
    counts: Counts
    bounds: Bounds
    directions: Directions

    def at(
        self,
        arguments: Arguments,
        reference: BindReference | None = None,
        given: Sequence[float] | None = None,
    ) -> Problem:
        """The problem at `arguments`. `given`: the spacing of the dtypes of the user's own leaves,
        where those of `arguments` are wider.
        """
        function, counts, directions = self.function, self.counts, self.directions
        calls = UserCalls(arguments, counts)
        flat: FlatFunction = (
            FlatByHand(function, calls)
            if isinstance(function, ByHand)
            else lambda x: calls.evaluate(function, x)
        )
        engine = arguments.backend
        space, origin = Space.at(engine, arguments.leaves, arguments.names)
        problem = Problem(
            engine,
            flat,
            flat,
            arguments.leaves,
            space,
            origin,
            counts,
            output_names=lambda: calls.output_names,
            mutated=lambda: calls.mutated,
            bounds=read_bounds(space, origin, self.bounds),
            reference=None if reference is None else reference(calls, space),
        )
        if directions is None:
            return problem
        rounding = given or [leaf.eps for leaf in space.leaves]
        with engine.environment.isolation(problem.x):  # as where it will be evaluated
            charts = read_directions(engine, space, problem.x, directions, self.bounds, rounding)
            return _charted(problem, charts)


def _charted(problem: Problem, charts: Charts) -> Problem:
    """The same problem in the coordinates of `charts`."""
    flat, counts, size = problem.function, problem.counts, 8 * problem.X.size
    z, start = at_start(charts, problem.X, problem.x, problem.origin)
    bounds = within(problem.X, start, problem.bounds, charts)
    problem = replace(problem, x=z, origin=start, bounds=bounds, constraints=charts.descriptions)
    if charts.identity:
        return problem

    def evaluate(z: Arrays) -> Arrays:
        with running(Source.FUNCTION):  # a chart may be one that the user wrote
            x = charts.value(z)
        counts.keep(x, size)  # it is x, and not z, that the function may remember by `id`
        return flat(x)

    function: FlatFunction = (
        ChartedByHand(flat, charts)
        if isinstance(flat, FlatByHand)
        else lambda z: flat(charts.value(z))
    )
    return replace(problem, function=function, evaluate=evaluate)


UNDETECTABLE = 64
"""Units of rounding of f below which nothing of it is seen."""


@dataclass(frozen=True)
class Base:
    """The function at x: its outputs, the space they lie in, and what is only observed."""

    problem: Problem
    whole: Space
    """Outputs of `problem.evaluate`: the differentiated ones, then the observed ones."""
    Y: Space
    """The differentiated ones."""
    values: Vector
    arrays: tuple[object, ...]
    noise: float = 0.0
    """Spread of the values between evaluations, where the caller allows one."""
    constant: NDArray[np.bool_] | None = None
    """Outputs that are left out of a column, since they stand still and tower over the others."""

    def magnitude(self, values: Vector) -> Vector:
        """What the rounding of outputs is relative to: their modulus, and never less than the
        median of their leaf at x, through which they may be computed (1 - erfc(x), a @ b).
        """
        size = np.fmax(self.whole.modulus(values), self._typical)
        return np.asarray(size if self.constant is None else np.where(self.constant, 0.0, size))

    def rounded(self, eps: float) -> Base:
        """The same outputs, known to be rounded to `eps` at least."""

        def coarser(space: Space) -> Space:
            return Space(tuple(replace(leaf, eps=max(leaf.eps, eps)) for leaf in space.leaves))

        return replace(self, whole=coarser(self.whole), Y=coarser(self.Y))

    @cached_property
    def _typical(self) -> Vector:
        typical = np.zeros(self.whole.size)
        size = self.whole.modulus(self.values)
        for leaf, part in zip(self.whole.leaves, self.whole.slices, strict=True):
            if leaf.eps > COARSE_EPS:  # in sixteen bits every small entry would drown in it
                continue
            own = size[part] if self.constant is None else size[part][~self.constant[part]]
            some = own[:: max(1, own.size // QUANTILE_ENTRIES)]
            finite = some[np.isfinite(some)]
            if finite.size:
                typical[part] = np.partition(finite, finite.size // 2)[finite.size // 2]
        return typical


def undetectable_slope(base: Base, vector: Vector, eps: float) -> Vector:
    """For each output of a derivative, what its slope along `vector` may be without showing in f:
    units of rounding of f, over the scale of the inputs that the output belongs to. Zero where
    the problem is f itself.
    """
    problem, width = base.problem, base.Y.size
    observed = base.values[width:]
    if not problem.modes_taken or not observed.size:
        return np.zeros(width)
    f = float(np.max(np.abs(observed), initial=0.0, where=np.isfinite(observed)))
    lengths = np.ones(width)
    if problem.modes_taken[0] == "R":
        lengths = problem.length_scales[:width]
    moves = vector != 0
    with np.errstate(all="ignore"):
        step = float(np.max(np.abs(vector[moves]) / problem.length_scales[moves], initial=0.0))
        return np.asarray(UNDETECTABLE * eps * f * step / lengths)


def evaluate(problem: Problem, base: Base, x: Vector, purpose: Purpose | Move) -> Vector:
    """All outputs at the point `x` of X, as a vector; the arrays are fresh ones."""
    problem.counts.purpose = purpose
    outputs = problem.evaluate(problem.point(x))
    return base.whole.vector(problem.backend, outputs, base.arrays)


def observe(problem: Problem) -> Base:
    """The function at x, evaluated once, and the spaces of its outputs."""
    problem.counts.purpose = Purpose.AT_X
    x = problem.point()
    return base_of(problem, problem.evaluate(x))


def base_of(problem: Problem, outputs: Arrays) -> Base:
    """`Base` from outputs that are already there."""
    backend = problem.backend
    with running(Source.ENGINE):
        arrays = tuple(backend.arrays.copy(y) for y in outputs)
    names = tuple(problem.output_names())[: len(arrays)]
    whole, values = Space.at(backend, arrays, names)
    count = problem.outputs_of(len(arrays))
    return Base(
        problem,
        whole,
        Space(whole.leaves[:count]),
        values,
        arrays,
    )

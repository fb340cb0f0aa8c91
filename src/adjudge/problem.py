"""The function `f` at the point `x`: flattened, named, counted, and never touching x itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adjudge.arguments import Arguments, Path, read_arguments
from adjudge.backend import Arrays, AutodiffBackend, FlatFunction
from adjudge.bounds import Bounds, read_bounds
from adjudge.byhand import ByHand, FlatByHand, HandBackend
from adjudge.codec import Counts, UserCodec
from adjudge.differences import scale
from adjudge.directions import ChartedByHand, Charts, Directions, at_start, read_directions, within
from adjudge.errors import FlagError, InputError
from adjudge.referenced import Referenced, bound
from adjudge.source import Reference
from adjudge.spaces import Space, Vector


class Sums(Protocol):
    """What the coordinates of a problem stand for that are blocks of entries."""

    hidden: dict[int, NDArray[np.bool_]]
    """By input, the entries whose terms were too small to show."""

    def terms(self, j: int, t: Vector, rows: int) -> Vector:
        """What each entry of input `j` adds to the comparison along `t`, by row."""

    doubted: dict[int, NDArray[np.bool_]]
    """By input, the outputs whose tangents two evaluations have not settled."""
    lost: bool
    """Whether there are such ones that do not show in their sums either."""

    def images(self, j: int, t: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """What each entry of the outputs adds to its sum along `t`, which moves input `j`; and
        which sum that is.
        """


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
    tail: str = ""
    """The derivatives already taken, outermost first: "" for f itself, "R" for its vjp."""
    output_names: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Accessor paths of what `evaluate` returns; known after the first evaluation."""
    written: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Unchecked arrays that the function wrote into; known after the first evaluation."""
    differentiated: int | None = None
    """How many outputs `function` has, where `evaluate` gives more."""
    base_inputs: int = 0
    """How many leaves of X are those of the original function, where there are more."""

    weights: Vector | None = None
    """For a vjp: its cotangent as a vector over all outputs of f, zero where detached."""
    bounds: tuple[Vector, Vector] | None = None
    """What no evaluation leaves: the lowest and highest point of X."""
    widened: Callable[[], Problem] | None = None
    """Makes the same problem in double precision, where x has a leaf of less."""
    along: tuple[str, ...] = ()
    """Which inputs are checked along which set: x is their coordinates."""
    reference: Referenced | None = None
    """What gives the derivative in place of differences."""
    sketch: Sums | None = None
    """Of a large problem that is seen through sums of blocks: its entries."""

    def room(self, v: Vector, *, both: bool = True) -> float:
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
    def lengths(self) -> Vector:
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
    inputs: object,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    backend: str | AutodiffBackend | None = None,
    masked: bool | None = None,
    bounds: Bounds = None,
    directions: Directions = None,
    reference: Reference | None = None,
    highest: bool = False,
    device: str | None = None,
    counts: Counts | None = None,
) -> Problem:
    """The problem of `function(*inputs, **kwargs)`. Raises the errors of bad input.

    `highest`: it will be evaluated with the engine's highest precision. `counts`: what it costs
    is added there.
    """
    if directions is not None and reference is not None:
        raise FlagError(
            "directions= and reference=: a reference does not know the coordinates of a set",
            "give one of them",
        )
    if not callable(function):
        raise InputError(
            f"the function to check is a {type(function).__name__}, which cannot be called",
            "pass the function first, then its inputs",
        )
    arguments = read_arguments(inputs, dict(kwargs or {}), wrt, backend, masked, device)
    if isinstance(function, ByHand):
        hand = HandBackend(arguments.backend, function)
        arguments = replace(arguments, backend=hand)
    counts = counts or Counts()
    with arguments.backend.highest_precision() if highest else nullcontext():
        problem = _problem(function, arguments, counts, bounds, directions, reference=reference)
    if reference is not None or all(leaf.double for leaf in problem.X.leaves):
        return problem
    given = [leaf.eps for leaf in problem.X.leaves]
    return replace(
        problem,
        widened=lambda: _problem(
            function, arguments.widened(), counts, bounds, directions, given=given
        ),
    )


def _problem(
    function: Callable[..., Any],
    arguments: Arguments,
    counts: Counts,
    bounds: Bounds,
    directions: Directions,
    *,
    reference: Reference | None = None,
    given: Sequence[float] | None = None,
) -> Problem:
    """`given`: the spacing of the dtypes of the user's own leaves, where these are wider."""
    codec = UserCodec(arguments, counts)
    flat: FlatFunction = (
        FlatByHand(function, codec)
        if isinstance(function, ByHand)
        else lambda x: codec.evaluate(function, x)
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
        output_names=lambda: codec.output_names,
        written=lambda: codec.written,
        bounds=read_bounds(space, origin, bounds),
        reference=bound(reference, codec, space),
    )
    if directions is None:
        return problem
    rounding = given or [leaf.eps for leaf in space.leaves]
    with engine.isolation(problem.x):  # as where it will be evaluated
        charts = read_directions(engine, space, problem.x, directions, bounds, rounding)
        return _charted(problem, charts)


def _charted(problem: Problem, charts: Charts) -> Problem:
    """The same problem in the coordinates of `charts`."""
    flat, counts, size = problem.function, problem.counts, 8 * problem.X.size
    z, start = at_start(charts, problem.X, problem.x, problem.origin)
    bounds = within(problem.X, start, problem.bounds, charts)
    problem = replace(problem, x=z, origin=start, bounds=bounds, along=charts.along)
    if charts.identity:
        return problem

    def evaluate(z: Arrays) -> Arrays:
        x = charts.value(z)
        counts.keep(x, size)  # it is x, and not z, that the function may remember by `id`
        return flat(x)

    along: FlatFunction = (
        ChartedByHand(flat, charts)
        if isinstance(flat, FlatByHand)
        else lambda z: flat(charts.value(z))
    )
    return replace(problem, function=along, evaluate=evaluate)

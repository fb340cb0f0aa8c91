"""A derivative in two precisions: at the same points, for the same probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.differences import scale
from adjudge.observed import Base, evaluate
from adjudge.probes import signed
from adjudge.problem import Problem
from adjudge.spaces import Space, Vector

ULPS = 2
"""How far the first points lie from x: between them it is conditioning that moves derivatives."""
SPREADS = (2.0**-6, 2.0**-6, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2)
"""How far the others do, relative to x: rounding errors there have nothing in common."""
PROBES = 4
MANY = 2**20
"""Numbers among which two probes a leaf are enough: as many as several leaves have each."""


@dataclass(frozen=True)
class Side:
    """A problem, observed at x, and the context in which its function runs."""

    problem: Problem
    base: Base
    context: Callable[[], AbstractContextManager[None]] = nullcontext

    def value(self, point: Vector) -> Vector:
        """f there, without what is only observed."""
        with self.context():
            value = evaluate(self.problem, self.base, point, "near x")
        return value[: self.base.Y.size]


class Derivative:
    """The derivative of one side in mode `letter`, at some points at once."""

    def __init__(self, side: Side, letter: str) -> None:
        """At no point yet."""
        self.side, self.letter = side, letter
        self.places: list[Reverse | Forward] = []
        self.values: list[Vector] = []
        """f at the points."""

    def add(self, point: Vector) -> None:
        """One more point."""
        base, problem = self.side.base, replace(self.side.problem, origin=point)
        if self.letter == "F":
            self.values.append(self.side.value(point))
            self.places.append(Forward(problem))
            return
        with self.side.context():
            reverse = Reverse(problem)
            likes = base.arrays[: len(base.Y.leaves)]
            self.values.append(base.Y.vector(problem.backend, reverse.outputs, likes))
            self.places.append(reverse)

    def take(self, probe: Vector, count: int | None = None) -> NDArray[np.float64]:
        """`J* w` or `J v` at the points, or the first `count` of them, one row each."""
        base = self.side.base
        with self.side.context():
            return np.array(
                [
                    place.row(base, probe)
                    if isinstance(place, Reverse)
                    else place.column(base, probe)[1]
                    for place in self.places[:count]
                ]
            )


def near(problem: Problem, eps: float, random: np.random.Generator) -> list[Vector]:
    """x, and two points within `ULPS` of it."""
    x = problem.origin
    with np.errstate(all="ignore"):
        ulp = np.where(x != 0, 2.0 ** np.floor(np.log2(np.abs(x))) * eps, 0.0)
    ulp[~np.isfinite(ulp)] = 0.0
    steps = np.array([-ULPS, -1, 1, ULPS])
    moved = (x + random.choice(steps, x.size) * ulp for _ in range(2))
    return [x, *(problem.clipped(point) for point in moved)]


def far(problem: Problem, eps: float, random: np.random.Generator) -> list[Vector]:
    """Points at the distances `SPREADS`."""
    x = problem.origin
    return [
        problem.clipped(x * (1 + max(spread, 4 * eps) * random.uniform(-1, 1, x.size)))
        for spread in SPREADS
    ]


def pair(one: Side, other: Side, letter: str, points: Sequence[Vector]) -> list[Derivative]:
    """The derivatives of both at these points, rounded to the dtype of `one`; without the points,
    x excepted, where either raises.
    """
    low, high = Derivative(one, letter), Derivative(other, letter)
    problem = one.problem
    for point in points:
        rounded = problem.X.vector(problem.backend, problem.point(point), problem.x)
        try:
            low.add(rounded)
            high.add(rounded)
        except Exception:
            if point is problem.origin:
                raise
            del low.places[len(high.places) :], low.values[len(high.values) :]
    return [low, high]


def probes(
    problem: Problem, space: Space, letter: str, random: np.random.Generator
) -> list[Vector]:
    """Random probes of one leaf of `space` each, or of all together where there are many."""
    leaves = [part for part in space.slices if part.stop > part.start]
    parts = leaves if len(leaves) <= 8 else [slice(0, space.size)]
    lengths = np.ones(space.size)
    if letter == "F":  # powers of two, which keep a probe exact in every dtype
        scales = [scale(problem.origin[part]) for part in problem.X.slices]
        lengths = 2.0 ** np.round(np.log2(np.concatenate([*scales, np.zeros(0)])))
    found = []
    each = 2 if problem.X.size + space.size >= MANY else max(2, PROBES // len(parts))
    for part in parts * each:
        probe = np.zeros(space.size)
        probe[part] = signed(random, part.stop - part.start) * lengths[part]
        found.append(probe)
    return found

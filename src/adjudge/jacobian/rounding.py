"""This module decides whether two numbers that should be one differ by rounding or by an error.

All deciders rest on one observation: rounding, however much ill-conditioning amplifies it, has
another sign and size at every point, while an error in a rule is there at all of them. So the two
numbers are taken again at points nearby. The rule is ours, in the spirit of stochastic arithmetic,
which perturbs by units of rounding to see how many digits are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CONSTANT_VALUE_RATIO,
    DERIVATIVE_UNITS,
    ENOUGH_POINTS,
    FEW_LEAVES,
    LEAF_PROBES,
    NEAR_DISTANCES,
    NEAR_ULPS,
    SHORTEST_DISTANCE_UNITS,
    STANDARD_ERRORS,
)
from adjudge.errors import UnstableOutputError, attempt
from adjudge.floats import Vector, scale
from adjudge.limits import limits
from adjudge.problem import (
    Base,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Space,
    Stream,
    evaluate,
    generator,
    random_entries,
)

Array = NDArray[np.float64]


# -- points


def points_within_rounding(
    problem: Problem, seed: int, leaves: Collection[int] | None = None, eps: float = 0.0
) -> Iterator[Vector]:
    """Yields two points whose entries, of some leaves or of all, are one or two units of rounding
    off those of x. `eps` is the least spacing at 1 that a unit is taken from.
    """
    random, X, x = generator(seed, Stream.ROUNDING_NEIGHBOURS), problem.X, problem.origin
    unit = np.zeros(X.size)
    for j in range(len(X.leaves)) if leaves is None else leaves:
        part = X.slices[j]
        with np.errstate(all="ignore"):
            unit[part] = 2.0 ** np.floor(np.log2(np.abs(x[part]))) * max(X.leaves[j].eps, eps)
    unit[~np.isfinite(unit)] = 0.0
    steps = np.array([-NEAR_ULPS, -1, 1, NEAR_ULPS])
    for _ in range(2):
        yield problem.clipped(x + random.choice(steps, X.size) * unit)


def points_around(
    problem: Problem, seed: int, distances: Iterable[float], eps: float
) -> Iterator[Vector]:
    """Yields a point at each of these distances, relative to every entry of x; an entry that is
    zero moves by the scale of its leaf. No point is closer than `SHORTEST_DISTANCE_UNITS` of `eps`.
    """
    random, x = generator(seed, Stream.NEARBY_POINTS), problem.origin
    lengths = np.where(x != 0, np.abs(x), problem.length_scales)
    for distance in distances:
        reach = max(distance, SHORTEST_DISTANCE_UNITS * eps)
        yield problem.clipped(x + reach * lengths * random.uniform(-1, 1, x.size))


# -- one number


def is_systematic(
    problem: Problem, eps: float, seed: int, gap: float, gap_at: Callable[[Vector], float]
) -> bool:
    """Returns whether the difference `gap` of two numbers at x is there at points close to x as
    well.

    Without this test the two modes of an ill-conditioned right derivative, a product with
    cancelling factors, say, would be called inconsistent. A point where f or its derivative is not
    defined is evidence of nothing.
    """
    gaps = [gap]
    for point in points_around(problem, seed, NEAR_DISTANCES, eps):
        there = attempt(partial(gap_at, point), UnstableOutputError)
        if there is not None and np.isfinite(there):
            gaps.append(there)
            e = np.array(gaps)[:, None, None]
            held = np.ones((len(gaps), 1), bool)
            if len(gaps) > 2 and not constant(e, CONSTANT_VALUE_RATIO, held).item():
                return False
    return len(gaps) > ENOUGH_POINTS


def perturbed(vector: Vector, random: np.random.Generator) -> Vector:
    """Returns a probe close to this one. A sum that is linear in the probe would be rounded alike
    at every point if the probe stayed the same, and a rounding error of it would pass for an error
    of the rule.
    """
    return np.asarray(vector * (1 + NEAR_DISTANCES[-1] * random.uniform(-1, 1, vector.size)))


# -- many numbers


def rms(values: Array, axis: int | tuple[int, ...] | None = None) -> Vector:
    """Returns the root of the mean square."""
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.mean(values**2, axis=axis)))


def finite_deviation(low: Array, high: Array) -> tuple[Array, Array]:
    """Returns `(low - high, high)`, with zeros where either of the two is not finite."""
    holds = np.isfinite(low) & np.isfinite(high)
    high = np.where(holds, high, 0.0)
    return np.where(holds, low, 0.0) - high, high


def rounding_allowance(u: float, size: Vector, motion: Vector, space: Space) -> Vector:
    """Returns what rounding may amount to, by entry.

    It has three parts: `DERIVATIVE_UNITS` of the entry and a quarter of that of the typical entry
    beside it, through which it may have been computed; eight times the `motion` of the derivative
    between points within two units of rounding of each other, which is what conditioning makes of
    rounding; and the smallest number of the dtype, below which values are flushed. The factors are
    ours; they were chosen in the design study (docs/numerics.md).
    """
    typical = np.zeros(space.size)
    for part in space.slices:
        if part.stop > part.start:
            typical[part] = rms(size[part])
    tiny = np.repeat([leaf.tiny for leaf in space.leaves], [leaf.size for leaf in space.leaves])
    return np.asarray(DERIVATIVE_UNITS * u * (size + typical / 4) + 8 * motion + tiny)


def relative_bias(e: Array, g: Array, space: Space) -> list[Vector]:
    """Returns the part of the derivative that the deviation is, `<e, g> / <g, g>`: for each point a
    vector by leaf.
    """
    with np.errstate(all="ignore"):
        by_leaf = [
            np.sum(e[:, part] * g[:, part], axis=1) / np.sum(g[:, part] ** 2, axis=1)
            for part in space.slices
        ]
    return list(np.nan_to_num(np.array(by_leaf), posinf=0.0, neginf=0.0).T)


def common_factors(biases: Array, few: float) -> Vector:
    """Returns, by leaf, the factor that all of its entries are off by.

    It is 1 where that is not significant among the points, or within `few`. `biases` are by probe,
    point and leaf. One entry that is off by a unit of rounding says nothing; a thousand entries
    that are all off by the same part of a unit do, and name the factor.
    """
    points = np.mean(biases, axis=0)
    count = len(points)
    mean = np.mean(points, axis=0)
    error = np.std(points, axis=0, ddof=min(count - 1, 1)) / np.sqrt(count)
    return np.where(np.abs(mean) > np.maximum(STANDARD_ERRORS * error, few), 1 + mean, 1.0)


def proportional(e: Array, g: Array, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the entries whose deviation is the same part of the derivative at all points.

    The deviations `e` and the derivatives `g` are by point, probe and entry; `held` says, by point
    and entry, which of them count.
    """
    whole = np.sum(g**2, axis=1)
    held = held & (whole > 0)
    # The part is fitted at each point over the probes there.
    part = np.sum(e * g, axis=1) / np.where(held, whole, 1.0)
    mean, scatter, count = _moments(np.where(held, part, 0.0), held)
    sure = np.abs(mean) > STANDARD_ERRORS * np.sqrt(scatter / np.maximum(count, 1))
    return np.asarray((count > 2) & sure)


def constant(e: Array, ratio: float, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the entries whose deviation is the same at all points, for each probe by itself. The
    squared mean has to exceed `ratio` times the variance between points.
    """
    held = held[:, None]
    mean, scatter, count = _moments(np.where(held, e, 0.0), held)
    sure = np.sum(mean**2, axis=0) > ratio * np.sum(scatter, axis=0)
    return np.asarray((count[0] > 2) & sure)


class Moments(NamedTuple):
    """Mean, variance and number of the values at some points."""

    mean: Array
    variance: Array
    number: Array


def _moments(values: Array, held: NDArray[np.bool_]) -> Moments:
    """Returns mean and variance over the points that are held, and the number of these."""
    count = np.sum(held, axis=0)
    mean = np.sum(values, axis=0) / np.maximum(count, 1)
    scatter = np.sum(held * (values - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    return Moments(mean, scatter, np.asarray(count, dtype=np.float64))


@dataclass(frozen=True)
class Evaluator:
    """Evaluates one implementation of a function: a problem, observed at x, and the context it runs
    in.

    Two of them are compared: the function in its own precision and in double, or the function of
    one engine and that of another.
    """

    base: Base
    context: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def problem(self) -> Problem:
        """The problem that is evaluated."""
        return self.base.problem

    def value(self, point: Vector) -> Vector:
        """Returns the outputs of f at `point`, without those that are only observed."""
        with self.context():
            value = evaluate(self.problem, self.base, point, Purpose.NEAR_X)
        return value[: self.base.Y.size]


class DerivativeAtPoints:
    """The derivative of one evaluator in the mode `letter`, at several points at once."""

    def __init__(self, at: Evaluator, letter: str) -> None:
        """Begins without any point."""
        self.at, self.letter = at, letter
        self.places: list[Reverse | Forward] = []
        self.values: list[Vector] = []
        """f at the points."""

    def add(self, point: Vector) -> None:
        """Adds a point, at which f is evaluated."""
        base, problem = self.at.base, replace(self.at.problem, origin=point)
        if self.letter == "F":
            self.values.append(self.at.value(point))
            self.places.append(Forward(problem))
            return
        with self.at.context():
            reverse = Reverse(problem)
            likes = base.arrays[: len(base.Y.leaves)]
            self.values.append(base.Y.vector(problem.backend, reverse.outputs, likes))
            self.places.append(reverse)

    def take(self, probe: Vector, count: int | None = None) -> NDArray[np.float64]:
        """Returns `J* w` or `J v` at the points, or at the first `count` of them, one row
        for each.
        """
        base = self.at.base
        with self.at.context():
            return np.array(
                [
                    place.row(base, probe)
                    if isinstance(place, Reverse)
                    else place.column(base, probe)[1]
                    for place in self.places[:count]
                ]
            )


def derivatives_of_both(
    one: Evaluator, other: Evaluator, letter: str, points: Sequence[Vector]
) -> list[DerivativeAtPoints]:
    """Returns the derivatives of both at these points, which are rounded to the dtype of `one` so
    that both see the same numbers. A point at which either raises is left out, unless it is x.
    """
    low, high = DerivativeAtPoints(one, letter), DerivativeAtPoints(other, letter)
    problem = one.problem

    def add(point: Vector) -> None:
        low.add(point)
        high.add(point)

    for point in points:
        rounded = problem.X.vector(problem.backend, problem.point(point), problem.x)
        if point is problem.origin:
            add(rounded)
            continue
        attempt(partial(add, rounded), UnstableOutputError)
        del low.places[len(high.places) :], low.values[len(high.values) :]  # of `one` alone
    return [low, high]


def random_probes(
    problem: Problem, space: Space, letter: str, random: np.random.Generator
) -> list[Vector]:
    """Returns random probes of one leaf of `space` each, or of all leaves together where there are
    many of them.
    """
    leaves = [part for part in space.slices if part.stop > part.start]
    parts = leaves if len(leaves) <= FEW_LEAVES else [slice(0, space.size)]
    lengths = np.ones(space.size)
    # Powers of two keep a probe exact in every dtype.
    if letter == "F":
        scales = [scale(problem.origin[part]) for part in problem.X.slices]
        lengths = 2.0 ** np.round(np.log2(np.concatenate([*scales, np.zeros(0)])))
    found = []
    each = 2 if problem.X.size + space.size >= limits().many else max(2, LEAF_PROBES // len(parts))
    for part in parts * each:
        probe = np.zeros(space.size)
        probe[part] = random_entries(random, part.stop - part.start) * lengths[part]
        found.append(probe)
    return found

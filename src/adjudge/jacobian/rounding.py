"""Two numbers that should be one: whether they differ for a reason, or by rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.floats import Vector, scale
from adjudge.problem import Base, Forward, Problem, Reverse, Space, evaluate, signed

DISTANCES = (46, 30, 20, 16, 13, 11, 9)
"""Binary exponents of how far points lie from x, over its scale: rounding in double, and in code
that is in single precision inside, is another one from point to point; an error in a rule stays.
"""
ENOUGH_POINTS = 4
"""Points at which a difference has to be the same."""
UNCHANGED = 1 / 4
"""Part of a difference by which it may change between points."""

SUM_UNITS = 64
"""Units of rounding of the terms up to which two sums of them are the same number."""


def is_systematic(
    problem: Problem, eps: float, seed: int, gap: float, gap_at: Callable[[Vector], float]
) -> bool:
    """Whether the difference `gap` of two numbers at x is there at points close to x as well.

    Rounding, however much ill-conditioning makes of it, has another sign and size at each point.
    Where `gap_at` raises, f or its derivative is not defined; that point says nothing.
    """
    held = 0
    for point in _nearby_points(problem, eps, seed):
        try:
            there = gap_at(point)
        except Exception:  # noqa: S112 a point off the domain of f is no evidence for anything
            continue
        if not np.isfinite(there):
            continue
        if abs(there - gap) > UNCHANGED * abs(gap):
            return False
        held += 1
    return held >= ENOUGH_POINTS


def perturbed(vector: Vector, random: np.random.Generator) -> Vector:
    """A probe close to this one: what is linear in it rounds in another way at every point, too."""
    return np.asarray(vector * (1 + 2.0 ** -DISTANCES[-1] * random.uniform(-1, 1, vector.size)))


def _nearby_points(problem: Problem, eps: float, seed: int) -> Iterator[Vector]:
    random = np.random.default_rng([seed, 29])
    for distance in DISTANCES:
        move = (
            max(2.0**-distance, 4 * eps) * problem.lengths * random.uniform(-1, 1, problem.X.size)
        )
        yield problem.clipped(problem.origin + move)


Array = NDArray[np.float64]

DERIVATIVE_UNITS = 16
"""Units of rounding that a derivative may be off by."""
STANDARD_ERRORS = 8
"""Standard errors by which a factor differs from one."""


def rms(values: Array, axis: int | tuple[int, ...] | None = None) -> Vector:
    """Root of the mean square."""
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.mean(values**2, axis=axis)))


def finite_deviation(low: Array, high: Array) -> tuple[Array, Array]:
    """`(low - high, high)`, zero where either is not finite."""
    holds = np.isfinite(low) & np.isfinite(high)
    high = np.where(holds, high, 0.0)
    return np.where(holds, low, 0.0) - high, high


def rounding_allowance(u: float, size: Vector, motion: Vector, space: Space) -> Vector:
    """What rounding may amount to, by entry: units of the entry and, less, of those beside it; and
    what ill-conditioning makes of them, which is seen in how the derivative moves with x.
    """
    typical = np.zeros(space.size)
    for part in space.slices:
        if part.stop > part.start:
            typical[part] = rms(size[part])
    tiny = np.repeat([leaf.tiny for leaf in space.leaves], [leaf.size for leaf in space.leaves])
    return np.asarray(DERIVATIVE_UNITS * u * (size + typical / 4) + 8 * motion + tiny)


def relative_bias(e: Array, g: Array, space: Space) -> list[Vector]:
    """By point, for each leaf: what part of the derivative the deviation is, `<e, g> / <g, g>`."""
    with np.errstate(all="ignore"):
        by_leaf = [
            np.sum(e[:, part] * g[:, part], axis=1) / np.sum(g[:, part] ** 2, axis=1)
            for part in space.slices
        ]
    return list(np.nan_to_num(np.array(by_leaf), posinf=0.0, neginf=0.0).T)


def common_factors(biases: Array, few: float) -> Vector:
    """By leaf, the factor that all entries are off by: 1 where it is not significant, or within
    `few`. `biases` are by probe, point and leaf.
    """
    points = np.mean(biases, axis=0)
    count = len(points)
    mean = np.mean(points, axis=0)
    error = np.std(points, axis=0, ddof=min(count - 1, 1)) / np.sqrt(count)
    return np.where(np.abs(mean) > np.maximum(STANDARD_ERRORS * error, few), 1 + mean, 1.0)


def proportional(e: Array, g: Array, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where deviations, by point, probe and entry, are one and the same part of the derivative.

    `held`, by point and entry: which of them count.
    """
    whole = np.sum(g**2, axis=1)
    held = held & (whole > 0)
    part = np.sum(e * g, axis=1) / np.where(held, whole, 1.0)  # at each point, over its probes
    mean, scatter, count = _moments(np.where(held, part, 0.0), held)
    sure = np.abs(mean) > STANDARD_ERRORS * np.sqrt(scatter / np.maximum(count, 1))
    return np.asarray((count > 2) & sure)


def constant(e: Array, ratio: float, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where deviations are for each probe the same at all points, by `ratio` in the squares."""
    held = held[:, None]
    mean, scatter, count = _moments(np.where(held, e, 0.0), held)
    sure = np.sum(mean**2, axis=0) > ratio * np.sum(scatter, axis=0)
    return np.asarray((count[0] > 2) & sure)


def _moments(values: Array, held: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mean and variance over those points that are held, and how many these are."""
    count = np.sum(held, axis=0)
    mean = np.sum(values, axis=0) / np.maximum(count, 1)
    scatter = np.sum(held * (values - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    return mean, scatter, np.asarray(count, dtype=np.float64)


NEAR_ULPS = 2
"""How far the first points lie from x: between them it is conditioning that moves derivatives."""
FAR_DISTANCES = (2.0**-6, 2.0**-6, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2)
"""How far the others do, relative to x: rounding errors there have nothing in common."""
PROBES = 4
MANY = 2**20
"""Numbers among which two probes a leaf are enough: as many as several leaves have each."""


@dataclass(frozen=True)
class Evaluator:
    """A problem, observed at x, and the context in which its function runs."""

    problem: Problem
    base: Base
    context: Callable[[], AbstractContextManager[None]] = nullcontext

    def value(self, point: Vector) -> Vector:
        """f there, without what is only observed."""
        with self.context():
            value = evaluate(self.problem, self.base, point, "near x")
        return value[: self.base.Y.size]


class DerivativeAtPoints:
    """The derivative of one problem in mode `letter`, at some points at once."""

    def __init__(self, at: Evaluator, letter: str) -> None:
        """At no point yet."""
        self.at, self.letter = at, letter
        self.places: list[Reverse | Forward] = []
        self.values: list[Vector] = []
        """f at the points."""

    def add(self, point: Vector) -> None:
        """One more point."""
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
        """`J* w` or `J v` at the points, or the first `count` of them, one row each."""
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


def points_within_ulps(problem: Problem, eps: float, random: np.random.Generator) -> list[Vector]:
    """x, and two points within `ULPS` of it."""
    x = problem.origin
    with np.errstate(all="ignore"):
        ulp = np.where(x != 0, 2.0 ** np.floor(np.log2(np.abs(x))) * eps, 0.0)
    ulp[~np.isfinite(ulp)] = 0.0
    steps = np.array([-NEAR_ULPS, -1, 1, NEAR_ULPS])
    moved = (x + random.choice(steps, x.size) * ulp for _ in range(2))
    return [x, *(problem.clipped(point) for point in moved)]


def points_farther_off(problem: Problem, eps: float, random: np.random.Generator) -> list[Vector]:
    """Points at the distances `FAR_DISTANCES`."""
    x = problem.origin
    return [
        problem.clipped(x * (1 + max(distance, 4 * eps) * random.uniform(-1, 1, x.size)))
        for distance in FAR_DISTANCES
    ]


def derivatives_of_both(
    one: Evaluator, other: Evaluator, letter: str, points: Sequence[Vector]
) -> list[DerivativeAtPoints]:
    """The derivatives of both at these points, rounded to the dtype of `one`; without the points,
    x excepted, where either raises.
    """
    low, high = DerivativeAtPoints(one, letter), DerivativeAtPoints(other, letter)
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


def random_probes(
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


def rounding_neighbours(problem: Problem, leaf: int | None) -> Iterator[Vector]:
    """Two points where the entries of one leaf, or of all, are one or two units of rounding off
    those of x.
    """
    random = np.random.default_rng(0)
    X = problem.X
    moved = range(len(X.leaves)) if leaf is None else (leaf,)
    for _ in range(2):
        point = problem.origin.copy()
        for part, eps in [(X.slices[j], X.leaves[j].eps) for j in moved]:
            signs = random.choice(np.array([-1.0, 1.0]), part.stop - part.start)
            with np.errstate(all="ignore"):
                point[part] *= 1 + eps * signs
        yield problem.clipped(point)

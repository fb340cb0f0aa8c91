"""This module tells whether f has a derivative at x: jumps, kinks and vertical tangents.

All tests look at defects at steps that shrink: a smooth remainder shrinks with the steps, and what
does not is a fault of f at x. The rule is that of one-sided and even parts; the thresholds are
ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    COARSE_EPS,
    GROWING_PART,
    JUMP_BAR_PART,
    JUMP_BAR_UNITS,
    JUMP_UNCHANGED,
    JUMP_UNITS,
    KINK_EXPONENTS,
    KINK_PERSISTENCE,
    KINK_ROUNDING_UNITS,
    NARROW_KINK_EXPONENTS,
    RANGE_MARGIN,
    SLOPE_UNITS,
    VISIBLE_KINK,
)
from adjudge.errors import attempt
from adjudge.estimate.directional import Column
from adjudge.findings import Reason, Silence
from adjudge.floats import Vector, scale
from adjudge.problem import (
    Base,
    Problem,
    Purpose,
    Space,
    Stream,
    evaluate,
    generator,
    random_entries,
)


def with_jumps(problem: Problem, base: Base, found: Column) -> Column:
    """Returns `found`, with slopes from minus to plus infinity where an output jumps at x.

    At a jump the difference of the two sides, or their mean less f(x), stays what it is however
    short the step, and no value is the derivative. It takes six evaluations, which are made only
    where the error bar is too wide for rounding.
    """
    estimate, eps = found.estimate, base.coarsest_eps
    with np.errstate(all="ignore"):
        size = base.magnitude(base.values)
        wide = np.fmax(
            JUMP_BAR_PART * np.abs(estimate.value), JUMP_BAR_UNITS * eps * size / found.step
        )
        suspects = estimate.moved & (estimate.error > wide)
    if found.step == 0 or not np.any(suspects):
        return found
    ratio = 2.0**-2 if eps > COARSE_EPS else 2.0**-8 if eps < 2.0**-40 else 2.0**-4
    odd, even = [], []
    for k in range(3):
        move = found.step * ratio**k * found.vector
        plus, minus = (
            evaluate(problem, base, problem.clipped(problem.origin + sign * move), Purpose.JUMP)
            for sign in (1, -1)
        )
        with np.errstate(all="ignore"):
            odd.append((plus - minus) / 2)
            even.append((plus + minus) / 2 - base.values)
    jumps = suspects & (_unchanged(odd, eps * size) | _unchanged(even, eps * size))
    if not jumps.any():
        return found
    none = np.full(jumps.shape, np.nan)
    left, right = estimate.slopes or (none, none)
    slopes = np.where(jumps, -np.inf, left), np.where(jumps, np.inf, right)
    return replace(found, estimate=replace(estimate, slopes=slopes))


def _unchanged(parts: list[Vector], unit: Vector) -> NDArray[np.bool_]:
    """Marks where the parts are the same at all steps, and larger than rounding."""
    with np.errstate(all="ignore"):
        apart = [np.abs(part - parts[0]) <= JUMP_UNCHANGED * np.abs(parts[0]) for part in parts[1:]]
        return np.asarray(np.logical_and.reduce(apart) & (np.abs(parts[0]) > JUMP_UNITS * unit))


Slopes = list[Vector]


@dataclass(frozen=True)
class LocalSlopes:
    """The one-sided slopes of f at x along tangents, at shrinking steps."""

    problem: Problem
    base: Base
    steps: list[float]
    unit: Vector
    """The rounding of each output."""

    def slopes(self, v: Vector) -> Slopes | None:
        """Returns `(f(x + h v) - f(x)) / h`, the coarsest step first; `None` where f is not
        defined.
        """
        found = []
        with np.errstate(all="ignore"):
            for h in self.steps:
                there = self.at(h * v)
                if there is None:
                    return None
                found.append((there - self.base.values) / h)
        return found

    def at(self, move: Vector) -> Vector | None:
        """Returns f where x is moved; `None` where it raises, or is not finite though it is
        at x.
        """
        point = self.problem.clipped(self.problem.origin + move)
        purpose = Purpose.SPECIAL_POINT
        values = attempt(lambda: evaluate(self.problem, self.base, point, purpose))
        if values is None:
            return None
        finite = np.isfinite(values) | ~np.isfinite(self.base.values)
        return values if np.all(finite) else None

    def persists(self, defects: Slopes, slopes: Slopes) -> bool:
        """Returns whether a defect of slopes stays visible in some output however short the
        step.
        """
        return bool(np.any(self._persisting(defects, slopes, KINK_PERSISTENCE)))

    def grows(self, slopes: Slopes) -> bool:
        """Returns whether a slope grows as fast as the steps shrink."""
        ratio = self.steps[0] / self.steps[1]
        return bool(np.any(self._persisting(slopes, slopes, GROWING_PART * ratio)))

    def _persisting(self, defects: Slopes, slopes: Slopes, ratio: float) -> NDArray[np.bool_]:
        """Marks the outputs whose defects shrink by less than `ratio` and stay visible."""
        with np.errstate(all="ignore"):
            size = [np.abs(defect) for defect in defects]
            lasting = np.ones(size[0].shape, bool)
            for before, after in pairwise(size):
                lasting &= after > ratio * before
            for part, slope, h in zip(size, slopes, self.steps, strict=False):
                lasting &= part > VISIBLE_KINK * np.abs(slope)
                lasting &= part > KINK_ROUNDING_UNITS * self.unit / h
        return np.asarray(lasting)


@dataclass(frozen=True)
class Irregularity:
    """Why values of f say nothing about a derivative at x; each reason is `None` where nothing
    was seen.
    """

    nonsmooth: Silence | None = None
    """f is not finite nearby, or not smooth: it has no derivative there."""
    out_of_range: Silence | None = None
    """f has a derivative that the dtype does not hold."""
    below_rounding: Silence | None = None
    """Differences cannot show the derivative."""


def irregularity(problem: Problem, base: Base, given: Space, seed: int) -> Irregularity:
    """Returns what speaks against a derivative at x, as far as it can be checked with about twenty
    evaluations.

    A check that does not pass at a special point is put down to f only if its values say so;
    otherwise a wrong rule would be excused wherever f might have a kink. `given` is the space of
    the inputs in the dtypes of the caller, where `problem` is in double precision.
    """
    eps = base.coarsest_eps
    if eps > COARSE_EPS or not np.all(np.isfinite(base.values)) or not problem.finite:
        return Irregularity()
    around = _local_slopes(problem, base, eps)
    random = generator(seed, Stream.IRREGULARITY)
    lengths = np.zeros(problem.X.size)
    leaves = problem.primal_inputs or len(problem.X.leaves)
    for part in problem.X.slices[:leaves]:
        lengths[part] = scale(problem.origin[part])
    v = random_entries(random, lengths.size) * lengths
    one, other = around.slopes(v), around.slopes(-v)
    # With all signs alike f may be defined on one side (sqrt at zeros).
    if one is None or other is None:
        v = np.abs(v)
        one, other = around.slopes(v), around.slopes(-v)
    if one is None and other is None:
        return Irregularity(Silence(Reason.NOT_FINITE_NEARBY))
    sided = one is None or other is None
    if one is None:
        assert other is not None
        v, one = -v, other
    if _rounding_dominates(around, around.steps[0] * v, v, eps):
        return Irregularity(below_rounding=Silence(Reason.ROUNDING_OF_X))
    kind = _defect(around, one, None if sided else other)
    second = random_entries(random, lengths.size) * lengths
    if sided:
        second = np.copysign(second, v)
    if kind is None and (two := around.slopes(second)) and (both := around.slopes(v + second)):
        with np.errstate(all="ignore"):
            bent = [a + b - c for a, b, c in zip(one, two, both, strict=True)]
        kind = Reason.KINK if around.persists(bent, both) else None
    if kind is not None:
        return Irregularity(Silence(kind))
    below_rounding = _unread_input(around, v)
    if below_rounding is None and _rounding_dominates(around, np.zeros_like(v), v, eps):
        below_rounding = Silence(Reason.ONLY_ROUNDING)
    out_of_range = Silence(Reason.OUT_OF_RANGE) if _out_of_range(given, v, one) else None
    return Irregularity(out_of_range=out_of_range, below_rounding=below_rounding)


def _local_slopes(problem: Problem, base: Base, eps: float) -> LocalSlopes:
    """Returns the slopes at the steps for this `eps`."""
    exponents = KINK_EXPONENTS if eps <= 2.0**-40 else NARROW_KINK_EXPONENTS
    tiniest = float(np.finfo(np.float64).smallest_subnormal)
    with np.errstate(all="ignore"):
        unit = eps * base.magnitude(base.values) + 16 * tiniest
    return LocalSlopes(problem, base, [2.0**-k for k in exponents], unit)


def _defect(around: LocalSlopes, one: Slopes, other: Slopes | None) -> Reason | None:
    """Returns the defect along one tangent: a jump, a vertical tangent or a kink; `None` without
    any.
    """
    with np.errstate(all="ignore"):
        if around.grows(one) or (other is not None and around.grows(other)):
            return Reason.JUMP
        for side in (one, other):
            changes = [b - a for a, b in pairwise(side)] if side else []
            if changes and around.persists(changes, one):
                return Reason.VERTICAL_TANGENT
        if other is not None:
            gaps = [a + b for a, b in zip(one, other, strict=True)]
            return Reason.KINK if around.persists(gaps, one) else None
    return None


def _out_of_range(given: Space, v: Vector, slopes: Slopes) -> bool:
    """Returns whether the derivative lies at an end of the range of a dtype, where products
    overflow.
    """
    least = max(leaf.tiny or np.finfo(np.float64).tiny for leaf in given.leaves)
    most_held = min(np.finfo(np.float64).max if x.double else x.huge for x in given.leaves)
    moved = np.abs(v[v != 0])
    with np.errstate(all="ignore"):
        most = np.max(np.abs(slopes[-1]), initial=0.0)
        steepest = most / np.min(moved, initial=np.inf)
        flattest = most / np.max(moved, initial=0.0)
    return bool(steepest > most_held / RANGE_MARGIN or 0 < flattest < RANGE_MARGIN * least)


def _rounding_dominates(around: LocalSlopes, at: Vector, v: Vector, eps: float) -> bool:
    """Returns whether a unit of rounding, where x is moved by `at`, moves f as much as a slope
    would.
    """
    one, other = around.at(at), around.at(at + 2 * eps * v)
    if one is None or other is None:
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(other - one)
        return bool(
            np.any(
                (apart > VISIBLE_KINK * np.abs(one))
                & (apart > KINK_ROUNDING_UNITS * eps * abs(one))
            )
        )


def _unread_input(around: LocalSlopes, v: Vector) -> Silence | None:
    """Returns the first input that hardly moves f beyond its rounding when it is moved by a part of
    its size; `None` without any.
    """
    for leaf, part in zip(around.problem.X.leaves, around.problem.X.slices, strict=True):
        move = np.zeros_like(v)
        move[part] = v[part] / 16
        there = around.at(move)
        if there is None or not np.any(move):
            continue
        with np.errstate(all="ignore"):
            moves = np.abs(there - around.base.values) > SLOPE_UNITS * around.unit
        if not np.any(moves):
            return Silence(Reason.HARDLY_MOVES, leaf.name)
    return None

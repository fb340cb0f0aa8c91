"""This module says what a kink, a jump and a vertical tangent of f at x are, and what follows.

Along a tangent v the difference `f(x + h v) - f(x)` of a smooth function shrinks like the step h,
and the slopes that it gives to both sides of x draw together like h. At a jump the difference
itself stays what it is however short the step, at a kink the gap between the two slopes does, and
at a vertical tangent the slope to one side goes on changing. So each of them is a part of f that
lasts where that of a smooth function shrinks (`_lasts`). That one-sided and even parts tell them is
standard; the thresholds are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BEND_UNITS,
    COARSE_EPS,
    DEFECT_FACTOR,
    ENDLESS_GROWTH,
    JUMP_KEPT,
    KINK_EXPONENTS,
    KINK_ORDER,
    LASTING_UNITS,
    NARROW_EPS,
    NARROW_KINK_EXPONENTS,
    RANGE_MARGIN,
    SLOPE_UNITS,
    VISIBLE_KINK,
)
from adjudge.errors import attempt
from adjudge.findings import Reason, Silence
from adjudge.floats import Vector, chunks, scale
from adjudge.problem import (
    Base,
    Purpose,
    Space,
    Stream,
    evaluate,
    generator,
    random_entries,
)

# -- the definition


def _lasts(parts: Vector, kept: float, error: Vector, *, grows: bool = False) -> NDArray[np.bool_]:
    """Marks the outputs of which a part of f lasts: it has one sign at all steps, keeps so much of
    its largest size, and exceeds its error at the last step. One that `grows` may become larger.
    """
    sizes = np.abs(parts)
    largest = sizes[0] if grows else np.max(sizes, axis=0)
    one_sign = np.all(parts > 0, axis=0) | np.all(parts < 0, axis=0)
    lasting = one_sign & (np.min(sizes, axis=0) >= kept * largest) & (sizes[-1] > error)
    return np.asarray(lasting)


def jumps(one: Vector, other: Vector | None, unit: Vector) -> NDArray[np.bool_]:
    """Marks the outputs that jump at x, by their differences from f(x) to one side and to the
    other, a row of them for each step; `unit` is the rounding of each output.

    The odd and the even part tell it, since a slope moves only one of the two.
    """
    parts = (one,) if other is None else ((one - other) / 2, (one + other) / 2)
    lasting = [_lasts(part, JUMP_KEPT, LASTING_UNITS * unit) for part in parts]
    return np.asarray(np.logical_or.reduce(lasting))


def lasting_gaps(
    gaps: Vector, steps: Sequence[float] | Vector, error: Vector, *, grows: bool = False
) -> NDArray[np.bool_]:
    """Marks the outputs whose gaps between slopes last, a row of them for each step."""
    return _lasts(gaps, (steps[-1] / steps[0]) ** KINK_ORDER, error, grows=grows)


def endless(moves: Vector, steps: Vector, unit: Vector) -> NDArray[np.bool_]:
    """Marks the outputs whose slopes to one side of x grow without end, as at a vertical tangent or
    a jump.

    `moves` are their differences from f(x), a row of them for each of `steps`, the longest first
    (see `ENDLESS_EXPONENTS`); `unit` is the rounding of each output.
    """
    slopes = np.where(np.abs(moves) > LASTING_UNITS * unit, np.abs(moves), 0.0) / steps[:, None]
    grows = slopes[1:] >= ENDLESS_GROWTH * slopes[:-1]
    return np.asarray(np.all(grows, axis=0) & (slopes[0] > 0))


def half_gaps(bends: Vector, steps: Sequence[float], unit: Vector) -> Vector | None:
    """Returns half the gap between the slopes to the right and to the left of x; 0 where f has no
    kink, and `None` where no output has one.

    `bends` are the even parts of f over the step, `((f(x + h v) + f(x - h v)) / 2 - f(x)) / h`, a
    row of them for each step, and `unit` is the rounding of each output over the last step, which
    half the gap has as well.
    """
    kinks = lasting_gaps(bends, steps, LASTING_UNITS * unit)
    if not np.any(kinks):
        return None
    # One of the slopes is right as it is, and would lie outside of the rounding of the other.
    widest = np.copysign(np.abs(bends[-1]) + BEND_UNITS * unit, bends[-1])
    return np.where(kinks, widest, 0.0)


def bend_residuals(bends: Vector, steps: Vector, rounding: Vector, longest: float) -> Vector:
    """Returns by how much the bends of f over steps up to the `longest` are no smooth ones; 0 where
    rounding may make that.

    `bends` are as in `half_gaps`, a row for each of `steps`, the longest first, and `rounding` is
    what rounding makes of each over a step of one. Those of a smooth function are an odd polynomial
    in the step, and two of them foretell the third up to the fifth power. Where f has kinks between
    the steps its slopes to both sides of x have other errors, and half of what these differ by is
    left. A central difference, their mean, is off by as much, at all steps alike, and no
    extrapolation removes it. The rule is ours.
    """
    found = np.zeros(bends.shape[1])
    for k in range(len(steps) - 2):
        long, middle, short = steps[k : k + 3]
        if short > longest:
            continue
        powers = np.array([[long, long**3], [middle, middle**3]])
        weights = np.array([short, short**3]) @ np.linalg.inv(powers)
        off = np.abs(bends[k + 2] - weights @ bends[k : k + 2])
        found = np.where(off > rounding / short, np.fmax(found, off), found)
    return found


def defects(
    slopes: Sequence[tuple[Vector, Vector, Vector]], steps: Sequence[float], unit: Vector
) -> Vector:
    """Returns what the slopes to one side along `u`, `v` and `u + v` fail to add up by; 0 where
    they do.

    `slopes` are those along the three, for each of these steps, as rows of outputs, and `unit` is
    the rounding of each output over the last step.
    """
    found = np.empty_like(unit)
    for part in chunks(unit.size):
        own = [[side[part] for side in three] for three in slopes]
        gaps = np.array([both - one - other for one, other, both in own])
        one, other, _ = own[-1]
        visible = VISIBLE_KINK * np.fmax(np.abs(one), np.abs(other))
        bent = lasting_gaps(gaps, steps, np.fmax(visible, LASTING_UNITS * unit[part]))
        found[part] = np.where(bent, np.abs(gaps[-1]), 0.0)
    return found


@dataclass(frozen=True)
class Slopes:
    """The slopes of f to the left and to the right of x: each lies half their gap from their mean.

    A number between the two cannot be called wrong at x. Of a function of one variable that is
    smooth to either side, these numbers are the generalised gradient of Clarke (Optimization and
    Nonsmooth Analysis, Wiley, 1983).
    """

    mean: Vector
    half_gap: Vector
    """What the slope to the right exceeds the mean by: 0 without a kink, infinite at a jump."""
    defect: Vector | None = None
    """What the slopes fail to add up by, where that was looked at: 0 where they do.

    Of three equal numbers the middle one stays where it is whichever of them moves, and along any
    tangent its slopes to both sides are the same. It has a kink all the same, since its slope along
    the sum of two tangents is not the sum of theirs.
    """

    def without(self, outputs: NDArray[np.bool_]) -> Slopes:
        """Returns the slopes with zeros at these outputs, which are not compared. What lies between
        two of their roundings is no jump of the others.
        """
        mean, half_gap = (np.where(outputs, 0.0, one) for one in (self.mean, self.half_gap))
        defect = None if self.defect is None else np.where(outputs, 0.0, self.defect)
        return Slopes(mean, half_gap, defect)

    @property
    def bent(self) -> NDArray[np.bool_]:
        """The outputs that are not differentiable at x: they have a kink or a jump, or slopes that
        do not add up.
        """
        return self.kinks if self.defect is None else self.kinks | (self.defect > 0)

    @property
    def kinks(self) -> NDArray[np.bool_]:
        """The outputs with a kink or a jump; a jump has no mean slope."""
        known = ~np.isnan(self.mean) | np.isinf(self.half_gap)
        return np.asarray((self.half_gap != 0) & known)

    def part(self, which: slice) -> Slopes:
        """Returns the slopes of these outputs."""
        defect = None if self.defect is None else self.defect[which]
        return Slopes(self.mean[which], self.half_gap[which], defect)

    def at(self, k: int) -> tuple[float, float] | None:
        """Returns the slopes of output `k` to the left and to the right; `None` without a kink."""
        mean, half_gap = float(self.mean[k]), float(self.half_gap[k])
        if not self.kinks[k]:
            return None
        return (-np.inf, np.inf) if np.isinf(half_gap) else (mean - half_gap, mean + half_gap)

    def projected(self, w: Vector, parts: Sequence[slice] = (slice(None),)) -> Slopes:
        """Returns the slopes of the products of `w` with each of these parts of the outputs: the
        least and the greatest value that a product takes between those of its terms.
        """
        radius = np.abs(np.where(w == 0, 0.0, w * self.half_gap))
        defect = None if self.defect is None else np.abs(w * self.defect)
        return Slopes(
            np.array([w[part] @ self.mean[part] for part in parts]),
            np.array([radius[part].sum() for part in parts]),
            None if defect is None else np.array([defect[part].sum() for part in parts]),
        )

    def explain(
        self, doubted: NDArray[np.bool_], automatic: Vector, slack: Vector
    ) -> tuple[NDArray[np.bool_], bool]:
        """Marks the doubted values that lie between the slopes, or no farther from them than slopes
        that do not add up explain. Says whether one of them can be settled by nothing but another
        x, which are a jump and a NaN at a kink.
        """
        bent, jumps = self.bent, np.isinf(self.half_gap)
        unsettled = doubted & bent & (jumps | np.isnan(automatic))
        reach = np.abs(self.half_gap) + slack
        if self.defect is not None:
            reach = reach + DEFECT_FACTOR * self.defect
        between = np.abs(automatic - self.mean) <= reach
        return unsettled | (doubted & bent & between), bool(np.any(unsettled))


# -- whether f has a derivative at x at all


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


def irregularity(base: Base, given: Space, seed: int) -> Irregularity:
    """Returns what speaks against a derivative at x, as far as it can be checked with about twenty
    evaluations.

    A check that does not pass at a special point is put down to f only if its values say so;
    otherwise a wrong rule would be excused wherever f might have a kink. `given` is the space of
    the inputs in the dtypes of the caller, where the problem is in double precision.
    """
    problem, eps = base.problem, base.coarsest_eps
    if eps > COARSE_EPS or not np.all(np.isfinite(base.values)) or not problem.finite:
        return Irregularity()
    around = _Around.of(base, eps)
    random = generator(seed, Stream.IRREGULARITY)
    lengths = np.zeros(problem.X.size)
    leaves = problem.primal_inputs or len(problem.X.leaves)
    for part in problem.X.slices[:leaves]:
        lengths[part] = scale(problem.origin[part])
    v = random_entries(random, lengths.size) * lengths
    one, other = around.differences(v), around.differences(-v)
    # With all signs alike f may be defined on one side (sqrt at zeros).
    if one is None or other is None:
        v = np.abs(v)
        one, other = around.differences(v), around.differences(-v)
    if one is None:
        v, one, other = -v, other, one
    if one is None:
        return Irregularity(Silence(Reason.NOT_FINITE_NEARBY))
    if around.rounding_dominates(around.steps[0] * v, v, eps):
        return Irregularity(below_rounding=Silence(Reason.ROUNDING_OF_X))
    kind = around.defect(one, other)
    second = random_entries(random, lengths.size) * lengths
    if other is None:
        second = np.copysign(second, v)
    if kind is None:
        # f may be smooth along both tangents, and its slopes not add up.
        two, both = around.differences(second), around.differences(v + second)
        if two is not None and both is not None and around.bends(one + two - both, both):
            kind = Reason.KINK
    if kind is not None:
        return Irregularity(Silence(kind))
    below_rounding = around.unread_input(v)
    if below_rounding is None and around.rounding_dominates(np.zeros_like(v), v, eps):
        below_rounding = Silence(Reason.ONLY_ROUNDING)
    steepest = float(np.max(np.abs(one[-1]), initial=0.0)) / around.steps[-1]
    out_of_range = Silence(Reason.OUT_OF_RANGE) if _out_of_range(given, v, steepest) else None
    return Irregularity(out_of_range=out_of_range, below_rounding=below_rounding)


@dataclass(frozen=True)
class _Around:
    """The values of f around x, at steps along tangents that shrink, the longest first."""

    base: Base
    steps: Vector
    unit: Vector
    """The rounding of each output."""

    @classmethod
    def of(cls, base: Base, eps: float) -> _Around:
        """Returns the values at the steps for this `eps`."""
        exponents = KINK_EXPONENTS if eps <= NARROW_EPS else NARROW_KINK_EXPONENTS
        tiniest = float(np.finfo(np.float64).smallest_subnormal)
        unit = eps * base.magnitude(base.values) + 16 * tiniest
        return cls(base, 2.0 ** -np.array(exponents, float), unit)

    def at(self, move: Vector) -> Vector | None:
        """Returns f where x is moved; `None` where it raises, or is not finite though it is
        at x.
        """
        problem, base = self.base.problem, self.base
        point = problem.clipped(problem.origin + move)
        values = attempt(lambda: evaluate(problem, base, point, Purpose.SPECIAL_POINT))
        if values is None:
            return None
        finite = np.isfinite(values) | ~np.isfinite(base.values)
        return values if np.all(finite) else None

    def differences(self, v: Vector) -> Vector | None:
        """Returns `f(x + h v) - f(x)`, a row for each step; `None` where f is not defined."""
        rows = []
        for h in self.steps:
            there = self.at(h * v)
            if there is None:
                return None
            rows.append(there - self.base.values)
        return np.array(rows)

    def defect(self, one: Vector, other: Vector | None) -> Reason | None:
        """Returns what keeps f from having a derivative along one tangent, by its differences to
        one side and to the other; `None` where nothing does.
        """
        if np.any(jumps(one, other, self.unit)):
            return Reason.JUMP
        for side in (one, other):
            if side is not None:
                changes = np.diff(side / self.steps[:, None], axis=0)
                if np.any(lasting_gaps(changes, self.steps[1:], self._error(one), grows=True)):
                    return Reason.VERTICAL_TANGENT
        return Reason.KINK if other is not None and self.bends(one + other, one) else None

    def bends(self, defects: Vector, differences: Vector) -> bool:
        """Returns whether a defect of these differences lasts, as the gap between two slopes does
        at a kink.
        """
        gaps = defects / 2 / self.steps[:, None]
        return bool(np.any(lasting_gaps(gaps, self.steps, self._error(differences))))

    def _error(self, differences: Vector) -> Vector:
        """Returns what is not seen beside the slope of these differences at the last step."""
        visible = np.fmax(VISIBLE_KINK * np.abs(differences[-1]), LASTING_UNITS * self.unit)
        return np.asarray(visible / self.steps[-1])

    def rounding_dominates(self, at: Vector, v: Vector, eps: float) -> bool:
        """Returns whether a unit of rounding, where x is moved by `at`, moves f as much as a slope
        would.
        """
        one, other = self.at(at), self.at(at + 2 * eps * v)
        if one is None or other is None:
            return False
        return bool(np.any(np.abs(other - one) > VISIBLE_KINK * np.abs(one)))

    def unread_input(self, v: Vector) -> Silence | None:
        """Returns the first input that hardly moves f beyond its rounding when it is moved by a
        part of its size; `None` without any.
        """
        X = self.base.problem.X
        for leaf, part in zip(X.leaves, X.slices, strict=True):
            move = np.zeros_like(v)
            move[part] = v[part] / 16
            there = self.at(move)
            if there is None or not np.any(move):
                continue
            moves = np.abs(there - self.base.values) > SLOPE_UNITS * self.unit
            if not np.any(moves):
                return Silence(Reason.HARDLY_MOVES, leaf.name)
        return None


def _out_of_range(given: Space, v: Vector, most: float) -> bool:
    """Returns whether the derivative lies at an end of the range of a dtype, where products
    overflow; `most` is the steepest slope along `v`.
    """
    least = max(leaf.tiny or np.finfo(np.float64).tiny for leaf in given.leaves)
    most_held = min(np.finfo(np.float64).max if x.double else x.huge for x in given.leaves)
    moved = np.abs(v[v != 0])
    steepest = most / np.min(moved, initial=np.inf)
    flattest = most / np.max(moved, initial=0.0)
    return bool(steepest > most_held / RANGE_MARGIN or 0 < flattest < RANGE_MARGIN * least)

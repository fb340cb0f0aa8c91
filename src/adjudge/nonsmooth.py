"""Kinks and jumps: one-sided slopes of what is compared, and which outputs jump at x."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adjudge.compare import Comparison, along
from adjudge.differences import SHORT
from adjudge.numeric import Column, unit_roundoff
from adjudge.observed import Base, evaluate
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.spaces import Vector

SAME = 0.15
"""What stays the same to this part over steps that shrink by powers of two does not vanish."""


def slopes_of(
    problem: Problem, probes: Probes, side: str, found: Column, count: int
) -> tuple[Vector, Vector] | None:
    """One-sided slopes of what is compared, NaN without a kink; of a projection: the bounds."""
    if found.estimate.slopes is None:
        return None
    left, right = found.estimate.slopes
    value = found.estimate.value
    if side == "first":
        assert problem.weights is not None
        return _bounds(problem.weights, (left[count:], right[count:]), value[count:])
    if side == "rows":
        return probes.contract_slopes(left[:count], right[:count], value[:count])
    return left[:count], right[:count]


def kinks(
    slopes: tuple[Vector, Vector] | None, comparison: Comparison, *, ties: bool
) -> tuple[NDArray[np.bool_], bool]:
    """Where the automatic value lies between the slopes of a kink; and whether any of these is one
    that nothing but another x can settle: a jump, a NaN at a kink, or, with `ties`, an output
    without a kink beside one that has it.

    Of three equal numbers that are sorted, the middle one stays where it is, whichever of them
    moves: its slopes are not what the derivatives nearby tend to.
    """
    if slopes is None:
        return np.zeros_like(comparison.fails), False
    made = comparison.automatic.size
    slopes = slopes[0][:made], slopes[1][:made]
    off = (comparison.fails | comparison.undecided) & ~np.isnan(slopes[0])
    odd = off & (np.isinf(slopes[0]) | np.isnan(comparison.automatic))
    if ties and np.any(np.isfinite(slopes[0])):
        odd |= (comparison.fails | comparison.undecided) & np.isnan(slopes[0])
    between = along(slopes, comparison.automatic, comparison.allowed)
    return odd | (off & between), bool(np.any(odd))


def with_jumps(problem: Problem, base: Base, found: Column) -> Column:
    """`found` with slopes from minus to plus infinity where an output jumps at x.

    At a jump the difference of the two sides, or their mean less f(x), stays what it is however
    short the step. Six evaluations, and those only where the error bar is too wide for rounding.
    """
    estimate, eps = found.estimate, unit_roundoff(problem, base)
    with np.errstate(all="ignore"):
        size = base.magnitude(base.values)
        wide = np.fmax(np.abs(estimate.value) / 64, 1024 * eps * size / found.step)
        suspects = estimate.moved & (estimate.error > wide)
    if found.step == 0 or not np.any(suspects):
        return found
    ratio = 2.0**-2 if eps > SHORT else 2.0**-8 if eps < 2.0**-40 else 2.0**-4
    odd, even = [], []
    for k in range(3):
        move = found.step * ratio**k * found.vector
        doing = "close to x, to tell a jump from a slope"
        plus, minus = (
            evaluate(problem, base, problem.clipped(problem.origin + sign * move), doing)
            for sign in (1, -1)
        )
        with np.errstate(all="ignore"):
            odd.append((plus - minus) / 2)
            even.append((plus + minus) / 2 - base.values)
    jumps = suspects & (_stays(odd, eps * size) | _stays(even, eps * size))
    if not jumps.any():
        return found
    none = np.full(jumps.shape, np.nan)
    left, right = estimate.slopes or (none, none)
    slopes = np.where(jumps, -np.inf, left), np.where(jumps, np.inf, right)
    return replace(found, estimate=replace(estimate, slopes=slopes))


def _stays(parts: list[Vector], unit: Vector) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        apart = [np.abs(part - parts[0]) <= SAME * np.abs(parts[0]) for part in parts[1:]]
        return np.asarray(np.logical_and.reduce(apart) & (np.abs(parts[0]) > 16 * unit))


def _bounds(w: Vector, slopes: tuple[Vector, Vector], value: Vector) -> tuple[Vector, Vector]:
    """What `<w, D>` is at least and at most, where each coordinate of `D` takes any value between
    its one-sided slopes, or that of `value` where it has none (NaN); NaN without any kink.
    """
    kink = ~np.isnan(slopes[0])
    if not kink.any():
        return np.array([np.nan]), np.array([np.nan])
    with np.errstate(all="ignore"):
        ends = np.sort(w * np.where(kink, slopes, value), axis=0)
        return ends[:1].sum(axis=1), ends[1:].sum(axis=1)

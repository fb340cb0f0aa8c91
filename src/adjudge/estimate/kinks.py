"""Kinks and jumps: one-sided slopes of what is compared, and which outputs jump at x."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adjudge.estimate.directional import Column, unit_roundoff
from adjudge.floats import SHORT, Vector, scale
from adjudge.problem import Base, Problem, Space, evaluate, signed, where_defined

SAME = 0.15
"""What stays the same to this part over steps that shrink by powers of two does not vanish."""


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


STEPS = (8, 12, 16, 20)
"""Binary exponents of the steps, relative to the scale of x."""
NARROW_STEPS = (3, 5, 7, 9)
"""The same in single precision."""
STAYS = 0.5
"""What shrinks by less than this from step to step does not vanish; a smooth remainder shrinks as
the steps do, by 1/4 at least."""
VISIBLE = 1e-3
"""Part of the slope that a defect amounts to."""
ROUNDINGS = 64
"""Units of rounding below which nothing is seen."""
HIDDEN = 2.0**20
"""Units of rounding below which a move of f leaves a slope too few digits to be compared."""
EDGE = 64.0
"""How close to the ends of the range of a dtype a derivative is not expected to be right."""

BEYOND = "the derivative leaves the range of the dtype"

Slopes = list[Vector]


@dataclass(frozen=True)
class Around:
    """One-sided slopes of f at x along tangents, at shrinking steps."""

    problem: Problem
    base: Base
    steps: list[float]
    unit: Vector
    """What rounding of an output amounts to."""

    def slopes(self, v: Vector) -> Slopes | None:
        """`(f(x + h v) - f(x)) / h`, coarsest step first; `None` where f is not defined."""
        found = []
        with np.errstate(all="ignore"):
            for h in self.steps:
                there = self.at(h * v)
                if there is None:
                    return None
                found.append((there - self.base.values) / h)
        return found

    def at(self, move: Vector) -> Vector | None:
        """f where x is moved; `None` where it raises, or is not finite though it is at x."""
        point = self.problem.clipped(self.problem.origin + move)
        doing = "close to a special point"
        values = where_defined(lambda: evaluate(self.problem, self.base, point, doing))
        if values is None:
            return None
        finite = np.isfinite(values) | ~np.isfinite(self.base.values)
        return values if np.all(finite) else None

    def stays(self, defects: Slopes, slopes: Slopes) -> bool:
        """Whether a defect of slopes stays visible in some output however short the step."""
        return bool(np.any(self._lasting(defects, slopes, STAYS)))

    def explodes(self, slopes: Slopes) -> bool:
        """Whether a slope grows as fast as the steps shrink."""
        ratio = self.steps[0] / self.steps[1]
        return bool(np.any(self._lasting(slopes, slopes, 0.75 * ratio)))

    def _lasting(self, defects: Slopes, slopes: Slopes, ratio: float) -> NDArray[np.bool_]:
        with np.errstate(all="ignore"):
            size = [np.abs(defect) for defect in defects]
            lasting = np.ones(size[0].shape, bool)
            for before, after in pairwise(size):
                lasting &= after > ratio * before
            for part, slope, h in zip(size, slopes, self.steps, strict=False):
                lasting &= part > VISIBLE * np.abs(slope)
                lasting &= part > ROUNDINGS * self.unit / h
        return np.asarray(lasting)


@dataclass(frozen=True)
class Reasons:
    """Why values of f say nothing about a derivative at x; each empty where nothing was seen."""

    rough: str = ""
    """f is not finite nearby, or not smooth: it has no derivative there."""
    beyond: str = ""
    """It has one that the dtype does not hold."""
    hidden: str = ""
    """Differences cannot show it."""


def irregular(problem: Problem, base: Base, given: Space, seed: int) -> Reasons:
    """What speaks against a derivative at x that can be checked. About twenty evaluations.

    `given`: the inputs in the dtypes of the caller, where `problem` is in double precision.
    """
    eps = unit_roundoff(problem, base)
    if eps > SHORT or not np.all(np.isfinite(base.values)) or not problem.finite:
        return Reasons()
    around = _around(problem, base, eps)
    random = np.random.default_rng([seed, 5])
    lengths = np.zeros(problem.X.size)
    leaves = problem.base_inputs or len(problem.X.leaves)
    for part in problem.X.slices[:leaves]:
        lengths[part] = scale(problem.origin[part])
    v = signed(random, lengths.size) * lengths
    one, other = around.slopes(v), around.slopes(-v)
    if one is None or other is None:  # with all signs alike f may be defined on one side
        v = np.abs(v)
        one, other = around.slopes(v), around.slopes(-v)
    if one is None and other is None:
        return Reasons("f is not finite nearby")
    sided = one is None or other is None
    if one is None:
        assert other is not None
        v, one = -v, other
    if _unresolved(around, around.steps[0] * v, v, eps):
        return Reasons(hidden="rounding of x moves f as much as a step")
    kind = _kind(around, one, None if sided else other)
    second = signed(random, lengths.size) * lengths
    if sided:
        second = np.copysign(second, v)
    if not kind and (two := around.slopes(second)) and (both := around.slopes(v + second)):
        with np.errstate(all="ignore"):
            bent = [a + b - c for a, b, c in zip(one, two, both, strict=True)]
        kind = "kink" * around.stays(bent, both)
    if kind:
        return Reasons(f"f is not smooth ({kind})")
    hidden = _still(around, v)
    if not hidden and _unresolved(around, np.zeros_like(v), v, eps):
        hidden = "f is nothing but rounding"
    return Reasons(beyond=_beyond(given, v, one), hidden=hidden)


def _around(problem: Problem, base: Base, eps: float) -> Around:
    exponents = STEPS if eps <= 2.0**-40 else NARROW_STEPS
    tiniest = float(np.finfo(np.float64).smallest_subnormal)
    with np.errstate(all="ignore"):
        unit = eps * base.magnitude(base.values) + 16 * tiniest
    return Around(problem, base, [2.0**-k for k in exponents], unit)


def _kind(around: Around, one: Slopes, other: Slopes | None) -> str:
    """A jump, a vertical tangent or a kink along one tangent."""
    with np.errstate(all="ignore"):
        if around.explodes(one) or (other is not None and around.explodes(other)):
            return "jump"
        for side in (one, other):
            changes = [b - a for a, b in pairwise(side)] if side else []
            if changes and around.stays(changes, one):
                return "vertical tangent"
        if other is not None:
            gaps = [a + b for a, b in zip(one, other, strict=True)]
            return "kink" * around.stays(gaps, one)
    return ""


def _beyond(given: Space, v: Vector, slopes: Slopes) -> str:
    """Whether the derivative lies at an end of the range of a dtype, where products overflow."""
    least = max(leaf.tiny or np.finfo(np.float64).tiny for leaf in given.leaves)
    most_held = min(np.finfo(np.float64).max if x.double else x.huge for x in given.leaves)
    moved = np.abs(v[v != 0])
    with np.errstate(all="ignore"):
        most = np.max(np.abs(slopes[-1]), initial=0.0)
        steepest = most / np.min(moved, initial=np.inf)
        flattest = most / np.max(moved, initial=0.0)
    if steepest > most_held / EDGE or 0 < flattest < EDGE * least:
        return BEYOND
    return ""


def _unresolved(around: Around, at: Vector, v: Vector, eps: float) -> bool:
    """Whether a unit of rounding, where x is moved by `at`, moves f as much as a slope would."""
    one, other = around.at(at), around.at(at + 2 * eps * v)
    if one is None or other is None:
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(other - one)
        return bool(np.any((apart > VISIBLE * np.abs(one)) & (apart > ROUNDINGS * eps * abs(one))))


def _still(around: Around, v: Vector) -> str:
    """Whether some input, moved by a part of its size, hardly moves f beyond its rounding."""
    for leaf, part in zip(around.problem.X.leaves, around.problem.X.slices, strict=True):
        move = np.zeros_like(v)
        move[part] = v[part] / 16
        there = around.at(move)
        if there is None or not np.any(move):
            continue
        with np.errstate(all="ignore"):
            moves = np.abs(there - around.base.values) > HIDDEN * around.unit
        if not np.any(moves):
            return f"{leaf.name} hardly moves f"
    return ""

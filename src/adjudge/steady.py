"""Two numbers that should be one: whether they differ for a reason, or by rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from adjudge.problem import Problem
from adjudge.spaces import Vector

DISTANCES = (46, 30, 20, 16, 13, 11, 9)
"""Binary exponents of how far points lie from x, over its scale: rounding in double, and in code
that is in single precision inside, is another one from point to point; an error in a rule stays.
"""
ENOUGH = 4
"""Points at which a difference has to be the same."""
SAME = 1 / 4
"""Part of a difference by which it may change between points."""

UNITS = 64
"""Units of rounding of the terms up to which two sums of them are the same number."""


def persists(
    problem: Problem, eps: float, seed: int, gap: float, gap_at: Callable[[Vector], float]
) -> bool:
    """Whether the difference `gap` of two numbers at x is there at points close to x as well.

    Rounding, however much ill-conditioning makes of it, has another sign and size at each point.
    Where `gap_at` raises, f or its derivative is not defined; that point says nothing.
    """
    held = 0
    for point in _around(problem, eps, seed):
        try:
            there = gap_at(point)
        except Exception:  # noqa: S112 a point off the domain of f is no evidence for anything
            continue
        if not np.isfinite(there):
            continue
        if abs(there - gap) > SAME * abs(gap):
            return False
        held += 1
    return held >= ENOUGH


def shaken(vector: Vector, random: np.random.Generator) -> Vector:
    """A probe close to this one: what is linear in it rounds in another way at every point, too."""
    return np.asarray(vector * (1 + 2.0 ** -DISTANCES[-1] * random.uniform(-1, 1, vector.size)))


def _around(problem: Problem, eps: float, seed: int) -> Iterator[Vector]:
    random = np.random.default_rng([seed, 29])
    for distance in DISTANCES:
        move = (
            max(2.0**-distance, 4 * eps) * problem.lengths * random.uniform(-1, 1, problem.X.size)
        )
        yield problem.clipped(problem.origin + move)

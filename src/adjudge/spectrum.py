"""How far the singular values of the derivative of an affine function spread."""

from __future__ import annotations

import numpy as np

from adjudge.automatic import Reverse
from adjudge.differences import norm, scale
from adjudge.observed import Base, evaluate
from adjudge.problem import Problem
from adjudge.spaces import Vector

STEPS = 8
"""Of the bidiagonalisation: each a difference and a vjp."""
SPENT = 1e-10
"""Part of the largest singular value below which the rest is rounding."""


def spread(problem: Problem, base: Base, leaf: int, w: Vector) -> float:
    """The ratio of the largest to the smallest singular value that a few steps of Golub and Kahan
    (SIAM J. Numer. Anal. 2, 1965) from the cotangent `w` show, of the derivative in one leaf.

    A map with a wide spread may be the inverse of one, and two ways to compute it, both backward
    stable, differ by as many units of rounding. Infinite where x has no room for differences.
    """
    part = problem.X.slices[leaf]
    length = float(np.max(scale(problem.origin[part]), initial=0.0))
    reverse = Reverse(problem)
    u = w / norm(w)
    lefts, rights = [u], list[Vector]()
    steps = min(STEPS, part.stop - part.start, int(np.count_nonzero(w)))
    bidiagonal = np.zeros((steps + 1, steps))
    done = 0
    for k in range(steps):
        v = np.zeros_like(problem.origin)
        v[part] = reverse.row(base, u)[part]
        v = _apart(v, rights)
        alpha = float(norm(v))
        if not alpha > SPENT * np.max(np.abs(bidiagonal)):
            break
        v, bidiagonal[k, k], done = v / alpha, alpha, k + 1
        rights.append(v)
        unit = length / float(np.max(np.abs(v)))
        if problem.room(v) < unit:
            return np.inf
        ends = [
            evaluate(problem, base, problem.origin + sign * unit * v, "along a singular vector")
            for sign in (1.0, -1.0)
        ]
        u = np.where(w != 0, (ends[0] - ends[1])[: base.Y.size] / (2 * unit), 0.0)
        u = _apart(u, lefts)
        beta = float(norm(u))
        if not beta > SPENT * np.max(np.abs(bidiagonal)):
            break
        u, bidiagonal[k + 1, k] = u / beta, beta
        lefts.append(u)
    values = np.linalg.svd(bidiagonal[: done + 1, :done], compute_uv=False)
    return float(values[0] / values[-1]) if done and values[-1] > 0 else np.inf


def _apart(vector: Vector, others: list[Vector]) -> Vector:
    """What is left of `vector` beside orthonormal ones; twice, so that rounding is."""
    for _ in range(2):
        for other in others:
            vector = vector - (other @ vector) * other
    return vector

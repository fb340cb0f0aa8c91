"""This module checks whether a reference is the function that is checked: their values at x agree
to the rounding of f.

Without it a reference of another function (a forgotten constant) would call a right derivative
wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import REFERENCE_VALUE_DISTANCES, REFERENCE_VALUE_UNITS, SCATTERED_PART
from adjudge.findings import Finding, ReferenceElsewhere, Remedy, Status
from adjudge.floats import Vector
from adjudge.jacobian import Tolerance
from adjudge.problem import Base, Problem, Purpose, Space, Stream, evaluate, generator


def another_function(
    problem: Problem, base: Base, tolerance: Tolerance, seed: int
) -> list[Finding]:
    """Returns a finding where the reference has another value at x than f, beyond the rounding of
    f.

    A gap of more than units of rounding is looked at again at four points nearby. Rounding, however
    much cancellation makes of it, is scattered there; another function is off as much, or smoothly.
    """
    if problem.reference is None:
        return []
    first = base.Y.size if problem.modes_taken else 0
    space = _outputs(problem, base)
    gap = _gap(problem, base, problem.origin, base.values, first)
    if gap is None:
        return []
    size = base.magnitude(base.values)[first:]
    with np.errstate(all="ignore"):
        allowed = REFERENCE_VALUE_UNITS * tolerance.eps * size
        off = np.isfinite(gap) & ~(np.abs(gap) <= allowed)
    off |= np.isnan(gap) & np.isfinite(base.values[first:])
    if not np.any(off):
        return []
    off &= ~_is_scattered(problem, base, gap, first, seed)
    if not np.any(off):
        return []
    with np.errstate(all="ignore"):
        worst = int(np.argmax(np.where(off, np.nan_to_num(np.abs(gap), nan=np.inf), -1.0)))
    mine = float(base.values[first + worst])
    detail = ReferenceElsewhere(
        mine,
        mine - float(gap[worst]),
        abs(float(gap[worst])),
        float(allowed[worst]),
        count=int(off.sum()),
        entries=off.size,
    )
    return [Finding(Status.REFERENCE, "", space.entry(worst), detail, Remedy.MATCH_REFERENCE)]


def _outputs(problem: Problem, base: Base) -> Space:
    """Returns the outputs of f itself, which a derivative has beside its own."""
    return Space(base.whole.leaves[len(base.Y.leaves) if problem.modes_taken else 0 :])


def _gap(problem: Problem, base: Base, point: Vector, values: Vector, first: int) -> Vector | None:
    """Returns f less the reference."""
    assert problem.reference is not None
    given = problem.reference.values(_outputs(problem, base), point)
    with np.errstate(all="ignore"):
        return None if given is None else np.asarray(values[first:] - given)


def _is_scattered(
    problem: Problem, base: Base, gap: Vector, first: int, seed: int
) -> NDArray[np.bool_]:
    """Marks where the gap varies nearby by more than `SCATTERED_PART` of itself."""
    random, gaps = generator(seed, Stream.REFERENCE_VALUE), [gap]
    reach = problem.length_scales.copy()
    # The cotangents stay what they are.
    if problem.modes_taken:
        reach[problem.X.slices[problem.primal_inputs - 1].stop :] = 0.0
    for far in REFERENCE_VALUE_DISTANCES:
        move = far * reach * random.uniform(0.5, 1.0, problem.X.size)
        point = problem.origin + move * random.choice([-1.0, 1.0], problem.X.size)
        point = problem.X.vector(problem.backend, problem.point(problem.clipped(point)), problem.x)
        values = evaluate(problem, base, point, Purpose.REFERENCE)
        there = _gap(problem, base, point, values, first)
        # There was a value at x.
        assert there is not None
        gaps.append(there)
    with np.errstate(all="ignore"):
        every = np.array(gaps)
        scatter = np.max(np.abs(every - every.mean(axis=0)), axis=0)
        return np.asarray(scatter > SCATTERED_PART * np.abs(every.mean(axis=0)))

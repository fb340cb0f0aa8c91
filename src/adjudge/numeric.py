"""The table's columns by finite differences: one directional derivative a tangent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adjudge.differences import (
    Estimate,
    Sample,
    central,
    ladder,
    ladder_steps,
    relative_step,
)
from adjudge.errors import InputError
from adjudge.observed import Base, evaluate
from adjudge.probes import Tangent
from adjudge.problem import Problem
from adjudge.spaces import Vector

RETREATS = (1.0, 2.0**-8, 2.0**-16)
"""Factors on the step where a neighbour of x is not finite."""


@dataclass(frozen=True)
class Column:
    """`J v` by differences along one tangent, with the tangent that was really taken."""

    tangent: Tangent
    vector: Vector
    """The direction after rounding of the perturbed points to their dtype, a vector of X."""
    estimate: Estimate
    step: float
    relative: float


def unit_roundoff(problem: Problem, base: Base) -> float:
    """The coarsest `eps` among the checked leaves and the outputs."""
    return max((leaf.eps for leaf in (*problem.X.leaves, *base.whole.leaves)), default=2.0**-52)


def column(problem: Problem, base: Base, tangent: Tangent, eps: float | None) -> Column:
    """Two evaluations along `tangent`; `eps` fixes the absolute step."""
    u = unit_roundoff(problem, base)
    relative = relative_step(u)
    for factor in RETREATS:
        step = eps if eps is not None else _power_of_two(relative * factor * tangent.length)
        sample, vector = _sample(problem, base, tangent, step)
        finite = np.isfinite(sample.plus) & np.isfinite(sample.minus)
        if eps is not None or bool(np.all(finite | ~np.isfinite(base.values))):
            break
    return Column(tangent, vector, central(sample, u), step, relative * factor)


def refined(problem: Problem, base: Base, first: Column) -> Column:
    """The same column from a ladder of steps, with an error bar that was measured."""
    u = unit_roundoff(problem, base)
    samples = []
    vector = first.vector
    for step in ladder_steps(first.step, first.relative):
        sample, taken = _sample(problem, base, first.tangent, step)
        samples.append(sample)
        if step == first.step:
            vector = taken
    estimate = ladder(samples, u, base.values)
    return Column(first.tangent, vector, estimate, first.step, first.relative)


def _power_of_two(step: float) -> float:
    return float(2.0 ** np.round(np.log2(step))) if step > 0 and np.isfinite(step) else step


def _sample(problem: Problem, base: Base, tangent: Tangent, step: float) -> tuple[Sample, Vector]:
    origin = problem.origin
    taken = []
    values = []
    for sign in (1.0, -1.0):
        point = origin + sign * step * tangent.vector
        point = _representable(problem, point, tangent.leaf)
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(origin), point - origin, 0.0)
        _require_motion(problem, tangent, moved, step)
        values.append(evaluate(problem, base, point, _doing(problem, tangent, sign * step)))
        taken.append(moved)
    difference = (taken[0] - taken[1]) / (2 * step)
    if tangent.coordinate is None:
        return Sample(step, values[0], values[1]), difference
    # a unit tangent stays one: the step is what was really taken
    actual = step * float(difference[tangent.coordinate])
    return Sample(actual, values[0], values[1]), tangent.vector


def _representable(problem: Problem, point: Vector, leaf: int) -> Vector:
    if problem.X.leaves[leaf].double:
        return point
    part = problem.X.slices[leaf]
    spec, like = problem.X.leaves[leaf], problem.x[leaf]
    rounded = problem.backend.from_host(spec.host(point[part]), like)
    point = point.copy()
    point[part] = spec.vector(problem.backend.to_host(rounded, like))
    return point


def _require_motion(problem: Problem, tangent: Tangent, moved: Vector, step: float) -> None:
    if np.any(moved):
        return
    leaf = problem.X.leaves[tangent.leaf]
    where = leaf.name if tangent.coordinate is None else problem.X.entry(tangent.coordinate)
    raise InputError(
        f"a step of {step:.3g} does not move {where} ({leaf.info.dtype}): it is below the "
        "spacing of the dtype there",
        "leave eps= out (the step then follows the scale of the input), or give a longer one",
    )


def _doing(problem: Problem, tangent: Tangent, step: float) -> str:
    if tangent.coordinate is not None:
        return f"with {problem.X.entry(tangent.coordinate)} moved by {step:+.3g}"
    return f"with {problem.X.leaves[tangent.leaf].name} moved by {step:+.3g} times a random tangent"

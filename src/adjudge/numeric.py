"""The table's columns by finite differences: one directional derivative a tangent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from adjudge.differences import (
    Estimate,
    Sample,
    central,
    confirmed,
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
    finer: int | None = None
    """How many steps below this one are exact in the dtype; `None`: all of the ladder's."""


def unit_roundoff(problem: Problem, base: Base) -> float:
    """The coarsest `eps` among the checked leaves and the outputs."""
    return max((leaf.eps for leaf in (*problem.X.leaves, *base.whole.leaves)), default=2.0**-52)


def column(problem: Problem, base: Base, tangent: Tangent, eps: float | None) -> Column:
    """Two evaluations along `tangent`; `eps` fixes the absolute step.

    Raises `InputError` where a fixed step is too short to move x at all.
    """
    u = unit_roundoff(problem, base)
    relative = relative_step(u)
    if not _movable(problem, tangent):
        # an infinity stays itself under any step; of a NaN nothing can be said
        unknown = bool(np.any(np.isnan(problem.origin[tangent.vector != 0])))
        still = np.full(base.whole.size, np.nan if unknown else 0.0)
        estimate = Estimate(still, still, np.zeros(still.shape, bool), 0, "x is not finite there")
        return Column(tangent, tangent.vector, estimate, 0.0, relative)
    if eps is not None:
        taken = _sample(problem, base, tangent, eps)
        if taken is None:
            raise _no_motion(problem, tangent, eps)
        return Column(tangent, taken[1], central(taken[0], u, base.noise), eps, relative)
    best: Column | None = None
    for factor in RETREATS:
        step = _power_of_two(relative * factor * tangent.length)
        finer = 0 if factor < 1 else None
        steps = ladder_steps(step, relative * factor, u, finer=finer)
        exact = _quantised(problem, tangent, steps)
        taken = _sample(problem, base, exact, step)
        if taken is None:
            break
        sample, vector = taken
        best = Column(exact, vector, central(sample, u, base.noise), step, relative * factor, finer)
        finite = np.isfinite(sample.plus) & np.isfinite(sample.minus)
        if bool(np.all(finite | ~np.isfinite(base.values))):
            break
    if best is None:
        raise _no_motion(problem, tangent, step)
    return best


def refined(problem: Problem, base: Base, first: Column) -> Column:
    """The same column from a ladder of steps, with an error bar that was measured.

    Steps below the spacing of the dtype are left out; `first` itself where fewer than three stay.
    Three give two extrapolations, and so a disagreement to measure.
    """
    if first.step == 0.0:
        return first
    estimate = _climbed(problem, base, first, _steps(problem, base, first))
    return first if estimate is None else replace(first, estimate=estimate)


def confirm(problem: Problem, base: Base, found: Column) -> Column:
    """A refined column, confirmed by a second ladder whose steps lie between those of the first."""
    if found.step == 0.0:
        return found
    steps = _steps(problem, base, found)
    # three halves of all but the finest step: still exact in the dtype
    second = _climbed(problem, base, found, [1.5 * step for step in steps[:-1]])
    if second is None:
        return found
    return replace(found, estimate=confirmed(found.estimate, second))


def _steps(problem: Problem, base: Base, found: Column) -> list[float]:
    """The ladder around the step of `found`, as far down as it is exact in the dtype."""
    finer = None if problem.X.leaves[found.tangent.leaf].double else found.finer
    u = unit_roundoff(problem, base)
    return ladder_steps(found.step, found.relative, u, far=_hidden(found.estimate), finer=finer)


def _climbed(
    problem: Problem, base: Base, found: Column, steps: Sequence[float]
) -> Estimate | None:
    """The estimate from a ladder of these steps; `None` where fewer than three can be taken."""
    samples = []
    for step in steps:
        taken = _sample(problem, base, found.tangent, step)
        if taken is not None:
            samples.append(taken[0])
    if len(samples) < 3:
        return None
    return ladder(samples, unit_roundoff(problem, base), base.values, base.noise, base.whole.slices)


def _hidden(estimate: Estimate) -> bool:
    """Whether rounding drowns the motion of f at the step tried first."""
    error, value = (
        np.where(np.isfinite(v), np.abs(v), 0.0) for v in (estimate.error, estimate.value)
    )
    return bool(np.max(error, initial=0.0) > 1e-3 * np.max(value, initial=0.0))


def _movable(problem: Problem, tangent: Tangent) -> bool:
    """Whether any entry that `tangent` moves is finite; an infinity stays where it is."""
    return bool(np.any(np.isfinite(problem.origin[tangent.vector != 0])))


def _quantised(problem: Problem, tangent: Tangent, steps: Sequence[float]) -> Tangent:
    """`tangent` rounded so that each of these steps is exact in the dtype of its leaf.

    Otherwise the direction would change from step to step by the rounding of `x + t v`.
    """
    leaf = problem.X.leaves[tangent.leaf]
    if tangent.coordinate is not None:
        return tangent
    part = problem.X.slices[tangent.leaf]
    v, x = tangent.vector[part], problem.origin[part]
    if tangent.unit and leaf.eps * (2 * _reach(x) + steps[0] * _reach(v)) <= tangent.unit * steps[-1]:
        return tangent
    with np.errstate(all="ignore"):
        reach = np.abs(x) + steps[0] * np.abs(v)
        spacing = 2.0 ** np.floor(np.log2(np.where(reach > 0, reach, 1.0))) * leaf.eps
        unit = spacing / steps[-1]
        rounded = np.where(np.isfinite(unit) & (reach > 0), np.round(v / unit) * unit, v)
    vector = tangent.vector.copy()
    # an entry whose spacing is wider than its move keeps one unit, rather than drop out
    vector[part] = np.where((rounded == 0) & (v != 0), np.sign(v) * unit, rounded)
    return replace(tangent, vector=vector)


def _reach(x: Vector) -> float:
    """At least the largest magnitude; NaN with one."""
    return float(np.max(x, initial=0.0) - np.min(x, initial=0.0))


def _power_of_two(step: float) -> float:
    return float(2.0 ** np.round(np.log2(step))) if step > 0 and np.isfinite(step) else step


def _sample(
    problem: Problem, base: Base, tangent: Tangent, step: float
) -> tuple[Sample, Vector] | None:
    """Values on both sides of x and the direction really taken; `None` if x does not move."""
    origin = problem.origin
    points, moves = [], []
    for sign in (1.0, -1.0):
        point = _representable(problem, origin + sign * step * tangent.vector, tangent.leaf)
        with np.errstate(invalid="ignore"):
            points.append(point)
            moves.append(np.where(np.isfinite(origin), point - origin, 0.0))
    if not np.any(moves[0]) or not np.any(moves[1]):
        return None
    plus, minus = (
        evaluate(problem, base, point, _doing(problem, tangent, signed))
        for point, signed in zip(points, (step, -step), strict=True)
    )
    direction = (moves[0] - moves[1]) / (2 * step)
    if tangent.coordinate is None:
        return Sample(step, plus, minus, base.magnitude), direction
    # a unit tangent stays one: the step is what was really taken
    return Sample(
        step * float(direction[tangent.coordinate]), plus, minus, base.magnitude
    ), tangent.vector


def _representable(problem: Problem, point: Vector, leaf: int) -> Vector:
    if problem.X.leaves[leaf].double:
        return point
    part = problem.X.slices[leaf]
    spec, like = problem.X.leaves[leaf], problem.x[leaf]
    rounded = problem.backend.from_host(spec.host(point[part]), like)
    point = point.copy()
    point[part] = spec.vector(problem.backend.to_host(rounded, like))
    return point


def _no_motion(problem: Problem, tangent: Tangent, step: float) -> InputError:
    leaf = problem.X.leaves[tangent.leaf]
    where = leaf.name if tangent.coordinate is None else problem.X.entry(tangent.coordinate)
    return InputError(
        f"a step of {step:.3g} does not move {where} ({leaf.info.dtype}): it is below the "
        "spacing of the dtype there",
        "leave eps= out (the step then follows the scale of the input), or give a longer one",
    )


def _doing(problem: Problem, tangent: Tangent, step: float) -> str:
    if tangent.coordinate is not None:
        return f"with {problem.X.entry(tangent.coordinate)} moved by {step:+.3g}"
    return f"with {problem.X.leaves[tangent.leaf].name} moved by {step:+.3g} times a random tangent"

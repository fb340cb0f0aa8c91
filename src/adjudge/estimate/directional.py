"""The table's columns by finite differences: one directional derivative a tangent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from adjudge.errors import AdjudgeError, InputError
from adjudge.estimate.reference import Direction
from adjudge.estimate.stencils import (
    Estimate,
    Sample,
    central,
    confirmed,
    fewest,
    ladder,
    ladder_steps,
)
from adjudge.floats import SHORT, Vector, relative_step
from adjudge.problem import Base, Problem, Tangent, evaluate

RETREATS = (1.0, 2.0**-8, 2.0**-16)
"""Factors on the step where a neighbour of x is not finite."""
SHORT_RETREATS = (1.0, 2.0**-2)
"""The same in sixteen bits, where steps soon fall below the spacing of x."""


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
    ladders: tuple[tuple[Sample, ...], ...] = ()
    """The samples of the ladders taken so far."""
    sided: bool = False
    """Whether x has a neighbour on one side only: `step` has its sign."""
    from_reference: bool = False
    """Whether a reference gave it: there is nothing to refine, and every entry counts."""
    sample: Sample | None = None
    """The values of two evaluations that were enough."""


def unit_roundoff(problem: Problem, base: Base) -> float:
    """The coarsest `eps` of the checked leaves, the outputs, and float64, which holds them."""
    return max(2.0**-52, *(leaf.eps for leaf in (*problem.X.leaves, *base.whole.leaves)))


def column(problem: Problem, base: Base, tangent: Tangent, eps: float | None) -> Column:
    """Two evaluations along `tangent`; `eps` fixes the absolute step.

    A ladder to one side where a neighbour to the other side is not finite or out of bounds.
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
    if problem.reference is not None:
        return by_reference(problem, base, tangent)
    if eps is not None:
        if eps > problem.room(tangent.vector):
            raise _out_of_bounds(problem, tangent, eps)
        taken = sample_at(problem, base, tangent, eps)
        if taken is None:
            raise _no_motion(problem, tangent, eps)
        return Column(tangent, taken[1], central(taken[0], u, base.noise), eps, relative)
    best: Column | None = None
    room = problem.room(tangent.vector)
    for factor in RETREATS if u <= SHORT else SHORT_RETREATS:
        step = power_of_two(relative * factor * tangent.length)
        # at a bound short steps are for float64 only: rounding drowns them in narrower dtypes
        if step > room or (factor < 1 and np.isfinite(room) and u > 2.0**-52):
            continue
        finer = 0 if factor < 1 else None
        steps = _within(ladder_steps(step, relative * factor, u, finer=finer), room)
        exact = _quantised(problem, tangent, steps)
        as_it_is = exact is tangent and tangent.unit > 0 and problem.bounds is None
        taken = sample_at(problem, base, exact, step, exact=as_it_is)
        if taken is None:
            break
        sample, vector = taken
        best = Column(exact, vector, central(sample, u, base.noise), step, relative * factor, finer)
        if defined(base, sample.plus) and defined(base, sample.minus):
            return replace(best, sample=sample)
    one = _one_sided(problem, base, tangent, u)
    return one or best or _unmoved(base, tangent, relative, room)


def by_reference(problem: Problem, base: Base, tangent: Tangent) -> Column:
    """The column by the reference, at `problem.origin`."""
    assert problem.reference is not None
    ahead, behind = (problem.room(sign * tangent.vector, both=False) for sign in (1.0, -1.0))
    v = Direction(tangent.vector, tangent.length, ahead, behind)
    estimate = problem.reference.along(base.whole, problem.origin, v)
    return Column(tangent, tangent.vector, estimate, 0.0, 0.0, from_reference=True)


def defined(base: Base, values: Vector) -> bool:
    """Whether `values` are finite wherever those at x are."""
    return bool(np.all(np.isfinite(values) | ~np.isfinite(base.values)))


def _one_sided(problem: Problem, base: Base, tangent: Tangent, u: float) -> Column | None:
    """A ladder to the side on which f is defined; `None` where there is none."""
    relative = relative_step(u)
    step = power_of_two(relative * tangent.length)
    if tangent.coordinate is None:
        tangent = replace(tangent, vector=problem.inward(tangent.vector))
    # where f is defined far off to one side, that is the side; else where it is close by
    for side, tried in ((1.0, 0), (-1.0, 0), (1.0, -1), (-1.0, -1)):
        room = problem.room(side * tangent.vector, both=False)
        steps = _within(ladder_steps(step, relative, u), room)
        if not steps:
            continue
        exact = _quantised(problem, tangent, steps)
        first = sample_at(problem, base, exact, side * steps[tried], sided=True)
        if first is None or not defined(base, first[0].plus):
            continue
        vector, found = first[1], Column(exact, first[1], central(first[0], u), 0.0, relative)
        found = replace(found, vector=vector, step=side * step, sided=True)
        return climbed(problem, base, found, steps)
    return None


def _unmoved(base: Base, tangent: Tangent, relative: float, room: float) -> Column:
    """A column of which nothing is known, since no step of the ladder moves x within `room`."""
    unknown = np.zeros(base.whole.size)
    estimate = Estimate(
        unknown,
        unknown + np.inf,
        np.ones(unknown.shape, bool),
        0,
        "no step of the ladder fits between the bounds"
        if np.isfinite(room)
        else "no step of the ladder moves x: it lies among the smallest numbers of its dtype",
    )
    return Column(tangent, tangent.vector, estimate, 0.0, relative)


def _within(steps: Sequence[float], room: float) -> list[float]:
    return [step for step in steps if step <= room]


def refined(problem: Problem, base: Base, first: Column) -> Column:
    """The same column from a ladder of steps, with an error bar that was measured.

    Steps below the spacing of the dtype are left out; `first` itself where too few stay.
    """
    if first.step == 0.0 or first.sided:
        return first
    return climbed(problem, base, first, steps_around(problem, base, first)) or first


def confirm(problem: Problem, base: Base, found: Column) -> Column:
    """A refined column, confirmed by a second ladder whose steps lie between those of the first."""
    if found.step == 0.0:
        return found
    steps = steps_around(problem, base, found)
    room = problem.room(np.sign(found.step) * found.tangent.vector, both=not found.sided)
    factor = between(problem, found)
    second = climbed(problem, base, found, _within([factor * step for step in steps[:-1]], room))
    if second is None:
        return found
    return replace(
        found,
        estimate=confirmed(found.estimate, second.estimate),
        ladders=(*found.ladders, *second.ladders),
    )


def between(problem: Problem, found: Column) -> float:
    """A factor that makes other steps of those of the ladder.

    No ratio of small numbers in double, where values may be rounded to multiples of a power of two
    as the steps are; three halves in narrower dtypes, where the steps have to stay exact.
    """
    tangent = found.tangent
    unit = tangent.coordinate is not None  # of other tangents the direction would be rounded
    return 1.4 if unit and problem.X.leaves[tangent.leaf].double else 1.5


def steps_around(problem: Problem, base: Base, found: Column, *, far: bool = False) -> list[float]:
    """The ladder around the step of `found`, as far down as it is exact in the dtype."""
    finer = None if problem.X.leaves[found.tangent.leaf].double else found.finer
    far = far or _hidden(found.estimate)
    u = unit_roundoff(problem, base)
    steps = ladder_steps(abs(found.step), found.relative, u, far=far, finer=finer)
    direction = np.sign(found.step) * found.tangent.vector
    return _within(steps, problem.room(direction, both=not found.sided))


def climbed(
    problem: Problem, base: Base, found: Column, steps: Sequence[float], least: int = 0
) -> Column | None:
    """`found` from a ladder of these steps; `None` where too few can be taken."""
    samples = []
    for step in steps:
        signed = float(np.copysign(step, found.step))
        try:
            taken = sample_at(problem, base, found.tangent, signed, sided=found.sided)
        except AdjudgeError:
            raise
        except Exception:
            if step <= abs(found.step):
                raise
            continue  # farther off than the step that worked: f is not defined there
        if taken is not None:
            samples.append(taken[0])
    if len(samples) < (least or fewest(sided=found.sided)):
        return None
    if len(samples) < fewest(sided=found.sided):
        return replace(found, ladders=(tuple(samples),))
    u = unit_roundoff(problem, base)
    estimate = ladder(samples, u, base.values, base.noise, base.whole.slices)
    return replace(found, estimate=estimate, ladders=(tuple(samples),))


def _hidden(estimate: Estimate) -> bool:
    """Whether rounding drowns the motion of f at the step tried first."""
    error, value = (
        np.where(np.isfinite(v), np.abs(v), 0.0) for v in (estimate.error, estimate.value)
    )
    return bool(np.max(error, initial=0.0) > 1e-3 * np.max(value, initial=0.0))


def _movable(problem: Problem, tangent: Tangent) -> bool:
    """Whether any entry that `tangent` moves is finite; an infinity stays where it is."""
    return problem.finite or bool(np.any(np.isfinite(problem.origin[tangent.vector != 0])))


def _quantised(problem: Problem, tangent: Tangent, steps: Sequence[float]) -> Tangent:
    """`tangent` rounded so that each of these steps is exact in the dtype of its leaf.

    Otherwise the direction would change from step to step by the rounding of `x + t v`.
    """
    leaf = problem.X.leaves[tangent.leaf]
    if tangent.coordinate is not None:
        return tangent
    part = problem.X.slices[tangent.leaf]
    v, x = tangent.vector[part], problem.origin[part]
    if tangent.unit:
        coarsest = leaf.eps * (2 * _reach(x) + steps[0] * _reach(v))
        if coarsest <= tangent.unit * steps[-1]:
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


def power_of_two(step: float) -> float:
    """The power of two next to `step`."""
    return float(2.0 ** np.round(np.log2(step))) if step > 0 and np.isfinite(step) else step


def moved_by(problem: Problem, tangent: Tangent, step: float) -> Vector:
    """`x + step v`, rounded to the dtype of the leaf and within bounds."""
    point = problem.clipped(problem.origin + step * tangent.vector)
    return representable(problem, point, tangent.leaf)


def sample_at(
    problem: Problem,
    base: Base,
    tangent: Tangent,
    step: float,
    *,
    sided: bool = False,
    exact: bool = False,
) -> tuple[Sample, Vector] | None:
    """Values on both sides of x (of `sided`: at x and on one) and the direction really taken;
    `None` if x does not move. `exact`: the direction is known to be that of `tangent`.
    """
    if exact:
        plus, minus = (
            evaluate(problem, base, problem.origin + h * tangent.vector, doing(problem, tangent, h))
            for h in (step, -step)
        )
        return Sample(step, plus, minus, base.magnitude), tangent.vector
    origin = problem.origin
    points = [
        moved_by(problem, tangent, step),
        origin if sided else moved_by(problem, tangent, -step),
    ]
    with np.errstate(invalid="ignore"):
        moves = [np.where(np.isfinite(origin), point - origin, 0.0) for point in points]
    if not np.any(moves[0]) or not (sided or np.any(moves[1])):
        return None
    plus = evaluate(problem, base, points[0], doing(problem, tangent, step))
    minus = (
        base.values if sided else evaluate(problem, base, points[1], doing(problem, tangent, -step))
    )
    span = step if sided else 2 * step
    direction = (moves[0] - moves[1]) / span
    if tangent.coordinate is None:
        return Sample(step, plus, minus, base.magnitude, sided), direction
    # a unit tangent stays one: the step is what was really taken
    taken = step * float(direction[tangent.coordinate])
    return Sample(taken, plus, minus, base.magnitude, sided), tangent.vector


def representable(problem: Problem, point: Vector, leaf: int) -> Vector:
    """`point`, with one leaf rounded to its dtype."""
    if problem.X.leaves[leaf].double:
        return point
    part = problem.X.slices[leaf]
    spec, like = problem.X.leaves[leaf], problem.x[leaf]
    rounded = problem.backend.from_host(spec.host(point[part]), like)
    point = point.copy()
    point[part] = spec.vector(problem.backend.to_host(rounded, like))
    return point


def _out_of_bounds(problem: Problem, tangent: Tangent, step: float) -> InputError:
    return InputError(
        f"eps={step:.3g} leaves the bounds of {problem.X.leaves[tangent.leaf].name}",
        "leave eps= out: steps then keep within the bounds, to one side where need be",
    )


def _no_motion(problem: Problem, tangent: Tangent, step: float) -> InputError:
    leaf = problem.X.leaves[tangent.leaf]
    where = leaf.name if tangent.coordinate is None else problem.X.entry(tangent.coordinate)
    return InputError(
        f"a step of {step:.3g} does not move {where} ({leaf.info.dtype}): it is below the "
        "spacing of the dtype there",
        "leave eps= out (the step then follows the scale of the input), or give a longer one",
    )


def doing(problem: Problem, tangent: Tangent, step: float) -> str:
    """The words for an evaluation, should it raise."""
    if tangent.coordinate is not None:
        return f"with {problem.X.entry(tangent.coordinate)} moved by {step:+.3g}"
    return f"with {problem.X.leaves[tangent.leaf].name} moved by {step:+.3g} times a random tangent"

"""The table's columns by finite differences: one directional derivative a tangent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adjudge.differences import (
    SHORT,
    Estimate,
    Sample,
    central,
    confirmed,
    fewest,
    ladder,
    ladder_steps,
    relative_step,
)
from adjudge.errors import InputError
from adjudge.noise import POINTS, carried, lattice, scatter
from adjudge.observed import Base, evaluate
from adjudge.probes import Tangent
from adjudge.problem import Problem
from adjudge.spaces import Vector

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


def unit_roundoff(problem: Problem, base: Base) -> float:
    """The coarsest `eps` among the checked leaves and the outputs, and float64, which holds both."""
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
    if eps is not None:
        taken = _sample(problem, base, tangent, eps)
        if taken is None:
            raise _no_motion(problem, tangent, eps)
        return Column(tangent, taken[1], central(taken[0], u, base.noise), eps, relative)
    best: Column | None = None
    room = problem.room(tangent.vector)
    for factor in RETREATS if u <= SHORT else SHORT_RETREATS:
        step = _power_of_two(relative * factor * tangent.length)
        if step > room:
            continue
        finer = 0 if factor < 1 else None
        steps = _within(ladder_steps(step, relative * factor, u, finer=finer), room)
        exact = _quantised(problem, tangent, steps)
        taken = _sample(problem, base, exact, step)
        if taken is None:
            break
        sample, vector = taken
        best = Column(exact, vector, central(sample, u, base.noise), step, relative * factor, finer)
        if _defined(base, sample.plus) and _defined(base, sample.minus):
            return best
    return _one_sided(problem, base, tangent, u) or best or _unmoved(base, tangent, relative)


def _defined(base: Base, values: Vector) -> bool:
    """Whether `values` are finite wherever those at x are."""
    return bool(np.all(np.isfinite(values) | ~np.isfinite(base.values)))


def _one_sided(problem: Problem, base: Base, tangent: Tangent, u: float) -> Column | None:
    """A ladder to the side on which f is defined; `None` where there is none."""
    relative = relative_step(u)
    step = _power_of_two(relative * tangent.length)
    tangent = replace(tangent, vector=problem.inward(tangent.vector))
    for side in (1.0, -1.0):
        room = problem.room(side * tangent.vector, both=False)
        steps = _within(ladder_steps(step, relative, u), room)
        if not steps:
            continue
        exact = _quantised(problem, tangent, steps)
        first = _sample(problem, base, exact, side * steps[-1], sided=True)
        if first is None or not _defined(base, first[0].plus):
            continue
        vector, found = first[1], Column(exact, first[1], central(first[0], u), 0.0, relative)
        found = replace(found, vector=vector, step=side * step, sided=True)
        return _climbed(problem, base, found, steps)
    return None


def _unmoved(base: Base, tangent: Tangent, relative: float) -> Column:
    """A column of which nothing is known, since no step of the ladder moves x."""
    unknown = np.zeros(base.whole.size)
    estimate = Estimate(
        unknown,
        unknown + np.inf,
        np.ones(unknown.shape, bool),
        0,
        "no step of the ladder moves x: it lies among the smallest numbers of its dtype",
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
    return _climbed(problem, base, first, _steps(problem, base, first)) or first


def confirm(problem: Problem, base: Base, found: Column) -> Column:
    """A refined column, confirmed by a second ladder whose steps lie between those of the first."""
    if found.step == 0.0:
        return found
    steps = _steps(problem, base, found)
    room = problem.room(np.sign(found.step) * found.tangent.vector, both=not found.sided)
    factor = _between(problem, found)
    second = _climbed(problem, base, found, _within([factor * step for step in steps[:-1]], room))
    if second is None:
        return found
    return replace(
        found,
        estimate=confirmed(found.estimate, second.estimate),
        ladders=(*found.ladders, *second.ladders),
    )


def _between(problem: Problem, found: Column) -> float:
    """A factor that makes other steps of those of the ladder.

    No ratio of small numbers in double, where values may be rounded to multiples of a power of two
    as the steps are; three halves in narrower dtypes, where the steps have to stay exact.
    """
    return 1.4 if problem.X.leaves[found.tangent.leaf].double else 1.5


def measured(problem: Problem, base: Base, found: Column, doubted: NDArray[np.bool_]) -> Column:
    """A confirmed column with error bars that know the noise of f where the steps are.

    Ten evaluations about the step that the `doubted` outputs chose; and longer steps, where the
    noise is more than a unit of rounding.
    """
    if found.estimate.steps is None or not found.ladders:
        return found
    step = _chosen(found, doubted)
    for _ in range(2):
        found = _judged_by(problem, base, found, _noise(problem, base, found, step), doubted)
        shorter = _chosen(found, doubted)
        if abs(shorter) > abs(step) / 8:  # else the noise there is another one
            break
        step = shorter
    return found


def _chosen(found: Column, doubted: NDArray[np.bool_]) -> float:
    """The step about which the noise of the doubted outputs matters."""
    assert found.estimate.steps is not None
    chosen = np.where(found.estimate.moved, found.estimate.steps, _moving(found.ladders[0]))
    chosen = chosen[doubted] if np.any(doubted) else chosen
    return float(np.sign(found.step)) * _power_of_two(float(np.exp(np.mean(np.log(chosen)))))


def _judged_by(
    problem: Problem, base: Base, found: Column, noise: Vector, doubted: NDArray[np.bool_]
) -> Column:
    """The ladders again, with this noise in place of what is usual."""
    u, ladders = unit_roundoff(problem, base), found.ladders
    if bool(np.any(noise[doubted] > u * base.magnitude(base.values)[doubted])):
        every = _steps(problem, base, found, far=True)
        ladders = tuple(_longer(problem, base, found, samples, every) for samples in ladders)
    # what was measured counts in place of the usual size of the leaf
    own = tuple(
        tuple(replace(sample, modulus=base.whole.modulus) for sample in samples)
        for samples in ladders
    )
    noise = np.fmax(2 * noise, base.noise)
    estimates = [ladder(samples, u, base.values, noise, base.whole.slices) for samples in own]
    return replace(found, estimate=reduce(confirmed, estimates), ladders=ladders)


def _longer(
    problem: Problem, base: Base, found: Column, samples: tuple[Sample, ...], steps: Sequence[float]
) -> tuple[Sample, ...]:
    """The samples, with those of the longer steps among `steps` before them."""
    longest = abs(samples[0].step)
    factor = 1.0 if min(abs(longest / h - 1) for h in steps) < 0.1 else _between(problem, found)
    more = [factor * h for h in steps if factor * h > 1.2 * longest]
    climbed = _climbed(problem, base, found, more, 1)
    return samples if climbed is None else (*climbed.ladders[0], *samples)


def _moving(samples: Sequence[Sample]) -> Vector:
    """By output, three steps above the shortest one that moves it: several units of rounding."""
    steps = [abs(sample.step) for sample in samples]
    steps = [*steps[:1] * 3, *steps][: len(steps)]
    moves = np.array([sample.slope != 0 for sample in samples])
    return np.asarray(np.min(np.where(moves, np.array(steps)[:, None], steps[0]), axis=0))


def _noise(problem: Problem, base: Base, found: Column, step: float) -> Vector:
    """Noise of the outputs about `x + step v`, of whichever sign has finite values."""
    best = np.zeros(base.whole.size)
    for side in (1.0,) if found.sided else (1.0, -1.0):
        values = []
        for k in POINTS:
            h = side * step * _between(problem, found) / 1.5 * k / 32
            point = _moved(problem, found.tangent, h)
            values.append(evaluate(problem, base, point, _doing(problem, found.tangent, h)))
        best = scatter(np.array(values))
        if problem.X.leaves[found.tangent.leaf].double:  # at points with all their bits
            best = np.fmax(best, lattice(np.array(values), unit_roundoff(problem, base)))
        if all(_defined(base, value) for value in values):
            break
    return best


def precision(problem: Problem, base: Base, found: Column) -> str | None:
    """The dtype narrower than those of the outputs that all samples of `found` are rounded to."""
    samples = [sample for samples in found.ladders for sample in samples]
    if not samples:
        return None
    points = [_moved(problem, found.tangent, sample.step) for sample in samples]
    part = problem.X.slices[found.tangent.leaf]
    names = {
        carried([values[out] for s in samples for values in (s.plus, s.minus)],
                [point[part] for point in points])
        for out in base.Y.slices
    }  # fmt: skip
    return names.pop() if len(names) == 1 else None


def _steps(problem: Problem, base: Base, found: Column, *, far: bool = False) -> list[float]:
    """The ladder around the step of `found`, as far down as it is exact in the dtype."""
    finer = None if problem.X.leaves[found.tangent.leaf].double else found.finer
    far = far or _hidden(found.estimate)
    u = unit_roundoff(problem, base)
    steps = ladder_steps(abs(found.step), found.relative, u, far=far, finer=finer)
    direction = np.sign(found.step) * found.tangent.vector
    return _within(steps, problem.room(direction, both=not found.sided))


def _climbed(
    problem: Problem, base: Base, found: Column, steps: Sequence[float], least: int = 0
) -> Column | None:
    """`found` from a ladder of these steps; `None` where too few can be taken."""
    samples = []
    for step in steps:
        signed = float(np.copysign(step, found.step))
        taken = _sample(problem, base, found.tangent, signed, sided=found.sided)
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
    with np.errstate(all="ignore"):
        reach = np.abs(x) + steps[0] * np.abs(v)
        spacing = 2.0 ** np.floor(np.log2(np.where(reach > 0, reach, 1.0))) * leaf.eps
        unit = spacing / steps[-1]
        rounded = np.where(np.isfinite(unit) & (reach > 0), np.round(v / unit) * unit, v)
    vector = tangent.vector.copy()
    # an entry whose spacing is wider than its move keeps one unit, rather than drop out
    vector[part] = np.where((rounded == 0) & (v != 0), np.sign(v) * unit, rounded)
    return replace(tangent, vector=vector)


def _power_of_two(step: float) -> float:
    return float(2.0 ** np.round(np.log2(step))) if step > 0 and np.isfinite(step) else step


def _moved(problem: Problem, tangent: Tangent, step: float) -> Vector:
    """`x + step v`, rounded to the dtype of the leaf and within bounds."""
    point = problem.clipped(problem.origin + step * tangent.vector)
    return _representable(problem, point, tangent.leaf)


def _sample(
    problem: Problem, base: Base, tangent: Tangent, step: float, *, sided: bool = False
) -> tuple[Sample, Vector] | None:
    """Values on both sides of x (of `sided`: at x and on one) and the direction really taken;
    `None` if x does not move.
    """
    origin = problem.origin
    points = [_moved(problem, tangent, step), origin if sided else _moved(problem, tangent, -step)]
    with np.errstate(invalid="ignore"):
        moves = [np.where(np.isfinite(origin), point - origin, 0.0) for point in points]
    if not np.any(moves[0]) or not (sided or np.any(moves[1])):
        return None
    plus = evaluate(problem, base, points[0], _doing(problem, tangent, step))
    minus = (
        base.values
        if sided
        else evaluate(problem, base, points[1], _doing(problem, tangent, -step))
    )
    span = step if sided else 2 * step
    direction = (moves[0] - moves[1]) / span
    if tangent.coordinate is None:
        return Sample(step, plus, minus, base.magnitude, sided), direction
    # a unit tangent stays one: the step is what was really taken
    taken = step * float(direction[tangent.coordinate])
    return Sample(taken, plus, minus, base.magnitude, sided), tangent.vector


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

"""What is measured before a column fails: the noise of f, and the digits that it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adjudge.differences import SHORT, Sample, confirmed, ladder
from adjudge.noise import POINTS, UNEVEN, carried, lattice, scatter
from adjudge.numeric import (
    Column,
    between,
    climbed,
    defined,
    doing,
    moved_by,
    power_of_two,
    sample_at,
    steps_around,
    unit_roundoff,
)
from adjudge.observed import Base, evaluate
from adjudge.problem import Problem
from adjudge.spaces import Vector


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
    if unit_roundoff(problem, base) > SHORT and found.tangent.coordinate is not None:
        return _close_by(problem, base, found)
    return found


def _close_by(problem: Problem, base: Base, found: Column) -> Column:
    """The column with error bars that reach the differences of shorter steps than the ladder's
    where rounding does not explain them: in sixteen bits a ladder steps over a good deal.
    """
    u, estimate = unit_roundoff(problem, base), found.estimate
    error, step = estimate.error, found.ladders[0][-1].step / 2
    while abs(step) > 2 * u * found.tangent.length:
        taken = sample_at(problem, base, found.tangent, step, sided=found.sided)
        if taken is None:
            break
        with np.errstate(all="ignore"):
            off = np.abs(taken[0].slope - estimate.value)
            beyond = off > u * taken[0].size / abs(step) + estimate.error
        error = np.where(beyond, np.fmax(error, off), error)
        step /= 2
    return replace(found, estimate=replace(estimate, error=error))


def _chosen(found: Column, doubted: NDArray[np.bool_]) -> float:
    """The step about which the noise of the doubted outputs matters."""
    assert found.estimate.steps is not None
    chosen = np.where(found.estimate.moved, found.estimate.steps, _moving(found.ladders[0]))
    chosen = chosen[doubted] if np.any(doubted) else chosen
    return float(np.sign(found.step)) * power_of_two(float(np.exp(np.mean(np.log(chosen)))))


def _judged_by(
    problem: Problem, base: Base, found: Column, noise: Vector, doubted: NDArray[np.bool_]
) -> Column:
    """The ladders again, with this noise in place of what is usual."""
    u, ladders = unit_roundoff(problem, base), found.ladders
    if bool(np.any(noise[doubted] > u * base.magnitude(base.values)[doubted])):
        every = steps_around(problem, base, found, far=True)
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
    factor = 1.0 if min(abs(longest / h - 1) for h in steps) < 0.1 else between(problem, found)
    more = [factor * h for h in steps if factor * h > 1.2 * longest]
    longer = climbed(problem, base, found, more, 1)
    return samples if longer is None else (*longer.ladders[0], *samples)


def _moving(samples: Sequence[Sample]) -> Vector:
    """By output, three steps above the shortest one that moves it: several units of rounding."""
    steps = [abs(sample.step) for sample in samples]
    steps = [*steps[:1] * 3, *steps][: len(steps)]
    moves = np.array([sample.slope != 0 for sample in samples])
    return np.asarray(np.min(np.where(moves, np.array(steps)[:, None], steps[0]), axis=0))


def _noise(problem: Problem, base: Base, found: Column, step: float) -> Vector:
    """Noise of the outputs about `x + step v`, of whichever sign has finite values."""
    best = np.zeros(base.whole.size)
    double = problem.X.leaves[found.tangent.leaf].double
    points = UNEVEN if double else POINTS
    for side in (1.0,) if found.sided else (1.0, -1.0):
        values = []
        for k in points:
            h = side * step * k / 32
            point = moved_by(problem, found.tangent, h)
            values.append(evaluate(problem, base, point, doing(problem, found.tangent, h)))
        best = scatter(np.array(values), points)
        if double:  # at points with all their bits
            best = np.fmax(best, lattice(np.array(values), unit_roundoff(problem, base)))
        if all(defined(base, value) for value in values):
            break
    return best


def precision(problem: Problem, base: Base, found: Column) -> str | None:
    """The dtype narrower than those of the outputs that all samples of `found` are rounded to."""
    samples = [sample for samples in found.ladders for sample in samples]
    if not samples:
        return None
    moving = found.tangent.vector != 0
    pairs = [(s.plus, s.step) for s in samples]
    pairs += [(s.minus, -s.step) for s in samples if not s.sided]
    names = set()
    for out in base.Y.slices:
        # where f stands still, at a kink or in saturation, its values say nothing
        moved = [(v[out], h) for v, h in pairs if np.any(v[out] != base.values[out])]
        points = [moved_by(problem, found.tangent, h)[moving] for _, h in moved]
        names.add(carried([v for v, _ in moved], points) if moved else None)
    return names.pop() if len(names) == 1 else None


def plateau(problem: Problem, base: Base, found: Column, *, settled: bool) -> str | None:
    """The dtype that f falls back to inside, seen from steps that should move f and do not.

    Two evaluations where it does not. What cancels stands still, too: outputs that are small in
    their leaf do not count, nor, where the column is `settled` all the same, those on a lattice.
    """
    if found.given:
        return None
    u = unit_roundoff(problem, base)
    k = found.tangent.coordinate
    length = found.tangent.length if k is None else float(np.abs(problem.origin[k]))
    if not problem.X.leaves[found.tangent.leaf].double or u > 2.0**-40 or length == 0:
        return None

    own = base.whole.modulus(base.values)
    full = own >= base.whole.largest(own) / 8
    if settled and found.ladders:
        values = np.array([value for s in found.ladders[0] for value in (s.plus, s.minus)])
        full &= lattice(values, u) == 0

    def unmoved(relative: float) -> Vector:
        with np.errstate(all="ignore"):
            due = np.abs(found.estimate.value) * relative * length
            visible = full & found.estimate.moved & (due > 64 * u * base.magnitude(base.values))
        if not np.any(visible):
            return np.zeros(1)
        rates = []
        for sign in (1.0, -1.0):
            h = sign * relative * length
            value = evaluate(
                problem, base, moved_by(problem, found.tangent, h), doing(problem, found.tangent, h)
            )
            rates.append(np.mean(value[visible] == base.values[visible]))
        return np.array(rates)

    if np.mean(unmoved(2.0**-30)) < 0.75:
        return None
    if np.mean(unmoved(2.0**-15)) < 0.75:
        return "float32"
    return "bfloat16" if np.any(unmoved(1.1 * 2.0**-10) > 0.25) else "float16"

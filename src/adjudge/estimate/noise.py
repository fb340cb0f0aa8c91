"""How noisy sampled values are, and how many digits they carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adjudge.estimate.directional import (
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
from adjudge.estimate.stencils import Sample, confirmed, ladder
from adjudge.floats import SHORT, Vector, lowest_bit
from adjudge.problem import Base, Problem, evaluate

POINTS = (32, 31, 29, 28, 25, 24, 21, 19, 18, 16)
"""Where noise is sampled, in units of 1/32 of a step: exact in any dtype."""

UNEVEN = tuple(k - 0.5 * ((k * 0.6180339887) % 1.0) for k in POINTS)
"""The same for float64, where they need not be exact. At points that are multiples of one length
rounding to a lattice may well be the same everywhere."""

DEGREE = 4
"""Of the polynomial whose residuals are noise: truncation is of the order of `(h / 4)^5`."""

CARRIED = {"float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of the dtypes that code may fall back to inside."""

TELLING = 6
"""Different values within a power of two that it takes to say how many digits they carry."""


def scatter(values: Vector, points: Sequence[float]) -> Vector:
    """Standard deviation of the noise of each column of values at `points`.

    What a polynomial through them leaves over (the table of differences of Hamming and of Moré
    and Wild, SIAM J. Sci. Comput. 33, 2011, does the same at equidistant points). On a staircase
    half of the smallest move, which is what rounding hides.
    """
    t = np.array(points) / 8 - 3
    q = np.linalg.qr(np.vander(t, DEGREE + 1))[0]
    with np.errstate(all="ignore"):
        centred = values - np.mean(values, axis=0)
        left = centred - q @ (q.T @ centred)
        noise = np.sqrt(np.sum(left**2, axis=0) / (len(t) - DEGREE - 1))
        moves = np.abs(np.diff(values, axis=0))
        unit = np.min(np.where(moves > 0, moves, np.inf), axis=0, initial=np.inf)
        flat = np.count_nonzero(moves == 0, axis=0) >= len(moves) // 2
        flat &= np.count_nonzero(moves, axis=0) > 1  # one move is a jump, not a staircase
        noise = np.where(flat, np.fmax(noise, unit / 2), noise)
    return np.asarray(np.where(np.isfinite(noise), noise, 0.0))


def lattice(values: Vector, eps: float) -> Vector:
    """Standard deviation of rounding to the lattice on which all values of a column lie, where
    that is coarser than rounding: they are differences of larger numbers.
    """
    with np.errstate(invalid="ignore"):
        unit = np.min(lowest_bit(values), axis=0)
        moves = np.count_nonzero(np.diff(values, axis=0), axis=0) > len(values) // 2
        coarse = moves & (unit > 4 * eps * np.max(np.abs(values), axis=0))
    return np.where(coarse, unit / 4, 0.0)


def bits(values: Vector) -> int:
    """Significant bits that the finite values need, at most 53."""
    finite = values[np.isfinite(values) & (values != 0)]
    ratio = np.abs(finite) / lowest_bit(finite)
    return int(np.max(np.frexp(ratio)[1], initial=0))


def carried(values: Sequence[Vector], points: Sequence[Vector]) -> str | None:
    """The narrowest dtype that holds all values, where it does not hold the points."""
    moving = np.array(values)
    with np.errstate(invalid="ignore"):
        moving = np.unique(moving[:, np.any(moving != moving[0], axis=0)])
    exponents = np.frexp(moving)[1]
    # of values on a lattice the smaller ones have fewer bits; rounded ones have as many
    groups = [moving[exponents == e] for e in np.unique(exponents)]
    needed = {bits(group) for group in groups if group.size >= TELLING}
    given = max(bits(point) for point in points)
    for name, available in CARRIED.items():
        # that the range of the dtype is narrower, too, does not matter
        if needed == {available} and available < given - 3:
            return name
    return None


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
    if found.from_reference:
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

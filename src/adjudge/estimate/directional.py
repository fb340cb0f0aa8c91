"""This module estimates the derivative of a problem along one tangent: it chooses the steps, keeps
them exact and within bounds, evaluates f, and leaves the arithmetic to `stencils`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BESIDE_TANGENTS,
    COARSE_EPS,
    DEFECT_STEPS,
    DROWNED_PART,
    EXACT_FRESH_STEPS,
    EXACT_SECOND_LADDER_FACTOR,
    FRESH_STEPS,
    JUMP_BAR_PART,
    JUMP_BAR_UNITS,
    LASTING_UNITS,
    LONGEST_STEP,
    NARROW_EPS,
    NARROW_ONE_SIDED,
    NEAREST_TIE,
    ONE_SIDED,
    PARTS_OF_TIE,
    SECANT_REACH,
    SECOND_LADDER_FACTOR,
    SHORT_STEP_REDUCTIONS,
    SHORTER_STEPS,
    SILENT_KINK_STEP,
    STEP_REDUCTIONS,
    UNEVEN_STEP,
    VISIBLE_KINK,
)
from adjudge.errors import InputError, UnstableOutputError, attempt, of_others
from adjudge.estimate.kinks import defects, half_gaps, jumps, lasting_gaps
from adjudge.estimate.stencils import (
    ALL,
    Estimate,
    Sample,
    central_difference,
    combined,
    extrapolated,
    fewest_samples,
    ladder,
    ladder_ratio,
    ladder_steps,
    of_sums,
    three_steps,
)
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector, chunks, relative_step
from adjudge.problem import (
    Base,
    Move,
    Problem,
    Purpose,
    Stream,
    Tangent,
    at_once,
    evaluate,
    generator,
    largest,
)


@dataclass(frozen=True)
class Column:
    """`J v` along one tangent, with the tangent that was really taken."""

    tangent: Tangent
    vector: Vector
    """The direction after the perturbed points were rounded to their dtype, as a vector of X."""
    estimate: Estimate
    step: float
    relative: float
    finer: int | None = None
    """The number of steps below this one that are exact in the dtype; `None` stands for all of the
    ladder's."""
    ladders: tuple[tuple[Sample, ...], ...] = ()
    """The samples of the ladders taken so far."""
    one_sided: bool = False
    """Says whether x has a neighbour on one side only; `step` then has the sign of that side."""
    from_reference: bool = False
    """Says whether a reference gave the column. There is nothing to refine then, and every entry
    counts."""
    sample: Sample | None = None
    """The values of the two evaluations on either side of x, where these were enough."""
    noise: Vector | None = None
    """The standard deviation of the noise of f, by output, where it was measured."""


def not_movable(problem: Problem, base: Base, tangent: Tangent) -> Column | None:
    """Returns what is known along a tangent that moves no finite entry; `None` where it moves one.

    An infinity stays itself under any step. Nothing can be said of a NaN.
    """
    if problem.finite or np.any(np.isfinite(problem.origin[tangent.vector != 0])):
        return None
    unknown = bool(np.any(np.isnan(problem.origin[tangent.vector != 0])))
    still = np.full(base.whole.size, np.nan if unknown else 0.0)
    estimate = Estimate(still, still, np.zeros(still.shape, bool), Method(Scheme.NOT_FINITE))
    relative = relative_step(base.coarsest_eps)
    return Column(tangent, tangent.vector, estimate, 0.0, relative)


def at_fixed_step(problem: Problem, base: Base, tangent: Tangent, eps: float) -> Column:
    """Returns a column from two evaluations along `tangent` at the absolute step `eps`.

    Raises `InputError` where that leaves the bounds, or does not move x.
    """
    u = base.coarsest_eps
    relative = relative_step(u)
    unknown = None if problem.finite else not_movable(problem, base, tangent)
    if unknown is not None:
        return unknown
    if eps > problem.longest_step(tangent.vector):
        raise _out_of_bounds(problem, tangent, eps)
    if problem.counts.ahead is not None:
        at_once(problem, base, partial(sample_at, problem, base, tangent, eps))
    taken = sample_at(problem, base, tangent, eps)
    if taken is None:
        raise _no_motion(problem, tangent, eps)
    return Column(tangent, taken[1], central_difference(taken[0], u, base.noise), eps, relative)


def two_evaluations(problem: Problem, base: Base, tangent: Tangent) -> Column:
    """Returns a column from two evaluations along `tangent`.

    Where f is not finite at a neighbour of x or refuses it, or where it is out of bounds, shorter
    steps are tried, and then a ladder to one side.
    """
    u = base.coarsest_eps
    relative = relative_step(u)
    unknown = None if problem.finite else not_movable(problem, base, tangent)
    if unknown is not None:
        return unknown
    best: Column | None = None
    refusal: Exception | None = None
    room = problem.longest_step(tangent.vector)
    for factor in STEP_REDUCTIONS if u <= COARSE_EPS else SHORT_STEP_REDUCTIONS:
        step = power_of_two(relative * factor * tangent.length)
        if tangent.coordinate is not None and problem.X.leaves[tangent.leaves[0]].double:
            step *= UNEVEN_STEP
        # At a bound short steps are for float64 only, since rounding drowns them in narrower
        # dtypes.
        if step > room or (factor < 1 and np.isfinite(room) and u > 2.0**-52):
            continue
        finer = 0 if factor < 1 else None
        steps = _within(ladder_steps(step, relative * factor, u, finer=finer), room)
        exact = _quantised(problem, tangent, steps)
        as_it_is = exact is tangent and bool(tangent.units) and problem.bounds is None
        take = partial(sample_at, problem, base, exact, step, exact=as_it_is)
        taken, refused = unless_refused(take)
        if refused is not None:
            refusal = refusal or refused
            continue
        if taken is None:
            break
        sample, vector = taken
        both = defined(base, sample.plus, sample.minus)
        best = Column(
            exact,
            vector,
            central_difference(sample, u, base.noise),
            step,
            relative * factor,
            finer,
            sample=sample if both else None,
        )
        if both:
            return best
    # No step has finite values on both sides.
    if isinstance(refusal, UnstableOutputError):
        raise refusal  # to one side alone they have no shape in common
    one = _one_sided(problem, base, tangent, u)
    if one is None and best is None and refusal is not None:
        raise refusal
    return one or best or _unknown(base, tangent, relative, room)


def unless_refused(
    take: Callable[[], tuple[Sample, Vector] | None],
) -> tuple[tuple[Sample, Vector] | None, Exception | None]:
    """Returns what `take` does and `None`, or `None` and the exception where f refuses a point.

    A check of arguments, a factorisation or an output whose size depends on values may refuse a
    neighbour of x and take a closer one. Whether f is defined there is a matter of the point then,
    and it refuses that again; what it raises just once comes through.
    """
    try:
        return take(), None
    except Exception as error:
        if not of_others(error) or attempt(take) is not None:
            raise
        return None, error


def defined(base: Base, *values: Vector) -> bool:
    """Returns whether all `values` are finite wherever those at x are."""
    for one in values:
        finite = np.isfinite(one)
        if not (finite.all() or (finite | ~np.isfinite(base.values)).all()):
            return False
    return True


def _one_sided(problem: Problem, base: Base, tangent: Tangent, u: float) -> Column | None:
    """Returns a ladder to the side on which f is defined; `None` where there is none.

    At the edge of a domain (sqrt at 0) or at a bound no central difference exists, and short steps
    drown in rounding. The ladder removes the first and the second power of the step instead.
    """
    relative = relative_step(u)
    step = power_of_two(relative * tangent.length)
    if tangent.coordinate is None:
        tangent = replace(tangent, vector=problem.inward(tangent.vector))
    # The side on which f is defined far off comes first, then the one on which it is defined close
    # by.
    for side, tried in ((1.0, 0), (-1.0, 0), (1.0, -1), (-1.0, -1)):
        room = problem.longest_step(side * tangent.vector, both=False)
        steps = _within(ladder_steps(step, relative, u), room)
        if not steps:
            continue
        exact = _quantised(problem, tangent, steps)
        take = partial(sample_at, problem, base, exact, side * steps[tried], one_sided=True)
        first, _ = unless_refused(take)
        if first is None or not defined(base, first[0].plus):
            continue
        sample, vector = first
        plain = central_difference(sample, u)
        found = Column(exact, vector, plain, side * step, relative, one_sided=True)
        at_once(problem, base, partial(with_steps, problem, base, found, steps))
        return with_steps(problem, base, found, steps)
    return None


def _unknown(base: Base, tangent: Tangent, relative: float, room: float) -> Column:
    """Returns a column of which nothing is known, since no step of the ladder moves x within
    `room`.
    """
    unknown = np.zeros(base.whole.size)
    estimate = Estimate(
        unknown,
        unknown + np.inf,
        np.ones(unknown.shape, bool),
        Method(Scheme.NO_ROOM if np.isfinite(room) else Scheme.TOO_SMALL),
    )
    return Column(tangent, tangent.vector, estimate, 0.0, relative)


def _within(steps: Sequence[float], room: float) -> Sequence[float]:
    """Returns the steps that are no longer than `room`."""
    return steps if room == np.inf else [step for step in steps if step <= room]


def with_longer_step(problem: Problem, base: Base, first: Column) -> Column | None:
    """Returns the same column from two evaluations more at a longer step, extrapolated; `None`
    where f has no room for that step, or is not defined there.
    """
    u = base.coarsest_eps
    step = ladder_ratio(u) * first.step
    if first.sample is None or step > problem.longest_step(first.tangent.vector):
        return None
    taken = attempt(partial(sample_at, problem, base, first.tangent, step))
    if taken is None or not defined(base, taken[0].plus, taken[0].minus):
        return None
    return replace(first, estimate=extrapolated(first.sample, taken[0], u, base.noise))


def with_three_steps(problem: Problem, base: Base, first: Column) -> Column | None:
    """Returns the same column from three steps; `None` where f has no room for them, or is not
    defined there.
    """
    factors = FRESH_STEPS if _double(problem, first.tangent) else EXACT_FRESH_STEPS
    longest = factors[-1] * first.step
    if (
        first.sample is None
        or first.relative * factors[-1] > LONGEST_STEP
        or longest > problem.longest_step(first.tangent.vector)
    ):
        return None
    samples = []
    for factor in factors:
        step = factor * first.step
        taken = attempt(partial(sample_at, problem, base, first.tangent, step))
        if taken is None or not defined(base, taken[0].plus, taken[0].minus):
            return None
        samples.append(taken[0])
    middle, far = samples
    estimate = three_steps(first.estimate, first.sample, middle, far, base.values)
    return replace(first, estimate=estimate, ladders=((far, middle, first.sample),))


def _known_noise(base: Base, found: Column) -> float | Vector:
    """Returns the noise of f as it was measured, or else what the caller allows."""
    return base.noise if found.noise is None else found.noise


def with_ladder(problem: Problem, base: Base, first: Column) -> Column:
    """Returns the same column from a ladder of steps, with an error bar that was measured.

    Steps below the spacing of the dtype are left out. The result is `first` itself where too few
    stay.
    """
    if first.step == 0.0 or first.one_sided:
        return first
    return with_steps(problem, base, first, steps_around(problem, base, first)) or first


def with_shorter_steps(problem: Problem, base: Base, found: Column) -> Column:
    """Returns a column on a ladder that goes on to far shorter steps.

    The result is `found` itself where the dtype has no room for these.
    """
    if not found.ladders or found.one_sided or not _double(problem, found.tangent):
        return found
    longer = replace(found, finer=SHORTER_STEPS)
    before = found.ladders[0]
    # neighbouring steps have a ratio of 4
    steps = [h for h in steps_around(problem, base, longer) if 2 * h < abs(before[-1].step)]
    more = with_steps(problem, base, longer, steps, 1)
    if more is None:
        return found
    samples = (*before, *more.ladders[0])
    noise = _known_noise(base, found)
    estimate = ladder(samples, base.coarsest_eps, base.values, noise, base.whole.slices)
    return replace(longer, estimate=estimate, ladders=(samples,))


def with_second_ladder(problem: Problem, base: Base, found: Column) -> Column:
    """Returns a column on a ladder, confirmed by a second ladder whose steps lie between those of
    the first.
    """
    if found.step == 0.0:
        return found
    steps = steps_around(problem, base, found)
    room = problem.longest_step(
        np.sign(found.step) * found.tangent.vector, both=not found.one_sided
    )
    factor = interleaving_factor(problem, found)
    second = with_steps(problem, base, found, _within([factor * step for step in steps[:-1]], room))
    if second is None:
        return found
    return replace(
        found,
        estimate=combined(found.estimate, second.estimate),
        ladders=(*found.ladders, *second.ladders),
    )


def with_odd_powers(base: Base, found: Column, doubted: NDArray[np.bool_]) -> Column:
    """Returns a column on ladders with what extrapolation makes of the same samples that removes
    odd powers of the step as well, at the outputs `doubted` where its bar is narrower.
    """
    fewest = min((len(samples) for samples in found.ladders), default=0)
    if fewest < fewest_samples(one_sided=True) or found.one_sided:
        return found
    u, parts, noise = base.coarsest_eps, base.whole.slices, _known_noise(base, found)
    each = [ladder(s, u, base.values, noise, parts, odd=True) for s in found.ladders]
    before, odd = found.estimate, reduce(combined, each)
    narrower = doubted & (odd.error < before.error)
    value = np.where(narrower, odd.value, before.value)
    error = np.where(narrower, odd.error, before.error)
    return replace(found, estimate=before.but(value=value, error=error))


def of_projections(base: Base, found: Column, w: Vector, parts: Sequence[slice]) -> Estimate | None:
    """Returns the estimate of `<w, J v>` for each part of the outputs from the ladders of a column,
    taken as one function; `None` without ladders.
    """
    u, together = base.coarsest_eps, None
    noise = _known_noise(base, found)
    noise = noise[: w.size] if isinstance(noise, np.ndarray) else noise
    for samples in found.ladders:
        steps = np.array([sample.step for sample in samples])
        few = len(steps) < fewest_samples(one_sided=found.one_sided)
        if few or not np.allclose(steps[:-1] / steps[1:], ladder_ratio(u)):
            continue
        one = of_sums(samples, w, parts, u, noise)
        together = one if together is None else combined(together, one)
    return together


def interleaving_factor(problem: Problem, found: Column) -> float:
    """Returns the factor between the steps of the two ladders.

    In double it is 1.4, which is no ratio of small numbers: values may be rounded to multiples of a
    power of two, as the steps are, and then samples at powers of two would show no rounding. In
    narrower dtypes, and along random tangents, the steps have to stay exact, and it is three
    halves. Both are ours.
    """
    tangent = found.tangent
    # The direction of any other tangent would be rounded.
    unit = tangent.coordinate is not None
    exact = not (unit and _double(problem, tangent))
    return EXACT_SECOND_LADDER_FACTOR if exact else SECOND_LADDER_FACTOR


def steps_around(
    problem: Problem, base: Base, found: Column, *, far: bool = False
) -> Sequence[float]:
    """Returns the ladder around the step of `found`, as far down as it is exact in the dtype."""
    finer = found.finer
    if finer is not None and finer < SHORTER_STEPS and _double(problem, found.tangent):
        finer = None
    u, near = base.coarsest_eps, abs(found.step)
    far = far or _drowned_in_rounding(found.estimate)
    if found.ladders and not far:
        # A second ladder that stops short of the first one is drowned where that is not, and an
        # error of a tenth hides in its bar.
        usual = ladder_steps(near, found.relative, u, finer=finer)[0]
        far = abs(found.ladders[0][0].step) > SECOND_LADDER_FACTOR * usual
    steps = ladder_steps(near, found.relative, u, far=far, finer=finer)
    direction = np.sign(found.step) * found.tangent.vector
    return _within(steps, problem.longest_step(direction, both=not found.one_sided))


def with_steps(
    problem: Problem, base: Base, found: Column, steps: Sequence[float], least: int = 0
) -> Column | None:
    """Returns `found` from a ladder of these steps; `None` where fewer than `least` of them can be
    taken.
    """
    samples = []
    for step in steps:
        signed = float(np.copysign(step, found.step))
        take = partial(sample_at, problem, base, found.tangent, signed, one_sided=found.one_sided)
        # f need not be defined wherever it was not evaluated yet
        taken = attempt(take) if step > abs(found.step) else unless_refused(take)[0]
        if taken is None:
            continue
        sample = taken[0]
        # one output that is not finite there would leave the projection of all others open
        if step <= abs(found.step) or defined(base, sample.plus, sample.minus):
            samples.append(sample)
    if len(samples) < (least or fewest_samples(one_sided=found.one_sided)):
        return None
    if len(samples) < fewest_samples(one_sided=found.one_sided):
        return replace(found, ladders=(tuple(samples),))
    u, noise = base.coarsest_eps, _known_noise(base, found)
    estimate = ladder(samples, u, base.values, noise, base.whole.slices)
    return replace(found, estimate=estimate, ladders=(tuple(samples),))


def with_silent_kinks(problem: Problem, base: Base, found: Column) -> Column:
    """Returns the same column, with the gaps between the slopes of outputs that have a kink at x.

    Values that agree with the mean of two slopes say nothing of either. What two evaluations show
    beside the value at x tells most functions from one with a kink without any other; two more are
    taken where f bends by more than a smooth function does.
    """
    sample = found.sample
    if sample is None or base.coarsest_eps > COARSE_EPS:
        return found
    steepest = [0.0] * len(base.whole.leaves)
    for k, whole in enumerate(base.whole.slices):
        for here in chunks(whole.stop - whole.start):
            some = slice(whole.start + here.start, whole.start + here.stop)
            steepest[k] = max(steepest[k], largest(sample.plus[some] - sample.minus[some]))
    slope = base.whole.by_leaf(steepest) / abs(2 * sample.step)
    seen = False
    for part in chunks(sample.plus.size):
        size, bends = base.magnitude(base.values, None, part), np.abs(_bends(sample, base, part))
        rounding = LASTING_UNITS * (base.coarsest_eps * size + base.noise) / abs(sample.step)
        seen = seen or bool(np.any(bends > np.fmax(VISIBLE_KINK * slope[part], rounding)))
    taken = sample_at(problem, base, found.tangent, SILENT_KINK_STEP * found.step) if seen else None
    if taken is None or not defined(base, taken[0].plus, taken[0].minus):
        return found
    both = sample, taken[0]
    bends = np.array([_bends(one, base) for one in both])
    bends[:, np.abs(bends[0]) <= VISIBLE_KINK * slope] = 0.0
    unit = (base.coarsest_eps * base.magnitude(base.values) + base.noise) / abs(taken[0].step)
    half_gap = half_gaps(bends, [one.step for one in both], unit)
    if half_gap is None:
        return found
    return replace(found, estimate=found.estimate.but(half_gap=half_gap))


def _bends(sample: Sample, base: Base, part: slice = ALL) -> Vector:
    """Returns the even part of f over the step of a sample, a number for each output of a part."""
    with np.errstate(invalid="ignore", over="ignore"):  # outputs that are not finite have none
        bends = sample.plus[part] + sample.minus[part]
        bends /= 2
        bends -= base.values[part]
        bends /= abs(sample.step)
    bends[~np.isfinite(bends)] = 0.0
    return bends


def with_jumps(
    problem: Problem, base: Base, found: Column, stairs: NDArray[np.bool_] | None
) -> Column:
    """Returns the same column, with a gap between the slopes that is infinite where an output jumps
    at x.

    No value is the derivative there. It takes six evaluations, which are made only where the error
    bar is too wide for rounding, and for outputs that may move in `stairs`, over which the slopes
    of longer steps agree. These are looked at over shorter steps, of which two say already that an
    output is at no edge: it moves on both sides, or on none.
    """
    estimate, eps = found.estimate, base.coarsest_eps
    size, (value, error, moved) = base.magnitude(base.values), estimate.vectors()
    wide = np.fmax(JUMP_BAR_PART * np.abs(value), JUMP_BAR_UNITS * eps * size / found.step)
    suspects = moved & (error > wide if stairs is None else stairs)
    del value, error, moved, wide
    if found.step == 0 or not np.any(suspects):
        return found
    ratio = 2.0**-2 if eps > COARSE_EPS else 2.0**-8 if eps < NARROW_EPS else 2.0**-4

    def gone(sign: float, power: int) -> Vector:
        step = sign * found.step * ratio**power
        point = problem.clipped(problem.origin + step * found.vector)
        return evaluate(problem, base, point, Purpose.JUMP) - base.values

    powers = range(3) if stairs is None else range(1, 4)
    shortest = [gone(sign, powers[-1]) for sign in (1.0, -1.0)]
    if stairs is not None:
        suspects = suspects & ((shortest[0] == 0) != (shortest[1] == 0))
        if not np.any(suspects):
            return found
    sides = [
        np.array([*(gone(sign, power) for power in powers[:-1]), last])
        for sign, last in zip((1.0, -1.0), shortest, strict=True)
    ]
    seen = suspects & jumps(sides[0], sides[1], eps * size + base.noise)
    if not seen.any():
        return found
    before = 0.0 if estimate.half_gap is None else estimate.half_gap
    return replace(found, estimate=estimate.but(half_gap=np.where(seen, np.inf, before)))


def with_defects(
    problem: Problem,
    base: Base,
    found: Column,
    doubted: NDArray[np.bool_],
    towards: Vector | None,
    *,
    lasting: bool,
) -> Column:
    """Returns the same column, with what the slopes of the outputs `doubted` fail to add up by: at
    one step, at which a curved function fails by something, or by what is `lasting` at three.

    The slope along the sum of two tangents is compared with the sum of their slopes, for this
    tangent to either side and others that move all of x. A unit tangent is taken longer than
    these, so that its entry passes all that it may be tied with; beside one of them and its
    negative, in which the order of ties is reversed, a tie then goes unseen in less than 1 % of all
    cases. It takes eight evaluations a step, and fourteen along a random tangent, and up to eight
    more where a derivative is claimed and something shows.

    The largest of three numbers that are cut off at zero stands still at three zeros unless all of
    them fall, which hardly any random tangent makes them do, and a derivative of a third for each
    would fail. So the first of these tangents goes `towards` what a claimed derivative says that f
    moves along, and the second one against that. Where these numbers have weights, most of f's
    slopes are those of the least weight, and a claim of the largest would fail. So the slopes of
    short secants count as well at points where all terms of the claim move f by as much.
    """
    lengths, (step, _) = problem.length_scales, ONE_SIDED
    if base.coarsest_eps > NARROW_EPS:
        step, _ = NARROW_ONE_SIDED
    j = found.tangent.coordinate
    length = found.tangent.length if j is None else float(lengths[j])
    v = (1.0 if j is None else 2.0) * length * found.vector
    taken = found.estimate.steps
    if taken is not None and np.any(doubted):
        # Over a longer step than that which resolved the reference, the slopes of a function that
        # is so fast add up to nothing. An offset of f hides its kinks over a shorter one.
        shortest = _shortest_for_bends(base, found, doubted, length)
        step = max(step, min(shortest, NARROW_ONE_SIDED[0]))
        shorter = float(np.max(taken[doubted])) / length
        if found.finer != SHORTER_STEPS:
            shorter = max(shorter, shortest)
        step = min(step, shorter)
    steps = [step * ratio for ratio in DEFECT_STEPS[: 3 if lasting else 1]]
    if found.step == 0 or length == 0 or problem.longest_step(np.abs(v) + lengths) < step:
        return found

    def names() -> str:
        return problem.X.names(range(len(problem.X.leaves)))

    def slope(side: float, beside: Vector | None, h: float) -> Vector:
        move = side * v
        if beside is not None:
            move += beside
        move *= h
        move += problem.origin
        values = evaluate(problem, base, problem.clipped(move), Move(names, h, tangent=True))
        return np.asarray((values[doubted] - base.values[doubted]) / h)

    unit = (base.coarsest_eps * base.magnitude(base.values) + base.noise)[doubted]
    unit /= step * DEFECT_STEPS[-1]
    # Beside the largest of equal numbers, one that grows shows nothing, and one that shrinks does.
    # A random tangent has both in it.
    sides = [(side, [slope(side, None, h) for h in steps]) for side in (1.0, -1.0)]
    largest = np.zeros(base.whole.size)
    for k, u in enumerate(_beside(lengths, towards, few=j is not None)):
        along_u = [slope(0.0, u, h) for h in steps]
        for side, along in (sides[k % 2],) if j is None else sides:
            together = [slope(side, u, h) for h in steps]
            defect = defects(list(zip(along_u, along, together, strict=True)), steps, unit)
            largest[doubted] = np.fmax(largest[doubted], defect / length)
    double = base.coarsest_eps <= NARROW_EPS
    # Where the terms of a tie meet at all, f bends along the first of these tangents.
    if towards is None or not (double and np.any(largest) and np.all(np.isfinite(towards))):
        return replace(found, estimate=found.estimate.but(defect=largest))
    right, left = (side * np.array(along) for side, along in sides)
    least, most = np.fmin(left, right), np.fmax(left, right)
    for u, reach in _at_tie(lengths, towards, v):
        ahead, behind = (np.array([slope(side, u, h) for h in steps]) for side in (reach, -reach))
        secants = (ahead - behind) / (2 * reach)
        gaps = secants - np.clip(secants, least, most)
        visible = np.fmax(VISIBLE_KINK * np.abs(secants[-1]), LASTING_UNITS * unit / reach)
        beyond = np.where(lasting_gaps(gaps, steps, visible), np.abs(gaps[-1]), 0.0)
        largest[doubted] = np.fmax(largest[doubted], beyond / length)
    return replace(found, estimate=found.estimate.but(defect=largest))


def _shortest_for_bends(
    base: Base, found: Column, doubted: NDArray[np.bool_], length: float
) -> float:
    """Returns the shortest step at which a bend of `VISIBLE_KINK` of the slope of some output shows
    in its rounding.

    Beside a kink of a function of float32 a ladder takes steps over which rounding hides that, and
    a right derivative would fail.
    """
    rounding = (base.coarsest_eps * base.magnitude(base.values) + base.noise)[doubted]
    slope = np.abs(found.estimate.value[doubted]) * length
    bend = VISIBLE_KINK * DEFECT_STEPS[-1] * slope
    shows = bend > 0
    least = LASTING_UNITS * rounding[shows] / bend[shows]
    return float(np.min(least, initial=np.inf, where=np.isfinite(least)))


def _beside(lengths: Vector, towards: Vector | None, *, few: bool) -> Iterator[Vector]:
    """Yields the tangents beside which slopes are added up: `BESIDE_TANGENTS`, or where they are to
    be `few` one and its negative; see `with_defects`.

    They are the same in every check, so that no verdict depends on them.
    """

    def random(k: int) -> Vector:
        drawn = generator(0, Stream.BESIDE_TANGENTS, k)
        return drawn.integers(-(2**12), 2**12, lengths.size, endpoint=True) / 2**12

    def apart() -> Vector:
        # Magnitudes differ, so that ties part in some order.
        return np.asarray((1 + np.abs(random(0))) / 2 * lengths)

    left = 2 if few else BESIDE_TANGENTS
    if towards is not None:
        # A rule that chooses one of several ties leaves out others, which move with that one.
        for sign in (1.0, -1.0):
            yield sign * np.copysign(apart(), towards)
        left -= 2
        signs = np.signbit(towards)
        if not few and signs.any() and not signs.all():
            # In a projection cotangents have both signs, and each hides ties of the other.
            yield apart()
            yield -apart()
            left -= 2
    for k in range(left):
        yield (-random(0) if k and few else random(k)) * lengths


def _at_tie(lengths: Vector, claim: Vector, v: Vector) -> Iterator[tuple[Vector, float]]:
    """Yields tangents that lead from x to points beside which the terms meet that a claimed
    derivative is made of, and what part of `v` moves none of them past another.

    They go to both sides of x (see `towards_tie`). The entry that says most along `v` moves by less
    than the others along one of two tangents, and by more along the other: of a largest number the
    former makes its term the one that counts, and of a smallest the latter.
    """
    moves, level = towards_tie(lengths, claim, NEAREST_TIE)
    drawn = generator(0, Stream.BESIDE_TANGENTS).integers(0, 2**12, lengths.size) / 2**12
    moves *= (1 + drawn) / 2
    said = np.abs(claim * v)
    most = int(np.argmax(said))
    reach = SECANT_REACH[1] * level / max(said[most], level)
    for side in (1.0, -1.0):
        for part in PARTS_OF_TIE[1:] if np.count_nonzero(claim) > 1 else PARTS_OF_TIE[:1]:
            u = side * moves
            u[most] *= part if said[most] else 1.0
            yield u, reach


def towards_tie(lengths: Vector, claim: Vector, nearest: float) -> tuple[Vector, float]:
    """Returns a tangent along which all terms of a tie move f by as much, if `claim` is the
    derivative of f; and by how much they move it.

    Each entry moves by the inverse of its claim, though by no less than `nearest` of its scale.
    Entries that the claim leaves out are to stay out of the tie: they move by all of their scale,
    to the side of most others.
    """
    claims = np.abs(claim) * lengths
    level = np.max(claims) * nearest
    if np.all(claims):
        level = max(level, np.min(claims))
    with np.errstate(divide="ignore", over="ignore"):
        moves = lengths * np.minimum(1, level / claims)
    side = 1.0 if np.sum(claim * lengths) >= 0 else -1.0
    return np.where(claim == 0, side, np.sign(claim)) * moves, float(level)


def _drowned_in_rounding(estimate: Estimate) -> bool:
    """Returns whether rounding drowns the motion of f at the step that was tried first, so that
    longer ones are needed (`1e14 + sin(x)`).
    """
    error, value = (
        np.where(np.isfinite(v), np.abs(v), 0.0) for v in (estimate.error, estimate.value)
    )
    return bool(np.max(error, initial=0.0) > DROWNED_PART * np.max(value, initial=0.0))


def _quantised(problem: Problem, tangent: Tangent, steps: Sequence[float]) -> Tangent:
    """Returns `tangent`, rounded so that each of these steps is exact in the dtypes of its leaves.

    Otherwise the direction would change from step to step by the rounding of `x + t v`, and
    differences at neighbouring steps would disagree by that.
    """
    if tangent.coordinate is not None:
        return tangent
    vector = tangent.vector
    for k, j in enumerate(tangent.leaves):
        leaf, part = problem.X.leaves[j], problem.X.slices[j]
        v, x = tangent.vector[part], problem.origin[part]
        if tangent.units:
            coarsest = leaf.eps * (2 * _reach(x) + steps[0] * _reach(v))
            if coarsest <= tangent.units[k] * steps[-1]:
                continue
        if vector is tangent.vector:
            vector = vector.copy()
        exact = vector[part]
        for here in chunks(v.size):
            exact[here] = _rounded(x[here], v[here], steps, leaf.eps)
    return tangent if vector is tangent.vector else replace(tangent, vector=vector)


def _rounded(x: Vector, v: Vector, steps: Sequence[float], eps: float) -> Vector:
    """Returns entries of a tangent, rounded so that each of these steps is exact."""
    reach = np.abs(x) + steps[0] * np.abs(v)
    spacing = 2.0 ** np.floor(np.log2(np.where(reach > 0, reach, 1.0))) * eps
    unit = spacing / steps[-1]
    rounded = np.where(np.isfinite(unit) & (reach > 0), np.round(v / unit) * unit, v)
    # An entry whose spacing is wider than its move keeps one unit, rather than drop out of the
    # tangent.
    return np.where((rounded == 0) & (v != 0), np.sign(v) * unit, rounded)


def _reach(x: Vector) -> float:
    """Returns a number that is at least the largest magnitude, and NaN where an entry is."""
    return float(np.maximum.reduce(x, initial=0.0) - np.minimum.reduce(x, initial=0.0))


def power_of_two(step: float) -> float:
    """Returns the power of two next to `step`, with which products are exact."""
    if not 0 < step < 2.0**1023:
        return step
    return float(2.0 ** round(math.log2(step)))


def moved_by(problem: Problem, tangent: Tangent, step: float) -> Vector:
    """Returns `x + step v`, rounded to the dtype of the leaf and within bounds."""
    point = problem.origin + step * tangent.vector
    if problem.bounds is not None:
        point = problem.clipped(point)
    return point if problem.X.double else representable(problem, point, tangent.leaves)


def sample_at(
    problem: Problem,
    base: Base,
    tangent: Tangent,
    step: float,
    *,
    one_sided: bool = False,
    exact: bool = False,
) -> tuple[Sample, Vector] | None:
    """Returns the values on both sides of x (with `one_sided`: at x and on one side), and the
    direction that was really taken. The result is `None` if x does not move. With `exact` the
    direction is known to be that of `tangent`.
    """
    origin, vector = problem.origin, tangent.vector
    move = describe_move(problem, tangent, step)
    back = Move(move.name, -step, move.tangent)
    if exact:
        plus = evaluate(problem, base, origin + step * vector, move)
        minus = evaluate(problem, base, origin - step * vector, back)
        return Sample(step, plus, minus, base.magnitude), vector
    ahead = moved_by(problem, tangent, step)
    behind = origin if one_sided else moved_by(problem, tangent, -step)
    direction, other = ahead - origin, behind - origin
    if not problem.finite:
        direction, other = (np.where(np.isfinite(origin), side, 0.0) for side in (direction, other))
    if not direction.any() or not (one_sided or other.any()):
        return None
    direction -= other
    direction /= step if one_sided else 2 * step
    points = [behind, ahead]  # large ones are let go of once f was there
    del other, behind, ahead
    unit = None if tangent.coordinate is None else float(direction[tangent.coordinate])
    if unit is not None:
        direction = vector
    plus = evaluate(problem, base, points.pop(), move)
    minus = base.values if one_sided else evaluate(problem, base, points.pop(), back)
    # A unit tangent stays one, and the step is what was really taken.
    taken = step if unit is None else step * unit
    return Sample(taken, plus, minus, base.magnitude, one_sided), direction


def representable(problem: Problem, point: Vector, leaves: Iterable[int]) -> Vector:
    """Returns `point`, with these leaves rounded to their dtypes."""
    for j in leaves:
        leaf, part, like = problem.X.leaves[j], problem.X.slices[j], problem.x[j]
        if leaf.double:
            continue
        rounded = problem.backend.arrays.from_host(leaf.host(point[part]), like)
        point = point.copy()
        point[part] = leaf.vector(problem.backend.arrays.to_host(rounded, like))
    return point


def _double(problem: Problem, tangent: Tangent) -> bool:
    """Returns whether all leaves that the tangent moves are in double precision."""
    return all(problem.X.leaves[j].double for j in tangent.leaves)


def _out_of_bounds(problem: Problem, tangent: Tangent, step: float) -> InputError:
    """Returns the error about a fixed step that leaves the bounds."""
    return InputError(
        f"eps={step:.3g} leaves the bounds of {problem.X.names(tangent.leaves)}",
        "leave eps= out: steps then keep within the bounds, to one side where need be",
    )


def _no_motion(problem: Problem, tangent: Tangent, step: float) -> InputError:
    """Returns the error about a fixed step that does not move x."""
    name = describe_move(problem, tangent, step).name()
    dtype = problem.X.leaves[tangent.leaves[0]].info.dtype
    return InputError(
        f"a step of {step:.3g} does not move {name} ({dtype}): it is below the spacing of the "
        "dtype there",
        "leave eps= out (the step then follows the scale of the input), or give a longer one",
    )


def describe_move(problem: Problem, tangent: Tangent, step: float) -> Move:
    """Returns what an evaluation is for, which is noted on an exception that it raises."""
    # The problem keeps the move, so a name that keeps the problem would close a cycle, in which
    # arrays stay on devices until Python collects garbage.
    if tangent.coordinate is not None:
        return Move(partial(problem.X.entry, tangent.coordinate), step, tangent=False)
    return Move(partial(problem.X.names, tangent.leaves), step, tangent=True)

"""This module measures the computational noise of f, and how many digits its values carry.

Error bars assume that each value is rounded once. Long sums, iterative solvers, interpolated tables
and code that is in single precision inside are noisier, and right derivatives of these would fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    ENOUGH_VALUES,
    FEWER_BITS,
    FEWEST_BITS,
    FULL_DIGITS_PART,
    INSIDE_GROWTH,
    INSIDE_MAGNITUDE,
    INSIDE_NOISE,
    INSIDE_POWERS,
    LARGER_MAGNITUDES,
    LEAST_MAGNITUDE,
    LONE_JUMP,
    LONE_JUMP_PART,
    NARROW_EPS,
    NOISE_DEGREE,
    NOISE_FACTOR,
    NOISE_POINTS,
    OTHER_MAGNITUDES,
    ROUNDED_JUMP,
    ROUNDED_REACH,
    SHORTER_INSIDE_POWER,
    SHORTER_NOISE_STEP,
    STAIRCASE_PART,
    TYPICAL_RESIDUALS,
    UNEVEN_NOISE_POINTS,
)
from adjudge.errors import attempt
from adjudge.estimate.directional import (
    Column,
    defined,
    describe_move,
    interleaving_factor,
    moved_by,
    power_of_two,
    steps_around,
    with_steps,
)
from adjudge.estimate.stencils import Sample, combined, ladder
from adjudge.floats import (
    EPS,
    FORMATS,
    QUANTILE_ENTRIES,
    Vector,
    chunks,
    lowest_bit,
    repeated,
)
from adjudge.problem import Base, Problem, Purpose, at_once, evaluate

SIGNIFICANT_BITS = {name: FORMATS[name].bits for name in ("float32", "float16", "bfloat16")}
"""The significant bits of the dtypes that code may fall back to inside."""


def computational_noise(values: Sequence[Vector], points: Sequence[float]) -> Vector:
    """Returns the standard deviation of the noise of each output, by its values at `points`.

    It is what a polynomial through them leaves over. The difference tables of Hamming and of Moré
    and Wild's ECnoise (SIAM J. Sci. Comput. 33, 2011) do the same at equidistant points. On a
    staircase the noise is at least half of the smallest move, which is what rounding to a step
    hides: residuals alone would be far smaller on a flat part.
    """
    each = [_noise_of([v[here] for v in values], points) for here in chunks(values[0].size)]
    return np.concatenate(each)


def _noise_of(values: Sequence[Vector], points: Sequence[float]) -> Vector:
    """Returns the noise of some outputs."""
    t = np.array(points) / 8 - 3
    q = np.linalg.qr(np.vander(t, NOISE_DEGREE + 1))[0]
    table = np.array(values)
    centred = table - np.mean(table, axis=0)
    left = centred - q @ (q.T @ centred)
    degrees = len(t) - NOISE_DEGREE - 1
    step = _step_at_jump(table)
    if np.any(step):
        step -= q @ (q.T @ step)
        square = np.sum(step**2, axis=0)
        left -= step * np.sum(step * left, axis=0) / np.where(square > 0, square, 1.0)
        degrees = degrees - (square > 0)
    noise = np.sqrt(np.sum(left**2, axis=0) / degrees)
    moves = np.abs(np.diff(table, axis=0))
    unit = np.min(np.where(moves > 0, moves, np.inf), axis=0, initial=np.inf)
    # On a staircase most neighbours are equal, and residuals say less than the height of a
    # step.
    flat = np.count_nonzero(moves == 0, axis=0) >= int(STAIRCASE_PART * len(moves))
    # A single move is a jump and not a staircase.
    flat &= np.count_nonzero(moves, axis=0) > 1
    noise = np.where(flat, np.fmax(noise, unit / 2), noise)
    # What scatters on a lattice is rounded to it, evenly over a step of it, however small the
    # residuals are by chance: moves of almost whole numbers of steps follow a polynomial.
    scattered = noise > np.finfo(np.float64).eps * np.max(np.abs(table), axis=0)
    lattice = np.min(lowest_bit(table), axis=0)
    noise = np.where(scattered, np.fmax(noise, lattice / 12**0.5), noise)
    return np.asarray(np.where(np.isfinite(noise), noise, 0.0))


def _step_at_jump(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a unit step, by point and output, at the move between two points that is a jump;
    zeros for outputs without any.
    """
    moves = np.abs(np.diff(table, axis=0))
    *_, second, most = np.sort(moves, axis=0)
    least = np.fmax(LONE_JUMP * second, LONE_JUMP_PART * np.max(np.abs(table), axis=0))
    jumps = (moves == most) & (most > least) & (second > 0)
    return np.concatenate([np.zeros_like(table[:1]), np.cumsum(jumps, axis=0)])


def significant_bits(values: Vector) -> int:
    """Returns the number of significant bits that the finite values need, at most 53."""
    finite = values[np.isfinite(values) & (values != 0)]
    ratio = np.abs(finite) / lowest_bit(finite)
    return int(np.max(np.frexp(ratio)[1], initial=0))


def carried_dtype(values: Sequence[Vector], points: Iterable[Vector]) -> str | None:
    """Returns the narrowest dtype that holds all values, where it does not hold the points: f
    rounds to it.
    """
    moving = np.array(values)
    moving = np.unique(moving[:, np.any(moving != moving[0], axis=0)])
    exponents = np.frexp(moving)[1]
    # Of values on a lattice the smaller ones have fewer bits, and rounded ones have as many at any
    # size.
    groups = [moving[exponents == e] for e in np.unique(exponents)]
    needed = {significant_bits(group) for group in groups if group.size >= ENOUGH_VALUES}
    for name, available in SIGNIFICANT_BITS.items():
        # It does not matter that the range of the dtype is narrower, too.
        if needed == {available}:
            given = significant_bits(np.concatenate(list(points)))
            return name if available < given - FEWER_BITS else None
    return None


def with_measured_noise(
    problem: Problem, base: Base, found: Column, doubted: NDArray[np.bool_]
) -> Column:
    """Returns a confirmed column whose error bars know the noise of f about the step in use.

    It takes ten evaluations about the step that the `doubted` outputs chose, and adds longer steps
    where the noise is more than a unit of rounding: noise counts for less over these.
    """
    if found.estimate.steps is None or not found.ladders:
        return found
    step = _typical_step(found, doubted)
    for _ in range(2):
        found = _with_noise(problem, base, found, _noise_about(problem, base, found, step), doubted)
        shorter = _typical_step(found, doubted)
        # At a much shorter step the noise may be another one, and is measured there.
        if abs(shorter) > SHORTER_NOISE_STEP * abs(step):
            break
        # The noise was measured at a step that the ladders no longer take, and is measured once
        # more.
        step = shorter
    return found


def _typical_step(found: Column, doubted: NDArray[np.bool_]) -> float:
    """Returns the step about which the noise of the doubted outputs matters."""
    assert found.estimate.steps is not None
    longest = abs(found.ladders[0][0].step)
    chosen = np.where(found.estimate.moved, found.estimate.steps, longest)
    chosen = chosen[doubted] if np.any(doubted) else chosen
    return float(np.sign(found.step)) * power_of_two(float(np.exp(np.mean(np.log(chosen)))))


def _with_noise(
    problem: Problem, base: Base, found: Column, noise: Vector, doubted: NDArray[np.bool_]
) -> Column:
    """Returns the ladders again, with this noise in place of what is usual."""
    u, ladders = base.coarsest_eps, found.ladders
    noise = np.fmax(_moderated(base, noise), noise_inside(problem, base))
    if bool(np.any(noise[doubted] > u * base.magnitude(base.values)[doubted])):
        every = steps_around(problem, base, found, far=True)
        ladders = tuple(
            _with_longer_steps(problem, base, found, samples, every) for samples in ladders
        )
    # What was measured takes the place of the usual size of the leaf.
    own = tuple(
        tuple(replace(sample, modulus=base.whole.modulus) for sample in samples)
        for samples in ladders
    )
    noise = np.fmax(NOISE_FACTOR * noise, base.noise)
    estimates = [ladder(samples, u, base.values, noise, base.whole.slices) for samples in own]
    estimate = reduce(combined, estimates)
    return replace(found, estimate=estimate, ladders=ladders, noise=noise)


def _moderated(base: Base, noise: Vector) -> Vector:
    """Returns measured noise, moderated by what is typical of its leaf.

    A few residuals show a hundredth of the noise by chance, and of many outputs one has such a
    chance: right derivatives fail. So the median of the noise, as a part of the output that has it,
    counts as `TYPICAL_RESIDUALS` more. Noise of zero stays zero, and none is larger than what was
    measured in the leaf: that of `6e6 cos(pi / 2)`, which is zero but for rounding, is as large as
    the number itself. Standard: moderated variances (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004).
    """
    own, found = len(NOISE_POINTS) - NOISE_DEGREE - 1, noise.copy()
    for part in base.whole.slices:
        size, square = np.abs(base.values[part]), noise[part] ** 2
        seen = (square > 0) & (size > 0) & np.isfinite(size)
        if np.any(seen):
            typical = np.median(square[seen] / size[seen] ** 2) * size**2
            mean = (own * square + TYPICAL_RESIDUALS * typical) / (own + TYPICAL_RESIDUALS)
            most = np.max(noise[part], where=np.isfinite(noise[part]), initial=0.0)
            found[part] = np.where(seen, np.fmin(np.sqrt(mean), most), noise[part])
    return found


def noise_inside(problem: Problem, base: Base) -> Vector:
    """Returns the noise of each output that short steps do not show: that over steps of some
    spacings of the narrowest dtype that the engine sees f compute with, if one is narrower than the
    outputs, and that of outputs that `may_round_inside` saw leap by rounding; else zeros.

    Where rounding to that dtype is a small part of f, as in `sin x + x.bfloat16() / 1000`, slopes
    over short steps are precise, and not those of the formula. Costs one evaluation that the engine
    watches, and twenty where it sees such a dtype, once for each x.
    """
    if base.of is not None:
        return noise_inside(problem, base.of)[base.chosen]
    if "noise inside" not in base.seen:
        # one zero, broadcast, takes no memory
        eps, noise = _seen_eps(problem, base), repeated(0.0, base.whole.size)
        if eps > max(base.coarsest_eps, NARROW_EPS) and problem.counts.allows(20):
            over = partial(_noise_over, problem, base, problem.origin)
            noise = reduce(np.fmin, (over(eps**k)[0] for k in INSIDE_POWERS))
        base.seen["noise inside"] = noise
    found: Vector = base.seen["noise inside"]
    return found


def _add_noise(problem: Problem, base: Base, noise: Vector) -> None:
    """Makes `noise_inside` at least this for the outputs that are differentiated."""
    whole = base.of or base  # a few outputs share what was seen with all of them
    here = np.arange(noise.size) if base.chosen is None else base.chosen
    known = noise_inside(problem, whole).copy()
    known[here] = np.fmax(known[here], noise)
    whole.seen["noise inside"] = known


def _with_longer_steps(
    problem: Problem, base: Base, found: Column, samples: tuple[Sample, ...], steps: Sequence[float]
) -> tuple[Sample, ...]:
    """Returns the samples, with those of the longer steps among `steps` before them."""
    longest = abs(samples[0].step)
    factor = (
        1.0
        if min(abs(longest / h - 1) for h in steps) < 0.1
        else interleaving_factor(problem, found)
    )
    more = [factor * h for h in steps if factor * h > 1.2 * longest]
    longer = with_steps(problem, base, found, more, 1)
    return samples if longer is None else (*longer.ladders[0], *samples)


def _noise_about(problem: Problem, base: Base, found: Column, step: float) -> Vector:
    """Returns the noise of the outputs about `x + step v`, to whichever side has finite values."""
    best = np.zeros(base.whole.size)
    double = all(problem.X.leaves[j].double for j in found.tangent.leaves)
    points = UNEVEN_NOISE_POINTS if double else NOISE_POINTS

    def values_at(steps: Sequence[float]) -> list[Vector]:
        values = []
        for h in steps:
            point = moved_by(problem, found.tangent, h)
            values.append(evaluate(problem, base, point, describe_move(problem, found.tangent, h)))
        return values

    for side in (1.0,) if found.one_sided else (1.0, -1.0):
        take = partial(values_at, [side * step * k / 32 for k in points])
        at_once(problem, base, take)
        values = take()
        best = computational_noise(values, points)
        if defined(base, *values):
            break
    return best


def rounded_dtype(problem: Problem, base: Base, found: Column) -> str | None:
    """Returns the dtype narrower than those of the outputs to which all samples of `found` are
    rounded. Costs up to sixteen evaluations where there seems to be one.
    """
    samples = [sample for samples in found.ladders for sample in samples]
    if not samples:
        return None
    moving = _some(np.flatnonzero(found.tangent.vector))
    pairs = [(s.plus, s.step) for s in samples]
    pairs += [(s.minus, -s.step) for s in samples if not s.one_sided]
    names = set()
    for part in base.Y.slices:
        out = _some(np.arange(part.start, part.stop))
        # Where f stands still, at a kink or in saturation, its values say nothing.
        moved = [(v[out], h) for v, h in pairs if np.any(v[out] != base.values[out])]
        points = (moved_by(problem, found.tangent, h)[moving] for _, h in moved)
        names.add(carried_dtype([v for v, _ in moved], points) if moved else None)
    name = names.pop() if len(names) == 1 else None
    if name is None or not problem.counts.allows(16):
        return name
    far = _bits_farther_off(problem, base, found)
    return None if far is not None and far[0] > SIGNIFICANT_BITS[name] else name


def _bits_farther_off(
    problem: Problem,
    base: Base,
    found: Column,
    still: NDArray[np.bool_] | None = None,
    least: int = 0,
) -> tuple[int, float] | None:
    """Returns the number of bits that the values of f need where x is larger, and by what factor it
    is; `None` where f is not defined there, or they need less than `least`. Rounded values need as
    many at any magnitude, and those of stairs of one height need more, or less where f fades.

    The outputs are those that stand `still`, by default all that move. A quotient of what moves is
    the same at every magnitude, stairs and all: about half of it is made larger then.
    """
    moves = found.tangent.vector != 0
    for large in LARGER_MAGNITUDES:
        needed = []
        parts = (0.0, 0.1, 0.23, 0.37)
        values = _scaled_values(problem, base, found, large, parts, moves)
        if still is not None and all(
            np.array_equal(value[still], base.values[: still.size][still]) for value in values
        ):
            half = moves & (0.6180339887 * np.arange(moves.size) % 1 < 0.5)
            values = _scaled_values(problem, base, found, large, parts, half)
        for value in values:
            some = value != base.values[: value.size] if still is None else still
            needed.append(significant_bits(value[_some(np.flatnonzero(some))]))
        if needed and max(needed) >= least:
            return max(needed), large
    return None


def _scaled_values(
    problem: Problem,
    base: Base,
    found: Column,
    factor: float,
    parts: Sequence[float],
    moves: NDArray[np.bool_],
) -> list[Vector]:
    """Returns the differentiated outputs of f where the entries marked in `moves` are multiplied by
    `factor (1 + part)`, as far as f is defined there.
    """
    some = []
    for part in parts:
        point = np.where(moves, factor * (1 + part) * problem.origin, problem.origin)
        move = describe_move(problem, found.tangent, found.tangent.length)
        value = attempt(partial(evaluate, problem, base, problem.clipped(point), move))
        if value is not None and defined(base, value):
            some.append(value[: base.Y.size])
    return some


def _some(entries: NDArray[np.intp]) -> NDArray[np.intp]:
    """Returns no more than a few thousand of the entries, at even distances: as many show whether
    values are rounded, and of a large array all would take longer than f.
    """
    return entries[:: max(1, entries.size // QUANTILE_ENTRIES)]


def narrowest_eps(problem: Problem, base: Base) -> float:
    """Returns the spacing at 1 of the narrowest dtype that f computes with at x: that which the
    engine sees or, where it sees none, that which the values of f show (`dtype_inside`); else 0.
    """
    known = _seen_eps(problem, base)
    if known or (inside := dtype_inside(problem, base)) is None:
        return known
    return EPS[inside]


def _seen_eps(problem: Problem, base: Base) -> float:
    """Returns the spacing at 1 of the narrowest dtype that the engine sees f compute with at x, if
    the outputs of f depend on numbers of less than double precision; 0 where it does not know.
    """
    known, moves = problem.narrowest_eps, None
    if known > NARROW_EPS:
        moves = base.rounding_inside
    if moves is None or np.any(moves):
        return known
    # Of a derivative's derivative an engine may not see what the inner backward pass computes.
    return 0.0 if problem.modes_taken else EPS["float64"]


def dtype_inside(problem: Problem, base: Base) -> str | None:
    """Returns the dtype that f falls back to inside, as its noise shows at points so close to each
    other that this dtype hardly tells them apart.

    A function that rounds to float32 on the way and goes on in float64 has values with all digits.
    Over steps of some spacings of float32 it moves by as much at random, where a smooth function
    is a polynomial. So is a fast one (`sin(1e6 x)`) over some steps; over others it is farther off
    than rounding puts it, and so are stairs where x is smaller. What grows with the steps, as that
    of a function close to a pole does, has to be there over shorter ones. What is small in its leaf
    may have lost its digits, and says nothing.
    Costs ten evaluations, and up to forty more where there is such noise, once for each x. Ours.
    """
    if "inside" not in base.seen:
        known = _seen_eps(problem, base)
        # Stairs look like sixteen bits, where an engine does not know better.
        eps, found = known or EPS["float32"], None
        if base.coarsest_eps <= NARROW_EPS < eps and problem.counts.allows(50):
            low, high = (part * eps for part in INSIDE_NOISE)
            over = partial(_noise_of_leaves, problem, base)
            x, smaller = problem.origin, INSIDE_MAGNITUDE * problem.origin
            seen: list[float] = []

            def within(power: float) -> bool:
                seen.append(over(x, eps**power))
                return low <= seen[-1] <= high

            alike = all(map(within, INSIDE_POWERS))
            if alike and seen[-1] > INSIDE_GROWTH * seen[0]:
                alike = over(x, eps**SHORTER_INSIDE_POWER) >= low
            if alike and (known or all(over(smaller, eps**k) <= high for k in INSIDE_POWERS)):
                found = next((name for name in SIGNIFICANT_BITS if EPS[name] == eps), None)
        base.seen["inside"] = found
    dtype: str | None = base.seen["inside"]
    return dtype


def _noise_of_leaves(problem: Problem, base: Base, x: Vector, step: float) -> float:
    """Returns the noise over such steps, relative to the values: that of the noisiest leaf."""
    absolute, own = _noise_over(problem, base, x, step)
    noise = absolute / own
    full = (own > 0) & (own >= FULL_DIGITS_PART * base.whole.largest(own))
    leaves = [noise[part][full[part]] for part in base.Y.slices]
    return max((float(np.median(leaf)) for leaf in leaves if leaf.size), default=0.0)


def _noise_over(problem: Problem, base: Base, x: Vector, step: float) -> tuple[Vector, Vector]:
    """Returns the noise of f over steps of this part of every entry of `x`, and the size of the
    values. It is zero where f is not defined there.
    """
    order = np.arange(problem.X.size)
    lengths = np.where(x != 0, np.abs(x), problem.length_scales)
    # Multiples of irrational numbers, so that no two entries are rounded at the same points.
    signs = np.where(order * 0.4142135624 % 1 < 0.5, 1, -1)
    v = signs * lengths * (1 + order * 0.6180339887 % 1) / 2
    values = []
    for k in UNEVEN_NOISE_POINTS:
        point = problem.clipped(x + step * k / 32 * v)
        value = attempt(partial(evaluate, problem, base, point, Purpose.PRECISION))
        if value is None or not defined(base, value):
            return np.zeros(base.whole.size), base.whole.modulus(base.values)
        values.append(value)
    return computational_noise(values, UNEVEN_NOISE_POINTS), base.whole.modulus(values[0])


def _twice(whole: Vector, half: Vector) -> NDArray[np.bool_]:
    """Marks where a move is about twice another one, as that of a smooth function is."""
    whole, half = np.abs(whole), np.abs(half)
    return np.asarray((whole > 1.5 * half) & (whole < 3 * half))


def may_round_inside(
    problem: Problem,
    base: Base,
    found: Column,
    still: NDArray[np.bool_],
    reach: float,
    jumps: Vector,
) -> bool:
    """Returns whether the outputs that stand `still` about x, as far as `reach` of its scale, may
    do so because f rounds to a narrower dtype inside: it then moves by more than rounding farther
    off, as a staircase does. What rounds to many bits does not stand still for long, unless it
    cancels most of them.

    The engine knows by how much the rounding of all numbers inside moves the outputs, as far as it
    can see into f: `jumps`, the least that were seen farther off, may be `ROUNDED_JUMP` times as
    high. It also knows which dtypes f computes with. Where it sees none that is narrower, two
    things tell them apart, since rounding is relative and stairs are not: a rounded input near zero
    moves f by as small a part of itself, and rounded values need as few bits at other magnitudes.
    The rule is ours. It costs ten evaluations, or up to 37.
    """
    moved = bool(np.any(np.isfinite(jumps[still])))
    if moved and (rounding := base.rounding_of_all) is not None:
        leaps = still & (jumps <= ROUNDED_JUMP * rounding)
        if np.any(leaps):
            _add_noise(problem, base, np.where(leaps, rounding, 0.0))
            return True
    if _seen_eps(problem, base) > NARROW_EPS:
        return base.rounding_inside is None
    moves = found.tangent.vector != 0

    def values(factor: float, parts: Sequence[float]) -> list[Vector]:
        scaled = _scaled_values(problem, base, found, factor, parts, moves)
        return [value[still] for value in scaled]

    small, smallest = OTHER_MAGNITUDES
    size = np.max(np.abs(problem.origin), initial=0.0, where=moves)
    smallest = max(smallest, min(small, LEAST_MAGNITUDE / size)) if size else small

    def moves_near_zero(factor: float) -> bool:
        part = min(0.5, reach / (2 * factor))
        near_zero = values(factor, (0.0, part, -part))
        if not any(np.any(value != near_zero[0]) for value in near_zero[1:]):
            return False
        # About a pole stairs are as narrow as one likes, and rounded values need no more bits.
        if significant_bits(near_zero[0]) > bits - np.log2(factor) / 2:
            return False
        # A stair is wider than this move, and one that lies here by chance is no motion: half of
        # the move jumps by as much, or by nothing.
        halves = values(factor, (part / 2, -part / 2))
        return any(
            np.any(_twice(whole - near_zero[0], half - near_zero[0]))
            for whole, half in zip(near_zero[1:], halves, strict=False)
        )

    here = values(1.0, (0.0, 0.0163, -0.0147))
    bits = max((significant_bits(value) for value in here), default=0)
    if moves_near_zero(small) and moves_near_zero(smallest):
        return True
    most = min((had for had in SIGNIFICANT_BITS.values() if had >= bits), default=0)
    if not FEWEST_BITS <= bits <= most or reach > ROUNDED_REACH * 2.0**-bits:
        return False
    # A dtype of sixteen bits that has no part in the outputs may overflow farther off.
    if (far := _bits_farther_off(problem, base, found, still, bits - 2)) is not None:
        return far[0] <= most < bits + float(np.log2(far[1]))
    return not problem.narrowest_eps  # code that no engine sees may round

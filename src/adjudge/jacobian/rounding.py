"""This module decides whether two numbers that should be one differ by rounding or by an error.

All deciders rest on one observation: rounding, however much ill-conditioning amplifies it, has
another sign and size at every point, while an error in a rule is there at all of them. So the two
numbers are taken again at points nearby. The rule is ours, in the spirit of stochastic arithmetic,
which perturbs by units of rounding to see how many digits are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    ADJOINT_SAMPLES,
    COARSE_EPS,
    CONSTANT_RATIO,
    DERIVATIVE_UNITS,
    ENOUGH_POINTS,
    FAR_DISTANCES,
    FEW_LEAVES,
    LEAF_PROBES,
    LEVEL_SCATTER,
    LOST_UNITS,
    NARROW_VALUE_UNITS,
    NEAR_DISTANCES,
    NEAR_ULPS,
    SCATTER_POWERS,
    SHORTEST_DISTANCE_UNITS,
    SMOOTH_STEPS,
    SPACING_UNITS,
    STANDARD_ERRORS,
    SURE_OF_MEAN,
    WORST_ENTRIES,
    WRONG_FACTOR,
)
from adjudge.errors import NotSupportedError, attempt
from adjudge.estimate import representable
from adjudge.floats import Vector, lowest_bit, norm, scale
from adjudge.limits import limits
from adjudge.problem import (
    Base,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Space,
    Stream,
    evaluate,
    generator,
    random_entries,
)

Array = NDArray[np.float64]
T = TypeVar("T")
Take: TypeAlias = Callable[[Vector], Vector]
"""Gives automatic numbers at a point."""


# -- points


def points_within_rounding(
    problem: Problem,
    seed: int,
    leaves: Collection[int] | None = None,
    eps: float = 0.0,
    units: float = 1.0,
) -> Iterator[Vector]:
    """Yields two points whose entries, of some leaves or of all, are so many units of rounding, or
    twice as many, off those of x. `eps` is the least spacing at 1 that a unit is taken from.

    Every entry is above x at one of them and below at the other: where both are on one side, a rule
    with a branch that ends at x shows one of its values.
    """
    random, X, x = generator(seed, Stream.ROUNDING_NEIGHBOURS), problem.X, problem.origin
    signs = random.choice(np.array([-1, 1], np.int8), X.size)
    for side in (1, -1):
        point, drawn = x.copy(), random.choice(np.array([1.0, NEAR_ULPS]), X.size)
        drawn *= units * side * signs
        for j in range(len(X.leaves)) if leaves is None else leaves:
            part = X.slices[j]
            unit = 2.0 ** np.floor(np.log2(np.abs(x[part]))) * max(X.leaves[j].eps, eps)
            unit[~np.isfinite(unit)] = 0.0
            unit *= drawn[part]
            point[part] += unit
        del drawn, unit
        yield representable_within_bounds(problem, point)


def points_around(
    problem: Problem,
    seed: int,
    eps: float,
    distances: Sequence[float] = NEAR_DISTANCES + FAR_DISTANCES,
) -> Iterator[Vector]:
    """Yields a point at each of these distances, relative to every entry of x; an entry that is
    zero moves by the scale of its leaf. No point is closer than `SHORTEST_DISTANCE_UNITS` of `eps`.
    """
    random, x = generator(seed, Stream.NEARBY_POINTS), problem.origin
    lengths = np.where(x != 0, np.abs(x), problem.length_scales)
    lengths = np.where(np.isfinite(x), lengths, 0.0)
    for distance in distances:
        reach = max(distance, SHORTEST_DISTANCE_UNITS * eps)
        yield representable_within_bounds(
            problem, x + reach * lengths * random.uniform(-1, 1, x.size)
        )


def scatter(
    problem: Problem,
    eps: float,
    seed: int,
    leaves: Collection[int] | None,
    take: Take,
    reach: float = np.inf,
) -> Iterator[Vector]:
    """Yields how far automatic numbers scatter about smooth ones at points beside x, by number:
    first zero, then what is known after each pair of points that says something, which only grows.

    A move by a unit of rounding may be too short to show the rounding inside of a rule: `1 - cos x`
    at 1e-3 is a multiple of 1e-16, and stays the same until x moves by 1e-10 of itself. So numbers
    are taken at pairs of points, each pair farther off than the one before. What is smooth differs
    from pair to pair as the square of the distance; rounding differs as much at any, from some
    distance on. So only what two steps in a row show counts, and nothing from where on the numbers
    were seen to be smooth. The number at x takes no part, so that an error at x alone is not
    mistaken for scatter. No point lies farther off than `reach`, since a fast function has other
    derivatives there. All leaves move, or these. It stays zero in dtypes of sixteen bits, where
    nothing is smooth over several units of rounding. The rule is ours.
    """
    yield np.zeros(())
    if eps > COARSE_EPS:
        return
    random, X = generator(seed, Stream.SCATTER), problem.X
    move = np.zeros(X.size)
    for j in range(len(X.leaves)) if leaves is None else leaves:
        part = X.slices[j]
        signs = random.choice([-1.0, 1.0], part.stop - part.start)
        move[part] = np.abs(problem.origin[part]) * signs
    means, halves, distances = [], [], []
    found, before, grown = np.zeros(()), None, np.zeros((), int)
    for power in SCATTER_POWERS:
        distance, pair = eps**power * random.uniform(0.75, 1.0), []
        if distance > reach:
            break
        for point in (problem.origin + distance * move, problem.origin - distance * move):
            if np.array_equal(problem.clipped(point), point):
                there = attempt(partial(take, representable_within_bounds(problem, point)))
                pair += [] if there is None else [there]
        if len(pair) < 2:
            break  # f is not defined farther off
        means.append((pair[0] + pair[1]) / 2)
        halves.append((pair[0] - pair[1]) / 2)
        distances.append(distance)
        if len(means) < 2:
            continue
        longer = distances[-1] / distances[-2]
        bend = np.abs(means[-1] - means[-2])
        turn = np.abs(halves[-2] - halves[-1] / longer)
        apart = np.nan_to_num(np.fmax(bend, turn), nan=0.0, posinf=0.0)
        if before is not None:
            level = apart <= LEVEL_SCATTER * before
            square = longer**2 * before
            grown = grown + ((apart > square / 2) & (apart < 2 * square))
            counts = level & (grown < SMOOTH_STEPS)
            found = np.fmax(found, np.where(counts, np.fmin(before, apart), 0.0))
            yield np.asarray(2 * found)
        before = apart


def representable_within_bounds(problem: Problem, point: Vector) -> Vector:
    """Returns the point within the bounds, as numbers that every side can hold."""
    return representable(problem, problem.clipped(point), range(len(problem.X.leaves)))


# -- one number


def is_systematic(
    problem: Problem,
    eps: float,
    seed: int,
    gap: float,
    gap_at: Callable[[Problem, Vector], float],
    *,
    inside: bool = True,
) -> bool:
    """Returns whether the difference `gap` of two numbers at x is there at points close to x as
    well, and, unless `inside` is not set, where all numbers inside of f move by a spacing.

    Without this test the two modes of an ill-conditioned right derivative, a product with
    cancelling factors, say, would be called inconsistent. Close to x some numbers are rounded
    alike, as `cos x` is at a small x, so that moves inside of f show more. A point where f or its
    derivative is not defined is evidence of nothing.
    """
    gaps = [gap]
    places = [(problem, point) for point in points_around(problem, seed, eps, NEAR_DISTANCES)]
    moved = problem.moved_widely if inside else []
    for here, point in [*places, *((p, p.origin) for p in moved)]:
        there = attempt(partial(gap_at, here, point), NotSupportedError)
        if there is not None and np.isfinite(there):
            gaps.append(there)
            e = np.array(gaps)[:, None, None]
            held = np.ones((len(gaps), 1), bool)
            if len(gaps) >= ENOUGH_POINTS and not constant(e, held).item():
                return False
    return len(gaps) > ENOUGH_POINTS


def scatters_about_zero(
    problem: Problem, seed: int, gap_at: Callable[[Problem, Vector], float]
) -> bool:
    """Returns whether the difference of two numbers scatters about zero at points within rounding
    of x.

    Over so short a way no derivative changes by much, and so a gap of the rules stays what it is,
    also where `is_systematic` finds the derivative changed at every point. The test is Student's,
    of the mean; the points and the bound are ours.
    """
    gaps = []
    for number in range(ADJOINT_SAMPLES):
        for point in points_within_rounding(problem, seed + number):
            there = attempt(partial(gap_at, problem, point), NotSupportedError)
            if there is not None and np.isfinite(there):
                gaps.append(there)
    if len(gaps) < ADJOINT_SAMPLES:
        return False
    error = float(np.std(gaps, ddof=1)) / len(gaps) ** 0.5
    return bool(abs(float(np.mean(gaps))) <= SURE_OF_MEAN * error)


def apart_between(draws: Array) -> Vector:
    """Returns how far numbers are apart between draws, the finite ones of each: `acos` has no
    derivative where what is next to 1 is moved to it.
    """
    finite = np.isfinite(draws)
    most = np.max(draws, axis=0, initial=-np.inf, where=finite)
    least = np.min(draws, axis=0, initial=np.inf, where=finite)
    return np.where(finite.any(axis=0), most - least, 0.0)


def apart_where_moved(
    others: Iterable[Problem], take: Callable[[Problem], Vector]
) -> Vector | None:
    """Returns how far numbers are apart between problems whose numbers inside of f were moved by a
    spacing; `None` where the engine cannot move them, or what it moved gives no numbers.
    """
    draws = []
    for other in others:
        numbers = attempt(partial(take, other), NotSupportedError)
        if numbers is None:
            return None
        draws.append(numbers)
    return apart_between(np.array(draws)) if draws else None


def perturbed(
    vector: Vector, random: np.random.Generator, distance: float = NEAR_DISTANCES[-1]
) -> Vector:
    """Returns a probe at that distance from this one.

    A sum that is linear in the probe would be rounded alike at every point if the probe stayed the
    same, and a rounding error of it would pass for an error of the rule.
    """
    return np.asarray(vector * (1 + distance * random.uniform(-1, 1, vector.size)))


# -- two sides


@dataclass(frozen=True)
class Evaluator:
    """Evaluates one implementation of a function: a problem, observed at x, and the context it runs
    in.
    """

    base: Base
    context: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def problem(self) -> Problem:
        """The problem that is evaluated."""
        return self.base.problem

    @property
    def reverse(self) -> Reverse:
        """Reverse mode at x, where f is evaluated once for all that is pulled back."""
        with self.context():
            return self.base.reverse

    def value(self, point: Vector) -> Vector:
        """Returns the outputs of f at `point`, without those that are only observed."""
        with self.context():
            value = evaluate(self.problem, self.base, point, Purpose.NEAR_X)
        return value[: self.base.Y.size]


class Side(Protocol):
    """One of two sides that should give the same numbers, at several points."""

    @property
    def values(self) -> Array:
        """f by point and output. It is NaN where f raises, and so are the numbers."""

    @property
    def eps(self) -> float:
        """The spacing at 1 of the coarsest dtype."""

    def take(self, probe: int) -> Array:
        """Returns the numbers for this probe, by point and entry."""


Pair = tuple[Side, Side]
"""Two sides at the same points."""


class DerivativeAtPoints:
    """The derivative of one evaluator in the mode `letter` for some probes, at several points."""

    def __init__(
        self, at: Evaluator, letter: str, points: Sequence[Vector], probes: Sequence[Vector],
        *, from_x: bool, factors: Sequence[Vector] = (),
    ) -> None:  # fmt: skip
        """Evaluates f at the points. Raises what f or its derivative raises at the first of them if
        that is x (`from_x`); at the others it is passed over.

        The `factors` are what probes are multiplied by at each point: where f is linear, rounding
        would be the same at all of them if its probes were.
        """
        self.at, self.letter, self.probes, self.from_x = at, letter, probes, from_x
        self.factors = factors
        self.eps = at.base.coarsest_eps
        self.places: list[Reverse | Forward | None] = []
        self.values = np.zeros((0, at.base.Y.size))
        self.rows: dict[int, Array] = {}
        """What was taken so far, by probe, unless it is large."""
        self.extend(points)

    def extend(self, points: Iterable[Vector]) -> None:
        """Adds points after those that are there."""
        for point in points:
            self.values = np.vstack([self.values, np.full(self.at.base.Y.size, np.nan)])
            k = len(self.places)
            self.places.append(self._attempt(k, partial(self._place, k, point)))

    def _place(self, k: int, point: Vector) -> Reverse | Forward:
        """Evaluates f at point `k`, unless that is where it was evaluated before.

        The cotangents of a second derivative are drawn in its dtype, so that two sides stand at
        different points until they are told one. Without this no float32 derivative of second order
        was compared with that in double at x, and the gap was taken for conditioning.
        """
        base, problem = self.at.base, self.at.problem
        at_x = k == 0 and self.from_x and np.array_equal(point, problem.origin)
        problem = problem if at_x else replace(problem, origin=point)
        if self.letter != "R":
            self.values[k] = base.values[: base.Y.size] if at_x else self.at.value(point)
            return Forward(problem)
        with self.at.context():
            reverse = self.at.reverse if at_x else Reverse(problem)
            likes = base.arrays[: len(base.Y.leaves)]
            self.values[k] = base.Y.vector(problem.backend, reverse.outputs, likes)
        return reverse

    def take(self, probe: int, count: int | None = None) -> Array:
        """Returns `J* w` or `J v` at the points, or at the first `count` of them, one row for
        each.
        """
        space = self.at.base.Y if self.letter == "F" else self.at.problem.X
        known = self.rows.get(probe, np.zeros((0, space.size)))
        new = self.places[len(known) : count]
        if new:
            rows = np.full((len(new), space.size), np.nan)
            with self.at.context():
                for k, place in enumerate(new, len(known)):
                    factor = self.factors[k] if self.factors else 1.0
                    row = self._attempt(k, partial(self._row, place, factor * self.probes[probe]))
                    if row is not None:
                        rows[k - len(known)] = row
            known = np.concatenate([known, rows])
            if known.nbytes <= limits().kept_bytes:
                self.rows[probe] = known
        return known[:count]

    def _attempt(self, k: int, call: Callable[[], T]) -> T | None:
        return call() if k == 0 and self.from_x else attempt(call)

    def _row(self, place: Reverse | Forward | None, probe: Vector) -> Vector | None:
        base = self.at.base
        if isinstance(place, Reverse):
            return place.row(base, probe)
        return None if place is None else place.column(base, probe)[1]


@dataclass(frozen=True)
class ValueAtPoints:
    """The values of a side, as the numbers that are compared."""

    of: Side
    eps: float = field(init=False)
    values: Array = field(init=False)

    def __post_init__(self) -> None:
        """Nothing stands beside the numbers, of which f would be the value."""
        vars(self).update(eps=self.of.eps, values=self.of.values[:, :0])

    def take(self, probe: int) -> Array:
        """Returns the values by point."""
        return self.of.values


class Deviation(NamedTuple):
    """How far two sides are apart at x and within rounding of it, by entry and for the probe that
    shows it best.
    """

    off: Vector
    """The root of the mean square of the deviations."""
    size: Vector
    """The root of the mean square of the numbers, of the larger side."""
    motion: Vector
    """The distance that the numbers move between the points."""
    allowed: Vector
    """The rounding that the sides may be apart by."""
    probe: NDArray[np.intp]
    """The probe for which the two are farthest apart at x."""
    not_finite: NDArray[np.bool_]
    """Marks where one side alone is finite at x."""
    absent: NDArray[np.bool_]
    """Marks where the first side has zeros throughout, and the second has none."""
    biases: Array
    """The part of the numbers that the deviation is, by probe, point and leaf."""
    compared: int
    """The number of numbers at x."""

    @property
    def ratio(self) -> Vector:
        """The deviation over what is allowed."""
        return np.where(self.off > 0, self.off / self.allowed, 0.0)

    def suspects(self, bound: float) -> NDArray[np.intp]:
        """Returns the entries farthest beyond `bound` times what is allowed."""
        ratio = self.ratio
        beyond = np.flatnonzero(ratio > bound)
        return beyond[np.argsort(-ratio[beyond], kind="stable")[:WORST_ENTRIES]]


class Persisting(NamedTuple):
    """Which deviations two sides have at all points alike."""

    entries: NDArray[np.intp]
    """The entries that an error explains, and rounding does not."""
    hidden: bool
    """Whether there were others that f could not show for its own rounding."""
    biases: Array
    """What `Deviation.biases` are, at the points around x."""


@dataclass(frozen=True)
class Sides:
    """The comparison of two sides that should give the same numbers."""

    space: Space
    """The space in which the numbers lie."""
    probes: Sequence[Vector] = (np.ones(1),)
    lengths: Vector | None = None
    """What a deviation is multiplied by to say how much f moves by it; `None` for values of f."""
    moved_by: Callable[[NDArray[np.intp]], NDArray[np.bool_] | None] | None = None
    """Marks the outputs that f moves where these entries move, if that is known."""
    left_of_zeros: Callable[[Sequence[int]], Vector] | None = None
    """What rounding leaves of terms that add up to zero for some of the probes, if that is known;
    it is asked where what is allowed otherwise does not do."""

    def apart(self, pair: Pair) -> Deviation:
        """Measures how far two sides are apart at x, the first of their points, and at points
        within rounding of x.

        Conditioning shows in how the side of higher precision moves; the other one moves by its
        rounding as well. Probes of one leaf are taken together, since the terms of a derivative may
        cancel for one of them.
        """
        one, two = pair
        groups: dict[bytes, list[int]] = {}
        for k, probe in enumerate(self.probes):
            groups.setdefault(np.packbits(probe != 0).tobytes(), []).append(k)
        # Where f itself overflows on one side, its derivative says nothing.
        alike = bool(np.all(np.isfinite(one.values[0]) == np.isfinite(two.values[0])))
        found: Deviation | None = None
        for group in groups.values():
            new = self._apart_for(pair, group)
            if found is None:
                found = new
                continue
            worse = new.off * found.allowed > found.off * new.allowed
            found = Deviation(
                np.where(worse, new.off, found.off),
                np.where(worse, new.size, found.size),
                np.where(worse, new.motion, found.motion),
                np.where(worse, new.allowed, found.allowed),
                np.where(worse, new.probe, found.probe),
                found.not_finite | new.not_finite,
                found.absent & new.absent,
                np.concatenate([found.biases, new.biases]),
                found.compared + new.compared,
            )
        assert found is not None
        return found if alike else found._replace(not_finite=np.zeros_like(found.not_finite))

    def _apart_for(self, pair: Pair, group: Sequence[int]) -> Deviation:
        """Returns the deviation for some of the probes."""
        space, huge = self.space, _huge(self.space)
        u, finest = max(side.eps for side in pair) / 2, min(side.eps for side in pair)
        squares = [np.zeros(space.size) for _ in range(3)]
        motion, largest = np.zeros(space.size), np.zeros(space.size)
        probe = np.broadcast_to(np.intp(group[0]), space.size)
        not_finite, absent = np.zeros(space.size, bool), np.ones(space.size, bool)
        biases, compared = [], 0
        for k in group:
            low, high = rows = [side.take(k) for side in pair]
            finite = [np.isfinite(row) & (np.abs(row) < huge) for row in rows]
            held = finite[0] & finite[1]
            # Beside a number of the narrow dtype, one far beyond its range is as wrong as infinity.
            beyond = [~(np.abs(row) < 2 * huge) for row in rows]
            only = (finite[0] & beyond[1]) | (finite[1] & beyond[0])
            not_finite |= only[0]
            compared += int(np.count_nonzero(held[0] | only[0]))
            low, high = rows = [np.where(held, row, 0.0) for row in rows]
            off = low - high
            for total, row in zip(squares, (off, *rows), strict=True):
                total += np.mean(row**2, axis=0)
            biases.append(relative_bias(off, high, space))
            del off
            absent &= np.all((low == 0) & (high != 0), axis=0)
            # Terms that add up to zero to the last bit do not show there what rounding leaves of
            # them on the other side.
            zero = np.all(high == 0, axis=0)
            for side, row in zip(pair, rows, strict=True):
                counts = np.True_ if side.eps == finest else zero
                if np.any(counts):
                    motion = np.maximum(motion, counts * np.max(np.abs(row - row[0]), axis=0))
            if len(group) == 1:
                continue
            gap = np.where(only[0], np.inf, np.abs(low[0] - high[0]))
            probe, largest = np.where(gap > largest, k, probe), np.fmax(gap, largest)
        for total in squares:
            total /= len(group)
            np.sqrt(total, out=total)
        off, size = squares[0], space.modulus(squares[1], squares[2])
        del squares
        # Zeros throughout are no matter of conditioning.
        motion = np.where(absent, 0.0, motion)
        allowed = rounding_allowance(u, size, motion, space)
        if self.left_of_zeros is not None and np.any(off > allowed):
            left = self.left_of_zeros(group)
            allowed += left
            if np.any(left):  # of a leaf of zeros the deviation is any part
                held = np.where(left > 0, 0.0, 1.0)
                pairs = [[side.take(k) * held for side in pair] for k in group]
                biases = [relative_bias(*finite_deviation(one, two), space) for one, two in pairs]
        return Deviation(
            off, size, motion, allowed, probe, not_finite, absent, np.array(biases), compared
        )

    def allowing_spacing(self, pair: Pair, found: Deviation) -> Deviation:
        """Returns the deviation of values with their spacing at `points_around` allowed, where that
        is coarser than their rounding, since they are differences of larger numbers.
        """
        allowed = found.allowed
        for side in pair:
            values, u = side.take(0), side.eps / 2
            unit = np.min(lowest_bit(values), axis=0)
            near = np.where(np.isfinite(values), values, 0.0)[: len(NEAR_DISTANCES)]
            lost = unit > LOST_UNITS * u * np.max(np.abs(near), axis=0)
            coarse = lost & (unit <= SPACING_UNITS * u)
            allowed = allowed + DERIVATIVE_UNITS * np.where(coarse, unit, 0.0)
        return found._replace(allowed=allowed)

    def persisting(self, pair: Pair, found: Deviation, suspects: NDArray[np.intp]) -> Persisting:
        """Returns which of the suspects are off in the same way at `points_around` x.

        A deviation that is the same at all points close to x is no rounding, and neither is one
        that is the same part of the derivative at all points farther off. One that f could not show
        counts only if it is such a part: digits were lost in an intermediate value (`1 - y` with y
        next to 1), and the derivative is computed from what is left. Nor does it count where
        one side is so many times the other that both are roundings of zero, each in its own
        precision, or that one of them is; or where f reads the entry at x only, as a quantile does.
        Where the second side is exactly zero, what rounding leaves of it on the first has another
        sign at each point.
        """
        e, g, held, biases = self._samples(pair, suspects)
        near = len(NEAR_DISTANCES)
        size = found.size.copy()
        size[suspects] = np.maximum(_rms_held(g, held), _rms_held(e + g, held))
        u = max(side.eps for side in pair) / 2
        bound = WRONG_FACTOR * rounding_allowance(u, size, found.motion, self.space)[suspects]
        missing = np.any(held, axis=0) & np.all((e + g == 0) | ~held[:, None], axis=(0, 1))
        part = proportional(e, g, held) & ~missing
        # Two roundings of zero are as constant as f is linear, and in the ratio of their units.
        # What rounds to zero on one side alone is as many times smaller there.
        ratio = (max(side.eps for side in pair) / min(side.eps for side in pair)) ** 0.5
        low, high = _rms_held(e + g, held), _rms_held(g, held)
        comparable = (low <= ratio * high) & (high <= ratio * low)
        shown = part & (comparable | (ratio == 1))
        # Nothing shows how much of a value was lost in the values that it is computed from.
        close = near if self.lengths is not None else len(e)
        steady = constant(e[:close], held[:close])
        lasting = np.where(found.absent[suspects], missing, missing | part | steady)
        lasting &= _rms_held(e, held) > bound
        entries = suspects[lasting] if np.any(lasting) else suspects
        reach = _selected_within(e, g, held)
        own = reach[lasting] if np.any(lasting) else reach
        if bool(entries.size) and self.hides(pair, found.off[entries] * own, entries):
            shown &= reach == 1
            return Persisting(suspects[lasting & shown], not np.any(lasting & shown), biases)
        return Persisting(suspects[lasting], False, biases)

    def hides(self, pair: Pair, off: Vector, entries: NDArray[np.intp]) -> bool:
        """Returns whether f hides these deviations of its derivative in its own rounding: over the
        scale of x they move it by no more than that, or than its two values are apart. Only outputs
        that move with these entries count: the rounding of all others together would hide a zero
        among some thousand numbers.
        """
        if self.lengths is None:
            return False
        eps = max(side.eps for side in pair)
        units = NARROW_VALUE_UNITS if eps > COARSE_EPS else DERIVATIVE_UNITS
        apart, f = deviation_of_values(pair)
        moved = None if self.moved_by is None else self.moved_by(entries)
        if moved is not None and np.any(moved):
            apart, f = apart[:, moved], f[:, moved]
        shown = max(units * eps / 2 * rms(norm(f)), WRONG_FACTOR * rms(norm(apart)))
        return float(norm(off * self.lengths[entries])) <= shown

    def selected_within(self, pair: Pair, entries: NDArray[np.intp]) -> Vector:
        """Returns how far from x each of these entries has a derivative; see `_selected_within`."""
        return _selected_within(*self._samples(pair, entries)[:3])

    def _samples(self, pair: Pair, kept: NDArray[np.intp]) -> _Samples:
        """Returns what both sides have at the kept entries."""
        es, gs, helds, biases = [], [], [], []
        for k in range(len(self.probes)):
            low, high = (side.take(k) for side in pair)
            e, g = finite_deviation(low, high)
            es.append(e[:, kept])
            gs.append(g[:, kept])
            helds.append((np.isfinite(low) & np.isfinite(high))[:, kept])
            biases.append(relative_bias(e, g, self.space))
        # Points farther off come last, and are enough where f is defined at them.
        there = np.flatnonzero(_defined(pair))
        far = there[there >= len(NEAR_DISTANCES)]
        shown = np.array(biases)[:, far if far.size >= ENOUGH_POINTS else there]
        return _Samples(np.stack(es, 1), np.stack(gs, 1), np.all(helds, axis=0), shown)


def _selected_within(e: Array, g: Array, held: NDArray[np.bool_]) -> Vector:
    """Returns how far from x each entry still has a derivative, where it has none farther off: what
    sorts or selects reads other entries there, and a deviation moves f no farther than that. It is
    1 for all others.
    """
    read = held & ~np.all((g == 0) & (e == 0), axis=1)
    # At a kink an entry may be read at some points and not at others; the farthest counts.
    last = len(read) - np.argmax(read[::-1], axis=0)
    within = np.array([0.0, *NEAR_DISTANCES, *FAR_DISTANCES])[np.where(read.any(axis=0), last, 0)]
    # The points move every entry by a random part of the distance.
    return np.where(read[-1] | ~held[-1], 1.0, within / WRONG_FACTOR)


def _defined(pair: Pair) -> NDArray[np.bool_]:
    """Marks the points at which f is defined on both sides."""
    one, two = (np.isfinite(side.values) for side in pair)
    return np.asarray(np.any(one & two, axis=1))


def deviation_of_values(pair: Pair) -> tuple[Array, Array]:
    """Returns the difference of the values of f, and the second side's, where f is defined."""
    there = _defined(pair)
    one, two = (side.values[there] for side in pair)
    return finite_deviation(one, two)


class _Samples(NamedTuple):
    """Deviations and derivatives of some entries, by point, probe and entry."""

    deviation: Array
    derivative: Array
    held: NDArray[np.bool_]
    """Says, by point and entry, whether all of them are finite."""
    biases: Array


# -- what is rounding


def rms(values: Array) -> float:
    """Returns the root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))


def _rms_held(values: Array, held: NDArray[np.bool_]) -> Vector:
    """Returns the root of the mean square over points and probes, by entry, of what is held."""
    count = np.maximum(np.sum(held, axis=0) * values.shape[1], 1)
    return np.asarray(np.sqrt(np.sum(values**2 * held[:, None], axis=(0, 1)) / count))


def _huge(space: Space) -> Vector:
    """Returns from where on numbers are infinite in the dtype of each coordinate."""
    largest = [np.inf if leaf.double else leaf.huge for leaf in space.leaves]
    return space.by_leaf(largest)


def finite_deviation(low: Array, high: Array) -> tuple[Array, Array]:
    """Returns `(low - high, high)`, with zeros where either of the two is not finite."""
    holds = np.isfinite(low) & np.isfinite(high)
    high = np.where(holds, high, 0.0)
    return np.where(holds, low, 0.0) - high, high


def rounding_part(eps: float) -> float:
    """Returns the part of itself by which a number may differ between two sides at one point, where
    nothing is known of its conditioning.
    """
    return WRONG_FACTOR * DERIVATIVE_UNITS * eps / 2


def rounding_allowance(u: float, size: Vector, motion: Vector, space: Space) -> Vector:
    """Returns what rounding may amount to, by entry.

    It has three parts: `DERIVATIVE_UNITS` of the entry and a quarter of that of the typical entry
    beside it, through which it may have been computed; eight times the `motion` of the derivative
    between points within two units of rounding of each other, which is what conditioning makes of
    rounding; and the smallest number of the dtype, below which values are flushed. The factors are
    ours; they were chosen in the design study (docs/numerics.md).
    """
    typical = space.by_leaf([rms(size[p]) if p.stop > p.start else 0.0 for p in space.slices])
    tiny = space.by_leaf([leaf.tiny for leaf in space.leaves])
    return np.asarray(DERIVATIVE_UNITS * u * (size + typical / 4) + 8 * motion + tiny)


def relative_bias(e: Array, g: Array, space: Space) -> list[Vector]:
    """Returns the part of the derivative that the deviation is, `<e, g> / <g, g>`: for each point a
    vector by leaf.
    """
    by_leaf = [
        np.sum(e[:, part] * g[:, part], axis=1) / np.sum(g[:, part] ** 2, axis=1)
        for part in space.slices
    ]
    return list(np.nan_to_num(np.array(by_leaf), posinf=0.0, neginf=0.0).T)


def proportional(e: Array, g: Array, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the entries whose deviation is the same part of the derivative at all points.

    The deviations `e` and the derivatives `g` are by point, probe and entry; `held` says, by point
    and entry, which of them count.
    """
    whole = np.sum(g**2, axis=1)
    held = held & (whole > 0)
    # The part is fitted at each point over the probes there.
    part = np.sum(e * g, axis=1) / np.where(held, whole, 1.0)
    mean, scatter, count = _moments(np.where(held, part, 0.0), held)
    sure = np.abs(mean) > STANDARD_ERRORS * np.sqrt(scatter / np.maximum(count, 1))
    return np.asarray((count >= ENOUGH_POINTS) & sure)


def constant(e: Array, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the entries whose deviation is the same at all points, for each probe by itself."""
    held = held[:, None]
    mean, scatter, count = _moments(np.where(held, e, 0.0), held)
    sure = np.sum(mean**2, axis=0) > CONSTANT_RATIO * np.sum(scatter, axis=0)
    return np.asarray((count[0] >= ENOUGH_POINTS) & sure)


def _moments(values: Array, held: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Returns mean and variance over the points that are held, and the number of these."""
    count = np.asarray(np.sum(held, axis=0, dtype=np.float64))
    mean = np.sum(values, axis=0) / np.maximum(count, 1)
    scatter = np.sum(held * (values - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    return mean, scatter, count


def random_probes(
    problem: Problem, space: Space, letter: str, random: np.random.Generator, *, few: bool = False
) -> list[Vector]:
    """Returns random probes of one leaf of `space` each, or of all leaves together where there are
    many of them. With `few` no leaf has more than two.
    """
    leaves = [part for part in space.slices if part.stop > part.start]
    parts = leaves if len(leaves) <= FEW_LEAVES else [slice(0, space.size)]
    lengths = np.ones(space.size)
    # Powers of two keep a probe exact in every dtype.
    if letter == "F":
        scales = [scale(problem.origin[part]) for part in problem.X.slices]
        lengths = 2.0 ** np.round(np.log2(np.concatenate([*scales, np.zeros(0)])))
    found = []
    few = few or problem.X.size + space.size >= limits().many
    for part in parts * (2 if few else max(2, LEAF_PROBES // len(parts))):
        probe = np.zeros(space.size)
        probe[part] = random_entries(random, part.stop - part.start) * lengths[part]
        found.append(probe)
    return found

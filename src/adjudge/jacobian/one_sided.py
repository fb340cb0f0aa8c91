"""This module compares a rule at a kink with one-sided slopes along directions that tell more than
random ones.

A rule may choose any element of Clarke's generalised derivative at a kink. Let `w >= 0` be a
cotangent. For an output that is convex, or concave, around x, and for every tangent v, the product
`g . v` of each such element g lies between the slopes of that output to the left and to the right
of x. Between the sums of the smallest and of the largest of them lies the product of `w` with all.
Along random tangents that interval is as wide as the signs of v make it, and a `max` that gives its
gradient to all tied entries fits in. It is narrow along

- tangents that move equal entries of x equally: ties stay ties, both slopes are the same, and what
  the tied entries get has to add up;
- the row of reverse mode itself: an entry that claims more than it may weighs most there;
- the inverse of the row, along which all terms of a tie weigh the same, however large they are: a
  rule that gives its whole gradient to each of n ties is n times too large there;
- the tangent that separates the row from the rows of reverse mode at points beside x. There f is
  smooth, and its derivatives surround all that a rule may choose at x.

Other outputs (the median of three equal numbers, a smallest of largest ones) have elements outside
of their own slopes. They are told by secants beside x, which leave the interval. What these secants
are is the slope along v of the elements themselves, so that they give the interval where they take
a few values again and again; where they take many, the output is passed over.

An element that several choices make together (the median that is subtracted, and the median of what
is left) is met by hardly any random point. So before a value fails, points beside x are looked for
that make these choices one after the other: f is followed along single entries to where it rises
most in the sense of the value. What is found there are secants of f, whatever the rule says.

The unit tangents of full mode may all show the slopes that a rule claims where those of ties do not
add up (the same median, with no gradient for any of them). There a tangent that moves ties together
is compared as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CHANGED_SLOPES,
    CLIMB_HALVINGS,
    CLIMB_REACH,
    CLIMB_SECANTS,
    CLIMB_SPAN,
    CLIMB_SPREADS,
    CLIMBED_ENTRIES,
    CLIMBED_PART,
    CLOSE_TO_TIE,
    COARSE_EPS,
    FAR_OUT,
    FEW_SLOPES,
    KINKED_GROUPS,
    LASTING_UNITS,
    MOST_ONCE,
    NARROW_EPS,
    NARROW_ONE_SIDED,
    NEAREST_TIE,
    OFTEN_SEEN,
    ONE_SIDED,
    PARTS_OF_TIE,
    ROW_POWERS,
    SECANT_ERRORS,
    SECANT_REACH,
    SECANTS_BESIDE_KINK,
    SEEN_AGAIN,
    SELDOM_SEEN,
    SEPARATION,
    STRAIGHT_PART,
    TIES_BESIDE_KINK,
    USUAL_CONSTANT,
)
from adjudge.errors import attempt
from adjudge.estimate import Differences, Slopes, half_gaps, towards_tie
from adjudge.findings import Entry, Method, Scheme, along_random
from adjudge.floats import Vector
from adjudge.jacobian.comparison import Tally
from adjudge.jacobian.table import Table
from adjudge.problem import (
    DOUBLE,
    Purpose,
    Reverse,
    Stream,
    evaluate,
    generator,
    random_entries,
)

EVALUATIONS = 4
"""The evaluations for the slopes along one tangent."""
RESIDUAL = 1e-12
"""Weights and gradients of least squares below this are rounding."""
MOST_SEPARATED = 2**16
"""The most entries of x of which all rows beside x are kept."""
MOST_COUNTED = 2**10
"""The values of secants are counted for as many outputs, all of whose secants are kept."""


def compare_one_sided(table: Table) -> None:
    """Compares once more, in every mode in which a kink excuses an automatic value, and in full
    mode where equal entries of x do not add up. What lies outside of the generalised derivative
    becomes a failure of its tally.

    It takes a few dozen evaluations and no more than `KINKED_GROUPS + 1` pullbacks and four for
    each of `TIES_BESIDE_KINK` entries, whatever the size, or two evaluations where nothing is seen.
    """
    problem, base = table.problem, table.base
    modes = [one for one in table.tallies.values() if one.mode in ("R", "F") and not one.failed]
    excused = [tally for tally in modes if tally.kinks]
    # Values that are rounded inside stand on steps beside x, and a reference may have been given
    # because differences say nothing.
    smooth = table.carried_dtype is None and isinstance(table.estimator, Differences)
    full = table.probes.full and smooth and bool(modes)
    ties = full and np.unique(problem.origin).size < problem.X.size
    plain = not problem.modes_taken and problem.finite
    if not (excused or ties) or not plain or base.coarsest_eps > COARSE_EPS:
        return
    if not np.all(np.isfinite(base.values)):
        return
    search = _Search(table)
    if not excused and search.ties_disagree():
        excused = modes
    if not excused:
        return
    search.begin()
    for tally in excused:
        entry = search.reverse(tally) if tally.mode == "R" else search.forward(tally)
        if entry is not None:
            tally.failed += 1
            tally.keep(tally.wrong, entry)
            # The entries that were excused are a part of what is wrong.
            tally.kinks = 0
            tally.open[:] = [one for one in tally.open if one.slopes is None]


@dataclass(frozen=True)
class _Along:
    """The slopes of every output along one tangent, and between which numbers a value may lie."""

    tangent: Vector
    slopes: Slopes
    error: Vector
    """What a value may lie outside of them; infinite where f has no slopes."""

    @property
    def least(self) -> Vector:
        """The smaller one of the two slopes of each output."""
        return np.asarray(self.slopes.mean - np.abs(self.slopes.half_gap))

    @property
    def most(self) -> Vector:
        """The larger one of the two slopes of each output."""
        return np.asarray(self.slopes.mean + np.abs(self.slopes.half_gap))

    @property
    def kinks(self) -> NDArray[np.bool_]:
        """The outputs with a kink along this tangent."""
        return self.slopes.kinks & np.isfinite(self.error)


def _few(secants: Vector, error: Vector) -> tuple[NDArray[np.bool_], Vector]:
    """Marks the outputs whose secants take few values again and again, the least and the greatest
    of them often; and returns the part of their secants whose values are not found again.
    """
    ordered = np.sort(secants, axis=0)
    few, once = np.zeros(error.size, bool), np.zeros(error.size)
    for k in range(error.size):
        starts = np.flatnonzero(np.diff(ordered[:, k], prepend=-np.inf) > error[k])
        sizes = np.diff(starts, append=len(ordered))
        again = sizes >= SEEN_AGAIN
        often = min(sizes[0], sizes[-1]) >= OFTEN_SEEN * len(ordered)
        few[k] = bool(often and np.count_nonzero(again) <= FEW_SLOPES)
        once[k] = sizes[~again].sum() / len(ordered)
    return few & (once <= SELDOM_SEEN), once


@dataclass
class _Search:
    """The comparisons of one table at a kink."""

    table: Table
    along: list[_Along] = field(default_factory=list)
    """The slopes along the tangents that do not depend on a rule."""
    kinked: list[int] = field(default_factory=list)
    """The outputs with a kink and a slope to each side of it."""

    def __post_init__(self) -> None:
        """Takes what all comparisons share."""
        table = self.table
        self.problem, self.base = table.problem, table.base
        self.count = self.base.Y.size
        self.random = generator(table.probes.seed, Stream.KINK_TANGENTS)
        narrow = self.base.coarsest_eps > NARROW_EPS
        self.step, self.relative = NARROW_ONE_SIDED if narrow else ONE_SIDED
        self.close = CLOSE_TO_TIE[:1] if narrow else CLOSE_TO_TIE
        self.relative = max(self.relative, table.tolerance.relative)
        self.lengths = self._lengths()
        self.tangents = list(self._level_tangents())
        self.suspects = np.zeros(self.count, bool)
        if table.record.bent is not None:
            self.suspects |= table.record.bent

    def ties_disagree(self) -> bool:
        """Returns whether the entries of an output do not add up to its slope along a tangent that
        moves equal entries of x equally. Costs two evaluations.
        """
        table, h, v = self.table, self.step, self.tangents[1]
        if not table.budget.allows(2) or self.problem.longest_step(v) < h:
            return False
        ahead, behind = self._at(h * v), self._at(-h * v)
        if ahead is None or behind is None:
            return False
        slope = (ahead - behind) / (2 * h)
        unit = self._rounding(ahead, behind) / h
        for automatic in self._images(v):
            error = LASTING_UNITS * unit + self.relative * np.fmax(np.abs(slope), np.abs(automatic))
            self.suspects |= np.abs(slope - automatic) > error
        return bool(np.any(self.suspects))

    def _images(self, v: Vector) -> Iterator[Vector]:
        """Yields the image of a tangent by each mode, as far as it is at hand."""
        table = self.table
        if table.rows is not None:
            yield table.rows @ v
        if table.forward is not None:
            yield table.forward.column(self.base, v)[1]

    def begin(self) -> None:
        """Takes the slopes that all modes share."""
        known, kinks = np.ones(self.count, bool), self.suspects
        # The last one is random, and only shows where other kinks are.
        anything = random_entries(self.random, self.lengths.size) * self.lengths
        for tangent in (*self.tangents, anything):
            slopes = self._slopes(tangent)
            if slopes is None:
                continue
            known &= np.isfinite(slopes.error)
            kinks |= slopes.kinks
            if tangent is not anything:
                self.along.append(slopes)
        self.kinked += np.flatnonzero(known & kinks).tolist()

    def _lengths(self) -> Vector:
        """Returns the scale of every coordinate, the same one for all that are equal."""
        _, which = np.unique(self.problem.origin, return_inverse=True)
        least = np.full(which.max(initial=-1) + 1, np.inf)
        np.minimum.at(least, which, self.problem.length_scales)
        return np.asarray(least[which])

    def _level_tangents(self) -> Iterator[Vector]:
        """Yields tangents that move equal coordinates, or those of equal magnitude, equally. The
        last one leaves zeros where they are.
        """
        x, lengths = self.problem.origin, self.lengths
        yield lengths
        magnitudes, which = np.unique(np.abs(x), return_inverse=True)
        weights = np.abs(random_entries(self.random, magnitudes.size))[which]
        yield weights * lengths
        if np.any(x <= 0) and np.any(x):
            yield np.sign(x) * weights * lengths

    def _at(self, move: Vector) -> Vector | None:
        """Returns the outputs where x is moved, by difference to those at x."""
        problem, base = self.problem, self.base
        point = problem.clipped(problem.origin + move)
        values = attempt(lambda: evaluate(problem, base, point, Purpose.KINK))
        if values is None:
            return None
        return np.asarray(values - base.values)[: self.count]

    def _slopes(self, tangent: Vector) -> _Along | None:
        """Returns the slopes along a tangent; `None` where f, or the budget, has no room for it."""
        h = self.step
        if not self.table.budget.allows(EVALUATIONS + 1):
            return None
        if self.problem.longest_step(tangent) < h:
            return None
        steps, sides = (h, h / 2), []
        for sign in (-1.0, 1.0):
            moves = [self._at(sign * step * tangent) for step in steps]
            if any(move is None for move in moves):
                return None
            sides.append(np.array(moves) / (sign * np.array(steps)[:, None]))
        left, right = sides
        bends = (right - left) / 2
        unit = self._rounding(*left, *right) / steps[-1]
        half_gap = half_gaps(bends, steps, unit)
        half_gap = np.zeros(self.count) if half_gap is None else half_gap
        # Both slopes are extrapolated to a step of zero.
        ends = 2 * left[1] - left[0], 2 * right[1] - right[0]
        half_gap = np.where(half_gap != 0, (ends[1] - ends[0]) / 2, 0.0)
        change = np.fmax(np.abs(left[1] - left[0]), np.abs(right[1] - right[0]))
        size, rounding = np.fmax(*np.abs(ends)), LASTING_UNITS * unit
        error = CHANGED_SLOPES * change + rounding + self.relative * size
        known = (change <= STRAIGHT_PART * size + rounding) & np.isfinite(error)
        # A gap that does not last is of a kink beside x, and the slopes at x are not known.
        known &= (half_gap != 0) | (np.abs(bends[-1]) <= error)
        slopes = Slopes((ends[0] + ends[1]) / 2, half_gap)
        return _Along(tangent, slopes, np.where(known, error, np.inf))

    def _rounding(self, *moves: Vector) -> Vector:
        """Returns the rounding of each output, by its magnitude. One that is zero and stays so over
        all of these moves may be what is left of numbers of a `USUAL_CONSTANT`, as `log(1 + x)` is
        at 1e-17: their right derivatives would fail beside the slope zero of a value without any
        rounding.
        """
        values = self.base.values[: self.count]
        magnitude = self.base.magnitude(self.base.values)[: self.count]
        still = (values == 0) & ~np.any(moves, axis=0)
        return self.base.coarsest_eps * np.where(still, USUAL_CONSTANT, magnitude) + self.base.noise

    def _beyond(
        self, slopes: _Along, w: Vector, automatic: float, row: Vector | None = None
    ) -> tuple[float, ...] | None:
        """Returns the least and the most that `w` allows and the error of both, where the automatic
        value lies outside of them, as secants beside x confirm; `None` where it lies within, or
        cannot be judged.

        These are the slopes at x where all secants stay within them, and the output bends to one
        side about x, as one does that is convex or concave. They are as wide as the secants where
        these take few values, the least and the greatest of them several times. Some of the secants
        lie where the `row` of reverse mode is that of f, if it is that of f anywhere.
        """
        seen = w != 0
        w, size = w[seen], int(np.count_nonzero(seen))
        least, most, error = slopes.least[seen], slopes.most[seen], slopes.error[seen]
        # What secants may leave the slopes by unseen, a value may as well.
        error = SECANT_ERRORS * error
        off = float(w @ error) + self._atol(slopes.tangent, w) + self.relative * abs(automatic)
        if not np.isfinite(off) or not np.isfinite(automatic):
            return None

        def outside(least: Vector, most: Vector) -> bool:
            return not float(w @ least) - off <= automatic <= float(w @ most) + off

        if not outside(least, most):
            return None
        secants, middle = [], np.zeros(size)
        lowest, highest = least, most
        up, down, inside = np.zeros(size, bool), np.zeros(size, bool), np.ones(size, bool)
        # Long secants cross all kinks beside x, and short ones show the slopes between two of them.
        long, short = SECANTS_BESIDE_KINK
        for k, (secant, bend) in enumerate(self._secants(slopes.tangent, seen, row)):
            inside &= (secant >= least - error) & (secant <= most + error)
            # The four points of two opposite secants have x in their midst.
            middle = middle + bend if k % 2 else bend
            if k % 2:
                up, down = up | (middle > error), down | (middle < -error)
            inside &= ~(up & down)
            if size > MOST_COUNTED and not inside.all():
                return None
            if k < long:
                continue
            secants += [secant[:MOST_COUNTED]]
            lowest, highest = np.fmin(lowest, secant), np.fmax(highest, secant)
            lower, upper = np.where(inside, least, lowest), np.where(inside, most, highest)
            if not outside(lower, upper):
                return None
        if len(secants) < short:
            return None

        def edges() -> tuple[float, float]:
            return float(w @ lower), float(w @ upper)

        if not inside.all():
            errors = np.fmax(error, self.relative * np.max(np.abs([lower, upper]), axis=0))
            few, once = _few(np.array(secants), errors)
            low, high = edges()
            gap = max(low - automatic, automatic - high) - off
            far = gap / (high - low) if high > low else np.inf
            met = (far > FAR_OUT) & (once <= min(MOST_ONCE, far * SELDOM_SEEN))
            if not np.all(inside | few | met):
                return None
        # Along a tangent that moves ties together all elements usually have one slope, which the
        # secants have told.
        if any(slopes is one for one in self.along) and not np.any(highest - lowest > error):
            return *edges(), off
        side = 1 if automatic > edges()[1] else 0
        towards, grown = (w if side else -w), np.inf
        while grown > CLIMBED_PART * abs(automatic - edges()[side]):
            before = edges()[side]
            for secant in self._climbs(slopes.tangent, seen, towards, row):
                inside &= (secant >= least - error) & (secant <= most + error)
                lowest, highest = np.fmin(lowest, secant), np.fmax(highest, secant)
                lower, upper = np.where(inside, least, lowest), np.where(inside, most, highest)
                if not outside(lower, upper):
                    return None
            grown = abs(edges()[side] - before)
        return *edges(), off

    def _secants(
        self, tangent: Vector, seen: NDArray[np.bool_], row: Vector | None
    ) -> Iterator[tuple[Vector, Vector]]:
        """Yields the secants of the outputs `seen` beside x, and how far the midst of each is from
        x. Each second one is at a point opposite to that of the first, on the opposite side of
        every kink.

        Every other pair is where x moves along a `row` and against it, or to one side without one,
        and what the row is largest in moves least (`towards_tie`). The largest of eight numbers
        that are cut off at zero has another slope than zero only where all eight are negative,
        which one random point in 256 is, and the slope along an entry only where that entry is the
        largest of them. So in turn the entry that says most along the tangent moves by less or by
        more than the others, and the secant stays between the kinks that meet at x.
        """
        (long, short), (far, near) = SECANTS_BESIDE_KINK, SECANT_REACH
        h, beside = self.step, np.zeros_like(tangent)
        ties, said, most = [], np.zeros(0), 0
        if row is not None:
            ties = [towards_tie(self.lengths, row, nearest) for nearest in self.close]
            said = np.abs(row * tangent)
            most = int(np.argmax(said))
        # What sorts leaves ties in the order of their index, which hardly any random point has.
        size = self.lengths.size
        orders = np.arange(1, size + 1) / size, np.linspace(-1, 1, size)
        for k in range(long + short):
            if not self.table.budget.allows(2):
                return
            if k % 2:
                beside = -beside
            else:
                reach = (far if k < long else near) * h
                beside = h * self.random.normal(size=beside.size)
                if k % 4 and ties:
                    moves, level = ties[k // 4 % len(ties)]
                    beside = np.abs(beside) * moves
                    beside[most] *= PARTS_OF_TIE[k // 8 % len(PARTS_OF_TIE)]
                    reach *= 1 if k < long else level / max(said[most], level)
                else:
                    if k >= long and (k - long) // 4 < len(orders):
                        beside = h * orders[(k - long) // 4]
                    beside *= self.lengths
            ahead = self._at(beside + reach * tangent)
            behind = self._at(beside - reach * tangent)
            if ahead is None or behind is None:
                return
            ahead, behind = ahead[seen], behind[seen]
            yield (ahead - behind) / (2 * reach), (ahead + behind) / h

    def _climbs(
        self, tangent: Vector, seen: NDArray[np.bool_], towards: Vector, row: Vector | None
    ) -> Iterator[Vector]:
        """Yields secants of the outputs `seen` at points beside x that are sought: where the
        product of `towards` and the secants is large.

        What f chooses by one entry (the median of ties), and what it chooses by another (the
        median of what is left once that is subtracted) are each met by one random point in a few,
        and both together by one in the product of these numbers. A climb makes one choice after the
        other. From a random point it moves one entry at a time, of those that say most along the
        tangent, to where f changes most by it, and stays there unless the secant falls. It begins
        anew where none of the entries makes the secant rise.
        """
        values, which = np.unique(self.problem.origin, return_inverse=True)
        reach = CLIMB_REACH * self.step / float(np.max(np.abs(tangent) / self.lengths))
        said = np.abs(tangent if row is None else row * tangent)
        entries = np.argsort(-said, kind="stable")[:CLIMBED_ENTRIES]
        entries, left = entries[said[entries] > 0], CLIMB_SECANTS
        while left > 0 and entries.size:
            # Ties that are spread less than others leave the order of these as it is.
            spread = 2.0 ** -self.random.integers(0, CLIMB_SPREADS, values.size)[which]
            spread *= self.step * self.lengths
            beside = self.random.normal(size=spread.size) * spread
            height = before = -np.inf
            while left > 0:
                for j in self.random.permutation(entries):
                    if not self.table.budget.allows(CLIMB_HALVINGS + EVALUATIONS):
                        return
                    toward = np.sign(tangent[j]) * towards
                    there = self._steepest(beside, int(j), CLIMB_SPAN * spread[j], seen, toward)
                    ahead = None if there is None else self._at(there + reach * tangent)
                    behind = None if there is None else self._at(there - reach * tangent)
                    if there is None or ahead is None or behind is None:
                        return
                    secant = (ahead - behind)[seen] / (2 * reach)
                    yield secant
                    left -= 1
                    if float(towards @ secant) >= height:
                        beside, height = there, float(towards @ secant)
                if height - before <= self.relative * abs(height):
                    break
                before = height

    def _steepest(
        self, beside: Vector, j: int, span: float, seen: NDArray[np.bool_], towards: Vector
    ) -> Vector | None:
        """Returns the point at which entry j of `beside` is where the outputs `seen`, times
        `towards`, rise most along that entry, within `span` of zero; `None` where f is not defined.

        Of two halves of an interval the steeper one is at least as steep as the whole.
        """

        def moved(to: float) -> Vector:
            there = beside.copy()
            there[j] = to
            return there

        def height(to: float) -> float:
            values = self._at(moved(to))
            return np.nan if values is None else float(towards @ values[seen])

        ends = (-span, span)
        low, high = height(ends[0]), height(ends[1])
        for _ in range(CLIMB_HALVINGS):
            middle = (ends[0] + ends[1]) / 2
            between = height(middle)
            if between - low > high - between:
                ends, high = (ends[0], middle), between
            else:
                ends, low = (middle, ends[1]), between
        return moved(sum(ends) / 2) if np.isfinite(low + high) else None

    def _atol(self, tangent: Vector, w: Vector) -> float:
        """Returns the `atol` of the caller for this comparison."""
        return (self.table.tolerance.atol or 0.0) * float(
            np.linalg.norm(tangent) * np.linalg.norm(w)
        )

    def _entry(self, mode: str, w: Vector, automatic: float, bounds: tuple[float, ...]) -> Entry:
        """Returns what failed, for the report."""
        base, least, most, error = self.base, *bounds
        of = np.flatnonzero(w)
        names = base.Y.names(sorted({base.Y.leaf_of(int(k)) for k in of}))
        return Entry(
            mode,
            base.Y.entry(int(of[0])) if of.size == 1 else names,
            along_random(self.problem.X.names(range(len(self.problem.X.leaves)))),
            automatic,
            least if automatic < least else most,
            error,
            error,
            Method(Scheme.ONE_SIDED_LADDER, EVALUATIONS),
            (least, most),
            projected=True,
        )

    # -- the modes

    def forward(self, tally: Tally) -> Entry | None:
        """Compares every output by itself along the shared tangents."""
        forward = self.table.forward
        assert forward is not None  # there is a tally of it
        for slopes in self.along:
            if not self.table.budget.allows(2):
                return None
            pushed = forward.column(self.base, slopes.tangent)[1]
            entry = self._first_beyond(tally.mode, slopes, pushed)
            if entry is not None:
                return entry
        return None

    def _first_beyond(self, mode: str, slopes: _Along, values: Vector) -> Entry | None:
        """Returns the output that lies farthest outside of its own slopes, where one does."""
        off = np.fmax(slopes.least - values, values - slopes.most)
        error = slopes.error + self.relative * np.abs(values)
        ratio = np.where(np.isfinite(error) & (error > 0), off / error, 0.0)
        for k in np.argsort(-ratio)[:KINKED_GROUPS]:
            w = np.zeros(self.count)
            w[k] = 1.0
            bounds = self._beyond(slopes, w, float(values[k]))
            if bounds is not None:
                return self._entry(mode, w, float(values[k]), bounds)
        return None

    def reverse(self, tally: Tally) -> Entry | None:
        """Compares all outputs with a kink together, then groups of them or each by itself, along
        the shared tangents and along the row that reverse mode gives.
        """
        reverse, budget = self.table.reverse, self.table.budget
        assert reverse is not None  # there is a tally of it
        for k, w in enumerate(self._cotangents()):
            if not budget.allows(2):
                return None
            row = reverse.row(self.base, w)
            followed = row if np.any(row) and np.all(np.isfinite(row)) else None
            more = [] if followed is None else [self._along_row(row)]
            if more and k == 0:
                more.append(self._apart(row, w))
            for slopes in itertools.chain(self.along, *more):
                automatic = float(row @ slopes.tangent)
                bounds = self._beyond(slopes, w, automatic, followed)
                if bounds is not None:
                    return self._entry(tally.mode, w, automatic, bounds)
        return None

    def _cotangents(self) -> Iterator[Vector]:
        """Yields cotangents without negative entries, over the outputs with a kink."""
        outputs = np.array(self.kinked, int)
        groups = [outputs] if outputs.size else []
        if outputs.size > 1:
            groups += np.array_split(outputs, min(outputs.size, KINKED_GROUPS))
        for group in groups:
            w = np.zeros(self.count)
            w[group] = 1.0
            yield w

    def _along_row(self, row: Vector) -> Iterator[_Along]:
        """Yields the slopes along the row itself, along its largest entries, and where its entries
        differ along its inverse.
        """
        parts = row * self.lengths
        parts = parts / np.max(np.abs(parts))
        tangents = [np.sign(parts) * np.abs(parts) ** power * self.lengths for power in ROW_POWERS]
        if np.unique(np.abs(parts[parts != 0])).size > 1:
            tangents.append(np.where(row == 0, 0.0, towards_tie(self.lengths, row, NEAREST_TIE)[0]))
        for tangent in tangents:
            slopes = self._slopes(tangent)
            if slopes is not None:
                yield slopes

    def _apart(self, row: Vector, w: Vector) -> Iterator[_Along]:
        """Yields the slopes along the tangent that separates the row from the rows of reverse mode
        at points beside x, where they do not surround it.
        """
        if row.size > MOST_SEPARATED:
            return
        moves, _ = towards_tie(self.lengths, row, self.close[-1])
        scales, rows = np.abs(moves), []
        largest = np.argsort(-np.abs(row * scales), kind="stable")[:TIES_BESIDE_KINK]
        for k, part, side in itertools.product(largest, PARTS_OF_TIE[1:], (1.0, -1.0)):
            if not self.table.budget.allows(1):
                return
            move = side * self.step * (1 + self.random.random(row.size)) / 2 * moves
            move[k] *= part
            reverse = Reverse(self.problem, self.problem.clipped(self.problem.origin + move))
            there = attempt(partial(reverse.row, self.base, w))
            if there is None or not np.all(np.isfinite(there)):
                return
            rows.append(there * scales)
        here, beside = row * scales, np.array(rows)
        size = float(np.max(np.abs(here)))
        # what is left of the row beside those has no digit, as where a kernel reads other memory
        if not size > DOUBLE * float(np.max(np.abs(beside))):
            return
        apart = separating((here - beside) / size)
        if apart is None:
            return
        slopes = self._slopes(apart / np.max(np.abs(apart)) * scales)
        if slopes is not None:
            yield slopes


def separating(rows: Vector) -> Vector | None:
    """Returns the shortest vector whose products with all rows are at least 1; `None` without one.

    This is least distance programming (Lawson and Hanson, Solving Least Squares Problems, 1974,
    chapter 23): the residual of a least squares problem with weights that are not negative.
    """
    matrix = np.concatenate([rows.T, np.ones((1, len(rows)))])
    target = np.eye(1, len(matrix), len(matrix) - 1)[0]
    residual = matrix @ _nonnegative(matrix, target) - target
    if not residual[-1] < -(SEPARATION**2):
        return None
    return np.asarray(-residual[:-1] / residual[-1])


def _nonnegative(matrix: Vector, target: Vector) -> Vector:
    """Returns the weights without a negative one for which `matrix @ weights` is closest to
    `target`, by the method of active sets (Lawson and Hanson, chapter 23).
    """
    count = matrix.shape[1]
    weights, free = np.zeros(count), np.zeros(count, bool)
    for _ in range(3 * count):
        gradient = matrix.T @ (target - matrix @ weights)
        gradient[free] = 0
        if np.max(gradient, initial=0.0) <= RESIDUAL:
            break
        free[np.argmax(gradient)] = True
        while True:
            best = np.zeros(count)
            best[free] = np.linalg.lstsq(matrix[:, free], target)[0]
            if np.all(best[free] > 0):
                weights = best
                break
            falls = free & (best <= 0)
            part = np.min(weights[falls] / (weights - best)[falls])
            weights = np.where(free, weights + part * (best - weights), 0.0)
            free &= weights > RESIDUAL
            weights[~free] = 0.0
            if not free.any():
                break
    return weights

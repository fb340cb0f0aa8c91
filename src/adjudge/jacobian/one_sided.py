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
- the row of reverse mode itself: an entry that claims more than it may weighs most there.

Other outputs (the median of three equal numbers) have elements outside of their own slopes. They
are told by secants beside x, which leave the interval, and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CHANGED_SLOPES,
    COARSE_EPS,
    KINKED_GROUPS,
    LASTING_UNITS,
    NARROW_EPS,
    NARROW_ONE_SIDED,
    ONE_SIDED,
    ROW_POWERS,
    SECANT_ERRORS,
    SECANT_REACH,
    SECANTS_BESIDE_KINK,
    STRAIGHT_PART,
)
from adjudge.errors import attempt
from adjudge.estimate import Slopes, half_gaps
from adjudge.findings import Entry, Method, Scheme, along_random
from adjudge.floats import Vector
from adjudge.jacobian.comparison import Tally
from adjudge.jacobian.table import Table
from adjudge.problem import Purpose, Stream, evaluate, generator, random_entries

EVALUATIONS = 4
"""The evaluations for the slopes along one tangent."""


def compare_one_sided(table: Table) -> None:
    """Compares once more, in every mode in which a kink excuses an automatic value. What lies
    outside of the generalised derivative becomes a failure of its tally.

    It takes a few dozen evaluations and no more than `KINKED_GROUPS + 1` pullbacks, whatever the
    size.
    """
    problem, base = table.problem, table.base
    excused = [tally for tally in table.tallies.values() if tally.kinks and not tally.failed]
    plain = not problem.modes_taken and problem.block_sums is None and problem.finite
    if not excused or not plain or base.coarsest_eps > COARSE_EPS:
        return
    if not np.all(np.isfinite(base.values)):
        return
    search = _Search(table)
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


@dataclass
class _Search:
    """The comparisons of one table at a kink."""

    table: Table
    along: list[_Along] = field(default_factory=list)
    """The slopes along the tangents that do not depend on a rule."""
    kinked: list[int] = field(default_factory=list)
    """The outputs with a kink and a slope to each side of it."""

    def __post_init__(self) -> None:
        """Takes the slopes that all modes share."""
        table = self.table
        self.problem, self.base = table.problem, table.base
        self.count = self.base.Y.size
        self.random = generator(table.probes.seed, Stream.KINK_TANGENTS)
        narrow = self.base.coarsest_eps > NARROW_EPS
        self.step, self.relative = NARROW_ONE_SIDED if narrow else ONE_SIDED
        self.relative = max(self.relative, table.tolerance.relative)
        self.lengths = self._lengths()
        known, kinks = np.ones(self.count, bool), np.zeros(self.count, bool)
        if table.record.bent is not None:
            kinks |= table.record.bent
        # The last one is random, and only shows where other kinks are.
        anything = random_entries(self.random, self.lengths.size) * self.lengths
        tangents = [*self._level_tangents(), anything]
        for tangent in tangents:
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
        """Yields tangents that move equal coordinates, or those of equal magnitude, equally."""
        x, lengths = self.problem.origin, self.lengths
        yield lengths
        magnitudes, which = np.unique(np.abs(x), return_inverse=True)
        weights = np.abs(random_entries(self.random, magnitudes.size))[which]
        yield weights * lengths
        if np.any(x < 0):
            yield np.where(x < 0, -1.0, 1.0) * weights * lengths

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
        unit = self.base.coarsest_eps * self._magnitude + self.base.noise
        unit = unit / steps[-1]
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

    @property
    def _magnitude(self) -> Vector:
        """The magnitude that the rounding of each output is relative to."""
        return self.base.magnitude(self.base.values)[: self.count]

    def _regular(self, slopes: _Along, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks those of the outputs `seen` whose secants beside x stay within the slopes at x, and
        which bend to one side about x, as those of a convex or concave output do.
        """
        regular, h, x = seen & np.isfinite(slopes.error), self.step, self.problem.origin
        beside, bends = np.zeros_like(x), []
        up, down = np.zeros(self.count, bool), np.zeros(self.count, bool)
        # Long secants cross all kinks beside x, and short ones show the slopes between two of them.
        # Opposite points lie on opposite sides of every kink.
        (long, short), (far, near) = SECANTS_BESIDE_KINK, SECANT_REACH
        for k, reach in enumerate((far * h,) * long + (near * h,) * short):
            if not np.any(regular) or not self.table.budget.allows(2):
                return np.zeros(self.count, bool)
            beside = -beside if k % 2 else h * self.random.normal(size=x.size) * self.lengths
            ahead = self._at(beside + reach * slopes.tangent)
            behind = self._at(beside - reach * slopes.tangent)
            if ahead is None or behind is None:
                return np.zeros(self.count, bool)
            secant, error = (ahead - behind) / (2 * reach), SECANT_ERRORS * slopes.error
            inside = (secant >= slopes.least - error) & (secant <= slopes.most + error)
            bends.append((ahead + behind) / h)
            # The four points of two opposite secants have x in their midst.
            bent = bends[-1] + bends[-2] if k % 2 else np.zeros(self.count)
            up, down = up | (bent > error), down | (bent < -error)
            regular &= inside & ~(up & down)
        return regular

    def _beyond(self, slopes: _Along, w: Vector, automatic: float) -> tuple[float, ...] | None:
        """Returns the least and the most that `w` allows and the error of both, where the automatic
        value lies outside of them; `None` where it lies within, or cannot be judged.
        """
        seen = w != 0
        least, most = float(w[seen] @ slopes.least[seen]), float(w[seen] @ slopes.most[seen])
        error = float(w[seen] @ slopes.error[seen]) + self._atol(slopes.tangent, w)
        error += self.relative * abs(automatic)
        if not np.isfinite(error) or not np.isfinite(automatic):
            return None
        if least - error <= automatic <= most + error:
            return None
        return (least, most, error) if self._regular(slopes, seen)[seen].all() else None

    def _atol(self, tangent: Vector, w: Vector) -> float:
        """Returns the `atol` of the caller for this comparison."""
        return (self.table.tolerance.atol or 0.0) * float(
            np.linalg.norm(tangent) * np.linalg.norm(w)
        )

    def _entry(self, mode: str, w: Vector, automatic: float, bounds: tuple[float, ...]) -> Entry:
        """Returns what failed, for the report."""
        base, least, most, error = self.base, *bounds
        of = np.flatnonzero(w)
        names = base.Y.names(sorted({int(base.Y.owner[k]) for k in of}))
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
        if forward is None:
            return None
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
        error = slopes.error + self.relative * np.abs(values)
        off = np.fmax(slopes.least - values, values - slopes.most)
        ratio = np.where(np.isfinite(error) & (error > 0), off / error, 0.0)
        if not np.any(ratio > 1):
            return None
        ratio = np.where(self._regular(slopes, ratio > 1), ratio, 0.0)
        k = int(np.argmax(ratio))
        if not ratio[k] > 1:
            return None
        w = np.zeros(self.count)
        w[k] = 1.0
        # The confirmation is shared, so the bounds are those of the slopes themselves.
        bounds = float(slopes.least[k]), float(slopes.most[k]), float(error[k])
        return self._entry(mode, w, float(values[k]), bounds)

    def reverse(self, tally: Tally) -> Entry | None:
        """Compares all outputs with a kink together, then groups of them or each by itself, along
        the shared tangents and along the row that reverse mode gives.
        """
        reverse, budget = self.table.reverse, self.table.budget
        if reverse is None:
            return None
        for w in self._cotangents():
            if not budget.allows(2):
                return None
            row = reverse.row(self.base, w)
            for slopes in (*self.along, *self._along_row(row)):
                automatic = float(row @ slopes.tangent)
                bounds = self._beyond(slopes, w, automatic)
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
        """Yields the slopes along the row itself, and along its largest entries."""
        if not np.all(np.isfinite(row)) or not np.any(row):
            return
        parts = row * self.lengths
        parts = parts / np.max(np.abs(parts))
        for power in ROW_POWERS:
            slopes = self._slopes(np.sign(parts) * np.abs(parts) ** power * self.lengths)
            if slopes is not None:
                yield slopes

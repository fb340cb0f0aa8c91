"""This module compares a derivative of low precision with that of the same function in double
precision.

Both are taken at the same points and for the same probes, so no differences are involved. Rounding
puts them apart by some units, by more where the function is ill-conditioned, and at every point by
another amount. What stays the same for all points and probes is an error of the rule in the narrow
dtype. The method is ours; docs/numerics.md has its measured rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    ALIKE_ENTRIES,
    ALIKE_POINTS,
    ALIKE_UNITS,
    BIAS_DRIFTS,
    COARSE_EPS,
    DERIVATIVE_UNITS,
    ENOUGH_SIDES,
    EXPLAINED_PART,
    FAR_DISTANCES,
    FEW_SIDES,
    INSIDE_FACTOR,
    LOST_MAGNITUDES,
    LOST_PART,
    LOST_SIZE,
    NARROW_BIAS_UNITS,
    NEAR_DISTANCES,
    ONE_SIDE,
    OTHER_VALUE_FACTOR,
    RULE_FACTOR,
    RULE_UNITS,
    SIDE_DISTANCE,
    SIDE_POINTS,
    SIDED_FACTOR,
    SINGLE_BIAS_UNITS,
    SMALL_NARROW_PROBES,
    STANDARD_ERRORS,
    SURE_SIDE,
    WRONG_FACTOR,
    ZERO_MOVES,
    ZERO_UNITS,
)
from adjudge.errors import attempt
from adjudge.findings import (
    Finding,
    NarrowInaccurate,
    NarrowWrong,
    Refusal,
    Remedy,
    Status,
    ValueInaccurate,
    Verdict,
    along_random,
    entry_name,
)
from adjudge.floats import EPS, Vector, norm, of_short_range
from adjudge.jacobian import (
    Array,
    DerivativeAtPoints,
    Deviation,
    Evaluator,
    Sides,
    ValueAtPoints,
    apart_between,
    deviation_of_values,
    finite_deviation,
    perturbed,
    points_around,
    points_within_rounding,
    random_probes,
    relative_bias,
    representable_within_bounds,
    rms,
    scatter,
)
from adjudge.problem import Space, Stream, generator, random_entries
from adjudge.properties.replayed import Replayed, ReplayedAtPoints, rounding_of


@dataclass(frozen=True)
class LowPrecisionResult:
    """The outcome of the comparison in one mode."""

    mode: str
    dtype: str = ""
    entry: str = ""
    """The entry to be named, where there is anything to say."""
    low: float = 0.0
    high: float = 0.0
    ulps: float = 0.0
    wrong: bool = False
    """Says whether the low-precision derivative deviates by what is no rounding."""
    factor: float = 1.0
    """The factor that all entries are multiplied by, where that is what is wrong."""
    value: ValueInaccurate | None = None
    """The inaccuracy of the value of f, where there is one."""
    apart: float = np.inf
    """The largest part of an entry by which the two are apart."""
    replayed: bool = False
    """Whether the other side was replayed exactly, and did not run in double."""
    different: Refusal | None = None
    """The reason why the function in double precision is another one."""

    @property
    def _numbers(self) -> tuple[str, float, float, float, bool]:
        return self.dtype, self.low, self.high, self.ulps, self.replayed

    def findings(self, formula: Verdict) -> list[Finding]:
        """Returns a failure, a note, or nothing. Beside an undecided formula a failure
        stays open.
        """
        found, right = [], formula is Verdict.PASS
        if self.entry and self.wrong:
            detail = NarrowWrong(*self._numbers, self.factor, right)
            undecided = formula is Verdict.INCONCLUSIVE
            found.append(
                Finding(
                    Status.MISMATCH, self.mode, self.entry, detail, Remedy.MEND_NARROW_DTYPE,
                    open=undecided,
                )
            )  # fmt: skip
        elif self.entry:
            inaccurate = NarrowInaccurate(*self._numbers, right)
            found.append(Finding(Status.INACCURATE, self.mode, self.entry, inaccurate, note=True))
        if self.value is not None:
            found.append(Finding(Status.INACCURATE, self.mode[1:], "", self.value, note=True))
        return found


def compare_low_precision(
    low: Evaluator, high: Evaluator | Replayed, letter: str, seed: int, *, many: bool = True
) -> LowPrecisionResult:
    """Compares the derivative of `low` in the mode `letter` with that of `high`, the same in
    double or in exact arithmetic: in exact arithmetic also at the `many` points that show what is
    too small for a few, each of which is replayed.
    """
    compared = _LowPrecision(low, high, letter, seed)
    if not compared.of.size or not compared.by.size:
        return compared.nothing
    if not isinstance(high, Replayed):
        return compared.judged()
    # In single precision differences tell whether f follows its input in steps, as what quantises
    # does, whose rule is that of the identity.
    steps = compared.eps <= COARSE_EPS and high.compares
    found = compared.nothing if steps else compared.judged()
    sure = found.wrong or found.different is not None
    return found if sure or not many else compared.beside_replay(found)


AtPoints = tuple[DerivativeAtPoints, DerivativeAtPoints | ReplayedAtPoints]
"""The derivative in low precision, and that in double, at the same points."""


def _values(at: AtPoints) -> tuple[ValueAtPoints, ValueAtPoints]:
    """Returns the values of f at the points."""
    return ValueAtPoints(at[0]), ValueAtPoints(at[1])


@dataclass(frozen=True)
class _Error:
    """What is off in the same way at x and at points around it."""

    entries: NDArray[np.intp]
    factor: float = 1.0
    """The factor that all of the entries have in common; 1 where they are off by themselves."""
    settled: bool = False
    """Whether rounding is known not to make it: the factor moves by far less, or what rounding may
    make of each entry is left out."""


class _MovedInside(NamedTuple):
    """What becomes of f where all numbers inside of it move by a spacing."""

    values: Vector
    """How far its outputs are apart."""
    derivative: Vector
    """How far the entries of its derivative are apart, for the probe for which that is most."""
    rows: Array
    """The derivatives, by draw, probe and entry."""


class _LowPrecision:
    """The comparison of one derivative in low precision with that in double."""

    def __init__(
        self, low: Evaluator, high: Evaluator | Replayed, letter: str, seed: int, size: float = 1.0
    ) -> None:
        """Draws the probes, which are `size` times as large as usual."""
        self.low, self.high, self.letter, self.seed = low, high, letter, seed
        self.eps = low.base.coarsest_eps
        self.u = self.eps / 2
        problem, X, Y = low.problem, low.problem.X, low.base.Y
        # The space that the derivative lies in, and that of its probes.
        self.of, self.by = (X, Y) if letter == "R" else (Y, X)
        self.first = problem.modes_taken == ""  # of f itself, and not of a derivative of it
        # The part that rounding may put a factor of all entries off by.
        self.few = (NARROW_BIAS_UNITS if self.eps > COARSE_EPS else DERIVATIVE_UNITS) * self.u
        coarsest = max((*X.leaves, *Y.leaves), key=lambda leaf: leaf.eps)
        mode, exact = letter + problem.modes_taken, isinstance(high, Replayed)
        self.nothing = LowPrecisionResult(mode, coarsest.info.dtype, replayed=exact)
        random = generator(seed, Stream.NARROW_DTYPE)
        few = self.eps <= COARSE_EPS  # the rounding of sixteen bits is averaged over more
        self.probes = (
            random_probes(problem, self.by, letter, random, few=few) if self.by.size else []
        )
        self.probes = [size * probe for probe in self.probes]
        self.lengths = problem.length_scales if letter == "R" else np.ones(Y.size)
        runs = isinstance(high, Evaluator)
        moved_by = self._moved_by if letter == "R" and runs else None
        left_of_zeros = self._left_of_zeros if runs else None
        self.sides = Sides(self.of, self.probes, self.lengths, moved_by, left_of_zeros)

    def _moved_by(self, entries: NDArray[np.intp]) -> NDArray[np.bool_] | None:
        """Marks the outputs that f moves in high precision where these entries of x move."""
        assert isinstance(self.high, Evaluator)
        problem, values = self.high.problem, self.high.base.values
        point = problem.origin.copy()
        point[entries] += FAR_DISTANCES[0] * problem.length_scales[entries]
        there = attempt(partial(self.high.value, problem.clipped(point)))
        return None if there is None else np.asarray(there != values[: there.size])

    def judged(self) -> LowPrecisionResult:
        """Compares the two at x. What does not agree there is compared close to x too, and what is
        off there at points farther away.
        """
        x = self.low.problem
        close = self._pair([x.origin], from_x=True)
        found, value = self.sides.apart(close), self._values_apart(close)
        if self._agrees(found, value):
            return self.nothing
        points = [*points_within_rounding(x, self.seed, eps=self.eps)]
        for side in close:
            side.extend(points)
        found, value = self.sides.apart(close), self._values_apart(close)
        apart = np.max(found.off / np.where(found.off > 0, found.size, 1.0), initial=0.0)
        self.nothing = replace(self.nothing, apart=float(apart))
        suspects = found.suspects(WRONG_FACTOR)
        biased = np.abs(np.mean(found.biases, axis=(0, 1))) > self.few
        shifted = self.first and bool(np.any(value.ratio > WRONG_FACTOR))
        not_finite = np.flatnonzero(found.not_finite)
        alike = np.zeros(self.of.size, bool)
        sided: NDArray[np.intp] | None = None
        if not (suspects.size or not_finite.size):
            alike = self._off_alike(found)
            sided = self._off_to_one_side(found)
        some_sided = sided is not None and bool(sided.size)
        error: _Error | None = None
        if suspects.size or np.any(biased) or shifted or np.any(alike) or some_sided:
            points = [*points_around(x, self.seed, self.eps)]
            around = self._pair(points)
            moved = self._values_off(value, around)
            if moved.size:
                inside = self._rounding_inside.values
                moved = moved[value.off[moved] > INSIDE_FACTOR * inside[moved]]
                if moved.size and not isinstance(self.high, Replayed):
                    lost = self._scatter(self.high.value, value.size)
                    moved = moved[value.off[moved] > lost[moved]]
            if np.any(value.ratio[moved] > WRONG_FACTOR):
                return replace(self.nothing, different=Refusal.OTHER_VALUE_BEYOND_ROUNDING)
            if shifted:
                self.nothing = replace(
                    self.nothing, value=self._value(close, int(np.argmax(value.ratio)))
                )
            # What is off to one side comes last, since it takes many points.
            ways = (
                partial(self._error, found, close, around, biased, alike=alike, shifted=shifted),
                partial(self._sided, sided, found, around, shifted=shifted),
            )
            for way in ways:
                error = way()
                if np.any(moved) and (error is not None or not_finite.size):
                    return replace(self.nothing, different=Refusal.OTHER_VALUE)
                if error is not None and (
                    self._f_is_off(points, around) or self._rounds_with_size()
                ):
                    error = None
                if error is not None and not error.settled:
                    error = self._beyond_rounding(error, found, shifted=shifted)
                error = self._within_range(error, found)
                if error is not None:
                    break
        if not_finite.size:
            error = _Error(not_finite)
        if error is None and not np.any(found.ratio > 1):
            return self.nothing
        named = np.arange(self.of.size) if error is None else error.entries
        factor = 1.0 if error is None else error.factor
        k = int(named[np.argmax((found.ratio if factor == 1 else found.off)[named])])
        return self._named(k, int(found.probe[k]), close, error is not None, factor)

    def _error(
        self,
        found: Deviation,
        close: AtPoints,
        around: AtPoints,
        biased: NDArray[np.bool_],
        *,
        alike: NDArray[np.bool_],
        shifted: bool,
    ) -> _Error | None:
        """Returns what is off in the same way at the points around x: entries by themselves, else a
        leaf that is `biased`, else leaves whose entries are off `alike`.
        """
        suspects = found.suspects(WRONG_FACTOR)
        still = self.sides.persisting(around, found, suspects)
        if still.entries.size:
            return _Error(still.entries)
        by_leaf = self._factors(around, found, still.biases)
        for leaf in np.argsort(-np.abs(by_leaf - 1)):
            factor = float(by_leaf[leaf])
            if factor != 1 and biased[leaf]:
                moves = self._moves_of_factor(leaf, close)
                if abs(factor - 1) > INSIDE_FACTOR * moves:
                    part = self.of.slices[leaf]
                    # The worst that a replay knows for each entry is far more than happens to all.
                    settled = moves > 0 and isinstance(self.high, Replayed)
                    return _Error(np.arange(part.start, part.stop), factor, settled)
        if suspects.size:
            alike = self._off_alike(found)
        if not np.any(alike):
            return None
        entries = self._together_beyond_rounding(alike, found, shifted=shifted)
        if suspects.size and entries.size:
            # The rounding of f hides each of the worst entries where a kernel leaves out all that
            # is small, and not all of them. What is rounded to zero throughout is hidden.
            off = found.off[entries] * self.sides.selected_within(around, entries)
            if self.sides.hides(around, off, entries):
                return None
        return _Error(entries, settled=True) if entries.size else None

    def _beyond_rounding(self, error: _Error, found: Deviation, *, shifted: bool) -> _Error | None:
        """Returns an error with those of its entries that no rounding puts off so far, if any."""
        off = found.off
        beyond = off > (
            INSIDE_FACTOR * self._rounding_inside.derivative if error.factor == 1 else 0
        )
        if np.any(beyond):
            beyond &= off > self._rounding_of_rule(found, shifted=shifted)
        entries = error.entries[beyond[error.entries]]
        return replace(error, entries=entries) if entries.size else None

    def _together_beyond_rounding(
        self, alike: NDArray[np.bool_], found: Deviation, *, shifted: bool
    ) -> NDArray[np.intp]:
        """Returns those entries that are off `alike` and that no rounding puts off so far, of
        leaves where what they are off by together is no rounding of all entries either.

        Where one output of a softmax is nearly 1, the largest entry of its row is all rounding, and
        the others are off by no more than a spacing.
        """
        off = np.where(alike, found.off, 0.0)
        off[off <= INSIDE_FACTOR * self._rounding_inside.derivative] = 0.0
        if np.any(off):
            off[off <= self._rounding_of_rule(found, shifted=shifted)] = 0.0
        for part in self.of.slices:
            if norm(off[part]) <= ALIKE_UNITS * self.u * norm(found.size[part]):
                off[part] = 0.0
        return np.flatnonzero(off)

    def _off_alike(self, found: Deviation) -> NDArray[np.bool_]:
        """Marks the entries of leaves that are off together, by far more than a kernel rounds, and
        in the same way at points beside x, for probes of other magnitudes.

        The mean of a normalisation that is missing in the rule is a small part of each entry, and
        not the same part of any two. Rounding has another pattern at each point. Only in sixteen
        bits, where a single entry says little. The rule is ours.
        """
        off = np.zeros(self.of.size, bool)
        least = ALIKE_UNITS * self.u
        if self.eps <= COARSE_EPS or isinstance(self.high, Replayed):
            return off
        large = [
            part
            for part in self.of.slices
            if part.stop - part.start >= ALIKE_ENTRIES
            and norm(found.off[part]) > least * norm(found.size[part])
        ]
        if not large:
            return off
        distances = [FAR_DISTANCES[0]] * ALIKE_POINTS
        points = [*points_around(self.low.problem, self.seed, self.eps, distances)]
        for probe in range(len(self.probes)):
            at = self._pair(points, alone=probe)
            e, g = finite_deviation(*(side.take(probe) for side in at))
            for part in large:
                sizes = norm(e[:, part])
                if np.all(sizes > least * norm(g[:, part])):
                    together = float(norm(np.sum(e[:, part] / sizes[:, None], axis=0))) ** 2
                    alike = (together - len(e)) / (len(e) * (len(e) - 1))
                    off[part] |= alike > 1 / 2
        return off

    def _off_to_one_side(self, found: Deviation) -> NDArray[np.intp]:
        """Returns the entries farthest beyond what rounding may be that are off to one side at
        nearly all of many points, for probes of other magnitudes at each.

        In sixteen bits what may be rounding is a third of an entry, more where it cancels, and
        what is off by less was taken for rounding unseen: a term that is missing in the rule, or
        a wrong sign, passed in leaves of few entries at most seeds. Rounding puts an entry to
        either side of the exact one, at points so far apart that nothing is rounded alike at two
        of them. The rule is ours.
        """
        none = np.zeros(0, np.intp)
        if self.eps <= COARSE_EPS or isinstance(self.high, Replayed):
            return none
        suspects = found.suspects(1.0)
        if not suspects.size:
            return none
        distances = [SIDE_DISTANCE] * SIDE_POINTS
        points = [*points_around(self.low.problem, self.seed, self.eps, distances)]
        sided = np.zeros(suspects.size, bool)
        for probe in range(len(self.probes)):
            few = self._side_of(points[:FEW_SIDES], probe, suspects)
            if np.any((np.abs(few[0]) >= ONE_SIDE) & ~sided):
                share, count = self._side_of(points, probe, suspects)
                sided |= (np.abs(share) >= SURE_SIDE) & (count >= ENOUGH_SIDES)
        return suspects[sided]

    def _side_of(
        self, points: Sequence[Vector], probe: int, entries: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.intp]]:
        """Returns at which part of the points that count these entries are off to one side by more
        than their own rounding for a probe, with its sign, and how many points count.
        """
        at = self._pair(points, alone=probe)
        e, g = finite_deviation(*(side.take(probe)[:, entries] for side in at))
        beyond = np.sign(e) * (np.abs(e) > self.few * np.abs(g))
        counts = (e != 0) | (g != 0)
        return _sides(beyond, counts), np.sum(counts, axis=0)

    def _sided(
        self, sided: NDArray[np.intp] | None, found: Deviation, around: AtPoints, *, shifted: bool
    ) -> _Error | None:
        """Returns those entries that are off to one side by what no rounding of f or its rule
        makes, and f does not hide; `sided` are these entries, where they are known.
        """
        off = found.off
        if sided is None:
            sided = self._off_to_one_side(found)
        sided = sided[off[sided] > INSIDE_FACTOR * self._rounding_inside.derivative[sided]]
        if sided.size:
            # Of so many points not all have a rounding as large as the worst of them.
            bound = self._rounding_of_rule(found, shifted=shifted) * SIDED_FACTOR / RULE_FACTOR
            sided = sided[off[sided] > bound[sided]]
        own = off[sided] * self.sides.selected_within(around, sided) if sided.size else off[sided]
        shown = [
            k
            for k, one in enumerate(own)
            if not self.sides.hides(around, np.array([one]), sided[k : k + 1])
            and not (found.absent[sided[k]] and self._is_lost(sided[k : k + 1], around))
        ]
        return _Error(sided[shown], settled=True) if shown else None

    def _is_lost(self, entry: NDArray[np.intp], around: AtPoints) -> bool:
        """Returns whether f itself is off by as much as it moves around x, in all outputs that an
        entry has a part in: a derivative of zero there is that of what f computes. `x - sin x` is
        zero in bfloat16 at 0.02.
        """
        apart, f = deviation_of_values(around)
        if not len(f):  # it is defined at none of the points
            return True
        lost = 2 * np.max(np.abs(apart), axis=0) >= np.ptp(f, axis=0)
        moved = self._moved_by(entry) if self.letter == "R" else None
        return bool(np.all(lost[entry] if moved is None else lost[moved]))

    def _within_range(self, error: _Error | None, found: Deviation) -> _Error | None:
        """Returns an error without small entries that are zero since numbers inside of the rule
        have left a short range; `None` where nothing is left of it.

        `-w / (1 + x)**2` in float16 divides by infinity from 255 on. The formula is right there,
        and the rule that an engine derives does the same. At other magnitudes of x such an entry
        is not zero, and one that the rule leaves out is. Whether points around x lie below 255 is
        chance: without this the verdict changes from seed to seed.
        """
        if error is None or not of_short_range(self.eps):
            return error
        lost = error.entries[(found.absent & (found.size < LOST_SIZE))[error.entries]]
        if not lost.size:
            return error
        x = self.low.problem
        points = [representable_within_bounds(x, part * x.origin) for part in LOST_MAGNITUDES]
        at = DerivativeAtPoints(self.low, self.letter, points, self.probes, from_x=False)
        rows = np.concatenate([at.take(k)[:, lost] for k in range(len(self.probes))])
        lost = lost[np.any(np.isfinite(rows) & (rows != 0), axis=0)]
        entries = np.setdiff1d(error.entries, lost)
        return replace(error, entries=entries) if entries.size else None

    def _left_of_zeros(self, probes: Sequence[int]) -> Vector:
        """Returns what rounding leaves, in the narrow dtype, of terms that add up to zero; it is 0
        for entries that are no such sum for these probes.

        The gradient of a shift before a softmax or a norm is one. In double it is a rounding of the
        terms, which are not known by themselves: it moves by as much as it is where x moves by a
        spacing of double. The narrow dtype rounds them by as much more as its spacing is wider.
        Without this every layer with a bias before its norm was called inaccurate by 1e15 spacings,
        after some hundred evaluations.
        """
        rows = [self._finely.take(k) for k in probes]
        size = np.max([np.max(np.abs(row), axis=0) for row in rows], axis=0)
        moved = np.max([np.ptp(row, axis=0) for row in rows], axis=0)
        # Few points show some of them as the same number, and some cancel to the last bit.
        usual = self.of.by_leaf([rms(moved[part]) for part in self.of.slices])
        zero = np.isfinite(moved) & (size <= np.maximum(ZERO_MOVES * moved, usual))
        size = np.where(zero, size, 0.0)
        typical = rms((size * self.lengths)[zero]) / self.lengths if np.any(zero) else 0.0
        left = ZERO_UNITS * (size + typical) * self.eps / self._finely.eps
        return np.where(zero, left, 0.0)

    @cached_property
    def _finely(self) -> DerivativeAtPoints:
        """The derivative in double precision at x, and at points within its rounding, for probes
        within theirs: where f is linear only these move what rounding leaves.
        """
        assert isinstance(self.high, Evaluator)
        x, seeds = self.high.problem, range(self.seed, self.seed + 2)
        points = [x.origin, *(one for k in seeds for one in points_within_rounding(x, k))]
        random = generator(self.seed, Stream.PROBES_OF_ZEROS)
        units = random.integers(-8, 9, (len(points), self.by.size))
        return DerivativeAtPoints(
            *(self.high, self.letter, points, self.probes),
            from_x=True,
            factors=[*(1 + EPS["float64"] * units)],
        )

    def _agrees(self, found: Deviation, value: Deviation) -> bool:
        """Returns whether the two agree at x to what rounding may be where nothing is
        ill-conditioned.

        Points close to x show how ill-conditioned the derivative is, which only widens what
        rounding may be, and average the rounding of its factor, which is far below half of
        `few` in float32. In sixteen bits it is not, and the points are always taken.
        """
        bias = np.abs(np.mean(found.biases, axis=(0, 1)))
        return (
            self.eps <= COARSE_EPS
            and not np.any(found.not_finite)
            and bool(np.all(found.ratio <= 1))
            and bool(np.all(bias <= self.few / 2))
            and bool(np.all(value.ratio <= WRONG_FACTOR))
        )

    def _pair(
        self,
        points: Sequence[Vector],
        *,
        from_x: bool = False,
        sizes: Sequence[float] = (1.0,),
        alone: int | None = None,
    ) -> AtPoints:
        """Returns both derivatives at these points, away from x for probes that change as well, and
        have these sizes in turn.

        In sixteen bits probes have no digits that could change by a little. A probe that is asked
        for `alone` has other magnitudes at each point.
        """
        factors: list[Vector] = []
        random = generator(self.seed, Stream.NARROW_PROBES)
        if from_x:
            pass
        elif self.eps <= COARSE_EPS:
            ones = np.ones(self.by.size)
            # Products with the eight bits of a probe are exact in single precision.
            factors = [
                sizes[k % len(sizes)] * np.round(perturbed(ones, random) * 2.0**15) / 2.0**15
                for k in range(len(points))
            ]
        elif alone is not None:
            magnitudes = np.abs(np.frexp(self.probes[alone])[0])
            magnitudes[magnitudes == 0] = 1.0
            factors = [np.abs(random_entries(random, self.by.size)) / magnitudes for _ in points]

        def at_points(one: Evaluator) -> DerivativeAtPoints:
            return DerivativeAtPoints(
                one, self.letter, points, self.probes, from_x=from_x, factors=factors
            )

        if isinstance(self.high, Replayed):
            exact = ReplayedAtPoints(self.high, self.letter, points, self.probes, factors)
            return at_points(self.low), exact
        return at_points(self.low), at_points(self.high)

    # -- many points, which cost little beside an exact replay

    def beside_replay(self, found: LowPrecisionResult) -> LowPrecisionResult:
        """Returns what was found, or an error that is too small for a few points: an entry that is
        off to the same side at most of many points.

        Rounding puts an entry to either side of the exact one. Without this 1e-6 in float32 and 1 %
        in bfloat16 pass in what takes no other dtype, since f shows neither. Points where rounding
        of f may leave few digits are no evidence: a saturated value is off to one side at all of
        them. The test is the sign test (Conover 1999, section 3.4), the rest is ours.
        """
        x = self.low.problem
        at_x = self._pair([x.origin], from_x=True)
        points = [*points_around(x, self.seed, self.eps, [SIDE_DISTANCE] * SIDE_POINTS)]
        sizes = (1.0, SMALL_NARROW_PROBES)  # as in `_rounds_with_size`
        for probe in range(len(self.probes)):
            if not np.any(self._beyond(at_x, probe)[0]):
                continue
            few = self._pair(points[:FEW_SIDES], sizes=sizes, alone=probe)
            if np.max(np.abs(_sides(*self._beyond(few, probe)))) <= 1 / 2:
                continue
            at = self._pair(points, sizes=sizes, alone=probe)
            sides = self._persisting(at, points, probe)
            if np.any(sides):
                return self._named(int(np.argmax(sides)), probe, at_x, wrong=True, factor=1.0)
        return found

    def _persisting(self, at: AtPoints, points: Sequence[Vector], probe: int) -> Vector:
        """Returns at which part of the points that count each entry is off to one side for a probe;
        0 where that is less than an error is, or too few points count.
        """
        beyond, counts = self._beyond(at, probe, BIAS_DRIFTS * self._drift(at))
        suspects = np.abs(_sides(beyond, counts)) >= ONE_SIDE
        assert isinstance(self.high, Replayed)
        if not np.any(suspects):
            return np.zeros(self.of.size)
        for k, (point, row) in enumerate(zip(points, at[1].take(probe), strict=True)):
            w = (at[1].factors[k] if at[1].factors else 1.0) * self.probes[probe]
            bound = rounding_of(self.low.base, self.letter, [w], point, self.high.factor)
            if bound is None:
                return np.zeros(self.of.size)
            counts[k] &= bound <= np.abs(row)
        sides = np.abs(_sides(beyond, counts))
        enough = np.sum(counts, axis=0) >= ENOUGH_SIDES
        return np.where(suspects & enough & (sides >= ONE_SIDE), sides, 0.0)

    def _drift(self, at: AtPoints) -> float:
        """Returns by which part of itself an output is off to one side, at most."""
        part = _parts(*finite_deviation(*(side.values for side in at)))
        sided = np.abs(_sides(np.sign(part), np.ones(part.shape, bool))) >= ONE_SIDE
        return float(np.max(sided * np.abs(np.median(part, axis=0)), initial=0.0))

    def _beyond(
        self, at: AtPoints, probe: int, drift: float = 0.0
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Returns to which side each entry is off for a probe by more than rounding puts it, and
        more than this `drift`, as -1, 0 or 1 by point and entry, and which of these count.

        It is off by about the same part of itself as at most points. An approximation inside, whose
        error a cancelling rule makes larger, is off by another part at each.
        """
        units = NARROW_BIAS_UNITS if self.eps > COARSE_EPS else SINGLE_BIAS_UNITS
        few = units * self.u + drift
        off, high = finite_deviation(*(side.take(probe) for side in at))
        part = _parts(off, high)
        middle = np.median(part, axis=0)
        alike = np.abs(part - middle) <= np.maximum(np.abs(middle) / 4, 2 * few)
        return np.sign(part) * (alike & (np.abs(part) > few)), high != 0

    # -- the value of f

    def _values_apart(self, at: AtPoints) -> Deviation:
        """Measures how far the values of f are off, but for outputs that are left out."""
        found, omitted = Sides(self.low.base.Y).apart(_values(at)), self.low.base.omitted_of_Y
        if omitted is None:
            return found
        off = np.where(omitted, 0.0, found.off)
        return found._replace(off=off, not_finite=found.not_finite & ~omitted)

    def _value(self, at: AtPoints, k: int) -> ValueInaccurate:
        """Returns how inaccurate output `k` is at x, the first of the points."""
        low, high = (float(one.values[0, k]) for one in at)
        off = abs(low - high) / _ulp(high or low, self.eps)
        dtype, exact = self.nothing.dtype, self.nothing.replayed
        return ValueInaccurate(dtype, low, high, off, exact, self.low.base.Y.entry(k))

    def _values_off(self, value: Deviation, at: AtPoints) -> NDArray[np.intp]:
        """Returns the outputs of f itself whose value is off at all points alike, which no rounding
        is: the function in double precision is then another one (a branch on the dtype, say).
        """
        if not self.first:
            return np.zeros(0, np.intp)
        sides, pair = Sides(self.low.base.Y), _values(at)
        value = sides.allowing_spacing(pair, value)
        same = sides.persisting(pair, value, value.suspects(1.0)).entries
        # Another function need not be off by the same everywhere: with other random numbers it is
        # off by another smooth function. No rounding inside of it makes as much at any point.
        inside = self._rounding_inside.values if np.any(value.ratio > WRONG_FACTOR) else 0.0
        least = np.min(np.abs(pair[0].of.values - pair[1].of.values), axis=0)
        least = np.fmin(least, value.off)
        other = (value.ratio > WRONG_FACTOR) & (inside > 0) & (least > OTHER_VALUE_FACTOR * inside)
        return np.union1d(same, np.flatnonzero(other))

    def _f_is_off(self, points: Sequence[Vector], at: AtPoints) -> bool:
        """Returns whether f itself is off by what its derivative is off by: between points far
        from x its value in low precision moves as the derivative in low precision says.

        A captured operator that loses digits (a pseudoinverse in float32) is off by the same part
        everywhere, as a wrong constant in a rule is. But its derivative is right for the function
        that is computed. Derivatives are added up by the trapezoidal rule, so this is seen where f
        is nearly linear.
        """
        if self.letter != "R" or not self.first:
            return False
        off = at[0].values - at[1].values
        told, moved = [], []
        for k, probe in enumerate(self.probes):
            low, high = (side.take(k) for side in at)
            for a in range(len(NEAR_DISTANCES), len(points) - 1):
                step = points[a + 1] - points[a]
                gap = (low[a] + low[a + 1] - high[a] - high[a + 1]) / 2
                told.append(float(gap @ step))
                moved.append(float(probe @ (off[a + 1] - off[a])))
        one, two = np.array(told), np.array(moved)
        held = np.isfinite(one) & np.isfinite(two)
        rest = float(norm(np.where(held, one - two, 0.0)))
        return bool(held.any()) and rest <= EXPLAINED_PART * float(norm(one[held]))

    def _rounds_with_size(self) -> bool:
        """Returns whether small probes show no error: the derivative loses digits in proportion to
        the size of its probe then.

        The vjp of a matrix exponential is a block of the exponential of a larger matrix, which is
        scaled and squared the more often the larger the cotangent is, and each square rounds to one
        side. A wrong formula is wrong for probes of any size. Ours.
        """
        # In sixteen bits what is wrong by little may not show for other probes either.
        if self.eps > COARSE_EPS:
            return False
        small = _LowPrecision(self.low, self.high, self.letter, self.seed, SMALL_NARROW_PROBES)
        x = self.low.problem
        points = [x.origin, *points_within_rounding(x, self.seed, eps=self.eps)]
        found = small.sides.apart(small._pair(points, from_x=True))
        biased = np.abs(np.mean(found.biases, axis=(0, 1))) > self.few
        return not (found.suspects(WRONG_FACTOR).size or np.any(biased))

    @cached_property
    def _rounding_inside(self) -> _MovedInside:
        """How far the outputs and the derivative are apart where all numbers inside of f move by a
        spacing, up or down; zeros where the engine cannot move them.

        Points nearby do not show all of that: `1 + x` with a small x is rounded alike at all points
        close to x, and a saturated value is the same. This is stochastic arithmetic (CESTAC,
        Vignes 1993), with a spacing up or down in place of random rounding.
        """
        x, base = self.low.problem, self.low.base
        values, draws = [], []
        for other in x.moved_by_rounding:
            at = Evaluator(replace(base, problem=other), self.low.context)
            there = DerivativeAtPoints(at, self.letter, [x.origin], self.probes, from_x=False)
            values.append(there.values[0])
            draws.append([there.take(k)[0] for k in range(len(self.probes))])
        rows = np.array(draws)
        if not draws:
            return _MovedInside(np.zeros(base.Y.size), np.zeros(self.of.size), rows)
        derivative = np.max(apart_between(rows), axis=0)
        return _MovedInside(apart_between(np.array(values)), derivative, rows)

    def _moves_of_factor(self, leaf: int, close: AtPoints) -> float:
        """Returns by how much the factor moves that all entries of a leaf have in common, where all
        numbers inside of f move by a spacing; 0 where the engine cannot move them.
        """
        rows = self._rounding_inside.rows
        if not rows.size:
            return 0.0
        biases = []
        for k in range(len(self.probes)):
            off, exact = finite_deviation(rows[:, k], close[1].take(k, 1))
            biases.append([by_leaf[leaf] for by_leaf in relative_bias(off, exact, self.of)])
        return float(apart_between(np.mean(biases, axis=0)))

    def _rounding_of_rule(self, found: Deviation, *, shifted: bool) -> Vector:
        """Returns what the derivative may be off by its own rounding, by entry. What roundings of a
        replayed program can do is more than they do: it counts where it leaves few digits and the
        values of f are `shifted`, else 5 % of a kernel of float16 pass for rounding, and where it
        leaves none: of a saturated softmax the entries of 1e-22 are differences of larger terms.
        Beside a derivative in double it counts in float32 alone, up to a few times what roundings
        are seen to do: without it PyTorch's attention fails at one seed of three.

        A rule that is written by hand computes with other numbers than f, of which
        `_rounding_inside` and a replay know nothing.
        """
        high = self.high
        if isinstance(high, Replayed):
            bound = rounding_of(self.low.base, self.letter, self.probes, factor=high.factor)
            if bound is None:
                return np.zeros(self.of.size)
            return np.where(bound > (LOST_PART if shifted else 1.0) * found.size, bound, 0.0)
        scattered = self._scatter(self._derivative_in_double, found.size, LOST_PART)
        # The worst case leaves no digit of most derivatives in sixteen bits.
        if self.eps > COARSE_EPS or np.all(found.off <= scattered):
            return scattered
        bound = rounding_of(self.low.base, self.letter, self.probes)
        if bound is None:
            return scattered
        inside = self._rounding_inside.derivative
        return np.fmax(scattered, np.where(bound > found.size, RULE_FACTOR * inside, 0.0))

    def _derivative_in_double(self, point: Vector) -> Array:
        """Returns the derivative in double at a point, by probe."""
        assert isinstance(self.high, Evaluator)
        at = DerivativeAtPoints(self.high, self.letter, [point], self.probes, from_x=False)
        return np.array([at.take(k)[0] for k in range(len(self.probes))])

    def _scatter(
        self, take: Callable[[Vector], Vector], size: Vector, most: float | None = None
    ) -> Vector:
        """Returns what numbers of this size may be off by their rounding, which are as many units
        of it as they scatter by in double. It is zero where they scatter by a few units, since a
        factor that all entries have shows below the rounding of each, and where they scatter by
        `most` of themselves, by default a spacing of the narrow dtype: a kernel of float32 that is
        handed float64 reads bits of something else, and has no values in double.

        A narrow dtype may round alike at all points close to x: without this the right rule
        `1 - cos x` of `x - sin x` fails in single precision at 1e-4. In double there are digits
        enough between x and points near it.
        """
        assert isinstance(self.high, Evaluator)
        eps = self.high.base.coarsest_eps
        problem = replace(self.high.problem, origin=self.low.problem.origin)
        *_, apart = scatter(problem, eps, self.seed, None, take)
        apart = np.max(apart, axis=0) if apart.ndim == 2 else apart
        counts = (apart > RULE_UNITS * eps * size) & (apart < (most or self.eps) * size)
        return np.where(counts, RULE_FACTOR * self.eps / eps * apart, 0.0)

    # -- a whole leaf

    def _factors(self, at: AtPoints, found: Deviation, biases: Array) -> Vector:
        """Returns the factor that all entries of a leaf are off by, by leaf. It is 1 where f itself
        is off by as much, or could not show it.
        """
        if not biases.size:  # f is defined at none of the points
            return np.ones(len(self.of.leaves))
        drift = np.abs(np.mean(relative_bias(*deviation_of_values(at), self.low.base.Y), axis=0))
        by_leaf = common_factors(biases, self.few + BIAS_DRIFTS * float(np.max(drift, initial=0.0)))
        for j, part in enumerate(self.of.slices):
            # What is flushed to zero is off by a factor everywhere.
            if np.max(found.off[part], initial=0.0) <= self.of.leaves[j].tiny:
                by_leaf[j] = 1.0
                continue
            entries = np.arange(self.of.size)[part]
            # The size is that of the larger side, which is the narrow one for a large factor.
            off = (by_leaf[j] - 1) / max(1.0, abs(by_leaf[j])) * found.size[part]
            read = entries[off != 0]
            if read.size:
                off[read - part.start] *= self.sides.selected_within(at, read)
            if self.sides.hides(at, off, entries):
                by_leaf[j] = 1.0
        return by_leaf

    def _named(
        self, k: int, probe: int, at: AtPoints, wrong: bool, factor: float
    ) -> LowPrecisionResult:
        """Returns the outcome, with entry `k` at x for this probe."""
        low, high = (float(side.take(probe, 1)[0, k]) for side in at)
        gap = abs(low - high) if np.isfinite(low) else np.inf
        ulps = gap / _ulp(high or low, self.eps)
        entry = projected_entry(self.letter, self.of, self.by, self.probes[probe], k)
        return replace(
            self.nothing, entry=entry, low=low, high=high, ulps=ulps, wrong=wrong,
            factor=factor,
        )  # fmt: skip


def projected_entry(letter: str, space: Space, probed: Space, probe: Vector, k: int) -> str:
    """Returns what entry `k` of a vjp (`letter` R) or jvp for a probe is called.

    The entry lies in `space` and the probe in `probed`.
    """
    parts = zip(probed.leaves, probed.slices, strict=True)
    names = [leaf.name for leaf, part in parts if np.any(probe[part])]
    by = names[0] if len(names) == 1 else ""
    if letter == "R":
        if probed.size == 1:
            return entry_name(probed.entry(0), space.entry(k))
        return entry_name(by or "f", along_random(space.entry(k)))
    return entry_name(space.entry(k), along_random(by or "inputs"))


def common_factors(biases: Array, few: float) -> Vector:
    """Returns, by leaf, the factor that all of its entries are off by.

    It is 1 where that is not significant among the points, or within `few`. `biases` are by probe,
    point and leaf. One entry that is off by a unit of rounding says nothing; a thousand entries
    that are all off by the same part of a unit do, and name the factor.
    """
    points = np.mean(biases, axis=0)
    count = len(points)
    mean = np.mean(points, axis=0)
    error = np.std(points, axis=0, ddof=min(count - 1, 1)) / np.sqrt(count)
    return np.where(np.abs(mean) > np.maximum(STANDARD_ERRORS * error, few), 1 + mean, 1.0)


def _parts(off: Array, whole: Array) -> Array:
    return np.where(whole != 0, off, 0.0) / np.where(whole != 0, whole, 1.0)


def _sides(beyond: Array, counts: NDArray[np.bool_]) -> Array:
    """Returns by which part of the points that count an entry is off to one side, with its sign."""
    whole = np.maximum(np.sum(counts, axis=0), 1)
    shares = [np.sum((beyond == sign) & counts, axis=0) / whole for sign in (1, -1)]
    return np.asarray(np.where(shares[0] >= shares[1], shares[0], -shares[1]))


def _ulp(value: float, eps: float) -> float:
    """Returns the spacing at `value` of numbers that have the spacing `eps` at 1."""
    if value == 0 or not np.isfinite(value):
        return float("inf")
    return float(2.0 ** np.floor(np.log2(abs(value))) * eps)

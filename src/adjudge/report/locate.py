"""This module goes from a projection that failed to the entries that are wrong, by group testing.

`Search` finds the wrong ones among many candidates from residuals of weighted sums of them. Group
testing is due to Dorfman (1943), and naming a single error by a second, weighted sum to Huang and
Abraham's checksums (IEEE Trans. Comput. C-33, 1984). Their combination under error bars is ours.

The candidates are the entries of x, and at each entry of x that is found, the outputs. A weighted
sum of candidates is a difference along a weighted tangent, or a vjp of a weighted cotangent, so one
wrong entry takes six evaluations at any size where a test of each would take two for every entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CLOSE_CALL,
    INHERITED_UNITS,
    LONGER_STEP,
    NEIGHBOUR_FACTOR,
    SIGNIFICANT_BARS,
    TRUNCATION_FACTOR,
    VJP_UNITS,
)
from adjudge.errors import attempt
from adjudge.estimate import Column, Differences, Effort, Estimate
from adjudge.findings import AlsoWrong, Entry, Method, Scheme
from adjudge.floats import Vector, norm
from adjudge.jacobian import ENTRY_WORK, Failure, Table, points_within_rounding
from adjudge.problem import Forward, Purpose, Reverse, Tangent, evaluate, undetectable_slope

Indices = NDArray[np.intp]

MOST_NAMED = 8
"""The search ends with this many wrong candidates, because nobody reads a longer list."""
MOST_BLOCKS = 12
"""The search ends with more disjoint wrong blocks than this: there are more errors than are named,
and halving them all would cost as much as testing every candidate."""


@dataclass(frozen=True)
class Residual:
    """The deviation of a weighted sum of candidates, with its error bar."""

    value: float
    error: float

    @property
    def significant(self) -> bool:
        """Says whether anything in the sum is wrong; a residual that is not finite says so, too."""
        return not np.isfinite(self.value) or abs(self.value) > SIGNIFICANT_BARS * self.error

    def __sub__(self, other: Residual) -> Residual:
        """Returns the residual of the candidates that are in this sum and not in the other."""
        with np.errstate(all="ignore"):
            return Residual(self.value - other.value, float(np.hypot(self.error, other.error)))


@dataclass
class Search:
    """Finds the wrong candidates among `size`.

    `measure(weights)` gives the weights that were really taken and the residual of that sum.
    `test(k)` gives the residual of candidate `k` alone, with weight 1, and whether it is wrong by
    itself. Where all of a block are wrong, the largest by `magnitude` stands for it.

    One wrong candidate `k` leaves the residual `r` under equal weights, and `r w_k` under weights
    `w`: the ratio of the two names it. Several wrong ones are first separated by halving blocks,
    with `O(k log n)` sums.
    """

    size: int
    measure: Callable[[Vector], tuple[Vector, Residual]]
    test: Callable[[int], tuple[Residual, bool]]
    magnitude: Vector
    enough: Callable[[int], bool] = lambda wrong: wrong >= MOST_NAMED
    """Says whether the search may end with so many found."""
    wrong: list[int] = field(default_factory=list)
    tested: dict[int, Residual] = field(default_factory=dict)
    many: bool = False
    """Says whether more are wrong than are named."""

    def _done(self) -> bool:
        """Returns whether enough was found, or spent."""
        return self.enough(len(self.wrong))

    def run(self, total: Residual) -> None:
        """Searches; `total` is the residual under equal weights."""
        everything: Indices = np.arange(self.size)
        rest = self._remove_single(everything, total)
        blocks = [] if rest is None else [rest]
        depth = 0
        while blocks and not self._done():
            if len(blocks) > MOST_BLOCKS:
                self.many = True
                self._sample(blocks)
                return
            halves = [[block] if self._done() else self._halves(*block) for block in blocks]
            blocks = [half for pair in halves for half in pair]
            depth += 1
            # Some blocks are right, so the others may hold one error each.
            if len(blocks) < 2**depth:
                rests = [self._remove_single(*block) for block in blocks]
                blocks = [rest for rest in rests if rest is not None]
        self.many = bool(blocks)

    def _test(self, k: int) -> Residual:
        """Returns the residual of candidate `k` alone, which is measured once."""
        if k not in self.tested:
            self.tested[k], wrong = self.test(k)
            if wrong:
                self.wrong.append(k)
        return self.tested[k]

    def _remove_single(self, block: Indices, total: Residual) -> tuple[Indices, Residual] | None:
        """Returns the block and its residual without the only wrong candidate; `None` if that
        explains all of it.
        """
        if self._done():
            return block, total
        k = self._only_candidate(block, total)
        if k is None:
            return block, total
        alone = self._test(k)
        rest = total - alone
        if block.size == 1 or (np.isfinite(rest.value) and not rest.significant):
            return None
        return (block[block != k], rest) if alone.significant else (block, total)

    def _only_candidate(self, block: Indices, total: Residual) -> int | None:
        """Returns the only wrong candidate of the block, if there is but one."""
        if not np.isfinite(total.value):
            return None if block.size > 1 else int(block[0])
        while block.size > 1 and not self._done():
            kept = self._candidates(
                block, np.asarray(np.linspace(1, 2, block.size), np.float64), total
            )
            # The weights may be too coarse, or their differences drowned by the error bar: then two
            # weights tell the halves apart.
            if 2 * kept.size > block.size:
                kept = self._candidates(
                    block, (np.arange(block.size) < block.size // 2).astype(np.float64), total
                )
            if not 0 < 2 * kept.size <= block.size + 1:
                return None
            block = kept
        return int(block[0]) if block.size == 1 else None

    def _candidates(self, block: Indices, weights: Vector, total: Residual) -> Indices:
        """Returns the candidates that would have caused this residual alone."""
        taken, found = self._measured(block, weights)
        with np.errstate(all="ignore"):
            gap = np.abs(taken * total.value - found.value)
            return block[gap <= SIGNIFICANT_BARS / 2 * (found.error + np.abs(taken) * total.error)]

    def _measured(self, block: Indices, weights: Vector) -> tuple[Vector, Residual]:
        """Returns the weights that were really taken within the block, and the residual."""
        whole = np.zeros(self.size)
        whole[block] = weights
        taken, found = self.measure(whole)
        return taken[block], found

    def _halves(self, block: Indices, total: Residual) -> list[tuple[Indices, Residual]]:
        """Returns the halves with a significant residual."""
        if block.size == 1:
            self._test(int(block[0]))
            return []
        one, two = block[: block.size // 2], block[block.size // 2 :]
        first = self._measured(one, np.ones(one.size))[1]
        second = total - first
        if not np.isfinite(second.value):
            second = self._measured(two, np.ones(two.size))[1]
        return [(half, r) for half, r in ((one, first), (two, second)) if r.significant]

    def _sample(self, blocks: list[tuple[Indices, Residual]]) -> None:
        """Tests one candidate of each of the worst blocks, and halves the worst block where all of
        these are right.
        """
        blocks = sorted(blocks, key=lambda b: -abs(np.nan_to_num(b[1].value, nan=np.inf)))
        for block, _ in blocks[:MOST_NAMED]:
            if not self._done():
                self._test(int(block[np.argmax(np.nan_to_num(self.magnitude[block]))]))
        block, total = blocks[0]
        while not self.wrong and block.size > 1 and not self._done():
            halves = self._halves(block, total)
            if not halves:
                return
            block, total = max(halves, key=lambda b: abs(np.nan_to_num(b[1].value, nan=np.inf)))
        if not self.wrong and not self._done():
            self._test(int(block[0]))


@dataclass
class Located:
    """The wrong entries behind one projection, the worst first."""

    entries: list[Entry] = field(default_factory=list)
    tested: int = 0
    """The number of entries that were compared on the way, one by one."""
    many: bool = False
    """Says whether more are wrong than were looked for."""
    cut_short: bool = False
    """Says whether the budget ended the search."""

    def __iadd__(self, other: Located) -> Located:
        """Adds what was found behind another projection."""
        self.entries += other.entries
        self.tested += other.tested
        self.many |= other.many
        self.cut_short |= other.cut_short
        return self

    @property
    def also(self) -> AlsoWrong | None:
        """The entries that are wrong beside the first; `None` if nothing is."""
        more = tuple(entry.name for entry in self.entries[1 : MOST_NAMED + 1])
        if not more and not self.many:
            return None
        return AlsoWrong(more, len(self.entries), self.tested, self.many)


def locate_entries(table: Table, failure: Failure, *, suspected: bool = False) -> Located:
    """Returns the entries of the Jacobian behind `failure` that are wrong by themselves.

    One wrong entry takes six evaluations and four vjps at any size, and several take `O(log n)`
    each. Where a projection is merely `suspected`, ladders must confirm the entry. Nothing is found
    where the errors of many entries are too small one by one; the projection then speaks for
    itself.
    """
    search = _Search(table, failure, suspected)
    search.inputs()
    search.found.entries.sort(key=lambda entry: -entry.excess)
    return search.found


class _Search:
    """The search over entries of x, and for each that is found over outputs."""

    def __init__(self, table: Table, failure: Failure, suspected: bool) -> None:
        self.table, self.failure, self.suspected = table, failure, suspected
        columns = failure.columns
        self.base, self.estimator, self.tolerance = columns.base, columns.estimator, table.tolerance
        self.found = Located()
        self.support: Indices = np.flatnonzero(failure.tangent.vector)
        self.v: Vector = failure.tangent.vector[self.support]
        self.w: Vector
        self.row = np.zeros(0)
        """The vector `J* w`. In forward mode there is a column for every tangent instead."""
        self.closer: tuple[int, Column] | None = None
        base, count = self.base, self.base.Y.size
        self.part = slice(count, None) if failure.kind == "first" else slice(0, count)
        if failure.kind == "first":
            assert table.problem.cotangent is not None
            self.w, self.row = table.problem.cotangent, base.values[:count]
            return
        self.w = np.zeros(count)
        if failure.kind == "each":
            self.w[failure.row] = 1.0
            return
        part = base.Y.slices[failure.row]
        self.w[part] = columns.probes.cotangent[part]
        if table.rows is not None and not base.alone:
            self.row = np.asarray(table.rows[failure.row])
        else:
            assert table.reverse is not None
            self.row = table.reverse.row(base, self.w)

    def inputs(self) -> None:
        """Searches for entries of x."""
        entry = self.failure.entry
        total = Residual(entry.reference - entry.automatic, entry.error)
        size = np.abs(self.v)
        if self.failure.kind == "each":
            total = self._all_outputs()
        else:
            row = self.row[self.support]
            size = np.abs(np.nan_to_num(row * self.v))
            lost = np.flatnonzero(~np.isfinite(row))
            # Entries that are not finite are seen without a search.
            if lost.size:
                for k in lost[:MOST_NAMED]:
                    self._test_input(int(k))
                self.found.many |= lost.size > MOST_NAMED
                return
        search = Search(self.support.size, self._measured, self._test_input, size, self._done)
        search.run(total)
        self.found.many |= search.many

    def _done(self, _: int) -> bool:
        """Returns whether as many entries as are named were found, or the budget has no room for
        another.
        """
        if not self.table.budget.allows(ENTRY_WORK):
            self.found.cut_short = True
        return self.found.cut_short or len(self.found.entries) >= MOST_NAMED

    def _all_outputs(self) -> Residual:
        """Returns the residual of all outputs that are off in forward mode, which are searched for
        together.
        """
        found, pushed = self._column(np.ones(self.support.size))
        value, error = found.estimate.value[self.part], found.estimate.error[self.part]
        with np.errstate(all="ignore"):
            bar = error + _truncation(found) * np.abs(value)
            gap = np.abs(value - pushed)
            off = (gap > self._allowed(pushed, value, bar)) & np.isfinite(gap) & (bar > 0)
            if self.base.hiding is not None:
                off &= ~self.base.hiding[: off.size]
        unit = bar[self.failure.row]
        if np.isfinite(gap[self.failure.row]) and unit > 0:
            signed = np.where(self.table.probes.cotangent < 0, -unit, unit)
            # Each output weighs as much as it is known.
            self.w[off] = signed[off] / bar[off]
        return self._residual(found, pushed)

    def _column(self, weights: Vector) -> tuple[Column, Vector]:
        """Differences along the weighted tangent, and the image of the same by forward mode."""
        tangent = self.failure.tangent
        part = np.zeros_like(tangent.vector)
        part[self.support] = weights * self.v
        weighted = Tangent(tangent.leaves, part, tangent.length)
        found = self.estimator.along(weighted)
        return found, self._pushed(found.vector)

    def _pushed(self, vector: Vector) -> Vector:
        """Returns the image of `vector` by forward mode; empty in reverse mode."""
        if self.failure.kind != "each":
            return np.zeros(0)
        assert self.table.forward is not None
        return self.table.forward.column(self.base, vector)[1]

    def _measured(self, weights: Vector) -> tuple[Vector, Residual]:
        """Returns the weights that were really taken, and the residual along them."""
        found, pushed = self._column(weights)
        return found.vector[self.support] / self.v, self._residual(found, pushed)

    def _residual(self, found: Column, pushed: Vector) -> Residual:
        """Differences less the automatic value, contracted with `w`."""
        value, error = found.estimate.value[self.part], found.estimate.error[self.part]
        here = self.w != 0
        w, value, error = self.w[here], value[here], error[here]
        with np.errstate(all="ignore"):
            if self.failure.kind == "each":
                terms, gap = w * value, float(w @ (value - pushed[here]))
            else:
                v = found.vector[: self.row.size]
                terms = (self.row * v)[v != 0]
                gap = float(w @ value - terms.sum())
            bar = norm(w * error) + _truncation(found) * norm(terms)
        return Residual(gap, float(bar))

    def _test_input(self, k: int) -> tuple[Residual, bool]:
        """Returns the residual of one entry of x, and whether any output is wrong at it."""
        coordinate, before = int(self.support[k]), len(self.found.entries)
        found, unit = self._along_entry(coordinate)
        value, error = found.estimate.value[self.part], found.estimate.error[self.part]
        pushed = self._pushed(unit)
        with np.errstate(all="ignore"):
            if self.failure.kind == "each":
                gap = float(np.where(self.w != 0, self.w * (value - pushed), 0.0).sum())
            else:
                gap = float(self.w @ value - self.row[coordinate])
            bar = float(norm(np.where(self.w != 0, self.w * error, 0.0)))
        residual = Residual(gap * float(self.v[k]), bar * abs(float(self.v[k])))
        if self.failure.kind == "first":
            self._compare_alone(
                found, coordinate, None, self.row[coordinate], float(self.w @ value), bar
            )
        elif self.failure.kind == "rows":
            self._locate_outputs(found, coordinate, Residual(gap, bar))
        else:
            gaps = np.nan_to_num(np.abs(value - pushed), nan=np.inf)
            if self.base.hiding is not None:
                gaps[self.base.hiding[: gaps.size]] = 0.0
            for row in np.argsort(-gaps)[:MOST_NAMED]:
                if not self._compare_alone(
                    found, coordinate, row, pushed[row], value[row], error[row]
                ):
                    break
        return residual, len(self.found.entries) > before

    def _along_entry(self, coordinate: int) -> tuple[Column, Vector]:
        """Differences along one entry of x, with an error bar that covers what a step `LONGER_STEP`
        times as long changes. Two evaluations more show truncation here, where a ladder would take
        sixteen.
        """
        table, failure = self.table, self.failure
        unit = np.zeros(table.problem.X.size)
        unit[coordinate] = 1.0
        length = abs(float(failure.tangent.vector[coordinate]))
        leaf = int(table.problem.X.owner[coordinate])
        tangent = Tangent((leaf,), unit, length, coordinate)
        found = self.estimator.along(tangent)
        # To one side a ladder was taken already.
        if found.step == 0.0 or found.one_sided:
            return found, unit
        if LONGER_STEP * found.step > table.problem.longest_step(unit):
            return self.estimator.along(tangent, Effort.LADDER, found), unit
        step = LONGER_STEP * found.step
        far = attempt(lambda: Differences(table.problem, self.base, step).along(tangent))
        # f is not defined that far off.
        if far is None:
            return self.estimator.along(tangent, Effort.LADDER, found), unit
        near, there = found.estimate, far.estimate
        with np.errstate(all="ignore"):
            error = np.fmax(near.error, np.abs(near.value - there.value))
        method = Method(Scheme.CENTRAL, 4)
        return replace(found, estimate=replace(near, error=error, method=method)), unit

    def _locate_outputs(self, found: Column, coordinate: int, total: Residual) -> None:
        """Searches for the outputs that are wrong at this entry of x, by weights on the entries of
        the cotangent.
        """
        table, Y = self.table, self.base.Y
        reverse, backend = table.reverse, table.problem.backend
        assert reverse is not None
        support = np.flatnonzero(self.w)
        value, error = found.estimate.value[self.part], found.estimate.error[self.part]
        likes = self.base.arrays[: len(Y.leaves)]

        def rounding(w: Vector) -> float:
            return VJP_UNITS * self.tolerance.eps * float(norm((w * value)[w != 0]))

        def measure(weights: Vector) -> tuple[Vector, Residual]:
            w = np.zeros(Y.size)
            w[support] = weights * self.w[support]
            if not Y.double:  # the cotangent counts as it is rounded to its dtype
                w = Y.vector(backend, Y.arrays(backend, w, likes), likes)
            with np.errstate(all="ignore"):
                gap = float(w @ value - reverse.row(self.base, w)[coordinate])
                bar = float(norm((w * error)[w != 0])) + rounding(w)
            return w[support] / self.w[support], Residual(gap, bar)

        def test(k: int) -> tuple[Residual, bool]:
            row, w = int(support[k]), float(self.w[support[k]])
            unit = np.zeros(Y.size)
            unit[row] = 1.0
            automatic = float(reverse.row(self.base, unit)[coordinate])
            wrong = self._compare_alone(found, coordinate, row, automatic, value[row], error[row])
            return Residual(w * (value[row] - automatic), abs(w) * error[row]), wrong

        search = Search(support.size, measure, test, np.abs(value[support]), self._done)
        search.run(Residual(total.value, total.error + rounding(self.w)))
        self.found.many |= search.many

    def _compare_alone(
        self,
        found: Column,
        coordinate: int,
        row: int | None,
        automatic: float,
        reference: float,
        bar: float,
    ) -> bool:
        """Returns whether one entry is wrong by itself; it is kept if so.

        Differences that are not much wider apart than their error bar, and mere suspicions, are
        decided by ladders, by the measured noise and by the rounding of the automatic side, as
        columns are.
        """
        table, entry, method = self.table, self.failure.entry, found.estimate.method
        self.found.tested += 1
        floor = self._inherited(found, coordinate, row)
        bar += floor
        gap, allowed = abs(automatic - reference), self._allowed(automatic, reference, bar)
        if gap <= allowed or not np.isfinite(reference):
            return False
        if self.suspected or gap <= CLOSE_CALL * allowed:
            if self.closer is None or self.closer[0] != coordinate:
                along = self.estimator.along
                ladder = along(found.tangent, Effort.LADDER, found)
                confirmed = along(found.tangent, Effort.SECOND_LADDER, ladder)
                self.closer = coordinate, confirmed
            estimate = self.closer[1].estimate
            reference, bar = self._of_row(estimate, row)
            if abs(automatic - reference) > self._allowed(automatic, reference, bar):
                doubted = np.zeros(self.base.whole.size, bool)
                doubted[self.part] = True if row is None else np.arange(len(self.w)) == row
                estimate = self.estimator.along(
                    found.tangent, Effort.MEASURED_NOISE, self.closer[1], doubted
                ).estimate
                reference, bar = self._of_row(estimate, row)
                bar += self._automatic_rounding(automatic, row, coordinate)
            bar += floor
            method, allowed = estimate.method, self._allowed(automatic, reference, bar)
            if abs(automatic - reference) <= allowed:
                return False
        if len(self.found.entries) < MOST_NAMED:
            wrong = replace(
                entry,
                of=entry.of if row is None else self.base.Y.entry(int(row)),
                wrt=table.problem.X.entry(coordinate),
                automatic=float(automatic),
                reference=float(reference),
                error=float(bar),
                allowed=float(allowed),
                method=method,
                slopes=None,
                projected=entry.projected and row is None,
            )
            self.found.entries.append(wrong)
        return True

    def _inherited(self, found: Column, coordinate: int, row: int | None) -> float:
        """Returns what the rounding of the first derivative alone may make of an entry of a second
        one.
        """
        table = self.table
        if row is None or not table.problem.modes_taken:
            return 0.0
        unit = np.zeros(table.problem.X.size)
        unit[coordinate] = 1.0
        eps, values = self.tolerance.eps, np.abs(found.estimate.value[self.part])
        largest = np.max(values, initial=0.0, where=np.isfinite(values))
        return float(
            undetectable_slope(self.base, unit, eps)[row] + INHERITED_UNITS * eps * largest
        )

    def _of_row(self, estimate: Estimate, row: int | None) -> tuple[float, float]:
        """Returns the value and the error bar of one output, or of the first derivative's
        projection.
        """
        value, error = estimate.value[self.part], estimate.error[self.part]
        if row is None:
            return float(self.w @ value), float(norm(self.w * error))
        return float(value[row]), float(error[row])

    def _automatic_rounding(self, automatic: float, row: int | None, coordinate: int) -> float:
        """`NEIGHBOUR_FACTOR` times the change of one automatic entry where x moves by a unit of
        rounding; see `stages.AutomaticRounding`.
        """
        table, unit = self.table, np.zeros(self.base.Y.size)
        if row is not None:
            unit[row] = 1.0
        changes = [0.0]
        for point in points_within_rounding(
            table.problem, table.probes.seed, self.failure.tangent.leaves
        ):
            if row is None:
                there = evaluate(table.problem, self.base, point, Purpose.ROUNDING)[coordinate]
            elif self.failure.kind == "each":
                tangent = np.zeros(table.problem.X.size)
                tangent[coordinate] = 1.0
                forward = Forward(table.problem, point)
                there = forward.column(self.base, tangent)[1][row]
            else:
                there = Reverse(table.problem, point).row(self.base, unit)[coordinate]
            changes.append(abs(float(there) - automatic))
        return NEIGHBOUR_FACTOR * max(change for change in changes if np.isfinite(change))

    def _allowed(self, automatic: Any, reference: Any, bar: Any) -> Any:
        """Returns the largest difference that is accepted of one entry."""
        return bar + self.tolerance.relative * np.maximum(abs(automatic), abs(reference))


def _truncation(found: Column) -> float:
    """Returns the truncation error of one central difference, relative to the derivative: `h^2 f'''
    / 6`, with an f''' over the scale of x that is a few times f'.
    """
    return TRUNCATION_FACTOR * found.relative**2

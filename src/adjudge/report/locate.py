"""This module goes from a projection that failed to the entries that are wrong, by group testing.

`Search` finds the wrong ones among many candidates from residuals of weighted sums of them. Group
testing is due to Dorfman (1943), and naming a single error by a second, weighted sum to Huang and
Abraham's checksums (IEEE Trans. Comput. C-33, 1984). Their combination under error bars is ours.

The candidates are the entries of x, and at each entry of x that is found, the outputs. A weighted
sum of candidates is a difference along a weighted tangent, or a vjp of a weighted cotangent, so one
wrong entry takes six evaluations at any size where a test of each would take two for every entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    SIGNIFICANT_BARS,
    TRUNCATION_FACTOR,
    VJP_UNITS,
)
from adjudge.estimate import Column, Effort, Estimate, in_parts
from adjudge.findings import AlsoWrong, Entry, Scheme, along_random
from adjudge.floats import Vector, chunks, norm
from adjudge.jacobian import (
    ENTRY_WORK,
    AutomaticEntry,
    Failure,
    JudgedEntry,
    RememberingEstimator,
    Table,
    judge_entry,
)
from adjudge.limits import limits
from adjudge.problem import Base, Counts, Reverse, Tangent

Indices = NDArray[np.intp]
Block: TypeAlias = "Indices | range"
"""Some of many candidates; consecutive ones take no memory as a range."""

MOST_NAMED = 8
"""The search ends with this many wrong candidates, because nobody reads a longer list."""
LEAST_SEARCH = 16
"""A check takes so little that no second wrong entry would be named. The search may take so many
evaluations and vjps in any case, where a mistake explains what is wrong. The value is ours."""
UNEXPLAINED_SEARCH = {64: 16, 2**17: 256}
"""The same where no mistake that is known explains it, and only the entries tell, by the largest
number of inputs and outputs that this holds for. Few inputs are compared with their mistake entry
by entry. The values are ours."""
LONGEST_SEARCH = {64: 64, 2**17: 1024}
"""The first wrong entry is the proof, and may take so many evaluations and vjps in any case, by the
largest number of inputs and outputs that this holds for. The values are ours."""
TIMES_AS_LONG = 4
"""A search that has found nothing may take this many times the work that one with a result may
take. The value is ours."""
REPLAYED_PER_EVALUATION = 200
"""A replay may take as long as thousands of evaluations. So many of its operations on numbers take
about as long as one of a function that calls a few kernels, half a millisecond. The value is
ours."""
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
        return Residual(self.value - other.value, float(np.hypot(self.error, other.error)))


@dataclass
class Search:
    """Finds the wrong candidates among `size`.

    `measure(weights)` gives the weights that were really taken and the residual of that sum; it may
    write into the weights, which are as many as the candidates.
    `test(k)` gives the residual of candidate `k` alone, with weight 1, and whether it is wrong by
    itself. Where all of a block are wrong, the largest by `magnitude` stands for it.

    One wrong candidate `k` leaves the residual `r` under equal weights, and `r w_k` under weights
    `w`: the ratio of the two names it. Several wrong ones are first separated by halving blocks,
    with `O(k log n)` sums.
    """

    size: int
    measure: Callable[[Vector], tuple[Vector, Residual]]
    test: Callable[[int], tuple[Residual, bool]]
    magnitude: Callable[[], Vector]
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
        everything = range(self.size)
        rest: tuple[Block, Residual] | None = self._remove_single(everything, total)
        for k in self._typical() if rest is not None else ():
            if self.wrong or self._done():
                break
            alone = self._test(k)
            if alone.significant:
                rest = _without(everything, k), total - alone
                # It would take more such entries than are named to explain the rest.
                if self.wrong and abs(rest[1].value) > MOST_NAMED * abs(alone.value):
                    self.many = True
                    return
        blocks = [] if rest is None else [rest]
        depth = 0
        while blocks and not self._done():
            if len(blocks) > MOST_BLOCKS:
                self.many = True
                if not self.wrong:
                    self._sample(blocks, MOST_NAMED)
                    self._halve_worst(blocks)
                return
            halves = [[block] if self._done() else self._halves(*block) for block in blocks]
            blocks = [half for pair in halves for half in pair]
            depth += 1
            if not self.wrong:
                # Where a part of x is wrong as a whole, any entry of it is a proof. Halving alone
                # would go on until there are more blocks than are looked at.
                self._sample(blocks, 1)
            # Some blocks are right, so the others may hold one error each.
            if len(blocks) < 2**depth:
                rests = [self._remove_single(*block) for block in blocks]
                blocks = [rest for rest in rests if rest is not None]
        self.many = bool(blocks)

    def _typical(self) -> list[int]:
        """Returns candidates that are wrong where many are: the one with the largest part of the
        sum, which is as likely as any other, and one without any, if there is such a one. Many
        errors are derivatives that were left out, and none of these has a large part.
        """
        sizes = np.nan_to_num(self.magnitude(), copy=False)
        most, least = int(np.argmax(sizes)), int(np.argmin(sizes))
        return [most, least] if sizes[least] == 0 else [most]

    def _test(self, k: int) -> Residual:
        """Returns the residual of candidate `k` alone, which is measured once."""
        if k not in self.tested:
            self.tested[k], wrong = self.test(k)
            if wrong:
                self.wrong.append(k)
        return self.tested[k]

    def _remove_single(self, block: Block, total: Residual) -> tuple[Block, Residual] | None:
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
        if len(block) == 1 or (np.isfinite(rest.value) and not rest.significant):
            return None
        return (_without(block, k), rest) if alone.significant else (block, total)

    def _only_candidate(self, block: Block, total: Residual) -> int | None:
        """Returns the only wrong candidate of the block, if there is but one."""
        if not np.isfinite(total.value):
            return None if len(block) > 1 else int(block[0])
        while (count := len(block)) > 1 and not self._done():
            kept = self._candidates(block, np.linspace(1, 2, count), total)
            # The weights may be too coarse, or their differences drowned by the error bar: then two
            # weights tell the halves apart.
            if 2 * len(kept) > count:
                halved = np.zeros(count)
                halved[: count // 2] = 1.0
                kept = self._candidates(block, halved, total)
            if not 0 < 2 * len(kept) <= count + 1:
                return None
            block = kept
        return int(block[0]) if len(block) == 1 else None

    def _candidates(self, block: Block, weights: Vector, total: Residual) -> Block:
        """Returns the candidates that would have caused this residual alone."""
        taken, found = self._measured(block, weights)
        alone = np.empty(taken.size, bool)
        for part in chunks(taken.size):
            bar = found.error + np.abs(taken[part]) * total.error
            gap = np.abs(taken[part] * total.value - found.value)
            alone[part] = gap <= SIGNIFICANT_BARS / 2 * bar
        if alone.all():
            return block
        return np.flatnonzero(alone) + block.start if isinstance(block, range) else block[alone]

    def _measured(self, block: Block, weights: Vector) -> tuple[Vector, Residual]:
        """Returns the weights that were really taken within the block, and the residual."""
        if len(block) == self.size:
            return self.measure(weights)
        whole = np.zeros(self.size)
        whole[_places(block)] = weights
        taken, found = self.measure(whole)
        return taken[_places(block)], found

    def _halves(self, block: Block, total: Residual) -> list[tuple[Block, Residual]]:
        """Returns the halves with a significant residual."""
        if len(block) == 1:
            self._test(int(block[0]))
            return []
        one, two = block[: len(block) // 2], block[len(block) // 2 :]
        first = self._measured(one, np.ones(len(one)))[1]
        second = total - first
        if not np.isfinite(second.value):
            second = self._measured(two, np.ones(len(two)))[1]
        return [(half, r) for half, r in ((one, first), (two, second)) if r.significant]

    def _sample(self, blocks: list[tuple[Block, Residual]], most: int) -> None:
        """Tests one candidate of each of the worst blocks, of at most so many."""
        for block, _ in sorted(blocks, key=_off_by, reverse=True)[:most]:
            if not self._done():
                sizes = np.nan_to_num(self.magnitude(), copy=False)
                sizes[list(self.tested)] = -1.0
                self._test(int(block[np.argmax(sizes[_places(block)])]))

    def _halve_worst(self, blocks: list[tuple[Block, Residual]]) -> None:
        """Halves the worst block, and its worse half, until something wrong is found."""
        block, total = max(blocks, key=_off_by)
        while not self.wrong and len(block) > 1 and not self._done():
            halves = self._halves(block, total)
            if not halves:
                return
            block, total = max(halves, key=_off_by)
        if not self.wrong and not self._done():
            self._test(int(block[0]))


def _off_by(block: tuple[Block, Residual]) -> float:
    """Returns how far a block is off; one that is not finite is farther off than any."""
    return float(np.abs(np.nan_to_num(block[1].value, nan=np.inf)))


def _places(block: Block) -> Indices | slice:
    """Returns what picks these candidates out of a vector of all."""
    return slice(block.start, block.stop) if isinstance(block, range) else block


def _without(block: Block, k: int) -> Indices:
    """Returns the block without candidate `k`."""
    every: Indices = np.array(block, np.intp)
    kept: Indices = every[every != k]
    return kept


@dataclass
class Located:
    """The wrong entries behind one projection, the worst first."""

    entries: list[Entry] = field(default_factory=list)
    first: int | None = None
    """The coordinate of x at which the first wrong entry was found."""
    tested: int = 0
    """The number of entries that were compared on the way, one by one."""
    many: bool = False
    """Says whether more are wrong than were looked for."""
    cut_short: bool = False
    """Says whether the budget ended the search."""
    disputed: bool = False
    """Says whether a replay of f found an entry right that differences found wrong."""

    def __iadd__(self, other: Located) -> Located:
        """Adds what was found behind another projection."""
        self.entries += other.entries
        self.tested += other.tested
        self.many |= other.many
        self.cut_short |= other.cut_short
        return self

    @property
    def only_one(self) -> bool:
        """Says whether one entry explains the whole projection."""
        return len(self.entries) == 1 and not self.many and not self.cut_short

    @property
    def also(self) -> AlsoWrong | None:
        """The entries that are wrong beside the first; `None` if nothing is."""
        more = tuple(entry.name for entry in self.entries[1 : MOST_NAMED + 1])
        if not more and not self.many:
            return None
        return AlsoWrong(more, len(self.entries), self.tested, self.many)


@dataclass
class SearchWork:
    """How much more work the search for wrong entries may take: half as much as the check took
    before it, since the verdict stands.

    The first wrong entry may take several times as much. Without this limit a rule that is wrong in
    many entries costs many times what a right one does.
    """

    counts: Counts
    begun: float
    """The work before the search."""
    most: float
    """The work at which the search ends that has found an entry, where a mistake explains it."""
    unexplained: float
    """The work at which it ends where none does."""
    longest: float
    """The work at which every search ends."""

    @classmethod
    def after(cls, base: Base) -> SearchWork:
        """Returns the limits by the size of a problem and what was spent on it so far."""
        counts, size = base.problem.counts, base.problem.X.size + base.Y.size
        so_far = work_of(counts)
        allowed = max(so_far / 2, LEAST_SEARCH if size <= max(LONGEST_SEARCH) else 0)
        unexplained = max(so_far / 2, _by_size(UNEXPLAINED_SEARCH, size))
        longest = max(TIMES_AS_LONG * allowed, _by_size(LONGEST_SEARCH, size))
        return cls(counts, so_far, *(so_far + one for one in (allowed, unexplained, longest)))

    def by_replays(self, replayed: int) -> SearchWork | None:
        """Returns the limits of a search in which a column replays so many operations, which ends
        sooner; `None` where it would end before it finds an entry.
        """
        longest = self.begun + (self.longest - self.begun) / TIMES_AS_LONG
        needed = ENTRY_WORK * replayed / REPLAYED_PER_EVALUATION
        if work_of(self.counts) + needed > longest:
            return None
        return replace(self, longest=longest)

    def spent(self, found: int, explained: Callable[[], bool]) -> bool:
        """Returns whether a search that has found so many entries ends. Whether a mistake explains
        them is asked only where it matters.
        """
        so_far = work_of(self.counts)
        if not found:
            return so_far >= self.longest
        return so_far >= self.most and (so_far >= self.unexplained or explained())


def _by_size(work: Mapping[int, int], size: int) -> int:
    """Returns the work that is allowed for a problem of this size, which may be none."""
    return next((allowed for most, allowed in work.items() if size <= most), 0)


def work_of(counts: Counts) -> float:
    """Returns what a check has cost, with exact replays, in evaluations."""
    return counts.spent + counts.replayed / REPLAYED_PER_EVALUATION


def locate_entries(
    table: Table,
    failure: Failure,
    work: SearchWork,
    explained: Callable[[Located], bool] = lambda _: True,
    *,
    disputes: bool = True,
) -> Located:
    """Returns the entries of the Jacobian behind `failure` that are wrong by themselves.

    Where a mistake has `explained` them all, few are named. Without `disputes` the search ends at
    the first entry that differences find wrong and a replay of f right: the derivative of a wrong
    rule is wrong in every entry for differences of that rule, and in none for f.

    One wrong entry takes about ten evaluations and four vjps at any size, and several take
    `O(log n)` each. Nothing is found where the errors of many entries are too small one by one; the
    projection then speaks for itself.
    """
    search = _Search(table, failure, work, explained, disputes=disputes)
    search.inputs()
    search.found.entries.sort(key=lambda entry: -entry.excess)
    return search.found


class _Search:
    """The search over entries of x, and for each that is found over outputs."""

    def __init__(
        self,
        table: Table,
        failure: Failure,
        work: SearchWork,
        explained: Callable[[Located], bool],
        *,
        disputes: bool,
    ) -> None:
        self.table, self.failure, self.work, self.disputes = table, failure, work, disputes
        columns = failure.columns
        self.base, self.estimator, self.tolerance = columns.base, columns.estimator, table.tolerance
        self.found = Located()
        self.explained = partial(explained, self.found)
        vector = failure.tangent.vector
        self.support = _support(vector)
        self.v: Vector = _at(vector, self.support)
        self.w: Vector
        self.row = np.zeros(0)
        """The vector `J* w`. In forward mode there is a column for every tangent instead."""
        self.nearby: dict[bytes, Reverse] = {}
        self.along_entry: tuple[int, RememberingEstimator] | None = None
        """The entry of x whose column was estimated last, and what estimates it."""
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
        if part == slice(0, count):
            self.w = columns.probes.cotangent
        else:
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
        if self.failure.kind == "each":
            total = self._all_outputs()
        else:
            lost = np.flatnonzero(~np.isfinite(self._terms()))
            # Entries that are not finite are seen without a search.
            if lost.size:
                for k in lost[:MOST_NAMED]:
                    self._test_input(int(k))
                self.found.many |= lost.size > MOST_NAMED
                return
        count = len(self.support)
        search = Search(count, self._measured, self._test_input, self._sizes, self._done)
        search.run(total)
        self.found.many |= search.many

    def _terms(self) -> Vector:
        """Returns the terms that the entries of x have in the projection by reverse mode."""
        return np.asarray(_at(self.row, self.support) * self.v)

    def _sizes(self) -> Vector:
        """Returns how much each entry of x has a part in the projection."""
        each = self.failure.kind == "each"
        return np.asarray(np.abs(self.v if each else np.nan_to_num(self._terms(), copy=False)))

    def _done(self, _: int) -> bool:
        """Returns whether as many entries as are named were found, or there is no room for
        another.
        """
        if not self.table.budget.allows(ENTRY_WORK):
            self.found.cut_short = True
        found = len(self.found.entries)
        ended = self.found.cut_short or (self.found.disputed and not (found or self.disputes))
        return ended or found >= MOST_NAMED or self.work.spent(found, self.explained)

    def _all_outputs(self) -> Residual:
        """Returns the residual of all outputs that are off in forward mode, which are searched for
        together.
        """
        found, pushed = self._column(np.ones(len(self.support)))
        value, error = self._values(found).value, self._values(found).error
        bar = error + truncation(found) * np.abs(value)
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
        """Differences along the weighted tangent, and the image of the same by forward mode. It
        writes into the weights.
        """
        tangent = self.failure.tangent
        part = np.multiply(weights, self.v, out=weights)
        if part.size < tangent.vector.size:
            part, moved = np.zeros_like(tangent.vector), part
            part[self.support] = moved
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
        residual = self._residual(found, pushed)
        vector = found.vector
        del found  # its values are not needed any more
        return _at(vector, self.support) / self.v, residual

    def _residual(self, found: Column, pushed: Vector) -> Residual:
        """Differences less the automatic value, contracted with `w`."""
        each, values = self.failure.kind == "each", self._values(found)
        gap, total, bars, sizes = 0.0, 0.0, [], []
        for part in chunks(self.w.size):
            here, some = self.w[part] != 0, values.of(part)
            w, own = self.w[part][here], some.value[here]
            bars.append(norm(w * some.error[here]))
            gap += float(w @ (own - pushed[part][here] if each else own))
            if each:
                total += float(w @ own)
                sizes.append(norm(w * own))
        for part in () if each else chunks(self.row.size):
            v = found.vector[: self.row.size][part]
            terms = (self.row[part] * v)[v != 0]
            total += float(terms.sum())
            sizes.append(norm(terms))
        # Where the signs lean towards the gradient, the truncation of all terms has one sign.
        size = max(float(norm(np.array(sizes))), abs(total))
        bar = norm(np.array(bars)) + truncation(found) * size
        return Residual(gap if each else gap - total, float(bar))

    def _values(self, found: Column) -> Estimate:
        """The derivative of the outputs that are searched, with its error bars."""
        return found.estimate.of(self.part)

    def _test_input(self, k: int) -> tuple[Residual, bool]:
        """Returns the residual of one entry of x, and whether any output is wrong at it."""
        coordinate, before = int(self.support[k]), len(self.found.entries)
        found, unit = self._along_entry(coordinate)
        pushed = self._pushed(unit)
        total, bar, _ = projected(self._values(found), self.w)
        each = self.failure.kind == "each"
        value = self._values(found).value if each else np.zeros(0)
        if each:
            gap = float(np.where(self.w != 0, self.w * (value - pushed), 0.0).sum())
        else:
            gap = total - float(self.row[coordinate])
        residual = Residual(gap * float(self.v[k]), bar * abs(float(self.v[k])))
        if self.failure.kind == "first":
            self._compare_alone(found, coordinate, None, self.row[coordinate], total, bar)
        elif self.failure.kind == "rows":
            self._locate_outputs(found, coordinate, Residual(gap, bar))
        else:
            error = self._values(found).error
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
        """Two evaluations along one entry of x, with an error bar that covers truncation."""
        unit = np.zeros(self.table.problem.X.size)
        unit[coordinate] = 1.0
        length = abs(float(self.failure.tangent.vector[coordinate]))
        leaf = self.table.problem.X.leaf_of(coordinate)
        found = self._column_of(coordinate).along(Tangent((leaf,), unit, length, coordinate))
        return with_truncation(found), unit

    def _locate_outputs(self, found: Column, coordinate: int, total: Residual) -> None:
        """Searches for the outputs that are wrong at this entry of x, by weights on the entries of
        the cotangent.
        """
        table, Y = self.table, self.base.Y
        reverse, backend = table.reverse, table.problem.backend
        assert reverse is not None
        support, values = _support(self.w), self._values(found)
        likes = self.base.arrays[: len(Y.leaves)]
        unit_of_rounding = VJP_UNITS * self.tolerance.eps

        def measure(weights: Vector) -> tuple[Vector, Residual]:
            w = weights
            if len(support) < Y.size:
                w = np.zeros(Y.size)
                w[support] = weights
            w *= self.w
            if not Y.double:  # the cotangent counts as it is rounded to its dtype
                w = Y.vector(backend, Y.arrays(backend, w, likes), likes)
            reference, bar, size = projected(self._values(found), w)
            gap = reference - float(reverse.row(self.base, w)[coordinate])
            taken = np.divide(_at(w, support), _at(self.w, support))
            return taken, Residual(gap, bar + unit_of_rounding * size)

        def test(k: int) -> tuple[Residual, bool]:
            row, w = int(support[k]), float(self.w[support[k]])
            unit = np.zeros(Y.size)
            unit[row] = 1.0
            automatic = float(reverse.row(self.base, unit)[coordinate])
            del unit
            own = values.of(slice(row, row + 1))
            (value,), (error,) = own.value, own.error
            wrong = self._compare_alone(found, coordinate, row, automatic, value, error)
            return Residual(w * (value - automatic), abs(w) * error), wrong

        def magnitude() -> Vector:
            return np.abs(_at(values.value, support))

        search = Search(len(support), measure, test, magnitude, self._done)
        rounding = unit_of_rounding * projected(self._values(found), self.w)[2]
        search.run(Residual(total.value, total.error + rounding))
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

        A plain difference only says that the entry may be wrong. It is named if it fails the stages
        that every column goes through.
        """
        table = self.table
        self.found.tested += 1
        gap, allowed = abs(automatic - reference), self._allowed(automatic, reference, bar)
        if gap <= allowed or not np.isfinite(reference):
            return False
        kind, along, place = self.failure.kind, self._column_of(coordinate), row
        if row is not None and self.base.Y.size >= limits().large and found.sample is not None:
            # What follows takes ten evaluations and more, of which one output is looked at.
            most = [int(np.nanargmax(np.abs(v))) for v in (found.estimate.value, self.base.values)]
            base, place = self.base.few(row, most)
            asked = self.estimator.over(base)
            first = asked.again(found)
            along = RememberingEstimator(asked.problem, base, asked=asked, first=[first])
            found = with_truncation(first)
        if self._is_curvature(along, found, place, automatic):
            return False
        alone = AutomaticEntry(kind, int(row or 0), int(place or 0), automatic)
        judged = judge_entry(table, along, found.tangent, alone, self.nearby)
        if judged is None:
            self.found.cut_short = True
            return False
        if not judged.wrong:
            self.found.disputed |= judged.column.estimate.method.scheme is Scheme.REFERENCE
            return False
        if len(self.found.entries) < MOST_NAMED:
            self._name(coordinate, row, automatic, judged)
        return True

    def _name(
        self, coordinate: int, row: int | None, automatic: float, judged: JudgedEntry
    ) -> None:
        """Keeps an entry that is wrong."""
        problem, Y, entry = self.table.problem, self.base.Y, self.failure.entry
        comparison, name = judged.comparison, problem.X.entry(coordinate)
        wrong = replace(
            entry,
            of=entry.of if row is None else Y.entry(int(row)),
            wrt=along_random(name) if row is None else name,
            automatic=float(automatic),
            reference=float(comparison.reference[0]),
            error=float(comparison.error[0]),
            allowed=float(comparison.allowed[0]),
            method=judged.column.estimate.method,
            slopes=None,
            projected=entry.projected and row is None,
            output="" if row is None else Y.leaves[Y.leaf_of(int(row))].name,
            input=problem.X.leaves[problem.X.leaf_of(coordinate)].name,
            steps=() if row is None else judged.steps,
            enclosure=judged.enclosure,
        )
        self.found.entries.append(wrong)
        if self.found.first is None:
            self.found.first = coordinate

    def _is_curvature(
        self, along: RememberingEstimator, found: Column, row: int | None, automatic: float
    ) -> bool:
        """Returns whether three steps, or a ladder, explain the gap by truncation. Without this a
        right entry of a curved function would go through all stages.
        """
        moved = found.estimate.moved[self.part]
        if found.step == 0.0 or found.one_sided or not np.any(moved if row is None else moved[row]):
            return False
        measured = along.along(found.tangent, Effort.THREE_STEPS, found)
        if not measured.ladders:
            measured = along.along(found.tangent, Effort.LADDER, found)
        if row is None:
            reference, bar, _ = projected(self._values(measured), self.w)
        else:
            own = self._values(measured).of(slice(row, row + 1))
            reference, bar = float(own.value[0]), float(own.error[0])
        return bool(abs(automatic - reference) <= self._allowed(automatic, reference, bar))

    def _column_of(self, coordinate: int) -> RememberingEstimator:
        """Returns what estimates the column of one entry of x, each effort once."""
        if self.along_entry is None or self.along_entry[0] != coordinate:
            asked = self.estimator
            along = RememberingEstimator(asked.problem, self.base, asked=asked)
            self.along_entry = coordinate, along
        return self.along_entry[1]

    def _allowed(self, automatic: Any, reference: Any, bar: Any) -> Any:
        """Returns the largest difference that is accepted of one entry."""
        return bar + self.tolerance.relative * np.maximum(abs(automatic), abs(reference))


def projected(values: Estimate, w: Vector) -> tuple[float, float, float]:
    """Returns `<w, J v>` of an estimate of `J v`, its error bar, and the root of the sum of the
    squares of its terms.
    """
    total, bars, sizes = 0.0, [], []
    for part in chunks(w.size):
        some, here = values.of(part), w[part] != 0
        total += float(w[part] @ some.value)
        bars.append(norm((w[part] * some.error)[here]))
        sizes.append(norm((w[part] * some.value)[here]))
    return total, float(norm(np.array(bars))), float(norm(np.array(sizes)))


def _support(vector: Vector) -> Block:
    """Returns the entries that are not zero."""
    nonzero = vector != 0
    return range(vector.size) if nonzero.all() else np.flatnonzero(nonzero)


def _at(vector: Vector, support: Block) -> Vector:
    """Returns these entries of a vector, which is not copied where they are all of it."""
    return vector[_places(support)]


def with_truncation(found: Column) -> Column:
    """Returns two evaluations with an error bar that covers truncation."""
    near, part = found.estimate, truncation(found)
    # To one side a ladder was taken already.
    if found.step == 0.0 or found.one_sided:
        return found

    def wider(some: slice) -> Estimate:
        own = near.of(some)
        return own.but(error=own.error + part * np.abs(own.value))

    return replace(found, estimate=in_parts(wider, near.count))


def truncation(found: Column) -> float:
    """Returns the truncation error of one central difference, relative to the derivative: `h^2 f'''
    / 6`, with an f''' over the scale of x that is a few times f'.
    """
    return TRUNCATION_FACTOR * found.relative**2

"""This module fills the Jacobian's table column by column, compares each, and keeps what disagrees.

Each column is first compared by two evaluations, which are shared by all modes. Only a column that
these leave in doubt is refined (`refine`), and only so many of them, since the verdict stands after
some. What is too small to show beside larger entries is compared once more by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import LADDER_COLUMNS, SATURATED_COLUMNS, SEPARATIONS
from adjudge.estimate import SIGNIFICANT_BITS, Column, column
from adjudge.findings import Entry
from adjudge.floats import Vector
from adjudge.jacobian.adjoint import AdjointTest
from adjudge.jacobian.affine import Affine
from adjudge.jacobian.budget import Budget
from adjudge.jacobian.coloring import colored_tangents
from adjudge.jacobian.column import ColumnBlock, Columns, ModeComparison, RowKind, kinks, slopes_of
from adjudge.jacobian.comparison import Comparison, Tally, Tolerance
from adjudge.jacobian.refine import Refinement, count_entries, worst_entries
from adjudge.jacobian.saturation import (
    all_saturated,
    dominating_constants,
    mark_uncompared,
    undetectable,
)
from adjudge.limits import limits
from adjudge.problem import Base, Forward, Probes, Problem, Reverse, Tangent


@dataclass(frozen=True)
class Failure:
    """A projected comparison that failed, with what is needed to search for the entry."""

    mode: str
    kind: RowKind
    """The kind of the row; see `RowKind`."""
    tangent: Tangent
    row: int
    entry: Entry


def row_name(probes: Probes, base: Base, kind: RowKind, k: int) -> str:
    """Returns what row `k` of a comparison of that kind is the derivative of."""
    if kind == "first":
        return "<w, f>"
    if probes.full or kind == "each":
        return base.Y.entry(k)
    return f"<w, {base.Y.leaves[k].name}>"


def column_name(problem: Problem, tangent: Tangent) -> str:
    """Returns what the derivative is taken with respect to."""
    if tangent.coordinate is not None:
        return problem.X.entry(tangent.coordinate)
    return f"{problem.X.leaves[tangent.leaf].name} along v"


class TwoEvaluations(NamedTuple):
    """A column by two evaluations, with what the modes say of it."""

    found: Column
    pushed: Vector | None
    """The image of the tangent by forward mode."""
    compared: list[ModeComparison]


@dataclass
class Table:
    """The comparison of one Jacobian: a problem, its probes, and the modes that fill the table."""

    problem: Problem
    base: Base
    probes: Probes
    tolerance: Tolerance
    eps: float | None
    reverse: Reverse | None
    forward: Forward | None
    tallies: dict[str, Tally]
    known_row: Vector | None = None
    """The only row, where there is but one and it is at hand."""
    failed_columns: int = 0
    """The columns that failed after a ladder of steps."""
    open_columns: int = 0
    """The columns on which a ladder of steps left something undecided."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """Maps a mode to its first comparison that failed."""
    projections: dict[tuple[str, int, int], Failure] = field(default_factory=dict)
    """The projections that failed, by mode, input and output (-1: the first of all outputs)."""
    undecidable: set[str] = field(default_factory=set)
    """The modes with a jump at x, or with a kink where the automatic value is NaN: nothing but
    another x settles them."""
    significant: list[Failure] = field(default_factory=list)
    """The projections that agree with a deviation that is significant all the same."""
    pushed: dict[int, tuple[Vector, Vector]] = field(default_factory=dict)
    """The first tangent that was pushed forward, and its image, by leaf."""
    saturated_columns: int = 0
    """The columns below the rounding of f that were looked into."""
    carried_dtype: str | None = None
    """The dtype to which f was seen to round its values, where it is narrower than that of its
    outputs."""
    budget: Budget = field(init=False)
    columns: Columns = field(init=False)
    """Makes the comparisons of one column."""
    rows: Vector | None = None
    """The whole table by reverse mode, where it fitted into one block."""
    adjoint_test: AdjointTest = field(init=False)
    affine: Affine | None = None
    """Compares columns along which f is affine to rounding."""
    block_sums: Callable[[], dict[str, Tally] | None] | None = None
    """Compares a large problem by sums of blocks: it gives the tallies where everything agrees in
    that."""
    replaced_by_sums: bool = False
    """Says whether that comparison took the place of all columns."""

    def __post_init__(self) -> None:
        """Makes what follows from the rest."""
        modes = self.reverse is not None, self.forward is not None
        self.budget = Budget(self.problem, self.probes, *modes, self.known_row is not None)
        self.columns = Columns(self.problem, self.base, self.probes, self.tolerance)
        # A bound method would close a cycle, which keeps arrays on devices until Python collects
        # garbage.
        self.adjoint_test = AdjointTest(partial(row_name, self.probes, self.base, "rows"))

    def tally(self, letter: str) -> Tally:
        """Returns the tally of the mode `letter` on top of the derivatives already taken."""
        mode = letter + self.problem.modes_taken if letter else self.problem.modes_taken
        return self.tallies.setdefault(mode, Tally(mode))

    def fill(self) -> None:
        """Compares all columns. Differences are taken once and shared by every mode."""
        for block in self._blocks():
            whole = block.columns == slice(0, self.problem.X.size)
            self.rows = block.rows if whole else None
            settled = self._compare_colored(block)
            along = self._gradient(block.rows)
            for tangent in self.probes.tangents(self.problem.origin, block.columns, along):
                if tangent.coordinate in settled:
                    continue
                if not self.budget.allows(self.budget.column):
                    return
                self.budget.columns += 1
                self.compare_column(tangent, block)
                if self.replaced_by_sums:
                    self.budget.columns = self.probes.columns
                    return
            # There has to be room for the rows of another block.
            if not self.budget.allows(self.budget.rows_allowed):
                return

    def _compare_colored(self, block: ColumnBlock) -> set[int]:
        """Compares columns of a sparse table together, and returns the coordinates that this
        settles.

        An elementwise function of n entries then takes two evaluations and not 2n. A group that
        does not agree clearly is not followed up: its columns are compared one by one.
        """
        settled: set[int] = set()
        plain = self.probes.full and self.eps is None and not self.problem.modes_taken
        rows = block.rows
        if not plain or rows is None or rows.shape[0] < self.probes.rows:
            return settled
        origin = self.problem.origin
        for tangent, coordinates in colored_tangents(self.probes, origin, block.columns, rows):
            if not self.budget.allows(self.budget.column):
                break
            found, pushed, compared = self.from_two_evaluations(tangent, block)
            if not all(comparison.agrees_clearly for _, comparison, _ in compared):
                continue
            settled.update(coordinates)
            for letter, comparison, kind in compared:
                tally = self.tally(letter)
                tally.compared += comparison.automatic.size * (len(coordinates) - 1)
                self._record(tally, comparison, kind, found)
                tally.weigh(comparison.automatic, comparison.allowed)
            if pushed is not None:
                self._forward_against_reverse(found, block, pushed)
        self.budget.columns += len(settled)
        return settled

    def _blocks(self) -> Iterator[ColumnBlock]:
        """Yields blocks of columns with their rows by reverse mode, so that a large table need not
        be held at once.
        """
        if self.reverse is None:
            yield ColumnBlock(slice(0, self.problem.X.size))
            return
        rows = self.budget.rows = self.budget.rows_allowed
        cotangents = islice(self.probes.cotangents(), rows)
        # A random tangent moves every column, so the rows must be whole.
        whole = not self.probes.full
        blocks = self.reverse.blocks(self.base, cotangents, rows, self.known_row, whole=whole)
        yield from (ColumnBlock(columns, table) for columns, table in blocks)

    def _gradient(self, rows: Vector | None) -> Vector | None:
        """Returns the gradient that random tangents lean towards: that of all projected outputs
        together.
        """
        if rows is None or self.probes.full:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(rows[0] if rows.shape[0] == 1 else np.sum(rows, axis=0))

    def from_two_evaluations(self, tangent: Tangent, block: ColumnBlock) -> TwoEvaluations:
        """Returns a column from two evaluations, its image by forward mode, and the comparisons of
        both modes.
        """
        found = column(self.problem, self.base, tangent, self.eps)
        pushed = None
        if self.forward is not None:
            pushed = self.forward.column(self.base, found.vector, tangent.leaf)[1]
            self.pushed.setdefault(tangent.leaf, (found.vector, pushed))
        if self.affine is not None:
            self.affine.compare(found, block, self.forward)
        compared = list(self.columns.comparisons(found, block, pushed))
        return TwoEvaluations(found, pushed, compared)

    def compare_column(self, tangent: Tangent, block: ColumnBlock) -> None:
        """Compares one column, and refines it where two evaluations leave a doubt."""
        if limits().sums_first and self.block_sums_agree():
            return
        found, pushed, compared = self.from_two_evaluations(tangent, block)
        # A step that the caller fixed with `eps=` is not refined: what it shows is what was asked
        # for.
        settled = self.eps is not None or all(c.agrees_clearly for _, c, _ in compared)
        # A column that a huge constant hides is compared without it; everything was recorded there.
        if not settled and self._without_constants(found, tangent, block):
            return
        disagrees = not settled and any(bool(np.any(self.doubtful(c))) for _, c, _ in compared)
        doubt = (disagrees and self.failed_columns < LADDER_COLUMNS) or (
            not settled
            and count_entries(compared, "undecided")
            and self.open_columns < LADDER_COLUMNS
        )
        # Only a few columns are looked into; see `SATURATED_COLUMNS`.
        few = (
            self.saturated_columns < SATURATED_COLUMNS
            and not self.problem.modes_taken
            and not found.from_reference
        )
        saturated = not (doubt or settled) and few and all_saturated(compared)
        self.saturated_columns += saturated
        # Before the first ladder of a large problem, sums of blocks may settle all of it.
        if (doubt or saturated) and self.block_sums_agree():
            return
        if doubt or saturated:
            if not self.budget.allows_ladder():
                return
            refinement = self._refinement(block, pushed)
            outcome = refinement.refine(
                found,
                compared,
                disagrees=disagrees or saturated,
                carried_dtype=self.carried_dtype is not None,
            )
            if outcome is None:
                return
            found, compared, dtype = outcome
            # f computes in a narrower dtype inside: the column is judged again by that one's
            # tolerances.
            if dtype is not None:
                self._use_dtype(dtype)
                self.compare_column(tangent, block)
                return
            if saturated:
                compared = refinement.open_saturated(compared, found)
            if few and all(not np.any(c.automatic) for _, c, _ in compared):
                compared = refinement.open_unconfirmed_zeros(compared, found)
                self.saturated_columns += not saturated
            self.failed_columns += bool(count_entries(compared, "fails"))
            self.open_columns += bool(count_entries(compared, "undecided"))
        self._record_all(compared, found, block)
        if pushed is not None and block.rows is not None:
            self._forward_against_reverse(found, block, pushed)

    def _without_constants(self, found: Column, tangent: Tangent, block: ColumnBlock) -> bool:
        """Compares the column without outputs whose size hides the others, if there are such.

        These stand still, and reverse mode says so, too; see `dominating_constants`. Returns
        whether the column was compared.
        """
        if self.probes.full or found.from_reference or self.base.constant is not None:
            return False
        still = dominating_constants(
            self.base, self.probes, found, None if block.rows is None else self.reverse
        )
        if still is None:
            return False
        self._use_base(replace(self.base, constant=still))
        self.compare_column(tangent, block)
        self._use_base(replace(self.base, constant=None))
        return True

    def _use_base(self, base: Base) -> None:
        """Judges f as `base` has it from here on."""
        self.base = base
        self.columns = Columns(self.problem, base, self.probes, self.tolerance)

    def block_sums_agree(self) -> bool:
        """Returns whether all of a large problem agrees by sums of blocks, which is asked once,
        before any ladder.
        """
        block_sums, self.block_sums = self.block_sums, None
        found = None if block_sums is None else block_sums()
        if found is not None:
            self.replaced_by_sums = True
            for kept in (self.tallies, self.failures, self.projections, self.significant):
                kept.clear()
            self.tallies.update(found)
        return self.replaced_by_sums

    def _record_all(
        self,
        compared: list[ModeComparison],
        found: Column,
        block: ColumnBlock,
        depth: int = 0,
    ) -> None:
        """Counts and weighs the comparisons of a column."""
        for letter, comparison, kind in compared:
            self._record(self.tally(letter), comparison, kind, found)
            if kind == "each" and self.problem.block_sums is not None:
                mark_uncompared(self.problem.block_sums, comparison, found)
            if kind == "rows":
                self._weigh_entries(self.tally(letter), comparison, found, block, depth)

    def _weigh_entries(
        self,
        tally: Tally,
        comparison: Comparison,
        found: Column,
        block: ColumnBlock,
        depth: int = 0,
    ) -> None:
        """Compares once more by itself what has too small a part in a comparison for any error to
        show.
        """
        if not self.tolerance.automatic or self.eps is not None:
            return
        too_small = undetectable(self.columns, tally, comparison, found, block, again=depth > 0)
        if too_small is None or depth == SEPARATIONS or tally.failed or self.problem.modes_taken:
            return
        if self.problem.block_sums is not None:
            self.problem.block_sums.undetectable[found.tangent.leaf] = too_small
        elif not np.all(too_small):
            part = self.problem.X.slices[found.tangent.leaf]
            vector = np.zeros_like(found.vector)
            vector[part] = np.where(too_small, found.tangent.vector[part], 0.0)
            self.compare_separately(replace(found.tangent, vector=vector), block, depth + 1)

    def compare_separately(
        self, tangent: Tangent, block: ColumnBlock, depth: int = SEPARATIONS
    ) -> None:
        """Compares entries that are too small to show among the others by themselves.

        The comparison can fail, and it adds to what would have shown. What it leaves open makes the
        verdict no worse: those entries were accepted as a part of the whole before.
        """
        if not self.budget.allows(self.budget.column):
            return
        found, pushed, compared = self.from_two_evaluations(tangent, block)
        if found.from_reference or not all(
            comparison.agrees_clearly for _, comparison, _ in compared
        ):
            agree = all(bool(np.all(comparison.agrees)) for _, comparison, _ in compared)
            if agree and not found.from_reference:
                for letter, comparison, kind in compared:
                    if kind == "rows":
                        self._weigh_entries(self.tally(letter), comparison, found, block, depth)
                return
            refinement = self._refinement(block, pushed)
            outcome = refinement.refine(found, compared, disagrees=True, carried_dtype=True)
            if outcome is None or not (found.from_reference or count_entries(outcome[1], "fails")):
                return
            found, compared = outcome[:2]
        self._record_all(compared, found, block, depth)

    def _refinement(self, block: ColumnBlock, pushed: Vector | None) -> Refinement:
        """Returns what it takes to judge a column of this block again."""

        def compare(found: Column) -> list[ModeComparison]:
            return list(self.columns.comparisons(found, block, pushed, final=True))

        return Refinement(self.problem, self.base, self.probes, self.budget, compare)

    def doubtful(self, comparison: Comparison) -> NDArray[np.bool_]:
        """Marks the entries that two evaluations do not settle."""
        doubtful = ~comparison.agrees | comparison.vanishing
        if not self.probes.full:
            doubtful |= comparison.coarse | comparison.significant
        return doubtful

    def _use_dtype(self, dtype: str) -> None:
        """Judges f as code in that dtype from here on.

        Code that computes in float32 inside of float64 has differences that are right to seven
        digits, and would fail by the tolerance of float64.
        """
        bits = SIGNIFICANT_BITS[dtype]
        self.carried_dtype = dtype
        self.tolerance = replace(self.tolerance, eps=max(self.tolerance.eps, 2.0 ** (1 - bits)))
        self._use_base(self.base.rounded(2.0 ** (1 - bits)))

    # -- keeping what disagrees

    def _record(self, tally: Tally, comparison: Comparison, kind: RowKind, found: Column) -> None:
        # The projection of an empty output has nothing in it, and is no comparison.
        """Counts one comparison and keeps its worst entries, each under the status that it will be
        reported with.
        """
        empty = [kind == "rows" and not leaf.size for leaf in self.base.Y.leaves]
        tally.compared += int(comparison.automatic.size) - (0 if self.probes.full else sum(empty))
        if comparison.agrees_clearly:
            tally.nonzero += int(np.count_nonzero(comparison.automatic))
            tally.resolution = max(tally.resolution, comparison.resolution)
            return
        fails, undecided = comparison.fails, comparison.undecided
        slopes = slopes_of(self.problem, self.probes, kind, found, self.base.Y.size)
        kink, undecidable = kinks(slopes, comparison, ties=self.probes.full)
        if undecidable:
            self.undecidable.add(tally.mode)
        fails, undecided = fails & ~kink, undecided & ~kink
        tally.nonzero += int(np.count_nonzero(comparison.automatic))
        tally.resolution = max(tally.resolution, comparison.resolution)
        tally.failed += int(np.count_nonzero(fails))
        tally.undecided += int(np.count_nonzero(undecided))
        tally.kinks += int(np.count_nonzero(kink))
        for k in worst_entries(comparison, fails):
            entry = self._entry(tally.mode, comparison, kind, found, k)
            if not comparison.moved[k] and comparison.automatic[k] != 0:
                tally.keep(tally.spurious, entry)
            elif self._detached(kind, k):
                tally.keep(tally.detached, entry)
            elif self._absent(kind, found):
                tally.keep(tally.missing, entry)
            else:
                tally.keep(tally.wrong, entry)
            failure = Failure(tally.mode, kind, found.tangent, k, entry)
            self.failures.setdefault(tally.mode, failure)
            key = tally.mode, found.tangent.leaf, -1 if kind == "each" else k
            self.projections.setdefault(key, failure)
        if not self.probes.full:
            for k in worst_entries(comparison, comparison.significant & ~undecided):
                entry = self._entry(tally.mode, comparison, kind, found, k)
                self.significant.append(Failure(tally.mode, kind, found.tangent, k, entry))
        for k in worst_entries(comparison, kink | undecided):
            entry = self._entry(tally.mode, comparison, kind, found, k)
            # The kink belongs to another output.
            if kink[k] and entry.slopes is None:
                entry = replace(entry, slopes=(entry.reference, entry.reference))
            tally.keep(tally.open, entry)

    def _detached(self, kind: RowKind, k: int) -> bool:
        """Returns whether the engine recorded nothing for the output of row `k`."""
        if self.reverse is None or kind == "first":
            return False
        output = int(self.base.Y.owner[k]) if self.probes.full or kind == "each" else k
        return not self.reverse.attached[output]

    def _absent(self, kind: RowKind, found: Column) -> bool:
        """Returns whether no pullback had a gradient for the input of this column."""
        if self.reverse is None or kind == "first":
            return False
        return not self.reverse.present[found.tangent.leaf]

    def _entry(
        self, mode: str, comparison: Comparison, kind: RowKind, found: Column, k: int
    ) -> Entry:
        """Returns the numbers of entry `k`, for the report."""
        slopes = slopes_of(self.problem, self.probes, kind, found, self.base.Y.size)
        return Entry(
            mode,
            row_name(self.probes, self.base, kind, k),
            column_name(self.problem, found.tangent),
            float(comparison.automatic[k]),
            float(comparison.reference[k]),
            float(comparison.error[k]),
            float(comparison.allowed[k]),
            found.estimate.method,
            None
            if slopes is None or np.isnan(slopes[0][k])
            else (float(slopes[0][k]), float(slopes[1][k])),
            comparison.rounding_level(k),
            found.from_reference,
            projected=kind == "first" or (kind == "rows" and not self.probes.full),
        )

    def _forward_against_reverse(self, found: Column, block: ColumnBlock, pushed: Vector) -> None:
        """Makes the adjoint test along the tangent of this column."""
        tally, wrt = Tally("identity"), column_name(self.problem, found.tangent)
        tally = self.tallies.setdefault(tally.mode, tally)
        self.adjoint_test.compare(self.columns, tally, wrt, found, block, pushed)

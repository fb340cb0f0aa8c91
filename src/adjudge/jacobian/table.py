"""This module fills the Jacobian's table column by column, compares each, and keeps what disagrees.

Each column is first compared by two evaluations, which are shared by all modes. What these leave in
doubt goes through the stages (`stages`). What is too small to show beside larger entries is
compared once more by itself. The budget says what of it still fits into `max_evaluations`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CHANCE_PART,
    COARSE_EPS,
    DOUBTED_ENTRIES,
    EXACT_UNITS,
    FAR_BELOW,
    FEW_LEAVES,
    GROSS_TOLERANCES,
    HIDDEN_PART,
    LADDER_COLUMNS,
    LONGEST_STEP,
    NARROW_BLOCK,
    NARROW_BLOCKS,
    OPEN_BLOCKS,
    SATURATED_COLUMNS,
    SATURATED_UNITS,
    SATURATION_DISTANCES,
    SEPARATIONS,
    SIGNIFICANT_PART,
    TRUNCATION_ROOM,
)
from adjudge.errors import attempt
from adjudge.estimate import SIGNIFICANT_BITS, Column, Effort, Estimator, at_fixed_step
from adjudge.findings import (
    BudgetSpent,
    Entry,
    Finding,
    Remedy,
    Status,
    Task,
    along_random,
    entry_name,
)
from adjudge.floats import Vector, norm, relative_step
from adjudge.jacobian.adjoint import AdjointTest
from adjudge.jacobian.affine import Affine
from adjudge.jacobian.column import (
    ColumnBlock,
    Columns,
    ModeComparison,
    RowKind,
    enclosed,
    slopes_by_step,
)
from adjudge.jacobian.comparison import ERRORS, Comparison, Pairs, Tally, Tolerance, decide
from adjudge.jacobian.hidden import (
    hidden_outputs,
    of_outputs,
    parts_of_outputs,
    resolved,
    without_still,
)
from adjudge.jacobian.saturation import count_saturated, stand_still, value_along
from adjudge.jacobian.stages import (
    STAGES,
    TWO_EVALUATIONS,
    Again,
    AutomaticRounding,
    Doubt,
    Examined,
    ReplayedRules,
    Trial,
    apply,
    doubt_of,
    worst_entries,
)
from adjudge.problem import (
    Base,
    Forward,
    Probes,
    Problem,
    Purpose,
    Reverse,
    Tangent,
    colored_tangents,
    evaluate,
    halves,
    shared_tangents,
)

ENTRY_WORK = 7
"""The evaluations and vjps that must be left before another wrong entry is searched for. Locating
one entry takes six evaluations at any size (docs/architecture.md)."""


SILENT_KINK_WORK = 2
"""The evaluations that it takes to tell a kink from curvature."""
COLUMNS_AHEAD = 32
"""The columns along which an executor evaluates f before they are compared: enough for 64
processors, and few enough to be held. The value is ours."""


def least_work(taken: str, letters: str) -> int:
    """Returns the work that one comparison takes in each of the modes `letters` after the modes
    `taken`, with what comes before it: the value, the identities of the mode, a row and a column. A
    budget below this is refused, since its check could compare nothing.
    """
    order, evaluation = len(taken), 2 if taken else 1
    # Reverse mode evaluates f once, tries linearity with three cotangents, and pulls back one row.
    reverse = 5 if "R" in letters else 0
    # Forward mode tries linearity with two tangents and pushes forward one; each of them also
    # evaluates f.
    pushed = 6 + 3 * order if "F" in letters else 0
    return 1 + 3 * order + 2 * evaluation + reverse + pushed


@dataclass
class Budget:
    """Keeps account of how much of one table there is room for, and how much of it was made."""

    problem: Problem
    probes: Probes
    backward: bool
    forward: bool
    rows: int = 0
    columns: int = 0
    doubtful: int = 0
    """The number of columns that needed a ladder of steps and were not compared, for want
    of one."""
    left: list[Task] = field(default_factory=list)
    """The tasks that were not done besides."""

    def allows(self, work: float) -> bool:
        """Returns whether there is room for `work` evaluations, each of which may be one of a
        derivative.
        """
        counts = self.problem.counts
        return counts.limit == np.inf or counts.allows(work * self.unit)

    @cached_property
    def unit(self) -> int:
        """The work of one evaluation: an evaluation of a derivative contains a vjp or jvp and
        counts two.
        """
        return 2 if self.problem.modes_taken else 1

    @property
    def column(self) -> int:
        """The evaluations of one column."""
        return 4 if self.forward else 2

    @property
    def rows_allowed(self) -> int:
        """The rows of reverse mode that are taken: all of them, or as many as leave half of the
        budget to the columns. Without that limit the rows of a large output would use up the
        budget, and nothing would be compared with them.
        """
        counts, rows = self.problem.counts, self.probes.rows
        column = self.column * self.unit
        if counts.allows(rows + self.probes.columns * column):
            return rows
        room = int(counts.limit - counts.spent)
        return max(1, min(rows, room // 2, room - column))

    def allows_ladder(self) -> bool:
        """Returns whether there is room for a ladder of steps; without it the column is counted as
        doubtful.
        """
        room = self.allows(self.column)
        self.doubtful += not room
        return room

    def affords(self, task: Task, work: float) -> bool:
        """Returns whether there is room for the `work` of a task; else it is left."""
        if self.allows(work):
            return True
        self.leave(task)
        return False

    def leave(self, task: Task) -> None:
        """Remembers that a task was left."""
        if task not in self.left:
            self.left.append(task)

    def finding(self, compared: int) -> Finding | None:
        """Returns the finding about what was left; `None` if nothing was."""
        probes, counts = self.probes, self.problem.counts
        rows = max(probes.rows - self.rows, 0) if self.backward else 0
        columns = max(probes.columns - self.columns, 0)
        if not (rows or columns or self.doubtful or self.left):
            return None
        detail = BudgetSpent(
            compared,
            self.planned,
            counts.spent,
            counts.limit,
            rows=rows,
            all_rows=probes.rows,
            columns=columns,
            all_columns=probes.columns,
            doubtful=self.doubtful,
            tasks=tuple(self.left),
        )
        return Finding(Status.UNFINISHED, "", "", detail, Remedy.ENLARGE_BUDGET)

    @property
    def incomplete(self) -> bool:
        """Says whether any comparison was left."""
        short = self.columns < self.probes.columns or self.doubtful > 0
        return short or (self.backward and self.rows < self.probes.rows)

    @property
    def planned(self) -> int:
        """The number of comparisons that a check without a budget makes."""
        probes, problem = self.probes, self.problem
        rows = probes.Y.size if probes.full else sum(leaf.size > 0 for leaf in probes.Y.leaves)
        each = self.backward * rows + self.forward * probes.Y.size
        first = problem.X.leaves[: problem.primal_inputs] if problem.cotangent is not None else ()
        observed = sum(leaf.size if probes.full else leaf.size > 0 for leaf in first)
        return probes.columns * each + observed


@dataclass(frozen=True)
class Failure:
    """A projected comparison that failed, with what is needed to search for the entry."""

    mode: str
    kind: RowKind
    """The kind of the row; see `RowKind`."""
    tangent: Tangent
    row: int
    entry: Entry
    columns: Columns
    """Made the comparison."""

    @property
    def key(self) -> tuple[object, ...]:
        """Which comparison of its table it is."""
        return self.mode, self.tangent.leaves, self.kind, self.row


def row_name(probes: Probes, base: Base, kind: RowKind, k: int) -> str:
    """Returns what row `k` of a comparison of that kind is the derivative of."""
    if kind == "first":
        return "f"
    if probes.full or kind == "each":
        return base.Y.entry(k)
    return base.Y.leaves[k].name


def column_name(problem: Problem, tangent: Tangent) -> str:
    """Returns what the derivative is taken with respect to."""
    if tangent.coordinate is not None:
        return problem.X.entry(tangent.coordinate)
    moved = np.flatnonzero(tangent.vector)
    if moved.size == 1 and tangent.vector[moved[0]] == 1:
        return problem.X.entry(int(moved[0]))
    return along_random(problem.X.names(tangent.leaves))


@dataclass(frozen=True)
class Item:
    """A column that is still to be compared."""

    tangent: Tangent
    block: ColumnBlock
    columns: Columns | None = None
    """Makes its comparisons, where that is not what makes those of the table: outputs that hide
    others are left out, or hidden ones are compared by themselves."""
    found: Column | None = None
    """The estimate, where it is at hand."""
    pushed: Vector | None = None
    """The image of the tangent by forward mode, where it is at hand."""
    depth: int = 0
    """How many times its entries have been taken out of larger columns, where they did not show.
    Such a comparison can fail, and adds to what would have shown. What it leaves open makes the
    verdict no worse: its entries were accepted as a part of the whole before."""


@dataclass
class Record:
    """What disagreed, or could not be settled, so far."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    """The comparisons of each mode."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """Maps a mode to its first comparison that failed."""
    projections: dict[tuple[str, int, int], Failure] = field(default_factory=dict)
    """The projections that failed, by mode, input and output (-1: the first of all outputs)."""
    undecidable: set[str] = field(default_factory=set)
    """The modes with a jump at x, or with a kink where the automatic value is NaN: nothing but
    another x settles them."""
    bent: NDArray[np.bool_] | None = None
    """The outputs with a kink that has excused an automatic value."""
    significant: list[Failure] = field(default_factory=list)
    """The projections that agree with a deviation that is significant all the same."""
    proved: set[str] = field(default_factory=set)
    """The modes in which an entry was proved wrong."""
    reached: Counter[str] = field(default_factory=Counter)
    """How many columns each stage was tried on."""
    decided: Counter[str] = field(default_factory=Counter)
    """How many columns each stage decided: it was the last one that changed what was known."""

    def failure_behind(self, tally: Tally) -> Failure | None:
        """Returns the comparison in which the entry failed that a mode is reported by."""
        for failure in self.projections.values() if tally.wrong else ():
            first, same = tally.wrong[0], failure.mode == tally.mode
            if same and (failure.entry.input, failure.entry.output) == (first.input, first.output):
                return failure
        return self.failures.get(tally.mode)


@dataclass
class Table:
    """The comparison of one Jacobian: a problem, its probes, and the modes that fill the table."""

    columns: Columns
    """Makes the comparisons of one column, from its estimate, the probes and the tolerance."""
    reverse: Reverse | None
    forward: Forward | None
    known_row: Vector | None = None
    """The only row, where there is but one and it is at hand."""
    affine: Affine | None = None
    """Compares columns along which f is affine to rounding."""
    record: Record = field(default_factory=Record)
    examined: Examined = field(default_factory=Examined)
    """How many columns were looked into."""
    carried_dtype: str | None = None
    """The dtype to which f was seen to round its values, where it is narrower than that of its
    outputs."""
    eps: float | None = None
    """The absolute step that the caller fixed for the first differences, if any."""
    by_blocks: bool = False
    """Whether blocks of entries are compared by themselves, too; see `NARROW_BLOCK`."""
    resting: NDArray[np.intp] | None = None
    """The coordinates that no tangent moves, since the rule gives NaN there."""
    together: Tangent | None = None
    """The tangent of all leaves, where leaves share tangents."""
    rows: Vector | None = None
    """The whole table by reverse mode, where it fitted into one block."""
    problem: Problem = field(init=False)
    """The function that is differentiated, at x."""
    probes: Probes = field(init=False)
    """The tangents and cotangents of the table."""
    budget: Budget = field(init=False)
    adjoint_test: AdjointTest = field(init=False)
    pairs: Pairs | None = field(init=False)
    """The comparisons by pair of leaves; `None` where there is but one, of which no entries are
    compared."""

    def __post_init__(self) -> None:
        """Makes what follows from the rest."""
        self.problem, self.probes = self.columns.problem, self.columns.probes
        modes = self.reverse is not None, self.forward is not None
        self.budget = Budget(self.problem, self.probes, *modes)
        X, Y = self.problem.X, self.columns.base.Y
        self.pairs = None
        if self.probes.full or len(X.leaves) > 1 or len(Y.leaves) > 1:
            self.pairs = Pairs(X, Y, self.columns.base.omitted_of_Y)
        # A bound method would close a cycle, which keeps arrays on devices until Python collects
        # garbage.
        self.adjoint_test = AdjointTest(partial(row_name, self.probes, self.columns.base, "rows"))

    @property
    def base(self) -> Base:
        """The outputs of the function at x."""
        return self.columns.base

    @property
    def estimator(self) -> Estimator:
        """What columns are estimated by."""
        return self.columns.estimator

    @property
    def tolerance(self) -> Tolerance:
        """How far automatic values may be off."""
        return self.columns.tolerance

    @property
    def tallies(self) -> dict[str, Tally]:
        """The comparisons of each mode."""
        return self.record.tallies

    def tally(self, letter: str) -> Tally:
        """Returns the tally of the mode `letter` on top of the derivatives already taken."""
        mode = letter + self.problem.modes_taken if letter else self.problem.modes_taken
        tally = self.record.tallies.get(mode)
        if tally is None:
            tally = self.record.tallies[mode] = Tally(mode)
        return tally

    def fill(self) -> Iterator[Failure]:
        """Compares all columns. Differences are taken once and shared by every mode.

        It yields each projection that differences show to be off beyond doubt, before its other
        stages are tried: if one entry behind it is proved wrong and its mode is added to
        `record.proved`, these are left out.
        """
        for block in self._blocks():
            whole = block.columns == slice(0, self.problem.X.size)
            block = self._without_undefined(block)
            self.rows = block.rows if whole else None
            settled = self._compare_colored(block) | self._unknown(block)
            tangents: Iterator[Tangent] = chain(self._tangents(block), self._doubted_entries(block))
            if self.problem.counts.ahead is not None and self.eps is None:
                tangents = self._begun(t for t in tangents if t.coordinate not in settled)
            for tangent in tangents:
                if tangent.coordinate in settled:
                    continue
                agenda = deque([Item(tangent, block)])
                while agenda:
                    item = agenda.popleft()
                    if not (item.depth or self.budget.allows(self.budget.column)):
                        return
                    trial = self.from_two_evaluations(item)
                    following = yield from self._judged(item, trial)
                    agenda.extendleft(reversed(following))
            if not self._failed and (size := self._size_of_blocks):
                for item in self._blocks_of_entries(block, *size):
                    self._down_to_one(item)
            # There has to be room for the rows of another block.
            if not (whole or self.budget.allows(self.budget.rows_allowed)):
                return

    def _begun(self, tangents: Iterator[Tangent]) -> Iterator[Tangent]:
        """Yields the tangents when the executor has begun the evaluations along some that follow.

        A budget may end before all of them. Projections are few, and are begun one at a time.
        """
        few = 1 if self.problem.counts.limit < np.inf or not self.probes.full else COLUMNS_AHEAD
        waiting = deque(islice(tangents, few))
        self.estimator.begin(waiting)
        while waiting:
            yield waiting.popleft()
            following = [*islice(tangents, 1)]
            self.estimator.begin(following)
            waiting += following

    def _tangents(self, block: ColumnBlock) -> Iterator[Tangent]:
        """Yields the tangents of a block, which several leaves share where that is possible.

        It takes reverse mode to see which leaves would hide behind others. Long differences of
        affine functions (`affine`) are taken leaf by leaf, unless there are many: what is affine in
        each leaf need not be so in all together. Bounds leave no room for a step of all leaves, and
        an absolute step that the caller fixed is one for each of them.
        """
        probes, problem, along = self.probes, self.problem, self._gradient(block.rows)
        automatic = self.eps is None and self.columns.tolerance.automatic
        plain = problem.finite and problem.bounds is None
        least = 2 if self.affine is None else FEW_LEAVES + 1
        if along is None or not (automatic and plain) or probes.columns < least:
            for tangent in probes.tangents(problem.origin, block.columns, along):
                yield self._rested(tangent)
        else:
            self.together = self._rested(probes.tangent(problem.origin, along))
            yield from shared_tangents(probes.X, self.together, along, self._visible)

    def _rested(self, tangent: Tangent) -> Tangent:
        """Returns the tangent without the entries that no tangent moves."""
        if self.resting is None:
            return tangent
        vector = tangent.vector.copy()
        vector[self.resting] = 0.0
        return replace(tangent, vector=vector)

    def _doubted_entries(self, block: ColumnBlock) -> Iterator[Tangent]:
        """Yields unit tangents of the entries in which a row differs most from the exact gradient,
        where that is by more than roundings of the program make.

        The other entries of a random tangent hide an error in one: beside an exact reference 1e-12
        passed in one of 8,000 numbers. A gradient takes no more replays than a tangent.
        """
        if self.probes.full or block.rows is None:
            return
        eps, found = self.tolerance.coarsest, set[int]()
        for k, row in enumerate(block.rows):
            w = self.columns.cotangent(k)
            exact = self.estimator.gradient(w)
            if exact is None:
                return
            off, bar = np.abs(row - exact[0]), exact[1] + EXACT_UNITS * eps * np.abs(exact[0])
            if not np.any(off > bar):
                continue  # most are as close, and what roundings make takes most of the time
            loose = self.estimator.gradient(w, eps)
            bar = bar if loose is None else bar + loose[1]
            with np.errstate(invalid="ignore", divide="ignore"):
                beyond = np.nan_to_num(off / bar)
            worst = np.argsort(-beyond)[:DOUBTED_ENTRIES]
            found.update(int(k) for k in worst if beyond[k] > 1)
        units = replace(self.probes, full=True)
        for k in sorted(found):
            for unit in units.tangents(self.problem.origin, slice(k, k + 1)):
                yield replace(unit, coordinate=None)  # with rows that are projections

    @property
    def _size_of_blocks(self) -> tuple[int, int] | None:
        """The least size of the blocks of an input that are compared by themselves, and the most of
        them; `None` where none are.
        """
        if self.by_blocks:
            return NARROW_BLOCK, NARROW_BLOCKS
        taken = self.problem.modes_taken  # what is open of these is judged by itself
        open_ = any(tally.undecided for mode, tally in self.tallies.items() if mode != taken)
        each = OPEN_BLOCKS // max(len(self.problem.X.leaves), 1)
        return (1, each) if open_ and each > 1 and self.tolerance.eps <= COARSE_EPS else None

    def _blocks_of_entries(self, block: ColumnBlock, least: int, most: int) -> Iterator[Item]:
        """Yields the comparisons of blocks of the entries of an input.

        The rounding of all outputs hides more than that of those that move with the block. What
        these leave open was accepted as a part of the whole before.
        """
        along, problem, X = self._gradient(block.rows), self.problem, self.problem.X
        if along is None or self.eps is not None or not self.tolerance.automatic:
            return
        together = self._rested(self.probes.tangent(problem.origin, along))
        for j in together.leaves:
            part = X.slices[j]
            if part.stop - part.start <= least:
                continue
            count = min(-(-X.leaves[j].size // least), most)
            whole = Item(Tangent((j,), together.vector, together.length), block, depth=SEPARATIONS)
            yield from self._split(whole, np.arange(part.start, part.stop), count)

    def _split(self, item: Item, members: NDArray[np.intp], count: int) -> Iterator[Item]:
        """Yields so many parts of a comparison, each of some of these entries alone, as long as the
        budget has room. In sixteen bits they are without the outputs that do not depend on these;
        in wider dtypes one that stands still adds no noise, and may be saturated.
        """
        for few in np.array_split(members, count):
            if not self.budget.allows(self.budget.column + 2):
                return
            vector = np.zeros(self.problem.X.size)
            vector[few] = item.tangent.vector[few]
            tangent = replace(item.tangent, vector=vector)
            if self.tolerance.eps <= COARSE_EPS:
                yield replace(item, tangent=tangent)
                continue
            still = stand_still(self.base, tangent)
            if still is not None and not np.all(still[: self.base.Y.size]):
                columns = self.columns.over(replace(self.base, hiding=still))
                yield replace(item, tangent=tangent, columns=columns)

    def _down_to_one(self, item: Item) -> None:
        """Compares a block of entries and, where that fails, its halves, down to one entry, which
        alone can fail.

        Without that right kernels of sixteen bits fail: a step of a block crosses the kinks of some
        of its entries, and is off by the curvature of others, by more than the rest scatters. What
        is confirmed by no entry, or by one that moves f otherwise to one side than to the other, is
        left open.
        """
        before, members = self._failed, np.flatnonzero(item.tangent.vector)
        if members.size == 1:
            if self.tolerance.eps <= COARSE_EPS or self._moves_to_both_sides(item.tangent):
                self._judge_separately(item)
            else:
                self.examined.unseen += 1
            return
        record, self.record = self.record, Record()
        self._judge_separately(item)
        fails, self.record = self._failed > 0, record
        for half in self._split(item, members, 2) if fails else ():
            self._down_to_one(half)
            if self._failed > before:
                return
        self.examined.unseen += fails

    def _moves_to_both_sides(self, tangent: Tangent) -> bool:
        """Returns whether f moves alike to both sides of x, over steps as long as sixteen bits
        need, as it does not across a kink.
        """
        moves = []
        for t in (SATURATION_DISTANCES[1], -SATURATION_DISTANCES[1]):
            value = value_along(self.problem, self.base, tangent, t)
            if value is None:
                return False
            moves.append(value - self.base.values[: value.size])
        up, down = moves
        return bool(2 * np.max(np.abs(up + down)) <= np.max(np.abs(up - down)))

    @property
    def _visible(self) -> float:
        """The size of a projected derivative at which an error that its tolerance hides is twice as
        large as one that the rounding of f hides in two evaluations.
        """
        tolerance, base = self.tolerance, self.base
        rounding = 2 * tolerance.eps * base.magnitude(base.values)[: base.Y.size]
        bar = norm(self.probes.contract_error(rounding)) / relative_step(tolerance.eps)
        visible = 2 * bar / (SIGNIFICANT_PART * tolerance.relative)
        return float(visible) if np.isfinite(visible) else 0.0

    def _regrouped(
        self, item: Item, moved: NDArray[np.bool_], leaves: Sequence[int]
    ) -> Iterator[Tangent]:
        """Yields tangents that move of these leaves what is marked as `moved`. Leaves that share a
        tangent are scaled anew, since each had been scaled to others.
        """
        X, along = self.problem.X, self._gradient(item.block.rows)
        drawn, chosen = self.together or item.tangent, set(leaves)
        vector = np.where(moved, drawn.vector, 0.0)
        positions = [
            k for k, j in enumerate(drawn.leaves) if j in chosen and np.any(vector[X.slices[j]])
        ]
        if not positions:  # what is marked did not move in the first place
            return
        tangent = replace(drawn, vector=vector).restricted(X, positions)
        if self.together is None or along is None or len(positions) < 2:
            yield tangent
        else:
            yield from shared_tangents(X, tangent, along, self._visible)

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
        groups = colored_tangents(self.probes, origin, block.columns, rows)
        if self.problem.counts.ahead is not None:
            known = [*groups]
            self.estimator.begin([tangent for tangent, _ in known])
            groups = iter(known)
        for tangent, coordinates in groups:
            if not self.budget.allows(self.budget.column):
                break
            trial = self.from_two_evaluations(Item(tangent, block))
            if not trial.agrees_clearly or hidden_outputs(trial) is not None:
                continue
            if self._with_silent_kinks(trial) is not trial:
                continue
            settled.update(coordinates)
            for one in trial.compared:
                self._record(trial, one, len(coordinates))
                inputs, first = self.tally(one.letter).inputs, min(coordinates)
                inputs.weigh(first, one.comparison.automatic, one.comparison.allowed)
            if trial.pushed is not None:
                self._forward_against_reverse(trial)
        self.budget.columns += len(settled)
        return settled

    def _without_undefined(self, block: ColumnBlock) -> ColumnBlock:
        """Returns the block with zeros where its rows are not finite, beside outputs that are left
        out: the rule multiplies the zero cotangent of `sqrt` at -1 by NaN. Without this nothing
        else of a projection is judged.

        Where no output that is compared moves with these entries of x, zero is the derivative.
        Where one does, no tangent moves them. Costs two evaluations. Ours.
        """
        rows, base, problem = block.rows, self.base, self.problem
        if rows is None or base.omitted is None or np.isfinite(rows).all():
            return block
        if not self.budget.allows(self.budget.column + 2):
            return block
        lost = ~np.isfinite(rows).all(axis=0)
        move = np.zeros(problem.X.size)
        move[block.columns] = np.where(lost, SATURATION_DISTANCES[1], 0.0)
        move = np.where(np.isfinite(problem.origin), move * problem.length_scales, 0.0)
        for side in (move, -move):
            point = problem.clipped(problem.origin + side)
            value = attempt(partial(evaluate, problem, base, point, Purpose.BESIDE_NOT_FINITE))
            if value is None or not np.array_equal(value, base.values, equal_nan=True):
                self.resting = np.flatnonzero(move)
        return replace(block, rows=np.where(lost, 0.0, rows))

    def _unknown(self, block: ColumnBlock) -> set[int]:
        """Returns the coordinates of a block along which nothing can be known, since x is NaN
        there, or the rule gives NaN, where others remain. They count as compared.
        """
        problem, resting = self.problem, self.resting
        whole = problem.finite and resting is None
        if whole or not self.probes.full or not np.isfinite(problem.origin).any():
            return set()
        known = np.isfinite(problem.origin)[block.columns]
        if resting is not None:
            known &= ~np.isin(np.arange(block.columns.start, block.columns.stop), resting)
        if block.rows is not None:
            known |= np.isinf(problem.origin)[block.columns] & np.isfinite(block.rows).all(axis=0)
        found = {block.columns.start + int(k) for k in np.flatnonzero(~known)}
        self.budget.columns += len(found)
        return found

    def _blocks(self) -> Iterator[ColumnBlock]:
        """Yields blocks of columns with their rows by reverse mode, so that a large table need not
        be held at once.
        """
        if self.reverse is None:
            yield ColumnBlock(slice(0, self.problem.X.size))
            return
        if self.known_row is not None:
            self.budget.rows = self.probes.rows
            yield ColumnBlock(slice(0, self.problem.X.size), self.known_row[None, :])
            return
        rows = self.budget.rows = self.budget.rows_allowed
        cotangents = islice(self.probes.cotangents(), rows)
        # A random tangent moves every column, so the rows must be whole.
        whole = not self.probes.full
        blocks = self.reverse.blocks(self.base, cotangents, rows, whole=whole)
        yield from (ColumnBlock(columns, table) for columns, table in blocks)

    def _gradient(self, rows: Vector | None) -> Vector | None:
        """Returns the gradient that random tangents lean towards: that of all projected outputs
        together.
        """
        if rows is None or self.probes.full:
            return None
        if rows.shape[0] == 1:
            return np.asarray(rows[0])
        return np.asarray(np.sum(rows, axis=0))

    def from_two_evaluations(self, item: Item) -> Trial:
        """Returns a column from two evaluations, with its image by forward mode, the comparisons of
        all modes and the doubt that they leave.

        A step that the caller fixed decides where it shows agreement. What it leaves in doubt is
        judged by steps that are chosen: at any one step truncation or rounding may exceed what the
        error bar of two evaluations allows, and a right derivative would fail. This rule is ours.
        """
        columns = item.columns or self.columns
        if self.eps is not None and item.found is None:
            found = at_fixed_step(self.problem, columns.base, item.tangent, self.eps)
            trial = self._compared(item, columns, found)
            if not (trial.doubt or trial.left):
                return trial
        return self._compared(item, columns, item.found or columns.estimator.along(item.tangent))

    def _compared(self, item: Item, columns: Columns, found: Column) -> Trial:
        """Returns a column from these two evaluations."""
        tangent, block, base, pushed = item.tangent, item.block, columns.base, item.pushed
        self.record.reached[TWO_EVALUATIONS] += 1
        if self.forward is not None and pushed is None:
            pushed = self.forward.column(base, found.vector)[1]
            if base.alone and base.hiding is not None:
                pushed = np.where(base.hiding[: pushed.size], 0.0, pushed)
        if self.affine is not None and len(tangent.leaves) == 1 and not base.alone:
            self.affine.compare(found, block, self.forward)
        alone = item.depth > 0
        each = columns.comparisons(found, block, pushed)
        compared = columns.compared_once(each) if alone else list(each)
        # Only a few columns are looked into; see `SATURATED_COLUMNS`.
        few = not (
            alone
            or self.examined.saturated >= SATURATED_COLUMNS
            or self.problem.modes_taken
            or found.from_reference
        )
        trial = Trial(
            columns,
            block,
            found,
            compared,
            self.reverse,
            pushed,
            may_narrow=not alone and self.carried_dtype is None,
            separate=alone,
            few_saturated=few,
        )
        # Where an entry was proved wrong, what else is far off is only counted, by leaf.
        single = not (trial.shared or self.probes.full)
        if single and self._proved(trial) and (counted := self._far_off(trial)):
            return counted
        look = _doubt_of_separate if alone else doubt_of
        doubt = look(trial, self.examined)
        if trial.shared and not (alone or doubt) and self._hidden(trial) == set(tangent.leaves):
            doubt = Doubt.HIDDEN
        return replace(trial, doubt=doubt) if doubt else trial

    def _far_off(self, trial: Trial) -> Trial | None:
        """Returns a trial that is off beyond doubt with an estimate whose truncation is known;
        `None` where none is.

        Two evaluations know nothing of their truncation: over their step a factor that varies over
        a millionth of x is off by its whole size, and a right input would be called wrong beside a
        wrong one.
        """
        if not trial.off_by(GROSS_TOLERANCES):
            return None
        if not self._may_be_truncation(trial):
            return trial
        for effort in (Effort.THREE_STEPS, Effort.LADDER):
            found = trial.along(effort)
            finer = replace(trial, column=found, compared=trial.comparisons(found, final=True))
            if finer.fails and finer.off_by(GROSS_TOLERANCES):
                return finer
        return None

    def _may_be_truncation(self, trial: Trial) -> bool:
        """Returns whether a central difference may be off by as much as the trial: that is about
        the square of how far the second difference along its step is the first one.
        """
        sample = trial.column.sample
        if sample is None:
            return True
        size = norm(sample.plus - sample.minus)
        bend = norm(sample.plus + sample.minus - 2 * self.base.values)
        off = max(norm(c.difference) for _, c, _ in trial.compared)
        whole = max(norm(c.reference) for _, c, _ in trial.compared)
        return not bool(off * size * size > TRUNCATION_ROOM * bend * bend * whole)

    def _with_silent_kinks(self, trial: Trial) -> Trial:
        """Returns a trial that agrees, with the kinks of f at x: what agrees with the mean of two
        slopes says nothing of the derivative beside x.
        """
        if not self.budget.allows(SILENT_KINK_WORK):
            return trial
        found = trial.along(Effort.SILENT_KINKS)
        return trial if found is trial.column else replace(trial, column=found)

    def _judged(self, item: Item, trial: Trial) -> Generator[Failure, None, list[Item]]:
        """Takes a column through the stages and records it. Returns what is to be compared next."""
        clear = trial.agrees_clearly and trial.doubt is not Doubt.HIDDEN
        settled = clear or (trial.separate and not trial.doubt)
        if clear:
            trial = self._with_silent_kinks(trial)
        outcome = trial if settled else (yield from self._through_stages(trial))
        if isinstance(outcome, Again):
            if outcome.leaves:
                return self._items(item, outcome.leaves)
            if outcome.dtype is not None:
                self._use_dtype(outcome.dtype)
                if item.columns is None:
                    return [item]
                hiding = item.columns.base.hiding
            else:
                hiding = outcome.hiding
            columns = self.columns.over(replace(self.base, hiding=hiding))
            return [replace(item, columns=columns)]
        following: list[Item] = []
        whole = outcome or trial
        if outcome is not None and (hidden := self._hidden(outcome)):
            shown = tuple(j for j in outcome.column.tangent.leaves if j not in hidden)
            if shown:
                following += self._items(item, [sorted(hidden)])
                outcome = outcome.of_leaves(shown)
            elif self._unresolved(outcome):
                return self._items(item, halves(outcome.column.tangent.leaves))
        leaves = len(item.tangent.leaves if outcome is None else outcome.column.tangent.leaves)
        self.budget.columns += 0 if item.depth else leaves
        if outcome is None:
            return []
        outcome = without_still(outcome)
        self.record.decided[outcome.decided_by] += 1
        if item.depth:
            agree = not (outcome.fails or outcome.jumps)
            if trial.doubt and agree and not outcome.column.from_reference:
                self.examined.unseen += 1
                smaller: list[Item] = []
                if outcome.shown is not None:
                    # The longer step has shown the largest of these entries alone.
                    smaller = self._too_small(item, replace(outcome, compared=outcome.shown))
                elif not outcome.columns.base.alone:
                    self._too_small(replace(item, depth=SEPARATIONS), outcome)  # counts what shows
                return [*smaller, *self._resolved_outputs(item, outcome)]
            if not trial.doubt and not trial.agrees_clearly:
                return self._too_small(item, outcome)
        elif outcome.doubt:
            self.examined.saturated += outcome.doubt is Doubt.SATURATED or (
                outcome.few_saturated and outcome.zero
            )
            self.examined.open += bool(outcome.open)
        failed = self._failed if outcome.doubt else 0
        for one in outcome.compared:
            self._record(outcome, one, leaves)
        # What a kink excuses is no failure, and does not spare the columns after it a ladder.
        if outcome.doubt and not item.depth:
            self.examined.failed += self._failed > failed
        if outcome.pushed is not None and item.block.rows is not None and not item.depth:
            self._forward_against_reverse(whole)
        alone = self._outputs_alone(item, whole)
        return [*self._too_small(item, outcome), *alone, *following]

    @property
    def _failed(self) -> int:
        """The number of comparisons that failed so far."""
        return sum(map(attrgetter("failed"), self.record.tallies.values()))

    def _items(self, item: Item, groups: Iterable[Sequence[int]]) -> list[Item]:
        """Returns what is compared in place of `item`: these groups of its leaves."""
        item = replace(item, found=None, pushed=None)
        return [
            replace(item, tangent=tangent)
            for leaves in groups
            for tangent in self._regrouped(item, item.tangent.vector != 0, leaves)
        ]

    def _unresolved(self, trial: Trial) -> bool:
        """Returns whether the error bar is too wide for the derivative in some leaf, which would
        stay open by itself. What is zero for all that f can show need not be resolved.
        """
        rows = trial.block.rows
        ((_, comparison, _),) = (one for one in trial.compared if one.kind == "rows")
        assert rows is not None  # else nothing hides
        zero = SATURATED_UNITS * comparison.tolerance.eps * comparison.scales.secant
        bar = comparison.error / comparison.tolerance.resolution
        for j in trial.column.tangent.leaves:
            part = self.problem.X.slices[j]
            size = norm(rows[:, part] * trial.column.vector[part])
            if np.any((size > zero) & (size < bar)):
                return True
        return False

    def _hidden(self, trial: Trial) -> set[int]:
        """Returns the leaves that hide behind others of the tangent, or behind the rounding of f:
        an error in all entries of such a leaf would not show. A leaf without a derivative hides
        nothing.
        """
        tangent, rows = trial.column.tangent, trial.block.rows
        if not trial.shared or trial.separate or rows is None:
            return set()
        (bound,) = (c.significance_bound for _, c, kind in trial.compared if kind == "rows")
        hidden = set()
        for j in tangent.leaves:
            part = self.problem.X.slices[j]
            size = norm(rows[:, part] * trial.column.vector[part])
            if np.any((size > 0) & (HIDDEN_PART * size < bound)):
                hidden.add(j)
        return hidden

    def _through_stages(self, trial: Trial) -> Generator[Failure, None, Trial | Again | None]:
        """Returns the trial at the end of all stages; `None` where the budget is spent."""
        traceable = not (self.probes.full or trial.separate)
        for stage in STAGES:
            if (trial.settled and not stage.settles_open) or not stage.helps(trial):
                continue
            shown = trial if trial.proved and stage.by_entry else trial.suspected
            if shown is not None and traceable:
                failing = [one for one in shown.compared if np.any(one.comparison.fails)]
                for one in failing:
                    (k, *_) = worst_entries(one.comparison, one.comparison.fails)
                    yield self._failure(shown, one, k)
                if self._proved(shown):
                    return shown
                traceable = False
            if stage.needed and not self.budget.allows_ladder():
                return None
            if not stage.needed and not self.budget.allows(stage.cost):
                continue
            self.record.reached[stage.name] += 1
            after = apply(stage, trial)
            if isinstance(after, Again):
                self.record.decided[stage.name] += not after.leaves
                return after
            trial = after
        return trial

    def _proved(self, trial: Trial) -> bool:
        """Returns whether something fails, and an entry was proved wrong in each mode in doubt."""
        proved = self.record.proved
        return bool(proved and trial.fails) and all(
            one.comparison.agrees_clearly or self.tally(one.letter).mode in proved
            for one in trial.compared
        )

    def _too_small(self, item: Item, trial: Trial) -> list[Item]:
        """Returns the entries that are to be compared once more by themselves, since they have too
        small a part in the column for any error to show.
        """
        if not self.columns.tolerance.automatic:
            return []
        found, next_ = trial.column, []
        for letter, comparison, kind in trial.compared:
            if kind != "rows":
                continue
            tally, again, columns = self.tally(letter), item.depth > 0, trial.columns
            alone, coordinate = columns.base.alone, found.tangent.coordinate
            if alone or not (again or coordinate is not None):
                power = tally.outputs if coordinate is None else tally.inputs
                key = found.tangent.leaves if coordinate is None else coordinate
                sizes, bound = parts_of_outputs(columns, comparison, found, kind)
                power.weigh(key, sizes, bound, again=alone)
            if alone:
                tally = Tally(tally.mode)  # inputs are counted where all outputs are compared
            too_small = undetectable(trial, tally, comparison, again=again)
            if trial.shown is not None and item.depth < SEPARATIONS:
                # That has shown an error of a hundredth in the largest of them, and hardly more.
                too_small = _far_below(trial)
            if too_small is None or item.depth == SEPARATIONS or tally.failed:
                continue
            if self.problem.modes_taken:
                continue
            if not np.all(too_small) and self.budget.allows(self.budget.column):
                moved = np.zeros(found.vector.size, bool)
                moved[found.tangent.part(self.problem.X)] = too_small
                next_ += [
                    Item(tangent, item.block, item.columns, depth=item.depth + 1)
                    for tangent in self._regrouped(item, moved, found.tangent.leaves)
                ]
        return next_

    def _outputs_alone(self, item: Item, trial: Trial) -> list[Item]:
        """Returns the outputs that are to be compared once more by themselves: those in which an
        error would not show beside the others, and those without a kink where a kink of others
        excuses the sum of all.
        """
        items: list[Item] = []
        if item.depth == SEPARATIONS or trial.columns.base.alone or self._failed:
            return []
        hidden = hidden_outputs(trial) if trial.columns.tolerance.automatic else None
        for outputs in (hidden, self._smooth_outputs(trial)):
            if outputs is not None and self.budget.allows(self.budget.column):
                items.append(self._of_outputs(item, trial, outputs))
        return items

    def _smooth_outputs(self, trial: Trial) -> NDArray[np.bool_] | None:
        """Marks the outputs without a kink, `None` where no kink of others excuses the sum of all.

        A kink excuses its own output. Beside a zero of x a rule that counts the zeros, or the ties,
        is wrong in all outputs and right at every point beside x, so that nothing else shows it.
        """
        slopes = trial.column.estimate.slopes
        # In 16 bits a step crosses kinks beside x, which are not seen as such.
        if slopes is None or trial.columns.base.coarsest_eps > COARSE_EPS or self.probes.full:
            return None
        excused = any(
            decide(comparison, trial.columns.slopes(trial.column, kind)).kinks.any()
            for _, comparison, kind in trial.compared
            if kind == "rows"
        )
        smooth = ~slopes.bent[: self.base.Y.size]
        return smooth if excused and smooth.any() else None

    def _resolved_outputs(self, item: Item, trial: Trial) -> list[Item]:
        """Returns the hidden outputs that are to be compared again without those that turned out to
        be rounding.
        """
        if not trial.columns.base.alone or item.depth == SEPARATIONS:
            return []
        outputs = resolved(trial)
        return [] if outputs is None else [self._of_outputs(item, trial, outputs)]

    def _of_outputs(self, item: Item, trial: Trial, outputs: NDArray[np.bool_]) -> Item:
        """Returns the comparison of these outputs by themselves along the tangent of `trial`."""
        own = of_outputs(trial, outputs)
        item = replace(item, columns=own.columns, found=own.column, block=own.block)
        return replace(item, pushed=own.pushed, depth=item.depth + 1)

    def compare_separately(self, tangent: Tangent, block: ColumnBlock) -> None:
        """Compares entries that are too small to show among the others by themselves."""
        if self.budget.allows(self.budget.column):
            self._judge_separately(Item(tangent, block, depth=SEPARATIONS))

    def _judge_separately(self, item: Item) -> None:
        """Takes what was taken out of a larger column through the stages, as the last comparison of
        it.
        """
        for _ in self._judged(item, self.from_two_evaluations(item)):
            pass  # it yields nothing, since no entry is searched for behind such a column

    def _use_dtype(self, dtype: str) -> None:
        """Judges f as code in that dtype from here on.

        Code that computes in float32 inside of float64 has differences that are right to seven
        digits, and would fail by the tolerance of float64.
        """
        eps = 2.0 ** (1 - SIGNIFICANT_BITS[dtype])
        self.carried_dtype = dtype
        before = self.tolerance
        tolerance = replace(before, eps=max(before.eps, eps), seen=before.zero_eps)
        self.columns = self.columns.over(self.base.rounded(eps), tolerance)

    # -- keeping what disagrees

    def _record(self, trial: Trial, one: ModeComparison, together: int) -> None:
        """Counts one comparison, of so many leaves or coordinates together, and keeps its worst
        entries, each under the status that it will be reported with.
        """
        found, tally, (_, comparison, kind) = trial.column, self.tally(one.letter), one
        tally.compared += together * self._count(comparison, kind, trial.columns.base)
        each, pairs = kind == "each" or self.probes.full, self.pairs
        slopes = trial.columns.slopes(found, kind)
        proves = found.estimate.balls is not None and trial.decided_by != ReplayedRules.name
        if proves and slopes is None and comparison.tolerance.automatic:
            self._certify(trial, one, together)
        if comparison.agrees_clearly and slopes is None:
            if pairs is not None and kind != "first":
                pairs.keep(tally.mode, found.tangent, comparison, each=each)
            nonzero = int(np.count_nonzero(comparison.automatic))
            tally.nonzero, tally.known = tally.nonzero + nonzero, tally.known + nonzero
            tally.resolution = max(tally.resolution, comparison.resolution)
            return
        if comparison.unseen is not None and np.any(comparison.unseen):
            k = int(np.argmax(comparison.unseen))
            of = row_name(self.probes, self.base, kind, k)
            name = entry_name(of, column_name(self.problem, found.tangent))
            count = int(np.count_nonzero(comparison.unseen))
            tally.count_saturated(count, name, float(comparison.automatic[k]))
        if trial.decided_by == AutomaticRounding.name:
            tally.rounded = max(tally.rounded, comparison.deviation)
        decision = decide(comparison, slopes)
        if pairs is not None and kind != "first":
            masks = decision.fails, decision.open
            pairs.keep(tally.mode, found.tangent, comparison, masks, each=each)
        if decision.unsettled:
            self.record.undecidable.add(tally.mode)
        sides = found.estimate.slopes
        if sides is not None and np.any(decision.kinks):
            bent = sides.bent[: self.base.Y.size]
            self.record.bent = bent if self.record.bent is None else bent | self.record.bent
        tally.nonzero += int(np.count_nonzero(comparison.automatic))
        tally.resolution = max(tally.resolution, comparison.resolution)
        tally.known += int(np.count_nonzero(comparison.known & (comparison.automatic != 0)))
        tally.vague += int(np.count_nonzero(comparison.moved & ~comparison.known))
        tally.failed += int(np.count_nonzero(decision.fails))
        tally.undecided += int(np.count_nonzero(decision.undecided))
        tally.kinks += int(np.count_nonzero(decision.kinks))
        for k in worst_entries(comparison, decision.fails):
            failure = self._failure(trial, one, k)
            automatic = comparison.automatic[k]
            if not comparison.moved[k] and automatic != 0 and np.isfinite(automatic):
                tally.keep(tally.spurious, failure.entry)
            elif self._detached(kind, k):
                tally.keep(tally.detached, failure.entry)
            elif self._absent(kind, found):
                tally.keep(tally.missing, failure.entry)
            else:
                tally.keep(tally.wrong, failure.entry)
            self.record.failures.setdefault(tally.mode, failure)
            key = tally.mode, found.tangent.leaves[0], -1 if kind == "each" else k
            self.record.projections.setdefault(key, failure)
        if not self.probes.full:
            for k in worst_entries(comparison, comparison.significant & ~decision.undecided):
                self.record.significant.append(self._failure(trial, one, k))
        for k in worst_entries(comparison, decision.open):
            entry = self._entry(trial, one, k)
            # The kink belongs to another output.
            if decision.kinks[k] and entry.slopes is None:
                entry = replace(entry, slopes=(entry.reference, entry.reference))
            tally.keep(tally.open, entry)

    def _certify(self, trial: Trial, one: ModeComparison, together: int) -> None:
        """Counts what agrees with intervals that are proven, and keeps what agrees least closely.

        At a kink the interval is the hull of two branches, and proves nothing; a tolerance that the
        caller gives accepts what the interval may refute.
        """
        comparison, tally = one.comparison, self.tally(one.letter)
        if not np.all(comparison.agrees & ~comparison.undecided):
            return
        tally.proved += together * self._count(comparison, one.kind, trial.columns.base)
        before = tally.certificate
        part = np.nan_to_num(comparison.difference / comparison.allowed)
        k = int(np.argmax(part)) if part.size else None
        if k is not None and (before is None or part[k] > before.excess):
            tally.certificate = self._entry(trial, one, k)

    def _failure(self, trial: Trial, one: ModeComparison, k: int) -> Failure:
        """Returns what is needed to search for the entries behind row `k` of a comparison."""
        entry = self._entry(trial, one, k)
        return Failure(entry.mode, one.kind, trial.column.tangent, k, entry, trial.columns)

    def _count(self, comparison: Comparison, kind: RowKind, base: Base) -> int:
        """Returns how many numbers a comparison has compared.

        An output that is left out is not compared, and neither is the projection of an output in
        which there is nothing else.
        """
        size, Y = int(comparison.automatic.size), base.Y
        out = base.hiding[: Y.size] if base.alone and base.hiding is not None else base.omitted_of_Y
        if kind == "first":
            return size
        if kind == "each" or self.probes.full:
            return size if out is None else int(np.count_nonzero(~out[:size]))
        if out is None:
            return size - list(map(attrgetter("size"), Y.leaves[:size])).count(0)
        return size - [bool(out[part].all()) for part in Y.slices[:size]].count(True)

    def _detached(self, kind: RowKind, k: int) -> bool:
        """Returns whether the engine recorded nothing for the output of row `k`."""
        if self.reverse is None or kind == "first":
            return False
        return not self.reverse.attached[self._output(kind, k)]

    def _output(self, kind: RowKind, k: int) -> int:
        """Returns the output leaf of row `k`."""
        return self.base.Y.leaf_of(k) if self.probes.full or kind == "each" else k

    def _absent(self, kind: RowKind, found: Column) -> bool:
        """Returns whether no pullback had a gradient for the inputs of this column."""
        if self.reverse is None or kind == "first":
            return False
        return not any(self.reverse.present[j] for j in found.tangent.leaves)

    def _entry(self, trial: Trial, one: ModeComparison, k: int) -> Entry:
        """Returns the numbers of entry `k`, for the report."""
        found, (letter, comparison, kind) = trial.column, one
        slopes = trial.columns.slopes(found, kind)
        return Entry(
            self.tally(letter).mode,
            row_name(self.probes, self.base, kind, k),
            column_name(self.problem, found.tangent),
            float(comparison.automatic[k]),
            float(comparison.reference[k]),
            float(comparison.error[k]),
            float(comparison.allowed[k]),
            found.estimate.method,
            None if slopes is None else slopes.at(k),
            comparison.rounding_level(k),
            found.from_reference,
            projected=kind == "first" or (kind == "rows" and not self.probes.full),
            output="" if kind == "first" else self.base.Y.leaves[self._output(kind, k)].name,
            input=self.problem.X.names(found.tangent.leaves),
            steps=() if kind == "first" else slopes_by_step(trial.columns, kind, k, found),
            enclosure=enclosed(trial.columns, kind, k, found),
            rounded_rule=comparison.loses_digits(k),
        )

    def _forward_against_reverse(self, trial: Trial) -> None:
        """Makes the adjoint test along the tangent of this column."""
        tally = self.record.tallies.setdefault("identity", Tally("identity"))
        self.adjoint_test.compare(trial, tally, column_name(self.problem, trial.column.tangent))


def _far_below(trial: Trial) -> NDArray[np.bool_] | None:
    """Marks the entries of a column that move and have a far smaller part in it than its largest
    one; `None` where the rounding of f hides them at the longest step as well.
    """
    part = trial.column.tangent.part(trial.columns.probes.X)
    v = trial.column.vector[part]
    terms = np.abs(trial.block.of_leaf(part)[1] * v)
    largest = np.max(terms, axis=1, initial=0.0, keepdims=True)
    below = (v != 0) & np.all(terms < FAR_BELOW * largest, axis=0)
    hidden, least = norm(np.where(below, terms, 0.0)), _least_shown(trial.columns)
    # A term of zero does not say how large the right derivative is.
    shows = not np.any(hidden) or np.any(ERRORS[0] * hidden[: least.size] > least)
    return below if shows else None


def _least_shown(columns: Columns) -> Vector:
    """Returns what the rounding of f hides in each row, even over the longest step."""
    base = columns.base
    rounding = columns.tolerance.eps * base.magnitude(base.values)[: base.Y.size] + base.noise
    return columns.probes.contract_error(rounding) / LONGEST_STEP


def undetectable(
    trial: Trial, tally: Tally, comparison: Comparison, *, again: bool
) -> NDArray[np.bool_] | None:
    """Counts how much of the gradient has a part in the comparison in which an error would show.

    Returns the entries whose part is too small for any error to show, from the first to the last
    leaf that moves, and `None` where no leaf has more of them than chance makes. With `again` they
    were counted before.
    """
    columns, found, block = trial.columns, trial.column, trial.block
    if (k := found.tangent.coordinate) is not None:
        unseen = tally.inputs.weigh(k, comparison.automatic, comparison.allowed, again=again)
        if unseen and not (again or found.from_reference):
            count_saturated(columns, tally, comparison, found, block)
        return None
    problem, X, leaves = columns.problem, columns.probes.X, found.tangent.leaves
    whole, rows = found.tangent.part(X), block.rows
    assert rows is not None  # what is weighed is reverse mode
    too_small, any_small = np.zeros(whole.stop - whole.start, bool), False
    hidden = np.zeros(len(rows))  # the sum of squares of what is too small, by row
    for j in leaves:
        part = X.slices[j]
        v, its = found.vector[part], block.of_leaf(part)[1]
        terms = its * v
        count = [
            tally.inputs.weigh(("row", i), row, bound, of=(X.size, part), again=again)
            for i, (row, bound) in enumerate(zip(terms, comparison.significance_bound, strict=True))
        ]
        any_small |= any(count)
        if found.from_reference or min(count, default=0) > CHANCE_PART * terms.shape[1]:
            share = np.max(np.abs(terms) / comparison.significance_bound[:, None], axis=0)
            # A zero has no part in any sum, and would be right in all of them, however much f moves
            # along it beside what the larger ones hide.
            small = share < 1 / ERRORS[0]
            too_small[part.start - whole.start : part.stop - whole.start] = small
            hidden += np.sum(np.where(small, terms, 0.0) ** 2, axis=1)
        elif not (again or problem.modes_taken):
            zero = ~np.any(terms, axis=0)
            too_small[part.start - whole.start : part.stop - whole.start] = zero & ~zero.all()
    if not again and any_small and not found.from_reference and not problem.modes_taken:
        count_saturated(columns, tally, comparison, found, block)
    if found.from_reference:
        return too_small if np.any(too_small) else None
    if not hidden.any():
        return None if again or not np.any(too_small) else too_small
    # By itself it shows no better where the rounding of f hides it at the longest step as well.
    hidden = np.sqrt(hidden[: len(comparison.error)])
    least = _least_shown(columns)
    bound, error = comparison.significance_bound, comparison.error
    shows = (bound > 2 * error) & (hidden > error)
    shows |= ERRORS[0] * hidden > least
    return too_small if np.any(shows) else None


def _doubt_of_separate(trial: Trial, examined: Examined) -> Doubt:
    """Returns the doubt about entries that were taken out of a larger column. What agrees, and
    would not if it were off by a hundredth, is left as it is, as a part of the whole; so is what
    disagrees after enough columns of which ladders have shown nothing. Outputs by themselves, whose
    sum may cancel by chance, are looked into where their error bar would hide what is wrong.
    """
    if trial.column.from_reference:
        return Doubt.DISAGREES
    if trial.columns.base.alone:
        agrees = trial.agrees and not any(np.any(c.coarse) for _, c, _ in trial.compared)
    elif trial.columns.tolerance.eps > COARSE_EPS:
        agrees = trial.agrees
    else:
        agrees = trial.shows(ERRORS[0])
    enough = examined.unseen >= LADDER_COLUMNS
    return Doubt.NONE if agrees or enough or trial.agrees_clearly else Doubt.DISAGREES

"""This module says what still fits into `max_evaluations`, and what was left when it was spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from adjudge.findings import BudgetSpent, Finding, Remedy, Status, Task
from adjudge.problem import Probes, Problem

ENTRY_WORK = 7
"""The evaluations and vjps that must be left before another wrong entry is searched for. Locating
one entry takes six evaluations at any size (docs/architecture.md)."""


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
    known_row: bool
    """Says whether the only row is at hand already."""
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
        return self.problem.counts.allows(work * self.unit)

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
        if self.known_row or counts.allows(rows + self.probes.columns * column):
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

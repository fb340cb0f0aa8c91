"""This module judges one entry of the Jacobian by the stages that every column goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import ENTRY_FLOOR, LIKELY_UNITS
from adjudge.estimate import Column, Effort, Estimator, Slopes
from adjudge.findings import Enclosure
from adjudge.floats import Vector
from adjudge.jacobian.column import (
    MOST_KEPT,
    ColumnBlock,
    Columns,
    ModeComparison,
    RowKind,
    enclosed,
    slopes_by_step,
)
from adjudge.jacobian.comparison import Comparison, Scales, decide
from adjudge.jacobian.stages import STAGES, Again, Doubt, Trial, apply
from adjudge.jacobian.table import Table
from adjudge.problem import Problem, Reverse, Tangent, largest


@dataclass(frozen=True)
class RememberingEstimator(Estimator):
    """Asks an estimator along one tangent, and for each effort once: the entries of one column are
    judged one by one, and share its evaluations.
    """

    asked: Estimator = field(kw_only=True)
    first: list[Column] = field(default_factory=list)
    """The estimate that costs least, once it was asked for."""
    known: dict[tuple[Effort, bytes, bytes], Column] = field(default_factory=dict)
    """More effort made this of it."""

    def at(self, point: Vector) -> Estimator:  # type: ignore[override]  # another point, another tangent
        return self.asked.at(point)

    def rounded(self, eps: float, units: float = LIKELY_UNITS) -> Estimator | None:
        return self.asked.rounded(eps, units)

    def _first(self, v: Tangent) -> Column:
        if not self.first:
            self.first.append(self.asked.along(v))
        return self.first[0]

    def _more(
        self,
        effort: Effort,
        found: Column,
        doubted: NDArray[np.bool_] | None,
        towards: Vector | None,
    ) -> Column:
        asked = [b"" if one is None else one.tobytes() for one in (doubted, towards)]
        key = effort, asked[0], asked[1]
        if key not in self.known:
            self.known[key] = self.asked.along(found.tangent, effort, found, doubted, towards)
        return self.known[key]


@dataclass(frozen=True)
class AutomaticEntry:
    """One entry of the Jacobian, as a mode has it."""

    kind: RowKind
    """The mode that the entry is of, as a kind of row."""
    row: int
    """The output of the entry; of no matter for the first derivative beside a second one."""
    place: int
    """Where the output is among those that are estimated, which may be a few of all."""
    value: float


@dataclass
class EntryColumns(Columns):
    """Makes the comparison of one entry, which is the only row of it."""

    of_one_entry = True
    entry: AutomaticEntry = field(kw_only=True)
    nearby: dict[bytes, Reverse] = field(default_factory=dict)
    """Reverse mode at points beside x, by their bytes; entries of one leaf share these points."""

    def comparisons(
        self, found: Column, block: ColumnBlock, pushed: Vector | None, *, final: bool = False
    ) -> Iterator[ModeComparison]:
        """Yields the comparison of the entry."""
        if self.entry.kind == "first":
            observed = self._observed(found, self.base.Y.size)
            assert observed is not None  # its column was seen to fail
            yield ModeComparison("", observed, self.entry.kind)
            return
        here, estimate = self.here, found.estimate
        leaf = self.base.Y.slices[self.base.Y.leaf_of(self.entry.place)]
        automatic = np.array([self.entry.value])
        value, error, moved = estimate.of(here).vectors()
        value, error = self._known(found, automatic, value, error)
        size = 0.0 if final else ENTRY_FLOOR * largest(estimate.of(leaf).value)
        comparison = Comparison(
            automatic,
            value,
            error,
            np.array([size]),
            moved,
            self.tolerance,
            partial(self._entry_scales, found),
            from_reference=found.from_reference,
        )
        yield ModeComparison("F" if self.entry.kind == "each" else "R", comparison, self.entry.kind)

    @cached_property
    def here(self) -> slice:
        """The outputs that the entry is of."""
        return super().outputs(self.entry.kind, self.entry.place)

    def outputs(self, kind: RowKind, k: int) -> slice:
        return self.here

    def within(self, kind: RowKind, outputs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return outputs[self.here]

    def pushed(self, image: Vector, rows: Sequence[int]) -> Vector:
        return image[[self.entry.row] * len(rows)]

    def cotangent(self, k: int) -> Vector:
        return super().cotangent(self.entry.row)

    def reverse_at(self, point: Vector, problem: Problem) -> Reverse:
        if problem is not self.problem or point.size > MOST_KEPT:
            return super().reverse_at(point, problem)
        key = point.tobytes()
        if key not in self.nearby:
            self.nearby[key] = super().reverse_at(point, problem)
        return self.nearby[key]

    def row_values(self, kind: RowKind, value: Vector) -> Vector:
        return value[self.here]

    def row_errors(self, kind: RowKind, error: Vector) -> Vector:
        return error[self.here]

    def slopes(self, found: Column, kind: RowKind) -> Slopes | None:
        every = super().slopes(found, kind)
        return every if every is None or kind == "first" else every.part(self.here)

    def _entry_scales(self, found: Column) -> Scales:
        every, here = self._scales(found), self.here
        return Scales(every.secant[here], every.quantum[here], every.block[here])


@dataclass(frozen=True)
class JudgedEntry:
    """What the stages made of one entry."""

    wrong: bool
    comparison: Comparison
    """The comparison of the entry alone."""
    column: Column
    steps: tuple[tuple[float, float], ...] = ()
    """The difference quotients by step: see `Entry.steps`."""
    enclosure: Enclosure | None = None
    """The interval of the reference: see `Entry.enclosure`."""


def judge_entry(
    table: Table,
    estimator: Estimator,
    tangent: Tangent,
    entry: AutomaticEntry,
    nearby: dict[bytes, Reverse],
) -> JudgedEntry | None:
    """Judges one entry of the table in the column of a unit tangent, by the stages, as if two
    evaluations of its `estimator` had found it to disagree. What reverse mode is at points beside x
    is kept in `nearby` for the next entry.

    Returns what the stages made of it; `None` where there is no room for one that is needed.
    """
    probes, coordinate = replace(table.probes, full=True), tangent.coordinate
    found = estimator.along(tangent)
    assert coordinate is not None  # the column of an entry has a unit tangent
    additive, chosen = table.columns.additive, estimator.base.chosen
    if chosen is not None:
        additive = {leaves: mask[chosen] for leaves, mask in additive.items()}
    columns = EntryColumns(
        estimator, probes, table.tolerance, additive=additive, entry=entry, nearby=nearby
    )
    columns.share(table.columns)
    block, pushed = ColumnBlock(slice(coordinate, coordinate + 1)), None
    compared = list(columns.comparisons(found, block, pushed))
    trial = Trial(
        columns,
        block,
        found,
        compared,
        table.reverse,
        pushed,
        doubt=Doubt.DISAGREES,
        may_narrow=False,
    )
    for stage in STAGES:
        if (trial.settled and not stage.settles_open) or not stage.helps(trial):
            continue
        if not table.budget.allows(stage.cost):
            if stage.needed:
                return None
            continue
        after = apply(stage, trial)
        if isinstance(after, Again):
            continue  # other terms for all of the column are no matter of one entry
        trial = after
    ((_, comparison, _),) = trial.compared
    decision = decide(comparison, columns.slopes(trial.column, entry.kind))
    wrong, steps = bool(decision.fails[0]), tuple[tuple[float, float], ...]()
    if wrong and entry.kind != "first":
        steps = slopes_by_step(columns, entry.kind, 0, trial.column)
    enclosure = enclosed(columns, entry.kind, 0, trial.column)
    return JudgedEntry(wrong, comparison, trial.column, steps, enclosure)

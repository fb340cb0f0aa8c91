"""A column that two evaluations do not settle: more of them, until it is judged or stays open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse, neighbours
from adjudge.budget import Budget
from adjudge.columns import Side
from adjudge.compare import Comparison, Tally
from adjudge.measured import measured, plateau, precision
from adjudge.nonsmooth import with_jumps
from adjudge.numeric import Column, confirm, refined
from adjudge.observed import Base, evaluate
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.spaces import Vector

NOISE, JUMP = 40, 6
"""Evaluations that it takes, at most, to measure the noise of f; to tell a jump from a slope."""

ALONE = 64
"""Times the tolerance that a value is off by where none of its neighbours is."""


@dataclass(frozen=True)
class Settling:
    """What it takes to judge a column again."""

    problem: Problem
    base: Base
    probes: Probes
    budget: Budget
    judged: Callable[[Column], list[Side]]

    def settle(
        self, found: Column, sides: list[Side], *, disagrees: bool, carries: bool
    ) -> tuple[Column, list[Side], str | None] | None:
        """The column and its comparisons; or the dtype that f falls back to inside, in which the
        column is to be taken again (unless one is known: `carries`). `None`: the budget is spent.

        A ladder of steps first. What fails or stays open there gets a second ladder, and the noise
        of f measured; a FAIL also the rounding of the automatic side.
        """
        problem, base = self.problem, self.base
        closer = refined(problem, base, found)
        again = self.judged(closer)
        if _unsettled(again) and not carries:
            dtype = precision(problem, base, closer)
            if dtype is not None:
                return found, sides, dtype
        # a disagreement is judged by the ladder; mere doubt only where that removes it
        if disagrees or total(again, "undecided") < total(sides, "undecided"):
            found, sides = closer, again
        if not _unsettled(sides):
            return found, sides, None
        if not self.budget.ladder():
            return None
        closer = confirm(problem, base, closer)
        again = self.judged(closer)
        if _unsettled(again) and self.budget.allows(NOISE):
            closer = measured(problem, base, closer, self._doubted(again))
            again = self.judged(closer)
            settled = not _unsettled(again)
            dtype = None if carries else plateau(problem, base, closer, settled=settled)
            if dtype is not None:
                return found, sides, dtype
        if total(sides, "fails") or total(again, "undecided") <= total(sides, "undecided"):
            found, sides = closer, again
        if _unsettled(sides) and self.budget.allows(JUMP):
            found = with_jumps(problem, base, found)
        if total(sides, "fails"):
            sides = [self._wavering(side, found) for side in sides]
        return found, sides, None

    def _doubted(self, sides: list[Side]) -> NDArray[np.bool_]:
        """The outputs on which a comparison fails or stays open."""
        doubted = np.zeros(self.base.whole.size, bool)
        width = self.base.Y.size
        for _, comparison, side in sides:
            for k in np.flatnonzero(comparison.fails | comparison.undecided):
                if side == "first":
                    doubted[width:] = True
                elif self.probes.full or side == "each":
                    doubted[k] = True
                else:
                    doubted[self.base.Y.slices[k]] = True
        return doubted

    def _wavering(self, side: Side, found: Column) -> Side:
        """What fails, allowed the rounding of the automatic side: four times its change where x
        moves by a unit of rounding. Of many rows some are tried; the steadiest stands for the rest.
        A value that is far off at x, and right at all points tried around it, is not rounding.
        """
        letter, comparison, kind = side
        tried = worst_of(comparison, comparison.fails)
        if not tried:
            return side
        with np.errstate(all="ignore"):
            around = self._around(kind, tried, found)
            changes = [np.abs(values - comparison.automatic[tried]) for values in around]
            change = np.max(np.where(np.isfinite(changes), changes, 0.0), axis=0)
            reference, allowed = comparison.reference[tried], comparison.allowed[tried]
            right = np.all([abs(values - reference) <= allowed for values in around], axis=0)
            alone = right & (comparison.difference[tried] > ALONE * allowed)
            change = np.where(alone, 0.0, change)
            size = np.where(comparison.largest > 0, comparison.largest, 1.0)
            slack = np.where(comparison.fails, np.nanmin(change / size[tried]) * size, 0.0)
        slack[tried] = change
        return letter, replace(comparison, error=comparison.error + 4 * slack), kind

    def unburied(self, side: Side, found: Column) -> Side:
        """What f cannot show, left open where it is steady: its rounding is not, a value is."""
        letter, comparison, kind = side
        hidden = comparison.buried & (comparison.automatic != 0) & comparison.agrees
        tried = worst_of(comparison, hidden & ~comparison.undecided)
        if not tried:
            return side
        with np.errstate(all="ignore"):
            here = comparison.automatic[tried]
            changes = [np.abs(values - here) for values in self._around(kind, tried, found)]
            steady = np.max(changes, axis=0) < np.abs(comparison.automatic[tried]) / 16
        buried = np.zeros_like(hidden)
        buried[np.array(tried)[steady]] = True
        error = np.where(buried, np.inf, comparison.error)
        return letter, replace(comparison, error=error, open=buried), kind

    def _around(self, kind: str, rows: list[int], found: Column) -> list[Vector]:
        """The automatic values of these rows where x is moved by a unit of rounding."""
        points = neighbours(self.problem, found.tangent.leaf)
        return [self._automatic(point, kind, rows, found) for point in points]

    def _automatic(self, point: Vector, kind: str, rows: list[int], found: Column) -> Vector:
        """The automatic values of these rows of a side at another point."""
        v, width = found.vector, self.base.Y.size
        if kind == "first":
            values = evaluate(self.problem, self.base, point, "with x moved by rounding")
            return np.array([values[:width] @ v[:width]])
        if kind == "each":
            forward = Forward(self.problem, point)
            return forward.column(self.base, v, found.tangent.leaf)[1][rows]
        reverse = Reverse(self.problem, point)
        return np.array([reverse.row(self.base, self.probes.row(k)) @ v for k in rows])


def total(sides: list[Side], what: str) -> int:
    """How many entries of all sides fail, or are undecided."""
    return sum(int(np.count_nonzero(getattr(c, what))) for _, c, _ in sides)


def _unsettled(sides: list[Side]) -> bool:
    return total(sides, "fails") + total(sides, "undecided") > 0


def worst_of(comparison: Comparison, mask: NDArray[np.bool_]) -> list[int]:
    """The entries within `mask` that differ most, no more than a tally keeps."""
    where = np.flatnonzero(mask)
    if where.size <= Tally.KEPT:
        return [int(k) for k in where]
    gap = np.nan_to_num(comparison.difference[where], nan=np.inf)
    return [int(k) for k in where[np.argsort(-gap)[: Tally.KEPT]]]

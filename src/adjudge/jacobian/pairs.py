"""This module sums up comparisons by pair of an output and an input, for the report of a check that
does not pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import ENTRY_FLOOR
from adjudge.findings import Entry, Pair, Verdict, relative_error
from adjudge.floats import Vector
from adjudge.jacobian.comparison import Comparison
from adjudge.problem import Space, Tangent

Mask: TypeAlias = NDArray[np.bool_]
MOST_KEPT = 2**16
"""The numbers of a check are summed up once there are more than this many, so that they do not take
more memory than the check itself. The value is ours."""
MOST_PAIRS = 1024
"""Of more pairs than this, a report holds those that are not right. The value is ours."""


MOST_BLOCKS = 16
"""Errors are told by block where a pair has more rows, or columns, than this. The value is ours: a
picture of them is a few hundred cells, and a report of thousands of checks has to be read."""


class Kept(NamedTuple):
    """One comparison."""

    mode: str
    each: bool
    """Whether it has a number for each coordinate of the outputs, and not for each leaf."""
    tangent: Tangent
    automatic: Vector
    reference: Vector
    size: Vector
    """The sizes that relative tolerances refer to."""
    masks: tuple[Mask, Mask] | None
    """Which entries fail and which are open; `None` where all of them agree."""


@dataclass
class _Sums:
    """What was compared of one pair so far."""

    compared: int = 0
    verdict: Verdict = Verdict.PASS
    agreeing: float = 0.0
    """The largest relative error of an entry that agrees."""
    failing: float = 0.0
    """The largest relative error of an entry that does not."""
    gaps: float = 0.0
    """The sum of squares of the differences."""
    references: float = 0.0
    """The sum of squares of the references."""
    errors: Vector | None = None
    """The largest relative error by block of entries, -1 where none was compared by itself; `None`
    where no column was."""


@dataclass
class Pairs:
    """The comparisons of one table by pair of leaves.

    Comparisons are only kept while they are made, and are summed up when a report is to show them,
    since a check that passes shows none.
    """

    X: Space
    Y: Space
    omitted: Mask | None
    """The outputs that are left out of every comparison."""
    kept: list[Kept] = field(default_factory=list)
    numbers: int = 0
    """How many numbers are kept."""
    sums: dict[tuple[str, int, int], _Sums] = field(default_factory=dict)
    """The sums by mode, output and input."""

    def keep(
        self,
        mode: str,
        tangent: Tangent,
        comparison: Comparison,
        masks: tuple[Mask, Mask] | None = None,
        *,
        each: bool,
    ) -> None:
        """Keeps the numbers of a comparison; for the arguments see `Kept`."""
        numbers = comparison.automatic, comparison.reference, comparison.largest
        self.kept.append(Kept(mode, each, tangent, *numbers, masks))
        self.numbers += comparison.automatic.size
        if self.numbers > MOST_KEPT:
            self.sum_up()

    def sum_up(self) -> None:
        """Sums up what is kept."""
        for kept in self.kept:
            self._add(kept)
        self.kept.clear()
        self.numbers = 0

    def _add(self, kept: Kept) -> None:
        mode, each, tangent, automatic, reference, size, masks = kept
        for i, part in enumerate(self.Y.slices):
            # The budget may have allowed fewer rows than there are cotangents.
            here = slice(part.start, min(part.stop, automatic.size)) if each else slice(i, i + 1)
            out = part.start == part.stop or (
                self.omitted is not None and bool(self.omitted[part].all())
            )
            if out or here.start >= automatic.size:
                continue
            gap = np.abs(automatic[here] - reference[here])
            known = np.isfinite(gap)
            gap = np.where(known, gap, np.inf)
            true = np.where(known, np.abs(reference[here]), 0.0)
            fails, open_ = (
                (np.zeros(gap.size, bool),) * 2 if masks is None else (mask[here] for mask in masks)
            )
            # What rounding leaves of a zero has no relative error worth telling.
            scale = np.maximum(size[here], ENTRY_FLOOR * np.max(true, initial=0.0))
            agrees = ~fails & ~open_ & known & (true > 0)
            agreeing = np.max(gap[agrees] / scale[agrees], initial=0.0)
            wrong = np.flatnonzero(fails | open_)
            far = [*map(relative_error, gap[wrong], true[wrong])]
            failing = max(far, default=0.0)
            verdict = Verdict.PASS
            if masks is not None and wrong.size:
                verdict = Verdict.FAIL if fails.any() else Verdict.INCONCLUSIVE
            relative = np.divide(gap, scale, out=np.zeros(gap.size), where=gap > 0)
            relative[wrong] = far
            for j in tangent.leaves:
                sums = self.sums.setdefault((mode, i, j), _Sums())
                sums.compared += gap.size
                sums.verdict = _worse(sums.verdict, verdict)
                sums.agreeing = max(sums.agreeing, float(agreeing))
                sums.failing = max(sums.failing, float(failing))
                sums.gaps += float(gap @ gap) if known.all() else np.inf
                sums.references += float(true @ true)
                if each and tangent.coordinate is not None:
                    self._mark(sums, relative, tangent.coordinate - self.X.slices[j].start, j)

    def _mark(self, sums: _Sums, relative: Vector, column: int, j: int) -> None:
        """Keeps the relative errors of one column of a pair by block."""
        (rows, high), (columns, wide) = _blocks(relative.size), _blocks(self.X.leaves[j].size)
        if sums.errors is None:
            sums.errors = np.full((rows, columns), -1.0)
        here = sums.errors[:, column // wide]
        here[:] = np.fmax(here, np.maximum.reduceat(relative, np.arange(0, relative.size, high)))

    def of(self, mode: str, wrong: Sequence[Entry], *, failed: bool) -> list[Pair]:
        """Returns all pairs of a mode, in the order of outputs and inputs.

        `wrong` are the entries that were found to be wrong, also behind projections that agree.
        Where nothing has `failed` after all, what is wrong is open.
        """
        self.sum_up()
        located: dict[tuple[str, str], float] = {}
        for entry in wrong:
            key = entry.output, entry.input
            located[key] = max(located.get(key, 0.0), entry.relative)
        found = [
            self._pair(mode, i, j, located, failed=failed)
            for i in range(len(self.Y.leaves))
            for j in range(len(self.X.leaves))
        ]
        if len(found) > MOST_PAIRS:
            found = [pair for pair in found if pair.verdict is not Verdict.PASS][:MOST_PAIRS]
        return found

    def _pair(
        self, mode: str, i: int, j: int, located: dict[tuple[str, str], float], *, failed: bool
    ) -> Pair:
        output, given = self.Y.leaves[i].name, self.X.leaves[j].name
        sums = self.sums.get((mode, i, j))
        if sums is None:
            return Pair(mode, output, given, None, 0, 0.0, 0.0)
        verdict, relative = sums.verdict, sums.failing
        if (output, given) in located:
            verdict, relative = Verdict.FAIL, located[output, given]
        if verdict is Verdict.PASS:
            relative = sums.agreeing
        elif not failed:
            verdict = Verdict.INCONCLUSIVE
        norm = relative_error(float(np.sqrt(sums.gaps)), float(np.sqrt(sums.references)))
        if verdict is Verdict.PASS and not sums.references:
            norm = 0.0
        errors = [] if sums.errors is None else sums.errors.tolist()
        told = tuple(tuple(None if e < 0 else float(f"{e:.2g}") for e in row) for row in errors)
        return Pair(mode, output, given, verdict, sums.compared, relative, norm, errors=told)


def _blocks(size: int) -> tuple[int, int]:
    """Returns how many blocks so many rows or columns have, and how wide each is."""
    wide = -(-size // MOST_BLOCKS)
    return -(-size // wide), wide


def _worse(one: Verdict, other: Verdict) -> Verdict:
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    return max(one, other, key=order.index)

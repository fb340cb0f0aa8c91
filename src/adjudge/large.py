"""Large problems: the comparison with differences by sums of blocks, where that settles it.

A large array is neither fetched for every evaluation, nor is every output followed through a ladder
of steps: `sketch`. What passes like that has passed. Anything else, a failure, a kink, entries that
are too small to show, is judged as a problem of any other size is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.compare import Tally, Tolerance
from adjudge.differences import SAMPLED
from adjudge.findings import Verdict
from adjudge.judge import Judgement, Part, Settings, judge, together
from adjudge.numeric import unit_roundoff
from adjudge.observed import Base, observe
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.sketch import Sketch, UnfitError, sketch_of
from adjudge.table import STRATA, Table

LARGE = 2**21
"""Real coordinates of inputs and outputs together from which on a problem is sketched first."""
DENSE = ("dense", "strided")
"""Layouts, in the words of engines, of which every entry is a coordinate."""


def by_sums(
    problem: Problem, base: Base, settings: Settings, provenance: str, part: Part
) -> Judgement | None:
    """The judgement of a large problem that passes; `None` for every other one."""
    if part is Part.IDENTITIES or not fit(problem, base, settings):
        return None
    outcome = Judgement()
    if part is Part.WHOLE:  # entry by entry: they need no differences
        outcome = judge(problem, base, settings, provenance, Part.IDENTITIES)
        if any(not finding.note for finding in outcome.findings):
            return None
    try:
        compared = _Compared(problem, base, settings).made()
    except UnfitError:
        return None
    return together(outcome, compared)


def fit(problem: Problem, base: Base, settings: Settings) -> bool:
    """Whether the problem is large, in double precision, and nothing about it is special."""
    leaves = (*problem.X.leaves, *base.whole.leaves)
    return bool(
        problem.X.size + base.whole.size >= LARGE
        and not (problem.tail or problem.along or settings.full or settings.thorough)
        and problem.bounds is None
        and problem.reference is None
        and not settings.fixed
        and not settings.equal_nan
        and all(leaf.double and leaf.info.layout in DENSE for leaf in leaves)
        and problem.finite
        and all(leaf.size for leaf in leaves)
        and np.all(np.isfinite(base.values))
        and not _narrow(base)
    )


def _narrow(base: Base) -> bool:
    """Whether the values of an output look as if rounded to half their digits."""
    for part in base.whole.slices:
        some = base.values[part][:: max(1, (part.stop - part.start) // SAMPLED)]
        with np.errstate(over="ignore"):
            rounded = some.astype(np.float32)
        if np.array_equal(some, rounded):
            return True
    return False


@dataclass
class _Compared:
    """The table of a large problem, and of what did not show in it."""

    problem: Problem
    base: Base
    settings: Settings
    tallies: dict[str, Tally] = field(default_factory=dict)
    probes: int = 0

    def made(self) -> Judgement:
        """Raises `UnfitError` where anything but agreement was found."""
        hidden = self._table(0, None)
        for depth in range(1, STRATA + 1):
            if not hidden:
                break
            hidden = self._table(depth, hidden)
        modes = "R" * self.settings.backward + "F" * self.settings.forward
        if any(mode not in self.tallies or not self.tallies[mode].compared for mode in modes):
            raise UnfitError("nothing was compared")
        return Judgement(
            tallies=[tally for mode, tally in self.tallies.items() if mode != "identity"],
            modes=dict.fromkeys(modes, Verdict.PASS),
            identities=self.tallies["identity"].compared if "identity" in self.tallies else 0,
            probes=self.probes,
            tolerance=Tolerance(unit_roundoff(self.problem, self.base)),
        )

    def _table(
        self, depth: int, only: dict[int, NDArray[np.bool_]] | None
    ) -> dict[int, NDArray[np.bool_]]:
        """The comparison of all entries, or of `only` some; which of them did not show."""
        seed = self.settings.seed + depth
        top = sketch_of(self.problem, self.base, seed, only)
        sketch = top.sketch
        assert isinstance(sketch, Sketch)
        base = observe(top)
        probes = Probes(top.X, base.Y, False, seed)
        reverse = Reverse(top) if self.settings.backward else None
        known = None
        if reverse is not None and probes.rows == 1:
            known = reverse.row(base, probes.cotangent)
        forward = Forward(top) if self.settings.forward else None
        tallies: dict[str, Tally] = {}
        tolerance = Tolerance(unit_roundoff(self.problem, self.base))
        table = Table(top, base, probes, tolerance, None, reverse, forward, tallies, known)
        table.fill()
        wrong = any(tally.failed for tally in tallies.values())
        if wrong or table.suspects or table.carries is not None or table.unsettled:
            raise UnfitError("the sums disagree")
        unclear = any(tally.undecided or tally.kinks or tally.open for tally in tallies.values())
        # zeros may be right, or drown in the rounding of f
        unclear |= "R" in tallies and tallies["R"].nonzero < tallies["R"].compared
        if unclear and depth == 0:
            raise UnfitError("the sums leave something open")
        if unclear:  # no worse than it was
            return {}
        self.probes += (probes.rows + probes.columns) if depth == 0 else 0
        for mode, tally in tallies.items():
            before = self.tallies.setdefault(mode, tally)
            if before is not tally:
                before.compared += tally.compared
                before.nonzero += tally.nonzero
                before.resolution = max(before.resolution, tally.resolution)
                before.shown = [a + b for a, b in zip(before.shown, tally.shown, strict=True)]
        return dict(sketch.hidden)

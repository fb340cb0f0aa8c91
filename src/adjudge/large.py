"""Large problems: the comparison with differences by sums of blocks, where that settles it.

By sums no output is fetched for an evaluation, nor followed through a ladder of steps: `sketch`.
What passes like that has passed. Anything else, a failure, a kink, entries that are too small to
show, is judged as in a problem of any other size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.compare import Tally, Tolerance
from adjudge.differences import SAMPLED
from adjudge.numeric import unit_roundoff
from adjudge.observed import Base, observe
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.sketch import Sketch, UnfitError, sketch_of
from adjudge.table import STRATA, Table

LARGE = 2**17
"""Real coordinates of inputs and outputs together from which on sums come before ladders."""
DENSE = ("dense", "strided")
"""Layouts, in the words of engines, of which every entry is a coordinate."""

Masks = dict[int, NDArray[np.bool_]]
"""By input, some of its entries."""


def fit(problem: Problem, base: Base) -> bool:
    """Whether the problem is large, in double precision, and nothing about it is special."""
    leaves = (*problem.X.leaves, *base.whole.leaves)
    return bool(
        problem.X.size + base.whole.size >= LARGE
        and not (problem.tail or problem.along)
        and problem.bounds is None
        and problem.reference is None
        and all(leaf.double and leaf.size and leaf.info.layout in DENSE for leaf in leaves)
        and problem.finite
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


def by_sums(problem: Problem, base: Base, modes: str, seed: int) -> dict[str, Tally] | None:
    """The tallies of `modes`, letters of R and F, where all agrees; `None` where anything does not.

    What is too small to show goes into sums of its own, up to `STRATA` times.
    """
    compared = _Compared(problem, base, modes)
    try:
        if "F" in modes:
            compared.doubt(seed)
        hidden = compared.table(seed, None)
        for depth in range(1, STRATA + 1):
            if not hidden:
                break
            hidden = compared.table(seed + depth, hidden)
    except Exception:  # UnfitError; the user's own comes again from the whole check, where it asks
        return None
    return compared.tallies


@dataclass
class _Compared:
    """What was compared by sums so far."""

    problem: Problem
    base: Base
    modes: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    doubted: Masks = field(default_factory=dict)
    """By input, the outputs whose tangents two evaluations have not settled."""

    def doubt(self, seed: int) -> None:
        """Compares every tangent once, as it would be without sums, by two evaluations."""
        problem, base = self.problem, self.base
        probes = Probes(problem.X, base.Y, False, seed)
        tolerance, forward = Tolerance(unit_roundoff(problem, base)), Forward(problem)
        table = Table(problem, base, probes, tolerance, None, None, forward, {})
        block = slice(0, problem.X.size)
        for tangent in probes.tangents(problem.origin, block):
            _, _, ((_, comparison, _),) = table.first(tangent, block, None)
            entries = table.doubtful(comparison) | comparison.undecided
            self.doubted[tangent.leaf] = np.concatenate(
                [
                    np.reshape(entries[part], (leaf.entries, -1)).any(axis=1)
                    for leaf, part in zip(base.Y.leaves, base.Y.slices, strict=True)
                ]
            )

    def table(self, seed: int, only: Masks | None) -> Masks:
        """The comparison of all entries, or of `only` some; which of them did not show.

        Raises `UnfitError` where anything disagrees, or all entries leave anything open.
        """
        top = sketch_of(self.problem, self.base, seed, only)
        sketch, base = top.sketch, observe(top)
        assert isinstance(sketch, Sketch)
        if only is None:
            sketch.doubted = self.doubted
        probes = Probes(top.X, base.Y, False, seed)
        reverse = Reverse(top) if "R" in self.modes else None
        known = None
        if reverse is not None and probes.rows == 1:
            known = reverse.row(base, probes.cotangent)
        forward = Forward(top) if "F" in self.modes else None
        tallies: dict[str, Tally] = {}
        tolerance = Tolerance(unit_roundoff(self.problem, self.base))
        table = Table(top, base, probes, tolerance, None, reverse, forward, tallies, known)
        table.fill()
        wrong = any(tally.failed for tally in tallies.values())
        if wrong or sketch.lost or table.suspects or table.carries is not None or table.unsettled:
            raise UnfitError("the sums disagree")
        unclear = any(
            tally.undecided or tally.kinks or tally.open for tally in tallies.values()
        ) or any(mode not in tallies or not tallies[mode].nonzero for mode in self.modes)
        # zeros may be right, or drown in the rounding of f
        unclear |= "R" in tallies and tallies["R"].nonzero < tallies["R"].compared
        if only is None:
            if unclear:
                raise UnfitError("the sums leave something open")
            self.tallies = tallies
        elif unclear:  # no worse than it was
            return {}
        else:
            self._add(tallies)
        return dict(sketch.hidden)

    def _add(self, tallies: dict[str, Tally]) -> None:
        """Entries that were weighed before, and show now."""
        for mode, tally in tallies.items():
            whole = self.tallies[mode]
            whole.compared += tally.compared
            whole.nonzero += tally.nonzero
            whole.resolution = max(whole.resolution, tally.resolution)
            whole.shown = [a + b for a, b in zip(whole.shown, tally.shown, strict=True)]

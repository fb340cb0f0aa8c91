"""This module holds the adjoint test, `<w, J v> = <J* w, v>`: forward against reverse mode.

Both numbers come from automatic derivatives, so they agree to rounding and no differences are
involved. The test is standard (Claerbout, 1992, calls it the dot-product test); it is blind to
errors that both modes share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from adjudge.constants import (
    ADJOINT_RETRIES,
    ADJOINT_SAMPLES,
    CANCELLATION_UNITS,
    RUNS_APART,
)
from adjudge.estimate import Column, narrowest_eps
from adjudge.findings import Entry, Method, Scheme
from adjudge.floats import Vector, norm
from adjudge.jacobian.column import Columns
from adjudge.jacobian.comparison import Tally
from adjudge.jacobian.rounding import (
    is_systematic,
    perturbed,
    rounding_part,
    scatters_about_zero,
)
from adjudge.jacobian.stages import Trial
from adjudge.problem import Forward, Problem, Reverse, Stream, generator, undetectable_slope


@dataclass
class AdjointTest:
    """The adjoint tests of one table, by pairs of leaves or by entry."""

    name: Callable[[int], str]
    """Names what row `k` is the derivative of."""
    retried: int = 0

    def compare(self, trial: Trial, tally: Tally, wrt: str) -> None:
        """Compares both modes along the tangent of a column, to rounding.

        A gap beyond the part of the terms to which anything is resolved fails. One beyond
        `sqrt(eps)` of them fails unless it scatters about zero where x moves by units of rounding:
        the modes of a Gaussian likelihood whose matrix has a condition of 1e8 agree to seven
        digits. One between that and `rounding_part` of them may be rounding that an ill-conditioned
        f amplifies, and fails only if it is the same at points nearby, as does any gap of numbers
        that terms which cancel may leave: both modes of `KL(x, 1.001 x)` about zero agree to a few
        digits.
        """
        columns, found = trial.columns, trial.column
        probes, tolerance = columns.probes, columns.tolerance
        reverse = columns.reverse(found, trial.block, final=True)
        assert trial.pushed is not None  # there is nothing to compare without forward mode
        one, two = probes.contract(trial.pushed)[: reverse.automatic.size], reverse.automatic
        length = norm(np.where(np.isfinite(two), two, 0.0))
        size = np.maximum(reverse.size, length if probes.full else np.abs(two))
        size = np.maximum(size, np.abs(one))
        # A derivative that cancels to rounding keeps the rounding of the values it is computed
        # through.
        part = rounding_part(tolerance.coarsest)
        rounding = part * reverse.scales.secant + self._lost(trial, two)
        if tolerance.spread:  # in each entry of `J v` and of `J* w`
            v, w = np.abs(found.vector), 1.0 if probes.full else np.abs(probes.cotangent)
            spread = RUNS_APART * tolerance.spread * (np.sum(w) * np.max(v) + np.sum(v))
            rounding = rounding + spread
        bound = max(tolerance.resolution, tolerance.identity) * size + rounding
        tight = part * size + rounding
        gap = np.abs(one - two)
        comparable = np.isfinite(one) & np.isfinite(two)
        floor = probes.contract_error(undetectable_slope(columns.base, found.vector, tolerance.eps))
        residue = (
            gap
            <= CANCELLATION_UNITS * tolerance.coarsest * reverse.scales.secant + floor[: gap.size]
        )
        left_over = size <= columns.usual_rounding(found)
        apart = comparable & ~(gap <= bound) & ~residue & ~left_over
        doubtful = comparable & ~(gap <= tight) & ~apart
        for k in np.flatnonzero(apart | doubtful)[:ADJOINT_RETRIES]:
            unit = CANCELLATION_UNITS * tolerance.coarsest
            if gap[k] <= unit * columns.rounding_of_still(found, int(k)):
                apart[k] = doubtful[k] = False
        left, known = np.any(apart | doubtful), tolerance.eps
        if left and (eps := narrowest_eps(columns.problem, columns.base)) > known:
            # What computes in a narrower dtype inside agrees to the rounding of that.
            narrow = columns.over(columns.base, replace(tolerance, eps=eps))
            self.compare(replace(trial, columns=narrow), tally, wrt)
            return
        for k in sorted(np.flatnonzero(doubtful), key=lambda k: -gap[k] / tight[k]):
            if np.any(apart) or self.retried == ADJOINT_RETRIES:
                break
            self.retried += 1
            plain = tolerance.identity * size[k] + rounding[k]
            if gap[k] > plain:
                apart[k], bound[k] = not self._is_rounding(columns, found, int(k)), plain
            else:
                apart[k] = self._is_systematic(columns, found, int(k), float(one[k] - two[k]))
                bound[k] = tight[k]
        tally.compared += int(one.size)
        tally.failed += int(np.count_nonzero(apart))
        for k in np.flatnonzero(apart)[: Tally.KEPT]:
            entry = Entry(
                f"F against R{columns.problem.modes_taken}",
                self.name(int(k)),
                wrt,
                float(one[k]),
                float(two[k]),
                0.0,
                float(bound[k]),
                Method(Scheme.REVERSE),
            )
            tally.keep(tally.wrong, entry)

    @staticmethod
    def _lost(trial: Trial, automatic: Vector) -> Vector:
        """Returns what rules of both modes have lost by rounding, in each row of reverse mode, as a
        replay of them has shown; see `ReplayedRules`.

        Without it the right second derivative of `x (1 + tanh x)` fails, of which one mode loses
        another half percent than the other one does in a tail.
        """
        lost = np.zeros(automatic.size)
        for _, comparison, kind in trial.compared:
            if kind == "rows":
                lost += np.abs(np.nan_to_num(automatic - comparison.automatic))
            elif kind == "each" and trial.pushed is not None:
                off = np.abs(np.nan_to_num(trial.pushed - comparison.automatic))
                lost += trial.columns.probes.contract_error(off)[: lost.size]
        return lost

    @staticmethod
    def _is_rounding(columns: Columns, found: Column, k: int) -> bool:
        """Returns whether the gap is one of rounding; without room to ask, it is none."""
        problem, seed = columns.problem, columns.probes.seed
        if not problem.counts.allows(4 * ADJOINT_SAMPLES):
            return False
        return scatters_about_zero(problem, seed, _gap_at(columns, found, k))

    @staticmethod
    def _is_systematic(columns: Columns, found: Column, k: int, gap: float) -> bool:
        """Returns whether the gap is one of the rules and not of rounding: it is there at points
        nearby as well.
        """
        problem, seed = columns.problem, columns.probes.seed
        if not problem.counts.allows(32):
            return False
        gap_at = _gap_at(columns, found, k)
        return is_systematic(problem, columns.tolerance.coarsest, seed, gap, gap_at)


def _gap_at(columns: Columns, found: Column, k: int) -> Callable[[Problem, Vector], float]:
    """Returns the gap of row `k` at a point, with other probes each time: sums that are linear in
    these would be rounded alike.
    """
    base, probes = columns.base, columns.probes
    random = generator(probes.seed, Stream.NEAR_ADJOINT)

    def gap_at(problem: Problem, point: Vector) -> float:
        v, w = perturbed(found.vector, random), perturbed(probes.row(k), random)
        pushed = Forward(problem, point).column(base, v)[1]
        return float(w @ pushed - Reverse(problem, point).row(base, w) @ v)

    return gap_at

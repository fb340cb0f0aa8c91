"""This module decides what is tried next with a column that two evaluations leave in doubt.

The stages are in `Refinement.refine`, in the order in which they are tried. Each of them exists
because right derivatives failed, or wrong ones passed, without it; a stage that widens an error bar
has to measure what it allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    INHERITED_UNITS,
    ISOLATED_TOLERANCES,
    LADDER_ZERO_UNITS,
    REFERENCE_DISTANCES,
)
from adjudge.estimate import (
    Column,
    by_reference,
    coarsest_eps,
    column,
    plateau_dtype,
    representable,
    rounded_dtype,
    steps_around,
    with_jumps,
    with_ladder,
    with_measured_noise,
    with_second_ladder,
    with_steps,
)
from adjudge.floats import Vector, scale
from adjudge.jacobian.budget import Budget
from adjudge.jacobian.column import ModeComparison, RowKind
from adjudge.jacobian.comparison import Comparison, Tally
from adjudge.jacobian.rounding import rounding_neighbours
from adjudge.jacobian.saturation import in_tail, moves_beyond_noise
from adjudge.problem import (
    DOUBLE,
    Base,
    Forward,
    Probes,
    Problem,
    Purpose,
    Reverse,
    Stream,
    evaluate,
    generator,
    undetectable_slope,
)

NOISE_COST, JUMP_COST, TAIL_COST = 40, 6, 32
"""The most evaluations that it takes to measure the noise of f, to tell a jump from a slope, and to
see a tail. A stage that the budget has no room for is left out."""


@dataclass(frozen=True)
class Refinement:
    """Judges columns again that two evaluations leave in doubt."""

    problem: Problem
    base: Base
    probes: Probes
    budget: Budget
    compare: Callable[[Column], list[ModeComparison]]
    """Compares a column that was refined."""

    def refine(
        self, found: Column, compared: list[ModeComparison], *, disagrees: bool, carried_dtype: bool
    ) -> tuple[Column, list[ModeComparison], str | None] | None:
        """Takes a column through the stages below until it agrees, or all of them have been tried.

        Returns the column and its comparisons; or the dtype that f falls back to inside, in which
        the column is to be taken again; or `None` where the budget is spent. With `carried_dtype`
        such a dtype is known already.
        """
        problem, base = self.problem, self.base
        # Stage 1: a ladder of steps, whose error bar is measured and not assumed.
        closer = with_ladder(problem, base, found)
        again = self.compare(closer)
        if _any_left(again) and not carried_dtype:
            # Stage 2: code that rounds to a narrower dtype inside is judged by that dtype. Its
            # differences would otherwise be precise and wrong by the tolerance of its own dtype.
            dtype = rounded_dtype(problem, base, closer)
            if dtype is not None:
                return found, compared, dtype
        # A disagreement is judged by the ladder. A column that was merely in doubt keeps its two
        # evaluations unless the ladder removes that doubt: its bar may be wider than theirs.
        if disagrees or count_entries(again, "undecided") < count_entries(compared, "undecided"):
            found, compared = closer, again
        if not _any_left(compared):
            return found, compared, None
        # Stage 3: a second ladder. Why does a FAIL need one? The error bar of a ladder is the
        # disagreement of neighbouring extrapolations, so it is far too narrow wherever two of them
        # agree by chance. Each output takes the narrowest of its bars, which looks for just such a
        # chance. Among thousands of outputs some have one, and there a right derivative would fail
        # by what is noise of the difference. The second ladder has its steps between those of the
        # first, so it samples f at other points, where the noise is another one. Two windows that
        # agree by chance in one ladder do not agree by chance with those of the other. So the wider
        # bar of the two counts, and it reaches the other ladder's value where the two disagree. A
        # wrong derivative lies outside of both ladders and still fails. A PASS needs no second
        # ladder: an error bar that is too narrow by chance makes agreement harder, not easier. This
        # is our form of the rule that a FAIL must survive confirmation on fresh samples.
        if not self.budget.allows_ladder():
            return None
        closer = with_second_ladder(problem, base, closer)
        again = self.compare(closer)
        # Stage 4: rounding inside of f may exceed the rounding of its values (a long sum, a solver
        # that stops at a tolerance), so the noise of f is measured about the step in use. Plateaus
        # between values show a narrower dtype that the values themselves did not.
        if _any_left(again) and self.budget.allows(NOISE_COST):
            closer = with_measured_noise(problem, base, closer, self._doubted_outputs(again))
            again = self.compare(closer)
            settled = not _any_left(again)
            dtype = None if carried_dtype else plateau_dtype(problem, base, closer, settled=settled)
            if dtype is not None:
                return found, compared, dtype
        if count_entries(compared, "fails") or count_entries(again, "undecided") <= count_entries(
            compared, "undecided"
        ):
            found, compared = closer, again
        # Stage 5: at a jump no value is the derivative, however precise the differences are.
        if _any_left(compared) and self.budget.allows(JUMP_COST):
            found = with_jumps(problem, base, found)
        # Stage 6: the automatic side is allowed its own rounding, as far as it is seen to change
        # where x moves by a unit of rounding.
        if count_entries(compared, "fails"):
            compared = [self._allow_automatic_rounding(one, found) for one in compared]
        if (
            self.problem.modes_taken
            and not (found.from_reference or found.one_sided)
            and count_entries(compared, "fails")
        ):
            compared = self._allow_inherited_rounding(compared, found)
        return found, compared, None

    def _allow_inherited_rounding(
        self, compared: list[ModeComparison], found: Column
    ) -> list[ModeComparison]:
        """Allows a derivative of a derivative the rounding of the first one, which is
        differentiated.

        Where the first derivative is a residue of rounding, its differences are as precise as any,
        and mean nothing: at another point they are those of another residue. So what fails is
        allowed four times the change of both numbers where all of x moves by a unit of rounding,
        and `INHERITED_UNITS` of the largest entry.
        """
        compared = [self._allow_automatic_rounding(one, found, everywhere=True) for one in compared]
        changes = [np.zeros(comparison.reference.size) for _, comparison, _ in compared]
        for point in rounding_neighbours(self.problem, None, self.probes.seed):
            if not self.budget.allows(self.budget.column):
                return compared
            moved = replace(self.problem, origin=point, x=self.problem.point(point))
            there = self.compare(column(moved, self.base, found.tangent, None))
            for change, (_, here, _), (_, other, _) in zip(changes, compared, there, strict=True):
                with np.errstate(all="ignore"):
                    apart = np.nan_to_num(np.abs(other.reference - here.reference), posinf=0.0)
                np.maximum(change, apart, out=change)
        allowed = []
        for (letter, comparison, kind), change in zip(compared, changes, strict=True):
            residue = INHERITED_UNITS * comparison.tolerance.eps * comparison.scales.block
            slack = 4 * change + residue
            if kind != "first":
                floor = undetectable_slope(self.base, found.vector, comparison.tolerance.eps)
                slack = slack + (floor if kind == "each" else self.probes.contract_error(floor))
            error = comparison.error + np.where(comparison.fails, slack, 0.0)
            allowed.append(ModeComparison(letter, replace(comparison, error=error), kind))
        return allowed

    def _doubted_outputs(self, compared: list[ModeComparison]) -> NDArray[np.bool_]:
        """Marks the outputs on which a comparison fails or stays open."""
        doubted = np.zeros(self.base.whole.size, bool)
        width = self.base.Y.size
        for _, comparison, kind in compared:
            for k in np.flatnonzero(comparison.fails | comparison.undecided):
                if kind == "first":
                    doubted[width:] = True
                elif self.probes.full or kind == "each":
                    doubted[k] = True
                else:
                    doubted[self.base.Y.slices[k]] = True
        return doubted

    def _allow_automatic_rounding(
        self, one: ModeComparison, found: Column, *, everywhere: bool = False
    ) -> ModeComparison:
        """Allows what fails the rounding of the automatic side: four times its change where x moves
        by a unit of rounding.

        A derivative that is right in formula and ill-conditioned changes by as much, and would fail
        without this. Among many failing rows only some are tried, and the one that changes least
        stands for the rest. A value that is far off at x, and right at all points tried around it,
        is wrong at x alone and is allowed nothing.
        """
        letter, comparison, kind = one
        tried = worst_entries(comparison, comparison.fails)
        if not tried:
            return one
        with np.errstate(all="ignore"):
            around = self._automatic_nearby(kind, tried, found, everywhere=everywhere)
            changes = [np.abs(values - comparison.automatic[tried]) for values in around]
            change = np.max(np.where(np.isfinite(changes), changes, 0.0), axis=0)
            reference, allowed = comparison.reference[tried], comparison.allowed[tried]
            right = np.all([abs(values - reference) <= allowed for values in around], axis=0)
            alone = right & (comparison.difference[tried] > ISOLATED_TOLERANCES * allowed)
            change = np.where(alone, 0.0, change)
            size = np.where(comparison.largest > 0, comparison.largest, 1.0)
            slack = np.where(comparison.fails, np.nanmin(change / size[tried]) * size, 0.0)
        slack[tried] = change
        widened = replace(comparison, error=comparison.error + 4 * slack)
        if found.from_reference and np.any(widened.fails) and kind != "first":
            widened = self._allow_reference_scatter(widened, kind, found)
        return ModeComparison(letter, widened, kind)

    def _allow_reference_scatter(
        self, comparison: Comparison, kind: RowKind, found: Column
    ) -> Comparison:
        """Allows what still fails beside a given reference twice the scatter of its relative
        deviation over points nearby, where the deviation is scattered.

        Rounding is another one at each of these points; a wrong formula is off by the same part at
        all.
        """
        rows = worst_entries(comparison, comparison.fails)
        part = self.problem.X.slices[found.tangent.leaf]
        random = generator(self.probes.seed, Stream.NEAR_REFERENCE)
        pairs = [(comparison.automatic[rows], comparison.reference[rows])]
        for far in REFERENCE_DISTANCES:
            point = self.problem.origin.copy()
            signs = random.choice(np.array([-far, far]), part.stop - part.start)
            point[part] += signs * scale(point[part])
            point = representable(self.problem, self.problem.clipped(point), found.tangent.leaf)
            there = by_reference(replace(self.problem, origin=point), self.base, found.tangent)
            value = there.estimate.value[: self.base.Y.size]
            value = value if kind == "each" else self.probes.contract(value)
            pairs.append((self._automatic_at(point, kind, rows, found), value[rows]))
        with np.errstate(all="ignore"):
            off = np.array([automatic / reference - 1 for automatic, reference in pairs])
            scatter = np.max(off, axis=0) - np.min(off, axis=0)
            rounding = np.where(scatter > np.abs(off[0]) / 2, 2 * scatter, 0.0)
        error = comparison.error.copy()
        error[rows] += np.nan_to_num(rounding) * np.abs(comparison.reference[rows])
        return replace(comparison, error=error)

    def open_saturated(self, compared: list[ModeComparison], found: Column) -> list[ModeComparison]:
        """Leaves open what f cannot show: a value that is steady where x moves by rounding, which
        rounding is not, and a zero where f has a tail.

        Without this both the right and the doubled derivative of `tanh` at 30 would pass.
        """
        none = np.zeros(self.base.Y.size, bool)
        zero = all(not np.any(comparison.automatic) for _, comparison, _ in compared)
        # Across a constraint set the coordinates of its chart move nothing.
        zero &= not self.problem.constraints
        room = zero and not count_entries(compared, "fails") and self.budget.allows(TAIL_COST)
        tail = in_tail(self.problem, self.base, found) if room else none
        if not self.probes.full:
            tail_rows = np.array([bool(tail[part].any()) for part in self.base.Y.slices])
        opened = []
        for letter, comparison, kind in compared:
            own = tail if self.probes.full or kind == "each" else tail_rows
            saturated = own[: comparison.automatic.size] & comparison.agrees
            saturated |= self._steady_below_rounding(comparison, kind, found)
            opened.append(ModeComparison(letter, replace(comparison, left_open=saturated), kind))
        return opened

    def open_unconfirmed_zeros(
        self, compared: list[ModeComparison], found: Column
    ) -> list[ModeComparison]:
        """Leaves open the zeros of a column of zeros where f moves along it, and a ladder of long
        steps does not show that the derivative is zero.

        At a stationary point the long ladder shows the zero to the rounding of f over the scale of
        x; in a tail it shows another slope. Motion that is no more than the scatter of f does not
        count.
        """
        zeros = not count_entries(compared, "fails") and all(
            np.any(c.moved) for _, c, _ in compared
        )
        zeros &= not self.problem.constraints
        double = self.base.noise == 0 and coarsest_eps(self.problem, self.base) <= DOUBLE
        if not zeros or not double or found.one_sided or not self.budget.allows(TAIL_COST):
            return compared
        far = with_steps(
            self.problem, self.base, found, steps_around(self.problem, self.base, found, far=True)
        )
        if far is None or not moves_beyond_noise(self.base, far):
            return compared
        opened = []
        for one, (_, other, _) in zip(compared, self.compare(far), strict=True):
            letter, comparison, kind = one
            with np.errstate(all="ignore"):
                error = np.fmin(comparison.error, other.error + np.abs(other.reference))
                wide = error > LADDER_ZERO_UNITS * DOUBLE * comparison.scales.secant
            unconfirmed = wide & comparison.agrees & comparison.moved
            if comparison.left_open is not None:
                unconfirmed |= comparison.left_open
            opened.append(ModeComparison(letter, replace(comparison, left_open=unconfirmed), kind))
        return opened

    def _steady_below_rounding(
        self, comparison: Comparison, kind: RowKind, found: Column
    ) -> NDArray[np.bool_]:
        """Marks the values below the rounding of f that are steady where x moves by a unit of
        rounding: each is a derivative, and not its own rounding.
        """
        candidates = comparison.saturated & (comparison.automatic != 0) & comparison.agrees
        tried = worst_entries(comparison, candidates & ~comparison.undecided)
        saturated = np.zeros_like(candidates)
        if tried:
            with np.errstate(all="ignore"):
                here = comparison.automatic[tried]
                changes = [
                    np.abs(values - here) for values in self._automatic_nearby(kind, tried, found)
                ]
                steady = np.max(changes, axis=0) < np.abs(comparison.automatic[tried]) / 16
            saturated[np.array(tried)[steady]] = True
        return np.asarray(saturated)

    def _automatic_nearby(
        self, kind: RowKind, rows: list[int], found: Column, *, everywhere: bool = False
    ) -> list[Vector]:
        """Returns the automatic values of these rows where the leaf of the column, or all of x, is
        moved by a unit of rounding.
        """
        leaf = None if everywhere else found.tangent.leaf
        points = rounding_neighbours(self.problem, leaf, self.probes.seed)
        return [self._automatic_at(point, kind, rows, found) for point in points]

    def _automatic_at(self, point: Vector, kind: RowKind, rows: list[int], found: Column) -> Vector:
        """Returns the automatic values of these rows at another point."""
        v, width = found.vector, self.base.Y.size
        if kind == "first":
            values = evaluate(self.problem, self.base, point, Purpose.ROUNDING)
            return np.array([values[:width] @ v[:width]])
        if kind == "each":
            forward = Forward(self.problem, point)
            return forward.column(self.base, v, found.tangent.leaf)[1][rows]
        reverse = Reverse(self.problem, point)
        return np.array([reverse.row(self.base, self.probes.row(k)) @ v for k in rows])


def count_entries(compared: list[ModeComparison], what: str) -> int:
    """Returns how many entries of all comparisons have the property `what`: "fails" or
    "undecided".
    """
    return sum(int(np.count_nonzero(getattr(c, what))) for _, c, _ in compared)


def _any_left(compared: list[ModeComparison]) -> bool:
    """Returns whether any entry fails or is undecided."""
    return count_entries(compared, "fails") + count_entries(compared, "undecided") > 0


def worst_entries(comparison: Comparison, mask: NDArray[np.bool_]) -> list[int]:
    """Returns the entries within `mask` that differ most, no more of them than a tally keeps."""
    where = np.flatnonzero(mask)
    if where.size <= Tally.KEPT:
        return [int(k) for k in where]
    gap = np.nan_to_num(comparison.difference[where], nan=np.inf)
    return [int(k) for k in where[np.argsort(-gap)[: Tally.KEPT]]]

"""The stages by which a column is judged, as a list: `STAGES`, cheapest first.

Two evaluations come before all of them and settle most columns. Where they leave a doubt, the
stages are tried in turn, each only if it can remove a doubt that is left. Each of them exists
because right derivatives failed, or wrong ones passed, without it; a stage that widens an error bar
has to measure what it allows. New evidence is one stage more in the list.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import cached_property, partial
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    AGREEING_STEPS,
    BENT_PART,
    BESIDE_TANGENTS,
    BEYOND_DOUBT,
    BISECTIONS,
    BRANCH_PART,
    BRANCH_REACHES,
    CLAIMED_STEPS,
    COARSE_EPS,
    EXACT_UNITS,
    FAR_LARGER,
    FAR_STEP,
    FAST_PART,
    FEW_UNITS,
    FEWEST_WEIGHED,
    FOLLOWED_DISTANCES,
    FOLLOWED_PART,
    GROSS_AFTER_EXTRAPOLATION,
    GROSS_AFTER_LADDER,
    GROSS_BARS,
    GROSS_POWER,
    GROSS_TOLERANCES,
    HARMLESS_UNITS,
    INSIDE_FACTOR,
    ISOLATED_POWERS,
    ISOLATED_TOLERANCES,
    ITERATED_UNITS,
    JUMP_BEYOND,
    JUMP_REACH,
    KINKED_BENDS,
    KINKED_PART,
    LADDER_COLUMNS,
    LADDER_RATIO,
    LADDER_ZERO_UNITS,
    LARGEST_OF_PARTS,
    LEAST_PART,
    LONG_ENOUGH,
    LONG_REPLAY_WORK,
    LONG_REPLAYS,
    LONGEST_STEP,
    LOST_UNITS_OF_RULE,
    LOUD_UNITS,
    MEAN_BAR,
    MEAN_BARS,
    MEAN_NODES,
    MEAN_PART,
    MEAN_POINTS,
    MEAN_REACH,
    MEAN_STEPS,
    MEAN_UNITS,
    MOST_TRIED,
    NARROW_STAIR,
    NARROWER_BAR,
    NARROWEST_STAIR,
    NEAR_ROUNDING,
    NEIGHBOUR_FACTOR,
    NOISY_DRAWS,
    NOISY_PART,
    ONSET_UNITS,
    PLAIN_TOLERANCES,
    REFERENCE_DISTANCES,
    REFUTED,
    RESIDUE_DISTANCES,
    SATURATED_UNITS,
    SCATTERED_PART,
    SHARPER_BARS,
    SHORTER_STEPS,
    SHRUNK_JUMP,
    SIGNIFICANT_BARS,
    SPACINGS_OF_A_VALUE,
    STAIR_SPACINGS,
    STEADY_PART,
    STILL_PART,
    SURE_UNITS,
    TRACED_PROJECTIONS,
    TRUNCATED_UNITS,
    TURN_DISTANCE,
    TURN_UNITS,
    UNDERFLOW_DISTANCES,
    UNLIKE_ROUNDING,
    USUAL_CONSTANT,
    WEIGHED_BARS,
)
from adjudge.errors import NotSupportedError, attempt
from adjudge.estimate import (
    Column,
    Effort,
    Sample,
    dtype_inside,
    jvp_by_replay,
    may_round_inside,
    moved_by,
    noise_inside,
    representable,
    rounded_dtype,
    sample_at,
    value_by_replay,
    vjp_by_replay,
)
from adjudge.findings import Scheme
from adjudge.floats import Vector, norm, relative_step, scale
from adjudge.jacobian.column import ColumnBlock, Columns, ModeComparison, RowKind
from adjudge.jacobian.comparison import ERRORS, Comparison, Tally, decide
from adjudge.jacobian.rounding import (
    apart_where_moved,
    perturbed,
    points_around,
    points_within_rounding,
    representable_within_bounds,
    scatter,
)
from adjudge.jacobian.saturation import (
    Onset,
    all_saturated,
    creeps,
    dominating_constants,
    goes_both_ways,
    leaves_steadily,
    lopsided,
    moves_beyond_noise,
    moves_on,
    onset,
)
from adjudge.limits import limits
from adjudge.problem import (
    DOUBLE,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Stream,
    Tangent,
    at_once,
    evaluate,
    generator,
    halves,
    largest,
    random_entries,
)

TWO_EVALUATIONS = "two evaluations"
"""The name in reports of the stage before all others: a central difference."""


class Doubt(Flag):
    """What two evaluations may leave in doubt about a column."""

    NONE = 0
    DISAGREES = auto()
    """An entry disagrees, or agrees in a way that an error would also show."""
    OPEN = auto()
    """The error bar of an entry is too wide for an answer."""
    SATURATED = auto()
    """All of the column lies below the rounding of f."""
    HIDDEN = auto()
    """An error in any of its leaves would not show."""


@dataclass
class Examined:
    """How many columns of one table were looked into, by what came of them."""

    failed: int = 0
    open: int = 0
    saturated: int = 0
    unseen: int = 0
    """How many columns of entries that are too small beside others ladders have left open."""


@dataclass(frozen=True)
class Trial:
    """One column on its way through the stages: the estimate, and what each mode says beside it."""

    columns: Columns
    """Makes the comparisons, from the problem, the probes and the tolerance."""
    block: ColumnBlock
    column: Column
    compared: list[ModeComparison]
    reverse: Reverse | None = None
    pushed: Vector | None = None
    """The image of the tangent by forward mode, where that is checked."""
    doubt: Doubt = Doubt.NONE
    laddered: bool = False
    """Whether a ladder was taken, or cannot be."""
    noisy: bool = False
    """Whether the noise of f was measured."""
    may_narrow: bool = True
    """Whether f may turn out to compute in a narrower dtype, which is not known yet."""
    separate: bool = False
    """Whether the tangent moves entries that were taken out of a larger column."""
    flat: Vector | None = None
    """The error bars of the outputs whose derivative was found to be zero, and NaN at the others;
    see `Standstill`."""
    onset: Onset | None = None
    """How the outputs that stand still leave their value, where that was looked at."""
    settled: bool = False
    """Whether no further stage is needed."""
    proved: bool = False
    """Whether all that fails is off beyond doubt, as far as differences show it."""
    suspected: Trial | None = None
    """The trial at three steps, where something that fails is off beyond doubt, and not all."""
    shown: list[ModeComparison] | None = None
    """What a longer step showed where it settled the column; see `LongEnoughStep`."""
    confirmed: bool = False
    """Whether a replay proves that something fails."""
    rounded: NDArray[np.bool_] | None = None
    """The outputs that rounding of the largest one of their leaf may move as far as they move; see
    `MeanSlopes`."""
    few_saturated: bool = False
    """Whether columns below the rounding of f are still looked into."""
    decided_by: str = TWO_EVALUATIONS
    """The name of the last stage that changed a comparison."""

    @cached_property
    def shared(self) -> bool:
        """Whether several leaves share the tangent."""
        return len(self.column.tangent.leaves) > 1

    @cached_property
    def agrees_clearly(self) -> bool:
        """Whether all entries agree beyond doubt."""
        return all(map(attrgetter("comparison.agrees_clearly"), self.compared))

    @cached_property
    def fails(self) -> int:
        """The number of entries that fail."""
        return sum([int(np.count_nonzero(c.fails)) for _, c, _ in self.compared])

    @cached_property
    def open(self) -> int:
        """The number of entries that are left open."""
        return sum([int(np.count_nonzero(c.undecided)) for _, c, _ in self.compared])

    @cached_property
    def agrees(self) -> bool:
        """Whether all entries agree, however wide their error bars are."""
        return all(bool(np.all(comparison.agrees)) for _, comparison, _ in self.compared)

    def shows(self, part: float) -> bool:
        """Whether all entries agree, and would not if they were off by this part. A derivative of
        zero shows where f stands still.
        """
        for _, comparison, _ in self.compared:
            still = ~comparison.moved & (comparison.automatic == 0)
            sharp = comparison.error <= part * comparison.largest
            if not np.all(comparison.agrees & (sharp | still)):
                return False
        return True

    @property
    def jumps(self) -> bool:
        """Whether an entry agrees only since its automatic value jumps at x."""
        return any(c.jumping is not None and bool(np.any(c.jumping)) for _, c, _ in self.compared)

    def off_by(self, factor: float) -> bool:
        """Whether an entry differs by more than so many tolerances, or has no reference."""
        for _, comparison, _ in self.compared:
            off = comparison.difference > factor * comparison.allowed
            if np.any(off | ~np.isfinite(comparison.reference)):
                return True
        return False

    @cached_property
    def left(self) -> bool:
        """Whether an entry fails or is open."""
        return any(bool(np.any(c.fails | c.undecided)) for _, c, _ in self.compared)

    @property
    def at_kink(self) -> bool:
        """Whether all that fails or is open lies between the slopes to both sides of a kink."""
        for _, comparison, kind in self.compared:
            decision = decide(comparison, self.columns.slopes(self.column, kind))
            if np.any(decision.fails | decision.undecided):
                return False
        return True

    @property
    def zero(self) -> bool:
        """Whether all automatic values are zero."""
        return all(not np.any(c.automatic) for _, c, _ in self.compared)

    def along(
        self,
        effort: Effort,
        found: Column | None = None,
        doubted: NDArray[np.bool_] | None = None,
        towards: Vector | None = None,
    ) -> Column:
        """Returns the estimate that more effort makes of `found`, by default of `column`."""
        found = found or self.column
        more = self.columns.estimator.along(found.tangent, effort, found, doubted, towards)
        return more if more is found else self.pinned(more)

    def with_onset(self) -> tuple[Trial, Onset]:
        """Returns the trial, and how its outputs leave their value farther off. Later estimates
        have the same tangent, so it is looked at once.
        """
        problem, base = self.columns.problem, self.columns.base
        # A zero is no slope of stairs, whatever makes these.
        seen = self.onset or onset(problem, base, self.column, constants=not self.zero)
        return replace(self, onset=seen), seen

    def pinned(self, found: Column) -> Column:
        """Returns the estimate with zeros at the outputs that are `flat`."""
        if self.flat is None:
            return found
        estimate, bars = found.estimate, np.full(found.estimate.value.size, np.nan)
        bars[: self.flat.size] = self.flat
        flat, half_gap = ~np.isnan(bars), estimate.half_gap
        if half_gap is not None:
            half_gap = np.where(flat, 0.0, half_gap)
        estimate = estimate.but(
            value=np.where(flat, 0.0, estimate.value),
            error=np.where(flat, bars, estimate.error),
            moved=estimate.moved & ~flat,
            half_gap=half_gap,
        )
        return replace(found, estimate=estimate)

    def with_finer(self, finest: Column, by: str, *, refuted: bool = False) -> Trial:
        """Returns the trial with an estimate from more evaluations.

        A disagreement is judged by the first ladder, whatever that leaves open. Where nothing fails
        an estimate that leaves more open does not take the place of the one before, unless that is
        `refuted`.
        """
        by = self.decided_by if finest is self.column else by  # a reference knows no more
        compared = self.comparisons(finest, final=True)
        after = replace(self, column=finest, compared=compared, laddered=True, decided_by=by)
        judged = refuted or self.fails or not (self.laddered or self.doubt is Doubt.OPEN)
        return after if judged or after.open <= self.open else replace(self, laddered=True)

    def comparisons(
        self, found: Column, *, final: bool = False, columns: Columns | None = None
    ) -> list[ModeComparison]:
        """Returns what each mode says beside another estimate, by other `columns` if given."""
        columns = columns or self.columns
        compared = columns.comparisons(found, self.block, self.pushed, final=final)
        return columns.compared_once(compared) if self.separate else list(compared)

    def of_leaves(self, leaves: tuple[int, ...]) -> Trial:
        """Returns the trial as one of these leaves, some of those that its tangent moves."""
        tangent = replace(self.column.tangent, leaves=leaves)
        return replace(self, column=replace(self.column, tangent=tangent))

    def with_failures_open(self, by: str) -> Trial:
        """Returns the trial with nothing known of what fails."""
        opened = [
            one.but(error=np.where(one.comparison.fails, np.inf, one.comparison.error))
            for one in self.compared
        ]
        return self.with_compared(opened, by)

    def with_compared(self, compared: list[ModeComparison], by: str) -> Trial:
        """Returns the trial with comparisons that allow for more, or leave more open."""
        after = replace(self, compared=compared)
        changed = (after.fails, after.open) != (self.fails, self.open)
        return replace(after, decided_by=by) if changed else after


@dataclass(frozen=True)
class Again:
    """What a stage answers where the column has to be taken once more, on other terms."""

    dtype: str | None = None
    """The dtype that f computes in inside, by whose tolerances all columns are judged from here."""
    hiding: NDArray[np.bool_] | None = None
    """The outputs that are left out of the column, since they hide the others."""
    leaves: tuple[Sequence[int], ...] = ()
    """The groups of leaves that are compared in its place."""


class Stage(ABC):
    """One way to remove a doubt about a column."""

    name: str
    """The name in reports, in the terms of the field."""
    cost: int = 0
    """The most evaluations that it takes. Without room for them in the budget it is left out."""
    needed: bool = False
    """Whether a column that the budget has no room for cannot be judged at all."""
    settles_open: bool = False
    """Whether it is tried also on what another stage has settled as open."""
    by_entry: bool = False
    """Whether it is left out for a projection behind which one entry was proved wrong, since it
    was tried on that entry."""

    @abstractmethod
    def helps(self, trial: Trial) -> bool:
        """Returns whether the stage may remove a doubt that is left."""

    @abstractmethod
    def apply(self, trial: Trial) -> Trial | Again:
        """Returns the trial with what the stage found out."""


def doubt_of(trial: Trial, examined: Examined) -> Doubt:
    """Returns what two evaluations leave in doubt, as far as enough columns were not looked into
    before.
    """
    # Once as many leaves have failed as are traced to their entries, a tangent of several leaves
    # that is far off is not followed into each: the verdict stands.
    traced = trial.shared and examined.failed >= TRACED_PROJECTIONS
    if trial.agrees_clearly or (traced and trial.off_by(GROSS_TOLERANCES)):
        return Doubt.NONE
    doubt = Doubt.NONE
    if examined.failed < LADDER_COLUMNS and any(
        bool(np.any(comparison.doubtful(projected=not trial.columns.probes.full)))
        for _, comparison, _ in trial.compared
    ):
        doubt |= Doubt.DISAGREES
    if examined.open < LADDER_COLUMNS and trial.open:
        doubt |= Doubt.OPEN
    if not doubt and trial.few_saturated and all_saturated(trial.compared):
        doubt = Doubt.SATURATED
    return doubt


class DominatingConstants(Stage):
    """Leaves out of a projection the outputs whose size hides the others.

    Without it a mask of -1e30 among the outputs hides a wrong sign of all others: its rounding is
    larger than they are. Such outputs stand still, also far off, and reverse mode claims nothing of
    them. Costs two evaluations where there is a candidate. Ours.
    """

    name = "constants left out"
    cost = 2

    def helps(self, trial: Trial) -> bool:
        columns = trial.columns
        kept = columns.base.hiding is None and not trial.column.from_reference
        return kept and not (columns.probes.full or trial.separate)

    def apply(self, trial: Trial) -> Trial | Again:
        columns, block = trial.columns, trial.block
        reverse = None if block.rows is None else trial.reverse
        still = dominating_constants(columns.base, columns.probes, trial.column, reverse)
        return trial if still is None else Again(hiding=still)


class LeafScale(Stage):
    """Moves an input that is below the rounding of its leaf by the scale of the leaf, where f does
    not move with it over its own.

    `cos(pi / 2)` is 6e-17 among numbers of size one, and a step of 1e-5 of it moves no `exp x`.
    Without this stage a right derivative stays open. A function that takes such numbers as they
    are, a logarithm, moves over their own scale and is judged there. Costs two evaluations. Ours.
    """

    name = "scale of the leaf"
    cost = 2

    def helps(self, trial: Trial) -> bool:
        found, problem = trial.column, trial.columns.problem
        j, length = found.tangent.coordinate, found.tangent.length
        moves = np.any(found.estimate.moved)
        if j is None or trial.doubt is Doubt.NONE or found.from_reference or moves:
            return False
        part = problem.X.slices[found.tangent.leaves[0]]
        return length < problem.X.coarsest_eps * float(np.max(np.abs(problem.origin[part])))

    def apply(self, trial: Trial) -> Trial:
        columns, found = trial.columns, trial.column
        part = columns.problem.X.slices[found.tangent.leaves[0]]
        x = columns.problem.origin[part]
        tangent = replace(found.tangent, length=float(norm(x)) / x.size**0.5)
        longer = columns.estimator.along(tangent)
        sample = longer.sample
        moved = sample is not None and np.any(sample.plus != columns.base.values)
        if not (moved and np.all(np.isfinite(longer.estimate.value))):
            return trial
        compared = trial.comparisons(longer)
        after = replace(trial, column=longer, compared=compared, decided_by=self.name)
        return replace(after, settled=after.agrees_clearly)


class ClaimedRounding(Stage):
    """Leaves open what fails where f stands still and its automatic derivative says that it moves
    by less than it rounds.

    `1 - cos x` is zero about 1e-9, where its derivative is 1e-9: without this stage that would fail
    as the derivative of a stair. What is not steady where x moves by rounding is rounding, and
    passes: without that the right derivative of `KL(x, x - max x)` is open. Costs at most eight
    evaluations of the derivative, of which one or two are usual. Ours.
    """

    name = "a derivative within the rounding of f"

    def helps(self, trial: Trial) -> bool:
        return trial.fails > 0 and _in_doubt_without_ladder(trial)

    def apply(self, trial: Trial) -> Trial:
        if not _only_in(trial, (_still_steps(trial) > 0) & _claims_rounding(trial)):
            return trial
        opened = trial.with_failures_open(self.name)
        return replace(_without_residues(opened), settled=True)


@dataclass(frozen=True)
class Standstill(Stage):
    """Finds the outputs that stand still about x to the last bit and farther off leave their value
    at once. Their derivative is zero, whatever longer steps show.

    Such are a staircase (`floor`, a quantiser), the dead side of a relu, and what f does not read.
    Without this stage a ladder takes longer and longer steps until f moves, and finds the slope of
    the whole staircase, so that zero failed and the slope passed. A tail (`sigmoid` at 40) leaves
    its value by units of rounding, and is left to the stages below, as is a function that rounds to
    a narrower dtype inside, and one whose narrow stairs go both ways. Costs four evaluations where
    f does not move at all, else up to forty, and more where stairs are narrow. Ours.
    """

    after_ladder: bool
    """Whether it looks at the outputs that some steps of a ladder have moved and others have not.
    Else it looks at columns of which all that is in doubt stands still, which need no ladder then.
    """
    least: float = 0.0
    """The shortest standstill that counts, over the scale of x."""
    name = "standstill"
    cost = 40

    def helps(self, trial: Trial) -> bool:
        if not self.after_ladder:
            return _in_doubt_without_ladder(trial)
        return _may_stand_still(trial) and bool(np.any(_still_steps(trial)))

    def apply(self, trial: Trial) -> Trial | Again:
        columns, found, steps = trial.columns, trial.column, _still_steps(trial)
        problem, base = columns.problem, columns.base
        trial, seen = trial.with_onset()
        flat = (steps > self.least * found.tangent.length) & seen.flat
        flat &= ~_within_spacings(columns, found, flat, steps)
        flat &= ~(creeps(base, found, constants=not trial.zero) | _claims_rounding(trial))
        narrow = flat & (steps < NARROW_STAIR * found.tangent.length)
        if found.ladders and np.any(narrow):
            width = float(np.max(steps[narrow])) / found.tangent.length
            flat &= ~goes_both_ways(problem, base, found.tangent, narrow, width)
        if self.after_ladder and trial.zero:
            flat &= ~(moves_on(base, found) & creeps(base, found, constants=True))
        if not np.any(flat):
            return trial
        reach = float(np.min(steps[flat])) / found.tangent.length
        if may_round_inside(problem, base, found, flat, reach, seen.jumps) and np.any(
            flat & ~leaves_steadily(problem, base, found.tangent, flat, _still_from_x(trial))
        ):
            # Else steps that are short beside the rounding agree on a derivative of zero.
            dtype = dtype_inside(problem, base) if trial.may_narrow else None
            if dtype is not None:
                return Again(dtype=dtype)
            if not self.after_ladder:
                return trial
            doubted = np.zeros(base.whole.size, bool)  # what is only observed is not
            doubted[: flat.size] = flat
            noisy = trial.along(Effort.MEASURED_NOISE, doubted=doubted)
            return trial.with_finer(noisy, MeasuredNoise.name, refuted=True)
        unit = base.coarsest_eps * base.magnitude(base.values)[: base.Y.size]
        bars = unit / steps
        if base.alone:
            # What rounding leaves of terms as large as the derivatives of other outputs is zero.
            others = base.Y.largest(found.estimate.value[: base.Y.size])
            bars = np.fmax(bars, SATURATED_UNITS * base.coarsest_eps * others)
        trial = replace(trial, flat=np.where(flat, bars, np.nan))
        if self.after_ladder or base.alone:
            trial = trial.with_finer(trial.pinned(found), self.name)
        if self.after_ladder:
            return trial
        if _only_in(trial, flat):
            # The median of three equal numbers stands still along each of them as well.
            trial = Defects().apply(trial) if trial.fails else trial
            if trial.fails:
                # A sum of terms that cancel stands still, and its derivative is their rounding.
                trial = _without_residues(AutomaticRounding().apply(trial))
            return replace(trial, settled=True, decided_by=self.name)
        return trial


def _within_spacings(
    columns: Columns, found: Column, flat: NDArray[np.bool_], steps: Vector
) -> NDArray[np.bool_]:
    """Marks what stands still over less than the caller's x has neighbours: over some spacings of
    a dtype that is narrower than that in which f is judged.
    """
    base, unit = columns.base, columns.tolerance.of_x * found.tangent.length
    close = flat & (steps < STAIR_SPACINGS[0] * unit)
    if not np.any(close):
        return close
    for sign in (1, -1):
        points = [base.problem.origin + sign * k * unit * found.vector for k in STAIR_SPACINGS]
        first, *others = (
            evaluate(base.problem, base, base.problem.clipped(point), Purpose.NEAR_X)
            for point in points
        )
        for other in others:
            first = np.where(first == other, first, np.nan)
        close &= np.isnan(first[: close.size])
    return close


def _may_stand_still(trial: Trial) -> bool:
    """Returns whether a doubt is left that steps of f may settle."""
    known = trial.doubt is Doubt.NONE or trial.proved or trial.column.from_reference
    return not known and trial.column.step != 0


def _in_doubt_without_ladder(trial: Trial) -> bool:
    """Returns whether all that is in doubt stands still over the steps so far."""
    steps = _still_steps(trial) if _may_stand_still(trial) else np.zeros(0)
    # Of a tangent that leaves share the halves say which leaf it is that claims a derivative.
    if not np.any(steps) or (trial.shared and not trial.zero):
        return False
    if trial.doubt is Doubt.SATURATED:
        return trial.zero
    return trial.fails > 0 and _only_in(trial, steps > 0)


def _still_steps(trial: Trial) -> Vector:
    """Returns the longest step that leaves an output as it is to the last bit on both sides, by
    output; 0 for those that all steps move, and for those that no step of a ladder has moved unless
    they fail: a longer step may move them.
    """
    found, longest = trial.column, np.zeros(trial.columns.base.Y.size)
    moved = np.zeros(longest.size, bool)
    for step, still in _still_by_step(trial):
        longest = np.where(still, step, longest)
        moved |= ~still
    if not found.ladders:
        return longest
    failing = _outputs_where(trial, lambda c: c.fails)[: longest.size]
    return np.where(moved | failing, longest, 0.0)


def _still_from_x(trial: Trial) -> Vector:
    """Returns the longest step that leaves an output as it is, and so does each shorter one, by
    output; 0 for those that the shortest step moves. Of `relu(sin x)` a longer step may end on the
    dead side of another wave.
    """
    longest = np.zeros(trial.columns.base.Y.size)
    moved = np.zeros(longest.size, bool)
    for step, still in _still_by_step(trial):
        moved |= ~still
        longest = np.where(moved, longest, step)
    return longest


def _still_by_step(trial: Trial) -> Iterator[tuple[float, NDArray[np.bool_]]]:
    """Yields the steps to both sides of x so far, the shortest first, with the outputs that each
    leaves as they are to the last bit.
    """
    base, found = trial.columns.base, trial.column
    here = base.values[: base.Y.size]
    samples = found.ladders[0] if found.ladders else (found.sample,)
    taken = [sample for sample in samples if sample is not None and not sample.one_sided]
    for sample in sorted(taken, key=lambda sample: abs(sample.step)):
        plus, minus = sample.plus[: here.size], sample.minus[: here.size]
        yield abs(float(sample.step)), (plus == here) & (minus == here)


def _claims_rounding(trial: Trial) -> NDArray[np.bool_]:
    """Marks the outputs of which the automatic derivative says that they move by rounding of a
    `USUAL_CONSTANT` where x moves by its scale, and not that they stand still.

    `1 - cos x` is zero about 1e-9, where its derivative is 1e-9, and would fail as that of a stair.
    """
    base, length = trial.columns.base, trial.column.tangent.length
    least = ONSET_UNITS * base.coarsest_eps * USUAL_CONSTANT / length

    def slight(comparison: Comparison) -> NDArray[np.bool_]:
        size = np.abs(comparison.automatic)
        return np.asarray((size > 0) & (size <= least))

    return _outputs_where(trial, slight)[: base.Y.size]


def _only_in(trial: Trial, outputs: NDArray[np.bool_]) -> bool:
    """Returns whether all that is in doubt belongs to these outputs."""
    base = trial.columns.base
    if base.hiding is not None:
        outputs = outputs | base.hiding[: outputs.size]
    for _, comparison, kind in trial.compared:
        in_doubt = comparison.fails | comparison.undecided
        if trial.doubt is Doubt.SATURATED:
            in_doubt = ~in_doubt
        if not np.any(in_doubt):
            continue
        if kind == "first":
            return False
        if np.any(in_doubt & ~trial.columns.within(kind, outputs)[: in_doubt.size]):
            return False
    return True


class LongerStep(Stage):
    """Takes two evaluations more, at a longer step, and extrapolates, where leaves share a tangent
    or a leaf is large.

    Truncation grows with the number of entries that move together, and without this stage most such
    columns would take a ladder. It settles what then agrees beyond doubt. What is still off by many
    tolerances is compared in parts, and so is what is off by less, where few of the leaves stand
    out: the ladders are taken for these alone then. A tangent of one small leaf goes without: of
    those that were tried it settled 5 in 181. Costs two evaluations. Standard: Richardson
    extrapolation.
    """

    name = "one extrapolation"
    cost = 2

    def helps(self, trial: Trial) -> bool:
        large = trial.columns.problem.X.size >= limits().large
        many = trial.shared or (large and trial.column.tangent.coordinate is None)
        doubted = many and Doubt.DISAGREES in trial.doubt
        return doubted and not (trial.zero or trial.off_by(GROSS_TOLERANCES))

    def apply(self, trial: Trial) -> Trial | Again:
        found = trial.along(Effort.LONGER_STEP)
        if found is trial.column:
            return trial
        after = replace(trial, column=found, compared=trial.comparisons(found))
        if after.agrees_clearly:
            return replace(after, doubt=Doubt.NONE, decided_by=self.name)
        if not trial.shared:
            return trial
        return _in_parts(after, certain=after.off_by(GROSS_AFTER_EXTRAPOLATION)) or trial


class LongEnoughStep(Stage):
    """Takes two evaluations at the step at which rounding hides as much as truncation adds, where
    entries that were taken out of a larger column agree within the rounding of f.

    It settles what agrees there as well, to a thousandth, or to some times the square of that step
    where that is more; a hundredth is the most. Without it such entries take a ladder each time,
    and the check of a saturated softmax costs three times as much. Costs two evaluations. That such
    a step is the best for a central difference is standard (Gill, Murray, Saunders and Wright, SIAM
    J. Sci. Stat. Comput. 4, 1983); what it settles is ours.
    """

    name = "a step that is long enough"
    cost = 2

    def helps(self, trial: Trial) -> bool:
        alone, given = trial.columns.base.alone, trial.column.from_reference
        doubted = trial.separate and trial.doubt is not Doubt.NONE
        return doubted and not (alone or given) and trial.agrees

    def apply(self, trial: Trial) -> Trial:
        found, tangent = trial.column, trial.column.tangent
        hidden = 0.0
        for _, c, _ in trial.compared:
            never = np.full_like(c.error, np.inf)  # of zeros, no error is a hundredth
            parts = np.divide(c.error, c.largest, out=never, where=c.largest > 0)
            hidden = max(hidden, float(np.max(parts, initial=0.0)))
        factor = max(2.0, float(np.cbrt(hidden / found.relative**2)))
        factor = 2.0 ** np.floor(np.log2(min(factor, LONGEST_STEP / found.relative)))
        least, squares = LONG_ENOUGH
        part = min(ERRORS[0], max(least, squares * (factor * found.relative) ** 2))
        longer = trial.columns.estimator.along(replace(tangent, length=factor * tangent.length))
        shown = trial.comparisons(longer)
        for _, c, _ in shown:
            if not np.all(c.difference <= c.error + part * c.largest):
                return trial
        return replace(trial, settled=True, shown=shown, decided_by=self.name)


@dataclass(frozen=True)
class Halves(Stage):
    """Compares parts of the leaves by themselves where a tangent of several leaves is in doubt.

    A tangent that leaves share says nothing of a single one. With another weight for each leaf, the
    deviation changes by the weight of the wrong one, if there is but one (the checksums of Huang
    and Abraham, IEEE Trans. Comput. C-33, 1984): two evaluations name the leaves that it may be.
    Where these are more than half, each half of the leaves is compared by itself, so that a wrong
    leaf is found among n in about `4 log2 n` evaluations, where a tangent for each leaf would take
    `2 n` for right derivatives as well. A difference of many tolerances is taken apart at once, and
    so is what no step can resolve, such as a saturated output: the ladders would be taken at each
    halving, where only those of single leaves say anything. A smaller difference gets the other
    stages first, since it may be no error of any leaf. Group testing is
    standard; its places in the list are ours.
    """

    beyond: float
    """It is tried where an entry differs by more than this many tolerances, or no step can resolve
    it; with 0 where an entry fails, is open, or agrees with a significant deviation."""
    name = "halves of the leaves"

    def helps(self, trial: Trial) -> bool:
        if not trial.shared or trial.doubt is Doubt.NONE:
            return False
        if trial.column.one_sided:
            return True
        if self.beyond:
            return trial.off_by(self.beyond) or _unresolved_by_any_step(trial)
        return trial.left or any(np.any(c.significant) for _, c, _ in trial.compared)

    def apply(self, trial: Trial) -> Trial | Again:
        return _in_parts(trial) or trial


def _unresolved_by_any_step(trial: Trial) -> bool:
    """Returns whether an entry is open whose rounding would drown it at a step as long as x."""
    relative = trial.column.relative
    return any(
        np.any(c.undecided & (c.error * relative > c.tolerance.resolution * c.largest))
        for _, c, _ in trial.compared
    )


def _in_parts(trial: Trial, *, certain: bool = True) -> Again | None:
    """Returns the parts of the leaves that are compared in place of all of them: those that may be
    wrong and the others, or both halves. Unless it is `certain` that all of them are not compared,
    the result is `None` where no few of the leaves stand out.
    """
    leaves = trial.column.tangent.leaves
    suspects = _suspected_leaves(trial) if len(leaves) >= FEWEST_WEIGHED else leaves
    if not 0 < 2 * len(suspects) <= len(leaves):
        return Again(leaves=halves(leaves)) if certain else None
    return Again(leaves=(suspects, [j for j in leaves if j not in suspects]))


def _suspected_leaves(trial: Trial) -> Sequence[int]:
    """Returns the leaves of which each, if it were the only wrong one, would explain how the
    deviation of reverse mode changes with the weights of the leaves.

    Where the deviation is too close to its error bar for that, the half of the leaves that has most
    of it is halved again, as long as it has far more of it than the other half.
    """
    found, columns, block = trial.column, trial.columns, trial.block
    tangent, X, along = found.tangent, columns.problem.X, columns.estimator.along
    rows = any(kind == "rows" and np.any(c.fails) for _, c, kind in trial.compared)
    if not rows or found.one_sided or found.from_reference:
        return tangent.leaves
    # Truncation is larger where all leaves move, and has other weights than the deviation.
    plain = found.estimate.method.scheme is Scheme.CENTRAL
    before = columns.reverse(along(tangent, Effort.LONGER_STEP, found) if plain else found, block)
    row = int(np.argmax(np.nan_to_num(before.difference)))

    def deviation(weighted: Tangent) -> tuple[float, float]:
        """Returns the deviation along a tangent, with its error bar."""
        after = columns.reverse(along(weighted, Effort.LONGER_STEP), block)
        return float(after.reference[row] - after.automatic[row]), float(after.error[row])

    whole, bar = float(before.reference[row] - before.automatic[row]), float(before.error[row])
    if abs(whole) > WEIGHED_BARS * bar:
        weights = 1 + np.arange(len(tangent.leaves)) / len(tangent.leaves)
        vector = tangent.vector.copy()
        for weight, j in zip(weights, tangent.leaves, strict=True):
            vector[X.slices[j]] *= weight
        gap, other_bar = deviation(replace(tangent, vector=vector, units=()))
        fits = np.abs(weights * whole - gap) <= SIGNIFICANT_BARS * (weights * bar + other_bar)
        return [j for j, fit in zip(tangent.leaves, fits, strict=True) if fit]
    positions = list(range(len(tangent.leaves)))
    while len(positions) > 1:
        one, two = positions[: len(positions) // 2], positions[len(positions) // 2 :]
        gap, _ = deviation(tangent.restricted(X, one))
        rest = whole - gap
        if max(abs(gap), abs(rest)) < FAR_LARGER * min(abs(gap), abs(rest)):
            break
        positions, whole = (one, gap) if abs(gap) > abs(rest) else (two, rest)
    return [tangent.leaves[k] for k in positions]


class ThreeSteps(Stage):
    """Settles a disagreement that exceeds many times what differences at three steps disagree by.

    Without it a plain error costs two ladders and the noise of f, ninety evaluations, where a check
    that passes takes two. It is only for entries that are off beyond doubt: all that fails must
    exceed `BEYOND_DOUBT` error bars, in which every step has a say, at steps that all move f, and
    nothing else may be open. Otherwise what was found says at most where to look for an entry that
    can be proved wrong, and the ladders decide where there is none. It is discarded where a far
    longer step sides with the automatic values: a norm that is rounded to float32 inside stands
    still over three steps alike. Whether the automatic side is merely rounded is
    asked afterwards as always. Costs six evaluations. Ours.
    """

    name = "three steps"
    cost = 6

    def helps(self, trial: Trial) -> bool:
        found, columns = trial.column, trial.columns
        if Doubt.DISAGREES not in trial.doubt or trial.shared:
            return False
        narrow = columns.tolerance.eps > COARSE_EPS
        if narrow or found.from_reference or found.one_sided:
            return False
        if trial.fails == 0 or not trial.off_by(PLAIN_TOLERANCES):
            return False
        return any(np.any(c.fails & ~_fast(c, found.relative)) for _, c, _ in trial.compared)

    def apply(self, trial: Trial) -> Trial:
        found = trial.along(Effort.THREE_STEPS)
        # f may not be defined at longer steps, and the column may have samples of a ladder already.
        if found is trial.column:
            return trial
        compared = trial.comparisons(found, final=True)
        fast = [_fast(comparison, found.relative) for _, comparison, _ in trial.compared]
        plain = [_beyond_doubt(c) & ~mask for (_, c, _), mask in zip(compared, fast, strict=True)]
        if not any(map(np.any, plain)) or _longer_step_disagrees(trial.columns, found, compared):
            return trial
        if _rounds_inside(trial.columns):
            return trial
        after = replace(trial, column=found, compared=compared, proved=True, decided_by=self.name)
        settled = all(
            np.array_equal(mask, one.comparison.fails)
            and not np.any(one.comparison.undecided | one.comparison.significant)
            for mask, one in zip(plain, compared, strict=True)
        )
        if settled:
            return after
        # Where values are rounded some steps agree by chance.
        rounded = rounded_dtype(trial.columns.problem, trial.columns.base, found)
        return trial if rounded is not None else replace(trial, suspected=after)


def _longer_step_disagrees(columns: Columns, found: Column, compared: list[ModeComparison]) -> bool:
    """Returns whether the slope over a far longer step is closer to an automatic value that fails
    than to the reference. It is asked until it is not, once for each x.
    """
    problem, base, step = columns.problem, columns.base, FAR_STEP * found.step
    room = step <= problem.longest_step(found.tangent.vector)
    if base.coarsest_eps > DOUBLE or not room or "far" in base.seen:
        return False
    take = partial(sample_at, problem, base, found.tangent, step)
    if problem.counts.ahead is not None:
        at_once(problem, base, take)
    taken = attempt(take)
    if taken is None:
        return False
    for one in compared:
        comparison = one.comparison
        if one.kind != "first":
            slope = columns.row_values(one.kind, taken[0].slope[: base.Y.size])
            slope = slope[: comparison.automatic.size]
            gap = np.abs(slope - comparison.automatic)
            closer = gap < np.abs(slope - comparison.reference)
            if np.any(closer & comparison.fails):
                return True
    base.seen["far"] = None
    return False


def _rounds_inside(columns: Columns) -> bool:
    """Returns whether f rounds to a narrower dtype inside, as the engine sees and its noise shows:
    three steps may all lie between two of these roundings.
    """
    noise, base = noise_inside(columns.problem, columns.base), columns.base
    return bool(np.any(noise > base.coarsest_eps * base.magnitude(base.values)))


def _fast(comparison: Comparison, relative: float) -> NDArray[np.bool_]:
    """Marks the entries whose automatic value would move f by a good part of itself over a step of
    that part of x, so that the step may be too long.
    """
    moves = np.abs(comparison.automatic) * relative > FAST_PART * comparison.scales.secant
    return np.asarray(moves & np.isfinite(comparison.automatic))


def _beyond_doubt(comparison: Comparison) -> NDArray[np.bool_]:
    """Marks what fails beyond doubt."""
    far = comparison.difference > BEYOND_DOUBT * comparison.error
    sharp = comparison.error <= comparison.tolerance.resolution * comparison.largest
    return np.asarray(comparison.fails & far & sharp & comparison.moved)


class Ladder(Stage):
    """Takes a ladder of steps, whose error bar is measured and not assumed.

    Without it the truncation error of two evaluations is called a wrong derivative, and rounding
    passes for one. Costs up to sixteen evaluations. Standard: Richardson extrapolation with the
    error bar of Ridders (Adv. Eng. Softw. 4, 1982).
    """

    name = "Richardson ladder"
    cost = 16
    needed = True

    def helps(self, trial: Trial) -> bool:
        return trial.doubt is not Doubt.NONE and not trial.proved

    def apply(self, trial: Trial) -> Trial:
        after = trial.with_finer(trial.along(Effort.LADDER), self.name)
        # What was taken out of a larger column, and agreed before, may be nothing but rounding.
        if not (trial.separate and trial.agrees) or trial.columns.base.alone:
            return after
        if not after.agrees:
            there = attempt(partial(_is_that_of_f_farther_off, after))
            return after if there is False else replace(trial, settled=True)
        return replace(after, settled=True)


def _is_that_of_f_farther_off(trial: Trial) -> bool:
    """Returns whether the automatic derivative is another one over the longest step than at x, and
    its mean over that step is how far f moves over it.

    Entries beside one that is far larger show over steps as long as themselves. These cross kinks
    that are closer to x than any step that f could show, and the right derivative of a `relu` would
    fail. The fundamental theorem of calculus holds across kinks, and a rule without a term, or with
    the wrong sign, does not obey it. The mean is that of the midpoint rule. Costs two evaluations
    and `MEAN_POINTS` of the derivative. Ours.
    """
    columns, found = trial.columns, trial.column
    problem, base, v = columns.problem, columns.base, found.vector
    lengths = np.where(problem.origin != 0, np.abs(problem.origin), problem.length_scales)
    h = LONGEST_STEP / float(np.max(np.abs(v) / lengths))
    if found.estimate.steps is not None:  # a kink beyond these is in none of them
        doubted = _doubted_outputs(trial)
        finest = float(np.max(found.estimate.steps[doubted], initial=0.0))
        h = min(h, LADDER_RATIO**2 * finest or h)

    def at(part: float) -> Vector:
        return representable_within_bounds(problem, problem.origin + part * h * v)

    ahead, behind = (evaluate(problem, base, at(side), Purpose.ROUNDING) for side in (1.0, -1.0))
    count = base.Y.size
    slope = (ahead - behind)[:count] / (2 * h)
    parts = (2 * np.arange(MEAN_POINTS) + 1) / MEAN_POINTS - 1
    for _, comparison, kind in trial.compared:
        rows = worst_entries(comparison, comparison.fails)
        if not rows or kind == "first":
            continue
        automatic = RowsAtPoints(trial, kind, rows)
        taken = np.array([automatic.at(at(t)) for t in parts])
        mean, here = np.mean(taken, axis=0), comparison.automatic[rows]
        moved = columns.row_values(kind, slope)[rows]
        same = np.abs(mean - here) <= BENT_PART * comparison.difference[rows]
        # A kink between two points is worth half of what the derivative changes by there.
        kinks = np.sum(np.abs(np.diff(taken, axis=0)), axis=0) / MEAN_POINTS
        most = np.fmin(MEAN_PART * np.mean(np.abs(taken), axis=0), kinks)
        rounding = SPACINGS_OF_A_VALUE * base.coarsest_eps * base.magnitude(base.values) / h
        apart = np.abs(mean - moved) > most + columns.row_errors(kind, rounding[:count])[rows]
        if np.any(same | apart):
            return False
    return True


class RoundedValues(Stage):
    """Recognises code that rounds its values to a narrower dtype, which is judged by that dtype.

    Without it such code fails: its differences are right to seven digits where sixteen are
    expected. Costs up to sixteen evaluations where values look rounded, since those of stairs do,
    too. Ours.
    """

    name = "values of a narrower dtype"

    def helps(self, trial: Trial) -> bool:
        return trial.may_narrow and (trial.proved or (trial.laddered and trial.left))

    def apply(self, trial: Trial) -> Trial | Again:
        dtype = rounded_dtype(trial.columns.problem, trial.columns.base, trial.column)
        return trial if dtype is None else Again(dtype=dtype)


class ShorterSteps(Stage):
    """Goes on with the ladder to shorter steps, where it has not converged at its shortest.

    Without it right derivatives of fast functions (`sin(1e6 x)`) and of sorting thousands of
    numbers stay open, and so do wrong ones: every step crosses several periods, or reorderings.
    What was found is discarded where it decides nothing, or where f is smooth only between two
    jumps. Costs ten evaluations, and up to thirty before it decides. Ours.
    """

    name = "shorter steps"
    cost = 40

    def helps(self, trial: Trial) -> bool:
        found, base = trial.column, trial.columns.base
        if not (trial.laddered and found.ladders and trial.left):
            return False
        # What was taken out of a larger column may be nothing but rounding, and stays open then.
        if found.one_sided or base.coarsest_eps > DOUBLE or trial.separate:
            return False
        doubted = _doubted_outputs(trial)
        unit = TRUNCATED_UNITS * base.coarsest_eps * base.magnitude(base.values)
        bar = found.estimate.error * abs(found.ladders[0][-1].step)
        return bool(np.any(doubted & np.isfinite(unit) & ~(bar <= unit)))

    def apply(self, trial: Trial) -> Trial | Again:
        finest = trial.along(Effort.SHORTER_STEPS)
        if finest is trial.column:
            return trial
        if _stops(trial, finest):
            # Over steps that none of the first ladder was short enough for.
            # Rounding on the way is told from stairs by what an engine knows of it, or by length.
            known = trial.columns.base.rounding_of_all is not None
            stands = Standstill(after_ladder=True, least=0.0 if known else NARROWEST_STAIR)
            after = stands.apply(replace(trial, column=finest))
            return after if isinstance(after, Again) or after.flat is not None else trial
        again = trial.comparisons(finest, final=True)
        if not all(map(_decides_more, again, trial.compared)):
            return trial
        if _stands_on_steps(trial, again) or _jumps_beside(trial, finest):
            return trial
        return trial.with_finer(finest, self.name)


def _stops(trial: Trial, finest: Column) -> bool:
    """Returns whether an output that is in doubt stands still over one of the shorter steps, as a
    value does that was rounded on the way, or has a kink. Without it the noise of the inverse of an
    ill-conditioned matrix hides an error of 1e-6.
    """
    before, after, error = trial.column.ladders[0], finest.ladders[0], trial.column.estimate.error
    moved = _doubted_outputs(trial) & trial.column.estimate.moved
    # Others that the same projection adds up have a narrow bar, and need no shorter steps.
    moved &= ~(error < STILL_PART * largest(error[moved]))
    # An even function of the step has the slope zero over each.
    moved &= np.any([sample.slope != 0 for sample in before], axis=0)
    kink = finest.estimate.half_gap
    if kink is not None and np.any(kink[moved] != 0):
        return True
    return any(bool(np.any(sample.slope[moved] == 0)) for sample in after[len(before) :])


def _jumps_beside(trial: Trial, found: Column) -> bool:
    """Returns whether an output in doubt jumps between x and a step close by, longer than those of
    the estimate that was `found`, at which it has another slope.

    Without it `(x + 1e10) - 1e10 - x` has the slope of the line between two roundings, and its
    right derivative of zero fails. Bisection finds what leaves that line: the part of a smooth
    function shrinks with the interval, and a jump does not. A jump farther off says nothing against
    the slopes at shorter steps.
    """
    problem, base, doubted = trial.columns.problem, trial.columns.base, _doubted_outputs(trial)
    slope, vector, taken = found.estimate.value, found.tangent.vector, found.estimate.steps
    if taken is None:
        return False

    def off(values: Vector, h: float) -> Vector:
        return np.nan_to_num(np.where(doubted, values - base.values - h * slope, 0.0))

    for sample in reversed(found.ladders[0]):
        h = float(sample.step)
        if abs(h) > JUMP_REACH * abs(found.step):
            return False
        beyond = np.where(abs(h) > JUMP_BEYOND * np.abs(taken), off(sample.plus, h), 0.0)
        k = int(np.argmax(np.abs(beyond)))
        most = abs(float(beyond[k]))
        if most > abs(h * float(slope[k])) / 2:
            break
    else:
        return False
    low, high, at_low, at_high = 0.0, h, 0.0, float(beyond[k])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        values = attempt(
            partial(evaluate, problem, base, problem.origin + middle * vector, Purpose.JUMP)
        )
        if values is None:
            return False
        here = float(off(values, middle)[k])
        if abs(here - at_low) >= abs(at_high - here):
            high, at_high = middle, here
        else:
            low, at_low = middle, here
        if abs(at_high - at_low) < most / SHRUNK_JUMP:
            return False
    return True


def _stands_on_steps(trial: Trial, again: list[ModeComparison]) -> bool:
    """Returns whether three longer steps in a row agree on another slope than the shorter ones.

    That of `tanh(x.astype(float32)) * x` between two roundings of x lacks a term: a rule without it
    would pass, and the right one fail. The longer steps show the slope of all of it. Steps that
    cross several periods, or reorderings, do not agree.

    A kink close to x is something else. Steps beyond it agree on the mean of two slopes, of which
    the shorter ones show one, and so half of the gap between their slopes to both sides is what
    they are off by, at each of them. A rounded value makes no such gap, and curvature makes one
    that grows with the step.
    """
    base, samples = trial.columns.base, trial.column.ladders[0]
    count = base.Y.size
    for before, after in zip(trial.compared, again, strict=True):
        if before.kind == "first":
            continue
        each = [trial.columns.row_values(before.kind, sample.slope[:count]) for sample in samples]
        bends = [sample.bend(base.values)[:count] for sample in samples]
        gaps = [trial.columns.row_values(before.kind, bend) for bend in bends]
        new, old = after.comparison.reference, np.array(each)[:, : after.comparison.reference.size]
        half_gap = np.abs(np.array(gaps)[:, : new.size])
        doubted = before.comparison.fails | before.comparison.undecided
        for k in range(len(old) - 2):
            three, off = old[k : k + 3], np.abs(old[k : k + 3] - new)
            spread = np.ptp(three, axis=0)
            agree = spread < np.max(np.abs(three), axis=0) / AGREEING_STEPS
            apart = spread < np.min(off, axis=0) / NARROWER_BAR
            kink = np.all(np.abs(half_gap[k : k + 3] - off) <= KINKED_PART * off, axis=0)
            if np.any(doubted & agree & apart & ~kink):
                return True
    return False


def _decides_more(after: ModeComparison, before: ModeComparison) -> bool:
    """Returns whether what is left in doubt has a narrower error bar than before."""
    left = after.comparison.fails | after.comparison.undecided
    wider = after.comparison.error > before.comparison.error / NARROWER_BAR
    return not np.any(left & (wider | after.comparison.undecided))


class SecondLadder(Stage):
    """Takes a second ladder, whose steps lie between those of the first. Why does a FAIL need one?

    The error bar of a ladder is the disagreement of neighbouring extrapolations, so it is far too
    narrow wherever two of them agree by chance. Each output takes the narrowest of its bars, which
    looks for just such a chance. Among thousands of outputs some have one, and there a right
    derivative would fail by what is noise of the difference. The second ladder samples f at other
    points, where the noise is another one. Two windows that agree by chance in one ladder do not
    agree by chance with those of the other. So the wider bar of the two counts, and it reaches the
    other ladder's value where the two disagree. A wrong derivative lies outside of both ladders and
    still fails. A PASS needs no second ladder: an error bar that is too narrow by chance makes
    agreement harder, not easier. Costs up to sixteen evaluations. This is our form of the rule that
    a FAIL must survive confirmation on fresh samples.
    """

    name = "second ladder"
    cost = 16
    needed = True

    def helps(self, trial: Trial) -> bool:
        return trial.laddered and trial.fails > 0

    def apply(self, trial: Trial) -> Trial:
        return trial.with_finer(trial.along(Effort.SECOND_LADDER), self.name)


class OddPowers(Stage):
    """Extrapolates both ladders once more, for a second derivative that jumps at x.

    Without it the square of a relu at zero stays open in full mode: its central difference is off
    by the step itself, which the usual extrapolation does not remove. What it finds counts only
    where it settles the column. Takes no evaluation. Standard: Richardson's extrapolation with the
    powers of the step that are there; when it is tried is ours.
    """

    name = "odd powers of the step"

    def helps(self, trial: Trial) -> bool:
        return trial.laddered and trial.open > 0

    def apply(self, trial: Trial) -> Trial:
        doubted = _doubted_outputs(trial)
        after = trial.with_finer(trial.along(Effort.ODD_POWERS, doubted=doubted), self.name)
        return trial if after.left else replace(after, settled=True)


class MeasuredNoise(Stage):
    """Measures the noise of f about the step in use, and widens the error bars by it.

    Without it right derivatives of long sums, and of solvers that stop at a tolerance, fail:
    rounding inside of f exceeds the rounding of its values. It is not measured where all that is
    left lies between the slopes to both sides of a kink: points that lie across kinks scatter as
    noise does, and for a max pool with ties the longest steps were believed because of that. Points
    across which a sort changes its order scatter alike. So where the estimate that knows this noise
    and the one before exclude each other, neither is believed alone (`_between`). Costs up to forty
    evaluations. Standard: the residuals of a polynomial, as in ECnoise (Moré and Wild, SIAM J. Sci.
    Comput. 33, 2011); what is done with them is ours.
    """

    name = "measured noise"
    cost = 40

    def helps(self, trial: Trial) -> bool:
        return trial.laddered and trial.left and not trial.at_kink

    def apply(self, trial: Trial) -> Trial:
        doubted = _doubted_outputs(trial)
        finest = trial.along(Effort.MEASURED_NOISE, doubted=doubted)
        after = replace(trial, noisy=True).with_finer(finest, self.name)
        both = zip(trial.compared, after.compared, strict=True)
        return after.with_compared([_between(old, new) for old, new in both], self.name)


def _between(old: ModeComparison, new: ModeComparison) -> ModeComparison:
    """Returns the new comparison with those entries open of which the two estimates exclude each
    other, and whose automatic value is no farther from one of them than that.

    Where the old one had no bar, since its ladder did not converge, its value has to be close to
    the automatic one: steps across several periods agree on anything once noise is known. And to
    know the noise is no reason to fail what the old one allows by steps that are not much sharper.
    """
    before, after = old.comparison, new.comparison
    apart = np.abs(after.reference - before.reference)
    off = np.fmin(before.difference - before.allowed, after.difference - after.allowed)
    unknown = np.asarray((apart > before.error + after.error) & (off <= apart))
    close = np.isinf(before.error) & (before.difference <= apart / AGREEING_STEPS)
    unknown |= close & (apart > after.error)
    unknown &= before.reference != 0  # of what stands still over short steps alone
    kept = after.fails & before.agrees & (before.error <= SHARPER_BARS * after.error)
    error = np.where(unknown, np.inf, np.where(kept, before.error, after.error))
    reference = np.where(kept, before.reference, after.reference)
    return new.but(reference=reference, error=error)


class ClaimedSteps(Stage):
    """Takes steps over which f moves by a part of itself if the automatic value is right, where all
    that were taken are longer, and leaves open what f is closer to over one of these.

    Without it the right derivative of a table that is read at 1.7e9, where it has a cell of 60,
    fails: over every step of a ladder f is out of the table, and the ladder has converged. So does
    that of the logarithm of a determinant with a condition of 1e13. What is wrong has no such
    steps, since f moves over none as it claims. A slope over so short a step says nothing of what
    is off by less than its own rounding. Costs up to eight evaluations. Ours.
    """

    name = "steps as short as is claimed"
    cost = 2 * len(CLAIMED_STEPS)

    def helps(self, trial: Trial) -> bool:
        double = trial.columns.base.coarsest_eps <= DOUBLE
        laddered = trial.laddered and trial.column.ladders
        return bool(double and laddered and trial.fails) and self._longest(trial) > 0

    @staticmethod
    def _longest(trial: Trial) -> float:
        """Returns the longest step over which no claim that fails would move f by a good part of
        itself; 0 where one that was taken is as short.
        """
        shortest = min(abs(sample.step) for ladder in trial.column.ladders for sample in ladder)
        longest = []
        for _, comparison, _ in trial.compared:
            fast = comparison.fails & _fast(comparison, shortest)
            if np.any(fast):
                secant = np.broadcast_to(comparison.scales.secant, fast.shape)[fast]
                longest.append(float(np.min(secant / np.abs(comparison.automatic[fast]))))
        return FAST_PART * min(longest, default=0.0)

    def apply(self, trial: Trial) -> Trial:
        columns, longest = trial.columns, self._longest(trial)
        tangent, base = trial.column.tangent, trial.columns.base
        size, noise = base.magnitude(base.values), trial.column.noise
        rounding = base.coarsest_eps * size
        if noise is not None:  # what is as large as f itself is a fast function
            rounding = np.fmax(
                rounding, np.where(noise < columns.tolerance.relative * size, noise, 0)
            )
        for part in CLAIMED_STEPS:
            taken = attempt(partial(sample_at, columns.problem, base, tangent, part * longest))
            if taken is None:
                return trial
            slope = taken[0].slope[: base.Y.size]
            for _, comparison, kind in trial.compared:
                if kind == "first":
                    continue
                there = columns.row_values(kind, slope)[: comparison.automatic.size]
                closer = abs(there - comparison.automatic) < abs(there - comparison.reference)
                bar = columns.row_errors(kind, rounding[: base.Y.size] / (part * longest))
                closer &= comparison.difference > bar[: comparison.automatic.size]
                if np.any(closer & comparison.fails):
                    return trial.with_failures_open(self.name)
        return trial


class DtypeInside(Stage):
    """Recognises a narrower dtype inside, of whose values none has fewer digits.

    Without it a function that rounds its input to float32 and goes on in float64 fails, or stays
    open. Costs up to twenty evaluations. Ours.
    """

    name = "rounding to a narrower dtype inside"
    cost = 20

    def helps(self, trial: Trial) -> bool:
        return trial.may_narrow and trial.noisy

    def apply(self, trial: Trial) -> Trial | Again:
        dtype = dtype_inside(trial.columns.problem, trial.columns.base)
        return trial if dtype is None else Again(dtype=dtype)


class Jumps(Stage):
    """Tells a jump from a slope. At a jump no value is the derivative, however precise the
    differences are, and without this stage any value would fail there. Between two jumps close by,
    which are roundings inside of f, its slope is not that of the formula. Costs six evaluations, or
    thirty where longer steps show another slope. Ours.
    """

    name = "jumps"
    cost = 30
    by_entry = True

    def helps(self, trial: Trial) -> bool:
        return trial.doubt is not Doubt.NONE and trial.left

    def apply(self, trial: Trial) -> Trial:
        after = replace(trial, column=trial.along(Effort.JUMPS))
        if trial.fails and trial.zero and after.column is trial.column:
            # At the edge of fine stairs longer steps show one slope, and zero may be meant.
            stairs = _doubted_outputs(trial)
            after = replace(trial, column=trial.along(Effort.JUMPS, doubted=stairs))
        found, double = after.column, trial.columns.base.coarsest_eps <= DOUBLE
        # In narrower dtypes every value is rounded visibly, and ladders allow for it.
        if not (trial.fails and double and found.ladders) or found.one_sided:
            return after
        return after.with_failures_open(self.name) if _jumps_beside(trial, found) else after


class Defects(Stage):
    """Looks at whether the slopes along this tangent and others add up, as those of a derivative
    do. Where they do not, f has a kink that one tangent alone does not show.

    Without this stage the median of three equal numbers, and what is sorted among them, has slopes
    of zero, and each right value fails there. What they fail to add up by at one step is looked at
    closer where it would excuse a value. Two of the others go along what reverse mode claims that f
    moves along, and against it, and slopes beside x are looked at where all terms of that claim
    meet. Costs fourteen evaluations for a projection, and once for all entries of a leaf, and eight
    for an entry where that shows something; eight more where slopes do not add up, and three times
    as many where it looks closer. That slopes add up is the definition of a derivative (Gateaux);
    the thresholds are ours.
    """

    name = "slopes that do not add up"
    cost = 88
    by_entry = True

    def helps(self, trial: Trial) -> bool:
        return trial.doubt is not Doubt.NONE and trial.fails > 0 and not trial.column.from_reference

    def apply(self, trial: Trial) -> Trial:
        columns, found = trial.columns, trial.column
        doubted = _doubted_outputs(trial)
        known = columns.additive.get(found.tangent.leaves)
        unit = found.tangent.coordinate is not None
        if unit and known is not None and not np.any(doubted & ~known):
            return trial
        claimed = _claimed_gradient(trial)
        if unit and self._leaf_adds_up(trial, doubted, claimed):
            return trial
        kinked = trial.along(Effort.DEFECTS, doubted=doubted, towards=claimed)
        if kinked is found:
            return trial
        if any(
            np.any(comparison.fails & ~decide(comparison, columns.slopes(kinked, kind)).fails)
            for _, comparison, kind in trial.compared
        ):
            lasting = trial.along(Effort.LASTING_DEFECTS, doubted=doubted, towards=claimed)
            return replace(trial, column=lasting)
        if not unit:
            columns.additive[found.tangent.leaves] = doubted
        return trial

    def _leaf_adds_up(
        self, trial: Trial, doubted: NDArray[np.bool_], claimed: Vector | None
    ) -> bool:
        """Returns whether slopes add up where all of the leaf of a unit tangent moves. Then they do
        so along each of its entries, and the next one that fails needs no look of its own.
        """
        columns, found, X = trial.columns, trial.column, trial.columns.problem.X
        (leaf,) = leaves = found.tangent.leaves
        part, vector = X.slices[leaf], np.zeros(X.size)
        size = part.stop - part.start
        if size == 1 or columns.of_one_entry:
            return False
        drawn = generator(0, Stream.BESIDE_TANGENTS, BESIDE_TANGENTS)
        vector[part] = random_entries(drawn, size) * columns.problem.length_scales[part]
        moved = replace(found, tangent=Tangent(leaves, vector, 1.0), vector=vector)
        if claimed is not None and trial.reverse is not None:
            # Other outputs are looked at as well, and most of them depend on other entries.
            base = columns.base.of or columns.base
            others = trial.reverse.row(base, np.ones(base.Y.size)) + 0.0
            claimed = np.where(claimed == 0, others, claimed)
        every = np.ones_like(doubted)
        kinked = trial.along(Effort.DEFECTS, moved, every, claimed)
        defect = kinked.estimate.defect
        if kinked is moved or defect is None:
            return False
        columns.additive[leaves] = adding = defect == 0
        return bool(adding[doubted].all())


class KinksBetween(Stage):
    """Widens the error bars of what fails by what kinks between the steps may make of a difference.

    In a narrow dtype steps are long, and a network of relus or a maximum over neighbours has many
    kinks within each: all windows of a ladder are off, by about as much, and agree with each other.
    Without this stage the right derivative of a kernel that takes float32 alone fails where it has
    such in it, by up to four error bars. What the slopes to both sides of x differ by, beyond what
    a smooth function has, tells by how much. In double precision few functions have kinks between
    the steps, and other stages know these, as they do a kink at x. Takes no evaluation. Ours.
    """

    name = "kinks between the steps"

    def helps(self, trial: Trial) -> bool:
        narrow = trial.columns.base.coarsest_eps > DOUBLE
        if not narrow or trial.column.from_reference or trial.at_kink:
            return False
        return trial.laddered and trial.fails > 0

    def apply(self, trial: Trial) -> Trial:
        widened = []
        for one in trial.compared:
            comparison, bends = one.comparison, trial.columns.bends(trial.column, one.kind)
            if bends is not None:
                room = KINKED_BENDS * bends[: comparison.error.size]
                error = np.where(comparison.fails, comparison.error + room, comparison.error)
                one = one.but(error=error)
            widened.append(one)
        return trial.with_compared(widened, self.name)


def _claimed_gradient(trial: Trial) -> Vector | None:
    """Returns what reverse mode makes of the cotangents of the rows that fail, at most
    `TRACED_PROJECTIONS` of them, or `None` where it is not checked or makes nothing of them.
    """
    columns, reverse = trial.columns, trial.reverse
    if reverse is None:
        return None
    base, w = columns.base.of or columns.base, np.zeros(0)
    for _, comparison, kind in trial.compared:
        if kind == "rows":
            rows = np.flatnonzero(comparison.fails)[:TRACED_PROJECTIONS]
            w = np.sum([columns.cotangent(int(k)) for k in rows], axis=0)
    claimed = reverse.row(base, w) + 0.0 if np.any(w) else w  # no zero is negative
    return claimed if np.any(claimed) else None


class AutomaticRounding(Stage):
    """Allows the automatic side its own rounding: four times its change where x moves by a unit of
    rounding, first the leaf of the column and then all others.

    A derivative that is right in formula and ill-conditioned changes by as much, and would fail
    without this. So does what changes for a part of the probe alone, where terms that cancel do not
    depend on x. Where f is loud, and that is not enough, its scatter farther off counts as well
    (`scatter`). Among many failing rows only some are tried, and the one that changes least stands
    for the rest, which are tried in turn where all of these were rounding. A value that is far off
    at x, and right at all points tried around it, is wrong at x alone and is allowed nothing. Costs
    three evaluations of the derivative for each row that is tried, five where there are other
    leaves, or up to fifteen. Ours, in the spirit of stochastic arithmetic.
    """

    name = "rounding of the derivative"
    by_entry = True

    def helps(self, trial: Trial) -> bool:
        return trial.doubt is not Doubt.NONE and trial.fails > 0

    def apply(self, trial: Trial) -> Trial:
        allowed = [_allow_in_turn(trial, one) for one in trial.compared]
        return trial.with_compared(allowed, self.name)


class ReferenceScatter(Stage):
    """Allows what still fails beside a given reference the scatter of its deviation over points
    nearby, times four.

    Rounding is another one at each of these points, and what a wrong formula is off by is smooth.
    Without this stage a right and ill-conditioned derivative fails beside an exact reference. The
    points are those of `scatter`; x takes no part, so that an error at x alone fails. A tail that
    is computed from rounded values, as `s (1 - s)` is, stands still between their roundings. What
    is no larger than these, and all in dtypes of sixteen bits, is allowed twice the scatter of its
    relative deviation farther off as well. Costs evaluations of the derivative and of the reference
    at fourteen points, or at fewer that are enough, and at four more. Ours. Of errors of 1e-8 in
    481 operators of PyTorch 450 were found beside exact references while the second rule stood for
    all, and 466 are.
    """

    name = "scatter beside the reference"
    by_entry = True

    def helps(self, trial: Trial) -> bool:
        doubted = trial.doubt is not Doubt.NONE
        return doubted and trial.column.from_reference and trial.fails > 0

    def apply(self, trial: Trial) -> Trial:
        allowed = [
            _allow_reference_scatter(trial, one)
            if one.kind != "first" and np.any(one.comparison.fails)
            else one
            for one in trial.compared
        ]
        return trial.with_compared(allowed, self.name)


class ReplayedRounding(Stage):
    """Allows what fails beside an exact reference what rounding of the program can do to it, unless
    the automatic derivative has more digits than that.

    A saturated softmax has derivatives of 1e-15 where an engine finds 0 by `p (1 - p)`, and
    `logcumsumexp` of numbers as large as 1e4 loses four digits. Without this stage both fail. A bar
    that is wide beside the derivative leaves it open. The bar is a worst case, and for eigenvalues
    thousands of times too wide. What follows the reference at points nearby, and is off by the same
    at all of them, shows that it was not rounded so: without that an error of 1e-8 passes in `eig`,
    and of 1e-6 in `1e10 + sin x`. What the bar leaves open passes if its scatter beside x is as
    much as it is off by: without that the right rule of `erf` at 30 stays open. Costs no evaluation
    where nothing is off by more than rounding of the derivative, else those of the derivative and
    of the reference at one to eight points, and at up to fourteen for what was open. Ours.
    """

    name = "rounding of the program"

    def helps(self, trial: Trial) -> bool:
        if not (trial.columns.tolerance.exact and trial.column.from_reference):
            return False
        doubted = trial.doubt is not Doubt.NONE and trial.fails > 0
        return doubted or any(np.any(one.comparison.by_values) for one in trial.compared)

    def apply(self, trial: Trial) -> Trial:
        columns = trial.columns
        estimator = columns.estimator.rounded(columns.tolerance.coarsest)
        if estimator is None:
            return trial
        rounded = estimator.along(trial.column.tangent)
        wide = trial.comparisons(rounded, final=True)
        sharper, excused = [], []
        for one, other in zip(trial.compared, wide, strict=True):
            comparison = one.comparison
            within = comparison.fails & ~other.comparison.fails
            follows = _follows(trial, one, comparison.by_values | within)
            follows &= ~_off_in_few_digits(trial, one, follows)
            sharp = one.without_values(follows)
            newly = follows & sharp.comparison.fails & ~comparison.fails
            sharper.append(_allow_scatter(trial, sharp, newly))
            excused.append((comparison.by_values | within) & ~follows)
        trial, own = trial.with_compared(sharper, self.name), rounded.estimate.own_error
        if own is not None:
            of_derivative = replace(rounded, estimate=rounded.estimate.but(error=own))
            alone = trial.comparisons(of_derivative, final=True)
            trial = self._allowed(trial, alone, excused)
        failing = [
            mask & one.comparison.fails for mask, one in zip(excused, trial.compared, strict=True)
        ]
        trial = self._allowed(trial, wide, failing)
        each = zip(sharper, trial.compared, excused, strict=True)
        settled = [_settled(trial, sharp, one, mask) for sharp, one, mask in each]
        return trial.with_compared(settled, self.name)

    def _allowed(
        self, trial: Trial, wide: list[ModeComparison], which: Sequence[NDArray[np.bool_]]
    ) -> Trial:
        """Returns the trial with the wider error bars of other comparisons for some entries."""
        allowed = []
        for one, other, mask in zip(trial.compared, wide, which, strict=True):
            error, bar = one.comparison.error, other.comparison.error
            allowed.append(one.but(error=np.where(mask, np.fmax(error, bar), error)))
        return trial.with_compared(allowed, self.name)


class SteadyValues(Stage):
    """Leaves open a value below the rounding of f that is steady where x moves by rounding.

    Such a value is a derivative, and not its own rounding, and f cannot show whether it is right:
    without this both the right and the doubled derivative of `tanh` at 30 would pass. What is below
    the rounding of what other inputs move is a note, as it is beside larger entries of one input: a
    saturated softmax in attention has derivatives of 1e-75. Costs two evaluations of the derivative
    for each entry that is tried, or eight. Ours.
    """

    name = "values below the rounding of f"

    def helps(self, trial: Trial) -> bool:
        return trial.doubt is Doubt.SATURATED

    def apply(self, trial: Trial) -> Trial:
        opened = []
        for one in trial.compared:
            comparison = one.comparison
            below = comparison.saturated & (comparison.automatic != 0) & comparison.agrees
            below &= ~comparison.undecided
            # The rounding of a narrow dtype is large, and derivatives below it matter.
            if comparison.tolerance.double and np.any(below):
                least = comparison.tolerance.eps * _beside(trial, one)
                unseen = below & (np.abs(comparison.automatic) <= least)
                one = one.but(unseen=unseen)
                below &= ~unseen
            opened.append(one.opened(_steady(trial, one, below)))
        return trial.with_compared(opened, self.name)


class Residues(Stage):
    """Accepts what rounding leaves of terms that cancel, beside differences that show zero.

    The gradient of a bias before a softmax or a normalisation is zero, and an engine gives some
    units of rounding of the terms that it adds up, which f does not show. Without this stage the
    error bar is too wide for so small a number, and right derivatives stay open. A number that is
    steady where x and the probe move is a derivative, and stays open. Costs at most eight
    evaluations of the derivative, of which one or two are usual. Ours.
    """

    name = "rounding of a derivative of zero"
    cost = 8

    def helps(self, trial: Trial) -> bool:
        if trial.shared or trial.column.from_reference:
            return False
        return trial.doubt is not Doubt.NONE and trial.open > 0 and not trial.fails

    def apply(self, trial: Trial) -> Trial:
        accepted = []
        for one in trial.compared:
            comparison = one.comparison
            candidates = comparison.undecided & comparison.may_be_residue(_beside(trial, one))
            accepted.append(_without_residue(trial, one, candidates))
        return trial.with_compared(accepted, self.name)


class Tail(Stage):
    """Leaves open a zero where f has a tail: it stands still about x, and moves gradually farther
    off.

    Without this a zero derivative of `sigmoid` at 37 would pass, where the right one is 1e-16. A
    zero that the rule of a saturated softmax arrives at through numbers of 1e-75, beside inputs
    that f shows, passes. Costs up to thirty evaluations, and six of the derivative. Ours.
    """

    name = "tail of f"
    cost = 32

    def helps(self, trial: Trial) -> bool:
        # Across a constraint set the coordinates of its chart move nothing.
        inside = not trial.columns.problem.constraints
        return trial.doubt is Doubt.SATURATED and inside and trial.zero and not trial.fails

    def apply(self, trial: Trial) -> Trial:
        columns = trial.columns
        trial, seen = trial.with_onset()
        opened = []
        for one in trial.compared:
            own = columns.touching(one.kind, seen.tail)
            entries = own[: one.comparison.agrees.size] & one.comparison.agrees
            opened.append(one.opened(entries & ~_underflows(trial, one, entries)))
        return trial.with_compared(opened, self.name)


class LongLadder(Stage):
    """Leaves open the zeros of a column of zeros where f moves along it, and a ladder of long steps
    does not show that the derivative is zero.

    At a stationary point the long ladder shows the zero to the rounding of f over the scale of x,
    or to what is allowed beside a derivative as large as f moves to a side, as cosine similarity
    does at parallel vectors; in a tail it shows another slope, or f moves to one side of x alone.
    Motion that is no more than the scatter of f does not count. Costs up to thirty evaluations.
    Ours.
    """

    name = "ladder of long steps"
    cost = 32

    def helps(self, trial: Trial) -> bool:
        columns = trial.columns
        looked_at = trial.doubt is not Doubt.NONE and trial.few_saturated and trial.zero
        double = columns.base.noise == 0 and columns.base.coarsest_eps <= DOUBLE
        return (
            looked_at
            and not trial.fails
            and all(np.any(c.moved) for _, c, _ in trial.compared)
            and not columns.problem.constraints
            and double
            and not trial.column.one_sided
        )

    def apply(self, trial: Trial) -> Trial:
        far = trial.along(Effort.LONG_STEPS)
        if far is trial.column or not moves_beyond_noise(trial.columns.base, far):
            return trial
        opened, columns = [], trial.columns
        tail = lopsided(columns.base, far)
        others = trial.comparisons(far, final=True)
        for one, (_, other, _) in zip(trial.compared, others, strict=True):
            comparison = one.comparison
            error = np.fmin(comparison.error, other.error + np.abs(other.reference))
            shown = LADDER_ZERO_UNITS * DOUBLE * comparison.scales.secant
            sides = _steepest_side(columns, far, one)
            wide = error > np.fmax(shown, comparison.tolerance.relative * sides)
            wide |= columns.touching(one.kind, tail)[: wide.size]
            opened.append(one.opened(wide & comparison.agrees & comparison.moved))
        return trial.with_compared(opened, self.name)


def _steepest_side(columns: Columns, far: Column, one: ModeComparison) -> Vector:
    """Returns how far f moves to a side of x at most, over the length of the step, by entry."""
    base, sides = columns.base, np.zeros(one.comparison.automatic.size)
    for sample in far.ladders[0]:
        for values in (sample.plus, sample.minus):
            slope = (values - base.values)[: base.Y.size] / sample.step
            sides = np.fmax(sides, np.abs(columns.row_values(one.kind, slope))[: sides.size])
    return sides


class ExactReplay(Stage):
    """Replays f in ball arithmetic where differences leave a column open, or where what fails may
    be rounding, and settles what that proves.

    Without this stage right derivatives stay open in tails, beside cancellations and beside large
    constants, where f has no digits to show them, and wrong ones do. What agrees with the enclosure
    is right. What no rounding of the program, of its derivative or of x brings to the automatic
    value is wrong: a zero for `exp(-70)` is, and one for `s (1 - s)` at 40 is rounding, and stays
    open. Where differences say something else than the enclosure they have seen rounding, and are
    put aside: without this stage the right derivative of `log(1 - tanh x)` at 18 fails. The bar of
    rounding is a worst case, and what it leaves open is settled by its scatter beside x, as in
    `ReplayedRounding`: without that a softmax of one large entry stays open. It needs
    python-flint and an engine that tells what f did, and takes two recordings of f: one more beside
    x, which shows whether f did more than was recorded.
    The method is that of Johansson (IEEE Trans. Comput. 66, 2017); to ask it last is ours.
    """

    name = "exact replay"
    cost = 2
    settles_open = True

    def helps(self, trial: Trial) -> bool:
        columns = trial.columns
        # Where f computes in less than it seems to, what is open says so to the columns after it.
        known = columns.base.coarsest_eps <= DOUBLE or columns.problem.widened is not None
        if not known or trial.column.from_reference or not columns.tolerance.automatic:
            return False
        if columns.tolerance.spread:  # the runs differ, and a replay would be that of another one
            return False
        if not trial.fails:
            return trial.open > 0 and not trial.separate
        # Where differences were right about one column, the next ones need not be asked about.
        return _near_rounding(trial) or not columns.known.contradicted

    def apply(self, trial: Trial) -> Trial:
        columns = trial.columns
        found = columns.replayed(trial.column.tangent)
        may_take_long = found is None and columns.problem.backend.recorded_unasked
        if may_take_long and self._is_worth_seconds(trial):
            columns = replace(columns, replay_work=LONG_REPLAY_WORK)
            trial = replace(trial, columns=columns)
            found = columns.replayed(trial.column.tangent)
        if found is None:
            return trial
        half_gap = found.estimate.half_gap
        if half_gap is not None:
            # The hull of two branches is no proof: `exp(|x|) i0e(|x|)` has no kink at 0.
            for _, comparison, kind in trial.compared:
                fails = comparison.fails
                if np.any(fails & columns.touching(kind, half_gap > 0)[: fails.size]):
                    return trial
        # What differences need in a narrow dtype would hide errors, as the rounding of sixteen bits
        # does, so that nothing is proved to be right there.
        tolerance = columns.tolerance
        if not tolerance.double:
            columns = replace(columns, tolerance=replace(tolerance, exact=True))
        coarse = tolerance.eps > COARSE_EPS
        right = trial.comparisons(found, final=True, columns=columns)
        after = replace(trial, column=found, compared=right, decided_by=self.name)
        turns = trial.fails and columns.compares and not coarse
        if turns and self._turns(trial, columns, found):
            return trial
        if not after.left:
            return trial if coarse else after
        rounded = columns.replayed(trial.column.tangent, tolerance.coarsest)
        if rounded is None:
            return trial
        wide = trial.comparisons(rounded, final=True, columns=columns)
        proved = []
        for one, other in zip(right, wide, strict=True):
            agrees = one.comparison.agrees & ~one.comparison.undecided
            error = np.where(agrees, one.comparison.error, other.comparison.error)
            proved.append(one.but(error=error))
        after = replace(after, column=rounded, compared=proved)
        if after.fails and columns.compares:
            return replace(trial, confirmed=True)
        refuted = _refuted(trial, right) and not (columns.compares and _unbounded(trial, proved))
        if not (_near_rounding(trial) or refuted):
            columns.known.contradicted = True
            return trial
        if after.fails or refuted:
            return after
        after = _without_residues(after)
        replay = columns.by_replay()
        if after.left and replay is not None and not coarse:
            exact = replace(trial, columns=replace(columns, estimator=replay), column=found)
            pairs = zip(right, after.compared, strict=True)
            settled = [_settled(exact, sharp, one, sharp.comparison.fails) for sharp, one in pairs]
            after = replace(after, compared=settled)
        return trial if after.left else after

    @staticmethod
    def _is_worth_seconds(trial: Trial) -> bool:
        """Returns whether f may be replayed for so long: where all that fails in a mode is off by
        no more than saturation explains, and for the first columns that would be left open.
        """
        if trial.fails:
            failing = [one for one in trial.compared if np.any(one.comparison.fails)]
            alone = (replace(trial, compared=[one]) for one in failing)
            return any(_units_where_saturated(one) is not None for one in alone)
        known = trial.columns.known
        known.long_replays += 1
        return known.long_replays <= LONG_REPLAYS

    @staticmethod
    def _turns(trial: Trial, columns: Columns, found: Column) -> bool:
        """Returns whether rounding, also that of x, may turn a comparison of f, and f itself moves
        as differences say.
        """
        tolerance = columns.tolerance
        eps = max(tolerance.coarsest, tolerance.of_x)
        rounded = columns.replayed(trial.column.tangent, eps)
        if rounded is None:
            return False
        wide = trial.comparisons(rounded, final=True, columns=columns)
        return _unbounded(trial, wide) and not _moves_as_replayed(columns, found, trial.column, eps)


def _refuted(trial: Trial, exact: Sequence[ModeComparison]) -> bool:
    """Returns whether what differences say of something that fails is not what a replay proves.

    Where f computes with the rounding of a small number, as `log(1 - tanh x)` at 18 does, it stands
    still or moves by leaps, and differences see these.
    """
    return any(
        bool(np.any(one.fails & (np.abs(one.reference - two.reference) > one.allowed + two.error)))
        for (_, one, _), (_, two, _) in zip(trial.compared, exact, strict=True)
    )


def _moves_as_replayed(columns: Columns, replayed: Column, seen: Column, eps: float) -> bool:
    """Returns whether f moves as a replay says, and not as differences do, over the shortest step
    by which rounding lets the two be told apart.

    The piece on which a staircase stands is flat over many units of rounding, though x itself may
    stand on an edge: a product that is a whole number in floating point need not be one. So f is
    looked at to both sides of x, off such an edge. The last bracket of a bisection is as narrow as
    rounding, and nothing follows its slope. Without this the right derivative of
    `floor(1e6 x) / 1e6 + x` fails at 0.3.
    """
    base, v, count = columns.base, seen.vector, columns.base.Y.size
    slopes = seen.estimate.value[:count]
    gap = replayed.estimate.value[:count] - slopes
    gap = np.where(np.isfinite(gap) & (np.abs(gap) > seen.estimate.error[:count]), gap, 0.0)
    unit = eps * base.magnitude(base.values)[:count]
    weights = gap / max(np.max(np.abs(gap)), np.finfo(float).tiny)
    told = float(weights @ gap)
    if not told > 0:
        return False
    shortest = TURN_UNITS * float(np.abs(weights) @ unit) / told
    of_x = TURN_UNITS * eps * float(norm(base.problem.origin * (v != 0)) / norm(v))
    h = max(shortest, of_x)
    if h > seen.tangent.length * relative_step(eps):
        return False
    for side in (-TURN_DISTANCE, TURN_DISTANCE):
        points = [base.problem.origin + (side + end) * h * v for end in (1, -1)]
        plus, minus = (evaluate(base.problem, base, at, Purpose.NEAR_X)[:count] for at in points)
        if float(weights @ ((plus - minus) / (2 * h) - slopes)) > told / 2:
            return True
    return False


def _unbounded(trial: Trial, rounded: Sequence[ModeComparison]) -> bool:
    """Returns whether rounding may do anything to something that fails.

    A bisection compares numbers that rounding may order either way, and the replay of the order
    that it had is not the slope that all differences show. Without this a wrong sign stayed open,
    and the derivative of a bracket that shrinks passed for that of the root in it.
    """
    return any(
        bool(np.any(one.fails & ~np.isfinite(two.error)))
        for (_, one, _), (_, two, _) in zip(trial.compared, rounded, strict=True)
    )


def _near_rounding(trial: Trial) -> bool:
    """Returns whether rounding may have made all that fails; see `_may_be_rounding`."""
    return bool(trial.doubt) and all(_may_be_rounding(c) for _, c, _ in trial.compared)


def _may_be_rounding(comparison: Comparison) -> bool:
    """Returns whether all that fails is so close that rounding may have made it, as far as that can
    be told without looking at what f is made of.
    """
    scales, t = comparison.scales, comparison.tolerance
    near = NEAR_ROUNDING * t.eps * np.maximum(scales.secant, scales.block)
    near = np.maximum(near, t.resolution * comparison.largest)
    return bool(np.all(~comparison.fails | (comparison.difference <= near)))


class ReplayedRules(Stage):
    """Replays the rules of the derivative in ball arithmetic where rounding may have made what they
    compute, and settles what that proves.

    A rule may cancel where f does not: `1 - sigmoid(x)` at 40 is zero, and `softplus(-x)` has all
    of its digits. Without this stage such rules, which are right, fail at ordinary numbers. Only
    what the rules give in exact arithmetic is believed, compared as ever, and only where rounding
    takes them from there to what was computed: a rule that is cut off at 30 is wrong. What is lost
    and small beside the largest derivative of its leaf is harmless. What is lost and larger has to
    be made by rounding of numbers such as 1, as at 30 by `s (1 - s)`, and widens the error bar: the
    entry stays open where few digits are left. The zero of `sinc` at 1e-9 by a formula that cancels
    is off by more, and fails. What is open beside differences, or
    excused beside a replay of f, is settled so, each mode by itself: a second derivative of
    `log_softmax`, also where the first one beside it stays open.

    Where the rules are not what f has in exact arithmetic, by more than a few of their roundings
    and of those of the values of f, they are wrong: without this the slope of a GELU passed that
    was off by a fifth at -8, where the worst case of rounding excuses anything, as did a second
    derivative that was off by a hundred thousandth everywhere. A rule that says zero of a tail is
    left to the stages before, since f shows none of it.

    It needs python-flint and an engine that tells what its rules do. It takes one evaluation of the
    derivative, and one recording of the rules for each row that fails and may be rounding; two more
    where they are wrong. Where they are so beside differences they are not asked again. Ours.
    """

    name = "exact replay of the rules"
    by_entry = True
    settles_open = True

    def helps(self, trial: Trial) -> bool:
        columns, tolerance = trial.columns, trial.columns.tolerance
        if self._is_given(trial) and not tolerance.exact:
            return False  # whoever gives a reference wants to know
        if not tolerance.automatic or tolerance.eps > COARSE_EPS or tolerance.spread:
            return False
        if columns.known.wrong_rules:
            return False
        return trial.left or self._is_excused(trial)

    def apply(self, trial: Trial) -> Trial:
        units = _units_where_saturated(trial)
        if units is not None and trial.fails:
            both = zip(trial.compared, units, strict=True)
            after = trial.with_compared([self._ruled(trial, *pair) for pair in both], self.name)
            if not after.fails:
                return after
        if units is not None and (replayed := self._beside_replay(trial)) is not None:
            pairs = zip(trial.compared, replayed.compared, strict=True)
            judged = [self._judged(replayed, *pair) for pair in pairs]
            own = [one for one, _ in judged]
            after = trial.with_compared(own, self.name)
            if any(wrong for _, wrong in judged):
                after = replace(after, column=replayed.column, decided_by=self.name)
                return replace(after, confirmed=True)
            # Whoever asks for digits wants to know of those that are lost.
            settles = not self._is_given(trial)
            if settles and not after.left:
                kept = any(map(is_, own, trial.compared))
                return after if kept else replace(after, column=replayed.column)
            if settles and not after.fails:
                return after
        if trial.fails:
            trial.columns.known.wrong_rules = True
        return trial

    @staticmethod
    def _is_given(trial: Trial) -> bool:
        """Returns whether the caller gave the reference."""
        return trial.column.from_reference and trial.decided_by != ExactReplay.name

    @staticmethod
    def _is_excused(trial: Trial) -> bool:
        """Returns whether nothing is left, and something may agree by rounding alone."""
        own = trial.column.estimate.own_error
        return trial.decided_by == ExactReplay.name and own is not None

    @staticmethod
    def _beside_replay(trial: Trial) -> Trial | None:
        """Returns the trial beside a replay of f, if there is one."""
        exact = trial.columns.exact
        found = None if exact is None else attempt(partial(exact.along, trial.column.tangent))
        if found is None:
            return None
        return replace(trial, column=found, compared=trial.comparisons(found, final=True))

    def _judged(
        self, replayed: Trial, one: ModeComparison, sharp: ModeComparison
    ) -> tuple[ModeComparison, bool]:
        """Returns the comparison `sharp` of the same with a replay in place of `one` where that
        leaves nothing but what the rules lose by rounding, and where they are wrong; and whether
        they are.
        """
        fails = sharp.comparison.fails
        if fails.any():
            rows = _failing_rows(sharp)
            ruled = _by_rules(replayed, sharp, rows)
            if ruled is not None and self._are_wrong(replayed, sharp, rows, ruled):
                return sharp, True
            units = _units_where_saturated(replace(replayed, compared=[sharp]))
            if ruled is None or units is None:
                return one, False
            sharp = self._allowed(sharp, rows, ruled, units[0])
        if np.any(sharp.comparison.fails | sharp.comparison.undecided):
            return one, False
        if one.kind == "first":
            replayed.columns.known.right_first = True
        return sharp, False

    def _ruled(self, trial: Trial, one: ModeComparison, unit: Vector) -> ModeComparison:
        """Returns the comparison without what its rules lose by rounding."""
        rows = _failing_rows(one)
        ruled = _by_rules(trial, one, rows) if rows else None
        return one if ruled is None else self._allowed(one, rows, ruled, unit)

    @staticmethod
    def _are_wrong(replayed: Trial, sharp: ModeComparison, rows: list[int], ruled: Ruled) -> bool:
        """Returns whether the rules, as they are in exact arithmetic, are not the derivative of f
        as it is there, by more than a few roundings of them, or of the values of f, can do.

        Floating point makes the same numbers of rules that differ by less, and f shows none of it.
        A program of f that compares, or ends iterations early, may be another function for whoever
        wrote its rules.
        """
        columns, exact, found = replayed.columns, replayed.columns.exact, replayed.column
        wrong = ruled.as_computed & ruled.fails & ~ruled.cut_off
        if not wrong.any() or found.estimate.half_gap is not None:
            return False
        if exact is None or exact.compares or exact.iterates:
            return False
        rounded = exact.rounded(columns.tolerance.coarsest, SURE_UNITS)
        wide = None if rounded is None else attempt(partial(rounded.along, found.tangent))
        if wide is None or wide.estimate.of_values is None:
            return False
        # The bars of such a comparison are what rounding of the values makes of each row.
        estimate = wide.estimate.but(error=wide.estimate.of_values)
        of_values = replayed.comparisons(replace(wide, estimate=estimate), final=True)
        (room,) = (one.comparison.error[rows] for one in of_values if one.kind == sharp.kind)
        off = np.abs(ruled.values - sharp.comparison.reference[rows])
        wrong &= off > room + ruled.sure
        return bool(wrong.any()) and all(seen() for seen in ruled.seen)

    @staticmethod
    def _allowed(
        one: ModeComparison, rows: list[int], ruled: Ruled, unit: Vector
    ) -> ModeComparison:
        """Returns the comparison without what the rules of these rows lose by rounding, where that
        is harmless beside the unit of each; beside an exact reference it is left open.
        """
        comparison = one.comparison
        automatic, error = comparison.automatic.copy(), comparison.error.copy()
        right = ruled.as_computed & ~ruled.fails
        # Who asks for digits wants to know of those that are lost, and so does who loses many.
        harmful = ruled.lost > HARMLESS_UNITS * unit
        told = comparison.tolerance.exact | harmful
        automatic[rows] = np.where(right & ~told, ruled.values, automatic[rows])
        error[rows] += np.where(right, ruled.bars + told * ruled.lost, 0.0)
        rounded = _marked(right & harmful, rows, error.size)
        return one.but(automatic=automatic, error=error, rounded_rule=rounded)


def _failing_rows(one: ModeComparison) -> list[int]:
    """Returns the rows that fail, or the worst of them where each takes an evaluation."""
    fails = one.comparison.fails
    return worst_entries(one.comparison, fails, Tally.KEPT if one.kind == "rows" else fails.size)


def _units_where_saturated(trial: Trial) -> list[Vector] | None:
    """Returns by comparison, for each row that fails, the rounding of the largest derivative of its
    leaf; `None` unless all that fails may be what rounding takes from a derivative that is small:
    it is off by no more than some of these units, or by what rounding makes of factors such as 1.
    """
    units = []
    for one in trial.compared:
        rows = _failing_rows(one)
        if len(rows) < np.count_nonzero(one.comparison.fails):
            return None
        unit = _unit_of_rules(trial, one, rows) if rows else np.zeros(0)
        most = LOST_UNITS_OF_RULE * unit
        if rows:
            most = np.fmax(most, HARMLESS_UNITS * _unit_of_ones(trial, one, rows))
        if np.any(one.comparison.difference[rows] > most):
            return None
        units.append(unit)
    return units


def _unit_of_rules(trial: Trial, one: ModeComparison, rows: list[int]) -> Vector:
    """Returns for each of these rows the rounding of the largest derivative of its leaf.

    Probes make entries alike, and the cotangents and tangents at which a derivative is
    differentiated again do so, which would hide that some are small: all of these have one size
    here. Costs an evaluation of the derivative for each row, or for all where a jvp has them, and
    one of what is differentiated where that is a derivative.
    """
    columns, problem = trial.columns, trial.columns.problem
    base, point = columns.base.of or columns.base, None
    if problem.primal_inputs:
        point = problem.origin.copy()
        of_others = _of_others(problem, point)
        of_others[:] = np.where(of_others < 0, -1.0, 1.0)
    moved = _moved_leaves(trial)
    if one.kind == "each":
        signed = moved * _alternating(moved.size)
        every = base.Y.largest(Forward(problem, point).column(base, signed)[1])
        sizes = columns.pushed(every, rows)
    elif one.kind == "first":
        x = problem.origin if point is None else point
        values = evaluate(problem, base, x, Purpose.NEAR_X)[: base.Y.size]
        sizes = np.full(len(rows), largest(values * moved[: values.size]))
    else:
        reverse = base.reverse if point is None else columns.reverse_at(point, problem)
        signs = _alternating(base.Y.size)
        alike = [signs * base.Y.largest(columns.cotangent(k)) for k in rows]
        sizes = np.array([largest(reverse.row(base, w) * moved) for w in alike])
    return np.asarray(columns.tolerance.coarsest * _weight_of_others(problem) * sizes)


def _unit_of_ones(trial: Trial, one: ModeComparison, rows: list[int]) -> Vector:
    """Returns for each of these rows the rounding of its probes: of a rule that multiplies them by
    a number such as 1, from which it takes another one. The derivative of a sigmoid at 30 is made
    of a difference from 1, and all derivatives of its leaf may be as small.
    """
    columns, moved = trial.columns, largest(_moved_leaves(trial))
    if one.kind == "rows":
        sizes = np.array([largest(columns.cotangent(k)) for k in rows])
    else:
        sizes = np.ones(len(rows))
    weight = _weight_of_others(columns.problem)
    return np.asarray(columns.tolerance.coarsest * weight * moved * sizes)


def _moved_leaves(trial: Trial) -> Vector:
    """Returns the largest entry of the tangent in each leaf that it moves, at all its entries."""
    problem, found = trial.columns.problem, trial.column
    moved = np.zeros(problem.X.size)
    for part in (problem.X.slices[j] for j in found.tangent.leaves):
        moved[part] = np.max(np.abs(found.vector[part]), initial=0.0)
    return moved


def _of_others(problem: Problem, point: Vector) -> Vector:
    """Returns the view of a point that holds the cotangents and tangents of a derivative."""
    return point[problem.X.slices[problem.primal_inputs - 1].stop :]


def _weight_of_others(problem: Problem) -> float:
    """Returns the largest cotangent or tangent at which a derivative is differentiated again."""
    if not problem.primal_inputs:
        return 1.0
    return largest(_of_others(problem, problem.origin))


def _alternating(count: int) -> Vector:
    """Returns ones of alternating sign."""
    return np.where(np.arange(count) % 2, -1.0, 1.0)


class Ruled(NamedTuple):
    """What the rules give for some rows in exact arithmetic."""

    values: Vector
    bars: Vector
    """How far these may be off."""
    lost: Vector
    """How far the automatic values are from these."""
    as_computed: NDArray[np.bool_]
    """Whether roundings of the rules may have made the automatic values of them."""
    fails: NDArray[np.bool_]
    """Whether they fail in place of the automatic values."""
    cut_off: NDArray[np.bool_]
    """Whether they say zero of something that moves. They may leave out what nobody sees, where
    `tanh` is 1 to the last bit, and what was computed as zero may be a constant for a replay."""
    sure: Vector
    """How far two programs of these rules are apart that make the same numbers in floating point;
    see `SURE_UNITS`."""
    seen: list[Callable[[], bool]]
    """Each returns whether no number in a row of them was computed where the engine records
    nothing."""


def _by_rules(trial: Trial, one: ModeComparison, rows: list[int]) -> Ruled | None:
    """Returns what the rules give for these rows; `None` where they cannot be replayed."""
    columns, v, comparison = trial.columns, trial.column.vector, one.comparison
    base, eps = columns.base.of or columns.base, columns.tolerance.coarsest
    found: list[Sequence[Any]] = []
    seen = []
    for k in rows if one.kind == "rows" else rows[:1]:
        if one.kind == "each":
            rules = jvp_by_replay(base, trial.column.tangent, eps)
        elif one.kind == "first":
            rules = value_by_replay(base, eps)
        else:
            rules = vjp_by_replay(base, columns.cotangent(k), eps)
        if rules is None:
            return None
        value, error, rounding, sure, all_seen = rules
        seen.append(all_seen)
        if one.kind == "each":
            vectors = (value, error, rounding, sure, value == 0)
            found += zip(*(columns.pushed(part, rows) for part in vectors), strict=True)
            continue
        along, bars = v[: value.size], error + eps * np.abs(value)
        size, zero = np.abs(along), (value == 0) & (along != 0)
        if zero.any():
            # What these outputs have nothing to do with is zero as well.
            zero &= base.reverse.row(base, _alternating(base.Y.size))[: value.size] == 0
        found.append([value @ along, bars @ size, rounding @ size, sure @ size, zero.any()])
    values, bars, slack, sure, cut_off = np.array(found, float).T
    automatic, error = comparison.automatic.copy(), comparison.error.copy()
    lost = np.abs(automatic[rows] - values)
    automatic[rows], error[rows] = values, error[rows] + bars
    fails = replace(comparison, automatic=automatic, error=error).fails[rows]
    as_computed = np.isfinite(slack) & (lost <= slack)
    return Ruled(values, bars, lost, as_computed, fails, cut_off != 0, sure, seen)


class MeanSlopes(Stage):
    """Compares how far f moves over a longer step with the mean of its derivative there, where
    short steps say something else, or nothing.

    What is small beside the numbers that it is made of moves by their rounding. The factor
    `1 + erf(x)` of a GELU has four bits at -8 and stands still over every short step, so that all
    of these agree, to many digits, on a slope that is not that of the formula. Without this stage
    the right derivative of a GELU fails in every layer of ten thousand numbers. By the fundamental
    theorem of calculus f moves over a step by the mean of its derivative. The right one obeys that
    where short differences do not, and what f is off by is no more than rounding of the largest
    number of its leaf, beside which its value has few bits left. Other stairs are meant. A rule
    that has another value at x than beside it is not believed.

    What is found for an entry is its derivative to a tenth, which is all that f shows of it; a
    projection, in which single entries would hide in as much, is left open. Beside a replay, which
    needs no step, what is known to a tenth and off by no more than that rounding passes as well.
    For each of a few steps it costs two evaluations, and two and one of the derivative at each node
    of the quadrature (Gauss-Legendre, which is standard). Ours.
    """

    name = "means over longer steps"
    cost = MEAN_STEPS * 2 * (1 + MEAN_NODES)
    settles_open = True

    def helps(self, trial: Trial) -> bool:
        columns, problem = trial.columns, trial.columns.problem
        if trial.doubt is Doubt.NONE or trial.column.one_sided or problem.constraints:
            return False
        if trial.confirmed or (trial.fails and columns.known.contradicted):
            return False
        if trial.column.from_reference and trial.decided_by != ExactReplay.name:
            return False  # whoever asks for a reference wants to know
        double = columns.base.coarsest_eps <= DOUBLE and not columns.tolerance.inside
        return double and columns.tolerance.automatic and trial.left

    def apply(self, trial: Trial) -> Trial:
        columns, problem, found = trial.columns, trial.columns.problem, trial.column
        if found.from_reference:
            compared = [self._beside_replay(trial, one) for one in trial.compared]
            return trial.with_compared(compared, self.name)
        longest = min(LONGEST_STEP * found.tangent.length, problem.longest_step(found.vector))
        for k in range(MEAN_STEPS):
            rows = [self._rows(trial, one) for one in trial.compared]
            if not any(rows):
                return trial
            taken = sample_at(problem, columns.base, found.tangent, longest / LADDER_RATIO**k)
            if taken is None:
                return trial
            both = zip(trial.compared, rows, strict=True)
            compared = [self._by_mean(trial, one, some, taken[0]) for one, some in both]
            trial = trial.with_compared(compared, self.name)
            if trial.decided_by == self.name and trial.rounded is None:
                count, unit = columns.base.Y.size, unit_of_leaf(columns)
                moves = np.abs(found.estimate.value[:count]) * abs(found.step)
                few = np.abs(columns.base.values[:count]) <= FEW_UNITS * unit
                trial = replace(trial, rounded=few & (MEAN_BAR * moves <= MEAN_UNITS * unit))
        return trial

    @staticmethod
    def _beside_replay(trial: Trial, one: ModeComparison) -> ModeComparison:
        """Returns the comparison with a replay without what it leaves open though it is known to a
        tenth, and off by no more than rounding of the leaf over the scale of x.
        """
        comparison, found = one.comparison, trial.column
        if one.kind == "first":
            return one
        off, unit = comparison.difference, unit_of_leaf(trial.columns)
        room = MEAN_UNITS * trial.columns.row_errors(one.kind, unit)[: off.size]
        known = comparison.undecided & (off <= MEAN_BAR * np.abs(comparison.automatic))
        known &= off * found.tangent.length <= room
        return one.but(error=np.where(known, off, comparison.error), by_mean=known)

    @staticmethod
    def _rows(trial: Trial, one: ModeComparison) -> list[int]:
        """Returns the rows that fail by no more than rounding of the leaf makes of a difference
        over the step that was taken, and whose values have few bits left beside that rounding.
        """
        comparison = one.comparison
        if one.kind == "first":
            return []
        columns = trial.columns
        known = np.isfinite(comparison.automatic) & (comparison.automatic != 0)
        unit = columns.row_errors(one.kind, unit_of_leaf(columns))[: known.size]
        own = np.abs(columns.base.values[: columns.base.Y.size])
        known &= columns.row_errors(one.kind, own)[: known.size] <= FEW_UNITS * unit
        off = comparison.difference * abs(trial.column.step)
        rounded = off <= MEAN_UNITS * unit
        return worst_entries(comparison, comparison.fails & rounded & known)

    @staticmethod
    def _by_mean(
        trial: Trial, one: ModeComparison, rows: list[int], sample: Sample
    ) -> ModeComparison:
        """Returns the comparison with what the step of a sample says of these rows."""
        if not rows:
            return one
        comparison = one.comparison
        error, reference = comparison.error.copy(), comparison.reference.copy()
        shown = np.zeros(error.size, bool)
        for row, mean in zip(rows, _means(trial, one.kind, rows, sample), strict=True):
            agrees = np.isfinite(mean.bar) and abs(mean.gap) <= mean.bar
            if not mean.refutes or not (agrees or mean.rounded):
                continue
            sharp = agrees and mean.bar <= MEAN_BAR * abs(comparison.automatic[row])
            shown[row] = sharp and trial.column.tangent.coordinate is not None
            reference[row] = comparison.automatic[row] + mean.gap
            error[row] = mean.bar if shown[row] else np.inf
        shown |= False if comparison.by_mean is None else comparison.by_mean
        return one.but(error=error, reference=reference, by_mean=shown)


class Mean(NamedTuple):
    """What the motion of f over a longer step says of one row."""

    gap: float
    """What a line through the motion of f adds to the integral of the automatic derivative."""
    bar: float
    """By how much that may be off, from what f scatters by about the line; infinite where that is
    more than rounding."""
    refutes: bool
    """Whether f moves otherwise than differences over short steps say all along the longer one."""
    rounded: bool
    """Whether f is off the integral by no more than rounding over a step that is long enough for
    an error to show, also by what the line adds."""


def _means(trial: Trial, kind: RowKind, rows: list[int], sample: Sample) -> list[Mean]:
    """Returns what the motion of f over the step of a sample says of these rows."""
    columns, found, h = trial.columns, trial.column, sample.step
    problem, base, count = columns.problem, columns.base, columns.base.Y.size
    automatic = RowsAtPoints(trial, kind, rows)
    unknown = Mean(0.0, np.inf, refutes=False, rounded=False)

    def motion(values: Vector) -> Vector:
        return columns.row_values(kind, values[:count] - base.values[:count])[rows]

    nodes, weights = np.polynomial.legendre.leggauss(MEAN_NODES)
    claims, slopes, bars, motions = [], [], [], [motion(sample.minus)]
    for t in nodes:
        point = representable_within_bounds(problem, problem.origin + t * h * found.vector)
        there = columns.estimator.at(point).along(found.tangent)
        if there.sample is None:
            return [unknown] * len(rows)
        claims.append(automatic.at(point))
        slopes.append(columns.row_values(kind, there.estimate.value[:count])[rows])
        # An output is rounded by itself; what is usual in its leaf would hide the stairs of others.
        own = base.whole.modulus(there.sample.plus, there.sample.minus)[:count]
        rounding = SPACINGS_OF_A_VALUE * base.coarsest_eps * own / there.sample.step
        bars.append(columns.row_errors(kind, np.abs(rounding))[rows])
        motions.append(motion((there.sample.plus + there.sample.minus) / 2))
    claimed, moved = np.array(claims), np.array([*motions, motion(sample.plus)])
    short, bar_of_short = weights @ np.array(slopes) / 2, weights @ np.array(bars) / 2
    at, here = np.array([-1.0, *nodes, 1.0]), automatic.at(None)
    unit = unit_of_leaf(columns)
    if found.tangent.coordinate is not None:  # along all of x what stands still may be rounding
        unit = np.where((sample.plus != sample.minus)[:count], unit, 0.0)
    room = MEAN_UNITS * columns.row_errors(kind, unit)[rows]
    if kind == "rows" and not columns.of_one_entry and not columns.probes.full:
        # What a function is off by may be alike in all entries, and add up.
        room = room * math.sqrt(np.count_nonzero(unit))
    means, long = [], h >= MEAN_REACH * found.tangent.length
    for k in range(len(rows)):
        if not (np.isfinite(claimed[:, k]).all() and np.isfinite(moved[:, k]).all()):
            means.append(unknown)
            continue
        fit = np.polynomial.Legendre.fit(nodes, claimed[:, k], MEAN_NODES - 1, [-1, 1])
        rest = moved[:, k] - h * fit.integ(lbnd=0)(at)
        level, gap = np.polynomial.polynomial.polyfit(at, rest, 1)
        scatter = rest - level - gap * at
        bar = float(MEAN_BARS * norm(scatter) / math.sqrt(at.size - 2) / norm(at) / h)
        apart = abs(fit(0.0) - here[k])
        if apart > MEAN_BAR * abs(here[k]) or np.max(np.abs(scatter)) > room[k]:
            bar = np.inf
        slope = (moved[-1, k] - moved[0, k]) / (2 * h)
        off = REFUTED * abs(weights @ claimed[:, k] / 2 - slope)
        refutes = bool(abs(short[k] - slope) > off + bar_of_short[k])
        rounded = bool(long and np.max(np.abs(rest)) + apart * h <= room[k])
        means.append(Mean(gap / h, bar, refutes, rounded))
    return means


def unit_of_leaf(columns: Columns) -> Vector:
    """Returns for each output the rounding of the largest number of its leaf."""
    base, whole = columns.base, columns.base.of or columns.base
    size = whole.Y.largest(whole.values[: whole.Y.size])
    return np.asarray(base.coarsest_eps * (size if base.chosen is None else size[base.chosen]))


STAGES: tuple[Stage, ...] = (
    DominatingConstants(),
    LeafScale(),
    ClaimedRounding(),
    Standstill(after_ladder=False),
    Halves(beyond=GROSS_TOLERANCES),
    LongerStep(),
    LongEnoughStep(),
    ThreeSteps(),
    Ladder(),
    Standstill(after_ladder=True),
    RoundedValues(),
    ShorterSteps(),
    Halves(beyond=GROSS_AFTER_LADDER),
    SecondLadder(),
    OddPowers(),
    MeasuredNoise(),
    ClaimedSteps(),
    DtypeInside(),
    Jumps(),
    Defects(),
    KinksBetween(),
    AutomaticRounding(),
    ReferenceScatter(),
    ReplayedRounding(),
    Halves(beyond=0),
    Residues(),
    SteadyValues(),
    Tail(),
    LongLadder(),
    ExactReplay(),
    ReplayedRules(),
    MeanSlopes(),
)
"""The stages in the order in which they are tried."""


def apply(stage: Stage, trial: Trial) -> Trial | Again:
    """Returns what a stage makes of the trial. Where f, or its derivative, raises at a point that
    only this stage asks for, that is the trial as it was.

    Without this a wrong derivative of a function that takes one entry off x and not two raised in
    full mode, in place of failing. A stage that no verdict goes without raises as ever.
    """
    if stage.needed:
        return stage.apply(trial)
    after = attempt(partial(stage.apply, trial))
    return trial if after is None else after


# -- what several stages need


def _allow_in_turn(trial: Trial, one: ModeComparison) -> ModeComparison:
    """Returns the comparison with what fails allowed its rounding, the worst first and others as
    long as none of those that were tried still fails.

    What changes least among the worst stands for all others, and may change less than they do by
    chance. A wrong rule ends this at its first wrong row.
    """
    for _ in range(MOST_TRIED // Tally.KEPT):
        tried = _tried(one)
        one = _allow_automatic_rounding(trial, one)
        fails = one.comparison.fails
        if not fails.any() or fails[tried].any():
            break
    return one


def _tried(one: ModeComparison) -> list[int]:
    """Returns the rows that are asked for their rounding at once: one jvp has all outputs, and one
    vjp a single row.
    """
    most = MOST_TRIED if one.kind == "each" else Tally.KEPT
    return worst_entries(one.comparison, one.comparison.fails, most)


def _allow_automatic_rounding(trial: Trial, one: ModeComparison) -> ModeComparison:
    """Returns the comparison with what fails allowed the rounding of the automatic side, as it
    shows where the leaf of the column moves by a unit of rounding.
    """
    columns, found, (_, comparison, kind) = trial.columns, trial.column, one
    tried = _tried(one)
    if not tried:
        return one
    automatic = RowsAtPoints(trial, kind, tried)
    around = automatic.nearby()

    def largest_change(beside: list[Vector]) -> Vector:
        changes = np.abs(np.reshape(beside, (-1, len(tried))) - comparison.automatic[tried])
        return np.asarray(np.max(changes, axis=0, initial=0.0, where=np.isfinite(changes)))

    def too_little() -> NDArray[np.bool_]:
        return np.asarray(NEIGHBOUR_FACTOR * change < off - allowed)

    def allowing(slack: Vector) -> Comparison:
        return replace(comparison, error=comparison.error + NEIGHBOUR_FACTOR * slack)

    finite, change = np.isfinite(around), largest_change(around)
    reference, allowed = comparison.reference[tried], comparison.allowed[tried]
    # Where the derivative is not finite next to x, that is no rounding either.
    right = np.all(~finite | (np.abs(around - reference) <= allowed), axis=0)
    off = comparison.difference[tried]
    few = too_little() & (change >= NOISY_PART * off)
    # What cancels may change by steps, and by none where x moves by a unit of rounding or two.
    small = off <= comparison.tolerance.eps**GROSS_POWER * comparison.largest[tried]
    few |= small & (change == 0)
    for number in range(1, NOISY_DRAWS) if np.any(few) else ():
        more = automatic.nearby(number)
        change = np.where(few, np.fmax(change, largest_change(more)), change)
    if kind != "first" and np.any(too_little()):
        change = np.fmax(change, _change_of_parts(automatic, comparison))
    if np.any(too_little()):
        change = np.fmax(change, largest_change(_beside_in_others(automatic)))
    doubted = off > np.fmax(ISOLATED_TOLERANCES * allowed, columns.usual_rounding(found))
    alone, unlike = right & doubted, change >= UNLIKE_ROUNDING * off
    change = np.where(alone, 0.0, change)
    size = np.where(comparison.largest > 0, comparison.largest, 1.0)
    relative = change / size[tried]
    least = np.min(relative, initial=np.inf, where=np.isfinite(relative))
    slack = np.where(comparison.fails & np.isfinite(least), least * size, 0.0)
    slack[tried] = change
    after = allowing(slack)
    if _is_loud(columns, found) and np.any(after.fails & ~_marked(alone, tried, slack.size)):
        leaves = found.tangent.leaves
        eps, seed = comparison.tolerance.eps, columns.probes.seed
        reach = _smooth_reach(columns.problem, found)
        *_, apart = scatter(columns.problem, eps, seed, leaves, automatic.at, reach)
        slack[tried] = np.where(alone, 0.0, np.fmax(change, apart))
        after = allowing(slack)
    doubted_inside = after.fails & ~_beyond_rounding(comparison, found)
    left = [k for k in worst_entries(after, doubted_inside, len(tried)) if k in tried]
    # Who gives a reference wants to know of a tail that has lost its digits.
    given = found.from_reference and not columns.tolerance.exact
    if left and kind != "first" and not given:
        inside = _moved_inside(replace(automatic, rows=left), after)
        slack[left] = np.fmax(slack[left], INSIDE_FACTOR / NEIGHBOUR_FACTOR * inside)
        slack[tried] = np.where(alone, 0.0, slack[tried])
        after = allowing(slack)
    excused = comparison.fails & ~after.fails
    if np.any(excused[tried]) and comparison.tolerance.eps <= COARSE_EPS:
        jumps = _jumps_at_x(automatic, comparison, around)
        beside = excused[tried] & doubted & (jumps | unlike)
        if np.any(beside):
            beside &= _right_beside(automatic, comparison)
        # Where noise next to x is as large as the error, it may be there at x as well.
        steady = np.all(~finite | (np.abs(around - reference) <= off / ISOLATED_TOLERANCES), axis=0)
        branch = beside & (unlike | steady)
        jumping = _marked(jumps & ~beside, tried, slack.size)
        # Among many rows those that are tried stand for the rest.
        others = ~_marked(True, tried, slack.size)
        jumping |= jumping.any() & others
        if np.any(branch):
            slack[tried] = np.where(branch, 0.0, slack[tried])
            slack[others] = 0.0
            after = allowing(slack)
        jumping &= excused & ~after.fails
        known = comparison.jumping
        after = replace(after, jumping=jumping if known is None else jumping | known)
    return one._replace(comparison=after)


def _beyond_rounding(comparison: Comparison, found: Column) -> NDArray[np.bool_]:
    """Marks what is off by a large part of the derivative that f would have if it varied by its own
    value over the scale of x, and by many times what differences are off by.

    Rounding inside of f that is large enough for that would show in the values of f. To move all
    numbers inside takes far longer than f, and says nothing there: in a loop of JAX, which is run
    operation by operation, it took six times as long as all else of a FAIL. The rule is ours.
    """
    if found.from_reference:
        return np.zeros(comparison.automatic.size, bool)
    off = comparison.difference
    large = off > comparison.tolerance.eps**GROSS_POWER * comparison.scales.secant
    return np.asarray(large & (comparison.error * GROSS_BARS < off))


def _right_beside(automatic: RowsAtPoints, comparison: Comparison) -> NDArray[np.bool_]:
    """Marks the rows whose automatic values are alike on both sides of x, and right, at one of a
    few distances from it.

    A kink has another value on each side, and the rounding of a rule is there on both. A special
    case for x alone (the knee of a Huber loss, `x == y` in a divided difference) has neither, and
    would be allowed the step to it, or all the noise that a division by nearly zero makes next to
    it. Costs two evaluations of the derivative for each distance.
    """
    columns, rows = automatic.trial.columns, automatic.rows
    if automatic.kind == "first":
        return np.zeros(len(rows), bool)
    problem, x, eps = columns.problem, columns.problem.origin, comparison.tolerance.eps
    reference, off = comparison.reference[rows], comparison.difference[rows]
    right = np.zeros(len(rows), bool)
    random = generator(columns.probes.seed, Stream.SCATTER)
    signs = random.uniform(0.5, 1.0, x.size) * random.choice([-1.0, 1.0], x.size)
    for power in ISOLATED_POWERS:
        move = eps**power * np.where(np.isfinite(x), x, 0.0) * signs
        sides = []
        for point in (x + move, x - move):
            there = representable_within_bounds(problem, point)
            values = attempt(partial(automatic.at, there), NotSupportedError)
            if values is None:
                return right
            sides.append(values)
        ahead, behind = sides
        alike = np.abs(ahead - behind) <= BRANCH_PART * off
        right |= alike & (np.abs((ahead + behind) / 2 - reference) <= off / ISOLATED_TOLERANCES)
    return right


def _jumps_at_x(
    automatic: RowsAtPoints, comparison: Comparison, around: list[Vector]
) -> NDArray[np.bool_]:
    """Marks the rows whose automatic values jump at x: within rounding of it, `around`, and farther
    out on the same side they are alike, and at x they are another one.

    Rounding differs from point to point. A rule that takes another branch beside x does not, and
    would be allowed four times the step between its branches: a slope of a soft threshold that is
    wrong everywhere passed beside one entry at the threshold and a large one. Costs as many
    evaluations of the derivative as `BRANCH_REACHES` has for each point.
    """
    trial, problem = automatic.trial, automatic.trial.columns.problem
    at_x = comparison.automatic[automatic.rows]
    jumps = np.zeros(at_x.size, bool)
    points = _points_nearby(trial.columns, trial.column.tangent.leaves)
    for point, beside in zip(points, around, strict=True):
        step = np.abs(beside - at_x)
        stays = step > 0
        for reach in (r for r in BRANCH_REACHES if r * comparison.tolerance.eps <= COARSE_EPS):
            farther = problem.origin + reach * (point - problem.origin)
            there = automatic.at(representable_within_bounds(problem, farther))
            stays &= np.abs(there - beside) <= BRANCH_PART * step
        jumps |= stays
    return jumps


def _moved_inside(automatic: RowsAtPoints, comparison: Comparison) -> Vector:
    """Returns how far these automatic values, of which the worst comes first, are apart where all
    numbers inside of f move by one spacing, up or down; see `Environment.moved_by_rounding`.

    Without it the right derivative `1 - tanh(x)**2` fails where that is saturated: it is rounded
    alike at all points close to x. If two draws move the worst value by far less than it is off by,
    nothing more is asked.
    """
    others, rows = automatic.trial.columns.problem.moved_widely, automatic.rows

    def apart(others: Sequence[Problem], rows: list[int]) -> Vector:
        """Returns how far these values are apart between some draws."""
        moved = apart_where_moved(others, replace(automatic, rows=rows).at)
        return np.zeros(len(rows)) if moved is None else moved

    least = comparison.difference[rows[0]] / (INSIDE_FACTOR * NEIGHBOUR_FACTOR)
    if not others or apart(others[:2], rows[:1])[0] < least:
        return np.zeros(len(rows))
    return apart(others, rows)


def _smooth_reach(problem: Problem, found: Column) -> float:
    """Returns how far off, relative to the entries of x, f is known to be smooth: by the steps that
    were chosen of a ladder that had to go on to shorter ones.
    """
    if found.finer != SHORTER_STEPS or found.estimate.steps is None:
        return np.inf
    x, v = np.abs(problem.origin), np.abs(found.tangent.vector)
    moved = (v > 0) & (x > 0)
    if not np.any(moved):
        return np.inf
    return float(np.max(found.estimate.steps) * np.median(v[moved] / x[moved]))


def _is_loud(columns: Columns, found: Column) -> bool:
    """Returns whether the noise of f was measured, and is far above the rounding of its values."""
    base = columns.base
    if found.noise is None:
        return False
    unit = LOUD_UNITS * base.coarsest_eps * base.magnitude(base.values)
    return bool(np.any(found.noise > unit))


def _marked(mask: NDArray[np.bool_] | bool, where: list[int], size: int) -> NDArray[np.bool_]:
    """Returns a mask of that size with `mask` at these places."""
    marked = np.zeros(size, bool)
    marked[where] = mask
    return marked


def _settled(
    trial: Trial, sharp: ModeComparison, one: ModeComparison, excused: NDArray[np.bool_]
) -> ModeComparison:
    """Returns the comparison `one` with what its bars leave open settled, where the scatter about
    the estimator of the trial at points close by is as much as a `sharp` bar has to allow.
    """
    wide = excused & one.comparison.undecided
    if not np.any(wide) or one.kind == "first":
        return one
    without = sharp.without_values(wide)
    off = wide & without.comparison.fails
    comparison = _allow_scatter(trial, without, off).comparison
    settled = wide & comparison.agrees & ~comparison.undecided
    error = np.where(settled, comparison.error, one.comparison.error)
    return one.without_values(settled).but(error=error)


def _allow_scatter(trial: Trial, one: ModeComparison, entries: NDArray[np.bool_]) -> ModeComparison:
    """Returns the comparison with these entries allowed what rounding at points close to x does."""
    if not np.any(entries):
        return one
    return one.but(error=one.comparison.error + _reference_scatter(trial, one, entries))


def _allow_reference_scatter(trial: Trial, one: ModeComparison) -> ModeComparison:
    """Returns the comparison with what fails allowed the scatter of its deviation."""
    comparison, tolerance = one.comparison, one.comparison.tolerance
    rows = worst_entries(comparison, comparison.fails)
    slack = _reference_scatter(trial, one, comparison.fails)
    after = replace(comparison, error=comparison.error + slack)
    if tolerance.eps <= COARSE_EPS:
        unit = EXACT_UNITS * tolerance.eps * comparison.scales.secant
        rows = [k for k in rows if after.fails[k] and comparison.difference[k] <= unit[k]]
    if rows:
        part = trial.column.tangent.part(trial.columns.problem.X)
        pairs = _beside_reference(trial, one, rows, part, REFERENCE_DISTANCES)
        off = np.array([automatic / reference - 1 for automatic, reference in pairs])
        moves = np.max(off, axis=0) - np.min(off, axis=0)
        moves = np.where(moves > SCATTERED_PART * np.abs(off[0]), 2 * moves, 0.0)
        moves = np.nan_to_num(moves) * np.abs(comparison.reference[rows])
        slack[rows] = np.fmax(slack[rows], moves)
        after = replace(comparison, error=comparison.error + slack)
    return one._replace(comparison=after)


def _reference_scatter(trial: Trial, one: ModeComparison, entries: NDArray[np.bool_]) -> Vector:
    """Returns what rounding at points close to x allows each of these entries to be off by; others
    are allowed nothing.

    That is the scatter of their deviation. Of many entries only the worst are tried, and the one
    that scatters least beside the numbers that it was rounded with stands for the rest. In a
    program that iterates it is what an engine may leave out as well.
    """
    columns, comparison = trial.columns, one.comparison
    rows, size = worst_entries(comparison, entries), comparison.rounded_with
    beyond = comparison.difference - comparison.allowed
    values = RowsAtPoints(trial, one.kind, rows)

    def gaps(point: Vector) -> Vector:
        reference = values.reference_at(point)
        return values.at(point) - reference

    def slack(apart: Vector) -> Vector:
        """Returns what is allowed to each entry, where the tried ones are so far apart."""
        relative = np.divide(apart, size[rows], out=np.zeros(len(rows)), where=size[rows] > 0)
        allowed = np.where(entries, np.min(relative, initial=np.inf) * size, 0.0)
        allowed[rows] = apart
        return NEIGHBOUR_FACTOR * allowed

    eps, seed, leaves = comparison.tolerance.eps, columns.probes.seed, trial.column.tangent.leaves
    for apart in scatter(columns.problem, eps, seed, leaves, gaps):
        allowed = slack(apart)
        if not np.any(entries & (beyond > allowed)):
            break  # more points could not change the verdict
    if columns.estimator.iterates:
        allowed = np.fmax(allowed, np.where(entries, _of_iterations(trial, one), 0.0))
    return allowed


def _of_iterations(trial: Trial, one: ModeComparison) -> Vector:
    """Returns what an engine may be off by in each entry that ends the iterations of a
    decomposition early: what their references change by where x moves by `ITERATED_UNITS` units of
    rounding.
    """
    at_x = one.comparison.reference
    all_rows = RowsAtPoints(trial, one.kind, list(range(at_x.size)))
    rates = []
    points = _points_beside(trial, slice(None), FOLLOWED_DISTANCES)
    for far, point in zip(FOLLOWED_DISTANCES, points, strict=True):
        rates.append(np.abs(all_rows.reference_at(point) - at_x) / far)
    units = ITERATED_UNITS * one.comparison.tolerance.eps
    return np.asarray(units * np.nan_to_num(np.max(rates, axis=0), posinf=0.0))


def _follows(trial: Trial, one: ModeComparison, entries: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the worst of these entries whose automatic value moves from point to point as its
    reference does, to a small part of what it is off by, while both move by far more.

    Such a value has the digits that show the deviation, whatever rounding could have done to it.
    One that is computed from rounded values moves by their spacing, or stands still, as the zero
    does that a saturated softmax has for 1e-200: that is off by the same part everywhere.
    """
    rows = worst_entries(one.comparison, entries) if one.kind != "first" else []
    if not rows:
        return np.zeros(entries.size, bool)
    follows = np.zeros(len(rows), bool)
    for distances in (FOLLOWED_DISTANCES, REFERENCE_DISTANCES):
        pairs = _beside_reference(trial, one, rows, slice(None), distances)
        automatic, at_x = next(pairs)
        off, values, references = automatic - at_x, [automatic], [at_x]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = off / at_x
        alike = in_part = ~follows & (off != 0)
        for automatic, reference in pairs:
            values.append(automatic)
            references.append(reference)
            gap = automatic - reference
            with np.errstate(invalid="ignore", divide="ignore"):
                alike = alike & (np.abs(gap - off) <= FOLLOWED_PART * np.abs(off))
                in_part = in_part & (np.abs(gap / reference - part) <= FOLLOWED_PART * np.abs(part))
            if not np.any(alike | in_part):
                break  # each point costs a replay
        both = np.minimum(np.ptp(values, axis=0), np.ptp(references, axis=0))
        follows |= (alike | in_part) & (both >= np.abs(off) / FOLLOWED_PART)
        if follows.all():
            break
    return _marked(follows, rows, entries.size)


def _off_in_few_digits(
    trial: Trial, one: ModeComparison, entries: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Marks those of the worst of these entries for which a replay with no more digits than the
    engine has is off by about as much as the automatic value, or by more.

    Of two terms one of which was rounded away the other one moves much as the reference does:
    without this the right gradient of attention fails in float32 for entries of 1e-22, where a
    softmax is saturated.
    """
    rows = worst_entries(one.comparison, entries) if np.any(entries) else []
    if not rows:
        return np.zeros(entries.size, bool)
    columns, tangent = trial.columns, trial.column.tangent
    weights = [columns.cotangent(k) for k in rows] if one.kind == "rows" else None
    computed = columns.estimator.in_few_digits(tangent, weights, columns.tolerance.coarsest)
    if computed is None:
        return np.zeros(entries.size, bool)
    if weights is None:
        computed = columns.pushed(computed, rows)
    off = np.abs(computed - one.comparison.reference[rows])
    return _marked(off >= FOLLOWED_PART * one.comparison.difference[rows], rows, entries.size)


def _beside_reference(
    trial: Trial, one: ModeComparison, rows: list[int], part: slice, distances: Sequence[float]
) -> Iterator[tuple[Vector, Vector]]:
    """Yields the automatic values of these rows and their references, at x and at points at which
    this `part` of x is moved by these distances over its scale.
    """
    yield one.comparison.automatic[rows], one.comparison.reference[rows]
    values = RowsAtPoints(trial, one.kind, rows)
    for point in _points_beside(trial, part, distances):
        there = values.reference_at(point)
        yield values.at(point), there


def _points_beside(trial: Trial, part: slice, distances: Sequence[float]) -> Iterator[Vector]:
    """Yields the points at which this `part` of x is moved by these distances over its scale."""
    problem, tangent = trial.columns.problem, trial.column.tangent
    leaves = tangent.leaves if part != slice(None) else range(len(problem.X.leaves))
    random = generator(trial.columns.probes.seed, Stream.NEAR_REFERENCE)
    for far in distances:
        point = problem.origin.copy()
        signs = random.choice(np.array([-far, far]), point[part].size)
        moves = tangent.vector[part] != 0 if part != slice(None) else True
        point[part] += np.where(moves, signs * scale(point[part]), 0.0)
        yield representable(problem, problem.clipped(point), leaves)


def _doubted_outputs(trial: Trial) -> NDArray[np.bool_]:
    """Marks the outputs on which a comparison fails or stays open."""
    return _outputs_where(trial, lambda c: c.fails | c.undecided)


def _outputs_where(
    trial: Trial, holds: Callable[[Comparison], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Marks the outputs that entries are made of for which this `holds`."""
    marked = np.zeros(trial.columns.base.whole.size, bool)
    for _, comparison, kind in trial.compared:
        for k in np.flatnonzero(holds(comparison)):
            marked[trial.columns.outputs(kind, int(k))] = True
    return marked


def _beside(trial: Trial, one: ModeComparison) -> Vector:
    """Returns, by entry, the derivative over which f would move as much as it does when all inputs
    move by their scale.
    """
    columns, rows, size = trial.columns, trial.block.rows, one.comparison.automatic.size
    moves = np.zeros(size)
    if one.kind == "each":
        v = columns.probes.tangent(columns.problem.origin).vector
        moves = np.abs(Forward(columns.problem).column(columns.base, v)[1])
    elif one.kind == "rows" and rows is not None:
        lengths = columns.problem.length_scales[trial.block.columns]
        moves = np.max(np.abs(rows * lengths), axis=1, initial=0.0)
    return np.asarray(moves[:size] / trial.column.tangent.length)


def _underflows(trial: Trial, one: ModeComparison, entries: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks those of these zeros that are the end of a tail that the rule itself follows, far below
    what could be seen: where x moves back towards f, the derivative is a number of that size.
    """
    columns, found, underflows = trial.columns, trial.column, np.zeros(entries.size, bool)
    tried = worst_entries(one.comparison, entries)
    automatic = RowsAtPoints(trial, one.kind, tried)
    least = one.comparison.tolerance.eps**2 * _beside(trial, one)
    if not tried or not np.any(least[tried]):
        return underflows
    for t in UNDERFLOW_DISTANCES:
        for step in (t * found.tangent.length, -t * found.tangent.length):
            if step > columns.problem.longest_step(found.tangent.vector):
                continue
            point = moved_by(columns.problem, found.tangent, step)
            values = attempt(partial(automatic.at, point))
            if values is not None:
                size = np.abs(values)
                underflows[tried] |= (size > 0) & (size <= least[tried])
        if underflows[tried].all():
            return entries  # those that were not tried are no larger
    return underflows


def _without_residues(trial: Trial) -> Trial:
    """Returns the trial with what is open taken for zero where the reference is exactly zero, the
    automatic value is the rounding of numbers of a `USUAL_CONSTANT` at most, which nearly cancel,
    and it is not steady where x moves by rounding: no derivative has that.
    """
    bound, accepted = trial.columns.usual_rounding(trial.column), []
    for one in trial.compared:
        comparison = one.comparison
        zero = comparison.undecided & (comparison.reference == 0)
        zero &= np.abs(comparison.automatic) <= bound
        tried = _marked(True, worst_entries(comparison, zero), zero.size)
        accepted.append(_without_residue(trial, one, tried))
    return trial.with_compared(accepted, trial.decided_by)


def _without_residue(
    trial: Trial, one: ModeComparison, candidates: NDArray[np.bool_]
) -> ModeComparison:
    """Returns the comparison with zero for those candidates that are not steady beside x."""
    steady = _steady(trial, one, candidates)
    if np.any(steady):  # no more is known of the entries that were not among the worst
        candidates = _marked(True, worst_entries(one.comparison, candidates), steady.size)
    return one.but(residue=candidates & ~steady)


def _steady(trial: Trial, one: ModeComparison, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the worst of these entries whose automatic value hardly changes beside x.

    What terms that cancel leave over is rounding, and changes at random. It may stay the same while
    one leaf moves by a unit of rounding, and at all points where f is linear. So all of x moves
    farther, and the probes with it, by what is too short for the derivative of a tail to change.
    """
    columns, found, comparison = trial.columns, trial.column, one.comparison
    seed, tried = columns.probes.seed, worst_entries(comparison, candidates)
    steady = np.zeros(candidates.size, bool)
    steady[tried] = True

    def left() -> RowsAtPoints:
        """Returns those that are steady so far."""
        return RowsAtPoints(trial, one.kind, [k for k in tried if steady[k]])

    def compare(rows: list[int], values: Vector) -> None:
        """Keeps those of these rows that are steady at one more point."""
        here = comparison.automatic[rows]
        steady[rows] = np.abs(values - here) < STEADY_PART * np.abs(here)

    for point in points_within_rounding(columns.problem, seed, found.tangent.leaves):
        automatic = left()
        if automatic.rows:
            compare(automatic.rows, automatic.at(point))
    eps = comparison.tolerance.eps
    if eps > COARSE_EPS or one.kind == "first":
        return steady
    random = generator(seed, Stream.RESIDUE)
    for point in points_around(columns.problem, seed, eps, RESIDUE_DISTANCES):
        automatic = left()
        take = partial(automatic.at, point, moved_by=random)
        values = attempt(take) if automatic.rows else None
        if values is not None:
            compare(automatic.rows, values)
    return steady


def _change_of_parts(automatic: RowsAtPoints, comparison: Comparison) -> Vector:
    """Returns how far the automatic values of these rows, taken of random parts of the probe, are
    from those parts of the values.

    Where the terms of a rule that cancel hardly depend on x, their rounding is the same at all
    points beside x, and another one for a part of the probe. Of half the probe it is exactly half:
    where that is not half of the value, the rule is not linear, which is no rounding. Nor is what
    is off by more than `LARGEST_OF_PARTS`. Costs one evaluation of the derivative, and four more
    where that one differs. Ours.
    """
    columns, rows = automatic.trial.columns, automatic.rows
    none = np.zeros(len(rows))
    here, off = comparison.automatic[rows], comparison.difference[rows]
    fine = off <= LARGEST_OF_PARTS * comparison.largest[rows]
    # A part of a probe has more digits than sixteen bits hold.
    if comparison.tolerance.coarsest > COARSE_EPS or not fine.any():
        return none
    random = generator(columns.probes.seed, Stream.PARTS_OF_PROBES)

    def change(part: float) -> Vector:
        return np.nan_to_num(np.abs(automatic.at(None, part=part) - here), nan=np.inf)

    changes = change(random.uniform(LEAST_PART, 1))
    if not np.any(changes >= NOISY_PART**2 * off):
        return none
    linear = change(1 / 2) < NOISY_PART * off
    for _ in range(1, NOISY_DRAWS):
        changes = np.fmax(changes, change(random.uniform(LEAST_PART, 1)))
    return np.where(linear & fine, changes, 0.0)


def _points_nearby(columns: Columns, leaves: Collection[int], number: int = 0) -> Iterator[Vector]:
    """Yields two points at which these leaves are moved by a unit of rounding, another pair for
    each number, and twice as far.
    """
    t, seed = columns.tolerance, columns.probes.seed + number
    eps = t.eps if t.inside else 0.0
    return points_within_rounding(columns.problem, seed, leaves, eps, 2.0**number)


def _beside_in_others(automatic: RowsAtPoints) -> list[Vector]:
    """Returns the automatic values of these rows where all leaves but those of the column are moved
    by a unit of rounding; there are none where there are no others.

    The rounding of a derivative by the right-hand side of least squares is that of its matrix.
    """
    columns, own = automatic.trial.columns, automatic.trial.column.tangent.leaves
    others = [j for j in range(len(columns.problem.X.leaves)) if j not in own]
    return [automatic.at(point) for point in _points_nearby(columns, others)] if others else []


@dataclass(frozen=True)
class RowsAtPoints:
    """Some rows of a column, whose two sides are asked for at other points of X than x."""

    trial: Trial
    kind: RowKind
    rows: list[int]

    def at(
        self,
        place: Vector | Problem | None,
        *,
        moved_by: np.random.Generator | None = None,
        part: float = 1.0,
    ) -> Vector:
        """Returns the automatic values at a point of X, or at the x of another problem, or at x,
        for the same probes, or for those that `moved_by` makes `perturbed`. They are taken of this
        part of the probe.
        """
        columns, v = self.trial.columns, self.trial.column.vector
        base = columns.base.of or columns.base
        if isinstance(place, Problem):
            problem, point = place, place.origin
        else:
            problem, point = columns.problem, columns.problem.origin if place is None else place
        width = base.Y.size

        def probe(vector: Vector) -> Vector:
            if moved_by is not None:
                vector = perturbed(vector, moved_by, RESIDUE_DISTANCES[-1])
            return vector if part == 1 else part * vector

        if self.kind == "first":
            values = evaluate(problem, base, point, Purpose.ROUNDING)
            return np.array([values[:width] @ v[:width]])
        if self.kind == "each":
            forward = Forward(problem, point)
            image = forward.column(base, probe(v))[1] / part
            return columns.pushed(image, self.rows)
        reverse = base.reverse if place is None else columns.reverse_at(point, problem)
        return np.array(
            [reverse.row(base, probe(columns.cotangent(k))) @ v / part for k in self.rows]
        )

    def nearby(self, number: int = 0) -> list[Vector]:
        """Returns the automatic values where the leaves of the column are moved by a unit of
        rounding, at the pair of points of that number.
        """
        points = _points_nearby(self.trial.columns, self.trial.column.tangent.leaves, number)
        return [self.at(point) for point in points]

    def reference_at(self, point: Vector) -> Vector:
        """Returns the references at another point."""
        columns = self.trial.columns
        there = columns.estimator.at(point).along(self.trial.column.tangent)
        values = there.estimate.value[: columns.base.Y.size]
        return columns.row_values(self.kind, values)[self.rows]


def worst_entries(
    comparison: Comparison, mask: NDArray[np.bool_], most: int = Tally.KEPT
) -> list[int]:
    """Returns the entries within `mask` that differ most, by default as many as a tally keeps."""
    where = np.flatnonzero(mask)
    if where.size <= most:
        return [int(k) for k in where]
    gap = np.nan_to_num(comparison.difference[where], nan=np.inf)
    return [int(k) for k in where[np.argsort(-gap)[:most]]]

"""This module compares automatic values with references and decides what each difference means.

`decide` says of every entry of a comparison whether it passes, fails, or is open: the error bar of
its reference is too wide for either answer, or f has a kink. Nothing here evaluates f: a comparison
is made from numbers that are at hand, and the stages say which further numbers are worth their
evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    ACCURATE_PART,
    CANCELLATION_UNITS,
    COARSE_EPS,
    ENTRY_FLOOR,
    EXACT_UNITS,
    ITERATION_PART,
    ITERATION_ROOM,
    NARROW_NEGLIGIBLE_UNITS,
    NARROW_RTOL_EXPONENT,
    NEGLIGIBLE_PART,
    NEGLIGIBLE_TOLERANCES,
    RESOLUTION_EXPONENT,
    ROUNDED_UNITS,
    RTOL_EXPONENT,
    SATURATED_UNITS,
    SHARP_TOLERANCES,
    SIGNIFICANT_PART,
    UNDERFLOW,
    VISIBLE_KINK,
)
from adjudge.estimate import Slopes
from adjudge.findings import (
    Advice,
    AlsoWrong,
    Disagreement,
    Entry,
    Finding,
    IfItIterates,
    Meaning,
    ModesDisagree,
    Pair,
    Remedy,
    Saturated,
    Status,
    Verdict,
    relative_error,
    worst,
)
from adjudge.floats import Vector
from adjudge.problem import DOUBLE, Space, Tangent


@dataclass(frozen=True)
class Tolerance:
    """Says how far an automatic value may differ from its reference.

    Where the caller fixes neither `rtol` nor `atol`, both follow from the dtype and the error bar.
    What a caller allows comes on top of that: a difference within the error bar is no error,
    whatever is allowed, and neither is what rounding leaves of a zero.
    """

    eps: float
    """The spacing at 1 of the coarsest dtype that takes part."""
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    rounded: float = 0.0
    """The spacing at 1 to which derivatives are rounded, where that is coarser than what f computes
    with."""
    constants: float = 0.0
    """By which part a derivative may be off, where f is judged in a wider dtype than the caller's
    and the rule holds numbers in single precision that f has with more digits, or the other way
    round: that of a logarithm to base 2 by `log(x) / log(2)`, say. Without it a right rule fails.
    """
    of_x: float = 0.0
    """The spacing at 1 of the dtype in which x was given, where f is judged in a wider one. What
    stands still over less than some of these spacings moves all the time in the caller's dtype.
    Without it the derivative zero of a bisection to the last bit of float32 passes."""
    seen: float | None = None
    """The spacing at 1 of the coarsest dtype that is seen, where `eps` is that of a narrower one,
    which f was found to compute with inside. Error bars are as sharp as its rounding allows then,
    and no term of a derivative that is known to more digits may hide. Nor does a derivative count
    as zero beside that rounding: what cancels in double precision is as noisy, and a wrong
    derivative of it would pass where it has to stay open."""
    noisy: bool = False
    """Says whether the caller allows evaluations to differ by `nondet_tol`. An entry then counts as
    zero as far as that noise lets it show."""
    spread: float = 0.0
    """The absolute difference between two runs of one rule that is allowed beside rounding:
    `nondet_tol`, where runs were seen to differ within it."""
    exact: bool = False
    """Says whether the derivative is known to more digits than any dtype has, so that nothing has
    to be allowed but the rounding of the automatic side."""
    automatic: bool = field(init=False)
    """Says whether the caller fixed neither of the two numbers."""
    inside: bool = field(init=False)
    """Says whether f computes with a narrower dtype inside than is seen."""
    zero_eps: float = field(init=False)
    """The spacing at 1 by which a derivative may count as zero: that of what is seen."""
    double: bool = field(init=False)
    """Says whether all arithmetic is in double precision."""
    coarsest: float = field(init=False)
    """The spacing at 1 of what automatic numbers are rounded to."""
    relative: float = field(init=False)
    """The part of the derivative's size that is allowed beyond the error bar.

    It is `u^(1/2)` (1e-8) in float64. In narrower dtypes it is `u^(2/5)`, the square root of the
    accuracy `u^(4/5)` that an extrapolated central difference attains: 1.3e-3 in float32, 5e-2 in
    float16 and 0.11 in bfloat16. Of a dtype that is `inside` it is `u^(1/2)` again, since its noise
    is in the error bar."""
    ordinary: float = field(init=False)
    """What `relative` is beside a derivative that is not `exact`."""
    least: float = field(init=False)
    """The part of the derivative's size that is allowed beyond the error bar where `rtol` is larger
    than follows from the dtype, or where `atol` is given alone."""
    usual: float = field(init=False)
    """What `relative` is where f computes in the dtypes that are seen."""
    resolution: float = field(init=False)
    """The widest error bar, relative to the derivative, with which agreement still means something.

    It is `u^(1/4)`; the exponent is ours and has no derivation. Without this limit a derivative of
    the wrong sign would agree with any difference that is noisy enough."""
    identity: float = field(init=False)
    """The relative difference that is allowed between two ways to compute the same automatic
    number.

    It is `sqrt(eps)`: rounding, amplified by a condition number that may be as large as `1 /
    sqrt(eps)`. It is `rtol` where the caller gives a larger one, for a function that iterates."""

    def __post_init__(self) -> None:
        """Computes what follows from the rest."""
        double, usual, coarsest = self.eps <= DOUBLE, self.rtol, max(self.eps, self.rounded)
        automatic = usual is None and self.atol is None
        ordinary = part = (self.eps / 2) ** (RTOL_EXPONENT if double else NARROW_RTOL_EXPONENT)
        part = min(part, EXACT_UNITS * coarsest) if self.exact else part
        least = max(part, ROUNDED_UNITS * self.rounded, self.constants)
        if usual is None:
            usual = least
        else:
            ordinary, least = usual, min(usual, least)
        sharp = (self.eps / 2) ** RTOL_EXPONENT
        vars(self).update(
            automatic=automatic,
            inside=self.seen is not None,
            zero_eps=self.eps if self.seen is None else self.seen,
            double=double,
            coarsest=coarsest,
            relative=min(sharp, usual) if self.seen is not None and automatic else usual,
            ordinary=ordinary,
            least=least,
            usual=usual,
            resolution=(self.eps / 2) ** RESOLUTION_EXPONENT,
            identity=max(math.sqrt(coarsest), self.rtol or 0.0),
        )


@dataclass(frozen=True)
class Scales:
    """The magnitudes against which entries are measured that do not agree at once."""

    secant: Vector
    """The size that the derivative would have if f varied by its own value over the scale of x. A
    derivative below a few units of rounding of this is zero for all that f can show."""
    quantum: Vector
    """The smallest derivative that moves the output by one unit of rounding of its leaf at the step
    that was taken."""
    block: Vector
    """The largest derivative between the same input leaf and the same output leaf."""
    weight: float = 1.0
    """The norm of the probes, by which an `atol` that the caller fixed is multiplied, since it is
    meant for a single entry."""


@dataclass(frozen=True)
class Comparison:
    """The entries of one column of the table: automatic values, references and error bars side by
    side.

    All vectors have one length. Every property is a mask or a magnitude by entry, and is computed
    only when it is asked for, since most comparisons agree at the first glance.
    """

    automatic: Vector
    reference: Vector
    error: Vector
    size: Vector
    """`S`, the size of the derivative along this probe: the scale of `rtol`."""
    moved: NDArray[np.bool_]
    """Says whether the outputs changed at all between the samples."""
    tolerance: Tolerance
    make_scales: Callable[[], Scales]
    """Makes `scales`, which most comparisons do without."""
    projected: bool = False
    """Says whether `automatic` is a sum over entries of x. `size` is then the root of the sum of
    the squares of its terms, which does not vanish where the terms cancel."""
    significant_part: float = SIGNIFICANT_PART
    """The part of `rtol` beyond which a deviation is significant; see `SIGNIFICANT_PART`."""
    left_open: NDArray[np.bool_] | None = None
    """The entries of which a further search found that f cannot show their value; they stay
    undecided."""
    residue: NDArray[np.bool_] | None = None
    """The entries of which a further search found that they are what rounding leaves of terms that
    cancel: zero for all that can be told."""
    by_mean: NDArray[np.bool_] | None = None
    """The entries of which f shows no more than its motion over a longer step does; see
    `MeanSlopes`."""
    rounded_rule: NDArray[np.bool_] | None = None
    """The entries that are right in exact arithmetic, where rounding takes many digits of what the
    rule makes of them; see `ReplayedRules`."""
    unseen: NDArray[np.bool_] | None = None
    """The entries that agree and are so far below the rounding of f, beside what other inputs move,
    that no difference could show them; see `Tally.saturated`."""
    jumping: NDArray[np.bool_] | None = None
    """The entries that agree only since their automatic value is another one next to x, where it
    stays the same: that is no rounding."""
    from_reference: bool = False
    """Says whether the reference was given by the caller in place of differences. It then has
    digits where f has none, and nothing is excused because f could not show it."""

    @cached_property
    def scales(self) -> Scales:
        """The magnitudes of these entries; see `Scales`."""
        return self.make_scales()

    @cached_property
    def agrees_clearly(self) -> bool:
        """Says whether all entries agree beyond doubt, so that the two evaluations made so far are
        enough.

        Agreement alone is not enough for that: a difference whose rounding is as large as the
        derivative agrees with anything. Each error bar must therefore be fine enough to show an
        error of `rtol` (16 times `rtol` in a projection, whose bar adds up those of many entries;
        the factor is ours), the outputs must have moved, and the automatic value must not be zero.
        An entry that is exactly zero on both sides counts as well, provided that some other entry
        moved.
        """
        t = self.tolerance
        if not t.automatic:
            return False
        close = self.difference <= self.significance_bound
        fine = SHARP_TOLERANCES * t.relative if self.projected else t.resolution
        sharp = self.error <= min(fine, t.resolution) * self.largest
        # Every bar is fine beside an infinity.
        known = np.isfinite(self.automatic)
        detectable = close & sharp & self.moved & (self.automatic != 0) & known
        if detectable.all():
            return True
        still = ~self.moved & (self.automatic == 0) & (self.reference == 0)
        return bool((detectable | still).all() and detectable.any())

    def doubtful(self, *, projected: bool) -> NDArray[np.bool_]:
        """The entries that two evaluations do not settle: those that disagree, that vanish though f
        moves, and where outputs are `projected` those among which one wrong entry would not show.
        """
        doubtful = ~self.agrees | self.vanishing
        return doubtful | self.coarse | self.significant if projected else doubtful

    @cached_property
    def difference(self) -> Vector:
        """`|automatic - reference|`; NaN where either of the two is NaN."""
        return np.asarray(np.abs(self.automatic - self.reference))

    @cached_property
    def largest(self) -> Vector:
        """The magnitude that relative tolerances refer to. For a projection it is `S`, so that one
        wrong entry counts as much whatever the terms of the sum add up to.
        """
        if self.projected and (self.size > 0).all():  # as in most projections
            return self.size
        whole = np.maximum(self.size, np.maximum(abs(self.automatic), abs(self.reference)))
        return np.where(self.size > 0, self.size, whole) if self.projected else whole

    @cached_property
    def allowed(self) -> Vector:
        """The largest `difference` that is accepted."""
        t = self.tolerance
        if not t.automatic:
            unseen = self.error + t.least * self.largest + UNDERFLOW
            return np.asarray(np.fmax(self.given, unseen))
        part = t.relative * self.largest
        if t.exact:  # what the rounding of f's own values makes of a derivative, within the usual
            known = EXACT_UNITS * t.eps * self.scales.secant
            # Values that are not finite say nothing of rounding.
            part = np.maximum(part, np.fmin(known, t.ordinary * self.largest))
        if t.constants:  # each is off to the same side in all terms of a projection
            whole = np.fmax(np.abs(self.automatic), np.abs(self.reference))
            part = np.maximum(part, t.constants * whole)
        allowed = self.error + part + UNDERFLOW
        return allowed + t.spread * self.scales.weight if t.spread else allowed

    @cached_property
    def by_values(self) -> NDArray[np.bool_]:
        """The entries that agree beside an exact reference only since the rounding of f's own
        values may be in them.
        """
        t = self.tolerance
        if not (t.exact and t.automatic):
            return np.zeros(self.automatic.size, bool)
        own = self.error + t.relative * np.maximum(self.largest, self.rounded_with) + UNDERFLOW
        beyond = (self.difference > own) & ~self._rounded_zero
        return np.asarray(self.agrees & self.moved & beyond & ~self.equal_nans)

    def without_values(self, entries: NDArray[np.bool_]) -> Comparison:
        """Returns the comparison in which the rounding of f's values is not allowed to these."""
        if not np.any(entries):
            return self
        scales = replace(self.scales, secant=np.where(entries, 0.0, self.scales.secant))
        return replace(self, make_scales=lambda: scales)

    @cached_property
    def given(self) -> Vector:
        """The difference that the caller accepts, however well it shows: `atol` and `rtol`."""
        t = self.tolerance
        part = (t.rtol or 0.0) * np.abs(self.reference)
        return np.asarray((t.atol or 0.0) * self.scales.weight + part)

    @cached_property
    def equal_nans(self) -> NDArray[np.bool_]:
        """The entries at which equal NaNs or infinities pass, because the caller asked for that."""
        a, r = self.automatic, self.reference
        same = (np.isnan(a) & np.isnan(r)) | ((a == r) & ~np.isfinite(a))
        return same if self.tolerance.equal_nan else np.zeros_like(same)

    @cached_property
    def agrees(self) -> NDArray[np.bool_]:
        """The entries whose difference is allowed."""
        finite = np.isfinite(self.automatic) & np.isfinite(self.reference)
        close = self.difference <= self.allowed
        # An automatic value that is too small to move a rounded output agrees with an output
        # that stood still.
        close |= ~self.moved & (np.abs(self.automatic) <= self.scales.quantum)
        # A tangent with huge entries multiplies numbers that have underflowed, so the smallest
        # number is scaled with it.
        if not np.all(close):
            close |= self.difference <= UNDERFLOW * self.scales.weight
        if self.tolerance.exact and not np.all(close):
            close |= self.difference <= self.allowed + self.tolerance.relative * self.rounded_with
        if self.from_reference:
            close |= self._rounded_zero
        return (finite & close) | self.equal_nans

    @cached_property
    def rounded_with(self) -> Vector:
        """The sizes of the numbers with which an automatic derivative was rounded: the whole of a
        projection, or else the largest of the column, where it is of the same leaves.

        Without it the entries of a matrix would fail beside an exact reference, that are small
        beside others which a product or a sum adds up with them: backward errors are bounded by
        norms, not entry by entry (Higham 2002, chapters 3 and 7). What depends on one entry of x
        alone, in a tail as well, has no other beside it.
        """
        sizes = np.maximum(np.abs(self.automatic), np.abs(self.reference))
        if self.projected:
            return sizes
        largest = np.max(sizes, where=np.isfinite(sizes), initial=0.0)
        return np.asarray(np.minimum(largest, self.scales.block))

    @cached_property
    def _rounded_zero(self) -> NDArray[np.bool_]:
        """The entries that a reference knows to be zero, while the automatic value is what rounding
        leaves of numbers as large as f.

        Without this rule a derivative that cancels to rounding would fail beside an exact
        reference, since the relative error of a nonzero number against zero is infinite.
        """
        t, size = self.tolerance, np.abs(self.automatic)
        bar = self.error <= t.resolution * size
        zero = bar & (np.abs(self.reference) <= self.error + 2.0**-52 * size)
        return np.asarray(zero & (size <= SATURATED_UNITS * t.eps * self.scales.secant))

    @cached_property
    def negligible(self) -> NDArray[np.bool_]:
        """The entries whose automatic value is zero for all that can be told: a move of x by its
        own scale would change f by a few units of rounding, or the value vanishes beside the rest
        of its block.

        An error bar that is wide against such a value says nothing against it, so the value may
        pass.
        """
        # Sums in double precision leave several units of rounding. In a dtype that the user
        # chose for being narrow, 16 units would hide derivatives that matter; both numbers are
        # ours.
        eps = self.tolerance.zero_eps
        units = SATURATED_UNITS if eps <= DOUBLE else NARROW_NEGLIGIBLE_UNITS
        rounding = units * eps * self.scales.secant
        small = max(ENTRY_FLOOR, min(NEGLIGIBLE_PART, NEGLIGIBLE_TOLERANCES * self.tolerance.usual))
        bound = np.maximum(rounding, small * self.scales.block)
        return np.asarray(np.abs(self.automatic) <= bound)

    @cached_property
    def saturated(self) -> NDArray[np.bool_]:
        """The entries whose derivative lies below the rounding of f: a move of x by its own scale
        would change f by no more than 16 units of rounding, while the value is not small beside its
        block.

        `sigmoid` at 40 is such a case: two evaluations show zero whether its derivative is right or
        not, so the stages look at these entries before they are believed.
        """
        unit = self.tolerance.zero_eps * self.scales.secant
        below = abs(self.automatic) <= SATURATED_UNITS * unit
        beside = (self.automatic == 0) | (abs(self.automatic) > ENTRY_FLOOR * self.scales.block)
        return np.asarray(below & beside)

    def may_be_residue(self, beside: Vector) -> NDArray[np.bool_]:
        """Marks the entries whose difference is zero within a bar that would show any derivative of
        note, and whose automatic value may be what rounding leaves of terms that cancel.

        Both are measured by f over the scale of x, by the other entries, and by the derivative that
        would move f as much as all inputs do (`beside`). The terms may be far larger than these;
        see `CANCELLATION_UNITS`.
        """
        t, scales = self.tolerance, self.scales
        whole = np.fmax(np.maximum(scales.secant, scales.block), beside)
        small = np.abs(self.automatic) <= CANCELLATION_UNITS * t.eps * whole
        zero = np.abs(self.reference) <= self.error
        return np.asarray(small & zero & (self.error <= t.relative * whole))

    @cached_property
    def undecided(self) -> NDArray[np.bool_]:
        """The entries whose error bar is too wide for agreement or disagreement to mean anything.

        A wrong derivative would be accepted there as readily as a right one, so these entries make
        the check INCONCLUSIVE. Entries that are zero for all that f can show are exempt; they would
        otherwise leave every check of a function with unread inputs open.
        """
        t = self.tolerance
        # At a vertical tangent (`sqrt` at 0) differences grow without end, and infinity is right.
        endless = ~np.isfinite(self.error) & ~np.isfinite(self.automatic)
        missing = ~np.isfinite(self.reference) | endless
        if np.any(missing):
            # Where f is not finite along this column, its derivative need not be finite either, and
            # zero times infinity is NaN in others.
            missing = missing | ~np.isfinite(self.automatic)
        reference_missing = missing & ~self.equal_nans
        wide = self.error > t.resolution * self.largest
        if not t.automatic:
            reference_missing &= ~np.isfinite(self.automatic)
        # A given reference resolves every entry, however small. A zero stands where the reference
        # never moves.
        if self.from_reference:
            wide &= ((self.automatic != 0) | self.moved) & ~self._rounded_zero
            wide &= ~self._known_otherwise
            return np.asarray(reference_missing | (self._left_to_bars & wide))
        # In sixteen bits the error bar exceeds every small derivative, and nearly all checks
        # would stay open.
        small = self.negligible | (t.eps > COARSE_EPS)
        visible = t.resolution if t.noisy else t.usual
        wide &= ~(small & (self.error <= visible * self.scales.secant))
        wide &= ~(self.negligible & (self.error <= t.usual * self.scales.block))
        # A value that is too small to move the rounded output, and not small beside the others,
        # is hidden.
        rounding_level = (np.abs(self.automatic) <= self.scales.quantum) & ~self.negligible
        still = ~self.moved
        wide = (wide & ~still) | ((self.automatic != 0) & (wide | rounding_level) & still)
        wide &= ~self._known_otherwise
        if self.left_open is not None:
            wide = wide | self.left_open
        return np.asarray(reference_missing | (self._left_to_bars & wide))

    @property
    def _known_otherwise(self) -> NDArray[np.bool_]:
        """The entries of which a further search says enough, however wide their error bars are."""
        known = np.zeros(self.automatic.size, bool)
        for found in (self.residue, self.by_mean):
            if found is not None:
                known |= found
        return known

    @property
    def _left_to_bars(self) -> NDArray[np.bool_]:
        """The entries that agree, where the caller accepts no difference as large as theirs."""
        agreeing = self.agrees & ~self.equal_nans
        if self.tolerance.automatic:
            return agreeing
        return np.asarray(agreeing & ~(self.difference <= self.given))

    @cached_property
    def significance_bound(self) -> Vector:
        """The largest difference that is not `significant`."""
        t = self.tolerance
        bound = self.error + self.significant_part * t.relative * self.largest
        return bound + t.spread * self.scales.weight if t.spread else bound

    @cached_property
    def significant(self) -> NDArray[np.bool_]:
        """The entries whose difference is allowed and yet lies farther outside of the error bar
        than rounding explains. A single wrong entry among many looks like this in a projection.
        """
        t = self.tolerance
        beyond = self.difference > self.significance_bound
        return np.asarray(self.agrees & t.automatic & beyond & ~self.equal_nans)

    @cached_property
    def coarse(self) -> NDArray[np.bool_]:
        """The entries whose error bar would hide an error that the tolerance should show."""
        wide = self.error > SHARP_TOLERANCES * self.tolerance.relative * self.largest
        return np.asarray(self.moved & wide)

    @cached_property
    def vanishing(self) -> NDArray[np.bool_]:
        """The entries whose automatic value is zero although f moves by what may be more than
        rounding.
        """
        return np.asarray(self.moved & (self.automatic == 0) & (self.error > 0))

    def rounding_level(self, k: int) -> float:
        """Returns the derivative that the rounding of f alone amounts to over the scale of x, where
        entry `k` is smaller than that or was left open; 0 elsewhere. The report prints it to say
        why nothing was shown.
        """
        if self.from_reference:
            return 0.0
        rounding = float(self.tolerance.eps * self.scales.secant[k])
        opened = self.left_open is not None and bool(self.left_open[k])
        small = rounding > self.tolerance.resolution * float(self.largest[k])
        return rounding if opened or small else 0.0

    def loses_digits(self, k: int) -> bool:
        """Returns whether rounding takes many digits of what a right rule makes of entry `k`."""
        return self.rounded_rule is not None and bool(self.rounded_rule[k])

    @cached_property
    def fails(self) -> NDArray[np.bool_]:
        """The entries whose automatic value is wrong."""
        return ~self.agrees & ~self.undecided

    @property
    def deviation(self) -> float:
        """The largest relative deviation of an entry that agrees."""
        agree = self.agrees & ~self.undecided & self.moved & (self.largest > 0)
        largest = np.where(agree, self.largest, 1.0)
        return float(np.max(self.difference / largest, initial=0.0, where=agree))

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """The entries whose error bar is fine beside them. One that is zero to the resolution of f
        has no relative accuracy to speak of.
        """
        known = self.error <= self.tolerance.resolution * self.largest
        return known if self.by_mean is None else known | self.by_mean

    @property
    def resolution(self) -> float:
        """The largest relative error that would still have been accepted at any entry."""
        if self.agrees_clearly:
            ratio = (self.difference + self.error) / self.largest
            return float(np.max(ratio, initial=0.0, where=self.moved))
        size = self.largest
        exact = (self.reference == 0) & (self.error == 0) & (self.difference > 0)
        if np.any(exact):
            # Rounding that stands where the derivative is zero is 100 % of itself, and says
            # something only beside the other entries.
            size = np.where(exact, np.fmax(size, self.scales.block), size)
        ratio = self.difference + np.where(np.isfinite(self.error), self.error, 0.0)
        ratio = np.where(size > 0, ratio / np.where(size > 0, size, 1.0), 0.0)
        known = self.known | (self.error <= self.tolerance.resolution * size)
        ratio = ratio[self.agrees & ~self.undecided & known & np.isfinite(ratio)]
        return float(ratio.max()) if ratio.size else 0.0


@dataclass(frozen=True)
class Decision:
    """One comparison decides this, entry by entry. Each entry is marked in one mask at most, and
    passes where it is marked in none; `open_reason` says why one is open.
    """

    fails: NDArray[np.bool_]
    """The entries whose automatic value is wrong."""
    undecided: NDArray[np.bool_]
    """The entries that are open since their error bar is too wide."""
    kinks: NDArray[np.bool_]
    """The entries that are open since f has a kink, and the value lies between its slopes, or since
    the automatic value jumps at x."""
    unsettled: bool = False
    """Says whether one of `kinks` can be settled by nothing but another x."""

    @property
    def open(self) -> NDArray[np.bool_]:
        """The entries that are open for either reason."""
        return self.undecided | self.kinks


def decide(comparison: Comparison, slopes: Slopes | None = None) -> Decision:
    """Decides every entry of a comparison: PASS, FAIL or open.

    `slopes` are those to both sides of x of what is compared, where f has a kink there. Nothing is
    evaluated or counted here.
    """
    fails, undecided = comparison.fails, comparison.undecided
    jumping = np.zeros_like(fails) if comparison.jumping is None else comparison.jumping & ~fails
    if slopes is None:
        return Decision(fails, undecided & ~jumping, jumping)
    slopes = slopes.part(slice(0, fails.size))
    # What agrees with the mean of two slopes that differ visibly is at a kink all the same.
    visible = np.abs(slopes.half_gap) > VISIBLE_KINK * comparison.largest
    doubted = fails | undecided | (slopes.kinks & visible)
    kinks, unsettled = slopes.explain(doubted, comparison.automatic, comparison.allowed)
    kinks |= jumping
    return Decision(fails & ~kinks, undecided & ~kinks, kinks, unsettled)


ERRORS = (1e-2, 1e-4, 1e-6)
"""The relative errors of a single entry for which the report says how likely they would
have shown."""


@dataclass
class Power:
    """How many of some entries would show if they were off by each of `ERRORS`."""

    levels: dict[Hashable, NDArray[np.int8]] = field(default_factory=dict)
    """By sum, or by column, a number for each entry: zero where it has no part in what is compared,
    and else one more than the number of `ERRORS` that would show."""

    def weigh(
        self,
        key: Hashable,
        parts: Vector,
        bound: Vector,
        *,
        of: tuple[int, slice] | None = None,
        again: bool = False,
    ) -> int:
        """Counts the entries that would show, and returns how many would not show at the largest of
        `ERRORS`.

        `parts` are the terms of the compared sums, and `bound` is what each sum may differ by
        before it is traced to its entries. They are all entries of `key`, or a slice `of` so many.
        What is compared `again` shows where it does either time, and no other entries count.
        """
        sizes = np.abs(parts)
        levels = (sizes != 0).astype(np.int8)
        for error in ERRORS:
            levels += sizes > bound / error
        size, part = of or (sizes.size, slice(None))
        known = self.levels.setdefault(key, np.zeros(size, np.int8))[part]
        np.maximum(known, levels, out=known, where=(known > 0) if again else True)
        return int(np.count_nonzero(levels == 1))

    def counts(self) -> tuple[int, int, list[int]]:
        """Returns how many entries there are, with those that have no part in what was compared
        since they are zero; how many have one; and how many would show, for each of `ERRORS`.
        """
        entries, reached = 0, [0] * (len(ERRORS) + 1)
        for levels in self.levels.values():
            entries += levels.size
            for k in range(len(reached)):
                reached[k] += int(np.count_nonzero(levels > k))
        return entries, reached[0], reached[1:]


@dataclass
class Tally:
    """The comparisons of one mode so far: all of them are counted, and the worst are kept."""

    mode: str
    compared: int = 0
    failed: int = 0
    undecided: int = 0
    kinks: int = 0
    resolution: float = 0.0
    rounded: float = 0.0
    """The largest relative deviation that was accepted as the rounding of the automatic side."""
    nonzero: int = 0
    known: int = 0
    """The number of entries that are not zero, and whose error bar is fine beside them."""
    vague: int = 0
    """The number of entries that f moves, and whose error bar is not."""
    inputs: Power = field(default_factory=Power)
    """The entries of reverse mode whose part in a comparison was measured."""
    outputs: Power = field(default_factory=Power)
    """The outputs whose part in a projection was measured."""
    wrong: list[Entry] = field(default_factory=list)
    traced: list[Entry] = field(default_factory=list)
    """The projections that gave way to the wrong entries behind them. A wrong formula may be off by
    little in the entry that was found."""
    open: list[Entry] = field(default_factory=list)
    spurious: list[Entry] = field(default_factory=list)
    """Wrong entries with a derivative where the function does not move at all."""
    detached: list[Entry] = field(default_factory=list)
    """Wrong entries of outputs for which the engine recorded nothing."""
    missing: list[Entry] = field(default_factory=list)
    """Wrong entries for which the engine has no derivative."""
    saturated: int = 0
    """The number of entries that are neither zero nor left open, and lie below the rounding of f:
    they were accepted beside larger entries, and no difference has seen them."""
    saturated_example: tuple[str, float] = ("", 0.0)
    """One of the saturated entries, by its name and value."""
    proved: int = 0
    """How many of the compared entries agree with an interval that is proven to contain the
    derivative."""
    certificate: Entry | None = None
    """The comparison with such an interval that agrees least closely."""

    KEPT = 8

    @property
    def nothing_to_tell(self) -> bool:
        """Says whether every entry was settled, and none is worth a note."""
        kept = self.wrong or self.open or self.spurious or self.detached or self.missing
        return not (kept or self.saturated)

    def count_saturated(self, count: int, name: str, value: float) -> None:
        """Counts entries below the rounding of f, of which one has this name and value."""
        if not self.saturated:
            self.saturated_example = name, value
        self.saturated += count

    def leave_open(self) -> None:
        """Counts what fails as undecided."""
        self.undecided, self.failed = self.undecided + self.failed, 0

    def keep(self, entries: list[Entry], entry: Entry) -> None:
        """Keeps `entry` among the worst of `entries`; the worst of each input go before others."""
        entries.append(entry)
        entries.sort(key=lambda e: -e.excess)
        if len(entries) > self.KEPT:
            inputs = [e.input for e in entries]
            again = [k for k, name in enumerate(inputs) if name in inputs[:k]]
            del entries[again[-1] if again else -1]


def mode_verdict(tally: Tally, findings: Sequence[Finding]) -> Verdict:
    """Returns the verdict of one mode, from its comparisons and the findings about it."""
    own = [finding.verdict for finding in findings if finding.mode == tally.mode]
    if tally.failed:
        own.append(Verdict.FAIL)
    if tally.undecided or tally.kinks:
        own.append(Verdict.INCONCLUSIVE)
    return worst([Verdict.PASS, *own])


def findings_of(
    tally: Tally,
    provenance: str,
    mistake: str = "",
    also: AlsoWrong | None = None,
    *,
    alone: bool | None = None,
    silent: bool = False,
) -> list[Finding]:
    """Returns what the disagreeing entries of one mode amount to.

    `mistake` is the likely mistake, and `also` what is wrong beside the first entry; both belong to
    the first finding. The first entry is `alone` where a projection was traced to nothing else; by
    default where one comparison failed of several. An output is `silent` that has a derivative with
    respect to no input.
    """
    found = []
    for status, meaning, entries in (
        (Status.MISMATCH, Meaning.WRONG, tally.wrong),
        (Status.SPURIOUS, Meaning.SPURIOUS, tally.spurious),
        (Status.DETACHED, Meaning.DETACHED, tally.detached),
        (Status.MISSING, Meaning.MISSING, tally.missing),
    ):
        if not entries:
            continue
        accuracy = _accuracy(tally) if meaning is Meaning.WRONG and not mistake else None
        detail = Disagreement(
            entries[0], meaning, tally.failed, tally.compared, provenance, mistake, accuracy, also
        )
        remedy: Advice | None = _REMEDIES.get(meaning)
        # Beside an interval a right derivative of what the program approximates fails by that
        # alone, in whichever entries it is off by more than rounding.
        proved = entries[0].enclosure is not None
        if alone is None:
            alone = tally.failed == 1 < tally.compared
        if meaning is Meaning.WRONG and silent:
            remedy = Remedy.LEAVE_OUTPUT_OUT
        elif meaning is Meaning.WRONG and not np.isfinite(entries[0].automatic):
            remedy = Remedy.GUARD_BRANCHES
        elif meaning is Meaning.WRONG and not tally.missing:
            # An iteration may converge last in one entry or one row, which looks like a mistake.
            close = _accuracy(tally) is not None
            if proved or close or not (mistake or alone):
                remedy = _if_it_iterates(entries, tally.traced)
        found.append(Finding(status, tally.mode, entries[0].name, detail, remedy))
        mistake, also = "", None
    seen: set[tuple[Status, Meaning]] = set()
    for entry in tally.open:
        status, meaning, way_out = open_reason(entry)
        # An entry that rounding hides is told once, whichever doubt it stands for.
        kind = status, Meaning.SATURATED if entry.rounding_level else meaning
        if kind not in seen:
            seen.add(kind)
            count = tally.undecided + tally.kinks
            detail = Disagreement(entry, meaning, count, tally.compared, provenance)
            found.append(Finding(status, tally.mode, entry.name, detail, way_out, open=True))
    if tally.saturated and not tally.failed and not tally.undecided:
        # This is a note, since the entries beside these are judged.
        saturated = Saturated(tally.saturated, *tally.saturated_example)
        remedy = Remedy.GIVE_REFERENCE_FOR_SATURATED
        found.append(Finding(Status.UNCHECKED, tally.mode, "", saturated, remedy, note=True))
    return found


_REMEDIES = {
    Meaning.SPURIOUS: Remedy.DECLARE_SURROGATE,
    Meaning.DETACHED: Remedy.NAME_OUTPUTS,
    Meaning.MISSING: Remedy.FIND_CUT,
}


def open_reason(entry: Entry) -> tuple[Status, Meaning, Remedy]:
    """Returns what leaves an entry undecided, and what to do about it."""
    slopes = entry.slopes
    if slopes is not None:
        meaning, remedy = Meaning.KINK, Remedy.MOVE_OFF_KINK
        if np.isinf(slopes[0]):
            meaning = Meaning.SWITCH if entry.from_reference else Meaning.JUMP
            remedy = Remedy.MOVE_OFF_JUMP
        elif np.isnan(entry.automatic):
            meaning = Meaning.NAN_AT_KINK
        elif slopes[0] == slopes[1] or not (
            min(slopes) - entry.allowed <= entry.automatic <= max(slopes) + entry.allowed
        ):
            meaning = Meaning.KINK_ELSEWHERE
        elif entry.allowed > max(slopes) - min(slopes) and not (
            min(slopes) <= entry.automatic <= max(slopes)
        ):
            meaning = Meaning.WIDE_AT_KINK
        return Status.NONSMOOTH, meaning, remedy
    if np.isfinite(entry.reference) and not np.isfinite(entry.automatic):
        return Status.NONSMOOTH, Meaning.ENDLESS, Remedy.MOVE_OFF_TANGENT
    if not np.isfinite(entry.reference) and entry.from_reference:
        return Status.NONFINITE, Meaning.NO_REFERENCE, Remedy.MOVE_OFF_TANGENT
    if not np.isfinite(entry.reference):
        return Status.NONFINITE, Meaning.NOT_FINITE, Remedy.MOVE_INTO_DOMAIN
    if entry.rounding_level:
        return Status.UNRESOLVED, Meaning.SATURATED, Remedy.GIVE_REFERENCE
    if entry.enclosure is not None:
        return Status.UNRESOLVED, Meaning.OWN_ROUNDING, Remedy.KEEP_DIGITS
    if entry.rounded_rule:
        return Status.UNRESOLVED, Meaning.LOST_DIGITS, Remedy.KEEP_DIGITS
    if entry.from_reference:
        return Status.UNRESOLVED, Meaning.WIDE_REFERENCE, Remedy.SHARPEN_REFERENCE
    return Status.UNRESOLVED, Meaning.WIDE, Remedy.WIDEN_DTYPE


def _if_it_iterates(entries: Sequence[Entry], projections: Sequence[Entry]) -> IfItIterates | None:
    """Returns advice for a function that iterates to a tolerance, where wrong entries, and the
    projections that they lie behind, are off by a small part of their size and follow no pattern;
    else `None`.

    An ODE solver that adapts its steps and a fixed point that is stopped early are off by about
    their tolerance, and so is a derivative that is that of the exact solution. The FAIL is true of
    the code, but a reader would look for a wrong formula.
    """
    gap = max(abs(entry.automatic - entry.reference) for entry in entries)
    size = max(max(abs(entry.automatic), abs(entry.reference)) for entry in entries)
    if not (0 < gap <= ITERATION_PART * size < np.inf):
        return None
    # The terms of a projection may cancel, so that it is off by a larger part than each of them.
    most = max(ITERATION_PART, ITERATION_ROOM**2 * gap / size)
    if any(_part_off(one) > most for one in projections):
        return None
    return IfItIterates(gap / size, ITERATION_ROOM * gap)


def _part_off(entry: Entry) -> float:
    """Returns by which part of itself an entry is off, beside the larger of its two values."""
    size = max(abs(entry.automatic), abs(entry.reference))
    return abs(entry.automatic - entry.reference) / size if size else np.inf


def _accuracy(tally: Tally) -> float | None:
    """Returns how accurate the wrong entries are, where all that are kept, and the projections that
    they lie behind, are accurate to some digits.
    """
    parts = [_part_off(one) for one in (*tally.wrong, *tally.traced)]
    # A NaN is no small part, and the largest of some numbers may pass over it.
    return max(parts) if all(part <= ACCURATE_PART for part in parts) else None


def identity_findings(tally: Tally) -> list[Finding]:
    """Returns the finding that forward and reverse mode disagree, if they do."""
    if not tally.wrong:
        return []
    entry = tally.wrong[0]
    detail = ModesDisagree(entry.automatic, entry.reference, tally.failed, tally.compared)
    return [Finding(Status.INCONSISTENT, entry.mode, entry.name, detail)]


# ---- Comparisons by pair of an output and an input, for the report of a check that does not pass

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
                sums.verdict = worst([sums.verdict, verdict])
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

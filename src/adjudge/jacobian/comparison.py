"""One automatic value against one reference, and what the difference means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adjudge.floats import SHORT, Vector

SIGNIFICANT = 1 / 4
"""Part of the tolerance beyond which a deviation from a projection is traced to its entries."""

UNDERFLOW = float(np.finfo(np.float64).tiny)
"""Subnormal numbers count as zero: products of them have lost their digits."""

FLOOR = 1e-4
"""Beside the largest entry of its column or block an entry smaller than this counts as small: two
evaluations compare it on that scale (the truncation error of a difference follows its neighbours);
a ladder of steps compares every entry on its own."""


@dataclass(frozen=True)
class Tolerance:
    """What may differ. `None` for `rtol` and `atol` means: from the dtype and the error bar."""

    eps: float
    """Spacing at 1 of the coarsest dtype involved."""
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    noisy: bool = False
    """Whether the caller allows evaluations to differ: zero is then what the noise lets through."""

    @property
    def automatic(self) -> bool:
        """Whether neither number was fixed by the caller."""
        return self.rtol is None and self.atol is None

    @property
    def relative(self) -> float:
        """float64: `u^(1/2)`, 1e-8. Else `u^(2/5)`, the square root of the accuracy `u^(4/5)` that
        extrapolated central differences attain: float32 1.3e-3, float16 5e-2, bfloat16 0.11.
        """
        if self.rtol is not None:
            return self.rtol
        if self.atol is not None:
            return 0.0
        return float((self.eps / 2) ** (0.5 if self.double else 0.4))

    @property
    def double(self) -> bool:
        """Whether all arithmetic is in double precision."""
        return bool(self.eps <= np.finfo(np.float64).eps)

    @property
    def resolution(self) -> float:
        """The coarsest error bar with which agreement still means something: `u^(1/4)`."""
        return float((self.eps / 2) ** 0.25)

    @property
    def identity(self) -> float:
        """What two ways to the same automatic number may differ by, relative to their size:
        `sqrt(eps)`, rounding with a condition number up to as much again.
        """
        return float(np.sqrt(self.eps))


@dataclass(frozen=True)
class Scales:
    """What doubtful entries of a comparison are measured against."""

    secant: Vector
    """Variation of f per unit of the probe if it were as large as f itself: a derivative far
    below it is zero to the resolution of f."""
    quantum: Vector
    """Smallest derivative that moves the output by a unit of rounding of its leaf."""
    block: Vector
    """The largest derivative between the same leaves."""
    weight: float = 1.0
    """Norm of the probes, by which a fixed `atol` counts."""


@dataclass(frozen=True)
class Comparison:
    """Entries of one column of the table, side by side, all of one length."""

    automatic: Vector
    reference: Vector
    error: Vector
    size: Vector
    """`S`: the size of the derivative along this probe, against which `rtol` is measured."""
    moved: NDArray[np.bool_]
    tolerance: Tolerance
    make_scales: Callable[[], Scales]
    """Makes `scales`, which most comparisons do without."""
    projected: bool = False
    """Whether `automatic` is a sum over entries of which `size` is the root of the squares."""
    left_open: NDArray[np.bool_] | None = None
    """Where it was found that f cannot show the value."""

    from_reference: bool = False
    """Whether the reference shows every digit of what f cannot show."""

    @cached_property
    def scales(self) -> Scales:
        """See `Scales`."""
        return self.make_scales()

    @cached_property
    def agrees_clearly(self) -> bool:
        """Whether all entries agree beyond doubt, at a glance: none is coarse, and where the
        automatic value is zero f does not move, though it moves elsewhere.
        """
        t = self.tolerance
        if not t.automatic:
            return False
        with np.errstate(all="ignore"):
            close = self.difference <= self.error + SIGNIFICANT * t.relative * self.largest
            fine = 16 * t.relative if self.projected else t.resolution
            sharp = self.error <= min(fine, t.resolution) * self.largest
            detectable = close & sharp & self.moved & (self.automatic != 0)
            if np.all(detectable):
                return True
            still = ~self.moved & (self.automatic == 0) & (self.reference == 0)
            return bool(np.all(detectable | still) and np.any(detectable))

    @cached_property
    def difference(self) -> Vector:
        """`|automatic - reference|`, NaN where both are not finite."""
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(self.automatic - self.reference))

    @cached_property
    def largest(self) -> Vector:
        """What relative tolerances are relative to: of a projection `S`, so that one wrong entry
        counts as much whatever the others add up to.
        """
        with np.errstate(all="ignore"):
            whole = np.maximum(self.size, np.maximum(abs(self.automatic), abs(self.reference)))
            return np.where(self.size > 0, self.size, whole) if self.projected else whole

    @cached_property
    def allowed(self) -> Vector:
        """What `difference` may be."""
        t = self.tolerance
        with np.errstate(all="ignore"):
            if not t.automatic:
                return (t.atol or 0.0) * self.scales.weight + t.relative * np.abs(self.reference)
            return self.error + t.relative * self.largest + UNDERFLOW

    @cached_property
    def equal_nans(self) -> NDArray[np.bool_]:
        """Where the caller lets agreeing NaNs and infinities pass."""
        a, r = self.automatic, self.reference
        same = (np.isnan(a) & np.isnan(r)) | ((a == r) & ~np.isfinite(a))
        return same if self.tolerance.equal_nan else np.zeros_like(same)

    @cached_property
    def agrees(self) -> NDArray[np.bool_]:
        """Where the difference is allowed."""
        with np.errstate(all="ignore"):
            finite = np.isfinite(self.automatic) & np.isfinite(self.reference)
            close = self.difference <= self.allowed
            if self.tolerance.automatic:  # too small to move an output that is rounded
                close |= ~self.moved & (np.abs(self.automatic) <= self.scales.quantum)
            if self.tolerance.automatic and not np.all(close):  # along a tangent of huge entries
                close |= self.difference <= UNDERFLOW * self.scales.weight
            if self.from_reference:
                close |= self._rounded_zero
            return (finite & close) | self.equal_nans

    @cached_property
    def _rounded_zero(self) -> NDArray[np.bool_]:
        """Where a reference says zero beyond doubt, and the automatic value is what rounding of
        numbers as large as f leaves of it.
        """
        t, size = self.tolerance, np.abs(self.automatic)
        with np.errstate(all="ignore"):
            bar = self.error <= t.resolution * size
            zero = bar & (np.abs(self.reference) <= self.error + 2.0**-52 * size)
            return np.asarray(zero & (size <= 16 * t.eps * self.scales.secant))

    @cached_property
    def negligible(self) -> NDArray[np.bool_]:
        """Where the automatic value is zero for all that can be told: a move of x by its own
        scale would not move f by a few units of rounding, or it vanishes beside its block.
        """
        with np.errstate(all="ignore"):
            # a few units in double, where sums leave them; one in what the user chose as narrow
            units = 16 if self.tolerance.double else 2
            rounding = units * self.tolerance.eps * self.scales.secant
            small = max(FLOOR, min(0.25, 8 * self.tolerance.relative))
            bound = np.maximum(rounding, small * self.scales.block)
            return np.asarray(np.abs(self.automatic) <= bound)

    @cached_property
    def saturated(self) -> NDArray[np.bool_]:
        """Where a move of x by its own scale would not move f by a few units of rounding, and the
        automatic value is not small beside its block.
        """
        with np.errstate(all="ignore"):
            below = abs(self.automatic) <= 16 * self.tolerance.eps * self.scales.secant
            beside = (self.automatic == 0) | (abs(self.automatic) > FLOOR * self.scales.block)
            return np.asarray(below & beside)

    @cached_property
    def undecided(self) -> NDArray[np.bool_]:
        """Where the error bar is too wide for agreement or disagreement to mean anything."""
        t = self.tolerance
        missing = ~np.isfinite(self.reference)
        if np.any(missing):
            # f is not finite along this column: nor need its derivative be
            missing = missing | ~np.isfinite(self.automatic)
        reference_missing = missing & ~self.equal_nans
        if not t.automatic:
            return reference_missing & ~np.isfinite(self.automatic)
        with np.errstate(all="ignore"):
            wide = self.error > t.resolution * self.largest
            if (
                self.from_reference
            ):  # no entry is too small; zero stands where the reference never moves
                wide &= ((self.automatic != 0) | self.moved) & ~self._rounded_zero
                return np.asarray(reference_missing | (self.agrees & wide & ~self.equal_nans))
            # in sixteen bits every small derivative would stay open
            small = self.negligible | (t.eps > SHORT)
            visible = t.resolution if t.noisy else t.relative
            wide &= ~(small & (self.error <= visible * self.scales.secant))
            wide &= ~(self.negligible & (self.error <= t.relative * self.scales.block))
            # too small to show in an output that is rounded, and not small beside the others
            rounding_level = (np.abs(self.automatic) <= self.scales.quantum) & ~self.negligible
            still = ~self.moved
            wide = (wide & ~still) | ((self.automatic != 0) & (wide | rounding_level) & still)
            if self.left_open is not None:
                wide = wide | self.left_open
        return np.asarray(reference_missing | (self.agrees & wide & ~self.equal_nans))

    @cached_property
    def significance_bound(self) -> Vector:
        """The largest difference that is not `suspicious`."""
        with np.errstate(all="ignore"):
            return self.error + SIGNIFICANT * self.tolerance.relative * self.largest

    @cached_property
    def significant(self) -> NDArray[np.bool_]:
        """Where a difference is significant, though allowed: outside of the error bar by more
        than rounding would explain. One wrong entry among many looks like this in a projection.
        """
        t = self.tolerance
        with np.errstate(all="ignore"):
            beyond = self.difference > self.significance_bound
        return np.asarray(self.agrees & t.automatic & beyond & ~self.equal_nans)

    @cached_property
    def coarse(self) -> NDArray[np.bool_]:
        """Where the error bar hides what the tolerance would show."""
        with np.errstate(all="ignore"):
            wide = self.error > 16 * self.tolerance.relative * self.largest
        return np.asarray(self.moved & wide)

    @cached_property
    def vanishing(self) -> NDArray[np.bool_]:
        """Where the automatic value is zero, and f moves by what may be more than rounding."""
        return np.asarray(self.moved & (self.automatic == 0) & (self.error > 0))

    def rounding_level(self, k: int) -> float:
        """The derivative that the rounding of f makes over the scale of x, where entry `k` is too
        small, or left open, for that; else 0.
        """
        if self.from_reference:
            return 0.0
        rounding = float(self.tolerance.eps * self.scales.secant[k])
        opened = self.left_open is not None and bool(self.left_open[k])
        small = rounding > self.tolerance.resolution * float(self.largest[k])
        return rounding if opened or small else 0.0

    @cached_property
    def fails(self) -> NDArray[np.bool_]:
        """Where the automatic value is wrong."""
        return ~self.agrees & ~self.undecided

    @property
    def resolution(self) -> float:
        """The largest relative error that would still have been accepted anywhere."""
        if self.agrees_clearly:
            with np.errstate(all="ignore"):
                ratio = (self.difference + self.error) / self.largest
            return float(np.max(ratio, initial=0.0, where=self.moved))
        with np.errstate(all="ignore"):
            size = self.largest
            ratio = self.difference + np.where(np.isfinite(self.error), self.error, 0.0)
            ratio = np.where(size > 0, ratio / np.where(size > 0, size, 1.0), 0.0)
            # an entry that is zero to the resolution of f has no relative accuracy to speak of
            known = self.error <= self.tolerance.resolution * size
        ratio = ratio[self.agrees & ~self.undecided & known & np.isfinite(ratio)]
        return float(ratio.max()) if ratio.size else 0.0


@dataclass(frozen=True)
class Entry:
    """One compared number, kept for the report."""

    mode: str
    of: str
    """What is differentiated: the accessor path of an output, or of a projection of it."""
    wrt: str
    automatic: float
    reference: float
    error: float
    allowed: float
    method: str
    slopes: tuple[float, float] | None = None
    rounding_level: float = 0.0
    """The derivative that the rounding of f makes over the scale of x, where that is the matter."""
    from_reference: bool = False
    """Whether the reference was given by the caller."""

    @property
    def excess(self) -> float:
        """How many times the allowed difference."""
        gap = abs(self.automatic - self.reference)
        if not np.isfinite(gap):
            return float("inf")
        return gap / self.allowed if self.allowed > 0 else float("inf") if gap else 0.0


ERRORS = (1e-2, 1e-4, 1e-6)
"""Relative errors of one entry for which a report says how likely they are to show."""


@dataclass
class Tally:
    """The comparisons of one mode so far: all counted, the worst kept."""

    mode: str
    compared: int = 0
    failed: int = 0
    undecided: int = 0
    kinks: int = 0
    resolution: float = 0.0
    nonzero: int = 0
    weighed: int = 0
    """Entries whose part in a comparison was measured."""
    detectable: list[int] = field(default_factory=lambda: [0] * len(ERRORS))
    """How many of them would show if they were off by each of `ERRORS`."""
    wrong: list[Entry] = field(default_factory=list)
    open: list[Entry] = field(default_factory=list)
    spurious: list[Entry] = field(default_factory=list)
    """Wrong entries where the function does not move at all."""
    detached: list[Entry] = field(default_factory=list)
    """Wrong entries of outputs for which the engine recorded nothing."""
    missing: list[Entry] = field(default_factory=list)
    """Wrong entries for which the engine has no derivative."""
    saturated: int = 0
    """Entries, neither zero nor left open, that lie below the rounding of f."""
    saturated_example: str = ""
    """One of them, with its value."""

    KEPT = 8

    def weigh(self, parts: Vector, bound: Vector, *, again: bool = False) -> int:
        """Counts the entries that would show: `parts` are the terms of the compared sums, `bound`
        what each sum may differ by before it is traced to its entries. `again`: they were counted
        before, and did not show. Returns how many would not show at the largest of `ERRORS`.
        """
        with np.errstate(all="ignore"):
            sizes = np.abs(parts)
            weighed = int(np.count_nonzero(sizes))
            detectable = [int(np.count_nonzero(sizes > bound / error)) for error in ERRORS]
        self.weighed += 0 if again else weighed
        self.detectable = [
            before + now for before, now in zip(self.detectable, detectable, strict=True)
        ]
        return weighed - detectable[0]

    def keep(self, entries: list[Entry], entry: Entry) -> None:
        """`entry` among the worst of `entries`."""
        entries.append(entry)
        entries.sort(key=lambda e: -e.excess)
        del entries[self.KEPT :]


def between_slopes(
    slopes: tuple[Vector, Vector], value: Vector, slack: Vector
) -> NDArray[np.bool_]:
    """Where `value` lies between the one-sided slopes of a kink."""
    with np.errstate(all="ignore"):
        low, high = np.minimum(*slopes), np.maximum(*slopes)
        return np.asarray((value >= low - slack) & (value <= high + slack))

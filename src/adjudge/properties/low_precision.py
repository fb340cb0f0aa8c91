"""This module compares a derivative of low precision with that of the same function in double
precision.

Both are taken at the same points and for the same probes, so no differences are involved. Rounding
puts them apart by some units, by more where the function is ill-conditioned, and at every point by
another amount. What stays the same for all points and probes is an error of the rule in the narrow
dtype. The method is ours; docs/numerics.md has its measured rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BIAS_DRIFTS,
    COARSE_EPS,
    CONSTANT_RATIO,
    CONSTANT_VALUE_RATIO,
    DERIVATIVE_UNITS,
    DOUBLINGS,
    ENOUGH_FAR_POINTS,
    FAR_DISTANCES,
    NARROW_BIAS_UNITS,
    NARROW_VALUE_UNITS,
    STAIRS_APART,
    WORST_ENTRIES,
    WRONG_FACTOR,
)
from adjudge.findings import (
    Finding,
    NarrowInaccurate,
    NarrowWrong,
    Refusal,
    Remedy,
    Status,
    ValueInaccurate,
    Verdict,
    entry_name,
)
from adjudge.floats import Vector, norm, scale
from adjudge.jacobian import (
    Array,
    DerivativeAtPoints,
    Evaluator,
    common_factors,
    constant,
    derivatives_of_both,
    finite_deviation,
    points_around,
    points_within_rounding,
    proportional,
    random_probes,
    relative_bias,
    rms,
    rounding_allowance,
)
from adjudge.problem import Stream, generator


@dataclass(frozen=True)
class LowPrecisionResult:
    """The outcome of the comparison in one mode."""

    mode: str
    dtype: str = ""
    entry: str = ""
    """The entry to be named, where there is anything to say."""
    low: float = 0.0
    high: float = 0.0
    ulps: float = 0.0
    wrong: bool = False
    """Says whether the low-precision derivative deviates by what is no rounding."""
    factor: float = 1.0
    """The factor that all entries are multiplied by, where that is what is wrong."""
    value: ValueInaccurate | None = None
    """The inaccuracy of the value of f, where there is one."""
    different: Refusal | None = None
    """The reason why the function in double precision is another one."""

    def findings(self, formula: Verdict) -> list[Finding]:
        """Returns a failure, a note, or nothing. Beside an undecided formula a failure
        stays open.
        """
        found, right = [], formula is Verdict.PASS
        if self.entry and self.wrong:
            detail = NarrowWrong(self.dtype, self.low, self.high, self.ulps, self.factor, right)
            undecided = formula is Verdict.INCONCLUSIVE
            found.append(
                Finding(
                    Status.MISMATCH, self.mode, self.entry, detail, Remedy.MEND_NARROW_DTYPE,
                    open=undecided,
                )
            )  # fmt: skip
        elif self.entry:
            inaccurate = NarrowInaccurate(self.dtype, self.low, self.high, self.ulps, right)
            found.append(Finding(Status.INACCURATE, self.mode, self.entry, inaccurate, note=True))
        if self.value is not None:
            found.append(Finding(Status.INACCURATE, self.mode[1:], "", self.value, note=True))
        return found


def compare_low_precision(
    low: Evaluator, high: Evaluator, letter: str, seed: int
) -> LowPrecisionResult:
    """Compares the derivative of `low` in the mode `letter` with that of `high`, the same in
    double.
    """
    return _LowPrecision(low, high, letter, seed).judged()


@dataclass(frozen=True)
class _Deviations:
    """The deviations of all entries, over some points and probes."""

    off: Vector
    """The root of the mean square of the deviations."""
    size: Vector
    """The root of the mean square of the derivative in double."""
    motion: Vector
    """The distance that the derivative in double moves between the points."""
    bias: Vector
    """The part of the derivative that the deviation is, by leaf."""
    not_finite: NDArray[np.bool_]
    """Marks where low precision alone has no finite value at x."""
    absent: NDArray[np.bool_]
    """Marks where low precision has zeros throughout, and double has none."""


class _Samples(NamedTuple):
    """Deviations and derivatives of some entries, by point, probe and entry."""

    deviation: Array
    derivative: Array
    held: NDArray[np.bool_]
    """Says, by point and entry, whether all of them are finite."""
    biases: Array
    """The bias by probe, point and leaf."""


class _LowPrecision:
    """The comparison of one derivative in low precision with that in double."""

    def __init__(self, low: Evaluator, high: Evaluator, letter: str, seed: int) -> None:
        self.low, self.high, self.letter, self.seed = low, high, letter, seed
        self.random = generator(seed, Stream.NARROW_DTYPE)
        self.eps = low.base.coarsest_eps
        self.u = self.eps / 2
        X, Y = low.problem.X, low.base.Y
        self.of, self.by = (X, Y) if letter == "R" else (Y, X)
        self.first = low.problem.modes_taken == ""
        coarsest = max((*X.leaves, *Y.leaves), key=lambda leaf: leaf.eps)
        self.nothing = LowPrecisionResult(letter + low.problem.modes_taken, coarsest.info.dtype)

    def judged(self) -> LowPrecisionResult:
        """Compares the two at x and close to it, and what is off there at points farther away."""
        if not self.of.size or not self.by.size:
            return self.nothing
        x = self.low.problem
        close = points_within_rounding(x, self.seed, eps=self.eps)
        pair_at_x = self._pair([x.origin, *close])
        tried = self._probes()
        deviations = self._deviations(pair_at_x, tried)
        # Zeros throughout are no matter of conditioning.
        deviations = replace(deviations, motion=np.where(deviations.absent, 0.0, deviations.motion))
        ratio = deviations.off / rounding_allowance(
            self.u, deviations.size, deviations.motion, self.of
        )
        shift = self._value_deviation(pair_at_x)
        few = NARROW_BIAS_UNITS * self.u if self.eps > COARSE_EPS else DERIVATIVE_UNITS * self.u
        suspects, biased = _worst(ratio, WRONG_FACTOR), np.abs(deviations.bias) > few
        shifted = self.first and bool(np.any(shift > WRONG_FACTOR))
        wrong, factor = bool(np.any(deviations.not_finite)), 1.0
        if suspects.size or np.any(biased) or shifted:
            apart = self._pair([*points_around(x, self.seed, FAR_DISTANCES, self.eps)])
            if len(apart[0].values) < ENOUGH_FAR_POINTS:
                apart = pair_at_x
            moved = self._values_off(shift, apart)
            if np.any(shift[moved] > WRONG_FACTOR):
                return replace(self.nothing, different=Refusal.OTHER_VALUE_BEYOND_ROUNDING)
            if shifted:
                self.nothing = replace(self.nothing, value=self._value(int(np.argmax(shift))))
            still, by_leaf = self._systematic(deviations, suspects, apart, pair_at_x, few)
            if still.size:
                wrong, suspects = True, still
            elif np.any(by_leaf[biased] != 1):
                wrong = True
                factor = float(by_leaf[np.argmax(np.abs(by_leaf - 1) * biased)])
            if wrong and np.any(moved):
                return replace(self.nothing, different=Refusal.OTHER_VALUE)
        if not wrong and not np.any(ratio > 1):
            return self.nothing
        named = np.flatnonzero(deviations.not_finite)
        if not named.size:
            named = suspects if wrong and factor == 1 else np.arange(ratio.size)
        k = int(named[np.argmax((ratio if factor == 1 else deviations.off)[named])])
        return self._named(k, pair_at_x, tried, wrong, factor)

    def _pair(self, points: Sequence[Vector]) -> list[DerivativeAtPoints]:
        """Returns both derivatives at these points."""
        return derivatives_of_both(self.low, self.high, self.letter, points)

    def _probes(self) -> list[Vector]:
        """Returns random probes of the mode."""
        return random_probes(self.low.problem, self.by, self.letter, self.random)

    def _deviations(self, at: Sequence[DerivativeAtPoints], tried: Sequence[Vector]) -> _Deviations:
        """Measures the deviations of all entries at these points for these probes."""
        one, two = at
        off, size = np.zeros(self.of.size), np.zeros(self.of.size)
        motion, not_finite = np.zeros(self.of.size), np.zeros(self.of.size, bool)
        absent = np.ones(self.of.size, bool)
        biases = []
        finite_at_x = bool(np.all(np.isfinite(one.values[0])))
        huge = np.repeat([leaf.huge for leaf in self.of.leaves], [x.size for x in self.of.leaves])
        count = len(one.values) * len(tried)
        for probe in tried:
            low, high = one.take(probe), two.take(probe)
            held = np.isfinite(high) & (np.abs(high) < huge)
            if finite_at_x:
                not_finite |= held[0] & ~np.isfinite(low[0])
            e, g = finite_deviation(np.where(held, low, np.nan), high)
            off += np.sum(e**2, axis=0) / count
            size += np.sum(g**2, axis=0) / count
            absent &= np.all((low == 0) & (high != 0), axis=0)
            seen_twice = (g != 0) & (g[0] != 0)
            motion = np.maximum(motion, np.max(np.abs(g - g[0]) * seen_twice, axis=0))
            biases += relative_bias(e, g, self.of)
        mean = np.mean(np.array(biases), axis=0)
        return _Deviations(np.sqrt(off), np.sqrt(size), motion, mean, not_finite, absent)

    # -- the value of f

    def _value_deviation(self, at: Sequence[DerivativeAtPoints]) -> Vector:
        """Returns, by output, how far the value of f is off, in multiples of what is allowed."""
        e, f = finite_deviation(np.array(at[0].values), np.array(at[1].values))
        motion = np.max(np.abs(f - f[0]), axis=0)
        return np.asarray(
            rms(e, 0) / rounding_allowance(self.u, rms(f, 0), motion, self.low.base.Y)
        )

    def _value(self, k: int) -> ValueInaccurate:
        """Returns how inaccurate output `k` is at x."""
        low, high = (float(one.base.values[k]) for one in (self.low, self.high))
        off = abs(low - high) / _ulp(high or low, self.eps)
        return ValueInaccurate(self.low.base.Y.entry(k), self.nothing.dtype, low, high, off)

    def _values_off(self, shift: Vector, at: Sequence[DerivativeAtPoints]) -> NDArray[np.bool_]:
        """Marks the outputs of f itself whose value is off at all points alike, which no rounding
        is: the function in double precision is then another one (a branch on the dtype, say).
        """
        moved = np.zeros(shift.size, bool)
        if self.first:
            kept = _worst(shift, 1.0)
            low, high = (np.array(derivative.values)[:, kept] for derivative in at)
            e, f = finite_deviation(low, high)
            held = np.isfinite(low) & np.isfinite(high)
            moved[kept] = proportional(e[:, None], f[:, None], held) | constant(
                e[:, None], CONSTANT_VALUE_RATIO, held
            )
            stuck = np.all(low == low[0], axis=0) & np.any(high != high[0], axis=0)
            if np.any(moved[kept] & stuck):
                moved[kept[stuck]] &= ~self._on_stairs()[kept[stuck]]
        return moved

    def _on_stairs(self) -> NDArray[np.bool_]:
        """Marks the outputs that stand still near x because f computes through larger numbers.

        Where these first move, farther off, the values are within `STAIRS_APART` such steps of one
        another.
        The values of `(x + c) - c` with a large `c`, for instance, lie on steps in a narrow dtype
        and not in double, and without this rule the function in double would count as another one.
        """
        x = self.low.problem
        start = self.low.value(x.origin)
        stairs, open_ = np.zeros(start.size, bool), np.ones(start.size, bool)
        for k in range(1, DOUBLINGS + 1):
            point = x.X.vector(x.backend, x.point(x.clipped(x.origin * 2.0**k)), x.x)
            low, high = self.low.value(point), self.high.value(point)
            with np.errstate(all="ignore"):
                step = np.abs(low - start)
                rounding = DERIVATIVE_UNITS * self.u * np.abs(high)
                near_by = np.abs(low - high) <= STAIRS_APART * step + rounding
            stairs |= open_ & (step > 0) & near_by
            open_ &= step == 0
            if not np.any(open_):
                break
        return stairs

    # -- what lasts

    def _systematic(
        self,
        deviations: _Deviations,
        suspects: NDArray[np.intp],
        at: Sequence[DerivativeAtPoints],
        beside: Sequence[DerivativeAtPoints],
        few: float,
    ) -> tuple[NDArray[np.intp], Vector]:
        """Returns the suspects that are off at all points alike, and by leaf the factor that all of
        it is off by.

        What f could not show for its own rounding does not count: it was lost in an intermediate
        value (`1 - y` with y next to 1), and the derivative is computed from what is left.
        """
        e, g, held, biases = self._taken_at(at, suspects)
        # Next to the edge of the domain of f only the points close to x are left.
        alone = np.sum(held, axis=0) < ENOUGH_FAR_POINTS
        if np.any(alone):
            near_by = self._taken_at(beside, suspects[alone])
            count = min(len(held), len(near_by.held))
            held[:, alone] = False
            pairs = (e, near_by.deviation), (g, near_by.derivative), (held, near_by.held)
            for one, other in pairs:
                one[:count, ..., alone] = other[:count]
        size = deviations.size.copy()
        size[suspects] = _rms_held(g, held)
        bound = (
            WRONG_FACTOR * rounding_allowance(self.u, size, deviations.motion, self.of)[suspects]
        )
        zero = np.all((e == -g) | ~held[:, None], axis=(0, 1)) & np.any(held, axis=0)
        # No loss of digits makes a deviation that is the same part of the derivative everywhere.
        part = proportional(e, g, held) & ~zero
        steady = zero | part | constant(e, CONSTANT_RATIO, held)
        lasting = np.where(deviations.absent[suspects], zero, steady)
        beyond = _rms_held(e, held) > bound
        still, part = suspects[lasting & beyond], part[lasting & beyond]
        off, f = finite_deviation(*(np.array(derivative.values) for derivative in at))
        drift = np.abs(np.mean(relative_bias(off, f, self.low.base.Y), axis=0))
        units = NARROW_VALUE_UNITS if self.eps > COARSE_EPS else DERIVATIVE_UNITS
        shown = self.u * units * float(rms(norm(f)))
        shown = max(shown, WRONG_FACTOR * float(rms(norm(off))))
        by_leaf = common_factors(
            np.array(biases), few + BIAS_DRIFTS * float(np.max(drift, initial=0.0))
        )
        if self._motion_of_f(deviations.off[still], still) <= shown:
            still = still[part]
        for j, part in enumerate(self.of.slices):
            entries = np.arange(self.of.size)[part]
            if self._motion_of_f((by_leaf[j] - 1) * deviations.size[part], entries) <= shown:
                by_leaf[j] = 1.0
        return still, by_leaf

    def _taken_at(self, at: Sequence[DerivativeAtPoints], kept: NDArray[np.intp]) -> _Samples:
        """Returns the deviations and derivatives of the kept entries at these points, for fresh
        probes.
        """
        es, gs, helds, biases = [], [], [], []
        for probe in self._probes():
            low, high = at[0].take(probe), at[1].take(probe)
            e, g = finite_deviation(low, high)
            es.append(e[:, kept])
            gs.append(g[:, kept])
            helds.append((np.isfinite(low) & np.isfinite(high))[:, kept])
            biases.append(relative_bias(e, g, self.of))
        held = np.all(helds, axis=0)
        return _Samples(np.stack(es, 1), np.stack(gs, 1), held, np.array(biases))

    def _motion_of_f(self, off: Vector, entries: NDArray[np.intp]) -> float:
        """Returns how much f would move by these deviations of its derivative, over the
        scale of x.
        """
        if self.letter == "R":
            x = self.low.problem
            off = off * np.concatenate([scale(x.origin[part]) for part in x.X.slices])[entries]
        return float(norm(off))

    def _named(
        self,
        k: int,
        at: Sequence[DerivativeAtPoints],
        tried: Sequence[Vector],
        wrong: bool,
        factor: float,
    ) -> LowPrecisionResult:
        """Returns the outcome, with entry `k` at x for the probe that shows it best."""
        pairs = [
            tuple(float(derivative.take(probe, 1)[0, k]) for derivative in at) for probe in tried
        ]
        gaps = [abs(a - b) if np.isfinite(a) else np.inf for a, b in pairs]
        best = int(np.argmax(gaps))
        low, high = pairs[best]
        ulps = gaps[best] / _ulp(high or low, self.eps)
        probed = [
            leaf.name
            for leaf, part in zip(self.by.leaves, self.by.slices, strict=True)
            if np.any(tried[best][part])
        ]
        of, by = self.of.entry(k), probed[0] if len(probed) == 1 else ""
        if self.letter == "R":
            projected = f"<w, {by or 'f'}>" if self.by.size > 1 else self.by.entry(0)
            entry = entry_name(projected, of)
        else:
            entry = entry_name(of, f"{by or 'inputs'} along v")
        return replace(
            self.nothing, entry=entry, low=low, high=high, ulps=ulps, wrong=wrong,
            factor=factor,
        )  # fmt: skip


def _rms_held(values: Array, held: NDArray[np.bool_]) -> Vector:
    """Returns the root of the mean square over points and probes, by entry, of what is held."""
    count = np.maximum(np.sum(held, axis=0) * values.shape[1], 1)
    return np.asarray(np.sqrt(np.sum(values**2 * held[:, None], axis=(0, 1)) / count))


def _ulp(value: float, eps: float) -> float:
    """Returns the spacing at `value` of numbers that have the spacing `eps` at 1."""
    if value == 0 or not np.isfinite(value):
        return float("inf")
    return float(2.0 ** np.floor(np.log2(abs(value))) * eps)


def _worst(ratio: Vector, bound: float) -> NDArray[np.intp]:
    """Returns the entries farthest beyond `bound`."""
    beyond = np.flatnonzero(ratio > bound)
    return beyond[np.argsort(-ratio[beyond])[:WORST_ENTRIES]]

"""A derivative of low precision against that of the same function in double precision.

Both are taken at the same points and for the same probes, so that no differences are involved.
Rounding puts them apart by some units, by more where the function is ill-conditioned, and at every
point in another way: what stays the same, for all points and probes, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.estimate import coarsest_eps
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
from adjudge.floats import COARSE_EPS, Vector, norm, scale
from adjudge.jacobian import (
    DERIVATIVE_UNITS,
    Array,
    DerivativeAtPoints,
    Evaluator,
    common_factors,
    constant,
    derivatives_of_both,
    finite_deviation,
    points_farther_off,
    points_within_ulps,
    proportional,
    random_probes,
    relative_bias,
    rms,
    rounding_allowance,
)

WRONG_FACTOR = 4
"""Times what is allowed: up to here a deviation is inaccuracy, beyond it what stays is an error."""
KEPT = 32
"""Entries that are looked at closely, those farthest off."""
DOUBLINGS = 12
"""Times that x is doubled until a function that stands still is seen to move."""


@dataclass(frozen=True)
class LowPrecisionResult:
    """What came of the comparison in one mode."""

    mode: str
    dtype: str = ""
    entry: str = ""
    """The entry to be named, where there is anything to say."""
    low: float = 0.0
    high: float = 0.0
    ulps: float = 0.0
    wrong: bool = False
    """Whether the low-precision derivative deviates by what is no rounding."""
    factor: float = 1.0
    """What all entries are multiplied by, where that is what is wrong."""
    value: ValueInaccurate | None = None
    """How inaccurate the value of f is, where it is."""
    different: Refusal | None = None
    """Why the function in double precision is another one."""

    def findings(self, formula: Verdict) -> list[Finding]:
        """A failure, a note, or nothing; beside an undecided formula a failure stays open."""
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
    """The derivative of `low` in mode `letter` against that of `high`, the same in double."""
    return _LowPrecision(low, high, letter, np.random.default_rng([seed, 29])).judged()


@dataclass(frozen=True)
class _Deviations:
    """Deviations of all entries, over some points and probes."""

    off: Vector
    """Root of the mean square of the deviations."""
    size: Vector
    """That of the derivative in double."""
    motion: Vector
    """How far that moves between the points."""
    bias: Vector
    """By leaf, what part of the derivative the deviation is."""
    not_finite: NDArray[np.bool_]
    """Where low precision alone has no finite value at x."""
    absent: NDArray[np.bool_]
    """Where low precision has zeros throughout, and double has none."""


class _LowPrecision:
    def __init__(
        self, low: Evaluator, high: Evaluator, letter: str, random: np.random.Generator
    ) -> None:
        self.low, self.high, self.letter, self.random = low, high, letter, random
        self.eps = coarsest_eps(low.problem, low.base)
        self.u = self.eps / 2
        X, Y = low.problem.X, low.base.Y
        self.of, self.by = (X, Y) if letter == "R" else (Y, X)
        self.first = low.problem.modes_taken == ""
        coarsest = max((*X.leaves, *Y.leaves), key=lambda leaf: leaf.eps)
        self.nothing = LowPrecisionResult(letter + low.problem.modes_taken, coarsest.info.dtype)

    def judged(self) -> LowPrecisionResult:
        if not self.of.size or not self.by.size:
            return self.nothing
        pair_at_x = self._pair(points_within_ulps(self.low.problem, self.eps, self.random))
        tried = self._probes()
        deviations = self._deviations(pair_at_x, tried)
        # zeros throughout are no matter of conditioning
        deviations = replace(deviations, motion=np.where(deviations.absent, 0.0, deviations.motion))
        ratio = deviations.off / rounding_allowance(
            self.u, deviations.size, deviations.motion, self.of
        )
        shift = self._value_deviation(pair_at_x)
        few = 1.25 * self.u if self.eps > COARSE_EPS else DERIVATIVE_UNITS * self.u
        suspects, biased = _worst(ratio, WRONG_FACTOR), np.abs(deviations.bias) > few
        shifted = self.first and bool(np.any(shift > WRONG_FACTOR))
        wrong, factor = bool(np.any(deviations.not_finite)), 1.0
        if suspects.size or np.any(biased) or shifted:
            apart = self._pair(points_farther_off(self.low.problem, self.eps, self.random))
            if len(apart[0].values) < 3:
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
        return derivatives_of_both(self.low, self.high, self.letter, points)

    def _probes(self) -> list[Vector]:
        return random_probes(self.low.problem, self.by, self.letter, self.random)

    def _deviations(self, at: Sequence[DerivativeAtPoints], tried: Sequence[Vector]) -> _Deviations:
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
        """How far the value of f is off, over what is allowed, by output."""
        e, f = finite_deviation(np.array(at[0].values), np.array(at[1].values))
        motion = np.max(np.abs(f - f[0]), axis=0)
        return np.asarray(
            rms(e, 0) / rounding_allowance(self.u, rms(f, 0), motion, self.low.base.Y)
        )

    def _value(self, k: int) -> ValueInaccurate:
        low, high = (float(one.base.values[k]) for one in (self.low, self.high))
        off = abs(low - high) / _ulp(high or low, self.eps)
        return ValueInaccurate(self.low.base.Y.entry(k), self.nothing.dtype, low, high, off)

    def _values_off(self, shift: Vector, at: Sequence[DerivativeAtPoints]) -> NDArray[np.bool_]:
        """The outputs of f itself whose value is off, at all points alike, and by no rounding."""
        moved = np.zeros(shift.size, bool)
        if self.first:
            kept = _worst(shift, 1.0)
            low, high = (np.array(derivative.values)[:, kept] for derivative in at)
            e, f = finite_deviation(low, high)
            held = np.isfinite(low) & np.isfinite(high)
            moved[kept] = proportional(e[:, None], f[:, None], held) | constant(
                e[:, None], 16.0, held
            )
            stuck = np.all(low == low[0], axis=0) & np.any(high != high[0], axis=0)
            if np.any(moved[kept] & stuck):
                moved[kept[stuck]] &= ~self._on_stairs()[kept[stuck]]
        return moved

    def _on_stairs(self) -> NDArray[np.bool_]:
        """The outputs that stand still near x because f computes through larger numbers: where they
        first move, farther off, the values are within two such steps of one another.
        """
        x = self.low.problem
        start = self.low.value(x.origin)
        stairs, open_ = np.zeros(start.size, bool), np.ones(start.size, bool)
        for k in range(1, DOUBLINGS + 1):
            point = x.X.vector(x.backend, x.point(x.clipped(x.origin * 2.0**k)), x.x)
            low, high = self.low.value(point), self.high.value(point)
            with np.errstate(all="ignore"):
                step = np.abs(low - start)
                near_by = np.abs(low - high) <= 2 * step + DERIVATIVE_UNITS * self.u * np.abs(high)
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
        """Of the suspects those that are off at all points alike; by leaf, the factor that all of
        it is off by. What f could not show, for its own rounding, does not count: it was lost in an
        intermediate value (1 - y with y next to 1).
        """
        e, g, held, biases = self._taken_at(at, suspects)
        alone = np.sum(held, axis=0) < 3  # next to the edge of the domain of f
        if np.any(alone):
            near_by = self._taken_at(beside, suspects[alone])
            count = min(len(held), len(near_by[2]))
            held[:, alone] = False
            for one, other in ((e, near_by[0]), (g, near_by[1]), (held, near_by[2])):
                one[:count, ..., alone] = other[:count]
        size = deviations.size.copy()
        size[suspects] = _rms_held(g, held)
        bound = (
            WRONG_FACTOR * rounding_allowance(self.u, size, deviations.motion, self.of)[suspects]
        )
        zero = np.all((e == -g) | ~held[:, None], axis=(0, 1)) & np.any(held, axis=0)
        part = proportional(e, g, held) & ~zero  # of the derivative: no loss of digits makes that
        lasting = np.where(deviations.absent[suspects], zero, zero | part | constant(e, 4.0, held))
        beyond = _rms_held(e, held) > bound
        still, part = suspects[lasting & beyond], part[lasting & beyond]
        off, f = finite_deviation(*(np.array(derivative.values) for derivative in at))
        drift = np.abs(np.mean(relative_bias(off, f, self.low.base.Y), axis=0))
        shown = self.u * (4 if self.eps > COARSE_EPS else DERIVATIVE_UNITS) * float(rms(norm(f)))
        shown = max(shown, WRONG_FACTOR * float(rms(norm(off))))
        by_leaf = common_factors(np.array(biases), few + 2 * float(np.max(drift, initial=0.0)))
        if self._motion_of_f(deviations.off[still], still) <= shown:
            still = still[part]
        for j, part in enumerate(self.of.slices):
            entries = np.arange(self.of.size)[part]
            if self._motion_of_f((by_leaf[j] - 1) * deviations.size[part], entries) <= shown:
                by_leaf[j] = 1.0
        return still, by_leaf

    def _taken_at(
        self, at: Sequence[DerivativeAtPoints], kept: NDArray[np.intp]
    ) -> tuple[Array, Array, NDArray[np.bool_], Array]:
        """Deviation and derivative by point, probe and kept entry; where, by point and entry, they
        are finite; the bias by probe, point and leaf.
        """
        es, gs, helds, biases = [], [], [], []
        for probe in self._probes():
            low, high = at[0].take(probe), at[1].take(probe)
            e, g = finite_deviation(low, high)
            es.append(e[:, kept])
            gs.append(g[:, kept])
            helds.append((np.isfinite(low) & np.isfinite(high))[:, kept])
            biases.append(relative_bias(e, g, self.of))
        return np.stack(es, 1), np.stack(gs, 1), np.all(helds, axis=0), np.array(biases)

    def _motion_of_f(self, off: Vector, entries: NDArray[np.intp]) -> float:
        """How much f would move by these deviations of its derivative, over the scale of x."""
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
        """The outcome, with entry `k` at x for the probe that shows it best."""
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
    """Root of the mean square over points and probes, by entry, of what is held."""
    count = np.maximum(np.sum(held, axis=0) * values.shape[1], 1)
    return np.asarray(np.sqrt(np.sum(values**2 * held[:, None], axis=(0, 1)) / count))


def _ulp(value: float, eps: float) -> float:
    """The spacing at `value` of numbers that have the spacing `eps` at 1."""
    if value == 0 or not np.isfinite(value):
        return float("inf")
    return float(2.0 ** np.floor(np.log2(abs(value))) * eps)


def _worst(ratio: Vector, bound: float) -> NDArray[np.intp]:
    """The entries farthest beyond `bound`."""
    beyond = np.flatnonzero(ratio > bound)
    return beyond[np.argsort(-ratio[beyond])[:KEPT]]

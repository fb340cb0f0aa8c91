"""A derivative of low precision against that of the same function in double precision.

Both are taken at the same points and for the same probes, so that no differences are involved.
Rounding puts them apart by some units, by more where the function is ill-conditioned, and at every
point in another way: what stays the same, for all points and probes, is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.differences import SHORT, norm, scale
from adjudge.findings import Finding, Status, Verdict
from adjudge.numeric import unit_roundoff
from adjudge.observed import Base, evaluate
from adjudge.probes import signed
from adjudge.problem import Problem
from adjudge.spaces import Space, Vector

ULPS = 2
"""How far the first points lie from x: between them it is conditioning that moves derivatives."""
SPREADS = (2.0**-6, 2.0**-6, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2)
"""How far the others do, relative to x: rounding errors there have nothing in common."""
PROBES = 4
UNITS = 16
"""Units of rounding that a derivative may be off by."""
WRONG = 4
"""Times what is allowed: up to here a deviation is inaccuracy, beyond it what stays is an error."""
KEPT = 32
"""Entries that are looked at closely, those farthest off."""
SURE = 8
"""Standard errors that a factor differs from one by."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """A problem, observed at x, and the context in which its function runs."""

    problem: Problem
    base: Base
    context: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class Transport:
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
    different: str = ""
    """Why the function in double precision is another one."""

    def findings(self, formula: Verdict) -> list[Finding]:
        """A failure, a note, or nothing."""
        if not self.entry:
            return []
        passed = formula is Verdict.PASS
        off = f"off by {self.ulps:.3g} ulp" if np.isfinite(self.low) else "not finite"
        lines = [f"  {self.dtype:<9}{self.low: .9g}", f"  {'float64':<9}{self.high: .9g}"]
        if self.wrong:
            first = (
                f"{self.entry}: float64 derivative {'right' if passed else 'undecided'}, "
                f"{self.dtype} derivative wrong: {self.low:.6g}, in float64 {self.high:.6g}"
            )
            factor = f", all entries by the factor {self.factor:.6g}" if self.factor != 1 else ""
            lines.append(f"  {off}{factor}: at every point and probe alike, as rounding is not")
            lines.append("  look for what depends on the dtype: a kernel, a cast, a constant")
            text = "\n".join([first, *lines])
            return [Finding(Status.MISMATCH, self.mode, self.entry, text)]
        first = f"{'formula PASS; ' if passed else ''}{self.dtype} derivative {off} at {self.entry}"
        lines.append(
            "  f loses digits on the way (cancellation, saturation), or is ill-conditioned"
        )
        text = "\n".join([first, *lines])
        return [Finding(Status.INACCURATE, self.mode, self.entry, text, note=True)]


def transport(low: Side, high: Side, letter: str, seed: int) -> Transport:
    """The derivative of `low` in mode `letter` against that of `high`, the same in double."""
    return _Link(low, high, letter, np.random.default_rng([seed, 29])).judged()


class _Derivative:
    """The derivative of one side, at some points at once."""

    def __init__(self, side: Side, letter: str) -> None:
        self.side, self.letter = side, letter
        self.places: list[Reverse | Forward] = []
        self.values: list[Vector] = []

    def add(self, point: Vector) -> None:
        base, problem = self.side.base, replace(self.side.problem, origin=point)
        with self.side.context():
            if self.letter == "R":
                reverse = Reverse(problem)
                likes = base.arrays[: len(base.Y.leaves)]
                self.values.append(base.Y.vector(problem.backend, reverse.outputs, likes))
                self.places.append(reverse)
            else:
                self.values.append(evaluate(problem, base, point, "near x")[: base.Y.size])
                self.places.append(Forward(problem))

    def take(self, probe: Vector, places: Sequence[Reverse | Forward] | None = None) -> Array:
        base = self.side.base
        with self.side.context():
            return np.array(
                [
                    place.row(base, probe)
                    if isinstance(place, Reverse)
                    else place.column(base, probe)[1]
                    for place in (self.places if places is None else places)
                ]
            )


@dataclass(frozen=True)
class _Seen:
    """Deviations of all entries, over some points and probes."""

    off: Vector
    """Root of the mean square of the deviations."""
    size: Vector
    """That of the derivative in double."""
    motion: Vector
    """How far that moves between the points."""
    bias: Array
    """By sample and leaf, what part of the derivative the deviation is."""
    broken: NDArray[np.bool_]
    """Where low precision alone has no finite value at x."""


class _Link:
    def __init__(self, low: Side, high: Side, letter: str, random: np.random.Generator) -> None:
        self.low, self.high, self.letter, self.random = low, high, letter, random
        self.mode = letter + low.problem.tail
        self.eps = unit_roundoff(low.problem, low.base)
        self.u = self.eps / 2
        X, Y = low.problem.X, low.base.Y
        self.of, self.by = (X, Y) if letter == "R" else (Y, X)
        leaf = max((*X.leaves, *Y.leaves), key=lambda leaf: leaf.eps)
        self.dtype = leaf.info.dtype
        narrow = any(leaf.info.dtype == "float16" for leaf in (*X.leaves, *Y.leaves))
        self.tiny, self.huge = (2.0**-20, 65504.0) if narrow else (2.0**-122, 3.4e38)

    def judged(self) -> Transport:
        nothing = Transport(self.mode, self.dtype)
        if not self.of.size or not self.by.size:
            return nothing
        one, two = self._both(self._near())
        probes = self._probes()
        seen = self._seen(one, two, probes)
        ratio = self._ratio(seen.off, seen.size, seen.motion, self.of)
        shift = self._shift(one, two)
        few = 1.25 * self.u if self.eps > SHORT else UNITS * self.u
        biased = np.abs(np.mean(seen.bias, axis=0)) > few
        wrong, factor = bool(np.any(seen.broken)), 1.0
        suspects = self._worst(ratio, WRONG)
        if suspects.size or np.any(biased) or np.any(shift > WRONG):
            far = self._both(self._far())
            if len(far[0].values) < 3:
                far = one, two
            more = self._probes()
            e, g, bias = self._samples(*far, more, suspects)
            moved = self._moved(shift, *far)
            if self.low.problem.tail == "" and np.any(shift[moved] > WRONG):
                return replace(nothing, different="its value is another one, beyond rounding")
            factors = self._factors(bias, far, few)
            still = _stays(e, g, 4.0) & (
                self._ratio(_rms(e), _rms(g), seen.motion[suspects], None, seen.size, suspects)
                > WRONG
            )
            if np.any(still) and not self._flat(seen, suspects[still], one.values[0]):
                wrong = True
                suspects = suspects[still]
            elif np.any(biased & (factors != 1)):
                wrong, factor = True, float(factors[np.argmax(np.abs(factors - 1))])
            if wrong and self.low.problem.tail == "" and np.any(moved):
                return replace(nothing, different="its value is another one")
        if not wrong and not np.any(ratio > 1):
            return nothing
        named = np.flatnonzero(seen.broken)
        if not named.size:
            named = suspects if wrong and suspects.size else np.arange(ratio.size)
        k = int(named[np.argmax((ratio if factor == 1 else seen.off)[named])])
        return self._named(k, one, two, probes, wrong, factor)

    # -- points and probes

    def _near(self) -> list[Vector]:
        """x, and two points within `ULPS` of it."""
        x = self.low.problem.origin
        with np.errstate(all="ignore"):
            ulp = np.where(x != 0, 2.0 ** np.floor(np.log2(np.abs(x))) * self.eps, 0.0)
        ulp[~np.isfinite(ulp)] = 0.0
        steps = np.array([-ULPS, -1, 1, ULPS])
        return [x, *(x + self.random.choice(steps, x.size) * ulp for _ in range(2))]

    def _far(self) -> list[Vector]:
        x = self.low.problem.origin
        return [
            x * (1 + max(spread, 4 * self.eps) * self.random.uniform(-1, 1, x.size))
            for spread in SPREADS
        ]

    def _both(self, points: Sequence[Vector]) -> tuple[_Derivative, _Derivative]:
        """Both sides at these points, rounded to the dtype; without those where f raises."""
        one, two = _Derivative(self.low, self.letter), _Derivative(self.high, self.letter)
        problem = self.low.problem
        for point in points:
            arrays = problem.point(point)
            rounded = problem.X.vector(problem.backend, arrays, problem.x)
            try:
                one.add(rounded)
                two.add(rounded)
            except Exception:
                if point is problem.origin:
                    raise
                del one.places[len(two.places) :], one.values[len(two.values) :]
        return one, two

    def _probes(self) -> list[Vector]:
        """Random probes of one leaf each, or of all together where there are many."""
        leaves = [part for part in self.by.slices if part.stop > part.start]
        whole = slice(0, self.by.size)
        parts = leaves if len(leaves) <= 8 else [whole]
        probes = []
        for part in parts * max(2, PROBES // len(parts)):
            probe = np.zeros(self.by.size)
            probe[part] = signed(self.random, part.stop - part.start)
            probes.append(probe if self.letter == "R" else probe * self._lengths())
        return probes

    def _lengths(self) -> Vector:
        """The scale of x by powers of two, which keep probes exact."""
        origin = self.low.problem.origin
        lengths = [scale(origin[part]) for part in self.low.problem.X.slices]
        return np.asarray(2.0 ** np.round(np.log2(np.concatenate([*lengths, np.zeros(0)]))))

    # -- what is seen

    def _seen(self, one: _Derivative, two: _Derivative, probes: Sequence[Vector]) -> _Seen:
        off, size = np.zeros(self.of.size), np.zeros(self.of.size)
        motion, broken = np.zeros(self.of.size), np.zeros(self.of.size, bool)
        bias, finite_at_x = [], bool(np.all(np.isfinite(one.values[0])))
        count = len(one.values) * len(probes)
        for probe in probes:
            low, g = one.take(probe), two.take(probe)
            holds = np.isfinite(g) & (np.abs(g) < self.huge)
            if finite_at_x:
                broken |= holds[0] & ~np.isfinite(low[0])
            holds &= np.isfinite(low)
            g = np.where(holds, g, 0.0)
            e = np.where(holds, low, 0.0) - g
            off += np.sum(e**2, axis=0) / count
            size += np.sum(g**2, axis=0) / count
            motion = np.maximum(motion, np.max(np.abs(g - g[0]) * holds * holds[0], axis=0))
            bias += self._bias(e, g, self.of)
        return _Seen(np.sqrt(off), np.sqrt(size), motion, np.array(bias), broken)

    def _samples(
        self, one: _Derivative, two: _Derivative, probes: Sequence[Vector], kept: NDArray[np.intp]
    ) -> tuple[Array, Array, Array]:
        """Deviation and derivative by point, probe and kept entry; the bias by point and leaf."""
        es, gs, biases = [], [], []
        for probe in probes:
            low, g = one.take(probe), two.take(probe)
            holds = np.isfinite(g) & np.isfinite(low)
            g = np.where(holds, g, 0.0)
            e = np.where(holds, low, 0.0) - g
            es.append(e[:, kept])
            gs.append(g[:, kept])
            biases.append(self._bias(e, g, self.of))
        return np.stack(es, 1), np.stack(gs, 1), np.array(biases)

    @staticmethod
    def _bias(e: Array, g: Array, space: Space) -> list[Vector]:
        """By point, for each leaf: `<e, g> / <g, g>`."""
        with np.errstate(all="ignore"):
            by_leaf = [
                np.sum(e[:, part] * g[:, part], axis=1) / np.sum(g[:, part] ** 2, axis=1)
                for part in space.slices
            ]
        return list(np.nan_to_num(np.array(by_leaf), posinf=0.0, neginf=0.0).T)

    def _ratio(
        self,
        off: Vector,
        size: Vector,
        motion: Vector,
        space: Space | None,
        whole: Vector | None = None,
        kept: NDArray[np.intp] | None = None,
    ) -> Vector:
        """Deviations over what is allowed."""
        typical = np.zeros(self.of.size if space is None else space.size)
        for part in (self.of if space is None else space).slices:
            if part.stop > part.start:
                typical[part] = _rms((size if whole is None else whole)[part])
        if kept is not None:
            typical = typical[kept]
        allowed = UNITS * self.u * (size + typical / 4) + 8 * motion + self.tiny
        return np.asarray(off / allowed)

    @staticmethod
    def _worst(ratio: Vector, bound: float) -> NDArray[np.intp]:
        """The entries farthest beyond `bound`."""
        beyond = np.flatnonzero(ratio > bound)
        return beyond[np.argsort(-ratio[beyond])[:KEPT]]

    # -- the value of f

    def _shift(self, one: _Derivative, two: _Derivative) -> Vector:
        """How far the value of f is off, over what is allowed, by output."""
        low, f = np.array(one.values), np.array(two.values)
        holds = np.isfinite(low) & np.isfinite(f)
        f = np.where(holds, f, 0.0)
        e = np.where(holds, low, 0.0) - f
        motion = np.max(np.abs(f - f[0]), axis=0)
        return self._ratio(_rms(e, 0), _rms(f, 0), motion, self.low.base.Y)

    def _moved(self, shift: Vector, one: _Derivative, two: _Derivative) -> NDArray[np.bool_]:
        """The outputs whose value is off, and at all points alike."""
        kept = self._worst(shift, 1.0)
        low, f = np.array(one.values)[:, kept], np.array(two.values)[:, kept]
        holds = np.isfinite(low) & np.isfinite(f)
        f = np.where(holds, f, 0.0)
        e = np.where(holds, low, 0.0) - f
        moved = np.zeros(shift.size, bool)
        moved[kept] = _stays(e[:, None], f[:, None], 16.0)
        return moved

    # -- what stays

    def _factors(self, bias: Array, far: tuple[_Derivative, _Derivative], few: float) -> Vector:
        """By leaf, the factor by which all entries are off; 1 where it is not significant."""
        low, f = np.array(far[0].values), np.array(far[1].values)
        own = np.array(self._bias(np.nan_to_num(low - f), np.nan_to_num(f), self.low.base.Y))
        drift = 2 * float(np.max(np.abs(np.mean(own, axis=0)), initial=0.0))
        points = np.mean(bias, axis=0)  # bias: probe, point, leaf
        count = max(len(points), 1)
        mean = np.mean(points, axis=0)
        error = np.std(points, axis=0, ddof=1 if count > 1 else 0) / np.sqrt(count)
        sure = np.abs(mean) > np.maximum(SURE * error, few + drift)
        return np.where(sure, 1 + mean, 1.0)

    def _flat(self, seen: _Seen, wrong: NDArray[np.intp], value: Vector) -> bool:
        """Whether these deviations are too small for f to show, which moves by units of rounding:
        then they are what was lost in an intermediate value (1 - y with y next to 1).
        """
        x = self.low.problem
        if self.letter == "R":
            off = seen.off * np.concatenate([scale(x.origin[part]) for part in x.X.slices])
        else:
            off = seen.off
        units = 4 if self.eps > SHORT else UNITS
        finite = np.where(np.isfinite(value), value, 0.0)
        total, size = float(norm(off[wrong])), float(norm(finite))
        return total <= units * self.u * size

    def _named(
        self,
        k: int,
        one: _Derivative,
        two: _Derivative,
        probes: Sequence[Vector],
        wrong: bool,
        factor: float,
    ) -> Transport:
        """The outcome, with entry `k` at x for the probe that shows it best."""
        pairs = [
            (float(one.take(p, one.places[:1])[0, k]), float(two.take(p, two.places[:1])[0, k]))
            for p in probes
        ]
        gaps = [np.inf if not np.isfinite(a) else abs(a - b) for a, b in pairs]
        best = int(np.argmax(gaps))
        low, high = pairs[best]
        size = abs(high) if high else abs(low)
        ulp = 2.0 ** np.floor(np.log2(size)) * self.eps if 0 < size < np.inf else np.inf
        moved = [leaf.name for leaf, part in zip(self.by.leaves, self.by.slices, strict=True)
                 if np.any(probes[best][part])]  # fmt: skip
        of, by = self.of.entry(k), moved[0] if len(moved) == 1 else ""
        if self.letter == "R":
            projected = f"<w, {by or 'f'}>" if self.by.size > 1 else self.by.entry(0)
            entry = f"d {projected} / d {of}"
        else:
            entry = f"d {of} / d {by or 'inputs'} along v"
        return Transport(self.mode, self.dtype, entry, low, high, gaps[best] / ulp, wrong, factor)


def _rms(values: Array, axis: int | tuple[int, ...] | None = None) -> Vector:
    if axis is None and values.ndim == 3:
        axis = (0, 1)
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.mean(values**2, axis=axis)))


def _stays(e: Array, g: Array, ratio: float) -> NDArray[np.bool_]:
    """Where deviations, by point, probe and entry, are no scatter: a fixed part of the derivative,
    or for each probe the same at all points.
    """
    count = e.shape[0] * e.shape[1]
    with np.errstate(all="ignore"):
        whole = np.sum(g**2, axis=(0, 1))
        part = np.sum(e * g, axis=(0, 1)) / whole
        left = np.sqrt(np.sum((e - part * g) ** 2, axis=(0, 1)) / max(count - 1, 1) / whole)
        steady = (np.abs(part) > SURE * left) & (whole > 0)
        if e.shape[0] < 3:
            return np.asarray(steady)
        mean, scatter = np.mean(e, axis=0), np.var(e, axis=0, ddof=1)
        steady |= np.sum(mean**2, axis=0) > ratio * np.sum(scatter, axis=0)
    return np.asarray(steady)

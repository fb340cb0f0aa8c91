"""Finite differences of sampled values: an estimate and how far off it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adjudge.floats import SHORT, Vector, lowest_bit

COARSEST = 0.25
"""Longest step of the ladder, relative to the scale of x."""


@dataclass(frozen=True)
class Estimate:
    """`value` is within `error` of the directional derivative, per output coordinate."""

    value: Vector
    error: Vector
    moved: NDArray[np.bool_]
    """Whether the output changed at all between the samples."""
    evaluations: int
    method: str
    slopes: tuple[Vector, Vector] | None = None
    """One-sided slopes, where a kink was seen; NaN elsewhere."""
    contradiction: Vector | None = None
    """How far the plain difference of the finest step is off, where rounding does not explain it:
    a function that jumps within every longer step looks smooth on the ladder."""
    steps: Vector | None = None
    """By output, the finest step of the window that was taken."""
    size: Vector | None = None
    """By output, the largest value that was seen: f(x) may be 0 among large values."""


@dataclass(frozen=True)
class Sample:
    """Values of f at `x + step v` and `x - step v`, as real coordinates."""

    step: float
    plus: Vector
    minus: Vector
    modulus: Callable[[Vector], Vector] = np.abs
    """What rounding is relative to: of a complex entry its modulus, in both coordinates."""
    sided: bool = False
    """Whether `minus` is f(x): x has a neighbour on one side only, and the step its sign."""

    @cached_property
    def slope(self) -> Vector:
        """The difference quotient."""
        with np.errstate(all="ignore"):
            span = self.step if self.sided else 2 * self.step
            return np.asarray((self.plus - self.minus) / span)

    @cached_property
    def size(self) -> Vector:
        """Of the larger of the two values."""
        return np.asarray(np.fmax(self.modulus(self.plus), self.modulus(self.minus)))


def central(sample: Sample, eps: float, noise: float = 0.0) -> Estimate:
    """One central difference; the error bar covers rounding and `noise` of the outputs only.

    Four units of rounding of either sample: an output that is a short sum of terms of its own
    size is that accurate; longer ones are found out by the ladder.
    """
    with np.errstate(all="ignore"):
        value = sample.slope
        error = np.where(np.isnan(value), np.nan, (2 * eps * sample.size + noise) / sample.step)
    moved = ~((sample.plus == sample.minus) & np.isfinite(sample.plus))
    kind = "central difference, 2 evaluations"
    return Estimate(value, error, moved, 2, kind, size=sample.size)


def ladder_ratio(eps: float) -> float:
    """Between neighbouring steps of the ladder."""
    return 2.0 if eps > SHORT else 4.0


def ladder_steps(
    step: float, relative: float, eps: float, *, far: bool = False, finer: int | None = None
) -> list[float]:
    """Steps around `step`, coarsest first; `relative` is `step` over the scale of x.

    `far`: up to the scale of x itself, for functions that do not move visibly by less. `finer`:
    how many steps below `step`, where it is not what the dtype has room for.
    """
    ratio = ladder_ratio(eps)
    if finer is None:
        finer = 1 if eps > SHORT else 3
    reach = range(8 if far else 4, 0, -1)
    coarser = [k for k in reach if relative * ratio**k <= COARSEST]
    return [step * ratio**k for k in (*coarser, *range(0, -finer - 1, -1))]


def ladder(
    samples: Sequence[Sample],
    eps: float,
    at_x: Vector | None,
    noise: float | Vector = 0.0,
    parts: Sequence[slice] = (slice(None),),
) -> Estimate:
    """Richardson extrapolation over a ladder of steps, coarsest first.

    The error of a window is its disagreement with its neighbours (Ridders, Adv. Eng. Softw. 4,
    1982), or what is usual for its leaf (`parts`) where it is less, plus the rounding of the
    outputs. Per output the window with the smallest error is taken
    among those that no finer window contradicts (Lepski, Theory Probab. Appl. 35, 1990): two
    coarse windows may agree by chance across a jump. Nor is an error bar narrower than what
    finer windows are off by beyond their rounding: a difference that has not converged moves on.
    """
    sided = samples[0].sided
    orders = eliminated(sided=sided)
    window = len(orders) + 1
    with np.errstate(all="ignore"):
        plain = np.array([s.slope for s in samples])
        better = plain
        for order in orders:
            better = better[1:] + np.diff(better, axis=0) / (ladder_ratio(eps) ** order - 1)
        change = np.abs(np.diff(better, axis=0))
        steps = np.abs([s.step for s in samples])
        sizes = np.array([s.size for s in samples])
        size = np.fmax.reduce(sizes)
        reached = np.fmax.accumulate(sizes[::-1])[::-1][: len(better)]
        still = _still(samples, plain, at_x, window)
        unit = np.where(still.any(axis=0), _lattice(samples, size, eps, parts), 0.0)
        # each elimination amplifies rounding
        rounding = 4 ** (window - 2) * (eps * reached + noise + unit) / steps[window - 1 :, None]
        usual = np.fmax(change, _usual(change, size, np.any(plain != 0, axis=0), parts))
        # a window's disagreement with its neighbours: the larger of the two it has
        disagreement = np.fmax(np.vstack([usual[:1], usual]), np.vstack([usual, usual[-1:]]))
        error = 2 * disagreement + 2 * rounding
        usable = np.where(np.isfinite(better) & np.isfinite(error), error, np.inf)
        credible = usable.copy()
        for k in range(len(better) - 1):
            off = np.abs(better[k + 1 :] - better[k])
            apart = off > 2 * (usable[k + 1 :] + usable[k])
            beyond = np.where(off > 16 * rounding[k + 1 :], off, 0.0)
            error = np.fmax(usable[k], np.fmax.reduce(beyond))
            credible[k] = np.where(np.any(apart, axis=0), np.inf, error)
        # finer windows that are farther and farther apart converge to nothing
        apart = change[-1] > 16 * rounding[-1]
        diverges = apart & (change[-1] >= change[-2]) if len(change) > 1 else apart & False
    best = np.argmin(credible, axis=0)
    columns = np.arange(plain.shape[1])
    bar = np.where(diverges, np.inf, credible[best, columns])
    with np.errstate(all="ignore"):
        off = np.abs(plain[-1] - better[best, columns])
        explained = 16 * (eps * size + noise + unit) / steps[-1] + bar
        contradiction = np.where(off > explained, off, 0.0)
    evaluations = len(samples) * (1 if sided else 2)
    return Estimate(
        better[best, columns],
        bar,
        # whether the output moved in the window that was chosen: beyond it there may be a jump
        ~still[best, columns],
        evaluations,
        f"{KINDS[sided]}, Richardson, {evaluations} evaluations",
        None if at_x is None or sided else _one_sided(samples, at_x, eps),
        contradiction,
        steps[best + window - 1],
        size,
    )


def _still(
    samples: Sequence[Sample], plain: Vector, at_x: Vector | None, window: int
) -> NDArray[np.bool_]:
    """Where the output does not move at all, by window."""
    still = plain == 0
    if at_x is not None and not samples[0].sided:  # an even function moves, too
        still &= np.array([s.plus == at_x for s in samples])
    return np.array([still[k : k + window].all(axis=0) for k in range(len(still) - window + 1)])


def _lattice(samples: Sequence[Sample], size: Vector, eps: float, parts: Sequence[slice]) -> Vector:
    """The smallest move of an output where that is a unit of rounding: of its leaf, or of the
    lattice on which all of its values lie (1 - y, say, where y is near 1).
    """
    move = np.abs(np.array([s.plus - s.minus for s in samples]))
    unit = np.min(np.where((move > 0) & np.isfinite(move), move, np.inf), axis=0)
    largest = np.zeros_like(size)
    for part in parts:
        finite = size[part][np.isfinite(size[part])]
        largest[part] = np.max(finite, initial=0.0)
    values = np.array([value for s in samples for value in (s.plus, s.minus)])
    rounded = unit <= np.fmin(8 * np.min(lowest_bit(values), axis=0), size / 16)
    return np.where(np.isfinite(unit) & (rounded | (unit <= 64 * eps * largest)), unit, 0.0)


KINDS = {False: "central differences", True: "one-sided differences"}


def eliminated(*, sided: bool) -> tuple[int, ...]:
    """The powers of the step that extrapolation removes."""
    return (1, 2) if sided else (2,)


def fewest(*, sided: bool) -> int:
    """Samples that it takes for two extrapolations, and so a disagreement to measure."""
    return len(eliminated(sided=sided)) + 2


def _usual(
    change: Vector, size: Vector, moved: NDArray[np.bool_], parts: Sequence[slice]
) -> Vector:
    """Disagreement that is usual among the outputs of a leaf, relative to their size.

    Of many outputs some agree by chance far better than their noise allows.
    """
    usual = np.zeros_like(change)
    for part in parts:
        among = moved[part] & (size[part] > 0) & np.isfinite(size[part])
        if np.count_nonzero(among) >= 8:
            relative = change[:, part][:, among] / size[part][among]
            typical = np.nanmedian(np.where(np.isfinite(relative), relative, np.nan), axis=1)
            usual[:, part] = np.where(np.isfinite(typical), typical, 0.0)[:, None] * size[part]
    return usual


def confirmed(one: Estimate, two: Estimate) -> Estimate:
    """What two ladders of different steps say together: per output the value of the narrower error
    bar, with the wider one, or one that reaches the other value where they disagree.

    One output in many has two windows that agree by chance, in one ladder; in two it has not.
    """
    with np.errstate(all="ignore"):
        first = one.error <= two.error
        value = np.where(first, one.value, two.value)
        error = np.fmax(np.fmax(one.error, two.error), np.abs(one.value - two.value))
        for estimate in (one, two):
            if estimate.contradiction is not None:
                error = np.fmax(error, estimate.contradiction)
    evaluations = one.evaluations + two.evaluations
    return Estimate(
        value,
        error,
        one.moved | two.moved,
        evaluations,
        one.method.replace(f" {one.evaluations} ", f" {evaluations} "),
        one.slopes,
        size=one.size,
        steps=None
        if one.steps is None or two.steps is None
        else np.where(first, one.steps, two.steps),
    )


def _one_sided(samples: Sequence[Sample], at_x: Vector, eps: float) -> tuple[Vector, Vector]:
    """Slopes to the left and right where the even part of f shrinks like h, not like h^2."""
    with np.errstate(all="ignore"):
        finest = samples[-3:]
        bend = np.array([((s.plus + s.minus) / 2 - at_x) / s.step for s in finest])
        even = np.abs(bend)
        odd = np.array([(s.plus - s.minus) / (2 * s.step) for s in finest])
        noise = eps * np.abs(at_x) / finest[-1].step
        kink = (even.min(axis=0) > 0.5 * even.max(axis=0)) & (even[-1] > 16 * noise)
        half = np.where(kink, bend[-1], np.nan)
        return odd[-1] - half, odd[-1] + half

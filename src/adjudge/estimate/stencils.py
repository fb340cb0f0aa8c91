"""This module makes estimates with error bars from sampled values of f: difference stencils and the
Richardson ladder, as arithmetic without any evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adjudge.constants import (
    ALIKE_PART,
    BAR_ROUNDING_UNITS,
    COARSE_EPS,
    COARSE_LADDER_RATIO,
    CONTRADICTING_BARS,
    DIVERGING_PART,
    ELIMINATION_ROUNDING,
    EXTRAPOLATED_ROUNDING,
    LADDER_BAR_FACTOR,
    LADDER_RATIO,
    LATTICE_UNITS,
    LONGEST_STEP,
    MEASURED_BARS,
    PLAIN_TRUNCATION,
    SHARED_ROUNDING,
    SMALLEST_MOVE_BITS,
    SMALLEST_MOVE_PART,
    SMALLEST_MOVE_UNITS,
    SPACINGS_OF_A_VALUE,
    STEADY_CHANGE,
    USUAL_OUTPUTS,
)
from adjudge.estimate.kinks import Slopes, half_gaps
from adjudge.findings import Method, Scheme
from adjudge.floats import CHUNK, Vector, chunks, lowest_bit, norm
from adjudge.limits import limits


@dataclass(frozen=True)
class Estimate:
    """A directional derivative with its error bar: per output coordinate, the derivative lies
    within `error` of `value`.
    """

    value: Vector
    error: Vector
    moved: NDArray[np.bool_]
    """Says whether the output changed at all between the samples."""
    method: Method
    half_gap: Vector | None = None
    """What the slope to the right of x exceeds the value by where a kink was seen; see `Slopes`."""
    steps: Vector | None = None
    """The finest step of the window that was taken, by output."""
    size: Vector | None = None
    """The largest value that was seen, by output. f(x) may be 0 among large values, and then says
    nothing of the rounding of these."""
    defect: Vector | None = None
    """What the slopes along this tangent and along others fail to add up by, where they were looked
    at; see `Slopes`."""
    own_error: Vector | None = None
    """Of `error` that part which rounding of the program makes of the derivative alone, where f was
    replayed with roundings; the rest is that of a derivative which is written with values of f."""
    of_values: Vector | None = None
    """Of the same what the values of f may be off by, over the scale of x, where that is known."""
    balls: NDArray[Any] | None = None
    """What `value` was rounded from, with all its digits: balls of python-flint, where f was
    replayed exactly."""

    @property
    def slopes(self) -> Slopes | None:
        """The slopes to both sides of x; `None` where no kink was seen or looked for."""
        if self.half_gap is None and self.defect is None:
            return None
        half_gap = np.zeros_like(self.value) if self.half_gap is None else self.half_gap
        return Slopes(self.value, half_gap, self.defect)

    @property
    def count(self) -> int:
        """The number of outputs."""
        return self.value.size

    def vectors(self) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Returns the value, the error and what moved, which are made together."""
        return self.value, self.error, self.moved

    def of(self, part: slice | NDArray[np.intp]) -> Estimate:
        """Returns the estimate of some of the outputs."""
        some = {}
        for name in BY_OUTPUT:
            if (one := getattr(self, name)) is not None:
                some[name] = one[part]
        return replace(self, **some)

    def but(self, **changes: Any) -> Estimate:
        """Returns the estimate with other values of these fields."""
        return replace(self, **changes)


ALL = slice(None)
"""The part of the outputs that is all of them."""
OPTIONAL = ("half_gap", "steps", "defect", "own_error", "of_values", "balls")
"""The fields of an estimate that most have not, with an entry for each output where they have."""
BY_OUTPUT = ("value", "error", "moved", "size", *OPTIONAL)
"""The fields of an estimate that have an entry for each output."""


class InParts(Estimate):
    """The estimate of many outputs, of which nothing is kept: what is asked for is made again from
    the values of f. A check of a large array has several estimates at a time, and each would take
    three arrays of that size.
    """

    def __init__(self, make: Callable[[slice], Estimate], count: int) -> None:
        """The estimate that `make` gives of some of the `count` outputs."""
        method = make(slice(0, 1)).method
        absent = dict.fromkeys(OPTIONAL)
        vars(self).update(make=make, outputs=count, method=method, **absent)

    make: Callable[[slice], Estimate]
    outputs: int

    @property
    def count(self) -> int:
        return self.outputs

    def vectors(self) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        value, error, moved = self._made("value", "error", "moved")
        return value, error, moved

    def _made(self, *names: str) -> list[NDArray[Any]]:
        """Returns these vectors."""
        found = [np.empty(self.outputs, bool if name == "moved" else float) for name in names]
        for part in chunks(self.outputs):
            own = self.make(part)
            for name, vector in zip(names, found, strict=True):
                vector[part] = getattr(own, name)
        return found

    @property
    def value(self) -> Vector:
        return self._made("value")[0]

    @property
    def error(self) -> Vector:
        return self._made("error")[0]

    @property
    def moved(self) -> NDArray[np.bool_]:
        return self._made("moved")[0]

    @property
    def size(self) -> Vector:
        return self._made("size")[0]

    def of(self, part: slice | NDArray[np.intp]) -> Estimate:
        if not isinstance(part, slice):
            return self.make(ALL).of(part)
        start, stop, _ = part.indices(self.outputs)
        if (start, stop) == (0, self.outputs):
            return self
        return in_parts(lambda own: self.make(_inside(own, start, stop)), stop - start)

    def but(self, **changes: Any) -> Estimate:
        make = self.make

        def changed(part: slice) -> Estimate:
            return make(part).but(**{name: _of(one, part) for name, one in changes.items()})

        found = InParts(changed, self.outputs)
        vars(found).update({name: changes[name] for name in changes if name in vars(found)})
        return found


def _inside(part: slice, start: int, stop: int) -> slice:
    """Returns a part of what lies from `start` to `stop` as a part of the whole."""
    first, last, _ = part.indices(stop - start)
    return slice(start + first, start + last)


def in_parts(make: Callable[[slice], Estimate], count: int) -> Estimate:
    """Returns the estimate that `make` gives of some of so many outputs."""
    return make(ALL) if count < limits().large else InParts(make, count)


def larger(plus: Vector, minus: Vector, part: slice) -> Vector:
    """Returns the larger magnitude of two numbers, entry by entry of a part of them."""
    return np.asarray(np.fmax(np.abs(plus[part]), np.abs(minus[part])))


@dataclass(frozen=True)
class Sample:
    """Values of f at `x + step v` and `x - step v`, as real coordinates."""

    step: float
    plus: Vector
    minus: Vector
    modulus: Callable[[Vector, Vector, slice], Vector] = larger
    """Gives the magnitude that rounding is relative to, the larger one of both values, for a part
    of the outputs: the modulus of a complex entry, for both of its coordinates."""
    one_sided: bool = False
    """Says whether `minus` is f(x), because x has a neighbour on one side only. The step then has
    the sign of that side."""

    def bend(self, at_x: Vector) -> Vector:
        """Returns the even part of f about x over the step, which is half of what the slopes to
        both sides differ by.
        """
        return np.asarray(((self.plus + self.minus) / 2 - at_x) / self.step)

    @property
    def slope(self) -> Vector:
        """The difference quotient, which is not kept: a ladder has many samples."""
        span = self.step if self.one_sided else 2 * self.step
        return np.asarray((self.plus - self.minus) / span)

    @property
    def size(self) -> Vector:
        """The magnitude of the larger of the two values."""
        return self.modulus(self.plus, self.minus, ALL)

    def of(self, some: slice) -> Sample:
        """Returns the values of some outputs."""
        size = self.modulus(self.plus, self.minus, some)
        plus, minus = self.plus[some], self.minus[some]
        return replace(self, plus=plus, minus=minus, modulus=lambda *_: size)


def central_difference(sample: Sample, eps: float, noise: float | Vector = 0.0) -> Estimate:
    """One central difference, whose error bar covers the rounding and the `noise` of the outputs
    alone.

    For the rounding see `SPACINGS_OF_A_VALUE`. Truncation is left out, since it spoils an agreement
    and produces one only by accident.
    """
    return in_parts(partial(_central, sample, eps, noise), sample.plus.size)


def _central(whole: Sample, eps: float, noise: float | Vector, part: slice) -> Estimate:
    """Returns the central difference of some outputs."""
    sample = whole
    if part is not ALL:
        sample, noise = whole.of(part), _of(noise, part)
    value, size = sample.slope, sample.size
    error = np.asarray((SPACINGS_OF_A_VALUE * eps * size + noise) / sample.step)
    np.copyto(error, np.nan, where=np.isnan(value))
    moved = ~((sample.plus == sample.minus) & np.isfinite(sample.plus))
    return Estimate(value, error, moved, Method(Scheme.CENTRAL, 2), size=size)


def _of(one: Any, part: slice) -> Any:
    """Returns what belongs to some outputs, of what may be one for all of them."""
    return one[part] if isinstance(one, np.ndarray) and one.ndim else one


def extrapolated(near: Sample, far: Sample, eps: float, noise: float = 0.0) -> Estimate:
    """Two central differences, of which the leading power of truncation is removed by Richardson's
    method.

    The error bar covers rounding alone, as that of one difference does: what is left of truncation
    spoils an agreement, and produces one only by accident.
    """
    return in_parts(partial(_extrapolated, near, far, eps, noise), near.plus.size)


def _extrapolated(near: Sample, far: Sample, eps: float, noise: float, part: slice) -> Estimate:
    """Returns the two central differences of some outputs."""
    plain, far = _central(near, eps, noise, part), far.of(part)
    removed = (far.slope - plain.value) / ((far.step / near.step) ** 2 - 1)
    error = plain.error * EXTRAPOLATED_ROUNDING
    moved = plain.moved | ~((far.plus == far.minus) & np.isfinite(far.plus))
    size = None if plain.size is None else np.fmax(plain.size, far.size)
    method = Method(Scheme.CENTRAL_LADDER, 4)
    return Estimate(plain.value - removed, error, moved, method, size=size)


LADDER_CHANGES = 8
"""A ladder of ordinary length has at most as many changes between its windows."""


def three_steps(
    plain: Estimate, near: Sample, middle: Sample, far: Sample, at_x: Vector
) -> Estimate:
    """Three central differences, with an error bar that all of them have a say in.

    The leading power of truncation is removed twice, with the longest step and each of the shorter
    ones. The bar is the disagreement of the two, with the rounding that `plain`, the estimate of
    the shortest step, has. It covers a part of what extrapolation removed, and the gap between the
    slopes to both sides of x, which is that of a kink. A ladder takes the narrowest of its bars,
    which may be narrow by chance, and so has to be confirmed; here no step is left out.
    """
    return in_parts(partial(_three_steps, plain, near, middle, far, at_x), at_x.size)


def _three_steps(
    plain: Estimate, near: Sample, middle: Sample, far: Sample, at_x: Vector, part: slice
) -> Estimate:
    """Returns the three central differences of some outputs."""
    plain, here = plain.of(part), at_x[part]
    outer, inner = (far.step / near.step) ** 2 - 1, (far.step / middle.step) ** 2 - 1
    ratio = far.step / middle.step
    (m_plus, m_minus), (f_plus, f_minus) = (
        (sample.plus[part], sample.minus[part]) for sample in (middle, far)
    )
    two = (m_plus - m_minus) / (2 * middle.step)
    three = (f_plus - f_minus) / (2 * far.step)
    best = two - (three - two) / inner
    disagreement = np.abs(plain.value - (three - plain.value) / outer - best)
    bends = [
        ((plus + minus) / 2 - here) / step
        for plus, minus, step in (
            (m_plus, m_minus, middle.step),
            (f_plus, f_minus, far.step),
        )
    ]
    half_gap = np.abs((ratio * bends[0] - bends[1]) / (ratio - 1))
    bar = LADDER_BAR_FACTOR * (disagreement + plain.error)
    bar = np.fmax(bar, np.abs(three - best) / PLAIN_TRUNCATION) + half_gap
    moved = plain.moved & (m_plus != m_minus) & (f_plus != f_minus)
    return Estimate(best, bar, moved, Method(Scheme.CENTRAL_LADDER, 6), size=plain.size)


def ladder_ratio(eps: float) -> float:
    """Returns the ratio of neighbouring steps: 4, or 2 in sixteen bits, whose range of useful steps
    is short. Both are ours.
    """
    return COARSE_LADDER_RATIO if eps > COARSE_EPS else LADDER_RATIO


@lru_cache(maxsize=64)
def ladder_steps(
    step: float, relative: float, eps: float, *, far: bool = False, finer: int | None = None
) -> Sequence[float]:
    """Returns the steps around `step`, the coarsest first; `relative` is `step` over the scale of
    x.

    With `far` they reach up to the scale of x itself, for functions that do not move visibly by
    less. `finer` is the number of steps below `step`, where that is not what the dtype has room
    for.
    """
    ratio = ladder_ratio(eps)
    if finer is None:
        finer = 1 if eps > COARSE_EPS else 3
    reach = range(8 if far else 4, 0, -1)
    coarser = [k for k in reach if relative * ratio**k <= LONGEST_STEP]
    return tuple([step * ratio**k for k in (*coarser, *range(0, -finer - 1, -1))])


def ladder(
    samples: Sequence[Sample],
    eps: float,
    at_x: Vector | None,
    noise: float | Vector = 0.0,
    parts: Sequence[slice] = (slice(None),),
    *,
    odd: bool = False,
) -> Estimate:
    """Extrapolates over a ladder of steps, the coarsest first, by Richardson's method.

    The difference at a step is off by truncation, which shrinks with the step, and by rounding,
    which grows as the step shrinks. Combining neighbours removes the leading power of truncation,
    and the result is a row of windows from coarse to fine. The error bar of a window is its
    disagreement with its neighbours (Ridders, Adv. Eng. Softw. 4, 1982), plus the amplified
    rounding of the outputs. That disagreement is small by chance in some window of some output, so
    it is taken no smaller than is usual among the outputs of a leaf (`parts`); this part is ours.

    Per output the window with the smallest bar is taken among those that no finer window
    contradicts (Lepski, Theory Probab. Appl. 35, 1990). Two coarse windows may agree by chance
    across a jump, and without that rule their narrow bar would be believed. A bar is also no
    narrower than what finer windows are off by beyond their rounding: a difference that has not
    converged moves on.

    With `odd`, odd powers of the step are removed as well, which a central difference has where the
    second derivative of f jumps at x.

    Of many outputs `CHUNK` are taken at a time, and what is usual is what is usual among these.
    """
    count = samples[0].plus.size
    if count <= CHUNK:
        return _of_chunk(samples, eps, at_x, noise, parts, odd=odd)
    found = []
    for here in chunks(count):
        bounds = [np.clip(part.indices(count)[:2], here.start, here.stop) for part in parts]
        found.append(
            _of_chunk(
                [sample.of(here) for sample in samples],
                eps,
                None if at_x is None else at_x[here],
                _of(noise, here),
                [slice(*(bound - here.start)) for bound in bounds if bound[0] < bound[1]],
                odd=odd,
            )
        )
    return _joined(found)


def _joined(found: Sequence[Estimate]) -> Estimate:
    """Returns the estimates of consecutive outputs as one."""

    def of(name: str) -> Any:
        parts = [getattr(one, name) for one in found]
        if all(part is None for part in parts):
            return None
        pairs = zip(parts, found, strict=True)
        return np.concatenate([np.zeros_like(e.value) if p is None else p for p, e in pairs])

    fields = {name: of(name) for name in ("value", "error", "moved", "half_gap", "steps", "size")}
    return replace(found[0], **fields)


def _of_chunk(
    samples: Sequence[Sample],
    eps: float,
    at_x: Vector | None,
    noise: float | Vector,
    parts: Sequence[slice],
    *,
    odd: bool,
) -> Estimate:
    """Extrapolates over a ladder of steps as `ladder` does, all outputs at a time."""
    one_sided = samples[0].one_sided
    orders = eliminated_powers(odd=odd or one_sided)
    window = len(orders) + 1
    plain = np.array([s.slope for s in samples])
    better = plain
    for order in orders:
        better = better[1:] + np.diff(better, axis=0) / (ladder_ratio(eps) ** order - 1)
    moves = np.diff(better, axis=0)
    change = np.abs(moves)
    steps = np.abs([s.step for s in samples])
    sizes = np.array([s.size for s in samples])
    size = np.fmax.reduce(sizes)
    reached = np.fmax.accumulate(sizes[::-1])[::-1][: len(better)]
    still = _unmoved(samples, plain, at_x, window)
    pauses, largest = still.any(axis=0), _largest_of_leaf(size, parts)
    unit = _lattice(samples, size, eps, largest)
    if pauses.any():
        unit = np.where(pauses, _rounding_unit(samples, size, eps, largest), unit)
    amplified = ELIMINATION_ROUNDING ** (window - 2)
    measured = amplified * noise / steps[window - 1 :, None]
    assumed = amplified * (eps * reached + unit) / steps[window - 1 :, None]
    rounding = assumed + measured
    moved = np.any(plain != 0, axis=0)
    usual = np.fmax(change, _typical_disagreement(change, reached[: len(change)], moved, parts))
    # A window has two neighbours, and the larger disagreement counts.
    disagreement = np.fmax(np.vstack([usual[:1], usual]), np.vstack([usual, usual[-1:]]))
    error = LADDER_BAR_FACTOR * (disagreement + rounding)
    usable = np.where(np.isfinite(better) & np.isfinite(error), error, np.inf)
    credible = usable.copy()
    # What windows are off by beyond that is truncation that is left.
    most = BAR_ROUNDING_UNITS * np.fmax(assumed, _usual_noise(moves, rounding, moved, parts))
    most = np.fmax(most, MEASURED_BARS * measured)
    for k in range(len(better) - 1):
        off = np.abs(better[k + 1 :] - better[k])
        # A finer window contradicts this one if their widened bars do not meet.
        apart = off > CONTRADICTING_BARS * (usable[k + 1 :] + usable[k])
        beyond = np.where(off > most[k + 1 :], off, 0.0)
        error = np.fmax(usable[k], np.fmax.reduce(beyond))
        credible[k] = np.where(np.any(apart, axis=0), np.inf, error)
    # Finer windows that are farther and farther apart converge to nothing, as those of sqrt at
    # 0 do.
    diverges = (change[-1] > BAR_ROUNDING_UNITS * rounding[-1]) & _moves_on(moves)
    if diverges.any():
        # At the end of a long ladder noise does so as well, by a small part of the derivative, and
        # in a shorter one it does so in some of many outputs, by what is usual among them.
        noisy = change[-1] <= DIVERGING_PART * np.abs(better[-1])
        if len(change) <= LADDER_CHANGES:
            noisy &= change[-1] <= most[-1]
        diverges &= ~noisy
    best = np.argmin(credible, axis=0)
    columns = np.arange(plain.shape[1])
    bar = np.where(diverges, np.inf, credible[best, columns])
    scheme = Scheme.ONE_SIDED_LADDER if one_sided else Scheme.CENTRAL_LADDER
    return Estimate(
        better[best, columns],
        bar,
        # What counts is whether the output moved in the window that was chosen, since a jump may
        # lie beyond it.
        ~still[best, columns],
        Method(scheme, len(samples) * (1 if one_sided else 2)),
        None if at_x is None or one_sided else _half_gap(samples[-3:], at_x, eps),
        steps[best + window - 1],
        size,
    )


def _half_gap(finest: Sequence[Sample], at_x: Vector, eps: float) -> Vector | None:
    """Returns half the gap between the slopes to the right and to the left of x, by these samples;
    see `half_gaps`.
    """
    bends = np.array([sample.bend(at_x) for sample in finest])
    unit = eps * np.abs(at_x) / finest[-1].step
    return half_gaps(bends, [s.step for s in finest], unit)


def _unmoved(
    samples: Sequence[Sample], plain: Vector, at_x: Vector | None, window: int
) -> NDArray[np.bool_]:
    """Marks, by window, where the output does not move at all."""
    still = plain == 0
    # An even function has equal values on both sides, and moves all the same.
    if at_x is not None and not samples[0].one_sided:
        still &= np.array([s.plus == at_x for s in samples])
    return np.array([still[k : k + window].all(axis=0) for k in range(len(still) - window + 1)])


def _largest_of_leaf(size: Vector, parts: Sequence[slice]) -> Vector:
    """Returns for each output the largest finite size in its leaf."""
    largest = np.zeros_like(size)
    for part in parts:
        finite = size[part][np.isfinite(size[part])]
        largest[part] = np.max(finite, initial=0.0)
    return largest


def _lattice(samples: Sequence[Sample], size: Vector, eps: float, largest: Vector) -> Vector:
    """Returns the lattice on which all values of an output lie, where that is far coarser than
    their own spacing, and no coarser than the rounding of the largest number of its leaf; 0 for
    other outputs.

    The tail of `1 + tanh(x)` has four digits at -11, each to the last bit a multiple of the spacing
    of `tanh(x)`. Without this a short difference of it has an error bar of `1e-16` of itself.
    """
    found = np.zeros_like(size)
    coarse = lowest_bit(samples[0].plus[: size.size]) > LATTICE_UNITS * eps * size
    if not coarse.any():
        return found
    pairs = ((s.plus[: size.size], s.minus[: size.size]) for s in samples)
    values = np.array([value[coarse] for pair in pairs for value in pair])
    bit = np.min(lowest_bit(values), axis=0)
    rounded = (bit > LATTICE_UNITS * eps * size[coarse]) & (bit <= eps * largest[coarse])
    found[coarse] = np.where(rounded, bit, 0.0)
    return found


def _rounding_unit(samples: Sequence[Sample], size: Vector, eps: float, largest: Vector) -> Vector:
    """Returns the smallest move of an output, where that is a unit of rounding: of its leaf, or of
    the lattice on which all of its values lie (those of `1 - y` with y near 1, say).

    An output that stands still in some windows moves by such a unit in the others, and without this
    its differences in between would have an error bar of zero.
    """
    move = np.abs(np.array([s.plus - s.minus for s in samples]))
    unit = np.min(np.where((move > 0) & np.isfinite(move), move, np.inf), axis=0)
    values = np.array([value for s in samples for value in (s.plus, s.minus)])
    bits = SMALLEST_MOVE_BITS * np.min(lowest_bit(values), axis=0)
    rounded = unit <= np.fmin(bits, SMALLEST_MOVE_PART * size)
    rounded |= unit <= SMALLEST_MOVE_UNITS * eps * largest
    return np.where(np.isfinite(unit) & rounded, unit, 0.0)


def eliminated_powers(*, odd: bool) -> tuple[int, ...]:
    """Returns the powers of the step that extrapolation removes. A central difference has no `odd`
    ones where f has a second derivative.
    """
    return (1, 2) if odd else (2,)


def fewest_samples(*, one_sided: bool) -> int:
    """Returns the number of samples that it takes for two extrapolations, and so for a disagreement
    to measure.
    """
    return len(eliminated_powers(odd=one_sided)) + 2


def _moves_on(moves: Vector) -> NDArray[np.bool_]:
    """Marks the outputs whose last windows move to one side, each by as much as the one before.
    Windows that noise moves go both ways.
    """
    if len(moves) < 2:
        return np.zeros(moves.shape[1], bool)
    last = moves[-3:]
    onwards = np.all(last > 0, axis=0) | np.all(last < 0, axis=0)
    for before, after in pairwise(np.abs(last)):
        onwards &= after >= STEADY_CHANGE * before
    return np.asarray(onwards)


def _typical_disagreement(
    change: Vector, size: Vector, moved: NDArray[np.bool_], parts: Sequence[slice]
) -> Vector:
    """Returns the disagreement that is usual among the outputs of a leaf, relative to their size
    over the steps of each window.

    Of many outputs some agree by chance far better than their noise allows; the median over at
    least eight outputs does not. Over the longest steps a recursion may explode, and by sizes over
    these its right derivative stayed open.
    """
    usual = np.zeros_like(change)
    for part in parts:
        sizes = size[:, part]
        among = moved[part] & np.all((sizes > 0) & np.isfinite(sizes), axis=0)
        if np.count_nonzero(among) >= USUAL_OUTPUTS:
            relative = change[:, part][:, among] / sizes[:, among]
            usual[:, part] = _medians(relative)[:, None] * sizes
    return usual


def _usual_noise(
    moves: Vector, rounding: Vector, moved: NDArray[np.bool_], parts: Sequence[slice]
) -> Vector:
    """Returns by how much noise moves the windows of an output, as those of its leaf usually move,
    and 0 where these are few, or go the same ways.

    Outputs that add up the same terms share their rounding, however small some of them are, and it
    moves each of them another way. A kink or a wave next to x, which outputs may share as well,
    moves all of them alike, up to a sign: without that right derivatives beside such a wave fail,
    and wrong ones pass.
    """
    usual = np.zeros_like(rounding)
    if len(moves) < 3:
        return usual
    for part in parts:
        among = moved[part] & np.isfinite(moves[:, part]).all(axis=0)
        if np.count_nonzero(among) >= USUAL_OUTPUTS:
            own = moves[:, part][:, among]
            first, second, last = np.sign(own[-3:]).astype(int)
            ways = np.bincount(4 + 3 * first * last + second * last)
            if ways.max() <= ALIKE_PART * last.size:
                usual[1:, part] = _medians(np.abs(own))[:, None]
    return np.fmin(usual, SHARED_ROUNDING * rounding)


def _medians(rows: Vector) -> Vector:
    """Returns the median of the finite entries of each row, and 0 where there are none. NumPy's own
    median that passes over NaNs takes ten times as long.
    """
    finite = np.isfinite(rows)
    count, ordered = finite.sum(axis=1), np.sort(np.where(finite, rows, np.inf), axis=1)
    middle = np.stack([np.maximum(count - 1, 0) // 2, np.minimum(count // 2, rows.shape[1] - 1)])
    medians = np.take_along_axis(ordered, middle.T, axis=1).sum(axis=1) / 2
    return np.where(count > 0, medians, 0.0)


def of_sums(
    samples: Sequence[Sample],
    w: Vector,
    parts: Sequence[slice],
    eps: float,
    noise: float | Vector = 0.0,
) -> Estimate:
    """Returns the estimate of `<w, f>` for each part of the outputs, from the samples of a ladder.

    It is a ladder of the sums, and no sum of ladders. The rounding of different outputs adds up in
    quadrature, and their truncation need not: along a tangent that leans towards the gradient all
    outputs may bend to one side. Each output then takes a step at which its truncation is below its
    rounding, and the sum is off by far more than its error bar. This is ours.
    """

    def contracted(values: Vector) -> Vector:
        terms = np.where(w == 0, 0.0, w * values[: w.size])
        return np.array([terms[part].sum() for part in parts])

    def length(values: float | Vector) -> Vector:
        terms = np.where(w == 0, 0.0, w * values)
        return np.array([norm(terms[part]) for part in parts])

    own = np.fmax.reduce([sample.size[: w.size] for sample in samples])
    rounded = _lattice(samples, own, eps, _largest_of_leaf(own, parts)) / eps
    sums = []
    for sample in samples:
        size = length(np.fmax(sample.size[: w.size], rounded))
        plus, minus = contracted(sample.plus), contracted(sample.minus)
        sums.append(replace(sample, plus=plus, minus=minus, modulus=lambda *_, size=size: size))
    each = [slice(k, k + 1) for k in range(len(parts))]
    return ladder(sums, eps, None, length(noise), each)


def hull(values: ArrayLike, bars: ArrayLike) -> tuple[Vector, Vector]:
    """Returns the middles and half the widths of the smallest intervals that hold two values with
    their finite bars. `values` and `bars` are pairs of vectors.
    """
    one, two = np.asarray(values), np.asarray(bars)
    low, high = np.min(one - two, axis=0), np.max(one + two, axis=0)
    return (low + high) / 2, (high - low) / 2


def combined(one: Estimate, two: Estimate) -> Estimate:
    """Returns what two ladders of different steps say together.

    Per output it is the value with the narrower error bar, and the wider of the two bars; where
    the two disagree, it is all that lies between them, with their bars. Among many outputs there is
    one with two windows that agree by chance in one ladder; in both ladders there is not, so a FAIL
    needs this. A bar around one value that reaches the other one would allow as much on the side on
    which there is none.
    """
    first = one.error <= two.error
    value = np.where(first, one.value, two.value)
    error = np.fmax(one.error, two.error)
    apart = np.flatnonzero(np.abs(one.value - two.value) > error)
    if apart.size:
        pair = [one.value[apart], two.value[apart]]
        value[apart], error[apart] = hull(pair, [one.error[apart], two.error[apart]])
    evaluations = one.method.evaluations + two.method.evaluations
    return Estimate(
        value,
        error,
        one.moved | two.moved,
        replace(one.method, evaluations=evaluations),
        one.half_gap,
        size=one.size,
        steps=None
        if one.steps is None or two.steps is None
        else np.where(first, one.steps, two.steps),
    )

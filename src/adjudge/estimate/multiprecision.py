"""This module is a reference in mpmath: differences of so short a step, in so many digits, that
they are exact in double precision.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adjudge.constants import MOST_DIGITS
from adjudge.errors import InputError
from adjudge.estimate.reference import Direction, Link, Numbers, Reference, flat_entries
from adjudge.estimate.stencils import Estimate
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector


def _name(digits: int) -> str:
    """Returns what a reference with so many digits calls itself."""
    return f"mpmath, {digits} digits"


@dataclass(frozen=True)
class Mpmath(Reference):
    """Takes differences of `g` in multiple precision."""

    g: Callable[..., Any]
    digits: int

    @property
    def name(self) -> str:
        """`mpmath, 50 digits`."""
        return _name(self.digits)

    @property
    def second_order(self) -> bool:
        """There are second derivatives, since differences of differences are as exact."""
        return True

    def values(self, link: Link, x: Vector) -> Vector | None:
        with _mp().workdps(self.digits):
            return _floats(link.call(self.g, _exactly(x), MpNumbers()))

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        at = self._at(link)

        def central(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
            plus, minus = at(point + h * move), at(point - h * move)
            return (plus - minus) / (2 * h), ((plus + minus) / 2 - here) / h

        found: list[Estimate] = []
        for digits in self._digits():
            with _mp().workdps(digits):
                point, move = _exactly(x), _exactly(v.vector) * _mp().mpf(v.length)
                here, h = at(point), _power(digits, 3)
                room = 2 * float(h) * v.length <= min(v.ahead, v.behind)
                estimate = _from_two_steps(central, move, h, here, digits) if room else None
                if estimate is None or _not_finite(estimate, here):
                    estimate = self._one_sided(at, point, here, digits, v, estimate)
            found.append(estimate)
            if _resolved(estimate):
                break
        estimate = _limit(found)
        if not np.any(found[-1].moved):
            self._require_motion(at, x, v)
        return _per_unit(estimate, v)

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        at, n = self._at(link), x.size

        def both(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
            a, b = move[:n], move[n:]
            first = _central_difference(at, point, a, h * h)
            second = _second_difference(at, point, tangent, a, h)
            second = second + _central_difference(at, point, b, h * h)
            return np.concatenate([second, first]), 0 * h * np.concatenate([first, first])

        found: list[Estimate] = []
        for digits in self._digits():
            with _mp().workdps(digits):
                point, tangent = _exactly(x), _exactly(t)
                move = _exactly(v.vector) * _mp().mpf(v.length)
                here = at(point)
                here = np.concatenate([here, here])
                estimate = _from_two_steps(both, move, _power(digits, 4), here, digits, 2)
            found.append(estimate)
            if _resolved(estimate):
                break
        return _per_unit(_limit(found), v)

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        at, n = self._at(link), x.size

        def second(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
            a, b = move[:n], move[n:]
            parts = []
            for k in range(n):
                unit = _exactly(np.zeros(n))
                unit[k] = length[k]
                term = (
                    weights @ _second_difference(at, point, unit, a, h) if np.any(a != 0) else 0 * h
                )
                if np.any(b != 0):
                    term += b @ _central_difference(at, point, unit, h * h)
                parts.append(term / length[k])
            both = np.concatenate([_objects(parts), _central_difference(at, point, a, h * h)])
            return both, 0 * both

        found: list[Estimate] = []
        for digits in self._digits():
            with _mp().workdps(digits):
                point, weights = _exactly(x), _exactly(w)
                length = np.where(_exactly(x) == 0, _mp().mpf(1), abs(point))
                move = _exactly(v.vector) * _mp().mpf(v.length)
                here = at(point)
                here = np.concatenate([np.full(n, np.sum(abs(weights * here))) / length, here])
                estimate = _from_two_steps(second, move, _power(digits, 4), here, digits, 2)
            found.append(estimate)
            if _resolved(estimate):
                break
        return _per_unit(_limit(found), v)

    def _at(self, link: Link) -> Callable[[Numbers], Numbers]:
        """Returns `g` as a function of coordinates."""
        return lambda point: link.call(self.g, point, MpNumbers())

    def _digits(self) -> Iterator[int]:
        """Yields more and more digits, from those asked for to the most."""
        most = max(self.digits, MOST_DIGITS)
        yield from sorted({self.digits, min(3 * self.digits, most), most})

    def _one_sided(
        self,
        at: Callable[[Numbers], Numbers],
        point: Numbers,
        here: Numbers,
        digits: int,
        v: Direction,
        best: Estimate | None,
    ) -> Estimate:
        """Returns the estimate to the side on which g is defined, or on which the bounds leave
        room.
        """
        h, move = _power(digits, 2), _exactly(v.vector) * _mp().mpf(v.length)

        def to_one_side(h: Any, move: Numbers) -> tuple[Numbers, Numbers]:
            slope = (at(point + h * move) - here) / h
            return slope, 0 * slope

        found = best
        for sign, room in ((1, v.ahead), (-1, v.behind)):
            if 2 * float(h) * v.length > room:
                continue
            side = _from_two_steps(to_one_side, sign * move, h, here, digits)
            value = sign * side.value
            found = Estimate(value, side.error, side.moved, side.method)
            if not _not_finite(found, here):
                return found
        if found is None:
            raise InputError(
                "the bounds leave the reference no room to either side of x",
                "widen bounds= by a rounding error, or give an analytic derivative",
            )
        return found

    def _require_motion(self, at: Callable[[Numbers], Numbers], x: Vector, v: Direction) -> None:
        """Raises `InputError` where g stands still over short steps only, since it computes in
        fewer digits inside: its derivative would be zero at any x.

        Where g is constant, its values differ by rounding in the last of `digits` digits, so only
        a motion within the first half of them counts.
        """
        step = v.length * 2.0**-20
        if step > min(v.ahead, v.behind):
            return
        with _mp().workdps(self.digits):
            point, move = _exactly(x), _exactly(v.vector)
            short = _power(self.digits, 2)
            here, close = at(point), at(point + short * v.length * move)
            far = at(point + _mp().mpf(step) * move)
            moved = np.any(abs(far - here) > short * abs(here))
        if moved and np.all(close == here):
            raise InputError(
                "the reference moves over long steps and not over short ones: it rounds to less "
                f"than {self.digits} digits inside",
                "let it compute with mpmath's functions alone, without float() and NumPy floats",
            )


class MpNumbers:
    """Object arrays of mpf and mpc numbers."""

    def array(self, coordinates: Numbers, shape: tuple[int, ...], *, complex_: bool) -> Any:
        if complex_:
            mpc = _mp().mpc
            pairs = zip(coordinates[0::2], coordinates[1::2], strict=True)
            coordinates = _objects([mpc(re, im) for re, im in pairs])
        return coordinates.reshape(shape) if shape else coordinates[0]

    def coordinates(self, result: Any, shape: tuple[int, ...], name: str, *, complex_: bool) -> Any:
        mp = _mp()
        # The result is an array, or a matrix of mpmath.
        if hasattr(result, "tolist"):
            result = result.tolist()
        array = np.array(result, dtype=object)
        flat = flat_entries(array, shape, name)
        parts = []
        for entry in flat:
            if not isinstance(entry, mp.mpf | mp.mpc | int):
                raise InputError(
                    f"the reference has {type(entry).__name__} in {name}, not numbers of mpmath",
                    "compute with mpmath's functions; np.vectorize(mpmath.exp, otypes=[object]) "
                    "takes arrays",
                )
            number = mp.mpmathify(entry)
            if complex_:
                parts += [number.real, number.imag]
            # Off its domain a function of mpmath has complex values.
            else:
                parts.append(number.real if number.imag == 0 else mp.nan)
        return _objects(parts)

    def exactly(self, x: Vector) -> Numbers:
        return _exactly(x)


def _mp() -> Any:
    return importlib.import_module("mpmath")


def _objects(entries: Sequence[Any]) -> Numbers:
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array


def _exactly(vector: Vector) -> Numbers:
    return _objects([_mp().mpf(float(entry)) for entry in vector])


def _floats(numbers: Numbers) -> Vector:
    return np.array([float(entry) for entry in numbers])


def _power(digits: int, root: int) -> Any:
    """Returns a power of two near `10^(-digits / root)`."""
    return _mp().mpf(2) ** -round(digits * 3.3219 / root)


def _central_difference(
    at: Callable[[Numbers], Numbers], x: Numbers, a: Numbers, h: Any
) -> Numbers:
    """Returns the central difference of `at` along `a`."""
    plus, minus = at(x + h * a), at(x - h * a)
    return (plus - minus) / (2 * h)


def _second_difference(
    at: Callable[[Numbers], Numbers], x: Numbers, a: Numbers, b: Numbers, h: Any
) -> Numbers:
    """Returns `D^2 g(a, b)`, from four corners."""
    a, b = h * a, h * b
    return (at(x + a + b) - at(x + a - b) - at(x - a + b) + at(x - a - b)) / (4 * h * h)


def _from_two_steps(
    quotient: Callable[[Any, Numbers], tuple[Numbers, Numbers]],
    move: Numbers,
    h: Any,
    here: Numbers,
    digits: int,
    order: int = 1,
) -> Estimate:
    """Returns the estimate from a quotient at two steps: its value at the shorter one, and as its
    error bar what the longer one changes, and rounding.
    """
    mp = _mp()
    value, even = quotient(h, move)
    longer, more_even = quotient(2 * h, move)
    rounding = abs(here) * mp.mpf(10) ** (-digits) / h**order
    change = abs(value - longer)
    still = np.array([bool(d == 0 and c == 0) for d, c in zip(value, change, strict=True)])
    error = np.where(still, 0 * rounding, 4 * change + 8 * rounding)
    noise = rounding * 16
    kink = np.array([
        bool(abs(a) > 0.75 * abs(b) and abs(a) > 1e-6 * abs(d) and abs(a) > e)
        for a, b, d, e in zip(even, more_even, value, noise, strict=True)
    ])  # fmt: skip
    slopes = None
    if np.any(kink):
        half = np.where(kink, _floats(even), np.nan)
        slopes = _floats(value) - half, _floats(value) + half
    found, bar = _floats(value), _floats(error)
    bar = np.where(np.isnan(found), np.nan, bar + 2.0**-52 * np.abs(found))
    moved = ~still
    method = Method(Scheme.REFERENCE, reference=_name(digits))
    return Estimate(found, bar, moved, method, slopes)


def _per_unit(estimate: Estimate, v: Direction) -> Estimate:
    """Returns the estimate along `v.vector`, from what was taken along `v.length * v.vector`."""
    slopes = estimate.slopes
    return replace(
        estimate,
        value=estimate.value / v.length,
        error=estimate.error / v.length,
        slopes=None if slopes is None else (slopes[0] / v.length, slopes[1] / v.length),
    )


def _limit(found: Sequence[Estimate]) -> Estimate:
    """Returns the last of several estimates with more and more digits, or zero where they tend to
    zero.
    """
    first, last = found[0], found[-1]
    with np.errstate(all="ignore"):
        before = np.abs(first.value) + first.error
        zero = (np.abs(last.value) <= last.error) & (last.error <= 2.0**-64 * before)
    value, error = np.where(zero, 0.0, last.value), np.where(zero, 0.0, last.error)
    return replace(last, value=value, error=error, moved=last.moved & ~zero)


def _not_finite(estimate: Estimate, here: Numbers) -> bool:
    """Returns whether a derivative is not finite where the function is."""
    return bool(np.any(~np.isfinite(estimate.value) & np.isfinite(_floats(here))))


def _resolved(estimate: Estimate) -> bool:
    """Returns whether more digits would show nothing new."""
    with np.errstate(all="ignore"):
        sharp = estimate.error <= 2.0**-50 * np.abs(estimate.value)
    return bool(np.all((sharp & estimate.moved) | ~np.isfinite(estimate.value)))

"""The reference that needs no other function: f itself, replayed in ball arithmetic.

What comes out is an enclosure of the derivative of the real function that the traced program
denotes, with its constants as the floating-point numbers that they are and without its roundings
(Tucker 2011; Johansson 2017). No step and no tolerance takes part. Nothing is said of what the
program approximates: a polynomial that stands for erf is judged as a polynomial.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    ENCLOSURE_BITS,
    ENCLOSURE_DIGITS,
    EXACT_BITS,
    EXACT_WORK,
    KINK_SHRINKING,
    MOST_EXACT_BITS,
    ROUNDING_UNITS,
    SURE_UNITS,
    TRANSLATION_BITS,
)
from adjudge.engine import Operation, Program
from adjudge.errors import InputError, NotSupportedError
from adjudge.estimate.balls import Balls, Jets, flint, imaginary_part, lifted, zeros
from adjudge.estimate.pullback import pullback, work_of_columns
from adjudge.estimate.reference import Direction, Link, Reference, object_array
from adjudge.estimate.replay import (
    FACTORED,
    SWITCHES,
    Doubt,
    DoubtError,
    Roundings,
    decides_otherwise,
    first_lost,
    mistranslated,
    precision,
    replay,
    work_of_one,
)
from adjudge.estimate.stencils import Estimate
from adjudge.findings import Enclosure, Method, Scheme
from adjudge.floats import Vector


class Outputs(NamedTuple):
    """What a program puts out in exact arithmetic, a number for each real coordinate."""

    value: Vector
    error: Vector
    """How far that may be off."""
    rounding: Vector
    """How far roundings of all operations can take it from there."""
    sure: Vector
    """The same with `SURE_UNITS`: two programs of the same numbers in floating point are no farther
    apart."""
    seen: Callable[[], bool]
    """Returns whether no number in the program was computed where the engine records nothing."""


@dataclass(frozen=True)
class Exact(Reference):
    """Replays the function in balls, with more and more digits until its derivative is known."""

    work: int = EXACT_WORK
    """How many operations on numbers one replay may take."""
    rounding: Roundings | None = None
    """With roundings, error bars are what these can do: a derivative outside of them is wrong. What
    the value may be off by counts as well, over the scale of x, since a rule may be written with
    the value: `s (1 - s)` for a sigmoid."""

    bits: int = 2 * EXACT_BITS
    """The digits of `tangent` and `gradient`. The middles of balls with as few as a dtype has are
    what a plain computation in that dtype gives."""

    latest: list[tuple[Program, Hashable, Estimate]] = field(
        default_factory=list, repr=False, compare=False
    )
    """The latest derivative, which that with roundings begins with: of which program, and along
    what."""

    @property
    def name(self) -> str:
        """The words for it in a report."""
        return "exact replay"

    @property
    def second_order(self) -> bool:
        """There are second derivatives."""
        return True

    def require(self, link: Link, x: Vector) -> None:
        """Raises `NotSupportedError` where the function cannot be replayed: an operation has no
        translation, or is not what was recorded, or there is too much to do.
        """
        program = link.program(x)
        for operation in program.opaque:
            raise NotSupportedError(
                f"exact replay of {_where(operation)}: {operation.why}",
                "leave out reference=, or write the step with operations that are known",
            )
        work = work_of(program)
        if work > self.work:
            raise NotSupportedError(
                f"exact replay of {work:,} operations on numbers, more than {self.work:,}",
                "check the function on smaller arrays, or leave out reference=",
            )
        if "stumbles over" not in program.asked:
            with precision(TRANSLATION_BITS):
                found = mistranslated(program), _unenclosed(program)
            program.asked["stumbles over"] = (*found, link.unseen(x))
        other, unenclosed, hidden = program.asked["stumbles over"]
        if hidden is not None:
            at = "what f returns" if isinstance(hidden, str) else f"what goes into {_where(hidden)}"
            raise NotSupportedError(
                f"exact replay of f: {at} changes with x, and no operation was seen that makes it",
                "leave out reference=, or make it by operations of the engine: a new array of a "
                "list of entries is a constant for it, and a stack of them is not",
            )
        if isinstance(other, Operation):
            raise NotSupportedError(
                f"exact replay of {_where(other)}: what it computed is not {other.name!r} of its "
                "operands to their rounding",
                "leave out reference=; another formula of this step may keep more digits",
            )
        if isinstance(unenclosed, Operation):
            raise NotSupportedError(
                f"exact replay of {_where(unenclosed)}: no interval is known for its result here; "
                "are there equal eigenvalues or singular values, or is the matrix singular?",
                "leave out reference=, or check at other inputs",
            )

    def outputs(self, program: Program, rounding: float) -> Outputs | None:
        """Returns what a program puts out, with roundings by that spacing at 1.

        Returns `None` where there is too much to do, where an operation has no translation, is not
        what was recorded or rounds more coarsely, and where a decision is another one than that
        which was recorded, or would be with roundings: what follows is then another program.
        """
        if program.opaque or work_of(program) > self.work:
            return None
        if any(one.eps > rounding for one in program.operations):
            return None
        with precision(TRANSLATION_BITS):
            if mistranslated(program) is not None or _unenclosed(program) is not None:
                return None

        def found(rounded: Roundings | None) -> tuple[Balls, Balls]:
            values = _outputs(program, replay(program, [], rounded, decides_otherwise))(0)
            return values, values

        exact = _without_roundings(_Derivative(found, program, [], _size(program), None))
        with precision(EXACT_BITS):
            try:
                wide, narrow = (
                    _floats(found(Roundings(rounding, units))[0], exact.value)[1]
                    for units in (ROUNDING_UNITS, SURE_UNITS)
                )
            except DoubtError:
                return None
        return Outputs(exact.value, exact.error, wide, narrow, lambda: True)

    def values(self, link: Link, x: Vector) -> Vector | None:
        program = link.program(x)
        try:
            with precision(EXACT_BITS):
                return _floats(_replayed(program, [], None)(0))[0]
        except DoubtError:
            return None

    def value_slack(self, link: Link, x: Vector, eps: float) -> Vector | float:
        program = link.program(x)
        try:
            with precision(EXACT_BITS):
                wide, exact = (_replayed(program, [], r)(0) for r in (Roundings(eps), None))
                return _floats(wide, _floats(exact)[0])[1]
        except DoubtError:
            return 0.0

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        program, tangents = link.program(x), [link.inputs(v.vector)]

        def found(rounded: Roundings | None) -> tuple[Balls, Balls]:
            part = _replayed(program, tangents, rounded)
            return part(1), part(0)

        sought = _Derivative(found, program, tangents, _size(program), v.vector.tobytes())
        return self._refined(sought, v.length, _recorded(program))

    def tangent_along(self, link: Link, x: Vector, t: Vector, v: Direction) -> Estimate:
        n, program = x.size, link.program(x)
        # The motion along t is taken first, and differentiated along v. The other way round complex
        # eigenvectors, whose phases no rule of their derivatives fixes, have another one.
        tangents = [link.inputs(one) for one in (v.vector[:n], t, v.vector[n:])]

        def found(rounded: Roundings | None) -> tuple[Balls, Balls]:
            part = _replayed(program, tangents, rounded)
            return np.concatenate([part(3), part(1)]), np.concatenate([part(2), part(0)])

        size, along = 2 * _size(program), ("jvp", v.vector.tobytes(), t.tobytes())
        return self._refined(_Derivative(found, program, tangents, size, along), v.length)

    def gradient_along(self, link: Link, x: Vector, w: Vector, v: Direction) -> Estimate:
        n, program = x.size, link.program(x)
        tangent, b = link.inputs(v.vector[:n]), v.vector[n:]

        def found(rounded: Roundings | None) -> tuple[Balls, Balls]:
            weights = _cotangents(program, w, b)
            rows, outputs = pullback(program, weights, tangent, rounded)
            gradient, values = _coordinates(rows, program.inputs), _outputs(program, outputs)
            return (
                np.concatenate([gradient(1), values(1)]),
                np.concatenate([gradient(0), values(0)]),
            )

        size, along = n + _size(program), ("vjp", v.vector.tobytes(), w.tobytes())
        return self._refined(_Derivative(found, program, [tangent], size, along), v.length)

    def tangent(self, link: Link, x: Vector, v: Vector) -> Vector:
        """Returns the derivatives of the outputs along `v`, NaN where a branch is not decided."""
        program = link.program(x)
        with precision(self.bits):
            try:
                return _floats(_replayed(program, [link.inputs(v)], self.rounding)(1))[0]
            except DoubtError:
                return np.full(_size(program), np.nan)

    def gradient(self, link: Link, x: Vector, w: Vector) -> tuple[Vector, Vector]:
        """Returns the gradient of `w · f`, a number for each coordinate of x, and how far these may
        be off; NaN where a branch is not decided. `w` has a number for each real coordinate of the
        outputs.

        It is not begun again with more digits, and what f itself may be off by is no part of its
        error bars with roundings: most outputs have nothing to do with a coordinate of x.
        """
        program = link.program(x)
        with precision(self.bits):
            try:
                rows, _ = pullback(program, _cotangents(program, w), None, self.rounding)
            except DoubtError:
                return np.full(x.size, np.nan), np.full(x.size, np.inf)
            return _floats(_coordinates(rows, program.inputs)(0))

    def _refined(
        self, sought: _Derivative, length: float, recorded: Vector | None = None
    ) -> Estimate:
        """Returns the estimate with as many digits as show it. `length` is the scale of x along the
        tangent, and `recorded` has the values as the engine computed them, where that is known.
        """
        latest = self.latest[:1]  # another thread may ask as well
        program, along = sought.program, sought.along
        if latest and latest[0][0] is program and latest[0][1] == along:
            exact = latest[0][2]
        else:
            exact = _without_roundings(sought)
            self.latest[:] = [(program, along, exact)]
        if self.rounding is None or exact.balls is None:  # a branch that is not decided
            return exact
        bar, of_values = exact.error, None
        with precision(EXACT_BITS):
            # Where a rounded number may leave the domain or change a decision, rounding may make
            # anything of it.
            try:
                wide, values = sought.take(self.rounding)
                loose = _floats(wide, exact.value)[1]
                own = np.maximum(bar, np.where(np.isnan(loose), np.inf, loose))
                loose = loose + _floats(values)[1] / length
                bar = np.maximum(bar, np.where(np.isnan(loose), np.inf, loose))
                of_values = _floats(values, recorded)[1] / length
            except DoubtError:
                own = bar = np.where(np.isnan(bar), bar, np.inf)
        return exact.but(error=bar, own_error=own, of_values=of_values)


class _Derivative(NamedTuple):
    """A derivative of a program, to be taken with as many digits as show it."""

    take: Callable[[Roundings | None], tuple[Balls, Balls]]
    """Returns it and the values of what is differentiated, with these roundings."""
    program: Program
    tangents: Sequence[Sequence[Any]]
    """The tangents of a replay of the program."""
    size: int
    """How many numbers the derivative has."""
    along: Hashable
    """What tells this derivative of the program from others."""


def _without_roundings(sought: _Derivative) -> Estimate:
    """Returns the derivative of the program as it is, with as many digits as show it."""
    program, count = sought.program, sought.size
    bits, last = EXACT_BITS, np.full(count, np.inf)
    while True:
        with precision(bits):
            try:
                balls, _ = sought.take(None)
            except DoubtError as error:
                if bits < MOST_EXACT_BITS:
                    bits *= 4
                    continue
                return _unknown(count, error)
            value, radius = _floats(balls)
        wide = ~(radius <= 2.0**-52 * np.abs(value)) & np.isfinite(value)
        if not wide.any() or bits >= MOST_EXACT_BITS:
            break
        last, bits = radius, 4 * bits
    bar = np.where(np.isnan(value), np.nan, radius)
    half_gap, method = None, _method(program, bits)
    # The hull of two branches is as wide with more bits. That is told at the most of them, as
    # what saturates (`1 + erf(-25)`) is as wide until there are enough to show it.
    stuck = wide & (radius > KINK_SHRINKING * last)
    if stuck.any():
        half_gap = np.where(stuck, radius, 0.0)
        bar = np.where(stuck, 2.0**-52 * (np.abs(value) + radius), bar)
    lost = np.isnan(value)
    if lost.any():
        with precision(EXACT_BITS):
            culprit = first_lost(program, sought.tangents)
        if culprit is not None:
            jumps = culprit.name in SWITCHES
            why = "its branches do not meet" if jumps else "its derivative is no number"
            method = _doubtful(Doubt(culprit, why))
            if jumps:
                half_gap = np.where(lost, np.inf, 0.0 if half_gap is None else half_gap)
    moved = (value != 0) | (radius > 0)
    return Estimate(value, bar, moved, method, half_gap, balls=balls)


@cache
def _why_no_flint() -> str:
    """Returns why python-flint cannot be imported; an empty string where it can."""
    try:
        flint()
    except ImportError as error:
        installed = importlib.util.find_spec("flint") is not None
        return f"cannot be imported: {error}" if installed else "is not installed"
    return ""


def flint_is_installed() -> bool:
    """Returns whether functions can be replayed."""
    return not _why_no_flint()


def require_flint() -> None:
    """Raises `InputError` where python-flint is not installed, or is broken."""
    if why := _why_no_flint():
        raise InputError(
            f'reference="exact" needs python-flint, which {why}',
            "pip install 'adjudge[exact]'",
        )


def enclosure_of(balls: Balls, weights: Vector) -> Enclosure | None:
    """Returns the interval of a weighted sum of balls in digits; `None` where it says little, as
    the hull of two branches does.
    """
    arb = flint().arb
    with precision(MOST_EXACT_BITS):
        terms = (one * float(w) for w, one in zip(weights, balls, strict=True) if w)
        ball = sum(terms, arb(0))
        if not ball.is_finite() or ball.rel_accuracy_bits() < ENCLOSURE_BITS:
            return None
        digits = min(3 + ball.rel_accuracy_bits() * 3 // 10, ENCLOSURE_DIGITS)
        mantissa, e, power = str(ball.mid().str(digits, radius=False)).partition("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        middle = mantissa + e + power
        off = (ball - arb(middle)).abs_upper() * arb("1.06")  # of which two digits are off by less
        return Enclosure(middle, str(off.str(2, radius=False)))


def work_of(program: Program) -> int:
    """Returns how many operations on numbers a replay of the program takes, roughly."""
    if "work" not in program.asked:
        program.asked["work"] = sum([work_of_one(program, one) for one in program.operations])
    return int(program.asked["work"])


def work_of_gradient(program: Program) -> int:
    """Returns how many operations on numbers a gradient of the program takes, roughly. With the
    derivatives of its operations it takes as long as six replays, by measurement.
    """
    return 6 * work_of(program) + work_of_columns(program)


def _where(operation: Operation) -> str:
    step = operation.step or operation.name
    return f"{step} ({operation.place})" if operation.place.file else step


def _method(program: Program, bits: int) -> Method:
    count = len(program.operations)
    words = f"exact replay of {count} operation{'s' * (count != 1)}, {bits} bits"
    return Method(Scheme.REFERENCE, reference=words)


def _size(program: Program) -> int:
    """Returns how many real coordinates the outputs have."""
    values = [program.value(one) for one in program.outputs]
    return sum(one.size * (2 if one.dtype.kind == "c" else 1) for one in values)


def _unknown(size: int, error: DoubtError) -> Estimate:
    """Returns the estimate where a comparison or an order is not decided: that of a jump, whose
    slope is nowhere near x.
    """
    nothing = np.full(size, np.nan)
    jumps = np.full(size, np.inf)
    return Estimate(nothing, nothing, np.ones(size, bool), _doubtful(error.doubt), jumps)


def _doubtful(doubt: Doubt) -> Method:
    words = f"exact replay: {doubt.why}, in {_where(doubt.operation)}"
    return Method(Scheme.REFERENCE, reference=words)


def _unenclosed(program: Program) -> Operation | None:
    """Returns an operation of linear algebra at x whose result has no enclosure, if any."""
    if FACTORED.isdisjoint(one.name for one in program.operations):
        return None
    try:
        lost = first_lost(program, [])
    except DoubtError:
        return None
    return lost if lost is not None and lost.name in FACTORED else None


def _replayed(
    program: Program, tangents: Sequence[Sequence[Any]], rounded: Roundings | None
) -> Callable[[int], Balls]:
    """Replays a program, and returns what gives a part of its outputs as real coordinates."""
    return _outputs(program, replay(program, tangents, rounded))


def _outputs(program: Program, outputs: Sequence[Jets]) -> Callable[[int], Balls]:
    """Returns what gives a part of a program's outputs as real coordinates."""
    return _coordinates(outputs, [program.value(one) for one in program.outputs])


def _recorded(program: Program) -> Vector:
    """Returns the outputs of a program, as the engine computed them, as real coordinates."""
    arrays = (np.ravel(program.value(one)) for one in program.outputs)
    pairs = [one.view(float) if one.dtype.kind == "c" else one for one in arrays]
    return np.concatenate([np.zeros(0), *pairs])


def _coordinates(given: Sequence[Jets], recorded: Sequence[NDArray[Any]]) -> Callable[[int], Balls]:
    """Returns what gives a part of jets as real coordinates, by the dtypes that were recorded."""

    def part(key: int) -> Balls:
        found: list[Any] = []
        for jets, one in zip(given, recorded, strict=True):
            complex_ = one.dtype.kind == "c"
            for ball in jets.parts.get(key, zeros(jets.shape)).flat:
                found += [ball.real, imaginary_part(ball)] if complex_ else [ball.real]
        return object_array(found)

    return part


def _cotangents(program: Program, *parts: Vector) -> list[Jets]:
    """Returns cotangents of the outputs from real coordinates, and how they move from more."""
    found, start = [], 0
    for recorded in (program.value(one) for one in program.outputs):
        complex_ = recorded.dtype.kind == "c"
        stop = start + recorded.size * (2 if complex_ else 1)
        cut = [one[start:stop] for one in parts]
        if complex_:
            cut = [one[0::2] + 1j * one[1::2] for one in cut]
        arrays = [lifted(one.reshape(recorded.shape)).value for one in cut]
        found.append(Jets(dict(enumerate(arrays))))
        start = stop
    return found


def _floats(balls: Balls, value: Vector | None = None) -> tuple[Vector, Vector]:
    """Returns the midpoints as floats, or the numbers that are given, and how far off these may
    be.
    """
    if value is None:
        value = np.array([float(one.mid()) if one.is_finite() else np.nan for one in balls])
    arb = flint().arb
    radius = [
        float((one - arb(middle)).abs_upper()) * (1 + 2.0**-50) if np.isfinite(middle) else np.inf
        for one, middle in zip(balls, value.tolist(), strict=True)
    ]
    return value, np.array(radius)

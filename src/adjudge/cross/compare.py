"""Engines compared with one another: their numbers agree to rounding, or differ, and how.

Two right implementations differ by rounding, and by what conditioning makes of it. Both are
measured: all entries of x are moved by units of rounding, and so are the numbers. What lies beyond
is taken again at points around x, where rounding is another one and an error the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CONSTANT_RATIO,
    CROSS_EXPONENTS,
    CROSS_FACTOR_SPREAD,
    CROSS_FACTORS,
    CROSS_NEAR_POINTS,
    DERIVATIVE_UNITS,
    ENOUGH_FAR_POINTS,
    FAR_DISTANCES,
    LATTICE_UNITS,
    PLAIN_NUMBER_RTOL,
    SHORTEST_DISTANCE_UNITS,
    SPACING_UNITS,
    STRAY_FACTOR,
    WORST_ENTRIES,
    WRONG_FACTOR,
)
from adjudge.cross.engine import Engine, Numbers, Output, Quantity
from adjudge.cross.report import VALUE, Cause, Divergence
from adjudge.errors import AdjudgeError, Catching, NotSupportedError
from adjudge.findings import Status, Verdict
from adjudge.floats import Vector, lowest_bit, norm, scale
from adjudge.jacobian import (
    constant,
    finite_deviation,
    proportional,
    random_probes,
    rms,
    rounding_allowance,
)
from adjudge.problem import Leaf, Space, Stream, generator, random_entries
from adjudge.report import Report

Array = NDArray[np.float64]


# ------------------------------------------------------------------ what is asked


def quantities(first: Engine, modes: Sequence[str], seed: int) -> list[Quantity]:
    """Returns what is compared: the value, and the derivatives for probes that are drawn once for
    all engines. Spaces are those of the engine `first`.
    """
    X, Y = first.problem.X, first.base().Y
    x = first.problem.origin
    found = [Quantity("", X, Y, x)]
    for k, mode in enumerate(modes):
        random = generator(seed, Stream.CROSS_PROBES, k)
        domain, codomain, origin, taken_at = X, Y, x, None
        if len(mode) == 2:
            more = Y if mode[1] == "R" else X
            inner = generator(seed, Stream.CROSS_TAKEN_AT, len(more.leaves))
            taken_at = random_entries(inner, more.size)
            origin = np.concatenate([x, taken_at])
            name, image = ("grad_outputs", "grad") if mode[1] == "R" else ("tangents", "tangent")
            named = [replace(leaf, name=f"{name}[{j}]") for j, leaf in enumerate(more.leaves)]
            domain = Space((*X.leaves, *named))
            codomain = _images(X if mode[1] == "R" else Y, image)
        quantity = Quantity(mode, domain, codomain, origin, taken_at)
        space, drawn = quantity.probe_space, []
        if space.size:
            point = replace(first.problem, X=domain, origin=origin)
            drawn = random_probes(point, space, mode[0], random)
        found.append(replace(quantity, probes=tuple(drawn)))
    return found


def _images(space: Space, name: str) -> Space:
    """Returns the space of what a rule makes of a point of `space`."""
    return Space(tuple(replace(leaf, name=f"{name}({leaf.name})") for leaf in space.leaves))


def points_near(first: Engine, quantity: Quantity, seed: int) -> list[Vector]:
    """Returns x, and points at which every entry is one or two units of its rounding off."""
    x = quantity.origin
    random = generator(seed, Stream.CROSS_NEAR)
    with np.errstate(all="ignore"):
        ulp = np.where(x != 0, 2.0 ** np.floor(np.log2(np.abs(x))), 0.0) * _eps(quantity.domain)
    ulp[~np.isfinite(ulp)] = 0.0
    steps = np.array([-2.0, -1.0, 1.0, 2.0])
    moved = [x + random.choice(steps, x.size) * ulp for _ in range(CROSS_NEAR_POINTS)]
    return [x, *(_rounded(first, quantity, point) for point in moved)]


def points_around(first: Engine, quantity: Quantity, seed: int) -> list[Vector]:
    """Returns points around x at `CROSS_EXPONENTS`, farther ones at `FAR_DISTANCES`, and points at
    `CROSS_FACTORS` times x.
    """
    x = quantity.origin
    random = generator(seed, Stream.CROSS_AROUND)
    lengths = np.concatenate(
        [np.where(x[part] != 0, np.abs(x[part]), scale(x[part])) for part in quantity.domain.slices]
        or [x]
    )
    finest = SHORTEST_DISTANCE_UNITS * _eps(quantity.domain)
    distances = [2.0**-d for d in CROSS_EXPONENTS] + list(FAR_DISTANCES)
    points = [
        x + np.maximum(d, finest) * lengths * random.uniform(-1, 1, x.size) for d in distances
    ]
    low, high = 1 - CROSS_FACTOR_SPREAD, 1 + CROSS_FACTOR_SPREAD
    points += [x * factor * random.uniform(low, high, x.size) for factor in CROSS_FACTORS]
    return [_rounded(first, quantity, point) for point in points]


def _eps(space: Space) -> Vector:
    """Returns the spacing at 1 of the dtype of every coordinate."""
    return np.repeat([leaf.eps for leaf in space.leaves], [leaf.size for leaf in space.leaves])


def _rounded(first: Engine, quantity: Quantity, point: Vector) -> Vector:
    """Returns the point within the bounds of x, rounded to the dtypes of its leaves."""
    problem = first.problem
    n = problem.X.size
    point = np.concatenate([problem.clipped(point[:n]), point[n:]])
    likes = (*problem.x, *(first.base().arrays if quantity.mode[1:] == "R" else problem.x))
    likes = likes[: len(quantity.domain.leaves)]
    with first.isolated():
        arrays = quantity.domain.arrays(first.backend, point, likes)
        return quantity.domain.vector(first.backend, arrays, likes)


# ------------------------------------------------------------------ what is compared


@dataclass(frozen=True)
class LargestDifference:
    """Where the numbers of two engines are farthest apart, beyond rounding as it was measured."""

    entry: int
    probe: int
    one: float
    two: float
    allowed: float
    apart: int
    """Of all numbers that were compared, how many are."""
    ratio: float
    """The difference over what is allowed; infinite where one number is not finite."""
    lasting: bool
    """Whether it is the same at points around x, as rounding is not."""
    hidden: bool
    """Whether f could not show it, for its own rounding."""


@dataclass(frozen=True)
class PairComparison:
    """How many numbers of two engines were compared, and where they differ most."""

    count: int
    largest: LargestDifference | None = None


def compare_numbers(
    quantity: Quantity,
    one: Numbers,
    two: Numbers,
    u: float,
    around: Callable[[], tuple[Numbers, Numbers]],
) -> PairComparison:
    """Compares the numbers of two engines at `points_near`; `around` gives both at `points_around`.
    `u` is the coarser unit round-off of the two.
    """
    space = quantity.space
    a, b = one.rows[0], two.rows[0]
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        beyond = (np.abs(a) >= _huge(space)) | (np.abs(b) >= _huge(space))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        odd = ~finite & ~same & ~beyond
        gap = np.where(finite, np.abs(a - b), 0.0)
        motion = np.maximum(_motion(one.rows), _motion(two.rows))
        bound = np.array(
            [
                WRONG_FACTOR
                * rounding_allowance(
                    u, _size(space, one.rows[0, p], two.rows[0, p]), motion[p], space
                )
                for p in range(len(a))
            ]
        ).reshape(a.shape)
        ratio = np.where(odd, np.inf, np.where(gap > 0, gap / bound, 0.0))
    count = int(np.count_nonzero(finite | odd))
    if not np.any(ratio > 1):
        return PairComparison(count)
    by_entry = np.max(ratio, axis=0)
    suspects = np.argsort(-by_entry, kind="stable")[:WORST_ENTRIES]
    suspects = suspects[by_entry[suspects] > 1]
    first, second = around()
    if not quantity.mode:  # differences of larger numbers lie on a lattice
        bound = bound + DERIVATIVE_UNITS * _coarse(u, first, second)
        with np.errstate(all="ignore"):
            ratio = np.where(odd, np.inf, np.where(gap > 0, gap / bound, 0.0))
        if not np.any(ratio > 1):
            return PairComparison(count)
        suspects = suspects[np.max(ratio, axis=0)[suspects] > 1]
    lasting, part = _lasting(first, second, suspects, rms(bound[:, suspects], 0))
    named = suspects[lasting] if np.any(lasting) else suspects
    hidden = False
    if quantity.mode and np.any(lasting) and not np.any(part):
        hidden = _moves(quantity, gap, named) <= _shown(u, first, second)
    k = int(named[np.argmax(np.max(ratio[:, named], axis=0))])
    p = int(np.argmax(ratio[:, k]))
    found = LargestDifference(
        k, p, float(a[p, k]), float(b[p, k]), float(bound[p, k]),
        int(np.count_nonzero(ratio > 1)), float(ratio[p, k]), bool(np.any(lasting)), hidden,
    )  # fmt: skip
    return PairComparison(count, found)


def _size(space: Space, a: Vector, b: Vector) -> Vector:
    """Returns the larger modulus of two numbers, by entry."""
    finite = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    return np.asarray(np.maximum(space.modulus(finite[0]), space.modulus(finite[1])))


def _motion(rows: Array) -> Array:
    """Returns how far numbers move between points that are some units of rounding apart."""
    moved = np.abs(rows - rows[0])
    return np.asarray(np.max(np.where(np.isfinite(moved), moved, 0.0), axis=0))


def _huge(space: Space) -> Vector:
    """Returns from where on numbers are infinite in the dtype of each coordinate."""

    def largest(leaf: Leaf) -> float:
        return np.inf if leaf.double else leaf.huge

    return np.repeat([largest(leaf) for leaf in space.leaves], [x.size for x in space.leaves])


def _lasting(
    first: Numbers, second: Numbers, suspects: NDArray[np.intp], bound: Vector
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns which of the suspects are apart in the same way at points around x; and which of them
    are so by one part of their size, however far off the points are.
    """
    count = len(CROSS_EXPONENTS)
    both = [numbers.rows[:, :, suspects] for numbers in (first, second)]
    low, high = (rows[:count] for rows in both)
    part = _fixed(*(rows[count : count + len(FAR_DISTANCES)] for rows in both))
    e, _ = finite_deviation(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    number = np.sum(held, axis=0)
    typical = np.sqrt(np.sum(e**2 * held[:, None], axis=(0, 1)) / np.maximum(number, 1) / len(e[0]))
    stays = (number >= ENOUGH_FAR_POINTS) & constant(e, CONSTANT_RATIO, held)
    stays |= part | _fixed(low, high)
    return stays & (typical > bound), part


def _fixed(low: Array, high: Array) -> NDArray[np.bool_]:
    """Returns where low and high differ by one part of their size at all points, and neither is
    zero.
    """
    e, g = finite_deviation(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    unknown = ~held[:, None]
    zero = [np.all((rows == 0) | unknown, axis=(0, 1)) for rows in (low, high)]
    enough = np.count_nonzero(held, axis=0) >= ENOUGH_FAR_POINTS
    return np.asarray(enough & proportional(e, g, held) & ~zero[0] & ~zero[1])


def _moves(quantity: Quantity, gap: Array, entries: NDArray[np.intp]) -> float:
    """Returns how much f would move by these deviations of its derivative, over the scale of x."""
    off = np.max(gap[:, entries], axis=0)
    if quantity.mode[0] == "R":
        x = quantity.origin
        lengths = np.concatenate([scale(x[part]) for part in quantity.domain.slices])
        off = off * lengths[entries]
    return float(norm(off))


def _shown(u: float, first: Numbers, second: Numbers) -> float:
    """Returns how much f has to move for that to be seen in its values."""
    off, f = finite_deviation(first.values, second.values)
    coarse = float(norm(_coarse(u, first, second)))
    return max(
        DERIVATIVE_UNITS * (u * float(rms(norm(f))) + coarse),
        WRONG_FACTOR * float(norm(off[0])),
    )


def _coarse(u: float, first: Numbers, second: Numbers) -> Vector:
    """Returns the spacing of the values of f where that is coarser than rounding: differences of
    larger numbers lie on a lattice. It is seen at the far points, between which values move.
    """
    found = [np.zeros(first.values.shape[1])]
    for numbers in (first, second):
        values = np.where(np.isfinite(numbers.values), numbers.values, 0.0)[len(CROSS_EXPONENTS) :]
        unit = np.min(lowest_bit(values), axis=0)
        ordered = np.sort(values, axis=0)
        moves = np.count_nonzero(np.diff(ordered, axis=0), axis=0) >= ENOUGH_FAR_POINTS
        coarse = unit > LATTICE_UNITS * u * np.max(np.abs(values), axis=0)
        coarse &= moves & (unit <= SPACING_UNITS * u)
        found.append(np.where(coarse, unit, 0.0))
    return np.asarray(np.max(found, axis=0))


STRUCTURE = "structure"


class Meaning(NamedTuple):
    """What a difference of two engines means."""

    status: Status
    verdict: Verdict
    cause: Cause


Outputs = tuple[object, list[Output]]


@dataclass
class EngineComparison:
    """Engines that have evaluated f at x, and what was found about them so far."""

    engines: Sequence[Engine]
    reports: Mapping[str, Report]
    outputs: Mapping[str, Outputs]
    modes: Sequence[str]
    seed: int
    divergences: list[Divergence] = field(default_factory=list)
    comparisons: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """By quantity and pair of engines, how many numbers were compared."""
    missing: dict[tuple[str, str], tuple[Status, str]] = field(default_factory=dict)
    """By mode and engine, why it has no numbers: UNSUPPORTED or RAISED, and the reason."""
    other_in_double: bool = False
    """Whether the function in double precision has another value than on every engine."""
    double_on: dict[str, str] = field(default_factory=dict)
    """By the name of a function in double precision, the engine on which it runs."""
    _numbers: dict[tuple[str, str, bool], Numbers] = field(default_factory=dict)

    @cached_property
    def quantities(self) -> list[Quantity]:
        """What is compared, the value first."""
        return quantities(self.engines[0], self.modes, self.seed)

    def judge(self, pairs: Sequence[tuple[Engine, Engine]], double: Engine | None = None) -> None:
        """Compares pairs of engines: structure, values, then derivatives, as far as both are alike.

        With `double`, the function in double precision, numbers are compared with its numbers
        instead.
        """
        alike = [pair for pair in pairs if not self._differ_in_structure(*pair)]
        with_double: list[tuple[Engine, Engine]] = []
        if double is not None:
            like_it = {self.reporting(double.name)}
            like_it |= {e.name for pair in alike if like_it & {x.name for x in pair} for e in pair}
            with_double = [(e, double) for e in self.engines if e.name in like_it]
            if self._is_another_function(with_double):
                double, with_double = None, []
        for quantity in self.quantities:
            known = double is not None and self.numbers_of(quantity, double) is not None
            compared = with_double if known else alike
            able = {e.name for e in self.engines if self.numbers_of(quantity, e) is not None}
            if len(able) < 2:  # an engine by itself is judged by its own report
                compared = []
            for one, two in compared:
                found = self.compare(quantity, one, two)
                if found is not None:
                    self.divergences.append(found)
            if not quantity.mode:
                apart = [set(d.pair) for d in self.failing(VALUE)]
                wrong = {d.pair[0] for d in self.failing(VALUE) if with_double}
                with_double = [pair for pair in with_double if pair[0].name not in wrong]
                alike = [
                    (one, two)
                    for one, two in alike
                    if {one.name, two.name} not in apart and not {one.name, two.name} & wrong
                ]
            self._accuse_outlier(quantity.mode or VALUE)

    def _is_another_function(self, pairs: Sequence[tuple[Engine, Engine]]) -> bool:
        """Returns whether the function in double precision, the second of each pair, has another
        value than on every engine.
        """
        found = [self.compare(self.quantities[0], one, two) for one, two in pairs]
        another = all(d is not None and d.verdict is Verdict.FAIL for d in found)
        if another:
            self.comparisons.pop(VALUE, None)
        self.other_in_double |= another
        return another

    def failing(self, quantity: str) -> list[Divergence]:
        """Returns the divergences in one quantity that fail."""
        return [d for d in self.divergences if d.quantity == quantity and d.verdict is Verdict.FAIL]

    def reporting(self, name: str) -> str:
        """Returns the engine whose report speaks for this one of a pair."""
        return self.double_on.get(name, name)

    # ------------------------------------------------------------------ structure

    def _differ_in_structure(self, one: Engine, two: Engine) -> bool:
        """Returns whether f returns another structure, shape or dtype, or other integers, on the
        two; then that is a divergence.
        """
        (first, a), (second, b) = self.outputs[one.name], self.outputs[two.name]
        names = (one.name, two.name)
        if first != second or len(a) != len(b):
            results = _listed(a), _listed(b)
            self._unlike(names, Status.INCONSISTENT, "out", Cause.STRUCTURE, results)
            return True
        for left, right in zip(a, b, strict=True):
            for cause, status, here, there in (
                (Cause.SHAPE, Status.WRONG_SHAPE, left.shape, right.shape),
                (Cause.DTYPE, Status.WRONG_DTYPE, left.dtype, right.dtype),
            ):
                if here != there:
                    self._unlike(names, status, left.name, cause, (str(here), str(there)))
                    return True
            if not left.floating and not _equal(left.value, right.value):
                results = _short(left.value), _short(right.value)
                self._unlike(names, Status.MISMATCH, left.name, Cause.VALUES, results)
                return True
        return False

    def _unlike(
        self,
        names: tuple[str, str],
        status: Status,
        entry: str,
        cause: Cause,
        results: tuple[str, str],
    ) -> None:
        """Adds a divergence of results that differ in more than floating numbers."""
        quantity = VALUE if cause is Cause.VALUES else STRUCTURE
        kinks = quantity == VALUE and self._kinks(names)
        verdict = Verdict.INCONCLUSIVE if kinks else Verdict.FAIL
        self.divergences.append(
            Divergence(quantity, names, status, verdict, entry, None, 0.0, 1, 1, (), cause, results)
        )

    # ------------------------------------------------------------------ numbers

    def compare(self, quantity: Quantity, one: Engine, two: Engine) -> Divergence | None:
        """Returns where the numbers of two engines differ, if they do; counts them."""
        first, second = self.numbers_of(quantity, one), self.numbers_of(quantity, two)
        if first is None or second is None:
            return None

        def around() -> tuple[Numbers, Numbers]:
            both = [self.numbers_of(quantity, engine, wide=True) for engine in (one, two)]
            assert both[0] is not None
            assert both[1] is not None
            return both[0], both[1]

        u = max(self._rounding(quantity, engine) for engine in (one, two)) / 2
        found = compare_numbers(quantity, first, second, u, around)
        if found.count:
            pairs = self.comparisons.setdefault(quantity.mode or VALUE, {})
            pairs[one.name, two.name] = found.count
        if found.largest is None:
            return None
        return self._divergence(quantity, (one.name, two.name), found.largest, found.count)

    def numbers_of(
        self, quantity: Quantity, engine: Engine, *, wide: bool = False
    ) -> Numbers | None:
        """Returns the numbers of one engine next to x, or around it if `wide`; `None` where it has
        none.
        """
        if quantity.mode and not engine.differentiates:
            return None
        key = (quantity.mode, engine.name, wide)
        if key not in self._numbers and (quantity.mode, engine.name) not in self.missing:
            x = quantity.origin
            first = self.engines[0]
            points = points_near(first, quantity, self.seed)
            if wide:
                points = [x, *points_around(first, quantity, self.seed)]
            with Catching(AdjudgeError) as caught:
                found = engine.numbers(quantity, points)
                if wide:  # x itself is known
                    found = Numbers(found.rows[1:], found.values[1:])
                self._numbers[key] = found
            if (error := caught.error) is not None:
                lacks = isinstance(error, NotSupportedError)
                status = Status.UNSUPPORTED if lacks else Status.RAISED
                self.missing[quantity.mode, engine.name] = (status, first_line(error))
        return self._numbers.get(key)

    @staticmethod
    def _rounding(quantity: Quantity, engine: Engine) -> float:
        """Returns the spacing of the coarsest dtype among inputs and outputs."""
        base = engine.inner(quantity.mode[1:], quantity.taken_at).base
        return base.coarsest_eps

    # ------------------------------------------------------------------ verdicts

    def _divergence(
        self,
        quantity: Quantity,
        names: tuple[str, str],
        largest: LargestDifference,
        count: int,
    ) -> Divergence:
        """Returns the divergence that the largest difference of two engines amounts to."""
        accused = self._accused(quantity.mode, names)
        meaning = self._meaning(names, largest, accused)
        return Divergence(
            quantity.mode or VALUE,
            names,
            meaning.status,
            meaning.verdict,
            quantity.entry(largest.entry, largest.probe),
            (largest.one, largest.two),
            largest.allowed,
            largest.apart,
            count,
            accused if meaning.verdict is Verdict.FAIL else (),
            meaning.cause,
        )

    def _meaning(
        self, names: tuple[str, str], largest: LargestDifference, accused: Sequence[str]
    ) -> Meaning:
        """Returns what a difference beyond rounding is put down to, and what follows."""
        not_finite = not np.isfinite(largest.ratio)
        if largest.hidden and not accused:
            return Meaning(Status.INACCURATE, Verdict.PASS, Cause.HIDDEN)
        if largest.lasting or accused:
            status = Status.NONFINITE if not_finite else Status.MISMATCH
            cause = Cause.LASTING if largest.lasting else Cause.ACCUSED
            return Meaning(status, Verdict.FAIL, cause)
        if self._kinks(names):
            cause = Cause.NOT_FINITE_AT_KINK if not_finite else Cause.KINK
            return Meaning(Status.NONSMOOTH, Verdict.INCONCLUSIVE, cause)
        if not_finite:
            return Meaning(Status.NONFINITE, Verdict.FAIL, Cause.NOT_FINITE)
        if self._imprecise(names):
            return Meaning(Status.INACCURATE, Verdict.PASS, Cause.NARROW_INSIDE)
        if largest.ratio > STRAY_FACTOR:
            return Meaning(Status.INCONSISTENT, Verdict.INCONCLUSIVE, Cause.STRAY)
        return Meaning(Status.INACCURATE, Verdict.PASS, Cause.LOST_DIGITS)

    def _accused(self, mode: str, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the engines whose own differences contradict this derivative."""
        wrong = (Verdict.FAIL, Status.RAISED)
        return tuple(
            name
            for name in dict.fromkeys(map(self.reporting, names))
            if name in self.reports and mode and self.reports[name].modes.get(mode) in wrong
        )

    def _kinks(self, names: Sequence[str]) -> bool:
        """Returns whether f is not smooth at x, by the report of either engine. In the middle of a
        kink central differences have the slope of that engine, and its report says nothing.
        """
        return any(Status.NONSMOOTH in self._statuses(self.reporting(name)) for name in names)

    def _imprecise(self, names: Sequence[str]) -> bool:
        """Returns whether f computes in a narrower dtype inside, by the report of either."""
        return any(Status.IMPRECISE in self._statuses(self.reporting(name)) for name in names)

    def _statuses(self, name: str) -> set[Status]:
        report = self.reports.get(name)
        return {finding.status for finding in report.findings} if report is not None else set()

    def _accuse_outlier(self, quantity: str) -> None:
        """Accuses the one engine that differs from all others, where these agree and no differences
        have decided.
        """
        failing = self.failing(quantity)
        if len(failing) < 2 or any(d.accused for d in failing):
            return
        common = set(failing[0].pair).intersection(*(d.pair for d in failing))
        if len(common) != 1 or common & set(self.double_on):
            return
        (name,) = common
        for k, found in enumerate(self.divergences):
            if found in failing:
                self.divergences[k] = replace(found, accused=(name,), outlier=True)


def first_line(error: BaseException) -> str:
    """Returns an exception in one line: `ValueError: the message`."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _listed(outputs: Sequence[Output]) -> str:
    return f"({', '.join(output.name for output in outputs)})"


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=True))
    if isinstance(a, float | complex) and isinstance(b, float | complex):
        return bool(np.isclose(a, b, rtol=PLAIN_NUMBER_RTOL, atol=0, equal_nan=True))
    return bool(a == b)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."

"""Engines compared with one another: their numbers agree to rounding, or differ, and how.

Two right implementations differ by rounding, and by what conditioning makes of it. Both are
measured: all entries of x are moved by units of rounding, and so are the numbers. What lies beyond
is taken again at points around x, where rounding is another one and an error the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from adjudge.constants import PLAIN_NUMBER_RTOL, STRAY_FACTOR, WRONG_FACTOR
from adjudge.cross.engine import Engine, Numbers, Output, Quantity
from adjudge.cross.report import CONSEQUENCES, VALUE, Cause, Divergence
from adjudge.errors import AdjudgeError, Catching, NotSupportedError, quiet_arithmetic
from adjudge.findings import Status, Verdict
from adjudge.jacobian import Deviation, Sides, points_around, points_within_rounding, random_probes
from adjudge.problem import Space, Stream, generator, random_entries
from adjudge.report import Report

# ------------------------------------------------------------------ what is asked


def quantities(first: Engine, modes: Sequence[str], seed: int) -> list[Quantity]:
    """Returns what is compared: the value, and the derivatives for probes that are drawn once for
    all engines. Spaces are those of the engine `first`.
    """
    X, Y = first.problem.X, first.base().Y
    found = [Quantity("", first.problem, Y)]
    for k, mode in enumerate(modes):
        random = generator(seed, Stream.CROSS_PROBES, k)
        point, codomain, taken_at = first.problem, Y, None
        if len(mode) == 2:
            more = Y if mode[1] == "R" else X
            inner = generator(seed, Stream.CROSS_TAKEN_AT, len(more.leaves))
            taken_at = random_entries(inner, more.size)
            name, image = ("grad_outputs", "grad") if mode[1] == "R" else ("tangents", "tangent")
            named = [replace(leaf, name=f"{name}[{j}]") for j, leaf in enumerate(more.leaves)]
            likes = first.base().arrays[: len(Y.leaves)] if mode[1] == "R" else point.x
            point = point.with_leaves(Space(tuple(named)), likes, taken_at)
            codomain = _images(X if mode[1] == "R" else Y, image)
        quantity = Quantity(mode, point, codomain, taken_at)
        space = quantity.probe_space
        drawn = random_probes(point, space, mode[0], random) if space.size else [np.zeros(0)]
        found.append(replace(quantity, probes=tuple(drawn)))
    return found


def _images(space: Space, name: str) -> Space:
    """Returns the space of what a rule makes of a point of `space`."""
    return Space(tuple(replace(leaf, name=f"{name}({leaf.name})") for leaf in space.leaves))


# ------------------------------------------------------------------ what is compared


STRUCTURE = "structure"


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
    held_against_double: bool = False
    """Whether numbers were held against the function in double precision."""
    double_on: dict[str, str] = field(default_factory=dict)
    """The engine on which a function in double precision runs, by the name of that function."""
    _numbers: dict[tuple[str, str, bool], Numbers] = field(default_factory=dict)
    _first: Engine | None = None

    @property
    def first(self) -> Engine:
        """The engine whose spaces say what is compared: all that are compared return the like."""
        return self._first or self.engines[0]

    @cached_property
    def quantities(self) -> list[Quantity]:
        """What is compared, the value first."""
        return quantities(self.first, self.modes, self.seed)

    @quiet_arithmetic()
    def judge(self, pairs: Sequence[tuple[Engine, Engine]], double: Engine | None = None) -> None:
        """Compares pairs of engines: structure, values, then derivatives, as far as both are alike.

        With `double`, the function in double precision, numbers are compared with its numbers
        instead.
        """
        alike = self._largest_group(
            [pair for pair in pairs if not self._differ_in_structure(*pair)]
        )
        if double is not None and alike and not self._in_a_pair(self.reporting(double.name), alike):
            double = None  # it has the structure of an engine that differs from those
        with_double: list[tuple[Engine, Engine]] = []
        if double is not None:
            like_it = {self.reporting(double.name)}
            like_it |= {e.name for pair in alike if like_it & {x.name for x in pair} for e in pair}
            with_double = [(e, double) for e in self.engines if e.name in like_it]
            if self._is_another_function(with_double, alike):
                double, with_double = None, []
        self.held_against_double = double is not None
        for quantity in self.quantities:
            known = double is not None and self.numbers_of(quantity, double) is not None
            compared = with_double if known else alike
            # Only these are asked: what differs in structure has no numbers in the same spaces.
            asked = [e for e in self.engines if self._in_a_pair(e.name, compared)]
            able = {e.name for e in asked if self.numbers_of(quantity, e) is not None}
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

    def _largest_group(self, alike: Sequence[tuple[Engine, Engine]]) -> list[tuple[Engine, Engine]]:
        """Returns those of the pairs whose engines return the like of the engine that has the most
        partners, and makes it the `first`: the spaces of one result fit no other one.
        """
        partners = {e.name: {e.name} for e in self.engines}
        for one, two in alike:
            partners[one.name].add(two.name)
            partners[two.name].add(one.name)
        self._first = max(self.engines, key=lambda e: len(partners[e.name]))
        group = set().union(*(partners[name] for name in partners[self._first.name]))
        return [pair for pair in alike if pair[0].name in group]

    @staticmethod
    def _in_a_pair(name: str, pairs: Sequence[tuple[Engine, Engine]]) -> bool:
        """Returns whether an engine of this name is one of a pair."""
        return any(name in (one.name, two.name) for one, two in pairs)

    def _is_another_function(
        self, with_double: Sequence[tuple[Engine, Engine]], pairs: Sequence[tuple[Engine, Engine]]
    ) -> bool:
        """Returns whether the function in double precision, the second of each pair in
        `with_double`, has another value than on every engine, or is that of one of two engines
        alone: their values differ by more than rounding.

        Without the second the engine whose function it is was right by definition: of three, the
        two that agree were said to be wrong where that one comes first.
        """
        value = self.quantities[0]
        found = [self.compare(value, one, two) for one, two in with_double]
        another = all(d is not None and d.verdict is Verdict.FAIL for d in found)
        self.other_in_double |= another
        if not another and any(found):
            between = (self.compare(value, one, two) for one, two in pairs)
            another = any(d is not None and d.verdict is Verdict.FAIL for d in between)
        self.comparisons.pop(VALUE, None)  # what is compared in the end is counted then
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
        kinks = quantity == VALUE and self._has(Status.NONSMOOTH, names)
        verdict = Verdict.INCONCLUSIVE if kinks else Verdict.FAIL
        self.divergences.append(
            Divergence(quantity, names, status, verdict, entry, None, 0.0, 1, 1, (), cause, results)
        )

    # ------------------------------------------------------------------ numbers

    def compare(self, quantity: Quantity, one: Engine, two: Engine) -> Divergence | None:
        """Returns where the numbers of two engines differ, if they do; counts them."""
        pair = self._pair(quantity, one, two)
        if pair is None:
            return None
        lengths = None
        if quantity.mode:
            reverse = quantity.mode[0] == "R"
            lengths = quantity.point.length_scales if reverse else np.ones(quantity.space.size)
        sides = Sides(quantity.space, quantity.probes, lengths)
        found = sides.apart(pair)
        if found.compared or not quantity.space.size:  # of an empty array all numbers are compared
            pairs = self.comparisons.setdefault(quantity.mode or VALUE, {})
            pairs[one.name, two.name] = found.compared
        names = one.name, two.name
        if quantity.mode and not _apart(found) and self._has(Status.NONSMOOTH, names):
            # The numbers jump between x and points within rounding of it, which is no conditioning.
            found = sides.apart((pair[0].at_x(), pair[1].at_x()))
        if not _apart(found):
            return None
        around = self._pair(quantity, one, two, wide=True)
        assert around is not None
        if not quantity.mode:
            found = sides.allowing_spacing(around, found)
        suspects = found.suspects(WRONG_FACTOR)
        same = sides.persisting(around, found, suspects)
        candidates = (same.entries, np.flatnonzero(found.not_finite), suspects)
        named = next((entries for entries in candidates if entries.size), None)
        if named is None:
            return None
        k = int(named[np.argmax(found.ratio[named])])
        p, bound = int(found.probe[k]), WRONG_FACTOR * found.allowed
        a, b = (numbers.rows[:, 0] for numbers in pair)
        apart = np.count_nonzero((np.abs(a - b) > bound) | (np.isfinite(a) != np.isfinite(b)))
        ratio = np.inf if found.not_finite[k] else float(found.ratio[k]) / WRONG_FACTOR
        accused = self._accused(quantity.mode, names)
        if same.hidden and not np.any(found.not_finite) and not accused:
            cause = Cause.HIDDEN
        elif same.entries.size or accused:
            cause = Cause.LASTING if same.entries.size else Cause.ACCUSED
        else:
            cause = self._cause_of_passing(names, ratio)
        status, verdict = CONSEQUENCES[cause]
        if found.not_finite[k] and verdict is Verdict.FAIL:
            status = Status.NONFINITE
        return Divergence(
            quantity.mode or VALUE,
            names,
            status,
            verdict,
            quantity.entry(k, p),
            (float(a[p, k]), float(b[p, k])),
            float(bound[k]),
            max(int(apart), 1),
            found.compared,
            accused if verdict is Verdict.FAIL else (),
            cause,
        )

    def _pair(
        self, quantity: Quantity, one: Engine, two: Engine, *, wide: bool = False
    ) -> tuple[Numbers, Numbers] | None:
        """Returns the numbers of both engines, where both have some."""
        first, second = (self.numbers_of(quantity, engine, wide=wide) for engine in (one, two))
        return None if first is None or second is None else (first, second)

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
            first, x = self.first, quantity.point
            eps = first.base().coarsest_eps
            with first.isolated():
                points = list(points_around(x, self.seed, eps)) if wide else [
                    x.origin, *points_within_rounding(x, self.seed, eps=eps)
                ]  # fmt: skip
            with Catching(AdjudgeError) as caught:
                self._numbers[key] = engine.numbers(quantity, points, from_x=not wide)
            if (error := caught.error) is not None:
                lacks = isinstance(error, NotSupportedError)
                status = Status.UNSUPPORTED if lacks else Status.RAISED
                self.missing[quantity.mode, engine.name] = (status, first_line(error))
        return self._numbers.get(key)

    # ------------------------------------------------------------------ verdicts

    def _cause_of_passing(self, names: tuple[str, str], ratio: float) -> Cause:
        """Returns what a difference beyond rounding is put down to that is not the same at points
        around x. `ratio` is that of the difference to what is allowed, infinite where one number is
        not finite.
        """
        not_finite = not np.isfinite(ratio)
        if self._has(Status.NONSMOOTH, names):
            return Cause.NOT_FINITE_AT_KINK if not_finite else Cause.KINK
        if not_finite:
            return Cause.NOT_FINITE
        if self._has(Status.IMPRECISE, names):
            return Cause.NARROW_INSIDE
        return Cause.STRAY if ratio > STRAY_FACTOR else Cause.LOST_DIGITS

    def _accused(self, mode: str, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the engines whose own differences contradict this derivative."""
        wrong = (Verdict.FAIL, Status.RAISED)
        return tuple(
            name
            for name in dict.fromkeys(map(self.reporting, names))
            if name in self.reports and mode and self.reports[name].modes.get(mode) in wrong
        )

    def _has(self, status: Status, names: Sequence[str]) -> bool:
        """Returns whether the report of either engine has such a finding. In the middle of a kink
        central differences have the slope of one engine, and its report says nothing.
        """
        reports = [self.reports.get(self.reporting(name)) for name in names]
        found = [finding for report in reports if report is not None for finding in report.findings]
        return any(finding.status is status for finding in found)

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


def _apart(found: Deviation) -> bool:
    """Returns whether two engines differ by more than rounding next to x."""
    return bool(found.suspects(WRONG_FACTOR).size or np.any(found.not_finite))


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

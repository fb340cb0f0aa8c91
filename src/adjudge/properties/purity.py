"""This module checks that f is a function of its inputs alone: two runs at one point agree, the
value under a derivative is f(x), nothing is written into what was handed out, and a reference is
the same function.

It also tells a cached function from a wrong derivative, and holds what all checks without
differences share (`Identities`): the problem, its tolerance, and the comparison of two vectors to
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    EXTRA_RUNS,
    INSIDE_FACTOR,
    REFERENCE_VALUE_DISTANCES,
    REFERENCE_VALUE_UNITS,
    REORDERING_PART,
    REORDERING_UNITS,
    RESIDUE_UNITS,
    RUNS_APART,
    SCATTERED_PART,
    UNDERFLOW,
    UNDERFLOW_MARGIN,
)
from adjudge.engine import Array, Arrays, MaybeArrays
from adjudge.estimate import Referenced, narrowest_eps
from adjudge.findings import (
    Advice,
    AllowSpread,
    Culprit,
    Disagreement,
    Finding,
    InputNotFinite,
    Meaning,
    NotFinite,
    ReferenceElsewhere,
    Remedy,
    Rule,
    Status,
    Unequal,
    Unrepeatable,
    ValueUnder,
    WritesInto,
)
from adjudge.floats import Vector, of_short_range
from adjudge.jacobian import Table, Tally, Tolerance, points_around
from adjudge.problem import (
    DOUBLE,
    Base,
    Probes,
    Problem,
    Purpose,
    Space,
    evaluate,
    largest,
    outputs_at,
)

# -- two runs at one point


@dataclass(frozen=True)
class Runs:
    """Two runs of a rule, or of the function itself, at one point."""

    space: Space
    eps: Sequence[float]
    """The spacing at 1 of the dtype of each leaf of `space`, in which the spread is measured."""
    first: Vector
    second: Vector

    def finding(
        self,
        rule: Rule | None,
        mode: str,
        allowed: float,
        noise: Vector | float = 0.0,
    ) -> Finding:
        """Returns the finding that the runs differ.

        It is a note where `allowed` covers the spread, or where another order of additions makes
        as much, on a CPU too: see `REORDERING_UNITS`. `noise` is the rounding of f that every entry
        inherits, which may be all of a leaf that is zero.
        """
        space, first, second = self.space, self.first, self.second
        gaps = _differences(first, second)
        sizes = [max(largest(first[p]), largest(second[p])) for p in space.slices]
        # Inside a leaf of sixteen bits a few units are a large part already.
        units = [min(REORDERING_UNITS, e**-0.5) for e in self.eps]
        reordering = [n * e * size for n, e, size in zip(units, self.eps, sizes, strict=True)]
        # Each leaf counts on its own scale: what is little for one may be all of another.
        bound = np.array(reordering)[space.owner] + noise
        k = int(np.argmax(np.where(gaps > 0, gaps / bound, 0.0)))
        j, gap = int(space.owner[k]), float(gaps[k])
        in_units = float(np.float64(gap) / (self.eps[j] * sizes[j]))
        whole, widest = float(np.max(gaps)), int(space.owner[int(np.argmax(gaps))])
        note = whole <= allowed or gap <= float(bound[k])
        detail = Unrepeatable(
            rule,
            float(first[k]),
            float(second[k]),
            gap,
            space.leaves[j].info.dtype.rpartition(".")[2],
            in_units,
            reordering=float(reordering[j]),
            cancelling=float(REORDERING_PART * sizes[j]),
            allowed=allowed if whole <= allowed else None,
            suggested=_suggested_tolerance(whole, self.eps[widest] * sizes[widest]),
        )
        remedy = None if note else AllowSpread(detail.suggested)
        return Finding(Status.NONDETERMINISTIC, mode, space.entry(k), detail, remedy, note=note)


def _suggested_tolerance(gap: float, unit: float) -> float:
    """Returns `RUNS_APART` times the spread, and no less than some units of rounding, rounded up
    to one digit.
    """
    wide = RUNS_APART * max(gap, 4 * unit)
    if not math.isfinite(wide):
        return math.inf
    exponent = math.floor(math.log10(wide))
    return math.ceil(wide / 10.0**exponent) * 10.0**exponent


def largest_difference(a: Vector, b: Vector) -> float:
    """Returns the largest difference of two entries; infinite where one of them alone is NaN."""
    if a.shape == b.shape and (a == b).all():
        return 0.0
    gap = _differences(a, b)
    return float(gap.max()) if gap.size else 0.0


def _differences(a: Vector, b: Vector) -> Vector:
    """Returns the difference entry by entry: zero between two NaNs, infinite beside one."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    gap = np.where(same, 0.0, np.abs(a - b))
    return np.where(np.isnan(gap), np.inf, gap)


def equal_entries(a: Vector, b: Vector) -> bool:
    """Returns whether all entries are equal, NaN to NaN; without NaNs it takes half of the time."""
    return a.shape == b.shape and bool((a == b).all() or np.array_equal(a, b, equal_nan=True))


# -- the function at x


@dataclass
class Identities:
    """The checks of one problem that need no differences, with a count of the numbers compared."""

    problem: Problem
    base: Base
    probes: Probes
    tolerance: Tolerance
    nondet_tol: float
    compared: int = 0
    images: dict[str, tuple[Vector, Vector]] = field(default_factory=dict)
    """The probe that the rule of each mode was tried on, and what that became."""
    varies: bool = False
    """Says that two runs of a rule at the same probe were seen to differ."""

    def value_under(self, rule: Rule, value: Vector) -> Iterator[Finding]:
        """Compares the value that comes with a derivative with f(x).

        They agree to the last bit, or else to rounding where plain evaluations agree among
        themselves: rules for derivatives may compute the value in another order. A few of these
        are made, since two evaluations with random numbers may agree by chance.
        """
        plain = self.base.values[: value.size]
        value = self.base.again(value)
        self.compared += value.size
        if largest_difference(plain, value) <= self.nondet_tol:
            return
        findings: list[Finding] = []
        for _ in range(EXTRA_RUNS):
            findings = list(self.repeatable(evaluate_again(self.problem, self.base)))
            if findings:
                break
        yield from findings
        if not all(finding.note for finding in findings):
            return
        found = list(
            self.equal(
                Status.INCONSISTENT,
                rule.letter,
                self.base.Y,
                (value, plain, np.abs(plain)),
                partial(ValueUnder, rule=rule),
                Remedy.RETURN_VALUE,
            )
        )
        # The mean of what was normalised is zero to the rounding of its terms, and may be another
        # zero where they are added in another order.
        moves = self.base.rounding_of_all if found else None
        if moves is not None and moves.size == plain.size:
            found = found if np.any(np.abs(value - plain) > INSIDE_FACTOR * moves) else []
        yield from found

    def same_value(self, value: Vector) -> bool:
        """Returns whether this is f(x), to rounding and to what the caller allows."""
        plain = self.base.values[: value.size]
        value = self.base.again(value)
        allowed = self.nondet_tol + self.tolerance.identity * largest(plain)
        return largest_difference(plain, value) <= allowed

    def difference_from(self, again: Vector) -> float:
        """Returns the largest difference between two evaluations at x."""
        return largest_difference(self.base.values[: again.size], again)

    @cached_property
    def any_order(self) -> bool:
        """Says whether a device that is used may add in any order."""
        environment = self.problem.backend.environment
        return any(map(environment.determinism_setting, self.problem.x))

    @property
    def eps_inside(self) -> float:
        """The spacing at 1 of the narrowest dtype that f computes with. It is asked for where
        something disagrees, since where no engine sees that dtype it costs evaluations.
        """
        known = max(self.tolerance.eps, self.base.carried_eps)
        return max(known, narrowest_eps(self.problem, self.base))

    @property
    def short_of_range(self) -> bool:
        """Says whether f computes in a dtype, as float16 is one, that has no room for what large
        and small multiples of a probe make inside of it, though another may be narrower, as
        bfloat16 is. Asked for as `eps_inside` is.
        """
        spacings = (self.eps_inside, *self.problem.spacings_inside)
        return any(map(of_short_range, spacings))

    def spacing(self, arrays: Sequence[Array]) -> list[float]:
        """Returns the spacing at 1 of the dtype of each array."""
        return [self.problem.backend.arrays.eps(array) for array in arrays]

    def repeatable(self, again: Vector) -> Iterator[Finding]:
        """Compares two evaluations at x, within `nondet_tol`."""
        self.compared += again.size
        if self.difference_from(again) > self.nondet_tol:
            yield from self.nondeterminism(again)

    def nondeterminism(self, again: Vector) -> Iterator[Finding]:
        """Yields the finding that two evaluations at x differ; it is a note within `nondet_tol`."""
        values = self.base.values[: again.size]
        if largest_difference(values, again) > 0:
            runs = Runs(self.base.whole, self.spacing(self.base.arrays), values, again)
            mode = self.problem.modes_taken
            yield self.allowing(runs.finding(None, mode, self.nondet_tol))

    def allowing(self, unrepeatable: Finding) -> Finding:
        """Returns the finding. Where the caller allows the spread, identities allow it from here
        on: without that, a rule of which `nondet_tol` says that it varies would not be linear.

        A comparison allows what was seen, with room for runs that differ more, and no more than
        `nondet_tol`: with that alone a gradient that is 2 % wrong passed under a tolerance of 1e-2
        for a jitter of 1e-6.
        """
        if unrepeatable.note and self.nondet_tol > 0:
            assert isinstance(unrepeatable.detail, Unrepeatable)
            seen = RUNS_APART * unrepeatable.detail.suggested
            spread = max(self.tolerance.spread, min(self.nondet_tol, seen))
            self.tolerance = replace(self.tolerance, spread=spread)
        return unrepeatable

    @property
    def repeated_apart(self) -> float:
        """What two runs of the same may differ by. The caller allows `nondet_tol`, also where the
        two runs that were looked at happened to agree.
        """
        return RUNS_APART * max(self.nondet_tol, self.tolerance.spread)

    def unchanged(
        self,
        arrays: MaybeArrays,
        likes: Arrays,
        space: Space,
        before: Vector,
        by: Culprit,
    ) -> Iterator[Finding]:
        """Checks that the arrays that were handed out still hold what they held."""
        now = space.vector(self.problem.backend, arrays, likes)
        self.compared += now.size
        if equal_entries(now, before):
            return
        letter = {Culprit.VJP: "R", Culprit.JVP: "F"}.get(by, "")
        for leaf, part in zip(space.leaves, space.slices, strict=True):
            if not equal_entries(now[part], before[part]):
                yield Finding(
                    Status.MUTATES_INPUT,
                    letter + self.problem.modes_taken,
                    leaf.name,
                    WritesInto(by),
                    Remedy.WORK_ON_COPY,
                )

    def finite(self) -> Iterator[Finding]:
        """Checks that f is finite at x, or the same beside x as there."""
        base = self.base
        if self.problem.empty:
            return
        if self._poles.any():
            found = self._not_finite(self._poles, left_out=True, pole=True)
            yield replace(found, remedy=Remedy.MOVE_INTO_DOMAIN, open=True)
        bad = ~np.isfinite(base.values)
        if bad.any() and not self.tolerance.equal_nan:
            remedy = Remedy.MOVE_INTO_DOMAIN_OR_ALLOW_NAN
            yield replace(self._not_finite(bad), remedy=remedy, open=True)

    def left_out(self, claims: Callable[[NDArray[np.bool_]], bool]) -> Iterator[Finding]:
        """Tells of the outputs that are left out, since they are not finite at x and beside it.

        It is a note, unless some of them are NaN and the rule `claims` a derivative of these, which
        the caller does not allow: x lies outside of the domain of f then, as with `log` at -1. An
        infinity may have one: that of `scores + mask` is 1 also where the mask is -inf.
        """
        if self.base.omitted is None or self.base.raw is None:
            return
        out = self.base.omitted & ~self._poles
        if not out.any():
            return
        undefined = out & np.isnan(self.base.raw) & (not self.tolerance.equal_nan)
        outside = bool(undefined.any()) and claims(undefined[: self.base.Y.size])
        found = self._not_finite(undefined if outside else out, left_out=True)
        remedy = Remedy.MOVE_INTO_DOMAIN_OR_ALLOW_NAN if outside else None
        yield replace(found, remedy=remedy, open=outside, note=not outside)

    @property
    def _poles(self) -> NDArray[np.bool_]:
        """Marks the outputs that are something else beside x than at it, where they are not finite;
        a NaN that the caller allows is none.
        """
        base = self.base
        if base.poles is None or base.raw is None:
            return np.zeros(base.values.size, bool)
        return base.poles & ~(np.isnan(base.raw) & self.tolerance.equal_nan)

    def input_left_out(self) -> Iterator[Finding]:
        """Tells of entries of x that are not finite, beside others that are."""
        problem = self.problem
        bad = ~np.isfinite(problem.origin)
        if problem.finite or bad.all():
            return
        k = int(np.argmax(bad))
        detail = InputNotFinite(float(problem.origin[k]), int(bad.sum()), bad.size)
        entry = problem.X.entry(k)
        yield Finding(Status.NONFINITE, problem.modes_taken, entry, detail, note=True)

    def _not_finite(
        self, bad: NDArray[np.bool_], *, left_out: bool = False, pole: bool = False
    ) -> Finding:
        """Returns the finding that f is not finite at these outputs."""
        values, k = self.base.given, int(np.argmax(bad))
        detail = NotFinite(float(values[k]), int(bad.sum()), int(bad.size), left_out, pole)
        entry = self.base.whole.entry(k)
        return Finding(Status.NONFINITE, self.problem.modes_taken, entry, detail)

    def residue(self, space: Space, *, inside: bool = False) -> Vector:
        """Returns the rounding that a derivative inherits from the values it is computed through,
        as large as those of f, or with `inside` as the numbers inside of f that cancel in these.

        It stays where the derivative itself is zero, so a comparison that is relative to the
        derivative alone would call two residues of rounding unequal.
        """
        size = largest(self.base.values)
        moves = self.base.rounding_of_all if inside else None
        if moves is not None:
            size = max(size, largest(moves) / self.tolerance.eps)
        x = self.problem.length_scales
        eps = self.tolerance.eps
        # In sixteen bits a few units are a large part of a derivative already.
        unit = min(RESIDUE_UNITS, eps**-0.5) * eps * size
        if space is self.problem.X:
            return np.asarray(unit / x)
        return np.full(space.size, unit / np.min(x, initial=np.inf))

    def equal(
        self,
        status: Status,
        letter: str,
        space: Space,
        both: tuple[Vector, Vector, Vector],
        differ: Callable[..., Unequal],
        remedy: Advice | None = None,
        *,
        strict: bool = False,
    ) -> Iterator[Finding]:
        """Compares two vectors to the rounding of the sizes behind them, leaf by leaf; `differ`
        makes the detail of a finding.

        What cancels in a derivative of zero leaves a residue that is as large as the rounding of f.
        It is not excused where the comparison is `strict`: in float32 it hides every gradient below
        a ten-thousandth of f over x. That is for vectors that round alike, as the images of a probe
        and of a power of two times it do, and for what has to differ at other points as well.
        """
        one, two, size = both
        self.compared += one.size
        # Most agree to the rounding of every entry.
        if (np.abs(one - two) <= self.tolerance.identity * size).all():
            return
        residue = np.zeros(space.size) if strict else self.residue(space)
        for leaf, part in zip(space.leaves, space.slices, strict=True):
            if part.stop == part.start:
                continue
            finite = np.isfinite(one[part]) & np.isfinite(two[part])
            largest = np.max(np.where(np.isfinite(size[part]), size[part], 0.0))
            bound = self.tolerance.identity * largest + residue[part]
            # Engines may flush the smallest numbers to zero.
            bound = bound + (leaf.tiny or UNDERFLOW_MARGIN * UNDERFLOW)
            bound = bound + self.repeated_apart + (self.tolerance.atol or 0.0)
            apart = finite & ~(np.abs(one[part] - two[part]) <= bound)
            if apart.any() and self.base.coarsest_eps <= DOUBLE and not strict:
                # Numbers that are all rounding of terms which cancel agree in no digit.
                most = np.fmax(np.abs(one[part]), np.abs(two[part]))
                apart &= ~(most <= self.residue(space, inside=True)[part])
            if apart.any() and self.eps_inside > self.tolerance.eps:
                # What computes in a narrower dtype inside agrees to the rounding of that.
                tolerance = replace(self.tolerance, eps=self.eps_inside)
                narrow = replace(self, tolerance=tolerance)
                yield from narrow.equal(status, letter, space, both, differ, remedy, strict=strict)
                return
            if apart.any():
                gaps = np.where(apart, np.abs(one[part] - two[part]), -1.0)
                k = part.start + int(np.argmax(gaps))
                others = int(apart.sum()) - 1
                yield Finding(
                    status,
                    letter + self.problem.modes_taken,
                    space.entry(k),
                    differ(float(one[k]), float(two[k]), others),
                    remedy,
                )


def evaluate_again(problem: Problem, base: Base) -> Vector:
    """Returns all outputs, evaluated a second time at x."""
    return base.again(outputs_at(problem, base, problem.origin, Purpose.AGAIN_AT_X))


def restricted(space: Space, w: Vector, *leaves: int) -> Vector:
    """Returns `w` with zeros outside of these leaves."""
    part = np.zeros_like(w)
    for k in leaves:
        part[space.slices[k]] = w[space.slices[k]]
    return part


# -- functions that are cached


def detect_cache(table: Table, tally: Tally) -> Meaning | None:
    """Returns the kind of cache that alone makes f stand still in `tally`; `None` where nothing
    shows one.

    A function under `lru_cache`, or a memo by `id`, returns the value of another input and looks as
    if its right derivative were spurious. Two evaluations are made at points that are both alive,
    so that neither takes the other's `id`. Where they give two objects, four more follow:
    differences with and without earlier points kept alive.
    """
    problem, failure = table.problem, table.record.failures.get(tally.mode)
    others = (*tally.wrong, *tally.open)
    stands = bool(others) and all(entry.reference == 0.0 for entry in others)
    if problem.modes_taken or not (tally.spurious or stands):
        return None
    everything = slice(0, problem.X.size)
    tangent = (
        next(table.probes.tangents(problem.origin, everything))
        if failure is None
        else failure.tangent
    )
    if tally.spurious:
        problem.counts.purpose = Purpose.CACHE
        x, there = problem.point(), problem.point(problem.origin + tangent.vector * tangent.length)
        before, after = problem.evaluate(x), problem.evaluate(there)
        if any(one is two for one, two in zip(before, after, strict=True)):
            return Meaning.SAME_ARRAY
    plain = table.estimator.along(tangent).estimate.value
    with problem.counts.keeping():
        alive = table.estimator.along(tangent).estimate.value
    return Meaning.STALE_VALUES if not plain.any() and alive.any() else None


def open_for_cache(findings: Sequence[Finding], cache: Meaning) -> list[Finding]:
    """Leaves open the findings that a cache puts in doubt, since the comparison was with
    the cache.
    """
    return [_opened(one, cache) if one.status in _in_doubt(cache) else one for one in findings]


def explained_by_cache(findings: Sequence[Finding], cache: Meaning) -> bool:
    """Returns whether a cache accounts for all of these findings."""
    return _in_doubt(cache) >= {finding.status for finding in findings}


def _in_doubt(cache: Meaning) -> set[Status]:
    """Returns what a cache puts in doubt: everything where it returned the values of another input,
    and what does not move where it returned one array twice.
    """
    return {Status.SPURIOUS} if cache is Meaning.SAME_ARRAY else set(Status)


def _opened(finding: Finding, cache: Meaning) -> Finding:
    """Returns a finding left open, with the cache as its meaning."""
    detail = finding.detail
    if isinstance(detail, Disagreement):
        detail = replace(detail, meaning=cache, accuracy=None)
    return replace(finding, status=Status.SPURIOUS, open=True, detail=detail, remedy=None)


# -- a reference


def another_function(
    reference: Referenced, problem: Problem, base: Base, tolerance: Tolerance, seed: int
) -> list[Finding]:
    """Returns a finding where the reference has another value at x than f, beyond the rounding of
    f. Without that a reference of another function (a forgotten constant) would call a right
    derivative wrong.

    A gap of more than units of rounding may be what the rounding of f's own steps makes of them, as
    in `1 + erf(x)` at -9. It is looked at again at four points nearby. Rounding, however
    much cancellation makes of it, is scattered there; another function is off as much, or smoothly.
    """
    # A derivative has the outputs of f itself beside its own.
    own, first = (len(base.Y.leaves), base.Y.size) if problem.modes_taken else (0, 0)
    space = Space(base.whole.leaves[own:])

    def gap_at(point: Vector, values: Vector) -> Vector | None:
        """Returns f less the reference; `None` where the reference has derivatives only."""
        given = reference.values(space, point)
        return None if given is None else np.asarray(values[first:] - given)

    gap = gap_at(problem.origin, base.values)
    if gap is None:
        return []
    size = base.magnitude(base.values)[first:]
    allowed = REFERENCE_VALUE_UNITS * tolerance.eps * size
    off = np.isfinite(gap) & ~(np.abs(gap) <= allowed)
    off |= np.isnan(gap) & np.isfinite(base.values[first:])
    if base.omitted is not None:
        off &= ~base.omitted[first:]
    if not np.any(off):
        return []
    off &= ~(np.abs(gap) <= reference.value_slack(space, problem.origin, tolerance.eps))
    if not np.any(off):
        return []
    off &= ~_is_scattered(problem, base, gap, gap_at, seed)
    if not np.any(off):
        return []
    worst = int(np.argmax(np.where(off, np.nan_to_num(np.abs(gap), nan=np.inf), -1.0)))
    mine = float(base.values[first + worst])
    detail = ReferenceElsewhere(
        mine,
        mine - float(gap[worst]),
        abs(float(gap[worst])),
        float(allowed[worst]),
        count=int(off.sum()),
        entries=off.size,
    )
    return [Finding(Status.REFERENCE, "", space.entry(worst), detail, Remedy.MATCH_REFERENCE)]


def _is_scattered(
    problem: Problem,
    base: Base,
    gap: Vector,
    gap_at: Callable[[Vector, Vector], Vector | None],
    seed: int,
) -> NDArray[np.bool_]:
    """Marks where the gap varies nearby by more than `SCATTERED_PART` of itself."""
    gaps = [gap]
    for point in points_around(problem, seed, 0.0, REFERENCE_VALUE_DISTANCES):
        there = gap_at(point, evaluate(problem, base, point, Purpose.REFERENCE))
        # There was a value at x.
        assert there is not None
        gaps.append(there)
    every = np.array(gaps)
    scatter = np.max(np.abs(every - every.mean(axis=0)), axis=0)
    return np.asarray(scatter > SCATTERED_PART * np.abs(every.mean(axis=0)))

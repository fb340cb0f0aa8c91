"""What must hold exactly, whatever f is: purity, repeatability, linearity, agreement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Array, Arrays, MaybeArrays
from adjudge.errors import Catching, Source, UnstableOutputError, running
from adjudge.findings import (
    Advice,
    BatchRaised,
    BatchUnlikeLoop,
    Culprit,
    EqualRowsDiffer,
    Finding,
    NonzeroAtZero,
    NotFinite,
    NotHomogeneous,
    Raised,
    Remedy,
    Rule,
    Status,
    Unequal,
    ValueUnder,
    WritesInto,
)
from adjudge.floats import Vector
from adjudge.jacobian import UNDERFLOW, Tolerance
from adjudge.problem import Base, Probes, Problem, Purpose, Space, evaluate
from adjudge.properties import purity as repeats
from adjudge.properties.purity import largest_gap, spread

UNITS = 64
"""Units of rounding of terms that cancel."""
RESIDUE = 1024
"""Units of rounding of f over the scale of x that a derivative may be where it should be zero: what
cancels in it may be some hundred times f (a mean of one number less that number, over its spread).
"""


MORE = 3
"""Further calls of a rule that is not repeatable: how far two runs are apart changes as well."""


@dataclass
class Identities:
    """Findings of the checks that need no differences, with a count of the numbers compared."""

    problem: Problem
    base: Base
    probes: Probes
    tolerance: Tolerance
    nondet_tol: float
    compared: int = 0
    images: dict[str, tuple[Vector, Vector]] = field(default_factory=dict)
    """By mode, the probe that its rule was tried on, and what that became."""

    # -- the function

    def value_under(self, rule: Rule, value: Vector) -> Iterator[Finding]:
        """The value that comes with a derivative is f(x).

        Bit for bit, or else to rounding, where plain evaluations agree among themselves: rules
        for derivatives may compute the value in another order.
        """
        plain = self.base.values[: value.size]
        self.compared += value.size
        if spread(plain, value) <= self.nondet_tol:
            return
        findings = list(self.repeatable(again(self.problem, self.base)))
        yield from findings
        if all(finding.note for finding in findings):
            yield from self.equal(
                Status.INCONSISTENT,
                rule.letter,
                self.base.Y,
                (value, plain),
                np.abs(plain),
                partial(ValueUnder, rule=rule),
                Remedy.RETURN_VALUE,
            )

    def spread(self, again: Vector) -> float:
        """The largest difference between two evaluations at x."""
        return spread(self.base.values[: again.size], again)

    @cached_property
    def _any_order(self) -> bool:
        """Whether a device that is used may add in any order."""
        return any(
            self.problem.backend.environment.determinism_setting(array) for array in self.problem.x
        )

    def _spacing(self, arrays: Sequence[Array]) -> list[float]:
        return [self.problem.backend.arrays.eps(array) for array in arrays]

    def repeatable(self, again: Vector) -> Iterator[Finding]:
        """Two evaluations at x agree within `nondet_tol`."""
        self.compared += again.size
        if self.spread(again) > self.nondet_tol:
            yield from self.nondeterminism(again)

    def nondeterminism(self, again: Vector) -> Iterator[Finding]:
        """Two evaluations at x differ: a note within `nondet_tol`."""
        values = self.base.values[: again.size]
        if spread(values, again) > 0:
            yield repeats.finding(
                self.base.whole,
                self._spacing(self.base.arrays),
                values,
                again,
                None,
                self.problem.modes_taken,
                self.nondet_tol,
                self._any_order,
            )

    def unchanged(
        self,
        arrays: MaybeArrays,
        likes: Sequence[Array],
        space: Space,
        before: Vector,
        by: Culprit,
    ) -> Iterator[Finding]:
        """The arrays that were handed out still hold what they held."""
        backend = self.problem.backend
        for leaf, part, array, like in zip(space.leaves, space.slices, arrays, likes, strict=False):
            if array is None:
                continue
            now = leaf.vector(backend.arrays.to_host(array, like))
            self.compared += now.size
            if not _equal(now, before[part]):
                yield Finding(
                    Status.MUTATES_INPUT,
                    self.problem.modes_taken,
                    leaf.name,
                    WritesInto(by),
                    Remedy.WORK_ON_COPY,
                )

    def finite(self) -> Iterator[Finding]:
        """f is finite at x."""
        space, values = self.base.whole, self.base.values
        bad = np.flatnonzero(~self._finite)
        if bad.size and not self.tolerance.equal_nan:
            k = int(bad[0])
            yield Finding(
                Status.NONFINITE,
                self.problem.modes_taken,
                space.entry(k),
                NotFinite(float(values[k]), int(bad.size), int(values.size)),
                Remedy.MOVE_INTO_DOMAIN_OR_ALLOW_NAN,
                open=True,
            )

    # -- shared

    def linear(
        self,
        rule: Rule,
        apply: Callable[[Vector], Vector],
        u: Vector,
        first: Vector,
        space: Space,
    ) -> Iterator[Finding]:
        """`A(-2u) = -2 A(u)`, to the last bit for a repeatable linear map, and `A(0) = 0`."""
        doubled = apply(-2.0 * u)
        self.compared += first.size
        if not _equal(doubled, -2.0 * first):
            pairs = [(first, apply(u))]
            if _equal(*pairs[0]):  # two runs out of three may agree by chance
                pairs = [(doubled / -2.0, apply(-2.0 * u) / -2.0)]
            if not _equal(*pairs[0]):
                pairs += [(first, apply(u)) for _ in range(MORE)]
            gap = max(spread(*pair) for pair in pairs)
            varying = list(self._varying(rule, pairs, space))
            yield from varying
            if all(finding.note for finding in varying):
                yield from self.equal(
                    Status.NONLINEAR,
                    rule.letter,
                    space,
                    (doubled, -2.0 * first),
                    2.0 * np.abs(first) + gap,
                    partial(NotHomogeneous, rule=rule),
                    Remedy.MULTIPLY_BY_PROBE,
                )
        elif self._any_order:
            # sums of the few digits of probes are exact, and so the same in every order
            dense = u * np.random.default_rng([self.probes.seed, 3]).uniform(1, 1.5, u.shape)
            pairs = [(apply(dense), apply(dense))]
            if not _equal(*pairs[0]):
                pairs += [(pairs[0][0], apply(dense)) for _ in range(MORE)]
            self.compared += first.size
            yield from self._varying(rule, pairs, space)
        if rule is Rule.VJP:
            yield from self.zero(rule, apply, np.zeros_like(u), space)

    def _varying(
        self, rule: Rule, pairs: Sequence[tuple[Vector, Vector]], space: Space
    ) -> Iterator[Finding]:
        """The pair of runs of a rule that differs most, if any does."""
        one, two = max(pairs, key=lambda pair: spread(*pair))
        if spread(one, two) > 0:
            arrays = self.problem.x if rule is Rule.VJP else self.base.arrays
            yield repeats.finding(
                space,
                self._spacing(arrays[: len(space.leaves)]),
                one,
                two,
                rule,
                rule.letter + self.problem.modes_taken,
                self.nondet_tol,
                self._any_order,
                self.noise(space),
            )

    def zero(
        self,
        rule: Rule,
        apply: Callable[[Vector], Vector],
        zero: Vector,
        space: Space,
        largest: float = 0.0,
    ) -> Iterator[Finding]:
        """A zero cotangent (tangent, in forward mode) gives zero; or the rounding of `largest`,
        where terms of that size cancel.
        """
        at_zero = apply(zero)
        self.compared += at_zero.size
        if not np.any(at_zero):  # NaN counts
            return
        allowed = np.abs(at_zero) <= UNITS * self.tolerance.eps * largest
        if self.tolerance.equal_nan:
            allowed |= np.isnan(at_zero)
        bad = np.flatnonzero((at_zero != 0) & ~allowed)
        if bad.size:
            k = int(bad[0])
            finite = bool(np.all(np.isfinite(at_zero)))
            yield Finding(
                Status.NONLINEAR if finite else Status.NONFINITE,
                rule.letter + self.problem.modes_taken,
                space.entry(k),
                NonzeroAtZero(float(at_zero[k]), rule),
                open=not finite,
            )

    def noise(self, space: Space) -> Vector:
        """Rounding that a derivative inherits from values it is computed through, and that stays
        where the derivative itself is zero: units of rounding of f over the scale of x.
        """
        largest = np.max(np.abs(self.base.values), initial=0.0, where=self._finite)
        with np.errstate(all="ignore"):
            x = self.problem.length_scales
            unit = RESIDUE * self.tolerance.eps * largest
            if space is self.problem.X:
                return np.asarray(unit / x)
            return np.full(space.size, unit / np.min(x, initial=np.inf))

    @cached_property
    def _finite(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.base.values))

    def equal(
        self,
        status: Status,
        letter: str,
        space: Space,
        sides: tuple[Vector, Vector],
        size: Vector,
        differ: Callable[..., Unequal],
        remedy: Advice | None = None,
    ) -> Iterator[Finding]:
        """Both sides are equal to rounding, leaf by leaf; `differ` makes the detail where not."""
        one, two = sides
        self.compared += one.size
        for leaf, part in zip(space.leaves, space.slices, strict=True):
            if part.stop == part.start:
                continue
            with np.errstate(all="ignore"):
                finite = np.isfinite(one[part]) & np.isfinite(two[part])
                largest = np.max(np.where(np.isfinite(size[part]), size[part], 0.0))
                bound = self.tolerance.identity * largest + self.noise(space)[part]
                bound = bound + (leaf.tiny or 16 * UNDERFLOW)  # engines may flush to zero
                apart = finite & ~(np.abs(one[part] - two[part]) <= bound)
            if np.any(apart):
                k = part.start + largest_gap(one[part], two[part])
                others = int(apart.sum()) - 1
                yield Finding(
                    status,
                    letter + self.problem.modes_taken,
                    space.entry(k),
                    differ(float(one[k]), float(two[k]), others),
                    remedy,
                )

    def batched(
        self,
        rule: Rule,
        name: str,
        function: Callable[[MaybeArrays], MaybeArrays],
        pair: list[Arrays],
        space: Space,
        likes: Sequence[Array],
        vmap: Callable[[Callable[[MaybeArrays], MaybeArrays]], Callable[..., MaybeArrays]],
    ) -> Iterator[Finding]:
        backend = self.problem.backend
        mode = rule.letter + self.problem.modes_taken
        loop = [function(arrays) for arrays in pair]
        with running(Source.ENGINE):
            stacked = backend.arrays.stack([arrays[0] for arrays in pair])
        with Catching(UnstableOutputError) as caught, running(Source.DERIVATIVE):
            together = vmap(function)(stacked)
        if (error := caught.error) is not None:  # whatever the batched rule stumbles over
            yield Finding(
                Status.RAISED,
                mode,
                name,
                BatchRaised(Raised.of(error), rule),
                Remedy.GIVE_BATCHING_RULE,
                cause=error,
            )
            return

        def row(batch: MaybeArrays, s: int) -> Vector:
            with running(Source.ENGINE):
                picked = tuple(None if array is None else array[s] for array in batch)
            return space.vector(backend, picked, tuple(likes))

        apart: list[Finding] = []
        for s, single in enumerate(loop):
            two = space.vector(backend, single, tuple(likes))
            apart += self.equal(
                Status.INCONSISTENT,
                rule.letter,
                space,
                (row(together, s), two),
                np.abs(two),
                partial(BatchUnlikeLoop, rule=rule, leaf=name),
                Remedy.MEND_BATCHING_RULE,
            )
        if apart:
            with running(Source.DERIVATIVE):
                twice = vmap(function)(backend.arrays.stack([pair[0][0], pair[0][0]]))
            if not _equal(row(twice, 0), row(twice, 1)):
                differ, remedy = EqualRowsDiffer(rule), Remedy.PASS_RANDOM_NUMBERS
                apart = [Finding(Status.NONDETERMINISTIC, mode, name, differ, remedy)]
        yield from apart


def again(problem: Problem, base: Base) -> Vector:
    """All outputs, evaluated a second time at x."""
    return evaluate(problem, base, problem.origin, Purpose.AGAIN_AT_X)


def _equal(a: Vector, b: Vector) -> bool:
    """Entry by entry, NaN equal to NaN; without NaNs in half the time."""
    return np.array_equal(a, b) or np.array_equal(a, b, equal_nan=True)


def masked(space: Space, w: Vector, attached: Sequence[bool]) -> Vector:
    """`w` with zeros at detached outputs."""
    w = w.copy()
    for part, here in zip(space.slices, attached, strict=True):
        if not here:
            w[part] = 0.0
    return w


def only(space: Space, w: Vector, k: int) -> Vector:
    """`w` with zeros outside leaf `k`."""
    part = np.zeros_like(w)
    part[space.slices[k]] = w[space.slices[k]]
    return part

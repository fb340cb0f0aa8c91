"""What must hold exactly, whatever f is: purity, repeatability, linearity, agreement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adjudge.backend import Array, Arrays, MaybeArrays
from adjudge.compare import UNDERFLOW, Tolerance
from adjudge.errors import NotSupportedError
from adjudge.findings import Finding, Status
from adjudge.observed import Base, evaluate
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.spaces import Space, Vector

UNITS = 64
"""Units of rounding of terms that cancel."""
RESIDUE = 1024
"""Units of rounding of f over the scale of x that a derivative may be where it should be zero: what
cancels in it may be some hundred times f (a mean of one number less that number, over its spread).
"""


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

    def value_under(self, mode: str, value: Vector) -> Iterator[Finding]:
        """The value that comes with a derivative is f(x).

        Bit for bit, or else to rounding, where plain evaluations agree among themselves: rules
        for derivatives may compute the value in another order.
        """
        plain = self.base.values[: value.size]
        self.compared += value.size
        if _spread(plain, value) <= self.nondet_tol:
            return
        findings = list(self.repeatable(again(self.problem, self.base)))
        yield from findings
        if not findings:
            yield from self.equal(
                Status.INCONSISTENT,
                mode[0],
                self.base.Y,
                value,
                plain,
                np.abs(plain),
                f"the value under {mode.lower()} is not f(x)",
                (mode.lower(), "f(x)"),
                "the rule for the derivative must return the value of the function",
            )

    def spread(self, again: Vector) -> float:
        """The largest difference between two evaluations at x."""
        return _spread(self.base.values, again)

    def repeatable(self, again: Vector) -> Iterator[Finding]:
        """Two evaluations at x agree within `nondet_tol`."""
        values = self.base.values[: again.size]
        self.compared += again.size
        spread = _spread(values, again)
        if spread > self.nondet_tol:
            k = _largest(values, again)
            yield Finding(
                Status.NONDETERMINISTIC,
                self.problem.tail,
                self.base.whole.entry(k),
                f"{self.base.whole.entry(k)} differs by {spread:.3g} between two evaluations at "
                "the same x\n"
                f"  first   {values[k]:.17g}\n"
                f"  second  {again[k]:.17g}\n"
                "  fix the randomness or hidden state of the function, or allow the spread: "
                f"nondet_tol={2 * spread:.1g}",
            )

    def unchanged(
        self,
        arrays: MaybeArrays,
        likes: Sequence[Array],
        space: Space,
        before: Vector,
        by: str,
        which: str = "",
    ) -> Iterator[Finding]:
        """The arrays that were handed out still hold what they held."""
        backend = self.problem.backend
        for leaf, part, array, like in zip(space.leaves, space.slices, arrays, likes, strict=False):
            if array is None:
                continue
            now = leaf.vector(backend.to_host(array, like))
            self.compared += now.size
            if not _equal(now, before[part]):
                yield Finding(
                    Status.MUTATES_INPUT,
                    self.problem.tail,
                    leaf.name,
                    f"{by} writes into {which}{leaf.name}, which it was handed\n"
                    "  work on a copy; a caller's array must not change",
                )

    def finite(self) -> Iterator[Finding]:
        """f is finite at x."""
        space, values = self.base.whole, self.base.values
        bad = np.flatnonzero(~self._finite)
        if bad.size and not self.tolerance.equal_nan:
            k = int(bad[0])
            yield Finding(
                Status.NONFINITE,
                self.problem.tail,
                space.entry(k),
                f"{space.entry(k)} is {values[k]} at x: {bad.size} of {values.size} output "
                "entries are not finite\n"
                "  move x into the domain of the function, or pass equal_nan=True to let agreeing "
                "NaNs pass",
                open=True,
            )

    # -- shared

    def linear(
        self,
        rule: str,
        apply: Callable[[Vector], Vector],
        u: Vector,
        first: Vector,
        space: Space,
        word: str,
    ) -> Iterator[Finding]:
        """`A(-2u) = -2 A(u)`, to the last bit for a repeatable linear map, and `A(0) = 0`."""
        letter = "R" if rule == "vjp" else "F"
        doubled = apply(-2.0 * u)
        self.compared += first.size
        if not _equal(doubled, -2.0 * first):
            again = apply(u)
            spread = _spread(first, again)
            if spread > self.nondet_tol:
                k = _largest(first, again)
                yield Finding(
                    Status.NONDETERMINISTIC,
                    letter + self.problem.tail,
                    space.entry(k),
                    f"the {rule} at {space.entry(k)} differs by {spread:.3g} between two calls "
                    f"with the same {word}\n"
                    f"  first   {first[k]:.17g}\n"
                    f"  second  {again[k]:.17g}\n"
                    f"  make the {rule} repeatable, or allow the spread: "
                    f"nondet_tol={2 * spread:.1g}",
                )
            else:
                yield from self.equal(
                    Status.NONLINEAR,
                    letter,
                    space,
                    doubled,
                    -2.0 * first,
                    2.0 * np.abs(first) + spread,
                    f"the {rule} is not linear in its {word}: {rule}(-2u) is not -2 {rule}(u)",
                    (f"{rule}(-2u)", f"-2 {rule}(u)"),
                    f"multiply by the {word}, and by nothing that depends on it",
                )
        if rule == "vjp":
            yield from self.zero(apply, np.zeros_like(u), space)

    def zero(
        self,
        apply: Callable[[Vector], Vector],
        zero: Vector,
        space: Space,
        letter: str = "R",
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
            word, rule = ("cotangent", "backward") if letter == "R" else ("tangent", "forward")
            yield Finding(
                Status.NONLINEAR if finite else Status.NONFINITE,
                letter + self.problem.tail,
                space.entry(k),
                f"a zero {word} gives {at_zero[k]:.6g} for {space.entry(k)}, not zero\n"
                + (
                    f"  the {rule} pass is not multiplied by its {word}"
                    if finite
                    else "  the local derivative is not finite: zero times infinity is NaN"
                ),
                open=not finite,
            )

    def noise(self, space: Space) -> Vector:
        """Rounding that a derivative inherits from values it is computed through, and that stays
        where the derivative itself is zero: units of rounding of f over the scale of x.
        """
        largest = np.max(np.abs(self.base.values), initial=0.0, where=self._finite)
        with np.errstate(all="ignore"):
            x = self.problem.lengths
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
        one: Vector,
        two: Vector,
        size: Vector,
        sentence: str,
        names: tuple[str, str],
        remedy: str,
    ) -> Iterator[Finding]:
        """`one` equals `two` to rounding, leaf by leaf."""
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
                k = part.start + _largest(one[part], two[part])
                width = max(len(name) for name in names)
                yield Finding(
                    status,
                    letter + self.problem.tail,
                    space.entry(k),
                    f"{sentence}, at {space.entry(k)} and {int(apart.sum()) - 1} others\n"
                    f"  {names[0]:<{width}}  {one[k]: .12g}\n"
                    f"  {names[1]:<{width}}  {two[k]: .12g}\n"
                    f"  {remedy}",
                )

    def batched(
        self,
        letter: str,
        name: str,
        function: Callable[[MaybeArrays], MaybeArrays],
        pair: list[Arrays],
        space: Space,
        likes: Sequence[Array],
        vmap: Callable[[Callable[[MaybeArrays], MaybeArrays]], Callable[..., MaybeArrays]],
    ) -> Iterator[Finding]:
        backend = self.problem.backend
        rule = "vjp" if letter == "R" else "jvp"
        loop = [function(arrays) for arrays in pair]
        stacked = tuple(backend.stack([arrays[0] for arrays in pair]) for _ in (0,))
        try:
            together = vmap(function)(*stacked)
        except NotSupportedError:
            raise
        except Exception as error:  # whatever the batched rule stumbles over is the finding
            yield Finding(
                Status.RAISED,
                letter + self.problem.tail,
                name,
                f"the vmapped {rule} for {name} raises {type(error).__name__}: {error}\n"
                f"  give the {rule} a batching rule, or leave out the check of batched gradients",
                cause=error,
            )
            return

        def row(batch: MaybeArrays, s: int) -> Vector:
            picked = tuple(None if array is None else array[s] for array in batch)
            return space.vector(backend, picked, tuple(likes))

        apart: list[Finding] = []
        for s, single in enumerate(loop):
            two = space.vector(backend, single, tuple(likes))
            apart += self.equal(
                Status.INCONSISTENT,
                letter,
                space,
                row(together, s),
                two,
                np.abs(two),
                f"the vmapped {rule} for {name} is not the loop over the batch",
                ("vmap", "loop"),
                f"mend the batching rule of the {rule}",
            )
        if apart:
            twice = vmap(function)(backend.stack([pair[0][0], pair[0][0]]))
            if not _equal(row(twice, 0), row(twice, 1)):
                text = (
                    f"the vmapped {rule} for {name} is another one in each of two equal rows\n"
                    "  random numbers that the function draws differ there: pass them in"
                )
                mode = letter + self.problem.tail
                apart = [Finding(Status.NONDETERMINISTIC, mode, name, text)]
        yield from apart


def again(problem: Problem, base: Base) -> Vector:
    """All outputs, evaluated a second time at x."""
    return evaluate(problem, base, problem.origin, "a second time at x")


def _same(a: Vector, b: Vector) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _equal(a: Vector, b: Vector) -> bool:
    """Entry by entry, NaN equal to NaN; without NaNs in half the time."""
    return np.array_equal(a, b) or np.array_equal(a, b, equal_nan=True)


def _spread(a: Vector, b: Vector) -> float:
    if np.array_equal(a, b):
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.where(_same(a, b), 0.0, np.abs(a - b))
    gap = np.where(np.isnan(gap), np.inf, gap)
    return float(gap.max()) if gap.size else 0.0


def _largest(a: Vector, b: Vector) -> int:
    with np.errstate(all="ignore"):
        gap = np.where(_same(a, b), 0.0, np.abs(a - b))
    return int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))


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

"""What must hold exactly, whatever f is: linearity, purity, repeatability, matching metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adjudge.automatic import Forward, Reverse
from adjudge.backend import UNDEFINED, Array, Arrays, MaybeArrays
from adjudge.compare import Tolerance
from adjudge.errors import NotSupportedError
from adjudge.findings import Finding, Status
from adjudge.numeric import Base, evaluate
from adjudge.probes import Probes, random_cotangent, signed
from adjudge.problem import Problem
from adjudge.spaces import Space, Vector


@dataclass
class Identities:
    """Findings of the checks that need no differences, with a count of the numbers compared."""

    problem: Problem
    base: Base
    probes: Probes
    tolerance: Tolerance
    nondet_tol: float
    compared: int = 0

    @property
    def backend_name(self) -> str:
        """For messages."""
        return self.problem.backend.name

    # -- the function

    def repeatable(self, again: Vector, how: str) -> Iterator[Finding]:
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
                f"the same x ({how})\n"
                f"  first   {values[k]:.17g}\n"
                f"  second  {again[k]:.17g}\n"
                "  fix the randomness or hidden state of the function, or allow the spread: "
                f"nondet_tol={2 * spread:.1g}",
            )

    def unchanged(
        self, arrays: MaybeArrays, likes: Sequence[Array], space: Space, before: Vector, by: str
    ) -> Iterator[Finding]:
        """The arrays that were handed out still hold what they held."""
        backend = self.problem.backend
        for leaf, part, array, like in zip(
            space.leaves, space.slices, arrays, likes, strict=False
        ):
            if array is None:
                continue
            now = leaf.vector(backend.to_host(array, like))
            self.compared += now.size
            if now.shape != before[part].shape or not np.array_equal(
                now, before[part], equal_nan=True
            ):
                yield Finding(
                    Status.MUTATES_INPUT,
                    self.problem.tail,
                    leaf.name,
                    f"{by} writes into {leaf.name}, which it was handed\n"
                    "  work on a copy; a caller's array must not change",
                )

    def finite(self) -> Iterator[Finding]:
        """f is finite at x."""
        for name, space, values, what in (
            ("output", self.base.whole, self.base.values, "f(x)"),
            ("input", self.problem.X, self.problem.origin, "x"),
        ):
            bad = np.flatnonzero(~np.isfinite(values))
            if bad.size and not self.tolerance.equal_nan:
                k = int(bad[0])
                yield Finding(
                    Status.NONFINITE,
                    self.problem.tail,
                    space.entry(k),
                    f"{space.entry(k)} is {values[k]} at x: {bad.size} of {values.size} {name} "
                    f"entries are not finite\n"
                    f"  a derivative needs finite {what}: move x into the domain of the function, "
                    "or pass equal_nan=True to let agreeing NaNs pass",
                    open=True,
                )

    # -- reverse mode

    def pullback(self, reverse: Reverse) -> tuple[Vector, list[Finding]]:
        """`J* u` for the probes' cotangent `u` of all outputs together, and what was found about
        metadata of the gradients, purity, repeatability and linearity of `w -> J* w`.
        """
        base, space = self.base, self.problem.X
        u = self.cotangent(reverse)
        if not any(reverse.attached):
            return np.zeros(space.size), []
        handed = reverse.cotangent(base, u, zeros=True)
        gradients = reverse.pull(handed)
        first = reverse.vector(gradients)
        findings = [
            *self.metadata(gradients),
            *self.unchanged(handed, base.arrays, base.Y, u, "the vjp (backward pass)"),
            *self.unchanged(
                reverse.x, self.problem.x, space, self.problem.origin, "the function"
            ),
            *self._linear(
                "vjp",
                lambda w: reverse.vector(reverse.pull(reverse.cotangent(base, w, zeros=True))),
                u,
                first,
                space,
                "cotangent",
            ),
        ]
        return first, findings

    def cotangent(self, reverse: Reverse) -> Vector:
        """The cotangent that the identities are tried on: the only row's, where there is one."""
        if self.probes.full and self.base.Y.size == 1:
            return np.ones(1)
        return _masked(self.base.Y, self.probes.cotangent, reverse.attached)

    def additive(self, reverse: Reverse, together: Vector, rows: Vector) -> Iterator[Finding]:
        """`J*(sum of cotangents)` is the sum of the rows, which are at hand."""
        u = self.cotangent(reverse) if self.probes.full else np.ones(rows.shape[0])
        with np.errstate(all="ignore"):
            apart, size = u @ rows, np.abs(u) @ np.abs(rows)
        yield from self._additive(together, apart, size)

    def additive_pair(self, reverse: Reverse, one: Vector) -> Iterator[Finding]:
        """`J*(u + v) = J* u + J* v` for a second random cotangent."""
        u = self.cotangent(reverse)
        random = np.random.default_rng([self.probes.seed, 2])
        v = _masked(self.base.Y, signed(random, u.size), reverse.attached)
        two, together = (reverse.row(self.base, w) for w in (v, u + v))
        yield from self._additive(together, one + two, np.abs(one) + np.abs(two))

    def _additive(self, together: Vector, apart: Vector, size: Vector) -> Iterator[Finding]:
        yield from self._equal(
            Status.NONLINEAR,
            "R",
            self.problem.X,
            together,
            apart,
            size,
            "the vjp is not additive in its cotangent: vjp(u + v) is not vjp(u) + vjp(v)",
            ("vjp(u+v)", "vjp(u)+vjp(v)"),
            "the backward pass must apply a linear map to its cotangent",
        )

    def metadata(self, gradients: MaybeArrays) -> Iterator[Finding]:
        """Shape, dtype, device and layout of each gradient are its input's."""
        backend = self.problem.backend
        for leaf, gradient in zip(self.problem.X.leaves, gradients, strict=True):
            if gradient is None:
                continue
            info = backend.info(gradient)
            self.compared += 1
            for status, what, found, expected in (
                (Status.WRONG_SHAPE, "shape", info.shape, leaf.info.shape),
                (Status.WRONG_DTYPE, "dtype", info.dtype, leaf.info.dtype),
                (Status.WRONG_DEVICE, "device", info.device, leaf.info.device),
                (Status.WRONG_LAYOUT, "layout", info.layout, leaf.info.layout),
            ):
                if found != expected:
                    yield Finding(
                        status,
                        "R" + self.problem.tail,
                        leaf.name,
                        f"the gradient of {leaf.name} has {what} {found}, the input has "
                        f"{what} {expected}\n"
                        f"  return a gradient of the {what} of its input",
                    )

    def undefined(self, reverse: Reverse) -> Iterator[Finding]:
        """Undefined cotangents act as zeros: all of them, and each beside zeros of the rest."""
        if not self.problem.backend.undefined_cotangents or not any(reverse.attached):
            return
        zero = reverse.cotangent(self.base, np.zeros(self.base.Y.size), zeros=True)
        attached = [k for k, here in enumerate(reverse.attached) if here]
        cases: list[list[int]] = [attached]
        if len(attached) > 1:
            cases += [[k] for k in attached]
        for case in cases:
            which = "every output" if case is attached else self.base.Y.leaves[case[0]].name
            w = tuple(UNDEFINED if k in case else array for k, array in enumerate(zero))
            try:
                gradients = reverse.pull(w)
            except Exception as error:  # whatever the backward pass stumbles over is the finding
                yield Finding(
                    Status.UNDEFINED,
                    "R" + self.problem.tail,
                    which,
                    f"the vjp raises {type(error).__name__} when the cotangent of {which} is "
                    f"undefined: {error}\n"
                    "  treat an undefined (None) cotangent as zeros, or pass "
                    "check_undefined_grad=False if it cannot occur",
                    cause=error,
                )
                continue
            vector = reverse.vector(gradients)
            self.compared += vector.size
            if np.any(vector != 0):
                k = int(np.flatnonzero(vector != 0)[0])
                yield Finding(
                    Status.UNDEFINED,
                    "R" + self.problem.tail,
                    self.problem.X.entry(k),
                    f"the gradient of {self.problem.X.entry(k)} is {vector[k]:.6g} when the "
                    f"cotangent of {which} is undefined\n"
                    "  an undefined (None) cotangent acts as zeros",
                )

    def batched_pullback(self, reverse: Reverse) -> Iterator[Finding]:
        """The vmapped vjp equals the loop over two cotangents, output by output."""
        base, backend = self.base, self.problem.backend
        for k, leaf in enumerate(base.Y.leaves):
            if not reverse.attached[k]:
                continue
            pair = [_only(base.Y, random_cotangent(base.Y, self.probes.seed + s), k) for s in (1, 2)]
            cotangents = [reverse.cotangent(base, w, zeros=True)[k] for w in pair]

            def pull(w: MaybeArrays, k: int = k) -> MaybeArrays:
                whole: list[Array | None] = [None] * len(base.Y.leaves)
                whole[k] = w[0]
                return reverse.pull(tuple(whole))

            yield from self._batched(
                "R",
                leaf.name,
                pull,
                [(cotangent,) for cotangent in cotangents],
                self.problem.X,
                self.problem.x,
                backend.vmap,
            )

    # -- forward mode

    def pushforward(self, forward: Forward) -> Iterator[Finding]:
        """Repeatability of the primal and linearity of `v -> J v`."""
        base, problem = self.base, self.problem
        v = self._tangent()
        y, jv = forward.push(forward.tangent(v))
        value = forward.vector(base, y)
        yield from self.repeatable(value, "plain, and under forward mode")
        first = forward.vector(base, jv)
        yield from self._linear(
            "jvp", lambda w: forward.column(base, w)[1], v, first, base.Y, "tangent"
        )
        for tangent, leaf in zip(jv, base.Y.leaves, strict=True):
            if tangent is not None and problem.backend.complex(tangent) != leaf.complex:
                yield Finding(
                    Status.WRONG_DTYPE,
                    "F" + problem.tail,
                    leaf.name,
                    f"the tangent of {leaf.name} is {problem.backend.info(tangent).dtype}, the "
                    f"output is {leaf.info.dtype}\n"
                    "  a tangent is real where its primal is real, complex where it is complex",
                )

    def undefined_tangents(
        self, forward: Forward, pushed: Mapping[int, tuple[Vector, Vector]]
    ) -> Iterator[Finding]:
        """`J v` with undefined tangents in all leaves but one, which `pushed` has by leaf as
        `(v, J v)`, is `J v` with zeros there.
        """
        base, X = self.base, self.problem.X
        if len(X.leaves) < 2:
            return
        for j, (v, without) in pushed.items():
            zeros = forward.column(base, v)[1]
            yield from self._equal(
                Status.UNDEFINED,
                "F",
                base.Y,
                without,
                zeros,
                np.abs(zeros),
                f"undefined tangents beside that of {X.leaves[j].name} do not act as zeros",
                ("undefined", "zeros"),
                "treat an undefined (None) tangent as zeros",
            )

    def batched_pushforward(self, forward: Forward) -> Iterator[Finding]:
        """The vmapped jvp equals the loop over two tangents, input by input."""
        problem, base = self.problem, self.base
        X = problem.X
        for j, leaf in enumerate(X.leaves):
            pair = [_only(X, random_cotangent(X, self.probes.seed + s), j) for s in (3, 4)]
            tangents = [forward.tangent(v)[j] for v in pair]

            x = problem.point()

            def push(v: MaybeArrays, j: int = j, x: Arrays = x) -> MaybeArrays:
                whole: list[Array | None] = [None] * len(X.leaves)
                whole[j] = v[0]
                return forward.push(tuple(whole), x)[1]

            likes = base.arrays[: len(base.Y.leaves)]
            yield from self._batched(
                "F",
                leaf.name,
                push,
                [(tangent,) for tangent in tangents],
                base.Y,
                likes,
                problem.backend.vmap,
            )

    # -- shared

    def _tangent(self) -> Vector:
        return random_cotangent(self.problem.X, self.probes.seed + 5)

    def _linear(
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
        if not np.array_equal(doubled, -2.0 * first, equal_nan=True):
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
                yield from self._equal(
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
            yield from self._zero(apply, np.zeros_like(u), space)

    def _zero(
        self, apply: Callable[[Vector], Vector], zero: Vector, space: Space
    ) -> Iterator[Finding]:
        at_zero = apply(zero)
        self.compared += at_zero.size
        bad = np.flatnonzero(at_zero != 0)
        if bad.size:
            k = int(bad[0])
            finite = bool(np.all(np.isfinite(at_zero)))
            yield Finding(
                Status.NONLINEAR if finite else Status.NONFINITE,
                "R" + self.problem.tail,
                space.entry(k),
                f"a zero cotangent gives {at_zero[k]:.6g} for {space.entry(k)}, not zero\n"
                + (
                    "  the backward pass is not multiplied by its cotangent"
                    if finite
                    else "  the local derivative is not finite: zero times infinity is NaN"
                ),
            )

    def _equal(
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
        for part in space.slices:
            if part.stop == part.start:
                continue
            with np.errstate(all="ignore"):
                bound = self.tolerance.identity * np.max(size[part])
                apart = ~((np.abs(one[part] - two[part]) <= bound) | _same(one[part], two[part]))
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

    def _batched(
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
        for s, single in enumerate(loop):
            picked = tuple(None if array is None else array[s] for array in together)
            one = space.vector(backend, picked, tuple(likes))
            two = space.vector(backend, single, tuple(likes))
            yield from self._equal(
                Status.INCONSISTENT,
                letter,
                space,
                one,
                two,
                np.abs(two),
                f"the vmapped {rule} for {name} is not the loop over the batch",
                ("vmap", "loop"),
                f"mend the batching rule of the {rule}",
            )


def again(problem: Problem, base: Base) -> Vector:
    """All outputs, evaluated a second time at x."""
    return evaluate(problem, base, problem.origin, "a second time at x")


def _same(a: Vector, b: Vector) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _spread(a: Vector, b: Vector) -> float:
    with np.errstate(all="ignore"):
        gap = np.where(_same(a, b), 0.0, np.abs(a - b))
    gap = np.where(np.isnan(gap), np.inf, gap)
    return float(gap.max()) if gap.size else 0.0


def _largest(a: Vector, b: Vector) -> int:
    with np.errstate(all="ignore"):
        gap = np.where(_same(a, b), 0.0, np.abs(a - b))
    return int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))


def _masked(space: Space, w: Vector, attached: Sequence[bool]) -> Vector:
    w = w.copy()
    for part, here in zip(space.slices, attached, strict=True):
        if not here:
            w[part] = 0.0
    return w


def _only(space: Space, w: Vector, k: int) -> Vector:
    part = np.zeros_like(w)
    part[space.slices[k]] = w[space.slices[k]]
    return part

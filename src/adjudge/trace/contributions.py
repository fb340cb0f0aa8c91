"""This module finds what each step of a program adds to the error of a derivative.

For a cotangent w of the outputs and a tangent v of the inputs, reverse mode gives `<J* w, v>`, and
differences of f give `<w, J v>`. A sweep back through the program gives every value its cotangent;
differences of the program give every value its slope along v. A step whose operands o have the
slopes o' and whose results r have the slopes r' then adds

    <vjp(w_r), o'> - <w_r, r'>

to the error, where w_r are the cotangents of its results. Where its rule is right that is zero,
whatever the other rules did, since r' = J o'. The sum over all steps is the whole error: all other
terms cancel, as each value is a result once and an operand as often as it is used.

Where the engine has no reverse mode of the function, as of a loop of unknown length, and has that
of each step in it, the error is that of forward mode, `<w, J v>` by the engine less differences.

A step that adds nothing along a few random directions need not be judged, and a rule explains a
failure where the error without its part is zero. It costs one sweep and four evaluations for each
direction. That the terms cancel is the adjoint identity; to find a wrong rule by them is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, islice

import numpy as np

from adjudge.constants import (
    BLAMED_PART,
    CONTRIBUTION_BARS,
    CONTRIBUTION_PART,
    CONTRIBUTION_UNITS,
)
from adjudge.engine import (
    INPUT,
    Array,
    Arrays,
    AutodiffBackend,
    Evaluation,
    MaybeArrays,
    Ref,
    Trace,
)
from adjudge.errors import AdjudgeError, Catching, Source, attempt, running
from adjudge.floats import Vector, norm
from adjudge.problem import (
    Base,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Stream,
    evaluate,
    generator,
    observe,
)
from adjudge.trace.alone import moving, results_of

DIRECTIONS = 2
"""The number of random directions. A wrong entry that one of them misses by chance shows in the
other. The value is ours."""


@dataclass(frozen=True)
class Part:
    """A step, or a whole function, adds this to the error along one direction."""

    value: float
    bar: float
    """The error bar of the value."""
    size: float
    """The size of the numbers that it is a difference of."""
    ends: bool = False
    """Whether it is that of a step which hands no gradient on, or zeros: the derivative ends
    there."""

    @classmethod
    def total(cls, parts: Iterable[Part]) -> Part:
        """Returns what several steps add together."""
        some = list(parts)
        value, bar, size = (sum(getattr(p, n) for p in some) for n in ("value", "bar", "size"))
        return cls(value, bar, size)

    @property
    def stands_out(self) -> bool:
        """Whether it is not zero, as far as the differences show."""
        return not abs(self.value) <= self.allowed

    @property
    def allowed(self) -> float:
        """What a part of zero may be off by."""
        return CONTRIBUTION_BARS * self.bar + CONTRIBUTION_PART * self.size


@dataclass(frozen=True)
class Direction:
    """The error along one tangent for one cotangent, and what it consists of."""

    whole: Part
    """The error of the derivative that the engine took of the function itself."""
    steps: Sequence[Part | None]
    """Each step adds this; `None` where no cotangent reaches it, or it cannot be run again."""
    between: Part
    """What the engine's derivative is off from that of the program: what happened between the
    rules, as a hook that changes a gradient does."""
    outside: Part
    """What the function did along the direction, and the program did not: values that left the
    arrays on the way, and steps that cannot be run again."""
    flat: bool = False
    """Whether the derivative that the engine took of the function itself is zero along it."""

    def explained_by(self, chosen: Iterable[int]) -> bool | None:
        """Returns whether the whole error is what the `chosen` steps add; `None` where there is no
        error along this direction, or the differences are too rough to say.
        """
        parts = [part for k in chosen if (part := self.steps[k]) is not None]
        rest = self.whole.value - sum(part.value for part in parts)
        allowed = CONTRIBUTION_BARS * sum(part.bar for part in (self.whole, *parts))
        allowed += CONTRIBUTION_PART * sum(part.size for part in (self.whole, *parts))
        if not self.whole.stands_out or not allowed <= BLAMED_PART * abs(self.whole.value):
            return None
        return abs(rest) <= allowed


def directions(
    problem: Problem,
    trace: Trace,
    seed: int,
    before_each: Callable[[], None],
    count: int = DIRECTIONS,
) -> list[Direction]:
    """Returns the contributions along `count` random directions.

    Args:
        problem: The function at x, whose reverse mode is taken, or else its forward mode.
        trace: What it did at x.
        seed: Of the random directions.
        before_each: Called before each evaluation of the function, which may draw random numbers.
    """
    before_each()
    base = observe(problem)
    before_each()
    pairs = [_drawn(problem, base, generator(seed, Stream.BLAME, k)) for k in range(count)]
    terms = attempt(lambda: _by_reverse_mode(base, pairs), AdjudgeError)
    if terms is None:
        before_each()
        forward = Forward(problem)
        terms = [w[: base.Y.size] * forward.column(base, v)[1] for v, w in pairs]
    return [
        _along(base, trace, v, w, of_w, before_each)
        for (v, w), of_w in zip(pairs, terms, strict=True)
    ]


def _by_reverse_mode(base: Base, pairs: Sequence[tuple[Vector, Vector]]) -> list[Vector]:
    """Returns for each tangent and cotangent the terms of which the derivative by the engine is the
    sum: what it pulls back, by the entries of the tangent.
    """
    reverse = Reverse(base.problem)
    return [v * reverse.pull(reverse.cotangent(base, w))[0] for v, w in pairs]


def _drawn(problem: Problem, base: Base, random: np.random.Generator) -> tuple[Vector, Vector]:
    """Returns a tangent of the inputs and a cotangent of the outputs."""
    size = problem.X.size
    v = random.choice([-1.0, 1.0], size) * random.uniform(0.5, 1.0, size) * problem.length_scales
    return v, random.normal(size=base.Y.size)


def _along(
    base: Base,
    trace: Trace,
    v: Vector,
    w: Vector,
    derivative: Vector,
    before_each: Callable[[], None],
) -> Direction:
    """Returns the direction of `v` and `w`, where the derivative by the engine is the sum of some
    terms.
    """
    problem, backend = base.problem, base.problem.backend
    arrays = backend.arrays
    longest = min(_step(base), problem.longest_step(v))
    of_f, of_program, pairs = [], [], []
    for h in (longest, longest / 2):
        points = [problem.origin + s * h * v for s in (1, -1)]
        # copies, which an engine does not record: it would keep what it saves for derivatives
        inputs = [map(arrays.copy, problem.X.arrays(backend, at, problem.x)) for at in points]
        with running(Source.FUNCTION):
            pair = [trace.replay(tuple(x)) for x in inputs]
        outputs, slopes = [], []
        for at, replayed in zip(points, pair, strict=True):
            before_each()
            outputs.append(evaluate(problem, base, at, Purpose.NEAR_X)[: base.Y.size])
            slopes.append(base.Y.vector(backend, replayed.values(trace.outputs), base.arrays))
        of_f.append(float(w @ (outputs[0] - outputs[1])) / (2 * h))
        of_program.append(float(w @ (slopes[0] - slopes[1])) / (2 * h))
        pairs.append(pair)
    eps, h = base.coarsest_eps, longest / 2
    unit = CONTRIBUTION_UNITS * eps / h
    of_outputs = unit * float(norm(w * base.values[: base.Y.size]))
    # A cotangent that cancels down to rounding, as that of the shift in a softmax, is small itself.
    automatic = float(derivative.sum())
    slope = float(norm(derivative)) + abs(automatic - of_f[1])

    def extrapolated(
        coarse: float, fine: float, unsure: float, size: float, ends: bool = False
    ) -> Part:
        return Part((4 * fine - coarse) / 3, abs(fine - coarse) / 3 + unsure, size, ends)

    whole = extrapolated(automatic - of_f[0], automatic - of_f[1], of_outputs, slope)
    outside = extrapolated(of_program[0] - of_f[0], of_program[1] - of_f[1], of_outputs, slope)
    steps: list[Part | None] = [None] * len(trace.steps)
    swept = _Sweep(backend, trace, base.Y.arrays(backend, w, base.arrays))
    for k, terms in swept:
        coarse, fine = (terms.between(*pair) for pair in pairs)
        steps[k] = extrapolated(
            coarse.value / (4 * h),
            fine.value / (2 * h),
            unit * terms.magnitude(),
            slope + fine.size / (2 * h),
            terms.end,
        )
    gradient = problem.X.vector(backend, swept.gradients, problem.x)
    apart = automatic - float(gradient @ v)
    magnitude = float(norm(derivative) + norm(gradient * v))
    between = Part(apart, CONTRIBUTION_UNITS * eps * magnitude, magnitude)
    return Direction(whole, steps, between, outside, flat=not derivative.any())


def handed_to(problem: Problem, trace: Trace, k: int, seed: int) -> MaybeArrays:
    """Returns the cotangents that step `k` gets along the first direction."""
    base, backend = observe(problem), problem.backend
    _, w = _drawn(problem, base, generator(seed, Stream.BLAME, 0))
    swept = _Sweep(backend, trace, base.Y.arrays(backend, w, base.arrays))
    found = next((terms for j, terms in swept if j == k), None)
    return () if found is None else found.cotangents


def on_its_way(
    problem: Problem, trace: Trace, k: int, wrt: Sequence[int], seed: int
) -> tuple[Callable[[Array], Arrays], Array]:
    """Returns step `k` as a function of one number, with which its operands `wrt` move as they do
    along a random direction of the inputs, and the number at which they are as recorded.
    """
    base, backend = observe(problem), problem.backend
    arrays, step, operands = backend.arrays, trace.steps[k], trace.recorded.operands(k)
    v, _ = _drawn(problem, base, generator(seed, Stream.BLAME))
    h = min(_step(base), problem.longest_step(v))
    points = [problem.origin + s * h * v for s in (1, -1)]
    inputs = [tuple(map(arrays.copy, problem.X.arrays(backend, x, problem.x))) for x in points]
    plus, minus = (trace.replay(x).operands(k) for x in inputs)
    slopes = {
        j: arrays.from_host((arrays.to_host(plus[j]) - arrays.to_host(minus[j])) / (2 * h), one)
        for j, one in enumerate(operands)
        if j in wrt
    }

    def function(t: Array) -> Arrays:
        moved = [one + (t - 1) * slopes[j] if j in wrt else one for j, one in enumerate(operands)]
        return results_of(backend, step, tuple(moved))

    like = arrays.info(operands[wrt[0]])
    real = {"complex128": "float64", "complex64": "float32"}.get(like.dtype, like.dtype)
    return function, arrays.make(np.ones(()), real, like.device)


def _step(base: Base) -> float:
    """Returns the longer of two steps whose differences are extrapolated once, relative to the
    scale of x: `eps^(1/5)`, which balances `h^4` against `eps / h`.
    """
    return float(2.0 ** round(np.log2(base.coarsest_eps) / 5))


@dataclass(frozen=True)
class _Terms:
    """What the rule of one step makes of the cotangents that reach it, term by term."""

    backend: AutodiffBackend
    k: int
    trace: Trace
    gradients: MaybeArrays
    cotangents: MaybeArrays

    def between(self, one: Evaluation, other: Evaluation) -> Part:
        """Returns the sum of the terms where operands and results move from one evaluation of the
        program to another, with the size of the terms, and without an error bar.
        """
        to_host = self.backend.arrays.to_host
        total, size = 0.0, 0.0
        for sign, weights, here, there in (
            (1, self.gradients, one.operands(self.k), other.operands(self.k)),
            (-1, self.cotangents, one.results(self.k), other.results(self.k)),
        ):
            for weight, a, b in zip(weights, here, there, strict=True):
                if weight is not None:
                    products = _products(weight, to_host(a) - to_host(b), to_host)
                    total += sign * float(products.sum())
                    size += float(norm(products.ravel()))
        return Part(total, 0.0, size)

    @property
    def end(self) -> bool:
        """Whether the step hands no gradient on, or zeros."""
        to_host = self.backend.arrays.to_host
        return not any(to_host(one).any() for one in self.gradients if one is not None)

    def magnitude(self) -> float:
        """Returns the size of the terms of which `between` adds differences."""
        to_host, recorded = self.backend.arrays.to_host, self.trace.recorded
        pairs = [
            *zip(self.gradients, recorded.operands(self.k), strict=True),
            *zip(self.cotangents, recorded.results(self.k), strict=True),
        ]
        products = [_products(one, to_host(v), to_host) for one, v in pairs if one is not None]
        return float(sum(norm(one.ravel()) for one in products))


def cancelling(found: Sequence[Direction], steps: Sequence[int]) -> set[int]:
    """Returns those of the steps whose parts cancel, together or a few at a time, along each
    direction.

    A function may subtract a value without its derivative and add it again, as a logarithm of a
    sum of exponentials does: each of the two ends the derivative, and both together are right. They
    may cancel as well with what left the arrays on the way.
    """
    left = list(steps)
    chosen = chain([tuple(left)], *(combinations(left, size) for size in range(2, len(left))))
    gone: set[int] = set()
    for some in islice(chosen, MOST_SUMS):
        if some and gone.isdisjoint(some) and _cancels(found, some):
            gone.update(some)
    return gone


def _cancels(found: Sequence[Direction], steps: Sequence[int]) -> bool:
    outside = any(direction.outside.stands_out for direction in found)
    for beside in (False, True) if outside else (False,):
        columns = [
            [
                *(part for k in steps if (part := direction.steps[k]) is not None),
                *([direction.outside] if beside else []),
            ]
            for direction in found
        ]
        if all(map(_is_zero, columns)):
            return True
    return False


def _is_zero(parts: Sequence[Part]) -> bool:
    """Returns whether parts add up to zero; beside wide error bars any would seem to."""
    total, largest = Part.total(parts), max((abs(part.value) for part in parts), default=0.0)
    rough = any(part.stands_out for part in parts) and (not total.allowed <= BLAMED_PART * largest)
    return not total.stands_out and not rough


MOST_SUMS = 20_000
"""Of so many sums of parts it is asked whether they are zero: of 200 steps, all pairs. The value is
ours."""


class _Sweep:
    """Reverse mode through a program, rule by rule, the last one first."""

    def __init__(self, backend: AutodiffBackend, trace: Trace, w: Arrays) -> None:
        """Pulls the cotangents `w` of the outputs back to the inputs while it is iterated over."""
        self.backend, self.trace = backend, trace
        self._found: dict[Ref, Array] = {}
        for output, cotangent in zip(trace.outputs, w, strict=True):
            self._add(output, cotangent)

    def _add(self, operand: object, cotangent: Array | None) -> None:
        if isinstance(operand, Ref) and cotangent is not None:
            before = self._found.get(operand)
            self._found[operand] = cotangent if before is None else before + cotangent

    def __iter__(self) -> Iterator[tuple[int, _Terms]]:
        """Yields the steps that a cotangent reaches, with their terms."""
        backend, trace = self.backend, self.trace
        for k in reversed(range(len(trace.steps))):
            step = trace.steps[k]
            cotangents = tuple([self._found.pop(Ref(k, j), None) for j in range(step.results)])
            if step.opaque or not any(one is not None for one in cotangents):
                continue
            gradients = pulled_back(backend, trace, k, cotangents)
            for operand, gradient in zip(step.operands, gradients, strict=True):
                self._add(operand, gradient)
            yield k, _Terms(backend, k, trace, gradients, cotangents)

    @property
    def gradients(self) -> MaybeArrays:
        """The gradients at the inputs."""
        return tuple([self._found.get(Ref(INPUT, k)) for k in range(len(self.trace.inputs))])


def _products(cotangent: Array, tangent: Vector, to_host: Callable[[Array], Vector]) -> Vector:
    """Returns the terms of the real inner product of a cotangent and a tangent."""
    return np.asarray((np.conj(to_host(cotangent)) * tangent).real)


def changed_on_the_way(backend: AutodiffBackend, trace: Trace, seed: int) -> list[Ref]:
    """Returns the values whose cotangent is not the sum of what the rules of the steps that use
    them give, the last value of the program first: what stands between was done by no rule.

    It compares what the engine hands back on its own way with the rules at the cotangents that the
    engine handed to them; nothing, where the engine does not show this.
    """
    if trace.cotangents is None or any(step.opaque for step in trace.steps):
        return []
    arrays, random = backend.arrays, generator(seed, Stream.BLAME, DIRECTIONS)
    outputs = trace.recorded.values(trace.outputs)
    w = tuple([arrays.from_host(random.normal(size=y.shape), y) for y in outputs])
    with running(Source.DERIVATIVE):
        handed, of_inputs = trace.cotangents(w)
    expected: dict[Ref, Array] = {}
    pairs = list(zip(trace.outputs, w, strict=True))
    for k, step in enumerate(trace.steps):
        gradients = pulled_back(backend, trace, k, handed[k])
        pairs += zip(step.operands, gradients, strict=True)
    for operand, cotangent in pairs:
        if isinstance(operand, Ref) and cotangent is not None:
            before = expected.get(operand)
            expected[operand] = cotangent if before is None else before + cotangent
    found = []
    for k, some in [*reversed(list(enumerate(handed))), (INPUT, of_inputs)]:
        for j, cotangent in enumerate(some):
            ref = Ref(k, j)
            if cotangent is None or ref not in expected:
                continue
            one, other = arrays.to_host(cotangent), arrays.to_host(expected[ref])
            finite = np.isfinite(one) & np.isfinite(other)
            sizes = (np.abs(part).max(initial=0.0, where=finite) for part in (one, other))
            allowed = HANDED_UNITS * backend.effective_eps(cotangent) * float(sum(sizes))
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            if not (same | (np.abs(one - other) <= allowed)).all():
                found.append(ref)
    return found


HANDED_UNITS = 1024
"""The engine may add cotangents in another order, and a rule may round otherwise when it is run
again. So many units of rounding of the largest entry are allowed. The value is ours."""


def pulled_back(
    backend: AutodiffBackend, trace: Trace, k: int, cotangents: MaybeArrays
) -> MaybeArrays:
    """Returns the gradient of each operand of step `k` by its rule, `None` where there is none.

    A rule that raises gives none: the engine may not need it, as behind a `stop_gradient`.
    """
    step, operands, results = trace.steps[k], trace.recorded.operands(k), trace.recorded.results(k)
    chosen = moving(backend, step, operands)
    pairs = zip(cotangents, results, strict=True)
    w = tuple([one for one, result in pairs if backend.arrays.is_differentiable(result)])
    gradients: list[Array | None] = [None] * len(operands)
    if chosen and any(one is not None for one in w):
        function = partial(_with, partial(results_of, backend, step), operands, chosen)
        x = tuple([operands[k] for k in chosen])
        with Catching(AdjudgeError), running(Source.DERIVATIVE):
            for k, gradient in zip(chosen, backend.vjp(function, x)[1](w), strict=True):
                gradients[k] = gradient
    return tuple(gradients)


def _with(
    function: Callable[[Arrays], Arrays], operands: Arrays, chosen: Sequence[int], x: Arrays
) -> Arrays:
    """Returns the function of all operands, with `x` in the chosen places."""
    whole = list(operands)
    for k, leaf in zip(chosen, x, strict=True):
        whole[k] = leaf
    return function(tuple(whole))

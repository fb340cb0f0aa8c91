"""This module finds what each step of a program adds to the error of a derivative.

For a cotangent w of the outputs and a tangent v of the inputs, reverse mode gives `<J* w, v>`, and
differences of f give `<w, J v>`. A sweep back through the program gives every value its cotangent;
differences of the program give every value its slope along v. A step whose operands o have the
slopes o' and whose results r have the slopes r' then adds

    <vjp(w_r), o'> - <w_r, r'>

to the error, where w_r are the cotangents of its results. Where its rule is right that is zero,
whatever the other rules did, since r' = J o'. The sum over all steps is the whole error: all other
terms cancel, as each value is a result once and an operand as often as it is used.

A step that adds nothing along a few random directions need not be judged, and a rule explains a
failure where the error without its part is zero. It costs one sweep and four evaluations for each
direction. That the terms cancel is the adjoint identity; to find a wrong rule by them is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adjudge.constants import (
    CONTRIBUTION_BARS,
    CONTRIBUTION_PART,
    CONTRIBUTION_UNITS,
    EXPLAINED_PART,
)
from adjudge.engine import INPUT, Array, Arrays, AutodiffBackend, MaybeArrays, Ref, Step, Trace
from adjudge.errors import AdjudgeError, Catching, Source, running
from adjudge.floats import Vector
from adjudge.problem import Base, Problem, Purpose, Reverse, Stream, evaluate, generator, observe
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

    @property
    def stands_out(self) -> bool:
        """Whether it is not zero, as far as the differences show."""
        return not abs(self.value) <= CONTRIBUTION_BARS * self.bar + CONTRIBUTION_PART * self.size


@dataclass(frozen=True)
class Direction:
    """The error of reverse mode along one tangent for one cotangent, and what it consists of."""

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

    def explained_by(self, chosen: Iterable[int]) -> bool | None:
        """Returns whether the whole error is what the `chosen` steps add; `None` where there is no
        error along this direction, or the differences are too rough to say.
        """
        parts = [part for k in chosen if (part := self.steps[k]) is not None]
        rest = self.whole.value - sum(part.value for part in parts)
        allowed = CONTRIBUTION_BARS * sum(part.bar for part in (self.whole, *parts))
        allowed += CONTRIBUTION_PART * sum(part.size for part in (self.whole, *parts))
        if not self.whole.stands_out or not allowed <= EXPLAINED_PART * abs(self.whole.value):
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
        problem: The function at x, whose reverse mode is taken.
        trace: What it did at x.
        seed: Of the random directions.
        before_each: Called before each evaluation of the function, which may draw random numbers.
    """
    before_each()
    base = observe(problem)
    before_each()
    reverse = Reverse(problem)
    return [
        _along(problem, base, reverse, trace, generator(seed, Stream.BLAME, k), before_each)
        for k in range(count)
    ]


def _along(
    problem: Problem,
    base: Base,
    reverse: Reverse,
    trace: Trace,
    random: np.random.Generator,
    before_each: Callable[[], None],
) -> Direction:
    backend, arrays = problem.backend, problem.backend.arrays
    size = problem.X.size
    v = random.choice([-1.0, 1.0], size) * random.uniform(0.5, 1.0, size) * problem.length_scales
    w = random.normal(size=base.Y.size)
    pulled = reverse.pull(reverse.cotangent(base, w))[0]
    swept = _Sweep(backend, trace, base.Y.arrays(backend, w, base.arrays))
    gradient = problem.X.vector(backend, swept.gradients, problem.x)
    longest = min(_step(base), problem.longest_step(v))
    rows: list[list[float]] = []
    for h in (longest, longest / 2):
        points = [problem.X.arrays(backend, problem.origin + s * h * v, problem.x) for s in (1, -1)]
        with running(Source.FUNCTION):
            replayed = [(x, trace.replay(x)) for x in points]
        outputs, slopes = [], []
        for sign, (x, values) in zip((1, -1), replayed, strict=True):
            before_each()
            at = problem.origin + sign * h * v
            outputs.append(evaluate(problem, base, at, Purpose.NEAR_X)[: base.Y.size])
            slopes.append(base.Y.vector(backend, trace.outputs_of(x, values), base.arrays))
        of_f = float(w @ (outputs[0] - outputs[1])) / (2 * h)
        of_program = float(w @ (slopes[0] - slopes[1])) / (2 * h)
        row = [float(pulled @ v) - of_f, of_program - of_f]
        row += [swept.part(k, replayed, arrays.to_host) / (2 * h) for k in swept.reached]
        rows.append(row)
    eps, h = base.coarsest_eps, longest / 2
    unit = CONTRIBUTION_UNITS * eps / h
    rounding = [unit * float(np.linalg.norm(w * base.values[: base.Y.size]))] * 2
    rounding += [unit * swept.magnitude(k, arrays.to_host) for k in swept.reached]
    # A cotangent that cancels down to rounding, as that of the shift in a softmax, is small itself.
    slope = float(np.linalg.norm(pulled * v)) + abs(float(pulled @ v) - rows[1][0])
    sizes = [slope, slope, *(slope + swept.sizes[k] / (2 * h) for k in swept.reached)]
    parts = [
        Part((4 * fine - coarse) / 3, abs(fine - coarse) / 3 + unsure, extent)
        for coarse, fine, unsure, extent in zip(*rows, rounding, sizes, strict=True)
    ]
    steps: list[Part | None] = [None] * len(trace.steps)
    for k, part in zip(swept.reached, parts[2:], strict=True):
        steps[k] = part
    apart = float((pulled - gradient) @ v)
    magnitude = float(np.linalg.norm(pulled * v) + np.linalg.norm(gradient * v))
    between = Part(apart, CONTRIBUTION_UNITS * eps * magnitude, magnitude)
    return Direction(parts[0], steps, between, parts[1])


def _step(base: Base) -> float:
    """Returns the longer of two steps whose differences are extrapolated once, relative to the
    scale of x: `eps^(1/5)`, which balances `h^4` against `eps / h`.
    """
    return float(2.0 ** round(np.log2(base.coarsest_eps) / 5))


class _Sweep:
    """Reverse mode through a program, rule by rule."""

    def __init__(self, backend: AutodiffBackend, trace: Trace, w: Arrays) -> None:
        """Pulls the cotangents `w` of the outputs back to the inputs."""
        self.trace = trace
        self.reached: list[int] = []
        """The steps that a cotangent reaches, the last one first."""
        self.sizes: dict[int, float] = {}
        self._cotangents: dict[int, MaybeArrays] = {}
        self._gradients: dict[int, MaybeArrays] = {}
        found: dict[Ref, Array] = {}

        def add(operand: object, cotangent: Array | None) -> None:
            if isinstance(operand, Ref) and cotangent is not None:
                found[operand] = found[operand] + cotangent if operand in found else cotangent

        for output, cotangent in zip(trace.outputs, w, strict=True):
            add(output, cotangent)
        for k in reversed(range(len(trace.steps))):
            step = trace.steps[k]
            cotangents = tuple([found.pop(Ref(k, j), None) for j in range(len(step.results))])
            if step.opaque or not any(one is not None for one in cotangents):
                continue
            gradients = pulled_back(backend, step, trace.operands(k), cotangents)
            for operand, gradient in zip(step.operands, gradients, strict=True):
                add(operand, gradient)
            self.reached.append(k)
            self._cotangents[k], self._gradients[k] = cotangents, gradients
        self.gradients = tuple([found.get(Ref(INPUT, k)) for k in range(len(trace.inputs))])
        """The gradients at the inputs."""

    def part(
        self,
        k: int,
        replayed: Sequence[tuple[Arrays, Sequence[Arrays]]],
        to_host: Callable[[Array], Vector],
    ) -> float:
        """Returns what step `k` adds, times the distance of the two points that were replayed."""
        step, total, size = self.trace.steps[k], 0.0, 0.0
        (x, values), (y, others) = replayed
        for gradient, operand in zip(self._gradients[k], step.operands, strict=True):
            if gradient is not None and isinstance(operand, Ref):
                ends = [
                    (inputs if operand.step == INPUT else results[operand.step])[operand.number]
                    for inputs, results in ((x, values), (y, others))
                ]
                products = _products(gradient, to_host(ends[0]) - to_host(ends[1]), to_host)
                total += float(products.sum())
                size += float(np.linalg.norm(products))
        ends_of = zip(self._cotangents[k], values[k], others[k], strict=True)
        for cotangent, one, other in ends_of:
            if cotangent is not None:
                products = _products(cotangent, to_host(one) - to_host(other), to_host)
                total -= float(products.sum())
                size += float(np.linalg.norm(products))
        self.sizes[k] = size
        return total

    def magnitude(self, k: int, to_host: Callable[[Array], Vector]) -> float:
        """Returns the size of the terms of which step `k` adds differences."""
        step = self.trace.steps[k]
        pairs = [
            *zip(self._gradients[k], self.trace.operands(k), strict=True),
            *zip(self._cotangents[k], step.results, strict=True),
        ]
        products = [_products(one, to_host(v), to_host) for one, v in pairs if one is not None]
        return float(sum(np.linalg.norm(one) for one in products))


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
    outputs = trace.outputs_of(trace.inputs, trace.recorded)
    w = tuple([arrays.from_host(random.normal(size=y.shape), y) for y in outputs])
    with running(Source.DERIVATIVE):
        handed, of_inputs = trace.cotangents(w)
    expected: dict[Ref, Array] = {}
    pairs = list(zip(trace.outputs, w, strict=True))
    for k, step in enumerate(trace.steps):
        gradients = pulled_back(backend, step, trace.operands(k), handed[k])
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
            size = float(np.abs(one).max(initial=0.0) + np.abs(other).max(initial=0.0))
            allowed = HANDED_UNITS * backend.effective_eps(cotangent) * size
            if not (np.abs(one - other) <= allowed).all():
                found.append(ref)
    return found


HANDED_UNITS = 1024
"""The engine may add cotangents in another order, and a rule may round otherwise when it is run
again. So many units of rounding of the largest entry are allowed. The value is ours."""


def pulled_back(
    backend: AutodiffBackend, step: Step, operands: Arrays, cotangents: MaybeArrays
) -> MaybeArrays:
    """Returns the gradient of each operand by the rule of the step, `None` where there is none.

    A rule that raises gives none: the engine may not need it, as behind a `stop_gradient`.
    """
    chosen = moving(backend, step, operands)
    pairs = zip(cotangents, step.results, strict=True)
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

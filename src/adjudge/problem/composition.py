"""The vjp or jvp of a problem as a problem of its own, for derivatives of higher order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adjudge.constants import GROUP_BITS, MOST_GROUPS, ONSET_UNITS
from adjudge.engine import Array, Arrays, FlatFunction
from adjudge.errors import InputError, Source, described, running
from adjudge.floats import Vector, norm
from adjudge.problem.probes import Stream, random_cotangent
from adjudge.problem.problem import Base, Problem, Reverse, base_of, observe, require_outputs
from adjudge.problem.space import Leaf, Space


def gradient_problem(
    problem: Problem,
    attached: Sequence[bool],
    Y: Space,
    w: Sequence[Array],
) -> Problem:
    """Returns the problem of `(x, w) -> J*(x) w` at `w`, which observes `f(x)` beside it.

    There is one cotangent in `w` per attached output, of its shape. The cotangents lie in `Y`, the
    space of the outputs of `problem`.
    """
    backend, count = problem.backend, len(problem.x)
    kept = [k for k, here in enumerate(attached) if here]
    function = attached_alone(problem.function, attached)

    def evaluate(xw: Arrays) -> Arrays:
        """Returns the gradients by leaf of x, followed by the outputs of the problem."""
        x = xw[:count]
        with running(Source.DERIVATIVE):
            y, pullback = backend.vjp(problem.function, x)
        problem.counts.vjps += 1
        given: list[Array | None] = [None] * len(attached)
        for k, cotangent in zip(kept, xw[count:], strict=True):
            given[k] = cotangent
        with running(Source.DERIVATIVE):
            return (*backend.arrays.zeros_for_absent(pullback(tuple(given)), x), *y)

    names = [f"grad_outputs[{k}]" for k in range(len(kept))]
    gradient_names = [f"grad({leaf.name})" for leaf in problem.X.leaves]
    weights = np.zeros(Y.size)
    for k, cotangent in zip(kept, w, strict=True):
        weights[Y.slices[k]] = Y.leaves[k].vector(backend.arrays.to_host(cotangent))
    leaves = [*gradient_names, *(leaf.name for leaf in Y.leaves)]
    return replace(
        _beside(problem, w, names),
        function=backend.vjp_map(function, count),
        evaluate=evaluate,
        modes_taken="R" + problem.modes_taken,
        output_names=lambda: leaves,
        differentiated=count,
        cotangent=weights,
        attached=tuple(Y.slices[k] for k in kept),
    )


def tangent_problem(problem: Problem, outputs: Sequence[Leaf], v: Sequence[Array]) -> Problem:
    """Returns the problem of `(x, v) -> J(x) v` at `v`, which observes `f(x)` beside it.

    There is one tangent in `v` per leaf of x, of its shape.
    """
    backend, count = problem.backend, len(problem.x)

    def evaluate(xv: Arrays) -> Arrays:
        """Returns the tangents of the outputs of the problem, followed by the outputs."""
        with running(Source.DERIVATIVE):
            y, jv = backend.jvp(problem.function, xv[:count], xv[count:])
        problem.counts.jvps += 1
        return (*backend.arrays.zeros_for_absent(jv, y), *y)

    tangent_names = [f"tangents[{k}]" for k in range(count)]
    leaves = [*(f"tangent({leaf.name})" for leaf in outputs), *(leaf.name for leaf in outputs)]
    return replace(
        _beside(problem, v, tangent_names),
        function=backend.jvp_map(problem.function, count),
        evaluate=evaluate,
        modes_taken="F" + problem.modes_taken,
        output_names=lambda: leaves,
        differentiated=len(outputs),
    )


def _beside(problem: Problem, directions: Sequence[Array], names: Sequence[str]) -> Problem:
    """Returns the problem at x followed by `directions`, with nothing that belongs to its own
    derivatives.
    """
    backend = problem.backend
    copies = tuple(backend.arrays.copy(direction) for direction in directions)
    space, coordinates = Space.at(backend, copies, names)
    return replace(
        problem.with_leaves(space, copies, coordinates),
        primal_inputs=len(problem.x),
        primal=problem.primal or problem,
        cotangent=None,
        attached=(),
        widened=None,
        constraints=(),
    )


def attached_alone(function: FlatFunction, attached: Sequence[bool]) -> FlatFunction:
    """Returns `function` with the outputs that are `attached` alone."""
    if all(attached):
        return function

    def attached_outputs(x: Arrays) -> Arrays:
        """Returns the outputs of the function that are kept."""
        outputs = function(x)
        return tuple([one for one, here in zip(outputs, attached, strict=True) if here])

    return attached_outputs


COTANGENT = 7
"""The number that is added to the seed of a check to draw the cotangent of a derivative that is
differentiated again. Without it that cotangent would come from the seed of the probes. The value is
ours."""


def over_reverse(problem: Problem, given: Any, seed: int, *, strided: bool) -> Problem:
    """Returns the problem of `(x, w) -> J*(x) w` at the cotangents `given`, or at random ones.

    Random cotangents have random signs, and with `strided` they are not contiguous. Raises
    `NotSupportedError` where the engine cannot differentiate its vjp, and `InputError` where no
    output is differentiable or a cotangent does not fit.
    """
    reverse = Reverse(problem)
    base = base_of(problem, reverse.outputs)
    require_outputs(base)
    if not any(reverse.attached):
        raise InputError(
            "no output of the function is differentiable, so there is no gradient to "
            "differentiate again",
            "return at least one output that depends on the checked inputs through the engine",
        )
    w = _cotangents(base, reverse, given, seed, strided)
    return gradient_problem(problem, reverse.attached, base.Y, w)


def over_forward(problem: Problem, seed: int, outputs: Sequence[Leaf] | None = None) -> Problem:
    """Returns the problem of `(x, v) -> J(x) v` at tangents of random signs.

    The leaves `outputs` are those of the problem; where they are not given, one evaluation finds
    them. Raises `InputError` where it finds none.
    """
    if outputs is None:
        base = observe(problem)
        require_outputs(base)
        outputs = base.Y.leaves
    tangent = random_cotangent(problem.X, seed, Stream.COMPOSED_TANGENT)
    return tangent_problem(problem, outputs, problem.X.arrays(problem.backend, tangent, problem.x))


def composed(
    problem: Problem,
    taken: str,
    seed: int,
    outputs: Sequence[Leaf] | None = None,
) -> Problem:
    """Returns the problem after the derivatives in the modes `taken`, of which the last is first.

    Where the first derivative taken is a jvp, `outputs` is passed to `over_forward`. Raises what
    `over_reverse` and `over_forward` raise.
    """
    for k, letter in enumerate(reversed(taken)):
        problem = (
            over_reverse(problem, None, seed, strided=False)
            if letter == "R"
            else over_forward(problem, seed, outputs if k == 0 else None)
        )
    return problem


def _cotangents(base: Base, reverse: Reverse, given: Any, seed: int, strided: bool) -> Arrays:
    """Returns one cotangent per attached output, as `given` or with random signs.

    Raises `InputError` where the cotangents given do not fit the attached outputs.
    """
    backend, Y = base.problem.backend, base.Y
    kept = [k for k, here in enumerate(reverse.attached) if here]
    if given is None:
        vector = random_cotangent(Y, seed + COTANGENT)
        # An infinity or NaN has no derivative, and zero times its local one would be NaN.
        vector[~np.isfinite(base.values[: Y.size])] = 0.0
        arrays = Y.arrays(backend, _equalised(base, reverse, vector), base.arrays)
        return tuple(
            backend.arrays.noncontiguous(arrays[k]) if strided else arrays[k] for k in kept
        )
    cotangents = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(cotangents) != len(kept):
        raise InputError(
            f"grad_outputs has {len(cotangents)} entr{'y' if len(cotangents) == 1 else 'ies'} for "
            f"{len(kept)} differentiable "
            f"output{'s' * (len(kept) != 1)} ({', '.join(Y.leaves[k].name for k in kept)})",
            "give one cotangent per differentiable output",
        )
    fitting = tuple(
        _fitting(base, k, number, cotangent)
        for number, (k, cotangent) in enumerate(zip(kept, cotangents, strict=True))
    )
    if not any(np.any(backend.arrays.to_host(cotangent)) for cotangent in fitting):
        raise InputError(
            "grad_outputs is zero (or None) for every output",
            "the gradient is then zero whatever the rule does: give a cotangent that is not zero, "
            "or leave grad_outputs out",
        )
    return fitting


def _equalised(base: Base, reverse: Reverse, w: Vector) -> Vector:
    """Returns `w` with weights by which outputs of all magnitudes take part in `J* w`.

    The gradient adds the outputs up, so the second derivative of `sin x` would not show beside that
    of `1e9 x**3`. Outputs are taken by the magnitude of their values, since one pullback for each
    group tells how large its part of the gradient is; those of one group have one weight, a power
    of two, with which products are exact. Outputs whose parts are alike keep their cotangents. The
    rule is ours.
    """
    Y = base.Y
    values = base.whole.modulus(base.values)[: Y.size]
    used = (w != 0) & (values > 0)
    for part, here in zip(Y.slices, reverse.attached, strict=True):
        used[part] &= here
    # What is rounding of the largest output of its leaf has rounding for a derivative.
    used &= values > ONSET_UNITS * base.coarsest_eps * Y.largest(base.values[: Y.size])
    exponents = np.frexp(np.where(used, values, 1.0))[1]
    below = np.max(exponents, initial=-(2**20), where=used) - exponents
    groups = np.fmin(below // GROUP_BITS, MOST_GROUPS)
    found = np.unique(groups[used])
    if found.size < 2:
        return w
    sizes: dict[int, int] = {}
    for group in found.tolist():
        own = reverse.row(base, np.where(used & (groups == group), w, 0.0))
        size = float(norm(own * base.problem.length_scales))
        if 0 < size < np.inf:
            sizes[group] = math.frexp(size)[1]
    if not sizes or max(sizes.values()) - min(sizes.values()) <= GROUP_BITS:
        return w
    middle = (max(sizes.values()) + min(sizes.values())) // 2
    weighed = w.copy()
    for leaf, part in zip(Y.leaves, Y.slices, strict=True):
        for group, exponent in sizes.items():
            its = used[part] & (groups[part] == group)
            power = max(-leaf.weight_bits, min(middle - exponent, leaf.weight_bits))
            weighed[part][its] = np.ldexp(w[part][its], power)
    return weighed


def _fitting(base: Base, k: int, number: int, cotangent: Any) -> Array:
    """Returns the cotangent of output `k`, entry `number` of those given, as an array like it.

    `None` stands for zeros. Raises `InputError` where `cotangent` is not an array of the engine,
    has another shape than its output or no dtype that fits it, or is not finite.
    """
    leaf, backend = base.Y.leaves[k], base.problem.backend
    arrays = backend.arrays
    if cotangent is None:
        return arrays.from_host(leaf.host(np.zeros(leaf.size)), base.arrays[k])
    if not backend.owns(cotangent):
        raise InputError(
            f"grad_outputs[{number}] is {described(cotangent)}, not an array of {backend.name}",
            f"give an array like {leaf.name}: {leaf.info.dtype} of shape {leaf.info.shape}",
        )
    info = arrays.info(cotangent)
    if info.shape != leaf.info.shape:
        raise InputError(
            f"grad_outputs[{number}] has shape {info.shape}, {leaf.name} has {leaf.info.shape}",
            "give a cotangent of the shape of its output",
        )
    if not arrays.is_differentiable(cotangent) or (
        arrays.is_complex(cotangent) and not leaf.complex
    ):
        raise InputError(
            f"grad_outputs[{number}] has dtype {info.dtype}, {leaf.name} has {leaf.info.dtype}",
            "give a cotangent of the dtype of its output",
        )
    host = arrays.to_host(cotangent)
    if not np.all(np.isfinite(host)):
        raise InputError(
            f"grad_outputs[{number}] holds {host[~np.isfinite(host)][0]}",
            "give a cotangent of finite numbers",
        )
    if leaf.double and arrays.eps(cotangent) > leaf.eps:
        # The function was widened to double precision, and its cotangents have to follow.
        cotangent = arrays.widen(cotangent)
    # The inputs may have been moved to another device, and their outputs with them.
    if info.device != leaf.info.device:
        return arrays.from_host(arrays.to_host(cotangent), base.arrays[k])
    return arrays.copy(cotangent)

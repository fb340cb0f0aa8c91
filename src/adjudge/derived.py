"""Problems one level down: the vjp or jvp of a problem is a function at a point, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adjudge.backend import Array, Arrays, FlatFunction
from adjudge.problem import Problem
from adjudge.spaces import Leaf, Space, Vector


def gradient_problem(
    problem: Problem,
    attached: Sequence[bool],
    Y: Space,
    w: Sequence[Array],
) -> Problem:
    """`(x, w) -> J*(x) w` at `w`, one cotangent per attached output; observed beside it: f(x).

    `Y` is the space of the outputs of `problem`, in which the cotangents live.
    """
    backend, count = problem.backend, len(problem.x)
    kept = [k for k, here in enumerate(attached) if here]
    function = _only(problem.function, kept, len(attached))

    def evaluate(xw: Arrays) -> Arrays:
        x = xw[:count]
        y, pullback = backend.vjp(problem.function, x)
        problem.counts.vjps += 1
        given: list[Array | None] = [None] * len(attached)
        for k, cotangent in zip(kept, xw[count:], strict=True):
            given[k] = cotangent
        return (*backend.zeros_for_absent(pullback(tuple(given)), x), *y)

    names = [f"grad_outputs[{k}]" for k in range(len(kept))]
    gradient_names = [f"grad({leaf.name})" for leaf in problem.X.leaves]
    weights = np.zeros(Y.size)
    for k, cotangent in zip(kept, w, strict=True):
        weights[Y.slices[k]] = Y.leaves[k].vector(backend.to_host(cotangent))
    return _second_order(
        problem,
        "R",
        backend.vjp_map(function, count),
        evaluate,
        tuple(w),
        names,
        [*gradient_names, *(leaf.name for leaf in Y.leaves)],
        count,
        weights,
        attached=[Y.slices[k] for k in kept],
    )


def tangent_problem(problem: Problem, outputs: Sequence[Leaf], v: Sequence[Array]) -> Problem:
    """`(x, v) -> J(x) v` at `v`, one tangent per leaf of x; observed beside it: f(x)."""
    backend, count = problem.backend, len(problem.x)

    def evaluate(xv: Arrays) -> Arrays:
        y, jv = backend.jvp(problem.function, xv[:count], xv[count:])
        problem.counts.jvps += 1
        return (*backend.zeros_for_absent(jv, y), *y)

    return _second_order(
        problem,
        "F",
        backend.jvp_map(problem.function, count),
        evaluate,
        tuple(v),
        [f"tangents[{k}]" for k in range(count)],
        [*(f"tangent({leaf.name})" for leaf in outputs), *(leaf.name for leaf in outputs)],
        len(outputs),
    )


def _second_order(
    problem: Problem,
    letter: str,
    function: FlatFunction,
    evaluate: FlatFunction,
    directions: Arrays,
    direction_names: Sequence[str],
    output_names: Sequence[str],
    differentiated: int,
    weights: Vector | None = None,
    attached: Sequence[slice] = (),
) -> Problem:
    backend = problem.backend
    directions = tuple(backend.copy(direction) for direction in directions)
    more, coordinates = Space.at(backend, directions, direction_names)
    return Problem(
        backend,
        function,
        evaluate,
        (*problem.x, *directions),
        Space((*problem.X.leaves, *more.leaves)),
        np.concatenate([problem.origin, coordinates]),
        problem.counts,
        letter + problem.tail,
        lambda: output_names,
        differentiated=differentiated,
        base_inputs=len(problem.x),
        weights=weights,
        reference=problem.reference and problem.reference.over(letter, attached),
        bounds=None
        if problem.bounds is None
        else (
            np.concatenate([problem.bounds[0], np.full(more.size, -np.inf)]),
            np.concatenate([problem.bounds[1], np.full(more.size, np.inf)]),
        ),
    )


def _only(function: FlatFunction, kept: Sequence[int], count: int) -> FlatFunction:
    if len(kept) == count:
        return function

    def attached_outputs(x: Arrays) -> Arrays:
        outputs = function(x)
        return tuple(outputs[k] for k in kept)

    return attached_outputs

"""Problems whose function is a derivative, from the words for compositions: "R", "F", "RF"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjudge.automatic import Reverse
from adjudge.backend import Array, Arrays
from adjudge.derived import gradient_problem, tangent_problem
from adjudge.errors import InputError
from adjudge.observed import Base, base_of, observe
from adjudge.probes import random_cotangent
from adjudge.problem import Problem
from adjudge.spaces import Leaf, Vector

COTANGENT = 7
"""Added to the seed of a check for the cotangent of a derivative that is differentiated again."""


def over_reverse(problem: Problem, given: Any, seed: int, *, strided: bool) -> Problem:
    """`(x, w) -> J*(x) w` at the cotangents `given`, or at random signed cotangents.

    Raises `NotSupportedError` where the engine cannot differentiate its vjp, `InputError` where
    no output is differentiable or a cotangent does not fit.
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
    w = _cotangents(base, reverse.attached, given, seed, strided)
    return gradient_problem(problem, reverse.attached, base.Y, w)


def over_forward(
    problem: Problem,
    seed: int,
    along: Vector | None = None,
    outputs: Sequence[Leaf] | None = None,
) -> Problem:
    """`(x, v) -> J(x) v` at the tangent `along`, or at random signed tangents. `outputs`: those
    of the problem, where they are known.
    """
    if outputs is None:
        base = observe(problem)
        require_outputs(base)
        outputs = base.Y.leaves
    v = random_cotangent(problem.X, seed + 11) if along is None else along
    return tangent_problem(problem, outputs, problem.X.arrays(problem.backend, v, problem.x))


def composed(
    problem: Problem,
    tail: str,
    seed: int,
    along: Vector | None = None,
    outputs: Sequence[Leaf] | None = None,
) -> Problem:
    """The problem whose function has the derivatives `tail` taken, the last letter first.

    `along`, `outputs`: as for `over_forward`, where that takes the first derivative.
    """
    for k, letter in enumerate(reversed(tail)):
        problem = (
            over_reverse(problem, None, seed, strided=False)
            if letter == "R"
            else over_forward(problem, seed, *((along, outputs) if k == 0 else ()))
        )
    return problem


def _cotangents(
    base: Base, attached: Sequence[bool], given: Any, seed: int, strided: bool
) -> Arrays:
    backend, Y = base.problem.backend, base.Y
    kept = [k for k, here in enumerate(attached) if here]
    if given is None:
        vector = random_cotangent(Y, seed + COTANGENT)
        arrays = Y.arrays(backend, vector, base.arrays)
        return tuple(backend.strided(arrays[k]) if strided else arrays[k] for k in kept)
    cotangents = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(cotangents) != len(kept):
        raise InputError(
            f"grad_outputs has {len(cotangents)} entries for {len(kept)} differentiable outputs "
            f"({', '.join(Y.leaves[k].name for k in kept)})",
            "give one cotangent per differentiable output",
        )
    return tuple(
        _fitting(base, k, number, cotangent)
        for number, (k, cotangent) in enumerate(zip(kept, cotangents, strict=True))
    )


def _fitting(base: Base, k: int, number: int, cotangent: Any) -> Array:
    leaf, backend = base.Y.leaves[k], base.problem.backend
    if cotangent is None:
        return backend.from_host(leaf.host(np.zeros(leaf.size)), base.arrays[k])
    if not backend.owns(cotangent):
        raise InputError(
            f"grad_outputs[{number}] is a {type(cotangent).__name__}, not an array of "
            f"{backend.name}",
            f"give an array like {leaf.name}: {leaf.info.dtype} of shape {leaf.info.shape}",
        )
    info = backend.info(cotangent)
    if info.shape != leaf.info.shape:
        raise InputError(
            f"grad_outputs[{number}] has shape {info.shape}, {leaf.name} has {leaf.info.shape}",
            "give a cotangent of the shape of its output",
        )
    if leaf.double and backend.eps(cotangent) > leaf.eps:
        cotangent = backend.widen(cotangent)  # the function was widened, its cotangents with it
    if info.device != leaf.info.device:  # the inputs were moved, and their outputs with them
        return backend.place(cotangent, backend.device(base.arrays[k]))
    return backend.copy(cotangent)


def require_outputs(base: Base) -> None:
    """Raises `InputError` where the function returns nothing that has a derivative."""
    if not base.Y.leaves:
        raise InputError(
            "the function returns nothing that can be differentiated: no floating or complex "
            f"array of {base.problem.backend.name}",
            "return arrays of the same framework as the inputs",
        )

"""The identities of forward mode: `v -> J v` is linear, and the primal is f(x)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from adjudge.engine import Array, Arrays, MaybeArrays
from adjudge.findings import (
    Culprit,
    Finding,
    NotAdditive,
    RealForComplex,
    Remedy,
    Rule,
    Status,
    UndefinedNotZeros,
)
from adjudge.floats import Vector
from adjudge.problem import Forward, random_cotangent
from adjudge.properties.identities import Identities, only
from adjudge.properties.metadata import elsewhere, first_elsewhere


def identities(checks: Identities, forward: Forward) -> Iterator[Finding]:
    """Repeatability of the primal, purity, and linearity of `v -> J v`."""
    base, problem = checks.base, checks.problem
    v = _tangent(checks)
    x, handed = problem.point(), forward.tangent(v)
    y, jv = forward.push(handed, x)
    value = forward.vector(base, y)
    yield from checks.value_under(Rule.JVP, value)
    yield from first_elsewhere(checks)
    yield from checks.unchanged(x, problem.x, problem.X, problem.origin, Culprit.FUNCTION)
    yield from checks.unchanged(handed, problem.x, problem.X, v, Culprit.JVP)
    first = forward.vector(base, jv)
    checks.images["F" + problem.modes_taken] = v, first
    push = lambda w: forward.column(base, w)[1]  # noqa: E731
    yield from checks.linear(Rule.JVP, push, v, first, base.Y)
    for tangent, primal, leaf in zip(jv, y, base.Y.leaves, strict=True):
        if tangent is not None:  # the value came with it; f(x) may have been made elsewhere
            there, here = (problem.backend.arrays.info(array).device for array in (tangent, primal))
            yield from elsewhere(
                checks, "F" + problem.modes_taken, Rule.JVP, leaf.name, there, here
            )
        if tangent is not None and problem.backend.arrays.is_complex(tangent) != leaf.complex:
            yield Finding(
                Status.WRONG_DTYPE,
                "F" + problem.modes_taken,
                leaf.name,
                RealForComplex(problem.backend.arrays.info(tangent).dtype, leaf.info.dtype),
            )


def additive(checks: Identities, forward: Forward) -> Iterator[Finding]:
    """`J(u + v) = J u + J v` for two random tangents of all leaves together, and `J 0 = 0`."""
    base = checks.base
    u, v = (random_cotangent(checks.problem.X, checks.probes.seed + s) for s in (5, 17))
    one, two, together = (forward.column(base, w)[1] for w in (u, v, u + v))
    with np.errstate(all="ignore"):
        apart, size = one + two, np.abs(one) + np.abs(two)
    yield from checks.equal(
        Status.NONLINEAR,
        "F",
        base.Y,
        (together, apart),
        size,
        partial(NotAdditive, rule=Rule.JVP),
        Remedy.APPLY_LINEAR_MAP,
    )
    largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    push = lambda w: forward.column(base, w)[1]  # noqa: E731
    yield from checks.zero(Rule.JVP, push, np.zeros_like(u), base.Y, largest)


def pushed(checks: Identities, forward: Forward) -> dict[int, tuple[Vector, Vector]]:
    """`(v, J v)` by leaf, for a random `v` in that leaf alone and undefined tangents elsewhere."""
    X, v = checks.problem.X, _tangent(checks)
    if len(X.leaves) < 2:
        return {}
    tangents = {j: only(X, v, j) for j in range(len(X.leaves))}
    return {j: (part, forward.column(checks.base, part, j)[1]) for j, part in tangents.items()}


def undefined(
    checks: Identities, forward: Forward, pushed: Mapping[int, tuple[Vector, Vector]]
) -> Iterator[Finding]:
    """`J v` with undefined tangents in all leaves but one, which `pushed` has by leaf as
    `(v, J v)`, is `J v` with zeros there.
    """
    base, X = checks.base, checks.problem.X
    if len(X.leaves) < 2:
        return
    for j, (v, without) in pushed.items():
        zeros = forward.column(base, v)[1]
        yield from checks.equal(
            Status.UNDEFINED,
            "F",
            base.Y,
            (without, zeros),
            np.abs(zeros),
            partial(UndefinedNotZeros, leaf=X.leaves[j].name),
            Remedy.ACCEPT_UNDEFINED,
        )


def batched(checks: Identities, forward: Forward) -> Iterator[Finding]:
    """The vmapped jvp equals the loop over two tangents, input by input."""
    problem, base = checks.problem, checks.base
    X = problem.X
    for j, leaf in enumerate(X.leaves):
        pair = [only(X, random_cotangent(X, checks.probes.seed + s), j) for s in (3, 4)]
        tangents = [forward.tangent(v)[j] for v in pair]

        x = problem.point()

        def push(v: MaybeArrays, j: int = j, x: Arrays = x) -> MaybeArrays:
            whole: list[Array | None] = [None] * len(X.leaves)
            whole[j] = v[0]
            return forward.push(tuple(whole), x)[1]

        likes = base.arrays[: len(base.Y.leaves)]
        yield from checks.batched(
            Rule.JVP,
            leaf.name,
            push,
            [(tangent,) for tangent in tangents],
            base.Y,
            likes,
            problem.backend.vmap,
        )


def _tangent(checks: Identities) -> Vector:
    return random_cotangent(checks.problem.X, checks.probes.seed + 5)

"""The identities of reverse mode: `w -> J* w` is linear, repeatable, and keeps its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from adjudge.engine import UNDEFINED, Array, MaybeArrays
from adjudge.errors import AdjudgeError, Catching
from adjudge.findings import (
    Culprit,
    Finding,
    NotAdditive,
    Raised,
    Remedy,
    Rule,
    Status,
    UndefinedNotZero,
    UndefinedRaised,
)
from adjudge.floats import Vector
from adjudge.problem import Reverse, random_cotangent, random_entries
from adjudge.properties.identities import Identities, masked, only
from adjudge.properties.metadata import first_elsewhere, metadata


def identities(checks: Identities, reverse: Reverse) -> tuple[Vector, list[Finding]]:
    """`J* u` for the probes' cotangent `u` of all outputs together, and what was found about
    metadata of the gradients, purity, repeatability and linearity of `w -> J* w`.
    """
    base, space = checks.base, checks.problem.X
    u = cotangent(checks, reverse)
    if not any(reverse.attached):
        return np.zeros(space.size), []
    handed = reverse.cotangent(base, u, zeros=True)
    likes = base.arrays[: len(base.Y.leaves)]
    before = base.Y.vector(checks.problem.backend, handed, likes)  # `u`, as it is rounded
    gradients = reverse.pull(handed)
    first = reverse.vector(gradients)
    checks.images["R" + checks.problem.modes_taken] = u, first
    findings = [
        *first_elsewhere(checks),
        *metadata(checks, gradients),
        *checks.unchanged(handed, base.arrays, base.Y, before, Culprit.VJP),
        *checks.unchanged(
            reverse.x, checks.problem.x, space, checks.problem.origin, Culprit.FUNCTION
        ),
        *checks.linear(
            Rule.VJP,
            lambda w: reverse.vector(reverse.pull(reverse.cotangent(base, w, zeros=True))),
            u,
            first,
            space,
        ),
    ]
    return first, findings


def cotangent(checks: Identities, reverse: Reverse) -> Vector:
    """The cotangent that the identities are tried on: the only row's, where there is one."""
    if checks.probes.full and checks.base.Y.size == 1:
        return np.ones(1)
    return masked(checks.base.Y, checks.probes.cotangent, reverse.attached)


def additive(
    checks: Identities, reverse: Reverse, together: Vector, rows: Vector
) -> Iterator[Finding]:
    """`J*(sum of cotangents)` is the sum of the rows, which are at hand."""
    u = cotangent(checks, reverse) if checks.probes.full else np.ones(rows.shape[0])
    with np.errstate(all="ignore"):
        apart, size = u @ rows, np.abs(u) @ np.abs(rows)
    yield from _additive(checks, together, apart, size)


def additive_pair(checks: Identities, reverse: Reverse, one: Vector) -> Iterator[Finding]:
    """`J*(u + v) = J* u + J* v` for a second random cotangent."""
    u = cotangent(checks, reverse)
    random = np.random.default_rng([checks.probes.seed, 2])
    v = masked(checks.base.Y, random_entries(random, u.size), reverse.attached)
    two, together = (reverse.row(checks.base, w) for w in (v, u + v))
    with np.errstate(all="ignore"):
        apart, size = one + two, np.abs(one) + np.abs(two)
    yield from _additive(checks, together, apart, size)


def _additive(
    checks: Identities, together: Vector, apart: Vector, size: Vector
) -> Iterator[Finding]:
    yield from checks.equal(
        Status.NONLINEAR,
        "R",
        checks.problem.X,
        (together, apart),
        size,
        partial(NotAdditive, rule=Rule.VJP),
        Remedy.APPLY_LINEAR_MAP,
    )


def undefined(checks: Identities, reverse: Reverse) -> Iterator[Finding]:
    """Undefined cotangents act as zeros: all of them, and each beside zeros of the rest."""
    if not checks.problem.backend.undefined_cotangents or not any(reverse.attached):
        return
    zero = reverse.cotangent(checks.base, np.zeros(checks.base.Y.size), zeros=True)
    attached = [k for k, here in enumerate(reverse.attached) if here]
    cases: list[list[int]] = [attached]
    if len(attached) > 1:
        cases += [[k] for k in attached]
    for case in cases:
        output = "" if case is attached else checks.base.Y.leaves[case[0]].name
        w = tuple(UNDEFINED if k in case else array for k, array in enumerate(zero))
        with Catching(AdjudgeError) as caught:
            gradients = reverse.pull(w)
        if (error := caught.error) is not None:  # whatever the backward pass stumbles over
            yield Finding(
                Status.UNDEFINED,
                "R" + checks.problem.modes_taken,
                output,
                UndefinedRaised(output, Raised.of(error)),
                Remedy.ACCEPT_OR_EXCUSE_UNDEFINED,
                cause=error,
            )
            continue
        vector = reverse.vector(gradients)
        checks.compared += vector.size
        if np.any(vector != 0):
            k = int(np.flatnonzero(vector != 0)[0])
            yield Finding(
                Status.UNDEFINED,
                "R" + checks.problem.modes_taken,
                checks.problem.X.entry(k),
                UndefinedNotZero(output, float(vector[k])),
                Remedy.ACCEPT_UNDEFINED,
            )


def batched(checks: Identities, reverse: Reverse) -> Iterator[Finding]:
    """The vmapped vjp equals the loop over two cotangents, output by output."""
    base, backend = checks.base, checks.problem.backend
    for k, leaf in enumerate(base.Y.leaves):
        if not reverse.attached[k]:
            continue
        pair = [only(base.Y, random_cotangent(base.Y, checks.probes.seed + s), k) for s in (1, 2)]
        cotangents = [reverse.cotangent(base, w, zeros=True)[k] for w in pair]

        def pull(w: MaybeArrays, k: int = k) -> MaybeArrays:
            whole: list[Array | None] = [None] * len(base.Y.leaves)
            whole[k] = w[0]
            return reverse.pull(tuple(whole))

        yield from checks.batched(
            Rule.VJP,
            leaf.name,
            pull,
            [(cotangent,) for cotangent in cotangents],
            checks.problem.X,
            checks.problem.x,
            backend.vmap,
        )

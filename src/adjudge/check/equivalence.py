"""Agreement between automatic numbers: other ways of the engine, and other compositions.

No step is involved, so agreement is exact to rounding; where it holds, one comparison with
differences speaks for both, and where it does not, each is judged by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from adjudge.check.one_problem import Judgement
from adjudge.findings import Finding, Status, ValueInWay
from adjudge.floats import Vector
from adjudge.jacobian import Tally
from adjudge.problem import Base, Forward, Probes, Problem, Reverse, Space, random_entries
from adjudge.properties import Identities, restricted

CLOSE = 2.0**10
"""Units of rounding, of the largest entry of each leaf, within which two numbers are the same."""


Image: TypeAlias = tuple[Vector, Vector]
"""A probe, and what a rule made of it."""


@dataclass(frozen=True)
class Judged:
    """A derivative at x, and what was found about it."""

    base: Base
    outcome: Judgement


def near(space: Space, one: Vector, two: Vector) -> bool:
    """Whether two points of a space are equal to rounding, leaf by leaf, and finite alike."""
    for leaf, part in zip(space.leaves, space.slices, strict=True):
        a, b = one[part], two[part]
        if np.array_equal(a, b, equal_nan=True):
            continue
        with np.errstate(all="ignore"):
            size = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
            apart = np.abs(a - b) > CLOSE * leaf.eps * size
        if np.any(apart) or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return False
        if not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(a)], equal_nan=True):
            return False
    return True


def other_value(known: Judged, base: Base, way: str) -> list[Finding]:
    """That the function has another value in this way than in the usual one, where it has."""
    problem, Y = known.base.problem, known.base.Y
    probes = Probes(problem.X, Y, False, 0)
    identities = Identities(problem, known.base, probes, known.outcome.tolerance, 0.0)
    one, two = base.values[: Y.size], known.base.values[: Y.size]
    differ = partial(ValueInWay, way=way)
    return list(identities.equal(Status.INCONSISTENT, "", Y, (one, two), np.abs(two), differ))


def same_as(letter: str, top: Problem, known: Judged) -> int:
    """How many numbers the mode `letter` of `top` has in common with `known`, which is the same
    derivative taken in another way, the value included; 0 where any differs, or none is known.
    """
    image = known.outcome.images.get(letter + top.modes_taken)
    if image is None:
        return 0
    base, (probe, known_image) = replace(known.base, problem=top), image
    if letter == "R":
        reverse = Reverse(top)
        value = base.Y.vector(top.backend, reverse.outputs, base.arrays[: len(base.Y.leaves)])
        found, space = reverse.row(base, probe), top.X
    else:
        value, found = Forward(top).column(base, probe)
        space = base.Y
    if not near(base.Y, base.values[: value.size], value) or not near(space, known_image, found):
        return 0
    return int(value.size + found.size)


def shared_tangent(known: Judged, seed: int) -> Vector | None:
    """The tangent at which forward mode must reproduce what `RR` of `known` made of its cotangent,
    which is zero only where there is nothing to reproduce. `None` where `RR` says nothing.
    """
    image = known.outcome.images.get("RR")
    w = known.base.problem.cotangent
    if image is None or w is None or not np.all(w):
        return None
    c = image[0]
    return np.asarray(
        np.where(c == 0, random_entries(np.random.default_rng([seed, 31]), c.size), c)
    )


def hessian_by_forward(known: Judged, base: Base, image: Image) -> int:
    """How many numbers `RF` has in common with `RR` of `known`; 0 where any differs.

    `base` is `(x, v) -> J(x) v` at `shared_tangent`, `image` the cotangent that was pulled back,
    and the result. With `v` and the cotangent `w` in common all are the one form
    `<w, D²f(x)(u, v)>`: pulling `w` back through `J(x) v` gives `H v`, where `H` is the Hessian of
    `<w, f>`, and `J* w` beside it; pulling `v` back through `J*(x) w` gives the same, and `J v`.
    """
    w, of_v = known.base.problem.cotangent, known.outcome.images["RR"][1]
    X = base.problem.X
    n, count = X.size // 2, base.Y.size
    if w is None or not np.array_equal(image[0], w) or of_v.size != n + count:
        return 0
    alike = near(base.Y, of_v[n:], base.values[:count]) and near(
        X, np.concatenate([of_v[:n], known.base.values[:n]]), image[1]
    )
    return count + image[1].size if alike else 0


def forward_by_reverse(base: Base, row: Image, column: Image, seed: int) -> int:
    """Pairs of leaves at which `FF` is what `RF` says, `<w, J v> = <J* w, v>`; 0 where any is not.

    `row` and `column` are the images of a cotangent and of a tangent of all leaves together.
    """
    top = base.problem
    (w, whole), random = row, np.random.default_rng([seed, 37])
    rows, columns = [whole], [column]
    if len(base.Y.leaves) > 1:
        reverse = Reverse(top)
        rows = [reverse.row(base, restricted(base.Y, w, k)) for k in range(len(base.Y.leaves))]
    if top.primal_inputs > 1:  # an error in one leaf must not drown in another
        forward, columns = Forward(top), []
        for part in (*top.X.slices[: top.primal_inputs], slice(top.X.size // 2, top.X.size)):
            t = np.zeros(top.X.size)
            t[part] = random_entries(random, part.stop - part.start)
            columns.append((t, forward.column(base, t)[1]))
    compared = 0
    for t, image in columns:
        for its, here, leaf in zip(rows, base.Y.slices, base.Y.leaves, strict=True):
            with np.errstate(all="ignore"):
                one, two = image[here] @ w[here], its @ t
                size = np.abs(image[here]) @ np.abs(w[here]) + np.abs(its) @ np.abs(t)
            if not abs(one - two) <= CLOSE * leaf.eps * size:
                return 0
            compared += 1
    return compared


def agreeing(mode: str, compared: int, eps: float) -> Tally:
    """The tally of a mode that was compared with other automatic numbers only."""
    return Tally(mode, compared=compared, nonzero=compared, resolution=CLOSE * eps)

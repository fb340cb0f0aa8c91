"""This module checks that second derivatives are symmetric: `<u, H v> = <v, H u>` for every output
and pair of inputs.

No differences are involved, so an asymmetry of 1e-9 shows, which differences of a gradient cannot
show. A wrong derivative that is symmetric is left to the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from adjudge.constants import SYMMETRY_LEAVES
from adjudge.findings import Asymmetric, Finding, Status
from adjudge.floats import Vector, norm, scale
from adjudge.jacobian import is_systematic, perturbed, rounding_part
from adjudge.problem import Base, Forward, Problem, Reverse, Stream, generator, random_entries
from adjudge.properties.purity import Identities, restricted

Hessian = Callable[[Vector], Vector]
"""`v -> H v` on x, for `H` the second derivative of `<w, f>`."""


def asymmetries(
    checks: Identities, mode: Reverse | Forward, rows: Vector | None = None, *, each: bool
) -> Iterator[Finding]:
    """Checks that the derivative of `(x, w) -> J*(x) w` in x, by `mode`, is a symmetric matrix.

    `rows` are all of it, if they are at hand; then nothing is evaluated. With `each` every output
    is tried by itself, by further vjps or jvps; without it nothing but `rows` is looked at.
    """
    problem = checks.problem
    count = checks.base.Y.size
    assert problem.modes_taken == "R"  # only these derivatives have a symmetric one
    if rows is None and not each:
        return
    if rows is not None:
        yield from _of_output(checks, mode, problem.origin, "<w, f>", lambda u: u @ rows[:, :count])
    if not each:
        return
    cotangents = range(problem.primal_inputs, len(problem.X.leaves))
    if len(cotangents) == 1 or len(cotangents) > SYMMETRY_LEAVES:
        if rows is None:
            yield from _of_output(checks, mode, problem.origin, "<w, f>")
        return
    for k in cotangents:
        point = problem.origin.copy()
        point[count:] = restricted(problem.X, point, k)[count:]
        yield from _of_output(checks, mode, point, f"<{problem.X.leaves[k].name}, f>")


def _of_output(
    checks: Identities,
    mode: Reverse | Forward,
    point: Vector,
    of: str,
    hessian: Hessian | None = None,
) -> Iterator[Finding]:
    """Checks at the point `(x, w)`, with a direction in each leaf and another one in all of x
    together.
    """
    problem, count = checks.problem, checks.base.Y.size
    hessian = hessian or _at(checks.base, mode, point)
    random = generator(checks.probes.seed, Stream.SYMMETRY)
    leaves = [j for j, leaf in enumerate(problem.X.leaves[: problem.primal_inputs]) if leaf.size]
    lengths = np.concatenate(
        [*(scale(problem.origin[problem.X.slices[j]]) for j in leaves), np.zeros(0)]
    )
    one, two = (random_entries(random, count) * lengths for _ in range(2))
    if len(leaves) > SYMMETRY_LEAVES:
        parts, names = [one], [""]
    else:
        parts = [restricted(checks.base.Y, one, j) for j in leaves]
        names = [problem.X.leaves[j].name for j in leaves]
    letter = "R" if isinstance(mode, Reverse) else "F"
    of_two = hessian(two)
    for part, name in zip(parts, names, strict=True):
        of_part = hessian(part)
        checks.compared += 1
        left, right = float(np.sum(two * of_part)), float(np.sum(part * of_two))
        sizes = float(norm(two * of_part)), float(norm(part * of_two))
        size = max(*sizes, abs(left), abs(right))
        # Where a second derivative vanishes, rounding of the first one may be left.
        slope = float(norm(checks.base.values[:count] * part))
        gap = left - right
        bound = rounding_part(checks.tolerance.eps) * (
            size + (slope if np.isfinite(slope) else 0.0)
        )
        if not np.isfinite(gap) or abs(gap) <= bound or not problem.counts.allows(64):
            continue

        def gap_at(here: Problem, there: Vector, part: Vector = part) -> float:
            # What w leaves out stays out.
            near = replace(checks.base, problem=here)
            moved = np.where(point == problem.origin, there, point)
            H, a, b = _at(near, mode, moved), perturbed(part, random), perturbed(two, random)
            return float(np.sum(b * H(a)) - np.sum(a * H(b)))

        if is_systematic(problem, checks.tolerance.eps, checks.probes.seed, gap, gap_at):
            detail = Asymmetric(of, left, right, abs(gap) / size)
            yield Finding(Status.INCONSISTENT, letter + problem.modes_taken, name, detail)


def _at(base: Base, mode: Reverse | Forward, point: Vector) -> Hessian:
    """Returns `v -> H v` at another point `(x, w)`, by the same mode."""
    problem = base.problem
    count, size = base.Y.size, problem.X.size
    if isinstance(mode, Reverse):
        reverse = mode if point is problem.origin else Reverse(problem, point)
        return lambda u: reverse.row(base, u)[:count]
    forward = Forward(problem, point)

    def pushed(v: Vector) -> Vector:
        tangent = np.zeros(size)
        tangent[:count] = v
        return forward.column(base, tangent)[1]

    return pushed

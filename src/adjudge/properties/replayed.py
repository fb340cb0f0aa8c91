"""f by exact replay beside its derivative of low precision: as the truth where f does not run in
double, and for what roundings of f can do to a derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from adjudge.constants import COARSE_EPS
from adjudge.errors import NotSupportedError, attempt
from adjudge.estimate import ByReference, Direction, Estimate, by_replay
from adjudge.floats import EPS, Vector
from adjudge.jacobian import Array
from adjudge.problem import Base


class Replayed:
    """The function of a problem in exact arithmetic."""

    def __init__(self, base: Base, asked: ByReference) -> None:
        """`asked` replays the function of `base`. Raises `NotSupportedError` where its values or
        derivatives at x are not finite, or not decided.
        """
        self.base, self.asked = base, asked
        x = base.problem.origin
        if not (np.all(np.isfinite(self.value(x))) and np.all(np.isfinite(self.jacobian(x)))):
            raise NotSupportedError("the derivative by exact replay is not decided", "move x")

    @property
    def name(self) -> str:
        """The words for it in a report."""
        return self.asked.reference.reference.name

    def value(self, point: Vector) -> Vector:
        """Returns the outputs at a point, NaN where they are not decided."""
        reference, whole = self.asked.reference, self.base.whole
        found = attempt(lambda: reference.values(whole, point), NotSupportedError)
        return np.full(self.base.Y.size, np.nan) if found is None else found[: self.base.Y.size]

    def jacobian(self, point: Vector) -> Array:
        """Returns the Jacobian at a point, NaN where it is not decided."""
        found = attempt(lambda: self._columns(point), NotSupportedError)
        return np.full((self.base.Y.size, point.size), np.nan) if found is None else found

    def _columns(self, point: Vector) -> Array:
        self.asked.reference.require(point)
        units = np.eye(point.size)
        return np.stack([_along(self.asked, self.base, point, unit).value for unit in units], 1)


class ReplayedAtPoints:
    """The derivative by exact replay in the mode `letter` for some probes, at several points."""

    eps = EPS["float64"]

    def __init__(
        self, at: Replayed, letter: str, points: Iterable[Vector], probes: Sequence[Vector],
        factors: Sequence[Vector],
    ) -> None:  # fmt: skip
        """The arguments are those of `DerivativeAtPoints`."""
        self.at, self.letter, self.probes, self.factors = at, letter, probes, factors
        self.values = np.zeros((0, at.base.Y.size))
        self.jacobians: list[Array] = []
        self.extend(points)

    def extend(self, points: Iterable[Vector]) -> None:
        """Adds points after those that are there."""
        for point in points:
            self.values = np.vstack([self.values, self.at.value(point)])
            self.jacobians.append(self.at.jacobian(point))

    def take(self, probe: int, count: int | None = None) -> Array:
        """Returns `J* w` or `J v` at the points, or at the first `count` of them, row by row."""
        rows = []
        for k, jacobian in enumerate(self.jacobians[:count]):
            scaled = (self.factors[k] if self.factors else 1.0) * self.probes[probe]
            rows.append(scaled @ jacobian if self.letter == "R" else jacobian @ scaled)
        return np.array(rows)


def replayed(base: Base) -> Replayed | None:
    """Returns the function of a problem in exact arithmetic; `None` where it cannot be replayed, or
    that is much work, and in single precision where it may follow its input in steps, which
    differences tell there.
    """
    problem, eps = base.problem, base.coarsest_eps
    if problem.modes_taken:
        return None
    asked = by_replay(problem, base, tangents=problem.X.size)
    if asked is None or (eps <= COARSE_EPS and asked.compares):
        return None
    return attempt(lambda: Replayed(base, asked), NotSupportedError)


def rounding_of(
    base: Base, letter: str, probes: Sequence[Vector], x: Vector | None = None
) -> Vector | None:
    """Returns what roundings of the program can do to the derivative for these probes at a point,
    by default that of `base`, at most and by entry; `None` where f cannot be replayed, or follows
    its input in steps.
    """
    problem = base.problem
    if problem.modes_taken:
        return None
    tangents = problem.X.size if letter == "R" else len(probes)
    found = by_replay(problem, base, tangents=tangents)
    asked = found.rounded(base.coarsest_eps) if found is not None and not found.compares else None
    if asked is None:
        return None
    point = problem.origin if x is None else x
    along = [
        _along(asked, base, point, v, length).error
        for v, length in (
            zip(np.eye(problem.X.size), problem.length_scales, strict=True)
            if letter == "R"
            else ((probe, 1.0) for probe in probes)
        )
    ]
    if letter == "F":
        return np.asarray(np.max(along, axis=0))
    return np.asarray(np.max([[np.abs(w) @ bar for bar in along] for w in probes], axis=0))


def _along(asked: ByReference, base: Base, x: Vector, v: Vector, length: float = 1.0) -> Estimate:
    found = asked.reference.along(base.whole, x, Direction(v, length, np.inf, np.inf))
    size, value = base.Y.size, found.value
    if found.half_gap is not None:  # the middle of two branches is no derivative
        value = np.where(found.half_gap > 0, np.nan, value)
    return replace(found, value=value[:size], error=found.error[:size])

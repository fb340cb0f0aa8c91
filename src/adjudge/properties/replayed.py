"""f by exact replay beside its derivative of low precision: as the truth where f does not run in
double, and for what roundings of f can do to a derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from adjudge.constants import CANCELLED_PART, KNOWN_PART, NARROW_EXACT_WORK, UNASKED_EXACT_WORK
from adjudge.errors import NotSupportedError, attempt
from adjudge.estimate import ByReference, Direction, by_replay
from adjudge.floats import EPS, Vector
from adjudge.jacobian import Array
from adjudge.problem import Base


class Replayed:
    """The function of a problem in exact arithmetic."""

    def __init__(self, base: Base, asked: ByReference, factor: int = 1) -> None:
        """`asked` replays the function of `base`, with up to `factor` times the usual work. Raises
        `NotSupportedError` where its values or derivatives at x are not finite, or not decided.
        """
        self.base, self.asked, self.factor = base, asked, factor
        x = base.problem.origin
        gradient = self.derivative(x, "R", np.ones(base.Y.size))
        if not (np.all(np.isfinite(self.value(x))) and np.all(np.isfinite(gradient))):
            raise NotSupportedError("the derivative by exact replay is not decided", "move x")

    @property
    def name(self) -> str:
        """The words for it in a report."""
        return self.asked.reference.reference.name

    @property
    def compares(self) -> bool:
        """Whether f may follow its input in steps."""
        return self.asked.compares

    def value(self, point: Vector) -> Vector:
        """Returns the outputs at a point, NaN where they are not decided."""
        reference, whole = self.asked.reference, self.base.whole
        found = attempt(lambda: reference.values(whole, point), NotSupportedError)
        return np.full(self.base.Y.size, np.nan) if found is None else found[: self.base.Y.size]

    def derivative(self, point: Vector, letter: str, probe: Vector) -> Vector:
        """Returns the vjp (`letter` R) or the jvp for a probe at a point, NaN where it is not
        decided.
        """

        def taken() -> Vector:
            self.asked.reference.require(point)
            return _decided(*_taken(self.asked, self.base, point, letter, probe))

        found = attempt(taken, NotSupportedError)
        size = point.size if letter == "R" else self.base.Y.size
        return np.full(size, np.nan) if found is None else found


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
        self.points: list[Vector] = []
        self._found: dict[tuple[int, int], Vector] = {}
        self.extend(points)

    def extend(self, points: Iterable[Vector]) -> None:
        """Adds points after those that are there."""
        for point in points:
            self.values = np.vstack([self.values, self.at.value(point)])
            self.points.append(point)

    def take(self, probe: int, count: int | None = None) -> Array:
        """Returns `J* w` or `J v` at the points, or at the first `count` of them, row by row."""
        for k, point in enumerate(self.points[:count]):
            if (probe, k) not in self._found:
                scaled = (self.factors[k] if self.factors else 1.0) * self.probes[probe]
                self._found[probe, k] = self.at.derivative(point, self.letter, scaled)
        return np.array([self._found[probe, k] for k in range(len(self.points[:count]))])


def replayed(base: Base, factor: int = 1) -> Replayed | None:
    """Returns the function of a problem in exact arithmetic; `None` where it cannot be replayed, or
    it or its gradient takes more than `factor` times the usual work.
    """
    problem = base.problem
    if problem.modes_taken:
        return None
    asked = by_replay(problem, base, work=factor * UNASKED_EXACT_WORK)
    if asked is None or asked.gradient_work > factor * NARROW_EXACT_WORK:
        return None
    return attempt(lambda: Replayed(base, asked, factor), NotSupportedError)


def rounding_of(
    base: Base,
    letter: str,
    probes: Sequence[Vector],
    x: Vector | None = None,
    factor: int = 1,
) -> Vector | None:
    """Returns what roundings of the program can do to the derivative for these probes at a point,
    by default that of `base`, at most and by entry; `None` where f cannot be replayed with up to
    `factor` times the usual work, and anything at a point at which f raises.
    """
    problem = base.problem
    if problem.modes_taken:
        return None
    found = by_replay(problem, base, work=factor * UNASKED_EXACT_WORK)
    asked = None if found is None else found.rounded(base.coarsest_eps)
    if asked is None:
        return None
    point = problem.origin if x is None else x
    bars = attempt(lambda: [_taken(asked, base, point, letter, probe)[1] for probe in probes])
    return np.asarray(np.inf if bars is None else np.max(bars, axis=0))


def _taken(
    asked: ByReference, base: Base, x: Vector, letter: str, probe: Vector
) -> tuple[Vector, Vector]:
    """Returns the vjp or the jvp for a probe, and how far it may be off."""
    if letter == "R":
        gradient = asked.at(x).gradient(probe)
        assert gradient is not None  # of f itself, whose gradient is little work
        return gradient
    along = Direction(probe, 1.0, np.inf, np.inf)
    found = asked.reference.along(base.whole, x, along).of(slice(base.Y.size))
    return found.value, found.error if found.half_gap is None else found.error + found.half_gap


def _decided(value: Vector, error: Vector) -> Vector:
    """Returns numbers that are known, zeros where they cancel, and NaN elsewhere: the middle of the
    derivatives of two branches is none.
    """
    largest = np.max(np.abs(value), initial=0.0, where=np.isfinite(value))
    known = error <= KNOWN_PART * np.abs(value)
    zero = np.abs(value) + error <= CANCELLED_PART * largest
    return np.where(known, value, np.where(zero, 0.0, np.nan))

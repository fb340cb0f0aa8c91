"""The same function at the same point in double precision, where it runs there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from adjudge.automatic import Forward, Reverse
from adjudge.differences import scale
from adjudge.errors import NotSupportedError
from adjudge.observed import Base, evaluate, observe
from adjudge.problem import Problem
from adjudge.spaces import Space

STEPS = (2.0**-18, 2.0**-28)
"""Steps relative to x of which float32 shows the first and not the second."""
ROUGH = 0.1
"""How far slopes over `STEPS` may be apart, relative to f, in a function that carries double."""


class RefusedError(Exception):
    """The function does not run in double precision; the message says why."""


@dataclass
class Twin:
    """A problem in double precision, beside the one that the caller gave.

    `x`, and what f captured, are widened exactly: in exact arithmetic it is the same function.
    """

    low: Problem
    refused: str = ""
    """Why there is none."""
    carried: set[str] = field(default_factory=set)
    """Modes whose derivatives were compared with those in double precision already."""
    _problem: Problem | None = None

    def widening(self) -> AbstractContextManager[None]:
        """What every evaluation of the twin happens in."""
        return self.low.backend.widening()

    def composed(self, make: Callable[[Problem], Problem]) -> tuple[Problem, Base]:
        """The derivative `make` of the twin, observed at x; within `widening`.

        Raises `RefusedError` where it cannot be, or is not in double precision.
        """
        try:
            if self._problem is None:
                assert self.low.widened is not None
                self._problem = self.low.widened()
            problem = make(self._problem)
            base = observe(problem)
        except NotSupportedError as error:
            raise RefusedError(_first_line(error)) from error
        except Exception as error:
            raise raised(error) from error
        for leaf in (*problem.X.leaves, *base.whole.leaves):
            if not leaf.double:
                raise RefusedError(f"{leaf.name} stays {leaf.info.dtype}")
        return problem, base


def raised(error: Exception) -> RefusedError:
    """The refusal of a function that raises in double precision."""
    return RefusedError(f"it raises {type(error).__name__}: {_first_line(error)}")


def alike(one: Space, other: Space) -> bool:
    """Whether two spaces differ in precision at most."""
    return [(leaf.name, leaf.host_shape, leaf.complex) for leaf in one.leaves] == [
        (leaf.name, leaf.host_shape, leaf.complex) for leaf in other.leaves
    ]


def require_double(problem: Problem, base: Base, backward: bool, forward: bool) -> None:
    """Raises `RefusedError` where a derivative is not in double precision, as its function is."""
    backend = problem.backend
    found: list[tuple[str, object]] = []
    if backward:
        reverse = Reverse(problem)
        w = reverse.cotangent(base, np.ones(base.Y.size))
        gradients = reverse.pull(w) if any(reverse.attached) and base.Y.size else ()
        found += zip(
            (f"the gradient of {x.name}" for x in problem.X.leaves), gradients, strict=False
        )
    if forward and problem.X.size:
        forward_mode = Forward(problem)
        _, tangents = forward_mode.push(forward_mode.tangent(np.ones(problem.X.size)))
        found += zip((f"the tangent of {y.name}" for y in base.Y.leaves), tangents, strict=True)
    for name, array in found:
        if array is not None and backend.eps(array) > np.finfo(np.float64).eps:
            raise RefusedError(f"{name} stays {backend.info(array).dtype}")


def carries_double(problem: Problem, base: Base, seed: int) -> bool:
    """Whether f moves like a function in double precision: its slope over a step that float32
    does not resolve is that over one that it does. A cast inside f makes a staircase of it.
    """
    lengths = [scale(problem.origin[part]) for part in problem.X.slices]
    random = np.random.default_rng([seed, 23])
    v = random.choice([-1.0, 1.0], problem.X.size) * np.concatenate([*lengths, np.zeros(0)])
    v, ends = (v, (1.0, -1.0)) if problem.bounds is None else (problem.inward(v), (2.0, 0.0))
    slopes = []
    with np.errstate(all="ignore"):
        for step in STEPS:
            plus, minus = (
                evaluate(problem, base, problem.origin + sign * step * v, "to see its precision")
                for sign in ends
            )
            slopes.append((plus - minus) / (2 * step))
        gap, size = np.abs(slopes[0] - slopes[1]), np.fmax(np.abs(slopes[0]), np.abs(base.values))
        for part in base.whole.slices:
            size[part] = np.max(size[part], initial=0.0, where=np.isfinite(size[part]))
    return not bool(np.any(gap > ROUGH * size))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]

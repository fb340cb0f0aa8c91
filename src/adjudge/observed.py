"""The function at x: its outputs, and the space they lie in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from adjudge.backend import Arrays
from adjudge.differences import SAMPLED, SHORT
from adjudge.errors import AdjudgeError
from adjudge.problem import Problem
from adjudge.spaces import Space, Vector

Value = TypeVar("Value")

UNSEEN = 64
"""Units of rounding of f below which nothing of it is seen."""


@dataclass(frozen=True)
class Base:
    """The function at x: its outputs, the space they lie in, and what is only observed."""

    problem: Problem
    whole: Space
    """Outputs of `problem.evaluate`: the differentiated ones, then the observed ones."""
    Y: Space
    """The differentiated ones."""
    values: Vector
    arrays: tuple[object, ...]
    noise: float = 0.0
    """Spread of the values between evaluations, where the caller allows one."""
    constant: NDArray[np.bool_] | None = None
    """Outputs that are left out of a column, since they stand still and tower over the others."""

    def magnitude(self, values: Vector) -> Vector:
        """What the rounding of outputs is relative to: their modulus, and never less than the
        median of their leaf at x, through which they may be computed (1 - erfc(x), a @ b).
        """
        size = np.fmax(self.whole.modulus(values), self._typical)
        return np.asarray(size if self.constant is None else np.where(self.constant, 0.0, size))

    def rounded(self, eps: float) -> Base:
        """The same outputs, known to be rounded to `eps` at least."""

        def coarser(space: Space) -> Space:
            return Space(tuple(replace(leaf, eps=max(leaf.eps, eps)) for leaf in space.leaves))

        return replace(self, whole=coarser(self.whole), Y=coarser(self.Y))

    @cached_property
    def _typical(self) -> Vector:
        typical = np.zeros(self.whole.size)
        size = self.whole.modulus(self.values)
        for leaf, part in zip(self.whole.leaves, self.whole.slices, strict=True):
            if leaf.eps > SHORT:  # in sixteen bits every small entry would drown in it
                continue
            own = size[part] if self.constant is None else size[part][~self.constant[part]]
            some = own[:: max(1, own.size // SAMPLED)]
            finite = some[np.isfinite(some)]
            if finite.size:
                typical[part] = np.partition(finite, finite.size // 2)[finite.size // 2]
        return typical


def unseen(base: Base, vector: Vector, eps: float) -> Vector:
    """For each output of a derivative, what its slope along `vector` may be without showing in f:
    units of rounding of f, over the scale of the inputs that the output belongs to. Zero where
    the problem is f itself.
    """
    problem, width = base.problem, base.Y.size
    observed = base.values[width:]
    if not problem.tail or not observed.size:
        return np.zeros(width)
    f = float(np.max(np.abs(observed), initial=0.0, where=np.isfinite(observed)))
    lengths = np.ones(width)
    if problem.tail[0] == "R":
        lengths = problem.lengths[:width]
    moves = vector != 0
    with np.errstate(all="ignore"):
        step = float(np.max(np.abs(vector[moves]) / problem.lengths[moves], initial=0.0))
        return np.asarray(UNSEEN * eps * f * step / lengths)


def evaluate(problem: Problem, base: Base, x: Vector, doing: str) -> Vector:
    """All outputs at the point `x` of X, as a vector; the arrays are fresh ones."""
    problem.counts.doing = doing
    outputs = problem.evaluate(problem.point(x))
    return base.whole.vector(problem.backend, outputs, base.arrays)


def where_defined(value: Callable[[], Value]) -> Value | None:
    """`value()`, which evaluates f off x; `None` where f raises, since it is not defined there."""
    try:
        return value()
    except AdjudgeError:
        raise
    except Exception:
        return None


def observe(problem: Problem) -> Base:
    """The function at x, evaluated once, and the spaces of its outputs."""
    problem.counts.doing = "at x"
    x = problem.point()
    return base_of(problem, problem.evaluate(x))


def base_of(problem: Problem, outputs: Arrays) -> Base:
    """`Base` from outputs that are already there."""
    backend = problem.backend
    arrays = tuple(backend.copy(y) for y in outputs)
    names = tuple(problem.output_names())[: len(arrays)]
    whole, values = Space.at(backend, arrays, names)
    count = problem.outputs_of(len(arrays))
    return Base(
        problem,
        whole,
        Space(whole.leaves[:count]),
        values,
        arrays,
    )

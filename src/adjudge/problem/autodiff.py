"""Derivatives by the engine, as vectors: `J* w` by reverse mode and `J v` by forward mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from adjudge.engine import Array, Arrays, MaybeArrays
from adjudge.errors import Source, mark, running
from adjudge.floats import Vector
from adjudge.limits import limits
from adjudge.problem.calls import Purpose
from adjudge.problem.problem import Base, Problem


class Reverse:
    """Reverse mode at a point: `w -> J* w` on vectors, with every vjp counted."""

    def __init__(self, problem: Problem, at: Vector | None = None) -> None:
        """Evaluates f once in the engine's reverse mode, at x or at the point `at` of X."""
        self.problem = problem
        problem.counts.purpose = Purpose.REVERSE
        self.x = problem.point(at)
        with running(Source.DERIVATIVE):
            self.outputs, self._pullback = problem.backend.vjp(problem.function, self.x)
        self.attached = tuple([not problem.backend.detached(y) for y in self.outputs])
        self.present = [False] * len(self.x)
        """By leaf of X, whether any pullback so far returned a gradient for it."""

    def pull(self, w: MaybeArrays) -> MaybeArrays:
        """Returns what the engine's pullback makes of the cotangents `w`, one per output.

        What the pullback raises comes through, with a note that the function did not raise it.
        """
        self.problem.counts.vjps += 1
        try:
            return self._pullback(w)
        except BaseException as error:
            note = "adjudge: raised in the vjp (the backward pass), not in the function"
            mark(error, Source.DERIVATIVE, note)
            raise

    def cotangent(self, base: Base, w: Vector, *, zeros: bool = False) -> MaybeArrays:
        """Returns the vector `w` of Y as arrays, one per output.

        Outputs that are detached have `None`, and so have those where `w` is zero, unless `zeros`
        is set: the engine is then spared the work.
        """
        Y, from_host = base.Y, self.problem.backend.arrays.from_host
        made: list[Array | None] = []
        for leaf, part, like, here in zip(
            Y.leaves, Y.slices, base.arrays, self.attached, strict=False
        ):
            own = w[part]
            if not here or not (zeros or own.any()):
                made.append(None)
                continue
            host = leaf.host(own) if leaf.complex else own.reshape(leaf.host_shape)
            made.append(from_host(host, like))
        return tuple(made)

    def row(self, base: Base, w: Vector) -> Vector:
        """Returns `J* w` as a vector of X. Absent gradients are zeros."""
        cotangent = self.cotangent(base, w)
        for array in cotangent:
            if array is not None:
                return self.vector(self.pull(cotangent))
        return np.zeros(self.problem.X.size)

    def vector(self, g: MaybeArrays) -> Vector:
        """Returns gradients, one per leaf of X, as a vector of X. Absent ones are zeros."""
        problem = self.problem
        for j, gradient in enumerate(g):
            self.present[j] |= gradient is not None
        return problem.X.vector(problem.backend, g, problem.x)

    def blocks(
        self,
        base: Base,
        cotangents: Iterable[Vector],
        rows: int,
        known: Vector | None = None,
        *,
        whole: bool = False,
    ) -> Iterator[tuple[slice, Vector]]:
        """Yields `J* w` for all cotangents in blocks of columns, which together are all of X.

        Args:
            base: f at x.
            cotangents: Vectors of Y.
            rows: How many cotangents there are.
            known: `J* w` where there is one cotangent only and it was pulled back already.
            whole: Whether all columns are to be in one block, however large.

        Yields:
            The columns as a slice of the coordinates of X, and an array of shape `(rows, width)`.
        """
        n = self.problem.X.size
        if known is not None:
            yield slice(0, n), known[None, :]
            return
        width = max(1, n if whole else min(n, limits().block_bytes // (8 * max(1, rows))))
        starts = range(0, max(n, 1), width)
        ws = cotangents if len(starts) == 1 else list(cotangents)
        for start in starts:
            block = slice(start, min(n, start + width))
            table = np.empty((rows, block.stop - block.start))
            for i, w in enumerate(ws):
                table[i] = self.row(base, w)[block]
            yield block, table


class Forward:
    """Forward mode at a point: `v -> J v` on vectors, with every jvp counted."""

    def __init__(self, problem: Problem, at: Vector | None = None) -> None:
        """Evaluates nothing yet. Every jvp evaluates f, at x or at the point `at` of X."""
        self.problem = problem
        self.at = at

    def push(self, v: MaybeArrays, x: Arrays | None = None) -> tuple[Arrays, MaybeArrays]:
        """Returns what the engine's jvp makes of the tangents `v`: the outputs and their tangents.

        `x`: the arrays at the point, where they are made already.
        """
        problem = self.problem
        problem.counts.jvps += 1
        problem.counts.purpose = Purpose.FORWARD
        x = problem.point(self.at) if x is None else x
        with running(Source.DERIVATIVE):
            return problem.backend.jvp(problem.function, x, v)

    def tangent(self, v: Vector, only: int | None = None) -> MaybeArrays:
        """Returns the vector `v` of X as arrays, one per leaf.

        With `only`, the index of a leaf, the tangents of all others are `None`, that is undefined.
        """
        problem = self.problem
        arrays = problem.X.arrays(problem.backend, v, problem.x)
        return tuple(array if only is None or only == j else None for j, array in enumerate(arrays))

    def column(self, base: Base, v: Vector, only: int | None = None) -> tuple[Vector, Vector]:
        """Returns `(f(x), J v)` as vectors of Y. Absent tangents are zeros."""
        y, jv = self.push(self.tangent(v, only))
        return self.vector(base, y), self.vector(base, jv)

    def vector(self, base: Base, y: MaybeArrays) -> Vector:
        """Returns outputs or their tangents as a vector of Y. Absent ones are zeros."""
        return base.Y.vector(self.problem.backend, y, base.arrays[: len(base.Y.leaves)])

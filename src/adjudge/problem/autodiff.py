"""The table by the engine: rows by reverse mode, columns by forward mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from adjudge.engine import Arrays, MaybeArrays
from adjudge.errors import Source, running
from adjudge.floats import Vector
from adjudge.problem.calls import Purpose
from adjudge.problem.problem import Base, Problem

BLOCK_BYTES = 128 * 2**20
"""Largest block of rows that is held at once; a larger table is worked through in blocks of
columns, each from its own pass of reverse mode."""


class Reverse:
    """`w -> J* w` at x, counted, on vectors."""

    def __init__(self, problem: Problem, at: Vector | None = None) -> None:
        """One evaluation of f under the engine's reverse mode, at x or at another point."""
        self.problem = problem
        problem.counts.purpose = Purpose.REVERSE
        self.x = problem.point(at)
        with running(Source.DERIVATIVE):
            self.outputs, self._pullback = problem.backend.vjp(problem.function, self.x)
        self.attached = tuple(not problem.backend.detached(y) for y in self.outputs)
        self.present = [False] * len(self.x)
        """Whether any pullback so far had a gradient for the input leaf."""

    def pull(self, w: MaybeArrays) -> MaybeArrays:
        """The engine's pullback itself."""
        self.problem.counts.vjps += 1
        note = "adjudge: raised in the vjp (the backward pass), not in the function"
        with running(Source.DERIVATIVE, note):
            return self._pullback(w)

    def cotangent(self, base: Base, w: Vector, *, zeros: bool = False) -> MaybeArrays:
        """`w` as arrays; `None` for outputs that are detached, and for those where `w` is zero
        unless `zeros`.
        """
        backend, Y = self.problem.backend, base.Y
        return tuple(
            backend.arrays.from_host(leaf.host(w[part]), like)
            if attached and (zeros or np.any(w[part]))
            else None
            for leaf, part, like, attached in zip(
                Y.leaves, Y.slices, base.arrays, self.attached, strict=False
            )
        )

    def row(self, base: Base, w: Vector) -> Vector:
        """`J* w` as a vector of X, absent gradients as zeros."""
        cotangent = self.cotangent(base, w)
        if all(array is None for array in cotangent):
            return np.zeros(self.problem.X.size)
        return self.vector(self.pull(cotangent))

    def vector(self, g: MaybeArrays) -> Vector:
        """Gradients as a vector of X."""
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
        """Blocks of columns of the table, `rows x width`, together all of X; `whole`: one block.

        `known` is the row of the only cotangent, where there is but one and it was pulled already.
        """
        n = self.problem.X.size
        if known is not None:
            yield slice(0, n), known[None, :]
            return
        width = max(1, n if whole else min(n, BLOCK_BYTES // (8 * max(1, rows))))
        starts = range(0, max(n, 1), width)
        ws = cotangents if len(starts) == 1 else list(cotangents)
        for start in starts:
            block = slice(start, min(n, start + width))
            table = np.empty((rows, block.stop - block.start))
            for i, w in enumerate(ws):
                table[i] = self.row(base, w)[block]
            yield block, table


class Forward:
    """`v -> J v` at x, counted, on vectors."""

    def __init__(self, problem: Problem, at: Vector | None = None) -> None:
        """Nothing is evaluated yet: every jvp is an evaluation of f, at x or at another point."""
        self.problem = problem
        self.at = at

    def push(self, v: MaybeArrays, x: Arrays | None = None) -> tuple[Arrays, MaybeArrays]:
        """The engine's jvp itself, at `x` where that is made already."""
        problem = self.problem
        problem.counts.jvps += 1
        problem.counts.purpose = Purpose.FORWARD
        x = problem.point(self.at) if x is None else x
        with running(Source.DERIVATIVE):
            return problem.backend.jvp(problem.function, x, v)

    def tangent(self, v: Vector, only: int | None = None) -> MaybeArrays:
        """`v` as arrays; with `only` the other leaves' tangents are undefined."""
        problem = self.problem
        arrays = problem.X.arrays(problem.backend, v, problem.x)
        return tuple(array if only is None or only == j else None for j, array in enumerate(arrays))

    def column(self, base: Base, v: Vector, only: int | None = None) -> tuple[Vector, Vector]:
        """`(f(x), J v)` as vectors of Y, absent tangents as zeros."""
        y, jv = self.push(self.tangent(v, only))
        return self.vector(base, y), self.vector(base, jv)

    def vector(self, base: Base, y: MaybeArrays) -> Vector:
        """Outputs or tangents as a vector of Y."""
        return base.Y.vector(self.problem.backend, y, base.arrays[: len(base.Y.leaves)])

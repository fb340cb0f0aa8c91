"""This module compares which outputs move when blocks of an input move with where the derivative is
zero.

The blocks are the triangles of square matrices, the rows of a batch, and the entries without any
derivative. A derivative where f does not move by a bit, and no derivative where f moves, are wrong
whatever their size; differences of a projection show neither, because the block is a small part of
it. The method is ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import LEAK_BARS, LEAK_UNITS, MOVE_LENGTHS, SYMMETRIC_RTOL
from adjudge.errors import attempt
from adjudge.estimate import Effort, moved_by
from adjudge.findings import Finding, NothingRead, Remedy, RowLeaks, RowsMissing, Status
from adjudge.floats import Vector, norm, scale
from adjudge.jacobian import ColumnBlock, Table
from adjudge.problem import (
    Leaf,
    Purpose,
    Reverse,
    Stream,
    Tangent,
    evaluate,
    generator,
    random_entries,
)

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SparsityPattern:
    """The sparsity pattern of one problem, block by block, beside that of its table."""

    table: Table
    reverse: Reverse

    def within(self) -> Iterator[Finding]:
        """Checks the entries without any derivative, and the triangles, of every input leaf."""
        gradient = self._gradient()
        if gradient is not None and np.all(np.isfinite(gradient)):
            for j, leaf in self._leaves():
                self._zeros(j, gradient)
                yield from self._triangles(j, leaf, gradient)

    def between(self) -> Iterator[Finding]:
        """Checks the entries of a batch in every input leaf."""
        for j, leaf in self._leaves():
            yield from self._batches(j, leaf)

    def _leaves(self) -> Iterator[tuple[int, Leaf]]:
        """Yields the input leaves for which the budget has room."""
        table = self.table
        for j, leaf in enumerate(table.problem.X.leaves):
            several = leaf.size > 1 and not table.problem.modes_taken
            if several and table.budget.allows(8):
                yield j, leaf

    @property
    def _rows(self) -> Vector | None:
        """The rows of reverse mode that are at hand."""
        table = self.table
        return table.rows if table.known_row is None else table.known_row[None, :]

    def _gradient(self) -> Vector | None:
        """Returns the largest entries of the rows of reverse mode; `None` where the rows are not
        all there.
        """
        rows = self._rows
        if rows is None or rows.shape[0] < self.table.probes.rows or not rows.size:
            return None
        return np.asarray(np.max(np.abs(rows), axis=0))

    # -- no derivative where f moves

    def _zeros(self, j: int, gradient: Vector) -> None:
        """Compares entries without any derivative by themselves, since what f does there may be too
        small to show among the others. What fails is an entry of the table like any other.
        """
        table, part = self.table, self.table.problem.X.slices[j]
        mask = gradient[part] == 0
        if table.probes.full or table.tally("R").failed or np.all(mask) or not np.any(mask):
            # Where something failed, that is traced instead.
            return
        rows = self._rows
        # Without rows there would be no gradient.
        assert rows is not None
        block = ColumnBlock(slice(0, table.problem.X.size), rows)
        table.compare_separately(self._tangent(j, mask, 0), block)

    # -- a derivative where f does not move

    def _triangles(self, j: int, leaf: Leaf, gradient: Vector) -> Iterator[Finding]:
        """Checks the strict triangles of the last two axes, where these are square.

        A Cholesky factor, for instance, reads one triangle, and a symmetrised gradient reaches into
        both.
        """
        shape = leaf.host_shape
        if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            return
        here = gradient[self.table.problem.X.slices[j]]
        for name, triangle in (("upper", np.triu), ("lower", np.tril)):
            inside = triangle(np.ones(shape[-2:], bool), 1 if name == "upper" else -1)
            mask = _coordinates(leaf, np.broadcast_to(inside, shape))
            if not np.any(here[mask]) or not self._not_read(j, mask, gradient):
                continue
            other = leaf.host(here).swapaxes(-1, -2).reshape(-1)
            symmetric = np.allclose(leaf.host(here).reshape(-1), other, rtol=SYMMETRIC_RTOL, atol=0)
            yield self._spurious(j, mask, here, upper=name == "upper", symmetric=symmetric)

    def _not_read(self, j: int, mask: Mask, gradient: Vector) -> bool:
        """Returns whether f stands still to the last bit under moves of the block of all lengths,
        though its derivative says that it would move visibly.
        """
        table = self.table
        tangent = self._tangent(j, mask, 1)
        part = table.problem.X.slices[j]
        told = float(norm(gradient[part] * tangent.vector[part]))
        if told <= LEAK_UNITS * self._rounding(table.probes.cotangent):
            return False
        for k, length in enumerate(MOVE_LENGTHS):
            moved = self._moved(self._tangent(j, mask, k + 1), length)
            if moved is None or np.any(moved):
                return False
        moved = self._moved(self._tangent(j, ~mask, 0), MOVE_LENGTHS[2])
        # If f stands still as a whole as well, it may be cached.
        return moved is not None and bool(np.any(moved))

    def _spurious(
        self, j: int, mask: Mask, here: Vector, *, upper: bool, symmetric: bool
    ) -> Finding:
        """Returns the finding about a derivative in a block that f does not read."""
        leaf = self.table.problem.X.leaves[j]
        step = 2 if leaf.complex else 1
        inside = np.flatnonzero(mask & (here != 0))
        k = int(inside[np.argmax(here[inside])])
        count, largest = int(mask.sum()) // step, float(here[k])
        detail = NothingRead(leaf.name, upper, count, leaf.entries, largest)
        remedy = Remedy.ZERO_GRADIENT_OR_CHECK_SYMMETRIC if symmetric else Remedy.ZERO_GRADIENT
        return Finding(Status.SPURIOUS, "R", leaf.entry(k), detail, remedy)

    # -- between the entries of a batch

    def _batches(self, j: int, leaf: Leaf) -> Iterator[Finding]:
        """Moves a random half of axis 0, then the other half: outputs of the half that stays have a
        derivative with respect to the one that moves if, and only if, they move.
        """
        table, n = self.table, leaf.host_shape[0] if leaf.host_shape else 0
        outputs = [
            i
            for i, y in enumerate(table.base.Y.leaves)
            if y.host_shape and y.host_shape[0] == n and self.reverse.attached[i] and y.size
        ]
        if n < 2 or not outputs:
            return
        random = generator(table.probes.seed, Stream.HALF_OF_BATCH, j)
        moving = np.zeros(n, bool)
        moving[random.permutation(n)[: n // 2]] = True
        for half in (moving, ~moving):
            found = self._between(j, leaf, outputs, half)
            if found is not None:
                yield found
                return

    def _between(self, j: int, leaf: Leaf, outputs: list[int], half: Mask) -> Finding | None:
        """Returns a leak or a missing derivative between the two halves, if there is one."""
        table = self.table
        problem, Y = table.problem, table.base.Y
        mask, others = _rows(leaf, half), np.zeros(Y.size, bool)
        for i in outputs:
            others[Y.slices[i]] = _rows(Y.leaves[i], ~half)
        moved = self._moved(self._tangent(j, mask, 5), 1.0)
        # If f stands still as a whole, it may be cached.
        if moved is None or not np.any(moved):
            return None
        part = problem.X.slices[j]
        still, moves = others & ~moved, others & moved
        for rows, spurious in ((still, True), (moves, False)):
            if not np.any(rows):
                continue
            w = np.where(rows, table.probes.cotangent, 0.0)
            g = self.reverse.row(table.base, w)
            here = np.abs(g[part])
            if spurious and self._leaks(j, mask, w, here):
                return self._leak(j, leaf, outputs, half, here)
            if not spurious and not np.any(here) and table.tally("R").failed:
                continue  # a gradient of zeros was found already, and its slopes cost a ladder
            if not spurious and not np.any(here[mask]) and self._slope(j, mask, w):
                which = tuple(int(row) for row in np.flatnonzero(half))
                entry, detail = f"{leaf.name}[{_names(which)}]", RowsMissing(leaf.name, which)
                return Finding(Status.MISSING, "R", entry, detail, Remedy.ADD_OTHER_ROWS)
        return None

    def _leaks(self, j: int, mask: Mask, w: Vector, here: Vector) -> bool:
        """Returns whether a gradient for `w` reaches into the block by more than rounding, though f
        does not move there, by no move of the block of any length.
        """
        table, part = self.table, self.table.problem.X.slices[j]
        largest = float(np.max(here, initial=0.0))
        tangent = self._tangent(j, mask, 5)
        told = float(norm(here * tangent.vector[part]))
        floor = LEAK_UNITS * table.tolerance.eps
        if not np.any(here[mask] > floor * largest) or told <= LEAK_UNITS * self._rounding(w):
            return False
        for k, length in enumerate(MOVE_LENGTHS[1:]):
            moved = self._moved(self._tangent(j, mask, 6 + k), length)
            if moved is None or np.any(moved & (w != 0)):
                return False
        return True

    def _leak(self, j: int, leaf: Leaf, outputs: list[int], half: Mask, here: Vector) -> Finding:
        """Returns the finding about the row of the block with the largest gradient."""
        width = here.size // half.size
        largest = np.where(half, here.reshape(half.size, width).max(axis=1, initial=0.0), 0.0)
        b = int(np.argmax(largest))
        names = tuple(self.table.base.Y.leaves[i].name for i in outputs)
        detail = RowLeaks(leaf.name, b, names, float(largest[b]))
        entry = f"{leaf.name}[{b}]"
        return Finding(Status.SPURIOUS, "R", entry, detail, Remedy.SEPARATE_ROWS)

    def _slope(self, j: int, mask: Mask, w: Vector) -> bool:
        """Returns whether `<w, f>` has a slope along the block that rounding does not explain."""
        table = self.table
        if not table.budget.allows(64):
            return False
        found = table.estimator.along(self._tangent(j, mask, 0), Effort.SECOND_LADDER)
        estimate, count = found.estimate, table.base.Y.size
        if estimate.half_gap is not None and np.any(estimate.half_gap[:count][w != 0]):
            # At a kink no derivative at all may be right.
            return False
        value = abs(float(w @ estimate.value[:count]))
        error = float(norm(w * estimate.error[:count])) + self._rounding(w)
        return bool(value > LEAK_BARS * error)

    # -- shared

    def _tangent(self, j: int, mask: Mask, draw: int) -> Tangent:
        """Returns random entries of the scale of x in the block, and zero elsewhere."""
        problem = self.table.problem
        part, wide = problem.X.slices[j], problem.X.leaves[j].double
        random = generator(self.table.probes.seed, Stream.SPARSITY_TANGENT, j, draw)
        vector = np.zeros(problem.X.size)
        entries = random_entries(random, mask.size, wide=wide) * scale(problem.origin[part])
        vector[part] = np.where(mask, entries, 0.0)
        return Tangent((j,), vector, 1.0)

    def _moved(self, tangent: Tangent, length: float) -> Mask | None:
        """Marks the outputs that change at all by a move; `None` where the move cannot be made."""
        problem, base = self.table.problem, self.table.base
        if problem.longest_step(np.sign(length) * tangent.vector, both=False) < abs(length):
            return None
        point = moved_by(problem, tangent, length)
        if np.array_equal(point, problem.origin):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = attempt(lambda: evaluate(problem, base, point, Purpose.BLOCK))
        if values is None:  # so far from x f need not be defined
            return None
        count = base.Y.size
        return np.asarray(values[:count] != base.values[:count])

    def _rounding(self, w: Vector) -> float:
        """Returns a unit of rounding of `<w, f>`, whose errors add in quadrature."""
        base = self.table.base
        size = base.magnitude(base.values)[: base.Y.size]
        return float(self.table.tolerance.eps * norm(w * size))


def _coordinates(leaf: Leaf, entries: Mask) -> Mask:
    """Returns the real coordinates of these entries."""
    return np.repeat(entries.reshape(-1), 2 if leaf.complex else 1)


def _rows(leaf: Leaf, chosen: Mask) -> Mask:
    """Returns the real coordinates of these rows of axis 0."""
    return np.repeat(chosen, leaf.size // chosen.size)


def _names(rows: tuple[int, ...]) -> str:
    shown = ", ".join(str(row) for row in rows[:4])
    return shown if len(rows) <= 4 else f"{shown}, …"

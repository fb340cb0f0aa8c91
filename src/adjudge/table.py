"""The table `T[i][j] = <w_i, J v_j>`, filled twice and compared column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.compare import FLOOR, Comparison, Entry, Tally, Tolerance, along
from adjudge.differences import norm
from adjudge.noise import CARRIED
from adjudge.numeric import Column, column
from adjudge.observed import Base
from adjudge.probes import Probes, Tangent
from adjudge.problem import Problem
from adjudge.settle import Settling, Side, total, worst_of
from adjudge.spaces import Space, Vector, largest

DUG = 4
"""Columns that lie below the rounding of f and get a ladder of long steps all the same."""

CONFIRMED = 32
"""Columns on which a disagreement, or a doubt, is followed by a ladder of steps before the rest is
judged by its two evaluations: the verdict stands by then."""


@dataclass
class Table:
    """What is compared: the problem, its probes, and the engine's modes that fill the table."""

    problem: Problem
    base: Base
    probes: Probes
    tolerance: Tolerance
    eps: float | None
    reverse: Reverse | None
    forward: Forward | None
    tallies: dict[str, Tally]
    known: Vector | None = None
    """The only row, where there is but one and it is at hand."""
    confirmed: int = 0
    open: int = 0
    """Columns on which a ladder of steps left something undecided."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """By mode, the first comparison that failed."""
    _blocks_of: tuple[object, dict[int, Vector]] = field(default_factory=lambda: (None, {}))
    suspects: list[Failure] = field(default_factory=list)
    """Projections that agree, with a deviation that is significant all the same."""
    pushed: dict[int, tuple[Vector, Vector]] = field(default_factory=dict)
    """By leaf, the first tangent pushed forward and its image."""
    dug: int = 0
    """Columns below the rounding of f that were looked into."""
    carries: str | None = None
    """The dtype to which f was seen to round its values, narrower than that of its outputs."""
    rows: Vector | None = None
    """The whole table by reverse mode, where it fitted into one block."""

    def tally(self, letter: str) -> Tally:
        """The tally of mode `letter` on top of the derivatives already taken."""
        mode = letter + self.problem.tail if letter else self.problem.tail
        return self.tallies.setdefault(mode, Tally(mode))

    def fill(self) -> None:
        """All columns: differences once, shared by every mode."""
        for block, rows in self._blocks():
            self.rows = rows if block == slice(0, self.problem.X.size) else None
            for tangent in self.probes.tangents(self.problem.origin, block):
                self._column(tangent, block, rows)

    def _blocks(self) -> Iterator[tuple[slice, Vector | None]]:
        if self.reverse is None:
            yield slice(0, self.problem.X.size), None
            return
        yield from self.reverse.blocks(
            self.base, self.probes.cotangents(), self.probes.rows, self.known
        )

    def _column(self, tangent: Tangent, block: slice, rows: Vector | None) -> None:
        found = column(self.problem, self.base, tangent, self.eps)
        pushed = None
        if self.forward is not None:
            pushed = self.forward.column(self.base, found.vector, tangent.leaf)[1]
            self.pushed.setdefault(tangent.leaf, (found.vector, pushed))
        sides = list(self._sides(found, block, rows, pushed))
        disagrees = any(bool(np.any(self._doubtful(c))) for _, c, _ in sides)
        doubt = (disagrees and self.confirmed < CONFIRMED) or (
            total(sides, "undecided") and self.open < CONFIRMED
        )
        buried = not doubt and self._buried(sides)
        self.dug += buried
        if (doubt or buried) and self.eps is None:
            judged = partial(self._judged, block=block, rows=rows, pushed=pushed)
            settling = Settling(self.problem, self.base, self.probes, judged)
            found, sides, dtype = settling.settle(
                found, sides, disagrees=disagrees or buried, carries=self.carries is not None
            )
            if dtype is not None:
                self._carry(dtype)
                self._column(tangent, block, rows)
                return
            if buried:
                sides = [settling.unburied(side, found) for side in sides]
            self.confirmed += bool(total(sides, "fails"))
            self.open += bool(total(sides, "undecided"))
        for letter, comparison, side in sides:
            self._record(self.tally(letter), comparison, side, found)
        if pushed is not None and rows is not None:
            self._forward_against_reverse(found, block, rows, pushed)

    def _judged(
        self, found: Column, block: slice, rows: Vector | None, pushed: Vector | None
    ) -> list[Side]:
        return list(self._sides(found, block, rows, pushed, final=True))

    def _buried(self, sides: list[Side]) -> bool:
        """Whether all of a column lies below the rounding of f, of which two evaluations show
        nothing. Looked into a few times only: what f does not read looks like that, too.
        """
        return (
            self.dug < DUG
            and not self.problem.tail
            and bool(sides)
            and all(bool(np.all(c.buried)) and not np.any(c.moved) for _, c, _ in sides)
        )

    def _doubtful(self, comparison: Comparison) -> NDArray[np.bool_]:
        """Where two evaluations do not settle the matter."""
        doubtful = ~comparison.agrees | comparison.vanishing
        if not self.probes.full:
            doubtful |= comparison.coarse | comparison.suspicious
        return doubtful

    def _carry(self, dtype: str) -> None:
        """From here on f is judged as code in that dtype."""
        bits = CARRIED[dtype]
        self.carries = dtype
        self.base = self.base.rounded(2.0 ** (1 - bits))
        self.tolerance = replace(self.tolerance, eps=max(self.tolerance.eps, 2.0 ** (1 - bits)))

    # -- the compared numbers of one column

    def _sides(
        self,
        found: Column,
        block: slice,
        rows: Vector | None,
        pushed: Vector | None,
        *,
        final: bool = False,
    ) -> Iterator[tuple[str, Comparison, str]]:
        count = self.base.Y.size
        estimate = found.estimate
        value, error = estimate.value[:count], estimate.error[:count]
        moved, secant = estimate.moved[:count], self._secant(found, slice(0, count))
        quantum = self._quantum(found, self.base.Y, self.base.values[:count])
        column = self.base.Y.largest(value)
        size = np.zeros_like(column) if final else FLOOR * column
        if pushed is not None:
            weight = 1.0 if self.probes.full else float(np.linalg.norm(found.vector))
            forward = Comparison(
                pushed, value, error, size, secant, moved, quantum, column, self.tolerance, weight
            )
            yield "F", forward, "each"
        if rows is not None:
            yield "R", self._reverse_side(found, block, rows, size, quantum), "rows"
        if self.problem.tail and estimate.value.size > count:
            side = self._observed_side(found, count)
            if side is not None:
                yield "", side, "first"

    def _reverse_side(
        self, found: Column, block: slice, rows: Vector, size: Vector, quantum: Vector
    ) -> Comparison:
        probes, count = self.probes, self.base.Y.size
        estimate = found.estimate
        if found.tangent.coordinate is not None:
            automatic = rows[:, found.tangent.coordinate - block.start]
            scale = size
        else:
            v = found.vector[block]
            with np.errstate(all="ignore"):
                automatic = rows @ v
                scale = norm(rows * v)
        weight = 1.0
        if not probes.full:
            weight = float(np.linalg.norm(found.vector)) * max(
                (float(np.linalg.norm(probes.cotangent[p])) for p in self.base.Y.slices),
                default=1.0,
            )
        moved = estimate.moved[:count]
        return Comparison(
            automatic,
            probes.contract(estimate.value[:count]),
            probes.contract_error(estimate.error[:count]),
            scale,
            probes.contract_error(self._secant(found, slice(0, count))),
            moved if probes.full else np.array([moved[p].any() for p in self.base.Y.slices]),
            probes.contract_error(quantum),
            scale if not probes.full else self._block_size(found.tangent.leaf, block, rows),
            self.tolerance,
            weight,
        )

    def _observed_side(self, found: Column, count: int) -> Comparison | None:
        """The first derivative, from the same evaluations: `<w, J v>` against `<J* w, v>`."""
        problem = self.problem
        if found.tangent.leaf >= problem.base_inputs or problem.weights is None:
            return None
        estimate, w = found.estimate, problem.weights
        observed = Space(self.base.whole.leaves[len(self.base.Y.leaves) :])
        g = self.base.values[:count]
        v = found.vector[:count]
        with np.errstate(all="ignore"):
            moved = estimate.moved[count:]
            return Comparison(
                np.array([g @ v]),
                np.array([w @ estimate.value[count:]]),
                np.array([norm(w * estimate.error[count:])]),
                np.array([norm(g * v)]),
                np.array([norm(w * self._secant(found, slice(count, None)))]),
                np.array([bool(moved.any())]),
                np.array([norm(w * self._quantum(found, observed, self.base.values[count:]))]),
                np.array([norm(g * v)]),
                self.tolerance,
                float(np.linalg.norm(w) * np.linalg.norm(v)),
            )

    def _secant(self, found: Column, part: slice) -> Vector:
        with np.errstate(all="ignore"):
            modulus = self.base.whole.modulus(self.base.values)
            if found.estimate.size is not None:
                modulus = np.where(modulus == 0, found.estimate.size, modulus)
            return np.asarray(modulus[part] / found.tangent.length)

    def _quantum(self, found: Column, space: Space, values: Vector) -> Vector:
        """A unit of rounding of the largest entry of each leaf, per step of this column.

        An entry may be computed through values of the size of its neighbours (1 - erfc(x), say):
        then its own rounding says too little.
        """
        if found.step == 0:
            return np.zeros_like(values)
        return self.tolerance.eps * space.largest(values) / found.step

    def _block_size(self, leaf: int, block: slice, rows: Vector) -> Vector:
        """The largest entry of reverse mode between each output leaf and this input leaf."""
        if self._blocks_of[0] is not rows:
            self._blocks_of = (rows, {})
        known = self._blocks_of[1]
        if leaf not in known:
            part = self.problem.X.slices[leaf]
            columns = slice(max(part.start - block.start, 0), max(part.stop - block.start, 0))
            size = np.zeros(self.base.Y.size)
            for output in self.base.Y.slices:
                size[output] = max(
                    (largest(rows[k, columns]) for k in range(output.start, output.stop)),
                    default=0.0,
                )
            known[leaf] = size
        return known[leaf]

    # -- keeping what disagrees

    def _record(self, tally: Tally, comparison: Comparison, side: str, found: Column) -> None:
        fails, undecided = comparison.fails, comparison.undecided
        kink = np.zeros_like(fails)
        slopes = self._slopes(side, found)
        if slopes is not None:
            kink = fails & along(slopes, comparison.automatic, comparison.allowed)
        fails = fails & ~kink
        # an empty output has a projection, with nothing in it
        empty = [side == "rows" and not leaf.size for leaf in self.base.Y.leaves]
        tally.compared += int(comparison.automatic.size) - (0 if self.probes.full else sum(empty))
        tally.nonzero += int(np.count_nonzero(comparison.automatic))
        tally.resolution = max(tally.resolution, comparison.resolution)
        tally.failed += int(np.count_nonzero(fails))
        tally.undecided += int(np.count_nonzero(undecided))
        tally.kinks += int(np.count_nonzero(kink))
        for k in worst_of(comparison, fails):
            entry = self._entry(tally.mode, comparison, side, found, k)
            if not comparison.moved[k] and comparison.automatic[k] != 0:
                tally.keep(tally.still, entry)
            elif self._detached(side, k):
                tally.keep(tally.detached, entry)
            elif self._absent(side, found):
                tally.keep(tally.absent, entry)
            else:
                tally.keep(tally.wrong, entry)
            failure = Failure(tally.mode, side, found.tangent, k, entry)
            self.failures.setdefault(tally.mode, failure)
        if not self.probes.full:
            for k in worst_of(comparison, comparison.suspicious & ~undecided):
                entry = self._entry(tally.mode, comparison, side, found, k)
                self.suspects.append(Failure(tally.mode, side, found.tangent, k, entry))
        for k in worst_of(comparison, kink | undecided):
            tally.keep(tally.open, self._entry(tally.mode, comparison, side, found, k))

    def _slopes(self, side: str, found: Column) -> tuple[Vector, Vector] | None:
        """One-sided slopes of what is compared, NaN without a kink; of a projection: the bounds."""
        estimate, count = found.estimate, self.base.Y.size
        if estimate.slopes is None or side == "first":
            return None
        left, right = (slope[:count] for slope in estimate.slopes)
        if side == "rows":
            return self.probes.contract_slopes(left, right, estimate.value[:count])
        return left, right

    def _detached(self, side: str, k: int) -> bool:
        if self.reverse is None or side == "first":
            return False
        output = int(self.base.Y.owner[k]) if self.probes.full or side == "each" else k
        return not self.reverse.attached[output]

    def _absent(self, side: str, found: Column) -> bool:
        if self.reverse is None or side == "first":
            return False
        return not self.reverse.present[found.tangent.leaf]

    def _entry(self, mode: str, comparison: Comparison, side: str, found: Column, k: int) -> Entry:
        slopes = self._slopes(side, found)
        return Entry(
            mode,
            self._of(side, k),
            self._wrt(found.tangent),
            float(comparison.automatic[k]),
            float(comparison.reference[k]),
            float(comparison.error[k]),
            float(comparison.allowed[k]),
            found.estimate.method,
            None
            if slopes is None or np.isnan(slopes[0][k])
            else (float(slopes[0][k]), float(slopes[1][k])),
        )

    def _of(self, side: str, k: int) -> str:
        if side == "first":
            return "<w, f>"
        if self.probes.full or side == "each":
            return self.base.Y.entry(k)
        return f"<w, {self.base.Y.leaves[k].name}>"

    def _wrt(self, tangent: Tangent) -> str:
        if tangent.coordinate is not None:
            return self.problem.X.entry(tangent.coordinate)
        return f"{self.problem.X.leaves[tangent.leaf].name} along v"

    def _forward_against_reverse(
        self, found: Column, block: slice, rows: Vector, pushed: Vector
    ) -> None:
        """`<w, J v> = <J* w, v>`: no differences, exact to rounding."""
        side = self._reverse_side(
            found, block, rows, FLOOR * self.base.Y.largest(pushed), np.zeros_like(pushed)
        )
        with np.errstate(all="ignore"):
            one, two = self.probes.contract(pushed), side.automatic
            length = norm(np.where(np.isfinite(two), two, 0.0))
            size = np.maximum(side.size, length if self.probes.full else np.abs(two))
            # what cancels to rounding keeps the rounding of what it is computed through
            rounding = 64 * self.tolerance.eps * side.secant
            bound = self.tolerance.identity * np.maximum(size, np.abs(one)) + rounding
            apart = ~((np.abs(one - two) <= bound) | ~np.isfinite(one) | ~np.isfinite(two))
        tally = self.tallies.setdefault("identity", Tally("identity"))
        tally.compared += int(one.size)
        tally.failed += int(np.count_nonzero(apart))
        for k in np.flatnonzero(apart)[: Tally.KEPT]:
            entry = Entry(
                f"F against R{self.problem.tail}",
                self._of("rows", int(k)),
                self._wrt(found.tangent),
                float(one[k]),
                float(two[k]),
                0.0,
                float(bound[k]),
                "reverse mode",
            )
            tally.keep(tally.wrong, entry)


@dataclass(frozen=True)
class Failure:
    """A projected comparison that failed, with what is needed to search for the entry."""

    mode: str
    side: str
    tangent: Tangent
    row: int
    entry: Entry

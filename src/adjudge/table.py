"""The table `T[i][j] = <w_i, J v_j>`, filled twice and compared column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adjudge.automatic import Forward, Reverse
from adjudge.compare import FLOOR, Comparison, Entry, Scales, Tally, Tolerance, along
from adjudge.differences import norm
from adjudge.noise import CARRIED
from adjudge.numeric import Column, column
from adjudge.observed import Base
from adjudge.probes import Probes, Tangent
from adjudge.problem import Problem
from adjudge.settle import Settling, Side, total, worst_of
from adjudge.spaces import Space, Vector

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
            for tangent in self.probes.tangents(self.problem.origin, block, self._along(rows)):
                self._column(tangent, block, rows)

    def _blocks(self) -> Iterator[tuple[slice, Vector | None]]:
        if self.reverse is None:
            yield slice(0, self.problem.X.size), None
            return
        yield from self.reverse.blocks(
            self.base, self.probes.cotangents(), self.probes.rows, self.known
        )

    def _along(self, rows: Vector | None) -> Vector | None:
        """The gradient that random tangents lean towards: of all projected outputs together."""
        if rows is None or self.probes.full:
            return None
        with np.errstate(all="ignore"):
            return rows[0] if rows.shape[0] == 1 else np.sum(rows, axis=0)

    def _column(self, tangent: Tangent, block: slice, rows: Vector | None) -> None:
        found = column(self.problem, self.base, tangent, self.eps)
        pushed = None
        if self.forward is not None:
            pushed = self.forward.column(self.base, found.vector, tangent.leaf)[1]
            self.pushed.setdefault(tangent.leaf, (found.vector, pushed))
        sides = list(self._sides(found, block, rows, pushed))
        settled = self.eps is not None or all(c.settled for _, c, _ in sides)
        disagrees = not settled and any(bool(np.any(self._doubtful(c))) for _, c, _ in sides)
        doubt = (disagrees and self.confirmed < CONFIRMED) or (
            not settled and total(sides, "undecided") and self.open < CONFIRMED
        )
        if doubt:
            judged = partial(self._judged, block=block, rows=rows, pushed=pushed)
            settling = Settling(self.problem, self.base, self.probes, judged)
            found, sides, dtype = settling.settle(
                found, sides, disagrees=disagrees, carries=self.carries is not None
            )
            if dtype is not None:
                self._carry(dtype)
                self._column(tangent, block, rows)
                return
            self.confirmed += bool(total(sides, "fails"))
            self.open += bool(total(sides, "undecided"))
        for letter, comparison, side in sides:
            self._record(self.tally(letter), comparison, side, found)
            if side == "rows" and rows is not None:
                self._weigh(self.tally(letter), comparison, found, block, rows)
        if pushed is not None and rows is not None:
            self._forward_against_reverse(found, block, rows, pushed)

    def _weigh(
        self, tally: Tally, comparison: Comparison, found: Column, block: slice, rows: Vector
    ) -> None:
        """How much of the gradient has a part in the comparison that an error would show in."""
        if not self.tolerance.automatic:
            return
        if found.tangent.coordinate is not None:
            tally.weigh(comparison.automatic, comparison.allowed)
            return
        part = self.problem.X.slices[found.tangent.leaf]
        v = found.vector[part]
        for row, bound in zip(rows, comparison.unsuspicious, strict=True):
            tally.weigh(row[part.start - block.start : part.stop - block.start] * v, bound)

    def _judged(
        self, found: Column, block: slice, rows: Vector | None, pushed: Vector | None
    ) -> list[Side]:
        return list(self._sides(found, block, rows, pushed, final=True))

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
        if pushed is not None:
            size = self._floor(value, final=final)
            measure = partial(self._scales, found)
            yield (
                "F",
                Comparison(
                    pushed, value, error, size, estimate.moved[:count], self.tolerance, measure
                ),
                "each",
            )
        if rows is not None:
            yield "R", self._reverse_side(found, block, rows, final=final), "rows"
        if self.problem.tail and estimate.value.size > count:
            side = self._observed_side(found, count)
            if side is not None:
                yield "", side, "first"

    def _floor(self, value: Vector, *, final: bool) -> Vector:
        """The size below which an entry is compared on the scale of its neighbours."""
        if final:
            return np.zeros_like(value)
        return FLOOR * _leaf_sizes(value, self.base.Y)

    def _scales(self, found: Column) -> Scales:
        """Of every output coordinate."""
        count = self.base.Y.size
        return Scales(
            self._secant(found, slice(0, count)),
            self._quantum(found, self.base.Y, self.base.values[:count]),
            _leaf_sizes(found.estimate.value[:count], self.base.Y),
            1.0 if self.probes.full else float(np.linalg.norm(found.vector)),
        )

    def _reverse_side(
        self, found: Column, block: slice, rows: Vector, *, final: bool = False
    ) -> Comparison:
        probes, count = self.probes, self.base.Y.size
        estimate = found.estimate
        value, moved = estimate.value[:count], estimate.moved[:count]
        if found.tangent.coordinate is not None:
            automatic = rows[:, found.tangent.coordinate - block.start]
            size = self._floor(value, final=final)
        else:
            part = self.problem.X.slices[found.tangent.leaf]
            v = found.vector[part]
            its = rows[:, part.start - block.start : part.stop - block.start]
            with np.errstate(all="ignore"):
                automatic = its @ v
                size = norm(its * v)
        return Comparison(
            automatic,
            probes.contract(value),
            probes.contract_error(estimate.error[:count]),
            size,
            moved if probes.full else np.array([moved[p].any() for p in self.base.Y.slices]),
            self.tolerance,
            partial(self._row_scales, found, block, rows, size),
            found.tangent.coordinate is None,
        )

    def _row_scales(self, found: Column, block: slice, rows: Vector, size: Vector) -> Scales:
        """Of every row of reverse mode; `size`: of the projections, where they are."""
        probes, each = self.probes, self._scales(found)
        if probes.full:
            return replace(each, block=self._block_size(found.tangent.leaf, block, rows))
        lengths = (float(np.linalg.norm(probes.cotangent[p])) for p in self.base.Y.slices)
        return Scales(
            probes.contract_error(each.secant),
            probes.contract_error(each.quantum),
            size,
            each.weight * max(lengths, default=1.0),
        )

    def _observed_side(self, found: Column, count: int) -> Comparison | None:
        """The first derivative, from the same evaluations: `<w, J v>` against `<J* w, v>`."""
        problem = self.problem
        if found.tangent.leaf >= problem.base_inputs or problem.weights is None:
            return None
        estimate, w = found.estimate, problem.weights
        g = self.base.values[:count]
        v = found.vector[:count]
        with np.errstate(all="ignore"):
            return Comparison(
                np.array([g @ v]),
                np.array([w @ estimate.value[count:]]),
                np.array([norm(w * estimate.error[count:])]),
                np.array([norm(g * v)]),
                np.array([bool(estimate.moved[count:].any())]),
                self.tolerance,
                partial(self._observed_scales, found, count, w, float(norm(g * v))),
                found.tangent.coordinate is None,
            )

    def _observed_scales(self, found: Column, count: int, w: Vector, size: float) -> Scales:
        observed = Space(self.base.whole.leaves[len(self.base.Y.leaves) :])
        quantum = self._quantum(found, observed, self.base.values[count:])
        with np.errstate(all="ignore"):
            return Scales(
                np.array([norm(w * self._secant(found, slice(count, None)))]),
                np.array([norm(w * quantum)]),
                np.array([size]),
                float(np.linalg.norm(w) * np.linalg.norm(found.vector[:count])),
            )

    def _secant(self, found: Column, part: slice) -> Vector:
        with np.errstate(all="ignore"):
            modulus = self.base.whole.modulus(self.base.values)
            return np.asarray(modulus[part] / found.tangent.length)

    def _quantum(self, found: Column, space: Space, values: Vector) -> Vector:
        """A unit of rounding of the largest entry of each leaf, per step of this column.

        An entry may be computed through values of the size of its neighbours (1 - erfc(x), say):
        then its own rounding says too little.
        """
        if found.step == 0:
            return np.zeros_like(values)
        return self.tolerance.eps * _leaf_sizes(values, space) / found.step

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
                    (_largest(rows[k, columns]) for k in range(output.start, output.stop)),
                    default=0.0,
                )
            known[leaf] = size
        return known[leaf]

    # -- keeping what disagrees

    def _record(self, tally: Tally, comparison: Comparison, side: str, found: Column) -> None:
        if comparison.settled:
            tally.compared += int(comparison.automatic.size)
            tally.nonzero += int(comparison.automatic.size)
            tally.resolution = max(tally.resolution, comparison.resolution)
            return
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
        side = self._reverse_side(found, block, rows, final=True)
        with np.errstate(all="ignore"):
            one, two = self.probes.contract(pushed), side.automatic
            length = norm(np.where(np.isfinite(two), two, 0.0))
            size = np.maximum(side.size, length if self.probes.full else np.abs(two))
            # what cancels to rounding keeps the rounding of what it is computed through
            rounding = 64 * self.tolerance.eps * side.scales.secant
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


def _largest(row: Vector) -> float:
    """The largest finite magnitude; row by row, so that no copy of the table is made."""
    return float(np.max(np.abs(row), initial=0.0, where=np.isfinite(row)))


def _leaf_sizes(values: Vector, space: Space) -> Vector:
    """Every coordinate's leaf's largest finite magnitude."""
    size = np.zeros_like(values)
    for part in space.slices:
        size[part] = _largest(values[part])
    return size

"""This module makes the comparisons of one column: what each mode says of it, against the
estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BEND_UNITS,
    CANCELLATION_UNITS,
    ENDLESS_ENTRIES,
    ENDLESS_EXPONENTS,
    ENTRY_FLOOR,
    MEASURED_BARS,
    ROUNDING_UNITS,
    SHARED_SIGNIFICANT,
    SIGNIFICANT_PART,
    SUMMED_OUTPUTS,
    UNASKED_EXACT_WORK,
    USUAL_CONSTANT,
    USUAL_OUTPUTS,
)
from adjudge.errors import attempt
from adjudge.estimate import (
    ByReference,
    Column,
    Estimator,
    Sample,
    Slopes,
    bend_residuals,
    by_replay,
    enclosure_of,
    endless,
    hull,
    of_projections,
)
from adjudge.findings import Enclosure, Scheme
from adjudge.floats import Vector, norm
from adjudge.jacobian.comparison import Comparison, Scales, Tolerance
from adjudge.problem import (
    Base,
    Probes,
    Problem,
    Purpose,
    Reverse,
    Space,
    Tangent,
    evaluate,
    largest,
)

MOST_KEPT = 2**16
"""Reverse mode at a point keeps what f computed there. It is kept for inputs of up to this many
coordinates."""
RowKind = Literal["each", "rows", "first"]
"""The kinds of entries of a comparison: "each" has one for each coordinate of the outputs (forward
mode), "rows" one for each cotangent (reverse mode), and "first" is the first derivative alone,
which the evaluations of a second one show as well."""


class ModeComparison(NamedTuple):
    """The comparison of one mode's column with the estimate."""

    letter: str
    """The mode, R or F; empty for the first derivative beside the second."""
    comparison: Comparison
    kind: RowKind

    def but(self, **changes: Any) -> ModeComparison:
        """Returns the same with these fields of the comparison changed."""
        return self._replace(comparison=replace(self.comparison, **changes))

    def without_values(self, entries: NDArray[np.bool_]) -> ModeComparison:
        """Returns the same with `Comparison.without_values`."""
        return self._replace(comparison=self.comparison.without_values(entries))

    def opened(self, entries: NDArray[np.bool_]) -> ModeComparison:
        """Returns the comparison with these entries left open as well."""
        before = self.comparison.left_open
        return self.but(left_open=entries if before is None else entries | before)


@dataclass(frozen=True)
class ColumnBlock:
    """Consecutive columns of the table, with their rows by reverse mode where there are such."""

    columns: slice
    rows: Vector | None = None

    def of_leaf(self, part: slice) -> tuple[slice, Vector]:
        """Returns the coordinates of the leaf at `part` that lie in this block, and the rows
        there.
        """
        assert self.rows is not None  # reverse mode is compared only where there are rows
        first, start = max(part.start, self.columns.start), self.columns.start
        last = max(first, min(part.stop, self.columns.stop))
        return slice(first, last), self.rows[:, first - start : last - start]


@dataclass
class Known:
    """What was found out about f while the columns of one table were compared, which saves work at
    the columns after these.
    """

    contradicted: bool = False
    """Whether an exact replay said as differences do that something is wrong."""
    wrong_rules: bool = False
    """Whether rules of the derivative are wrong in exact arithmetic too."""
    right_first: bool = False
    """Whether the first derivative beside a second one is right in exact arithmetic along all of
    a column. Of entries that are compared once more by themselves, since the second one is small
    there, it is not compared again: where f has no digits differences call a right one wrong."""
    long_replays: int = 0
    """How many columns that were open f was replayed for although that takes seconds."""
    moved: dict[int, Reverse] = field(default_factory=dict)
    """Reverse mode of the functions that are moved by rounding, by the identity of these."""
    endless: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """The outputs whose slopes along a coordinate of x grow without end, where that was asked."""


@dataclass
class Columns:
    """Makes comparisons of the columns of one table."""

    of_one_entry: ClassVar[bool] = False
    """Whether it makes those of one entry alone."""
    estimator: Estimator
    probes: Probes
    tolerance: Tolerance
    problem: Problem = field(init=False)
    base: Base = field(init=False)
    additive: dict[tuple[int, ...], NDArray[np.bool_]] = field(default_factory=dict)
    """The outputs whose slopes were seen to add up along a tangent that moves all of these
    leaves."""
    replay: dict[tuple[float, int], ByReference | None] = field(default_factory=dict)
    """The estimators that replay f, by the roundings that they allow and the work that they may
    take, or that there is none, once that was asked for."""
    replay_work: int = UNASKED_EXACT_WORK
    """How many operations on numbers a replay of f may take."""
    known: Known = field(default_factory=Known)
    _blocks_of: tuple[object, dict[int, Vector]] = field(default_factory=lambda: (None, {}))

    def __post_init__(self) -> None:
        """Names what is asked for most."""
        self.problem, self.base = self.estimator.problem, self.estimator.base

    def over(self, base: Base, tolerance: Tolerance | None = None) -> Columns:
        """Returns the same with other magnitudes of the outputs, and another tolerance if given."""
        columns = Columns(self.estimator.over(base), self.probes, tolerance or self.tolerance)
        columns.share(self)
        return columns

    def share(self, other: Columns) -> None:
        """Takes over what was found out about f where other outputs, or other entries, of the same
        table were compared.
        """
        self.known = other.known
        if self.base.chosen is None:
            self.replay = other.replay

    def by_replay(self, rounding: float = 0.0) -> ByReference | None:
        """Returns the estimator that replays f exactly, or with error bars of what `rounding`, the
        spacing of a dtype at 1, can do; `None` where there is none.
        """
        key = rounding, self.replay_work
        if key in self.replay:
            return self.replay[key]
        if rounding:
            found = self.by_replay()
            found = found and found.rounded(rounding, ROUNDING_UNITS)
            found = found and replace(found, replayed={})
        else:
            found = by_replay(self.problem, self.base.of or self.base, self.replay_work)
            found = found and replace(found, base=self.base)
        self.replay[key] = found
        return found

    def replayed(self, tangent: Tangent, rounding: float = 0.0) -> Column | None:
        """Returns the estimate by an exact replay of f; `None` where there is none."""
        estimator = self.by_replay(rounding)
        return None if estimator is None else attempt(partial(estimator.along, tangent))

    @property
    def exact(self) -> ByReference | None:
        """What replays f exactly, asked for or not; `None` where nothing does."""
        given = self.estimator if self.tolerance.exact else None
        return given if isinstance(given, ByReference) else self.by_replay()

    @property
    def compares(self) -> bool:
        """Whether an exact replay of f compares or rounds numbers; see `ByReference.compares`."""
        estimator = self.by_replay()
        return estimator is not None and estimator.compares

    def comparisons(
        self,
        found: Column,
        block: ColumnBlock,
        pushed: Vector | None,
        *,
        final: bool = False,
    ) -> Iterator[ModeComparison]:
        """Yields the comparisons of this column by every mode that has something to say.

        With `final` a ladder was taken, so that every entry is compared on its own scale.
        """
        count, final = self.base.Y.size, final or found.from_reference
        estimate = found.estimate
        if pushed is not None:
            value, error, moved = self._kept(found)
            value, error = self._known(found, pushed, value, error)
            lost = ~np.isfinite(pushed) & np.isfinite(error)
            if np.any(lost):  # zero times infinity is NaN along every tangent
                nearest = np.argsort(np.abs(self.problem.origin), kind="stable")
                outputs = np.any(self._endless(nearest[:ENDLESS_ENTRIES]), axis=0)
                error = np.where(lost & outputs, np.inf, error)
            size = self._floor(value, final=final)
            make_scales = partial(self._scales, found)
            yield ModeComparison(
                "F",
                Comparison(
                    pushed,
                    value,
                    error,
                    size,
                    moved,
                    self.tolerance,
                    make_scales,
                    from_reference=found.from_reference,
                ),
                "each",
            )
        if block.rows is not None:
            yield ModeComparison("R", self.reverse(found, block, final=final), "rows")
        if self.problem.modes_taken and estimate.value.size > count:
            observed = self._observed(found, count)
            if observed is not None:
                yield ModeComparison("", observed, "first")

    def compared_once(self, compared: Iterator[ModeComparison]) -> list[ModeComparison]:
        """Returns the comparisons of entries that are compared once more by themselves, without
        the first derivative where that is known to be right.
        """
        return [one for one in compared if not (self.known.right_first and one.kind == "first")]

    def slopes(self, found: Column, kind: RowKind) -> Slopes | None:
        """Returns the slopes to both sides of x of what is compared; `None` without any kink."""
        count, probes, slopes = self.base.Y.size, self.probes, found.estimate.slopes
        if slopes is None:
            return None
        if kind == "first":
            assert self.problem.cotangent is not None
            return slopes.part(slice(count, None)).projected(self.problem.cotangent)
        slopes = slopes.part(slice(0, count))
        if (out := self.base.uncompared) is not None:
            slopes = slopes.without(out[:count])
        if kind == "rows" and not probes.full:
            return slopes.projected(probes.cotangent, self.base.Y.slices)
        return slopes

    def bends(self, found: Column, kind: RowKind) -> Vector | None:
        """Returns by how much the bends of every row over the steps that were chosen, and shorter
        ones, are no smooth ones (see `bend_residuals`); `None` where there are no ladders.
        """
        base, count, steps = self.base, self.base.Y.size, found.estimate.steps
        if steps is None or found.one_sided or kind == "first":
            return None

        longest = float(np.max(steps[:count], initial=0.0))
        rounding = BEND_UNITS * base.coarsest_eps * base.magnitude(base.values)[:count]
        if found.noise is not None:
            rounding = rounding + MEASURED_BARS * found.noise[:count]
        rounding = self.row_errors(kind, self._left_in(rounding))
        residuals = np.zeros_like(rounding)
        for samples in found.ladders:
            sizes = np.abs([sample.step for sample in samples])
            bends = [self._left_in(sample.bend(base.values)) for sample in samples]
            rows = np.array([self.row_values(kind, bend) for bend in bends])
            residuals = np.fmax(residuals, bend_residuals(rows, sizes, rounding, longest))
        return residuals

    def outputs(self, kind: RowKind, k: int) -> slice:
        """Returns the outputs that row `k` of a comparison of that kind is made of."""
        if kind == "first":
            return slice(self.base.Y.size, None)
        whole = self.probes.full or kind == "each"
        return slice(k, k + 1) if whole else self.base.Y.slices[k]

    def within(self, kind: RowKind, outputs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks the rows all of whose outputs are marked."""
        if self.probes.full or kind == "each":
            return outputs
        return np.array([bool(outputs[part].all()) for part in self.base.Y.slices])

    def touching(self, kind: RowKind, outputs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks the rows any of whose outputs is marked, of those that are not left out."""
        if self.probes.full or kind == "each":
            return outputs
        left_out = self.base.uncompared
        if left_out is not None:
            outputs = outputs & ~left_out[: outputs.size]
        return np.array([bool(outputs[part].any()) for part in self.base.Y.slices])

    def pushed(self, image: Vector, rows: Sequence[int]) -> Vector:
        """Returns what forward mode gives of all outputs for `rows` of a comparison of its own."""
        return image[np.asarray(rows, np.intp)]

    def cotangent(self, k: int) -> Vector:
        """Returns the cotangent of row `k` of reverse mode."""
        return self.probes.row(k)

    def reverse_at(self, point: Vector, problem: Problem) -> Reverse:
        """Returns reverse mode at another point, or of the function that is moved by rounding,
        which all columns ask at x.
        """
        if problem is self.problem or point.size > MOST_KEPT:
            return Reverse(problem, point)
        moved = self.known.moved
        if id(problem) not in moved:
            moved[id(problem)] = Reverse(problem, point)
        return moved[id(problem)]

    def row_values(self, kind: RowKind, value: Vector) -> Vector:
        """Returns the values of rows from those of the outputs."""
        return value if kind == "each" else self.probes.contract(value)

    def row_errors(self, kind: RowKind, error: Vector) -> Vector:
        """Returns how far rows may be off, from how far the outputs may be."""
        return error if kind == "each" else self.probes.contract_error(error)

    def _floor(self, value: Vector, *, final: bool) -> Vector:
        """Returns the size below which an entry is compared on the scale of its neighbours; see
        `ENTRY_FLOOR`.
        """
        if final or self.base.alone:
            return np.zeros_like(value)
        return ENTRY_FLOOR * self.base.Y.largest(value)

    def _scales(self, found: Column) -> Scales:
        """Returns the scales of every output coordinate."""
        base, count = self.base, self.base.Y.size
        kept = base.values if base.hiding is None else np.where(base.hiding, 0.0, base.values)
        return Scales(
            self._secant(found, slice(0, count)),
            self._quantum(found, base.Y, kept[:count]),
            base.Y.largest(self._left_in(found.estimate.value)),
            1.0 if self.probes.full else float(norm(found.vector)),
        )

    def reverse(self, found: Column, block: ColumnBlock, *, final: bool = False) -> Comparison:
        """Reverse mode against the estimate: one entry for each cotangent that was pulled back."""
        probes = self.probes
        value, error, moved = self._kept(found)
        if found.tangent.coordinate is not None:
            assert block.rows is not None  # reverse mode is compared only where there are rows
            automatic = block.rows[:, found.tangent.coordinate - block.columns.start]
            size = self._floor(value, final=final)
        else:
            kept, its = block.of_leaf(found.tangent.part(self.problem.X))
            if not self.problem.finite:  # no step moves an infinity, whatever its gradient is
                its = np.where(np.isfinite(self.problem.origin[kept]), its, 0.0)
            if not np.all(np.isfinite(its)):  # and of what does not move
                its = np.where(found.vector[kept] != 0, its, 0.0)
            automatic = its @ found.vector[kept]
            size = norm(its * found.vector[kept])
        if not probes.full:
            moved = np.array([moved[p].any() for p in self.base.Y.slices])
        # The budget may have allowed fewer rows than there are cotangents.
        pulled = automatic.size
        reference, bar = probes.contract(value)[:pulled], probes.contract_error(error)[:pulled]
        reference, bar = self._known(found, automatic, reference, bar)
        if value.size >= USUAL_OUTPUTS and found.ladders and not probes.full:
            reference, bar = self._with_sums(found, automatic, reference, bar)
        lost = ~np.isfinite(automatic) & np.isfinite(bar)
        if np.any(lost):
            automatic, bar, size = self._without_endless(found, block, lost, automatic, bar, size)
        return Comparison(
            automatic,
            reference,
            bar,
            size[:pulled],
            moved[:pulled],
            self.tolerance,
            partial(self._row_scales, found, block, size),
            not probes.full,
            significant_part=_significant_part(len(found.tangent.leaves)),
            from_reference=found.from_reference,
        )

    def _without_endless(
        self,
        found: Column,
        block: ColumnBlock,
        lost: NDArray[np.bool_],
        automatic: Vector,
        bar: Vector,
        size: Vector,
    ) -> tuple[Vector, Vector, Vector]:
        """Returns the rows that are `lost` to NaN or infinity without the entries of x at which f
        has a vertical tangent, their error bars, and their sizes. The error bar is infinite where
        the outputs that have it belong to the row, and where there is no other entry.

        `sqrt` has an infinite derivative at 0, and zero times infinity is NaN in the gradients of
        all outputs that do not depend on this entry. Without this they fail.
        """
        if (j := found.tangent.coordinate) is not None:
            here = bool(self._endless(np.array([j]))[0].any())
            return automatic, np.where(lost & here, np.inf, bar), size
        kept, its = block.of_leaf(found.tangent.part(self.problem.X))
        v, its = found.vector[kept], its[: lost.size]
        entries = np.flatnonzero(np.any(~np.isfinite(its[lost]), axis=0) & (v != 0))
        if not entries.size:  # a sum that overflows
            return automatic, bar, size
        outputs = self._endless(entries + (kept.start or 0))
        left_in = np.ones(v.size, bool)
        left_in[entries] = ~np.any(outputs, axis=1)
        terms = np.where(left_in & (v != 0), its, 0.0) * v
        own = lost & self.touching("rows", np.any(outputs, axis=0))[: lost.size]
        size = size.copy()
        size[: lost.size] = np.where(lost & ~own, norm(terms), size[: lost.size])
        rest = np.where(lost & ~own, np.sum(terms, axis=1), automatic)
        return rest, np.where(own, np.inf, bar), size

    def _endless(self, entries: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Marks the outputs whose slopes along these coordinates of x grow without end, as at a
        vertical tangent or a jump, a row for each. Where there are many coordinates, those after
        the first ones are taken to go as these do, if all of them have such outputs. Costs up to
        six evaluations for each of the first ones.
        """
        first, known = entries[:ENDLESS_ENTRIES].tolist(), self.known.endless
        for j in first:
            if j not in known:
                known[j] = self._endless_along(j)
        asked = np.array([known[j] for j in first])
        rest = np.any(asked, axis=0) & np.all(np.any(asked, axis=1))
        return np.array([known.get(j, rest) for j in entries.tolist()])

    def _endless_along(self, j: int) -> NDArray[np.bool_]:
        problem, base = self.problem, self.base
        found = np.zeros(base.Y.size, bool)
        unit = base.coarsest_eps * base.magnitude(base.values)[: found.size]
        for side in (1.0, -1.0):
            moves, steps = [], []
            for exponent in ENDLESS_EXPONENTS:
                x = problem.origin.copy()
                x[j] += side * problem.length_scales[j] * 2.0**-exponent
                x = problem.clipped(x)
                value = attempt(partial(evaluate, problem, base, x, Purpose.NEAR_X))
                if value is None or x[j] == problem.origin[j]:
                    break
                moves.append((value - base.values)[: found.size])
                steps.append(abs(x[j] - problem.origin[j]))
            if len(moves) == len(ENDLESS_EXPONENTS):
                found |= endless(np.array(moves), np.array(steps), unit)
        return found

    def _with_sums(
        self, found: Column, automatic: Vector, reference: Vector, bar: Vector
    ) -> tuple[Vector, Vector]:
        """Returns projections with what each of them is as one function; see `of_sums`.

        Where that is another number than the sum of the outputs, and the automatic value disagrees,
        what lies between the two counts, with their bars. Else its bar counts where that is
        narrower: noise widens the bars of some of many outputs by far, and without this an error in
        one leaf of many stays within their sum. Where the outputs leave no finite bar and the
        automatic value disagrees with the projection as one function, that takes their place:
        without this one output that seems to diverge leaves a wrong projection of all of them open.
        What agrees stays open, since the output may have no derivative.
        """
        w, out = self.probes.cotangent, self.base.uncompared
        agrees = np.abs(automatic - reference) <= bar
        if w.size < SUMMED_OUTPUTS and agrees.all():
            return reference, bar
        w = w if out is None else np.where(out[: w.size], 0.0, w)
        sums = of_projections(self.base, found, w, self.base.Y.slices[: bar.size])
        if sums is None:
            return reference, bar
        apart = np.abs(automatic - sums.value) > sums.error
        other = np.abs(sums.value - reference) > bar + sums.error
        known = np.isfinite(bar) & np.isfinite(sums.error)
        instead = np.where(known, ~other & (sums.error < bar), apart & np.isinf(bar))
        instead &= w.size >= SUMMED_OUTPUTS
        both = known & other & ~agrees
        bars = np.where(both, [bar, sums.error], 0.0)  # infinite ones have no middle
        middle, half = hull([reference, sums.value], bars)
        reference = np.where(both, middle, np.where(instead, sums.value, reference))
        bar = np.where(both, half, np.where(instead, sums.error, bar))
        return reference, bar

    def _kept(self, found: Column) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Returns an estimate with its error bars, and where f moved; with zeros at the outputs
        that are not compared.
        """
        base, count = self.base, self.base.Y.size
        value, error, moved = found.estimate.vectors()
        if base.uncompared is None:
            return value[:count], error[:count], moved[:count]
        moved = moved[:count] if base.hiding is None else moved[:count] & ~base.hiding[:count]
        value = self._left_in(value)  # one after the other: they may be large
        error = self._left_in(error)
        return value, error, moved

    def _left_in(self, vector: Vector) -> Vector:
        """Returns what belongs to the outputs, with zeros where they are not compared."""
        count, out = self.base.Y.size, self.base.uncompared
        return vector[:count] if out is None else np.where(out[:count], 0.0, vector[:count])

    def _known(
        self, found: Column, automatic: Vector, value: Vector, error: Vector
    ) -> tuple[Vector, Vector]:
        """Returns an estimate with NaN beside automatic values that are not finite, where f or x is
        not finite either.

        A derivative need not be finite there: `exp` at 1000 gives zero times infinity. Without this
        a NaN beside an output that is left out, or at an x of -inf, would fail since f does not
        move.
        """
        nowhere = found.estimate.method.scheme is Scheme.NOT_FINITE
        if self.base.raw is None and not nowhere:
            return value, error
        known = np.isfinite(automatic)
        return np.where(known, value, np.nan), np.where(known, error, np.inf)

    def _row_scales(self, found: Column, block: ColumnBlock, size: Vector) -> Scales:
        """Returns the scales of every row of reverse mode; `size` is that of the projections, where
        rows are such.
        """
        assert block.rows is not None  # reverse mode is compared only where there are rows
        probes, each, pulled = self.probes, self._scales(found), block.rows.shape[0]
        if probes.full:
            block_size = self._block_size(found.tangent.leaves[0], block)[:pulled]
            return Scales(each.secant[:pulled], each.quantum[:pulled], block_size)
        lengths = (float(np.linalg.norm(probes.cotangent[p])) for p in self.base.Y.slices)
        # An output that stands still has rounding, but moves nothing, so a derivative does not
        # drown in it: a mask of -1e30 among the outputs would otherwise hide all others.
        secant = np.where(self.standing_still(found), 0.0, each.secant)
        return Scales(
            probes.contract_error(secant)[:pulled],
            probes.contract_error(each.quantum)[:pulled],
            size,
            each.weight * max(lengths, default=1.0),
        )

    def standing_still(self, found: Column) -> NDArray[np.bool_]:
        """Returns the outputs that the column did not move, beside others of their leaf that it
        did.
        """
        moved = found.estimate.moved[: self.base.Y.size]
        still = ~moved
        for p in self.base.Y.slices:
            still[p] &= np.any(moved[p])
        return still

    def usual_rounding(self, found: Column) -> float:
        """Returns the derivative that may be left of terms that cancel, where f computes with
        numbers of a `USUAL_CONSTANT`. What f is does not show these where all of it cancels.
        """
        eps = self.base.coarsest_eps  # of sixteen bits a few units are a large part already
        unit = min(CANCELLATION_UNITS, eps**-0.5) * eps
        return float(unit * USUAL_CONSTANT / found.tangent.length)

    def rounding_of_still(self, found: Column, k: int) -> float:
        """Returns the derivative that row `k` of reverse mode would have if the outputs that stand
        still varied by their own values over the scale of x; zero where it has no part of them.

        The derivative of a saturated output is zero to rounding of its terms, and not to the bit.
        """
        w = np.where(self.standing_still(found), self.probes.row(k), 0.0)
        if not np.any(w) or not np.any(self.base.reverse.row(self.base, w) * found.vector):
            return 0.0
        return float(np.abs(w) @ self._scales(found).secant)

    def _observed(self, found: Column, count: int) -> Comparison | None:
        """Returns the first derivative from the evaluations of a second order: `<w, J v>` against
        `<J* w, v>`.
        """
        problem = self.problem
        if found.tangent.leaves[0] >= problem.primal_inputs or problem.cotangent is None:
            return None
        estimate, w = found.estimate, problem.cotangent
        g = self.base.values[:count]
        v = found.vector[:count]
        return Comparison(
            np.array([g @ v]),
            np.array([w @ estimate.value[count:]]),
            np.array([norm(w * estimate.error[count:])]),
            np.array([norm(g * v)]),
            np.array([bool(estimate.moved[count:].any())]),
            self.tolerance,
            partial(self._observed_scales, found, count, w, float(norm(g * v))),
            found.tangent.coordinate is None,
            from_reference=found.from_reference,
        )

    def _observed_scales(self, found: Column, count: int, w: Vector, size: float) -> Scales:
        """Returns the scales of the first derivative's only entry."""
        observed = Space(self.base.whole.leaves[len(self.base.Y.leaves) :])
        quantum = self._quantum(found, observed, self.base.values[count:])
        return Scales(
            np.array([norm(w * self._secant(found, slice(count, None)))]),
            np.array([norm(w * quantum)]),
            np.array([size]),
            float(np.linalg.norm(w) * np.linalg.norm(found.vector[:count])),
        )

    def _secant(self, found: Column, part: slice) -> Vector:
        """Returns the derivative that each output would have if it varied by its own value over the
        scale of x.
        """
        modulus = self.base.whole.modulus(self.base.values)
        if (modulus == 0).any() and found.estimate.size is not None:
            modulus = np.where(modulus == 0, found.estimate.size, modulus)
        return np.asarray(modulus[part] / found.tangent.length)

    def _quantum(self, found: Column, space: Space, values: Vector) -> Vector:
        """Returns the derivative that a unit of rounding of the largest entry of its leaf makes of
        each output.

        An entry may be computed through values of the size of its neighbours (`1 - erfc(x)`, say),
        and then its own rounding says too little.
        """
        if found.step == 0:
            return np.zeros_like(values)
        eps = self.tolerance.eps
        return space.by_leaf([eps * largest(values[part]) / found.step for part in space.slices])

    def _block_size(self, leaf: int, block: ColumnBlock) -> Vector:
        """Returns the largest entry of reverse mode between each output leaf and this input
        leaf.
        """
        if self._blocks_of[0] is not block.rows:
            self._blocks_of = (block.rows, {})
        known = self._blocks_of[1]
        if leaf not in known:
            part = self.problem.X.slices[leaf]
            its = block.of_leaf(part)[1]
            size = np.zeros(self.base.Y.size)
            for output in self.base.Y.slices:
                size[output] = max(
                    (largest(row) for row in its[output]),
                    default=0.0,
                )
            known[leaf] = size
        return known[leaf]


def _significant_part(leaves: int) -> float:
    """Returns the part of `rtol` beyond which a deviation is significant along a tangent that so
    many leaves share. One wrong entry weighs less among theirs, and leaves may have been scaled.
    """
    if leaves == 1:
        return SIGNIFICANT_PART
    return SIGNIFICANT_PART * SHARED_SIGNIFICANT / float(np.sqrt(leaves))


def enclosed(columns: Columns, kind: RowKind, k: int, found: Column) -> Enclosure | None:
    """Returns the interval of the estimate of row `k`; `None` where f was not replayed exactly."""
    if found.estimate.balls is None:
        return None
    here, out = columns.outputs(kind, k), columns.base.uncompared
    balls = found.estimate.balls[here]
    weights = np.ones(balls.size)
    if kind == "first":
        assert columns.problem.cotangent is not None
        weights = columns.problem.cotangent
    elif kind == "rows" and not columns.probes.full:
        weights = columns.probes.cotangent[here]
    return enclosure_of(balls, weights if out is None else np.where(out[here], 0.0, weights))


def slopes_by_step(
    columns: Columns, kind: RowKind, k: int, found: Column
) -> tuple[tuple[float, float], ...]:
    """Returns the difference quotients of row `k` at the steps that were taken along the tangent of
    a column, as pairs `(step, slope)`, from the longest step.
    """
    samples: list[Sample] = []
    for ladder in found.ladders:
        samples += ladder
    if found.sample is not None and not samples:
        samples.append(found.sample)
    here, whole = columns.outputs(kind, k), kind == "each" or columns.probes.full
    weights = 1.0 if whole else columns.probes.cotangent[here]
    slopes = []
    for sample in samples:
        span = sample.step if sample.one_sided else 2 * sample.step
        ends = float(np.sum(weights * (sample.plus[here] - sample.minus[here])))
        slopes.append((abs(sample.step), ends / span))
    slopes.sort(reverse=True)
    return tuple(slopes)

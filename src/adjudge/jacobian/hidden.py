"""This module finds outputs that do not show in a column, and weighs them so that they do.

A cotangent adds up outputs of all magnitudes, and beside `1e10 x` an error of `sin x` lies within
the tolerance of the sum. How large the derivative of each output is along a tangent is known from
the differences, so the small ones are found without an evaluation. They are compared once more by
themselves, with the same evaluations and with a cotangent in which each weighs as much as the
others: one more pullback, whatever their magnitudes. All rules in here are ours.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import CHANCE_PART, HIDDEN_PART, LONGEST_STEP, MEAN_UNITS, ONSET_UNITS
from adjudge.errors import attempt
from adjudge.estimate import Column, sample_at
from adjudge.floats import Vector, chunks, lowest_bit, norm
from adjudge.jacobian.column import ColumnBlock, Columns, RowKind
from adjudge.jacobian.comparison import Comparison
from adjudge.jacobian.stages import Trial, unit_of_leaf
from adjudge.problem import DOUBLE


def hidden_outputs(trial: Trial) -> NDArray[np.bool_] | None:
    """Marks the outputs in which an error would not show although f shows their derivative, or
    that they have none; `None` where there are none.

    An output without a visible derivative counts with the size that its derivative would have if
    it varied by its own value over the scale of x. Among many outputs some are small along a
    random tangent by chance; they are left where they are.
    """
    columns, found, base = trial.columns, trial.column, trial.columns.base
    hidden: NDArray[np.bool_] | None = None
    for _, comparison, kind in trial.compared:
        # The budget may have allowed fewer rows than there are cotangents.
        if kind == "first" or comparison.automatic.size < columns.probes.rows:
            continue
        sizes, bound = parts_of_outputs(columns, comparison, found, kind)
        if not (HIDDEN_PART * sizes < bound).any():
            continue
        del sizes  # it may be large
        sizes = _natural(columns, found)
        if kind == "rows" and not columns.probes.full:
            sizes *= columns.probes.cotangent
            np.abs(sizes, out=sizes)
        small = (sizes > 0) & (HIDDEN_PART * sizes < bound)
        which = np.flatnonzero(small)
        by_output = kind == "each" or columns.probes.full
        automatic = comparison.automatic[which] if by_output else None
        small[which] = ~_residues(columns, found, which, automatic)
        # A small output has the bar of a usual one of its leaf for its value, and not by chance.
        # What is rounding of a larger one has rounding for a derivative.
        own, whole = np.abs(base.values[: sizes.size]), base.magnitude(base.values)[: sizes.size]
        quiet = (own > ONSET_UNITS * base.coarsest_eps * whole) & (own < HIDDEN_PART * whole)
        for part in base.Y.slices:
            by_chance = sizes[part] > _beyond_chance(sizes[part], small[part])
            if np.count_nonzero(quiet[part]) > CHANCE_PART * sizes[part].size:
                by_chance &= ~quiet[part]
            small[part] &= ~by_chance
            if small[part].any():  # where nothing is known of an output, it goes with them
                small[part] |= sizes[part] == 0
        hidden = small if hidden is None else hidden | small
    if hidden is None:
        return None
    if base.uncompared is not None:
        hidden &= ~base.uncompared[: hidden.size]
    return hidden if hidden.any() else None


def parts_of_outputs(
    columns: Columns, comparison: Comparison, found: Column, kind: RowKind
) -> tuple[Vector, Vector]:
    """Returns by how much each output takes part in its comparison, and by how much that may be
    off before it is looked into.
    """
    Y, probes = columns.base.Y, columns.probes
    if kind == "each" or probes.full:
        return np.abs(comparison.reference), comparison.allowed
    sizes = found.estimate.value[: Y.size] * probes.cotangent
    np.abs(sizes, out=sizes)
    bound = comparison.significance_bound
    return sizes, bound if bound.size == 1 else bound[Y.owner]


def _residues(
    columns: Columns, found: Column, which: NDArray[np.intp], automatic: Vector | None
) -> NDArray[np.bool_]:
    """Marks those of the outputs `which` that stand still or move by a few of their lowest bits,
    and of which the `automatic` derivative says no more than that they move by rounding of the
    largest output of their leaf where x moves by its scale. Of a projection that says nothing of
    single outputs their values must be such rounding.

    Where terms as large as that cancel, f and its derivative are left with different roundings of
    zero: of a coefficient that is zero the gradient of a Fourier transform has 1e-16, and compared
    by itself it would fail.
    """
    base, sample = columns.base, found.sample
    still, values = ~found.estimate.moved[which], np.abs(base.values[None, which])
    if sample is not None:
        values = np.array([base.values[which], sample.plus[which], sample.minus[which]])
        bit = np.min(lowest_bit(values), axis=0)
        still |= np.ptp(values, axis=0) <= ONSET_UNITS * np.where(np.isfinite(bit), bit, 0.0)
    if automatic is None:
        moves = np.max(np.abs(values), axis=0)
    else:
        moves = np.abs(automatic) * found.tangent.length
    rounding = base.coarsest_eps * base.whole.largest(base.values)[which]
    return np.asarray(still & (moves <= ONSET_UNITS * rounding))


def _natural(columns: Columns, found: Column) -> Vector:
    """Returns the size of the derivative of each output, or what it might have been."""
    values, sizes = columns.base.values, np.empty(columns.base.Y.size)
    for part in chunks(sizes.size):
        own = found.estimate.of(part)
        size, secant = np.abs(own.value), np.abs(values[part]) / found.tangent.length
        sizes[part] = np.where(size <= own.error, np.fmax(size, secant), size)
    return sizes


def _beyond_chance(sizes: Vector, small: NDArray[np.bool_]) -> float:
    """Returns the largest size up to which more of the outputs are `small` than chance makes.

    Of n outputs of one magnitude about k lie below `k / n` of it along a random tangent.
    """
    ordered = np.sort(sizes[small])
    if not ordered.size:
        return 0.0
    count = np.count_nonzero(sizes)
    usual = norm(sizes) / np.sqrt(count)
    fewer = ordered * count < CHANCE_PART * np.arange(1, ordered.size + 1) * usual
    return float(ordered[fewer][-1]) if fewer.any() else 0.0


def of_outputs(trial: Trial, outputs: NDArray[np.bool_]) -> Trial:
    """Returns the column with these outputs by themselves, which are not compared yet. It takes no
    evaluation where those behind its estimate were kept.
    """
    columns, found, block, pushed = trial.columns, trial.column, trial.block, trial.pushed
    base, probes, hiding = columns.base, columns.probes, np.ones(columns.base.whole.size, bool)
    hiding[: outputs.size] = ~outputs
    whole, Y = replace(base.whole, apart=True), replace(base.Y, apart=True)
    columns = columns.over(replace(base, whole=whole, Y=Y, hiding=hiding, alone=True))
    if not base.alone:
        found = columns.estimator.again(found)
    if pushed is not None:
        pushed = np.where(outputs, pushed, 0.0)
    own = replace(trial, columns=columns, column=found, pushed=pushed)
    rows = block.rows
    if rows is None or trial.reverse is None:
        return own
    if probes.full:
        k = found.tangent.coordinate
        assert k is not None  # tangents of several coordinates are for what does not hide
        start = k - block.columns.start
        kept = np.where(outputs[: len(rows), None], rows[:, start : start + 1], 0.0)
        return replace(own, block=ColumnBlock(slice(k, k + 1), kept))
    w = _equalised(columns, found, outputs)
    columns = replace(columns, probes=replace(probes, chosen=w))
    again = [trial.reverse.row(base, columns.probes.row(k)) for k in range(len(rows))]
    return replace(own, columns=columns, block=ColumnBlock(block.columns, np.array(again)))


def without_still(trial: Trial) -> Trial:
    """Returns a column of outputs by themselves that fails with its failures open, where what
    stands still about x is claimed to move by less than rounding of the largest output of its leaf.
    The others are to be compared again without it.

    `1 + erf(x)` is zero below -6 to either side of x, its derivative is 1e-16, and beside others
    that are as small it fails. A claim that is larger than that rounding is wrong.
    """
    columns, tangent = trial.columns, trial.column.tangent
    base, problem, count = columns.base, columns.problem, columns.base.Y.size
    if not (base.alone and trial.fails and base.hiding is not None) or trial.confirmed:
        return trial
    if tangent.coordinate is not None or trial.column.from_reference or base.coarsest_eps > DOUBLE:
        return trial
    h = min(LONGEST_STEP * tangent.length, problem.longest_step(tangent.vector))
    taken = attempt(partial(sample_at, problem, base, tangent, h))
    if taken is None:
        return trial
    values, sample = base.values[:count], taken[0]
    still = ~base.hiding[:count] & (sample.plus[:count] == values)
    still &= sample.minus[:count] == values
    if not still.any():
        return trial
    own = of_outputs(trial, still)
    unit = np.where(still, unit_of_leaf(columns), 0.0)
    for _, comparison, kind in own.comparisons(own.column):
        room = MEAN_UNITS * math.sqrt(np.count_nonzero(still)) * own.columns.row_errors(kind, unit)
        if np.any(np.abs(comparison.automatic) * h > room[: comparison.automatic.size]):
            return trial
    return replace(trial.with_failures_open(trial.decided_by), rounded=still)


def resolved(trial: Trial) -> NDArray[np.bool_] | None:
    """Marks those of some outputs by themselves whose derivative the differences show; `None` where
    there are none, or nothing else.

    Rounding inside of f may be larger than any guess, and a single output of that kind leaves the
    projection of all of them open. It has been measured once there was a ladder, or a longer step
    has shown it.
    """
    columns, estimate = trial.columns, trial.column.estimate
    base, count = columns.base, columns.base.Y.size
    own = np.ones(count, bool) if base.hiding is None else ~base.hiding[:count]
    wide = estimate.error[:count] > columns.tolerance.resolution * np.abs(estimate.value[:count])
    if trial.rounded is not None:
        wide |= trial.rounded
    seen = own & ~wide
    return seen if seen.any() and (own & wide).any() else None


def _equalised(columns: Columns, found: Column, outputs: NDArray[np.bool_]) -> Vector:
    """Returns the cotangent in which each of the `outputs` of a leaf weighs as much as the others,
    and nothing else weighs anything.

    Weights are powers of two, with which products are exact. An output whose error bar would drown
    the others weighs as much as that bar may.
    """
    base, w = columns.base, np.zeros(columns.base.Y.size)
    count, drawn = base.Y.size, columns.probes.cotangent
    size = np.abs(found.estimate.value[:count])
    size = np.fmax(size, found.estimate.error[:count] / columns.tolerance.relative)
    for leaf, part in zip(base.Y.leaves, base.Y.slices, strict=True):
        own = outputs[part]
        known = own & (size[part] > 0) & np.isfinite(size[part])
        if not known.any():
            w[part] = np.where(own, drawn[part], 0.0)
            continue
        exponents = np.frexp(np.where(known, size[part], 1.0))[1]
        low, high = np.min(exponents[known]), np.max(exponents[known])
        exponents = np.where(known, exponents, low)
        powers = np.clip((low + high) // 2 - exponents, -leaf.weight_bits, leaf.weight_bits)
        w[part] = np.where(own, np.ldexp(drawn[part], powers), 0.0)
    return w

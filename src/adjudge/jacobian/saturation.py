"""This module sees derivatives that lie below the rounding of f.

f is saturated at x where its derivative is too small to change its rounded value: `sigmoid` at 40,
`1 - exp(-x)` at 50, or `1e14 + sin(x)`. Differences show zero there, whether the derivative is
right or not, so neither answer may be claimed. What tells such a tail from a function that is flat
(a relu on its dead side, an unread input) is how f leaves its value farther away from x. All rules
in here are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    AGREEING_STEPS,
    CLAMP_PART,
    CLAMP_POINTS,
    CLAMP_RATIO,
    CLAMP_ROW,
    CLAMP_STEPS,
    DOMINATING_FACTOR,
    ENTRY_FLOOR,
    LOPSIDED_FACTOR,
    ONSET_HALVINGS,
    ONSET_UNITS,
    PART_OF_STAIR,
    SATURATION_DISTANCES,
    STAIRS_ALONE,
    STAIRS_SEEN,
    STANDSTILL_UNITS,
    TAIL_DISTANCE,
    USUAL_CONSTANT,
)
from adjudge.errors import attempt
from adjudge.estimate import Column, describe_move, moved_by
from adjudge.findings import along_random, entry_name
from adjudge.floats import Vector, lowest_bit
from adjudge.jacobian.column import ColumnBlock, Columns, ModeComparison
from adjudge.jacobian.comparison import Comparison, Tally
from adjudge.problem import Base, Probes, Problem, Reverse, Tangent, evaluate


def all_saturated(compared: Sequence[ModeComparison]) -> bool:
    """Returns whether all of a column lies below the rounding of f, so that two evaluations show
    nothing of it. A column that f does not read looks the same.
    """
    return bool(compared) and all(
        bool(np.all(c.saturated)) and not np.any(c.moved) for _, c, _ in compared
    )


@dataclass(frozen=True)
class Onset:
    """How outputs that stand still about x leave their value farther off."""

    flat: NDArray[np.bool_]
    """The outputs that keep their value to the last bit, or leave it by more than rounding at once,
    as at a kink (relu, clip) or on a staircase (round): their derivative is zero."""
    tail: NDArray[np.bool_]
    """The outputs that leave it by units of rounding and then move on: x lies in a tail of f, and
    the derivative is below the rounding of f and not zero."""
    jumps: Vector
    """The least by which each output was seen to move; infinity where it did not."""


def onset(problem: Problem, base: Base, found: Column, *, constants: bool) -> Onset:
    """Returns how outputs that stand still about x leave their value, on either side. With
    `constants` they leave it gradually also by the rounding of these; see `USUAL_CONSTANT`.

    Without this a zero derivative of `sigmoid` at 37 would pass, because f does not move there,
    although its derivative is 1e-16 and not zero. It takes four evaluations where f does not move
    at all, and up to eleven more to each side elsewhere.
    """
    flat, tail = np.ones(base.Y.size, bool), np.zeros(base.Y.size, bool)
    jumps = np.full(base.Y.size, np.inf)
    for sign in (1.0, -1.0):
        gradual, truly, moves = _leaves_gradually(problem, base, found, sign, constants)
        flat &= ~gradual
        tail |= truly
        for move in moves:
            jumps = np.where(move > 0, np.fmin(jumps, move), jumps)
    return Onset(flat, tail, jumps)


def creeps(base: Base, found: Column, *, constants: bool) -> NDArray[np.bool_]:
    """Marks the outputs that some sample of an estimate has moved by units of rounding alone.

    Over the shortest steps `1 + 1e-9 sin(x)` stands still, and over those of `onset` it moves by
    more than rounding, as stairs do: a derivative of zero passed. In between it moves by units of
    rounding, and stairs do not. With `constants` the rounding of these counts as well.
    """
    at = base.values[: base.Y.size]
    marked = np.zeros(at.size, bool)
    for sample in found.ladders[0] if found.ladders else (found.sample,):
        for values in () if sample is None else (sample.plus, sample.minus):
            value = values[: at.size]
            move = np.abs(value - at)
            unit = base.coarsest_eps * np.fmax(np.abs(at), np.abs(value))
            slight = (move > 0) & (move <= ONSET_UNITS * unit) & (lowest_bit(value) >= unit / 16)
            marked |= slight
            if constants:
                marked |= _rounding_of_constants(move, base.coarsest_eps)
    return marked


def moves_on(base: Base, found: Column) -> NDArray[np.bool_]:
    """Marks the outputs that three steps of a ladder in a row move in proportion, and by more than
    the rounding of a `USUAL_CONSTANT`.

    A zero is right where rounding of such a constant is all that moves f. Where terms of size one
    cancel in an output, that rounding is larger than its own, and it left the output by as much at
    once, as stairs do: the forgotten derivative of a slow rate passed, where an order of additions
    made it so.
    """
    count, least = base.Y.size, STANDSTILL_UNITS * base.coarsest_eps * USUAL_CONSTANT
    slopes = np.array([sample.slope[:count] for sample in found.ladders[0]])
    steps = np.array([abs(sample.step) for sample in found.ladders[0]])
    beyond = np.abs(slopes) * steps[:, None] > least
    marked = np.zeros(count, bool)
    for k in range(len(slopes) - 2):
        three = slopes[k : k + 3]
        alike = np.ptp(three, axis=0) < np.max(np.abs(three), axis=0) / AGREEING_STEPS
        marked |= alike & beyond[k : k + 3].all(axis=0)
    return marked


def _rounding_of_constants(moves: Vector, eps: float) -> NDArray[np.bool_]:
    """Marks the moves that rounding of a constant of usual size makes; see `USUAL_CONSTANT`."""
    unit = eps * USUAL_CONSTANT
    return np.asarray((moves >= unit / 2) & (moves <= ONSET_UNITS * unit))


def dominating_constants(
    base: Base, probes: Probes, found: Column, reverse: Reverse | None
) -> NDArray[np.bool_] | None:
    """Marks the outputs that stand still along a column, far off as well, and dominate those of
    their leaf that move.

    A mask of -1e30 among the outputs is such a constant: in a projection its rounding would hide
    every other output, and a wrong sign of theirs would stay open. They are left out of the column
    then. The result is `None` where there are none, and where `reverse` claims a derivative of
    them, which f could not show.
    """
    size, moved = np.abs(base.values), found.estimate.moved
    still = np.zeros(size.size, bool)
    for part in base.Y.slices:
        if np.any(moved[part]):
            top = np.max(size[part], initial=0.0, where=moved[part] & np.isfinite(size[part]))
            # beyond the largest number nothing dominates
            still[part] = ~moved[part] & (size[part] > DOMINATING_FACTOR * top)
    for t in (SATURATION_DISTANCES[1], -SATURATION_DISTANCES[1]):
        if not np.any(still):
            return None
        value = value_along(base.problem, base, found.tangent, t)
        if value is None:
            return None
        still[: value.size] &= value == base.values[: value.size]
    for k, part in enumerate(base.Y.slices):
        if reverse is not None and np.any(still[part]):
            w = np.where(still[: base.Y.size], probes.row(k), 0.0)
            if np.any(reverse.row(base, w)[found.tangent.part(base.problem.X)]):
                return None
    return still if np.any(still) else None


def stand_still(base: Base, tangent: Tangent) -> NDArray[np.bool_] | None:
    """Marks the outputs that keep their values where x moves along a tangent by its scale, and
    where the same entries all grow; `None` where f is not defined there.
    """
    still = np.ones(base.whole.size, bool)
    for vector in (tangent.vector, np.abs(tangent.vector)):
        value = value_along(
            base.problem, base, replace(tangent, vector=vector), SATURATION_DISTANCES[0]
        )
        if value is None:
            return None
        still[: value.size] &= value == base.values[: value.size]
    return still


def moves_beyond_noise(base: Base, found: Column) -> bool:
    """Returns whether some output moves by units of rounding in some samples of a ladder, as no
    jump does, and by more than noise in others.
    """
    count = base.Y.size
    unit = 2.0**-52 * base.magnitude(base.values)[:count]
    samples = [value for s in found.ladders[-1] for value in (s.plus, s.minus)]
    moves = np.array([np.abs(value - base.values)[:count] for value in samples])
    slight = np.any((moves > 0) & (moves <= ONSET_UNITS * unit), axis=0)
    return bool(np.any(slight & (np.max(moves, axis=0) > STANDSTILL_UNITS * unit)))


def lopsided(base: Base, found: Column) -> NDArray[np.bool_]:
    """Marks the outputs that move far more to one side of x than to the other over the shortest
    step that moves them beyond noise.

    So does a tail, whose derivative grows on one side and fades on the other, and a stationary
    point does not: to both sides of it f moves alike. A side on which f stands still altogether is
    the dead side of a kink.
    """
    count = base.Y.size
    at = base.values[:count]
    unit = 2.0**-52 * base.magnitude(base.values)[:count]
    marked, undecided = np.zeros(count, bool), np.ones(count, bool)
    for sample in reversed(found.ladders[-1]):
        moves = np.abs(np.array([sample.plus[:count] - at, sample.minus[:count] - at]))
        less, more = np.min(moves, axis=0), np.max(moves, axis=0)
        beyond = undecided & (more > STANDSTILL_UNITS * unit)
        marked |= beyond & (less > 0) & (more > LOPSIDED_FACTOR * less)
        undecided &= ~beyond
    return marked


def _leaves_gradually(
    problem: Problem, base: Base, found: Column, sign: float, constants: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Vector]]:
    """Marks the outputs that leave their value by units of rounding, to the side `sign`; and those
    among them that stand still for a while and move on beyond what may be noise. Also returns by
    how much they were seen to move.
    """
    at, eps = base.values[: base.Y.size], base.coarsest_eps
    moves: list[Vector] = []
    on_lattice: list[NDArray[np.bool_]] = []
    size = np.abs(at)

    def moved(t: float) -> NDArray[np.bool_]:
        """Marks where f has another value at a distance of `t` scales of x."""
        value = value_along(problem, base, found.tangent, sign * t)
        if value is None:
            return np.zeros(at.size, bool)
        move = np.where(np.isfinite(value), np.abs(value - at), 0.0)
        np.fmax(size, np.where(np.isfinite(value), np.abs(value), 0.0), out=size)
        on_lattice.append(lowest_bit(value) >= eps / 16 * size)
        moves.append(move)
        return move > 0

    # f may be constant, and then a zero derivative is right.
    reached = [t for t in SATURATION_DISTANCES if np.any(moved(t))]
    if not reached:
        return np.zeros(at.size, bool), np.zeros(at.size, bool), moves
    far = np.max(moves, axis=0) > 0
    close, t = moved(TAIL_DISTANCE), TAIL_DISTANCE / 8
    # What moves little, but in proportion, has left the range of rounding there. That range spans
    # more than such a step.
    while np.any(close) and t > found.relative:
        moved(t)
        t /= 8
    # Bisection between where f stands still and where it moves: in a tail some point in between
    # shows a move by a few units of rounding, at a kink none does.
    low, high = TAIL_DISTANCE, min(reached)
    for _ in range(ONSET_HALVINGS):
        small = [
            (m > 0) & (m <= ONSET_UNITS * eps * size) & ok
            | (constants & _rounding_of_constants(m, eps))
            for m, ok in zip(moves, on_lattice, strict=True)
        ]
        gradual = np.logical_or.reduce(small)
        if np.any(gradual & ~close) or not np.any(far & ~close):
            break
        middle = (low + high) / 2
        if np.any(moved(middle) & ~close):
            high = middle
        else:
            low = middle
    # Noise about a constant also moves f by units of rounding, but never by more.
    truly = np.max(moves, axis=0) > STANDSTILL_UNITS * eps * size
    return gradual, np.asarray(gradual & ~close & truly), moves


def value_along(problem: Problem, base: Base, tangent: Tangent, t: float) -> Vector | None:
    """Returns the outputs where x is moved by `t` times its scale; `None` where f is not defined
    there.
    """
    step = t * tangent.length
    if abs(step) > problem.longest_step(np.sign(t) * tangent.vector, both=False):
        return None
    point = moved_by(problem, tangent, step)
    move = describe_move(problem, tangent, step)
    value = attempt(lambda: evaluate(problem, base, point, move))
    return None if value is None else value[: base.Y.size]


def goes_both_ways(
    problem: Problem, base: Base, tangent: Tangent, still: NDArray[np.bool_], width: float
) -> NDArray[np.bool_]:
    """Marks which outputs that stand `still` about x go up and down again on one side of it, within
    a few times that width over the scale of x, where single entries of x move.

    What is quantised goes to one side, and so do its stairs. The rounding of larger numbers that
    cancel goes both ways, about the slope that longer steps show. Outputs that no entry has moved
    are as most others are. Costs 48 evaluations for each of up to four entries. Ours.
    """
    moved, both = np.zeros(still.size, bool), np.zeros(still.size, bool)
    entries = np.flatnonzero(tangent.vector)
    for j in entries[:: -(-entries.size // STAIRS_ALONE)]:
        one = np.zeros_like(tangent.vector)
        one[j] = tangent.vector[j]
        alone = replace(tangent, vector=one)
        for side in (width, -width):
            values = [base.values[: still.size]]
            for k in range(1, STAIRS_SEEN + 1):
                value = value_along(problem, base, alone, side * k * PART_OF_STAIR)
                if value is None:
                    break
                values.append(value)
            moves = np.diff(np.array(values), axis=0)
            moved |= np.any(moves != 0, axis=0)
            both |= np.any(moves > 0, axis=0) & np.any(moves < 0, axis=0)
    most = np.count_nonzero(both) > np.count_nonzero(moved & ~both)
    return still & (both | (~moved & most))


def leaves_steadily(
    problem: Problem, base: Base, tangent: Tangent, still: NDArray[np.bool_], steps: Vector
) -> NDArray[np.bool_]:
    """Marks which outputs that stand `still` about x over these steps, and not over four times as
    long ones, leave their value without a jump on one side of it, and do not jump on the other.

    Where a value is rounded on the way, every move of it is a jump. Behind the kink of a clamp it
    grows from nothing: of `CLAMP_ROW` points in a row it is farther off at each, and at the first
    by a small part of what it is at the last. Costs up to `2 * CLAMP_POINTS` evaluations for each
    of up to `CLAMP_STEPS` steps. Ours.
    """
    found = np.zeros(still.size, bool)
    lengths = np.unique(steps[still & (steps > 0)])
    for length in lengths[:: max(1, -(-lengths.size // CLAMP_STEPS))]:
        here = still & (steps >= length) & ~found
        if np.any(here):
            found |= here & _leaves_steadily(problem, base, tangent, here, length / tangent.length)
    return found


def _leaves_steadily(
    problem: Problem, base: Base, tangent: Tangent, still: NDArray[np.bool_], reach: float
) -> NDArray[np.bool_]:
    """Marks which outputs leave their value steadily, and do not jump, within `CLAMP_POINTS` points
    from `reach` on, over the scale of x.
    """
    steady, jumps = np.zeros(still.size, bool), np.zeros(still.size, bool)
    for side in (reach, -reach):
        off: list[Vector] = []
        for k in range(CLAMP_POINTS):
            value = value_along(problem, base, tangent, side * CLAMP_RATIO**k)
            if value is None:
                break
            off.append(np.abs(value - base.values[: still.size]))
            if len(off) > CLAMP_ROW and np.all(off[-CLAMP_ROW][still] > 0):
                break  # each has left its value for long enough
        if len(off) < CLAMP_ROW:
            continue
        moves = np.array(off)
        gone = moves > 0
        first = np.argmax(gone, axis=0)
        known = np.any(gone, axis=0) & (first + CLAMP_ROW <= len(off))
        rows = np.fmin(first, len(off) - CLAMP_ROW) + np.arange(CLAMP_ROW)[:, None]
        taken = np.take_along_axis(moves, rows, axis=0)
        grows = np.all(np.diff(taken, axis=0) > 0, axis=0) & (taken[0] <= CLAMP_PART * taken[-1])
        steady |= known & grows
        jumps |= known & ~grows
    return steady & ~jumps


def count_saturated(
    columns: Columns,
    tally: Tally,
    comparison: Comparison,
    found: Column,
    block: ColumnBlock,
) -> None:
    """Counts entries of reverse mode that agree beside larger ones although a move of x over its
    scale changes f by less than its rounding through them: no difference has seen these, and the
    report says so in a note.
    """
    base, probes = columns.base, columns.probes
    values = np.abs(base.values[: base.Y.size])
    eps, j = comparison.tolerance.eps, found.tangent.coordinate
    agreeing = comparison.agrees & ~comparison.undecided
    if j is not None:
        own = np.abs(comparison.automatic)
        small = agreeing & (own * found.tangent.length <= eps * values[: own.size])
        saturated = np.flatnonzero(
            small & (own > 0) & (own <= ENTRY_FLOOR * comparison.scales.block)
        )
    else:
        part = found.tangent.part(probes.X)
        its = block.of_leaf(part)[1]
        weighed = np.abs(probes.cotangent) * values
        largest = np.array([np.max(weighed[p], initial=0.0) for p in base.Y.slices])
        moves = found.vector[part]
        if len(found.tangent.leaves) > 1:  # of which some leaves may be scaled down
            moves = np.where(moves != 0, columns.problem.length_scales[part], 0.0)
        size = np.abs(its * moves)
        lost = size <= eps * largest[: len(its), None]
        small = np.all(lost, axis=0) & np.any(size > 0, axis=0) & bool(np.all(agreeing))
        saturated = np.flatnonzero(small & bool(np.any(~lost)))
    if saturated.size:
        k = int(saturated[0])
        if j is not None:
            of, wrt, value = base.Y.entry(k), probes.X.entry(j), comparison.automatic[k]
        else:
            row = int(np.argmax(size[:, k]))
            of, wrt = base.Y.leaves[row].name, along_random(probes.X.entry(part.start + k))
            value = its[row, k]
        tally.count_saturated(saturated.size, entry_name(of, wrt), float(value))

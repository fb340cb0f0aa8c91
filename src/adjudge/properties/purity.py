"""Two runs at one point that differ: by how much, and what that looks like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adjudge.estimate import column
from adjudge.findings import (
    AllowSpread,
    Disagreement,
    Finding,
    Meaning,
    Rule,
    Status,
    Unrepeatable,
)
from adjudge.floats import Vector
from adjudge.jacobian import Table, Tally
from adjudge.problem import Purpose, Space, largest

FEW = 1024
"""Units of rounding of the largest entry that another order of additions makes, at most."""

CANCELLED = 2.0**-10
"""The same relative to the largest entry, where terms that are far larger cancel in it."""


def finding(
    space: Space,
    eps: Sequence[float],
    first: Vector,
    second: Vector,
    rule: Rule | None,
    mode: str,
    allowed: float,
    any_order: bool,
    noise: Vector | float = 0.0,
) -> Finding:
    """Two runs of a rule, or of the function itself, differ: a note where `allowed` covers the
    spread, or where the device adds in `any_order`, and the spread is what that makes.

    `eps`: the spacing at 1 of the dtype of each leaf of `space`, in which the spread is measured.
    `noise`: the rounding of f that every entry inherits, which may be all of a leaf that is zero.
    """
    gaps = _gaps(first, second)
    sizes = [max(largest(first[p]), largest(second[p])) for p in space.slices]
    # inside a leaf of sixteen bits a few units are large already
    fews = [min(FEW, e**-0.5) * e * size for e, size in zip(eps, sizes, strict=True)]
    # each leaf on its own scale: what is little for one may be all of another
    with np.errstate(all="ignore"):
        bound = np.array(fews)[space.owner] + noise
        k = int(np.argmax(np.where(gaps > 0, gaps / bound, 0.0)))
        j, gap = int(space.owner[k]), float(gaps[k])
        units = float(np.float64(gap) / (eps[j] * sizes[j]))
    whole, widest = float(np.max(gaps)), int(space.owner[int(np.argmax(gaps))])
    note = whole <= allowed or (any_order and gap <= float(bound[k]))
    detail = Unrepeatable(
        rule,
        float(first[k]),
        float(second[k]),
        gap,
        space.leaves[j].info.dtype.rpartition(".")[2],
        units,
        reordering=float(fews[j]),
        cancelling=float(CANCELLED * sizes[j]),
        allowed=allowed if whole <= allowed else None,
    )
    remedy = None if note else AllowSpread(_tolerance(whole, eps[widest] * sizes[widest]))
    return Finding(Status.NONDETERMINISTIC, mode, space.entry(k), detail, remedy, note=note)


def _tolerance(gap: float, unit: float) -> float:
    """Four times the spread, and no less than some units of rounding, rounded up to one digit: two
    other runs may be farther apart.
    """
    wide = 4 * max(gap, 4 * unit)
    if not math.isfinite(wide):
        return math.inf
    exponent = math.floor(math.log10(wide))
    return math.ceil(wide / 10.0**exponent) * 10.0**exponent


def same(a: Vector, b: Vector) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Entry by entry, NaN equal to NaN."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def spread(a: Vector, b: Vector) -> float:
    """The largest difference of two entries; infinite where one of them is NaN."""
    if np.array_equal(a, b):
        return 0.0
    gap = _gaps(a, b)
    return float(gap.max()) if gap.size else 0.0


def largest_gap(a: Vector, b: Vector) -> int:
    """The entry where they are farthest apart."""
    return int(np.argmax(_gaps(a, b)))


def _gaps(a: Vector, b: Vector) -> Vector:
    with np.errstate(all="ignore"):
        gap = np.where(same(a, b), 0.0, np.abs(a - b))
    return np.where(np.isnan(gap), np.inf, gap)


def caching(table: Table, tally: Tally) -> Meaning | None:
    """The kind of cache that alone makes f stand still in `tally`; `None` where nothing shows one.

    Two evaluations at points that are both alive, so that neither takes the other's `id`; where
    they give two objects, four more: differences with and without earlier points kept alive.
    """
    problem, failure = table.problem, table.failures.get(tally.mode)
    others = (*tally.wrong, *tally.open)
    stands = bool(others) and all(entry.reference == 0.0 for entry in others)
    if problem.modes_taken or not (tally.spurious or stands):
        return None
    everything = slice(0, problem.X.size)
    tangent = (
        next(table.probes.tangents(problem.origin, everything))
        if failure is None
        else failure.tangent
    )
    if tally.spurious:
        problem.counts.purpose = Purpose.CACHE
        x, there = problem.point(), problem.point(problem.origin + tangent.vector * tangent.length)
        before, after = problem.evaluate(x), problem.evaluate(there)
        if any(one is two for one, two in zip(before, after, strict=True)):
            return Meaning.SAME_ARRAY
    plain = column(problem, table.base, tangent, None).estimate.value
    with problem.counts.keeping():
        alive = column(problem, table.base, tangent, None).estimate.value
    return Meaning.STALE_VALUES if not plain.any() and alive.any() else None


def opened(findings: Sequence[Finding], cache: Meaning) -> list[Finding]:
    """`findings` left open, since the comparison was with a cache: see `_doubted`."""
    return [_opened(one, cache) if one.status in _doubted(cache) else one for one in findings]


def only_cached(findings: Sequence[Finding], cache: Meaning) -> bool:
    """Whether a cache accounts for all of these findings."""
    return _doubted(cache) >= {finding.status for finding in findings}


def _doubted(cache: Meaning) -> set[Status]:
    """What a cache puts in doubt: everything where it returned the values of another input; where
    it returned one array twice, what does not move.
    """
    return {Status.SPURIOUS} if cache is Meaning.SAME_ARRAY else set(Status)


def _opened(finding: Finding, cache: Meaning) -> Finding:
    detail = finding.detail
    if isinstance(detail, Disagreement):
        detail = replace(detail, meaning=cache, accuracy=None)
    return replace(finding, status=Status.SPURIOUS, open=True, detail=detail, remedy=None)

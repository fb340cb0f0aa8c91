"""Two runs at one point that differ: by how much, and what that looks like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adjudge.estimate import column
from adjudge.findings import Finding, Status
from adjudge.floats import Vector
from adjudge.jacobian import Table, Tally
from adjudge.problem import Space, largest

FEW = 1024
"""Units of rounding of the largest entry that another order of additions makes, at most."""

CANCELLED = 2.0**-10
"""The same relative to the largest entry, where terms that are far larger cancel in it."""


def finding(
    space: Space,
    eps: Sequence[float],
    first: Vector,
    second: Vector,
    what: str,
    calls: str,
    mode: str,
    remedy: str,
    allowed: float,
    any_order: bool,
    noise: Vector | float = 0.0,
) -> Finding:
    """`what` differs between two `calls` (at `entry`): a note where `allowed` covers the spread, or
    where the device adds in `any_order`, and the spread is what that makes.

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
    j, whole, widest = int(space.owner[k]), float(np.max(gaps)), int(np.argmax(gaps))
    gap, few, size, name = float(gaps[k]), fews[j], sizes[j], space.entry(k)
    dtype = space.leaves[j].info.dtype.rpartition(".")[2]
    excused = any_order and gap <= float(bound[k])
    if whole <= allowed:
        end = f"nondet_tol={allowed:.3g} allows it"
    elif excused:
        end = "allowed for on this device"
    else:
        unit = eps[int(space.owner[widest])] * sizes[int(space.owner[widest])]
        end = f"{remedy}, or allow the spread: nondet_tol={_tolerance(whole, unit)}"
    return Finding(
        Status.NONDETERMINISTIC,
        mode,
        name,
        f"{what.format(entry=name)} differs by {gap:.3g} between two {calls}\n"
        f"  first   {first[k]:.17g}\n"
        f"  second  {second[k]:.17g}\n"
        f"  {_units(gap, eps[j] * size)} of {dtype} at the largest entry: "
        f"{_looks(gap, few, size)}\n"
        f"  {end}",
        note=whole <= allowed or excused,
        rounding=gap <= max(few, CANCELLED * size),
    )


def _units(gap: float, unit: float) -> str:
    with np.errstate(all="ignore"):
        return f"{float(np.float64(gap) / unit):.2g} units of rounding"


def _looks(gap: float, few: float, size: float) -> str:
    if gap <= few:
        return "as another order of additions makes (atomics, threads)"
    if gap <= CANCELLED * size:
        return "randomness, hidden state, or additions whose large terms cancel"
    return "randomness or hidden state, more than an order of additions makes"


def _tolerance(gap: float, unit: float) -> str:
    """Four times the spread, and no less than some units of rounding, rounded up to one digit: two
    other runs may be farther apart.
    """
    wide = 4 * max(gap, 4 * unit)
    if not math.isfinite(wide):
        return "inf"
    exponent = math.floor(math.log10(wide))
    return f"{math.ceil(wide / 10.0**exponent) * 10.0**exponent:g}"


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


SAME = (
    "the function returned the very same array for two different inputs: is it cached "
    "(lru_cache, memo by id)?"
)
STALE = (
    "the function returned the values of another input, and does not while every input is kept "
    "alive: is it cached by id?"
)


def caching(table: Table, tally: Tally) -> str | None:
    """What shows that f stands still in `tally` by a cache alone; `None` where nothing does.

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
        problem.counts.doing = "at x and beside it, to tell a cache"
        x, there = problem.point(), problem.point(problem.origin + tangent.vector * tangent.length)
        before, after = problem.evaluate(x), problem.evaluate(there)
        if any(one is two for one, two in zip(before, after, strict=True)):
            return SAME
    plain = column(problem, table.base, tangent, None).estimate.value
    with problem.counts.keeping():
        alive = column(problem, table.base, tangent, None).estimate.value
    return STALE if not plain.any() and alive.any() else None


def opened(findings: Sequence[Finding], tally: Tally, sentence: str) -> list[Finding]:
    """`findings` left open, since the comparison was with a cache: all of them where values were
    stale, those about what does not move where one array came back; `tally` accordingly.
    """
    still = {Status.SPURIOUS} if sentence is SAME else set(Status)
    if still >= {f.status for f in findings}:
        tally.undecided, tally.failed = tally.undecided + tally.failed, 0
    return [
        replace(
            finding,
            status=Status.SPURIOUS,
            open=True,
            text=finding.text if sentence in finding.text else f"{finding.text}\n  {sentence}",
        )
        if finding.status in still
        else finding
        for finding in findings
    ]

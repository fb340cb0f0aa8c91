"""From a projection that failed to the entry that is wrong: bisection over inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adjudge.compare import Entry
from adjudge.numeric import column, confirm, refined
from adjudge.probes import Tangent
from adjudge.spaces import Vector
from adjudge.table import Failure, Table


def localise(table: Table, failure: Failure) -> Entry | None:
    """The entry of the Jacobian that bisection ends at, if it is wrong by itself.

    About `2 log2(n)` evaluations and `log2(m)` vjps. `None` where the errors of several
    entries mislead the search; the failed projection then speaks for itself.
    """
    coordinate = _input(table, failure)
    unit = np.zeros(table.problem.X.size)
    unit[coordinate] = 1.0
    length = float(np.abs(failure.tangent.vector[coordinate]))
    tangent = Tangent(failure.tangent.leaf, unit, length, coordinate)
    found = refined(table.problem, table.base, column(table.problem, table.base, tangent, None))
    found = confirm(table.problem, table.base, found)
    value, error = found.estimate.value, found.estimate.error
    count = table.base.Y.size
    wrt = table.problem.X.entry(coordinate)
    if failure.side == "first":
        w = table.problem.weights
        assert w is not None
        automatic = float(table.base.values[coordinate])
        reference, bar = float(w @ value[count:]), float(np.linalg.norm(w * error[count:]))
        of = failure.entry.of
    else:
        row = (
            failure.row
            if failure.side == "each"
            else _output(table, failure.row, coordinate, value[:count])
        )
        automatic = _automatic(table, failure, row, coordinate, unit)
        reference, bar = float(value[row]), float(error[row])
        of = table.base.Y.entry(row)
    allowed = bar + table.tolerance.relative * max(abs(automatic), abs(reference))
    if not abs(automatic - reference) > allowed:
        return None
    return replace(
        failure.entry,
        of=of,
        wrt=wrt,
        automatic=automatic,
        reference=reference,
        error=bar,
        allowed=allowed,
        method=found.estimate.method,
        slopes=None,
    )


def _input(table: Table, failure: Failure) -> int:
    """The coordinate of X that the failing residual is traced to."""
    vector = failure.tangent.vector
    row = None
    if failure.side == "rows":
        assert table.reverse is not None
        row = table.reverse.row(table.base, _cotangent(table, failure.row))

    def residual(coordinates: NDArray[np.int64]) -> float:
        part = np.zeros_like(vector)
        part[coordinates] = vector[coordinates]
        tangent = Tangent(failure.tangent.leaf, part, failure.tangent.length)
        found = column(table.problem, table.base, tangent, None)
        return _residual(table, failure, found.vector, found.estimate.value, row)

    return _bisect(np.flatnonzero(vector), residual)


def _output(table: Table, leaf: int, coordinate: int, value: Vector) -> int:
    """The coordinate of Y within output `leaf` whose row is wrong at `coordinate`."""
    reverse = table.reverse
    assert reverse is not None
    whole = _cotangent(table, leaf)

    def residual(coordinates: NDArray[np.int64]) -> float:
        w = np.zeros_like(whole)
        w[coordinates] = whole[coordinates]
        return float(w @ value - reverse.row(table.base, w)[coordinate])

    return _bisect(np.flatnonzero(whole), residual)


def _cotangent(table: Table, leaf: int) -> Vector:
    w = np.zeros(table.base.Y.size)
    part = table.base.Y.slices[leaf]
    w[part] = table.probes.cotangent[part]
    return w


def _residual(
    table: Table, failure: Failure, vector: Vector, value: Vector, row: Vector | None
) -> float:
    count = table.base.Y.size
    if failure.side == "first":
        w = table.problem.weights
        assert w is not None
        return float(w @ value[count:] - table.base.values[:count] @ vector[:count])
    if failure.side == "each":
        assert table.forward is not None
        pushed = table.forward.column(table.base, vector, failure.tangent.leaf)[1]
        return float(value[failure.row] - pushed[failure.row])
    assert row is not None
    return float(_cotangent(table, failure.row) @ value[:count] - row @ vector)


def _automatic(table: Table, failure: Failure, row: int, coordinate: int, unit: Vector) -> float:
    if failure.side == "each":
        assert table.forward is not None
        return float(table.forward.column(table.base, unit, failure.tangent.leaf)[1][row])
    assert table.reverse is not None
    w = np.zeros(table.base.Y.size)
    w[row] = 1.0
    return float(table.reverse.row(table.base, w)[coordinate])


def _bisect(candidates: NDArray[np.int64], residual: Callable[[NDArray[np.int64]], float]) -> int:
    total = residual(candidates)
    while candidates.size > 1:
        half = candidates[: candidates.size // 2]
        first = residual(half)
        rest = total - first
        # a residual that is not finite is followed: that is where the trouble is
        if not np.isfinite(first) or abs(first) >= abs(rest):
            candidates, total = half, first
        else:
            candidates, total = candidates[half.size :], rest
    return int(candidates[0])

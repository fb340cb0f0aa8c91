"""How noisy sampled values are, and how many digits they carry."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np

from adjudge.differences import Vector

POINTS = 8
"""Values in a table of differences."""

CARRIED = {"float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of the dtypes that code may fall back to inside."""

TELLING = 6
"""Different values that it takes to say how many digits they carry."""


def scatter(values: Vector) -> Vector:
    """Standard deviation of the noise of each column of values at equidistant points.

    Differences of order k of a smooth function fall like the k-th power of the spacing, those of
    noise grow like the root of `(2k)! / (k!)^2` (Hamming; Moré and Wild, SIAM J. Sci. Comput. 33,
    2011). Three orders in a row that agree are noise; else the higher of the last two bounds it.
    Where most neighbours are equal, half of the smallest move is what rounding hides.
    """
    with np.errstate(all="ignore"):
        moves = np.abs(np.diff(values, axis=0))
        quantum = np.min(np.where(moves > 0, moves, np.inf), axis=0, initial=np.inf)
        flat = np.count_nonzero(moves == 0, axis=0) >= len(moves) // 2
        levels = []
        table = values
        for k in range(1, len(values) - 1):
            table = np.diff(table, axis=0)
            weight = factorial(k) ** 2 / factorial(2 * k)
            levels.append(np.sqrt(weight * np.mean(table**2, axis=0)))
        noise = np.fmax(levels[-1], levels[-2])
        for k in range(len(levels) - 3, 0, -1):
            three = np.array(levels[k : k + 3])
            agree = three.max(axis=0) <= 4 * three.min(axis=0)
            noise = np.where(agree, three.max(axis=0), noise)
        noise = np.where(flat & np.isfinite(quantum), np.fmax(noise, quantum / 2), noise)
    return np.where(np.isfinite(noise), noise, 0.0)


def bits(values: Vector) -> int:
    """Significant bits that the finite values need, at most 53."""
    finite = values[np.isfinite(values) & (values != 0)]
    if not finite.size:
        return 0
    significand = np.abs(np.frexp(finite)[0] * 2.0**53).astype(np.int64)
    lowest = significand & -significand
    return 54 - int(np.frexp(float(lowest.min()))[1])


def carried(values: Sequence[Vector], points: Sequence[Vector]) -> str | None:
    """The narrowest dtype that holds all values, where it does not hold the points."""
    moving = np.array(values)
    with np.errstate(invalid="ignore"):
        moving = moving[:, np.any(moving != moving[0], axis=0)]
    if np.unique(moving).size < TELLING:
        return None
    needed, given = bits(moving), max(bits(point) for point in points)
    for name in sorted(CARRIED, key=lambda name: CARRIED[name]):
        # float16 and bfloat16 differ in range, too; that only the digits fit is what counts
        if needed <= CARRIED[name] < given - 3:
            return name
    return None

"""How noisy sampled values are, and how many digits they carry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adjudge.differences import Vector, lowest_bit

POINTS = (32, 31, 29, 28, 25, 24, 21, 19, 18, 16)
"""Where noise is sampled, in units of 1/32 of a step: exact in any dtype."""

UNEVEN = tuple(k - 0.5 * ((k * 0.6180339887) % 1.0) for k in POINTS)
"""The same for float64, where they need not be exact. At points that are multiples of one length
rounding to a lattice may well be the same everywhere."""

DEGREE = 4
"""Of the polynomial whose residuals are noise: truncation is of the order of `(h / 4)^5`."""

CARRIED = {"float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of the dtypes that code may fall back to inside."""

TELLING = 6
"""Different values within a power of two that it takes to say how many digits they carry."""


def scatter(values: Vector, points: Sequence[float]) -> Vector:
    """Standard deviation of the noise of each column of values at `points`.

    What a polynomial through them leaves over (the table of differences of Hamming and of Moré
    and Wild, SIAM J. Sci. Comput. 33, 2011, does the same at equidistant points). On a staircase
    half of the smallest move, which is what rounding hides.
    """
    t = np.array(points) / 8 - 3
    q = np.linalg.qr(np.vander(t, DEGREE + 1))[0]
    with np.errstate(all="ignore"):
        centred = values - np.mean(values, axis=0)
        left = centred - q @ (q.T @ centred)
        noise = np.sqrt(np.sum(left**2, axis=0) / (len(t) - DEGREE - 1))
        moves = np.abs(np.diff(values, axis=0))
        unit = np.min(np.where(moves > 0, moves, np.inf), axis=0, initial=np.inf)
        flat = np.count_nonzero(moves == 0, axis=0) >= len(moves) // 2
        flat &= np.count_nonzero(moves, axis=0) > 1  # one move is a jump, not a staircase
        noise = np.where(flat, np.fmax(noise, unit / 2), noise)
    return np.asarray(np.where(np.isfinite(noise), noise, 0.0))


def lattice(values: Vector, eps: float) -> Vector:
    """Standard deviation of rounding to the lattice on which all values of a column lie, where
    that is coarser than rounding: they are differences of larger numbers.
    """
    with np.errstate(invalid="ignore"):
        unit = np.min(lowest_bit(values), axis=0)
        moves = np.count_nonzero(np.diff(values, axis=0), axis=0) > len(values) // 2
        coarse = moves & (unit > 4 * eps * np.max(np.abs(values), axis=0))
    return np.where(coarse, unit / 4, 0.0)


def bits(values: Vector) -> int:
    """Significant bits that the finite values need, at most 53."""
    finite = values[np.isfinite(values) & (values != 0)]
    ratio = np.abs(finite) / lowest_bit(finite)
    return int(np.max(np.frexp(ratio)[1], initial=0))


def carried(values: Sequence[Vector], points: Sequence[Vector]) -> str | None:
    """The narrowest dtype that holds all values, where it does not hold the points."""
    moving = np.array(values)
    with np.errstate(invalid="ignore"):
        moving = np.unique(moving[:, np.any(moving != moving[0], axis=0)])
    exponents = np.frexp(moving)[1]
    # of values on a lattice the smaller ones have fewer bits; rounded ones have as many
    groups = [moving[exponents == e] for e in np.unique(exponents)]
    needed = {bits(group) for group in groups if group.size >= TELLING}
    given = max(bits(point) for point in points)
    for name, available in CARRIED.items():
        # that the range of the dtype is narrower, too, does not matter
        if needed == {available} and available < given - 3:
            return name
    return None

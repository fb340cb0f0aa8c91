"""Deviations of one derivative from another over points and probes: scatter, or something fixed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adjudge.spaces import Space, Vector

Array = NDArray[np.float64]

UNITS = 16
"""Units of rounding that a derivative may be off by."""
SURE = 8
"""Standard errors by which a factor differs from one."""


def rms(values: Array, axis: int | tuple[int, ...] | None = None) -> Vector:
    """Root of the mean square."""
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.mean(values**2, axis=axis)))


def both_finite(low: Array, high: Array) -> tuple[Array, Array]:
    """`(low - high, high)`, zero where either is not finite."""
    holds = np.isfinite(low) & np.isfinite(high)
    high = np.where(holds, high, 0.0)
    return np.where(holds, low, 0.0) - high, high


def allowed(u: float, size: Vector, motion: Vector, space: Space) -> Vector:
    """What rounding may amount to, by entry: units of the entry and, less, of those beside it; and
    what ill-conditioning makes of them, which is seen in how the derivative moves with x.
    """
    typical = np.zeros(space.size)
    for part in space.slices:
        if part.stop > part.start:
            typical[part] = rms(size[part])
    tiny = np.repeat([leaf.tiny for leaf in space.leaves], [leaf.size for leaf in space.leaves])
    return np.asarray(UNITS * u * (size + typical / 4) + 8 * motion + tiny)


def bias(e: Array, g: Array, space: Space) -> list[Vector]:
    """By point, for each leaf: what part of the derivative the deviation is, `<e, g> / <g, g>`."""
    with np.errstate(all="ignore"):
        by_leaf = [
            np.sum(e[:, part] * g[:, part], axis=1) / np.sum(g[:, part] ** 2, axis=1)
            for part in space.slices
        ]
    return list(np.nan_to_num(np.array(by_leaf), posinf=0.0, neginf=0.0).T)


def factors(biases: Array, few: float) -> Vector:
    """By leaf, the factor that all entries are off by: 1 where it is not significant, or within
    `few`. `biases` are by probe, point and leaf.
    """
    points = np.mean(biases, axis=0)
    count = len(points)
    mean = np.mean(points, axis=0)
    error = np.std(points, axis=0, ddof=min(count - 1, 1)) / np.sqrt(count)
    return np.where(np.abs(mean) > np.maximum(SURE * error, few), 1 + mean, 1.0)


def fixed(e: Array, g: Array, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where deviations, by point, probe and entry, are one and the same part of the derivative.

    `held`, by point and entry: which of them count.
    """
    whole = np.sum(g**2, axis=1)
    held = held & (whole > 0)
    part = np.sum(e * g, axis=1) / np.where(held, whole, 1.0)  # at each point, over its probes
    mean, scatter, count = _moments(np.where(held, part, 0.0), held)
    sure = np.abs(mean) > SURE * np.sqrt(scatter / np.maximum(count, 1))
    return np.asarray((count > 2) & sure)


def steady(e: Array, ratio: float, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where deviations are for each probe the same at all points, by `ratio` in the squares."""
    held = held[:, None]
    mean, scatter, count = _moments(np.where(held, e, 0.0), held)
    sure = np.sum(mean**2, axis=0) > ratio * np.sum(scatter, axis=0)
    return np.asarray((count[0] > 2) & sure)


def _moments(values: Array, held: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mean and variance over those points that are held, and how many these are."""
    count = np.sum(held, axis=0)
    mean = np.sum(values, axis=0) / np.maximum(count, 1)
    scatter = np.sum(held * (values - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    return mean, scatter, np.asarray(count, dtype=np.float64)

"""Facts about floating-point numbers and the magnitudes of arrays of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
QUANTILE_ENTRIES = 4096
"""Of how many entries of a large leaf, about, quantiles are taken."""
COARSE_EPS = 2.0**-12
"""Dtypes with a coarser `eps` than this (float16, bfloat16) have room for a short ladder only."""


def relative_step(eps: float) -> float:
    """The step relative to the scale of x: a power of two near `u^(1/3)`.

    It balances truncation `h^2 f'''/6` against rounding `u f / h` when derivatives over the
    scale of x are as large as f (Gautschi, Numerical Analysis, 2012, section 3.1). A power of
    two, so that products with it are exact.
    """
    return float(2.0 ** round(np.log2(eps / 2) / 3))


EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "tf32": 2.0**-10,
    "bfloat16": 2.0**-7,
}
"""The spacing at 1 of numeric formats. TensorFloat-32, to which NVIDIA's tensor cores may round the
factors of float32 products, has ten explicit significand bits, as float16 has."""

COUNTS_AS_ZERO = 2.0**-960
"""Below this a number is zero for all that its differences, and products with them, can show."""


def scale(x: Vector) -> Vector:
    """The length over which each coordinate of a leaf is expected to vary.

    The root mean square of the leaf (1 if it is zero); where the entries span more than four
    decades, each its own magnitude, since a step that suits the largest would throw the
    smallest across its domain. One entry in a thousand may be as small by chance. Entries among
    the smallest numbers count as zero: steps of their size are lost where those are flushed.
    """
    magnitude = np.abs(x)
    largest = float(np.max(magnitude, initial=0.0))
    if not np.isfinite(largest):
        magnitude = magnitude[np.isfinite(magnitude)]
        largest = float(np.max(magnitude, initial=0.0))
    if largest < COUNTS_AS_ZERO:
        return np.ones_like(x)
    rms = largest * float(np.sqrt(np.mean((magnitude / largest) ** 2)))
    few = magnitude[:: max(1, magnitude.size // QUANTILE_ENTRIES)]
    few = few[few > 0]
    chance = few.size // 1000
    smallest = np.partition(few, chance)[chance] if few.size else largest
    if largest / 1e4 > smallest:
        return np.where(np.isfinite(x) & (np.abs(x) >= COUNTS_AS_ZERO), np.abs(x), rms)
    return np.broadcast_to(np.float64(rms), x.shape)  # takes no memory


def norm(terms: Vector) -> Vector:
    """Root of the sum of squares along the last axis; squares neither overflow nor underflow."""
    with np.errstate(all="ignore"):
        plain = np.sqrt(np.einsum("...i,...i->...", terms, terms))
        if np.all((plain > 1e-140) & (plain < 1e140)):
            return np.asarray(plain)
        largest = np.max(np.abs(terms), axis=-1, initial=0.0)
        unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
        return np.asarray(unit * np.sqrt(np.sum((terms / unit[..., None]) ** 2, axis=-1)))


def lowest_bit(values: Vector) -> Vector:
    """The value of the lowest bit that is set in each number; infinity for zero."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return np.where(
        whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    )

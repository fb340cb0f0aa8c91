"""Facts about floating-point formats, and the magnitudes of arrays of such numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import COUNTS_AS_ZERO, PASSED_OVER, SCALE_RANGE

Vector = NDArray[np.float64]
"""Real coordinates of a point, a tangent or a cotangent: one-dimensional, on the host."""

QUANTILE_ENTRIES = 4096
"""Quantiles of a large leaf are taken of about this many of its entries, evenly spread. The value
is ours: few enough to be cheap, and enough for the one entry in a thousand of `scale`."""


CHUNK = 2**16
"""So many entries of a large array are worked on at a time, so that what is made of them on the way
takes little memory."""


def chunks(size: int) -> Sequence[slice]:
    """Returns the parts of an array of that size that are worked on at a time, at least one."""
    if size <= CHUNK:
        return (slice(0, size),)
    return [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]


@cache
def relative_step(eps: float) -> float:
    """Returns the step of central differences relative to the scale of x, a power of two near
    `u^(1/3)`.

    This balances the truncation `h^2 f'''/6` against the rounding `u f / h` where derivatives
    over the scale of x are as large as f (Gautschi, Numerical Analysis, 2012, section 3.1). It is a
    power of two so that products with it are exact.
    """
    return float(2.0 ** round(np.log2(eps / 2) / 3))


@dataclass(frozen=True)
class Format:
    """What has to be known of a format of real floating-point numbers."""

    eps: float
    """The spacing at 1, which is twice the unit round-off."""
    smallest: float = 2.0**-126
    """The smallest positive number that engines keep. Subnormal numbers are often flushed to zero
    in float32 and bfloat16, and not in float16, whose range would be too short without them."""
    largest: float = 3.3e38
    """The largest number, rounded down."""

    @property
    def bits(self) -> int:
        """The number of significant bits, the implicit leading one among them."""
        return 1 - int(np.log2(self.eps))


FORMATS = {
    "float64": Format(2.0**-52, 2.0**-1022, 1.7e308),
    "float32": Format(2.0**-23),
    "float16": Format(2.0**-10, 2.0**-24, 65504.0),
    "tf32": Format(2.0**-10),
    "bfloat16": Format(2.0**-7),
    "float8_e4m3fn": Format(2.0**-3, 2.0**-9, 448.0),
    "float8_e4m3fnuz": Format(2.0**-3, 2.0**-10, 240.0),
    "float8_e5m2": Format(2.0**-2, 2.0**-16, 57344.0),
    "float8_e5m2fnuz": Format(2.0**-2, 2.0**-17, 57344.0),
}
"""The formats by name, those of eight bits with the ranges that `ml_dtypes` and PyTorch give them:
without these a probe beyond 448 would saturate, and a right rule would not be linear.
TensorFloat-32, to which NVIDIA's tensor cores may round the factors of float32 products, has ten
explicit significand bits, as float16 has."""

EPS = {name: format.eps for name, format in FORMATS.items()}
"""The spacing at 1 of each format."""


def of_short_range(eps: float) -> bool:
    """Returns whether a format with this spacing at 1 overflows, or underflows, at numbers that
    float32 holds, as float16 does and bfloat16 does not.
    """
    wide = FORMATS["float32"].largest
    return any(format.largest < wide for format in FORMATS.values() if format.eps == eps)


def scale(x: Vector) -> Vector:
    """Returns the length over which each coordinate of a leaf is expected to vary.

    Args:
        x: The real coordinates of the leaf; entries that are not finite are allowed.

    Returns:
        A vector like `x`. Where the magnitudes of the entries lie within `SCALE_RANGE`, each length
        is the root mean square of the leaf, or 1 where that counts as zero. Where they span more,
        each length is the magnitude of its own entry, since a step that suits the largest entry
        would throw the smallest across its domain. The smallest entry in `PASSED_OVER` is passed
        over. These rules are ours.
    """
    magnitude = np.abs(x)
    largest = float(np.maximum.reduce(magnitude, initial=0.0))
    if not math.isfinite(largest):
        magnitude = magnitude[np.isfinite(magnitude)]
        largest = float(magnitude.max(initial=0.0))
    if largest < COUNTS_AS_ZERO:
        return np.ones_like(x)
    rms = largest * math.sqrt(np.add.reduce((magnitude / largest) ** 2) / magnitude.size)
    few = magnitude[:: max(1, magnitude.size // QUANTILE_ENTRIES)]
    few = few[few > 0]
    smallest = largest
    if passed_over := few.size // PASSED_OVER:
        smallest = np.partition(few, passed_over)[passed_over]
    elif few.size:
        smallest = np.minimum.reduce(few)
    if largest / SCALE_RANGE > smallest:
        return np.where(np.isfinite(x) & (np.abs(x) >= COUNTS_AS_ZERO), np.abs(x), rms)
    return repeated(rms, x.size)


def repeated(number: float, size: int) -> Vector:
    """Returns a vector of so many equal numbers that takes no memory; not to be written to. NumPy's
    own `broadcast_to` takes several times as long.
    """
    vector = np.ndarray((size,), buffer=np.array(number, float), strides=(0,))
    vector.flags.writeable = False
    return vector


def norm(terms: Vector) -> Vector:
    """Returns the root of the sum of squares along the last axis.

    Where squares might overflow or underflow, the terms are divided by the largest of them first.
    """
    plain = np.sqrt(np.vecdot(terms, terms))  # a sum that overflows is infinite
    if ((plain > 1e-140) & (plain < 1e140)).all() or not terms.any():
        return np.asarray(plain)
    largest = np.max(np.abs(terms), axis=-1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return np.asarray(unit * np.sqrt(np.sum((terms / unit[..., None]) ** 2, axis=-1)))


def lowest_bit(values: Vector) -> Vector:
    """Returns the value of the lowest bit that is set in each number, and infinity for zero.

    It shows to how many digits a number was rounded: the lowest bit of 1.5 is worth 0.5.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return np.where(
        whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    )

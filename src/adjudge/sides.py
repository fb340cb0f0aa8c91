"""An automatic derivative and its reference side by side, and evidence about their difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-4
"""`adjudge.compare.FLOOR`: the size, relative to the largest entry, below which an entry is
compared on the scale of its neighbours."""

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Change = Callable[[Array], Array]
"""Linear, and each entry from one other or from several without a change of sign: what it makes of
error bars is, but for the sign, the error bar of what it makes of the reference."""


@dataclass(frozen=True)
class Sides:
    """Both derivatives, of shape (*output_shape, *input_shape, components of an output entry,
    components of an input entry): two components of a complex entry, one of a real one.
    """

    automatic: Array
    reference: Array
    error: Array
    rtol: float
    outputs: int = 0
    """How many of the axes are the output's."""
    block: bool = False

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Without the components."""
        return self.automatic.shape[:-2]

    @cached_property
    def known(self) -> Mask:
        """Where there is a reference, by component."""
        return np.isfinite(self.reference) & np.isfinite(self.error)

    @cached_property
    def compared(self) -> Mask:
        """Where there is a reference, by entry, as are all masks below."""
        return np.asarray(self.known.any(axis=(-2, -1)))

    @cached_property
    def floor(self) -> float:
        """The size below which an entry is compared on the scale of the others."""
        return FLOOR * float(np.max(np.abs(self.reference), where=self.known, initial=0.0))

    @cached_property
    def wrong(self) -> Mask:
        """Where the automatic value is not the reference."""
        missed = self.known & ~self.close(self.reference, self.error)
        return np.asarray(missed.any(axis=(-2, -1)))

    @cached_property
    def zero(self) -> Mask:
        """Where the reference vanishes."""
        small = np.abs(self.reference) <= self.error + self.rtol * self.floor
        return np.asarray((small | ~self.known).all(axis=(-2, -1)))

    @cached_property
    def telling(self) -> Mask:
        """Where a mistake would show: the wrong entries, and what does not vanish."""
        return self.wrong | (self.compared & ~self.zero)

    def allowed(self, value: Array, error: Array) -> Array:
        """What the automatic value may differ from `value` by."""
        return allowed(self.automatic, value, error, self.rtol, self.floor)

    def close(self, value: Array, error: Array) -> Mask:
        """Where the automatic value is `value`, by component."""
        gap = np.abs(self.automatic - value)
        return np.isfinite(self.automatic) & (gap <= self.allowed(value, error))

    def decades(self, change: Change, mask: Mask, slack: float = 0.0) -> Array:
        """Evidence for `change` of each component within `mask`; empty where one contradicts."""
        value = change(self.reference)
        error = np.abs(change(self.error)) + slack * np.abs(self.reference)
        inside = mask[..., None, None] & np.isfinite(value) & np.isfinite(error)
        if not self.close(value, error)[inside].all():
            return np.zeros(0)
        inside &= self.known
        return decades((value - self.reference)[inside], self.allowed(value, error)[inside])

    def side(self, k: int) -> str:
        """Which side axis `k` is of."""
        return "output" if k < self.outputs else "input"

    def axis(self, k: int) -> str:
        """What axis `k` is called."""
        if not self.block:
            return f"axis {k}"
        return f"axis {k - (k >= self.outputs) * self.outputs} of the {self.side(k)}"


def allowed(automatic: Array, value: Array, error: Array, rtol: float, floor: float) -> Array:
    """What two values may differ by: the rule of `adjudge.compare`."""
    return error + rtol * np.maximum(np.maximum(np.abs(automatic), np.abs(value)), floor)


def decades(gap: Array, margin: Array) -> Array:
    """`log10(gap / margin)` where that is positive, no more than float64 can tell."""
    ratio = np.where(gap == 0, 0.0, np.abs(gap) / margin)
    return np.asarray(np.log10(np.clip(ratio, 1.0, 1e16)))

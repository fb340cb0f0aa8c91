"""This module is a reference in NumPy: differences of the same function in longdouble, or written
in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjudge.errors import InputError
from adjudge.estimate.reference import Direction, HostNumbers, Link, Numbers, Reference
from adjudge.estimate.stencils import (
    LONGEST_STEP,
    Estimate,
    Sample,
    combined,
    fewest_samples,
    ladder,
    ladder_steps,
)
from adjudge.findings import Method, Scheme
from adjudge.floats import Vector, relative_step


@dataclass(frozen=True)
class NumpyDifferences(Reference):
    """Takes differences of `g` in NumPy."""

    g: Callable[..., Any]
    dtype: str

    @property
    def name(self) -> str:
        """`twin in longdouble, 64 bits`."""
        return f"twin in {self.dtype}, {np.finfo(self.dtype).nmant + 1} bits"

    def values(self, link: Link, x: Vector) -> Vector | None:
        return np.asarray(self._at(link, x.astype(self.dtype)), np.float64)

    def along(self, link: Link, x: Vector, v: Direction) -> Estimate:
        eps = float(np.finfo(self.dtype).eps)
        point, move = x.astype(self.dtype), v.vector.astype(self.dtype)
        here = self._at(link, point)
        first = relative_step(eps)
        steps = [h * v.length for h in ladder_steps(first, first, eps, far=True)]
        found: list[Estimate] = []
        for factor in (1.0, 1.4):
            for sides in ((v.ahead, v.behind), (v.ahead, None), (None, v.behind)):
                taken = self._samples(link, point, move, here, [factor * h for h in steps], sides)
                if len(taken) >= fewest_samples(one_sided=None in sides):
                    found.append(ladder(taken, eps, here))
                    break
        if len(found) < 2:
            raise InputError(
                "the twin is not finite, or the bounds leave no room, on either side of x",
                "move x into the domain of the function, or give another reference",
            )
        both = combined(found[0], found[1])
        value = np.asarray(both.value, np.float64)
        far = self._samples(link, point, move, here, [LONGEST_STEP * v.length], (v.ahead, v.behind))
        stays = [(s.plus == here) & (s.minus == here) for s in far]
        unread = ~both.moved & np.all(stays, axis=0)
        error = np.asarray(both.error, np.float64) + 2.0**-52 * np.abs(value)
        slopes = both.slopes and (both.slopes[0].astype(float), both.slopes[1].astype(float))
        method = Method(Scheme.REFERENCE_DIFFERENCES, reference=self.name)
        return Estimate(value, error, ~unread, method, slopes)

    def _samples(
        self,
        link: Link,
        x: Numbers,
        move: Numbers,
        here: Numbers,
        steps: Sequence[float],
        sides: tuple[float | None, float | None],
    ) -> list[Sample]:
        """Returns the samples at the steps that lie within the bounds and at which g is finite
        wherever it is at x.
        """
        samples = []
        for h in steps:
            if any(room is not None and h > room for room in sides):
                continue
            values = [
                here if room is None else self._at(link, x + sign * h * move)
                for sign, room in zip((1, -1), sides, strict=True)
            ]
            if all(np.all(np.isfinite(value) | ~np.isfinite(here)) for value in values):
                one_sided = None in sides
                if one_sided and sides[0] is None:
                    samples.append(Sample(-h, values[1], here, one_sided=True))
                else:
                    samples.append(Sample(h, values[0], values[1], one_sided=one_sided))
        return samples

    def _at(self, link: Link, x: Numbers) -> Numbers:
        with np.errstate(all="ignore"):
            return link.call(self.g, x, HostNumbers(self.dtype))

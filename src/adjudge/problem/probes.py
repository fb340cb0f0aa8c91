"""Tangents and cotangents that the table is filled with: unit ones, or random signed ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from adjudge.floats import Vector, norm, scale
from adjudge.problem.space import Space


@dataclass(frozen=True)
class Tangent:
    """A direction in X: `vector`, nonzero in leaf `leaf` only, with its natural length.

    A relative step `t` moves x by `t * length * vector`.
    """

    leaf: int
    vector: Vector
    length: float
    coordinate: int | None = None
    """The coordinate of X that alone moves, for a unit tangent."""
    unit: float = 0.0
    """What every entry is a multiple of; 0: nothing is known."""


@dataclass(frozen=True)
class Probes:
    """Unit tangents and cotangents (`full`), or one random signed one per leaf."""

    X: Space
    Y: Space
    full: bool
    seed: int

    @property
    def rows(self) -> int:
        """Number of cotangents."""
        return self.Y.size if self.full else len(self.Y.leaves)

    @property
    def columns(self) -> int:
        """Number of tangents."""
        return self.X.size if self.full else sum(leaf.size > 0 for leaf in self.X.leaves)

    @cached_property
    def cotangent(self) -> Vector:
        """The random cotangent of all outputs together."""
        return random_cotangent(self.Y, self.seed)

    def tangents(
        self, origin: Vector, block: slice, gradient: Vector | None = None
    ) -> Iterator[Tangent]:
        """Tangents at `origin`; in full mode those of the coordinates in `block`.

        `gradient`: one with whose signs three of four entries of a random tangent agree. A
        common factor on all entries then cannot hide in a tangent that happens to be orthogonal
        to the gradient, and one wrong entry still counts as it does under random signs.
        """
        if self.full:
            for j, part in enumerate(self.X.slices):
                lengths = scale(origin[part])
                for k in range(max(part.start, block.start), min(part.stop, block.stop)):
                    vector = np.zeros(self.X.size)
                    vector[k] = 1.0
                    yield Tangent(j, vector, float(lengths[k - part.start]), k)
            return
        random = np.random.default_rng([self.seed, 0])
        for j, part in enumerate(self.X.slices):
            if part.start < part.stop:
                size, wide = part.stop - part.start, self.X.leaves[j].double
                length: Vector | float = scale(origin[part])
                shortest = float(np.min(length))
                if np.max(length) == shortest:  # a power of two: multiples of it stay exact
                    length = shortest = 2.0 ** min(round(np.log2(shortest)), 1023)
                entries = random_entries(random, size, wide=wide)
                entries *= length
                if gradient is not None:
                    agree = random.integers(0, 2, size, dtype=np.uint8).view(np.bool_)
                    agree &= np.signbit(gradient[part]) != np.signbit(entries)
                    np.negative(entries, out=entries, where=agree)
                if size == self.X.size:
                    vector = entries
                else:
                    vector = np.zeros(self.X.size)
                    vector[part] = entries
                unit = 2.0 ** (-16 if wide else -8) * shortest
                yield Tangent(j, vector, 1.0, unit=unit)

    def cotangents(self) -> Iterator[Vector]:
        """Cotangents as vectors of Y: one a coordinate, or one an output leaf."""
        if self.full:
            for k in range(self.Y.size):
                vector = np.zeros(self.Y.size)
                vector[k] = 1.0
                yield vector
            return
        for part in self.Y.slices:
            vector = np.zeros(self.Y.size)
            vector[part] = self.cotangent[part]
            yield vector

    def row(self, k: int) -> Vector:
        """Cotangent `k`."""
        vector = np.zeros(self.Y.size)
        part = slice(k, k + 1) if self.full else self.Y.slices[k]
        vector[part] = 1.0 if self.full else self.cotangent[part]
        return vector

    def contract(self, column: Vector) -> Vector:
        """`<w_i, column>` for every cotangent; `column` is a point of Y."""
        if self.full:
            return column
        with np.errstate(all="ignore"):
            return np.array([self.cotangent[part] @ column[part] for part in self.Y.slices])

    def contract_error(self, error: Vector) -> Vector:
        """Error bars of `contract`: those of the entries added in quadrature, since rounding
        errors of different entries are not correlated.
        """
        if self.full:
            return error
        return np.array([norm(self.cotangent[part] * error[part]) for part in self.Y.slices])

    def contract_slopes(self, left: Vector, right: Vector, column: Vector) -> tuple[Vector, Vector]:
        """What `contract` is at least and at most where each coordinate takes any value between
        its one-sided slopes, or that of `column` where it has none (NaN).
        """
        if self.full:
            return left, right
        kink = ~np.isnan(left)
        with np.errstate(all="ignore"):
            ends = self.cotangent * np.where(kink, [left, right], column)
            bounds = np.sort(ends, axis=0)
            low, high = (
                np.array([b[p].sum() if kink[p].any() else np.nan for p in self.Y.slices])
                for b in bounds
            )
        return low, high


def random_entries(random: np.random.Generator, size: int, *, wide: bool = False) -> Vector:
    """Entries `sign * U[1/2, 1)`: no entry is small, and equal errors do not cancel in pairs
    as they do under plain signs. In 256ths, which every floating dtype, also bfloat16, holds
    exactly; `wide`: in 65536ths.
    """
    dtype = np.uint16 if wide else np.uint8
    entries = _entries(wide)
    return np.asarray(entries[random.integers(0, 2 ** (16 if wide else 8), size, dtype=dtype)])


@cache
def _entries(wide: bool) -> Vector:
    """Every signed entry there is."""
    unit = 2.0 ** (-16 if wide else -8)
    magnitudes = np.arange(0.5, 1.0, unit)
    return np.concatenate([magnitudes, -magnitudes])


def random_cotangent(space: Space, seed: int) -> Vector:
    """A signed cotangent of every output; independent of the tangents of the same seed."""
    wide = all(leaf.double for leaf in space.leaves)
    return random_entries(np.random.default_rng([seed, 1]), space.size, wide=wide)


def fresh_seed() -> int:
    """A seed from the operating system; no global generator is read or advanced."""
    return int(np.random.SeedSequence().generate_state(1)[0])

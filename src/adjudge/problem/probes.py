"""The tangents and cotangents along which derivatives are compared: unit or random ones."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from functools import cache, cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import SHARED_RANGE, STRATA
from adjudge.floats import Vector, norm, scale
from adjudge.limits import limits
from adjudge.problem.space import Space


@unique
class Stream(IntEnum):
    """What is drawn at random, each from a stream of its own.

    Draws of one stream and one seed are equal, so two probes that count as independent have two
    streams. The numbers mean nothing; a new one changes what is drawn for every seed.
    """

    TANGENTS = 0
    """The random tangents of a table, leaf after leaf."""
    COTANGENT = 1
    """The random cotangent of a table."""
    SECOND_COTANGENT = 2
    """The cotangent that additivity of the vjp adds to the first one."""
    COLORED_TANGENTS = 3
    """The magnitudes of the tangents that move several uncoupled coordinates at once."""
    BESIDE_KINK = 4
    """The points beside a kink at which the rule is judged."""
    IRREGULARITY = 5
    """The directions along which one-sided slopes are compared at a special point."""
    DENSE_COTANGENT = 6
    """The factors that fill all digits of a cotangent, to show the order of sums on a device."""
    NARROW_DTYPE = 7
    """The points and probes at which a narrow dtype is compared with double precision."""
    NARROW_PROBES = 64
    """The factors by which the probes of that comparison change away from x."""
    PROBES_OF_ZEROS = 78
    """The factors within rounding that probes have where double precision shows what is zero."""
    NEAR_SECANT = 12
    """The changed probes at which a gap to a long difference is looked at again."""
    NEAR_REFERENCE = 13
    """The points at which the derivative of a reference is looked at again."""
    ROUNDING_NEIGHBOURS = 14
    """The signs by which the entries of x move by a unit of rounding."""
    PARTS_OF_PROBES = 15
    """The parts of a probe that an automatic number is taken of beside x."""
    BATCHED_COTANGENT = 16
    """The first of two cotangents of a batch."""
    SECOND_BATCHED_COTANGENT = 17
    """The second of two cotangents of a batch."""
    PUSHED_TANGENT = 18
    """The tangent at which the properties of a jvp are checked."""
    SECOND_PUSHED_TANGENT = 19
    """The tangent that additivity of the jvp adds to the first one."""
    BATCHED_TANGENT = 20
    """The first of two tangents of a batch."""
    SECOND_BATCHED_TANGENT = 21
    """The second of two tangents of a batch."""
    COMPOSED_TANGENT = 22
    """The tangent of a derivative that is a function of its own."""
    PRECISION = 23
    """The direction along which f is tried for stairs."""
    MISTAKE_COTANGENT = 24
    """The cotangent along which all entries of an input are estimated to name a mistake."""
    MISTAKE_WEIGHTS = 25
    """The weights of the sums of a gradient that are compared to name a mistake."""
    NEARBY_POINTS = 29
    """The points at which a gap is looked at again, to tell an error from rounding."""
    SYMMETRY = 31
    """The two directions of a Hessian that should be symmetric."""
    HALF_OF_BATCH = 37
    """The half of a batch that moves. It is drawn for each leaf."""
    SPARSITY_TANGENT = 41
    """The tangents within a block of zeros. They are drawn for each leaf and each use."""
    NEAR_ADJOINT = 43
    """The changed probes at which the adjoint test is repeated."""
    BESIDE_NOT_FINITE = 47
    """The direction along which outputs that are not finite at x are looked at beside it."""
    CROSS_PROBES = 53
    """The probes that all engines share. They are drawn for each mode."""
    CROSS_TAKEN_AT = 59
    """The cotangent or tangent of the first derivative that all engines share."""
    SCATTER = 60
    """The signs by which x moves to points at which the scatter of automatic numbers is seen."""
    RESIDUE = 63
    """The probes for which a number that may be zero and rounding is taken again."""
    TERMS_OF_PROBE = 62
    """The two probes for which additivity is tried once more."""
    BESIDE_TANGENTS = 70
    """The tangents beside which slopes are looked at, to see whether they add up."""
    ROUNDED_DERIVATIVE = 71
    """The cotangent and the tangent that show to how many digits derivatives are rounded."""
    KINK_TANGENTS = 61
    """The tangents along which a rule is compared with one-sided slopes at a kink."""
    BLAME = 73
    """The directions along which the error of a program is divided among its steps."""
    SPOTCHECK = 74
    """The calls of a running program that are judged."""
    WHERE_IT_BENDS = 76
    """The moves of the entries of x along which f bends."""
    MOVES_BESIDE_KINK = 75
    """The short steps that show which outputs f moves beside a kink."""
    ENTRY_OF_TANGENT = 77
    """The entry of a tangent that is pushed by itself, and is left out of the rest."""


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """Returns the generator of a stream. The numbers `more` make several of one stream.

    NumPy pads a seed with zeros, so `more` must not be given in one place and left out in another
    of the same stream.
    """
    return np.random.default_rng([seed, stream, *more])


@dataclass(frozen=True)
class Tangent:
    """A direction in X along which f is differenced.

    `vector` is nonzero in the leaves of the indices `leaves` only, which are in order. A relative
    step `t` moves x by `t * length * vector`.
    """

    leaves: tuple[int, ...]
    vector: Vector
    length: float
    coordinate: int | None = None
    """For a unit tangent, the only coordinate of X that moves."""
    units: tuple[float, ...] = ()
    """For each leaf a number of which its entries are multiples; empty where none is known."""

    def part(self, X: Space) -> slice:
        """Returns the slice of a vector of X from the first to the last leaf that moves."""
        return slice(X.slices[self.leaves[0]].start, X.slices[self.leaves[-1]].stop)

    def restricted(
        self, X: Space, chosen: Sequence[int], factors: Sequence[float] | None = None
    ) -> Tangent:
        """Returns the tangent that moves the leaves at the positions `chosen` of `leaves` alone.

        The `factors`, one for each of them, are powers of two, with which products are exact.
        """
        leaves = tuple(self.leaves[k] for k in chosen)
        if leaves == self.leaves and factors is None:
            return self
        vector = np.zeros_like(self.vector)
        for k, j in enumerate(leaves):
            part = X.slices[j]
            vector[part] = self.vector[part] * (1.0 if factors is None else factors[k])
        units = tuple(self.units[k] for k in chosen) if self.units else ()
        if factors is not None:
            units = tuple(unit * factor for unit, factor in zip(units, factors, strict=True))
        return replace(self, leaves=leaves, vector=vector, units=units)


@dataclass(frozen=True)
class Probes:
    """The tangents and cotangents of one comparison.

    With `full` they are unit vectors, and the products `<w_i, J v_j>` are the entries of the
    Jacobian. Else there is one random tangent per leaf of X and one random cotangent per leaf of Y.
    """

    X: Space
    Y: Space
    full: bool
    seed: int
    chosen: Vector | None = field(default=None, repr=False)
    """The cotangent of all outputs, where it is not drawn at random."""
    rows: int = field(init=False)
    """The number of cotangents."""
    columns: int = field(init=False)
    """The number of tangents."""

    def __post_init__(self) -> None:
        """Counts the probes."""
        X, Y = self.X, self.Y
        rows, columns = Y.size, X.size
        if not self.full:
            rows, sizes = len(Y.leaves), list(map(attrgetter("size"), X.leaves))
            columns = len(sizes) - sizes.count(0)
        vars(self).update(rows=rows, columns=columns)

    @cached_property
    def cotangent(self) -> Vector:
        """The cotangent of all outputs together, which is random unless it was `chosen`."""
        return random_cotangent(self.Y, self.seed) if self.chosen is None else self.chosen

    def tangents(
        self, origin: Vector, block: slice, gradient: Vector | None = None
    ) -> Iterator[Tangent]:
        """Yields the tangents at the point `origin` of X.

        Args:
            origin: The point, whose scale gives the lengths of the tangents.
            block: The coordinates whose unit tangents are wanted; random tangents do not heed it.
            gradient: A vector of X whose signs three of four entries of a random tangent take.
                Without it a factor on all entries goes unseen where the tangent happens to be
                orthogonal to the gradient. A quarter of the signs stays random so that one wrong
                entry counts as much as under random signs. The rule is ours.
        """
        if self.full:
            for j, part in enumerate(self.X.slices):
                lengths = scale(origin[part])
                for k in range(max(part.start, block.start), min(part.stop, block.stop)):
                    vector = np.zeros(self.X.size)
                    vector[k] = 1.0
                    yield Tangent((j,), vector, float(lengths[k - part.start]), k)
            return
        together = self.tangent(origin, gradient)
        several = len(together.leaves) > 1
        for k in range(len(together.leaves)):
            yield together.restricted(self.X, [k]) if several else together

    def tangent(self, origin: Vector, gradient: Vector | None = None) -> Tangent:
        """Returns the random tangent of all leaves, of which `tangents` yields the parts."""
        random = generator(self.seed, Stream.TANGENTS)
        vector, leaves, units = np.zeros(self.X.size), [], []
        for j, part in enumerate(self.X.slices):
            if part.start == part.stop:
                continue
            size, wide = part.stop - part.start, self.X.leaves[j].double
            lengths = scale(origin[part])
            length: Vector | float = lengths
            one = lengths.strides == (0,)  # one number, broadcast
            shortest = float(lengths[0] if one else lengths.min())
            if one or lengths.max() == shortest:
                # One length for all entries is rounded to a power of two, so that products with it
                # are exact.
                length = shortest = 2.0 ** min(round(math.log2(shortest)), 1023)
            entries = random_entries(random, size, wide=wide)
            entries *= length
            if gradient is not None:
                agree = random.integers(0, 2, size, dtype=np.uint8).view(np.bool_)
                agree &= np.signbit(gradient[part]) != np.signbit(entries)
                np.negative(entries, out=entries, where=agree)
            vector[part] = entries
            leaves.append(j)
            units.append(2.0 ** (-16 if wide else -8) * shortest)
        return Tangent(tuple(leaves), vector, 1.0, units=tuple(units))

    def cotangents(self) -> Iterator[Vector]:
        """Yields the cotangents as vectors of Y, one for each coordinate or one for each leaf."""
        for k in range(self.rows):
            yield self.row(k)

    def row(self, k: int) -> Vector:
        """Returns cotangent `k` as a vector of Y."""
        vector = np.zeros(self.Y.size)
        part = slice(k, k + 1) if self.full else self.Y.slices[k]
        vector[part] = 1.0 if self.full else self.cotangent[part]
        return vector

    def contract(self, column: Vector) -> Vector:
        """Returns `<w_i, column>` for every cotangent, where `column` is a vector of Y."""
        if self.full:
            return column
        found = np.empty(self.rows)
        for k, part in enumerate(self.Y.slices):
            found[k] = self.cotangent[part] @ column[part]
        return found

    def contract_error(self, error: Vector) -> Vector:
        """Returns the error bars of what `contract` makes of a column with the error bars `error`.

        They are added in quadrature, since rounding errors of different entries are not correlated.
        """
        if self.full:
            return error
        found = np.empty(self.rows)
        for k, part in enumerate(self.Y.slices):
            found[k] = norm(self.cotangent[part] * error[part])
        return found


def random_entries(random: np.random.Generator, size: int, *, wide: bool = False) -> Vector:
    """Returns a vector of `size` random entries, of random sign and a magnitude from 1/2 to 1.

    No entry is small, so an error in any of them shows; and two equal errors do not cancel as they
    do under random signs alone. Magnitudes are multiples of 1/256, which every floating dtype holds
    exactly, also bfloat16; with `wide` they are multiples of 1/65536. The choice is ours.
    """
    dtype = np.uint16 if wide else np.uint8
    entries = _entries(wide)
    return np.asarray(entries[random.integers(0, 2 ** (16 if wide else 8), size, dtype=dtype)])


@cache
def _entries(wide: bool) -> Vector:
    """Returns every value that an entry may have."""
    unit = 2.0 ** (-16 if wide else -8)
    magnitudes = np.arange(0.5, 1.0, unit)
    return np.concatenate([magnitudes, -magnitudes])


def random_cotangent(space: Space, seed: int, stream: Stream = Stream.COTANGENT) -> Vector:
    """Returns a random vector of `space`, of the entries of `random_entries`: those that it draws
    from a new generator.
    """
    words = generator(seed, stream).bit_generator.random_raw(space.size // 4 + 1)
    drawn = words.view(np.uint16 if space.double else np.uint8)[: space.size]
    return np.asarray(_entries(space.double)[drawn])


def fresh_seed() -> int:
    """Returns a seed from the operating system. No global generator is read or advanced."""
    return secrets.randbits(32)


# ---- Tangents that compare several columns together
#
# Leaves share a tangent, so that what a check costs does not grow with the number of leaves. Where
# the Jacobian is sparse, so do columns without a common row. Where such a tangent does not agree,
# it is halved until what is wrong stands alone.
#
# Columns without a common nonzero row are called structurally orthogonal, and the grouping is a
# coloring of the column intersection graph (Curtis, Powell and Reid, IMA J. Appl. Math. 13, 1974).
# The sparsity pattern is that of reverse mode, which is what is being checked: an entry that it
# lacks shows as a difference in the row of another column.


def colored_tangents(
    probes: Probes, origin: Vector, block: slice, rows: Vector
) -> Iterator[tuple[Tangent, list[int]]]:
    """Yields tangents in place of the unit ones of `block`, whose table is `rows`, each with the
    coordinates that it moves.

    Every nonzero entry is compared on its own, and every zero together with one other entry at
    most. The magnitudes are random, lest two missing entries cancel.
    """
    random, densest = generator(probes.seed, Stream.COLORED_TANGENTS), limits().densest
    for j, (leaf, whole) in enumerate(zip(probes.X.leaves, probes.X.slices, strict=True)):
        part = slice(max(whole.start, block.start), min(whole.stop, block.stop))
        size = part.stop - part.start
        if not leaf.double or size < 4:
            continue
        nonzero = rows[:, part.start - block.start : part.stop - block.start] != 0
        if np.max(np.count_nonzero(nonzero, axis=1), initial=0) > densest * size:
            continue
        lengths = scale(origin[whole])[part.start - whole.start : part.stop - whole.start]
        entries = random_entries(random, size, wide=True) * 2.0 ** np.round(np.log2(lengths))
        for members in _colors(nonzero):
            vector = np.zeros(probes.X.size)
            coordinates = part.start + members
            vector[coordinates] = entries[members]
            unit = 2.0**-16 * float(np.min(lengths[members])) / 2
            yield Tangent((j,), vector, 1.0, units=(unit,)), [int(k) for k in coordinates]


def shared_tangents(
    X: Space, together: Tangent, gradient: Vector, visible: float
) -> Iterator[Tangent]:
    """Yields tangents that move several leaves each, in place of one for each leaf of `together`.

    One tangent a leaf makes the cost of a model grow with the number of its parameters. In a shared
    one no leaf may hide behind another. Up to the size `visible` of the derivative along the
    tangent the rounding of f is what hides an error, and nothing is gained by scaling. Leaves whose
    entries contribute more to it, by the `gradient` of reverse mode, are scaled down to that. A
    leaf that would have to be scaled by more than `SHARED_RANGE` is in a tangent with leaves of its
    own magnitude, and so are leaves without a derivative, which may be there for want of a rule.
    Leaves of less than double precision, in which scaled steps would drown, and such whose
    derivative is not finite, have tangents of their own. All of this is ours.
    """
    sizes = np.zeros(len(together.leaves))
    for k, j in enumerate(together.leaves):
        part = X.slices[j]
        sizes[k] = norm(gradient[part] * together.vector[part]) / np.sqrt(X.leaves[j].size)
        if not X.leaves[j].double:
            sizes[k] = np.nan
    count = sum(X.leaves[j].size for j in together.leaves)
    largest = np.max(sizes, initial=0.0, where=np.isfinite(sizes))
    floor = max(visible / np.sqrt(count), largest / SHARED_RANGE**STRATA)
    strata: dict[float, list[int]] = {}
    for k, size in enumerate(sizes):
        if not np.isfinite(size):
            yield together.restricted(X, [k])
            continue
        above = np.log(max(size / floor, 1.0)) // np.log(SHARED_RANGE) if size > 0 else -1.0
        strata.setdefault(above, []).append(k)
    for above, members in sorted(strata.items()):
        if above < 0:
            yield together.restricted(X, members)
            continue
        least = floor * SHARED_RANGE**above
        factors = [2.0 ** -max(np.ceil(np.log2(sizes[k] / least)), 0.0) for k in members]
        yield together.restricted(X, members, factors if min(factors) < 1 else None)


def halves(leaves: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the first half and the second half of some leaves."""
    middle = len(leaves) // 2
    return leaves[:middle], leaves[middle:]


def _colors(nonzero: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """Yields groups of columns without a common row, each column in the first group that it fits
    into.
    """
    members: list[list[int]] = []
    unions = np.zeros((0, nonzero.shape[0]), bool)
    for k, column in enumerate(nonzero.T):
        touched = np.flatnonzero(column)
        free = np.flatnonzero(~unions[:, touched].any(axis=1))
        if free.size:
            members[free[0]].append(k)
            unions[free[0], touched] = True
        else:
            members.append([k])
            unions = np.vstack([unions, column])
    yield from (np.array(group) for group in members if len(group) > 1)

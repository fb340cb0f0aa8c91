"""This module makes tangents that compare several columns together.

Leaves share a tangent, so that what a check costs does not grow with the number of leaves. Where
the Jacobian is sparse, so do columns without a common row. Where such a tangent does not agree, it
is halved until what is wrong stands alone.

Columns without a common nonzero row are called structurally orthogonal, and the grouping is a
coloring of the column intersection graph (Curtis, Powell and Reid, IMA J. Appl. Math. 13, 1974).
The sparsity pattern is that of reverse mode, which is what is being checked: an entry that it lacks
shows as a difference in the row of another column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import SHARED_RANGE, STRATA
from adjudge.floats import Vector, norm, scale
from adjudge.limits import limits
from adjudge.problem import Probes, Space, Stream, Tangent, generator, random_entries


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

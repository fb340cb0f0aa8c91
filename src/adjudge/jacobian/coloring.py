"""This module groups columns of a sparse Jacobian that one tangent can compare together.

Columns without a common nonzero row are called structurally orthogonal, and the grouping is a
coloring of the column intersection graph (Curtis, Powell and Reid, IMA J. Appl. Math. 13, 1974).
The sparsity pattern is that of reverse mode, which is what is being checked: an entry that it lacks
shows as a difference in the row of another column.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from adjudge.floats import Vector, scale
from adjudge.limits import limits
from adjudge.problem import Probes, Stream, Tangent, generator, random_entries


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
            yield Tangent(j, vector, 1.0, unit=unit), [int(k) for k in coordinates]


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

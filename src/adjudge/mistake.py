"""From a failed table to one sentence on the likely mistake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from adjudge.diagnose import diagnose
from adjudge.differences import norm
from adjudge.failure import Failure
from adjudge.numeric import column
from adjudge.probes import random_cotangent
from adjudge.table import Table

ENTRIES = 64
"""Largest input, in real coordinates, whose gradient is taken entry by entry for this: twice as
many evaluations, and only after a failure."""


def likely_mistake(table: Table, mode: str) -> str | None:
    """What is probably wrong with the gradient that failed first in `mode`, if the numbers show it.

    The gradient `J* w` of one input, for a random `w` on one output, is compared with differences
    along every entry of the input.
    """
    failure = table.failures.get(mode)
    reverse, problem, base = table.reverse, table.problem, table.base
    if failure is None or failure.side != "rows" or reverse is None or table.eps is not None:
        return None
    j, i = failure.tangent.leaf, _output(table, failure)
    leaf, part = problem.X.leaves[j], problem.X.slices[j]
    if not 2 <= leaf.size <= ENTRIES or not reverse.attached[i]:
        return None
    w = np.zeros(base.Y.size)
    w[base.Y.slices[i]] = random_cotangent(base.Y, table.probes.seed + 13)[base.Y.slices[i]]
    if base.Y.leaves[i].complex:
        w[base.Y.slices[i].start + 1 : base.Y.slices[i].stop : 2] = 0.0
    reference, error = np.empty(leaf.size), np.empty(leaf.size)
    units = replace(table.probes, full=True).tangents(problem.origin, part)
    for k, unit in enumerate(units):
        found = column(problem, base, unit, None)
        reference[k] = w @ found.estimate.value[: base.Y.size]
        error[k] = norm(w * found.estimate.error[: base.Y.size])
    return diagnose(
        reverse.row(base, w)[part],
        reference,
        error,
        table.tolerance.relative,
        input_shape=leaf.host_shape,
        complex_input=leaf.complex,
        x=problem.origin[part],
        output_shape=base.Y.leaves[i].host_shape,
        other=reverse.row(base, -2.0 * w)[part],
    )


def _output(table: Table, failure: Failure) -> int:
    return int(table.base.Y.owner[failure.row]) if table.probes.full else failure.row

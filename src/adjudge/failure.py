"""A projected comparison that failed, with what a search for its entries begins with; the names of
rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from adjudge.compare import Entry
from adjudge.observed import Base
from adjudge.probes import Probes, Tangent
from adjudge.problem import Problem


@dataclass(frozen=True)
class Failure:
    """A projected comparison that failed, with what is needed to search for the entry."""

    mode: str
    side: str
    tangent: Tangent
    row: int
    entry: Entry


def row_name(probes: Probes, base: Base, side: str, k: int) -> str:
    """What row `k` of that side is the derivative of."""
    if side == "first":
        return "<w, f>"
    if probes.full or side == "each":
        return base.Y.entry(k)
    return f"<w, {base.Y.leaves[k].name}>"


def column_name(problem: Problem, tangent: Tangent) -> str:
    """What the derivative is taken with respect to."""
    if tangent.coordinate is not None:
        return problem.X.entry(tangent.coordinate)
    return f"{problem.X.leaves[tangent.leaf].name} along v"

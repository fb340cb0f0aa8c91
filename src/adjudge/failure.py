"""A projected comparison that failed, with what a search for its entries begins with."""

from __future__ import annotations

from dataclasses import dataclass

from adjudge.compare import Entry
from adjudge.probes import Tangent


@dataclass(frozen=True)
class Failure:
    """A projected comparison that failed, with what is needed to search for the entry."""

    mode: str
    side: str
    tangent: Tangent
    row: int
    entry: Entry

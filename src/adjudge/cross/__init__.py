"""One function on several engines, compared number by number.

Its modules, each of which may import those above it:

- `engine`: an engine as a source of numbers at points that all engines share.
- `report`: what `crosscheck` returns and raises.
- `compare`: two engines' numbers: equal to rounding, or apart, and what each pair decides.
- `crosscheck`: the verb.

Invariant: a difference between engines is called a divergence only where rounding cannot
explain it. The room is not called crosscheck, since a module of that name would hide the
function `adjudge.crosscheck`.
"""

from adjudge.cross.crosscheck import crosscheck
from adjudge.cross.report import CrosscheckError, CrossReport, Divergence, crosstable

__all__ = [
    "CrossReport",
    "CrosscheckError",
    "Divergence",
    "crosscheck",
    "crosstable",
]

"""One function on several engines, compared number by number.

In here: an engine as a source of numbers at points that all engines share, the comparison of
two engines, and the report of `crosscheck`. The room is not called crosscheck, since a folder
of that name would hide the function `adjudge.crosscheck`.

Invariant: a difference between engines is called a divergence only where rounding cannot
explain it.
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

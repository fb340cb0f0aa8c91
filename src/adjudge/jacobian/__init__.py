"""Automatic derivatives against estimates, entry by entry of the table `<w_i, J v_j>`.

In here: the tolerance and the comparison of numbers, the table and its columns, what is tried
next where two evaluations leave a doubt, the decision between rounding and an error, saturated
entries, columns that are compared together (Jacobian coloring), the adjoint test of forward
against reverse mode, affine functions, and large problems by sums of blocks.

Invariant: every estimate is shared by all modes that are checked, and what is compared is
counted in a tally.
"""

from adjudge.jacobian.affine import Affine
from adjudge.jacobian.block_sums import by_sums, fit
from adjudge.jacobian.budget import ENTRY, least
from adjudge.jacobian.comparison import ERRORS, UNDERFLOW, Entry, Tally, Tolerance
from adjudge.jacobian.refine import RESIDUE
from adjudge.jacobian.rounding import (
    DERIVATIVE_UNITS,
    SPREADS,
    SUM_UNITS,
    Array,
    Derivative,
    Side,
    allowed,
    bias,
    both_finite,
    factors,
    far,
    fixed,
    near,
    neighbours,
    pair,
    persists,
    probes,
    rms,
    shaken,
    steady,
)
from adjudge.jacobian.table import Failure, Table

__all__ = [
    "DERIVATIVE_UNITS",
    "ENTRY",
    "ERRORS",
    "RESIDUE",
    "SPREADS",
    "SUM_UNITS",
    "UNDERFLOW",
    "Affine",
    "Array",
    "Derivative",
    "Entry",
    "Failure",
    "Side",
    "Table",
    "Tally",
    "Tolerance",
    "allowed",
    "bias",
    "both_finite",
    "by_sums",
    "factors",
    "far",
    "fit",
    "fixed",
    "least",
    "near",
    "neighbours",
    "pair",
    "persists",
    "probes",
    "rms",
    "shaken",
    "steady",
]

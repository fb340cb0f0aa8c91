"""Automatic derivatives against estimates, entry by entry of the table `<w_i, J v_j>`.

Its modules, each of which may import those above it:

- `comparison`: the tolerance, one comparison of numbers, and the tally of many.
- `rounding`: whether two automatic numbers differ by rounding or by an error.
- `column`: the comparisons of one column, mode by mode.
- `budget`: what still fits into `max_evaluations`.
- `coloring`: structurally orthogonal columns, which one tangent compares together.
- `adjoint`: the adjoint test of forward against reverse mode.
- `affine`: long differences along which f is affine, compared to rounding.
- `saturation`: derivatives that the rounding of f hides.
- `refine`: what is tried next where two evaluations leave a doubt.
- `table`: all columns compared, and what is remembered of them.
- `block_sums`: large problems compared by sums of blocks.

Invariant: every estimate is made once and shared by all modes that are checked, and whatever is
compared is counted in a tally.
"""

from adjudge.jacobian.affine import Affine
from adjudge.jacobian.block_sums import by_sums, fit
from adjudge.jacobian.budget import ENTRY, least
from adjudge.jacobian.comparison import ERRORS, UNDERFLOW, Entry, Tally, Tolerance
from adjudge.jacobian.refine import RESIDUE
from adjudge.jacobian.rounding import (
    DERIVATIVE_UNITS,
    FAR_DISTANCES,
    SUM_UNITS,
    Array,
    Derivative,
    Evaluator,
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
    "FAR_DISTANCES",
    "RESIDUE",
    "SUM_UNITS",
    "UNDERFLOW",
    "Affine",
    "Array",
    "Derivative",
    "Entry",
    "Evaluator",
    "Failure",
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

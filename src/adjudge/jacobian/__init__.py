"""Automatic derivatives against estimates, entry by entry of the table `<w_i, J v_j>`.

Its modules, each of which may import those above it:

- `comparison`: the tolerance, one comparison of numbers, the tally of many, the findings that a
  tally amounts to, and the comparisons by pair of an output and an input.
- `rounding`: whether two automatic numbers differ by rounding or by an error.
- `column`: the comparisons of one column, mode by mode.
- `affine`: long differences along which f is affine, compared to rounding.
- `saturation`: derivatives that the rounding of f hides.
- `stages`: what is tried next where two evaluations leave a doubt, as a list.
- `hidden`: outputs that do not show beside others, and the cotangent in which they do.
- `adjoint`: the adjoint test of forward against reverse mode.
- `table`: all columns compared, what is remembered of them, and what still fits into
  `max_evaluations`.
- `entry`: one entry judged by the stages.
- `one_sided`: at a kink, whether a rule lies outside of the generalised derivative.

Invariant: every estimate is made once and shared by all modes that are checked, and whatever is
compared is counted in a tally.
"""

from adjudge.jacobian.affine import Affine
from adjudge.jacobian.column import ColumnBlock, Columns
from adjudge.jacobian.comparison import (
    ERRORS,
    Tally,
    Tolerance,
    findings_of,
    identity_findings,
    mode_verdict,
)
from adjudge.jacobian.entry import (
    AutomaticEntry,
    JudgedEntry,
    RememberingEstimator,
    judge_entry,
)
from adjudge.jacobian.one_sided import compare_one_sided
from adjudge.jacobian.rounding import (
    Array,
    DerivativeAtPoints,
    Deviation,
    Evaluator,
    Sides,
    ValueAtPoints,
    apart_between,
    apart_where_moved,
    deviation_of_values,
    finite_deviation,
    is_systematic,
    perturbed,
    points_around,
    points_within_rounding,
    random_probes,
    relative_bias,
    representable_within_bounds,
    rms,
    rounding_part,
    scatter,
)
from adjudge.jacobian.stages import STAGES
from adjudge.jacobian.table import ENTRY_WORK, Failure, Table, least_work

__all__ = [
    "ENTRY_WORK",
    "ERRORS",
    "STAGES",
    "Affine",
    "Array",
    "AutomaticEntry",
    "ColumnBlock",
    "Columns",
    "DerivativeAtPoints",
    "Deviation",
    "Evaluator",
    "Failure",
    "JudgedEntry",
    "RememberingEstimator",
    "Sides",
    "Table",
    "Tally",
    "Tolerance",
    "ValueAtPoints",
    "apart_between",
    "apart_where_moved",
    "compare_one_sided",
    "deviation_of_values",
    "findings_of",
    "finite_deviation",
    "identity_findings",
    "is_systematic",
    "judge_entry",
    "least_work",
    "mode_verdict",
    "perturbed",
    "points_around",
    "points_within_rounding",
    "random_probes",
    "relative_bias",
    "representable_within_bounds",
    "rms",
    "rounding_part",
    "scatter",
]

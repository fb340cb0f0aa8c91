"""Directional derivatives of f with an error bar, from values of f or from a reference.

Its modules, each of which may import those above it:

- `kinks`: what a kink and a jump are, one-sided slopes, and whether f is differentiable at x.
- `stencils`: difference stencils and the Richardson ladder, as arithmetic on sampled values.
- `balls`: arrays of balls with their derivatives, and the functions of the vocabulary on them.
- `matrices`: linear algebra on these.
- `replay`: a program replayed in balls, and whether its translation is right.
- `pullback`: the vjp of a replayed program, by reverse accumulation.
- `reference`: a derivative that the user gives in place of differences, bound to a problem, and
  that by NumPy's extended precision.
- `exact`: f itself replayed, as a reference.
- `directional`: differences of values of f along one tangent, at steps that are exact in its dtype
  and within bounds.
- `noise`: the computational noise of f, and how many digits its values carry.
- `estimator`: `Estimator.along(v, effort)`, by differences or by a reference.

Invariant: an estimate is data (value, error bar, evaluations, method), and no automatic
derivative takes part in it.
"""

from adjudge.estimate.directional import (
    Column,
    at_fixed_step,
    describe_move,
    moved_by,
    of_projections,
    representable,
    sample_at,
    towards_tie,
)
from adjudge.estimate.estimator import (
    ByReference,
    Differences,
    Effort,
    Estimator,
    by_reference,
    by_replay,
    jvp_by_replay,
    value_by_replay,
    vjp_by_replay,
)
from adjudge.estimate.exact import Exact, enclosure_of, require_flint
from adjudge.estimate.kinks import (
    Irregularity,
    Slopes,
    bend_residuals,
    endless,
    half_gaps,
    irregularity,
)
from adjudge.estimate.noise import (
    SIGNIFICANT_BITS,
    dtype_inside,
    may_round_inside,
    narrowest_eps,
    noise_inside,
    rounded_dtype,
    significant_bits,
)
from adjudge.estimate.reference import (
    Direction,
    Link,
    Mpmath,
    NumpyDifferences,
    Reference,
    Referenced,
    bind,
)
from adjudge.estimate.stencils import Estimate, Sample, hull, in_parts

__all__ = [
    "SIGNIFICANT_BITS",
    "ByReference",
    "Column",
    "Differences",
    "Direction",
    "Effort",
    "Estimate",
    "Estimator",
    "Exact",
    "Irregularity",
    "Link",
    "Mpmath",
    "NumpyDifferences",
    "Reference",
    "Referenced",
    "Sample",
    "Slopes",
    "at_fixed_step",
    "bend_residuals",
    "bind",
    "by_reference",
    "by_replay",
    "describe_move",
    "dtype_inside",
    "enclosure_of",
    "endless",
    "half_gaps",
    "hull",
    "in_parts",
    "irregularity",
    "jvp_by_replay",
    "may_round_inside",
    "moved_by",
    "narrowest_eps",
    "noise_inside",
    "of_projections",
    "representable",
    "require_flint",
    "rounded_dtype",
    "sample_at",
    "significant_bits",
    "towards_tie",
    "value_by_replay",
    "vjp_by_replay",
]

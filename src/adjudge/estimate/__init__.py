"""Directional derivatives of f with an error bar, from values of f or from a reference.

Its modules, each of which may import those above it:

- `stencils`: difference stencils and the Richardson ladder, as arithmetic on sampled values.
- `reference`: a derivative that the user gives in place of differences, bound to a problem, and
  that by NumPy's extended precision.
- `directional`: the derivative of a problem along one tangent.
- `noise`: the computational noise of f, and how many digits its values carry.
- `kinks`: jumps and one-sided slopes, and whether f is differentiable at x.

Invariant: an estimate is data (value, error bar, evaluations, method), and no automatic
derivative takes part in it.
"""

from adjudge.estimate.directional import (
    Column,
    by_reference,
    coarsest_eps,
    column,
    describe_move,
    moved_by,
    representable,
    steps_around,
    with_ladder,
    with_longer_step,
    with_second_ladder,
    with_steps,
)
from adjudge.estimate.kinks import Irregularity, irregularity, with_jumps
from adjudge.estimate.noise import (
    SIGNIFICANT_BITS,
    plateau_dtype,
    rounded_dtype,
    with_measured_noise,
)
from adjudge.estimate.reference import Direction, Link, Mpmath, NumpyDifferences, Reference, bind
from adjudge.estimate.stencils import Estimate, Sample

__all__ = [
    "SIGNIFICANT_BITS",
    "Column",
    "Direction",
    "Estimate",
    "Irregularity",
    "Link",
    "Mpmath",
    "NumpyDifferences",
    "Reference",
    "Sample",
    "bind",
    "by_reference",
    "coarsest_eps",
    "column",
    "describe_move",
    "irregularity",
    "moved_by",
    "plateau_dtype",
    "representable",
    "rounded_dtype",
    "steps_around",
    "with_jumps",
    "with_ladder",
    "with_longer_step",
    "with_measured_noise",
    "with_second_ladder",
    "with_steps",
]

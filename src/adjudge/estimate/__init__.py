"""Directional derivatives of f with an error bar, from values of f or from a reference.

Its modules, each of which may import those above it:

- `stencils`: difference stencils and the Richardson ladder, as arithmetic on sampled values.
- `reference`: a derivative that the user gives in place of differences, bound to a problem.
- `multiprecision`: a reference in mpmath.
- `long_double`: a reference in NumPy's extended precision.
- `directional`: the derivative of a problem along one tangent.
- `noise`: the computational noise of f, and how many digits its values carry.
- `kinks`: jumps and one-sided slopes, and whether f is differentiable at x.

Invariant: an estimate is data (value, error bar, evaluations, method), and no automatic
derivative takes part in it.
"""

from adjudge.estimate.directional import (
    Column,
    by_reference,
    climbed,
    column,
    confirm,
    doing,
    moved_by,
    refined,
    representable,
    steps_around,
    unit_roundoff,
)
from adjudge.estimate.kinks import BEYOND, Reasons, irregular, with_jumps
from adjudge.estimate.long_double import NumpyDifferences
from adjudge.estimate.multiprecision import Mpmath
from adjudge.estimate.noise import CARRIED, measured, plateau, precision
from adjudge.estimate.reference import Direction, Link, Reference, bound
from adjudge.estimate.stencils import Estimate, Sample

__all__ = [
    "BEYOND",
    "CARRIED",
    "Column",
    "Direction",
    "Estimate",
    "Link",
    "Mpmath",
    "NumpyDifferences",
    "Reasons",
    "Reference",
    "Sample",
    "bound",
    "by_reference",
    "climbed",
    "column",
    "confirm",
    "doing",
    "irregular",
    "measured",
    "moved_by",
    "plateau",
    "precision",
    "refined",
    "representable",
    "steps_around",
    "unit_roundoff",
    "with_jumps",
]

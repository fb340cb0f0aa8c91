"""Directional derivatives of f with an error bar, from values of f or from a reference.

In here: difference stencils and the Richardson ladder, the measured noise of f, one-sided
slopes at kinks, and references that the user gives in place of differences (mpmath, long
double, analytic).

Invariant: an estimate is data (value, error bar, evaluations, method), and no automatic
derivative takes part in it.
"""

from adjudge.estimate.directional import (
    Column,
    climbed,
    column,
    confirm,
    doing,
    given,
    moved_by,
    refined,
    representable,
    steps_around,
    unit_roundoff,
)
from adjudge.estimate.kinks import BEYOND, Reasons, irregular, with_jumps
from adjudge.estimate.long_double import Twin
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
    "Reasons",
    "Reference",
    "Sample",
    "Twin",
    "bound",
    "climbed",
    "column",
    "confirm",
    "doing",
    "given",
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

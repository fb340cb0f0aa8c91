"""One function on one engine: which comparisons are made, at which points and in which precision.

Its modules, each of which may import those above it:

- `options`: the options of all verbs, with their meaning, the settings made of them, and what is
  told of a call before any work.
- `one_problem`: one problem judged, from its probes to its findings; beside x where x is on a kink.
- `double_precision`: a function of low precision judged in double, and low against that.
- `special_points`: points that random inputs miss.
- `mode_matrix`: every composition of modes in every way of the engine, and when two of these
  agree to rounding, so that one comparison speaks for both.
- `surroundings`: global state around a check, put back afterwards, and random numbers replayed.
- `unchecked`: what a check leaves out, checked as well or named.
- `one_point`: the check at one point, from the options to the report.
- `points`: one check at several points.
- `slips`: a function by hand that fails, checked once more with a likely slip undone.

Invariant: everything that the user's function could change outside of its outputs is restored
or named.
"""

from adjudge.check.one_point import at_one_point, function_name, of_second_order
from adjudge.check.one_problem import points_beside_kink
from adjudge.check.options import (
    CrossOptions,
    EngineOptions,
    MoreOptions,
    Options,
    ScopeOptions,
    SecondOrderOptions,
    SharedOptions,
    TorchOptions,
    checked_signature,
    inputs_apart,
    known_options,
    problem_of,
    requested_modes,
    require_kind,
    settings_of,
    unexpected,
)
from adjudge.check.points import at_points, silence
from adjudge.check.slips import with_slip
from adjudge.check.special_points import PATTERNS, Given, SpecialPoint, special_points
from adjudge.check.surroundings import IN_TURN, surroundings

__all__ = [
    "IN_TURN",
    "PATTERNS",
    "CrossOptions",
    "EngineOptions",
    "Given",
    "MoreOptions",
    "Options",
    "ScopeOptions",
    "SecondOrderOptions",
    "SharedOptions",
    "SpecialPoint",
    "TorchOptions",
    "at_one_point",
    "at_points",
    "checked_signature",
    "function_name",
    "inputs_apart",
    "known_options",
    "of_second_order",
    "points_beside_kink",
    "problem_of",
    "requested_modes",
    "require_kind",
    "settings_of",
    "silence",
    "special_points",
    "surroundings",
    "unexpected",
    "with_slip",
]

"""One function on one engine: which comparisons are made, at which points and in which precision.

Its modules, each of which may import those above it:

- `one_problem`: one problem judged, from its probes to its findings.
- `at_kinks`: a kink at x, judged at points beside it.
- `double_precision`: a function of low precision judged in double, and low against that.
- `equivalence`: when two modes or ways agree to rounding, so that one comparison speaks for
  both.
- `options`: the keywords of the verbs, validated.
- `isolation`: global state around a check, and what was noticed of it.
- `special_points`: points that random inputs miss.
- `points`: one check at several points.
- `summary`: the report of all judgements.
- `mode_matrix`: every composition of modes in every way of the engine.

Invariant: everything that the user's function could change outside of its outputs is restored
or named.
"""

from adjudge.check.double_precision import carries_double, double_precision_of, note_of, refusal
from adjudge.check.isolation import noticed, surroundings
from adjudge.check.mode_matrix import Matrix, Way, composition, shares, ways_of
from adjudge.check.one_problem import Settings
from adjudge.check.options import Mode, Options, problem_of, settings_of
from adjudge.check.points import at_points, silence
from adjudge.check.special_points import PATTERNS, Given, SpecialPoint, special_points
from adjudge.check.summary import function_name, provenance_of, report_of

__all__ = [
    "PATTERNS",
    "Given",
    "Matrix",
    "Mode",
    "Options",
    "Settings",
    "SpecialPoint",
    "Way",
    "at_points",
    "carries_double",
    "composition",
    "double_precision_of",
    "function_name",
    "note_of",
    "noticed",
    "problem_of",
    "provenance_of",
    "refusal",
    "report_of",
    "settings_of",
    "shares",
    "silence",
    "special_points",
    "surroundings",
    "ways_of",
]

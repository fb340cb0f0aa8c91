"""One function on one engine: which comparisons are made, at which points and in which precision.

In here: the options of the verbs, the judgement of one problem, the mode matrix (R, F, RR, FR,
RF, FF in every way of the engine), kinks at x judged beside it, several points, double
precision beside a low one, and the isolation of global state.

Invariant: everything that the user's function could change outside of its outputs is restored
or named.
"""

from adjudge.check.double_precision import carries_double, note_of, refusal, twin_of
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
    "twin_of",
    "ways_of",
]
